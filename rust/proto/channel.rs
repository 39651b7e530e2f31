// SPDX-License-Identifier: GPL-2.0

//! A channel: one stream socket's connection on a link. Its states, credit and windows.
//!
//! Everything a channel wants to say apart from data is a bit in `want` (the work bit T of row
//! L2 is "any bit set"); [`Channel::next_control`] turns one bit into one message when the link
//! has room. So control messages need no memory, are never lost and say what is true when they
//! leave. Data is planned ([`Channel::plan`]) and committed ([`Channel::commit`]) by the sender's
//! own call; nothing is queued here, but for the part of one message that a program may hold back.
//!
//! End of life: one side says that it neither sends nor reads any more (End, or Reset on error), and
//! both let the channel number go; but if it has leased a window to the other, it waits for the other's
//! word, which that one then owes it: whoever has heard it knows that no WRITE into its window can follow.
//!
//! This file has the states and the ends; `hear.rs` what the peer's messages do, `say.rs` what
//! the channel says, `cork.rs` what is held back, `room.rs` windows and what is given back to the peer, `park.rs` how a
//! channel is kept that nothing happens to.

mod cork;
mod packed;
mod rx;
mod tx;
mod window;

pub use packed::PackedChannel;

use super::wire::{Header, Refusal, CHUNK_MAX, SMALL_MAX};
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
const WINDOW_RETRY: u64 = 1 << 20;

/// More than this in one call begins at a multiple of [`ALIGN`] in the window, so that whole pages of it
/// can be mapped; what is left out before it counts as written.
const ALIGNED_MIN: u32 = 16 * 1024;
/// See [`ALIGNED_MIN`]. Windows of another size than a multiple of it are not aligned in.
const ALIGN: u64 = 4096;

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

/// Data and Written messages, and bytes of Data, since the channel was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Count {
    small: u64,
    /// Wraps.
    msgs: u32,
}

/// The peer's window, as we write into it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct PeerWindow {
    lease: u32,
    addr: u64,
    key: u32,
    size: u32,
    written: u64,
    freed: u64,
}

impl PeerWindow {
    /// What is left out before a chunk that begins at a multiple of [`ALIGN`].
    fn pad(&self) -> u64 {
        pad(self.size, self.written)
    }

    /// How the next `want` bytes go.
    fn plan(&self, want: u32) -> Plan {
        let size = u64::from(self.size);
        let aligned = want > ALIGNED_MIN;
        let pad = if aligned { self.pad() } else { 0 };
        let from = self.written.wrapping_add(pad);
        let room = size.saturating_sub(from.wrapping_sub(self.freed));
        let to_wrap = size.saturating_sub(from.checked_rem(size).unwrap_or(0));
        if room < BULK_MIN.min(u64::from(want)) {
            return Plan::Wait;
        }
        let mut n = room.min(to_wrap).min(u64::from(want.min(CHUNK_MAX)));
        if aligned && n < u64::from(want) && size % ALIGN == 0 {
            // The rest goes on at the beginning of a page.
            n = n.saturating_sub(from.wrapping_add(n) % ALIGN);
        }
        match pad {
            0 => Plan::Bulk(n as u32),
            _ => Plan::Aligned(n as u32),
        }
    }
}

/// The bytes from position `at` in a window of `size` bytes to the next multiple of [`ALIGN`].
fn pad(size: u32, at: u64) -> u64 {
    if u64::from(size) % ALIGN == 0 {
        at.wrapping_neg() % ALIGN
    } else {
        0
    }
}

/// Our window, as the peer writes into it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct OwnWindow {
    lease: u32,
    addr: u64,
    key: u32,
    size: u32,
    arrived: u64,
    freed: u64,
    advertised: u64,
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
    /// The same, from the next multiple of 4 KiB in the window on.
    Aligned(u32),
    /// All that is held back, which is this many bytes, as one DATA.
    Corked(u32),
}

