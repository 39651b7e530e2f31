// SPDX-License-Identifier: GPL-2.0

//! The events of the connection manager for memory links. Handlers never destroy an id: they fail
//! the link, and its work item does.

#![deny(unsafe_code)]

use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Relaxed};
use kernel::sync::{Arc, ArcBorrow};

use super::context::Memory;
use super::host::{Host, State, LINKS};
use super::link::MemLink;
use super::proof::Theirs;
use super::side::{wr_id, Life, Queues, BLOCK, RX_BLOCKS, WR_RECV};
use crate::ib::cm::{CmEvent, CmHandler, CmId, ConnParams, Id};
use crate::ib::cq::Cq;
use crate::ib::device::Device;
use crate::ib::dma::{Direction, DmaRegion};
use crate::ib::mr_pool::MrPool;
use crate::ib::pd::Pd;
use crate::ib::qp::QpCaps;
use crate::kern::contig::ContigPages;
use crate::kern::errno::{
    EADDRINUSE, EADDRNOTAVAIL, EAFNOSUPPORT, ECONNREFUSED, ECONNRESET, EHOSTUNREACH, ENOBUFS,
    EPROTO,
};
use crate::params;
use crate::proto::addr::Ip;
use crate::proto::link_flow::LinkFlow;
use crate::proto::mem::link::End;
use crate::proto::mem::status::Status;
use crate::proto::proof;
use crate::proto::sizing::{MIN_SGE, SQ_DEPTH};
use crate::proto::vectors::{self, Kind};
use crate::proto::wire::{Denial, Hello, Role, Versions, HELLO_LEN};
use crate::stats::STATS;
use crate::transport::cm::{
    of_cm, peer_of, set_timers, to_cm, RESERVED_PORTS, RESOLVE_MS, ROUTE_MS,
};
use crate::transport::keys::Unproved;

/// The port of memory links is the one behind the port of stream links.
fn service_port() -> u16 {
    params::SERVICE_PORT.get() as u16 + 1
}

fn status_of(e: Error) -> Status {
    if e == ENOMEM || e == ENOBUFS {
        Status::NoMemory
    } else if e == ECONNREFUSED {
        Status::Refused
    } else if e == EPERM {
        Status::Denied
    } else if e == ENODEV {
        Status::NoDevice
    } else {
        Status::Unreachable
    }
}

/// This host's hello. `keyed`: there is a key for the peer.
fn hello(memory: &Memory, keyed: bool) -> Hello {
    Hello {
        versions: Versions::OURS,
        nonce: memory.nonce,
        features: if keyed { proof::FEATURE } else { 0 },
        link_credit: RX_BLOCKS,
        links: 1,
    }
}

/// Credit of a link whose peer said this hello, and the peer's features. EPROTO.
fn flow_of(memory: &Memory, private_data: &[u8]) -> Result<(LinkFlow, u32)> {
    match Hello::decode_with_role(private_data) {
        Ok((Role::Memory, theirs)) if hello(memory, false).agree(&theirs).is_some() => {
            let flow = LinkFlow::new(RX_BLOCKS, theirs.link_credit).ok_or(EPROTO)?;
            Ok((flow, theirs.features))
        }
        _ => Err(EPROTO),
    }
}

/// Starts to connect, or tries again to resolve the address. In a kernel thread. Sleeps.
pub(super) fn connect(link: &Arc<MemLink>) {
    if let Err(e) = try_connect(link) {
        link.fail(e);
    }
}

