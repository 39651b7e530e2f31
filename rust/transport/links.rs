// SPDX-License-Identifier: GPL-2.0

//! The links of the transport, in groups by peer: which link carries a new channel, which unused
//! links end, and when the peers are probed.
//!
//! Locks: `links` (mutex), before a link's `tx`; `keepalive_at` (mutex), a leaf.

#![deny(unsafe_code)]

use kernel::prelude::*;
use kernel::sync::atomic::Relaxed;
use kernel::sync::Arc;
use kernel::time::msecs_to_jiffies;
use kernel::workqueue::WorkItem;

use super::context::{Transport, IDLE_LINKS, KEEPALIVE};
use super::link::{Link, LinkState};
use crate::kern::errno::EDQUOT;
use crate::kern::fault;
use crate::kern::net::Net;
use crate::kern::task::now_ns;
use crate::params;
use crate::pool::lessee::DeviceLinks;
use crate::pool::Pool;
use crate::proto::addr::Ip;
use crate::proto::channel::Failure;
use crate::proto::half_made::{self, Bounds, HalfMade, Verdict};
use crate::proto::quota::{Holder, Shares};
use crate::qp_link::RESERVED_PORTS;

/// Source ports of a network namespace that are for the administrator's links.
const ADMIN_PORTS: u32 = 32;

/// How long a link without channels stays in a namespace without sockets, in milliseconds.
const IDLE_MS: u32 = 1000;
/// When a link without channels is checked again if its last messages are not acknowledged, in
/// milliseconds.
const DELIVERED_MS: u32 = 20;
/// The longest interval between checks of links without channels in a namespace with sockets, in
/// milliseconds.
const UNUSED_MS: u32 = 5000;
/// When the peers are checked again if there was no memory for the list of links, in nanoseconds.
const NO_MEMORY_NS: u64 = 1_000_000_000;
/// How long the channels of a namespace without sockets may take to close, in nanoseconds.
const ORPHAN_NS: u64 = 10_000_000_000;

/// How long no group grows after one has, in nanoseconds: the new link may fail.
const GROW_NS: u64 = 100_000_000;

/// How long a link must have carried no datagram to make room for another one of its maker, in
/// nanoseconds.
const UNUSED_NS: u64 = 1_000_000_000;

/// How long a half-made link does not end for another one that a peer asks for, in nanoseconds.
const FRESH_NS: u64 = 250_000_000;
/// How long a link does not end to keep room for others, in nanoseconds from when it was made, came
/// up or was used. No link takes as long to come up, so that none ends before.
const KEPT_NS: u64 = HALF_MADE_NS;

/// How long a link that a peer makes may take to come up, in nanoseconds. The connection manager's
/// own limit is the peer's choice.
const HALF_MADE_NS: u64 = 5_000_000_000;

/// Most links that one address may have: a group, and one more, because its host may have
/// restarted. Up to twice that number may exist at a time, because links keep their blocks until
/// their teardown is done.
fn accepted_most() -> usize {
    params::LINKS_PER_PEER.get() as usize + 1
}

/// The result of the search for an unused link, on a device that has no blocks for another one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Evicted {
    /// The device has no unused link that may end.
    None,
    /// An unused link was ended.
    One,
    /// The last messages of the unused links are not acknowledged yet.
    Soon,
}

/// On whose behalf a link is made.
#[derive(Clone, Copy)]
pub(crate) struct Asker {
    /// The administrator's.
    pub(crate) for_admin: bool,
    /// The user's who may have no more than `asking_per_user` such links that are not up yet.
    pub(crate) limited: Option<u32>,
    /// The user and the namespace whose share of a device's links a new link counts against.
    pub(crate) holder: Holder,
    /// Datagrams are sent: a new link counts against the quota of such links as well.
    pub(crate) by_dgram: bool,
}

impl Asker {
    /// The holder whose quota of the links that datagrams make a new link counts against.
    pub(super) fn charged(&self) -> Option<Holder> {
        self.by_dgram.then_some(self.holder)
    }
}

