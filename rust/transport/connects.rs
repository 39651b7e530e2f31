// SPDX-License-Identifier: GPL-2.0

//! CONNECTs that have arrived on a link. A work item makes the connections: that allocates memory
//! and takes the locks of listeners and sockets, for which the link's other messages do not wait.
//!
//! A peer sends nothing else for a channel before the ACCEPT, so the order of the other messages
//! does not matter.

#![deny(unsafe_code)]

use core::mem;

use kernel::prelude::*;
use kernel::sync::Arc;
use kernel::workqueue::WorkItem;

use super::link::{Link, LinkState};
use super::tx::most_replies;
use crate::kern::fault;
use crate::proto::channel::Limits;
use crate::proto::wire::{Header, Refusal, Type};
use crate::proto::{ChanId, Violation};

/// Work item: handles the CONNECTs.
pub(super) const CONNECTS: u64 = 6;

/// A CONNECT.
pub(crate) struct ConnectRequest {
    pub(crate) header: Header,
    /// The limits of the sender.
    pub(crate) limits: Limits,
}

impl Link {
    /// A CONNECT has arrived. It is refused at once when more wait than an honest peer has channels
    /// for. Does not wait for other connections.
    ///
    /// Errors: malformed limits.
    pub(super) fn connect_arrived(self: &Arc<Self>, header: Header) -> Result<(), Violation> {
        let limits = Limits::of(&header)?;
        let queued = {
            let mut connects = self.connects.lock();
            let room = connects.len() < most_replies();
            room && connects
                .push(ConnectRequest { header, limits }, GFP_NOWAIT)
                .is_ok()
        };
        if queued {
            let _ = self
                .transport
                .queue
                .enqueue::<Arc<Self>, CONNECTS>(self.clone());
        } else {
            self.refuse(&header, Refusal::NoResources);
        }
        Ok(())
    }

    fn refuse(self: &Arc<Self>, h: &Header, why: Refusal) {
        let mut no = Header::new(Type::Reject, h.src, ChanId::default());
        no.arg0 = why as u32;
        self.reply(no.into());
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
            let made = fault::asynchronous(|| link.transport.connect_request(&link, &request));
            if let Err(why) = made {
                link.refuse(&request.header, why);
            }
        }
    }
}