fn try_connect(link: &Arc<MemLink>) -> Result {
    static NEXT: Atomic<u32> = Atomic::new(0);

    let to = to_cm(link.ip, service_port());
    if let Some(id) = link.id() {
        return id.resolve_addr(None, to, link.resolve_ms.load(Relaxed));
    }
    let id = Arc::new(CmId::new(&link.host.net, link.clone())?, GFP_KERNEL)?;
    STATS.resources_made.add(1);
    set_timers(&id);
    link.keep_id(&id)?;
    let any = link.ip.any_of_family();
    let ports = u32::from(RESERVED_PORTS.end - RESERVED_PORTS.start);
    for _ in 0..ports {
        let n = NEXT.fetch_add(1, Relaxed) % ports;
        let port = RESERVED_PORTS.end - 1 - n as u16;
        match id.resolve_addr(Some(to_cm(any, port)), to, RESOLVE_MS.start) {
            Err(e) if e == EADDRINUSE || e == EADDRNOTAVAIL => continue,
            result => return result,
        }
    }
    Err(ENOBUFS)
}

/// How many READs a device takes at a time, in either direction.
fn reads(device: &Device) -> u8 {
    device.attrs().max_reads.min(16) as u8
}

fn conn_params(device: &Device) -> ConnParams<'static> {
    ConnParams {
        private_data: &[],
        responder_resources: reads(device),
        initiator_depth: reads(device),
        retry_count: params::RETRY_COUNT.get() as u8,
        // Credit normally keeps the peer's receive queue from running empty; this is the fallback.
        rnr_retry_count: 7,
    }
}

/// Makes queue pair, completion queue and buffers, and posts the receives. Sleeps.
fn make_queues(link: &Arc<MemLink>, id: &CmId, device: &Device) -> Result<Queues> {
    if device.is_iwarp() {
        // The sink of a READ has no remote key here. siw would also need each WRITE signaled, and
        // smaller regions.
        return Err(ENODEV);
    }
    let attrs = device.attrs();
    let pd = Pd::new(device)?;
    // Room for all that can be posted, and the last work request.
    let entries = SQ_DEPTH + RX_BLOCKS + 2;
    let number = link.host.links.fetch_add(1, Relaxed);
    let vector = vectors::vector(Kind::Memory, number, device.num_comp_vectors());
    let cq = Cq::new(device, entries, vector, link.clone())?;
    let caps = QpCaps {
        max_send_wr: SQ_DEPTH + 1,
        max_send_sge: attrs.max_send_sge.min(32),
        min_send_sge: MIN_SGE,
        max_inline: 0,
        max_recv_wr: RX_BLOCKS,
        max_recv_sge: 1,
    };
    let pages = |blocks: usize| -> Result<Arc<ContigPages>> {
        let pages = blocks * BLOCK / kernel::page::PAGE_SIZE;
        Ok(Arc::new(
            ContigPages::new(pages, device.numa_node())?,
            GFP_KERNEL,
        )?)
    };
    let rx_memory = pages(RX_BLOCKS as usize)?;
    let tx_memory = pages(RX_BLOCKS as usize / 2)?;
    let rx = DmaRegion::map(&pd, rx_memory.clone(), Direction::FromDevice)?;
    let tx = DmaRegion::map(&pd, tx_memory.clone(), Direction::ToDevice)?;
    let qp = id.create_qp(&pd, &cq, &cq, None, caps)?;
    STATS.resources_made.add(3);
    for n in 0..RX_BLOCKS {
        qp.post_recv(wr_id(WR_RECV, n), &[rx.sge(n as usize * BLOCK, BLOCK)?])?;
    }
    cq.arm()?;
    let max_sge = qp.max_send_sge() as usize;
    let max_read_sge = max_sge.min(attrs.max_read_sge.max(1) as usize);
    Ok(Queues {
        qp,
        cq,
        rx,
        tx,
        rx_memory,
        tx_memory,
        mrs: MrPool::new(&pd)?,
        pd,
        max_sge,
        max_read_sge,
    })
}

impl MemLink {
    /// Ends the link.
    fn fail(self: &Arc<Self>, e: Error) {
        self.host.with(|st| {
            if st.side(self.slot).is_some_and(|s| s.serial == self.serial) {
                st.fail(self.slot, status_of(e));
            }
        });
    }

