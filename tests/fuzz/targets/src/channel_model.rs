// SPDX-License-Identifier: GPL-2.0

//! A channel as `Documentation/protocol.rst` describes it: the messages that may be received and
//! sent, in plain counters. It knows a channel from outside only: from messages and calls.

use std::collections::VecDeque;

use zrs_core::channel::{Limits, Plan};
use zrs_core::wire::{Header, Type, CHUNK_MAX, SMALL_MAX};
use zrs_core::ChanId;

/// Where the channel is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// CONNECT is not said yet, or said.
    Opening {
        said: bool,
    },
    /// ACCEPT is not said yet.
    Accepting,
    Open,
    Closed,
}

/// Our window.
#[derive(Clone, Copy, Debug)]
pub struct Own {
    pub lease: u32,
    pub size: u64,
    pub arrived: u64,
    pub freed: u64,
    pub told: u64,
    /// The peer has received its grant, or a revocation.
    pub granted: bool,
    pub revoking: bool,
}

/// The peer's window.
#[derive(Clone, Copy, Debug)]
pub struct Theirs {
    pub lease: u32,
    pub addr: u64,
    pub key: u32,
    pub size: u64,
    pub written: u64,
    pub freed: u64,
}

/// Bytes of window and bytes of DATA of one message.
pub type Sizes = (u64, u64);

#[derive(Debug)]
pub struct Model {
    pub phase: Phase,
    pub local: ChanId,
    pub remote: ChanId,
    pub ours: Limits,
    pub theirs: Limits,
    /// CONNECT is not to be said: the last one found the backlog full.
    pub busy: bool,
    /// Receiving.
    pub rx_pos: u64,
    pub unread: VecDeque<Sizes>,
    pub unwanted: VecDeque<Sizes>,
    pub freed_msgs: u64,
    pub freed_small: u64,
    pub told_msgs: u64,
    pub told_small: u64,
    pub own: Option<Own>,
    pub leases: u32,
    pub no_reader: bool,
    pub gone: bool,
    pub fin_received: bool,
    pub end_received: bool,
    /// Sending.
    pub tx_pos: u64,
    pub tx_msgs: u64,
    pub tx_small: u64,
    pub acked_msgs: u64,
    pub acked_small: u64,
    pub peer: Option<Theirs>,
    /// The lease that the peer has revoked, until that is answered.
    pub revoked: Option<u32>,
    pub asked: bool,
    pub ask_after: u64,
    pub fin_called: bool,
    pub end_called: bool,
    pub fin_sent: bool,
    pub end_sent: bool,
    /// Credit that must be told.
    pub due: bool,
}

pub fn sane(msgs: u32, small: u64) -> bool {
    (4..=65536).contains(&msgs) && (16384..=1 << 24).contains(&small)
}

impl Model {
    pub fn new(phase: Phase, local: ChanId, ours: Limits) -> Self {
        Self {
            phase,
            local,
            remote: ChanId::default(),
            ours,
            theirs: Limits { msgs: 0, small: 0 },
            busy: false,
            rx_pos: 0,
            unread: VecDeque::new(),
            unwanted: VecDeque::new(),
            freed_msgs: 0,
            freed_small: 0,
            told_msgs: 0,
            told_small: 0,
            own: None,
            leases: 0,
            no_reader: false,
            gone: false,
            fin_received: false,
            end_received: false,
            tx_pos: 0,
            tx_msgs: 0,
            tx_small: 0,
            acked_msgs: 0,
            acked_small: 0,
            peer: None,
            revoked: None,
            asked: false,
            ask_after: 0,
            fin_called: false,
            end_called: false,
            fin_sent: false,
            end_sent: false,
            due: false,
        }
    }

    /// The stream from the peer is at its end.
    pub fn read_ended(&self) -> bool {
        self.fin_received || self.end_received || self.phase == Phase::Closed
    }

    /// Nothing can be sent any more.
    pub fn write_ended(&self) -> bool {
        self.fin_called || self.end_called || self.end_received || self.phase == Phase::Closed
    }

    pub fn outstanding(&self) -> impl Iterator<Item = &Sizes> {
        self.unread.iter().chain(&self.unwanted)
    }

    /// Whether the peer may say this now.
    pub fn may_hear(&self, h: &Header) -> bool {
        let answer = matches!(h.kind, Type::Accept | Type::Reject);
        match self.phase {
            Phase::Closed => return true,
            Phase::Opening { said } => {
                return said
                    && match h.kind {
                        Type::Accept => sane(h.arg1, h.arg2),
                        Type::Reject | Type::Reset => true,
                        _ => false,
                    };
            }
            Phase::Accepting => return false,
            Phase::Open => {}
        }
        let named = h.src == self.remote;
        if h.kind == Type::Reset {
            return named || h.src == ChanId::default();
        }
        if answer || !named || !self.credit_is_good(h) {
            return false;
        }
        let ended = self.fin_received || self.end_received;
        let pos_good = h.pos == self.rx_pos;
        match h.kind {
            Type::Data => {
                let small: u64 = self.outstanding().map(|s| s.1).sum();
                let taken = small + self.freed_small - self.told_small;
                let room = taken + u64::from(h.len) <= u64::from(self.ours.small);
                !ended && pos_good && room && self.message_room()
            }
            Type::Written => {
                let fits = self.own.filter(|w| w.granted).is_some_and(|w| {
                    let off = h.woff % w.size;
                    h.arg0 == w.lease
                        && (h.woff == w.arrived || h.woff == w.arrived + skip(w.size, w.arrived))
                        && off + u64::from(h.len) <= w.size
                        && h.woff + u64::from(h.len) <= w.told + w.size
                });
                !ended && pos_good && self.message_room() && fits
            }
            Type::Fin => !ended && pos_good,
            Type::End => !self.end_received && pos_good,
            Type::Credit => true,
            Type::WindowRequest => !self.fin_received,
            Type::WindowGrant => {
                let size_good = h.arg1 == 0
                    || (65536..=1 << 30).contains(&h.arg1)
                        && h.lease != 0
                        && h.arg2.checked_add(u64::from(h.arg1)).is_some();
                self.peer.is_none() && size_good
            }
            Type::WindowRevoke => self.peer.is_some_and(|w| w.lease == h.lease),
            Type::Revoked => self.own.is_some_and(|w| w.revoking && w.lease == h.arg0),
            _ => false,
        }
    }

