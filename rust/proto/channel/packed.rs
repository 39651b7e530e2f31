// SPDX-License-Identifier: GPL-2.0

//! The parked form of an idle channel, in the lower tiers of the link table.
//!
//! A channel's counters grow from 0 without bound, but limits and windows bound the differences
//! between them. So one counter of each group is kept, and the differences of the others to it.

use super::super::entry_word::{Ends, Word, Work};
use super::super::link_table::Registers;
use super::super::ChanId;
use super::{Channel, Count, Failure, Limits, OwnWindow, PeerWindow, State};

/// A channel in three cache lines. Its number is known from its place in the table.
#[derive(Clone, Debug)]
pub struct PackedChannel {
    rx_pos: u64,
    rx_small: u64,
    tx_pos: u64,
    tx_small: u64,
    rx_msgs: u32,
    tx_msgs: u32,
    unfreed: CounterDelta,
    unadvertised: CounterDelta,
    unacked: CounterDelta,
    unwanted: CounterDelta,
    unwanted_window: u32,
    window_unread: u32,
    remote: ChanId,
    ports: u32,
    ours: Limits,
    theirs: Limits,
    leases: u32,
    revoked: u32,
    /// Bytes to send before a window may be requested again.
    window_retry_in: u32,
    own: PackedWindow,
    peer: PackedWindow,
    want: u16,
    corked: u16,
    flags: u16,
    failure: Option<Failure>,
    state: State,
}

const _: () = assert!(core::mem::size_of::<PackedChannel>() <= 192);

/// A window; size 0: none.
#[derive(Clone, Copy, Debug)]
struct PackedWindow {
    addr: u64,
    /// The end of the written part, as a position.
    at: u64,
    key: u32,
    size: u32,
    unfreed: u32,
    /// In this side's window: freed bytes that the peer was not told of. In the peer's window: its
    /// lease.
    more: u32,
}

impl PackedWindow {
    const NONE: Self = Self {
        addr: 0,
        at: 0,
        key: 0,
        size: 0,
        unfreed: 0,
        more: 0,
    };
}

/// The difference of two counts.
#[derive(Clone, Copy, Debug)]
struct CounterDelta {
    small: u32,
    msgs: u32,
}

impl CounterDelta {
    fn between(ahead: Count, behind: Count) -> Option<Self> {
        Some(Self {
            small: apart(ahead.small, behind.small)?,
            msgs: ahead.msgs.wrapping_sub(behind.msgs),
        })
    }

    fn behind(self, ahead: Count) -> Count {
        Count {
            small: ahead.small.wrapping_sub(u64::from(self.small)),
            msgs: ahead.msgs.wrapping_sub(self.msgs),
        }
    }
}

fn apart(ahead: u64, behind: u64) -> Option<u32> {
    u32::try_from(ahead.wrapping_sub(behind)).ok()
}

fn behind(ahead: u64, by: u32) -> u64 {
    ahead.wrapping_sub(u64::from(by))
}

fn to_bits(flags: [bool; 10]) -> u16 {
    flags
        .into_iter()
        .fold(0, |bits, flag| (bits << 1) | u16::from(flag))
}

fn from_bits(bits: u16) -> [bool; 10] {
    core::array::from_fn(|i| (bits << i) & (1 << 9) != 0)
}

impl Registers for Channel {
    type Parked = PackedChannel;

