// SPDX-License-Identifier: GPL-2.0

//! Quotas of users and network namespaces, with memory and a lock: for the links that have blocks
//! of a pool, for channels (`transport/conn_table.rs`), for the links that datagrams make
//! (`transport/links.rs`), and for promised memory (`reserve.rs`). `proto/quota.rs` has the rule.
//!
//! Locks: the counts are a leaf.

#![deny(unsafe_code)]

use kernel::alloc::kvec::KVVec;
use kernel::prelude::*;
use kernel::sync::{new_spinlock, SpinLock};

use crate::kern::errno::EDQUOT;
use crate::params;
use crate::proto::quota::{Holder, Quota, QuotaCount, QuotaError, Shares};

/// `percent` of `n`.
pub(crate) fn percent_of(n: u32, percent: u32) -> u32 {
    (u64::from(n) * u64::from(percent) / 100) as u32
}

/// How much there is to share: all of it, and the part for users other than the administrator.
#[derive(Clone, Copy)]
pub(crate) struct Room {
    pub(crate) all: u32,
    pub(crate) users: u32,
}

impl Room {
    /// What users and network namespaces may have of it, by the parameters.
    fn shares(self) -> Shares {
        Shares {
            most: self.users,
            user_percent: params::USER_PERCENT.get(),
            // Rounded up: of few links, one user must not have all of its namespace's.
            net_most: (u64::from(self.all) * u64::from(params::NET_PERCENT.get())).div_ceil(100)
                as u32,
        }
    }
}

/// The counts of all holders.
#[pin_data]
pub(crate) struct Quotas {
    room: Room,
    #[pin]
    counts: SpinLock<Quota<KVVec<QuotaCount>>>,
}

impl Quotas {
    /// No counts of `room`.
    pub(crate) fn new(room: Room) -> impl PinInit<Self> {
        pin_init!(Self {
            room,
            counts <- new_spinlock!(Quota::new(KVVec::new(), room.shares()), "zrs_quotas::counts"),
        })
    }

    /// The parameters of the shares have changed. Holders of more than they have now keep it.
    pub(crate) fn set_shares(&self) {
        self.counts.lock().set_shares(self.room.shares());
    }

    /// Counts one more for `holder`. Sleeps. EDQUOT, ENOMEM.
    pub(crate) fn take(&self, holder: Holder) -> Result {
        self.take_by(|counts| counts.take(holder))
    }

    /// Counts `units` for `holder`, of what `room` has at present, where `all` are used. Sleeps.
    /// EDQUOT, ENOMEM.
    pub(super) fn take_units(&self, holder: Holder, units: u32, room: Room, all: u32) -> Result {
        self.take_by(|counts| {
            counts.set_shares(room.shares());
            counts.take_units(holder, units, all)
        })
    }

    fn take_by(
        &self,
        mut take: impl FnMut(&mut Quota<KVVec<QuotaCount>>) -> Result<(), QuotaError>,
    ) -> Result {
        loop {
            let wanted = {
                let mut counts = self.counts.lock();
                match take(&mut counts) {
                    Ok(()) => return Ok(()),
                    Err(QuotaError::User | QuotaError::Net) => return Err(EDQUOT),
                    Err(QuotaError::Crowded) => counts.wanted(),
                }
            };
            let mut more = KVVec::with_capacity(wanted, GFP_KERNEL)?;
            for _ in 0..wanted {
                more.push(QuotaCount::NONE, GFP_KERNEL)?;
            }
            let spare = self.counts.lock().move_to(more);
            drop(spare);
        }
    }

    /// Whether `holder` may have one more just now.
    pub(crate) fn may_take(&self, holder: Holder) -> bool {
        self.counts.lock().may_take(holder).is_ok()
    }

    /// One that was counted for `holder` is gone.
    pub(crate) fn give(&self, holder: Holder) {
        self.counts.lock().give(holder);
    }

    /// `units` that were counted for `holder` are gone.
    pub(super) fn give_units(&self, holder: Holder, units: u32) {
        self.counts.lock().give_units(holder, units);
    }
}
