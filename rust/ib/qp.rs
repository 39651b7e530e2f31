// SPDX-License-Identifier: GPL-2.0

//! Reliable connected queue pairs, which belong to a connection id.
//!
//! C header: `include/rdma/ib_verbs.h`.

use super::{
    cm::IdInner,
    cq::{Cq, EventFn},
    dma::Sge,
    mr::{Access, Mr},
    pd::Pd,
    srq::{posted, recv_wr, Srq},
};
use crate::{bindings, kern::fault::points};
use core::{
    ffi::c_void,
    mem::{size_of, ManuallyDrop},
    ptr::{addr_of_mut, null, null_mut, NonNull},
};
use kernel::{error::to_result, prelude::*, sync::Arc};

/// Capacities of a queue pair.
#[derive(Clone, Copy)]
pub(crate) struct QpCaps {
    /// Work requests in the send queue.
    pub(crate) max_send_wr: u32,
    /// Elements of one, at most. A device may refuse a queue pair with its maximum of elements
    /// (mlx5, whose elements and work requests share the room): then it is asked for fewer.
    pub(crate) max_send_sge: u32,
    /// Elements of one, at least.
    pub(crate) min_send_sge: u32,
    /// Bytes that can be sent inline.
    pub(crate) max_inline: u32,
    /// Receives in the queue pair's own receive queue; 0 with a shared one.
    pub(crate) max_recv_wr: u32,
    /// Elements of one.
    pub(crate) max_recv_sge: u32,
}

/// The operation of a work request.
#[derive(Clone, Copy)]
pub(crate) enum SendOp<'a> {
    /// A message into a receive of the peer's.
    Send {
        /// From where.
        sges: &'a [Sge],
    },
    /// An RDMA WRITE into memory of the peer's.
    Write {
        /// From where.
        sges: &'a [Sge],
        /// Where to.
        raddr: u64,
        /// By which key.
        rkey: u32,
    },
    /// An RDMA READ of memory of the peer's.
    Read {
        /// Where to.
        sges: &'a [Sge],
        /// From where.
        raddr: u64,
        /// By which key.
        rkey: u32,
    },
    /// Makes a mapped region accessible.
    Reg {
        /// The region.
        mr: &'a Mr,
        /// The peer's rights on it.
        access: Access,
    },
    /// Makes the key of a registered region invalid: no access by it begins any more. One that has
    /// begun may go on.
    Invalidate {
        /// The region.
        mr: &'a Mr,
    },
}

impl SendOp<'_> {
    fn sges(&self) -> &[Sge] {
        match self {
            SendOp::Send { sges } | SendOp::Write { sges, .. } | SendOp::Read { sges, .. } => sges,
            SendOp::Reg { .. } | SendOp::Invalidate { .. } => &[],
        }
    }
}

/// A work request for the send queue.
#[derive(Clone, Copy)]
pub(crate) struct SendWr<'a> {
    /// Comes back in the completion, and in a flush completion even without `signaled`.
    pub(crate) wr_id: u64,
    /// The operation.
    pub(crate) op: SendOp<'a>,
    /// A success has a completion. The memory of one that has none is free when a later one of
    /// the same queue has completed.
    pub(crate) signaled: bool,
}

/// Posting failed, perhaps half-way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PostError {
    /// Why.
    pub(crate) error: Error,
    /// How many were taken, from the front: they will complete.
    pub(crate) accepted: usize,
}

impl PostError {
    pub(super) fn none(error: Error) -> Self {
        Self { error, accepted: 0 }
    }

    /// Converts the return value of a posting verb, for `count` requests from `first` on.
    pub(super) fn check<T>(
        ret: i32,
        first: *const T,
        bad: *const T,
        count: usize,
    ) -> Result<(), Self> {
        if ret == 0 {
            return Ok(());
        }
        // Where the driver does not say which one was bad, none was looked at.
        let accepted = (bad as usize)
            .checked_sub(first as usize)
            .map_or(0, |bytes| bytes / size_of::<T>())
            .min(count);
        Err(Self {
            error: Error::from_errno(if ret < 0 { ret } else { -ret }),
            accepted,
        })
    }
}

impl From<PostError> for Error {
    fn from(e: PostError) -> Error {
        e.error
    }
}

/// Room for any of our work requests, as the core wants them.
#[repr(C)]
union Slot {
    wr: ManuallyDrop<bindings::ib_send_wr>,
    rdma: ManuallyDrop<bindings::ib_rdma_wr>,
    reg: ManuallyDrop<bindings::ib_reg_wr>,
}

