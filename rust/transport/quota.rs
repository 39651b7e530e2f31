// SPDX-License-Identifier: GPL-2.0

//! Quotas of users and network namespaces, with memory and a lock: for channels (`conn_table.rs`),
//! and for the links that datagrams make (`links.rs`). `proto/quota.rs` has the rule.
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
pub(super) fn percent_of(n: u32, percent: u32) -> u32 {
    (u64::from(n) * u64::from(percent) / 100) as u32
}

/// How much there is to share: all of it, and the part for users other than the administrator.
#[derive(Clone, Copy)]
pub(super) struct Room {
    pub(super) all: u32,
    pub(super) users: u32,
}

impl Room {
    /// What users and network namespaces may have of it, by the parameters.
    fn shares(self) -> Shares {
        Shares {
            most: self.users,
            user_percent: params::USER_PERCENT.get(),
            net_most: percent_of(self.all, params::NET_PERCENT.get()).max(1),
        }
    }
}

/// The counts of all holders.
#[pin_data]
pub(super) struct Quotas {
    room: Room,
    #[pin]
    counts: SpinLock<Quota<KVVec<QuotaCount>>>,
}

impl Quotas {
    /// No counts of `room`.
    pub(super) fn new(room: Room) -> impl PinInit<Self> {
        pin_init!(Self {
            room,
            counts <- new_spinlock!(Quota::new(KVVec::new(), room.shares()), "zrs_quotas::counts"),
        })
    }

    /// The parameters of the shares have changed. Holders of more than they have now keep it.
    pub(super) fn set_shares(&self) {
        self.counts.lock().set_shares(self.room.shares());
    }

    /// Counts one more for `holder`. Sleeps. EDQUOT, ENOMEM.
    pub(super) fn take(&self, holder: Holder) -> Result {
        loop {
            let wanted = {
                let mut counts = self.counts.lock();
                match counts.take(holder) {
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

    /// One that was counted for `holder` is gone.
    pub(super) fn give(&self, holder: Holder) {
        self.counts.lock().give(holder);
    }
}
