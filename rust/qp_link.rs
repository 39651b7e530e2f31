// SPDX-License-Identifier: GPL-2.0

//! The life of a connected queue pair, from the search for its peer to its end. The links of
//! sockets (`transport/`) and those of memory nodes (`memnode/`) stand on it, and add what they
//! carry.
//!
//! *Memory.* [`buffers::Buffers`] has the messages.
//! *Making.* [`LinkId`] has the connection manager's id: it resolves the peer's address from a
//! privileged port, and the route. [`Listening`] has the ids that accept.
//! *Events.* [`handle`] says what each event of the id means for a [`QpLink`].
//! *End.* [`break_off`] and [`drain`]: the queue pair goes to the error state, and all that was
//! posted completes before it is destroyed.
//!
//! Handlers never destroy an id, which would wait for them: a link's work item does.

#![deny(unsafe_code)]

pub(crate) mod address;
pub(crate) mod buffers;
mod end;
mod events;
mod id;
mod listening;

pub(crate) use end::{break_off, drain};
pub(crate) use events::{handle, QpLink};
pub(crate) use id::LinkId;
pub(crate) use listening::Listening;

use crate::ib::cm::{CmId, ConnParams};
use crate::params;

/// The source ports of links. The peer's kernel gives them to privileged programs only; but a peer
/// that builds its own packets can claim any port.
pub(crate) const RESERVED_PORTS: core::ops::Range<u16> = 512..1024;

/// The code of 1.28 ms, for [`CmId::set_min_rnr_timer`]. By default a peer that finds no receive
/// posted waits for 655 ms.
const RNR_TIMER: u8 = 14;

/// Sets the timers of a queue pair that is to be connected or accepted.
pub(crate) fn set_timers(id: &CmId) {
    // An iWARP device has neither.
    let _ = id.set_ack_timeout(params::ack_timeout());
    let _ = id.set_min_rnr_timer(RNR_TIMER);
}

/// The parameters of connecting or accepting with this private data. `reads`: the READs that may be
/// under way in either direction.
pub(crate) fn conn_params(private_data: &[u8], reads: u8) -> ConnParams<'_> {
    ConnParams {
        private_data,
        responder_resources: reads,
        initiator_depth: reads,
        // The acceptor's queue pair uses the connector's retry count as well.
        retry_count: params::RETRY_COUNT.get() as u8,
        // For ever. Credit normally keeps the peer's receive queue from running empty; a link whose
        // peer takes nothing is ended by its user.
        rnr_retry_count: 7,
    }
}