    /// `None` if a difference is larger than limits and windows allow, which does not happen.
    fn park(&self) -> Option<PackedChannel> {
        let (mut own, mut revoking) = (PackedWindow::NONE, false);
        if let Some(w) = self.window {
            own = PackedWindow {
                addr: w.addr,
                at: w.arrived,
                key: w.key,
                size: w.size,
                unfreed: apart(w.arrived, w.freed)?,
                more: apart(w.freed, w.advertised)?,
            };
            revoking = w.revoking;
            if w.lease != self.leases {
                return None;
            }
        }
        let mut peer = PackedWindow::NONE;
        if let Some(w) = self.peer_window {
            peer = PackedWindow {
                addr: w.addr,
                at: w.written,
                key: w.key,
                size: w.size,
                unfreed: apart(w.written, w.freed)?,
                more: w.lease,
            };
        }
        Some(PackedChannel {
            rx_pos: self.rx_pos,
            rx_small: self.rx.small,
            tx_pos: self.tx_pos,
            tx_small: self.tx.small,
            rx_msgs: self.rx.msgs,
            tx_msgs: self.tx.msgs,
            unfreed: CounterDelta::between(self.rx, self.freed)?,
            unadvertised: CounterDelta::between(self.freed, self.advertised)?,
            unacked: CounterDelta::between(self.tx, self.acked)?,
            unwanted: CounterDelta::between(self.unwanted, Count::default())?,
            unwanted_window: u32::try_from(self.unwanted_window).ok()?,
            window_unread: u32::try_from(self.window_unread).ok()?,
            remote: self.remote,
            ports: self.ports,
            ours: self.ours,
            theirs: self.theirs,
            leases: self.leases,
            revoked: self.revoked,
            window_retry_in: u32::try_from(self.window_retry_at.saturating_sub(self.tx_pos))
                .ok()?,
            own,
            peer,
            want: self.want,
            corked: u16::try_from(self.corked).ok()?,
            flags: to_bits([
                self.fin_received,
                self.end_received,
                self.no_reader,
                self.gone,
                self.window_requested,
                self.fin_sent,
                self.end_sent,
                self.room,
                revoking,
                self.busy,
            ]),
            failure: self.failure,
            state: self.state,
        })
    }

    fn unpark(p: &PackedChannel, local: ChanId) -> Self {
        let [fin_received, end_received, no_reader, gone, window_requested, fin_sent, end_sent, room, revoking, busy] =
            from_bits(p.flags);
        let rx = Count {
            small: p.rx_small,
            msgs: p.rx_msgs,
        };
        let tx = Count {
            small: p.tx_small,
            msgs: p.tx_msgs,
        };
        let freed = p.unfreed.behind(rx);
        let own_freed = behind(p.own.at, p.own.unfreed);
        Self {
            state: p.state,
            local,
            remote: p.remote,
            failure: p.failure,
            want: p.want,
            ports: p.ports,
            busy,
            ours: p.ours,
            rx_pos: p.rx_pos,
            rx,
            freed,
            advertised: p.unadvertised.behind(freed),
            unwanted: Count {
                small: u64::from(p.unwanted.small),
                msgs: p.unwanted.msgs,
            },
            unwanted_window: u64::from(p.unwanted_window),
            window: (p.own.size != 0).then_some(OwnWindow {
                lease: p.leases,
                addr: p.own.addr,
                key: p.own.key,
                size: p.own.size,
                arrived: p.own.at,
                freed: own_freed,
                advertised: behind(own_freed, p.own.more),
                revoking,
            }),
            window_unread: u64::from(p.window_unread),
            leases: p.leases,
            fin_received,
            end_received,
            no_reader,
            gone,
            theirs: p.theirs,
            tx_pos: p.tx_pos,
            tx,
            acked: p.unacked.behind(tx),
            corked: p.corked.into(),
            peer_window: (p.peer.size != 0).then_some(PeerWindow {
                lease: p.peer.more,
                addr: p.peer.addr,
                key: p.peer.key,
                size: p.peer.size,
                written: p.peer.at,
                freed: behind(p.peer.at, p.peer.unfreed),
            }),
            revoked: p.revoked,
            window_requested,
            window_retry_at: p.tx_pos.wrapping_add(u64::from(p.window_retry_in)),
            fin_sent,
            end_sent,
            room,
        }
    }
}

impl Channel {
    /// The word of the channel's entry.
    pub fn word(&self) -> Word {
        let ends = Ends {
            read: self.read_ended(),
            write: self.write_ended(),
            peer_writes: self.peer_writes_done(),
        };
        Word::new(self.local(), self.work(), ends, self.corked())
    }

    /// The work of the channel's entry: any of [`Work::TX`], [`Work::RX`] and [`Work::COMPLETE`].
    pub fn work(&self) -> Work {
        let mut work = Work::NONE;
        if self.has_pending_control() {
            work = work | Work::TX;
        }
        if self.rx.msgs != self.freed.msgs {
            work = work | Work::RX;
        }
        if self.state == State::Closed {
            work = work | Work::COMPLETE;
        }
        work
    }
}
