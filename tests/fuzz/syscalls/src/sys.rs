// SPDX-License-Identifier: GPL-2.0
//! All `unsafe` of this program.
//!
//! [`call`] makes any system call with any arguments, in a process that exists to be broken: a
//! child of [`fork`], in which programs unmap, overwrite and close what they like. Safety within
//! that process does not matter; nothing that it does reaches its parent, except through [`Shared`]
//! (numbers) and [`Kcov`] (numbers).

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// Makes a system call; returns its result, `-errno` if it fails.
pub fn call(nr: i64, args: &[u64]) -> i64 {
    let mut a = [0; 6];
    for (to, from) in a.iter_mut().zip(args) {
        *to = *from;
    }
    // SAFETY: the process is one to be broken, see above; the others hand over nothing but
    // descriptors, numbers and their memory.
    let r = unsafe { libc::syscall(nr, a[0], a[1], a[2], a[3], a[4], a[5]) };
    if r != -1 {
        return r;
    }
    -i64::from(
        io::Error::last_os_error()
            .raw_os_error()
            .unwrap_or(libc::EIO),
    )
}

/// As [`call`], as a result.
pub fn check(nr: i64, args: &[u64]) -> io::Result<u64> {
    match call(nr, args) {
        r @ -4095..=-1 => Err(io::Error::from_raw_os_error(-r as i32)),
        r => Ok(r as u64),
    }
}

/// A descriptor that a call has just made.
pub fn own(fd: u64) -> OwnedFd {
    // SAFETY: the callers pass a descriptor that the kernel has just returned.
    unsafe { OwnedFd::from_raw_fd(fd as i32) }
}

/// Forks. `None` in the child. The caller has no threads.
pub fn fork() -> io::Result<Option<i32>> {
    // SAFETY: there is one thread, so the child can go on with everything.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(None),
        pid => Ok(Some(pid)),
    }
}

/// Ends the process at once.
pub fn exit(code: i32) -> ! {
    // SAFETY: takes any number.
    unsafe { libc::_exit(code) }
}

/// Waits for child `pid`, or any with -1: its id and status if one has ended.
pub fn reap(pid: i32) -> io::Result<Option<(i32, i32)>> {
    let mut status = 0;
    // SAFETY: `status` is ours.
    match unsafe { libc::waitpid(pid, &raw mut status, libc::WNOHANG) } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(None),
        pid => Ok(Some((pid, status))),
    }
}

extern "C" fn nothing(_: libc::c_int) {}

/// SIGALRM interrupts and does nothing else.
pub fn ignore_alarm() {
    // SAFETY: zeroes are a sigaction; the handler does nothing.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as usize;
        libc::sigaction(libc::SIGALRM, &raw const action, ptr::null_mut());
    }
}

const PAGE: usize = 4096;
const BUF: usize = 4 << 20;
const GUARD: usize = 64 << 10;
const SCRATCH: usize = 64 << 10;

/// The memory that programs name: made before the fork, so that it is where it was in every run of
/// a program, and each child has its own copy.
#[derive(Clone, Copy)]
pub struct Memory {
    start: usize,
    workers: usize,
}

