// SPDX-License-Identifier: GPL-2.0

//! A socket as the module has it: what messages, workers and programs do to its channel.

use std::collections::VecDeque;

use zrs_core::channel::{Channel, Event, Failure, Limits, State, WINDOW_MIN};
use zrs_core::rx_queue::{RxQueue, Segment};
use zrs_core::wire::{Header, Refusal, Type};
use zrs_core::ChanId;

use crate::common::{fill_stream, is_stream};
use crate::host::PAGE;
use crate::link::Source;
use crate::program::Wait;
use crate::ring::{MaybeRing, Ring};
use crate::stats::Stats;
use crate::world::{trace, ActorId, Ev, SockId, World};

/// What holds a segment that is not in the window.
pub enum Held {
    /// A block of the shared receive queue.
    Block(Vec<u8>),
    /// A copy of one.
    Spilled(Vec<u8>),
}

/// A lease of ours, until its pages go back into the pool.
pub struct Window {
    pub page: usize,
    pub pages: usize,
    /// Offset in the pool's memory.
    pub start: usize,
    pub key: u32,
    /// Offset and length of what was announced and is not given back, in the stream's order.
    pub unread: VecDeque<(u32, u32)>,
    /// Offset and length of what was written and is not announced yet.
    pub landed: VecDeque<(u32, u32)>,
}

pub struct Sock {
    pub host: usize,
    pub conn: usize,
    /// 0: it connected, 1: it was accepted.
    pub side: usize,
    pub link: usize,
    pub ch: Channel,
    pub id: ChanId,
    pub rx: RxQueue<Vec<Option<Segment<Held>>>>,
    pub ring: MaybeRing,
    pub window: Option<Window>,
    pub entries: usize,
    pub in_table: bool,
    /// In its link's list of those that have something to say.
    pub queued: bool,
    /// In its link's list of those that found no room.
    pub starved: bool,
    /// The program has closed it.
    pub closed: bool,
    /// It was closed while it was connecting: its channel is given up.
    pub gave_up: bool,
    pub shut_read: bool,
    /// Bytes that had arrived, read or not.
    pub arrived: u64,
    /// What had arrived when it was closed, and whether not all of it was read.
    pub closed_at: Option<u64>,
    pub closed_unread: bool,
    /// Its program writes nonsense into the ring.
    pub scribbler: bool,
    pub opener: Option<ActorId>,
    pub reader: Option<ActorId>,
    pub writer: Option<ActorId>,
    denied: bool,
}

impl Sock {
    pub fn limits(w: &mut World) -> Limits {
        Limits {
            msgs: w.rng.pick(w.cfg.limits_msgs),
            small: w.rng.pick(w.cfg.limits_small),
        }
    }

    pub fn new(host: usize, conn: usize, side: usize, link: usize, ch: Channel, msgs: u32) -> Self {
        let entries = msgs.next_power_of_two() as usize;
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
            in_table: true,
            queued: false,
            starved: false,
            closed: false,
            gave_up: false,
            shut_read: false,
            arrived: 0,
            closed_at: None,
            closed_unread: false,
            scribbler: false,
            opener: None,
            reader: None,
            writer: None,
            denied: false,
        }
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
            _ => {}
        }
    }

    /// Bytes that wait, counted anew.
    fn count_bytes(&mut self) -> u64 {
        let indices: Vec<u32> = self.rx.indices().collect();
        indices
            .into_iter()
            .map(|i| self.rx.get_mut(i).map_or(0, |s| u64::from(s.len - s.taken)))
            .sum()
    }
}

impl World {
    // ---- what arrives -----------------------------------------------------------------------

    pub fn deliver(&mut self, link: usize, side: usize, h: &Header, payload: Option<Source>) {
        trace!(self, "link {link} {side}: got {h:?}");
        match h.kind {
            Type::LinkCredit | Type::Heartbeat => self.repost(link, side),
            Type::Connect => {
                if let Err(why) = self.on_connect(link, side, h) {
                    let mut answer = Header::new(Type::Reject, h.src, ChanId::default());
                    answer.arg0 = why as u32;
                    self.links[link].side[side].answers.push_back(answer);
                }
                self.repost(link, side);
            }
            _ => match self.hosts[side].table.get(h.dst) {
                Some(&sid) if self.socks[sid].link == link => self.on_message(sid, h, payload),
                Some(_) => self.fail("a message for a channel of another link"),
                None => {
                    self.on_unknown(link, side, h);
                    self.repost(link, side);
                }
            },
        }
    }

