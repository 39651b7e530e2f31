// SPDX-License-Identifier: GPL-2.0

//! The functions called by C that move data, and those for options, `splice()` and `mmap()`; the
//! others are in `callbacks.rs`, with what holds for all.

use super::{
    callbacks::Callbacks,
    family::{Kind, SocketOps},
    msg::{RecvMsg, SendMsg},
    opt::{OptIn, OptOut},
    pipe::Pipe,
    tcp::{self, Tcp},
    Call, Sk,
};
use crate::{
    bindings,
    kern::{errno, vma::NewVma},
};
use kernel::{
    error::{from_result, to_result},
    ffi::{c_char, c_int, c_uint},
    prelude::*,
    sync::Arc,
};

impl<T: SocketOps> Callbacks<T> {
    /// An option of `SOL_SOCKET`, here and in the socket inside.
    ///
    /// # Safety
    ///
    /// As for [`Self::setsockopt`]; `this` is the socket's.
    unsafe fn set_socket_option(
        sock: *mut bindings::socket,
        this: &Arc<T>,
        name: c_int,
        value: bindings::sockptr_t,
        len: c_uint,
    ) -> Result<c_int> {
        let level = bindings::SOL_SOCKET as c_int;
        T::check_socket_option(this, name)?;
        // SAFETY: as above.
        let call = unsafe { Call::from_raw(sock) };
        let carried = tcp::CARRIED.contains(&(name as u32));
        let tcp = T::inner_tcp(this, &call, carried)?;
        if T::SUPPORT_ZC && name as u32 == bindings::SO_ZEROCOPY {
            // The kernel allows it for its own protocols only.
            // SAFETY: value and length come from the socket layer and hold for this call.
            let value = unsafe { OptIn::from_raw(value, len as usize) };
            let on = match value.read::<c_int>()? {
                0 => false,
                1 => true,
                _ => return Err(EINVAL),
            };
            if let Some(tcp) = tcp {
                tcp.set_option(level, name, &value)?;
            }
            // SAFETY: the socket is live, and not released while a call on it runs.
            unsafe { Sk::from_raw(Self::sk(sock)) }.set_zerocopy(on);
            return Ok(0);
        }
        // The kernel's own options, with its refusals for this protocol.
        // SAFETY: a live socket with a sock; the arguments are handed on as they came.
        to_result(unsafe { bindings::sock_setsockopt(sock, level, name, value, len) })?;
        // `set_peek_off` has done it.
        if let Some(tcp) = tcp.filter(|_| name as u32 != bindings::SO_PEEK_OFF) {
            // SAFETY: value and length come from the socket layer and hold for this call.
            let value = unsafe { OptIn::from_raw(value, len as usize) };
            tcp.set_option(level, name, &value)?;
        }
        if name as u32 == bindings::SO_KEEPALIVE {
            T::keepalive_changed(this);
        }
        if matches!(
            name as u32,
            bindings::SO_SNDBUF
                | bindings::SO_SNDBUFFORCE
                | bindings::SO_RCVBUF
                | bindings::SO_RCVBUFFORCE
                | bindings::SO_BUF_LOCK
        ) {
            T::buffers_changed(this);
        }
        Ok(0)
    }

    /// # Safety
    ///
    /// See [`Callbacks`].
    pub(super) unsafe extern "C" fn setsockopt(
        sock: *mut bindings::socket,
        level: c_int,
        name: c_int,
        value: bindings::sockptr_t,
        len: c_uint,
    ) -> c_int {
        from_result(|| {
            if level as u32 == bindings::SOL_SOCKET {
                // SAFETY: the socket is live, and not released while a call on it runs.
                let this = unsafe { Self::borrow(sock)? };
                return T::while_set(&this, || {
                    // SAFETY: the arguments are handed on as they came.
                    unsafe { Self::set_socket_option(sock, &this, name, value, len) }
                });
            }
            // SAFETY: the socket is live, and not released while a call on it runs.
            let tcp = unsafe { Self::carrier(sock) };
            if let Some(tcp) = tcp.filter(|_| level != T::LEVEL) {
                // SAFETY: the arguments are handed on as they came.
                let done = unsafe { tcp.carry_setsockopt(level, name, value, len) };
                return to_result(done).map(|()| 0);
            }
            // SAFETY: as above.
            let this = unsafe { Self::borrow(sock)? };
            // SAFETY: value and length come from the socket layer and hold for this call.
            let value = unsafe { OptIn::from_raw(value, len as usize) };
            // SAFETY: as above.
            T::setsockopt(&this, level, name, value, &unsafe { Call::from_raw(sock) })?;
            Ok(0)
        })
    }

