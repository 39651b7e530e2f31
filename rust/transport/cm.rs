// SPDX-License-Identifier: GPL-2.0

//! The connection manager's events and what each of them does (row E5).
//!
//! A link is its id's handler; a [`Listener`] is the handler of the id that takes connections in a
//! network namespace. Handlers never destroy an id: they fail the link, and its work item does.

#![deny(unsafe_code)]

use core::net::{IpAddr, SocketAddr, SocketAddrV4, SocketAddrV6};

use kernel::alloc::AllocError;
use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Relaxed};
use kernel::sync::{new_mutex, Arc, ArcBorrow, Completion, Mutex};
use kernel::workqueue::{impl_has_work, new_work, Work, WorkItem};

use super::context::Transport;
use super::link::{hello, Link, LinkState, Queues, Terms};
use super::tx::{TxBuffers, TxSlot, SLOTS, SQ_DEPTH};
use crate::ib::cm::{CmEvent, CmHandler, CmId, ConnParams, Id};
use crate::ib::cq::Cq;
use crate::ib::qp::QpCaps;
use crate::kern::errno::{
    EADDRINUSE, EADDRNOTAVAIL, EAFNOSUPPORT, ECONNREFUSED, ECONNRESET, EHOSTUNREACH, ENETUNREACH,
    ENOBUFS, ENOTCONN, EPROTO,
};
use crate::kern::fault;
use crate::kern::net::Net;
use crate::net_warn_ratelimited;
use crate::params;
use crate::pool::cache::Cache;
use crate::proto::addr::{Addr, Ip};
use crate::proto::channel::Failure;
use crate::proto::link_flow::LinkFlow;
use crate::proto::wire::{Agreed, Hello, Refusal};
use crate::stats::STATS;

/// How long resolving a route may take; the program's own limit is shorter.
const ROUTE_MS: u32 = 2000;

/// How long the first attempt at resolving an address may take, and the last. The kernel looks
/// for the neighbour's answer only when its list of requests already has ours, and at the end of the
/// attempt; an answer that comes at once (over veth it always does) is missed until then. So the
/// attempts are short at first.
const RESOLVE_MS: core::ops::Range<u32> = 10..1000;

/// The ports that a peer may claim. Its kernel's connection manager gives them to privileged programs
/// only; a peer that makes the packets itself claims any.
const RESERVED_PORTS: core::ops::Range<u16> = 512..1024;

/// `IB_CM_REJ_INVALID_SERVICE_ID`: nobody listens at our port there.
const NO_SERVICE: i32 = 8;
/// `IB_CM_REJ_STALE_CONN`: the peer still has a connection to a queue pair of this number, from a former
/// life of this host. Ending that is what it does now; a further attempt comes through.
const STALE: i32 = 10;
/// `IB_CM_REJ_CONSUMER_DEFINED`: ZRS itself said no, and why.
const REFUSED: i32 = 28;

