// SPDX-License-Identifier: GPL-2.0

//! CONNECTs that have arrived on a link. A work item makes the connections: that allocates memory
//! and takes the locks of listeners and sockets. The link's other messages do not wait for that.
//!
//! A peer sends nothing else for a channel before the ACCEPT, so the order of the other messages
//! does not matter.

#![deny(unsafe_code)]

use core::mem;

use kernel::prelude::*;
use kernel::sync::Arc;
use kernel::workqueue::WorkItem;

use super::link::{Link, LinkState};
use crate::kern::fault;
use crate::proto::channel::Limits;
use crate::proto::wire::{Header, Refusal, Type};
use crate::proto::{ChanId, Violation};

/// The most CONNECTs that wait for the work item; those beyond are refused.
const MOST: usize = 1024;

/// Work item: handles the CONNECTs.
pub(super) const CONNECTS: u64 = 6;

/// A CONNECT.
#[derive(Clone, Copy)]
pub(crate) struct ConnectRequest {
    pub(crate) header: Header,
    /// The limits of the sender.
    pub(crate) limits: Limits,
}

impl Link {
    /// A CONNECT has arrived. Where many wait, or there is no memory for the list, it is refused as
    /// by a full backlog, and the peer tries again: the link's other messages do not wait.
    ///
    /// Errors: malformed limits. Sleeps.
    pub(super) fn connect_arrived(self: &Arc<Self>, header: Header) -> Result<(), Violation> {
        let limits = Limits::of(&header)?;
        let request = ConnectRequest { header, limits };
        let queued = {
            let mut connects = self.connects.lock();
            let room = connects.len() < MOST;
            room && connects.push(request, GFP_NOWAIT).is_ok()
        };
        if queued {
            let _ = self
                .transport
                .queue
                .enqueue::<Arc<Self>, CONNECTS>(self.clone());
        } else {
            self.refuse_connect(&request, Refusal::BacklogFull);
        }
        Ok(())
    }

    fn refuse_connect(self: &Arc<Self>, request: &ConnectRequest, why: Refusal) {
        let mut no = Header::new(Type::Reject, request.header.src, ChanId::default());
        no.arg0 = why as u32;
        self.reply(no.into());
    }

    /// Makes the connection, or refuses it. Sleeps.
    fn handle_connect(self: &Arc<Self>, request: &ConnectRequest) {
        if let Err(why) = self.transport.connect_request(self, request) {
            self.refuse_connect(request, why);
        }
    }
}

impl WorkItem<CONNECTS> for Link {
    type Pointer = Arc<Link>;

    fn run(link: Arc<Link>) {
        // Those that come from now on queue the item again.
        let connects = mem::take(&mut *link.connects.lock());
        for request in connects {
            if link.state() == LinkState::Down {
                break;
            }
            fault::asynchronous(|| link.handle_connect(&request));
        }
    }
}
