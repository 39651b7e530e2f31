// SPDX-License-Identifier: GPL-2.0

//! The list of the sockets that TCP carries. They have no channel and no ZRS port, so no other
//! table has them.

#![deny(unsafe_code)]

use kernel::prelude::*;
use kernel::rbtree::{RBTree, RBTreeNode};
use kernel::sync::Arc;

use super::Sock;
use crate::kern::net::Net;
use crate::kern::sock::tcp::Tcp;

/// The sockets that TCP carries, by increasing numbers.
#[derive(Default)]
pub(super) struct Carried {
    last: u64,
    socks: RBTree<u64, Arc<Sock>>,
}

impl Carried {
    /// The first socket of `net` whose number is at least `from`, and its number.
    pub(super) fn first_from(&self, net: &Net, from: u64) -> Option<(u64, Arc<Sock>)> {
        let mut from = from;
        loop {
            let cursor = self.socks.cursor_lower_bound(&from)?;
            let (serial, sock) = cursor.current();
            if sock.net == *net {
                return Some((*serial, sock.clone()));
            }
            from = serial.checked_add(1)?;
        }
    }
}

/// A place on the list that is not taken yet.
pub(super) struct Place {
    serial: u64,
    node: RBTreeNode<u64, Arc<Sock>>,
}

impl Sock {
    /// A place on the list. Sleeps. ENOMEM.
    pub(super) fn place_as_carried(self: &Arc<Self>) -> Result<Place> {
        let serial = {
            let mut carried = self.ctx.carried.lock();
            carried.last += 1;
            carried.last
        };
        let node = RBTreeNode::new(serial, self.clone(), GFP_KERNEL)?;
        Ok(Place { serial, node })
    }

    /// `tcp` carries the socket from now on. Under `config`.
    pub(super) fn list_as_carried(&self, tcp: &Tcp, place: Place) {
        tcp.set_tag(place.serial);
        let old = self.ctx.carried.lock().socks.insert(place.node);
        drop(old);
    }

    /// The last descriptor is closed, and `tcp` was its inner TCP socket.
    pub(super) fn unlist(&self, tcp: &Tcp) {
        let serial = tcp.tag();
        if serial != 0 {
            let gone = self.ctx.carried.lock().socks.remove(&serial);
            drop(gone);
        }
    }
}
