// SPDX-License-Identifier: GPL-2.0

//! Datagrams of several calls (UDP_CORK, MSG_MORE), and several datagrams of one call
//! (UDP_SEGMENT). Their bytes are copied once more than those of a call that is one datagram.

#![deny(unsafe_code)]

use kernel::alloc::kvec::KVVec;
use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Relaxed};
use kernel::sync::Arc;

use super::send::{Sent, Way, TRIES};
use super::DgramSock;
use crate::kern::contig::copy_payload;
use crate::kern::errno::{EHOSTUNREACH, EMSGSIZE, ENOPROTOOPT, EOPNOTSUPP};
use crate::kern::memcg::CHARGED;
use crate::kern::sock::msg::SendMsg;
use crate::kern::sock::opt::OptIn;
use crate::kern::sock::Sk;
use crate::proto::dgram::destination::len_max;
use crate::proto::dgram::segment::segments;
use crate::proto::dgram::wire::{fragment_count, Ports};
use crate::transport::dgram::Room;

pub(super) const UDP_CORK: i32 = 1;
pub(super) const UDP_SEGMENT: i32 = 103;

/// A datagram that is not whole.
pub(super) struct Gathered {
    way: Way,
    bytes: KVVec<u8>,
}

/// The options of level SOL_UDP. They change, and `pending`, under `DgramSock::gathered` where it
/// matters; a call that races with that may be on either side of it.
pub(super) struct UdpOptions {
    cork: Atomic<bool>,
    segment: Atomic<u32>,
    /// There is a datagram that is not whole.
    pending: Atomic<bool>,
}

impl UdpOptions {
    /// Nothing is set.
    pub(super) fn new() -> Self {
        Self {
            cork: Atomic::new(false),
            segment: Atomic::new(0),
            pending: Atomic::new(false),
        }
    }

    /// UDP_SEGMENT.
    pub(super) fn segment(&self) -> u16 {
        self.segment.load(Relaxed) as u16
    }

    /// An option of level SOL_UDP.
    pub(super) fn get(&self, name: i32) -> Option<i32> {
        match name {
            UDP_CORK => Some(self.cork.load(Relaxed).into()),
            UDP_SEGMENT => Some(self.segment().into()),
            _ => None,
        }
    }
}

impl DgramSock {
    /// Sets an option of level SOL_UDP. EINVAL, ENOPROTOOPT. Sleeps.
    pub(super) fn set_udp_option(self: &Arc<Self>, sk: &Sk, name: i32, val: &OptIn<'_>) -> Result {
        // As UDP does, before it looks at the name.
        let value = val.read::<i32>()?;
        match name {
            UDP_SEGMENT => {
                let size = u16::try_from(value).map_err(|_| EINVAL)?;
                self.udp_options.segment.store(size.into(), Relaxed);
            }
            UDP_CORK => {
                self.udp_options.cork.store(value != 0, Relaxed);
                if value == 0 {
                    self.send_rest(sk);
                }
            }
            _ => return Err(ENOPROTOOPT),
        }
        Ok(())
    }

    /// Whether the call begins a datagram, or goes on with one.
    pub(super) fn gathers(&self, msg: &SendMsg<'_>) -> bool {
        let o = &self.udp_options;
        msg.more() || o.cork.load(Relaxed) || o.pending.load(Relaxed)
    }