/// The context of the handler of a queue pair's events.
struct QpEvents {
    id: *mut bindings::rdma_cm_id,
    /// The completion queue's handler of all other events, and its context.
    handler: EventFn,
    ctx: *mut c_void,
}

/// Tells the connection manager that a message has arrived before its own last one, which may be
/// lost: the connection is established then. All other events are the completion queue's.
///
/// # Safety
///
/// Called by the core with a valid event of a queue pair, and with the [`QpEvents`] of its [`Qp`].
unsafe extern "C" fn qp_event(event: *mut bindings::ib_event, ctx: *mut c_void) {
    // SAFETY: The queue pair's object keeps them until the queue pair is destroyed.
    let events = unsafe { &*ctx.cast::<QpEvents>() };
    // SAFETY: The event is valid during the call; the object keeps the id, which has the queue
    // pair, and the context of the completion queue's handler, too.
    unsafe {
        let what = (*event).event;
        if what == bindings::ib_event_type_IB_EVENT_COMM_EST {
            // Refused if the connection is established already, or not begun.
            bindings::rdma_notify(events.id, what);
        } else {
            (events.handler)(event, events.ctx);
        }
    }
}

/// A queue pair; it keeps its id, domain, queues.
///
/// Dropping it destroys it (sleeps). Completions of it may still be in the queues then.
///
/// # Examples
///
/// A WRITE and, behind it, the message that announces it, with one doorbell. The completion of the
/// second one says that the memory of both is free again.
///
/// ```ignore
/// let qp = id.create_qp(&pd, &send_cq, &recv_cq, Some(&srq), caps)?;
/// // ... the connection manager brings it up ...
/// qp.post(&[
///     SendWr { wr_id: 0, op: SendOp::Write { sges: &data, raddr, rkey }, signaled: false },
///     SendWr { wr_id: 1, op: SendOp::Send { sges: &header }, signaled: true },
/// ])?;
/// ```
///
/// # Invariants
///
/// `ptr` is the queue pair of `id`, made there by `rdma_create_qp`, and destroyed only by this
/// object.
pub(crate) struct Qp {
    ptr: NonNull<bindings::ib_qp>,
    max_send_sge: u32,
    max_recv_sge: u32,
    _events: KBox<QpEvents>,
    // The fields are dropped in this order.
    id: Arc<IdInner>,
    srq: Option<Arc<Srq>>,
    _send_cq: Arc<Cq>,
    _recv_cq: Arc<Cq>,
    pd: Arc<Pd>,
}

// SAFETY: Drivers lock their queues; posting and modifying are allowed from several threads; only
// the handler of events uses what is for it.
unsafe impl Send for Qp {}
// SAFETY: As above.
unsafe impl Sync for Qp {}

impl Qp {
    /// How many work requests [`Qp::post`] takes at once.
    pub(crate) const MAX_CHAIN: usize = 8;

    /// See `CmId::create_qp`; the caller has made sure that the id has none.
    pub(super) fn new(
        id: Arc<IdInner>,
        pd: &Arc<Pd>,
        send_cq: &Arc<Cq>,
        recv_cq: &Arc<Cq>,
        srq: Option<&Arc<Srq>>,
        caps: QpCaps,
    ) -> Result<Self> {
        let (handler, ctx) = send_cq.qp_events();
        let events = QpEvents {
            id: id.as_ptr(),
            handler,
            ctx,
        };
        let events = KBox::new(events, GFP_KERNEL)?;
        let mut init = bindings::ib_qp_init_attr {
            event_handler: Some(qp_event),
            qp_context: core::ptr::from_ref(&*events).cast_mut().cast(),
            send_cq: send_cq.as_ptr(),
            recv_cq: recv_cq.as_ptr(),
            srq: srq.map_or(null_mut(), |srq| srq.as_ptr()),
            sq_sig_type: bindings::ib_sig_type_IB_SIGNAL_REQ_WR,
            qp_type: bindings::ib_qp_type_IB_QPT_RC,
            ..Default::default()
        };
        points::CREATE.check()?;
        let mut max_send_sge = caps.max_send_sge;
        loop {
            init.cap = bindings::ib_qp_cap {
                max_send_wr: caps.max_send_wr,
                max_send_sge,
                max_inline_data: caps.max_inline,
                max_recv_wr: caps.max_recv_wr,
                max_recv_sge: caps.max_recv_sge,
                ..Default::default()
            };
            // SAFETY: The id, the domain and the queues are valid and kept by the object we make,
            // so that the event handler's context outlives the queue pair; the id has no queue pair
            // and gets no other one, by the caller's promise.
            let ret = unsafe { bindings::rdma_create_qp(id.as_ptr(), pd.as_ptr(), &mut init) };
            match to_result(ret) {
                Ok(()) => break,
                Err(e) if (e == EINVAL || e == ENOMEM) && max_send_sge > caps.min_send_sge => {
                    max_send_sge = (max_send_sge / 2).max(caps.min_send_sge);
                }
                Err(e) => return Err(e),
            }
        }
        // SAFETY: The id is valid, and its queue pair was set just now.
        let ptr = unsafe { (*id.as_ptr()).qp };
        // INVARIANT: It is the queue pair of `id`, and we are the only ones to destroy it.
        Ok(Self {
            ptr: NonNull::new(ptr).ok_or(EINVAL)?,
            max_send_sge,
            max_recv_sge: caps.max_recv_sge,
            _events: events,
            id,
            srq: srq.cloned(),
            _send_cq: send_cq.clone(),
            _recv_cq: recv_cq.clone(),
            pd: pd.clone(),
        })
    }

