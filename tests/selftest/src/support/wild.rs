// SPDX-License-Identifier: GPL-2.0
//! For hostile programs: memory that is scribbled on, unmapped and protected while the kernel uses
//! it, and system calls that are given such memory. `unsafe` is allowed here.
//!
//! An [`Area`] is not Rust memory: there are no references into it, all access is by atomics, and
//! the kernel is only ever told to write inside of it. A thread that touches a part of it that is
//! not mapped just then is ended by SIGSEGV or SIGBUS, which is a bug of the test.

use std::mem::{size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicU8, AtomicUsize, Ordering};
use std::time::Duration;

use libc::{c_int, c_void};

use crate::support::raw::Result;

pub const PAGE: usize = 4096;
/// A huge page.
const HUGE: usize = 2 << 20;

/// An address of the kernel's.
pub const KERNEL: u64 = 0xffff_8880_0000_1000;

fn last<T>() -> Result<T> {
    Err(std::io::Error::last_os_error().into())
}

fn check(r: c_int) -> Result<c_int> {
    if r < 0 {
        return last();
    }
    Ok(r)
}

fn check_len(r: isize) -> Result<usize> {
    usize::try_from(r).or_else(|_| last())
}

fn raw(fd: &impl AsFd) -> c_int {
    fd.as_fd().as_raw_fd()
}

/// Bytes of a view, for a call that only passes their address on: the peers of these tests keep to
/// the protocol.
pub fn trusted(view: zrs::View<'_>) -> &[u8] {
    // SAFETY: the peer's kernel does not write to bytes that were not given back.
    unsafe { view.trusted() }
}

/// The contents of a mapping that others may be writing to.
pub fn snapshot(map: &zrs_sys::Map) -> Vec<u8> {
    let base = map.base().as_ptr();
    let byte = |at| {
        // SAFETY: all of the mapping is readable as long as it lives; volatile, for others may
        // write.
        unsafe { base.add(at).read_volatile() }
    };
    (0..map.len()).map(byte).collect()
}

/// A part of the address space.
pub struct Area {
    base: usize,
    len: usize,
}

/// The address hint of the next area: far from where the kernel puts other mappings. An unmapped
/// part of an area stays unmapped, and is not another thread's stack when it is unmapped once more.
static NEXT: AtomicUsize = AtomicUsize::new(0x1000_0000_0000);

impl Area {
    /// A mapping of `fd`, or of nothing.
    pub fn map(
        len: usize,
        prot: c_int,
        flags: c_int,
        fd: Option<&OwnedFd>,
        offset: u64,
    ) -> Result<Self> {
        assert_eq!(flags & libc::MAP_FIXED, 0);
        let fd = fd.map_or(-1, raw);
        let hint = NEXT.fetch_add(len.next_multiple_of(HUGE) + HUGE, Ordering::Relaxed);
        let hint = ptr::without_provenance_mut(hint);
        // SAFETY: the address is a hint, so no existing mapping is replaced.
        let base = unsafe { libc::mmap(hint, len, prot, flags, fd, offset as i64) };
        if base == libc::MAP_FAILED {
            return last();
        }
        Ok(Self {
            base: base as usize,
            len,
        })
    }

    /// Private memory.
    pub fn anonymous(len: usize) -> Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        Self::map(len, libc::PROT_READ | libc::PROT_WRITE, flags, None, 0)
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// Its address, to be put where the kernel will read it.
    pub fn addr(&self, off: usize) -> u64 {
        assert!(off <= self.len);
        (self.base + off) as u64
    }

    fn at(&self, off: usize, len: usize) -> *mut c_void {
        assert!(off.checked_add(len).is_some_and(|end| end <= self.len));
        ptr::with_exposed_provenance_mut(self.base + off)
    }

    pub fn byte(&self, off: usize) -> &AtomicU8 {
        // SAFETY: inside of the area (checked); all access is atomic.
        unsafe { AtomicU8::from_ptr(self.at(off, 1).cast()) }
    }

    pub fn word32(&self, off: usize) -> &AtomicU32 {
        assert_eq!(off % 4, 0);
        // SAFETY: inside of the area (checked) and aligned; all access is atomic.
        unsafe { AtomicU32::from_ptr(self.at(off, 4).cast()) }
    }

    pub fn word64(&self, off: usize) -> &AtomicU64 {
        assert_eq!(off % 8, 0);
        // SAFETY: inside of the area (checked) and aligned; all access is atomic.
        unsafe { AtomicU64::from_ptr(self.at(off, 8).cast()) }
    }

