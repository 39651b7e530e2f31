// SPDX-License-Identifier: GPL-2.0
//! `libzrs_preload.so`, which `zrs run` loads into a program that knows nothing of ZRS.
//!
//! Three calls are intercepted. `socket()` asks for ZRS where a program asks for TCP, or for UDP if
//! the user wants that; `connect()` and `bind()` learn the address and, where a rule says so, have
//! TCP carry the ZRS socket first. In processes with no_new_privs that cannot be, and a TCP socket
//! is put in the place of the ZRS socket. All else goes to the kernel, as ZRS sockets are the kernel's own.
//!
//! The hooks allocate nothing and take no lock, except for the first call of all, which reads the
//! rules; a constructor makes that call before the program can be in a signal handler or in a child
//! that it forked. errno is as the real calls leave it.

mod config;
mod epoll;
mod log;
mod real;
mod swap;

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicI64, Ordering};

use libc::{c_int, sockaddr, sockaddr_in, sockaddr_in6, socklen_t};
use zrs_rules::{why, Beside, Verdict};
use zrs_sys::abi::{
    IPPROTO_ZRS, ZRS_CARRIER_TCP, ZRS_STATE_BOUND, ZRS_STATE_CLOSED, ZRS_TCP_NEVER, ZRS_TCP_ONLY,
    ZRS_WHY_NONE,
};

use crate::log::log;
use crate::real::{errno, set_errno};

/// Until when the module is not asked again for sockets, in seconds of the monotonic clock: it has
/// said that it has none, or is not loaded. For streams of IPv4 and of IPv6, then for datagrams.
static ASK_AFTER: [AtomicI64; 4] = [const { AtomicI64::new(0) }; 4];
/// The number of seconds. The kernel starts modprobe for each such socket().
const NOT_ASKED: i64 = 10;
/// The reason for TCP in that time.
const ABSENT: &str = "ZRS is absent, or is to be unloaded";

extern "C" fn start() {
    config::get();
    real::find();
}

#[used]
#[link_section = ".init_array"]
static START: extern "C" fn() = start;

/// socket(2): a stream socket for TCP is one for ZRS.
#[no_mangle]
pub extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    let of_kind = kind & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC);
    let stream = of_kind == libc::SOCK_STREAM;
    let family = domain == libc::AF_INET || domain == libc::AF_INET6;
    if of_kind == libc::SOCK_DGRAM && family && matches!(protocol, 0 | libc::IPPROTO_UDP) {
        return dgram_socket(domain, kind, protocol);
    }
    if !stream || !family || !matches!(protocol, 0 | libc::IPPROTO_TCP) {
        return real::socket(domain, kind, protocol);
    }
    let why = match config::get().rules.socket() {
        Verdict::Tcp(why) => why,
        Verdict::Zrs => {
            let before = errno();
            let ask_after = &ASK_AFTER[usize::from(domain == libc::AF_INET6)];
            let mut why = ABSENT;
            if ask_after.load(Ordering::Relaxed) <= seconds() {
                let fd = real::socket(domain, kind, IPPROTO_ZRS as c_int);
                if fd >= 0 {
                    // Before all options. What is refused is told at bind().
                    let _ = set_beside(fd);
                    set_errno(before);
                    return fd;
                }
                if config::get().rules.tcp() != Beside::Auto {
                    return fd;
                }
                match errno() {
                    libc::EPROTONOSUPPORT | libc::EAFNOSUPPORT => {
                        ask_after.store(seconds() + NOT_ASKED, Ordering::Relaxed);
                    }
                    // The kernel has no other errno for a module that is on its way out.
                    libc::ENOMEM | libc::ENOBUFS => why = "ZRS has no memory, or goes just now",
                    _ => return fd,
                }
                set_errno(before);
            }
            why
        }
    };
    let name = if domain == libc::AF_INET {
        "IPv4"
    } else {
        "IPv6"
    };
    log(format_args!("socket {name}: TCP ({why})"));
    real::socket(domain, kind, protocol)
}