/// Whether `holder` may have another link with a source port of `net`: the last ones are the
/// administrator's, and a user leaves some to others.
fn leaves_ports(links: &[Arc<Link>], net: &Net, holder: Holder) -> bool {
    let Some(user) = holder.user else {
        return true;
    };
    let (mut own, mut all) = (0, 0);
    let made = links.iter().filter(|l| !l.accepted && l.net == *net);
    for other in made.filter_map(|l| l.holder?.user) {
        own += u32::from(other == user);
        all += 1;
    }
    let shares = Shares {
        most: RESERVED_PORTS.len() as u32 - ADMIN_PORTS,
        user_percent: params::USER_PERCENT.get(),
        net_most: u32::MAX,
    };
    shares.gives(own, all)
}

impl Transport {
    /// A copy of the list of links. ENOMEM.
    pub(crate) fn snapshot(&self) -> Result<KVec<Arc<Link>>> {
        let mut out = KVec::new();
        for link in self.links.lock().iter() {
            out.push(link.clone(), GFP_KERNEL)?;
        }
        Ok(out)
    }

    /// How many links there are.
    pub(crate) fn link_count(&self) -> usize {
        self.links.lock().len()
    }

    /// Returns the link to `remote` that has the fewest channels of its group. Adds a link to the
    /// group if that link has many channels, or if its senders often found it full. `local`: the
    /// source address. EMLINK: the asker has too many links that are not up yet. EDQUOT: its quota
    /// of links is used. EACCES: the list of peers does not allow it. Sleeps.
    pub(crate) fn link_to(
        self: &Arc<Self>,
        net: &Net,
        local: Option<Ip>,
        remote: Ip,
        asker: Asker,
    ) -> Result<Arc<Link>> {
        self.peers.may_connect(net, remote)?;
        let mut links = self.links.lock();
        let (mut best, mut group, mut growing) = (None, 0, false);
        for link in links.iter() {
            let ours = link.net == *net && !link.accepted && link.remote_ip() == remote;
            if !ours || local.is_some_and(|ip| link.local_ip() != ip) {
                continue;
            }
            let connecting = match link.state() {
                LinkState::Connecting => true,
                LinkState::Up => false,
                LinkState::Down => continue,
            };
            group += 1;
            growing |= connecting;
            // A link that is still connecting may fail: it is used only if the group has no other.
            let key = (connecting, link.channels());
            if best.as_ref().is_none_or(|(other, _)| key < *other) {
                best = Some((key, link.clone()));
            }
        }
        let Some(((_, channels), best)) = best else {
            if let Some(user) = asker.limited {
                let asked =
                    |l: &&Arc<Link>| l.is_asked_by(user) && l.state() == LinkState::Connecting;
                let most = params::ASKING_PER_USER.get() as usize;
                if links.iter().filter(asked).count() >= most {
                    return Err(EMLINK);
                }
            }
            let made = self.make_link(&mut links, net, local, remote, asker);
            if let (Ok(link), Some(user)) = (&made, asker.limited) {
                link.set_asked_by(user);
            }
            drop(links);
            if made.as_ref().is_err_and(|e| *e == EDQUOT) {
                self.evict_idle_link_of(asker.holder);
            }
            let link = made?;
            link.start();
            return Ok(link);
        };
        if asker.for_admin {
            best.set_for_admin();
        }
        let most = params::LINKS_PER_PEER.get().min(best.peer_takes());
        let crowded = channels >= params::LINK_CHANNELS.get() as usize || best.is_short();
        let now = now_ns();
        let lately = now.saturating_sub(self.grown.load(Relaxed)) < GROW_NS;
        if crowded && !growing && group < most && !lately {
            self.grown.store(now, Relaxed);
            // Without memory or quota for another link, the present ones are used.
            if let Ok(link) = self.make_link(&mut links, net, local, remote, asker) {
                drop(links);
                link.start();
            }
        }
        Ok(best)
    }

