// SPDX-License-Identifier: GPL-2.0

//! Information about a datagram socket: ZRS_IOC_DGRAM and ZRS_DGRAM_INFO.

#![deny(unsafe_code)]

use super::context::Dgrams;
use super::DgramSock;
use crate::kern::net::Net;
use crate::kern::task;
use crate::stats::Counter;
use crate::uapi;

/// Counters of a socket.
#[derive(Default)]
pub(super) struct Counters {
    pub(super) tx_bytes: Counter,
    pub(super) rx_bytes: Counter,
    pub(super) tx_datagrams: Counter,
    pub(super) rx_datagrams: Counter,
    /// Datagrams that a link without room has dropped.
    pub(super) tx_drops: Counter,
}

impl DgramSock {
    /// `struct zrs_dgram_info` for a list. The links ask for completions only if the calling task
    /// owns the socket, or may administer its network namespace. Takes links' locks; sleeps.
    fn listed_info(&self) -> uapi::zrs_dgram_info {
        let owner = self.inner.lock().sk.as_ref().map(|sk| sk.owner());
        let asks = owner == Some(task::uid()) || self.net.is_administered();
        self.info_with(self.tx_queued(asks))
    }

    /// `struct zrs_dgram_info`. Takes links' locks; sleeps.
    pub(super) fn info(&self) -> uapi::zrs_dgram_info {
        self.info_with(self.tx_queued(true))
    }

    fn info_with(&self, tx_queued: u64) -> uapi::zrs_dgram_info {
        let inner = self.inner.lock();
        let (local, remote) = (inner.local, inner.remote.unwrap_or(super::any(self.v6)));
        let sk = inner.sk.as_ref();
        uapi::zrs_dgram_info {
            family: if self.v6 {
                uapi::AF_INET6
            } else {
                uapi::AF_INET
            },
            uid: sk.map_or(0, |sk| sk.uid()),
            inode: sk.map_or(0, |sk| sk.ino()),
            tx_bytes: self.counters.tx_bytes.get(),
            rx_bytes: self.counters.rx_bytes.get(),
            tx_datagrams: self.counters.tx_datagrams.get(),
            rx_datagrams: self.counters.rx_datagrams.get(),
            tx_queued,
            rx_queued: inner.rx.charged(),
            rx_waiting: inner.rx.len() as u32,
            rx_drops: inner.rx.drops(),
            tx_drops: self.counters.tx_drops.get() as u32,
            error: sk
                .and_then(|sk| sk.err())
                .map_or(0, |e| e.to_errno().unsigned_abs()),
            sndbuf: sk.map_or(0, |sk| sk.sndbuf()),
            rcvbuf: sk.map_or(0, |sk| sk.rcvbuf()),
            local_addr6: local.ip.octets(),
            remote_addr6: remote.ip.octets(),
            local_port: local.port.to_be(),
            remote_port: remote.port.to_be(),
            local_scope_id: local.ip.scope(),
            remote_scope_id: remote.ip.scope(),
            ..Default::default()
        }
    }
}

impl Dgrams {
    /// The next socket with a port in `net`, from `cursor` on, and the cursor behind it. Sleeps.
    pub(crate) fn next_socket(
        &self,
        net: &Net,
        cursor: u64,
    ) -> Option<(u64, uapi::zrs_dgram_info)> {
        let mut cursor = cursor;
        loop {
            let sock = self.sock_from(cursor)?;
            cursor = sock.number + 1;
            if sock.net == *net {
                return Some((cursor, sock.listed_info()));
            }
        }
    }
}
