// SPDX-License-Identifier: GPL-2.0

//! A channel: one stream socket's connection on a link. Its states, credit and windows.
//!
//! Everything a channel wants to say apart from data is a bit in `want` (the work bit T of row
//! L2 is "any bit set"); [`Channel::next_control`] turns one bit into one message when the link
//! has room. So control messages need no memory, are never lost and say what is true when they
//! leave. Data is planned ([`Channel::plan`]) and committed ([`Channel::commit`]) by the sender's
//! own call; nothing is queued here.
//!
//! End of life: each side says once that it neither sends nor reads any more (End, or Reset on
//! error) and lets the channel number go when it has said so and heard so. Whoever has heard it
//! knows that no WRITE into its window can follow.

use super::wire::{Credit, Header, Refusal, Type, CHUNK_MAX, SMALL_MAX};
use super::{ChanId, Violation};

/// Where a channel is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// CONNECT is to be sent or has been sent.
    Opening,
    /// ACCEPT is to be sent.
    Accepting,
    /// Data may flow.
    Open,
    /// Nothing more goes or comes on the wire.
    Closed,
}

/// Why a channel failed. The first one sticks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// The peer refused the connection.
    Refused(Refusal),
    /// The peer broke the connection.
    Reset,
    /// The link went down under an open channel.
    LinkLost,
    /// Nobody answered in time.
    TimedOut,
    /// There is no route to the peer's network.
    NoRoute,
    /// The peer cannot be reached.
    Unreachable,
    /// The way to the peer leads over no RDMA device.
    NoDevice,
    /// We had no memory or no table entry.
    NoResources,
    /// The peer speaks another version.
    Protocol,
}

/// What a receiver lets the peer have outstanding on a channel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// DATA and WRITTEN messages that nobody has consumed.
    pub msgs: u32,
    /// Bytes of DATA that nobody has consumed.
    pub small: u32,
}

impl Limits {
    /// What a Connect or Accept says of its sender's.
    pub fn of(h: &Header) -> Result<Self, Violation> {
        let limits = Self {
            msgs: h.arg1,
            small: u32::try_from(h.arg2).map_err(|_| Violation::Length)?,
        };
        if limits.sane() {
            Ok(limits)
        } else {
            Err(Violation::Length)
        }
    }

    /// The least that makes sense: one full DATA, and a few messages.
    fn sane(self) -> bool {
        (4..=1 << 16).contains(&self.msgs) && (4 * SMALL_MAX..=1 << 24).contains(&self.small)
    }
}

/// The smallest and the largest window, in bytes.
pub const WINDOW_MIN: u32 = 64 * 1024;
/// See [`WINDOW_MIN`].
pub const WINDOW_MAX: u32 = 1 << 30;

/// After a denied window, this many bytes go the small way before we ask again.
const ASK_AGAIN: u64 = 1 << 20;

/// Bulk data waits for at least this much room, if it has as much to send.
const BULK_MIN: u64 = 16 * 1024;

const WANT_CONNECT: u16 = 1 << 0;
const WANT_ACCEPT: u16 = 1 << 1;
const WANT_REQUEST: u16 = 1 << 2;
const WANT_GRANT: u16 = 1 << 3;
const WANT_REVOKE: u16 = 1 << 4;
const WANT_REVOKED: u16 = 1 << 5;
const WANT_CREDIT: u16 = 1 << 6;
const WANT_FIN: u16 = 1 << 7;
const WANT_END: u16 = 1 << 8;
const WANT_RESET: u16 = 1 << 9;

/// The peer's window, as we write into it.
#[derive(Clone, Copy, Debug)]
struct PeerWindow {
    lease: u32,
    addr: u64,
    key: u32,
    size: u32,
    written: u64,
    freed: u64,
}

/// Our window, as the peer writes into it.
#[derive(Clone, Copy, Debug)]
struct OwnWindow {
    lease: u32,
    addr: u64,
    key: u32,
    size: u32,
    arrived: u64,
    freed: u64,
    told: u64,
    /// WindowRevoke has been said.
    revoking: bool,
}

/// How the next bytes of the stream would go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Plan {
    /// Not now: out of room, or the channel is not open.
    Wait,
    /// This many bytes as one DATA.
    Small(u32),
    /// This many bytes as WRITE and WRITTEN.
    Bulk(u32),
}

