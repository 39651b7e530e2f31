// SPDX-License-Identifier: GPL-2.0

//! Datagrams on a link: `Documentation/protocol.rst` has their rules, `dgram/` the sockets.
//!
//! Sending: a datagram takes a slot for each fragment, or none ([`Link::reserve_dgram`]), and all
//! of them are posted under one hold of the link's lock. While the link connects, datagrams wait in
//! a backlog. On a link without room, a thread waits, or a socket is withheld POLLOUT, for
//! `dgram_stall_ms` at most.
//!
//! Receiving: each fragment is copied out of its block at once, into memory that the owner of the
//! receiving socket pays for. So unread datagrams hold no blocks of a link. If the socket's program
//! has mapped receives, fragments of large datagrams stay in their blocks (`data.rs`), and the
//! receive queue gets other blocks.

#![deny(unsafe_code)]

mod data;
mod held;
mod rx;
mod tx;

use core::mem;

use kernel::prelude::*;
use kernel::sync::atomic::Relaxed;
use kernel::sync::{Arc, UniqueArc};
use kernel::workqueue::WorkItem;

pub(crate) use data::{Blocks, Data};
pub(super) use rx::DgramRx;
pub(crate) use rx::Incoming;
pub(super) use tx::DgramTx;
pub(crate) use tx::{stall_ns, Room, Source};

use super::link::{Link, LinkState};
use crate::kern::errno::{ECONNREFUSED, EHOSTUNREACH, ENETUNREACH};
use crate::kern::fault;
use crate::kern::task::now_ns;
use crate::proto::addr::{Addr, Ip};
use crate::proto::channel::Failure;
use crate::proto::dgram::wire::{Body, DgramHeader, Message, PortState, Ports};
use crate::proto::wire::Refusal;

/// Work item: the sockets that were withheld POLLOUT have waited for `dgram_stall_ms`.
pub(super) const DGRAM_STALL: u64 = 5;

/// The bytes of a received datagram.
pub(crate) type Bytes = Arc<Data>;

/// Takes the datagrams of all links.
pub(crate) trait DgramReceiver: Send + Sync {
    /// A datagram of `total` bytes begins to arrive on `link`, in `blocks`. Sleeps.
    fn begin(&self, link: &Arc<Link>, blocks: Blocks<'_>, ports: Ports, total: u32) -> Begin;

    /// Whether a socket takes datagrams with these ports from the peer of `link` that has the port
    /// in UDP, too. Sleeps.
    fn is_open(&self, link: &Link, ports: Ports) -> bool;

    /// Datagrams that were sent on `link` are lost. Sleeps.
    fn lost(&self, link: &Link, why: Error);

    /// `link`, which this host makes, has changed. Sleeps.
    fn changed(&self, link: &Arc<Link>, change: Change);

    /// The peer of `link` says whether it has a socket that datagrams with these ports reach. They
    /// are reversed. Sleeps.
    fn answered(&self, link: &Link, ports: Ports, state: PortState);
}

/// A change of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    /// It is up, and carries datagrams.
    Up,
    /// It could not be made, or carries no datagrams.
    Refused,
    /// It was up, and has ended.
    Lost,
}

/// The decision on a datagram that begins to arrive.
pub(crate) enum Begin {
    /// No socket takes it.
    Closed,
    /// The socket has no room. It has counted the datagram.
    Dropped,
    /// It is kept.
    Kept(Incoming),
}

/// A socket for datagrams.
pub(crate) trait DgramSocket: Send + Sync {
    /// A datagram is whole: the socket queues it, or drops and counts it. Sleeps.
    fn deliver(&self, from: Addr, to: Ip, data: UniqueArc<Data>);

    /// POLLOUT is not withheld any more; `late`: because it has been for `dgram_stall_ms`, or the
    /// link has ended.
    fn may_send(self: Arc<Self>, late: bool);

    /// A link without room has dropped a datagram of the socket.
    fn link_dropped(&self);
}

/// The error of a socket whose datagrams were lost with a link.
fn errno_of(why: Failure) -> Error {
    match why {
        Failure::Refused(Refusal::NoListener) => ECONNREFUSED,
        Failure::NoRoute => ENETUNREACH,
        Failure::Denied | Failure::Unproved => EACCES,
        _ => EHOSTUNREACH,
    }
}

impl Link {
    /// A datagram was sent or has arrived: the link is in use.
    fn dgram_passed(&self) {
        self.empty_since.store(now_ns(), Relaxed);
    }

    /// Datagrams of ours are lost with the link, or the peer takes none.
    fn tell_lost(&self, why: Error) {
        if let Some(receiver) = &self.dgram_receiver {
            receiver.lost(self, why);
        }
    }

    /// A link of this host changes for the senders that also speak UDP. Sleeps.
    fn tell_change(self: &Arc<Self>, change: Change) {
        if self.accepted {
            return;
        }
        if let Some(receiver) = &self.dgram_receiver {
            receiver.changed(self, change);
        }
    }

    /// The link is up. Sleeps.
    pub(super) fn dgrams_up(self: &Arc<Self>) {
        self.tell_change(match self.carries_dgrams() {
            true => Change::Up,
            false => Change::Refused,
        });
    }

    /// Whether the link is up and carries datagrams.
    pub(crate) fn carries_dgrams(&self) -> bool {
        let tx = self.tx.lock();
        tx.state == LinkState::Up && tx.dgrams.carries
    }

    /// Whether the link is up, and its peer takes no datagrams.
    pub(crate) fn lacks_dgrams(&self) -> bool {
        let tx = self.tx.lock();
        tx.state == LinkState::Up && !tx.dgrams.carries
    }

    /// Asks the peer whether it has a socket that datagrams with these ports reach.
    pub(crate) fn probe_port(self: &Arc<Self>, ports: Ports) {
        self.reply(Message::Dgram(DgramHeader {
            link_credit: 0,
            body: Body::Probe(ports),
        }));
    }

    /// The link is being taken down: drops what it has of datagrams. Sleeps.
    pub(super) fn dgrams_lost(self: &Arc<Self>, why: Failure) {
        let (backlog, starved, unacked, was_up) = {
            let tx = &mut *self.tx.lock();
            let dgrams = mem::take(&mut tx.dgrams);
            (dgrams.backlog, dgrams.starved, dgrams.unacked, tx.was_up)
        };
        self.dgram_wait.wake_all();
        for sock in starved {
            sock.may_send(true);
        }
        self.drop_held(backlog);
        let partial = self.dgram_rx.lock().assembly.give_up();
        drop(partial);
        if unacked {
            self.tell_lost(errno_of(why));
        }
        self.tell_change(match was_up {
            true => Change::Lost,
            false => Change::Refused,
        });
    }
}

impl WorkItem<DGRAM_STALL> for Link {
    type Pointer = Arc<Link>;

    fn run(link: Arc<Link>) {
        fault::asynchronous(|| {
            let starved = {
                let dgrams = &mut link.tx.lock().dgrams;
                // Those that still want room say so again.
                dgrams.wanted = 0;
                mem::take(&mut dgrams.starved)
            };
            link.dgram_wait.wake_all();
            for sock in starved {
                sock.may_send(true);
            }
        });
    }
}
