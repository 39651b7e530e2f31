// SPDX-License-Identifier: GPL-2.0

//! Counters of memory nodes, as ZRS_IOC_MEM_STATS reports them. They are of a network namespace,
//! and stay when its host has nothing open.

#![deny(unsafe_code)]

use crate::proto::mem::status::Status;
use crate::stats::Counter;

/// See `struct zrs_ioc_mem_stats` in `uapi/linux/zrs.h`.
#[allow(missing_docs)]
#[derive(Default)]
pub(super) struct Counts {
    pub(super) asked: Counter,
    pub(super) answered: Counter,
    pub(super) refused: Counter,
    pub(super) wrote_bytes: Counter,
    pub(super) read_bytes: Counter,
    pub(super) put_bytes: Counter,
    pub(super) got_bytes: Counter,
    pub(super) copied_out_bytes: Counter,
    pub(super) copied_within_bytes: Counter,
    pub(super) late_revokes: Counter,
    pub(super) silent_links: Counter,
}

impl Counts {
    /// A program of this host has written or read bytes of a region of any node.
    pub(super) fn used(&self, write: bool, bytes: u64) {
        match write {
            true => self.wrote_bytes.add(bytes),
            false => self.read_bytes.add(bytes),
        }
    }

    /// Bytes of a node of this host were written or read.
    pub(super) fn served(&self, write: bool, bytes: u64) {
        match write {
            true => self.put_bytes.add(bytes),
            false => self.got_bytes.add(bytes),
        }
    }

    /// A request is answered with `status`. To be told to ask again, or that what was asked for is
    /// canceled or over, is no refusal.
    pub(super) fn answered(&self, status: Status) {
        self.answered.add(1);
        match status {
            Status::Ok | Status::Again | Status::Canceled | Status::NotFound => {}
            _ => self.refused.add(1),
        }
    }
}
