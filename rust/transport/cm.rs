// SPDX-License-Identifier: GPL-2.0

//! The links of sockets as the connection manager's handlers, their queues, and the [`Listener`]
//! that accepts them in a network namespace. See `qp_link.rs` for what links have in common.

#![deny(unsafe_code)]

use core::net::SocketAddr;

use kernel::alloc::AllocError;
use kernel::prelude::*;
use kernel::sync::atomic::{Full, Relaxed};
use kernel::sync::{new_mutex, Arc, ArcBorrow, Completion, Mutex};
use kernel::workqueue::{impl_has_work, new_work, Work, WorkItem};

use super::context::Transport;
use super::keys::Unproved;
use super::link::{hello, Link, LinkState, Queues, Terms};
use super::tx::{TxBuffers, TxSlot, MAX_WRITES, SLOTS};
use crate::ib::cm::{CmEvent, CmHandler, CmId, Id};
use crate::ib::cq::Cq;
use crate::ib::qp::{Qp, QpCaps};
use crate::kern::errno::{
    EADDRINUSE, EADDRNOTAVAIL, ECONNREFUSED, ECONNRESET, EDQUOT, EHOSTUNREACH, ENETUNREACH,
    ENOBUFS, ENOTCONN, EPROTO,
};
use crate::kern::fault;
use crate::kern::net::Net;
use crate::net_warn_ratelimited;
use crate::params;
use crate::pool::cache::Cache;
use crate::pool::device::RdmaDev;
use crate::pool::receives::LinkReceives;
use crate::pool::{Pool, RECV_SGE};
use crate::proto::addr::Ip;
use crate::proto::channel::Failure;
use crate::proto::dgram;
use crate::proto::link_flow::LinkFlow;
use crate::proto::proof;
use crate::proto::sizing::{self, SQ_DEPTH};
use crate::proto::vectors::{self, Kind};
use crate::proto::wire::{Agreed, Denial, Hello, Refusal, Role};
use crate::qp_link::address::{of_cm, peer_of, to_cm};
use crate::qp_link::{self, conn_params, set_timers, LinkId, Listening, QpLink};
use crate::stats::STATS;

/// READs that may be under way: links of sockets have none, but some devices want room for one.
const READS: u8 = 1;

/// `IB_CM_REJ_INVALID_SERVICE_ID`: there is no listener at the service port of the peer.
const NO_SERVICE: i32 = 8;
/// The same of an iWARP device: ECONNREFUSED, unless the peer's program has rejected.
const NO_TCP_SERVICE: i32 = -111;
/// `IB_CM_REJ_STALE_CONN`: the peer still has a connection to a queue pair of this number, from
/// before this host restarted. By rejecting, it has begun to end that connection; a further attempt
/// succeeds.
const STALE: i32 = 10;
/// `IB_CM_REJ_CONSUMER_DEFINED`: ZRS on the peer refused the link; its hello tells why.
const REFUSED: i32 = 28;

/// The failure to report when a link cannot be made because of error `e`.
fn failure_of(e: Error) -> Failure {
    if e == ENODEV {
        Failure::NoDevice
    } else if e == ENOMEM || e == ENOBUFS {
        Failure::NoResources
    } else if e == EDQUOT {
        Failure::Quota
    } else if e == ENETUNREACH {
        Failure::NoRoute
    } else if e == ETIMEDOUT {
        Failure::TimedOut
    } else if e == ECONNREFUSED {
        Failure::Refused(Refusal::NoListener)
    } else if e == EPROTO {
        Failure::Protocol
    } else if e == ECONNRESET {
        Failure::LinkLost
    } else {
        Failure::Unreachable
    }
}

