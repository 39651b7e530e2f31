// SPDX-License-Identifier: GPL-2.0

//! Datagrams: messages with boundaries between sockets of two hosts, over the links of streams.
//!
//! `Documentation/protocol.rst` (Datagrams) has the rules. A datagram is one message for the
//! programs and 1 to 16 SENDs on the link, its fragments.
//!
//! Sending: [`destination`] checks the address, [`control`] the control messages; [`segment`] cuts
//! the bytes of a call into datagrams. [`wire::fragments`] splits, [`credit`] leaves an eighth of
//! the link's credit to streams, [`stall`] decides between waiting and dropping, [`backlog`] keeps
//! datagrams while their link is being made, [`sndbuf`] bounds those in flight. A socket that
//! speaks UDP as well chooses by [`destinations`].
//!
//! Receiving: [`assembly`] checks the order of fragments, [`receivers`] finds the socket,
//! [`rx_queue`] charges it, [`lend`] decides which fragments stay in their blocks,
//! [`refusals`] limits the answers to datagrams for ports without a
//! socket. [`readiness`] is for poll().
//!
//! A datagram is dropped at two places, and counted there: at a full receive queue, and at a link
//! that had no room for too long.

pub mod assembly;
pub mod backlog;
pub mod control;
pub mod credit;
pub mod destination;
pub mod destinations;
pub mod fifo;
pub mod lend;
pub mod readiness;
pub mod receivers;
pub mod refusals;
pub mod rx_queue;
pub mod segment;
pub mod sndbuf;
pub mod stall;
pub mod wire;
