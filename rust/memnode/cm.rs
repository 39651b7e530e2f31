// SPDX-License-Identifier: GPL-2.0

//! Memory links as the connection manager's handlers, their queues, and the [`Listener`] that
//! accepts them. See `qp_link.rs` for what links have in common.

#![deny(unsafe_code)]

use kernel::prelude::*;
use kernel::sync::atomic::Relaxed;
use kernel::sync::{Arc, ArcBorrow};

use super::context::Memory;
use super::host::{now_ms, Host, State, LINKS};
use super::link::MemLink;
use super::proof::Theirs;
use super::side::{Life, Queues, Side, BLOCK, RX_BLOCKS};
use crate::ib::cm::{CmEvent, CmHandler, CmId, Id};
use crate::ib::cq::Cq;
use crate::ib::device::Device;
use crate::ib::dma::Direction;
use crate::ib::mr_pool::MrPool;
use crate::ib::pd::Pd;
use crate::ib::qp::QpCaps;
use crate::kern::errno::{EADDRINUSE, EADDRNOTAVAIL, ECONNREFUSED, ECONNRESET, ENOBUFS, EPROTO};
use crate::params;
use crate::proto::addr::Ip;
use crate::proto::half_made::{self, Bounds, HalfMade, Verdict};
use crate::proto::link_flow::LinkFlow;
use crate::proto::mem::link::End;
use crate::proto::mem::status::Status;
use crate::proto::proof;
use crate::proto::sizing::{MIN_SGE, SQ_DEPTH};
use crate::proto::vectors::{self, Kind};
use crate::proto::wire::{Denial, Hello, Role, Versions, HELLO_LEN};
use crate::qp_link::address::{of_cm, peer_of, to_cm};
use crate::qp_link::buffers::Buffers;
use crate::qp_link::{self, conn_params, set_timers, LinkId, Listening, QpLink};
use crate::stats::STATS;
use crate::transport::keys::Unproved;

/// The port of memory links is the one behind the port of stream links.
pub(super) fn service_port() -> u16 {
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
    let to = to_cm(link.ip, service_port());
    if let Some(id) = link.id.get() {
        return link.id.resolve_again(&id, to);
    }
    let id = Arc::new(CmId::new(&link.host.net, link.clone())?, GFP_KERNEL)?;
    STATS.resources_made.add(1);
    set_timers(&id);
    link.id.keep(&id)?;
    let first = link.host.memory.nonce as u32;
    link.id.resolve(&id, link.ip.any_of_family(), to, first)
}

/// How many READs a device takes at a time, in either direction.
fn reads(device: &Device) -> u8 {
    device.attrs().max_reads.min(16) as u8
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
    let rx = Buffers::new(&pd, RX_BLOCKS as usize, BLOCK, Direction::FromDevice)?;
    let tx = Buffers::new(&pd, RX_BLOCKS as usize / 2, BLOCK, Direction::ToDevice)?;
    let qp = id.create_qp(&pd, &cq, &cq, None, caps)?;
    STATS.resources_made.add(3);
    cq.arm()?;
    let max_sge = qp.max_send_sge() as usize;
    let max_read_sge = max_sge.min(attrs.max_read_sge.max(1) as usize);
    let queues = Queues {
        qp,
        cq,
        rx,
        tx,
        mrs: MrPool::new(&pd)?,
        pd,
        max_sge,
        max_read_sge,
    };
    (0..RX_BLOCKS).try_for_each(|n| queues.post_recv(n))?;
    Ok(queues)
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
}

impl CmHandler for MemLink {
    fn event(this: ArcBorrow<'_, Self>, id: &Id, event: CmEvent<'_>) {
        let link: Arc<MemLink> = this.into();
        if let Err(e) = qp_link::handle(&link, id, event) {
            link.fail(e);
        }
    }
}

impl QpLink for MemLink {
    fn id(&self) -> &LinkId {
        &self.id
    }

    fn start_connecting(self: &Arc<Self>) {
        self.start();
    }

    fn is_connected(&self) -> bool {
        matches!(self.life(), Some(Life::Proving | Life::Up))
    }

    fn route_resolved(self: &Arc<Self>) -> Result {
        let id = self.id.get().ok_or(ECONNRESET)?;
        let device = id.device().ok_or(ENODEV)?;
        self.equip(&id, &device, None)?;
        let ours = self.hello()?;
        id.connect(&conn_params(&ours, reads(&device)))
    }

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

    fn rejected(self: &Arc<Self>, _reason: i32, private_data: Option<&[u8]>) -> Result {
        let Some(why) = private_data.and_then(Hello::denial) else {
            return Err(ECONNREFUSED);
        };
        self.host.memory.peers.rejected(self.ip, why);
        Err(EPERM)
    }

    /// ECONNRESET, unless the peer did so in the middle of the proof.
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

    fn address_changed(self: &Arc<Self>) -> Result {
        Err(ECONNRESET)
    }
}

/// Accepts the memory links that other hosts make.
pub(super) struct Listener {
    host: Arc<Host>,
}

