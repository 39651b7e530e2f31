// SPDX-License-Identifier: GPL-2.0

//! The calling task, the clock, and the limit on log lines.
//!
//! C: `include/linux/sched.h`, `include/linux/sched/signal.h`, `include/linux/timekeeping.h`,
//! `include/linux/net.h`.

use crate::bindings;
use kernel::{current, time::Jiffies};

/// Whether the calling task may administer the network of the whole machine: `CAP_NET_ADMIN` in the
/// first user namespace. That it was asked leaves no trace in the audit log.
pub fn may_administer_net() -> bool {
    // SAFETY: the first user namespace is always there; looks at the calling task only.
    unsafe {
        bindings::ns_capable_noaudit(
            &raw mut bindings::init_user_ns,
            bindings::CAP_NET_ADMIN as i32,
        )
    }
}

/// Whether the calling task can gain no privileges by an exec (`PR_SET_NO_NEW_PRIVS`), as all must
/// that restrict themselves.
pub fn no_new_privs() -> bool {
    // SAFETY: looks at the calling task only.
    unsafe { bindings::current_no_new_privs() }
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

/// Gives the CPU to others if they wait for it. Context: may sleep.
pub fn cond_resched() {
    // SAFETY: callers may sleep, which is all this needs.
    unsafe { bindings::cond_resched() };
}

/// One iteration of a loop that waits for something to change in memory: counts as a rest for
/// [`synchronize_rcu_tasks`]. When [`cpu_wanted`], the caller should end the loop or call
/// [`give_way`]. Context: may sleep.
pub fn relax() {
    // SAFETY: callers may sleep, which is all this needs.
    unsafe { bindings::relax() };
}

/// A hint between two looks at memory. Any context.
pub fn cpu_relax() {
    core::hint::spin_loop();
}

/// Lets others have the CPU, for as long as their slices last. Only for a loop that cannot end
/// before one of them has run. Context: may sleep.
pub fn give_way() {
    // SAFETY: callers may sleep, which is all this needs.
    unsafe { bindings::yield_() };
}

/// Whether another task needs this CPU, also one that a preemption would make wait for the next
/// tick (a loop in the kernel, with `CONFIG_PREEMPT_LAZY`) or for the end of our slice. Any
/// context.
pub fn cpu_wanted() -> bool {
    // SAFETY: looks at the calling task and its CPU only.
    unsafe { bindings::cpu_wanted() }
}

/// Whether the calling task gets a CPU as soon as an ordinary one: neither nice nor of a lower
/// class.
pub fn eager() -> bool {
    // SAFETY: looks at the calling task only.
    unsafe { bindings::current_eager() }
}

/// For how long the calling task has been ready to run and had no CPU, in nanoseconds since it
/// began; always 0 without `CONFIG_SCHED_INFO`.
pub fn waited_ns() -> u64 {
    // SAFETY: reads a field of the calling task, which changes when the task gets a CPU.
    unsafe { bindings::current_waited() }
}

/// The user that answers for the calling task, one of `uid`: the owner of the user namespace that
/// the task is in, as that user may have many numbers there. Both are of the first user namespace.
pub fn answers_for(uid: u32) -> u32 {
    // SAFETY: looks at the calling task only.
    unsafe { bindings::current_answers(uid) }
}

/// The calling task's effective user, as the first user namespace numbers it.
pub fn uid() -> u32 {
    // SAFETY: looks at the calling task only.
    unsafe { bindings::current_user_id() }
}

/// The user whose shares the calling task counts against, of the first user namespace. `None` for
/// root and for tasks that may administer the machine's network, which have no share.
pub fn user() -> Option<u32> {
    let uid = uid();
    let exempt = uid == 0 || may_administer_net();
    (!exempt).then(|| answers_for(uid))
}

/// Whether the calling task is in a group from `first` to `last`, as the first user namespace
/// numbers them.
pub fn is_in_groups(first: u32, last: u32) -> bool {
    // SAFETY: looks at the calling task's credentials only, which do not change during the call.
    unsafe { bindings::current_in_groups(first, last) }
}

/// Whether a seccomp filter judges the calling task's system calls.
pub fn is_filtered() -> bool {
    // SAFETY: looks at the calling task only.
    unsafe { bindings::current_is_filtered() }
}

/// Nanoseconds that the calling task's poll() or select() may take: `i64::MAX` without a limit.
/// `None`: it is not known. Context: within such a call; may sleep.
pub fn poll_limit_ns() -> Option<u64> {
    // SAFETY: looks at the arguments of the calling task's system call only.
    let limit = unsafe { bindings::poll_limit_ns() };
    u64::try_from(limit).ok()
}

/// The busy loop of poll() and select() ends when this look at a file is over. Context: within such
/// a call.
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

/// Nanoseconds of the real-time clock. Any context.
pub fn real_ns() -> u64 {
    // SAFETY: as in `now_ns`.
    let now = unsafe { bindings::ktime_get_with_offset(bindings::tk_offsets_TK_OFFS_REAL) };
    now as u64
}

/// Ticks of the kernel's timers since some time in the past; wraps. Any context.
pub fn jiffies() -> Jiffies {
    // SAFETY: reads one word.
    unsafe { bindings::jiffies() }
}

/// Whether one more message about the network may be logged now: a few in a while, of all that ask.
/// The kernel logs how many were suppressed. Any context.
pub fn net_ratelimit() -> bool {
    // SAFETY: no preconditions.
    unsafe { bindings::net_ratelimit() != 0 }
}

/// `pr_warn!`, where [`net_ratelimit`] allows it, as the macro of that name in C.
#[macro_export]
macro_rules! net_warn_ratelimited {
    ($($arg:tt)*) => {{
        if $crate::kern::task::net_ratelimit() {
            ::kernel::pr_warn!($($arg)*);
        }
    }};
}

/// Waits until every task that runs now has slept, been in user space, or ended. Context: sleeps,
/// for tens of milliseconds and more.
pub fn synchronize_rcu_tasks() {
    // SAFETY: callers may sleep, which is all this needs.
    unsafe { bindings::synchronize_rcu_tasks() };
}

/// Random bytes, fit for secrets.
pub fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0_u8; N];
    // SAFETY: the array is ours, and as long as it is said to be.
    unsafe { bindings::get_random_bytes(bytes.as_mut_ptr().cast(), bytes.len()) };
    bytes
}

/// A random number, fit for secrets.
pub fn random_u64() -> u64 {
    u64::from_ne_bytes(random_bytes())
}
