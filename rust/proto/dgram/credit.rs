// SPDX-License-Identifier: GPL-2.0

//! The part of a link's credit that datagrams may use: all that data may, but for an eighth of the
//! initial credit, so that a flood of datagrams leaves room for streams. A peer tells of new room
//! by quarters, so streams that want it get half of that.
//!
//! Datagrams in flight are not counted. Link credit does not say which SENDs the peer has freed: as
//! long as it holds unread data of a stream, any count would sooner or later take that for
//! datagrams.
//!
//! The longest datagram has room again whenever nothing is in flight, however much data the peer's
//! programs leave unread: [`held_most`] bounds the blocks with unread data, and [`Asking`] gets the
//! room that the peer has and has not told of yet.

use super::super::link_flow::{LinkFlow, CONTROL_RESERVE};
use super::wire::FRAGMENTS_MAX;

/// SENDs of a link with this initial `credit` that datagrams leave to streams, apart from those for
/// control messages.
pub fn for_streams(credit: u32) -> u32 {
    credit >> 3
}

/// Whether datagrams of `n` fragments altogether may be posted now.
pub fn has_room(flow: &LinkFlow, n: u32) -> bool {
    flow.available(false) >= n.saturating_add(for_streams(flow.initial()))
}

/// How many blocks a host that has given a link `credit` SENDs leaves to unread data; what arrives
/// beyond that is copied.
pub fn held_most(credit: u32) -> u32 {
    let longest = CONTROL_RESERVE
        .saturating_add(FRAGMENTS_MAX)
        .saturating_add(for_streams(credit));
    // The block of a message that asks for credit may be posted again after the answer.
    let rest = longest.saturating_add(1);
    (credit >> 1).min(credit.saturating_sub(rest))
}

/// When the peer is asked for credit, by a Heartbeat that asks for an answer: it has taken all
/// messages before that one, and its answer tells of all room that it has then.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asking {
    /// SENDs posted when the peer was last asked.
    sent: Option<u32>,
}

impl Asking {
    /// A datagram has found no room: returns whether to ask. `idle`: no message is in flight. The
    /// peer is asked again only if a message was sent behind the last Heartbeat that asked: else
    /// the answer to that one told of all room. A control message counts, too. While messages are
    /// in flight, a quarter of the credit must have been sent: the peer tells of that by itself.
    pub fn is_due(&mut self, flow: &LinkFlow, idle: bool) -> bool {
        let sent = flow.sent();
        let least = if idle { 1 } else { flow.initial() >> 2 };
        // The message that asks is one of those sent since.
        let due = self
            .sent
            .is_none_or(|asked| sent.wrapping_sub(asked) > least);
        if due {
            self.sent = Some(sent);
        }
        due
    }
}