    pub fn fill(&self, value: u8) {
        let word = u64::from_ne_bytes([value; 8]);
        for off in (0..self.len).step_by(8) {
            self.word64(off).store(word, Ordering::Relaxed);
        }
    }

    /// Whether a part holds only these two values.
    pub fn holds_only(&self, off: usize, len: usize, one: u8, other: u8) -> bool {
        (off..off + len).all(|i| {
            let b = self.byte(i).load(Ordering::Relaxed);
            b == one || b == other
        })
    }

    pub fn unmap(&self, off: usize, len: usize) -> Result<()> {
        // SAFETY: a part of our mapping; there are no references into it.
        check(unsafe { libc::munmap(self.at(off, len), len) }).map(drop)
    }

    pub fn protect(&self, off: usize, len: usize, prot: c_int) -> Result<()> {
        // SAFETY: as in `unmap`.
        check(unsafe { libc::mprotect(self.at(off, len), len, prot) }).map(drop)
    }

    pub fn advise(&self, off: usize, len: usize, advice: c_int) -> Result<()> {
        // SAFETY: as in `unmap`.
        check(unsafe { libc::madvise(self.at(off, len), len, advice) }).map(drop)
    }

    /// Puts fresh private memory where a part of the area is or was.
    pub fn refill(&self, off: usize, len: usize) -> Result<()> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: replaces only what is ours.
        let base = unsafe { libc::mmap(self.at(off, len), len, prot, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return last();
        }
        Ok(())
    }

    /// Puts the page at `from` of a file where the page at `off` of the area is or was.
    pub fn show(&self, off: usize, file: &OwnedFd, from: usize) -> Result<()> {
        let flags = libc::MAP_SHARED | libc::MAP_FIXED;
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let at = self.at(off, PAGE);
        // SAFETY: replaces only what is ours.
        let base = unsafe { libc::mmap(at, PAGE, prot, flags, raw(file), from as i64) };
        if base == libc::MAP_FAILED {
            return last();
        }
        Ok(())
    }

    /// Writes these bytes.
    pub fn put(&self, off: usize, bytes: &[u8]) {
        for (i, byte) in bytes.iter().enumerate() {
            self.byte(off + i).store(*byte, Ordering::Relaxed);
        }
    }

    /// mremap(): to `len` bytes, from `old` bytes; to wherever the kernel likes if it may move.
    /// What it made is unmapped again.
    pub fn try_remap(&self, old: usize, len: usize, flags: c_int) -> Result<()> {
        assert_eq!(flags & libc::MREMAP_FIXED, 0);
        // SAFETY: our mapping, and no address is given.
        let base = unsafe { libc::mremap(self.at(0, self.len), old, len, flags) };
        if base == libc::MAP_FAILED {
            return last();
        }
        // SAFETY: the mapping that mremap() has just made.
        check(unsafe { libc::munmap(base, len) }).map(drop)
    }

    /// mremap() to the place of `other`, which goes.
    pub fn try_move_to(&self, other: &Self) -> Result<()> {
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        let to = other.at(0, self.len);
        // SAFETY: both places are ours.
        let base = unsafe { libc::mremap(self.at(0, self.len), self.len, self.len, flags, to) };
        if base == libc::MAP_FAILED {
            return last();
        }
        Ok(())
    }

    /// remap_file_pages() of the whole to page `pgoff` of its file.
    pub fn try_remap_file(&self, pgoff: usize) -> Result<()> {
        let at = self.at(0, self.len);
        // SAFETY: our mapping; its contents are not used after this.
        let r = unsafe { libc::syscall(libc::SYS_remap_file_pages, at, self.len, 0, pgoff, 0) };
        check(r as c_int).map(drop)
    }

    /// Reads through process_vm_readv(), as debuggers do.
    pub fn read_as_debugger(&self, off: usize, buf: &mut [u8]) -> Result<usize> {
        let local = libc::iovec {
            iov_base: buf.as_mut_ptr().cast(),
            iov_len: buf.len(),
        };
        let remote = libc::iovec {
            iov_base: self.at(off, buf.len()),
            iov_len: buf.len(),
        };
        // SAFETY: writes to `buf` alone.
        check_len(unsafe {
            libc::process_vm_readv(libc::getpid(), &raw const local, 1, &raw const remote, 1, 0)
        })
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: all of it is ours, or not mapped any more.
        unsafe { libc::munmap(self.at(0, self.len), self.len) };
    }
}

