// SPDX-License-Identifier: GPL-2.0

//! The events of the connection manager for memory links. Handlers never destroy an id: they fail
//! the link, and its work item does.

#![deny(unsafe_code)]

use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Relaxed};
use kernel::sync::{Arc, ArcBorrow};

use super::context::Memory;
use super::host::{Host, State};
use super::link::MemLink;
use super::side::{wr_id, Life, Queues, BLOCK, RX_BLOCKS, SQ_DEPTH, WR_RECV};
use crate::ib::cm::{CmEvent, CmHandler, CmId, ConnParams, Id};
use crate::ib::cq::Cq;
use crate::ib::device::Device;
use crate::ib::dma::{Direction, DmaRegion};
use crate::ib::pd::Pd;
use crate::ib::qp::QpCaps;
use crate::ib::srq::Srq;
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
use crate::proto::vectors::{self, Kind};
use crate::proto::wire::{Denial, Hello, Role, Versions};
use crate::stats::STATS;
use crate::transport::cm::{peer_of, set_timers, to_cm, RESERVED_PORTS, RESOLVE_MS, ROUTE_MS};

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

fn hello(memory: &Memory) -> Hello {
    Hello {
        versions: Versions::OURS,
        nonce: memory.nonce,
        features: 0,
        link_credit: RX_BLOCKS,
        links: 1,
    }
}

