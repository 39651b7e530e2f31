// SPDX-License-Identifier: GPL-2.0

//! A channel between a program that does anything and a peer that says anything, against the
//! model: accepted messages, their events, plans, commits and sent messages.

use zrs_core::channel::{Channel, Event, Failure, Limits, Plan, State};
use zrs_core::link_table::Registers;
use zrs_core::wire::{Credit, Header, Type, CHUNK_MAX, SMALL_MAX};
use zrs_core::ChanId;

use crate::channel_model::{sane, skip, Model, Own, Phase, Theirs};
use crate::Input;

const LOCAL: ChanId = ChanId { index: 20, gen: 2 };
const REMOTE: ChanId = ChanId { index: 10, gen: 1 };

/// Types of messages: those that continue a stream are more frequent than those that end one.
const TYPES: [Type; 32] = {
    let mut types = [Type::Data; 32];
    let others = [
        Type::WindowRequest,
        Type::WindowGrant,
        Type::WindowGrant,
        Type::WindowRevoke,
        Type::Revoked,
        Type::Fin,
        Type::End,
        Type::Reset,
        Type::Accept,
        Type::Reject,
        Type::Connect,
        Type::LinkCredit,
        Type::Heartbeat,
    ];
    let mut n = 0;
    while n < others.len() {
        types[n] = others[n];
        n += 1;
    }
    while n < 22 {
        types[n] = Type::Written;
        n += 1;
    }
    while n < 26 {
        types[n] = Type::Credit;
        n += 1;
    }
    types
};

struct Course {
    c: Channel,
    m: Model,
}

impl Course {
    fn new(input: &mut Input<'_>) -> Option<Self> {
        let small = [16384, 16385, 20000, 65536];
        let ours = Limits {
            msgs: 4 + u32::from(input.u8() % 16),
            small: small[input.below(4)],
        };
        let connects = input.u8() % 3 == 0;
        if connects {
            let m = Model::new(Phase::Opening { said: false }, LOCAL, ours);
            let c = Channel::connect(LOCAL, 50000, 80, ours);
            return Some(Self { c, m });
        }
        let mut h = Header::new(Type::Connect, ChanId::default(), REMOTE);
        (h.arg1, h.arg2) = (4 + u32::from(input.u8() % 16), small[input.below(4)].into());
        match input.u8() {
            0 => h.arg1 = input.u32(),
            1 => h.arg2 = input.u64(),
            _ => {}
        }
        let c = Channel::accept(LOCAL, &h, ours);
        assert_eq!(c.is_ok(), sane(h.arg1, h.arg2));
        let mut m = Model::new(Phase::Accepting, LOCAL, ours);
        m.remote = REMOTE;
        m.theirs = Limits {
            msgs: h.arg1,
            small: h.arg2 as u32,
        };
        Some(Self { c: c.ok()?, m })
    }