pub fn send(fd: &impl AsFd, area: &Area, off: usize, len: usize, flags: c_int) -> Result<usize> {
    // SAFETY: inside of the area, and the kernel only reads.
    check_len(unsafe { libc::send(raw(fd), area.at(off, len), len, flags | libc::MSG_NOSIGNAL) })
}

pub fn recv(fd: &impl AsFd, area: &Area, off: usize, len: usize, flags: c_int) -> Result<usize> {
    // SAFETY: inside of the area.
    check_len(unsafe { libc::recv(raw(fd), area.at(off, len), len, flags) })
}

/// send() from an address of the kernel's.
pub fn send_from_kernel(fd: &impl AsFd, len: usize) -> Result<usize> {
    let at = ptr::without_provenance(KERNEL as usize);
    // SAFETY: the kernel only reads, and nothing there.
    check_len(unsafe { libc::send(raw(fd), at, len, libc::MSG_NOSIGNAL) })
}

/// An ioctl whose argument is the beginning of the area, which has room for any.
pub fn ioctl(fd: &impl AsFd, request: u32, area: &Area) -> Result<c_int> {
    // SAFETY: no request reads or writes more than its number says, at most 16 KiB.
    check(unsafe { libc::ioctl(raw(fd), request as _, area.at(0, 16 << 10)) })
}

/// An ioctl that makes a descriptor, as [`ioctl`].
pub fn ioctl_fd(fd: &impl AsFd, request: u32, area: &Area) -> Result<OwnedFd> {
    let new = ioctl(fd, request, area)?;
    // SAFETY: the descriptor is new.
    Ok(unsafe { OwnedFd::from_raw_fd(new) })
}

pub fn setsockopt(fd: &impl AsFd, level: c_int, name: c_int, area: &Area, len: u32) -> Result<()> {
    // SAFETY: the kernel reads at most a page.
    check(unsafe { libc::setsockopt(raw(fd), level, name, area.at(0, PAGE), len) }).map(drop)
}

/// getsockopt() into the area's beginning; the length is at `len_off`.
pub fn getsockopt(
    fd: &impl AsFd,
    level: c_int,
    name: c_int,
    area: &Area,
    len_off: usize,
) -> Result<()> {
    let len = area.at(len_off, 4).cast();
    // SAFETY: no option that the tests ask for is longer than a page.
    check(unsafe { libc::getsockopt(raw(fd), level, name, area.at(0, PAGE), len) }).map(drop)
}

/// Bytes of a message header, and where its parts are.
pub const MSG_LEN: usize = size_of::<libc::msghdr>();

/// sendmsg() with the header in the area.
pub fn sendmsg(fd: &impl AsFd, area: &Area, flags: c_int) -> Result<usize> {
    // SAFETY: the kernel only reads.
    check_len(unsafe {
        libc::sendmsg(
            raw(fd),
            area.at(0, MSG_LEN).cast(),
            flags | libc::MSG_NOSIGNAL,
        )
    })
}

/// recvmsg() with the header in the area. Whatever is put into it must point into areas, or to
/// where nothing is.
pub fn recvmsg(fd: &impl AsFd, area: &Area, flags: c_int) -> Result<usize> {
    // SAFETY: the kernel writes to areas alone, by the caller's promise.
    check_len(unsafe { libc::recvmsg(raw(fd), area.at(0, MSG_LEN).cast(), flags) })
}

/// Memory without a name; with `huge` of huge pages.
pub fn memfd(len: usize, huge: bool) -> Result<OwnedFd> {
    let flags = libc::MFD_CLOEXEC | if huge { libc::MFD_HUGETLB } else { 0 };
    // SAFETY: a string.
    let fd = check(unsafe { libc::memfd_create(c"hostile".as_ptr(), flags) })?;
    // SAFETY: the descriptor is new.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    truncate(&fd, len)?;
    Ok(fd)
}

pub fn truncate(fd: &OwnedFd, len: usize) -> Result<()> {
    // SAFETY: no pointers.
    check(unsafe { libc::ftruncate(raw(fd), len as i64) }).map(drop)
}

/// sendfile() from the beginning of `file`.
pub fn sendfile(fd: &impl AsFd, file: &OwnedFd, off: usize, len: usize) -> Result<usize> {
    let mut off = off as i64;
    // SAFETY: an offset.
    check_len(unsafe { libc::sendfile(raw(fd), raw(file), &raw mut off, len) })
}

pub fn pipe() -> Result<(OwnedFd, OwnedFd)> {
    let mut fds = [0; 2];
    // SAFETY: room for two descriptors.
    check(unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) })?;
    // SAFETY: the descriptors are new.
    Ok(unsafe { (OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])) })
}