    fn life(&self) -> Option<Life> {
        let st = &mut *self.host.state.lock();
        let side = st.side(self.slot).filter(|s| s.serial == self.serial);
        side.map(|s| s.life)
    }

    /// Makes the queues of the side; `theirs` where the peer's hello has arrived. Sleeps.
    /// ECONNRESET if the link is down already; ENODEV if a device has failed meanwhile.
    fn equip(self: &Arc<Self>, id: &CmId, device: &Device, theirs: Option<Theirs<'_>>) -> Result {
        let failed = self.host.memory.times_failed();
        let queues = make_queues(self, id, device)?;
        let queues = Arc::new(queues, GFP_KERNEL)?;
        let st = &mut *self.host.state.lock();
        let side = st.side(self.slot).filter(|s| s.serial == self.serial);
        let side = side.filter(|s| s.life != Life::Down).ok_or(ECONNRESET)?;
        side.queues = Some(queues);
        // A failure from here on ends the link.
        if self.host.memory.times_failed() != failed {
            return Err(ENODEV);
        }
        theirs.map_or(Ok(()), |theirs| side.hears(theirs))
    }

    /// This host's hello for the link. ECONNRESET if the link is down already.
    fn hello(self: &Arc<Self>) -> Result<[u8; HELLO_LEN]> {
        let host = &self.host;
        let st = &mut *host.state.lock();
        let side = st.side(self.slot).filter(|s| s.serial == self.serial);
        let side = side.filter(|s| s.life != Life::Down).ok_or(ECONNRESET)?;
        // Under the lock: a key that is added from now on ends this link.
        let keyed = host.memory.peers.keys.has(&host.net, side.ip);
        let ours = hello(&host.memory, keyed).encode_for(Role::Memory);
        side.says(keyed, &ours);
        Ok(ours)
    }

    fn on_route(self: &Arc<Self>) -> Result {
        let id = self.id().ok_or(ECONNRESET)?;
        let device = id.device().ok_or(ENODEV)?;
        self.equip(&id, &device, None)?;
        let ours = self.hello()?;
        id.connect(&ConnParams {
            private_data: &ours,
            ..conn_params(&device)
        })
    }

    /// The queue pair is connected, on the side that made the link and on the other one.
    fn established(self: &Arc<Self>, id: &Id, private_data: &[u8], peer_qp: u32) -> Result {
        let memory = &self.host.memory;
        let local = of_cm(id, id.local_addr()).ok_or(EADDRNOTAVAIL)?.ip;
        self.host.with(|st| -> Result {
            let side = st.side(self.slot).filter(|s| s.serial == self.serial);
            let side = side.ok_or(ECONNRESET)?;
            // The list may have changed since.
            if !memory.peers.allow(&self.host.net, side.ip) {
                return Err(EPERM);
            }
            if side.flow.is_none() {
                let (flow, features) = flow_of(memory, private_data)?;
                if side.proto.is_keyed() && features & proof::FEATURE == 0 {
                    st.unproved(&memory.peers, self.slot, Unproved::Unoffered);
                    return Ok(());
                }
                side.hears(Theirs {
                    flow,
                    hello: private_data,
                    local,
                    qp: peer_qp,
                })?;
            }
            if side.life == Life::Connecting {
                st.connected(self.slot)?;
            }
            Ok(())
        })?;
        self.schedule_poll();
        Ok(())
    }

    fn rejected(&self, private_data: Option<&[u8]>) -> Error {
        let Some(why) = private_data.and_then(Hello::denial) else {
            return ECONNREFUSED;
        };
        self.host.memory.peers.rejected(self.ip, why);
        EPERM
    }

    /// The peer has ended the link. ECONNRESET, unless it did so in the middle of the proof.
    fn disconnected(self: &Arc<Self>) -> Result {
        self.host.with(|st| {
            let side = st.side(self.slot).filter(|s| s.serial == self.serial);
            match side.map(|s| s.life) {
                Some(Life::Proving) => {
                    let why = Unproved::RefusedThere;
                    st.unproved(&self.host.memory.peers, self.slot, why);
                    Ok(())
                }
                _ => Err(ECONNRESET),
            }
        })
    }

