// SPDX-License-Identifier: GPL-2.0

//! Settings of network namespaces: files in `/proc/sys/net/zrs`. A namespace in which a file was
//! not written goes by a general value.
//!
//! C headers: `include/linux/sysctl.h`, `include/net/net_namespace.h`,
//! `include/net/netns/generic.h`.

use super::{net::Net, task};
use crate::bindings;
use core::ptr::{addr_of, addr_of_mut};
use kernel::{
    error::to_result,
    ffi::{c_int, c_uint, c_void},
    prelude::*,
    str::CStr,
    sync::{
        atomic::{Acquire, Atomic, Full, Relaxed, Release},
        rcu, //
    },
    types::Opaque,
};

/// Most settings.
const MAX: usize = 8;
/// Most bytes of a name that is a value, with the NUL.
const NAME_MAX: usize = 32;
/// The file of the namespace was not written.
const UNSET: u32 = u32::MAX;

/// A setting: its file, and the values that it can have.
pub(crate) struct Setting {
    /// The name of the file.
    pub(crate) name: &'static CStr,
    /// The general value.
    pub(crate) general: fn() -> u32,
    /// The text of the file.
    pub(crate) kind: Kind,
    /// The value of the first namespace until its file is written; `None`: the general one.
    pub(crate) first: Option<u32>,
    /// Only an administrator of the first user namespace writes the file.
    pub(crate) machine: bool,
}

/// The text of a setting's file; other text is refused with `EINVAL`.
pub(crate) enum Kind {
    /// A number from the first to the second one, which is less than `u32::MAX`.
    Number(c_uint, c_uint),
    /// One of these names; the value is its index.
    Names(&'static [&'static CStr]),
}

/// The files and values of one namespace. The core makes it, filled with zeroes, before
/// [`NetSettings::init`], and frees it after [`NetSettings::exit`].
struct PerNet {
    header: *mut bindings::ctl_table_header,
    /// Belongs to the core while the files are there.
    table: [bindings::ctl_table; MAX],
    values: [Atomic<u32>; MAX],
}

static OPS: Ops = Ops(Opaque::uninit());
/// The core's number for our part of each namespace.
static ID: Atomic<u32> = Atomic::new(0);
/// Whether there is a registration: taken first and given back last.
static TAKEN: Atomic<u32> = Atomic::new(0);
/// The settings, by a pointer to a static slice. 0: no namespace has parts of ours for
/// [`value`] to look at.
static SETTINGS: Atomic<usize> = Atomic::new(0);

struct Ops(Opaque<bindings::pernet_operations>);

// SAFETY: changed only by the one registration, under the core's lock.
unsafe impl Sync for Ops {}

/// The value that `net` has of a setting of the module, by its index: its own one, or the general
/// one. It may be another one the next time. Any context.
pub(crate) fn value(net: &Net, settings: &'static [Setting], index: usize) -> u32 {
    let Some(setting) = settings.get(index).filter(|_| index < MAX) else {
        return 0;
    };
    let _rcu = rcu::read_lock();
    let own = if SETTINGS.load(Acquire) == 0 {
        UNSET
    } else {
        // SAFETY: `SETTINGS` is not 0, so that the number is ours and each namespace that is held
        // has its part; it is cleared before the core, after an RCU grace period, frees the parts.
        let part = unsafe { bindings::net_generic(net.as_ptr(), ID.load(Relaxed)) };
        // SAFETY: as above, and `index` is less than `MAX`.
        unsafe { &*addr_of!((*part.cast::<PerNet>()).values[index]) }.load(Relaxed)
    };
    match own {
        UNSET => (setting.general)(),
        own => own,
    }
}

/// The files in all namespaces. One at a time; dropping it removes them, and sleeps.
///
/// # Invariants
///
/// [`OPS`] is registered, [`ID`] is its number, and [`SETTINGS`] points to settings.
pub(crate) struct NetSettings(());

impl NetSettings {
    /// Makes the files in all namespaces that there are; new ones get them as well. Sleeps.
    ///
    /// # Errors
    ///
    /// `EBUSY` if there are settings already, `EINVAL` for too many of them, `ENOMEM`.
    pub(crate) fn new(settings: &'static &'static [Setting]) -> Result<Self> {
        if settings.len() > MAX {
            return Err(EINVAL);
        }
        if TAKEN.cmpxchg(0, 1, Full).is_err() {
            return Err(EBUSY);
        }
        SETTINGS.store(core::ptr::from_ref(settings) as usize, Release);
        // SAFETY: ours alone, as it was not taken. It is registered in its final place, and the
        // core writes the number before the first callback.
        let registered = unsafe {
            OPS.0.get().write(bindings::pernet_operations {
                init: Some(Self::init),
                exit: Some(Self::exit),
                id: ID.as_ptr(),
                size: core::mem::size_of::<PerNet>(),
                ..pin_init::zeroed()
            });
            to_result(bindings::register_pernet_subsys(OPS.0.get()))
        };
        if let Err(e) = registered {
            SETTINGS.store(0, Relaxed);
            TAKEN.store(0, Release);
            return Err(e);
        }
        // INVARIANT: just registered.
        Ok(Self(()))
    }

