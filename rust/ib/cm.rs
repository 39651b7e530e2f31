// SPDX-License-Identifier: GPL-2.0

//! Connections: RDMA connection manager ids.
//!
//! C header: `include/rdma/rdma_cm.h`.
//!
//! The core calls the handler of an id with the id's handler mutex held, one event at a time (a
//! listener on the wildcard address: one at a time per device). The handler may sleep. An id must
//! not be destroyed, in the core's sense, from within its own handler: when a [`CmId`] is dropped
//! there, the core is told to destroy it when the handler returns.
//!
//! Lock order: handler mutex of the core → whatever a handler takes → `Ctx::state`, held for a few
//! instructions. So: no lock that a handler takes is held while its [`CmId`] is dropped.

mod addr;
mod ctx;
mod event;
#[cfg(CONFIG_FAULT_INJECTION_DEBUG_FS)]
pub(crate) mod inject;

use addr::Storage;
use ctx::{Ctx, Dispatch, Holder, NO_ROUTE, ROUTE_LOST, ROUTE_MS, ROUTING};

use super::{
    cq::Cq,
    device::Device,
    pd::Pd,
    qp::{Qp, QpCaps},
    srq::Srq,
};
use crate::{
    bindings,
    kern::{errno::ENOTCONN, fault::points, net::Net, task, wait::WaitMode},
};
use core::{
    net::{Ipv6Addr, SocketAddr},
    ops::Deref,
    ptr::{addr_of, null_mut, NonNull},
};
use kernel::{
    error::{from_err_ptr, to_result},
    prelude::*,
    sync::{
        atomic::{Acquire, Full, Relaxed, Release},
        Arc,
        ArcBorrow, //
    },
    time::msecs_to_jiffies,
};

/// An event of an id, `enum rdma_cm_event_type`. Statuses are negative error numbers.
pub(crate) enum CmEvent<'a> {
    /// [`Id::resolve_addr`] is done: the id has a device.
    AddrResolved,
    /// It failed.
    AddrError(i32),
    /// [`Id::resolve_route`] is done.
    RouteResolved,
    /// It failed.
    RouteError(i32),
    /// A listener is being connected to.
    ConnectRequest {
        /// The new connection, without a handler as yet. Give it one and accept it, here or later;
        /// or [`Id::reject`] it; to drop it refuses as well. Until it is gone the removal of its
        /// device waits. Events that come before it has a handler are lost: an accept fails then.
        id: CmId,
        /// The peer's private data; zero-padded on InfiniBand and RoCE.
        private_data: &'a [u8],
        /// The number of the peer's queue pair; 0 where it is not told (iWARP).
        peer_qp: u32,
    },
    /// The peer accepted an id that has no queue pair.
    ConnectResponse,
    /// Connecting or accepting failed.
    ConnectError,
    /// The peer does not answer.
    Unreachable,
    /// The peer refused.
    Rejected {
        /// The core's reason number, see `rdma_reject_msg`; a negative error number of iWARP.
        reason: i32,
        /// The peer's private data, if the peer's program refused.
        private_data: Option<&'a [u8]>,
    },
    /// The connection is up. Only the connecting side gets data.
    Established {
        /// The peer's private data, zero-padded on InfiniBand and RoCE.
        private_data: &'a [u8],
        /// As in [`CmEvent::ConnectRequest`].
        peer_qp: u32,
    },
    /// The connection is over; the queue pair is in error.
    Disconnected,
    /// The device is going: drop everything on it, the id too. Comes before [`Client::remove`].
    ///
    /// [`Client::remove`]: super::device::Client::remove
    DeviceRemoval,
    /// The address moved to another interface: the connection will fail.
    AddrChange,
    /// The queue pair's number may be used again.
    TimewaitExit,
    /// Another event.
    Other,
}

/// Handler of an id's events.
pub(crate) trait CmHandler: Send + Sync + Sized + 'static {
    /// Something happened. May sleep; the next event of the id waits.
    ///
    /// All methods of `id` may be called from here, those of the [`CmId`] as well.
    fn event(this: ArcBorrow<'_, Self>, id: &Id, event: CmEvent<'_>);
}