impl Plan {
    /// Bytes that go; 0 for none.
    pub fn len(self) -> usize {
        match self {
            Self::Wait => 0,
            Self::Small(n) | Self::Bulk(n) => n as usize,
        }
    }

    /// Whether nothing goes.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The same way for `n` bytes, if that is less.
    pub fn shortened(self, n: u32) -> Self {
        match self {
            Self::Wait => Self::Wait,
            Self::Small(len) => Self::Small(len.min(n)),
            Self::Bulk(len) => Self::Bulk(len.min(n)),
        }
    }
}

/// Where a committed chunk goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chunk {
    /// The message to SEND (behind the WRITE, if there is one). `link_credit` is not filled in.
    pub header: Header,
    /// Address and key of the WRITE; none for DATA.
    pub write_to: Option<(u64, u32)>,
}

/// What a message meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// Nothing for anybody.
    None,
    /// The channel is open.
    Opened,
    /// The channel has failed; see [`Channel::failure`].
    Failed,
    /// Payload behind the header, `len` bytes.
    Data,
    /// Payload in our window, at this offset, `len` bytes.
    Written {
        /// Offset in the window.
        off: u32,
    },
    /// Payload that nobody will read.
    Unwanted,
    /// The peer wants a window: call [`Channel::grant`] or [`Channel::deny`].
    WindowWanted,
    /// There is more room, or a window.
    Room,
    /// The peer sends no more.
    Fin,
    /// No WRITE into our window follows; the lease is over.
    Revoked,
}

/// One channel.
#[derive(Debug)]
pub struct Channel {
    state: State,
    local: ChanId,
    remote: ChanId,
    failure: Option<Failure>,
    want: u16,
    ports: u32,

    ours: Limits,
    rx_pos: u64,
    rx_msgs: u32,
    rx_small: u64,
    freed: Credit,
    told: Credit,
    /// What arrived for no reader behind something that is not freed yet.
    unwanted: Credit,
    window: Option<OwnWindow>,
    /// Bytes of this window or former ones that are not freed yet.
    window_unread: u64,
    leases: u32,
    fin_heard: bool,
    end_heard: bool,
    /// The program reads no more.
    no_reader: bool,
    /// The program is gone altogether.
    gone: bool,

    theirs: Limits,
    tx_pos: u64,
    tx_msgs: u32,
    tx_small: u64,
    acked: Credit,
    peer_window: Option<PeerWindow>,
    revoked: u32,
    asked: bool,
    ask_after: u64,
    fin_said: bool,
    end_said: bool,
    /// A message brought room or a window that [`Self::take_room`] has not told of.
    room: bool,
}

impl Channel {
    fn new(state: State, local: ChanId, ours: Limits) -> Self {
        Self {
            state,
            local,
            remote: ChanId::default(),
            failure: None,
            want: 0,
            ports: 0,
            ours,
            rx_pos: 0,
            rx_msgs: 0,
            rx_small: 0,
            freed: Credit::default(),
            told: Credit::default(),
            unwanted: Credit::default(),
            window: None,
            window_unread: 0,
            leases: 0,
            fin_heard: false,
            end_heard: false,
            no_reader: false,
            gone: false,
            theirs: Limits { msgs: 0, small: 0 },
            tx_pos: 0,
            tx_msgs: 0,
            tx_small: 0,
            acked: Credit::default(),
            peer_window: None,
            revoked: 0,
            asked: false,
            ask_after: 0,
            fin_said: false,
            end_said: false,
            room: false,
        }
    }

    /// A channel that we open from port `src` to the peer's port `dst`.
    pub fn connect(local: ChanId, src: u16, dst: u16, ours: Limits) -> Self {
        let mut c = Self::new(State::Opening, local, ours);
        c.ports = (u32::from(dst) << 16) | u32::from(src);
        c.want = WANT_CONNECT;
        c
    }

    /// A channel that the peer opens by the CONNECT `h`.
    pub fn accept(local: ChanId, h: &Header, ours: Limits) -> Result<Self, Violation> {
        let mut c = Self::new(State::Accepting, local, ours);
        c.remote = h.src;
        c.theirs = Limits::of(h)?;
        c.want = WANT_ACCEPT;
        Ok(c)
    }

