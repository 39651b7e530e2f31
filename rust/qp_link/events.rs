// SPDX-License-Identifier: GPL-2.0

//! The events of a link's id, and the action for each of them.

#![deny(unsafe_code)]

use kernel::prelude::*;
use kernel::sync::Arc;

use super::LinkId;
use crate::ib::cm::{CmEvent, Id};
use crate::kern::errno::{EHOSTUNREACH, EPROTO};

/// Timeout for resolving a route, in milliseconds; a program's connect() times out earlier.
const ROUTE_MS: u32 = 2000;

/// A link, as the handler of its id's events. An error of a method ends the link. All of them may
/// sleep.
pub(crate) trait QpLink: Send + Sync + Sized + 'static {
    /// Its id.
    fn id(&self) -> &LinkId;

    /// Starts connecting, or tries again to resolve the address, in a kernel thread: the next
    /// attempt waits for this event's handler.
    fn start_connecting(self: &Arc<Self>);

    /// Whether its queue pair is connected.
    fn is_connected(&self) -> bool;

    /// The route is known: makes the queues, and asks the peer. In the thread that resolves the
    /// routes of the whole machine.
    fn route_resolved(self: &Arc<Self>) -> Result;

    /// The queue pair `peer_qp` of the peer is connected to the link's. `private_data`: the peer's
    /// hello, on the side that has made the link.
    fn established(self: &Arc<Self>, id: &Id, private_data: &[u8], peer_qp: u32) -> Result;

    /// The peer, or its connection manager, refuses the connection.
    fn rejected(self: &Arc<Self>, reason: i32, private_data: Option<&[u8]>) -> Result;

    /// The peer has ended the connection.
    fn disconnected(self: &Arc<Self>) -> Result;

    /// The route to the peer has changed.
    fn address_changed(self: &Arc<Self>) -> Result;
}

/// Handles an event of the id of `link`. Sleeps. The link must end with the error, if there is one.
pub(crate) fn handle<L: QpLink>(link: &Arc<L>, id: &Id, event: CmEvent<'_>) -> Result {
    match event {
        CmEvent::AddrResolved => id.resolve_route(ROUTE_MS),
        CmEvent::RouteResolved => link.route_resolved(),
        CmEvent::Established {
            private_data,
            peer_qp,
        } => link.established(id, private_data, peer_qp),
        CmEvent::AddrError(status) if Error::from_errno(status) == ETIMEDOUT => {
            link.id().wait_longer()?;
            link.start_connecting();
            Ok(())
        }
        CmEvent::AddrError(status) | CmEvent::RouteError(status) => Err(Error::from_errno(status)),
        CmEvent::Rejected {
            reason,
            private_data,
        } => link.rejected(reason, private_data),
        // The peer's reply to our reply was lost, but a message of it has arrived.
        CmEvent::Unreachable if link.is_connected() => Ok(()),
        CmEvent::ConnectError | CmEvent::Unreachable => Err(EHOSTUNREACH),
        CmEvent::Disconnected => link.disconnected(),
        CmEvent::AddrChange => link.address_changed(),
        CmEvent::DeviceRemoval => Err(ENODEV),
        CmEvent::TimewaitExit => Ok(()),
        // These do not occur with a queue pair that the connection manager runs, or are unknown.
        CmEvent::ConnectRequest { .. } | CmEvent::ConnectResponse | CmEvent::Other => Err(EPROTO),
    }
}