    /// Adds a link of this host to `links`. Sleeps. EDQUOT, ENOMEM.
    fn make_link(
        self: &Arc<Self>,
        links: &mut KVec<Arc<Link>>,
        net: &Net,
        local: Option<Ip>,
        remote: Ip,
        asker: Asker,
    ) -> Result<Arc<Link>> {
        if !leaves_ports(links, net, asker.holder) {
            return Err(EDQUOT);
        }
        // It is counted when the peer has answered, and blocks are promised.
        if !asker.for_admin && !self.pools.may_share(net, asker.holder) {
            return Err(EDQUOT);
        }
        links.reserve(1, GFP_KERNEL)?;
        let link = Link::new(self, net, local, remote, Some(asker))?;
        if let Some(holder) = asker.charged() {
            self.dgram_links.take(holder)?;
        }
        // There is room.
        links.push(link.clone(), GFP_KERNEL)?;
        Ok(link)
    }

    /// A holder has used its quota of links: ends the one of them that has been unused for longest,
    /// so that another one can be made.
    fn evict_idle_link_of(&self, holder: Holder) {
        let now = now_ns();
        let Ok(links) = self.snapshot() else { return };
        let unused = links
            .into_iter()
            .filter(|l| l.holder == Some(holder) && l.state() != LinkState::Down)
            .filter_map(|l| Some((l.idle_for(now)?, l)))
            .filter(|(idle, l)| *idle > UNUSED_NS && l.has_delivered())
            .max_by_key(|(idle, _)| *idle);
        if let Some((_, link)) = unused {
            link.fail(Failure::LinkLost);
        }
    }

    /// Whether a link that carries connects to `remote` is up. `local`: the source address.
    pub(crate) fn has_link_to(&self, net: &Net, local: Option<Ip>, remote: Ip) -> bool {
        self.links.lock().iter().any(|link| {
            link.net == *net
                && !link.accepted
                && link.remote_ip() == remote
                && link.state() == LinkState::Up
                && local.is_none_or(|ip| link.local_ip() == ip)
        })
    }

    /// Whether `remote` may make another link on `pool` now: it has not too many, and there are
    /// blocks for one. A peer that makes links faster than they can be taken down would use up all
    /// blocks of the device.
    ///
    /// Of half-made links [`half_made::judge`] decides. No link that is up ends for a peer's
    /// request, which any host can forge: [`Self::keep_room`] keeps blocks for a link. Sleeps.
    pub(crate) fn may_make_link(&self, net: &Net, local: Ip, remote: Ip, pool: &Arc<Pool>) -> bool {
        self.has_share(net, local, remote, pool) && pool.may_promise(false)
    }

    /// Whether `remote` and the half-made links of all leave room for another one. See
    /// [`Self::may_make_link`].
    fn has_share(&self, net: &Net, local: Ip, remote: Ip, pool: &Arc<Pool>) -> bool {
        let links = self.links.lock();
        let is_theirs = |l: &&Arc<Link>| l.accepted && l.is_from(net, local, remote);
        if links.iter().filter(is_theirs).count() >= 2 * accepted_most() {
            return false;
        }
        // Without memory the request is refused.
        let Ok(mut half_made) = KVec::with_capacity(links.len(), GFP_KERNEL) else {
            return false;
        };
        let at = |net, ip, to, ends| HalfMade {
            net: (net, half_made::network_of(ip)),
            ip,
            to,
            ends,
        };
        let mut refs = KVec::new();
        for link in links.iter() {
            let Some(ends) = link.half_made_on(pool) else {
                continue;
            };
            let half = at(&link.net, link.remote_ip(), link.local_ip(), ends);
            let kept = half_made.push(half, GFP_KERNEL).is_ok();
            if !kept || refs.push(link, GFP_KERNEL).is_err() {
                return false;
            }
        }
        let bounds = Bounds::new(pool.layout.links_most(), accepted_most());
        let new = at(net, remote, local, false);
        let (end, granted) = match half_made::judge(&half_made, &new, bounds) {
            Verdict::Granted(end) => (end, true),
            Verdict::Refused(end) => (end, false),
        };
        let end = end.and_then(|i| refs.get(i));
        if let Some(link) = end.filter(|l| granted || !l.is_younger(FRESH_NS, now_ns())) {
            link.fail(Failure::TimedOut);
        }
        granted
    }