    /// A message of the peer's: the next one in order, with a field or two changed.
    fn message(&self, input: &mut Input<'_>) -> Header {
        let m = &self.m;
        let kind = TYPES[usize::from(input.u8()) % TYPES.len()];
        let mut h = Header::new(kind, m.local, REMOTE);
        h.pos = m.rx_pos;
        let some = input.u16();
        let part = |all: u64| all * u64::from(some >> 12) / 15;
        h.credit = Credit {
            window: 0,
            small: m.acked_small + part(m.tx_small - m.acked_small),
            msgs: (m.acked_msgs + part(m.tx_msgs - m.acked_msgs)) as u32,
        };
        if let Some(w) = &m.peer {
            h.lease = w.lease;
            h.credit.window = w.freed + part(w.written - w.freed);
        }
        match kind {
            Type::Data => h.len = 1 + u32::from(some) % SMALL_MAX,
            Type::Written => {
                h.len = 1 + (u32::from(some) << 2) % CHUNK_MAX;
                if let Some(w) = &m.own {
                    (h.arg0, h.woff) = (w.lease, w.arrived);
                    if h.len % 3 == 0 {
                        h.woff += skip(w.size, w.arrived);
                    }
                    if some % 16 != 0 {
                        h.len = h.len.min((w.size - h.woff % w.size) as u32);
                    }
                }
            }
            Type::Accept => (h.arg1, h.arg2) = (4 + u32::from(some % 16), 16384),
            Type::WindowGrant => {
                h.lease = 1 + u32::from(some % 4);
                h.arg0 = u32::from(some);
                h.arg1 = if some % 5 == 0 {
                    0
                } else {
                    65536 + u32::from(some % 999)
                };
                h.arg2 = u64::from(some) << 20;
            }
            Type::Revoked => h.arg0 = m.own.map_or(0, |w| w.lease),
            Type::Reject => h.arg0 = u32::from(some % 4),
            Type::Reset if some & 1 != 0 => h.src = ChanId::default(),
            _ => {}
        }
        // Most are as they should be.
        let changes = input.u8();
        for _ in 0..usize::from(changes.saturating_sub(236) >> 2) {
            let near = i64::from(input.u8() as i8);
            let wide = input.u8();
            let change = |v: u64| match wide {
                0 => u64::MAX,
                1 => 0,
                2 => v ^ (1 << 31),
                3 => v ^ (1 << 63),
                _ => v.wrapping_add_signed(near),
            };
            match input.u8() % 12 {
                0 => h.pos = change(h.pos),
                1 => h.woff = change(h.woff),
                2 => h.credit.window = change(h.credit.window),
                3 => h.credit.small = change(h.credit.small),
                4 => h.credit.msgs = change(h.credit.msgs.into()) as u32,
                5 => h.arg0 = change(h.arg0.into()) as u32,
                6 => h.arg1 = change(h.arg1.into()) as u32,
                7 => h.arg2 = change(h.arg2),
                8 => h.lease = change(h.lease.into()) as u32,
                9 => h.src.gen = change(h.src.gen.into()) as u32,
                10 => h.src.index = 1 + u32::from(wide),
                _ if kind == Type::Data => h.len = 1 + change(h.len.into()) as u32 % SMALL_MAX,
                _ if kind == Type::Written => h.len = 1 + change(h.len.into()) as u32 % CHUNK_MAX,
                _ => {}
            }
        }
        h
    }

    /// The peer says `h`. False when that ends the link.
    fn hear(&mut self, h: &Header) -> bool {
        let may = self.m.may_hear(h);
        let result = self.c.on_message(h);
        assert_eq!(result.is_ok(), may, "{h:?}: {result:?}, {:?}", self.m);
        let Ok(event) = result else {
            return false;
        };
        let m = &mut self.m;
        let mut room = false;
        let expected = match m.phase {
            Phase::Closed => Event::None,
            Phase::Opening { .. } if h.kind == Type::Accept => {
                m.phase = Phase::Open;
                m.remote = h.src;
                m.theirs = Limits {
                    msgs: h.arg1,
                    small: h.arg2 as u32,
                };
                Event::Opened
            }
            Phase::Opening { .. } if h.kind == Type::Reject && h.arg0 == 3 => {
                m.phase = Phase::Opening { said: false };
                m.busy = true;
                Event::Busy
            }
            Phase::Opening { .. } => {
                m.phase = Phase::Closed;
                Event::Failed
            }
            _ => {
                room = h.kind != Type::Reset && m.take_credit(h);
                room |= matches!(h.kind, Type::WindowGrant | Type::WindowRevoke);
                let event = Self::means(m, h);
                if event == Event::None && room {
                    Event::Room
                } else {
                    event
                }
            }
        };
        assert_eq!(event, expected, "{h:?}: {m:?}");
        assert_eq!(self.c.take_room(), room, "a sender that waits is not woken");
        assert!(!self.c.take_room());
        true
    }

