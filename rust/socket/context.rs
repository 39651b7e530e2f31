// SPDX-License-Identifier: GPL-2.0

//! Shared state of all sockets: their ports, and the links below them.

#![deny(unsafe_code)]

use kernel::prelude::*;
use kernel::sync::{new_mutex, Arc, Mutex};

use super::fallback::{nothing_known, Known};
use super::{Ports, Sock};
use crate::kern::net::Net;
use crate::proto::wire::{Header, Refusal};
use crate::proto::Violation;
use crate::transport::context::{Acceptor, Transport};
use crate::transport::link::Link;
use crate::uapi::zrs_info;

/// Cursors of ZRS_IOC_SOCK from this value on are for listening sockets.
const LISTENERS: u64 = 1 << 32;

/// The context of all sockets.
#[pin_data]
pub(crate) struct Sockets {
    pub(crate) transport: Arc<Transport>,
    #[pin]
    pub(super) ports: Mutex<Ports>,
    /// A leaf among the locks.
    #[pin]
    pub(super) known: Mutex<Known>,
}

impl Sockets {
    /// A context without sockets. Sleeps. ENOMEM.
    pub(crate) fn new(transport: Arc<Transport>) -> Result<Arc<Self>> {
        let known = nothing_known()?;
        Arc::pin_init(
            try_pin_init!(Self {
                transport,
                ports <- new_mutex!(Ports::new(), "zrs_sockets::ports"),
                known <- new_mutex!(known, "zrs_sockets::known"),
            }),
            GFP_KERNEL,
        )
    }

    /// Information about the first socket of `net` at or after `cursor`, and the next cursor: first
    /// come the sockets with a channel, then the listening ones.
    pub(crate) fn next_socket(&self, net: &Net, cursor: u64) -> Option<(u64, zrs_info)> {
        let mut cursor = cursor;
        while let Ok(q) = u32::try_from(cursor) {
            let Some((at, conn)) = self.transport.table.next_from(q) else {
                cursor = LISTENERS;
                break;
            };
            cursor = u64::from(at) + 1;
            if let Some(info) = conn.info(net) {
                return Some((cursor, info));
            }
        }
        let serial = cursor.checked_sub(LISTENERS)?;
        let (serial, sock) = self.ports.lock().listener_from(net, serial)?;
        Some((LISTENERS + serial + 1, sock.info()))
    }
}

impl Acceptor for Sockets {
    fn connect_request(
        self: Arc<Self>,
        link: &Arc<Link>,
        h: &Header,
    ) -> Result<Result<(), Refusal>, Violation> {
        Sock::on_connect(&self, link, h)
    }
}