/// socket(2) for UDP: a datagram socket of ZRS with a UDP socket inside, or a plain UDP socket if
/// that cannot be made.
fn dgram_socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    let why = match config::get().rules.dgram_socket() {
        None => return real::socket(domain, kind, protocol),
        Some(Verdict::Tcp(why)) => why,
        Some(Verdict::Zrs) => {
            let before = errno();
            let ask_after = &ASK_AFTER[2 + usize::from(domain == libc::AF_INET6)];
            let asked = ask_after.load(Ordering::Relaxed) <= seconds();
            let fd = match asked {
                true => real::socket(domain, kind, IPPROTO_ZRS as c_int),
                false => -1,
            };
            let unknown = matches!(errno(), libc::EPROTONOSUPPORT | libc::EAFNOSUPPORT);
            if asked && fd < 0 && unknown {
                ask_after.store(seconds() + NOT_ASKED, Ordering::Relaxed);
            }
            if fd >= 0 {
                // SAFETY: it is new, and open.
                let set = zrs_sys::sock::set_dgram_udp(unsafe { BorrowedFd::borrow_raw(fd) });
                if set.is_ok() {
                    set_errno(before);
                    log(format_args!("socket datagrams: ZRS beside UDP"));
                    return fd;
                }
                // SAFETY: no other code has it.
                unsafe { libc::close(fd) };
            }
            set_errno(before);
            "ZRS has no socket with UDP beside"
        }
    };
    log(format_args!("socket datagrams: UDP ({why})"));
    real::socket(domain, kind, protocol)
}

/// The monotonic clock.
fn seconds() -> i64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: there is room for the time.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec
}

