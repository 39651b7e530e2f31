// SPDX-License-Identifier: GPL-2.0

//! The calling task, the clock, and a limit on log lines.
//!
//! C: `include/linux/sched.h`, `include/linux/sched/signal.h`, `include/linux/timekeeping.h`.

use crate::bindings;
use kernel::{
    current,
    sync::atomic::{Atomic, Relaxed},
    time::{Instant, Jiffies, Monotonic},
};

/// The process that calls, as init's process namespace numbers it (a log's "pid").
pub fn pid() -> i32 {
    // SAFETY: `current` is always there.
    unsafe { bindings::current_tgid() }
}

/// Whether the calling task may administer the network of the whole machine: `CAP_NET_ADMIN` in the first user
/// namespace. That it was asked leaves no trace in the audit log.
pub fn may_administer_net() -> bool {
    // SAFETY: the first user namespace is always there; looks at the calling task only.
    unsafe {
        bindings::ns_capable_noaudit(
            &raw mut bindings::init_user_ns,
            bindings::CAP_NET_ADMIN as i32,
        )
    }
}

/// Whether a signal waits for the calling task.
pub fn signal_pending() -> bool {
    current!().signal_pending()
}

/// Whether a signal waits that will kill the calling task.
pub fn fatal_signal_pending() -> bool {
    // SAFETY: looks at the calling task only.
    unsafe { bindings::fatal_signal_pending() }
}

/// Whether the calling task is on its way out: then nothing waits for it any more.
pub fn exiting() -> bool {
    // SAFETY: looks at the calling task only.
    unsafe { bindings::current_exiting() }
}

/// Gives the CPU to others if they wait for it. Context: may sleep.
pub fn cond_resched() {
    // SAFETY: callers may sleep, which is all this needs.
    unsafe { bindings::cond_resched() };
}

/// A turn of a loop that waits for something to change in memory: counts as a rest for
/// [`synchronize_rcu_tasks`]. Who is wanted elsewhere ([`cpu_wanted`]) is to end the loop, or to
/// [`give_way`]. Context: may sleep.
pub fn relax() {
    // SAFETY: callers may sleep, which is all this needs.
    unsafe { bindings::relax() };
}

/// A hint between two looks at memory. Any context.
pub fn cpu_relax() {
    core::hint::spin_loop();
}

/// Lets others have the CPU, for as long as their slices last. Only for a loop that cannot end before one
/// of them has run. Context: may sleep.
pub fn give_way() {
    // SAFETY: callers may sleep, which is all this needs.
    unsafe { bindings::yield_() };
}

/// Whether somebody else needs this CPU, also one whom a preemption would make wait for the next
/// tick (a loop in the kernel, with `CONFIG_PREEMPT_LAZY`) or for the end of our slice. Any context.
pub fn cpu_wanted() -> bool {
    // SAFETY: looks at the calling task and its CPU only.
    unsafe { bindings::cpu_wanted() }
}

/// Whether the calling task gets a CPU as soon as an ordinary one: neither nice nor of a lower class.
pub fn eager() -> bool {
    // SAFETY: looks at the calling task only.
    unsafe { bindings::current_eager() }
}

/// Nanoseconds that the calling task's poll() or select() may take: `i64::MAX` without a limit. `None`: it is not known.
/// Context: within such a call; may sleep.
pub fn poll_limit_ns() -> Option<u64> {
    // SAFETY: looks at the arguments of the calling task's system call only.
    let limit = unsafe { bindings::poll_limit_ns() };
    u64::try_from(limit).ok()
}

/// The busy loop of poll() and select() ends when this look at a file is over. Context: within such a call.
pub fn leave_busy_loop() {
    // SAFETY: the calling task goes through the scheduler once more, which it may at any time.
    unsafe { bindings::leave_busy_loop() };
}

/// Nanoseconds of the monotonic clock. Any context.
pub fn now_ns() -> u64 {
    // SAFETY: the clock can be read in any context but NMI, once timekeeping runs; modules load
    // long after that.
    let now = unsafe { bindings::ktime_get() };
    now as u64
}

/// Ticks of the kernel's timers since some time in the past; wraps. Any context.
pub fn jiffies() -> Jiffies {
    // SAFETY: reads one word.
    unsafe { bindings::jiffies() }
}

/// The monotonic clock, for measuring.
pub fn now() -> Instant<Monotonic> {
    Instant::now()
}

/// Lets through a few events in a while, and counts what it holds back.
pub struct RateLimit {
    /// Start of the present interval, in nanoseconds; 0: none yet.
    begin: Atomic<u64>,
    passed: Atomic<u64>,
    missed: Atomic<u64>,
}

impl RateLimit {
    /// As the kernel's own limit: ten in five seconds.
    const INTERVAL_NS: u64 = 5_000_000_000;
    const BURST: u64 = 10;

    /// A limit that has let nothing through yet.
    pub const fn new() -> Self {
        Self {
            begin: Atomic::new(0),
            passed: Atomic::new(0),
            missed: Atomic::new(0),
        }
    }

    /// Whether this event may pass; if so, how many were held back before it. Any context.
    pub fn pass(&self) -> Option<u64> {
        let now = now_ns().max(1);
        let begin = self.begin.load(Relaxed);
        if begin == 0 || now.wrapping_sub(begin) >= Self::INTERVAL_NS {
            // One of those who see the interval end begins the next.
            if self.begin.cmpxchg(begin, now, Relaxed).is_ok() {
                self.passed.store(0, Relaxed);
            }
        }
        if self.passed.fetch_add(1, Relaxed) < Self::BURST {
            Some(self.missed.xchg(0, Relaxed))
        } else {
            self.missed.fetch_add(1, Relaxed);
            None
        }
    }
}

impl Default for RateLimit {
    fn default() -> Self {
        Self::new()
    }
}

/// `pr_warn!`, at most ten in five seconds at each place that uses it.
#[macro_export]
macro_rules! pr_warn_ratelimited {
    ($($arg:tt)*) => {{
        static LIMIT: $crate::kern::task::RateLimit = $crate::kern::task::RateLimit::new();
        if let Some(missed) = LIMIT.pass() {
            if missed != 0 {
                ::kernel::pr_warn!("{} messages like the next were left out\n", missed);
            }
            ::kernel::pr_warn!($($arg)*);
        }
    }};
}

/// Sleeps for about `ms` milliseconds.
pub fn msleep(ms: u32) {
    // SAFETY: callers may sleep, which is all this needs.
    unsafe { bindings::msleep(ms) };
}

/// Waits until every task that runs now has slept, been in user space, or ended. Context: sleeps, for
/// tens of milliseconds and more.
pub fn synchronize_rcu_tasks() {
    // SAFETY: callers may sleep, which is all this needs.
    unsafe { bindings::synchronize_rcu_tasks() };
}

/// A random number, fit for secrets.
pub fn random_u64() -> u64 {
    let mut bytes = [0_u8; 8];
    // SAFETY: the array is ours, and as long as it is said to be.
    unsafe { bindings::get_random_bytes(bytes.as_mut_ptr().cast(), bytes.len()) };
    u64::from_ne_bytes(bytes)
}