/// What a link cannot be made for.
fn failure_of(e: Error) -> Failure {
    if e == ENODEV {
        Failure::NoDevice
    } else if e == ENOMEM || e == ENOBUFS {
        Failure::NoResources
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

/// An address as the connection manager takes it.
fn to_cm(ip: Ip, port: u16) -> SocketAddr {
    match ip.v4() {
        Some(v4) => SocketAddrV4::new(v4, port).into(),
        None => SocketAddrV6::from(Addr::new(ip, port)).into(),
    }
}

/// An address of `id`'s as links have it. A peer may have written it: of IPv6 only what can be that of a host, as one
/// that is v4-mapped, or this host's own, would be believed to come by another way.
fn of_cm(id: &Id, addr: Option<SocketAddr>) -> Option<Addr> {
    let addr = addr?;
    let ip = match addr.ip() {
        IpAddr::V4(v4) => v4.into(),
        IpAddr::V6(v6) => {
            let mapped = v6.to_ipv4_mapped().is_some();
            if mapped || v6.is_loopback() || v6.is_multicast() || v6.is_unspecified() {
                return None;
            }
            Ip::new(v6, id.interface())
        }
    };
    Some(Addr::new(ip, addr.port()))
}

/// Starts the connection, or tries again to resolve the address. In a kernel thread; sleeps.
pub(super) fn connect(link: &Arc<Link>) {
    if let Err(e) = try_connect(link) {
        link.fail(failure_of(e));
    }
}

fn try_connect(link: &Arc<Link>) -> Result {
    static NEXT: Atomic<u32> = Atomic::new(0);

    let again = link.cm.lock().clone();
    if let Some(id) = again {
        return id.resolve_addr(None, link.service(), link.resolve_ms.load(Relaxed));
    }
    let id = Arc::new(CmId::new(&link.net, link.clone())?, GFP_KERNEL)?;
    STATS.resources_made.add(1);
    let _ = id.set_ack_timeout(params::ack_timeout());
    link.keep(&id)?;
    let to = link.service();
    let from = link.local_ip();
    let any = from.is_any();
    let ports = u32::from(RESERVED_PORTS.end - RESERVED_PORTS.start);
    for _ in 0..ports {
        let n = NEXT.fetch_add(1, Relaxed) % ports;
        let port = RESERVED_PORTS.end - 1 - n as u16;
        match id.resolve_addr(Some(to_cm(from, port)), to, RESOLVE_MS.start) {
            // Of a port that is taken the core says EADDRNOTAVAIL where the address is any.
            Err(e) if e == EADDRINUSE || any && e == EADDRNOTAVAIL => continue,
            result => return result,
        }
    }
    Err(ENOBUFS)
}

/// Gives the link its queue pair and all that belongs to it. Sleeps.
fn make_queues(link: &Arc<Link>, id: &CmId) -> Result {
    let device = id.device().ok_or(ENODEV)?;
    let dev = link.transport.pools.device(&device).ok_or(ENODEV)?;
    let pool = dev.pool(&link.transport.pools)?;
    let verbs = pool.verbs().ok_or(ENODEV)?;
    let attrs = device.attrs();
    // Everything that can ever be posted has room, flushes included.
    let entries = (SQ_DEPTH + pool.layout.blocks + 1).min(attrs.max_cqe);
    let cq = Cq::new(&device, entries, 0, link.clone())?;
    cq.arm()?;
    let max_sge = attrs.max_send_sge.min(32);
    let rate = device.rate();
    let qp = id.create_qp(
        &verbs.pd,
        &cq,
        &cq,
        &verbs.srq,
        QpCaps {
            max_send_wr: SQ_DEPTH.min(attrs.max_qp_wr),
            max_send_sge: max_sge,
            max_inline: 0,
        },
    )?;
    STATS.resources_made.add(2);
    let buffers = TxBuffers::new(&verbs.pd)?;
    let mut slots = KVec::with_capacity(usize::from(SLOTS), GFP_KERNEL)?;
    let mut free = KVec::with_capacity(usize::from(SLOTS), GFP_KERNEL)?;
    for slot in 0..SLOTS {
        slots.push(TxSlot::default(), GFP_KERNEL)?;
        free.push(slot, GFP_KERNEL)?;
    }
    // The peer of an accepted link may fill blocks once it has our answer. A peer that we ask is
    // promised blocks when it has answered.
    let fits = match link.accepted {
        true => pool.promise(false),
        false => pool.may_promise(link.leaves_reserve()),
    };
    if !fits {
        link.transport.evict_idle_link(&pool);
        return Err(ENOBUFS);
    }
    let mut tx = link.tx.lock();
    if tx.state == LinkState::Down {
        // It was given up meanwhile, and what it had has been taken down already.
        drop(tx);
        if link.accepted {
            pool.unpromise(params::LINK_CREDIT.get());
        }
        return Err(ENOTCONN);
    }
    tx.promised = link.accepted;
    tx.queues = Some(Queues {
        qp,
        cq,
        verbs,
        pool,
        max_sge: max_sge as usize,
    });
    tx.buffers = Some(buffers);
    tx.slots = slots;
    tx.free = free;
    tx.sq_free = SQ_DEPTH.min(attrs.max_qp_wr);
    tx.bound_bulk(rate, params::BULK_US.get(), Cache::chunk(rate));
    if let Some(addr) = of_cm(id, id.local_addr()) {
        tx.local = addr.ip;
    }
    Ok(())
}

fn conn_params(private_data: &[u8]) -> ConnParams<'_> {
    ConnParams {
        private_data,
        responder_resources: 1,
        initiator_depth: 1,
        // The acceptor's queue pair has the connector's number as well.
        retry_count: params::RETRY_COUNT.get() as u8,
        // Credit keeps the peer's queue from running dry; this is the net below it.
        rnr_retry_count: 7,
    }
}

/// The peer's hello, and the version and features that follow from it and ours. EPROTO for a malformed hello, and
/// without a common version, which is logged.
fn agree(transport: &Transport, remote: Ip, private_data: &[u8]) -> Result<(Hello, Agreed)> {
    let theirs = Hello::decode(private_data).map_err(|_| EPROTO)?;
    let ours = hello(transport);
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

fn terms_of(transport: &Transport, remote: Ip, private_data: &[u8]) -> Result<Terms> {
    let (theirs, agreed) = agree(transport, remote, private_data)?;
    let flow = LinkFlow::new(params::LINK_CREDIT.get(), theirs.link_credit).ok_or(EPROTO)?;
    let links = theirs.links.max(1);
    Ok(Terms {
        agreed,
        flow,
        links,
    })
}

impl Link {
    /// Keeps the link's id until the link is taken down. ENOTCONN when that has happened already.
    fn keep(&self, id: &Arc<CmId>) -> Result {
        let mut cm = self.cm.lock();
        if self.state() == LinkState::Down {
            return Err(ENOTCONN);
        }
        *cm = Some(id.clone());
        Ok(())
    }

    /// Fault injection: tells the link of an event that nothing has caused. Sleeps.
    #[cfg(CONFIG_FAULT_INJECTION_DEBUG_FS)]
    pub(crate) fn tell(&self, event: u32, status: i32) {
        let id = self.cm.lock().clone();
        if let Some(id) = id {
            id.tell(event, status);
        }
    }

    fn service(&self) -> SocketAddr {
        to_cm(self.remote_ip(), params::SERVICE_PORT.get() as u16)
    }

    /// An attempt at resolving the address took too long: tries again, with more patience. In the
    /// worker: the next attempt waits for this event's handler.
    fn resolve_again(self: &Arc<Self>) -> Result {
        let ms = self.resolve_ms.load(Relaxed).max(RESOLVE_MS.start) * 2;
        if ms > RESOLVE_MS.end {
            return Err(ETIMEDOUT);
        }
        self.resolve_ms.store(ms, Relaxed);
        self.start();
        Ok(())
    }

    fn on_route(self: &Arc<Self>) -> Result {
        let id = self.cm.lock().clone().ok_or(ENOTCONN)?;
        make_queues(self, &id)?;
        id.connect(&conn_params(&hello(&self.transport).encode()))
    }

    fn rejected(&self, reason: i32, private_data: Option<&[u8]>) -> Failure {
        match (reason, private_data) {
            (NO_SERVICE, _) => Failure::Refused(Refusal::NoListener),
            // The rejecting hello tells a lack of room from a lack of a common version.
            (REFUSED, Some(data)) if Hello::is_from_zrs(data) => {
                match agree(&self.transport, self.remote_ip(), data) {
                    Ok(_) => Failure::NoResources,
                    Err(_) => Failure::Protocol,
                }
            }
            // Another namespace of the machine listens, and the connection manager says so.
            (REFUSED, _) => Failure::Refused(Refusal::NoListener),
            _ => Failure::Unreachable,
        }
    }
}

/// An event that ends a link, for the log.
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
        let result = match event {
            CmEvent::AddrResolved => id.resolve_route(ROUTE_MS),
            CmEvent::RouteResolved => link.on_route(),
            CmEvent::Established { private_data } => link.established(private_data),
            CmEvent::AddrError(status) if Error::from_errno(status) == ETIMEDOUT => {
                link.resolve_again()
            }
            CmEvent::AddrError(status) | CmEvent::RouteError(status) => {
                Err(Error::from_errno(status))
            }
            CmEvent::ConnectError | CmEvent::Unreachable => Err(EHOSTUNREACH),
            CmEvent::Rejected { reason: STALE, .. } => {
                link.fail_stale();
                Ok(())
            }
            CmEvent::Rejected {
                reason,
                private_data,
            } => {
                link.fail(link.rejected(reason, private_data));
                Ok(())
            }
            // Whoever waits for the link has not been told anything: it is made anew.
            CmEvent::AddrChange if link.state() == LinkState::Connecting => {
                link.fail_stale();
                Ok(())
            }
            // The peer takes the link down, or the route to it has changed.
            CmEvent::Disconnected | CmEvent::AddrChange => Err(ECONNRESET),
            CmEvent::DeviceRemoval => Err(ENODEV),
            CmEvent::TimewaitExit => Ok(()),
            // Not with a queue pair that the connection manager runs, or none we know.
            CmEvent::ConnectRequest { .. } | CmEvent::ConnectResponse | CmEvent::Other => {
                Err(EPROTO)
            }
        };
        if let Err(e) = result {
            link.fail_and_log(failure_of(e), name);
        }
    }
}

