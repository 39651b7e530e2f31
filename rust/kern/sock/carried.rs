// SPDX-License-Identifier: GPL-2.0

//! The calls on a socket of ours that the TCP socket inside it carries: each goes to that with its
//! arguments as they came, under no lock of ours, so that several calls run at the same time.
//!
//! An error of the connection is moved to the outer sock as soon as it is there, because `SO_ERROR`
//! looks for it there. So a call of TCP may find that its connection has ended, and no error: then
//! the error is taken from the outer sock.
//!
//! Safety of all functions: only the functions called by C may call them, with the arguments that
//! they got, where the outer socket, which is not released during the call, is carried by `self`.

use super::tcp::Tcp;
use crate::bindings;
use kernel::{
    ffi::{c_int, c_uint, c_ulong},
    sync::atomic::{Atomic, Full, Relaxed},
};

/// An errno as C returns it.
const fn failed(errno: u32) -> c_int {
    -(errno as c_int)
}

/// Calls operation `$op` of the TCP socket with the arguments; `$without` if it has none.
macro_rules! call {
    ($self:ident . $op:ident, $without:expr $(, $arg:expr)*) => {
        match $self.ops().$op {
            // SAFETY: a live socket of TCP; the caller's promise for the arguments.
            Some(op) => unsafe { op($self.sock.as_ptr() $(, $arg)*) },
            None => $without,
        }
    };
}

#[allow(clippy::missing_safety_doc, reason = "see the module's text")]
impl Tcp {
    /// Takes the error that waits in the outer sock, as a negative errno; 0: none.
    pub(super) fn take_error(&self) -> c_int {
        self.move_error();
        let outer = self.outer_sk();
        // SAFETY: the outer sock is live (the module's rule); a word that the socket layer changes
        // by single stores and xchg.
        let slot = unsafe { Atomic::from_ptr(&raw mut (*outer).sk_err) };
        match slot.load(Relaxed) {
            0 => 0,
            _ => -slot.xchg(0, Full),
        }
    }

    /// The error that ended the connection, in place of `otherwise`.
    fn error_or(&self, otherwise: c_int) -> c_int {
        match self.take_error() {
            0 => otherwise,
            e => e,
        }
    }

    /// `connect()`.
    pub(super) unsafe fn carry_connect(
        &self,
        addr: *mut bindings::sockaddr_unsized,
        len: c_int,
        flags: c_int,
    ) -> c_int {
        let done = call!(self.connect, failed(bindings::EINVAL), addr, len, flags);
        if done == failed(bindings::ECONNABORTED) {
            return self.error_or(done);
        }
        done
    }

    /// `sendmsg()`, with `MSG_FASTOPEN` as well. `SIGPIPE` is left to us, because TCP does not know
    /// the error.
    pub(super) unsafe fn carry_send(&self, msg: *mut bindings::msghdr, len: usize) -> c_int {
        // SAFETY: the caller's promise.
        let flags = unsafe { (*msg).msg_flags };
        if flags & bindings::MSG_FASTOPEN != 0 {
            self.connects_again();
        } else {
            let error = self.take_error();
            if error != 0 {
                return error;
            }
        }
        // SAFETY: as above.
        unsafe { (*msg).msg_flags |= bindings::MSG_NOSIGNAL };
        let mut done = call!(self.sendmsg, failed(bindings::EOPNOTSUPP), msg, len);
        // SAFETY: as above.
        unsafe { (*msg).msg_flags = flags };
        if done == failed(bindings::EPIPE) || done == failed(bindings::ECONNABORTED) {
            done = self.error_or(done);
        }
        if done == failed(bindings::EPIPE) && flags & bindings::MSG_NOSIGNAL == 0 {
            // SAFETY: signals the calling task.
            unsafe { bindings::send_sigpipe() };
        }
        done
    }

    /// Whether the peer has ended the stream: then its end is read, and no error.
    fn at_end(&self) -> bool {
        // SAFETY: a live sock; looks at a bit.
        unsafe { bindings::sock_flag(self.sk(), bindings::sock_flags_SOCK_DONE) }
    }

    /// `recvmsg()`, the queue of errors included.
    pub(super) unsafe fn carry_recv(
        &self,
        msg: *mut bindings::msghdr,
        len: usize,
        flags: c_int,
    ) -> c_int {
        let done = call!(self.recvmsg, failed(bindings::EOPNOTSUPP), msg, len, flags);
        self.show_peek_off();
        let none = done == 0 && len > 0 || done == failed(bindings::ENOTCONN);
        if none && flags as c_uint & bindings::MSG_ERRQUEUE == 0 && !self.at_end() {
            return self.error_or(done);
        }
        done
    }

    /// `SO_PEEK_OFF`.
    pub(super) unsafe fn carry_set_peek_off(&self, at: c_int) -> c_int {
        let done = match self.ops().set_peek_off {
            // SAFETY: a live sock of TCP.
            Some(set) => unsafe { set(self.sk().cast(), at) },
            None => failed(bindings::EOPNOTSUPP),
        };
        if done == 0 {
            self.show_peek_off();
        }
        done
    }

    /// `getsockopt(SO_PEEK_OFF)` reads it from the outer sock, and calls that receive change it.
    fn show_peek_off(&self) {
        // SAFETY: both socks are live (type invariant, and the module's rule); words that are
        // changed by single stores.
        let (ours, outer) = unsafe {
            (
                Atomic::from_ptr(&raw mut (*self.sk()).sk_peek_off),
                Atomic::from_ptr(&raw mut (*self.outer_sk()).sk_peek_off),
            )
        };
        let mut at = ours.load(Relaxed);
        while outer.load(Relaxed) != at {
            outer.store(at, Relaxed);
            at = ours.load(Relaxed);
        }
    }