/// A connection id as seen by its handler, with the operations of a [`CmId`].
///
/// # Invariants
///
/// `ctx` is alive and its raw id is not destroyed while the object can be reached.
pub(crate) struct Id {
    ctx: NonNull<Ctx>,
}

// SAFETY: The core locks what concurrent users of an id share, and `Ctx` is all locks and atomics.
unsafe impl Send for Id {}
// SAFETY: As above.
unsafe impl Sync for Id {}

/// Parameters of connecting or accepting.
#[derive(Clone, Copy)]
pub(crate) struct ConnParams<'a> {
    /// Up to 56 bytes for connecting, 196 for accepting on InfiniBand and RoCE.
    pub(crate) private_data: &'a [u8],
    /// How many READs and atomics of the peer we take at a time.
    pub(crate) responder_resources: u8,
    /// How many we want to have outstanding.
    pub(crate) initiator_depth: u8,
    /// Retries after a lost acknowledgement, up to 7; used only when connecting.
    pub(crate) retry_count: u8,
    /// Retries when the peer has no receive posted; 7 is for ever.
    pub(crate) rnr_retry_count: u8,
}

impl ConnParams<'_> {
    fn raw(&self) -> Result<bindings::rdma_conn_param> {
        Ok(bindings::rdma_conn_param {
            private_data: self.private_data.as_ptr().cast(),
            private_data_len: u8::try_from(self.private_data.len()).map_err(|_| EINVAL)?,
            responder_resources: self.responder_resources,
            initiator_depth: self.initiator_depth,
            flow_control: 1,
            retry_count: self.retry_count.min(7),
            rnr_retry_count: self.rnr_retry_count.min(7),
            ..Default::default()
        })
    }
}

impl Id {
    fn ctx(&self) -> &Ctx {
        // SAFETY: By the type invariants it is alive.
        unsafe { self.ctx.as_ref() }
    }

    /// The raw id.
    pub(super) fn as_ptr(&self) -> *mut bindings::rdma_cm_id {
        self.ctx().raw()
    }

    /// Runs `f` with the handler mutex held: by the core, if we are in the handler, or by us.
    fn locked<R>(&self, f: impl FnOnce(*mut bindings::rdma_cm_id, bool) -> R) -> R {
        let raw = self.as_ptr();
        if self.ctx().own_frame().is_some() {
            return f(raw, true);
        }
        // SAFETY: By the type invariants the id is valid, and this thread is in no handler of it.
        unsafe { bindings::rdma_lock_handler(raw) };
        let ret = f(raw, false);
        // SAFETY: We locked it just above.
        unsafe { bindings::rdma_unlock_handler(raw) };
        ret
    }

    /// Keeps a listener on an IPv6 address to IPv6. Before binding.
    ///
    /// # Errors
    ///
    /// `EINVAL` if bound already.
    pub(crate) fn set_afonly(&self, afonly: bool) -> Result {
        // SAFETY: By the type invariants the id is valid.
        to_result(unsafe { bindings::rdma_set_afonly(self.as_ptr(), afonly.into()) })
    }

    /// How long to wait for an acknowledgement: 4.096 us * 2^`timeout`, up to 31. Before
    /// connecting or accepting.
    ///
    /// # Errors
    ///
    /// `EINVAL` but for reliable connections.
    pub(crate) fn set_ack_timeout(&self, timeout: u8) -> Result {
        // SAFETY: By the type invariants the id is valid.
        to_result(unsafe { bindings::rdma_set_ack_timeout(self.as_ptr(), timeout) })
    }

    /// How long the peer waits before it repeats a message that found no receive posted here: the
    /// code of the specification, table 45; 0, the default, is 655.36 ms, 14 is 1.28 ms. Before
    /// connecting or accepting.
    ///
    /// # Errors
    ///
    /// `EINVAL` for codes above 31, and but for reliable connections.
    pub(crate) fn set_min_rnr_timer(&self, code: u8) -> Result {
        // SAFETY: By the type invariants the id is valid.
        to_result(unsafe { bindings::rdma_set_min_rnr_timer(self.as_ptr(), code) })
    }

