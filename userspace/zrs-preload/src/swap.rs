// SPDX-License-Identifier: GPL-2.0
//! Putting a TCP socket in the place of a ZRS socket that has not been used yet: where the module
//! may not let TCP carry it, which is in processes with no_new_privs.

use std::mem::{size_of, zeroed};

use libc::{c_int, sockaddr_storage, socklen_t};
use zrs_sys::abi::IPPROTO_ZRS;

use crate::epoll;
use crate::real::{self, check};

/// An option that is carried over if it reads otherwise than on a new ZRS socket.
struct Carried {
    level: c_int,
    name: c_int,
    how: How,
}

#[derive(PartialEq)]
enum How {
    /// The value read is set.
    Plain,
    /// Half of the value read is set: the kernel doubles it.
    Half,
    /// Carried over in any case: all ZRS sockets read the same, and a TCP socket must read the
    /// same.
    Always,
}

const fn of(level: c_int, name: c_int, how: How) -> Carried {
    Carried { level, name, how }
}

/// As <linux/in.h> has it.
const IP_LOCAL_PORT_RANGE: c_int = 51;
/// As <asm-generic/socket.h> has them: those without a name in libc.
const SO_BUF_LOCK: c_int = 72;
const SO_RCVMARK: c_int = 75;

const CARRIED: &[Carried] = &[
    of(libc::SOL_SOCKET, libc::SO_REUSEADDR, How::Plain),
    of(libc::SOL_SOCKET, libc::SO_REUSEPORT, How::Plain),
    of(libc::SOL_SOCKET, libc::SO_KEEPALIVE, How::Plain),
    of(libc::SOL_SOCKET, libc::SO_OOBINLINE, How::Plain),
    of(libc::SOL_SOCKET, libc::SO_DONTROUTE, How::Plain),
    of(libc::SOL_SOCKET, libc::SO_LINGER, How::Plain),
    of(libc::SOL_SOCKET, libc::SO_PRIORITY, How::Plain),
    of(libc::SOL_SOCKET, libc::SO_MARK, How::Plain),
    of(libc::SOL_SOCKET, libc::SO_BINDTODEVICE, How::Plain),
    of(libc::SOL_SOCKET, libc::SO_SNDBUF, How::Half),
    of(libc::SOL_SOCKET, libc::SO_RCVBUF, How::Half),
    of(libc::SOL_SOCKET, libc::SO_RCVLOWAT, How::Plain),
    of(libc::SOL_SOCKET, libc::SO_RCVTIMEO, How::Plain),
    of(libc::SOL_SOCKET, libc::SO_SNDTIMEO, How::Plain),
    of(libc::SOL_SOCKET, libc::SO_BUSY_POLL, How::Plain),
    of(libc::SOL_SOCKET, libc::SO_ZEROCOPY, How::Plain),
    of(libc::SOL_SOCKET, libc::SO_PREFER_BUSY_POLL, How::Plain),
    of(libc::SOL_SOCKET, libc::SO_BUSY_POLL_BUDGET, How::Plain),
    of(libc::SOL_SOCKET, libc::SO_INCOMING_CPU, How::Plain),
    of(libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, How::Plain),
    of(libc::SOL_SOCKET, libc::SO_PEEK_OFF, How::Plain),
    of(libc::SOL_SOCKET, libc::SO_RXQ_OVFL, How::Plain),
    of(libc::SOL_SOCKET, libc::SO_SELECT_ERR_QUEUE, How::Plain),
    of(libc::SOL_SOCKET, libc::SO_TIMESTAMP, How::Plain),
    of(libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, How::Plain),
    of(libc::SOL_SOCKET, libc::SO_TIMESTAMPING, How::Plain),
    of(libc::SOL_SOCKET, SO_BUF_LOCK, How::Plain),
    of(libc::SOL_SOCKET, SO_RCVMARK, How::Plain),
    of(libc::IPPROTO_TCP, libc::TCP_NODELAY, How::Always),
    of(libc::IPPROTO_TCP, libc::TCP_CORK, How::Plain),
    of(libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, How::Plain),
    of(libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, How::Plain),
    of(libc::IPPROTO_TCP, libc::TCP_KEEPCNT, How::Plain),
    of(libc::IPPROTO_TCP, libc::TCP_QUICKACK, How::Plain),
    of(libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, How::Plain),
    of(libc::IPPROTO_TCP, libc::TCP_MAXSEG, How::Plain),
    of(libc::IPPROTO_TCP, libc::TCP_SYNCNT, How::Plain),
    of(libc::IPPROTO_TCP, libc::TCP_LINGER2, How::Plain),
    of(libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, How::Plain),
    of(libc::IPPROTO_TCP, libc::TCP_FASTOPEN, How::Plain),
    of(libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, How::Plain),
    of(libc::IPPROTO_IP, libc::IP_TOS, How::Plain),
    of(libc::IPPROTO_IP, libc::IP_TTL, How::Plain),
    of(libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, How::Plain),
    of(libc::IPPROTO_IP, IP_LOCAL_PORT_RANGE, How::Plain),
    of(libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, How::Plain),
    of(libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, How::Plain),
    of(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, How::Plain),
    of(libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS, How::Plain),
    of(libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, How::Plain),
];

