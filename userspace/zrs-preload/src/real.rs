// SPDX-License-Identifier: GPL-2.0
//! The calls as the next library has them, libc's mostly; and errno.

use std::ffi::{c_void, CStr};
use std::mem::transmute;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{c_int, c_long, sockaddr, socklen_t};

/// A function of the next library, once it has been looked for.
struct Next {
    name: &'static CStr,
    at: AtomicPtr<c_void>,
}

impl Next {
    const fn new(name: &'static CStr) -> Self {
        let at = AtomicPtr::new(null_mut());
        Self { name, at }
    }

    /// Null: no library has it.
    fn get(&self) -> *mut c_void {
        let mut at = self.at.load(Ordering::Relaxed);
        if at.is_null() {
            let before = errno();
            // SAFETY: the name ends with a zero.
            at = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
            set_errno(before);
            self.at.store(at, Ordering::Relaxed);
        }
        at
    }
}

static SOCKET: Next = Next::new(c"socket");
static CONNECT: Next = Next::new(c"connect");
static BIND: Next = Next::new(c"bind");

/// Looks for all of them, so that it need not be done where dlsym() is not safe.
pub fn find() {
    SOCKET.get();
    CONNECT.get();
    BIND.get();
}

type WithAddress = unsafe extern "C" fn(c_int, *const sockaddr, socklen_t) -> c_int;

pub fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    let next = SOCKET.get();
    if next.is_null() {
        // SAFETY: the system call takes three integers.
        return unsafe { libc::syscall(libc::SYS_socket, domain, kind, protocol) } as c_int;
    }
    // SAFETY: the symbol of this name is socket(2).
    let next: extern "C" fn(c_int, c_int, c_int) -> c_int = unsafe { transmute(next) };
    next(domain, kind, protocol)
}

/// # Safety
///
/// As for connect(2).
pub unsafe fn connect(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int {
    // SAFETY: the caller says so, and connect() takes these.
    unsafe { with_address(&CONNECT, libc::SYS_connect, fd, addr, len) }
}

/// # Safety
///
/// As for bind(2).
pub unsafe fn bind(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int {
    // SAFETY: the caller says so, and bind() takes these.
    unsafe { with_address(&BIND, libc::SYS_bind, fd, addr, len) }
}

/// # Safety
///
/// `next` and `number` are the same call, and it may be made with these arguments.
unsafe fn with_address(
    next: &Next,
    number: c_long,
    fd: c_int,
    addr: *const sockaddr,
    len: socklen_t,
) -> c_int {
    let next = next.get();
    if next.is_null() {
        // SAFETY: the caller says so.
        return unsafe { libc::syscall(number, fd, addr, len) } as c_int;
    }
    // SAFETY: the calls with these names are of this type.
    let next: WithAddress = unsafe { transmute(next) };
    // SAFETY: the caller says so.
    unsafe { next(fd, addr, len) }
}

pub fn errno() -> c_int {
    // SAFETY: each thread has its own, and it is always there.
    unsafe { *libc::__errno_location() }
}

pub fn set_errno(value: c_int) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = value }
}

/// The result of a call, or its errno.
pub fn check(returned: c_int) -> Result<c_int, c_int> {
    if returned < 0 {
        Err(errno())
    } else {
        Ok(returned)
    }
}
