// SPDX-License-Identifier: GPL-2.0

//! A misc character device with ioctls, whose open files hold the module.
//!
//! C: `include/linux/miscdevice.h`, `include/linux/fs.h`. The kernel crate's `MiscDevice` leaves
//! `fops.owner` empty, so that unloading the module under an open file would crash: the file
//! operations here are our own, with the owner set.

use crate::{bindings, kern::module::THIS_MODULE};
use core::marker::PhantomData;
use kernel::{
    container_of,
    error::{from_result, to_result},
    ffi::{c_int, c_long, c_uint, c_ulong},
    prelude::*,
    str::CStr,
    types::{ForeignOwnable, Opaque},
};

/// The operations of a device.
pub trait DeviceOps: 'static {
    /// The state of a file: a clone of the device's.
    type State: Clone + Send + Sync + 'static;

    /// A call on a file. `cmd` and `arg` are the program's, unchecked: `arg` may only be read by
    /// `UserSlice`. An unknown `cmd` is `ENOTTY`. The result must not be negative.
    ///
    /// Context: may sleep; many at the same time.
    fn ioctl(state: &Self::State, cmd: u32, arg: usize) -> Result<isize>;
}

/// A registered device; dropping it removes the device.
///
/// # Invariants
///
/// `misc` is registered from its making to its drop, in a `Registration<T>` whose `state` is
/// initialised; both fields stay in place that long.
#[pin_data(PinnedDrop)]
pub struct Registration<T: DeviceOps> {
    #[pin]
    misc: Opaque<bindings::miscdevice>,
    state: T::State,
}

// SAFETY: a misc device may be removed by another thread than the one that made it.
unsafe impl<T: DeviceOps> Send for Registration<T> {}
// SAFETY: there are no methods on a shared reference.
unsafe impl<T: DeviceOps> Sync for Registration<T> {}

impl<T: DeviceOps> Registration<T> {
    /// Makes `/dev/<name>`, usable by every user, whose files work on `state`.
    ///
    /// Context: may sleep. Errors: `EBUSY`, `ENOMEM` and others of `misc_register`.
    pub fn register(name: &'static CStr, state: T::State) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            // Before a file can be opened.
            state,
            // INVARIANT: registered here, removed by `drop`.
            misc <- Opaque::try_ffi_init(move |slot: *mut bindings::miscdevice| {
                let misc = bindings::miscdevice {
                    minor: bindings::MISC_DYNAMIC_MINOR as c_int,
                    name: name.as_char_ptr(),
                    fops: &Fops::<T>::TABLE,
                    mode: 0o666,
                    ..pin_init::zeroed()
                };
                // SAFETY: `slot` is the device's final place.
                unsafe { slot.write(misc) };
                // SAFETY: name and operations live for ever, the rest is in the pinned slot, which
                // `drop` takes out before it goes.
                to_result(unsafe { bindings::misc_register(slot) })
            }),
        }? Error)
    }
}

#[pinned_drop]
impl<T: DeviceOps> PinnedDrop for Registration<T> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: registered by the type invariant.
        unsafe { bindings::misc_deregister(self.misc.get()) };
    }
}

struct Fops<T>(PhantomData<T>);

impl<T: DeviceOps> Fops<T> {
    const TABLE: bindings::file_operations = bindings::file_operations {
        owner: THIS_MODULE,
        open: Some(Self::open),
        release: Some(Self::release),
        unlocked_ioctl: Some(Self::ioctl),
        #[cfg(CONFIG_COMPAT)]
        compat_ioctl: bindings::compat_ptr_ioctl,
        llseek: Some(bindings::noop_llseek),
        ..pin_init::zeroed()
    };

    /// # Safety
    ///
    /// `file` must be a file of this device that is being opened.
    unsafe extern "C" fn open(_inode: *mut bindings::inode, file: *mut bindings::file) -> c_int {
        from_result(|| {
            // SAFETY: the misc layer has put the device there. It keeps it registered during the
            // call.
            let misc = unsafe { (*file).private_data.cast::<bindings::miscdevice>() };
            // SAFETY: by the type invariant it is in a `Registration<T>`, whose state is
            // initialised and not changed.
            let state =
                unsafe { &(*container_of!(Opaque::cast_from(misc), Registration<T>, misc)).state };
            let state = KBox::new(state.clone(), GFP_KERNEL)?;
            // SAFETY: the file is being opened, so no other thread has it yet.
            unsafe { (*file).private_data = state.into_foreign() };
            Ok(0)
        })
    }

    /// # Safety
    ///
    /// `file` must have been opened by `open` above, and this must be its last use.
    unsafe extern "C" fn release(_inode: *mut bindings::inode, file: *mut bindings::file) -> c_int {
        // SAFETY: `open` put it there, and no call borrows it any more.
        drop(unsafe { KBox::<T::State>::from_foreign((*file).private_data) });
        0
    }

    /// # Safety
    ///
    /// `file` must have been opened by `open` above and not have been released.
    unsafe extern "C" fn ioctl(file: *mut bindings::file, cmd: c_uint, arg: c_ulong) -> c_long {
        // SAFETY: `open` put it there, and it stays until `release`, which cannot run now.
        let state = unsafe { &*(*file).private_data.cast::<T::State>() };
        match T::ioctl(state, cmd, arg) {
            Ok(v) => v as c_long,
            Err(e) => e.to_errno() as c_long,
        }
    }
}
