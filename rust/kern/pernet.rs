// SPDX-License-Identifier: GPL-2.0

//! Notice of the end of a network namespace, for state that belongs to it and does not keep it.
//!
//! C: `include/net/net_namespace.h` (`register_pernet_subsys`).

use crate::bindings;
use core::marker::PhantomData;
use kernel::{
    error::to_result,
    prelude::*,
    sync::{
        atomic::{Atomic, Relaxed},
        Arc, //
    },
    types::Opaque,
};

/// Keeps something for namespaces, by the number that [`Net::id`](super::net::Net::id) gives.
pub trait NetExit: Send + Sync + 'static {
    /// The namespace with that number ends. Sleeps.
    fn net_exit(&self, id: usize);
}

/// The one registration there is: the core's callback names only the namespace.
static OPS: Ops = Ops(Opaque::uninit());
static CONTEXT: Atomic<usize> = Atomic::new(0);

struct Ops(Opaque<bindings::pernet_operations>);

// SAFETY: changed only by the one registration, under the core's lock.
unsafe impl Sync for Ops {}

/// Notices of the ends of namespaces, until it is dropped. One at a time.
///
/// # Invariants
///
/// [`OPS`] is registered, and [`CONTEXT`] is an `Arc<T>` of ours.
pub struct NetExits<T: NetExit>(PhantomData<Arc<T>>);

impl<T: NetExit> NetExits<T> {
    /// Registers. Sleeps. Errors: `EBUSY`, `ENOMEM`.
    pub fn new(context: Arc<T>) -> Result<Self> {
        let context = Arc::into_raw(context) as usize;
        let put = |e| {
            // SAFETY: it came from `into_raw` above.
            drop(unsafe { Arc::from_raw(context as *const T) });
            e
        };
        if CONTEXT
            .cmpxchg(0, context, kernel::sync::atomic::Full)
            .is_err()
        {
            return Err(put(EBUSY));
        }
        // SAFETY: ours alone, as `CONTEXT` was empty. It is registered in its final place, and the
        // callback finds the context until it has been unregistered.
        let registered = unsafe {
            OPS.0.get().write(bindings::pernet_operations {
                exit: Some(Self::exit),
                ..pin_init::zeroed()
            });
            to_result(bindings::register_pernet_subsys(OPS.0.get()))
        };
        if let Err(e) = registered {
            CONTEXT.store(0, Relaxed);
            return Err(put(e));
        }
        // INVARIANT: just registered.
        Ok(Self(PhantomData))
    }

    /// # Safety
    ///
    /// Called by the core with a namespace that ends, while this is registered.
    unsafe extern "C" fn exit(net: *mut bindings::net) {
        // SAFETY: the registration keeps the context.
        let context = unsafe { &*(CONTEXT.load(Relaxed) as *const T) };
        context.net_exit(net.addr());
    }
}

impl<T: NetExit> Drop for NetExits<T> {
    /// Sleeps; no notice is under way afterwards.
    fn drop(&mut self) {
        // SAFETY: registered by the type invariant. The core calls `exit` for each namespace.
        unsafe { bindings::unregister_pernet_subsys(OPS.0.get()) };
        let context = CONTEXT.xchg(0, kernel::sync::atomic::Full);
        // SAFETY: an `Arc<T>` of ours by the type invariant.
        drop(unsafe { Arc::from_raw(context as *const T) });
    }
}