    /// The event of a valid message.
    fn means(m: &mut Model, h: &Header) -> Event {
        let len = u64::from(h.len);
        match h.kind {
            Type::Data | Type::Written => {
                let mut event = Event::Data;
                let mut sizes = (0, len);
                if let (Type::Written, Some(w)) = (h.kind, &mut m.own) {
                    let pad = (h.woff - w.arrived) as u32;
                    w.arrived = h.woff + len;
                    sizes = (u64::from(pad) + len, 0);
                    let off = (h.woff % w.size) as u32;
                    event = Event::Written { off, pad };
                }
                m.rx_pos += len;
                if !m.no_reader {
                    m.unread.push_back(sizes);
                    return event;
                }
                if m.gone {
                    m.end_called = true;
                }
                m.unwanted.push_back(sizes);
                m.free_unwanted();
                Event::Unwanted
            }
            Type::Reset if m.end_received => Event::None,
            Type::Fin => {
                m.fin_received = true;
                Event::Fin
            }
            Type::End | Type::Reset => {
                // Both sides had ended their directions, and the peer has read everything.
                let whole = m.fin_received && m.fin_sent && h.credit.msgs == m.tx_msgs as u32;
                (m.fin_received, m.end_received) = (true, true);
                // The peer waits for a message if it has leased a window that we have not given
                // back.
                let owed = m.peer.take().is_some() || m.revoked.is_some();
                m.due = false;
                if m.end_sent || !owed {
                    m.phase = Phase::Closed;
                }
                m.end_called = true;
                match h.kind {
                    Type::Reset if !whole => Event::Failed,
                    _ => Event::Fin,
                }
            }
            Type::WindowRequest if m.own.is_none() && !m.no_reader => Event::WindowWanted,
            Type::WindowGrant => {
                m.asked = false;
                if h.arg1 == 0 {
                    m.ask_after = m.tx_pos + (1 << 20);
                } else {
                    m.peer = Some(Theirs {
                        lease: h.lease,
                        addr: h.arg2,
                        key: h.arg0,
                        size: u64::from(h.arg1),
                        written: 0,
                        freed: 0,
                    });
                }
                Event::Room
            }
            Type::WindowRevoke => {
                m.peer = None;
                m.revoked = Some(h.lease);
                Event::Room
            }
            Type::Revoked => {
                m.own = None;
                if m.end_sent {
                    m.phase = Phase::Closed;
                }
                Event::Revoked
            }
            _ => Event::None,
        }
    }

    /// The channel says the next thing, if there is one.
    fn say(&mut self) {
        let had = self.c.has_pending_control();
        let said = self.c.next_control();
        assert_eq!(said.is_some(), had);
        let Some(h) = said else {
            return;
        };
        assert_eq!(Header::decode(&h.encode(), 0), Ok(h), "well-formed");
        let m = &mut self.m;
        if h.kind == Type::Connect {
            assert_eq!(m.phase, Phase::Opening { said: false });
            assert!(!m.busy, "CONNECT without being asked for");
            m.phase = Phase::Opening { said: true };
            assert_eq!((h.src, h.arg0), (m.local, (80 << 16) | 50000));
            assert_eq!((h.arg1, h.arg2), (m.ours.msgs, m.ours.small.into()));
            return;
        }
        assert_eq!((h.dst, h.src), (m.remote, m.local));
        assert!(!m.end_sent, "nothing after the last word: {h:?}");
        if h.kind == Type::Accept {
            assert_eq!(m.phase, Phase::Accepting);
            m.phase = Phase::Open;
            assert_eq!((h.arg1, h.arg2), (m.ours.msgs, m.ours.small.into()));
            return;
        }
        assert_eq!(m.phase, Phase::Open, "nothing before the answer");
        if let (Type::WindowGrant, Some(w)) = (h.kind, &mut m.own) {
            assert!(!w.granted, "a window is granted once");
            assert_eq!((u64::from(h.arg1), h.lease), (w.size, w.lease));
            w.granted = true;
        } else if h.kind == Type::WindowGrant {
            assert_eq!(h.arg1, 0);
        }
        self.check_credit(&h);
        let m = &mut self.m;
        match h.kind {
            Type::Fin => {
                assert!(m.fin_called && !m.fin_sent && h.pos == m.tx_pos);
                m.fin_sent = true;
            }
            Type::End | Type::Reset => {
                assert!(m.end_called && h.pos == m.tx_pos);
                (m.fin_sent, m.end_sent) = (true, true);
                m.due = false;
                if m.end_received || m.own.is_none() {
                    m.phase = Phase::Closed;
                }
            }
            Type::WindowRevoke => {
                let w = m.own.as_mut().expect("a window to be revoked");
                assert!(w.granted && h.lease == w.lease);
                w.revoking = true;
            }
            Type::WindowRequest => assert!(m.asked && !m.fin_sent),
            Type::Revoked => assert_eq!(Some(h.arg0), m.revoked.take()),
            Type::Credit | Type::WindowGrant => {}
            _ => panic!("out of place: {h:?}"),
        }
    }

