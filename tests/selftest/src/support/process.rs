// SPDX-License-Identifier: GPL-2.0
//! What a process is allowed, its signals, its children, and how long it waits.

use std::mem::{size_of, zeroed};
use std::os::fd::AsFd;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use libc::c_int;

use super::raw::{check, raw, Errno, Result};

/// SIGALRM after `seconds` ends the process.
pub fn alarm(seconds: u32) {
    // SAFETY: no pointers.
    unsafe { libc::alarm(seconds.saturating_mul(scale("LIMIT_SCALE"))) };
}

/// A factor that the run sets.
fn scale(name: &str) -> u32 {
    let set = std::env::var(name).ok();
    set.and_then(|n| n.parse().ok()).unwrap_or(1)
}

/// The time limit, on a machine that is slow or busy, of an event that takes an idle machine at
/// most `seconds`.
pub fn patience(seconds: u32) -> Duration {
    Duration::from_secs(seconds.into()) * scale("TIME_SCALE") * scale("LIMIT_SCALE")
}

/// The same in milliseconds, as system calls take it.
pub fn patience_ms(seconds: u32) -> u32 {
    u32::try_from(patience(seconds).as_millis()).unwrap_or(u32::MAX)
}

static SIGIOS: AtomicU32 = AtomicU32::new(0);

extern "C" fn on_sigio(_: c_int) {
    SIGIOS.fetch_add(1, Ordering::SeqCst);
}

/// Counts the SIGIOs that `fd` sends from here on.
pub fn count_sigios(fd: &impl AsFd) -> Result<()> {
    let handler: extern "C" fn(c_int) = on_sigio;
    // SAFETY: the handler only adds to an atomic; no pointers besides.
    unsafe {
        libc::signal(libc::SIGIO, handler as *const () as libc::sighandler_t);
        check(libc::fcntl(raw(fd), libc::F_SETOWN, libc::getpid()))?;
        let flags = check(libc::fcntl(raw(fd), libc::F_GETFL))?;
        check(libc::fcntl(raw(fd), libc::F_SETFL, flags | libc::O_ASYNC)).map(drop)
    }
}

/// How many there were, and counts from 0 again.
pub fn take_sigios() -> u32 {
    SIGIOS.swap(0, Ordering::SeqCst)
}

static SIGPIPES: AtomicU32 = AtomicU32::new(0);

extern "C" fn on_sigpipe(_: c_int) {
    SIGPIPES.fetch_add(1, Ordering::SeqCst);
}

/// Counts SIGPIPEs from here on.
pub fn count_sigpipes() {
    let handler: extern "C" fn(c_int) = on_sigpipe;
    // SAFETY: the handler only adds to an atomic.
    unsafe { libc::signal(libc::SIGPIPE, handler as *const () as libc::sighandler_t) };
}

pub fn sigpipes() -> u32 {
    SIGPIPES.load(Ordering::SeqCst)
}

/// How many there were, and counts from 0 again.
pub fn take_sigpipes() -> u32 {
    SIGPIPES.swap(0, Ordering::SeqCst)
}

extern "C" fn on_signal(_: c_int) {}

/// Runs `call`, which a signal must end: SIGUSR1 every 200 ms, until it is over. The caller must be
/// the only thread.
pub fn interrupted<T>(call: impl FnOnce() -> T) -> Result<T> {
    // SAFETY: zeroes are a sigaction; the handler does nothing, and without SA_RESTART.
    unsafe {
        let mut action: libc::sigaction = zeroed();
        let handler: extern "C" fn(c_int) = on_signal;
        action.sa_sigaction = handler as *const () as libc::sighandler_t;
        check(libc::sigaction(
            libc::SIGUSR1,
            &raw const action,
            ptr::null_mut(),
        ))?;
    }
    // SAFETY: no pointers.
    let parent = unsafe { libc::getpid() };
    let child = fork(|| loop {
        std::thread::sleep(std::time::Duration::from_millis(200));
        // SAFETY: no pointers; the parent waits for this child before it ends.
        if unsafe { libc::kill(parent, libc::SIGUSR1) } < 0 {
            return 0;
        }
    })?;
    let result = call();
    // SAFETY: no pointers; the child is there until it is waited for.
    check(unsafe { libc::kill(child, libc::SIGKILL) })?;
    while wait(child) == Err(Errno(libc::EINTR)) {}
    Ok(result)
}

/// Runs `child` in a forked process; its result is the exit status. The caller must be the only
/// thread.
pub fn fork(child: impl FnOnce() -> u8) -> Result<libc::pid_t> {
    // SAFETY: there is one thread, so the child may do what the parent may.
    match check(unsafe { libc::fork() })? {
        0 => {
            let status = child();
            // SAFETY: ends the child without running what the parent registered.
            unsafe { libc::_exit(status.into()) }
        }
        pid => Ok(pid),
    }
}

/// Puts this thread under a seccomp filter that allows every call.
pub fn allow_all_calls() -> Result<()> {
    const ALLOW: libc::sock_filter = libc::sock_filter {
        code: (libc::BPF_RET | libc::BPF_K) as u16,
        jt: 0,
        jf: 0,
        k: libc::SECCOMP_RET_ALLOW,
    };
    let mut filter = [ALLOW];
    let program = libc::sock_fprog {
        len: 1,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: no pointers.
    check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) })?;
    // SAFETY: the program and its one instruction live until the kernel has copied them.
    let rc = unsafe {
        libc::prctl(
            libc::PR_SET_SECCOMP,
            libc::SECCOMP_MODE_FILTER,
            &raw const program,
        )
    };
    check(rc).map(drop)
}

/// This thread runs on that processor alone from here on.
pub fn run_on(cpu: usize) -> Result<()> {
    // SAFETY: a set of processors is plain memory, and zeroes are an empty one.
    let mut set: libc::cpu_set_t = unsafe { zeroed() };
    // SAFETY: it checks that the processor is in the set.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    let len = size_of::<libc::cpu_set_t>();
    // SAFETY: `set` has that length.
    check(unsafe { libc::sched_setaffinity(0, len, &raw const set) }).map(drop)
}

/// Waits for a child; its exit status, 128 + the signal's number if one ended it.
pub fn wait(pid: libc::pid_t) -> Result<c_int> {
    let mut status = 0;
    // SAFETY: `status` is an int.
    check(unsafe { libc::waitpid(pid, &raw mut status, 0) })?;
    Ok(if libc::WIFEXITED(status) {
        libc::WEXITSTATUS(status)
    } else {
        128 + libc::WTERMSIG(status)
    })
}

/// This thread's sockets are made in the network namespace `ns` from here on.
pub fn set_network(ns: &impl AsFd) -> Result<()> {
    // SAFETY: no pointers.
    check(unsafe { libc::setns(raw(ns), libc::CLONE_NEWNET) }).map(drop)
}

/// Sets how much memory may be locked, as far as the limit of that limit allows.
pub fn limit_locked(bytes: u64) -> Result<()> {
    // SAFETY: zeroes are a limit; it is filled, then only read.
    unsafe {
        let mut limit: libc::rlimit = zeroed();
        check(libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit))?;
        limit.rlim_cur = bytes.min(limit.rlim_max);
        check(libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit)).map(drop)
    }
}

/// Becomes an ordinary user permanently, and loses all capabilities.
pub fn become_nobody() -> Result<()> {
    // SAFETY: no pointers.
    check(unsafe { libc::setresuid(65534, 65534, 65534) }).map(drop)
}

/// Keeps all memory of the process, also of later, where it is.
pub fn lock_memory() -> Result<()> {
    // SAFETY: no pointers.
    check(unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE) }).map(drop)
}