    /// Destination and source port of a CONNECT.
    pub fn ports_of(h: &Header) -> (u16, u16) {
        ((h.arg0 >> 16) as u16, h.arg0 as u16)
    }

    /// The state.
    pub fn state(&self) -> State {
        self.state
    }

    /// Our number of the channel.
    pub fn local(&self) -> ChanId {
        self.local
    }

    /// The first failure, if there was one.
    pub fn failure(&self) -> Option<Failure> {
        self.failure
    }

    /// The peer sends no more: when all that arrived is read, the stream is at its end.
    pub fn read_ended(&self) -> bool {
        self.fin_heard || self.end_heard || self.state == State::Closed
    }

    /// Nothing can be sent any more, ever.
    pub fn write_ended(&self) -> bool {
        self.fin_said
            || self.end_heard
            || self.state == State::Closed
            || self.want & (WANT_FIN | WANT_END | WANT_RESET) != 0
    }

    /// We have ended our own direction.
    pub fn write_shut(&self) -> bool {
        self.fin_said || self.want & (WANT_FIN | WANT_END | WANT_RESET) != 0
    }

    /// Whether [`Self::next_control`] has something to say.
    pub fn has_control(&self) -> bool {
        match self.state {
            // Until the peer has answered, only CONNECT can be said.
            State::Opening => self.want & WANT_CONNECT != 0,
            State::Closed => false,
            _ => self.want != 0,
        }
    }

    /// Notes something to say. End and Reset are the last word.
    fn say(&mut self, bit: u16) {
        if !self.end_said && self.state != State::Closed {
            self.want |= bit;
        }
    }

    /// Notes that the stream is broken rather than ended.
    fn say_reset(&mut self) {
        if !self.end_said {
            self.want &= !(WANT_FIN | WANT_END);
            self.say(WANT_RESET);
        }
    }

    /// The size of our window while it is leased to the peer.
    pub fn window_size(&self) -> Option<u32> {
        self.window.map(|w| w.size)
    }

    /// The size of the peer's window while it is leased to us.
    pub fn peer_window_size(&self) -> Option<u32> {
        self.peer_window.map(|w| w.size)
    }

    /// No WRITE of the peer into our window can come any more.
    pub fn window_quiet(&self) -> bool {
        self.fin_heard || self.end_heard || self.state == State::Closed || self.window.is_none()
    }

    fn fail(&mut self, why: Failure) {
        if self.failure.is_none() {
            self.failure = Some(why);
        }
    }

    fn close(&mut self) {
        self.state = State::Closed;
        self.want = 0;
        self.peer_window = None;
    }

    /// The link is gone, or the connection was given up: the channel ends without a word.
    pub fn abort(&mut self, why: Failure) {
        if self.state == State::Closed {
            return;
        }
        // An orderly end that both sides know of is no failure.
        if !(self.fin_heard && self.fin_said) {
            self.fail(why);
        }
        self.close();
    }

    /// Ends our direction of the stream after all that was committed.
    pub fn shut_write(&mut self) {
        if !self.fin_said {
            self.say(WANT_FIN);
        }
    }

    /// The program is gone: we neither send nor read any more. `unread`: data of the peer's was
    /// left, so the stream is broken rather than ended.
    pub fn shut(&mut self, unread: bool) {
        if self.state == State::Opening {
            self.give_up();
            return;
        }
        self.no_reader = true;
        self.gone = true;
        if unread {
            self.say_reset();
        } else {
            self.say(WANT_END);
        }
    }

    /// The program waits no longer for the answer to its CONNECT. The channel's number is given up
    /// with it; an answer that comes late finds no channel and is answered by a Reset.
    fn give_up(&mut self) {
        self.no_reader = true;
        self.gone = true;
        self.close();
    }

    /// The time for connecting is over. Returns false when it was not needed.
    pub fn time_out(&mut self) -> bool {
        if self.state != State::Opening || self.gone {
            return false;
        }
        self.fail(Failure::TimedOut);
        self.give_up();
        true
    }

    /// What arrives from now on is thrown away: the program shut its reading direction. The peer
    /// may go on sending. What had arrived before is to be freed as ever.
    pub fn shut_read(&mut self) {
        self.no_reader = true;
    }

    fn maybe_close(&mut self) {
        if self.end_said && self.end_heard {
            self.close();
        }
    }