/// vmsplice() of a part of the area into a pipe.
pub fn vmsplice(pipe: &OwnedFd, area: &Area, off: usize, len: usize) -> Result<usize> {
    let iov = libc::iovec {
        iov_base: area.at(off, len),
        iov_len: len,
    };
    // SAFETY: inside of the area; the pipe only reads it.
    check_len(unsafe { libc::vmsplice(raw(pipe), &raw const iov, 1, libc::SPLICE_F_NONBLOCK) })
}

/// splice() from one descriptor to another, one of which is a pipe.
pub fn splice(from: &impl AsFd, to: &impl AsFd, len: usize) -> Result<usize> {
    let none = ptr::null_mut();
    // SAFETY: no offsets are given.
    check_len(unsafe { libc::splice(raw(from), none, raw(to), none, len, 0) })
}

/// Makes `fd` a copy of `from`: its old file is closed, even if other threads use it.
pub fn dup_over(from: &impl AsFd, fd: &impl AsFd) -> Result<()> {
    // SAFETY: `fd` stays an open descriptor.
    check(unsafe { libc::dup3(raw(from), raw(fd), libc::O_CLOEXEC) }).map(drop)
}

/// Sets the limit of open descriptors; returns the old one.
pub fn limit_files(n: u64) -> Result<u64> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: one limit.
    check(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) })?;
    let before = limit.rlim_cur;
    limit.rlim_cur = n.min(limit.rlim_max);
    // SAFETY: one limit.
    check(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) })?;
    Ok(before)
}

pub fn kill(pid: libc::pid_t, signal: c_int) -> Result<()> {
    // SAFETY: no pointers.
    check(unsafe { libc::kill(pid, signal) }).map(drop)
}

/// Which child has ended, if one has; its status as `process::wait` has it.
pub fn wait_any() -> Result<Option<(libc::pid_t, c_int)>> {
    let mut status = 0;
    // SAFETY: `status` is an int.
    let pid = check(unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) })?;
    Ok((pid != 0).then(|| {
        let status = if libc::WIFEXITED(status) {
            libc::WEXITSTATUS(status)
        } else {
            128 + libc::WTERMSIG(status)
        };
        (pid, status)
    }))
}

/// A child that does nothing for `ms` milliseconds, and so keeps a copy of all descriptors. Any
/// thread may call this: the child makes only system calls.
pub fn fork_idle(ms: u32) -> Result<libc::pid_t> {
    fork_calls(|| {
        let time = libc::timespec {
            tv_sec: 0,
            tv_nsec: i64::from(ms.min(999)) * 1_000_000,
        };
        // SAFETY: a time.
        unsafe { libc::nanosleep(&raw const time, ptr::null_mut()) };
    })
}

/// A child that touches the area's first byte, then ends with status 0.
pub fn fork_touch(area: &Area) -> Result<libc::pid_t> {
    let at = area.at(0, 1).cast::<u8>();
    fork_calls(|| {
        // SAFETY: whether it is mapped in the child is the question; SIGSEGV ends only the child.
        unsafe { at.read_volatile() };
    })
}

/// A child that runs `/bin/true`, with all descriptors that are not close-on-exec.
pub fn fork_exec() -> Result<libc::pid_t> {
    let path = c"/bin/true";
    let args = [path.as_ptr(), ptr::null()];
    fork_calls(|| {
        // SAFETY: strings, and a list that ends.
        unsafe { libc::execv(path.as_ptr(), args.as_ptr()) };
        // SAFETY: only reached if that failed.
        unsafe { libc::_exit(127) };
    })
}

/// `child` must make nothing but system calls: other threads may hold locks.
fn fork_calls(child: impl FnOnce()) -> Result<libc::pid_t> {
    // SAFETY: the child makes only system calls, then ends.
    match check(unsafe { libc::fork() })? {
        0 => {
            child();
            // SAFETY: ends the child without running the parent's exit handlers.
            unsafe { libc::_exit(0) }
        }
        pid => Ok(pid),
    }
}

static SIGNALS: AtomicU64 = AtomicU64::new(0);
static DWELL_US: AtomicU32 = AtomicU32::new(0);

extern "C" fn on_signal(_: c_int) {
    SIGNALS.fetch_add(1, Ordering::Relaxed);
    let us = DWELL_US.load(Ordering::Relaxed);
    if us > 0 {
        // SAFETY: usleep() is a system call.
        unsafe { libc::usleep(us) };
    }
}

