// SPDX-License-Identifier: GPL-2.0

//! Safe verbs: the RDMA objects that ZRS uses, in the shape the kernel crate would give them.
//!
//! With `rust/kern` one of the two rooms where `unsafe` and the raw bindings live. One file per
//! concern; all of them wrap `include/rdma/ib_verbs.h` and `rdma_cm.h`.
//!
//! Children hold an [`Arc`] of their parent (queue pair → queues and id → PD → device), so an
//! object cannot outlive what it was made from, whatever the order of drops. All constructors and
//! destructors may sleep; posting, polling and arming may not and can be called from any context.
//!
//! The types cannot express one rule, which the caller must keep: memory that a posted work request
//! names stays mapped until its completion has been polled or its queue pair is gone.
//!
//! [`Arc`]: kernel::sync::Arc

pub(crate) mod cm;
pub(crate) mod cq;
pub(crate) mod device;
pub(crate) mod dma;
pub(crate) mod memory;
pub(crate) mod mr;
pub(crate) mod mr_pool;
pub(crate) mod pd;
pub(crate) mod qp;
pub(crate) mod srq;