    /// Takes a local address; port 0 chooses one. Sleeps.
    ///
    /// A port below 1024 asks for `CAP_NET_BIND_SERVICE` of the running task, which a kernel worker
    /// has.
    ///
    /// # Errors
    ///
    /// `EADDRINUSE`, `EADDRNOTAVAIL`, `ENODEV` if no RDMA device has the address, `EACCES`.
    pub(crate) fn bind_addr(&self, addr: SocketAddr) -> Result {
        points::CM.check()?;
        let mut addr = Storage::new(addr);
        // SAFETY: By the type invariants the id is valid; the address is a whole
        // `sockaddr_storage`.
        to_result(unsafe { bindings::rdma_bind_addr(self.as_ptr(), addr.as_mut_ptr()) })
    }

    /// Listens on the bound address; connections are events of this id. Sleeps.
    ///
    /// # Errors
    ///
    /// `EADDRINUSE`, `EINVAL` if not bound.
    pub(crate) fn listen(&self, backlog: i32) -> Result {
        points::CM.check()?;
        self.ctx().listening.store(true, Release);
        // SAFETY: By the type invariants the id is valid.
        to_result(unsafe { bindings::rdma_listen(self.as_ptr(), backlog) })
    }

    /// Resolves the device and address by which to reach `dst`; the answer is an event. Sleeps.
    ///
    /// # Errors
    ///
    /// `EINVAL` in the wrong state, those of [`Id::bind_addr`].
    pub(crate) fn resolve_addr(
        &self,
        src: Option<SocketAddr>,
        dst: SocketAddr,
        timeout_ms: u32,
    ) -> Result {
        points::CM.check()?;
        if let SocketAddr::V6(to) = dst {
            if to.ip().is_unicast_link_local() {
                // The core does so where no source is given; with one of any address it would take
                // the first interface that has link-local addresses.
                let index = i32::try_from(to.scope_id()).map_err(|_| ENODEV)?;
                // SAFETY: By the type invariants the id is valid. Nothing is being resolved on it,
                // so no other code reads this word.
                unsafe { (*self.as_ptr()).route.addr.dev_addr.bound_dev_if = index };
            }
        }
        let mut src = src.map(Storage::new);
        let mut dst = Storage::new(dst);
        let src = src.as_mut().map_or(null_mut(), Storage::as_mut_ptr);
        // SAFETY: By the type invariants the id is valid; the addresses are whole
        // `sockaddr_storage`s, or no source is given.
        to_result(unsafe {
            bindings::rdma_resolve_addr(
                self.as_ptr(),
                src,
                dst.as_mut_ptr().cast_const(),
                timeout_ms as usize,
            )
        })
    }

    /// Finds the route, after the address; the answer is an event. Sleeps.
    ///
    /// # Errors
    ///
    /// `EINVAL` in the wrong state, `ENOMEM`.
    pub(crate) fn resolve_route(&self, timeout_ms: u32) -> Result {
        points::CM.check()?;
        let route = &self.ctx().route;
        route.store(ROUTING, Relaxed);
        // SAFETY: By the type invariants the id is valid.
        let ret = unsafe { bindings::rdma_resolve_route(self.as_ptr(), timeout_ms as usize) };
        to_result(ret).inspect_err(|_| _ = route.cmpxchg(ROUTING, NO_ROUTE, Full))
    }

    /// Connects, after the route was resolved and the queue pair made; the answer is an event.
    /// Sleeps.
    ///
    /// # Errors
    ///
    /// `EINVAL` in the wrong state or for too much private data, `ENOMEM`, `ENOTCONN` after
    /// [`Id::disconnect`]. Of iWARP devices those of TCP, such as `ECONNREFUSED` or `EADDRINUSE`.
    pub(crate) fn connect(&self, params: &ConnParams<'_>) -> Result {
        points::CM.check()?;
        let mut param = params.raw()?;
        self.locked(|raw, _| {
            if self.ctx().ended.load(Relaxed) {
                return Err(ENOTCONN);
            }
            // SAFETY: The id is valid and its handler mutex is held, and the core copies the
            // parameters and the private data.
            to_result(unsafe { bindings::rdma_connect_locked(raw, &mut param) })
        })
    }

