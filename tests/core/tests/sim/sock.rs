// SPDX-License-Identifier: GPL-2.0

//! A socket of the module, and the effect of messages on its channel.

use std::collections::VecDeque;

use zrs_core::channel::{Channel, Event, Failure, Limits, State};
use zrs_core::rx_queue::{Moved, RxQueue, Segment};
use zrs_core::wire::{Header, Refusal, Type};
use zrs_core::{ChanId, Violation};

use crate::entry::Entry;
use crate::escape::Moving;
use crate::link::{Link, Source};
use crate::net::overlap;
use crate::ring::MaybeRing;
use crate::stats::Stats;
use crate::world::{trace, ActorId, Conn, Ev, SockId, World};
use common::{fill_stream, is_stream};

/// The holder of a segment that is not in the window.
pub enum Held {
    /// A block of the shared receive queue.
    Block(Vec<u8>),
    /// A copy of one, or of bytes from the window.
    Spilled(Vec<u8>),
}

/// A lease of this host, until its pages return to the pool.
pub struct Window {
    pub page: usize,
    pub pages: usize,
    pub size: u32,
    /// Offset in the pool's memory.
    pub start: usize,
    pub key: u32,
    /// Offset and length of announced segments that are still in it, in the stream's order.
    pub unread: VecDeque<(u32, u32)>,
    /// Offset and length of written and not yet announced segments.
    pub landed: VecDeque<(u32, u32)>,
}

pub struct Sock {
    pub host: usize,
    pub conn: usize,
    /// 0: it connected, 1: it was accepted.
    pub side: usize,
    pub link: usize,
    pub ch: Entry,
    pub id: ChanId,
    pub rx: RxQueue<Vec<Option<Segment<Held>>>>,
    pub ring: MaybeRing,
    pub window: Option<Window>,
    pub entries: usize,
    /// The peer's limits of data in flight.
    pub limits: Limits,
    pub in_table: bool,
    /// In its link's list of channels with control messages.
    pub queued: bool,
    /// In its link's list of channels that found no room.
    pub starved: bool,
    /// Its corked message waits for room on the link.
    pub late: bool,
    /// The program has closed it.
    pub closed: bool,
    /// It was closed while it was connecting: its channel is given up.
    pub gave_up: bool,
    /// It has sent its last message.
    pub ended: bool,
    pub shut_read: bool,
    /// Bytes that had arrived, read or not.
    pub arrived: u64,
    /// Bytes that had arrived when it was closed, and whether some were unread.
    pub closed_at: Option<u64>,
    pub closed_unread: bool,
    /// Its program writes nonsense into the ring.
    pub scribbler: bool,
    pub opener: Option<ActorId>,
    pub reader: Option<ActorId>,
    pub writer: Option<ActorId>,
    /// The port that it connects to.
    pub port: u16,
    /// It has been connected again after its link went down.
    pub retried: bool,
    /// It has found the backlog full.
    busy: bool,
    /// Its host has died.
    pub dead: bool,
    denied: bool,
    /// Its program has stopped reading.
    pub stopped: bool,
    /// When the last segment arrived.
    pub newest: u64,
    /// The segment being moved to main memory.
    pub moving: Option<Moving>,
    /// Of the moved segments in the queue: room that the peer has got back.
    pub given: u64,
    /// Until when it waits for a window.
    pub wish_until: u64,
}

impl Sock {
    pub fn limits(w: &mut World) -> Limits {
        Limits {
            msgs: w.rng.pick(w.cfg.limits_msgs),
            small: w.rng.pick(w.cfg.limits_small),
        }
    }

    pub fn new(
        host: usize,
        conn: usize,
        side: usize,
        link: usize,
        ch: Entry,
        limits: Limits,
    ) -> Self {
        let entries = limits.msgs.next_power_of_two() as usize;
        Self {
            host,
            conn,
            side,
            link,
            id: ch.local(),
            ch,
            rx: RxQueue::new((0..entries).map(|_| None).collect()),
            ring: MaybeRing(None),
            window: None,
            entries,
            limits,
            in_table: true,
            queued: false,
            starved: false,
            late: false,
            closed: false,
            gave_up: false,
            ended: false,
            shut_read: false,
            arrived: 0,
            closed_at: None,
            closed_unread: false,
            scribbler: false,
            opener: None,
            reader: None,
            writer: None,
            port: 0,
            retried: false,
            busy: false,
            dead: false,
            denied: false,
            stopped: false,
            newest: 0,
            moving: None,
            given: 0,
            wish_until: 0,
        }
    }

