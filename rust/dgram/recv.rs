// SPDX-License-Identifier: GPL-2.0

//! Receiving datagrams.

#![deny(unsafe_code)]

use core::ptr;

use kernel::alloc::kvec::KVVec;
use kernel::prelude::*;
use kernel::sync::atomic::Relaxed;
use kernel::sync::{Arc, UniqueArc};

use super::{DgramSock, Inner};
use crate::kern::errno::ECONNREFUSED;
use crate::kern::sock::dgram::Arrival;
use crate::kern::sock::filter::Packet;
use crate::kern::sock::msg::RecvMsg;
use crate::kern::sock::{filters_packets, Sk};
use crate::kern::task::real_ns;
use crate::kern::wait::WaitMode;
use crate::proto::addr::{Addr, Ip};
use crate::proto::dgram::destination::report;
use crate::proto::dgram::lend::whole_blocks;
use crate::proto::dgram::rx_queue::Datagram;
use crate::stats::STATS;
use crate::transport::dgram::{Blocks, Bytes, Data, DgramSocket, Incoming};
use crate::transport::link::Link;

/// The first storage of a receive queue, in datagrams.
const SLOTS: usize = 16;

/// The result of a look at the receive queue.
pub(super) enum Found {
    /// A datagram that has come by RDMA, and its first byte that the call gives.
    Datagram(Datagram<Bytes>, u32),
    /// The error of an earlier call.
    Error(Error),
    /// The reading direction is shut, and the queue is empty.
    End,
}

impl Inner {
    pub(super) fn next(&mut self, peek: bool) -> Option<Found> {
        if let Some(e) = self.sk.as_ref().and_then(|sk| sk.take_err()) {
            return Some(Found::Error(e));
        }
        let datagram = match peek {
            true => {
                let shown = self.rx.peek_at(self.peek_off);
                shown.map(|(datagram, from)| (datagram.clone(), from))
            }
            false => self.rx.pop().map(|datagram| (datagram, 0)),
        };
        self.show_queue();
        datagram.map(|(datagram, from)| Found::Datagram(datagram, from))
    }

    /// The program has `n` bytes more of the queue, or has peeked at them: SO_PEEK_OFF moves.
    pub(super) fn move_peek_off(&mut self, peek: bool, n: usize) {
        let Some(off) = &mut self.peek_off else {
            return;
        };
        let n = u32::try_from(n).unwrap_or(u32::MAX);
        *off = match peek {
            true => off.saturating_add(n),
            false => off.saturating_sub(n),
        };
        self.show_peek_off();
    }

    /// Shows SO_PEEK_OFF to the kernel, which reads it: that of both queues.
    pub(super) fn show_peek_off(&self) {
        if let (Some(off), Some(sk)) = (self.peek_off, &self.sk) {
            let off = i32::try_from(off).unwrap_or(i32::MAX);
            let beside = self.udp.as_ref().map_or(0, |udp| udp.peek_off());
            sk.show_peek_off(off.saturating_add(beside.max(0)));
        }
    }

    /// A datagram that came by RDMA is dropped.
    fn count_drop(&mut self) {
        self.rx.count_drop();
        self.show_queue();
    }

    /// Shows the queue in SO_MEMINFO.
    pub(super) fn show_queue(&mut self) {
        if let Some(sk) = &self.sk {
            let bytes = i32::try_from(self.rx.charged()).unwrap_or(i32::MAX);
            sk.set_queue(self.shown, bytes, self.rx.drops());
            self.shown = bytes;
        }
    }
}

impl DgramSock {
    /// recvmsg(): one datagram. Returns the number of bytes given, or with MSG_TRUNC the datagram's
    /// length. Sleeps.
    pub(super) fn recv(self: &Arc<Self>, msg: &mut RecvMsg<'_>) -> Result<usize> {
        let sk = self.sk()?;
        if let Some(udp) = self.udp() {
            return self.recv_beside(&sk, &udp, msg);
        }
        let peek = msg.peek();
        let mut timeout = sk.rcvtimeo(msg.nonblock());
        let link = self.inner.lock().rx_link.clone();
        let found =
            self.wait
                .wait_or_poll(WaitMode::Interruptible, &mut timeout, link.as_ref(), || {
                    let mut inner = self.inner.lock();
                    let found = inner.next(peek);
                    found.or_else(|| inner.shut_read.then_some(Found::End))
                });
        let (datagram, from) = match found {
            Ok(Found::Datagram(datagram, from)) => (datagram, from),
            Ok(Found::Error(e)) => return Err(e),
            // As with UDP, only a call that would block sees the end.
            Ok(Found::End) if msg.nonblock() => return Err(EAGAIN),
            Ok(Found::End) => return Ok(0),
            Err(e) => return Err(e.to_errno(timeout)),
        };
        self.give(&sk, msg, &datagram, from)
    }