/// connect(2), on a TCP socket if a rule says so.
///
/// # Safety
///
/// As for connect(2), but that `addr` has to be readable.
#[no_mangle]
pub unsafe extern "C" fn connect(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int {
    // SAFETY: the caller says that `addr` has `len` bytes.
    let Some(told) = (unsafe { decide(Call::Connect, fd, addr, len) }) else {
        return -1;
    };
    // SAFETY: as above.
    let done = unsafe { real::connect(fd, addr, len) };
    if done == 0 && !told && config::get().log.is_some() {
        // SAFETY: as above.
        unsafe { tell_carrier(fd, addr, len) };
    }
    done
}

/// Says so if TCP has come to carry a ZRS socket. errno stays.
///
/// # Safety
///
/// `addr` has `len` readable bytes.
unsafe fn tell_carrier(fd: c_int, addr: *const sockaddr, len: socklen_t) {
    let before = errno();
    // SAFETY: it is a socket.
    let info = zrs_sys::sock::info(unsafe { BorrowedFd::borrow_raw(fd) });
    // SAFETY: the caller says so.
    let at = unsafe { address(addr, len) };
    if let (Ok(info), Some(at)) = (info, at) {
        if info.why != ZRS_WHY_NONE {
            let (name, text) = (why::name(info.why), why::text(info.why));
            log(format_args!(
                "connect {at}: carried by TCP ({name}: {text})"
            ));
        }
    }
    set_errno(before);
}

/// bind(2), on a TCP socket if a rule says so.
///
/// # Safety
///
/// As for bind(2), but that `addr` has to be readable.
#[no_mangle]
pub unsafe extern "C" fn bind(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int {
    // SAFETY: the caller says that `addr` has `len` bytes.
    if unsafe { decide(Call::Bind, fd, addr, len) }.is_none() {
        return -1;
    }
    // SAFETY: as above.
    unsafe { real::bind(fd, addr, len) }
}

#[derive(Clone, Copy, PartialEq)]
enum Call {
    Connect,
    Bind,
}

/// Has the rules decide, if that is still to be done, and makes the socket what they say. Returns
/// whether that is TCP, which the log says then. `None`: it was not possible, and errno says why.
///
/// # Safety
///
/// `addr` is null or has `len` readable bytes.
unsafe fn decide(call: Call, fd: c_int, addr: *const sockaddr, len: socklen_t) -> Option<bool> {
    let before = errno();
    let Some((bound, tcp)) = undecided(fd) else {
        set_errno(before);
        return Some(false);
    };
    // SAFETY: the caller says so.
    let Some(at) = (unsafe { address(addr, len) }) else {
        return Some(false);
    };
    let rules = &config::get().rules;
    let (name, verdict) = match call {
        Call::Connect => ("connect", rules.connect(at)),
        // The kernel refuses to bind it twice.
        Call::Bind if bound => return Some(false),
        Call::Bind => ("bind", rules.bind(at)),
    };
    let verdict = match verdict {
        Verdict::Zrs if tcp == ZRS_TCP_NEVER => match set_beside(fd) {
            Err(libc::EACCES) => Verdict::Tcp("no_new_privs: no port for both"),
            _ => verdict,
        },
        _ => verdict,
    };
    match verdict {
        Verdict::Zrs => log(format_args!("{name} {at}: ZRS")),
        Verdict::Tcp(why) => match to_tcp(fd, bound) {
            Ok(()) => log(format_args!("{name} {at}: TCP ({why})")),
            Err(error) => {
                log(format_args!(
                    "{name} {at}: TCP ({why}) is not possible: errno {error}"
                ));
                set_errno(error);
                return None;
            }
        },
    }
    set_errno(before);
    Some(matches!(verdict, Verdict::Tcp(_)))
}

/// Lets TCP carry a ZRS socket that is at most bound; else its errno.
fn to_tcp(fd: c_int, bound: bool) -> Result<(), c_int> {
    // SAFETY: it is not -1, and whether it is open the kernel says.
    let set = zrs_sys::sock::set_tcp(unsafe { BorrowedFd::borrow_raw(fd) }, ZRS_TCP_ONLY);
    match set.map_err(|e| e.raw_os_error()) {
        Ok(()) => Ok(()),
        // The process has no_new_privs; or an attempt to connect has failed before.
        Err(Some(libc::EACCES | libc::EINVAL)) => swap::to_tcp(fd, bound),
        Err(error) => Err(error.unwrap_or(libc::EINVAL)),
    }
}

/// Gives a ZRS socket the TCP beside it that the user wants; else its errno.
fn set_beside(fd: c_int) -> Result<(), c_int> {
    let mode = config::get().rules.tcp();
    if matches!(mode, Beside::Never | Beside::Only) {
        return Ok(());
    }
    // SAFETY: it is not -1, and whether it is open the kernel says.
    let set = zrs_sys::sock::set_tcp(unsafe { BorrowedFd::borrow_raw(fd) }, mode.number());
    set.map_err(|e| e.raw_os_error().unwrap_or(libc::EINVAL))
}

/// Whether `fd` is a ZRS socket that is not connected, connecting or listening; and if so whether
/// it is bound, and its ZRS_TCP_*. One that TCP carries already, for an option such as a key of
/// TCP_MD5SIG, is decided: a TCP socket in its place would not have that option.
fn undecided(fd: c_int) -> Option<(bool, u32)> {
    if fd < 0 {
        return None;
    }
    // SAFETY: it is not -1, and whether it is open the kernel says.
    let info = zrs_sys::sock::info(unsafe { BorrowedFd::borrow_raw(fd) }).ok()?;
    match info.state {
        _ if info.carriers & ZRS_CARRIER_TCP != 0 => None,
        ZRS_STATE_CLOSED => Some((false, info.tcp)),
        ZRS_STATE_BOUND => Some((true, info.tcp)),
        _ => None,
    }
}

/// The address, if it is a whole one of a family that is known here.
///
/// # Safety
///
/// `addr` is null or has `len` readable bytes.
unsafe fn address(addr: *const sockaddr, len: socklen_t) -> Option<SocketAddr> {
    let len = len as usize;
    if addr.is_null() || len < size_of::<libc::sa_family_t>() {
        return None;
    }
    // SAFETY: the family comes first, and there are bytes enough for it.
    let family = unsafe { addr.cast::<libc::sa_family_t>().read_unaligned() };
    match c_int::from(family) {
        libc::AF_INET if len >= size_of::<sockaddr_in>() => {
            // SAFETY: there are bytes enough, and any bytes make one.
            let a = unsafe { addr.cast::<sockaddr_in>().read_unaligned() };
            let ip = Ipv4Addr::from(u32::from_be(a.sin_addr.s_addr));
            Some(SocketAddr::from((ip, u16::from_be(a.sin_port))))
        }
        libc::AF_INET6 if len >= size_of::<sockaddr_in6>() => {
            // SAFETY: as above.
            let a = unsafe { addr.cast::<sockaddr_in6>().read_unaligned() };
            let ip = Ipv6Addr::from(a.sin6_addr.s6_addr);
            Some(SocketAddr::from((ip, u16::from_be(a.sin6_port))))
        }
        _ => None,
    }
}
