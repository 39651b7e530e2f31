// SPDX-License-Identifier: GPL-2.0
//! bpf(2).

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

const MAP_CREATE: i32 = 0;
const MAP_UPDATE_ELEM: i32 = 2;
const MAP_DELETE_ELEM: i32 = 3;
const MAP_GET_NEXT_KEY: i32 = 4;
const PROG_LOAD: i32 = 5;
const OBJ_PIN: i32 = 6;
const OBJ_GET: i32 = 7;
const LINK_CREATE: i32 = 28;

const MAP_TYPE_HASH: u32 = 1;
const NO_PREALLOC: u32 = 1;
const PROG_TYPE_TRACING: u32 = 26;
const MODIFY_RETURN: u32 = 26;

/// `union bpf_attr`, as far as it is used here; what is not written is 0.
struct Attr([u8; 152]);

impl Attr {
    fn new() -> Self {
        Self([0; 152])
    }

    fn u32(mut self, at: usize, value: u32) -> Self {
        self.0[at..at + 4].copy_from_slice(&value.to_le_bytes());
        self
    }

    fn fd(self, at: usize, fd: BorrowedFd<'_>) -> Self {
        self.u32(at, fd.as_raw_fd() as u32)
    }

    fn u64(mut self, at: usize, value: u64) -> Self {
        self.0[at..at + 8].copy_from_slice(&value.to_le_bytes());
        self
    }

    /// An address.
    fn ptr<T: ?Sized>(self, at: usize, to: *const T) -> Self {
        self.u64(at, to.cast::<u8>() as u64)
    }

    /// # Safety
    ///
    /// The command must want addresses where `self` has some, and each must be valid in the call.
    unsafe fn call(&self, command: i32) -> io::Result<i32> {
        // SAFETY: the size is that of the array; for the rest the caller vouches.
        let returned = unsafe {
            libc::syscall(
                libc::SYS_bpf,
                command,
                self.0.as_ptr(),
                self.0.len() as libc::c_uint,
            )
        };
        if returned < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(returned as i32)
    }

    /// # Safety
    ///
    /// As [`Self::call`], and the command returns a new file descriptor.
    unsafe fn open(&self, command: i32) -> io::Result<OwnedFd> {
        // SAFETY: the caller vouches.
        let fd = unsafe { self.call(command)? };
        // SAFETY: it is new, and belongs to this process alone.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }
}

fn name(at: usize, attr: Attr, name: &str) -> Attr {
    let mut attr = attr;
    let name = &name.as_bytes()[..name.len().min(15)];
    attr.0[at..at + name.len()].copy_from_slice(name);
    attr
}

/// A hash map from a `u64` to a `u32`.
pub fn map_create(entries: u32) -> io::Result<OwnedFd> {
    let attr = Attr::new()
        .u32(0, MAP_TYPE_HASH)
        .u32(4, 8)
        .u32(8, 4)
        .u32(12, entries)
        .u32(16, NO_PREALLOC);
    // SAFETY: there is no address in it; it returns a file descriptor.
    unsafe { name(28, attr, "zrs_cgroups").open(MAP_CREATE) }
}

/// Loads a program for the kernel's function number `function`. The error has the last lines of the
/// verifier's log.
pub fn load(code: &[u8], function: u32) -> io::Result<OwnedFd> {
    let license = c"GPL";
    let attempt = |log: &mut [u8]| {
        let level = u32::from(!log.is_empty());
        let attr = Attr::new()
            .u32(0, PROG_TYPE_TRACING)
            .u32(4, (code.len() / 8) as u32)
            .ptr(8, code.as_ptr())
            .ptr(16, license.as_ptr())
            .u32(24, level)
            .u32(28, log.len() as u32)
            .u64(
                32,
                if log.is_empty() {
                    0
                } else {
                    log.as_mut_ptr() as u64
                },
            )
            .u32(68, MODIFY_RETURN)
            .u32(108, function);
        // SAFETY: instructions, license and log are valid in the call, the log for writing.
        unsafe { name(48, attr, "zrs_socket").open(PROG_LOAD) }
    };
    let error = match attempt(&mut []) {
        Ok(fd) => return Ok(fd),
        Err(error) => error,
    };
    let mut log = vec![0; 1 << 20];
    if let Ok(fd) = attempt(&mut log) {
        return Ok(fd);
    }
    let end = log.iter().position(|&byte| byte == 0).unwrap_or(log.len());
    let said = String::from_utf8_lossy(&log[..end]).trim_end().to_owned();
    if said.is_empty() {
        return Err(error);
    }
    let last: Vec<_> = said.lines().rev().take(4).collect();
    let last: Vec<_> = last.into_iter().rev().collect();
    Err(io::Error::new(
        error.kind(),
        format!("{error}: {}", last.join("; ")),
    ))
}

/// Attaches a loaded program. It stays as long as the link, or its pin.
pub fn attach(program: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let attr = Attr::new().fd(0, program).u32(8, MODIFY_RETURN);
    // SAFETY: there is no address in it; it returns a file descriptor.
    unsafe { attr.open(LINK_CREATE) }
}

/// Pins a map or a link at `path`.
pub fn pin(fd: BorrowedFd<'_>, path: &CStr) -> io::Result<()> {
    let attr = Attr::new().ptr(0, path.as_ptr()).fd(8, fd);
    // SAFETY: the path ends with a zero.
    unsafe { attr.call(OBJ_PIN) }.map(drop)
}

/// Opens what is pinned at `path`.
pub fn get(path: &CStr) -> io::Result<OwnedFd> {
    // SAFETY: the path ends with a zero; it returns a file descriptor.
    unsafe { Attr::new().ptr(0, path.as_ptr()).open(OBJ_GET) }
}

/// Sets an entry.
pub fn update(map: BorrowedFd<'_>, key: u64, value: u32) -> io::Result<()> {
    let attr = Attr::new().fd(0, map).ptr(8, &key).ptr(16, &value);
    // SAFETY: the map has keys and values of these types, which live until after the call.
    unsafe { attr.call(MAP_UPDATE_ELEM) }.map(drop)
}

/// Removes an entry. Error `NotFound` if there is none.
pub fn delete(map: BorrowedFd<'_>, key: u64) -> io::Result<()> {
    let attr = Attr::new().fd(0, map).ptr(8, &key);
    // SAFETY: as in `update`.
    unsafe { attr.call(MAP_DELETE_ELEM) }.map(drop)
}

/// The key after `key`, or the first one; `None` at the end.
pub fn next_key(map: BorrowedFd<'_>, key: Option<u64>) -> io::Result<Option<u64>> {
    let mut next = 0_u64;
    let attr = Attr::new().fd(0, map).ptr(16, &raw mut next);
    let attr = match &key {
        Some(key) => attr.ptr(8, key),
        None => attr,
    };
    // SAFETY: as in `update`; the next key is written.
    match unsafe { attr.call(MAP_GET_NEXT_KEY) } {
        Ok(_) => Ok(Some(next)),
        Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(None),
        Err(e) => Err(e),
    }
}