    /// Gives the program a datagram, from a byte on. EFAULT: its memory is not there; the datagram
    /// counts as dropped then, as with UDP, unless the call has only peeked at it. Sleeps.
    pub(super) fn give(
        &self,
        sk: &Sk,
        msg: &mut RecvMsg<'_>,
        datagram: &Datagram<Bytes>,
        from: u32,
    ) -> Result<usize> {
        let (len, from) = (datagram.len as usize, from as usize);
        let room = msg.len();
        let given = len.saturating_sub(from).min(room);
        if datagram.data.copy_to_iter(msg.iter(), from, given) != given {
            if !msg.peek() {
                self.inner.lock().count_drop();
            }
            return Err(EFAULT);
        }
        STATS.rx_bytes.add(given as u64);
        STATS.rx_copied.add(given as u64);
        if !msg.peek() {
            self.counters.rx_bytes.add(given as u64);
            self.counters.rx_datagrams.add(1);
        }
        if msg.wants_name() {
            let name = sk.cgroup_recvmsg(datagram.from.into());
            msg.set_name(sk, name);
        }
        // As UDP: not for the bytes before the offset of SO_PEEK_OFF, if all the rest is given and
        // leaves room.
        if given < len && room <= len - from {
            msg.set_truncated();
        }
        let told = if msg.truncate() { len } else { given };
        let port = {
            let mut inner = self.inner.lock();
            inner.move_peek_off(msg.peek(), told);
            inner.local.port
        };
        let arrival = Arrival {
            from: datagram.from.into(),
            to: Addr::new(datagram.to, port).into(),
            time: datagram.born,
            drops: datagram.drops,
        };
        // As with UDP, control messages whose memory is not there are left out.
        let _ = msg.put_arrival(sk, &arrival);
        Ok(told)
    }

    /// Memory for a datagram that begins to arrive on `link`, in `blocks`. It is charged to
    /// SO_RCVBUF when it is whole. `None`: the queue is full already, or there is no memory; the
    /// datagram is dropped, and counted. Sleeps.
    pub(super) fn begin(
        self: &Arc<Self>,
        link: &Arc<Link>,
        blocks: Blocks<'_>,
        from: Addr,
        to: Ip,
        total: u32,
    ) -> Option<Incoming> {
        let filters = filters_packets();
        let (old, maps, filter) = {
            let mut inner = self.inner.lock();
            // A closed socket takes nothing.
            let rcvbuf = inner.sk.as_ref()?.rcvbuf();
            if !inner.rx.has_room(total, rcvbuf) {
                inner.count_drop();
                return None;
            }
            let same = inner.rx_link.as_ref().is_some_and(|l| Arc::ptr_eq(l, link));
            let old = if same {
                None
            } else {
                inner.rx_link.replace(link.clone())
            };
            let filter = filters.then(|| inner.sk.clone().zip(Some(inner.local.port)));
            (old, inner.maps, filter.flatten())
        };
        drop(old);
        if let Some((sk, port)) = filter {
            let local = Addr::new(to, port).into();
            let let_in = sk.cgroup_datagram(local, from.into(), total as u16, false);
            if let_in.is_err() {
                self.inner.lock().count_drop();
                return None;
            }
        }
        let most = if maps { whole_blocks(total) } else { 0 };
        let data = self.memcg.charge_arrived(|flags| {
            let data = Data::new(blocks, total, most, flags)?;
            Ok(UniqueArc::new(data, flags)?)
        });
        match data {
            Ok(data) => {
                let sock: Arc<dyn DgramSocket> = self.clone();
                Some(Incoming::new(sock, from, to, data))
            }
            Err(_) => {
                self.inner.lock().count_drop();
                None
            }
        }
    }