    /// An empty queue for a channel that is made again.
    pub fn new_rx(&mut self, limits: Limits) {
        self.limits = limits;
        self.entries = limits.msgs.next_power_of_two() as usize;
        self.rx = RxQueue::new((0..self.entries).map(|_| None).collect());
    }

    /// Its host dies, and everything of it.
    pub fn die(&mut self) {
        self.dead = true;
        self.closed = true;
        self.in_table = false;
        self.window = None;
        self.moving = None;
        self.ring = MaybeRing(None);
        while self.rx.discard(&self.ring).is_some() {}
        (self.opener, self.reader, self.writer) = (None, None, None);
    }

    /// Counts a message that it says.
    pub fn said(&mut self, h: &Header, stats: &mut Stats) {
        match h.kind {
            Type::WindowRequest => {
                stats.window_requests += 1;
                stats.asked_again += u64::from(self.denied);
            }
            Type::WindowGrant if h.arg1 == 0 => stats.window_denials += 1,
            Type::WindowGrant => stats.window_grants += 1,
            Type::End | Type::Reset => self.ended = true,
            _ => {}
        }
    }

    /// Whether the data that was not given back is within the peer's grant.
    fn within_limits(&mut self) -> bool {
        let mut small = 0;
        for index in self.rx.indices().collect::<Vec<u32>>() {
            let seg = self.rx.get_mut(index);
            let data = |s: &&mut Segment<Held>| {
                s.window_off.is_none() && matches!(s.moved, Moved::No | Moved::Small(_))
            };
            small += seg.filter(data).map_or(0, |seg| u64::from(seg.len));
        }
        self.rx.len() <= self.limits.msgs && small <= u64::from(self.limits.small)
    }

    /// Unread bytes, counted again.
    pub fn count_bytes(&mut self) -> u64 {
        let indices: Vec<u32> = self.rx.indices().collect();
        indices
            .into_iter()
            .map(|i| self.rx.get_mut(i).map_or(0, |s| u64::from(s.len - s.taken)))
            .sum()
    }
}

impl World {
    // ---- what arrives -----------------------------------------------------------------------

    pub fn deliver(
        &mut self,
        link: usize,
        side: usize,
        h: &Header,
        payload: Option<Source>,
    ) -> Result<(), Violation> {
        trace!(self, "link {link} {side}: got {h:?}");
        match h.kind {
            Type::LinkCredit | Type::Heartbeat => self.repost(link, side),
            Type::Connect => {
                let taken = self.on_connect(link, side, h);
                if let Ok(Err(why)) = taken {
                    let mut answer = Header::new(Type::Reject, h.src, ChanId::default());
                    answer.arg0 = why as u32;
                    self.answer(link, side, answer);
                }
                self.repost(link, side);
                taken?.ok();
            }
            _ => match self.hosts[side].owner(h.dst) {
                Some(sid) if self.socks[sid].link == link => {
                    return self.on_message(sid, h, payload);
                }
                _ => {
                    self.on_unknown(link, side, h);
                    self.repost(link, side);
                }
            },
        }
        Ok(())
    }

    /// A message for a channel that is not there, or on another link, is answered with a Reset
    /// (row L2), but for one that may cross with the channel's last. Only a host that has said the
    /// last word, or gives a channel up, while it is connecting or as an orphan, makes that happen.
    fn on_unknown(&mut self, link: usize, side: usize, h: &Header) {
        if self.links[link].hostile.is_none() {
            let was = |s: &&Sock| s.host == side && s.link == link && s.id == h.dst;
            let given_up = self.socks.iter().rfind(was).is_some_and(|s| {
                let c = &self.conns[s.conn];
                s.ended
                    || h.kind == Type::Reset
                    || c.dropped
                    || c.timed_out
                    || c.socks.iter().flatten().any(|s| self.socks[*s].gave_up)
            });
            if !given_up {
                self.fail(&format!("a message for a channel that has ended: {h:?}"));
            }
        }
        self.stats.unknown_channels += 1;
        self.stats.accepted_late += u64::from(h.kind == Type::Accept);
        if !matches!(
            h.kind,
            Type::Fin | Type::End | Type::Reset | Type::Credit | Type::Reject
        ) {
            let src = self.rng.pick(&[h.dst, ChanId::default()]);
            self.answer(link, side, Header::new(Type::Reset, h.src, src));
        }
    }

