// SPDX-License-Identifier: GPL-2.0

//! Shared receive queues.
//!
//! C header: `include/rdma/ib_verbs.h`.

use super::{dma::Sge, pd::Pd};
use crate::{
    bindings,
    kern::{errno::EOPNOTSUPP, fault::points},
};
use core::{
    ffi::c_void,
    mem::ManuallyDrop,
    ptr::{null, null_mut, NonNull},
};
use kernel::{
    error::{from_err_ptr, to_result},
    prelude::*,
    sync::{Arc, ArcBorrow},
};

/// Handler of a shared receive queue's events.
pub(crate) trait SrqHandler: Send + Sync + Sized + 'static {
    /// The queue has failed (`IB_EVENT_SRQ_ERR`): nothing arrives by it any more. Atomic context.
    fn failed(this: ArcBorrow<'_, Self>);

    /// Fewer receives are left in the queue than [`Srq::set_limit`] has said
    /// (`IB_EVENT_SRQ_LIMIT_REACHED`). The limit is no longer set. Atomic context.
    fn low(this: ArcBorrow<'_, Self>);
}

/// A shared receive queue.
///
/// Dropping it sleeps. Receives that are still posted get no completion.
///
/// # Examples
///
/// ```ignore
/// let srq = Srq::new(&pd, 512, 1, handler)?;
/// // The region stays mapped until the completion with this number, or the end of the queue.
/// srq.post(index as u64, &[region.sge(at, PAGE_SIZE)?])?;
/// ```
///
/// # Invariants
///
/// `ptr` is a queue made in `pd`, owned by this object; `ctx` comes from `Arc::into_raw` of the
/// type that `put_ctx` is for.
pub(crate) struct Srq {
    ptr: NonNull<bindings::ib_srq>,
    ctx: *mut c_void,
    put_ctx: unsafe fn(*mut c_void),
    max_sge: u32,
    _pd: Arc<Pd>,
}

// SAFETY: Drivers lock their queues; posting is allowed from several threads. The context is only
// shared as an `Arc` of a `Send + Sync` type.
unsafe impl Send for Srq {}
// SAFETY: As above.
unsafe impl Sync for Srq {}

impl Srq {
    /// Makes a queue of at least `max_wr` receives of at least `max_sge` elements; it keeps
    /// `handler`. Sleeps.
    ///
    /// # Errors
    ///
    /// `EINVAL` where the device has less, `ENOMEM`, `EOPNOTSUPP` without shared queues.
    pub(crate) fn new<T: SrqHandler>(
        pd: &Arc<Pd>,
        max_wr: u32,
        max_sge: u32,
        handler: Arc<T>,
    ) -> Result<Arc<Self>> {
        let attrs = pd.device().attrs();
        if attrs.max_srq == 0 {
            return Err(EOPNOTSUPP);
        }
        if max_wr == 0 || max_wr > attrs.max_srq_wr || max_sge > attrs.max_srq_sge {
            return Err(EINVAL);
        }
        points::CREATE.check()?;
        let ctx = Arc::into_raw(handler).cast_mut().cast::<c_void>();
        let mut init = bindings::ib_srq_init_attr {
            event_handler: Some(event::<T>),
            srq_context: ctx,
            attr: bindings::ib_srq_attr {
                max_wr,
                max_sge,
                srq_limit: 0,
            },
            srq_type: bindings::ib_srq_type_IB_SRQT_BASIC,
            ..Default::default()
        };
        // SAFETY: The domain is valid; the handler has the core's type and takes `ctx`, which
        // outlives the queue. A basic queue without user data needs only what is set.
        let made = from_err_ptr(unsafe {
            bindings::ib_create_srq_user(pd.as_ptr(), &mut init, null_mut(), null_mut())
        });
        let made = made.and_then(|ptr| NonNull::new(ptr).ok_or(ENOMEM));
        let ptr = made.inspect_err(|_| {
            // SAFETY: `ctx` comes from `into_raw` above, and there is no queue that has it.
            unsafe { put_ctx::<T>(ctx) };
        })?;
        // INVARIANT: The queue is ours and in `pd`; `put_ctx::<T>` is for the type of `ctx`.
        let srq = Self {
            ptr,
            ctx,
            put_ctx: put_ctx::<T>,
            // Drivers write back what they made; some leave the question as it was.
            max_sge: init.attr.max_sge.max(max_sge),
            _pd: pd.clone(),
        };
        Ok(Arc::new(srq, GFP_KERNEL)?)
    }

    /// The raw queue.
    pub(super) fn as_ptr(&self) -> *mut bindings::ib_srq {
        self.ptr.as_ptr()
    }

    /// Posts one receive. Any context.
    ///
    /// # Errors
    ///
    /// `EINVAL` for too many elements, `ENOMEM` if the queue is full, what the driver says.
    pub(crate) fn post(&self, wr_id: u64, sges: &[Sge]) -> Result {
        if sges.len() > self.max_sge as usize {
            return Err(EINVAL);
        }
        points::POST_RECV.check()?;
        let wr = recv_wr(wr_id, sges);
        let mut bad: *const bindings::ib_recv_wr = null();
        // SAFETY: By the type invariants the queue is valid. The request and the list it points to
        // live to the end of the call, drivers copy them and write to neither.
        let ret = unsafe { bindings::ib_post_srq_recv(self.as_ptr(), &wr, &mut bad) };
        posted(ret)
    }

    /// Has [`SrqHandler::low`] called, once, when fewer than `limit` receives are left. Sleeps.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` where the driver has no such limit, `EINVAL`, what the driver says.
    pub(crate) fn set_limit(&self, limit: u32) -> Result {
        let mut attr = bindings::ib_srq_attr {
            srq_limit: limit,
            ..Default::default()
        };
        let mask = bindings::ib_srq_attr_mask_IB_SRQ_LIMIT;
        // SAFETY: By the type invariants the queue is valid; `attr` is only read, during the call.
        posted(unsafe { bindings::ib_modify_srq(self.as_ptr(), &mut attr, mask) })
    }
}

/// # Safety
///
/// `ctx` is the `Arc::into_raw` of a `T`, and its count is given back only here.
unsafe fn put_ctx<T>(ctx: *mut c_void) {
    // SAFETY: The caller's promise.
    drop(unsafe { Arc::<T>::from_raw(ctx.cast_const().cast()) });
}

/// # Safety
///
/// Called by the core with a valid event, and with the context of a queue made by
/// `Srq::new::<T>`.
unsafe extern "C" fn event<T: SrqHandler>(event: *mut bindings::ib_event, ctx: *mut c_void) {
    // SAFETY: `ctx` is the `Arc::into_raw` of the handler, which is given back only after the
    // queue is gone.
    let handler = unsafe { ArcBorrow::from_raw(ctx.cast_const().cast::<T>()) };
    // SAFETY: The event is valid during the call.
    match unsafe { (*event).event } {
        bindings::ib_event_type_IB_EVENT_SRQ_ERR => T::failed(handler),
        bindings::ib_event_type_IB_EVENT_SRQ_LIMIT_REACHED => T::low(handler),
        _ => {}
    }
}

/// A receive as the core wants it. The list must live until it was posted.
pub(super) fn recv_wr(wr_id: u64, sges: &[Sge]) -> bindings::ib_recv_wr {
    bindings::ib_recv_wr {
        next: null_mut(),
        __bindgen_anon_1: bindings::ib_recv_wr__bindgen_ty_1 {
            wr_id: ManuallyDrop::new(wr_id),
        },
        sg_list: Sge::as_raw(sges).cast_mut(),
        num_sge: sges.len() as i32,
    }
}

/// The return value of a posting verb.
pub(super) fn posted(ret: i32) -> Result {
    // Some drivers return positive error numbers.
    to_result(if ret > 0 { -ret } else { ret })
}

impl Drop for Srq {
    fn drop(&mut self) {
        // SAFETY: By the type invariants the queue is ours. Every queue pair on it holds an `Arc`
        // of it, so it is not in use.
        let ret = unsafe { bindings::ib_destroy_srq_user(self.as_ptr(), null_mut()) };
        if ret != 0 {
            pr_err!("ib: destroying a shared receive queue failed: {}\n", ret);
            // The handler may still be called: its context is never freed then.
            return;
        }
        // SAFETY: By the type invariants the two belong together, and no handler runs any more.
        unsafe { (self.put_ctx)(self.ctx) };
    }
}
