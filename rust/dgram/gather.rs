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
use crate::kern::sock::Sk;
use crate::proto::dgram::destination::len_max;
use crate::proto::dgram::segment::segments;
use crate::proto::dgram::wire::{fragment_count, Ports};
use crate::transport::dgram::{Room, Source};

pub(super) const UDP_CORK: i32 = 1;
pub(super) const UDP_SEGMENT: i32 = 103;
const UDP_NO_CHECK6_TX: i32 = 101;
const UDP_NO_CHECK6_RX: i32 = 102;
const UDP_GRO: i32 = 104;

/// Options that allow what datagrams of ZRS never are: without a checksum of UDP's, which none has,
/// and received several at a time. They are kept, and have no effect.
const ALLOWED: [i32; 3] = [UDP_NO_CHECK6_TX, UDP_NO_CHECK6_RX, UDP_GRO];

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
    allowed: [Atomic<bool>; ALLOWED.len()],
    /// There is a datagram that is not whole.
    pending: Atomic<bool>,
}

impl UdpOptions {
    /// Nothing is set.
    pub(super) fn new() -> Self {
        Self {
            cork: Atomic::new(false),
            segment: Atomic::new(0),
            allowed: [const { Atomic::new(false) }; ALLOWED.len()],
            pending: Atomic::new(false),
        }
    }

    /// UDP_SEGMENT.
    pub(super) fn segment(&self) -> u16 {
        self.segment.load(Relaxed) as u16
    }

    /// One of [`ALLOWED`].
    fn allowed(&self, name: i32) -> Option<&Atomic<bool>> {
        let at = ALLOWED.iter().position(|allowed| *allowed == name)?;
        self.allowed.get(at)
    }

    /// An option of level SOL_UDP.
    pub(super) fn get(&self, name: i32) -> Option<i32> {
        match name {
            UDP_CORK => Some(self.cork.load(Relaxed).into()),
            UDP_SEGMENT => Some(self.segment().into()),
            _ => Some(self.allowed(name)?.load(Relaxed).into()),
        }
    }
}

impl DgramSock {
    /// Sets an option of level SOL_UDP. EINVAL, ENOPROTOOPT. Sleeps.
    pub(super) fn set_udp_value(self: &Arc<Self>, sk: &Sk, name: i32, value: i32) -> Result {
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
            _ => {
                let allowed = self.udp_options.allowed(name).ok_or(ENOPROTOOPT)?;
                allowed.store(value != 0, Relaxed);
            }
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
        Self::told(sk, msg, |msg| {
            self.gather_told(sk, src, msg)?;
            Ok(len)
        })
    }

    fn gather_told(self: &Arc<Self>, sk: &Sk, src: u16, msg: &mut SendMsg<'_>) -> Result {
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
                return Ok(());
            }
            now
        };
        self.let_out(sk, src, &whole.way, whole.bytes.len())?;
        self.send_bytes(sk, src, &whole.way, &whole.bytes, msg.nonblock())
    }

    /// A sendfile() or splice() to the socket has come to its end: the datagram is whole, unless
    /// UDP_CORK says otherwise. Sleeps.
    pub(super) fn end_of_splice(self: &Arc<Self>) {
        if let Some(udp) = self.udp() {
            udp.splice_eof();
            return self.inner.lock().udp_holds.spliced();
        }
        if !self.udp_options.cork.load(Relaxed) {
            if let Ok(sk) = self.sk() {
                self.send_rest(&sk);
            }
        }
    }

    /// Sends the datagram that is not whole as it is. Bytes without room count as dropped. Sleeps.
    fn send_rest(self: &Arc<Self>, sk: &Sk) {
        let rest = {
            let mut gathered = self.gathered.lock();
            self.udp_options.pending.store(false, Relaxed);
            gathered.take()
        };
        let Some(rest) = rest else { return };
        let src = self.inner.lock().local.port;
        if self.let_out(sk, src, &rest.way, rest.bytes.len()).is_err() {
            return self.count_dropped();
        }
        let parts = segments(&rest.bytes, rest.way.segment);
        for part in parts.into_iter().flatten() {
            if self.send_part(sk, src, &rest.way, part, false).is_err() {
                self.count_dropped();
            }
        }
    }

    /// Sends the bytes of a call, in datagrams of the size that UDP_SEGMENT says. Once the first
    /// one is on its way, the others wait for room as with a call that blocks; those without room
    /// are dropped, and counted. Sleeps.
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
                Err(_) => self.count_dropped(),
                Ok(()) => {}
            }
        }
        Ok(())
    }

    /// Counts a datagram that could not be sent after the call had succeeded.
    fn count_dropped(&self) {
        self.counters.tx_datagrams.add(1);
        self.counters.tx_drops.add(1);
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
            let link = self.link_to(sk, way.to, way.source)?;
            let sent = match self.reserve(&link, sk, n, nonblock)? {
                Room::Taken(slots) => {
                    slots.put(bytes)?;
                    slots.post(ports, len as u32, Source::Slots, charge.take());
                    Sent::Done
                }
                other => self.without_slots(&link, other, ports, || {
                    let mut copy = KVVec::from_elem(0_u8, len, CHARGED)?;
                    copy_payload(bytes, &mut copy);
                    Ok(copy)
                })?,
            };
            if sent == Sent::Done {
                self.count_sent(len, len);
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
