// SPDX-License-Identifier: GPL-2.0

//! A UDP socket inside a datagram socket of ours, with its port and its options: it takes and sends
//! the datagrams that ZRS cannot. Its wake-ups go to the wait queue of the outer socket, and its
//! errors to the outer sock, as `tcp.rs` has it for TCP.
//!
//! C: `net/ipv4/udp.c`, `net/ipv4/af_inet.c`.

use super::{
    msg::{RecvMsg, SendMsg},
    tcp::Tcp,
    Call, Shutdown,
};
use crate::{bindings, kern::errno};
use core::{net::SocketAddrV6, ops::Deref};
use kernel::{
    error::to_result,
    ffi::{c_int, c_uint, c_ulong},
    prelude::*,
    sync::Arc,
};

/// A UDP socket inside one of ours.
///
/// # Invariants
///
/// Its socket is one of UDP.
#[derive(Clone)]
pub struct Udp(Arc<Tcp>);

impl Deref for Udp {
    type Target = Arc<Tcp>;

    fn deref(&self) -> &Arc<Tcp> {
        &self.0
    }
}

/// The result of a C function.
fn length(done: c_int) -> Result<usize> {
    usize::try_from(done).map_err(|_| Error::from_errno(done))
}

impl Udp {
    /// Makes one inside the socket of `call`, with the options that are set there, see
    /// [`Tcp::open`]. Sleeps. `EOPNOTSUPP`: the socket has no file; and the errors of `socket()`.
    pub fn open(call: &Call<'_>) -> Result<Self> {
        // SAFETY: the socket is live while the call runs.
        if unsafe { (*call.sock).file }.is_null() {
            return Err(errno::EOPNOTSUPP);
        }
        let (kind, protocol) = (bindings::sock_type_SOCK_DGRAM, bindings::IPPROTO_UDP);
        let inner = Tcp::open_as(call, kind as c_int, protocol as c_int)?;
        inner.move_errors();
        // INVARIANT: just made so.
        let udp = Self(inner);
        udp.share_filter();
        Ok(udp)
    }

    /// `connect()`, with its errors. Sleeps.
    pub fn connect(&self, addr: SocketAddrV6) -> Result {
        let connect = self.ops().connect.ok_or(EINVAL)?;
        self.with_addr(addr, |addr, len| {
            // SAFETY: a live socket (type invariant), and an address of this call.
            to_result(unsafe { connect(self.sock.as_ptr(), addr, len, 0) })
        })
    }

    /// `connect()` to `AF_UNSPEC`. Sleeps.
    pub fn disconnect(&self) {
        let Some(connect) = self.ops().connect else {
            return;
        };
        // AF_UNSPEC is 0.
        let mut addr = bindings::sockaddr_in::default();
        let len = size_of_val(&addr) as c_int;
        // SAFETY: a live socket (type invariant), and an address of this call.
        unsafe { connect(self.sock.as_ptr(), (&raw mut addr).cast(), len, 0) };
    }

    /// `shutdown()`. Sleeps.
    pub fn shutdown(&self, how: Shutdown) {
        if let Some(shutdown) = self.ops().shutdown {
            let how = match how {
                Shutdown::Read => bindings::sock_shutdown_cmd_SHUT_RD,
                Shutdown::Write => bindings::sock_shutdown_cmd_SHUT_WR,
                Shutdown::Both => bindings::sock_shutdown_cmd_SHUT_RDWR,
            };
            // SAFETY: a live socket (type invariant).
            unsafe { shutdown(self.sock.as_ptr(), how as c_int) };
        }
    }

    /// `splice()` to the socket has come to its end. Sleeps.
    pub fn splice_eof(&self) {
        if let Some(splice_eof) = self.ops().splice_eof {
            // SAFETY: a live socket (type invariant).
            unsafe { splice_eof(self.sock.as_ptr()) };
        }
    }

    /// `ioctl()`, with its errors. Sleeps.
    pub fn ioctl(&self, cmd: u32, arg: usize) -> Result<i32> {
        let ioctl = self.ops().ioctl.ok_or(ENOIOCTLCMD)?;
        // SAFETY: a live socket (type invariant); takes any argument of the program.
        let done = unsafe { ioctl(self.sock.as_ptr(), cmd as c_uint, arg as c_ulong) };
        to_result(done).map(|()| done)
    }

    /// The pending error, which goes to the outer sock.
    pub fn collect_error(&self) {
        self.move_error();
    }

    /// `sendmsg()`, with its errors. The error that waits in the outer sock has been taken. Sleeps.
    pub fn send(&self, msg: &mut SendMsg<'_>) -> Result<usize> {
        let send = self.ops().sendmsg.ok_or(EINVAL)?;
        let len = msg.len();
        // SAFETY: a live socket (type invariant); the message is this call's, as it came.
        length(unsafe { send(self.sock.as_ptr(), msg.as_raw(), len) })
    }

    /// `recvmsg()` that does not wait: `EAGAIN` if there is nothing. Sleeps.
    pub fn recv(&self, msg: &mut RecvMsg<'_>) -> Result<usize> {
        let recv = self.ops().recvmsg.ok_or(EINVAL)?;
        let len = msg.len();
        let (msg, flags) = msg.as_raw();
        let flags = flags | bindings::MSG_DONTWAIT;
        // SAFETY: a live socket (type invariant); the message is this call's, as it came.
        length(unsafe { recv(self.sock.as_ptr(), msg, len, flags as c_int) })
    }

    /// Sets `SO_PEEK_OFF`. Any context.
    pub fn set_peek_off(&self, at: i32) {
        if let Some(set) = self.ops().set_peek_off {
            // SAFETY: a live sock of UDP (type invariants).
            unsafe { set(self.sk().cast(), at) };
        }
    }

    /// `SO_PEEK_OFF`. Any context.
    pub fn peek_off(&self) -> i32 {
        // SAFETY: a live socket (type invariant); one word.
        unsafe { (&raw const (*self.sk()).sk_peek_off).read_volatile() }
    }

    /// Two values that change when a datagram arrives, and when one is taken with `SO_PEEK_OFF`
    /// above 0: that offset, and the bytes that count against `SO_RCVBUF`. Any context.
    pub fn queued(&self) -> (i32, i32) {
        // SAFETY: a live socket (type invariant); one word.
        let bytes =
            unsafe { (&raw const (*self.sk()).sk_backlog.rmem_alloc.counter).read_volatile() };
        (self.peek_off(), bytes)
    }

    /// `recvmsg()` from the queue of errors.
    ///
    /// # Safety
    ///
    /// `msg` must belong to a call on the outer socket, which is not released during this.
    pub(super) unsafe fn recv_error(&self, msg: *mut bindings::msghdr, len: c_int) -> c_int {
        // SAFETY: a live sock of IPv4 or IPv6; the caller's promise.
        let done = unsafe { bindings::inet_recv_error(self.sk(), msg, len) };
        self.move_error();
        done
    }
}