    /// # Safety
    ///
    /// Called by the core for a namespace that begins, with our part of it there.
    unsafe extern "C" fn init(net: *mut bindings::net) -> c_int {
        // SAFETY: it is set before the registration. One that begins while the registration ends
        // gets no files.
        let Some(settings) = (unsafe { (SETTINGS.load(Acquire) as *const &[Setting]).as_ref() })
        else {
            return 0;
        };
        // SAFETY: the core has made our part, and nothing else knows it yet.
        let part = unsafe { bindings::net_generic(net, ID.load(Relaxed)).cast::<PerNet>() };
        for (i, setting) in settings.iter().enumerate().take(MAX) {
            // SAFETY: as above, and `i` is less than `MAX`; zeroes are an atomic number.
            let value = unsafe { &*addr_of!((*part).values[i]) };
            // SAFETY: only looks at its address.
            let init_net = unsafe { bindings::init_net() };
            let first = setting.first.filter(|_| net == init_net);
            value.store(first.unwrap_or(UNSET), Relaxed);
            let entry = bindings::ctl_table {
                procname: setting.name.as_char_ptr(),
                data: value.as_ptr().cast(),
                maxlen: core::mem::size_of::<u32>() as c_int,
                mode: 0o644,
                proc_handler: Some(Self::file),
                extra1: core::ptr::from_ref(setting).cast_mut().cast(),
                ..pin_init::zeroed()
            };
            // SAFETY: as above, and `i` is less than `MAX`.
            unsafe { addr_of_mut!((*part).table[i]).write(entry) };
        }
        // SAFETY: the table is in its final place and has this length; the core keeps it until
        // `exit`.
        unsafe {
            let table = addr_of_mut!((*part).table).cast::<bindings::ctl_table>();
            let path = c"net/zrs".as_char_ptr();
            (*part).header = bindings::register_net_sysctl_sz(net, path, table, settings.len());
            if (*part).header.is_null() {
                return ENOMEM.to_errno();
            }
        }
        0
    }

    /// # Safety
    ///
    /// Called by the core for a namespace that ends and that [`NetSettings::init`] has succeeded
    /// for.
    unsafe extern "C" fn exit(net: *mut bindings::net) {
        // SAFETY: the core has made our part. No file is in use when this returns; null is nothing
        // to the core.
        unsafe {
            let part = bindings::net_generic(net, ID.load(Relaxed)).cast::<PerNet>();
            bindings::unregister_net_sysctl_table((*part).header);
        }
    }

    /// Reads or writes a file.
    ///
    /// # Safety
    ///
    /// Called by the core with an entry that [`NetSettings::init`] made, and with the
    /// arguments of the core's own handlers.
    unsafe extern "C" fn file(
        entry: *const bindings::ctl_table,
        write: c_int,
        buffer: *mut c_void,
        len: *mut usize,
        at: *mut bindings::loff_t,
    ) -> c_int {
        // SAFETY: `init` has put a setting and a value there, which live as long as the file.
        let (setting, value) = unsafe {
            (
                &*(*entry).extra1.cast::<Setting>(),
                &*(*entry).data.cast::<Atomic<u32>>(),
            )
        };
        if write != 0 && setting.machine && !task::may_administer_net() {
            return EPERM.to_errno();
        }
        let mut number = match value.load(Relaxed) {
            UNSET => (setting.general)(),
            own => own,
        };
        let mut text = [0_u8; NAME_MAX];
        let ret = match &setting.kind {
            Kind::Number(min, max) => {
                let own = bindings::ctl_table {
                    data: addr_of_mut!(number).cast(),
                    maxlen: core::mem::size_of::<u32>() as c_int,
                    extra1: addr_of!(*min).cast_mut().cast(),
                    extra2: addr_of!(*max).cast_mut().cast(),
                    ..pin_init::zeroed()
                };
                // SAFETY: the buffer is the core's; a number, and its limits.
                unsafe { bindings::proc_douintvec_minmax(&own, write, buffer, len, at) }
            }
            Kind::Names(names) => {
                let now = names.get(number as usize).map_or(&[][..], |n| n.to_bytes());
                let now = &now[..now.len().min(NAME_MAX - 1)];
                text[..now.len()].copy_from_slice(now);
                let own = bindings::ctl_table {
                    data: text.as_mut_ptr().cast(),
                    maxlen: NAME_MAX as c_int,
                    ..pin_init::zeroed()
                };
                // SAFETY: the buffer is the core's; the text is a C string and has that much room.
                let ret = unsafe { bindings::proc_dostring(&own, write, buffer, len, at) };
                if ret == 0 && write != 0 {
                    let end = text.iter().position(|&b| b == 0).unwrap_or(NAME_MAX);
                    let index = names.iter().position(|n| n.to_bytes() == &text[..end]);
                    let Some(index) = index else {
                        return EINVAL.to_errno();
                    };
                    number = index as u32;
                }
                ret
            }
        };
        if ret == 0 && write != 0 {
            value.store(number, Relaxed);
        }
        ret
    }
}

impl Drop for NetSettings {
    fn drop(&mut self) {
        SETTINGS.store(0, Release);
        // SAFETY: registered by the type invariant. The core waits for a grace period, calls `exit`
        // for each namespace, and frees our parts.
        unsafe { bindings::unregister_pernet_subsys(OPS.0.get()) };
        TAKEN.store(0, Release);
    }
}
