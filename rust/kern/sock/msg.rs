// SPDX-License-Identifier: GPL-2.0

//! The messages that `sendmsg` and `recvmsg` get from the socket layer.
//!
//! C: `include/linux/socket.h` (`struct msghdr`), `include/linux/uio.h`.

use super::{callbacks::read_addr, sockaddr_in, v6, Sk};
use crate::{bindings, kern::wait::WaitQueue};
use core::{
    marker::PhantomData,
    net::SocketAddrV6,
    ptr::{self, NonNull},
};
use kernel::{
    error::to_result,
    ffi::{c_int, c_void},
    iov::{IovIterDest, IovIterSource},
    prelude::*,
};

/// The use of an address that a call names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Named {
    /// It is bound.
    Bound,
    /// It is connected to.
    Peer,
    /// A datagram goes there.
    Destination,
}

/// A message to be sent.
///
/// # Invariants
///
/// `msg` is valid and ours alone for `'a`; its iterator is a source, and had `total` bytes. Its
/// `msg_ubuf`, if there is one, has a reference of the caller's for `'a`.
pub struct SendMsg<'a> {
    msg: *mut bindings::msghdr,
    total: usize,
    _msg: PhantomData<&'a mut bindings::msghdr>,
}

impl<'a> SendMsg<'a> {
    /// # Safety
    ///
    /// `msg` must be valid, and not used by other code, for all of `'a`.
    pub(super) unsafe fn from_raw(msg: *mut bindings::msghdr) -> Result<Self> {
        // SAFETY: the caller's promise.
        if u32::from(unsafe { (*msg).msg_iter.data_source }) != bindings::ITER_SOURCE {
            return Err(EINVAL);
        }
        // SAFETY: the caller's promise; only reads.
        let total = unsafe { bindings::iov_iter_count(ptr::addr_of!((*msg).msg_iter)) };
        // INVARIANT: the caller's promise, and checked.
        Ok(Self {
            msg,
            total,
            _msg: PhantomData,
        })
    }

    /// The bytes: taking some moves it on.
    pub fn iter(&mut self) -> &mut IovIterSource<'a> {
        // SAFETY: the iterator is a source and ours for `'a` (type invariant); the exclusive borrow
        // of `self` makes the result the only reference. Its buffers stay for the call.
        unsafe { IovIterSource::from_raw(ptr::addr_of_mut!((*self.msg).msg_iter)) }
    }

    /// Bytes not taken yet.
    pub fn len(&self) -> usize {
        // SAFETY: the message is valid (type invariant); only reads.
        unsafe { bindings::iov_iter_count(ptr::addr_of!((*self.msg).msg_iter)) }
    }

    /// All bytes of the call.
    pub fn total(&self) -> usize {
        self.total
    }

    /// Goes back to where `taken` bytes had been taken, if it is further than that.
    pub fn rewind(&mut self, taken: usize) {
        let gone = self.total - self.len();
        if gone > taken {
            // SAFETY: not before the beginning, where `total` were left (type invariant).
            unsafe { self.iter().revert(gone - taken) };
        }
    }

    /// The message.
    pub(super) fn as_raw(&mut self) -> *mut bindings::msghdr {
        self.msg
    }

    /// Whether there are control messages.
    pub fn has_control(&self) -> bool {
        // SAFETY: the message is valid (type invariant).
        unsafe { (*self.msg).msg_controllen != 0 }
    }

    /// The control messages, if there are some.
    pub fn control(&self) -> Option<&[u8]> {
        // SAFETY: the message is valid (type invariant).
        let msg = unsafe { &*self.msg };
        // SAFETY: any pointer.
        let control = unsafe { msg.__bindgen_anon_1.msg_control };
        if control.is_null() || msg.msg_control_is_user() {
            return None;
        }
        // SAFETY: a sender's control messages are `msg_controllen` bytes of the kernel's, which
        // stay and do not change during the call (the message is ours alone).
        Some(unsafe { core::slice::from_raw_parts(control.cast(), msg.msg_controllen) })
    }

    /// `MSG_*` of the caller, plus flags added by the socket layer.
    pub fn flags(&self) -> u32 {
        // SAFETY: the message is valid (type invariant).
        unsafe { (*self.msg).msg_flags }
    }

    /// Whether the call must not wait.
    pub fn nonblock(&self) -> bool {
        self.flags() & bindings::MSG_DONTWAIT != 0
    }

    /// Whether more data follows soon, so that a message that is not full may wait for it.
    pub fn more(&self) -> bool {
        self.flags() & bindings::MSG_MORE != 0
    }

    /// Whether the call only checks, and sends nothing.
    pub fn probe(&self) -> bool {
        self.flags() & bindings::MSG_PROBE != 0
    }

    /// Whether `MSG_ZEROCOPY` is set.
    pub fn zerocopy(&self) -> bool {
        self.flags() & bindings::MSG_ZEROCOPY != 0
    }

    /// Whether the bytes are pages without an owner after the call, as with sendfile() and
    /// splice(): a user that needs them longer takes references, and later changes to them may be
    /// sent.
    pub fn splice_pages(&self) -> bool {
        self.flags() & bindings::MSG_SPLICE_PAGES != 0
    }

    /// The caller's own notification for `MSG_ZEROCOPY`; good while the message is.
    pub(super) fn ubuf(&self) -> Option<NonNull<bindings::ubuf_info>> {
        // SAFETY: the message is valid (type invariant).
        NonNull::new(unsafe { (*self.msg).msg_ubuf })
    }

    /// The address that a call on `sk` names. `EINVAL`: it is too short; `EAFNOSUPPORT`: it is of a
    /// family that the socket has not.
    pub fn name(&self, sk: &Sk) -> Result<Option<SocketAddrV6>> {
        // SAFETY: the message is valid (type invariant).
        let (name, len) = unsafe { ((*self.msg).msg_name, (*self.msg).msg_namelen) };
        if name.is_null() {
            return Ok(None);
        }
        // SAFETY: a live sock; the socket layer has put `len` bytes there.
        let addr = unsafe { read_addr(sk.as_ptr(), name.cast(), len, Named::Destination)? };
        Ok(Some(addr))
    }

    /// Whether out-of-band data is meant.
    pub fn oob(&self) -> bool {
        self.flags() & bindings::MSG_OOB != 0
    }
}