impl Link {
    fn established(self: &Arc<Self>, private_data: &[u8]) -> Result {
        // The side that accepted has the peer's terms from the request.
        if !self.up_on_terms() {
            let terms = terms_of(&self.transport, self.remote_ip(), private_data)?;
            self.claim_blocks()?;
            self.up(terms);
        }
        Ok(())
    }

    /// The peer that we have asked has answered: promises it the blocks of our hello. Until they are
    /// posted, its messages may take others', or wait for them. ENOBUFS, ENOTCONN.
    fn claim_blocks(self: &Arc<Self>) -> Result {
        let pool = self.pool().ok_or(ENOTCONN)?;
        if !pool.promise(self.leaves_reserve()) {
            self.transport.evict_idle_link(&pool);
            return Err(ENOBUFS);
        }
        let mut tx = self.tx.lock();
        if tx.state == LinkState::Connecting {
            tx.promised = true;
            return Ok(());
        }
        drop(tx);
        pool.unpromise(params::LINK_CREDIT.get());
        Err(ENOTCONN)
    }
}

/// Takes the connections of other hosts to a network namespace.
pub(crate) struct Listener {
    transport: Arc<Transport>,
    net: Net,
}

/// The ids that take connections to a network namespace, until it is dropped. One for each family: iWARP devices have
/// sockets for theirs, and one for both would bring addresses of IPv4 as v4-mapped ones.
pub(crate) struct Listening {
    _v4: CmId,
    /// None where the kernel has no IPv6.
    _v6: Option<CmId>,
}

