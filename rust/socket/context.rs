// SPDX-License-Identifier: GPL-2.0

//! Shared state of all sockets: their ports, and the links below them.

#![deny(unsafe_code)]

use kernel::prelude::*;
use kernel::sync::{new_mutex, Arc, Mutex};

use super::carried::Carried;
pub(crate) use super::fallback::KNOWN;
use super::fallback::{nothing_known, Known};
use super::rules::Rules;
use super::{Ports, Sock};
use crate::kern::net::Net;
use crate::kern::task;
use crate::kern::work::{self, Queue};
use crate::proto::addr::Ip;
use crate::proto::fallback::Peer;
use crate::proto::wire::Refusal;
use crate::transport::connects::ConnectRequest;
use crate::transport::context::{Acceptor, Transport};
use crate::transport::link::Link;
use crate::uapi::zrs_info;

/// Cursors of ZRS_IOC_SOCK from this value on are for listening sockets.
const LISTENERS: u64 = 1 << 32;
/// From this value on they are for sockets that TCP carries.
const CARRIED: u64 = 1 << 62;

/// The context of all sockets.
#[pin_data]
pub(crate) struct Sockets {
    pub(crate) transport: Arc<Transport>,
    /// Ends attempts to connect. These items take the lock of a TCP socket, which a program may
    /// hold for any time, so nothing else waits for them but the module's end.
    pub(super) decisions: Queue,
    #[pin]
    pub(super) ports: Mutex<Ports>,
    /// A leaf among the locks.
    #[pin]
    pub(super) known: Mutex<Known>,
    /// The sockets that TCP carries. A leaf among the locks.
    #[pin]
    pub(super) carried: Mutex<Carried>,
    #[pin]
    pub(crate) rules: Rules,
}

impl Sockets {
    /// A context without sockets. Sleeps. ENOMEM.
    pub(crate) fn new(transport: Arc<Transport>) -> Result<Arc<Self>> {
        let known = nothing_known()?;
        let unbound = work::Flags {
            unbound: true,
            ..Default::default()
        };
        let decisions = Queue::new(kernel::c_str!("zrs_decisions"), unbound)?;
        Arc::pin_init(
            try_pin_init!(Self {
                transport,
                decisions,
                ports <- new_mutex!(Ports::new(), "zrs_sockets::ports"),
                known <- new_mutex!(known, "zrs_sockets::known"),
                carried <- new_mutex!(Carried::default(), "zrs_sockets::carried"),
                rules <- Rules::new(),
            }),
            GFP_KERNEL,
        )
    }

    /// The module is being unloaded: no socket is open any more, so that no decision is handed
    /// over. Waits until all pending decisions have run. Sleeps.
    pub(crate) fn stop(&self) {
        self.decisions.flush();
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
            task::cond_resched();
        }
        if cursor < CARRIED {
            let serial = cursor.checked_sub(LISTENERS)?;
            let listener = self.ports.lock().listener_from(net, serial);
            if let Some((serial, sock)) = listener {
                return Some((LISTENERS + serial + 1, sock.listed_info()));
            }
        }
        let serial = cursor.saturating_sub(CARRIED);
        let (serial, sock) = self.carried.lock().first_from(net, serial)?;
        Some((CARRIED + serial + 1, sock.listed_info()))
    }

    /// How many hosts and ports without ZRS are remembered; with `net`, by that namespace.
    pub(crate) fn hosts_known(&self, net: Option<&Net>) -> usize {
        self.known.lock().remembered(net.map(Net::cookie))
    }
}

impl Acceptor for Sockets {
    fn connect_request(
        self: Arc<Self>,
        link: &Arc<Link>,
        request: &ConnectRequest,
    ) -> Result<(), Refusal> {
        Sock::on_connect(&self, link, request)
    }

    fn peer_has_zrs(&self, net: &Net, ip: Ip) {
        let net = net.cookie();
        self.known.lock().forget(Peer {
            net,
            from: Ip::ANY,
            ip,
            port: 0,
        });
    }

    fn ways_changed(&self) {
        self.known.lock().clear();
    }
}
