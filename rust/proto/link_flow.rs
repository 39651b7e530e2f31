// SPDX-License-Identifier: GPL-2.0

//! Credit of a link, of streams or of memory nodes: the number of SENDs that may be in flight into
//! the peer's receive queue, which is shared or the link's own.
//!
//! Each side tells the other an absolute, wrapping count of SENDs that it may ever have sent. A
//! block that is posted again raises our count. The last [`CONTROL_RESERVE`] are for control
//! messages only, so that data never keeps credit, FIN or RESET from getting through; the very last
//! one is for a message that carries link credit and nothing else, so that two sides that have both
//! used up their credit can still announce room.
//!
//! A control message takes its credit from the reserve as long as there is some: what data may use,
//! and poll() has promised, stays the same. The reserve grows again with the credit that the peer
//! announces. Which SENDs the peer has freed is not known, so all of that counts for the reserve
//! first: what data has in flight or unread is never more than the initial credit without the
//! reserve.
//!
//! Such a lone message waits until a quarter has gathered, or as much as the peer has left. The
//! blocks of control messages are posted again at once, so the gathered blocks and the peer's
//! remaining ones are never less than the reserve together: a lone message always brings at least
//! half of that, and never causes one in return at once.

use super::Violation;

/// SENDs that data leaves to control messages.
pub const CONTROL_RESERVE: u32 = 8;

/// The least credit a link can work with.
pub const MIN_CREDIT: u32 = 32;

/// Both directions of a link's credit.
#[derive(Debug)]
pub struct LinkFlow {
    /// SENDs that we have posted, wrapping.
    sent: u32,
    /// SENDs that the peer allows, absolute, wrapping.
    allowed: u32,
    /// SENDs that the peer has allowed at first.
    initial: u32,
    /// SENDs that have arrived, wrapping.
    arrived: u32,
    /// SENDs that we can take, absolute, wrapping: grows with each block posted again.
    room: u32,
    /// The part of `room` that was announced to the peer.
    told: u32,
    /// A lone credit message is due when this much has gathered.
    quarter: u32,
    /// Control messages that have used the reserve, and whose SENDs the peer may not have freed
    /// yet. Less than [`CONTROL_RESERVE`]: data never uses the very last credit.
    borrowed: u32,
}

impl LinkFlow {
    /// The credit of a link where this side accepts `ours` SENDs at first, and the peer `theirs`.
    /// `None` if either is too little to work with.
    pub fn new(ours: u32, theirs: u32) -> Option<Self> {
        Self::starting_at(ours, theirs, 0)
    }

    /// As [`Self::new`], with `at` SENDs behind us in either direction.
    pub fn starting_at(ours: u32, theirs: u32, at: u32) -> Option<Self> {
        let sane = MIN_CREDIT..=1 << 20;
        if !sane.contains(&ours) || !sane.contains(&theirs) {
            return None;
        }
        Some(Self {
            sent: at,
            allowed: at.wrapping_add(theirs),
            initial: theirs,
            arrived: at,
            room: at.wrapping_add(ours),
            told: at.wrapping_add(ours),
            quarter: ours >> 2,
            borrowed: 0,
        })
    }

    /// SENDs that may be posted now, LinkCredit apart: for that, [`Self::credit_due`] decides.
    pub fn available(&self, control: bool) -> u32 {
        let kept = match control {
            true => 1,
            false => CONTROL_RESERVE.saturating_sub(self.borrowed),
        };
        self.left_to_us().saturating_sub(kept)
    }

    /// SENDs that may be posted now in all.
    pub fn left_to_us(&self) -> u32 {
        self.allowed.wrapping_sub(self.sent)
    }

    /// SENDs that the peer has allowed at first.
    pub fn initial(&self) -> u32 {
        self.initial
    }

    /// SENDs posted so far, wrapping.
    pub fn sent(&self) -> u32 {
        self.sent
    }

    /// The SEND of a control message is being posted; returns its `link_credit` field.
    pub fn sending_control(&mut self) -> u32 {
        if self.borrowed.saturating_add(1) < CONTROL_RESERVE {
            self.borrowed = self.borrowed.saturating_add(1);
        }
        self.posting()
    }

    /// The SEND of data is being posted; returns its `link_credit` field.
    pub fn sending(&mut self) -> u32 {
        self.posting()
    }

    fn posting(&mut self) -> u32 {
        self.sent = self.sent.wrapping_add(1);
        self.told = self.room;
        self.told
    }

    /// A SEND has arrived with this `link_credit`.
    pub fn arrived(&mut self, link_credit: u32) -> Result<(), Violation> {
        self.arrived = self.arrived.wrapping_add(1);
        // More than we ever told: the peer overruns our queue.
        if self.told.wrapping_sub(self.arrived) > i32::MAX as u32 {
            return Err(Violation::Credit);
        }
        let gain = link_credit.wrapping_sub(self.allowed);
        let room = link_credit.wrapping_sub(self.sent);
        if gain > i32::MAX as u32 || room > 1 << 20 {
            return Err(Violation::Credit);
        }
        self.allowed = link_credit;
        self.borrowed = self.borrowed.saturating_sub(gain);
        Ok(())
    }

    /// The block of a SEND that had arrived is posted again.
    pub fn reposted(&mut self) {
        self.reposted_many(1);
    }

    /// The blocks of `n` SENDs that had arrived are posted again.
    pub fn reposted_many(&mut self, n: u32) {
        self.room = self.room.wrapping_add(n);
    }

    /// How many blocks must be posted again, since the peer was last told of room, before a
    /// LinkCredit is due.
    pub fn due_at(&self) -> u32 {
        let left_to_peer = self.told.wrapping_sub(self.arrived);
        self.quarter.min(left_to_peer).max(1)
    }

    /// Whether new room should be announced by a LinkCredit, and one may be posted now. Ask
    /// again after each arrival and each block posted again.
    pub fn credit_due(&self) -> bool {
        self.credit_due_with(0)
    }

    /// As [`Self::credit_due`], if `more` blocks are posted again that [`Self::reposted_many`] has
    /// not counted yet.
    pub fn credit_due_with(&self, more: u32) -> bool {
        let gathered = self.room.wrapping_sub(self.told).wrapping_add(more);
        gathered >= self.due_at() && self.left_to_us() != 0
    }
}