    /// A link has come up: where it has taken the last blocks of `pool`, an unused link ends soon.
    pub(super) fn look_for_room(self: &Arc<Self>, pool: &Pool) {
        if !pool.may_promise(false) {
            self.look_for_idle_in(0);
        }
    }

    /// Where all blocks of a device are promised and none are about to come back, the link that has
    /// been unused for longest ends: so there is room for a link that a peer asks for. Not where
    /// a half-made link has the last blocks, as any host can forge a request for one. Returns
    /// whether one of the devices of `links` has no room. Sleeps.
    fn keep_room(&self, links: &[Arc<Link>]) -> bool {
        let full = |pool: &Arc<Pool>| !pool.may_promise(false) && !pool.returns().are_due();
        let asked = |pool: &Arc<Pool>| {
            let half_made = |l: &&Arc<Link>| l.accepted && l.state() == LinkState::Connecting;
            let mut half_made = links.iter().filter(half_made);
            half_made.any(|l| l.is_promised_by(pool))
        };
        let (mut lacks, mut pools) = (false, KVec::<Arc<Pool>>::new());
        for pool in links.iter().filter_map(|link| link.pool()) {
            let is_new = !pools.iter().any(|p| Arc::ptr_eq(p, &pool));
            if is_new && full(&pool) {
                lacks |= asked(&pool) || self.evict_idle_link(&pool, KEPT_NS) != Evicted::One;
            }
            // Without memory a pool is looked at once more.
            if is_new {
                let _ = pools.push(pool, GFP_KERNEL);
            }
        }
        lacks
    }

    /// Adds a link that the peer makes. ENOMEM.
    pub(crate) fn add_link(self: &Arc<Self>, link: &Arc<Link>) -> Result {
        self.links.lock().push(link.clone(), GFP_KERNEL)?;
        self.look_for_idle();
        Ok(())
    }

    /// Whether the peer has made more links since `link` than it may have, all of them up: it has
    /// restarted, or it exceeds its share.
    fn has_too_many_since(&self, link: &Arc<Link>) -> bool {
        let links = self.links.lock();
        let newer = links
            .iter()
            .skip_while(|l| !Arc::ptr_eq(l, link))
            .skip(1)
            .filter(|l| l.is_sibling(link) && l.state() == LinkState::Up);
        newer.count() >= accepted_most()
    }

    /// A link to `remote` has ended, or the peer is making a new one. The other links may lead to a
    /// host that is gone, which is noticed only when something is sent: probes them.
    pub(crate) fn probe_links(&self, net: &Net, remote: Ip) {
        // Without memory for the list, the loss is noticed later.
        for link in self.snapshot().into_iter().flatten() {
            if link.net == *net && link.remote_ip() == remote {
                link.probe();
            }
        }
    }

    /// Removes a link whose teardown is done.
    pub(crate) fn forget_link(&self, link: &Arc<Link>) {
        let gone = {
            let mut links = self.links.lock();
            let at = links.iter().position(|l| Arc::ptr_eq(l, link));
            at.and_then(|i| links.remove(i).ok())
        };
        let Some(gone) = gone else { return };
        if let Some(holder) = gone.charged {
            self.dgram_links.give(holder);
        }
        self.counts.count(&gone.net, |counts| {
            counts.tx_bytes = counts.tx_bytes.wrapping_add(gone.tx_bytes.get());
            counts.rx_bytes = counts.rx_bytes.wrapping_add(gone.rx_bytes.get());
        });
    }

    /// Moves unread data of connections without a link out of blocks of the shared receive queues.
    /// Sleeps.
    pub(super) fn vacate_blocks(&self) {
        let mut q = 0;
        while let Some((at, conn)) = self.table.next_from(q) {
            conn.vacate_blocks();
            q = at + 1;
        }
    }