impl Listener {
    /// Listens in `net`. In a kernel thread: the port needs its privilege,
    /// and any program may be the first to listen. Sleeps. EADDRINUSE and others.
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
        let v4 = Self::open_for(transport, net, Ip::ANY_V4)?;
        let v6 = match Self::open_for(transport, net, Ip::ANY) {
            Err(e) if e == EAFNOSUPPORT => None,
            id => Some(id?),
        };
        Ok(Listening { _v4: v4, _v6: v6 })
    }

    fn open_for(transport: &Arc<Transport>, net: &Net, any: Ip) -> Result<CmId> {
        let listener = Self {
            transport: transport.clone(),
            net: net.clone(),
        };
        let id = CmId::new(net, Arc::new(listener, GFP_KERNEL)?)?;
        STATS.resources_made.add(1);
        let port = params::SERVICE_PORT.get() as u16;
        id.set_afonly(true)?;
        id.bind_addr(to_cm(any, port))?;
        id.listen(64)?;
        Ok(id)
    }

    fn request(&self, id: CmId, private_data: &[u8]) -> Result {
        let from = of_cm(&id, id.remote_addr()).ok_or(EAFNOSUPPORT)?;
        let to = of_cm(&id, id.local_addr()).ok_or(EAFNOSUPPORT)?;
        let (remote, local) = (from.ip, to.ip);
        if !RESERVED_PORTS.contains(&from.port) {
            net_warn_ratelimited!("connection from {remote:?} refused: not from a reserved port\n");
            return Err(EACCES);
        }
        // The peer says which address it has; the answer goes to the path's.
        if id.peer_gid().is_some_and(|gid| gid != remote.v6()) {
            STATS.protocol_errors.add(1);
            net_warn_ratelimited!("connection from {remote:?} refused: another host's address\n");
            return Err(EACCES);
        }
        // The peer says which address of ours it means, and the core believes it.
        let ours = match local.v4() {
            Some(v4) => self.net.is_local(v4),
            None => self.net.is_local_v6(local.v6(), local.scope())?,
        };
        if !ours {
            return Err(EADDRNOTAVAIL);
        }
        let terms = match terms_of(&self.transport, remote, private_data) {
            Ok(terms) => terms,
            Err(e) => {
                let _ = id.reject(&hello(&self.transport).encode());
                return Err(e);
            }
        };
        if !self.transport.may_make_link(&self.net, local, remote) {
            let _ = id.reject(&hello(&self.transport).encode());
            return Err(ENOBUFS);
        }
        let link = Link::new(&self.transport, &self.net, Some(local), remote, true)?;
        id.set_handler(link.clone())?;
        let _ = id.set_ack_timeout(params::ack_timeout());
        let ours = hello(&self.transport).encode();
        if let Err(e) = make_queues(&link, &id) {
            let _ = id.reject(&ours);
            link.fail(failure_of(e));
            return Err(e);
        }
        link.set_terms(terms);
        let result = self.admit(&link, Arc::new(id, GFP_KERNEL), &ours);
        if result.is_err() {
            link.fail(Failure::LinkLost);
        }
        result
    }

    fn admit(
        &self,
        link: &Arc<Link>,
        id: core::result::Result<Arc<CmId>, AllocError>,
        ours: &[u8],
    ) -> Result {
        let id = id?;
        link.keep(&id)?;
        self.transport.add_link(link)?;
        self.transport.probe_links(&self.net, link.remote_ip());
        id.accept(&conn_params(ours))
    }
}

/// A listener that is being made.
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
        if let CmEvent::ConnectRequest { id, private_data } = event {
            // A request that was not taken refuses itself when its id is dropped.
            let _ = this.request(id, private_data);
        }
    }
}