/// The errno of a failure.
pub(crate) fn errno_of(failure: Failure) -> Error {
    match failure {
        Failure::Refused(Refusal::NoListener | Refusal::BacklogFull) => ECONNREFUSED,
        Failure::Refused(Refusal::NoResources) => ENOBUFS,
        Failure::Reset | Failure::LinkLost => ECONNRESET,
        Failure::TimedOut => ETIMEDOUT,
        Failure::Unreachable => EHOSTUNREACH,
        Failure::NoRoute => ENETUNREACH,
        Failure::NoDevice => ENODEV,
        Failure::NoResources => ENOMEM,
        Failure::Quota => EDQUOT,
        Failure::Protocol => EPROTO,
        Failure::Denied | Failure::Unproved => EACCES,
    }
}

/// Starts to connect, or tries again to resolve the address. In a kernel thread. Sleeps.
pub(super) fn connect(link: &Arc<Link>) {
    match try_connect(link) {
        Ok(()) => {}
        Err(e) if e == EDQUOT => link.fail_quota(),
        Err(e) => link.fail(failure_of(e)),
    }
}

fn try_connect(link: &Arc<Link>) -> Result {
    let to = link.service();
    if let Some(id) = link.cm.get() {
        if link.tries_again.xchg(false, Full) {
            let dev = device_of(&link.transport, &id)?;
            return link.on_route(&id, &dev.pool(&link.transport.pools)?);
        }
        if link.routed.load(Relaxed) {
            return link.request(&id);
        }
        return link.cm.resolve_again(&id, to);
    }
    let id = Arc::new(CmId::new(&link.net, link.clone())?, GFP_KERNEL)?;
    STATS.resources_made.add(1);
    set_timers(&id);
    link.keep(&id)?;
    // Begins elsewhere at each load: an iWARP peer may still remember connections from a port.
    let first = link.transport.nonce as u32;
    link.cm.resolve(&id, link.local_ip(), to, first)
}

/// A queue pair and its place at a receive queue, which is dropped after it.
struct Made {
    qp: Arc<Qp>,
    place: LinkReceives,
}

/// The device of `id`. ENODEV.
fn device_of(transport: &Transport, id: &CmId) -> Result<Arc<RdmaDev>> {
    let device = id.device().ok_or(ENODEV)?;
    transport.pools.device(&device).ok_or(ENODEV)
}