    /// `splice()` from the socket.
    pub(super) unsafe fn carry_splice_read(
        &self,
        pos: *mut bindings::loff_t,
        pipe: *mut bindings::pipe_inode_info,
        len: usize,
        flags: c_uint,
    ) -> isize {
        let without = failed(bindings::EOPNOTSUPP) as isize;
        // SAFETY: a live socket. TCP looks at the flags of its file, which is the outer one's.
        if unsafe { (*self.sock.as_ptr()).file }.is_null() {
            return without;
        }
        let done = call!(self.splice_read, without, pos, pipe, len, flags);
        let none = done == 0 && len > 0 || done == failed(bindings::ENOTCONN) as isize;
        if none && !self.at_end() {
            return self.error_or(done as c_int) as isize;
        }
        done
    }

    /// `splice()` to the socket has come to its end.
    pub(super) unsafe fn carry_splice_eof(&self) {
        call!(self.splice_eof, ());
    }

    /// `poll()`. The caller is on the outer socket's queue.
    pub(super) unsafe fn carry_poll(&self) -> bindings::__poll_t {
        let seen = self.poll();
        self.move_error();
        let outer = self.outer_sk();
        // SAFETY: the outer sock is live (the module's rule); one word.
        let err = unsafe { (&raw const (*outer).sk_err).read_volatile() };
        seen | if err != 0 { bindings::POLLERR } else { 0 }
    }

    /// `bind()`.
    pub(super) unsafe fn carry_bind(
        &self,
        addr: *mut bindings::sockaddr_unsized,
        len: c_int,
    ) -> c_int {
        call!(self.bind, failed(bindings::EINVAL), addr, len)
    }

    /// `listen()`.
    pub(super) unsafe fn carry_listen(&self, backlog: c_int) -> c_int {
        let done = call!(self.listen, failed(bindings::EOPNOTSUPP), backlog);
        if done == 0 {
            // SAFETY: the outer sock is live (the module's rule); for `SO_ACCEPTCONN`.
            unsafe { bindings::sk_state_store(self.outer_sk(), bindings::TCP_LISTEN as c_int) };
        }
        done
    }

    /// `getsockname()` and `getpeername()`.
    pub(super) unsafe fn carry_getname(&self, addr: *mut bindings::sockaddr, peer: c_int) -> c_int {
        call!(self.getname, failed(bindings::EINVAL), addr, peer)
    }

    /// `shutdown()`.
    pub(super) unsafe fn carry_shutdown(&self, how: c_int) -> c_int {
        call!(self.shutdown, failed(bindings::EOPNOTSUPP), how)
    }

    /// `ioctl()`.
    pub(super) unsafe fn carry_ioctl(&self, cmd: c_uint, arg: c_ulong) -> c_int {
        call!(self.ioctl, failed(bindings::ENOIOCTLCMD), cmd, arg)
    }

    /// A number that `ioctl()` answers, as io_uring asks for it.
    pub(super) unsafe fn carry_proto_ioctl(&self, cmd: c_int, answer: *mut c_int) -> c_int {
        let sk = self.sk();
        // SAFETY: a live sock; TLS may change its protocol, which is static.
        let ioctl = unsafe { (*(&raw const (*sk).__sk_common.skc_prot).read_volatile()).ioctl };
        match ioctl {
            // SAFETY: a live sock of that protocol; the caller's promise for the answer.
            Some(ioctl) => unsafe { ioctl(sk, cmd, answer) },
            None => failed(bindings::EOPNOTSUPP),
        }
    }

    /// `ioctl()` of a 32-bit program.
    #[cfg(CONFIG_COMPAT)]
    pub(super) unsafe fn carry_compat_ioctl(&self, cmd: c_uint, arg: c_ulong) -> c_int {
        call!(self.compat_ioctl, failed(bindings::ENOIOCTLCMD), cmd, arg)
    }

    /// `ioctl(SIOCGSTAMP)`.
    pub(super) unsafe fn carry_gettstamp(
        &self,
        stamp: *mut core::ffi::c_void,
        timeval: bool,
        time32: bool,
    ) -> c_int {
        let without = failed(bindings::ENOIOCTLCMD);
        call!(self.gettstamp, without, stamp, timeval, time32)
    }

    /// `setsockopt()` at another level than `SOL_SOCKET`.
    pub(super) unsafe fn carry_setsockopt(
        &self,
        level: c_int,
        name: c_int,
        value: bindings::sockptr_t,
        len: c_uint,
    ) -> c_int {
        let without = failed(bindings::EOPNOTSUPP);
        call!(self.setsockopt, without, level, name, value, len)
    }

    /// `getsockopt()` at another level than `SOL_SOCKET`.
    pub(super) unsafe fn carry_getsockopt(
        &self,
        level: c_int,
        name: c_int,
        value: *mut kernel::ffi::c_char,
        len: *mut c_int,
    ) -> c_int {
        call!(
            self.getsockopt,
            failed(bindings::EOPNOTSUPP),
            level,
            name,
            value,
            len
        )
    }

    /// `mmap()`.
    pub(super) unsafe fn carry_mmap(
        &self,
        file: *mut bindings::file,
        vma: *mut bindings::vm_area_struct,
    ) -> c_int {
        match self.ops().mmap {
            // SAFETY: a live socket of TCP; the caller's promise for the arguments.
            Some(mmap) => unsafe { mmap(file, self.sock.as_ptr(), vma) },
            None => failed(bindings::ENODEV),
        }
    }
}