    /// Takes a message that is for this channel. A violation means that the link must be closed.
    pub fn on_message(&mut self, h: &Header) -> Result<Event, Violation> {
        if self.state == State::Closed {
            return Ok(Event::None);
        }
        let opening = self.state == State::Opening;
        if opening != matches!(h.kind, Type::Accept | Type::Reject) {
            // A Reset may overtake nothing, but it may answer a CONNECT that found no table.
            if !(opening && h.kind == Type::Reset) {
                return Err(Violation::State);
            }
        }
        if opening {
            return self.on_answer(h);
        }
        // A host that does not know the channel answers with a Reset that may name none.
        let reset = h.kind == Type::Reset;
        if h.src != self.remote && !(reset && h.src == ChanId::default()) {
            return Err(Violation::Channel);
        }
        if self.state == State::Accepting && self.want & WANT_ACCEPT != 0 {
            return Err(Violation::State);
        }
        // Nor does it know of credit.
        let room = !reset && self.on_credit(h)?;
        let event = match h.kind {
            Type::Data | Type::Written => self.on_data(h)?,
            Type::Fin | Type::End | Type::Reset => self.on_end(h)?,
            Type::Credit => Event::None,
            Type::WindowRequest => {
                if self.fin_heard {
                    return Err(Violation::State);
                } else if self.window.is_some() {
                    // Asked for before our own offer arrived.
                    Event::None
                } else if self.no_reader {
                    self.deny();
                    Event::None
                } else {
                    Event::WindowWanted
                }
            }
            Type::WindowGrant => self.on_grant(h)?,
            Type::WindowRevoke => {
                if self.peer_window.is_none_or(|w| w.lease != h.lease) {
                    return Err(Violation::State);
                }
                self.peer_window = None;
                self.revoked = h.lease;
                self.say(WANT_REVOKED);
                // Who waited for room in that window must find another way.
                Event::Room
            }
            Type::Revoked => match self.window {
                Some(w) if w.lease == h.arg0 && w.revoking => {
                    self.window = None;
                    Event::Revoked
                }
                _ => return Err(Violation::State),
            },
            _ => return Err(Violation::State),
        };
        self.room |= room || event == Event::Room;
        Ok(if event == Event::None && room {
            Event::Room
        } else {
            event
        })
    }

    /// Whether there has been more room, or a window, since the last call. A message of any
    /// meaning may bring it, so ask after each: whoever waits to send must look again.
    pub fn take_room(&mut self) -> bool {
        core::mem::take(&mut self.room)
    }

    fn on_answer(&mut self, h: &Header) -> Result<Event, Violation> {
        if self.want & WANT_CONNECT != 0 {
            return Err(Violation::State);
        }
        if h.kind == Type::Accept {
            self.theirs = Limits::of(h)?;
            self.remote = h.src;
            self.state = State::Open;
            return Ok(Event::Opened);
        }
        self.fail(Failure::Refused(Refusal::from_u32(h.arg0)));
        self.close();
        Ok(Event::Failed)
    }

    fn on_credit(&mut self, h: &Header) -> Result<bool, Violation> {
        let c = h.credit;
        let msgs_gain = c.msgs.wrapping_sub(self.acked.msgs);
        let msgs_out = self.tx_msgs.wrapping_sub(self.acked.msgs);
        if msgs_gain > msgs_out || c.small < self.acked.small || c.small > self.tx_small {
            return Err(Violation::Credit);
        }
        let mut gain = msgs_gain != 0 || c.small != self.acked.small;
        self.acked.msgs = c.msgs;
        self.acked.small = c.small;
        if let Some(w) = &mut self.peer_window {
            // The window's credit counts from the beginning of its lease.
            if w.lease == h.lease && h.kind != Type::WindowGrant {
                if c.window < w.freed || c.window > w.written {
                    return Err(Violation::Credit);
                }
                gain |= c.window != w.freed;
                w.freed = c.window;
            }
        }
        Ok(gain)
    }