    /// Ends the links on a device, all at once, and says whether there was one.
    pub(crate) fn fail_links_of(&self, pool: &Arc<Pool>, why: &str) -> bool {
        let on_it = |l: &&Arc<Link>| l.pool().is_some_and(|p| Arc::ptr_eq(&p, pool));
        let mut found = false;
        for link in self.links.lock().iter().filter(on_it) {
            link.fail_and_log(Failure::NoDevice, why);
            found = true;
        }
        found
    }

    /// Ends the links on a device that is being removed, and waits until they are gone. Sleeps.
    pub(crate) fn drop_links_of(&self, pool: &Arc<Pool>) {
        while self.fail_links_of(pool, "its device goes") {
            // Their teardowns run side by side. A link that was being made meanwhile is next.
            self.queue.flush();
        }
    }

    /// A link has lost its last channel, or a namespace its last socket.
    pub(crate) fn look_for_idle(self: &Arc<Self>) {
        self.look_for_idle_in(IDLE_MS);
    }

    /// Checks for idle links in `ms` milliseconds, or sooner if an earlier check is due.
    fn look_for_idle_in(self: &Arc<Self>, ms: u32) {
        let due = now_ns().saturating_add(u64::from(ms) * 1_000_000);
        if due >= self.idle_at.load(Relaxed) {
            return;
        }
        self.idle_at.store(due, Relaxed);
        self.queue
            .enqueue_or_move::<Transport, IDLE_LINKS>(self.clone(), msecs_to_jiffies(ms));
    }

    /// Ends the links of namespaces without sockets, so that a namespace (which a link pins) can
    /// go away.
    fn end_idle(self: &Arc<Self>) {
        // A request from here on schedules another check.
        self.idle_at.store(u64::MAX, Relaxed);
        self.continue_links();
        let now = now_ns();
        let unused_ns = u64::from(params::LINK_IDLE_MS.get()) * 1_000_000;
        let (mut again, mut unused) = (None, false);
        let Ok(links) = self.snapshot() else {
            // No memory now: try again later.
            self.look_for_idle();
            return;
        };
        for link in &links {
            match link.state() {
                LinkState::Down => continue,
                LinkState::Connecting if link.check_proof(now) => {
                    again = Some(IDLE_MS.min(again.unwrap_or(IDLE_MS)));
                    continue;
                }
                LinkState::Connecting if link.accepted => {
                    if link.idle_for(now).is_some_and(|ns| ns > HALF_MADE_NS) {
                        link.fail(Failure::TimedOut);
                    } else {
                        again = Some(IDLE_MS.min(again.unwrap_or(IDLE_MS)));
                    }
                    continue;
                }
                LinkState::Up if link.accepted && self.has_too_many_since(link) => {
                    link.fail_link_lost("its peer has made too many");
                    continue;
                }
                _ => {}
            }
            let nets = self.nets.lock();
            let used = nets.iter().find(|n| n.net == link.net);
            let (sockets, since) = used.map_or((0, 0), |n| (n.sockets, n.empty_since));
            drop(nets);
            if sockets > 0 {
                match link.idle_for(now) {
                    Some(idle) if idle > unused_ns && link.has_delivered() => {
                        link.fail(Failure::LinkLost)
                    }
                    Some(_) => unused = true,
                    None => {}
                }
                continue;
            }
            let ended = link.channels() == 0;
            if ended && link.has_delivered() || now.saturating_sub(since) > ORPHAN_NS {
                link.fail_link_lost("channels do not end");
            } else {
                let ms = if ended { DELIVERED_MS } else { IDLE_MS };
                again = Some(ms.min(again.unwrap_or(IDLE_MS)));
            }
        }
        let lacks_room = self.keep_room(&links);
        drop(links);
        if let Some(ms) = again {
            self.look_for_idle_in(ms);
            return;
        }
        // References to namespaces are dropped without the lock.
        while let Some(gone) = self.take_unused_net() {
            drop(gone);
        }
        if unused {
            let ms = match lacks_room {
                true => IDLE_MS,
                false => params::LINK_IDLE_MS.get().clamp(IDLE_MS, UNUSED_MS),
            };
            self.look_for_idle_in(ms);
        }
    }

