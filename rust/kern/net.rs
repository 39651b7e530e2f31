// SPDX-License-Identifier: GPL-2.0

//! Network namespaces.
//!
//! C header: `include/net/net_namespace.h`.

use crate::bindings;
use core::{
    net::{Ipv4Addr, Ipv6Addr},
    ptr::{self, NonNull}, //
};
use kernel::{
    ffi::{c_int, c_uint},
    prelude::*,
    sync::rcu, //
};

/// A counted reference to a network namespace.
///
/// While one lives the namespace is not torn down: keep one only where a user of the namespace
/// stands behind it (a socket, a link with sockets).
///
/// # Invariants
///
/// `ptr` points to a namespace; the object owns one reference to it.
pub(crate) struct Net {
    ptr: NonNull<bindings::net>,
}

// SAFETY: The reference count may be changed from any thread; nothing else is touched.
unsafe impl Send for Net {}
// SAFETY: As above.
unsafe impl Sync for Net {}

impl Net {
    /// The namespace of the running task.
    pub(crate) fn current() -> Self {
        // SAFETY: The running task's namespace is valid while the task does not leave it, which it
        // does not during the call.
        unsafe { Self::from_raw(bindings::current_net()) }
    }

    /// The first namespace.
    pub(crate) fn init() -> Self {
        // SAFETY: It is always valid.
        unsafe { Self::from_raw(bindings::init_net()) }
    }

    /// Takes a reference.
    ///
    /// # Safety
    ///
    /// `ptr` must be a valid namespace, with a reference held during the call.
    pub(crate) unsafe fn from_raw(ptr: *mut bindings::net) -> Self {
        // SAFETY: The caller's promise.
        let ptr = unsafe { bindings::get_net(ptr) };
        // INVARIANT: The reference just taken is ours.
        Self {
            // SAFETY: `get_net` gives back its argument, a valid pointer.
            ptr: unsafe { NonNull::new_unchecked(ptr) },
        }
    }

    /// Whether the calling task may administer the namespace: `CAP_NET_ADMIN` in the user namespace
    /// that it belongs to.
    pub(crate) fn may_administer(&self) -> bool {
        // SAFETY: we hold the namespace, which holds its user namespace; looks at the calling task.
        unsafe {
            bindings::ns_capable(
                bindings::net_user_ns(self.as_ptr()),
                bindings::CAP_NET_ADMIN as c_int,
            )
        }
    }

    /// As [`Self::may_administer`], to show more to such a task: that it was asked leaves no trace
    /// in the audit log.
    pub(crate) fn is_administered(&self) -> bool {
        // SAFETY: as in `may_administer`.
        unsafe {
            bindings::ns_capable_noaudit(
                bindings::net_user_ns(self.as_ptr()),
                bindings::CAP_NET_ADMIN as c_int,
            )
        }
    }

    /// Whether `ip`, which may be v4-mapped, is an address of the namespace itself; for a
    /// link-local one, of the interface number `dev`. `ENODEV` if there is no such interface; 0 is
    /// any.
    pub(crate) fn is_local(&self, ip: Ipv6Addr, dev: u32) -> Result<bool> {
        match ip.to_ipv4_mapped() {
            Some(v4) => Ok(self.is_local_v4(v4)),
            None => self.is_local_v6(ip, dev),
        }
    }

    /// Whether a peer at `ip` is the namespace itself: as [`Net::is_local`], and for all loopback
    /// addresses.
    pub(crate) fn is_own(&self, ip: Ipv6Addr, dev: u32) -> bool {
        let loopback = match ip.to_ipv4_mapped() {
            Some(v4) => v4.is_loopback(),
            None => ip.is_loopback(),
        };
        loopback || self.is_local(ip, dev).unwrap_or(false)
    }

    /// Whether `ip`, which may be v4-mapped, is the broadcast address of one of the namespace's
    /// IPv4 networks, or that of all. The unspecified address is none, although `inet_addr_type()`
    /// says so.
    pub(crate) fn is_broadcast(&self, ip: Ipv6Addr) -> bool {
        let v4 = ip.to_ipv4_mapped().filter(|v4| !v4.is_unspecified());
        v4.is_some_and(|v4| self.kind_of_v4(v4) == bindings::RTN_BROADCAST)
    }

    fn is_local_v4(&self, ip: Ipv4Addr) -> bool {
        self.kind_of_v4(ip) == bindings::RTN_LOCAL
    }

    /// The type of route that the namespace's local addresses have for `ip`: RTN_UNICAST if it is
    /// none of them.
    fn kind_of_v4(&self, ip: Ipv4Addr) -> c_uint {
        // SAFETY: We hold the namespace; takes any address, in network order.
        unsafe { bindings::inet_addr_type(self.as_ptr(), u32::from(ip).to_be()) }
    }

    fn is_local_v6(&self, ip: Ipv6Addr, dev: u32) -> Result<bool> {
        let addr = bindings::in6_addr {
            in6_u: bindings::in6_addr__bindgen_ty_1 {
                u6_addr8: ip.octets(),
            },
        };
        let _rcu = rcu::read_lock();
        let dev = match c_int::try_from(dev).map_err(|_| ENODEV)? {
            0 => ptr::null_mut(),
            dev => {
                // SAFETY: We hold the namespace, and are in an RCU section; takes any number.
                let dev = unsafe { bindings::dev_get_by_index_rcu(self.as_ptr(), dev) };
                if dev.is_null() {
                    return Err(ENODEV);
                }
                dev
            }
        };
        // SAFETY: As above; the interface, if any, stays for the RCU section.
        Ok(unsafe { bindings::ipv6_chk_addr(self.as_ptr(), &addr, dev, 0) } != 0)
    }

    /// Whether `port` is one of `ip_local_reserved_ports`, which are never chosen for a program.
    /// Any context.
    pub(crate) fn reserves(&self, port: u16) -> bool {
        // SAFETY: We hold the namespace; looks at one bit of a map that it has for all its life.
        unsafe { bindings::inet_is_local_reserved_port(self.as_ptr(), port) }
    }

    /// A number that no other namespace has while a reference to this namespace is held.
    pub(crate) fn id(&self) -> usize {
        self.as_ptr().addr()
    }

    /// A number that no other namespace ever has.
    pub(crate) fn cookie(&self) -> u64 {
        // SAFETY: By the type invariants the namespace is valid.
        unsafe { bindings::net_cookie(self.as_ptr()) }
    }

    /// The raw namespace.
    pub(crate) fn as_ptr(&self) -> *mut bindings::net {
        self.ptr.as_ptr()
    }

    /// The inode number, which identifies the namespace in user space.
    pub(crate) fn inum(&self) -> u32 {
        // SAFETY: By the type invariants the namespace is valid.
        unsafe { bindings::net_inum(self.as_ptr()) }
    }
}

impl Clone for Net {
    fn clone(&self) -> Self {
        // SAFETY: By the type invariants the namespace is valid, and we hold a reference.
        unsafe { Self::from_raw(self.as_ptr()) }
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        // SAFETY: By the type invariants the reference is ours, and given up here.
        unsafe { bindings::put_net(self.as_ptr()) };
    }
}

impl PartialEq for Net {
    fn eq(&self, other: &Self) -> bool {
        self.ptr == other.ptr
    }
}

impl Eq for Net {}
