// SPDX-License-Identifier: GPL-2.0

//! Datagrams that wait for their link to come up, and senders that wait for room.

#![deny(unsafe_code)]

use core::mem;

use kernel::alloc::kvec::KVVec;
use kernel::prelude::*;
use kernel::sync::Arc;

use super::tx::Source;
use super::DgramSocket;
use crate::kern::errno::EHOSTUNREACH;
use crate::proto::dgram::backlog::{self, Waiting};
use crate::proto::dgram::wire::{fragment_count, Ports, FRAGMENT};
use crate::transport::link::{Link, LinkState, Tx};

/// Most datagrams that wait for a link to come up.
const BACKLOG_SLOTS: usize = 128;

pub(super) type Backlog = backlog::Backlog<KVec<Option<Waiting<HeldDgram>>>>;

/// A datagram that waits for its link to come up.
pub(super) struct HeldDgram {
    sock: Arc<dyn DgramSocket>,
    ports: Ports,
    bytes: KVVec<u8>,
}

impl Tx {
    /// Posts the oldest datagram that has waited for the link to come up. `None`: there is none, or
    /// no room for it. After an error the caller must end the link.
    fn post_held(&mut self) -> Option<(HeldDgram, Result)> {
        let first = self.dgrams.backlog.as_ref()?.first()?;
        let (ports, len) = (first.ports, first.bytes.len() as u32);
        let n = fragment_count(len);
        if !self.has_dgram_room(n) {
            self.want_dgram_room(n);
            return None;
        }
        let buffers = self.buffers.clone()?;
        let held = self.dgrams.backlog.as_mut()?.pop()?;
        let slots = self.pop_slots(n)?;
        for (slot, part) in slots.iter().zip(held.bytes.chunks(FRAGMENT as usize)) {
            // A part is never too long for a slot.
            let _ = buffers.put(*slot, part);
        }
        let posted = self.post_dgram(&slots, ports, len, &Source::Slots, &mut None);
        Some((held, posted))
    }
}

impl Link {
    /// Keeps a datagram of `sock` until the link is up. The oldest ones are dropped, and counted,
    /// if there are too many. Sleeps. ENOMEM.
    pub(crate) fn hold_dgram(
        self: &Arc<Self>,
        sock: Arc<dyn DgramSocket>,
        ports: Ports,
        bytes: KVVec<u8>,
    ) -> Result {
        let len = bytes.len() as u32;
        let mut held = Some(HeldDgram { sock, ports, bytes });
        let mut slots = KVec::new();
        while held.is_some() {
            let mut short = false;
            let evicted = {
                let tx = &mut *self.tx.lock();
                match &mut tx.dgrams.backlog {
                    // The link has dropped its backlog already.
                    _ if tx.state == LinkState::Down => {
                        tx.dgrams.stall.give_up();
                        held.take()
                    }
                    Some(backlog) => match backlog.evict(len) {
                        Some(evicted) => {
                            tx.dgrams.stall.give_up();
                            Some(evicted)
                        }
                        None => held.take().and_then(|new| backlog.push(len, new).err()),
                    },
                    none => {
                        short = slots.is_empty();
                        if !short {
                            *none = Some(Backlog::new(mem::take(&mut slots)));
                        }
                        None
                    }
                }
            };
            // Freed without the lock.
            if let Some(evicted) = evicted {
                evicted.sock.link_dropped();
            }
            if short {
                for _ in 0..BACKLOG_SLOTS {
                    slots.push(None, GFP_KERNEL)?;
                }
            }
        }
        // The link may have come up meanwhile.
        self.wake_dgram_senders();
        Ok(())
    }

    /// The link may have room for datagrams: posts those that have waited for it to come up, then
    /// wakes senders.
    pub(in crate::transport) fn wake_dgram_senders(self: &Arc<Self>) {
        let unsupported = {
            let tx = &mut *self.tx.lock();
            if !tx.dgrams.waits() || tx.state != LinkState::Up {
                return;
            }
            (!tx.dgrams.carries).then(|| tx.dgrams.backlog.take())
        };
        if let Some(backlog) = unsupported {
            self.drop_held(backlog);
            self.tell_lost(EHOSTUNREACH);
            return;
        }
        loop {
            let sent = self.tx.lock().post_held();
            let Some((held, posted)) = sent else { break };
            // Freed without the lock.
            drop(held);
            if posted.is_err() {
                self.fail_link_lost("its send queue takes nothing");
                return;
            }
        }
        let starved = {
            let tx = &mut *self.tx.lock();
            let wanted = tx.dgrams.wanted;
            if wanted == 0 {
                return;
            }
            if tx.dgrams.has_held() || !tx.has_dgram_room(wanted) {
                tx.ask_for_credit(wanted);
                None
            } else {
                tx.dgrams.wanted = 0;
                tx.dgrams.stall.clear(wanted);
                Some(mem::take(&mut tx.dgrams.starved))
            }
        };
        let Some(starved) = starved else {
            // The peer may have to be asked.
            self.transmit();
            return;
        };
        self.dgram_wait.wake_all();
        for sock in starved {
            sock.may_send(false);
        }
    }

    /// Drops, and counts, datagrams that have waited for the link to come up.
    pub(super) fn drop_held(&self, backlog: Option<Backlog>) {
        let Some(mut backlog) = backlog else { return };
        while let Some(held) = backlog.pop() {
            self.give_up_dgram();
            held.sock.link_dropped();
        }
    }
}