    fn on_connect(
        &mut self,
        link: usize,
        side: usize,
        h: &Header,
    ) -> Result<Result<(), Refusal>, Violation> {
        let hostile = self.links[link].hostile.is_some();
        let known = self.conn_of.get(&(link, 1 - side, h.src.index, h.src.gen));
        let conn = match known {
            Some(&conn) => conn,
            None if hostile => {
                self.conns.push(Conn::new(0, link, [None; 2], true));
                self.conns.len() - 1
            }
            None => self.fail("a CONNECT that nobody sent"),
        };
        // The peer has learnt of the end of another link, and this host has not.
        let late = |l: &Link| !l.up && l.was_up && l.side[side].alive && !l.side[1 - side].alive;
        self.stats.opened_before_old_end += u64::from(self.links.iter().any(late));
        let refused = self.try_accept(link, side, conn, h)?;
        match refused {
            // It comes again.
            Err(Refusal::BacklogFull) | Ok(()) => {}
            Err(why) => {
                self.conns[conn].refused = Some(why);
                self.stats.refused += 1;
            }
        }
        Ok(refused)
    }

    fn try_accept(
        &mut self,
        link: usize,
        side: usize,
        conn: usize,
        h: &Header,
    ) -> Result<Result<(), Refusal>, Violation> {
        let (port, _) = Channel::ports_of(h);
        let Some(&listener) = self.hosts[side].listeners.get(&port) else {
            return Ok(Err(Refusal::NoListener));
        };
        // For the socket, or for its receive queue.
        if self.no_memory(side) {
            return Ok(Err(Refusal::NoResources));
        }
        let ours = Sock::limits(self);
        let sid = self.socks.len();
        let accept = |id| Channel::accept(id, h, ours);
        accept(ChanId::default())?;
        let entry = self.hosts[side].submit(sid, |id| accept(id).expect("as before"));
        let Some(mut ch) = entry else {
            self.stats.table_full += 1;
            return Ok(Err(Refusal::NoResources));
        };
        // The link's lists.
        let mut refused = self.no_memory(side).then_some(Refusal::NoResources);
        if refused.is_none() && self.backlog_of(listener) >= self.cfg.backlog {
            self.stats.backlog_full += 1;
            refused = Some(Refusal::BacklogFull);
        }
        if let Some(why) = refused {
            ch.free();
            return Ok(Err(why));
        }
        self.conns[conn].socks[1] = Some(sid);
        self.socks.push(Sock::new(side, conn, 1, link, ch, ours));
        self.stats.channels += 1;
        self.kick(sid);
        self.queue_for_accept(listener, sid);
        Ok(Ok(()))
    }

    fn on_message(
        &mut self,
        sid: SockId,
        h: &Header,
        payload: Option<Source>,
    ) -> Result<(), Violation> {
        let (link, host) = (self.socks[sid].link, self.socks[sid].host);
        let s = &mut self.socks[sid];
        let was_closed = s.ch.state() == State::Closed;
        let event = match s.ch.on_message(h) {
            Ok(event) => event,
            Err(e) => {
                self.repost(link, host);
                return Err(e);
            }
        };
        if was_closed {
            self.fail(&format!("sock {sid}: a message after its end: {h:?}"));
        }
        let room = self.socks[sid].ch.take_room();
        if room && event != Event::Room {
            self.stats.room_with_other_news += 1;
        }
        if h.kind == Type::WindowGrant && h.arg1 == 0 {
            self.socks[sid].denied = true;
        }
        if h.kind == Type::Written && self.links[link].hostile.is_none() {
            self.announced(sid, h);
        }
        self.socks[sid].arrived += u64::from(h.len);
        let mut block_held = false;
        match event {
            Event::None | Event::Room => {}
            Event::Opened => {
                self.stats.opened += 1;
                self.stats.opened_in_the_end += u64::from(self.socks[sid].busy);
                self.wake_all(sid);
            }
            Event::Data => {
                let Some(from) = payload else {
                    self.fail("Data without payload");
                };
                let mut data = vec![0; from.len as usize];
                fill_stream(from.key, from.pos, &mut data);
                let moved = self.copy_small(sid, &data);
                let side = &self.links[link].side[host];
                let scarce = side.posted < i64::from(side.blocks) / 2;
                // Without memory for a copy the block itself has to do.
                let spill = self.cfg.spill && (scarce || self.rng.chance(5));
                let small = moved != Moved::No;
                let spill = !small && spill && !self.no_memory(host);
                block_held = !spill && !small;
                self.stats.spilled_blocks += u64::from(spill);
                let held = match (small, spill) {
                    (true, _) => None,
                    (_, true) => Some(Held::Spilled(data)),
                    _ => Some(Held::Block(data)),
                };
                self.push(sid, h, (None, 0), held, moved);
            }
            Event::Written { off, pad } => {
                self.written(sid, h, off);
                self.push(sid, h, (Some(off), pad), None, Moved::No);
            }
            Event::Unwanted => {
                self.stats.unwanted_bytes += u64::from(h.len);
            }
            Event::WindowWanted => {
                let delay = self.cfg.worker_delay;
                self.within(delay, Ev::AnswerWindow(sid));
            }
            Event::Fin => self.wake_all(sid),
            Event::Busy => {
                self.socks[sid].busy = true;
                let delay = 1 + self.cfg.net_delay + self.cfg.think;
                self.within(delay, Ev::ConnectBackoff(sid));
            }
            Event::Failed => {
                if self.socks[sid].ch.failure() == Some(Failure::Reset) {
                    self.stats.resets += 1;
                }
                self.wake_all(sid);
            }
            Event::Revoked => {
                self.stats.revocations += 1;
                if let Some(window) = &self.socks[sid].window {
                    self.stats.revoked_unread += u64::from(!window.unread.is_empty());
                }
            }
        }
        if room {
            self.wake_writer(sid);
        }
        if !block_held {
            self.repost(link, host);
        }
        self.kick(sid);
        self.settle(sid);
        Ok(())
    }