    fn on_data(&mut self, h: &Header) -> Result<Event, Violation> {
        if self.fin_heard || self.end_heard {
            return Err(Violation::State);
        }
        if h.pos != self.rx_pos {
            return Err(Violation::Position);
        }
        let outstanding = self.rx_msgs.wrapping_sub(self.freed.msgs);
        if outstanding >= self.ours.msgs {
            return Err(Violation::Credit);
        }
        let len = u64::from(h.len);
        let mut event = Event::Data;
        if h.kind == Type::Data {
            let small = self.rx_small.wrapping_add(len);
            if small.wrapping_sub(self.freed.small) > u64::from(self.ours.small) {
                return Err(Violation::Credit);
            }
            self.rx_small = small;
        } else {
            // The peer cannot know of a window before the grant has left.
            let granted = self.want & WANT_GRANT == 0;
            let w = self.window.as_mut().filter(|_| granted);
            let w = w.ok_or(Violation::State)?;
            let size = u64::from(w.size);
            let off = w.arrived.checked_rem(size).ok_or(Violation::State)?;
            let arrived = w.arrived.wrapping_add(len);
            if h.arg0 != w.lease || h.woff != w.arrived || off.saturating_add(len) > size {
                return Err(Violation::Position);
            }
            if arrived.wrapping_sub(w.freed) > size {
                return Err(Violation::Credit);
            }
            w.arrived = arrived;
            self.window_unread = self.window_unread.saturating_add(len);
            event = Event::Written { off: off as u32 };
        }
        self.rx_pos = self.rx_pos.wrapping_add(len);
        self.rx_msgs = self.rx_msgs.wrapping_add(1);
        if self.no_reader {
            if self.gone {
                self.say_reset();
            }
            self.unwanted.msgs = self.unwanted.msgs.wrapping_add(1);
            let sum = match event {
                Event::Written { .. } => &mut self.unwanted.window,
                _ => &mut self.unwanted.small,
            };
            *sum = sum.wrapping_add(len);
            self.free_unwanted();
            event = Event::Unwanted;
        }
        Ok(event)
    }

    /// Gives back the room of what nobody will read, so that the peer does not wait; in the
    /// order of the stream, for the peer would write over what is still unread before it.
    fn free_unwanted(&mut self) {
        if self.rx_msgs.wrapping_sub(self.freed.msgs) == self.unwanted.msgs {
            let sum = core::mem::take(&mut self.unwanted);
            if sum.msgs != 0 {
                self.count_freed(sum);
            }
        }
    }

    fn on_end(&mut self, h: &Header) -> Result<Event, Violation> {
        if self.end_heard && h.kind == Type::Reset {
            // One may answer each message to a channel that the peer has forgotten.
            return Ok(Event::None);
        }
        if self.end_heard || (h.kind == Type::Fin && self.fin_heard) {
            return Err(Violation::State);
        }
        if h.kind != Type::Reset && h.pos != self.rx_pos {
            return Err(Violation::Position);
        }
        self.fin_heard = true;
        if h.kind == Type::Fin {
            return Ok(Event::Fin);
        }
        self.end_heard = true;
        self.peer_window = None;
        if h.kind == Type::Reset {
            self.fail(Failure::Reset);
        }
        if !self.end_said {
            // Let the peer let go of the channel.
            self.want = WANT_END;
        }
        self.maybe_close();
        Ok(if h.kind == Type::Reset {
            Event::Failed
        } else {
            Event::Fin
        })
    }

    fn on_grant(&mut self, h: &Header) -> Result<Event, Violation> {
        if self.peer_window.is_some() {
            return Err(Violation::State);
        }
        self.asked = false;
        self.want &= !WANT_REQUEST;
        if h.arg1 == 0 {
            self.ask_after = self.tx_pos.saturating_add(ASK_AGAIN);
            return Ok(Event::Room);
        }
        // Lease 0 is none.
        if !(WINDOW_MIN..=WINDOW_MAX).contains(&h.arg1)
            || h.lease == 0
            || h.arg2.checked_add(u64::from(h.arg1)).is_none()
        {
            return Err(Violation::Length);
        }
        self.peer_window = Some(PeerWindow {
            lease: h.lease,
            addr: h.arg2,
            key: h.arg0,
            size: h.arg1,
            written: 0,
            freed: 0,
        });
        Ok(Event::Room)
    }