/// Creates the link's queue pair, completion queue and buffers. Sleeps.
fn make_queues(link: &Arc<Link>, id: &CmId) -> Result<Since> {
    let device = id.device().ok_or(ENODEV)?;
    let dev = link.transport.pools.device(&device).ok_or(ENODEV)?;
    let failed = dev.times_failed();
    let pool = dev.made_pool()?;
    let verbs = pool.verbs().ok_or(ENODEV)?;
    let attrs = device.attrs();
    // Before the queue pair, so that it is dropped after it.
    let shared = pool.enter_shared()?;
    let receives = match shared {
        Some(_) => pool.layout.blocks,
        None => params::LINK_CREDIT.get(),
    };
    // The completion queue has room for all that can be posted, flushed requests included.
    let entries = SQ_DEPTH + receives + 1;
    let vector = vectors::vector(Kind::Stream, dev.next_link(), device.num_comp_vectors());
    let cq = Cq::new(&device, entries, vector, link.clone())?;
    cq.arm()?;
    let rate = device.rate();
    let mut caps = QpCaps {
        max_send_wr: SQ_DEPTH,
        max_send_sge: attrs.max_send_sge.min(32),
        min_send_sge: sizing::MIN_SGE,
        max_inline: 0,
        max_recv_wr: 0,
        max_recv_sge: 0,
    };
    let refused = |e: &Error| {
        let name = device.name();
        net_warn_ratelimited!("{name}: no queue pair of {SQ_DEPTH} work requests: {e:?}\n");
    };
    // The queue pair is dropped before its place at the receive queue.
    let (qp, place) = match shared {
        Some(place) => {
            let srq = place.srq().ok_or(ENODEV)?;
            let qp = id.create_qp(&verbs.pd, &cq, &cq, Some(&srq), caps);
            drop(srq);
            (qp.inspect_err(refused)?, place)
        }
        None => {
            (caps.max_recv_wr, caps.max_recv_sge) = (receives, RECV_SGE);
            let qp = id.create_qp(&verbs.pd, &cq, &cq, None, caps);
            let qp = qp.inspect_err(refused)?;
            let place = pool.enter_own(&qp)?;
            (qp, place)
        }
    };
    let made = Made { qp, place };
    let rx = made.place.queue();
    STATS.resources_made.add(2);
    let buffers = TxBuffers::new(&verbs.pd)?;
    let mut slots = KVec::with_capacity(usize::from(SLOTS), GFP_KERNEL)?;
    let mut free = KVec::with_capacity(usize::from(SLOTS), GFP_KERNEL)?;
    for slot in 0..SLOTS {
        slots.push(TxSlot::default(), GFP_KERNEL)?;
        free.push(slot, GFP_KERNEL)?;
    }
    // The peer of an accepted link may fill blocks once it has our reply, so they are promised now.
    // The peer of a link that we make gets its promise when it has replied.
    if link.accepted && !rx.promise(false) {
        return Err(ENOBUFS);
    }
    let mut tx = link.tx.lock();
    if tx.state == LinkState::Down {
        // The link has failed in the meantime, and its teardown has run already.
        drop(tx);
        if link.accepted {
            rx.unpromise(params::LINK_CREDIT.get());
        }
        return Err(ENOTCONN);
    }
    let (rx, Made { qp, place }) = (rx.clone(), made);
    let max_sge = qp.max_send_sge();
    tx.promised = link.accepted;
    tx.receives = Some(place);
    tx.queues = Some(Queues {
        qp,
        cq,
        verbs,
        pool,
        rx,
        max_sge: max_sge as usize,
        repeats_reg: device.repeats_registrations(),
        signals_all: device.needs_signals(),
    });
    tx.buffers = Some(buffers);
    tx.slots = slots;
    tx.free = free;
    tx.sq_free = SQ_DEPTH;
    let chunk = Cache::chunk(rate).min(sizing::gathered(max_sge, MAX_WRITES as u32));
    tx.bound_bulk(rate, params::BULK_US.get(), chunk);
    if let Some(addr) = of_cm(id, id.local_addr()) {
        tx.local = addr.ip;
    }
    drop(tx);
    Ok(Since { dev, failed })
}

/// How often the device had failed when the queues of a link were made.
struct Since {
    dev: Arc<RdmaDev>,
    failed: u32,
}

impl Since {
    /// Whether device and queue have not failed meanwhile. Called when the link has its queues and
    /// is on the list of links: later failures end the links of that list. ENODEV, ENOTCONN.
    fn check(&self, link: &Arc<Link>) -> Result {
        if self.dev.times_failed() != self.failed {
            return Err(ENODEV);
        }
        if link.queue_has_failed() {
            link.fail_stale();
            return Err(ENOTCONN);
        }
        Ok(())
    }
}

/// Decodes the peer's hello, and agrees on a version and on features. EPROTO if the hello is
/// malformed, or if there is no common version, which is logged.
fn agree(
    transport: &Transport,
    keyed: bool,
    remote: Ip,
    private_data: &[u8],
) -> Result<(Hello, Agreed)> {
    let theirs = Hello::decode(private_data).map_err(|_| EPROTO)?;
    let ours = hello(transport, keyed);
    let Some(agreed) = ours.agree(&theirs) else {
        let (a, b) = (theirs.versions, ours.versions);
        net_warn_ratelimited!(
            "no link to {remote:?}: it speaks the protocol's versions {} to {}, this host {} to {}\n",
            a.lowest,
            a.highest,
            b.lowest,
            b.highest
        );
        return Err(EPROTO);
    };
    Ok((theirs, agreed))
}

