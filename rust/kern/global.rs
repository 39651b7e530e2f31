// SPDX-License-Identifier: GPL-2.0

//! The one object through which a module's callbacks find everything else.
//!
//! C: `include/linux/rcupdate.h`.

use crate::bindings;
use core::{marker::PhantomData, mem::ManuallyDrop, ptr};
use kernel::sync::{
    atomic::{Acquire, Atomic, Full},
    rcu, Arc,
};

/// A static that holds an `Arc<T>` or nothing.
///
/// # Invariants
///
/// `ptr` is 0 or comes from `Arc::into_raw`, with a count that belongs to this object. That count
/// is dropped only a grace period after `ptr` was cleared.
pub struct Global<T> {
    ptr: Atomic<usize>,
    _type: PhantomData<Arc<T>>,
}

// SAFETY: it gives out and drops `Arc<T>` in any thread, which `Arc` allows for such `T`.
unsafe impl<T: Send + Sync> Sync for Global<T> {}

impl<T> Global<T> {
    /// Nothing.
    pub const fn new() -> Self {
        // INVARIANT: `ptr` is 0.
        Self {
            ptr: Atomic::new(0),
            _type: PhantomData,
        }
    }

    /// What was set. Any context.
    pub fn get(&self) -> Option<Arc<T>> {
        let _rcu = rcu::read_lock();
        let ptr = ptr::with_exposed_provenance::<T>(self.ptr.load(Acquire));
        if ptr.is_null() {
            return None;
        }
        // SAFETY: from `Arc::into_raw` by the type invariant, and the object's count is not dropped
        // before this section ends. `ManuallyDrop` leaves that count alone.
        let arc = ManuallyDrop::new(unsafe { Arc::from_raw(ptr) });
        Some((*arc).clone())
    }

    /// Sets it, and drops what was set before. Sleeps.
    pub fn set(&self, value: Arc<T>) {
        // INVARIANT: the count that `into_raw` puts away is this object's.
        self.replace(Arc::into_raw(value).expose_provenance());
    }

    /// Sets it to nothing and drops what was set. Sleeps.
    pub fn clear(&self) {
        // INVARIANT: 0 is nothing.
        self.replace(0);
    }

    fn replace(&self, new: usize) {
        let old = ptr::with_exposed_provenance::<T>(self.ptr.xchg(new, Full));
        if !old.is_null() {
            // SAFETY: no preconditions beyond sleeping.
            unsafe { bindings::synchronize_rcu() };
            // SAFETY: the count was this object's; nobody finds it any more, and whoever found it
            // has taken one of their own by now.
            drop(unsafe { Arc::from_raw(old) });
        }
    }
}
