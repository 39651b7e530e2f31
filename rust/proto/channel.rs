// SPDX-License-Identifier: GPL-2.0

//! A channel: one stream socket's connection on a link. Its states, credit and windows.
//!
//! Every control message that a channel has to send is a bit in `want` (the work bit TX of the link
//! table says that one can be sent). [`Channel::next_control`] turns one bit into one message when
//! the link has room. So control messages need no memory, are never lost, and carry the state at
//! the time they leave. Data is planned ([`Channel::plan`]) and committed ([`Channel::commit`]) by
//! the sender's own call. Nothing is queued here, except the corked part of one message.
//!
//! End of life: one side announces that it neither sends nor reads any more (End, or Reset on
//! error), and both sides release the channel number. But a side that has leased a window to its
//! peer first waits for the peer's End or Reset (or Revoked, if the window was revoked), which the
//! peer then has to send: after it, no WRITE into the window can follow.
//!
//! This file has the states and the end of life; `rx.rs` processes the peer's messages, `tx.rs`
//! builds data and control messages and writes the credit into them, `cork.rs` counts corked bytes,
//! `window.rs` leases windows and counts what was freed, `packed.rs` is the parked form of an idle
//! channel.

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
    /// CONNECT waits to be sent, or was sent.
    Opening,
    /// ACCEPT waits to be sent.
    Accepting,
    /// Data may flow.
    Open,
    /// Nothing more is sent or received.
    Closed,
}

/// Why a channel failed. The first failure is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// The peer refused the connection.
    Refused(Refusal),
    /// The peer reset the connection.
    Reset,
    /// The link went down under an open channel.
    LinkLost,
    /// No answer came in time.
    TimedOut,
    /// There is no route to the peer's network.
    NoRoute,
    /// The peer cannot be reached.
    Unreachable,
    /// The route to the peer uses no RDMA device.
    NoDevice,
    /// This host had no memory or no table entry.
    NoResources,
    /// The share of links of the user or the network namespace is used.
    Quota,
    /// The peer speaks another version.
    Protocol,
    /// A list of peers, here or there, does not allow the link.
    Denied,
    /// A key, here or there, demands a proof, which has failed.
    Unproved,
}

/// Limits on the data that the peer may have unread on a channel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// DATA and WRITTEN messages that are not consumed.
    pub msgs: u32,
    /// Bytes of DATA that are not consumed.
    pub small: u32,
}

impl Limits {
    /// The limits of the sender of a Connect or Accept.
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

    /// Whether the limits are usable: at least four messages and four full DATA payloads, and not
    /// absurdly many.
    fn sane(self) -> bool {
        (4..=1 << 16).contains(&self.msgs) && (4 * SMALL_MAX..=1 << 24).contains(&self.small)
    }
}

/// The smallest and the largest window, in bytes.
pub const WINDOW_MIN: u32 = 64 * 1024;
/// See [`WINDOW_MIN`].
pub const WINDOW_MAX: u32 = 1 << 30;

/// After a denied window, this many bytes go as small messages before the channel requests one
/// again.
const WINDOW_RETRY: u64 = 1 << 20;

/// A call with more bytes than this begins at a multiple of [`ALIGN`] in the window, so that whole
/// pages of it can be mapped. The bytes skipped before it count as written.
const ALIGNED_MIN: u32 = 16 * 1024;
/// See [`ALIGNED_MIN`]. In a window whose size is not a multiple of this, nothing is aligned.
const ALIGN: u64 = 4096;

/// Bulk data waits for at least this much room, in bytes, if there is that much to send.
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

/// The peer's window, which this side writes into.
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
    /// Bytes to skip so that a chunk begins at a multiple of [`ALIGN`].
    fn pad(&self) -> u64 {
        pad(self.size, self.written)
    }

    /// Plans the next `want` bytes.
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
            // End at a page boundary, so that the rest begins at one.
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

/// This side's window, which the peer writes into.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct OwnWindow {
    lease: u32,
    addr: u64,
    key: u32,
    size: u32,
    arrived: u64,
    freed: u64,
    advertised: u64,
    /// WindowRevoke was sent.
    revoking: bool,
}

/// How the next bytes of the stream would be sent.
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
    /// All corked bytes, which are this many, as one DATA.
    Corked(u32),
}

impl Plan {
    /// Bytes to send; 0 for none.
    pub fn len(self) -> usize {
        match self {
            Self::Wait => 0,
            Self::Small(n) | Self::Bulk(n) | Self::Aligned(n) | Self::Corked(n) => n as usize,
        }
    }

