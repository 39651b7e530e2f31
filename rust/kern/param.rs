// SPDX-License-Identifier: GPL-2.0

//! Module parameters that sysfs shows: numbers that are read-only after load, and numbers and names
//! that can be written while the module is loaded.
//!
//! The kernel crate's `module!` makes parameters that sysfs does not show, and none that can be
//! written.
//!
//! C header: [`include/linux/moduleparam.h`](srctree/include/linux/moduleparam.h)

use crate::bindings;
use core::{cell::UnsafeCell, ptr::addr_of_mut};
use kernel::{
    error::to_result,
    ffi::{c_char, c_int},
    prelude::*,
    str::CStr,
    sync::{
        atomic::{Atomic, Relaxed},
        Arc, //
    },
};

/// A parameter's value: the default, or what was given at load time.
#[repr(transparent)]
pub(crate) struct Uint(Atomic<u32>);

impl Uint {
    /// A parameter with its default.
    pub(crate) const fn new(default: u32) -> Self {
        Self(Atomic::new(default))
    }

    /// The value. Any context.
    pub(crate) fn get(&self) -> u32 {
        self.0.load(Relaxed)
    }

    #[doc(hidden)]
    pub(crate) const fn as_ptr(&self) -> *mut u32 {
        self.0.as_ptr()
    }
}

/// A group of parameters, by a number of the module's: its [`Watcher`] is told when one of them was
/// written.
pub(crate) type Group = u32;

/// Is told of parameters that are written while the module is live.
pub(crate) trait Watcher: Send + Sync {
    /// A parameter of `group` was written.
    ///
    /// Context: may sleep. The lock of the module's parameters is held: one call at a time, and it
    /// must not make or end a [`Live`].
    fn written(&self, group: Group);

    /// It is told of parameters from now on. Values that were written before are there.
    ///
    /// Context: as for [`written`](Self::written).
    fn begun(&self);
}

/// A number that can be written at any time, within a range.
pub(crate) struct WritableUint {
    value: Atomic<u32>,
    min: u32,
    max: u32,
    group: Option<Group>,
}

impl WritableUint {
    /// A parameter with its default, and the least and the most it can be.
    pub(crate) const fn new(default: u32, min: u32, max: u32, group: Option<Group>) -> Self {
        assert!(min <= default && default <= max);
        Self {
            value: Atomic::new(default),
            min,
            max,
            group,
        }
    }

    /// The value, which is within the range. Any context; it may be another one the next time.
    pub(crate) fn get(&self) -> u32 {
        self.value.load(Relaxed)
    }
}

impl Writable for WritableUint {
    fn set(&self, text: &CStr) -> Result {
        let mut value = 0;
        // SAFETY: a C string, and a place for the number.
        to_result(unsafe { bindings::kstrtouint(text.as_char_ptr(), 0, &mut value) })
            .map_err(|_| EINVAL)?;
        if value < self.min || value > self.max {
            return Err(EINVAL);
        }
        self.value.store(value, Relaxed);
        Ok(())
    }

    unsafe fn show(&self, page: *mut c_char) -> c_int {
        // SAFETY: the caller's promise, and the format takes an `unsigned int`.
        unsafe {
            bindings::scnprintf(
                page,
                kernel::page::PAGE_SIZE,
                c"%u\n".as_char_ptr(),
                self.get(),
            )
        }
    }

    fn group(&self) -> Option<Group> {
        self.group
    }
}

/// One of some names, which can be written at any time.
pub(crate) struct Names {
    index: Atomic<u32>,
    names: &'static [&'static CStr],
    group: Option<Group>,
}

impl Names {
    /// A parameter with its names, and which of them is the default.
    pub(crate) const fn new(
        names: &'static [&'static CStr],
        default: u32,
        group: Option<Group>,
    ) -> Self {
        assert!((default as usize) < names.len());
        Self {
            index: Atomic::new(default),
            names,
            group,
        }
    }

    /// Which of the names it is, from 0. Any context; it may be another one the next time.
    pub(crate) fn get(&self) -> u32 {
        self.index.load(Relaxed)
    }
}

impl Writable for Names {
    fn set(&self, text: &CStr) -> Result {
        let text = text.to_bytes();
        let text = text.strip_suffix(b"\n").unwrap_or(text);
        let index = self.names.iter().position(|name| name.to_bytes() == text);
        self.index.store(index.ok_or(EINVAL)? as u32, Relaxed);
        Ok(())
    }

    unsafe fn show(&self, page: *mut c_char) -> c_int {
        let name = self.names.get(self.get() as usize).unwrap_or(&c"");
        // SAFETY: the caller's promise, and the format takes a C string.
        unsafe {
            bindings::scnprintf(
                page,
                kernel::page::PAGE_SIZE,
                c"%s\n".as_char_ptr(),
                name.as_char_ptr(),
            )
        }
    }