    /// Accepts a connection, after the queue pair was made; [`CmEvent::Established`] follows.
    /// Sleeps.
    ///
    /// # Errors
    ///
    /// `EINVAL` in the wrong state (the peer has given up, say); the peer has been told no.
    pub(crate) fn accept(&self, params: &ConnParams<'_>) -> Result {
        points::CM.check()?;
        let mut param = params.raw()?;
        self.locked(|raw, _| {
            // SAFETY: The id is valid and its handler mutex is held, and the core copies the
            // parameters and the private data.
            to_result(unsafe { bindings::rdma_accept(raw, &mut param) })
        })
    }

    /// Refuses a connection with up to 148 bytes of reason. Drop the id afterwards. Sleeps.
    ///
    /// # Errors
    ///
    /// `EINVAL` in the wrong state or for too much private data.
    pub(crate) fn reject(&self, private_data: &[u8]) -> Result {
        points::CM.check()?;
        let len = u8::try_from(private_data.len()).map_err(|_| EINVAL)?;
        // SAFETY: By the type invariants the id is valid; the core copies the private data.
        to_result(unsafe {
            bindings::rdma_reject(
                self.as_ptr(),
                private_data.as_ptr().cast(),
                len,
                bindings::ib_cm_rej_reason_IB_CM_REJ_CONSUMER_DEFINED as u8,
            )
        })
    }

    /// Ends the connection: the queue pair goes to error; [`CmEvent::Disconnected`] follows, soon
    /// or when the peer does not answer. Sleeps.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there is no connection.
    pub(crate) fn disconnect(&self) -> Result {
        // A connect that fails destroys what the core would use here (`cma_connect_iw()`,
        // `cma_connect_ib()`): it has ended then, and no other one begins. The call itself is made
        // without the mutex, as it may wait for an event's handler.
        self.locked(|_, _| self.ctx().ended.store(true, Relaxed));
        points::CM.check()?;
        // SAFETY: By the type invariants the id is valid.
        to_result(unsafe { bindings::rdma_disconnect(self.as_ptr()) })
    }

    /// The local address: meaningful once bound, resolved or asked for a connection.
    pub(crate) fn local_addr(&self) -> Option<SocketAddr> {
        // SAFETY: By the type invariants the id is valid. The core writes the address before the
        // events that make it meaningful.
        Storage::read(unsafe { addr_of!((*self.as_ptr()).route.addr.src_addr) })
    }

    /// The peer's address: meaningful once resolved or asked for a connection.
    pub(crate) fn remote_addr(&self) -> Option<SocketAddr> {
        // SAFETY: As for `local_addr`.
        Storage::read(unsafe { addr_of!((*self.as_ptr()).route.addr.dst_addr) })
    }

    /// The GID that the answer to a connection request goes to, of a RoCE device, where a peer's
    /// GID is its address: the address that a peer claims can be compared with it. `None` on
    /// other devices. Of the id of a [`CmEvent::ConnectRequest`].
    pub(crate) fn peer_gid(&self) -> Option<Ipv6Addr> {
        // SAFETY: By the type invariants the id is valid. The core sets the path of an id that is
        // asked for a connection before the event, and frees it with the id.
        let path = unsafe { (*self.as_ptr()).route.path_rec.as_ref() }?;
        let roce = [
            bindings::sa_path_rec_type_SA_PATH_REC_TYPE_ROCE_V1,
            bindings::sa_path_rec_type_SA_PATH_REC_TYPE_ROCE_V2,
        ];
        // SAFETY: All 16 bytes of the union are initialized, whichever member was written.
        let gid: [u8; 16] = unsafe { *path.dgid.raw };
        roce.contains(&path.rec_type).then(|| gid.into())
    }

    /// The index of the network interface; 0 before the addresses are known.
    pub(crate) fn interface(&self) -> u32 {
        // SAFETY: By the type invariants the id is valid. One word, which the core writes before
        // the events that make the addresses meaningful.
        let index =
            unsafe { addr_of!((*self.as_ptr()).route.addr.dev_addr.bound_dev_if).read_volatile() };
        u32::try_from(index).unwrap_or(0)
    }

