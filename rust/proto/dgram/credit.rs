// SPDX-License-Identifier: GPL-2.0

//! The share of a link's credit that datagrams may use: half of it, so that a flood of datagrams
//! leaves room for streams.
//!
//! Link credit does not say which SENDs the peer has freed. They are taken for the oldest, which is
//! what they are unless the peer holds some of them for a program that does not read. It holds half
//! of its blocks at most.

use core::ops::DerefMut;

use super::super::link_flow::LinkFlow;
use super::fifo::Fifo;

/// The datagrams' share of a link. `S`: storage for the numbers of their SENDs, of the size that
/// [`CreditShare::slots_for`] says.
pub struct CreditShare<S> {
    /// SENDs of datagrams that are in flight, by number.
    in_flight: Fifo<S>,
    /// SENDs before this number are not in flight any more.
    freed: u32,
    /// The number that the peer's allowance is ahead of `freed`.
    credit: u32,
}

impl<S: DerefMut<Target = [Option<u32>]>> CreditShare<S> {
    /// The storage's size for a link with `credit` SENDs of initial credit.
    pub fn slots_for(credit: u32) -> u32 {
        credit >> 1
    }

    /// The share of a new link. `flow`: the link's credit.
    pub fn new(slots: S, flow: &LinkFlow) -> Self {
        let credit = flow.left_to_us();
        Self {
            in_flight: Fifo::new(slots),
            freed: flow.allowed().wrapping_sub(credit),
            credit,
        }
    }

    /// SENDs of datagrams in flight, as of the last message.
    #[cfg(not(MODULE))]
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Whether a datagram of `n` fragments may be posted now; all of them, or none.
    pub fn has_room(&mut self, flow: &LinkFlow, n: u32) -> bool {
        self.forget_freed(flow);
        let share = self.in_flight.slots().saturating_sub(self.in_flight.len());
        flow.available(false) >= n && share >= n as usize
    }

    /// A fragment is being posted; returns its `link_credit` field. [`Self::has_room`] was true.
    pub fn sending(&mut self, flow: &mut LinkFlow) -> u32 {
        // Without room the number is not noted; the peer's limit is the flow's affair.
        let _ = self.in_flight.push(flow.sent());
        flow.sending()
    }

    fn forget_freed(&mut self, flow: &LinkFlow) {
        self.freed = flow.allowed().wrapping_sub(self.credit);
        while let Some(number) = self.in_flight.first() {
            // Numbers wrap; SENDs in flight are less than the credit ahead of `freed`. A SEND that
            // was freed long ago may be any distance behind it.
            if number.wrapping_sub(self.freed) < self.credit {
                break;
            }
            self.in_flight.pop();
        }
    }
}