    /// Leases a window of `size` bytes to the peer; it may be asked for or offered. Returns
    /// false when there is one already, or something of a former one is not freed yet, or there
    /// is no use for one.
    pub fn grant(&mut self, size: u32, addr: u64, key: u32) -> bool {
        if self.window.is_some()
            || self.window_unread != 0
            || self.read_ended()
            || self.no_reader
            || !matches!(self.state, State::Open | State::Accepting)
            || !(WINDOW_MIN..=WINDOW_MAX).contains(&size)
        {
            return false;
        }
        // 0 is none.
        self.leases = self.leases.wrapping_add(1).max(1);
        self.window = Some(OwnWindow {
            lease: self.leases,
            addr,
            key,
            size,
            arrived: 0,
            freed: 0,
            told: 0,
            revoking: false,
        });
        self.freed.window = 0;
        self.told.window = 0;
        self.say(WANT_GRANT);
        true
    }

    /// Answers the peer's wish for a window: there is none now.
    pub fn deny(&mut self) {
        if self.window.is_none() && !self.read_ended() {
            self.say(WANT_GRANT);
        }
    }

    /// Asks the peer to stop writing into our window; [`Event::Revoked`] tells when it has.
    /// Asking again while it has not changes nothing.
    pub fn revoke(&mut self) {
        if self.window.is_some_and(|w| !w.revoking) && !self.read_ended() {
            self.say(WANT_REVOKE);
        }
    }

    /// How the next `want` bytes would go; `bulk` when the call they belong to is above the
    /// small class. Asks the peer for a window when one is missing.
    pub fn plan(&mut self, want: u32, bulk: bool) -> Plan {
        if self.state != State::Open || self.write_ended() || want == 0 {
            return Plan::Wait;
        }
        if self.tx_msgs.wrapping_sub(self.acked.msgs) >= self.theirs.msgs {
            return Plan::Wait;
        }
        if bulk {
            if let Some(w) = &self.peer_window {
                let size = u64::from(w.size);
                let room = size.saturating_sub(w.written.wrapping_sub(w.freed));
                let to_wrap = size.saturating_sub(w.written.checked_rem(size).unwrap_or(0));
                if room < BULK_MIN.min(u64::from(want)) {
                    return Plan::Wait;
                }
                let n = room.min(to_wrap).min(u64::from(want.min(CHUNK_MAX)));
                return Plan::Bulk(n as u32);
            }
            if self.asked {
                return Plan::Wait;
            }
            if self.tx_pos >= self.ask_after {
                self.asked = true;
                self.say(WANT_REQUEST);
                return Plan::Wait;
            }
        }
        let out = self.tx_small.wrapping_sub(self.acked.small);
        let room = u64::from(self.theirs.small).saturating_sub(out);
        let n = want.min(SMALL_MAX);
        if room < u64::from(n) {
            return Plan::Wait;
        }
        Plan::Small(n)
    }

    /// Whether a program that asks by poll() may send: room for at least one full DATA.
    pub fn writable(&mut self) -> bool {
        // A window that was asked for does not keep small data from going.
        self.plan(SMALL_MAX, false) != Plan::Wait
    }

    /// Commits a chunk as planned or a shorter one of the same kind; `None` when it does not
    /// fit (any more).
    pub fn commit(&mut self, plan: Plan) -> Option<Chunk> {
        if self.state != State::Open || self.write_ended() {
            return None;
        }
        if self.tx_msgs.wrapping_sub(self.acked.msgs) >= self.theirs.msgs {
            return None;
        }
        let (kind, len) = match plan {
            Plan::Wait => return None,
            Plan::Small(n) => (Type::Data, n),
            Plan::Bulk(n) => (Type::Written, n),
        };
        if len == 0 {
            return None;
        }
        let mut header = Header::new(kind, self.remote, self.local);
        header.len = len;
        header.pos = self.tx_pos;
        let mut write_to = None;
        let n = u64::from(len);
        if kind == Type::Data {
            let small = self.tx_small.wrapping_add(n);
            let over = small.wrapping_sub(self.acked.small) > u64::from(self.theirs.small);
            if len > SMALL_MAX || over {
                return None;
            }
            self.tx_small = small;
        } else {
            let w = self.peer_window.as_mut()?;
            let size = u64::from(w.size);
            let off = w.written.checked_rem(size)?;
            let written = w.written.wrapping_add(n);
            if len > CHUNK_MAX
                || off.saturating_add(n) > size
                || written.wrapping_sub(w.freed) > size
            {
                return None;
            }
            header.woff = w.written;
            header.arg0 = w.lease;
            write_to = Some((w.addr.checked_add(off)?, w.key));
            w.written = written;
        }
        self.tx_pos = self.tx_pos.wrapping_add(n);
        self.tx_msgs = self.tx_msgs.wrapping_add(1);
        self.fill_credit(&mut header);
        Some(Chunk { header, write_to })
    }

