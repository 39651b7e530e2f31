// SPDX-License-Identifier: GPL-2.0

//! Completion queues and their entries.
//!
//! C header: `include/rdma/ib_verbs.h`.
//!
//! These are bare queues (`ib_create_cq`): the completion handler runs in whatever context the
//! driver has, with interrupts off on some (Soft-RoCE calls it under its own queue lock), and only
//! says that there is something to poll.

use super::device::Device;
use crate::{
    bindings,
    kern::fault::{points, Latch, Latched},
};
use core::{ffi::c_void, ptr::NonNull};
use kernel::{
    error::from_err_ptr,
    prelude::*,
    sync::{Arc, ArcBorrow},
};

/// Handler of a queue's completion events.
pub(crate) trait CompHandler: Send + Sync + Sized + 'static {
    /// There is something to poll. Atomic context, interrupts possibly off, locks of the driver
    /// held: schedule work or wake a thread, and touch neither the queue nor its queue pairs.
    fn completion(this: ArcBorrow<'_, Self>);

    /// The queue has overflowed or failed, and no more completions will come; or a queue pair that
    /// sends by it is in error. That need not come with a completion: a peer's WRITE that was
    /// refused does not. Atomic context.
    fn failed(_this: ArcBorrow<'_, Self>) {}

    /// A queue pair that sends by the queue, in error, takes no more receives out of its shared
    /// receive queue. Those that it has taken have completed, by the specification. Atomic context.
    fn last_receive(this: ArcBorrow<'_, Self>) {
        Self::failed(this);
    }
}

/// A completion queue.
///
/// Dropping it sleeps; no handler runs afterwards.
///
/// # Examples
///
/// Take all completions, and let the next one raise an event. A completion between the last
/// poll and the arming raises none: [`Cq::arm`] says that there may be more, and the queue is
/// polled again.
///
/// ```ignore
/// let cq = Cq::new(&device, 256, 0, handler)?;
/// let mut done: [Wc; 16] = core::array::from_fn(|_| Wc::default());
/// loop {
///     let n = cq.poll(&mut done);
///     for wc in &done[..n] {
///         complete(wc.wr_id(), wc.status());
///     }
///     if n == 0 && !cq.arm()? {
///         break;
///     }
/// }
/// ```
///
/// # Invariants
///
/// `ptr` is a queue made on `device`, owned by this object; `ctx` comes from `Arc::into_raw` of
/// the type that `put_ctx` and `qp_event` are for.
pub(crate) struct Cq {
    ptr: NonNull<bindings::ib_cq>,
    ctx: *mut c_void,
    put_ctx: unsafe fn(*mut c_void),
    /// A completion was told to be an error.
    faulty: Latch,
    qp_event: EventFn,
    _device: Device,
}

/// An event handler, as the core wants it.
pub(super) type EventFn = unsafe extern "C" fn(*mut bindings::ib_event, *mut c_void);

// SAFETY: Drivers lock their queues, so polling and arming are allowed from several threads; the
// context is only shared as an `Arc` of a `Send + Sync` type.
unsafe impl Send for Cq {}
// SAFETY: As above.
unsafe impl Sync for Cq {}

impl Cq {
    /// Makes a queue of at least `entries` on completion vector `vector` (taken modulo what the
    /// device has). It is not armed. Sleeps.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the device has no queue as large, `ENOMEM`.
    pub(crate) fn new<T: CompHandler>(
        device: &Device,
        entries: u32,
        vector: u32,
        ctx: Arc<T>,
    ) -> Result<Arc<Self>> {
        if entries == 0 || entries > device.attrs().max_cqe {
            return Err(EINVAL);
        }
        let attr = bindings::ib_cq_init_attr {
            cqe: entries,
            comp_vector: vector % device.num_comp_vectors(),
            flags: 0,
        };
        points::CREATE.check()?;
        let ctx = Arc::into_raw(ctx).cast_mut().cast::<c_void>();
        // SAFETY: The device is valid, the handlers have the core's types and take `ctx` as an
        // `ArcBorrow<T>`, and `ctx` is kept until the queue is gone.
        let ptr = from_err_ptr(unsafe {
            bindings::__ib_create_cq(
                device.as_ptr(),
                Some(completion::<T>),
                Some(event::<T>),
                ctx,
                &attr,
                c"zrs".as_char_ptr(),
            )
        })
        .and_then(|p| NonNull::new(p).ok_or(ENOMEM));
        let ptr = match ptr {
            Ok(ptr) => ptr,
            Err(e) => {
                // SAFETY: `ctx` comes from `Arc::into_raw` just above and was not consumed.
                unsafe { put::<T>(ctx) };
                return Err(e);
            }
        };
        // INVARIANT: The queue is ours and on `device`; `ctx` and the functions belong together.
        let cq = Self {
            ptr,
            ctx,
            put_ctx: put::<T>,
            faulty: Latch::new(),
            qp_event: qp_event::<T>,
            _device: device.clone(),
        };
        Ok(Arc::new(cq, GFP_KERNEL)?)
    }

    /// The raw queue.
    pub(super) fn as_ptr(&self) -> *mut bindings::ib_cq {
        self.ptr.as_ptr()
    }

    /// The handler of events of queue pairs that send by this queue, and its context: valid as long
    /// as this object lives.
    pub(super) fn qp_events(&self) -> (EventFn, *mut c_void) {
        (self.qp_event, self.ctx)
    }

    /// Takes up to `out.len()` completions and says how many. Any context.
    ///
    /// Several threads may poll at once without harm to the queue, but then each sees only a part,
    /// in its own order: the caller serialises polling where order matters.
    pub(crate) fn poll(&self, out: &mut [Wc]) -> usize {
        let max = i32::try_from(out.len()).unwrap_or(i32::MAX);
        // SAFETY: By the type invariants the queue is valid. `Wc` is a transparent `struct ib_wc`,
        // and `max` is no more than there are in `out`.
        let n = unsafe { bindings::ib_poll_cq(self.as_ptr(), max, out.as_mut_ptr().cast()) };
        // A driver's error (negative) is a queue that has failed: nothing to take.
        let n = usize::try_from(n).unwrap_or(0).min(out.len());
        for wc in &mut out[..n] {
            self.inject(wc);
        }
        n
    }

    /// Fault injection: an error, then nothing but flushes, as from a queue pair that has failed.
    /// poller treats it as a failure of the queue pair and ends it.
    fn inject(&self, wc: &mut Wc) {
        if !wc.is_ok() {
            return;
        }
        match self.faulty.check(&points::COMPLETION) {
            Latched::No => {}
            #[cfg(CONFIG_FAULT_INJECTION_DEBUG_FS)]
            Latched::Now => wc.0.status = bindings::ib_wc_status_IB_WC_GENERAL_ERR,
            #[cfg(CONFIG_FAULT_INJECTION_DEBUG_FS)]
            Latched::Before => wc.0.status = bindings::ib_wc_status_IB_WC_WR_FLUSH_ERR,
        }
    }

    /// Asks for [`CompHandler::completion`] at the next completion. Any context.
    ///
    /// `true`: completions may have come before this took effect; poll again.
    ///
    /// # Errors
    ///
    /// The driver's errors.
    pub(crate) fn arm(&self) -> Result<bool> {
        points::ARM.check()?;
        let flags = bindings::ib_cq_notify_flags_IB_CQ_NEXT_COMP
            | bindings::ib_cq_notify_flags_IB_CQ_REPORT_MISSED_EVENTS;
        // SAFETY: By the type invariants the queue is valid.
        let ret = unsafe { bindings::ib_req_notify_cq(self.as_ptr(), flags) };
        if ret < 0 {
            return Err(Error::from_errno(ret));
        }
        Ok(ret > 0)
    }
}

impl Drop for Cq {
    fn drop(&mut self) {
        // SAFETY: By the type invariants the queue is ours. Every queue pair on it holds an `Arc`
        // of it, so it is not in use.
        let ret = unsafe { bindings::ib_destroy_cq_user(self.as_ptr(), core::ptr::null_mut()) };
        if ret != 0 {
            // The handlers may still be called: their context is never freed then.
            pr_err!("ib: destroying a completion queue failed: {}\n", ret);
            return;
        }
        // SAFETY: By the type invariants the two belong together, and no handler runs any more.
        unsafe { (self.put_ctx)(self.ctx) };
    }
}

/// # Safety
///
/// `ctx` must come from `Arc::<T>::into_raw`, and not be used again.
unsafe fn put<T>(ctx: *mut c_void) {
    // SAFETY: The caller's promise.
    drop(unsafe { Arc::<T>::from_raw(ctx.cast_const().cast()) });
}

/// # Safety
///
/// Called by the driver with the context of a queue made by `Cq::new::<T>`.
unsafe extern "C" fn completion<T: CompHandler>(_cq: *mut bindings::ib_cq, ctx: *mut c_void) {
    // SAFETY: `ctx` is the `Arc::into_raw` of the queue, which is given back only after the queue
    // is gone.
    T::completion(unsafe { ArcBorrow::from_raw(ctx.cast_const().cast::<T>()) });
}

/// # Safety
///
/// Called by the driver with the context of a queue made by `Cq::new::<T>`.
unsafe extern "C" fn event<T: CompHandler>(_event: *mut bindings::ib_event, ctx: *mut c_void) {
    // SAFETY: As for `completion`.
    T::failed(unsafe { ArcBorrow::from_raw(ctx.cast_const().cast::<T>()) });
}

/// # Safety
///
/// Called by the core with a valid event of a queue pair, and with the context of a queue made by
/// `Cq::new::<T>` which that queue pair keeps.
unsafe extern "C" fn qp_event<T: CompHandler>(event: *mut bindings::ib_event, ctx: *mut c_void) {
    // SAFETY: As for `completion`: the queue pair keeps the queue.
    let this = unsafe { ArcBorrow::from_raw(ctx.cast_const().cast::<T>()) };
    // SAFETY: The event is valid during the call.
    match unsafe { (*event).event } {
        bindings::ib_event_type_IB_EVENT_QP_FATAL
        | bindings::ib_event_type_IB_EVENT_QP_REQ_ERR
        | bindings::ib_event_type_IB_EVENT_QP_ACCESS_ERR => T::failed(this),
        bindings::ib_event_type_IB_EVENT_QP_LAST_WQE_REACHED => T::last_receive(this),
        _ => {}
    }
}

/// How a work request ended, `enum ib_wc_status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WcStatus {
    /// It is done.
    Success,
    /// A receive buffer was too short for the message.
    LocalLength,
    /// A local key or address was refused.
    LocalProtection,
    /// The queue pair was in error when the request was processed.
    Flushed,
    /// The peer refused the key, the range or the access.
    RemoteAccess,
    /// The peer called the request invalid (its buffer was too short, say).
    RemoteInvalid,
    /// The peer could not do it.
    RemoteOperation,
    /// The peer did not answer.
    RetryExceeded,
    /// The peer had no receive posted, again and again.
    RnrRetryExceeded,
    /// Another one, by its number.
    Other(u32),
}