    /// Each message announces all freed room, no more and no less.
    fn check_credit(&mut self, h: &Header) {
        let m = &mut self.m;
        assert_eq!(h.credit.msgs, m.freed_msgs as u32);
        assert_eq!(h.credit.small, m.freed_small);
        if let Some(w) = m.own.as_mut().filter(|w| w.granted) {
            assert_eq!((h.lease, h.credit.window), (w.lease, w.freed));
            w.told = w.freed;
        } else if !m.end_received {
            // To a peer that has ended it makes no difference.
            assert_eq!(h.lease, 0);
        }
        (m.told_msgs, m.told_small) = (m.freed_msgs, m.freed_small);
        m.due = false;
    }

    fn send(&mut self, want: u32, bulk: bool, less: u32) {
        let plan = self.c.plan(want, bulk);
        assert_eq!(plan, self.m.plan(want, bulk), "{:?}", self.m);
        let plan = plan.shortened(1 + less);
        let chunk = self.c.commit(plan);
        assert_eq!(
            chunk.is_some(),
            plan != Plan::Wait,
            "a plan is good at once"
        );
        let Some(chunk) = chunk else {
            return;
        };
        let h = chunk.header;
        let payload = if h.kind == Type::Data { h.len } else { 0 };
        assert_eq!(Header::decode(&h.encode(), payload), Ok(h), "well-formed");
        self.check_credit(&h);
        let m = &mut self.m;
        let len = u64::from(h.len);
        assert_eq!((h.dst, h.src, h.pos), (m.remote, m.local, m.tx_pos));
        assert_eq!(h.len as usize, plan.len());
        m.tx_pos += len;
        m.tx_msgs += 1;
        if let Some((addr, key)) = chunk.write_to {
            let w = m.peer.as_mut().expect("the peer's window");
            let from = match plan {
                Plan::Aligned(_) => w.written + skip(w.size, w.written),
                _ => w.written,
            };
            assert_eq!((h.kind, h.arg0, h.woff), (Type::Written, w.lease, from));
            assert_eq!((addr, key), (w.addr + from % w.size, w.key));
            w.written = from + len;
            assert!(addr + len <= w.addr + w.size, "beyond the window");
            assert!(w.written - w.freed <= w.size, "onto what is unread");
        } else {
            assert_eq!(h.kind, Type::Data);
            m.tx_small += len;
            assert!(m.tx_small - m.acked_small <= u64::from(m.theirs.small));
        }
        assert!(m.tx_msgs - m.acked_msgs <= u64::from(m.theirs.msgs));
    }

    fn grant(&mut self, size: u32) {
        let granted = self.c.grant(size, 0x1000, 7);
        assert_eq!(granted, self.m.may_grant(size), "{:?}", self.m);
        if granted {
            self.m.leases += 1;
            self.m.own = Some(Own {
                lease: self.m.leases,
                size: u64::from(size),
                arrived: 0,
                freed: 0,
                told: 0,
                granted: false,
                revoking: false,
            });
        }
    }