fn terms_of(transport: &Transport, keyed: bool, remote: Ip, private_data: &[u8]) -> Result<Terms> {
    let (theirs, agreed) = agree(transport, keyed, remote, private_data)?;
    let flow = LinkFlow::new(params::LINK_CREDIT.get(), theirs.link_credit).ok_or(EPROTO)?;
    let links = theirs.links.max(1);
    Ok(Terms {
        agreed,
        flow,
        dgrams: false,
        links,
    })
}

impl Link {
    /// Stores the link's id until the teardown. ENOTCONN if the link is down already.
    fn keep(&self, id: &Arc<CmId>) -> Result {
        if self.state() == LinkState::Down {
            return Err(ENOTCONN);
        }
        self.cm.keep(id)
    }

    /// Fault injection: delivers a made-up event to the link. Sleeps.
    #[cfg(CONFIG_FAULT_INJECTION_DEBUG_FS)]
    pub(crate) fn tell(&self, event: u32, status: i32) {
        if let Some(id) = self.cm.get() {
            id.tell(event, status);
        }
    }

    fn service(&self) -> SocketAddr {
        to_cm(self.remote_ip(), params::SERVICE_PORT.get() as u16)
    }

    /// Makes the queues and asks the peer for the link, or waits for blocks of `pool`. Sleeps.
    fn on_route(self: &Arc<Self>, id: &CmId, pool: &Arc<Pool>) -> Result {
        if !self.await_blocks(pool)? {
            return Ok(());
        }
        make_queues(self, id)?.check(self)?;
        if id.device().is_some_and(|device| device.connect_waits()) {
            // It waits: a worker calls it, never the thread that resolves routes.
            self.routed.store(true, Relaxed);
            self.start();
            return Ok(());
        }
        self.request(id)
    }

    /// Asks the peer for the connection. Sleeps; where [`Device::connect_waits`], until the peer
    /// has answered or TCP gives up.
    ///
    /// [`Device::connect_waits`]: crate::ib::device::Device::connect_waits
    fn request(self: &Arc<Self>, id: &CmId) -> Result {
        let keyed = self.transport.peers.keys.has(&self.net, self.remote_ip());
        let ours = hello(&self.transport, keyed).encode();
        self.says(keyed, &ours);
        match id.connect(&conn_params(&ours, READS)) {
            // An iWARP device's source port is one of TCP, which the connection manager knows
            // nothing of: the link is made again from the next port.
            Err(e) if e == EADDRINUSE || e == EADDRNOTAVAIL => {
                self.fail_stale();
                Ok(())
            }
            result => result,
        }
    }

    fn failure_of_rejection(&self, reason: i32, private_data: Option<&[u8]>) -> Failure {
        match (reason, private_data) {
            (NO_SERVICE | NO_TCP_SERVICE, None) => Failure::Refused(Refusal::NoListener),
            // The hello in the rejection tells whether the peer lacks room or a common version.
            (_, Some(data)) if Hello::is_from_zrs(data) => match Hello::denial(data) {
                Some(why) => {
                    self.transport.peers.rejected(self.remote_ip(), why);
                    match why {
                        Denial::Listed => Failure::Denied,
                        Denial::Unproved | Denial::Keyless => Failure::Unproved,
                    }
                }
                None => match agree(&self.transport, self.is_keyed(), self.remote_ip(), data) {
                    Ok(_) => Failure::NoResources,
                    Err(_) => Failure::Protocol,
                },
            },
            // A listener in another namespace of the peer's machine made the connection manager
            // reject it.
            (REFUSED, _) => Failure::Refused(Refusal::NoListener),
            _ => Failure::Unreachable,
        }
    }
}