    fn group(&self) -> Option<Group> {
        self.group
    }
}

/// A parameter that can be written.
#[doc(hidden)]
pub(crate) trait Writable: Sync + 'static {
    /// Sets the value. `EINVAL` for invalid text; the old value stays then.
    fn set(&self, text: &CStr) -> Result;

    /// Writes the value as a line of text. Returns its length.
    ///
    /// # Safety
    ///
    /// `page` must be good for writing a page.
    unsafe fn show(&self, page: *mut c_char) -> c_int;

    /// Its group, if the watcher must be notified.
    fn group(&self) -> Option<Group>;
}

/// The operations of a parameter whose argument points to a `W`.
#[doc(hidden)]
pub(crate) struct Ops<W>(core::marker::PhantomData<W>);

impl<W: Writable> Ops<W> {
    pub(crate) const TABLE: bindings::kernel_param_ops = bindings::kernel_param_ops {
        flags: 0,
        set: Some(Self::set),
        get: Some(Self::get),
        free: None,
    };

    /// The parameter behind an entry.
    ///
    /// # Safety
    ///
    /// `kp` must be an entry with these operations.
    unsafe fn param(kp: *const bindings::kernel_param) -> &'static W {
        // SAFETY: the argument of such an entry points to a static `W` (`writable_param!`).
        unsafe { &*(*kp).__bindgen_anon_1.arg.cast::<W>() }
    }

    /// # Safety
    ///
    /// Only the kernel may call this, with an entry that has these operations, a C string or null,
    /// and the lock of the module's parameters held.
    unsafe extern "C" fn set(val: *const c_char, kp: *const bindings::kernel_param) -> c_int {
        if val.is_null() {
            return EINVAL.to_errno();
        }
        // SAFETY: the caller's promise.
        let (param, text) = unsafe { (Self::param(kp), CStr::from_char_ptr(val)) };
        if let Err(e) = param.set(text) {
            return e.to_errno();
        }
        // SAFETY: it changes only under the lock that is held here.
        let watcher = unsafe { &*LIVE.0.get() };
        if let (Some(watcher), Some(group)) = (watcher, param.group()) {
            watcher.written(group);
        }
        0
    }

    /// # Safety
    ///
    /// Only the kernel may call this, with an entry that has these operations and a page to write.
    unsafe extern "C" fn get(page: *mut c_char, kp: *const bindings::kernel_param) -> c_int {
        // SAFETY: the caller's promise.
        unsafe { Self::param(kp).show(page) }
    }
}

/// The watcher, while there is one. Used only under the lock of the module's parameters.
static LIVE: Slot = Slot(UnsafeCell::new(None));

struct Slot(UnsafeCell<Option<Arc<dyn Watcher>>>);

// SAFETY: what is in it is used only under the lock of the module's parameters, and may be sent and
// shared.
unsafe impl Sync for Slot {}

/// While there is one, its watcher is told; before and after, writing a parameter only stores the
/// value. The module has one from the end of its start to the beginning of its end.
pub(crate) struct Live(());

impl Live {
    /// `watcher` is told from now on. Context: may sleep.
    pub(crate) fn new(watcher: Arc<dyn Watcher>) -> Self {
        set_live(Some(watcher));
        Self(())
    }
}

impl Drop for Live {
    /// The watcher is told of nothing any more when this returns. Context: may sleep; not from the
    /// watcher.
    fn drop(&mut self) {
        set_live(None);
    }
}

fn set_live(live: Option<Arc<dyn Watcher>>) {
    let module = addr_of_mut!(kernel::bindings::__this_module);
    // SAFETY: this very module, whose code runs.
    unsafe { bindings::kernel_param_lock(module) };
    if let Some(watcher) = &live {
        watcher.begun();
    }
    // SAFETY: locked above.
    let old = core::mem::replace(unsafe { &mut *LIVE.0.get() }, live);
    // SAFETY: locked above.
    unsafe { bindings::kernel_param_unlock(module) };
    drop(old);
}

/// `struct kernel_param` as a static.
#[doc(hidden)]
#[repr(transparent)]
pub(crate) struct Entry(pub(crate) bindings::kernel_param);

// SAFETY: The C side serialises access to parameters, and Rust code only reads their values
// through the atomics in `Uint`, `WritableUint` and `Names`.
unsafe impl Sync for Entry {}