    /// The device, from [`CmEvent::AddrResolved`] or [`CmEvent::ConnectRequest`] on; `None` before,
    /// and if it is being removed. Takes the handler mutex: sleeps.
    pub(crate) fn device(&self) -> Option<Device> {
        self.locked(|raw, _| {
            // SAFETY: The id is valid. Its device stays in memory while the id is attached to it,
            // and the core detaches it only in handlers' place, or when destroying it.
            unsafe { Device::try_get((*raw).device) }
        })
    }
}

/// The owner of the core's id, shared by the [`CmId`] and the queue pair.
///
/// # Invariants
///
/// The id of `id.ctx` is ours to destroy, and its context is `id.ctx`.
pub(super) struct IdInner {
    id: Id,
}

impl IdInner {
    /// The raw id.
    pub(super) fn as_ptr(&self) -> *mut bindings::rdma_cm_id {
        self.id.as_ptr()
    }

    /// Waits until the core does not touch the id's device any more on behalf of a route.
    ///
    /// When the device of an id goes while its route is being resolved, the core calls the handler,
    /// drops the handler mutex and then cancels the query, for which it looks at the id's device
    /// (`cma_send_device_removal_put`, `cma_cancel_route`). Another thread that destroys the id at
    /// that moment sets the device to null. So an id is destroyed when its route's event has come;
    /// or, after a removal, when the removing thread has slept or ended, which it does not do in
    /// between.
    fn await_route(&self) {
        let ctx = self.id.ctx();
        let mut timeout = Some(msecs_to_jiffies(ROUTE_MS));
        let route = ctx
            .routed
            .wait(WaitMode::Uninterruptible, &mut timeout, || {
                let route = ctx.route.load(Acquire);
                (route != ROUTING).then_some(route)
            });
        if route == Ok(ROUTE_LOST) {
            self.id.locked(|_, _| ());
            task::synchronize_rcu_tasks();
        }
    }

    /// The id's queue pair was destroyed.
    pub(super) fn qp_gone(&self) {
        self.id.ctx().has_qp.store(false, Release);
    }
}

impl Drop for IdInner {
    fn drop(&mut self) {
        let ctx = self.id.ctx();
        if let Some(frame) = ctx.own_frame() {
            if ctx.listening.load(Relaxed) {
                // The handler's return value is about the new connection and cannot end the
                // listener, and waiting would be for ourselves. It stays, and so do we.
                pr_err!("ib: a listener was dropped by its own handler: it stays\n");
                // SAFETY: The module is running this code, so it is alive.
                unsafe { bindings::__module_get(crate::kern::module::THIS_MODULE) };
                return;
            }
            // SAFETY: It is the frame of this very thread, which is below us on the stack.
            unsafe { (*frame).doomed.set(true) };
            return;
        }
        self.await_route();
        let ctx = self.id.ctx;
        // SAFETY: By the type invariants it is ours to destroy; it has no queue pair, which would
        // hold an `Arc` of `self`. This thread is in no handler of it. Waits for running handlers.
        unsafe { bindings::rdma_destroy_id(self.as_ptr()) };
        // SAFETY: No handler runs any more, and the core has forgotten the context.
        unsafe { Ctx::free(ctx) };
    }
}

/// A connection id, and its handler.
///
/// The handler's `Arc` is kept until the id is dropped. After that no handler runs: dropping
/// waits (sleeps), unless it happens in the handler. A queue pair keeps the core's id for its own
/// lifetime; without one, the drop destroys it, which refuses a pending connection.
///
/// # Examples
///
/// The active side. Each step is answered by an event, and the handler takes the next one.
///
/// ```ignore
/// impl CmHandler for Link {
///     fn event(this: ArcBorrow<'_, Self>, id: &Id, event: CmEvent<'_>) {
///         let result = match event {
///             CmEvent::AddrResolved => id.resolve_route(2000),
///             CmEvent::RouteResolved => this.make_queue_pair().and_then(|()| id.connect(&PARAMS)),
///             CmEvent::Established { private_data, .. } => this.is_up(private_data),
///             _ => Err(ENOTCONN),
///         };
///         if let Err(e) = result {
///             this.fail(e);
///         }
///     }
/// }
///
/// let id = CmId::new(&net, link.clone())?;
/// id.resolve_addr(None, peer, 2000)?;
/// ```
pub(crate) struct CmId {
    inner: Arc<IdInner>,
}