impl Plan {
    /// Bytes that go; 0 for none.
    pub fn len(self) -> usize {
        match self {
            Self::Wait => 0,
            Self::Small(n) | Self::Bulk(n) | Self::Aligned(n) | Self::Corked(n) => n as usize,
        }
    }

    /// Whether nothing goes.
    #[cfg(not(MODULE))]
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The same way for `n` bytes, if that is less.
    pub fn shortened(self, n: u32) -> Self {
        match self {
            Self::Wait => Self::Wait,
            Self::Small(len) => Self::Small(len.min(n)),
            Self::Bulk(len) => Self::Bulk(len.min(n)),
            Self::Aligned(len) => Self::Aligned(len.min(n)),
            Self::Corked(len) => Self::Corked(len.min(n)),
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
    /// The peer's backlog is full: [`Channel::try_again`] later.
    Busy,
    /// The channel has failed; see [`Channel::failure`].
    Failed,
    /// Payload behind the header, `len` bytes.
    Data,
    /// Payload in our window, at this offset, `len` bytes.
    Written {
        /// Offset in the window.
        off: u32,
        /// Bytes left out before it, which are given back with it.
        pad: u32,
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

/// How far the peer has given room for more: what it has given back, and in which window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    acked: Count,
    window: Option<(u32, u64)>,
}

/// One channel.
#[derive(PartialEq, Eq, Debug)]
pub struct Channel {
    state: State,
    local: ChanId,
    remote: ChanId,
    failure: Option<Failure>,
    want: u16,
    ports: u32,
    /// CONNECT found the backlog full, and has not been asked for anew.
    busy: bool,

    ours: Limits,
    rx_pos: u64,
    rx: Count,
    freed: Count,
    advertised: Count,
    /// What arrived for no reader behind something that is not freed yet.
    unwanted: Count,
    unwanted_window: u64,
    window: Option<OwnWindow>,
    /// Bytes of this window or former ones that are not freed yet.
    window_unread: u64,
    leases: u32,
    fin_received: bool,
    end_received: bool,
    /// The program reads no more.
    no_reader: bool,
    /// The program is gone altogether.
    gone: bool,

    theirs: Limits,
    tx_pos: u64,
    tx: Count,
    acked: Count,
    /// Bytes that are held back.
    corked: u32,
    peer_window: Option<PeerWindow>,
    revoked: u32,
    window_requested: bool,
    window_retry_at: u64,
    fin_sent: bool,
    end_sent: bool,
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
            busy: false,
            ours,
            rx_pos: 0,
            rx: Count::default(),
            freed: Count::default(),
            advertised: Count::default(),
            unwanted: Count::default(),
            unwanted_window: 0,
            window: None,
            window_unread: 0,
            leases: 0,
            fin_received: false,
            end_received: false,
            no_reader: false,
            gone: false,
            theirs: Limits { msgs: 0, small: 0 },
            tx_pos: 0,
            tx: Count::default(),
            acked: Count::default(),
            corked: 0,
            peer_window: None,
            revoked: 0,
            window_requested: false,
            window_retry_at: 0,
            fin_sent: false,
            end_sent: false,
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
    #[cfg(not(MODULE))]
    pub fn accept(local: ChanId, h: &Header, ours: Limits) -> Result<Self, Violation> {
        Ok(Self::accepting(local, h.src, Limits::of(h)?, ours))
    }

    /// The same, for the peer's channel `remote` and its limits.
    pub fn accepting(local: ChanId, remote: ChanId, theirs: Limits, ours: Limits) -> Self {
        let mut c = Self::new(State::Accepting, local, ours);
        c.remote = remote;
        c.theirs = theirs;
        c.want = WANT_ACCEPT;
        c
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
        self.fin_received || self.end_received || self.state == State::Closed
    }

    /// Nothing can be sent any more, ever.
    pub fn write_ended(&self) -> bool {
        self.fin_sent
            || self.end_received
            || self.state == State::Closed
            || self.want & (WANT_FIN | WANT_END | WANT_RESET) != 0
    }

    /// We have ended our own direction.
    pub fn write_shut(&self) -> bool {
        self.fin_sent || self.want & (WANT_FIN | WANT_END | WANT_RESET) != 0
    }

    /// Whether [`Self::next_control`] has something to say.
    pub fn has_pending_control(&self) -> bool {
        match self.state {
            // Until the peer has answered, only CONNECT can be said.
            State::Opening => self.want & WANT_CONNECT != 0,
            State::Closed => false,
            _ => self.sendable_control() != 0,
        }
    }

    /// What can be said now: the end of the stream is behind what is held back.
    fn sendable_control(&self) -> u16 {
        match self.corked {
            0 => self.want,
            _ => self.want & !(WANT_FIN | WANT_END),
        }
    }

    /// Whether a window is to be granted, so that its registration is to be posted.
    pub fn grant_waits(&self) -> bool {
        self.want & WANT_GRANT != 0 && self.window.is_some()
    }

    /// Notes something to say. End and Reset are the last word.
    fn queue_control(&mut self, bit: u16) {
        if !self.end_sent && self.state != State::Closed {
            self.want |= bit;
        }
    }

    /// Notes that the stream is broken rather than ended.
    fn queue_reset(&mut self) {
        if !self.end_sent {
            self.want &= !(WANT_FIN | WANT_END);
            self.corked = 0;
            self.queue_control(WANT_RESET);
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

    /// How far the peer has given room for what we send.
    pub fn progress(&self) -> Progress {
        Progress {
            acked: self.acked,
            window: self.peer_window.map(|w| (w.lease, w.freed)),
        }
    }

    /// No WRITE of the peer into our window can come any more.
    pub fn peer_writes_done(&self) -> bool {
        self.fin_received
            || self.end_received
            || self.state == State::Closed
            || self.window.is_none()
    }

    /// Bytes that came into our windows and were not given back yet.
    pub fn window_unread(&self) -> u64 {
        self.window_unread
    }

    fn fail(&mut self, why: Failure) {
        if self.failure.is_none() {
            self.failure = Some(why);
        }
    }

    fn close(&mut self) {
        self.state = State::Closed;
        self.want = 0;
        self.corked = 0;
        self.peer_window = None;
    }

    /// The link is gone, or the connection was given up: the channel ends without a word.
    pub fn abort(&mut self, why: Failure) {
        if self.state == State::Closed {
            return;
        }
        // An orderly end that both sides know of is no failure.
        if !(self.fin_received && self.fin_sent) {
            self.fail(why);
        }
        self.close();
    }

    /// Ends our direction of the stream after all that was committed, or is held back.
    pub fn shut_write(&mut self) {
        if !self.fin_sent {
            self.queue_control(WANT_FIN);
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
            self.queue_reset();
        } else {
            self.queue_control(WANT_END);
        }
    }

    /// What arrives cannot be kept: the stream is broken, and the peer is told so. What had arrived before
    /// can be read.
    pub fn break_off(&mut self, why: Failure) {
        if self.state != State::Closed {
            self.fail(why);
            self.no_reader = true;
            self.queue_reset();
        }
    }

    /// The program waits no longer for the answer to its CONNECT. The channel's number is given up
    /// with it; an answer that comes late finds no channel and is answered by a Reset.
    fn give_up(&mut self) {
        self.no_reader = true;
        self.gone = true;
        self.close();
    }

    /// CONNECT is said once more, after the peer's backlog was full. Returns false when it was not, or the channel
    /// has ended since.
    pub fn try_again(&mut self) -> bool {
        let again = self.busy && self.state == State::Opening;
        if again {
            self.busy = false;
            self.queue_control(WANT_CONNECT);
        }
        again
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

    /// Whoever has leased a window must hear that no WRITE into it follows; nobody else waits.
    fn maybe_close(&mut self) {
        if self.end_sent && (self.end_received || self.window.is_none()) {
            self.close();
        }
    }
}