impl Memory {
    /// With a scratch area for each of `workers`. It is never unmapped.
    pub fn new(workers: usize) -> io::Result<Self> {
        let len = BUF + GUARD + PAGE + GUARD + workers * (SCRATCH + GUARD);
        // SAFETY: a new mapping.
        let start = unsafe {
            libc::mmap(
                0x2_0000_0000 as *mut libc::c_void,
                len,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let this = Self {
            start: start as usize,
            workers,
        };
        let rw = libc::PROT_READ | libc::PROT_WRITE;
        let protect = |at: usize, len: usize, prot: i32| {
            check(libc::SYS_mprotect, &[at as u64, len as u64, prot as u64])
        };
        protect(this.buf(), BUF, rw)?;
        protect(this.ro(), PAGE, libc::PROT_READ)?;
        for w in 0..workers {
            protect(this.scratch(w), SCRATCH, rw)?;
        }
        Ok(this)
    }

    /// Where the buffer begins.
    pub fn buf(&self) -> usize {
        self.start
    }

    /// Its end; nothing is mapped there.
    pub fn end(&self) -> usize {
        self.start + BUF
    }

    /// A page that can only be read.
    pub fn ro(&self) -> usize {
        self.end() + GUARD
    }

    /// Memory of a worker.
    pub fn scratch(&self, worker: usize) -> usize {
        self.ro() + PAGE + GUARD + worker * (SCRATCH + GUARD)
    }

    /// Its end; nothing is mapped there.
    pub fn scratch_end(&self, worker: usize) -> usize {
        self.scratch(worker) + SCRATCH
    }

    /// Whether the bytes are in a scratch area.
    fn holds(&self, at: usize, len: usize) -> bool {
        (0..self.workers).any(|w| {
            at >= self.scratch(w)
                && at
                    .checked_add(len)
                    .is_some_and(|e| e <= self.scratch_end(w))
        })
    }

    /// Writes to a scratch area, and to nowhere else.
    pub fn write(&self, at: usize, bytes: &[u8]) {
        if self.holds(at, bytes.len()) {
            // SAFETY: mapped writable, unless the program has taken it away: then this process
            // ends, which is its right. No reference to the memory exists.
            unsafe { ptr::copy(bytes.as_ptr(), at as *mut u8, bytes.len()) };
        }
    }

    /// Reads from a scratch area; nothing from anywhere else.
    pub fn read(&self, at: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        if self.holds(at, len) {
            // SAFETY: as in `write`.
            unsafe { ptr::copy(at as *const u8, bytes.as_mut_ptr(), len) };
        }
        bytes
    }
}

fn map_shared(fd: i32, flags: i32, len: usize) -> io::Result<*mut libc::c_void> {
    // SAFETY: a new mapping.
    let at = unsafe {
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        libc::mmap(ptr::null_mut(), len, prot, libc::MAP_SHARED | flags, fd, 0)
    };
    if at == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    Ok(at)
}

/// Numbers that children write and the parent reads. Never unmapped.
pub type Shared = &'static [AtomicI64];

pub fn shared(n: usize) -> io::Result<Shared> {
    let at = map_shared(-1, libc::MAP_ANONYMOUS, n * 8)?;
    // SAFETY: new, zeroed, long enough, aligned, and never unmapped by the parent.
    Ok(unsafe { std::slice::from_raw_parts(at.cast(), n) })
}

const KCOV_INIT_TRACE: u64 = 0x8008_6301;
const KCOV_ENABLE: u64 = 0x6364;
const KCOV_WORDS: usize = 1 << 16;

/// The coverage of one thread of a child (Documentation/dev-tools/kcov.rst of the kernel).
pub struct Kcov {
    file: File,
    words: &'static [AtomicU64],
}

impl Kcov {
    /// The kernel must have KCOV, and debugfs be there.
    pub fn new() -> io::Result<Self> {
        let file = File::options()
            .read(true)
            .write(true)
            .open("/sys/kernel/debug/kcov")?;
        let fd = file.as_raw_fd();
        check(
            libc::SYS_ioctl,
            &[fd as u64, KCOV_INIT_TRACE, KCOV_WORDS as u64],
        )?;
        let at = map_shared(fd, 0, KCOV_WORDS * 8)?;
        // SAFETY: new, long enough, aligned, and never unmapped by the parent.
        let words = unsafe { std::slice::from_raw_parts(at.cast(), KCOV_WORDS) };
        Ok(Self { file, words })
    }

    /// The calling thread is traced from now on until it ends.
    pub fn enable(&self) -> i64 {
        call(
            libc::SYS_ioctl,
            &[self.file.as_raw_fd() as u64, KCOV_ENABLE, 0],
        )
    }

    /// Clears the trace.
    pub fn reset(&self) {
        self.words[0].store(0, Ordering::Relaxed);
    }

    /// The traced points.
    pub fn pcs(&self) -> impl Iterator<Item = u64> + '_ {
        let n = self.words[0].load(Ordering::Acquire) as usize;
        self.words[1..]
            .iter()
            .take(n)
            .map(|w| w.load(Ordering::Relaxed))
    }
}