    fn resolve_again(self: &Arc<Self>) -> Result {
        let ms = self.resolve_ms.load(Relaxed).max(RESOLVE_MS.start) * 2;
        if ms > RESOLVE_MS.end {
            return Err(ETIMEDOUT);
        }
        self.resolve_ms.store(ms, Relaxed);
        self.start();
        Ok(())
    }
}

impl CmHandler for MemLink {
    fn event(this: ArcBorrow<'_, Self>, id: &Id, event: CmEvent<'_>) {
        let link: Arc<MemLink> = this.into();
        let result = match event {
            CmEvent::AddrResolved => id.resolve_route(ROUTE_MS),
            CmEvent::RouteResolved => link.on_route(),
            CmEvent::Established {
                private_data,
                peer_qp,
            } => link.established(id, private_data, peer_qp),
            CmEvent::AddrError(status) if Error::from_errno(status) == ETIMEDOUT => {
                link.resolve_again()
            }
            CmEvent::AddrError(status) | CmEvent::RouteError(status) => {
                Err(Error::from_errno(status))
            }
            CmEvent::Rejected { private_data, .. } => Err(link.rejected(private_data)),
            // The peer's reply to our reply was lost, but a message of it has arrived.
            CmEvent::Unreachable if matches!(link.life(), Some(Life::Proving | Life::Up)) => Ok(()),
            CmEvent::ConnectError | CmEvent::Unreachable => Err(EHOSTUNREACH),
            CmEvent::Disconnected => link.disconnected(),
            CmEvent::AddrChange => Err(ECONNRESET),
            CmEvent::DeviceRemoval => Err(ENODEV),
            CmEvent::TimewaitExit => Ok(()),
            CmEvent::ConnectRequest { .. } | CmEvent::ConnectResponse | CmEvent::Other => {
                Err(EPROTO)
            }
        };
        if let Err(e) = result {
            link.fail(e);
        }
    }
}

/// Accepts the memory links that other hosts make.
struct Listener {
    host: Arc<Host>,
}

/// The ids that accept links, one for each address family, until it is dropped; that waits for
/// their handlers, which take the host's lock.
pub(super) struct Listening {
    _v4: CmId,
    /// None where the kernel has no IPv6.
    _v6: Option<CmId>,
}

impl Listening {
    /// Listens in the namespace of `host`. Sleeps. EACCES without CAP_NET_BIND_SERVICE, EADDRINUSE.
    pub(super) fn new(host: &Arc<Host>) -> Result<Self> {
        let v4 = Self::open(host, Ip::ANY_V4)?;
        let v6 = match Self::open(host, Ip::ANY) {
            Err(e) if e == EAFNOSUPPORT => None,
            id => Some(id?),
        };
        Ok(Self { _v4: v4, _v6: v6 })
    }

    fn open(host: &Arc<Host>, any: Ip) -> Result<CmId> {
        let listener = Listener { host: host.clone() };
        let id = CmId::new(&host.net, Arc::new(listener, GFP_KERNEL)?)?;
        id.set_afonly(true)?;
        let bound = id.bind_addr(to_cm(any, service_port()));
        // If the port is in use, the core returns EADDRNOTAVAIL, as the address is any.
        bound.map_err(|e| match e {
            e if e == EADDRNOTAVAIL => EADDRINUSE,
            e => e,
        })?;
        id.listen(16)?;
        Ok(id)
    }
}

/// Most links from one address that have not ended: that of a host that has restarted, and its
/// successor. So many more may be on their way down.
const LINKS_PER_PEER: usize = 2;
/// Most links of all peers that have not come up, those among them that are on their way down
/// included: the others are for peers that have proved their key, and for this host's own.
const HALF_MADE_MOST: usize = LINKS / 4;