    /// Shows a datagram that has arrived to the socket's filter, if it has one, and cuts off the
    /// bytes that the filter does not keep. An error: the caller drops the datagram. Sleeps.
    fn filter(&self, from: Addr, to: Ip, data: &mut Data) -> Result {
        let (sk, port) = {
            let inner = self.inner.lock();
            (inner.sk.clone(), inner.local.port)
        };
        let Some(sk) = sk.filter(|sk| sk.has_filter()) else {
            return Ok(());
        };
        let len = data.len();
        let local = Addr::new(to, port).into();
        let mut packet = self
            .memcg
            .charge(|| Packet::new(&sk, local, from.into(), len))?;
        data.for_each_piece(0, len, |piece| packet.add(piece))?;
        let keep = packet.filter(&sk).ok_or(EPERM)?;
        self.memcg
            .charge_arrived(|flags| data.truncate(keep, flags))
    }

    /// Enlarges the storage of the queue if it has no slot left. Without memory the next datagram
    /// is dropped, and counted.
    fn make_slots(&self) {
        let want = {
            let inner = self.inner.lock();
            if !inner.rx.is_short_of_slots() {
                return;
            }
            (2 * inner.rx.slots()).max(SLOTS)
        };
        let made = self.memcg.charge_arrived(|flags| {
            let mut slots = KVVec::with_capacity(want, flags)?;
            for _ in 0..want {
                slots.push(None, flags)?;
            }
            Ok(slots)
        });
        if let Ok(slots) = made {
            let old = self.inner.lock().rx.move_to(slots);
            drop(old);
        }
    }

    /// The length of the next datagram.
    pub(super) fn next_len(&self) -> u32 {
        let inner = self.inner.lock();
        inner.rx.peek().map_or(0, |datagram| datagram.len)
    }

    /// Datagrams on `link` are lost, maybe some of this socket. A socket that has a peer is told if
    /// that is the link's, another one with IP_RECVERR if its last datagram went there. Sleeps.
    pub(super) fn lost_on(&self, link: &Link, why: Error) {
        let to = {
            let inner = self.inner.lock();
            match (inner.remote, &inner.tx_link) {
                (Some(remote), _) => Some(remote).filter(|r| r.ip == link.remote_ip()),
                (None, Some((to, _, last))) if ptr::eq(&**last, link) => Some(*to),
                _ => None,
            }
        };
        if let Some(to) = to {
            self.not_taken(to, why);
        }
    }

    /// A datagram to `to` was refused (ECONNREFUSED): no socket there takes it; or it is lost.
    /// Sleeps.
    pub(super) fn not_taken(&self, to: Addr, why: Error) {
        let (sk, remote) = {
            let inner = self.inner.lock();
            (inner.sk.clone(), inner.remote)
        };
        // A UDP socket inside takes the next datagram, and reports its own errors.
        let Some(sk) = sk.filter(|_| self.udp().is_none()) else {
            return;
        };
        let recverr = sk.queues_errors(to.ip.is_v4());
        let how = report(remote == Some(to), recverr, why == ECONNREFUSED);
        // As with UDP there is no entry if there is no room for it.
        if how.queued && sk.queue_error(to.into(), why, how.so_error).is_ok() {
            self.wait.wake_all();
        } else if how.so_error {
            self.fail(why);
        }
    }
}

impl DgramSocket for DgramSock {
    fn deliver(&self, from: Addr, to: Ip, mut data: UniqueArc<Data>) {
        if self.filters.load(Relaxed) && self.filter(from, to, &mut data).is_err() {
            return self.inner.lock().count_drop();
        }
        self.make_slots();
        let datagram = Datagram {
            from,
            to,
            len: data.len() as u32,
            born: real_ns(),
            drops: 0,
            peeked: false,
            data: data.into(),
        };
        let queued = {
            let mut inner = self.inner.lock();
            match inner.sk.clone() {
                Some(sk) => {
                    let pushed = inner.rx.push(datagram, sk.rcvbuf());
                    inner.show_queue();
                    pushed.map(|()| sk)
                }
                None => Err(datagram),
            }
        };
        // One that is not queued is freed without the lock.
        if let Ok(sk) = queued {
            self.wait.wake_all();
            sk.wake_readable();
        }
    }

    fn may_send(self: Arc<Self>, late: bool) {
        self.starved.store(false, Relaxed);
        self.called.store(false, Relaxed);
        if late {
            self.send_buffer_late();
        }
        let sk = self.inner.lock().sk.clone();
        if let Some(sk) = sk {
            sk.wake_writable();
        }
    }

    fn link_dropped(&self) {
        self.counters.tx_drops.add(1);
    }
}