/// The destination buffers of a receive.
///
/// # Invariants
///
/// `msg` is valid and ours alone for `'a`; its iterator is a destination. `sock` is a live socket
/// with a sock of ours, and is not released before `'a` ends.
pub struct RecvMsg<'a> {
    sock: *mut bindings::socket,
    msg: *mut bindings::msghdr,
    flags: u32,
    _msg: PhantomData<&'a mut bindings::msghdr>,
}

impl<'a> RecvMsg<'a> {
    /// # Safety
    ///
    /// `msg` must be valid, and not used by other code, for all of `'a`, and `sock` a live socket
    /// with a sock of ours that is not released before `'a` ends.
    pub(super) unsafe fn from_raw(
        sock: *mut bindings::socket,
        msg: *mut bindings::msghdr,
        flags: u32,
    ) -> Result<Self> {
        // SAFETY: the caller's promise.
        if u32::from(unsafe { (*msg).msg_iter.data_source }) != bindings::ITER_DEST {
            return Err(EINVAL);
        }
        // INVARIANT: the caller's promise, and checked.
        Ok(Self {
            sock,
            msg,
            flags,
            _msg: PhantomData,
        })
    }

    /// Where the bytes go: filling some moves it on.
    pub fn iter(&mut self) -> &mut IovIterDest<'a> {
        // SAFETY: the iterator is a destination and ours for `'a` (type invariant); the exclusive
        // borrow of `self` makes the result the only reference.
        unsafe { IovIterDest::from_raw(ptr::addr_of_mut!((*self.msg).msg_iter)) }
    }

    /// The queue of what waits for readiness of the socket.
    pub fn queue(&self) -> &WaitQueue {
        // SAFETY: a live socket (type invariant), which has an initialised queue for all its life.
        unsafe { WaitQueue::from_raw(ptr::addr_of_mut!((*self.sock).wq.wait)) }
    }

    /// The message and its flags.
    pub(super) fn as_raw(&mut self) -> (*mut bindings::msghdr, u32) {
        (self.msg, self.flags)
    }

    /// Room not filled yet.
    pub fn len(&self) -> usize {
        // SAFETY: the message is valid (type invariant); only reads.
        unsafe { bindings::iov_iter_count(ptr::addr_of!((*self.msg).msg_iter)) }
    }

    /// Whether the call must not wait.
    pub fn nonblock(&self) -> bool {
        self.flags & bindings::MSG_DONTWAIT != 0
    }

    /// Whether the bytes stay queued for the next receive.
    pub fn peek(&self) -> bool {
        self.flags & bindings::MSG_PEEK != 0
    }

    /// Whether the call waits for all of the room to be filled.
    pub fn waitall(&self) -> bool {
        self.flags & bindings::MSG_WAITALL != 0
    }

    /// Whether the bytes are discarded.
    pub fn truncate(&self) -> bool {
        self.flags & bindings::MSG_TRUNC != 0
    }

    /// Whether out-of-band data is meant.
    pub fn oob(&self) -> bool {
        self.flags & bindings::MSG_OOB != 0
    }

    /// Whether the call asks for the sender's address.
    pub fn wants_name(&self) -> bool {
        // SAFETY: the message is valid (type invariant).
        unsafe { !(*self.msg).msg_name.is_null() }
    }

    /// Tells the caller the sender's address, if it asks for it, as `sk`'s family has it.
    pub fn set_name(&mut self, sk: &Sk, addr: SocketAddrV6) {
        // SAFETY: the message is valid and ours (type invariant). The socket layer has room for a
        // sockaddr_storage at `msg_name`, if that is not null.
        unsafe {
            let name = (*self.msg).msg_name;
            if name.is_null() {
                return;
            }
            (*self.msg).msg_namelen = if sk.is_v6() {
                let addr = v6::sockaddr_in6(addr);
                name.cast::<bindings::sockaddr_in6>().write_unaligned(addr);
                size_of::<bindings::sockaddr_in6>() as c_int
            } else {
                let addr = sockaddr_in(addr);
                name.cast::<bindings::sockaddr_in>().write_unaligned(addr);
                size_of::<bindings::sockaddr_in>() as c_int
            };
        }
    }

    /// Tells the caller that the message was longer than the room for it.
    pub fn set_truncated(&mut self) {
        // SAFETY: the message is valid and ours (type invariant).
        unsafe { (*self.msg).msg_flags |= bindings::MSG_TRUNC };
    }

    /// Adds a control message, as far as the caller has room for it, which it is told.
    ///
    /// Context: may sleep. Errors: `EFAULT`.
    pub(super) fn put_cmsg(&mut self, level: u32, kind: u32, value: &[u8]) -> Result {
        // SAFETY: the message is valid and ours (type invariant); it reads the bytes of `value`.
        to_result(unsafe {
            bindings::put_cmsg(
                self.msg,
                level as c_int,
                kind as c_int,
                value.len() as c_int,
                value.as_ptr().cast::<c_void>().cast_mut(),
            )
        })
    }
}
