// SPDX-License-Identifier: GPL-2.0
//! The system calls with their errno, nothing between.

use std::fmt;
use std::mem::{size_of, zeroed};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use libc::{c_int, c_void, sockaddr_in, sockaddr_in6, socklen_t};

use zrs_sys::abi::ZRS_TCP_NEVER;

pub const IPPROTO_ZRS: i32 = zrs_sys::abi::IPPROTO_ZRS as i32;

/// An errno; prints its name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Errno(pub i32);

pub type Result<T> = std::result::Result<T, Errno>;

macro_rules! names {
    ($($name:ident)*) => {
        const NAMES: &[(&str, i32)] = &[$((stringify!($name), libc::$name),)*];
    };
}

names! {
    EPERM ENOENT EINTR EIO ENXIO EBADF EAGAIN ENOMEM EACCES EFAULT EBUSY ENODEV EINVAL ENFILE EMFILE
    ENOTTY ENOSPC EPIPE ENOSYS EPROTO EOVERFLOW ENOTSOCK EDESTADDRREQ EMSGSIZE EPROTOTYPE
    ENOPROTOOPT EPROTONOSUPPORT ESOCKTNOSUPPORT EOPNOTSUPP EAFNOSUPPORT EADDRINUSE EADDRNOTAVAIL
    ENETDOWN ENETUNREACH ENETRESET ECONNABORTED ECONNRESET ENOBUFS EISCONN ENOTCONN ESHUTDOWN
    ETIMEDOUT ECONNREFUSED EHOSTDOWN EHOSTUNREACH EALREADY EINPROGRESS EDQUOT
}

impl Errno {
    fn last() -> Self {
        std::io::Error::last_os_error().into()
    }

    /// By its name: "ECONNREFUSED".
    pub fn parse(name: &str) -> std::result::Result<Self, String> {
        let found = NAMES.iter().find(|(n, _)| *n == name);
        found
            .map(|(_, e)| Self(*e))
            .ok_or_else(|| format!("{name} is no errno that is known here"))
    }
}

