// SPDX-License-Identifier: GPL-2.0

//! Notifications of `MSG_ZEROCOPY`: an entry on the error queue when the network is done with the
//! pages of a send.
//!
//! C: `include/linux/skbuff.h` (`struct ubuf_info`, `msg_zerocopy_realloc`), `include/net/sock.h`
//! (`SO_ZEROCOPY`); for programs `Documentation/networking/msg_zerocopy.rst` of the kernel.

use super::{msg::SendMsg, Sk};
use crate::{bindings, kern::errno::ENOBUFS};
use core::ptr::{self, NonNull};
use kernel::{
    prelude::*,
    sync::{
        atomic::{Atomic, Relaxed},
        Arc, UniqueArc,
    },
};

impl Sk {
    /// Whether `SO_ZEROCOPY` is set.
    pub fn zerocopy(&self) -> bool {
        // SAFETY: a live sock (type invariant); looks at a bit.
        unsafe { bindings::sock_flag(self.as_ptr(), bindings::sock_flags_SOCK_ZEROCOPY) }
    }

    /// Sets `SO_ZEROCOPY`. Context: may sleep; without the sock's lock.
    pub(super) fn set_zerocopy(&self, on: bool) {
        // SAFETY: a live sock (type invariant). Its flags are changed under its lock, as
        // `sk_setsockopt` does.
        unsafe {
            bindings::lock_sock(self.as_ptr());
            bindings::sock_valbool_flag(
                self.as_ptr(),
                bindings::sock_flags_SOCK_ZEROCOPY,
                on.into(),
            );
            bindings::release_sock(self.as_ptr());
        }
    }

    /// Whether something waits on the error queue. Any context.
    pub fn has_notifications(&self) -> bool {
        // SAFETY: a live sock (type invariant) has an initialised error queue; one word is read.
        !unsafe {
            bindings::skb_queue_empty_lockless(ptr::addr_of!((*self.as_ptr()).sk_error_queue))
        }
    }
}

/// The notification of one call: queued when the last clone of it is dropped, so that every reader
/// of the pages keeps one.
///
/// Dropping the last clone takes the lock of the error queue and wakes pollers, but never calls
/// back into the socket. Context: any but hard interrupts; holding no lock that a wake-up could
/// want.
#[derive(Clone)]
pub struct Notification(Arc<Counted>);

/// Counted by us and not by the `ubuf_info` itself: its "was not copied" is a bit that each put
/// rewrites without a lock, so that of two puts at once one could be lost.
///
/// # Invariants
///
/// `uarg` is valid, and a reference to it is ours.
struct Counted {
    uarg: NonNull<bindings::ubuf_info>,
    copied: Atomic<bool>,
    aborted: Atomic<bool>,
}

// SAFETY: a `ubuf_info` belongs to no task; it is made to be given back anywhere.
unsafe impl Send for Counted {}
// SAFETY: all that a shared reference allows is setting two atomic words.
unsafe impl Sync for Counted {}

impl Notification {
    /// Whether the call with `msg` gets a notification: the call asks for it, and SO_ZEROCOPY is
    /// set on the socket, or the notification is the caller's own (`io_uring`).
    pub fn wanted(sk: &Sk, msg: &SendMsg<'_>) -> bool {
        msg.zerocopy() && (msg.ubuf().is_some() || sk.zerocopy())
    }

    /// The notification of the call that brings `msg`, with the next id of `sk`, for `bytes` of the
    /// calling program's memory. They count against its `RLIMIT_MEMLOCK` until the notification is
    /// queued.
    ///
    /// The caller serialises this and [`abort`](Self::abort) for one sock, else ids get lost.
    ///
    /// Context: the sending program's; may sleep. Errors: `ENOBUFS` if the limit, the sock's option
    /// memory or the machine's memory is used up.
    pub fn new(sk: &Sk, msg: &SendMsg<'_>, bytes: usize) -> Result<Self> {
        let room = UniqueArc::new_uninit(GFP_KERNEL).map_err(|_| ENOBUFS)?;
        let uarg = match msg.ubuf() {
            Some(uarg) => {
                // SAFETY: the caller of the socket layer keeps it for the call (invariant of
                // `SendMsg`), so its count is not zero.
                unsafe { bindings::net_zcopy_get(uarg.as_ptr()) };
                uarg
            }
            None => {
                // SAFETY: a live sock (type invariant), in a task. Without a former one to be
                // joined to, nothing is asked of the sock's lock. The result holds the sock.
                let uarg = unsafe {
                    bindings::msg_zerocopy_realloc(sk.as_ptr(), bytes, ptr::null_mut(), false)
                };
                NonNull::new(uarg).ok_or(ENOBUFS)?
            }
        };
        // INVARIANT: the reference just taken, or the first one.
        Ok(Self(Arc::from(room.write(Counted {
            uarg,
            copied: Atomic::new(false),
            aborted: Atomic::new(false),
        }))))
    }

    /// The notification is to say that bytes of the call were copied after all.
    pub fn set_copied(&self) {
        self.0.copied.store(true, Relaxed);
    }

    /// Nothing was sent: the id is given back. The caller has the only clone.
    pub fn abort(self) {
        self.0.aborted.store(true, Relaxed);
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let uarg = self.uarg.as_ptr();
        if self.aborted.load(Relaxed) {
            // SAFETY: gives up our reference (type invariant).
            unsafe { bindings::net_zcopy_put_abort(uarg) };
        } else {
            // SAFETY: as above.
            unsafe { bindings::net_zcopy_complete(uarg, !self.copied.load(Relaxed)) };
        }
    }
}