impl Listener {
    fn request(&self, id: CmId, private_data: &[u8], peer_qp: u32) -> Result {
        let (remote, local) = peer_of(&self.host.net, &id)?;
        let memory = &self.host.memory;
        let (peers, net) = (&memory.peers, &self.host.net);
        let flow = match flow_of(memory, private_data) {
            Ok((flow, _)) => flow,
            Err(e) => {
                let keyed = peers.keys.has(net, remote);
                let _ = id.reject(&hello(memory, keyed).encode_for(Role::Memory));
                return Err(e);
            }
        };
        let device = id.device().ok_or(ENODEV)?;
        let entered = self.host.with(|st| {
            // Under the lock: a key that is added, or a peer that is denied, from now on ends this
            // link.
            let keyed = peers.keys.has(net, remote);
            let hello = hello(memory, keyed);
            let ours = hello.encode_for(Role::Memory);
            peers
                .may_accept(net, remote)
                .map_err(|e| (e, hello.encode_denial(Role::Memory, Denial::Listed)))?;
            if let Err(why) = peers.keys.check_offer(remote, keyed, private_data) {
                return Err((EACCES, hello.encode_denial(Role::Memory, why)));
            }
            let link = self.enter(st, remote).map_err(|e| (e, ours))?;
            if let Some(side) = st.side(link.slot) {
                side.says(keyed, &ours);
            }
            Ok((link, ours))
        });
        let (link, ours) = entered.map_err(|(e, no)| {
            let _ = id.reject(&no);
            e
        })?;
        let theirs = Theirs {
            flow,
            hello: private_data,
            local,
            qp: peer_qp,
        };
        let result = Self::admit(&link, id, &device, theirs, &ours);
        if let Err(e) = result {
            link.fail(e);
        }
        result
    }

    /// A new link from `remote`. If it has too many, the oldest that is not up ends. A link that is
    /// up does not end because of a mere request. ENOBUFS.
    fn enter(&self, st: &mut State, remote: Ip) -> Result<Arc<MemLink>> {
        let nodes = || st.sides.iter().flatten().filter(|s| s.end == End::Node);
        let theirs = || nodes().filter(|s| s.ip == remote);
        let half_made = nodes().filter(|s| s.life != Life::Up && !s.was_up).count();
        if half_made >= HALF_MADE_MOST || theirs().count() >= 2 * LINKS_PER_PEER {
            return Err(ENOBUFS);
        }
        if theirs().filter(|s| s.life != Life::Down).count() >= LINKS_PER_PEER {
            let begun = theirs().filter(|s| matches!(s.life, Life::Connecting | Life::Proving));
            let oldest = begun.min_by_key(|s| s.serial).map(|s| s.link.slot);
            st.fail(oldest.ok_or(ENOBUFS)?, Status::Lost);
        }
        let entered = st.enter(&self.host, End::Node, remote);
        let slot = entered.map_err(|_| ENOBUFS)?;
        st.side(slot).map(|s| s.link.clone()).ok_or(ENOBUFS)
    }

    fn admit(
        link: &Arc<MemLink>,
        id: CmId,
        device: &Device,
        theirs: Theirs<'_>,
        ours: &[u8],
    ) -> Result {
        let id = Arc::new(id, GFP_KERNEL)?;
        link.keep_id(&id)?;
        id.set_handler(link.clone())?;
        set_timers(&id);
        link.equip(&id, device, Some(theirs))?;
        id.accept(&ConnParams {
            private_data: ours,
            ..conn_params(device)
        })
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

impl State {
    /// Ends a link that has failed without a completion.
    pub(super) fn end_if_broken(&mut self, slot: usize, serial: u64) {
        let side = self.side(slot).filter(|s| s.serial == serial);
        if side.is_some_and(|s| s.link.is_broken()) {
            self.fail(slot, Status::Lost);
        }
    }
}