impl Deref for CmId {
    type Target = Id;

    fn deref(&self) -> &Id {
        &self.inner.id
    }
}

impl CmId {
    /// Makes an id for reliable connections in the TCP port space of `net`, and takes a reference
    /// on `net`. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new<T: CmHandler>(net: &Net, handler: Arc<T>) -> Result<Self> {
        points::CM.check()?;
        let ctx = Ctx::new(null_mut())?;
        // SAFETY: The namespace is valid; `event` has the core's type and takes the context for
        // what it is, and it is kept until the id is gone.
        let raw = from_err_ptr(unsafe {
            bindings::__rdma_create_kernel_id(
                net.as_ptr(),
                Some(event::event),
                ctx.as_ptr().cast(),
                bindings::rdma_ucm_port_space_RDMA_PS_TCP,
                bindings::ib_qp_type_IB_QPT_RC,
                c"zrs".as_char_ptr(),
            )
        });
        let raw = match raw {
            Ok(raw) => raw,
            Err(e) => {
                // SAFETY: It was made above and has not been shared.
                unsafe { Ctx::free(ctx) };
                return Err(e);
            }
        };
        // SAFETY: Just made. No event comes before something is asked of the id.
        unsafe { ctx.as_ref() }.raw.store(raw as usize, Relaxed);
        let id = Self::own(ctx)?;
        id.set_handler(handler)?;
        Ok(id)
    }

    /// Takes over the id of `ctx`; destroys it on an error.
    fn own(ctx: NonNull<Ctx>) -> Result<Self> {
        // INVARIANT: By what the callers do, the id is ours from here on, with this context.
        let inner = IdInner { id: Id { ctx } };
        Ok(Self {
            inner: Arc::new(inner, GFP_KERNEL)?,
        })
    }

    /// Gives the id a handler, or another one: for connections that were asked for. Sleeps
    /// (memory).
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn set_handler<T: CmHandler>(&self, handler: Arc<T>) -> Result {
        let handler: Arc<dyn Dispatch> = Arc::new(Holder(handler), GFP_KERNEL)?;
        let old = self.ctx().state.lock().handler.replace(handler);
        drop(old);
        Ok(())
    }

    /// Makes the queue pair: one per id, at a time. After the address was resolved, or for a
    /// connection that was asked for; before connecting or accepting. Sleeps.
    ///
    /// # Errors
    ///
    /// `EBUSY` if there is one, `EINVAL` for caps beyond the device's or a domain of another
    /// device, `ENOMEM`.
    pub(crate) fn create_qp(
        &self,
        pd: &Arc<Pd>,
        send_cq: &Arc<Cq>,
        recv_cq: &Arc<Cq>,
        srq: Option<&Arc<Srq>>,
        caps: QpCaps,
    ) -> Result<Arc<Qp>> {
        if self.ctx().has_qp.cmpxchg(false, true, Full).is_err() {
            return Err(EBUSY);
        }
        let qp = match Qp::new(self.inner.clone(), pd, send_cq, recv_cq, srq, caps) {
            Ok(qp) => qp,
            Err(e) => {
                self.inner.qp_gone();
                return Err(e);
            }
        };
        Ok(Arc::new(qp, GFP_KERNEL)?)
    }
}

impl Drop for CmId {
    fn drop(&mut self) {
        // No new call of the handler begins,
        let handler = self.ctx().state.lock().handler.take();
        // and running calls have ended, unless this is one. (A listener's may run under another
        // mutex, but listeners have no queue pair: they are destroyed right below, which waits for
        // all.)
        self.locked(|_, _| ());
        drop(handler);
    }
}