    /// Whether no bytes can be sent.
    #[cfg(not(MODULE))]
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The same plan for `n` bytes, if that is less.
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

/// The result of a received message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// Nothing to do.
    None,
    /// The channel is open.
    Opened,
    /// The peer's backlog is full: [`Channel::try_again`] later.
    Busy,
    /// The channel has failed; see [`Channel::failure`].
    Failed,
    /// Payload behind the header, `len` bytes.
    Data,
    /// Payload in this side's window, at this offset, `len` bytes.
    Written {
        /// Offset in the window.
        off: u32,
        /// Skipped bytes before it, which are given back with it.
        pad: u32,
    },
    /// Payload that will not be read.
    Unwanted,
    /// The peer requests a window: call [`Channel::grant`] or [`Channel::deny`].
    WindowWanted,
    /// There is more room, or a window.
    Room,
    /// The peer sends no more.
    Fin,
    /// No WRITE into this side's window follows; the lease is over.
    Revoked,
}

/// The peer's credit so far: the data that it has freed, and for its window, the lease and the
/// freed bytes.
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
    /// CONNECT found the peer's backlog full, and [`Self::try_again`] was not called since.
    busy: bool,

    ours: Limits,
    rx_pos: u64,
    rx: Count,
    freed: Count,
    advertised: Count,
    /// Data that arrived after the program stopped reading, behind data that is not freed yet.
    unwanted: Count,
    unwanted_window: u64,
    window: Option<OwnWindow>,
    /// Bytes in this window or former ones that are not freed yet.
    window_unread: u64,
    leases: u32,
    fin_received: bool,
    end_received: bool,
    /// The program reads no more data.
    no_reader: bool,
    /// The program has closed the socket, or connect() was given up.
    gone: bool,

    theirs: Limits,
    tx_pos: u64,
    tx: Count,
    acked: Count,
    /// Corked bytes.
    corked: u32,
    peer_window: Option<PeerWindow>,
    revoked: u32,
    window_requested: bool,
    window_retry_at: u64,
    fin_sent: bool,
    end_sent: bool,
    /// A message brought room or a window since the last [`Self::take_room`].
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

    /// A channel that this side opens from port `src` to the peer's port `dst`.
    pub fn connect(local: ChanId, src: u16, dst: u16, ours: Limits) -> Self {
        let mut c = Self::new(State::Opening, local, ours);
        c.ports = (u32::from(dst) << 16) | u32::from(src);
        c.want = WANT_CONNECT;
        c
    }

    /// Has the counts of messages in both directions, which wrap, begin with `n`.
    #[cfg(not(MODULE))]
    pub fn count_messages_from(&mut self, n: u32) {
        let counts = [
            &mut self.rx,
            &mut self.freed,
            &mut self.advertised,
            &mut self.tx,
            &mut self.acked,
        ];
        for count in counts {
            count.msgs = n;
        }
    }

    /// A channel that the peer opens by the CONNECT `h`.
    #[cfg(not(MODULE))]
    pub fn accept(local: ChanId, h: &Header, ours: Limits) -> Result<Self, Violation> {
        Ok(Self::accepting(local, h.src, Limits::of(h)?, ours))
    }

    /// A channel that the peer opens, for the peer's channel `remote` and its limits.
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

    /// The channel number on this side.
    pub fn local(&self) -> ChanId {
        self.local
    }

    /// The first failure, if there was one.
    pub fn failure(&self) -> Option<Failure> {
        self.failure
    }

    /// Whether the peer sends no more: when all received data is read, the stream is at its end.
    pub fn read_ended(&self) -> bool {
        self.fin_received || self.end_received || self.state == State::Closed
    }

    /// Whether the peer has ended its direction in good order. The stream's end stays readable
    /// then, whatever becomes of the connection.
    pub fn fin_received(&self) -> bool {
        self.fin_received
    }

    /// Whether both sides have ended their directions in good order: the loss of the link is no
    /// failure then.
    fn has_ended(&self) -> bool {
        self.fin_received && self.fin_sent
    }

    /// Whether nothing can be sent any more.
    pub fn write_ended(&self) -> bool {
        self.fin_sent
            || self.end_received
            || self.state == State::Closed
            || self.want & (WANT_FIN | WANT_END | WANT_RESET) != 0
    }

    /// Whether the peer has ended the connection in good order: it reads no more.
    pub fn peer_closed(&self) -> bool {
        self.end_received && self.failure.is_none()
    }

    /// Whether this side has ended its direction.
    pub fn write_shut(&self) -> bool {
        self.fin_sent || self.want & (WANT_FIN | WANT_END | WANT_RESET) != 0
    }

    /// Whether [`Self::next_control`] has a message to send.
    pub fn has_pending_control(&self) -> bool {
        match self.state {
            // Until the peer has answered, only CONNECT can be sent.
            State::Opening => self.want & WANT_CONNECT != 0,
            State::Closed => false,
            _ => self.sendable_control() != 0,
        }
    }

    /// The control messages that can be sent now: FIN and END come after corked bytes.
    fn sendable_control(&self) -> u16 {
        match self.corked {
            0 => self.want,
            _ => self.want & !(WANT_FIN | WANT_END),
        }
    }

    /// Whether a WindowGrant with a window waits to be sent; the window's registration is posted
    /// before it.
    pub fn grant_waits(&self) -> bool {
        self.want & WANT_GRANT != 0 && self.window.is_some()
    }

    /// Notes a control message to send. After End or Reset there is none.
    fn queue_control(&mut self, bit: u16) {
        if !self.end_sent && self.state != State::Closed {
            self.want |= bit;
        }
    }

    /// Notes a Reset to send, in place of FIN or END.
    fn queue_reset(&mut self) {
        if !self.end_sent {
            self.want &= !(WANT_FIN | WANT_END);
            self.corked = 0;
            self.queue_control(WANT_RESET);
        }
    }

    /// The size of this side's window while it is leased to the peer.
    pub fn window_size(&self) -> Option<u32> {
        self.window.map(|w| w.size)
    }

    /// The size of the peer's window while it is leased to this side.
    pub fn peer_window_size(&self) -> Option<u32> {
        self.peer_window.map(|w| w.size)
    }

    /// The peer's credit for the data that this side sends.
    pub fn progress(&self) -> Progress {
        Progress {
            acked: self.acked,
            window: self.peer_window.map(|w| (w.lease, w.freed)),
        }
    }

    /// Bytes of the peer's stream that have arrived.
    pub fn received(&self) -> u64 {
        self.rx_pos
    }

    /// Whether no WRITE of the peer into this side's window can follow any more.
    pub fn peer_writes_done(&self) -> bool {
        self.fin_received
            || self.end_received
            || self.state == State::Closed
            || self.window.is_none()
    }

    /// Bytes that arrived in this side's windows and were not freed yet.
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

    /// The link is gone, or the connection was given up: the channel ends without a message.
    pub fn abort(&mut self, why: Failure) {
        if self.state == State::Closed {
            return;
        }
        if !self.has_ended() {
            self.fail(why);
        }
        self.close();
    }

    /// Ends this side's direction of the stream, after all data that was committed or is corked.
    pub fn shut_write(&mut self) {
        if !self.fin_sent {
            self.queue_control(WANT_FIN);
        }
    }

    /// The program has closed the socket: this side neither sends nor reads any more. `unread`:
    /// some data of the peer was not read, so the stream is reset.
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

    /// Data that arrives cannot be kept: the channel fails, and the peer is sent a Reset. Data that
    /// had arrived before can be read.
    pub fn break_off(&mut self, why: Failure) {
        if self.state != State::Closed {
            self.fail(why);
            self.no_reader = true;
            self.queue_reset();
        }
    }

    /// The program no longer waits for the answer to its CONNECT. The channel's number is released;
    /// a late answer finds no channel and is answered by a Reset.
    fn give_up(&mut self) {
        self.no_reader = true;
        self.gone = true;
        self.close();
    }

    /// Sends CONNECT once more after the peer's backlog was full. Returns false if it was not full,
    /// or the channel has ended since.
    pub fn try_again(&mut self) -> bool {
        let again = self.busy && self.state == State::Opening;
        if again {
            self.busy = false;
            self.queue_control(WANT_CONNECT);
        }
        again
    }

    /// The time for connecting is over. Returns false if the channel was not connecting any more.
    pub fn time_out(&mut self) -> bool {
        self.stop_opening(Failure::TimedOut)
    }

    /// The program has given up connecting. Returns false if the channel was not connecting any
    /// more.
    pub fn cancel(&mut self) -> bool {
        self.stop_opening(Failure::Reset)
    }

    fn stop_opening(&mut self, why: Failure) -> bool {
        if self.state != State::Opening || self.gone {
            return false;
        }
        self.fail(why);
        self.give_up();
        true
    }

    /// The program shut its reading direction: data that arrives from now on is discarded. The peer
    /// may go on sending. Data that had arrived before is freed as it is consumed.
    pub fn shut_read(&mut self) {
        self.no_reader = true;
    }

    /// A side that has leased a window waits for a message after which no WRITE into the window
    /// follows: End, Reset or Revoked. Without a window it does not wait.
    fn maybe_close(&mut self) {
        if self.end_sent && (self.end_received || self.window.is_none()) {
            self.close();
        }
    }
}