    fn act(&mut self, input: &mut Input<'_>) {
        let what = input.u8();
        let (c, m) = (&mut self.c, &mut self.m);
        let opening = matches!(m.phase, Phase::Opening { .. });
        match what {
            0..60 => self.say(),
            60..140 => {
                let want = u32::from(input.u16()) << (what % 8);
                let less = if what & 8 == 0 {
                    u32::MAX - 1
                } else {
                    u32::from(input.u16())
                };
                self.send(want, what & 16 != 0, less);
            }
            140..200 => {
                if let Some(sizes) = m.unread.pop_front() {
                    c.freed(sizes.0 as u32, sizes.1 as u32);
                    m.free(sizes);
                    m.free_unwanted();
                }
            }
            200..220 => {
                let size = match what % 8 {
                    0 => input.u32(),
                    1 => 65535 + u32::from(input.u8() % 4),
                    _ => 65536 + u32::from(input.u16()),
                };
                self.grant(size);
            }
            220..226 => {
                c.deny();
                if m.own.is_none() && !m.read_ended() && !m.end_sent && !opening {
                    assert!(c.has_pending_control(), "a refusal is said");
                }
            }
            226..236 => {
                let revoking = m.own.is_some_and(|w| !w.revoking);
                c.revoke();
                if revoking && !m.read_ended() && !m.end_sent {
                    assert!(c.has_pending_control(), "a revocation is said");
                }
            }
            236..240 => {
                c.shut_write();
                m.fin_called = true;
            }
            240..243 => {
                c.shut_read();
                m.no_reader = true;
            }
            243..247 => {
                c.shut(what & 1 != 0);
                (m.no_reader, m.gone) = (true, true);
                if opening {
                    m.phase = Phase::Closed;
                } else {
                    m.end_called = true;
                }
            }
            247 => {
                let late = c.time_out();
                assert_eq!(late, opening);
                if late {
                    m.phase = Phase::Closed;
                    (m.no_reader, m.gone) = (true, true);
                    assert_eq!(c.failure(), Some(Failure::TimedOut));
                }
            }
            248 => {
                c.abort(Failure::LinkLost);
                m.phase = Phase::Closed;
            }
            249..252 => {
                assert_eq!(c.try_again(), opening && m.busy);
                m.busy = false;
            }
            _ => {}
        }
    }

    fn check(&mut self) {
        // From here on it is another one, which was parked and brought back.
        let parked = self.c.park().expect("within the limits");
        self.c = Channel::unpark(&parked, LOCAL);
        let (c, m) = (&mut self.c, &mut self.m);
        let state = match m.phase {
            Phase::Opening { .. } => State::Opening,
            Phase::Accepting => State::Accepting,
            Phase::Open => State::Open,
            Phase::Closed => State::Closed,
        };
        if state == State::Closed {
            m.peer = None;
        }
        assert_eq!(c.state(), state, "{m:?}");
        assert_eq!(c.read_ended(), m.read_ended());
        assert_eq!(c.write_ended(), m.write_ended(), "{m:?}");
        assert_eq!(c.window_size(), m.own.map(|w| w.size as u32));
        assert_eq!(c.peer_window_size(), m.peer.map(|w| w.size as u32));
        assert_eq!(c.peer_writes_done(), m.read_ended() || m.own.is_none());
        let small = m.plan(SMALL_MAX, false) != Plan::Wait;
        assert_eq!(c.writable(), small, "{m:?}");
        if state == State::Open {
            // Control messages that are due are pending.
            let fin = m.fin_called && !m.fin_sent;
            let end = m.end_called && !m.end_sent;
            let revoked = m.revoked.is_some() && !m.end_sent && !m.end_received;
            if fin || end || revoked || m.due {
                assert!(c.has_pending_control(), "a message is forgotten: {m:?}");
            }
            if m.own.is_some_and(|w| !w.granted) && !m.end_sent && !m.end_received {
                assert!(c.has_pending_control(), "a grant is forgotten: {m:?}");
            }
        }
        if state == State::Closed {
            assert!(!c.has_pending_control());
        }
    }
}

/// A course of a channel's life.
pub fn channel(data: &[u8]) {
    let mut input = Input(data);
    let Some(mut course) = Course::new(&mut input) else {
        return;
    };
    // As far as the open channel, mostly.
    if input.u8() != 0 {
        course.say();
        if let Phase::Opening { .. } = course.m.phase {
            let mut h = Header::new(Type::Accept, LOCAL, REMOTE);
            (h.arg1, h.arg2) = (16, 65536);
            assert!(course.hear(&h));
        }
        course.check();
    }
    while !input.is_empty() {
        if input.u8() % 2 == 0 {
            let h = course.message(&mut input);
            // The first thing that may not be said ends the course: not too soon.
            if !course.m.may_hear(&h) && input.u8() < 220 {
                continue;
            }
            if !course.hear(&h) {
                return;
            }
        } else {
            course.act(&mut input);
        }
        course.check();
    }
}