    fn fill_credit(&mut self, h: &mut Header) {
        h.credit = self.freed;
        if let Some(w) = &mut self.window {
            // Until the grant has left, the peer knows nothing of this lease.
            if self.want & WANT_GRANT == 0 {
                h.lease = w.lease;
                w.told = w.freed;
            }
        }
        self.told = self.freed;
        self.want &= !WANT_CREDIT;
    }

    /// A segment was consumed: one message, `window` bytes of the window or `small` bytes of
    /// DATA. Wants to tell the peer when a quarter of anything has gathered.
    pub fn freed(&mut self, window: u32, small: u32) {
        self.count_freed(Credit {
            window: u64::from(window),
            small: u64::from(small),
            msgs: 1,
        });
        self.free_unwanted();
    }

    fn count_freed(&mut self, sum: Credit) {
        self.freed.msgs = self.freed.msgs.wrapping_add(sum.msgs);
        self.freed.small = self.freed.small.wrapping_add(sum.small);
        self.window_unread = self.window_unread.saturating_sub(sum.window);
        let mut due = false;
        if let Some(w) = &mut self.window {
            w.freed = w.freed.wrapping_add(sum.window);
            self.freed.window = w.freed;
            due = w.freed.wrapping_sub(w.told) >= u64::from(w.size >> 2);
        }
        due |= self.freed.msgs.wrapping_sub(self.told.msgs) >= self.ours.msgs >> 2;
        due |= self.freed.small.wrapping_sub(self.told.small) >= u64::from(self.ours.small >> 2);
        if due && !self.read_ended() {
            self.say(WANT_CREDIT);
        }
    }

    /// The next control message, in the order in which they must leave. `link_credit` is not
    /// filled in. A WindowGrant of a size above 0 goes behind the registration of the window.
    pub fn next_control(&mut self) -> Option<Header> {
        if !self.has_control() {
            return None;
        }
        if self.state == State::Opening {
            self.want &= !WANT_CONNECT;
            let mut h = Header::new(Type::Connect, ChanId::default(), self.local);
            h.arg0 = self.ports;
            self.fill_limits(&mut h);
            return Some(h);
        }
        let order = [
            (WANT_ACCEPT, Type::Accept),
            (WANT_REVOKED, Type::Revoked),
            (WANT_GRANT, Type::WindowGrant),
            (WANT_REVOKE, Type::WindowRevoke),
            (WANT_REQUEST, Type::WindowRequest),
            (WANT_CREDIT, Type::Credit),
            (WANT_FIN, Type::Fin),
            (WANT_RESET, Type::Reset),
            (WANT_END, Type::End),
        ];
        let (bit, kind) = order.into_iter().find(|(bit, _)| self.want & bit != 0)?;
        self.want &= !bit;
        let mut h = Header::new(kind, self.remote, self.local);
        if kind != Type::Accept {
            self.fill_credit(&mut h);
        }
        match kind {
            Type::Accept => {
                self.fill_limits(&mut h);
                self.state = State::Open;
            }
            Type::WindowGrant => {
                if let Some(w) = &self.window {
                    h.arg0 = w.key;
                    h.arg1 = w.size;
                    h.arg2 = w.addr;
                    h.lease = w.lease;
                }
            }
            Type::WindowRevoke => {
                if let Some(w) = &mut self.window {
                    w.revoking = true;
                    h.lease = w.lease;
                }
            }
            Type::Revoked => h.arg0 = self.revoked,
            Type::Fin => {
                h.pos = self.tx_pos;
                self.fin_said = true;
            }
            Type::End | Type::Reset => {
                h.pos = self.tx_pos;
                self.fin_said = true;
                self.end_said = true;
                self.want = 0;
                self.maybe_close();
            }
            _ => {}
        }
        Some(h)
    }

    fn fill_limits(&self, h: &mut Header) {
        h.arg1 = self.ours.msgs;
        h.arg2 = u64::from(self.ours.small);
    }
}