/// Declares `static NAME: Uint`, a module parameter `name` with a default and a description.
macro_rules! uint_param {
    ($(#[doc = $doc:literal])* $static:ident, $name:literal, $default:expr, $desc:literal) => {
        $(#[doc = $doc])*
        pub(crate) static $static: $crate::kern::param::Uint =
            $crate::kern::param::Uint::new($default);

        $crate::kern::param::entry!(
            $name,
            "uint",
            $desc,
            0o444,
            ::core::ptr::addr_of!($crate::bindings::param_ops_uint),
            // `param_ops_uint` writes an `unsigned int`, at load time only.
            $static.as_ptr().cast()
        );
    };
}
pub(crate) use uint_param;

/// Declares `static NAME: WritableUint`, a module parameter `name` with a default, a range
/// (`EINVAL` outside of it) and a description; with a [`Group`] or without.
macro_rules! writable_uint_param {
    (
        $(#[doc = $doc:literal])* $static:ident, $name:literal, $default:expr,
        $min:expr, $max:expr, $desc:literal $(, $group:path)?
    ) => {
        $(#[doc = $doc])*
        pub(crate) static $static: $crate::kern::param::WritableUint =
            $crate::kern::param::WritableUint::new(
                $default,
                $min,
                $max,
                $crate::kern::param::group!($($group)?),
            );

        $crate::kern::param::writable_entry!(WritableUint, $static, $name, "uint", $desc);
    };
}
pub(crate) use writable_uint_param;

/// Declares `static NAME: Names`, a module parameter `name` that is one of some names (`EINVAL` for
/// others), with the index of its default and a description; with a [`Group`] or without.
macro_rules! names_param {
    (
        $(#[doc = $doc:literal])* $static:ident, $name:literal, $names:expr, $default:expr,
        $desc:literal $(, $group:path)?
    ) => {
        $(#[doc = $doc])*
        pub(crate) static $static: $crate::kern::param::Names = $crate::kern::param::Names::new(
            $names,
            $default,
            $crate::kern::param::group!($($group)?),
        );

        $crate::kern::param::writable_entry!(Names, $static, $name, "string", $desc);
    };
}
pub(crate) use names_param;

#[doc(hidden)]
macro_rules! group {
    () => {
        None
    };
    ($group:path) => {
        Some($group)
    };
}
pub(crate) use group;

/// The entry of a parameter that can be written.
#[doc(hidden)]
macro_rules! writable_entry {
    ($type:ident, $static:ident, $name:literal, $parmtype:literal, $desc:literal) => {
        $crate::kern::param::entry!(
            $name,
            $parmtype,
            $desc,
            0o644,
            {
                static OPS: $crate::bindings::kernel_param_ops =
                    $crate::kern::param::Ops::<$crate::kern::param::$type>::TABLE;
                ::core::ptr::addr_of!(OPS)
            },
            // These operations take a pointer to such a static.
            ::core::ptr::addr_of!($static).cast_mut().cast()
        );
    };
}
pub(crate) use writable_entry;

/// The entries of a parameter in the module's sections.
#[doc(hidden)]
macro_rules! entry {
    ($name:literal, $parmtype:literal, $desc:literal, $perm:literal, $ops:expr, $arg:expr) => {
        const _: () = {
            const NAME: &::core::ffi::CStr =
                match ::core::ffi::CStr::from_bytes_with_nul(concat!($name, "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => panic!("no C string"),
                };

            #[link_section = "__param"]
            #[used(compiler)]
            static ENTRY: $crate::kern::param::Entry =
                $crate::kern::param::Entry($crate::bindings::kernel_param {
                    name: ::kernel::str::as_char_ptr_in_const_context(NAME),
                    // Only the address is taken.
                    mod_: ::core::ptr::addr_of_mut!(::kernel::bindings::__this_module),
                    ops: $ops,
                    perm: $perm,
                    level: -1,
                    flags: 0,
                    __bindgen_anon_1: $crate::bindings::kernel_param__bindgen_ty_1 { arg: $arg },
                });

            #[link_section = ".modinfo"]
            #[used(compiler)]
            static TYPE: [u8; concat!("parmtype=", $name, ":", $parmtype, "\0").len()] =
                $crate::kern::param::bytes(concat!("parmtype=", $name, ":", $parmtype, "\0"));

            #[link_section = ".modinfo"]
            #[used(compiler)]
            static DESC: [u8; concat!("parm=", $name, ":", $desc, "\0").len()] =
                $crate::kern::param::bytes(concat!("parm=", $name, ":", $desc, "\0"));
        };
    };
}
pub(crate) use entry;

#[doc(hidden)]
pub(crate) const fn bytes<const N: usize>(s: &str) -> [u8; N] {
    match s.as_bytes().first_chunk::<N>() {
        Some(b) => *b,
        None => panic!("length mismatch"),
    }
}
