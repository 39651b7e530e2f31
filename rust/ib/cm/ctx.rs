// SPDX-License-Identifier: GPL-2.0

//! The context of the core's id: its handler, the running calls of it, and the state of route
//! resolution.

use super::{CmEvent, CmHandler, Id};
use crate::{bindings, kern::wait::WaitQueue};
use core::{
    cell::Cell,
    ptr::{null, NonNull},
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        atomic::{Atomic, Full, Relaxed},
        Arc, Mutex,
    },
    task::Task,
};

/// [`CmHandler`] without the type.
pub(super) trait Dispatch: Send + Sync {
    fn dispatch(&self, id: &Id, event: CmEvent<'_>);
}

pub(super) struct Holder<T: CmHandler>(pub(super) Arc<T>);

impl<T: CmHandler> Dispatch for Holder<T> {
    fn dispatch(&self, id: &Id, event: CmEvent<'_>) {
        T::event(self.0.as_arc_borrow(), id, event);
    }
}

/// A handler that is running, on its thread's stack.
pub(super) struct Frame {
    task: *mut bindings::task_struct,
    next: Cell<*const Frame>,
    /// The id was dropped during the call: the core must destroy it.
    pub(super) doomed: Cell<bool>,
}

impl Frame {
    pub(super) fn new() -> Self {
        Self {
            task: Task::current_raw(),
            next: Cell::new(null()),
            doomed: Cell::new(false),
        }
    }
}

/// The mutable part of a context.
pub(super) struct State {
    pub(super) handler: Option<Arc<dyn Dispatch>>,
    /// The handlers that are running: frames on stacks of threads that have not left [`event`].
    frames: *const Frame,
}

// SAFETY: The frames are only followed under the lock, while they are in the list, hence alive;
// `doomed` is only used by the frame's own thread.
unsafe impl Send for State {}

/// The context of the core's id. Lives until the core has destroyed the id, or is about to on our
/// request.
#[pin_data]
pub(super) struct Ctx {
    pub(super) raw: Atomic<usize>,
    /// Whether it was ever told to listen.
    pub(super) listening: Atomic<bool>,
    pub(super) has_qp: Atomic<bool>,
    /// It was told to disconnect: it connects no more. Changes under the handler mutex.
    pub(super) ended: Atomic<bool>,
    /// Whether a route is being resolved: [`NO_ROUTE`] and the like.
    pub(super) route: Atomic<u32>,
    /// Waiters for the end of the resolution.
    #[pin]
    pub(super) routed: WaitQueue,
    #[pin]
    pub(super) state: Mutex<State>,
}

/// No route is being resolved.
pub(super) const NO_ROUTE: u32 = 0;
/// One is; its event will come.
pub(super) const ROUTING: u32 = 1;
/// The device was removed during the resolution: no event will come.
pub(super) const ROUTE_LOST: u32 = 2;
/// How long an event may take that must come, in milliseconds.
pub(super) const ROUTE_MS: u32 = 30_000;

impl Ctx {
    /// Makes one; to be freed by [`Ctx::free`].
    pub(super) fn new(raw: *mut bindings::rdma_cm_id) -> Result<NonNull<Self>> {
        let ctx = KBox::pin_init(
            try_pin_init!(Self {
                raw: Atomic::new(raw as usize),
                listening: Atomic::new(false),
                has_qp: Atomic::new(false),
                ended: Atomic::new(false),
                route: Atomic::new(NO_ROUTE),
                routed <- crate::new_wait_queue!("zrs_cm_id::routed"),
                state <- new_mutex!(State { handler: None, frames: null() }, "zrs_cm_id"),
            }),
            GFP_KERNEL,
        )?;
        // SAFETY: The pointer is only given back to `Pin<KBox>`, in `free`; nothing moves it.
        let ctx = KBox::into_raw(unsafe { Pin::into_inner_unchecked(ctx) });
        // SAFETY: `KBox::into_raw` gives no null pointer.
        Ok(unsafe { NonNull::new_unchecked(ctx) })
    }

    /// # Safety
    ///
    /// `ctx` must come from [`Ctx::new`], and must not be used any more.
    pub(super) unsafe fn free(ctx: NonNull<Self>) {
        // SAFETY: The caller's promise; it was pinned when it was given to us.
        drop(unsafe { Pin::new_unchecked(KBox::from_raw(ctx.as_ptr())) });
    }

    pub(super) fn raw(&self) -> *mut bindings::rdma_cm_id {
        self.raw.load(Relaxed) as *mut bindings::rdma_cm_id
    }

    /// A handler call begins. `None`: the id was dropped, so there is no handler.
    pub(super) fn enter(&self, frame: &Frame) -> Option<Arc<dyn Dispatch>> {
        let mut state = self.state.lock();
        frame.next.set(state.frames);
        state.frames = frame;
        state.handler.clone()
    }

    /// A handler ends.
    pub(super) fn leave(&self, frame: &Frame) {
        let mut state = self.state.lock();
        if core::ptr::eq(state.frames, frame) {
            state.frames = frame.next.get();
            return;
        }
        let mut at = state.frames;
        while !at.is_null() {
            // SAFETY: Frames in the list are alive, and we hold the lock that guards it.
            let f = unsafe { &*at };
            if core::ptr::eq(f.next.get(), frame) {
                f.next.set(frame.next.get());
                return;
            }
            at = f.next.get();
        }
    }

    /// An event came that may be the end of resolving a route.
    pub(super) fn note_route(&self, event: u32) {
        let now = match event {
            bindings::rdma_cm_event_type_RDMA_CM_EVENT_ROUTE_RESOLVED
            | bindings::rdma_cm_event_type_RDMA_CM_EVENT_ROUTE_ERROR => NO_ROUTE,
            bindings::rdma_cm_event_type_RDMA_CM_EVENT_DEVICE_REMOVAL => ROUTE_LOST,
            _ => return,
        };
        let _ = self.route.cmpxchg(ROUTING, now, Full);
        self.routed.wake_all();
    }

    /// The running thread's own frame, if it is in a handler of this id.
    pub(super) fn own_frame(&self) -> Option<*const Frame> {
        let task = Task::current_raw();
        let state = self.state.lock();
        let mut at = state.frames;
        while !at.is_null() {
            // SAFETY: Frames in the list are alive, and we hold the lock that guards it.
            let f = unsafe { &*at };
            if f.task == task {
                return Some(at);
            }
            at = f.next.get();
        }
        None
    }
}