    /// A message for a channel that is not there is answered with a Reset (row L2), but for one
    /// that may cross with the channel's last. Only a host that gives a channel up, while it is
    /// connecting or as an orphan, makes that happen.
    fn on_unknown(&mut self, link: usize, side: usize, h: &Header) {
        let was = |s: &&Sock| s.host == side && s.id == h.dst;
        let given_up = self.socks.iter().rfind(was).is_some_and(|s| {
            let c = &self.conns[s.conn];
            c.dropped || c.timed_out || c.socks.iter().flatten().any(|s| self.socks[*s].gave_up)
        });
        if !given_up {
            self.fail(&format!("a message for a channel that has ended: {h:?}"));
        }
        self.stats.unknown_channels += 1;
        self.stats.accepted_late += u64::from(h.kind == Type::Accept);
        if !matches!(
            h.kind,
            Type::Fin | Type::End | Type::Reset | Type::Credit | Type::Reject
        ) {
            let src = self.rng.pick(&[h.dst, ChanId::default()]);
            let answer = Header::new(Type::Reset, h.src, src);
            self.links[link].side[side].answers.push_back(answer);
        }
    }

    fn on_connect(&mut self, link: usize, side: usize, h: &Header) -> Result<(), Refusal> {
        let Some(&conn) = self.conn_of.get(&(1 - side, h.src.q, h.src.gen)) else {
            self.fail("a CONNECT that nobody sent");
        };
        let (port, _) = Channel::ports_of(h);
        let refused = self.try_accept(link, side, conn, port, h);
        if let Err(why) = refused {
            self.conns[conn].refused = Some(why);
            self.stats.refused += 1;
        }
        refused
    }

    fn try_accept(
        &mut self,
        link: usize,
        side: usize,
        conn: usize,
        port: u16,
        h: &Header,
    ) -> Result<(), Refusal> {
        let listener = self.hosts[side].listeners.get(&port).copied();
        let listener = listener.ok_or(Refusal::NoListener)?;
        if self.backlog_of(listener) >= self.cfg.backlog {
            self.stats.backlog_full += 1;
            return Err(Refusal::NoListener);
        }
        let ours = Sock::limits(self);
        let sid = self.socks.len();
        let Some(id) = self.hosts[side].table.insert(|_| sid) else {
            self.stats.table_full += 1;
            return Err(Refusal::NoResources);
        };
        let ch = match Channel::accept(id, h, ours) {
            Ok(ch) => ch,
            Err(e) => self.fail(&format!("{h:?}: {e:?}")),
        };
        self.conns[conn].socks[1] = Some(sid);
        self.socks
            .push(Sock::new(side, conn, 1, link, ch, ours.msgs));
        self.stats.channels += 1;
        self.kick(sid);
        self.queue_for_accept(listener, sid);
        Ok(())
    }