/// As <asm-generic/fcntl.h> has them.
const F_SETSIG: c_int = 10;
const F_GETSIG: c_int = 11;
const F_SETOWN_EX: c_int = 15;
const F_GETOWN_EX: c_int = 16;

/// A descriptor of ours, closed with its owner.
struct Fd(c_int);

impl Fd {
    fn socket(domain: c_int, protocol: c_int) -> Result<Self, c_int> {
        let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
        check(real::socket(domain, kind, protocol)).map(Self)
    }
}

impl Drop for Fd {
    fn drop(&mut self) {
        // SAFETY: no other code has it.
        unsafe { libc::close(self.0) };
    }
}

/// Makes `fd`, a ZRS socket that is at most bound, a TCP socket. On an error, returns the errno and
/// leaves `fd` unchanged. Other descriptors of the same socket stay with ZRS.
pub fn to_tcp(fd: c_int, bound: bool) -> Result<(), c_int> {
    let domain = get_int(fd, libc::SOL_SOCKET, libc::SO_DOMAIN)?;
    let tcp = Fd::socket(domain, libc::IPPROTO_TCP)?;
    let fresh = Fd::socket(domain, IPPROTO_ZRS as c_int)?;
    for option in CARRIED {
        carry(option, fd, fresh.0, tcp.0);
    }
    drop(fresh);
    if bound {
        carry_name(fd, tcp.0)?;
    }
    let close_on_exec = carry_flags(fd, tcp.0)?;
    let registered = epoll::take(fd);
    // SAFETY: both are descriptors; the program's own is replaced as it wants it.
    let done = check(unsafe { libc::dup3(tcp.0, fd, close_on_exec) });
    // The old one as well if it is still there.
    registered.put(fd);
    done.map(drop)
}

/// An option's value: its bytes, and how many they are. None: the socket does not have it.
fn get(fd: c_int, option: &Carried) -> Option<([u8; 16], usize)> {
    let mut value = [0; 16];
    let mut len = value.len() as socklen_t;
    let to = value.as_mut_ptr().cast();
    // SAFETY: `value` has `len` bytes of room.
    check(unsafe { libc::getsockopt(fd, option.level, option.name, to, &mut len) }).ok()?;
    Some((value, (len as usize).min(value.len())))
}

fn get_int(fd: c_int, level: c_int, name: c_int) -> Result<c_int, c_int> {
    let mut value: c_int = 0;
    let mut len = size_of::<c_int>() as socklen_t;
    // SAFETY: `value` has `len` bytes of room.
    check(unsafe { libc::getsockopt(fd, level, name, (&raw mut value).cast(), &mut len) })?;
    Ok(value)
}

/// Values that TCP refuses (SO_MARK after the program has dropped the privilege) keep TCP's
/// default.
fn carry(option: &Carried, fd: c_int, fresh: c_int, tcp: c_int) {
    let Some((mut value, len)) = get(fd, option) else {
        return;
    };
    if option.how != How::Always && get(fresh, option) == Some((value, len)) {
        return;
    }
    if option.how == How::Half {
        let [a, b, c, d, ..] = value;
        let half = c_int::from_ne_bytes([a, b, c, d]) / 2;
        value[..4].copy_from_slice(&half.to_ne_bytes());
    }
    let from = value.as_ptr().cast();
    // SAFETY: `value` has `len` bytes.
    unsafe { libc::setsockopt(tcp, option.level, option.name, from, len as socklen_t) };
}

/// Binds `tcp` to the address that `fd` has.
fn carry_name(fd: c_int, tcp: c_int) -> Result<(), c_int> {
    // SAFETY: any bytes make one.
    let mut name: sockaddr_storage = unsafe { zeroed() };
    let mut len = size_of::<sockaddr_storage>() as socklen_t;
    let at = (&raw mut name).cast();
    // SAFETY: `name` has `len` bytes of room.
    check(unsafe { libc::getsockname(fd, at, &mut len) })?;
    // SAFETY: `name` has `len` bytes.
    check(unsafe { real::bind(tcp, at, len) }).map(drop)
}

/// Carries over O_NONBLOCK and the receiver of SIGIO, or of another signal; returns O_CLOEXEC if `fd` has close-on-exec.
fn carry_flags(fd: c_int, tcp: c_int) -> Result<c_int, c_int> {
    // SAFETY: these commands take and return integers.
    let (file, descriptor) = unsafe {
        (
            check(libc::fcntl(fd, libc::F_GETFL))?,
            check(libc::fcntl(fd, libc::F_GETFD))?,
        )
    };
    // SAFETY: as above.
    unsafe {
        // The type of the owner first, and who it is: {int, pid_t}.
        let mut owner: [c_int; 2] = [0; 2];
        if libc::fcntl(fd, F_GETOWN_EX, &raw mut owner) == 0 && owner[1] != 0 {
            libc::fcntl(tcp, F_SETOWN_EX, &raw const owner);
        }
        let signal = libc::fcntl(fd, F_GETSIG);
        if signal > 0 {
            libc::fcntl(tcp, F_SETSIG, signal);
        }
        check(libc::fcntl(
            tcp,
            libc::F_SETFL,
            file & (libc::O_NONBLOCK | libc::O_ASYNC),
        ))?;
    }
    Ok(if descriptor & libc::FD_CLOEXEC != 0 {
        libc::O_CLOEXEC
    } else {
        0
    })
}
