// SPDX-License-Identifier: GPL-2.0

//! Which ports are bound, in each network namespace, and who listens at them.
//!
//! Ports of ZRS sockets are a space of their own, apart from TCP's.

#![deny(unsafe_code)]

use core::net::{Ipv4Addr, SocketAddrV4};

use kernel::prelude::*;
use kernel::sync::Arc;

use super::Sock;
use crate::kern::errno::*;
use crate::kern::net::Net;

/// First and last port that is chosen when the program leaves the choice to us.
const EPHEMERAL: core::ops::RangeInclusive<u16> = 32768..=60999;

struct Entry {
    net: Net,
    addr: SocketAddrV4,
    /// Set while the socket listens.
    listener: Option<Arc<Sock>>,
}

/// The bound ports of the host.
pub(crate) struct Ports {
    entries: KVec<Entry>,
    next: u16,
}

impl Ports {
    /// No port is bound.
    pub(crate) const fn new() -> Self {
        Self {
            entries: KVec::new(),
            next: *EPHEMERAL.start(),
        }
    }

    fn conflicts(&self, net: &Net, addr: SocketAddrV4) -> bool {
        self.entries.iter().any(|e| {
            e.net == *net
                && e.addr.port() == addr.port()
                && (e.addr.ip() == addr.ip()
                    || e.addr.ip().is_unspecified()
                    || addr.ip().is_unspecified())
        })
    }

    /// Binds `addr`, or a free port at its address when its port is 0. EADDRINUSE,
    /// EADDRNOTAVAIL (no port is free), ENOMEM.
    pub(super) fn bind(&mut self, net: &Net, mut addr: SocketAddrV4) -> Result<SocketAddrV4> {
        if addr.port() == 0 {
            let port = (0..EPHEMERAL.len()).find_map(|_| {
                let port = self.next;
                self.next = match port {
                    p if p == *EPHEMERAL.end() => *EPHEMERAL.start(),
                    p => p.wrapping_add(1),
                };
                addr.set_port(port);
                (!self.conflicts(net, addr)).then_some(port)
            });
            addr.set_port(port.ok_or(EADDRNOTAVAIL())?);
        } else if self.conflicts(net, addr) {
            return Err(EADDRINUSE());
        }
        self.entries.push(
            Entry {
                net: net.clone(),
                addr,
                listener: None,
            },
            GFP_KERNEL,
        )?;
        Ok(addr)
    }

    fn find(&mut self, net: &Net, addr: SocketAddrV4) -> Option<&mut Entry> {
        self.entries
            .iter_mut()
            .find(|e| e.net == *net && e.addr == addr)
    }

    /// Gives a port back.
    pub(super) fn unbind(&mut self, net: &Net, addr: SocketAddrV4) {
        if let Some(i) = self
            .entries
            .iter()
            .position(|e| e.net == *net && e.addr == addr)
        {
            let _ = self.entries.remove(i);
        }
    }

    /// `sock` listens at the port it has bound.
    pub(super) fn listen(&mut self, net: &Net, addr: SocketAddrV4, sock: Option<Arc<Sock>>) {
        if let Some(e) = self.find(net, addr) {
            e.listener = sock;
        }
    }

    /// The first that listens in `net`, from entry `index` on, and its entry.
    pub(crate) fn listener_from(&self, net: &Net, index: usize) -> Option<(usize, Arc<Sock>)> {
        let entries = self.entries.iter().enumerate().skip(index);
        entries
            .filter(|(_, e)| e.net == *net)
            .find_map(|(i, e)| Some((i, e.listener.clone()?)))
    }

    /// Who listens at `ip`:`port`.
    pub(crate) fn listener(&self, net: &Net, ip: Ipv4Addr, port: u16) -> Option<Arc<Sock>> {
        self.entries
            .iter()
            .find(|e| {
                e.net == *net
                    && e.addr.port() == port
                    && (*e.addr.ip() == ip || e.addr.ip().is_unspecified())
                    && e.listener.is_some()
            })?
            .listener
            .clone()
    }
}
