// SPDX-License-Identifier: GPL-2.0

//! Counters of memory nodes, as ZRS_IOC_MEM_STATS reports them. They are of a network namespace,
//! and stay when its host has nothing open.

#![deny(unsafe_code)]

use crate::proto::mem::status::Status;
use crate::proto::mem::wire::Op;
use crate::stats::Counter;

/// See `struct zrs_ioc_mem_stats` in `uapi/linux/zrs.h`.
#[allow(missing_docs)]
#[derive(Default)]
pub(super) struct Counts {
    pub(super) requests_sent: Counter,
    pub(super) requests_served: Counter,
    pub(super) requests_refused: Counter,
    pub(super) program_write_bytes: Counter,
    pub(super) program_read_bytes: Counter,
    pub(super) node_write_bytes: Counter,
    pub(super) node_read_bytes: Counter,
    pub(super) copied_out_bytes: Counter,
    pub(super) copied_within_bytes: Counter,
    pub(super) late_revokes: Counter,
    pub(super) silent_links: Counter,
}

impl Counts {
    /// A program of this host has written or read bytes of a region of any node.
    pub(super) fn used(&self, write: bool, bytes: u64) {
        match write {
            true => self.program_write_bytes.add(bytes),
            false => self.program_read_bytes.add(bytes),
        }
    }

    /// Bytes of a node of this host were written or read.
    pub(super) fn served(&self, write: bool, bytes: u64) {
        match write {
            true => self.node_write_bytes.add(bytes),
            false => self.node_read_bytes.add(bytes),
        }
    }

    /// The host answers a request with `status`. A request that the requester must repeat, was
    /// canceled or was over counts as no refusal. Nor does an OPEN or a COPY that gets no grant:
    /// the requester's host sends the request again or does without.
    pub(super) fn request_served(&self, op: Option<Op>, status: Status) {
        self.requests_served.add(1);
        match (op, status) {
            (_, Status::Ok | Status::Again | Status::Canceled | Status::NotFound) => {}
            (Some(Op::Open), Status::NoSpace) => {}
            (Some(Op::Open | Op::Copy), Status::Unsupported) => {}
            _ => self.requests_refused.add(1),
        }
    }
}