    /// # Safety
    ///
    /// See [`Callbacks`].
    pub(super) unsafe extern "C" fn getsockopt(
        sock: *mut bindings::socket,
        level: c_int,
        name: c_int,
        value: *mut c_char,
        len: *mut c_int,
    ) -> c_int {
        // SAFETY: the socket is live, and not released while a call on it runs.
        let tcp = unsafe { Self::carrier(sock) };
        if let Some(tcp) = tcp.filter(|_| level != T::LEVEL) {
            // SAFETY: the arguments are handed on as they came.
            return unsafe { tcp.carry_getsockopt(level, name, value, len) };
        }
        from_result(|| {
            // SAFETY: as above.
            let this = unsafe { Self::borrow(sock)? };
            let out = OptOut::from_user(value.addr(), len.addr());
            T::getsockopt(&this, level, name, out)?;
            Ok(0)
        })
    }

    /// # Safety
    ///
    /// See [`Callbacks`].
    pub(super) unsafe extern "C" fn sendmsg(
        sock: *mut bindings::socket,
        msg: *mut bindings::msghdr,
        len: usize,
    ) -> c_int {
        // SAFETY: the message belongs to this call.
        let connects = unsafe { (*msg).msg_flags } & bindings::MSG_FASTOPEN != 0;
        let carried = |tcp: &Tcp| {
            if connects {
                // SAFETY: the socket is live, and not released while a call on it runs.
                if let Err(e) = unsafe { Self::may_use_tcp(sock) } {
                    return e.to_errno();
                }
            }
            // SAFETY: the socket is live, and not released while a call on it runs; the arguments
            // are handed on as they came.
            unsafe {
                Self::tell_connected(sock, tcp);
                tcp.carry_send(msg, len)
            }
        };
        // SAFETY: as above.
        if let Some(tcp) = unsafe { Self::carrier(sock) } {
            return carried(tcp);
        }
        let done = from_result(|| {
            // SAFETY: the socket is live, and not released while a call on it runs.
            let this = unsafe { Self::borrow(sock)? };
            // SAFETY: the message is this call's own.
            let mut msg = unsafe { SendMsg::from_raw(msg)? };
            if connects && T::KIND == Kind::Stream {
                // SAFETY: as above.
                T::fast_open(&this, &unsafe { Call::from_raw(sock) })?;
                // The call is made on TCP, which gives the answer.
                return Err(errno::EOPNOTSUPP);
            }
            let n = T::sendmsg(&this, &mut msg)?;
            Ok(c_int::try_from(n).unwrap_or(c_int::MAX))
        });
        if done >= 0 {
            return done;
        }
        // SAFETY: as above.
        if let Some(tcp) = unsafe { Self::carrier(sock) } {
            // It has become so while the call waited for the connection, or for MSG_FASTOPEN.
            return carried(tcp);
        }
        // SAFETY: the message belongs to this call.
        let quiet = unsafe { (*msg).msg_flags } & bindings::MSG_NOSIGNAL != 0;
        if done == EPIPE.to_errno() && T::KIND == Kind::Stream && !quiet {
            // SAFETY: signals the calling task.
            unsafe { bindings::send_sigpipe() };
        }
        done
    }

    /// # Safety
    ///
    /// See [`Callbacks`].
    pub(super) unsafe extern "C" fn recvmsg(
        sock: *mut bindings::socket,
        msg: *mut bindings::msghdr,
        len: usize,
        flags: c_int,
    ) -> c_int {
        let carried = |tcp: &Tcp| {
            // SAFETY: the arguments are handed on as they came.
            unsafe { tcp.carry_recv(msg, len, flags) }
        };
        // SAFETY: the socket is live, and not released while a call on it runs.
        if let Some(tcp) = unsafe { Self::carrier(sock) } {
            return carried(tcp);
        }
        if flags as u32 & bindings::MSG_ERRQUEUE != 0 {
            let len = c_int::try_from(len).unwrap_or(c_int::MAX);
            // SAFETY: a live socket with a sock; the message belongs to this call.
            let done = unsafe { bindings::inet_recv_error(Self::sk(sock), msg, len) };
            if done != EAGAIN.to_errno() {
                return done;
            }
            // SAFETY: the socket is live, and not released while a call on it runs.
            let inner = unsafe { Self::borrow(sock) }.map(|this| T::inner_udp(&this));
            return match inner {
                // SAFETY: as above.
                Ok(Some(udp)) => unsafe { udp.recv_error(msg, len) },
                _ => done,
            };
        }
        let done = from_result(|| {
            // SAFETY: the socket is live, and not released while a call on it runs.
            let this = unsafe { Self::borrow(sock)? };
            // SAFETY: as above; the message is this call's own.
            let mut msg = unsafe { RecvMsg::from_raw(sock, msg, flags as u32)? };
            let n = T::recvmsg(&this, &mut msg)?;
            Ok(c_int::try_from(n).unwrap_or(c_int::MAX))
        });
        // SAFETY: as above.
        match unsafe { Self::carrier(sock) } {
            // It has become so while the call waited for the connection.
            Some(tcp) if done < 0 => carried(tcp),
            _ => done,
        }
    }