    fn as_ptr(&self) -> *mut bindings::ib_qp {
        self.ptr.as_ptr()
    }

    /// Elements that a work request of the send queue may have.
    pub(crate) fn max_send_sge(&self) -> u32 {
        self.max_send_sge
    }

    /// The queue pair number, by which the peer's device addresses the queue pair.
    pub(crate) fn number(&self) -> u32 {
        // SAFETY: By the type invariants the queue pair is valid; the number does not change.
        unsafe { (*self.as_ptr()).qp_num }
    }

    /// Posts up to [`Qp::MAX_CHAIN`] work requests in order, with one doorbell. Any context; no
    /// allocation.
    ///
    /// Memory named by the elements stays mapped, and the regions stay alive, until the completion
    /// (or that of a later request in the same queue).
    ///
    /// # Errors
    ///
    /// `EINVAL` for too many requests or elements, or a queue pair that is not connected; `EBUSY`
    /// for a region that is not mapped and free; `ENOMEM` if the queue is full. The error says
    /// how many were taken.
    pub(crate) fn post(&self, wrs: &[SendWr<'_>]) -> Result<(), PostError> {
        points::POST.check().map_err(PostError::none)?;
        if let Err(error) = points::POST_HALF.check() {
            let accepted = wrs.len() / 2;
            self.post_chain(&wrs[..accepted])?;
            return Err(PostError { error, accepted });
        }
        self.post_chain(wrs)
    }

    fn post_chain(&self, wrs: &[SendWr<'_>]) -> Result<(), PostError> {
        if wrs.is_empty() {
            return Ok(());
        }
        let max_sge = self.max_send_sge as usize;
        if wrs.len() > Self::MAX_CHAIN || wrs.iter().any(|w| w.op.sges().len() > max_sge) {
            return Err(PostError::none(EINVAL));
        }
        for (i, wr) in wrs.iter().enumerate() {
            if let SendOp::Reg { mr, .. } = wr.op {
                let foreign = !Arc::ptr_eq(mr.pd(), &self.pd);
                let begun = if foreign {
                    Err(EINVAL)
                } else {
                    mr.begin_post()
                };
                if let Err(e) = begun {
                    undo(&wrs[..i]);
                    return Err(PostError::none(e));
                }
            }
        }

        let mut slots = [const {
            Slot {
                // SAFETY: All zeroes is an empty one: null pointers and numbers.
                reg: unsafe { core::mem::zeroed() },
            }
        }; Self::MAX_CHAIN];
        let base = slots.as_mut_ptr();
        for (i, wr) in wrs.iter().enumerate() {
            // SAFETY: `i` is less than the length of `wrs`, hence of `slots`; so is `i + 1` where
            // it is used. Every variant of the union begins with a `struct ib_send_wr` (`repr(C)`).
            let (slot, next) = unsafe {
                let next = if i + 1 < wrs.len() {
                    base.add(i + 1).cast()
                } else {
                    null_mut()
                };
                (base.add(i), next)
            };
            // SAFETY: `slot` is one of ours and initialised (zeroed).
            unsafe { fill(slot, wr, next) };
        }

        let mut bad: *const bindings::ib_send_wr = null();
        // SAFETY: By the type invariants the queue pair is valid. The chain and its lists live to
        // the end of the call, drivers copy them and write to neither. Memory named by the lists
        // stays mapped by the contract of this function.
        let ret = unsafe { bindings::ib_post_send(self.as_ptr(), base.cast(), &mut bad) };
        let res = PostError::check(ret, base.cast_const(), bad.cast::<Slot>(), wrs.len());
        if let Err(e) = &res {
            undo(&wrs[e.accepted..]);
        }
        res
    }

    /// Posts a receive to the queue pair's own receive queue. Any context. As [`Srq::post`];
    /// `EINVAL` with a shared receive queue.
    pub(crate) fn post_recv(&self, wr_id: u64, sges: &[Sge]) -> Result {
        if self.srq.is_some() || sges.len() > self.max_recv_sge as usize {
            return Err(EINVAL);
        }
        points::POST_RECV.check()?;
        let wr = recv_wr(wr_id, sges);
        let mut bad: *const bindings::ib_recv_wr = null();
        // SAFETY: By the type invariants the queue pair is valid. The request and the list it
        // points to live to the end of the call, drivers copy them and write to neither.
        let ret = unsafe { bindings::ib_post_recv(self.as_ptr(), &wr, &mut bad) };
        posted(ret)
    }

    /// Moves the queue pair to the error state: posted requests complete as flushed. Sleeps.
    ///
    /// # Errors
    ///
    /// The driver's errors.
    pub(crate) fn set_error(&self) -> Result {
        points::MODIFY.check()?;
        let mut attr = bindings::ib_qp_attr {
            qp_state: bindings::ib_qp_state_IB_QPS_ERR,
            ..Default::default()
        };
        // SAFETY: By the type invariants the queue pair is valid, and the mask names what is set.
        to_result(unsafe {
            bindings::ib_modify_qp(
                self.as_ptr(),
                &mut attr,
                bindings::ib_qp_attr_mask_IB_QP_STATE as i32,
            )
        })
    }
}

/// Takes back the changes that posting made to the regions of requests that were not taken.
fn undo(wrs: &[SendWr<'_>]) {
    for wr in wrs {
        if let SendOp::Reg { mr, .. } = wr.op {
            mr.undo_post();
        }
    }
}

/// Writes a work request as the core wants it.
///
/// # Safety
///
/// `slot` must be valid for writing, and initialised.
unsafe fn fill(slot: *mut Slot, wr: &SendWr<'_>, next: *mut bindings::ib_send_wr) {
    // SAFETY: `slot` is valid, and all variants begin with the common part, any bits of which are
    // valid.
    let common = unsafe { &mut *addr_of_mut!((*slot).wr).cast::<bindings::ib_send_wr>() };
    let sges = wr.op.sges();
    let mut flags = 0;
    if wr.signaled {
        flags |= bindings::ib_send_flags_IB_SEND_SIGNALED;
    }
    common.next = next;
    common.__bindgen_anon_1.wr_id = ManuallyDrop::new(wr.wr_id);
    common.sg_list = Sge::as_raw(sges).cast_mut();
    common.num_sge = sges.len() as i32;
    common.send_flags = flags;
    let rdma = match wr.op {
        SendOp::Send { .. } => {
            common.opcode = bindings::ib_wr_opcode_IB_WR_SEND;
            None
        }
        SendOp::Write { raddr, rkey, .. } => {
            common.opcode = bindings::ib_wr_opcode_IB_WR_RDMA_WRITE;
            Some((raddr, rkey))
        }
        SendOp::Read { raddr, rkey, .. } => {
            common.opcode = bindings::ib_wr_opcode_IB_WR_RDMA_READ;
            Some((raddr, rkey))
        }
        SendOp::Invalidate { mr } => {
            common.opcode = bindings::ib_wr_opcode_IB_WR_LOCAL_INV;
            common.ex.invalidate_rkey = ManuallyDrop::new(mr.rkey());
            None
        }
        SendOp::Reg { mr, access } => {
            common.opcode = bindings::ib_wr_opcode_IB_WR_REG_MR;
            // SAFETY: `slot` is valid, and any bits are valid for these fields.
            let reg = unsafe { &mut *addr_of_mut!((*slot).reg).cast::<bindings::ib_reg_wr>() };
            reg.mr = mr.as_ptr();
            reg.key = mr.rkey();
            reg.access = access.raw();
            None
        }
    };
    if let Some((raddr, rkey)) = rdma {
        // SAFETY: `slot` is valid, and any bits are valid for these fields.
        let rdma = unsafe { &mut *addr_of_mut!((*slot).rdma).cast::<bindings::ib_rdma_wr>() };
        rdma.remote_addr = raddr;
        rdma.rkey = rkey;
    }
}

impl Drop for Qp {
    fn drop(&mut self) {
        // SAFETY: By the type invariants the id has this queue pair, and only we destroy it.
        unsafe { bindings::rdma_destroy_qp(self.id.as_ptr()) };
        self.id.qp_gone();
    }
}
