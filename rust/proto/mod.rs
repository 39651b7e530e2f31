// SPDX-License-Identifier: GPL-2.0

//! The sans-IO core: the wire, and every decision that can be made without a kernel.
//!
//! Pure logic. No kernel crate, no allocation (storage is passed in), no clock, no I/O, no unsafe.
//! The module compiles these files as they are, and Cargo compiles them on the host for unit tests,
//! property tests and the simulation. Code that only the host uses is left out of the module
//! (`cfg(not(MODULE))`). Numbers that come from a peer or a program are untrusted: all arithmetic
//! on them is checked or wraps by name.

#![forbid(unsafe_code)]
#![deny(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::arithmetic_side_effects
)]

pub mod addr;
pub mod age_list;
pub mod area_ring;
pub mod autocork;
pub mod budget;
pub mod channel;
pub mod connect_backoff;
pub mod control_reserve;
pub mod copy_tail;
pub mod dgram;
pub mod entry_word;
pub mod fallback;
pub mod half_made;
pub mod keys;
pub mod link_flow;
pub mod link_table;
pub mod liveness;
pub mod mem;
pub mod options;
pub mod page_pool;
pub mod peers;
pub mod ports;
pub mod prefix;
pub mod proof;
pub mod quota;
pub mod readiness;
pub mod receives;
pub mod returns;
pub mod rules;
pub mod runs;
pub mod rx_queue;
pub mod scheduler;
pub mod sizing;
pub mod sndbuf;
pub mod tcp_info;
pub mod user_timeout;
pub mod vectors;
pub mod wire;

/// The number of a channel and its generation: a number is reused, a pair is not (for 2^32
/// reuses). `index` 0 means none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ChanId {
    /// Host-wide channel number Q.
    pub index: u32,
    /// How often the number has been handed out.
    pub gen: u32,
}

/// A peer's violation of the protocol. The link that carried it is closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Violation {
    /// Not this protocol, or not this version of it.
    Version,
    /// An unknown message type or unknown flags.
    Type,
    /// A reserved field that is not zero.
    Reserved,
    /// A length outside what the message allows.
    Length,
    /// A stream or window position that is not the next one.
    Position,
    /// More sent than was granted, or credit that goes back or beyond what was sent.
    Credit,
    /// A message that the channel's state does not allow.
    State,
    /// A channel that is not the sender's.
    Channel,
}