    /// A pool has promised all of its blocks: ends the link on it that has been unused for longest,
    /// so that the next link can be made. One that was made, came up or was used within `kept_ns`
    /// nanoseconds stays.
    pub(super) fn evict_idle_link(&self, pool: &Arc<Pool>, kept_ns: u64) -> Evicted {
        let now = now_ns();
        let Ok(links) = self.snapshot() else {
            return Evicted::None;
        };
        let mut busy = false;
        let unused = links
            .into_iter()
            .filter(|l| l.is_promised_by(pool) && l.state() != LinkState::Down)
            .filter_map(|l| Some((l.idle_for(now)?, l)))
            .filter(|(idle, l)| *idle >= kept_ns && !l.is_younger(kept_ns, now))
            .filter(|(_, l)| {
                let delivered = l.has_delivered();
                busy |= !delivered;
                delivered
            })
            .max_by_key(|(idle, _)| *idle);
        match unused {
            Some((_, link)) => {
                link.fail(Failure::LinkLost);
                Evicted::One
            }
            None if busy => Evicted::Soon,
            None => Evicted::None,
        }
    }

    /// A link waits for the end of one whose last messages are not acknowledged yet.
    pub(super) fn look_for_delivered(self: &Arc<Self>) {
        self.look_for_idle_in(DELIVERED_MS);
    }

    /// A link has come up: schedules the check of its peer.
    pub(crate) fn watch_keepalive(self: &Arc<Self>) {
        let ms = params::HEARTBEAT_MS.get();
        if ms > 0 {
            self.check_keepalive_at(now_ns().saturating_add(u64::from(ms) * 1_000_000));
        }
    }

    /// A link's keepalive interval has changed: checks all links now.
    pub(crate) fn check_keepalive_now(self: &Arc<Self>) {
        self.check_keepalive_at(0);
    }

    /// Schedules a check of all links for when the monotonic clock is at `due` nanoseconds, unless
    /// an earlier one is scheduled.
    fn check_keepalive_at(self: &Arc<Self>, due: u64) {
        let mut at = self.keepalive_at.lock();
        if due >= *at {
            return;
        }
        *at = due;
        let ms = due.saturating_sub(now_ns()) / 1_000_000 + 1;
        let delay = msecs_to_jiffies(u32::try_from(ms).unwrap_or(u32::MAX));
        self.queue
            .enqueue_or_move::<Transport, KEEPALIVE>(self.clone(), delay);
    }

    /// Probes the peers that have been silent for their interval, and ends the links whose peers do
    /// not answer. Schedules the next check.
    fn check_links(self: &Arc<Self>) {
        // A request from here on schedules another check: this one may already have passed the link
        // in question.
        *self.keepalive_at.lock() = u64::MAX;
        let now = now_ns();
        let due = match self.snapshot() {
            Ok(links) => links
                .iter()
                .filter_map(|link| link.check_keepalive(now))
                .min(),
            Err(_) => Some(now.saturating_add(NO_MEMORY_NS)),
        };
        if let Some(due) = due {
            self.check_keepalive_at(due);
        }
    }
}

impl DeviceLinks for Transport {
    fn end_failed_links(&self) {
        for link in self.links.lock().iter() {
            match link.queue_has_failed() {
                // No connect was told anything yet, so the link can be made again.
                true if link.state() == LinkState::Connecting => link.fail_stale(),
                true => link.fail_link_lost("its shared receive queue has failed"),
                false => {}
            }
        }
    }
}

impl WorkItem<IDLE_LINKS> for Transport {
    type Pointer = Arc<Transport>;

    fn run(transport: Arc<Transport>) {
        fault::asynchronous(|| transport.end_idle());
    }
}

impl WorkItem<KEEPALIVE> for Transport {
    type Pointer = Arc<Transport>;

    fn run(transport: Arc<Transport>) {
        fault::asynchronous(|| transport.check_links());
    }
}
