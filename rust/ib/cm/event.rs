// SPDX-License-Identifier: GPL-2.0

//! The core's event callback, and the conversion of its events to [`CmEvent`].

#[cfg(CONFIG_FAULT_INJECTION_DEBUG_FS)]
use super::inject::instead;
use super::{
    ctx::{Ctx, Frame},
    CmEvent, CmId, Id,
};
use crate::{bindings, kern::fault};
use core::{
    ffi::c_void,
    ptr::{addr_of_mut, NonNull},
};
use kernel::prelude::*;

/// The handler of all our ids.
///
/// # Safety
///
/// Called by the core with a valid id, made with a [`Ctx`] as context, and event.
pub(super) unsafe extern "C" fn event(
    raw: *mut bindings::rdma_cm_id,
    ev: *mut bindings::rdma_cm_event,
) -> i32 {
    // SAFETY: The core's pointers are valid during the call, and contexts live longer than
    // handlers.
    let (ev, ctx) = unsafe { (&*ev, NonNull::new((*raw).context.cast::<Ctx>())) };
    let Some(ctx) = ctx else { return 0 };
    fault::asynchronous(|| {
        if ev.event == bindings::rdma_cm_event_type_RDMA_CM_EVENT_CONNECT_REQUEST {
            // SAFETY: As above; for this event the context is the listener's.
            unsafe { connect_request(raw, ctx, ev) }
        } else {
            // SAFETY: As above.
            unsafe { own_event(raw, ctx, ev) }
        }
    })
}

/// Something happened to `raw` itself.
///
/// # Safety
///
/// As for [`event`], with the id's context.
pub(super) unsafe fn own_event(
    raw: *mut bindings::rdma_cm_id,
    ctx: NonNull<Ctx>,
    ev: &bindings::rdma_cm_event,
) -> i32 {
    // INVARIANT: The handler mutex keeps the id, and with it the context, for the call.
    let id = Id { ctx };
    let frame = Frame::new();
    id.ctx().note_route(ev.event);
    if let Some(handler) = id.ctx().enter(&frame) {
        instead(ev, |ev| {
            // SAFETY: The core's pointers are valid during the call.
            handler.dispatch(&id, unsafe { convert(raw, ev) });
        });
    }
    if frame.doomed.get() {
        // SAFETY: The owner is gone, and left it to us; after our answer the core calls no more.
        unsafe { Ctx::free(ctx) };
        return -(bindings::ECONNABORTED as i32);
    }
    id.ctx().leave(&frame);
    0
}

/// Without fault injection: calls `tell` with the event.
#[cfg(not(CONFIG_FAULT_INJECTION_DEBUG_FS))]
#[inline(always)]
fn instead(ev: &bindings::rdma_cm_event, tell: impl FnOnce(&bindings::rdma_cm_event)) {
    tell(ev);
}

/// A listener is being connected to: `raw` is the new id.
///
/// # Safety
///
/// As for [`event`], with the listener's context.
unsafe fn connect_request(
    raw: *mut bindings::rdma_cm_id,
    listener: NonNull<Ctx>,
    ev: &bindings::rdma_cm_event,
) -> i32 {
    // INVARIANT: The core keeps the listener while it calls for it.
    let listener = Id { ctx: listener };
    let Ok(ctx) = Ctx::new(raw) else {
        return ENOMEM.to_errno();
    };
    // SAFETY: The handler mutex of the new id is held for us, and it knows no other context than
    // the listener's as yet.
    unsafe { *addr_of_mut!((*raw).context) = ctx.as_ptr().cast::<c_void>() };
    // From here on `frame` tells whether the new id is still wanted.
    let (frame, listener_frame) = (Frame::new(), Frame::new());
    // SAFETY: Just made; lives at least as long as the new id has an owner or `frame` is there.
    let _ = unsafe { ctx.as_ref() }.enter(&frame);
    match (CmId::own(ctx), listener.ctx().enter(&listener_frame)) {
        (Ok(id), Some(handler)) => {
            // SAFETY: The event is one with connection parameters.
            let (private_data, peer_qp) = unsafe { (private_data(ev), peer_qp(ev)) };
            let event = CmEvent::ConnectRequest {
                id,
                private_data,
                peer_qp,
            };
            handler.dispatch(&listener, event);
        }
        // Nobody listens any more, or no memory: dropping the id has doomed it.
        (id, _) => drop(id),
    }
    listener.ctx().leave(&listener_frame);
    if frame.doomed.get() {
        // SAFETY: The owner is gone, and left it to us; after our answer the core calls no more.
        unsafe { Ctx::free(ctx) };
        return -(bindings::ECONNREFUSED as i32);
    }
    // SAFETY: The id has an owner. If that is giving it up just now, on another thread, it waits
    // for the handler mutex until the core has our answer.
    unsafe { ctx.as_ref() }.leave(&frame);
    0
}