    /// The bytes that are queued, for io_uring's `SOCKET_URING_OP_SIOCINQ` and `SIOCOUTQ`.
    ///
    /// # Safety
    ///
    /// Only the kernel may call this, with the sock of a socket that has a file, which stays during
    /// the call, and room for a number.
    pub(super) unsafe extern "C" fn proto_ioctl(
        sk: *mut bindings::sock,
        cmd: c_int,
        answer: *mut c_int,
    ) -> c_int {
        // SAFETY: a sock with a file has its socket until the release.
        let sock = unsafe { (*sk).sk_socket };
        // SAFETY: the socket is live, and not released while its file stays.
        if let Some(tcp) = unsafe { Self::carrier(sock) } {
            // SAFETY: the arguments are handed on as they came.
            return unsafe { tcp.carry_proto_ioctl(cmd, answer) };
        }
        from_result(|| {
            // SAFETY: as above.
            let this = unsafe { Self::borrow(sock)? };
            let queued = T::queued(&this, cmd as u32)?;
            // SAFETY: the caller's promise.
            unsafe { *answer = c_int::try_from(queued).unwrap_or(c_int::MAX) };
            Ok(0)
        })
    }

    /// # Safety
    ///
    /// Only the socket layer may call this, with a live socket that has a file, and a pipe that it
    /// has locked.
    pub(super) unsafe extern "C" fn splice_read(
        sock: *mut bindings::socket,
        pos: *mut bindings::loff_t,
        pipe: *mut bindings::pipe_inode_info,
        len: usize,
        flags: c_uint,
    ) -> isize {
        let carried = |tcp: &Tcp| {
            // SAFETY: the arguments are handed on as they came.
            unsafe { tcp.carry_splice_read(pos, pipe, len, flags) }
        };
        // SAFETY: the socket is live, and not released while a call on it runs.
        if let Some(tcp) = unsafe { Self::carrier(sock) } {
            return carried(tcp);
        }
        let read = || {
            // SAFETY: the socket is live, and not released while a call on it runs.
            let this = unsafe { Self::borrow(sock)? };
            // SAFETY: the socket is live, and a splice is by its file, which stays while it runs.
            let nonblock = unsafe { Self::nonblock(sock) };
            // SAFETY: the caller has locked the pipe for this call.
            let mut pipe = unsafe { Pipe::from_raw(pipe)? };
            T::splice_read(&this, &mut pipe, len, nonblock)
        };
        // SAFETY: as above.
        match (read(), unsafe { Self::carrier(sock) }) {
            (Ok(n), _) => n as isize,
            // It has become so while the call waited for the connection.
            (Err(_), Some(tcp)) => carried(tcp),
            (Err(e), None) => e.to_errno() as isize,
        }
    }

    /// # Safety
    ///
    /// See [`Callbacks`].
    pub(super) unsafe extern "C" fn splice_eof(sock: *mut bindings::socket) {
        // SAFETY: the socket is live, and not released while a call on it runs.
        if let Some(tcp) = unsafe { Self::carrier(sock) } {
            // SAFETY: as above.
            return unsafe { tcp.carry_splice_eof() };
        }
        // SAFETY: as above.
        if let Ok(this) = unsafe { Self::borrow(sock) } {
            T::splice_eof(&this);
        }
    }

    /// `SO_PEEK_OFF`.
    ///
    /// # Safety
    ///
    /// Only [`setsockopt`](Self::setsockopt) may cause this call, with its socket's sock.
    pub(super) unsafe extern "C" fn set_peek_off(
        sk: *mut kernel::bindings::sock,
        at: c_int,
    ) -> c_int {
        // SAFETY: the sock has its socket until the release. (In the kernel crate it is opaque.)
        let sock = unsafe { (*sk.cast::<bindings::sock>()).sk_socket };
        // SAFETY: the socket is live, and not released while a call on it runs.
        match unsafe { Self::carrier(sock) } {
            // SAFETY: as above.
            Some(tcp) => unsafe { tcp.carry_set_peek_off(at) },
            None => from_result(|| {
                // SAFETY: as above.
                let this = unsafe { Self::borrow(sock)? };
                T::set_peek_off(&this, at).map(|()| 0)
            }),
        }
    }

    /// # Safety
    ///
    /// See [`Callbacks`].
    pub(super) unsafe extern "C" fn mmap(
        file: *mut bindings::file,
        sock: *mut bindings::socket,
        vma: *mut bindings::vm_area_struct,
    ) -> c_int {
        // SAFETY: the socket is live, and not released while a call on it runs.
        if let Some(tcp) = unsafe { Self::carrier(sock) } {
            // SAFETY: the arguments are handed on as they came.
            return unsafe { tcp.carry_mmap(file, vma) };
        }
        from_result(|| {
            // SAFETY: the socket is live, and not released while a call on it runs.
            let this = unsafe { Self::borrow(sock)? };
            // SAFETY: this is an mmap callback, and `vma` its area.
            T::mmap(&this, unsafe { NewVma::from_raw(vma) })?;
            Ok(0)
        })
    }
}