impl Listener {
    /// Listens in the namespace of `host`. The handlers take the host's lock. Sleeps. EACCES
    /// without CAP_NET_BIND_SERVICE, EADDRINUSE.
    pub(super) fn start(host: &Arc<Host>) -> Result<Listening> {
        let listening = Listening::new(&host.net, service_port(), 16, || {
            Ok(Arc::new(Self { host: host.clone() }, GFP_KERNEL)?)
        });
        listening.map_err(|e| match e {
            e if e == EADDRNOTAVAIL => EADDRINUSE,
            e => e,
        })
    }
}

/// Most links from one address that have not ended: that of a host that has restarted, and its
/// successor. So many more may be on their way down.
const LINKS_PER_PEER: usize = 2;
/// The most half-made links, those that are being taken down included: of all peers a quarter of
/// [`LINKS`], and no more than a half while some of them end for others. The other places are for
/// peers that have proved their key, and for the links that this host makes.
const HALF_MADE: Bounds = Bounds {
    most: LINKS / 4,
    one: LINKS_PER_PEER,
};
/// How long a half-made link does not end for another request, in milliseconds.
const FRESH_MS: u64 = 250;

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

    /// A new link from `remote`. If it has too many, the oldest that is not up ends. Of those that
    /// are not up [`half_made::judge`] decides. A link that is up does not end because of a mere
    /// request. ENOBUFS, ENOMEM.
    fn enter(&self, st: &mut State, remote: Ip) -> Result<Arc<MemLink>> {
        let nodes = || st.sides.iter().flatten().filter(|s| s.end == End::Node);
        let theirs = || nodes().filter(|s| s.ip == remote);
        if theirs().count() >= 2 * LINKS_PER_PEER {
            return Err(ENOBUFS);
        }
        let mut own = None;
        if theirs().filter(|s| s.life != Life::Down).count() >= LINKS_PER_PEER {
            let begun = theirs().filter(|s| matches!(s.life, Life::Connecting | Life::Proving));
            let oldest = begun.min_by_key(|s| s.serial).map(|s| s.link.slot);
            own = Some(oldest.ok_or(ENOBUFS)?);
        }
        self.judge(st, remote)?;
        if let Some(slot) = own {
            st.fail(slot, Status::Lost);
        }
        let entered = st.enter(&self.host, End::Node, remote);
        let slot = entered.map_err(|_| ENOBUFS)?;
        st.side(slot).map(|s| s.link.clone()).ok_or(ENOBUFS)
    }

    /// Whether the half-made links leave room for another one, of `remote`; one may end for it.
    /// ENOBUFS, ENOMEM.
    fn judge(&self, st: &mut State, remote: Ip) -> Result {
        let half = |ip, ends| HalfMade {
            net: half_made::network_of(ip),
            ip,
            // Links to several addresses of a host are not told apart.
            to: Ip::ANY,
            ends,
        };
        let mut begun = KVec::with_capacity(st.sides.len(), GFP_KERNEL)?;
        let sides = st.sides.iter().flatten();
        for s in sides.filter(|s| s.end == End::Node && s.life != Life::Up && !s.was_up) {
            // The oldest first.
            let at = begun.iter().position(|b: &(u64, usize)| b.0 > s.serial);
            let at = at.unwrap_or(begun.len());
            let entered = begun.insert_within_capacity(at, (s.serial, s.link.slot));
            entered.map_err(|_| ENOMEM)?;
        }
        // Those that end for others are gone soon; until then they count.
        if begun.len() >= 2 * HALF_MADE.most {
            return Err(ENOBUFS);
        }
        let mut links = KVec::with_capacity(begun.len(), GFP_KERNEL)?;
        for &(_, slot) in &begun {
            if let Some(s) = st.side(slot) {
                links.push(half(s.ip, s.life == Life::Down), GFP_KERNEL)?;
            }
        }
        let verdict = half_made::judge(&links, &half(remote, false), HALF_MADE);
        let (end, granted) = match verdict {
            Verdict::Granted(end) => (end, true),
            Verdict::Refused(end) => (end, false),
        };
        let end = end.and_then(|i| begun.get(i)).map(|b| b.1);
        let fresh = |s: &Side| now_ms().saturating_sub(s.begun_ms) < FRESH_MS;
        if let Some(slot) = end.filter(|at| granted || st.side(*at).is_some_and(|s| !fresh(s))) {
            st.fail(slot, Status::Lost);
        }
        granted.then_some(()).ok_or(ENOBUFS)
    }

    fn admit(
        link: &Arc<MemLink>,
        id: CmId,
        device: &Device,
        theirs: Theirs<'_>,
        ours: &[u8],
    ) -> Result {
        let id = Arc::new(id, GFP_KERNEL)?;
        link.id.keep(&id)?;
        id.set_handler(link.clone())?;
        set_timers(&id);
        link.equip(&id, device, Some(theirs))?;
        id.accept(&conn_params(ours, reads(device)))
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