    fn on_message(&mut self, sid: SockId, h: &Header, payload: Option<Source>) {
        let (link, host) = (self.socks[sid].link, self.socks[sid].host);
        let s = &mut self.socks[sid];
        let was_closed = s.ch.state() == State::Closed;
        let event = match s.ch.on_message(h) {
            Ok(event) => event,
            Err(e) => self.fail(&format!("sock {sid}: {e:?}: {h:?}")),
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
        if h.kind == Type::Written {
            self.announced(sid, h);
        }
        self.socks[sid].arrived += u64::from(h.len);
        let mut block_held = false;
        match event {
            Event::None | Event::Room => {}
            Event::Opened => {
                self.stats.opened += 1;
                self.wake_all(sid);
            }
            Event::Data => {
                let Some(from) = payload else {
                    self.fail("Data without payload");
                };
                let mut data = vec![0; from.len as usize];
                fill_stream(from.key, from.pos, &mut data);
                let side = &self.links[link].side[host];
                let scarce = side.posted < side.blocks / 2;
                let spill = self.cfg.spill && (scarce || self.rng.chance(5));
                block_held = !spill;
                let held = if spill {
                    self.stats.spilled_blocks += 1;
                    Held::Spilled(data)
                } else {
                    Held::Block(data)
                };
                self.push(sid, h, None, Some(held));
            }
            Event::Written { off } => {
                let Some(window) = &mut self.socks[sid].window else {
                    self.fail(&format!("sock {sid}: Written, but there is no window"));
                };
                window.unread.push_back((off, h.len));
                let start = window.start + off as usize;
                let bytes = &self.hosts[host].mem[start..start + h.len as usize];
                let s = &self.socks[sid];
                let key = self.conns[s.conn].stream(1 - s.side);
                // WRITE before Written, and nothing over it since.
                assert!(
                    is_stream(key, h.pos, bytes),
                    "seed {}: sock {sid}",
                    self.seed
                );
                self.push(sid, h, Some(off), None);
            }
            Event::Unwanted => {
                self.stats.unwanted_bytes += u64::from(h.len);
            }
            Event::WindowWanted => {
                let delay = self.cfg.worker_delay;
                self.within(delay, Ev::AnswerWindow(sid));
            }
            Event::Fin => self.wake_all(sid),
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

    fn push(&mut self, sid: SockId, h: &Header, window_off: Option<u32>, held: Option<Held>) {
        let s = &mut self.socks[sid];
        let seg = Segment {
            pos: h.pos,
            len: h.len,
            window_off,
            claimed: held.is_some(),
            held,
            taken: 0,
        };
        let Ok(index) = s.rx.push(seg) else {
            self.fail(&format!("sock {sid}: more segments than were granted"));
        };
        if let (Some(ring), Some(seg)) = (&mut s.ring.0, s.rx.get_mut(index)) {
            ring.publish(index, seg);
        }
        self.wake_reader(sid);
    }

    // ---- the module's own hands -------------------------------------------------------------

    /// Puts the channel into its link's list if it has something to say.
    pub fn kick(&mut self, sid: SockId) {
        let s = &mut self.socks[sid];
        let side = &mut self.links[s.link].side[s.host];
        if s.ch.has_control() && !s.queued && side.alive {
            s.queued = true;
            side.pending.push_back(sid);
            let (link, host) = (s.link, s.host);
            self.poke(link, host);
        }
    }

    /// Lets go of whatever the wire does not need any more.
    pub fn settle(&mut self, sid: SockId) {
        let s = &mut self.socks[sid];
        let host = &mut self.hosts[s.host];
        if s.ch.state() == State::Closed && s.in_table {
            s.in_table = false;
            if host.table.remove(s.id) != Some(sid) {
                self.fail("the table lost a channel");
            }
            let side = &mut self.links[s.link].side[s.host];
            side.pending.retain(|p| *p != sid);
            side.starved.retain(|p| *p != sid);
            s.queued = false;
            s.starved = false;
            trace!(self, "sock {sid}: off the table");
        }
        let s = &mut self.socks[sid];
        let host = &mut self.hosts[s.host];
        if let Some(window) = &s.window {
            if s.ch.window_quiet() {
                // From now on a WRITE is the peer's fault.
                if let Some(mr) = host.mr(window.key) {
                    mr.valid = false;
                }
                if window.unread.is_empty() || s.closed {
                    // A former owner's bytes must not be taken for anything.
                    let bytes = window.pages * PAGE;
                    host.mem[window.start..window.start + bytes].fill(0xa5);
                    let freed = host.pool.free(window.page, window.pages);
                    assert!(freed, "pages that were not leased");
                    s.window = None;
                }
            }
        }
    }

    /// Gives back what is consumed, in the stream's order.
    pub fn reap(&mut self, sid: SockId) {
        loop {
            let s = &mut self.socks[sid];
            let Some(freed) = s.rx.reap(&s.ring) else {
                break;
            };
            s.ch.freed(freed.window, freed.small);
            if freed.window != 0 {
                let first = s.window.as_mut().and_then(|w| w.unread.pop_front());
                assert_eq!(first.map(|f| f.1), Some(freed.window));
            }
            if let Some(Held::Block(_)) = freed.held {
                let (link, host) = (s.link, s.host);
                self.repost(link, host);
            }
        }
        let s = &mut self.socks[sid];
        assert_eq!(s.rx.bytes(), s.count_bytes());
        self.kick(sid);
        self.settle(sid);
    }

    /// Leases a window to the peer, asked for or not.
    fn lease(&mut self, sid: SockId) -> bool {
        let room = self.cfg.pool_pages[self.socks[sid].host] as u64;
        let least = u64::from(WINDOW_MIN) / PAGE as u64;
        let pages = self.rng.range(least, (room / 2).clamp(least, 80)) as usize;
        let mut size = (pages * PAGE) as u32;
        if self.cfg.odd_windows {
            size -= self.rng.below(u64::from(size - WINDOW_MIN) + 1).min(4095) as u32;
        }
        let s = &mut self.socks[sid];
        let host = &mut self.hosts[s.host];
        // While something of a former window is unread, its pages are not ours to give.
        if s.window.is_some() {
            return false;
        }
        let Some(page) = host.pool.alloc(pages) else {
            return false;
        };
        let (addr, key) = host.register(sid, page, size);
        if s.ch.grant(size, addr, key) {
            s.window = Some(Window {
                page,
                pages,
                start: page * PAGE,
                key,
                unread: VecDeque::new(),
                landed: VecDeque::new(),
            });
            return true;
        }
        if !s.ch.read_ended() && !s.shut_read && !s.closed && s.ch.state() != State::Opening {
            self.fail(&format!("sock {sid}: no grant, and no reason for that"));
        }
        if let Some(mr) = host.mr(key) {
            mr.valid = false;
        }
        host.pool.free(page, pages);
        false
    }

    pub fn answer_window(&mut self, sid: SockId) {
        if !self.socks[sid].in_table {
            return;
        }
        if !self.lease(sid) {
            self.socks[sid].ch.deny();
            if self.rng.chance(30) {
                // Somebody else has it: the next one who asks shall fare better.
                self.revoke_one(self.socks[sid].host);
            }
        }
        self.kick(sid);
    }

    /// Leases a window that nobody asked for.
    pub fn offer_window(&mut self, sid: SockId) {
        if self.lease(sid) {
            self.stats.window_offers += 1;
        }
        self.kick(sid);
    }

    pub fn revoke_some(&mut self, host: usize) {
        if self.cfg.revoke_every != 0 && self.cfg.revocations != 0 {
            self.cfg.revocations -= 1;
            self.revoke_one(host);
            let most = 2 * self.cfg.revoke_every;
            self.within(most, Ev::Revoke(host));
        }
    }

    fn revoke_one(&mut self, host: usize) {
        let with: Vec<SockId> = (0..self.socks.len())
            .filter(|s| self.socks[*s].host == host && self.socks[*s].window.is_some())
            .collect();
        if !with.is_empty() {
            let sid = self.rng.pick(&with);
            self.socks[sid].ch.revoke();
            self.kick(sid);
        }
    }

    pub fn connect_timer(&mut self, sid: SockId) {
        if self.socks[sid].ch.time_out() {
            self.stats.timed_out += 1;
            self.conns[self.socks[sid].conn].timed_out = true;
            self.wake_all(sid);
            self.settle(sid);
        }
    }

    pub fn shut_read(&mut self, sid: SockId) {
        let s = &mut self.socks[sid];
        if s.closed {
            return;
        }
        self.stats.shut_reads += 1;
        s.ch.shut_read();
        s.shut_read = true;
        self.wake_all(sid);
    }

    /// The program closes the socket, or is killed.
    pub fn close(&mut self, sid: SockId) {
        let s = &mut self.socks[sid];
        if std::mem::replace(&mut s.closed, true) {
            return;
        }
        trace!(self, "sock {sid}: close");
        let unread = !s.rx.is_empty();
        self.stats.closes_with_unread += u64::from(unread);
        s.gave_up = s.ch.state() == State::Opening;
        s.closed_at = Some(s.arrived);
        s.closed_unread = unread;
        s.ch.shut(unread);
        loop {
            let s = &mut self.socks[sid];
            let Some(held) = s.rx.discard(&s.ring) else {
                break;
            };
            if let Some(Held::Block(_)) = held {
                let (link, host) = (s.link, s.host);
                self.repost(link, host);
            }
        }
        let s = &mut self.socks[sid];
        assert_eq!(s.rx.bytes(), 0);
        s.ring = MaybeRing(None);
        if self.cfg.drop_orphans {
            self.within(20, Ev::DropOrphan(sid));
        }
        self.kick(sid);
        self.settle(sid);
        self.wake_all(sid);
    }

    /// An orphan's time is over: the module forgets it, unless the peer may still write.
    pub fn drop_orphan(&mut self, sid: SockId) {
        let s = &mut self.socks[sid];
        if s.in_table && !s.ch.has_control() && s.window.is_none() {
            trace!(self, "sock {sid}: dropped");
            s.ch.abort(Failure::TimedOut);
            self.conns[s.conn].dropped = true;
            self.stats.orphans_dropped += 1;
            self.settle(sid);
        }
    }

    // ---- what programs do with what arrived -------------------------------------------------

    /// recv(): at most `want` bytes, checked; returns how many there were.
    pub fn recv(&mut self, sid: SockId, want: u64) -> u64 {
        let mut got = 0;
        let mut from = None;
        if self.rng.chance(5) {
            self.peek(sid, want);
        }
        while got < want {
            let s = &mut self.socks[sid];
            let Some(index) = s.rx.claim_next(&s.ring, from) else {
                break;
            };
            let Some((pos, n)) = self.check_segment(sid, index, want - got) else {
                break;
            };
            let s = &mut self.socks[sid];
            let c = &mut self.conns[s.conn];
            if s.ring.0.is_none() && !s.scribbler && pos != c.read[s.side] {
                self.fail(&format!("sock {sid}: out of order at {pos}"));
            }
            self.stats.recv_beside_ring += u64::from(s.ring.0.is_some());
            s.rx.advance(&s.ring, index, n as u32);
            c.read[s.side] += n;
            got += n;
            from = Some(index);
            if self.rng.chance(50) {
                self.reap(sid);
            }
        }
        self.reap(sid);
        got
    }

    /// recv() with MSG_PEEK.
    fn peek(&mut self, sid: SockId, want: u64) {
        let mut got = 0;
        let mut from = None;
        while got < want {
            let s = &mut self.socks[sid];
            let Some(index) = s.rx.claim_next(&s.ring, from) else {
                break;
            };
            got += self
                .check_segment(sid, index, want - got)
                .map_or(0, |(_, n)| n);
            from = Some(index.wrapping_add(1));
            self.stats.peeks += 1;
        }
    }

    /// Checks up to `most` bytes at the reading position of a segment; returns that position in
    /// the stream and how many bytes it were.
    fn check_segment(&mut self, sid: SockId, index: u32, most: u64) -> Option<(u64, u64)> {
        let s = &mut self.socks[sid];
        let c = &self.conns[s.conn];
        let mem = &self.hosts[s.host].mem;
        let seg = s.rx.get_mut(index)?;
        let n = u64::from(seg.len - seg.taken).min(most);
        let pos = seg.pos + u64::from(seg.taken);
        let bytes = match (&seg.held, seg.window_off, &s.window) {
            (Some(Held::Block(b) | Held::Spilled(b)), None, _) => &b[seg.taken as usize..],
            (None, Some(off), Some(w)) => &mem[w.start + (off + seg.taken) as usize..],
            _ => self.fail(&format!("sock {sid}: a segment without a place")),
        };
        if !is_stream(c.stream(1 - s.side), pos, &bytes[..n as usize]) {
            self.fail(&format!("sock {sid}: wrong bytes at {pos}"));
        }
        Some((pos, n))
    }

    /// Checks what a descriptor shows to the program.
    pub fn check_desc(&self, sid: SockId, index: u32) {
        let s = &self.socks[sid];
        let (Some(ring), Some(w)) = (&s.ring.0, &s.window) else {
            self.fail(&format!("sock {sid}: a ring without a window"));
        };
        let d = ring.desc(index);
        let start = w.start + d.off as usize;
        let bytes = &self.hosts[s.host].mem[start..start + d.len as usize];
        if !is_stream(self.conns[s.conn].stream(1 - s.side), d.pos, bytes) {
            self.fail(&format!("sock {sid}: wrong bytes in the ring at {}", d.pos));
        }
    }

    /// ZRS_RX_RING.
    pub fn make_ring(&mut self, sid: SockId) {
        if self.socks[sid].window.is_none() {
            self.offer_window(sid);
        }
        let s = &mut self.socks[sid];
        let mut ring = Ring::new(s.entries);
        self.stats.ring_made_in_mid_stream += u64::from(!s.rx.is_empty());
        for index in s.rx.indices() {
            if let Some(seg) = s.rx.get_mut(index) {
                seg.claimed |= seg.window_off.is_none() || seg.taken > 0;
                ring.publish(index, seg);
            }
        }
        s.ring = MaybeRing(Some(ring));
    }

    // ---- waking -----------------------------------------------------------------------------

    pub fn wake_reader(&mut self, sid: SockId) {
        self.wake(self.socks[sid].reader, Some(Wait::Read));
    }

    pub fn wake_writer(&mut self, sid: SockId) {
        self.wake(self.socks[sid].writer, Some(Wait::Write));
    }

    /// The socket's state has changed.
    pub fn wake_all(&mut self, sid: SockId) {
        let s = &self.socks[sid];
        for actor in [s.opener, s.reader, s.writer] {
            self.wake(actor, None);
        }
    }
}