    /// Free room is the peer's again when it is announced.
    fn message_room(&self) -> bool {
        let untold = self.freed_msgs - self.told_msgs;
        (self.outstanding().count() as u64) + untold < u64::from(self.ours.msgs)
    }

    /// The messages that `h` says are freed beyond those we know of.
    fn msgs_gain(&self, h: &Header) -> u64 {
        u64::from(h.credit.msgs.wrapping_sub(self.acked_msgs as u32))
    }

    fn credit_is_good(&self, h: &Header) -> bool {
        let window_good = match self.peer {
            Some(w) if w.lease == h.lease && h.kind != Type::WindowGrant => {
                (w.freed..=w.written).contains(&h.credit.window)
            }
            _ => true,
        };
        self.msgs_gain(h) <= self.tx_msgs - self.acked_msgs
            && (self.acked_small..=self.tx_small).contains(&h.credit.small)
            && window_good
    }

    /// Takes the credit of a message; returns whether there was any.
    pub fn take_credit(&mut self, h: &Header) -> bool {
        let msgs = self.msgs_gain(h);
        let mut gain = msgs != 0 || h.credit.small != self.acked_small;
        self.acked_msgs += msgs;
        self.acked_small = h.credit.small;
        if let Some(w) = &mut self.peer {
            if w.lease == h.lease && h.kind != Type::WindowGrant {
                gain |= w.freed != h.credit.window;
                w.freed = h.credit.window;
            }
        }
        gain
    }

    /// One message's room is free again.
    pub fn free(&mut self, (window, small): Sizes) {
        self.freed_msgs += 1;
        self.freed_small += small;
        if let Some(w) = &mut self.own {
            w.freed += window;
        }
    }

    /// After room was freed: unwanted data behind it is freed too, and the peer must learn of a
    /// quarter of any limit.
    pub fn free_unwanted(&mut self) {
        if self.unread.is_empty() {
            for sizes in std::mem::take(&mut self.unwanted) {
                self.free(sizes);
            }
        }
        let quarter = |freed: u64, told: u64, limit: u64| freed - told >= limit / 4;
        self.due |= quarter(self.freed_msgs, self.told_msgs, u64::from(self.ours.msgs));
        self.due |= quarter(
            self.freed_small,
            self.told_small,
            u64::from(self.ours.small),
        );
        if let Some(w) = &self.own {
            self.due |= quarter(w.freed, w.told, w.size);
        }
        self.due &= !self.read_ended() && !self.end_sent;
    }

    /// How the next `want` bytes go.
    pub fn plan(&mut self, want: u32, bulk: bool) -> Plan {
        let msgs_out = self.tx_msgs - self.acked_msgs;
        let none = self.phase != Phase::Open || self.write_ended() || want == 0;
        if none || msgs_out >= u64::from(self.theirs.msgs) {
            return Plan::Wait;
        }
        if bulk {
            if let Some(w) = self.peer {
                let aligned = want > 16384;
                let skipped = if aligned { skip(w.size, w.written) } else { 0 };
                let from = w.written + skipped;
                if from + u64::from(want.min(16384)) > w.freed + w.size {
                    return Plan::Wait;
                }
                let room = w.freed + w.size - from;
                let to_wrap = w.size - from % w.size;
                let most = u64::from(want.min(CHUNK_MAX));
                let mut n = most.min(room).min(to_wrap);
                if aligned && w.size % 4096 == 0 && n < u64::from(want) {
                    n -= (from + n) % 4096;
                }
                return match skipped {
                    0 => Plan::Bulk(n as u32),
                    _ => Plan::Aligned(n as u32),
                };
            }
            if self.asked {
                return Plan::Wait;
            }
            if self.tx_pos >= self.ask_after {
                self.asked = true;
                return Plan::Wait;
            }
        }
        let n = want.min(SMALL_MAX);
        let small_out = self.tx_small - self.acked_small;
        if small_out + u64::from(n) > u64::from(self.theirs.small) {
            return Plan::Wait;
        }
        Plan::Small(n)
    }

    /// Whether a window may be leased to the peer.
    pub fn may_grant(&self, size: u32) -> bool {
        let live = matches!(self.phase, Phase::Open | Phase::Accepting);
        self.own.is_none()
            && self.outstanding().all(|s| s.0 == 0)
            && !self.read_ended()
            && !self.no_reader
            && live
            && (65536..=1 << 30).contains(&size)
    }
}

/// Bytes that may be skipped at position `at` of a window, so that the next chunk begins with a
/// page.
pub fn skip(size: u64, at: u64) -> u64 {
    match size % 4096 {
        0 => at.next_multiple_of(4096) - at,
        _ => 0,
    }
}