/// Credit of a link whose peer said this hello. EPROTO.
fn flow_of(memory: &Memory, private_data: &[u8]) -> Result<LinkFlow> {
    match Hello::decode_with_role(private_data) {
        Ok((Role::Memory, theirs)) if hello(memory).agree(&theirs).is_some() => {
            LinkFlow::new(RX_BLOCKS, theirs.link_credit).ok_or(EPROTO)
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
    let again = link.id.lock().clone();
    if let Some(id) = again {
        return id.resolve_addr(None, to, link.resolve_ms.load(Relaxed));
    }
    let id = Arc::new(CmId::new(&link.host.net, link.clone())?, GFP_KERNEL)?;
    STATS.resources_made.add(1);
    set_timers(&id);
    *link.id.lock() = Some(id.clone());
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
    let attrs = device.attrs();
    let pd = Pd::new(device)?;
    let srq = Srq::new(&pd, RX_BLOCKS, 1)?;
    // Room for all that can be posted, and the last work request.
    let entries = (SQ_DEPTH + RX_BLOCKS + 2).min(attrs.max_cqe);
    let number = link.host.links.fetch_add(1, Relaxed);
    let vector = vectors::vector(Kind::Memory, number, device.num_comp_vectors());
    let cq = Cq::new(device, entries, vector, link.clone())?;
    let max_sge = attrs.max_send_sge.min(32);
    let caps = QpCaps {
        max_send_wr: (SQ_DEPTH + 1).min(attrs.max_qp_wr),
        max_send_sge: max_sge,
        max_inline: 0,
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
    let qp = id.create_qp(&pd, &cq, &cq, &srq, caps)?;
    STATS.resources_made.add(4);
    for n in 0..RX_BLOCKS {
        srq.post(wr_id(WR_RECV, n), &[rx.sge(n as usize * BLOCK, BLOCK)?])?;
    }
    cq.arm()?;
    Ok(Queues {
        qp,
        cq,
        srq,
        rx,
        tx,
        rx_memory,
        tx_memory,
        pd,
        max_sge: max_sge as usize,
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

    /// Gives the side its queues; `flow` where the peer's terms are known. ECONNRESET if the link
    /// is down already.
    fn equip(self: &Arc<Self>, queues: Queues, flow: Option<LinkFlow>) -> Result {
        let queues = Arc::new(queues, GFP_KERNEL)?;
        let st = &mut *self.host.state.lock();
        let side = st.side(self.slot).filter(|s| s.serial == self.serial);
        let side = side.filter(|s| s.life != Life::Down).ok_or(ECONNRESET)?;
        side.queues = Some(queues);
        side.flow = flow;
        Ok(())
    }

    fn on_route(self: &Arc<Self>) -> Result {
        let id = self.id.lock().clone().ok_or(ECONNRESET)?;
        let device = id.device().ok_or(ENODEV)?;
        self.equip(make_queues(self, &id, &device)?, None)?;
        let ours = hello(&self.host.memory).encode_for(Role::Memory);
        id.connect(&ConnParams {
            private_data: &ours,
            ..conn_params(&device)
        })
    }

    /// The link is up, on the side that made it and on the other one.
    fn established(self: &Arc<Self>, private_data: &[u8]) -> Result {
        let memory = &self.host.memory;
        self.host.with(|st| -> Result {
            let side = st.side(self.slot).filter(|s| s.serial == self.serial);
            let side = side.ok_or(ECONNRESET)?;
            // The list may have changed since.
            if !memory.peers.allow(&self.host.net, side.ip) {
                return Err(EPERM);
            }
            if side.flow.is_none() {
                side.flow = Some(flow_of(memory, private_data)?);
            }
            if side.life == Life::Connecting {
                st.link_up(self.slot)?;
            }
            Ok(())
        })?;
        self.schedule_poll();
        Ok(())
    }

    fn rejected(&self, private_data: Option<&[u8]>) -> Error {
        if private_data.and_then(Hello::denial).is_none() {
            return ECONNREFUSED;
        }
        self.host.memory.peers.refused_there.add(1);
        EPERM
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
            CmEvent::Established { private_data } => link.established(private_data),
            CmEvent::AddrError(status) if Error::from_errno(status) == ETIMEDOUT => {
                link.resolve_again()
            }
            CmEvent::AddrError(status) | CmEvent::RouteError(status) => {
                Err(Error::from_errno(status))
            }
            CmEvent::Rejected { private_data, .. } => Err(link.rejected(private_data)),
            CmEvent::ConnectError | CmEvent::Unreachable => Err(EHOSTUNREACH),
            CmEvent::Disconnected | CmEvent::AddrChange => Err(ECONNRESET),
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
        id.bind_addr(to_cm(any, service_port()))?;
        id.listen(16)?;
        Ok(id)
    }
}

/// Most links from one address: a link that is being taken down, and its successor.
const LINKS_PER_PEER: usize = 2;

impl Listener {
    fn request(&self, id: CmId, private_data: &[u8]) -> Result {
        let (remote, _) = peer_of(&self.host.net, &id)?;
        let memory = &self.host.memory;
        let ours = hello(memory).encode_for(Role::Memory);
        let allowed = memory.peers.may_accept(&self.host.net, remote);
        allowed.inspect_err(|_| {
            let denied = hello(memory).encode_denial(Role::Memory, Denial::Listed);
            let _ = id.reject(&denied);
        })?;
        let flow = match flow_of(memory, private_data) {
            Ok(flow) => flow,
            Err(e) => {
                let _ = id.reject(&ours);
                return Err(e);
            }
        };
        let device = id.device().ok_or(ENODEV)?;
        let link = self.host.with(|st| {
            let theirs = st.sides.iter().flatten();
            let theirs = theirs.filter(|s| s.end == End::Node && s.ip == remote);
            if theirs.count() >= LINKS_PER_PEER {
                return Err(ENOBUFS);
            }
            let entered = st.enter(&self.host, End::Node, remote);
            let slot = entered.map_err(|_| ENOBUFS)?;
            st.side(slot).map(|s| s.link.clone()).ok_or(ENOBUFS)
        });
        let link = link.inspect_err(|_| {
            let _ = id.reject(&ours);
        })?;
        let result = Self::admit(&link, id, &device, flow, &ours);
        if let Err(e) = result {
            link.fail(e);
        }
        result
    }

    fn admit(
        link: &Arc<MemLink>,
        id: CmId,
        device: &Device,
        flow: LinkFlow,
        ours: &[u8],
    ) -> Result {
        let id = Arc::new(id, GFP_KERNEL)?;
        id.set_handler(link.clone())?;
        *link.id.lock() = Some(id.clone());
        set_timers(&id);
        link.equip(make_queues(link, &id, device)?, Some(flow))?;
        id.accept(&ConnParams {
            private_data: ours,
            ..conn_params(device)
        })
    }
}

impl CmHandler for Listener {
    fn event(this: ArcBorrow<'_, Self>, _id: &Id, event: CmEvent<'_>) {
        if let CmEvent::ConnectRequest { id, private_data } = event {
            // A request that is not accepted is rejected when its id is dropped.
            let _ = this.request(id, private_data);
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