/// The completed operation, `enum ib_wc_opcode`. Meaningful only with [`WcStatus::Success`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WcOpcode {
    /// A SEND of ours.
    Send,
    /// An RDMA WRITE of ours.
    Write,
    /// A REG_MR of ours.
    RegMr,
    /// A receive.
    Recv,
    /// A receive consumed by a WRITE with immediate.
    RecvWriteImm,
    /// Another one, by its number.
    Other(u32),
}

/// One completion.
#[repr(transparent)]
#[derive(Default)]
pub(crate) struct Wc(bindings::ib_wc);

// SAFETY: A completion is plain data; its pointers are only compared.
unsafe impl Send for Wc {}

impl Wc {
    /// The number that the work request carried. In a failed completion, only this, the status and
    /// the queue pair are valid.
    pub(crate) fn wr_id(&self) -> u64 {
        // SAFETY: We post numbers, never `wr_cqe`, and any bits are a number.
        unsafe { *self.0.__bindgen_anon_1.wr_id }
    }

    /// How it ended.
    pub(crate) fn status(&self) -> WcStatus {
        match self.0.status {
            bindings::ib_wc_status_IB_WC_SUCCESS => WcStatus::Success,
            bindings::ib_wc_status_IB_WC_LOC_LEN_ERR => WcStatus::LocalLength,
            bindings::ib_wc_status_IB_WC_LOC_PROT_ERR => WcStatus::LocalProtection,
            bindings::ib_wc_status_IB_WC_WR_FLUSH_ERR => WcStatus::Flushed,
            bindings::ib_wc_status_IB_WC_REM_ACCESS_ERR => WcStatus::RemoteAccess,
            bindings::ib_wc_status_IB_WC_REM_INV_REQ_ERR => WcStatus::RemoteInvalid,
            bindings::ib_wc_status_IB_WC_REM_OP_ERR => WcStatus::RemoteOperation,
            bindings::ib_wc_status_IB_WC_RETRY_EXC_ERR => WcStatus::RetryExceeded,
            bindings::ib_wc_status_IB_WC_RNR_RETRY_EXC_ERR => WcStatus::RnrRetryExceeded,
            other => WcStatus::Other(other),
        }
    }