    /// Copies a small message to the ring, if that takes it and has room.
    fn copy_small(&mut self, sid: SockId, data: &[u8]) -> Moved {
        let ring = self.socks[sid].ring.0.as_mut();
        let Some(ring) = ring.filter(|ring| ring.takes_small) else {
            return Moved::No;
        };
        match ring.copy_small(data) {
            Some(off) => {
                self.stats.small_to_ring += 1;
                Moved::Small(off)
            }
            None => {
                self.stats.small_areas_full += 1;
                Moved::No
            }
        }
    }

    /// Bytes in the window are announced: they are the stream's next ones, and no others.
    fn written(&mut self, sid: SockId, h: &Header, off: u32) {
        let Some(window) = &mut self.socks[sid].window else {
            self.fail(&format!("sock {sid}: Written, but there is no window"));
        };
        // Whatever a peer does, unread bytes are not announced again.
        let twice = window.unread.iter().any(|at| overlap(*at, (off, h.len)));
        let size = window.size;
        window.unread.push_back((off, h.len));
        if twice || off.checked_add(h.len).is_none_or(|end| end > size) {
            self.fail(&format!("sock {sid}: {h:?} is onto unread bytes"));
        }
        let start = window.start + off as usize;
        let s = &self.socks[sid];
        let c = &self.conns[s.conn];
        let bytes = &self.hosts[s.host].mem[start..start + h.len as usize];
        // WRITE before Written, and nothing over it since.
        if !c.hostile && !is_stream(c.stream(1 - s.side), h.pos, bytes) {
            self.fail(&format!("sock {sid}: {h:?} announces other bytes"));
        }
    }

    /// A Written announces exactly the oldest WRITE that has not been announced.
    fn announced(&mut self, sid: SockId, h: &Header) {
        let landed = match &mut self.socks[sid].window {
            Some(window) => window.landed.pop_front(),
            None => None,
        };
        let size = self.socks[sid].ch.window_size().unwrap_or(1);
        if landed != Some(((h.woff % u64::from(size)) as u32, h.len)) {
            self.fail(&format!("sock {sid}: {h:?} announces {landed:?}"));
        }
        self.stats.windows_wrapped += u64::from(h.woff == u64::from(size));
    }

    fn push(
        &mut self,
        sid: SockId,
        h: &Header,
        (window_off, pad): (Option<u32>, u32),
        held: Option<Held>,
        moved: Moved,
    ) {
        let s = &mut self.socks[sid];
        let seg = Segment {
            pos: h.pos,
            len: h.len,
            window_off,
            claimed: held.is_some(),
            held,
            taken: 0,
            mapped: 0,
            born: self.now,
            moved,
            pad,
        };
        s.newest = self.now;
        let Ok(index) = s.rx.push(seg) else {
            self.fail(&format!("sock {sid}: more segments than were granted"));
        };
        if !s.within_limits() {
            self.fail(&format!("sock {sid}: {h:?} is beyond the limits"));
        }
        let s = &mut self.socks[sid];
        if let (Some(ring), Some(seg)) = (&mut s.ring.0, s.rx.get_mut(index)) {
            ring.publish(index, seg);
        }
        self.watch(self.socks[sid].host);
        self.wake_reader(sid);
    }
}