/// # Safety
///
/// The event must be one with connection parameters, and valid for `'a`.
unsafe fn private_data(ev: &bindings::rdma_cm_event) -> &[u8] {
    // SAFETY: The caller's promise.
    let conn = unsafe { &*ev.param.conn };
    if conn.private_data.is_null() {
        &[]
    } else {
        // SAFETY: The core gives that many bytes, valid during the handler.
        unsafe {
            core::slice::from_raw_parts(
                conn.private_data.cast::<u8>(),
                conn.private_data_len.into(),
            )
        }
    }
}

/// The number of the peer's queue pair.
///
/// # Safety
///
/// The event must be one with connection parameters.
unsafe fn peer_qp(ev: &bindings::rdma_cm_event) -> u32 {
    // SAFETY: The caller's promise.
    unsafe { (*ev.param.conn).qp_num }
}

/// An event in our terms.
///
/// # Safety
///
/// Both must be valid, as the core gave them to the handler.
unsafe fn convert(raw: *mut bindings::rdma_cm_id, ev: &bindings::rdma_cm_event) -> CmEvent<'_> {
    match ev.event {
        bindings::rdma_cm_event_type_RDMA_CM_EVENT_ADDR_RESOLVED => CmEvent::AddrResolved,
        bindings::rdma_cm_event_type_RDMA_CM_EVENT_ADDR_ERROR => CmEvent::AddrError(ev.status),
        bindings::rdma_cm_event_type_RDMA_CM_EVENT_ROUTE_RESOLVED => CmEvent::RouteResolved,
        bindings::rdma_cm_event_type_RDMA_CM_EVENT_ROUTE_ERROR => CmEvent::RouteError(ev.status),
        bindings::rdma_cm_event_type_RDMA_CM_EVENT_CONNECT_RESPONSE => CmEvent::ConnectResponse,
        bindings::rdma_cm_event_type_RDMA_CM_EVENT_CONNECT_ERROR => CmEvent::ConnectError,
        bindings::rdma_cm_event_type_RDMA_CM_EVENT_UNREACHABLE => CmEvent::Unreachable,
        bindings::rdma_cm_event_type_RDMA_CM_EVENT_REJECTED => {
            let mut len = 0u8;
            // SAFETY: Both are as the core gave them, which is what this asks for.
            let data = unsafe {
                bindings::rdma_consumer_reject_data(
                    raw,
                    core::ptr::from_ref(ev).cast_mut(),
                    &mut len,
                )
            };
            let private_data = if ev.status < 0 {
                // The reason of an iWARP device is an error number. The core takes ECONNREFUSED
                // alone for a rejection by the peer's program; siw gives another number for it.
                // SAFETY: A rejection has connection parameters.
                Some(unsafe { private_data(ev) }).filter(|data| !data.is_empty())
            } else {
                (!data.is_null()).then(|| {
                    // SAFETY: The core gives that many bytes, valid during the handler.
                    unsafe { core::slice::from_raw_parts(data.cast::<u8>(), len.into()) }
                })
            };
            CmEvent::Rejected {
                reason: ev.status,
                private_data,
            }
        }
        bindings::rdma_cm_event_type_RDMA_CM_EVENT_ESTABLISHED => {
            // SAFETY: This event has connection parameters, or zeroes for them.
            let (private_data, peer_qp) = unsafe { (private_data(ev), peer_qp(ev)) };
            CmEvent::Established {
                private_data,
                peer_qp,
            }
        }
        bindings::rdma_cm_event_type_RDMA_CM_EVENT_DISCONNECTED => CmEvent::Disconnected,
        bindings::rdma_cm_event_type_RDMA_CM_EVENT_DEVICE_REMOVAL => CmEvent::DeviceRemoval,
        bindings::rdma_cm_event_type_RDMA_CM_EVENT_ADDR_CHANGE => CmEvent::AddrChange,
        bindings::rdma_cm_event_type_RDMA_CM_EVENT_TIMEWAIT_EXIT => CmEvent::TimewaitExit,
        _ => CmEvent::Other,
    }
}