    /// Whether it is a success.
    pub(crate) fn is_ok(&self) -> bool {
        self.status() == WcStatus::Success
    }

    /// The completed operation.
    pub(crate) fn opcode(&self) -> WcOpcode {
        match self.0.opcode {
            bindings::ib_wc_opcode_IB_WC_SEND => WcOpcode::Send,
            bindings::ib_wc_opcode_IB_WC_RDMA_WRITE => WcOpcode::Write,
            bindings::ib_wc_opcode_IB_WC_REG_MR => WcOpcode::RegMr,
            bindings::ib_wc_opcode_IB_WC_RECV => WcOpcode::Recv,
            bindings::ib_wc_opcode_IB_WC_RECV_RDMA_WITH_IMM => WcOpcode::RecvWriteImm,
            other => WcOpcode::Other(other),
        }
    }

    /// How many bytes came, of a receive.
    pub(crate) fn byte_len(&self) -> u32 {
        self.0.byte_len
    }

    /// The immediate value, host byte order, of a receive that has one.
    pub(crate) fn imm(&self) -> Option<u32> {
        if self.0.wc_flags & (bindings::ib_wc_flags_IB_WC_WITH_IMM as i32) == 0 {
            return None;
        }
        // SAFETY: The flag says that this is the field in use, and any bits are a number.
        Some(u32::from_be(unsafe { *self.0.ex.imm_data }))
    }

    /// The key that the sender had invalidated here, of a receive that did so.
    pub(crate) fn invalidated_rkey(&self) -> Option<u32> {
        if self.0.wc_flags & (bindings::ib_wc_flags_IB_WC_WITH_INVALIDATE as i32) == 0 {
            return None;
        }
        // SAFETY: The flag says that this is the field in use, and any bits are a number.
        Some(unsafe { *self.0.ex.invalidate_rkey })
    }
}
