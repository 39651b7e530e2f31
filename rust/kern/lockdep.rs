// SPDX-License-Identifier: GPL-2.0

//! Locks that the module makes by hand, shown to lockdep as the kernel's own are.
//!
//! C: `include/linux/lockdep.h`. With `CONFIG_LOCKDEP` each acquisition is an event `lock_acquire`
//! with the lock's name, and its order among the others is checked; the names are in
//! `rust/helpers/kern.c`. Without, nothing of this is left in the module.

#[cfg(CONFIG_LOCKDEP)]
use crate::bindings;
use core::marker::PhantomData;

/// The locks made by hand.
#[derive(Clone, Copy)]
pub enum HandMade {
    /// A socket's turn to send or to receive, a flag under its `inner`.
    Turn = 0,
}

/// An acquisition, until it is dropped by the same thread.
pub struct Acquired {
    #[cfg(CONFIG_LOCKDEP)]
    lock: HandMade,
    // The thread's: lockdep keeps the locks that each thread holds.
    _thread: PhantomData<*mut ()>,
}

/// The calling thread has just acquired `lock`. Any context.
#[inline(always)]
pub fn acquired(lock: HandMade) -> Acquired {
    #[cfg(not(CONFIG_LOCKDEP))]
    let _ = lock;
    // SAFETY: the number of one of the locks in the table.
    #[cfg(CONFIG_LOCKDEP)]
    unsafe {
        bindings::lock_map_acquire(lock as u32)
    };
    Acquired {
        #[cfg(CONFIG_LOCKDEP)]
        lock,
        _thread: PhantomData,
    }
}

#[cfg(CONFIG_LOCKDEP)]
impl Drop for Acquired {
    fn drop(&mut self) {
        // SAFETY: the number of one of the locks in the table.
        unsafe { bindings::lock_map_release(self.lock as u32) };
    }
}