/// SIGUSR1 is counted from here on; the handler takes `dwell_us` microseconds.
pub fn handle_signal(restart: bool, dwell_us: u32) -> Result<()> {
    DWELL_US.store(dwell_us, Ordering::Relaxed);
    // SAFETY: zeroes are a sigaction; the handler touches only atomics.
    unsafe {
        let mut action: libc::sigaction = zeroed();
        let handler: extern "C" fn(c_int) = on_signal;
        action.sa_sigaction = handler as *const () as libc::sighandler_t;
        action.sa_flags = if restart { libc::SA_RESTART } else { 0 };
        check(libc::sigaction(
            libc::SIGUSR1,
            &raw const action,
            ptr::null_mut(),
        ))
        .map(drop)
    }
}

pub fn signals() -> u64 {
    SIGNALS.load(Ordering::Relaxed)
}

/// A thread, to send signals to.
#[derive(Clone, Copy)]
pub struct Tid(c_int);

impl Tid {
    pub fn number(self) -> u64 {
        self.0 as u64
    }
}

/// This thread.
pub fn this_thread() -> Tid {
    // SAFETY: no pointers.
    Tid(unsafe { libc::gettid() })
}

/// SIGUSR1 to a thread of this process.
pub fn signal_thread(thread: Tid) -> Result<()> {
    // SAFETY: no pointers.
    let r = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread.0, libc::SIGUSR1) };
    check(r as c_int).map(drop)
}

/// The processor time of this thread, and how often it has slept: its voluntary context switches.
pub fn thread_usage() -> Result<(Duration, u64)> {
    // SAFETY: zeroes are a time and a usage.
    let (mut time, mut usage): (libc::timespec, libc::rusage) = unsafe { zeroed() };
    // SAFETY: there is room for a time.
    check(unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) })?;
    // SAFETY: there is room for a usage.
    check(unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) })?;
    let used = Duration::new(time.tv_sec as u64, time.tv_nsec as u32);
    Ok((used, usage.ru_nvcsw as u64))
}

/// Sets a timeout option (SO_RCVTIMEO, SO_SNDTIMEO) in milliseconds.
pub fn set_timeout(fd: &impl AsFd, name: c_int, ms: u32) -> Result<()> {
    let time = libc::timeval {
        tv_sec: (ms / 1000).into(),
        tv_usec: libc::suseconds_t::from(ms % 1000) * 1000,
    };
    // SAFETY: `time` is of the length given.
    check(unsafe {
        libc::setsockopt(
            raw(fd),
            libc::SOL_SOCKET,
            name,
            (&raw const time).cast(),
            size_of::<libc::timeval>() as u32,
        )
    })
    .map(drop)
}

/// The kernel delivers page faults in the area to the reader of this descriptor.
pub struct Userfault(OwnedFd);

impl Userfault {
    /// EPERM, ENOSYS: not for us.
    pub fn new(area: &Area) -> Result<Self> {
        // SAFETY: no pointers.
        let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC) };
        let fd = check(fd as c_int)?;
        // SAFETY: the descriptor is new.
        let this = Self(unsafe { OwnedFd::from_raw_fd(fd) });
        // UFFDIO_API with version 0xaa, no features; UFFDIO_REGISTER for missing pages.
        this.ioctl(0xc018_aa3f, &mut [0xaa, 0, 0])?;
        this.ioctl(0xc020_aa00, &mut [area.addr(0), area.len() as u64, 1, 0])?;
        Ok(this)
    }

    fn ioctl(&self, request: u64, arg: &mut [u64]) -> Result<()> {
        // SAFETY: `arg` has the size of the request's structure.
        check(unsafe { libc::ioctl(raw(&self.0), request, arg.as_mut_ptr()) }).map(drop)
    }

    /// Gives the whole area zeroed pages. (UFFDIO_ZEROPAGE)
    pub fn fill(&self, area: &Area) -> Result<()> {
        self.ioctl(0xc020_aa04, &mut [area.addr(0), area.len() as u64, 0, 0])
    }
}

/// Waits for events on many descriptors at once.
pub fn poll_all(fds: &[&OwnedFd], events: i16, timeout: c_int) -> Result<usize> {
    let mut list: Vec<_> = fds
        .iter()
        .map(|fd| libc::pollfd {
            fd: raw(*fd),
            events,
            revents: 0,
        })
        .collect();
    // SAFETY: pointer and length of the list.
    let n = check(unsafe { libc::poll(list.as_mut_ptr(), list.len() as _, timeout) })?;
    Ok(n as usize)
}