    /// sendmsg() of a part of a datagram, from port `src`. After an error there is none of it any
    /// more. Sleeps.
    pub(super) fn gather(
        self: &Arc<Self>,
        sk: &Sk,
        src: u16,
        msg: &mut SendMsg<'_>,
    ) -> Result<usize> {
        let len = msg.len();
        let whole = {
            let mut gathered = self.gathered.lock();
            if len > usize::from(u16::MAX) {
                return Err(EMSGSIZE);
            }
            let mut now = match gathered.take() {
                // As UDP does: the addresses and control messages of the first call count.
                Some(begun) => begun,
                None => Gathered {
                    way: self.way(sk, msg)?,
                    bytes: KVVec::new(),
                },
            };
            self.udp_options.pending.store(false, Relaxed);
            if msg.oob() && now.way.to.ip.is_v4() {
                return Err(EOPNOTSUPP);
            }
            self.may_send_now(sk)?;
            now.add(msg, len)?;
            if msg.more() || self.udp_options.cork.load(Relaxed) {
                if !now.bytes.is_empty() {
                    *gathered = Some(now);
                    self.udp_options.pending.store(true, Relaxed);
                }
                return Ok(len);
            }
            now
        };
        self.send_bytes(sk, src, &whole.way, &whole.bytes, msg.nonblock())?;
        Ok(len)
    }

    /// Sends the datagram that is not whole as it is. What has no room counts as dropped. Sleeps.
    fn send_rest(self: &Arc<Self>, sk: &Sk) {
        let rest = {
            let mut gathered = self.gathered.lock();
            self.udp_options.pending.store(false, Relaxed);
            gathered.take()
        };
        let Some(rest) = rest else { return };
        let src = self.inner.lock().local.port;
        if self
            .send_bytes(sk, src, &rest.way, &rest.bytes, false)
            .is_err()
        {
            self.counters.tx_drops.add(1);
        }
    }

    /// Sends the bytes of a call, in as many datagrams as UDP_SEGMENT says. Once the first one is
    /// on its way, the others wait for room as with a call that blocks; what gets none is dropped,
    /// and counted. Sleeps.
    pub(super) fn send_bytes(
        self: &Arc<Self>,
        sk: &Sk,
        src: u16,
        way: &Way,
        bytes: &[u8],
        nonblock: bool,
    ) -> Result {
        let parts = segments(bytes, way.segment).map_err(|_| EINVAL)?;
        for (i, part) in parts.enumerate() {
            match self.send_part(sk, src, way, part, nonblock && i == 0) {
                Err(e) if i == 0 => return Err(e),
                Err(_) => self.counters.tx_drops.add(1),
                Ok(()) => {}
            }
        }
        Ok(())
    }

    /// Sends one datagram. Sleeps.
    fn send_part(
        self: &Arc<Self>,
        sk: &Sk,
        src: u16,
        way: &Way,
        bytes: &[u8],
        nonblock: bool,
    ) -> Result {
        let len = bytes.len();
        let ports = Ports {
            dst: way.to.port,
            src,
        };
        let n = fragment_count(len as u32);
        let mut charge = Some(self.charge(sk, len, nonblock)?);
        for _ in 0..TRIES {
            let link = self.link_to(sk, way.to.ip, way.source)?;
            let sent = match self.reserve(&link, sk, n, nonblock)? {
                Room::Taken(slots) => {
                    slots.put(bytes)?;
                    slots.post(ports, len as u32, charge.take());
                    Sent::Done
                }
                other => self.without_slots(&link, other, ports, || {
                    let mut copy = KVVec::from_elem(0_u8, len, CHARGED)?;
                    copy_payload(bytes, &mut copy);
                    Ok(copy)
                })?,
            };
            if sent == Sent::Done {
                self.count_sent(len);
                return Ok(());
            }
        }
        Err(EHOSTUNREACH)
    }
}

impl Gathered {
    /// Adds the bytes of a call. EMSGSIZE, EFAULT, ENOMEM. Sleeps.
    fn add(&mut self, msg: &mut SendMsg<'_>, len: usize) -> Result {
        let had = self.bytes.len();
        if had + len > len_max(self.way.to.ip) as usize {
            return Err(EMSGSIZE);
        }
        self.bytes.resize(had + len, 0, CHARGED)?;
        let room = self.bytes.get_mut(had..).ok_or(EINVAL)?;
        if msg.iter().copy_from_iter(room) != len {
            return Err(EFAULT);
        }
        Ok(())
    }
}