/// The cause for the log if the event ends the link.
fn name_of(event: &CmEvent<'_>) -> &'static str {
    match event {
        CmEvent::Disconnected => "the peer has ended it",
        CmEvent::AddrChange => "its address has changed",
        _ => "the connection manager has ended it",
    }
}

impl CmHandler for Link {
    fn event(this: ArcBorrow<'_, Self>, id: &Id, event: CmEvent<'_>) {
        let link: Arc<Link> = this.into();
        let name = name_of(&event);
        match qp_link::handle(&link, id, event) {
            Ok(()) => {}
            Err(e) if e == EDQUOT => link.fail_quota(),
            Err(e) => link.fail_and_log(failure_of(e), name),
        }
    }
}

impl QpLink for Link {
    fn id(&self) -> &LinkId {
        &self.cm
    }

    fn start_connecting(self: &Arc<Self>) {
        self.start();
    }

    fn is_connected(&self) -> bool {
        self.state() == LinkState::Up
    }

    /// In the thread that resolves the routes of the whole machine, which waits for no pool to be
    /// made: a worker does, and goes on.
    fn route_resolved(self: &Arc<Self>) -> Result {
        let id = self.cm.get().ok_or(ENOTCONN)?;
        let dev = device_of(&self.transport, &id)?;
        if dev.is_untried() {
            self.tries_again.xchg(true, Full);
            self.start();
            return Ok(());
        }
        self.on_route(&id, &dev.made_pool()?)
    }

    fn established(self: &Arc<Self>, _id: &Id, private_data: &[u8], peer_qp: u32) -> Result {
        // The list may have changed since.
        if !self.transport.peers.allow(&self.net, self.remote_ip()) {
            self.fail(Failure::Denied);
            return Ok(());
        }
        // The side that accepted has the peer's terms from the request.
        if !self.up_on_terms() {
            let (keyed, remote) = (self.is_keyed(), self.remote_ip());
            let mut terms = terms_of(&self.transport, keyed, remote, private_data)?;
            if keyed && terms.agreed.features & proof::FEATURE == 0 {
                self.unproved(Unproved::Unoffered);
                return Ok(());
            }
            terms.dgrams = terms.agreed.features & dgram::wire::FEATURE != 0;
            self.claim_blocks()?;
            self.heard(private_data, peer_qp)?;
            self.up(terms);
        }
        // With a key, the host is known once it has proved it.
        if !self.is_keyed() {
            self.transport.peer_has_zrs(&self.net, self.remote_ip());
        }
        Ok(())
    }

    fn rejected(self: &Arc<Self>, reason: i32, private_data: Option<&[u8]>) -> Result {
        match reason {
            STALE => self.fail_stale(),
            _ => self.fail(self.failure_of_rejection(reason, private_data)),
        }
        Ok(())
    }

    fn disconnected(self: &Arc<Self>) -> Result {
        if !self.is_proving() {
            return Err(ECONNRESET);
        }
        self.unproved(Unproved::RefusedThere);
        Ok(())
    }

    fn address_changed(self: &Arc<Self>) -> Result {
        self.transport.ways_changed();
        if self.state() != LinkState::Connecting {
            return Err(ECONNRESET);
        }
        // No connect was told anything yet, so the link can be made again.
        self.fail_stale();
        Ok(())
    }
}

/// Accepts the links that other hosts make to a network namespace.
pub(crate) struct Listener {
    transport: Arc<Transport>,
    net: Net,
}

impl Listener {
    /// Starts to listen in `net`, in a kernel thread: the port needs the privilege of the kernel,
    /// but any program may be the first to listen. Sleeps. EADDRINUSE and others.
    pub(crate) fn start(transport: &Arc<Transport>, net: &Net) -> Result<Listening> {
        let opening = Arc::pin_init(
            try_pin_init!(Opening {
                transport: transport.clone(),
                net: net.clone(),
                ids <- new_mutex!(None, "zrs_opening::ids"),
                done <- Completion::new(),
                work <- new_work!("zrs_opening::work"),
            }),
            GFP_KERNEL,
        )?;
        let _ = transport.queue.enqueue(opening.clone());
        opening.done.wait_for_completion();
        let ids = opening.ids.lock().take();
        ids.unwrap_or(Err(ENOMEM))
    }

    fn open(transport: &Arc<Transport>, net: &Net) -> Result<Listening> {
        let port = params::SERVICE_PORT.get() as u16;
        Listening::new(net, port, 64, || {
            let listener = Self {
                transport: transport.clone(),
                net: net.clone(),
            };
            Ok(Arc::new(listener, GFP_KERNEL)?)
        })
    }

    fn request(&self, id: CmId, private_data: &[u8], peer_qp: u32) -> Result {
        let (remote, local) = peer_of(&self.net, &id)?;
        let keyed = self.transport.peers.keys.has(&self.net, remote);
        let ours = hello(&self.transport, keyed);
        self.transport
            .peers
            .may_accept(&self.net, remote)
            .inspect_err(|_| {
                let _ = id.reject(&ours.encode_denial(Role::Streams, Denial::Listed));
            })?;
        let terms = match terms_of(&self.transport, keyed, remote, private_data) {
            Ok(terms) => terms,
            Err(e) => {
                let _ = id.reject(&ours.encode());
                return Err(e);
            }
        };
        let offer = self
            .transport
            .peers
            .keys
            .check_offer(remote, keyed, private_data);
        if let Err(why) = offer {
            let _ = id.reject(&ours.encode_denial(Role::Streams, why));
            return Err(EACCES);
        }
        let pool = device_of(&self.transport, &id)?.pool(&self.transport.pools);
        let may = |pool: &Arc<Pool>| self.transport.may_make_link(&self.net, local, remote, pool);
        if !pool.is_ok_and(|pool| may(&pool)) {
            let _ = id.reject(&ours.encode());
            return Err(ENOBUFS);
        }
        let link = Link::new(&self.transport, &self.net, Some(local), remote, None)?;
        id.set_handler(link.clone())?;
        set_timers(&id);
        let ours = ours.encode();
        link.says(keyed, &ours);
        let made = make_queues(&link, &id);
        let made = made.and_then(|since| Ok((since, link.heard(private_data, peer_qp)?)));
        let (since, ()) = made.inspect_err(|&e| {
            let _ = id.reject(&ours);
            link.fail(failure_of(e));
        })?;
        link.set_terms(terms);
        let result = self.admit(&link, Arc::new(id, GFP_KERNEL), &since, &ours);
        if result.is_err() {
            link.fail(Failure::LinkLost);
        }
        result
    }

    fn admit(
        &self,
        link: &Arc<Link>,
        id: core::result::Result<Arc<CmId>, AllocError>,
        since: &Since,
        ours: &[u8],
    ) -> Result {
        let id = id?;
        link.keep(&id)?;
        self.transport.add_link(link)?;
        since.check(link)?;
        self.transport.probe_links(&self.net, link.remote_ip());
        id.accept(&conn_params(ours, READS))
    }
}

/// A request to a kernel thread to start listening.
#[pin_data]
struct Opening {
    transport: Arc<Transport>,
    net: Net,
    #[pin]
    ids: Mutex<Option<Result<Listening>>>,
    #[pin]
    done: Completion,
    #[pin]
    work: Work<Opening>,
}

impl_has_work! {
    impl HasWork<Self> for Opening { self.work }
}

impl WorkItem for Opening {
    type Pointer = Arc<Opening>;

    fn run(this: Arc<Opening>) {
        let ids = fault::asynchronous(|| Listener::open(&this.transport, &this.net));
        *this.ids.lock() = Some(ids);
        this.done.complete_all();
    }
}

impl CmHandler for Listener {
    fn event(this: ArcBorrow<'_, Self>, _id: &Id, event: CmEvent<'_>) {
        if let CmEvent::ConnectRequest {
            id,
            private_data,
            peer_qp,
        } = event
        {
            // A request that is not accepted is rejected when its id is dropped.
            let _ = this.request(id, private_data, peer_qp);
        }
    }
}