impl From<std::io::Error> for Errno {
    /// Errors without an errno become EIO.
    fn from(error: std::io::Error) -> Self {
        Self(zrs::os_error(&error).unwrap_or(libc::EIO))
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match NAMES.iter().find(|(_, e)| *e == self.0) {
            Some((name, _)) => f.write_str(name),
            None => write!(f, "errno {}", self.0),
        }
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

static PROTOCOL: AtomicI32 = AtomicI32::new(IPPROTO_ZRS);

pub fn set_protocol(protocol: i32) {
    PROTOCOL.store(protocol, Ordering::Relaxed);
}

pub fn protocol() -> i32 {
    PROTOCOL.load(Ordering::Relaxed)
}

static FLAGS: AtomicBool = AtomicBool::new(true);

/// Makes sockets without SOCK_CLOEXEC and by accept() from here on, as a preload may know no more.
pub fn without_flags() {
    FLAGS.store(false, Ordering::Relaxed);
}

fn cloexec() -> c_int {
    match FLAGS.load(Ordering::Relaxed) {
        true => libc::SOCK_CLOEXEC,
        false => 0,
    }
}

/// Whether the sockets are ZRS sockets, not TCP's.
pub fn is_zrs() -> bool {
    protocol() == IPPROTO_ZRS
}

pub(super) fn check(r: c_int) -> Result<c_int> {
    if r < 0 {
        return Err(Errno::last());
    }
    Ok(r)
}

pub(super) fn check_len(r: isize) -> Result<usize> {
    usize::try_from(r).map_err(|_| Errno::last())
}

pub(super) fn raw(fd: &impl AsFd) -> c_int {
    fd.as_fd().as_raw_fd()
}

/// The bits of a socket's type that are no flags.
const KINDS: c_int = 0xf;

pub fn socket(family: c_int, kind: c_int, protocol: c_int) -> Result<OwnedFd> {
    // SAFETY: no pointers.
    let fd = check(unsafe { libc::socket(family, kind | cloexec(), protocol) })?;
    // SAFETY: the descriptor is new.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    if protocol == IPPROTO_ZRS && kind & KINDS == libc::SOCK_STREAM {
        // Whatever the network namespace's setting is: what TCP does must not pass for ZRS.
        zrs_sys::sock::set_tcp(fd.as_fd(), ZRS_TCP_NEVER)?;
    }
    Ok(fd)
}

/// setsockopt(ZRS_TCP).
pub fn set_tcp(fd: &impl AsFd, mode: u32) -> Result<()> {
    zrs_sys::sock::set_tcp(fd.as_fd(), mode).map_err(Into::into)
}

/// A stream socket of the protocol under test.
pub fn stream() -> Result<OwnedFd> {
    socket(libc::AF_INET, libc::SOCK_STREAM, protocol())
}

fn to_raw(addr: SocketAddrV4, family: c_int) -> sockaddr_in {
    sockaddr_in {
        sin_family: family as _,
        sin_port: addr.port().to_be(),
        sin_addr: libc::in_addr {
            s_addr: u32::from_ne_bytes(addr.ip().octets()),
        },
        sin_zero: [0; 8],
    }
}

fn from_raw(addr: &sockaddr_in) -> SocketAddrV4 {
    let ip = Ipv4Addr::from(addr.sin_addr.s_addr.to_ne_bytes());
    SocketAddrV4::new(ip, u16::from_be(addr.sin_port))
}

pub const ADDR_LEN: usize = size_of::<sockaddr_in>();

pub fn bind(fd: &impl AsFd, addr: SocketAddrV4) -> Result<()> {
    bind_as(fd, addr, libc::AF_INET, ADDR_LEN)
}

/// bind() with any family in the address and any length up to its own.
pub fn bind_as(fd: &impl AsFd, addr: SocketAddrV4, family: c_int, len: usize) -> Result<()> {
    assert!(len <= ADDR_LEN);
    let addr = to_raw(addr, family);
    // SAFETY: `addr` is at least `len` bytes long.
    check(unsafe { libc::bind(raw(fd), (&raw const addr).cast(), len as socklen_t) }).map(drop)
}

pub fn connect(fd: &impl AsFd, addr: SocketAddrV4) -> Result<()> {
    connect_as(fd, addr, libc::AF_INET, ADDR_LEN)
}

/// connect() with any family in the address and any length up to its own.
pub fn connect_as(fd: &impl AsFd, addr: SocketAddrV4, family: c_int, len: usize) -> Result<()> {
    assert!(len <= ADDR_LEN);
    let addr = to_raw(addr, family);
    // SAFETY: `addr` is at least `len` bytes long.
    check(unsafe { libc::connect(raw(fd), (&raw const addr).cast(), len as socklen_t) }).map(drop)
}

pub fn listen(fd: &impl AsFd, backlog: c_int) -> Result<()> {
    // SAFETY: no pointers.
    check(unsafe { libc::listen(raw(fd), backlog) }).map(drop)
}

pub fn accept(fd: &impl AsFd) -> Result<OwnedFd> {
    let (none, no_len) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: null pointers mean that the address is not asked for.
    let fd = check(unsafe {
        match cloexec() {
            0 => libc::accept(raw(fd), none, no_len),
            flags => libc::accept4(raw(fd), none, no_len, flags),
        }
    })?;
    // SAFETY: the descriptor is new.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

type GetName = unsafe extern "C" fn(c_int, *mut libc::sockaddr, *mut socklen_t) -> c_int;

fn name(fd: &impl AsFd, get: GetName) -> Result<SocketAddrV4> {
    // SAFETY: zeroes are a sockaddr_in.
    let mut addr: sockaddr_in = unsafe { zeroed() };
    let mut len = ADDR_LEN as socklen_t;
    // SAFETY: `addr` has room for `len` bytes.
    check(unsafe { get(raw(fd), (&raw mut addr).cast(), &raw mut len) })?;
    Ok(from_raw(&addr))
}

/// accept() with the peer's address.
pub fn accept_from(fd: &impl AsFd) -> Result<(OwnedFd, SocketAddrV4)> {
    // SAFETY: zeroes are a sockaddr_in.
    let mut addr: sockaddr_in = unsafe { zeroed() };
    let mut len = ADDR_LEN as socklen_t;
    // SAFETY: `addr` has room for `len` bytes.
    let new = check(unsafe { libc::accept(raw(fd), (&raw mut addr).cast(), &raw mut len) })?;
    // SAFETY: the descriptor is new.
    Ok((unsafe { OwnedFd::from_raw_fd(new) }, from_raw(&addr)))
}

pub fn getsockname(fd: &impl AsFd) -> Result<SocketAddrV4> {
    name(fd, libc::getsockname)
}

pub fn getpeername(fd: &impl AsFd) -> Result<SocketAddrV4> {
    name(fd, libc::getpeername)
}

fn to_raw6(addr: SocketAddrV6) -> sockaddr_in6 {
    sockaddr_in6 {
        sin6_family: libc::AF_INET6 as _,
        sin6_port: addr.port().to_be(),
        sin6_flowinfo: 0,
        sin6_addr: libc::in6_addr {
            s6_addr: addr.ip().octets(),
        },
        sin6_scope_id: addr.scope_id(),
    }
}

pub const ADDR6_LEN: usize = size_of::<sockaddr_in6>();

/// bind() with the first `len` bytes of an address.
pub fn bind6_as(fd: &impl AsFd, addr: SocketAddrV6, len: usize) -> Result<()> {
    assert!(len <= ADDR6_LEN);
    let addr = to_raw6(addr);
    // SAFETY: `addr` is at least `len` bytes long.
    check(unsafe { libc::bind(raw(fd), (&raw const addr).cast(), len as socklen_t) }).map(drop)
}

/// connect() with the first `len` bytes of an address.
pub fn connect6_as(fd: &impl AsFd, addr: SocketAddrV6, len: usize) -> Result<()> {
    assert!(len <= ADDR6_LEN);
    let addr = to_raw6(addr);
    // SAFETY: `addr` is at least `len` bytes long.
    check(unsafe { libc::connect(raw(fd), (&raw const addr).cast(), len as socklen_t) }).map(drop)
}

/// bind() to an address of either family.
pub fn bind_any(fd: &impl AsFd, addr: SocketAddr) -> Result<()> {
    match addr {
        SocketAddr::V4(addr) => bind(fd, addr),
        SocketAddr::V6(addr) => bind6_as(fd, addr, ADDR6_LEN),
    }
}

/// connect() to an address of either family.
pub fn connect_any(fd: &impl AsFd, addr: SocketAddr) -> Result<()> {
    match addr {
        SocketAddr::V4(addr) => connect(fd, addr),
        SocketAddr::V6(addr) => connect6_as(fd, addr, ADDR6_LEN),
    }
}

/// getsockname(), or getpeername(), of either family; its length must be that of the family's.
pub fn name_any(fd: &impl AsFd, peer: bool) -> Result<SocketAddr> {
    // SAFETY: zeroes are a sockaddr_in6.
    let mut addr: sockaddr_in6 = unsafe { zeroed() };
    let mut len = ADDR6_LEN as socklen_t;
    let get: GetName = if peer {
        libc::getpeername
    } else {
        libc::getsockname
    };
    // SAFETY: `addr` has room for `len` bytes.
    check(unsafe { get(raw(fd), (&raw mut addr).cast(), &raw mut len) })?;
    if c_int::from(addr.sin6_family) == libc::AF_INET6 && len as usize == ADDR6_LEN {
        let port = u16::from_be(addr.sin6_port);
        let ip = addr.sin6_addr.s6_addr.into();
        return Ok(SocketAddrV6::new(ip, port, addr.sin6_flowinfo, addr.sin6_scope_id).into());
    }
    assert_eq!(len as usize, ADDR_LEN, "the length of a name");
    // SAFETY: both are plain bytes, and the shorter one is asked for.
    Ok(from_raw(unsafe { &*(&raw const addr).cast::<sockaddr_in>() }).into())
}

pub fn shutdown(fd: &impl AsFd, how: c_int) -> Result<()> {
    // SAFETY: no pointers.
    check(unsafe { libc::shutdown(raw(fd), how) }).map(drop)
}

pub fn send(fd: &impl AsFd, buf: &[u8], flags: c_int) -> Result<usize> {
    // SAFETY: the buffer is of its length.
    check_len(unsafe { libc::send(raw(fd), buf.as_ptr().cast(), buf.len(), flags) })
}

/// send() of a byte at an address where there is nothing.
pub fn send_bad_pointer(fd: &impl AsFd) -> Result<usize> {
    send_bad(fd, 1, libc::MSG_NOSIGNAL)
}

/// send() of `len` bytes, at most a page, at an address where there is nothing.
pub fn send_bad(fd: &impl AsFd, len: usize, flags: c_int) -> Result<usize> {
    assert!(len <= 4096);
    // SAFETY: nothing is mapped from BAD on, and the kernel only reads there.
    check_len(unsafe { libc::send(raw(fd), BAD.cast_const(), len, flags) })
}

pub fn recv(fd: &impl AsFd, buf: &mut [u8], flags: c_int) -> Result<usize> {
    // SAFETY: the buffer has room for its length.
    check_len(unsafe { libc::recv(raw(fd), buf.as_mut_ptr().cast(), buf.len(), flags) })
}

/// recv() to nowhere: bytes that MSG_TRUNC discards.
pub fn recv_nowhere(fd: &impl AsFd, len: usize, flags: c_int) -> Result<usize> {
    // SAFETY: nothing is mapped at the null pointer.
    check_len(unsafe { libc::recv(raw(fd), ptr::null_mut(), len, flags) })
}

/// SO_LINGER.
pub fn set_linger(fd: &impl AsFd, seconds: c_int) -> Result<()> {
    let value = [1_i32.to_ne_bytes(), seconds.to_ne_bytes()].concat();
    setsockopt(fd, libc::SOL_SOCKET, libc::SO_LINGER, &value)
}

/// The messages of sendmmsg() and recvmmsg(): one for each piece of memory.
fn messages(pieces: &mut [libc::iovec]) -> Vec<libc::mmsghdr> {
    let message = |piece: &mut libc::iovec| {
        // SAFETY: zeroes are a message without anything.
        let mut message: libc::mmsghdr = unsafe { zeroed() };
        message.msg_hdr.msg_iov = piece;
        message.msg_hdr.msg_iovlen = 1;
        message
    };
    pieces.iter_mut().map(message).collect()
}

/// sendmmsg(), a message for each piece; how many bytes of each were taken.
pub fn send_messages(fd: &impl AsFd, pieces: &[&[u8]], flags: c_int) -> Result<Vec<usize>> {
    let piece = |p: &&[u8]| libc::iovec {
        iov_base: p.as_ptr().cast_mut().cast(),
        iov_len: p.len(),
    };
    let mut iov: Vec<_> = pieces.iter().map(piece).collect();
    let mut messages = messages(&mut iov);
    let (ptr, len) = (messages.as_mut_ptr(), messages.len() as u32);
    // SAFETY: the messages and their pieces outlive the call, and sending only reads the pieces.
    let n = check(unsafe { libc::sendmmsg(raw(fd), ptr, len, flags) })?;
    let sent = messages.iter().take(n as usize);
    Ok(sent.map(|m| m.msg_len as usize).collect())
}

/// recvmmsg(), a message for each piece; how many bytes came into each.
pub fn recv_messages(fd: &impl AsFd, pieces: &mut [&mut [u8]], flags: c_int) -> Result<Vec<usize>> {
    let piece = |p: &mut &mut [u8]| libc::iovec {
        iov_base: p.as_mut_ptr().cast(),
        iov_len: p.len(),
    };
    let mut iov: Vec<_> = pieces.iter_mut().map(piece).collect();
    let mut messages = messages(&mut iov);
    let (ptr, len) = (messages.as_mut_ptr(), messages.len() as u32);
    // SAFETY: the messages and their pieces, which have room for their lengths, outlive the call.
    let n = check(unsafe { libc::recvmmsg(raw(fd), ptr, len, flags, ptr::null_mut()) })?;
    let got = messages.iter().take(n as usize);
    Ok(got.map(|m| m.msg_len as usize).collect())
}

/// Sends all of `buf`, waiting where a non-blocking socket would not.
pub fn send_all(fd: &impl AsFd, mut buf: &[u8]) -> Result<()> {
    while !buf.is_empty() {
        match send(fd, buf, libc::MSG_NOSIGNAL) {
            Ok(n) => buf = &buf[n..],
            Err(Errno(libc::EAGAIN)) => drop(poll(fd, libc::POLLOUT, -1)?),
            Err(Errno(libc::EINTR)) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Fills `buf`; EPIPE if the stream ends before.
pub fn recv_all(fd: &impl AsFd, buf: &mut [u8]) -> Result<()> {
    let mut done = 0;
    while done < buf.len() {
        match recv(fd, &mut buf[done..], 0) {
            Ok(0) => return Err(Errno(libc::EPIPE)),
            Ok(n) => done += n,
            Err(Errno(libc::EAGAIN)) => drop(poll(fd, libc::POLLIN, -1)?),
            Err(Errno(libc::EINTR)) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Polls for `events`; 0 is the timeout's end. `timeout` in milliseconds, -1 for ever.
pub fn poll(fd: &impl AsFd, events: i16, timeout: c_int) -> Result<i16> {
    let mut poll = libc::pollfd {
        fd: raw(fd),
        events,
        revents: 0,
    };
    // SAFETY: one pollfd.
    check(unsafe { libc::poll(&raw mut poll, 1, timeout) })?;
    Ok(poll.revents)
}

pub fn set_nonblocking(fd: &impl AsFd, on: bool) -> Result<()> {
    let mut on = c_int::from(on);
    // SAFETY: FIONBIO reads an int.
    check(unsafe { libc::ioctl(raw(fd), libc::FIONBIO, &raw mut on) }).map(drop)
}

/// getsockopt() of an int.
pub fn getsockopt_int(fd: &impl AsFd, level: c_int, name: c_int) -> Result<c_int> {
    let mut value: c_int = 0;
    let mut len = size_of::<c_int>() as socklen_t;
    // SAFETY: `value` has room for `len` bytes.
    check(unsafe {
        libc::getsockopt(raw(fd), level, name, (&raw mut value).cast(), &raw mut len)
    })?;
    Ok(value)
}

/// getsockopt() into `buf`; the length it reports.
pub fn getsockopt(fd: &impl AsFd, level: c_int, name: c_int, buf: &mut [u8]) -> Result<usize> {
    let mut len = buf.len() as socklen_t;
    // SAFETY: `buf` has room for `len` bytes.
    check(unsafe {
        libc::getsockopt(raw(fd), level, name, buf.as_mut_ptr().cast(), &raw mut len)
    })?;
    Ok(len as usize)
}

pub fn setsockopt(fd: &impl AsFd, level: c_int, name: c_int, value: &[u8]) -> Result<()> {
    // SAFETY: `value` is of its length.
    check(unsafe {
        libc::setsockopt(
            raw(fd),
            level,
            name,
            value.as_ptr().cast(),
            value.len() as socklen_t,
        )
    })
    .map(drop)
}

/// getsockopt(ZRS_DGRAM_INFO).
pub fn dgram_info(fd: &impl AsFd) -> Result<zrs_sys::abi::zrs_dgram_info> {
    let mut info = zrs_sys::abi::zrs_dgram_info::default();
    let mut len = size_of_val(&info) as socklen_t;
    let (level, name) = (zrs_sys::abi::SOL_ZRS, zrs_sys::abi::ZRS_DGRAM_INFO);
    // SAFETY: `info` has room for `len` bytes, and any bytes make one.
    check(unsafe {
        libc::getsockopt(
            raw(fd),
            level as _,
            name as _,
            (&raw mut info).cast(),
            &raw mut len,
        )
    })?;
    Ok(info)
}

/// The errno and the origin of the next entry of the error queue, by IPv4; its datagram goes to
/// `buf`. EAGAIN: there is none.
pub fn recv_error(fd: &impl AsFd, buf: &mut [u8]) -> Result<(i32, u8)> {
    let mut control = [0_u64; 32];
    let mut iov = libc::iovec {
        iov_base: buf.as_mut_ptr().cast(),
        iov_len: buf.len(),
    };
    // SAFETY: zeroes are a message without anything.
    let mut msg: libc::msghdr = unsafe { zeroed() };
    (msg.msg_iov, msg.msg_iovlen) = (&raw mut iov, 1);
    msg.msg_control = control.as_mut_ptr().cast();
    msg.msg_controllen = size_of_val(&control) as _;
    // SAFETY: both buffers have room for their lengths and outlive the call.
    check_len(unsafe { libc::recvmsg(raw(fd), &raw mut msg, libc::MSG_ERRQUEUE) })?;
    // SAFETY: the kernel has filled the control buffer, and said in the message how far.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(&raw const msg) };
    while !header.is_null() {
        // SAFETY: a header found by the macros is in the buffer.
        let h = unsafe { header.read_unaligned() };
        if (h.cmsg_level, h.cmsg_type) == (libc::SOL_IP, libc::IP_RECVERR) {
            // SAFETY: what the kernel puts there is an entry.
            let entry = unsafe { libc::CMSG_DATA(header).cast::<libc::sock_extended_err>() };
            // SAFETY: as above.
            let entry = unsafe { entry.read_unaligned() };
            return Ok((entry.ee_errno as i32, entry.ee_origin));
        }
        // SAFETY: as above.
        header = unsafe { libc::CMSG_NXTHDR(&raw const msg, header) };
    }
    Err(Errno(libc::ENOMSG))
}

/// setsockopt() with a value where there is nothing.
pub fn setsockopt_bad_pointer(fd: &impl AsFd, level: c_int, name: c_int, len: usize) -> Result<()> {
    // SAFETY: nothing is mapped at BAD, and the kernel only reads there.
    check(unsafe { libc::setsockopt(raw(fd), level, name, BAD, len as socklen_t) }).map(drop)
}

pub fn so_error(fd: &impl AsFd) -> Result<Errno> {
    getsockopt_int(fd, libc::SOL_SOCKET, libc::SO_ERROR).map(Errno)
}

/// SO_RCVTIMEO in milliseconds.
pub fn set_recv_timeout(fd: &impl AsFd, ms: u32) -> Result<()> {
    set_timeout(fd, libc::SO_RCVTIMEO, ms)
}

/// SO_SNDTIMEO in milliseconds.
pub fn set_send_timeout(fd: &impl AsFd, ms: u32) -> Result<()> {
    set_timeout(fd, libc::SO_SNDTIMEO, ms)
}

fn set_timeout(fd: &impl AsFd, option: c_int, ms: u32) -> Result<()> {
    let time = libc::timeval {
        tv_sec: (ms / 1000).into(),
        tv_usec: libc::suseconds_t::from(ms % 1000) * 1000,
    };
    // SAFETY: `time` is of the length given.
    check(unsafe {
        libc::setsockopt(
            raw(fd),
            libc::SOL_SOCKET,
            option,
            (&raw const time).cast(),
            size_of::<libc::timeval>() as socklen_t,
        )
    })
    .map(drop)
}

/// In the first page nothing is mapped.
const BAD: *mut c_void = ptr::without_provenance_mut(8);

/// An ioctl with `arg` as its argument; a request of another size than `arg` is not made.
pub fn ioctl(fd: &impl AsFd, request: u32, arg: &mut [u8]) -> Result<c_int> {
    let size = (request >> 16) & 0x3fff;
    assert!(
        size as usize <= arg.len(),
        "the request reads or writes more than is there"
    );
    // SAFETY: of ZRS's own requests, which touch no more than the size that is in their number.
    check(unsafe { libc::ioctl(raw(fd), request as _, arg.as_mut_ptr()) })
}

/// An ioctl with an argument where there is nothing.
pub fn ioctl_bad_pointer(fd: &impl AsFd, request: u32) -> Result<c_int> {
    // SAFETY: nothing is mapped at BAD, so nothing can be written there.
    check(unsafe { libc::ioctl(raw(fd), request as _, BAD) })
}

/// Maps and unmaps again; returns the result of mprotect() to `then`, if given.
pub fn try_mmap(
    fd: &impl AsFd,
    offset: u64,
    len: usize,
    prot: c_int,
    flags: c_int,
    then: Option<c_int>,
) -> Result<()> {
    let offset = libc::off_t::try_from(offset).map_err(|_| Errno(libc::EOVERFLOW))?;
    assert_eq!(flags & libc::MAP_FIXED, 0);
    // SAFETY: no address is given, so nothing of ours is replaced; unmapped before anyone uses it.
    unsafe {
        let base = libc::mmap(ptr::null_mut(), len, prot, flags, raw(fd), offset);
        if base == libc::MAP_FAILED {
            return Err(Errno::last());
        }
        let changed = then.map_or(Ok(0), |prot| check(libc::mprotect(base, len, prot)));
        check(libc::munmap(base, len))?;
        changed.map(drop)
    }
}

/// The bytes of a structure of `zrs_sys::abi`.
pub fn bytes_of<T: Copy>(value: &T) -> Vec<u8> {
    let mut bytes = vec![0; size_of::<T>()];
    // SAFETY: both are of the size of `T`; the structures of the ABI have no padding.
    unsafe {
        ptr::copy_nonoverlapping(
            (&raw const *value).cast::<u8>(),
            bytes.as_mut_ptr(),
            bytes.len(),
        );
    }
    bytes
}

pub fn epoll() -> Result<OwnedFd> {
    // SAFETY: no pointers.
    let fd = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
    // SAFETY: the descriptor is new.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// epoll_ctl() with `op`; its events carry `fd`'s number.
pub fn epoll_ctl(epoll: &OwnedFd, op: c_int, fd: &impl AsFd, events: c_int) -> Result<()> {
    let mut event = libc::epoll_event {
        events: events as u32,
        u64: raw(fd) as u64,
    };
    // SAFETY: `event` is one event.
    check(unsafe { libc::epoll_ctl(raw(epoll), op, raw(fd), &raw mut event) }).map(drop)
}

/// epoll_wait() for at most four events: descriptors and bits.
pub fn epoll_wait(epoll: &OwnedFd, timeout: c_int) -> Result<Vec<(c_int, c_int)>> {
    epoll_wait_upto::<4>(epoll, timeout)
}

/// epoll_wait() for at most `N` events: descriptors and bits.
pub fn epoll_wait_upto<const N: usize>(
    epoll: &OwnedFd,
    timeout: c_int,
) -> Result<Vec<(c_int, c_int)>> {
    let mut events = [libc::epoll_event { events: 0, u64: 0 }; N];
    let (room, most) = (events.as_mut_ptr(), N as c_int);
    // SAFETY: there is room for N.
    let n = check(unsafe { libc::epoll_wait(raw(epoll), room, most, timeout) })?;
    let seen = events[..n as usize].iter();
    Ok(seen.map(|e| (e.u64 as c_int, e.events as c_int)).collect())
}

/// sendmsg() of several pieces.
pub fn send_pieces(fd: &impl AsFd, pieces: &[&[u8]], flags: c_int) -> Result<usize> {
    let mut iov = [libc::iovec {
        iov_base: ptr::null_mut(),
        iov_len: 0,
    }; 4];
    for (iov, piece) in iov.iter_mut().zip(pieces) {
        iov.iov_base = piece.as_ptr().cast_mut().cast();
        iov.iov_len = piece.len();
    }
    // SAFETY: zeroes are a message without anything.
    let mut msg: libc::msghdr = unsafe { zeroed() };
    msg.msg_iov = iov.as_mut_ptr();
    msg.msg_iovlen = pieces.len().min(iov.len()) as _;
    // SAFETY: the pieces outlive the call, and sending only reads them.
    check_len(unsafe { libc::sendmsg(raw(fd), &raw const msg, flags) })
}

/// recvmsg() into two pieces.
pub fn recv_pieces(fd: &impl AsFd, one: &mut [u8], two: &mut [u8], flags: c_int) -> Result<usize> {
    let mut iov = [one, two].map(|piece| libc::iovec {
        iov_base: piece.as_mut_ptr().cast(),
        iov_len: piece.len(),
    });
    // SAFETY: zeroes are a message without anything.
    let mut msg: libc::msghdr = unsafe { zeroed() };
    msg.msg_iov = iov.as_mut_ptr();
    msg.msg_iovlen = iov.len() as _;
    // SAFETY: the pieces have room for their lengths and outlive the call.
    check_len(unsafe { libc::recvmsg(raw(fd), &raw mut msg, flags) })
}

pub const SIOCATMARK: u64 = 0x8905;
pub const SIOCOUTQNSD: u64 = 0x894b;

/// An ioctl on a socket that gives an int: FIONREAD, SIOCOUTQ and their like.
pub fn ioctl_int(fd: &impl AsFd, request: u64) -> Result<c_int> {
    assert!([libc::FIONREAD, libc::TIOCOUTQ, SIOCATMARK, SIOCOUTQNSD].contains(&request));
    let mut value: c_int = 0;
    // SAFETY: all of them write an int.
    check(unsafe { libc::ioctl(raw(fd), request, &raw mut value) })?;
    Ok(value)
}

/// setsockopt(ZRS_RX_RING).
pub fn make_ring(fd: &impl AsFd) -> Result<()> {
    zrs_sys::sock::rx_ring(fd.as_fd(), 0)
        .map(drop)
        .map_err(Into::into)
}

/// ZRS_IOC_DOORBELL.
pub fn doorbell(fd: &impl AsFd) -> Result<()> {
    zrs_sys::sock::doorbell(fd.as_fd()).map_err(Into::into)
}

/// Closes; returns the result.
pub fn close(fd: OwnedFd) -> Result<()> {
    // SAFETY: the descriptor is ours, and given up here.
    check(unsafe { libc::close(std::os::fd::IntoRawFd::into_raw_fd(fd)) }).map(drop)
}

/// A listening socket on `addr`, and the address it got.
pub fn listener(addr: SocketAddrV4) -> Result<(OwnedFd, SocketAddrV4)> {
    let fd = stream()?;
    bind(&fd, addr)?;
    listen(&fd, 1024)?;
    let addr = getsockname(&fd)?;
    Ok((fd, addr))
}

/// A connected socket.
pub fn connected(addr: SocketAddrV4) -> Result<OwnedFd> {
    let fd = stream()?;
    connect(&fd, addr)?;
    Ok(fd)
}
