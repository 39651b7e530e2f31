// SPDX-License-Identifier: GPL-2.0

//! Sending datagrams.

#![deny(unsafe_code)]

use kernel::alloc::kvec::KVVec;
use kernel::prelude::*;
use kernel::sync::atomic::Relaxed;
use kernel::sync::Arc;

use super::pinned::Pinned;
use super::DgramSock;
use crate::kern::errno::{
    EAFNOSUPPORT, EDESTADDRREQ, EDQUOT, EHOSTUNREACH, EMSGSIZE, ENETUNREACH, ENOBUFS, EOPNOTSUPP,
};
use crate::kern::memcg::CHARGED;
use crate::kern::sock::msg::SendMsg;
use crate::kern::sock::{filters_packets, Sk};
use crate::kern::task::now_ns;
use crate::kern::wait::{WaitError, WaitMode};
use crate::proto::addr::{Addr, Ip};
use crate::proto::dgram::control::Control;
use crate::proto::dgram::destination::{Refused, Sender};
use crate::proto::dgram::segment::cuts;
use crate::proto::dgram::wire::{fragment_count, Ports};
use crate::stats::STATS;
use crate::transport::conn::Charge;
use crate::transport::dgram::{DgramSocket, Room, Source};
use crate::transport::link::{Link, LinkState};
use crate::transport::links::Asker;

/// How often another link is tried if one ends while a datagram is being sent.
pub(super) const TRIES: u32 = 3;

pub(super) fn errno_of(refused: Refused) -> Error {
    match refused {
        Refused::NoAddress => EDESTADDRREQ,
        Refused::NoPort => EINVAL,
        Refused::Unreachable => ENETUNREACH,
        Refused::WrongFamily => EAFNOSUPPORT,
        Refused::TooLong => EMSGSIZE,
    }
}

/// Where the datagrams of a call go, and how.
pub(super) struct Way {
    pub(super) to: Addr,
    /// The local address, if it is not the socket's.
    pub(super) source: Option<Ip>,
    /// UDP_SEGMENT; 0: the call is one datagram.
    pub(super) segment: u16,
}

/// The outcome of an attempt to send.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Sent {
    /// The datagram is on its way, or waits for the link to come up, or was dropped and counted.
    Done,
    /// As `Done`, from the program's pages.
    Pinned,
    /// The link has ended.
    LinkDown,
}

impl DgramSock {
    /// sendmsg(). Returns the length of the datagram. Sleeps.
    pub(super) fn send(self: &Arc<Self>, msg: &mut SendMsg<'_>) -> Result<usize> {
        let len = msg.len();
        let sk = self.sk()?;
        // As UDP does, before it looks at anything else.
        let src = self.autobind(&sk)?;
        if let Some(udp) = self.udp() {
            return self.send_beside(&sk, &udp, src, msg);
        }
        // UDP adds nothing to a datagram then, and sends none.
        let probe = msg.probe();
        if !probe && self.gathers(msg) {
            return self.gather(&sk, src, msg);
        }
        let way = self.way(&sk, msg)?;
        if probe {
            return Ok(len);
        }
        self.may_send_now(&sk)?;
        self.let_out(&sk, src, &way, len)?;
        if cuts(len, way.segment) {
            return Self::told(&sk, msg, |msg| {
                let bytes = Self::copy(msg, len)?;
                self.send_bytes(&sk, src, &way, &bytes, msg.nonblock())?;
                Ok(len)
            });
        }
        let to = way.to;
        let ports = Ports { dst: to.port, src };
        let mut charge = Some(self.charge(&sk, len, msg.nonblock())?);
        for _ in 0..TRIES {
            let link = self.link_to(&sk, to, way.source)?;
            match self.send_on(&link, &sk, ports, msg, &mut charge)? {
                Sent::Done | Sent::Pinned => return Ok(len),
                Sent::LinkDown => msg.rewind(0),
            }
        }
        Err(EHOSTUNREACH)
    }

    /// The way of the call's datagram. The errors of the address and of control messages. Sleeps.
    pub(super) fn way(&self, sk: &Sk, msg: &mut SendMsg<'_>) -> Result<Way> {
        let given = msg.name(sk)?.map(Addr::from);
        let sender = self.sender(sk);
        let mut to = sender.destination(given, msg.len()).map_err(errno_of)?;
        // As UDP does; by IPv6 it ignores the flag.
        if msg.oob() && to.ip.is_v4() {
            return Err(EOPNOTSUPP);
        }
        let mut control = match msg.control() {
            Some(bytes) => Control::parse(bytes, to.ip, self.v6).map_err(|_| EINVAL)?,
            None => Control::default(),
        };
        if given.is_some() {
            let source = control.source.unwrap_or(sender.local);
            let (left, source) = Self::redirected(sk, &sender, to, source, msg.len())?;
            to = left;
            control.source = source.or(control.source);
        }
        if to.ip.is_link_local() && to.ip.scope() == 0 {
            to.ip = Ip::new(to.ip.v6(), control.interface);
        }
        to.ip = Self::on_interface(sk, to.ip)?;
        if to.ip.scope() != 0 {
            // An interface that there is.
            let there = self.net.is_local(to.ip.v6(), to.ip.scope());
            there.map_err(|_| ENETUNREACH)?;
        }
        if let Some(source) = control.source {
            if !self.net.is_local(source.v6(), source.scope())? {
                // As UDP has it: by IPv4 there is no route from there.
                return Err(if to.ip.is_v4() { ENETUNREACH } else { EINVAL });
            }
        }
        self.check_for_one(to.ip)?;
        let source = Addr::new(control.source.unwrap_or(sender.local), 0);
        if control.interface != 0 && sk.interface_to(source.into(), to.into()) != control.interface
        {
            return Err(ENETUNREACH);
        }
        Ok(Way {
            to,
            source: control.source,
            segment: control
                .segment
                .unwrap_or_else(|| self.udp_options.segment()),
        })
    }

    /// ENETUNREACH for the broadcast address of a network of this host. The host that the last
    /// datagram went to is not looked up again.
    fn check_for_one(&self, ip: Ip) -> Result {
        let known = {
            let inner = self.inner.lock();
            let last = inner.tx_link.as_ref();
            last.is_some_and(|(last, ..)| last.ip == ip)
        };
        if !known && self.net.is_broadcast(ip.v6()) {
            return Err(ENETUNREACH);
        }
        Ok(())
    }

    /// The destination that the programs of the socket's control group leave of `to`, which the
    /// call has named, and the source address if they have changed that. Sleeps.
    pub(super) fn redirected(
        sk: &Sk,
        sender: &Sender,
        to: Addr,
        source: Ip,
        len: usize,
    ) -> Result<(Addr, Option<Ip>)> {
        let (name, source) = sk.cgroup_sendmsg(to.into(), source.v6())?;
        let left = Addr::from(name);
        let to = match left == to {
            true => to,
            false => sender.destination(Some(left), len).map_err(errno_of)?,
        };
        Ok((to, source.map(|ip| Ip::new(ip, 0))))
    }

    /// Whether the programs of the socket's control group let a datagram of `len` bytes out. EPERM.
    /// Sleeps.
    pub(super) fn let_out(&self, sk: &Sk, src: u16, way: &Way, len: usize) -> Result {
        // Without programs, as nearly always, the socket's lock is not taken for its address.
        if !filters_packets() {
            return Ok(());
        }
        let ip = way.source.unwrap_or_else(|| self.inner.lock().local.ip);
        sk.cgroup_datagram(Addr::new(ip, src).into(), way.to.into(), len as u16, true)
    }

    /// The errors of a call that has a way. EPIPE, and that of an earlier call.
    pub(super) fn may_send_now(&self, sk: &Sk) -> Result {
        Self::take_error(sk)?;
        if self.inner.lock().shut_write {
            return Err(EPIPE);
        }
        Ok(())
    }

    /// The link to the host of `to`, from `source` or the socket's own address: that of the last
    /// datagram, or another one, which is made if there is none. Sleeps. ENOBUFS: the quota of
    /// links is used up.
    pub(super) fn link_to(&self, sk: &Sk, to: Addr, source: Option<Ip>) -> Result<Arc<Link>> {
        let (last, local) = {
            let mut inner = self.inner.lock();
            let local = source.unwrap_or(inner.local.ip);
            match &mut inner.tx_link {
                Some((last, from, _)) if last.ip == to.ip && *from == local => last.port = to.port,
                _ => {}
            }
            (inner.tx_link.clone(), local)
        };
        // SO_BINDTODEVICE may have changed since the last datagram.
        if !sk.device_allows(Addr::new(local, 0).into(), Addr::new(to.ip, 0).into()) {
            return Err(ENETUNREACH);
        }
        if let Some((last, from, link)) = last {
            if last.ip == to.ip && from == local && link.state() != LinkState::Down {
                return Ok(link);
            }
        }
        let from = (!local.is_any()).then_some(local);
        let transport = &self.ctx.transport;
        let asker = Asker {
            for_admin: self.for_admin,
            limited: None,
            holder: self.holder,
            by_dgram: true,
        };
        let link = transport.link_to(&self.net, from, to.ip, asker);
        // As UDP has it for a full table of neighbours.
        let link = link.map_err(|e| if e == EDQUOT { ENOBUFS } else { e })?;
        let old = {
            let mut inner = self.inner.lock();
            let old = inner.tx_link.replace((to, local, link.clone()));
            if inner.remote.is_none() && old.as_ref().is_some_and(|(old, ..)| old.ip != to.ip) {
                self.several.store(true, Relaxed);
            }
            old
        };
        drop(old);
        Ok(link)
    }

    /// Sends on `link`. Sleeps.
    pub(super) fn send_on(
        self: &Arc<Self>,
        link: &Arc<Link>,
        sk: &Sk,
        ports: Ports,
        msg: &mut SendMsg<'_>,
        charge: &mut Option<Charge>,
    ) -> Result<Sent> {
        let len = msg.len();
        let sent = self.try_send_on(link, sk, ports, msg, charge)?;
        match sent {
            Sent::Done => self.count_sent(len, len),
            Sent::Pinned => self.count_sent(len, 0),
            Sent::LinkDown => {}
        }
        Ok(sent)
    }

    /// Counts a datagram of `len` bytes, `copied` bytes among them copied.
    pub(super) fn count_sent(&self, len: usize, copied: usize) {
        self.counters.tx_bytes.add(len as u64);
        self.counters.tx_datagrams.add(1);
        STATS.tx_bytes.add(len as u64);
        STATS.tx_copied.add(copied as u64);
    }

    fn try_send_on(
        self: &Arc<Self>,
        link: &Arc<Link>,
        sk: &Sk,
        ports: Ports,
        msg: &mut SendMsg<'_>,
        charge: &mut Option<Charge>,
    ) -> Result<Sent> {
        let len = msg.len();
        let n = fragment_count(len as u32);
        // Before any slots are held, as it may take page faults.
        let pinned = self.pin(link, sk, msg);
        let room = self.reserve(link, sk, n, msg.nonblock())?;
        let (slots, pinned) = match (room, pinned) {
            (Room::Taken(slots), pinned) => (slots, pinned),
            (other, pinned) => {
                drop(pinned);
                msg.rewind(0);
                return self.send_without_slots(link, sk, other, ports, msg, None);
            }
        };
        if let Some(Pinned { pins, lent }) = pinned {
            let notify = Self::notification(sk, msg)?;
            slots.post(
                ports,
                len as u32,
                Source::Pages(pins, notify),
                charge.take(),
            );
            if let Some(lent) = lent {
                self.await_device(link, &lent);
            }
            return Ok(Sent::Pinned);
        }
        if slots.fill(len, msg.iter()) == len {
            return Self::told(sk, msg, |_| {
                slots.post(ports, len as u32, Source::Slots, charge.take());
                Ok(Sent::Done)
            });
        }
        // Some of the program's pages are not present; no slots are held while they are read in.
        drop(slots);
        msg.rewind(0);
        let bytes = Self::copy(msg, len)?;
        match self.reserve(link, sk, n, msg.nonblock())? {
            Room::Taken(slots) => {
                slots.put(&bytes)?;
                Self::told(sk, msg, |_| {
                    slots.post(ports, len as u32, Source::Slots, charge.take());
                    Ok(Sent::Done)
                })
            }
            other => self.send_without_slots(link, sk, other, ports, msg, Some(bytes)),
        }
    }

    /// As [`Self::without_slots`], for the datagram of a call; `copied`: its bytes, if they have
    /// been copied.
    fn send_without_slots(
        self: &Arc<Self>,
        link: &Arc<Link>,
        sk: &Sk,
        room: Room,
        ports: Ports,
        msg: &mut SendMsg<'_>,
        copied: Option<KVVec<u8>>,
    ) -> Result<Sent> {
        let held = match (&room, copied) {
            (Room::Held, None) => Some(Self::copy(msg, msg.len())?),
            (_, copied) => copied,
        };
        let takes = matches!(room, Room::Held | Room::Dropped);
        let send = || self.without_slots(link, room, ports, || held.ok_or(EINVAL));
        match takes {
            true => Self::told(sk, msg, |_| send()),
            false => send(),
        }
    }

    /// The datagram gets no slots.
    pub(super) fn without_slots(
        self: &Arc<Self>,
        link: &Arc<Link>,
        room: Room,
        ports: Ports,
        bytes: impl FnOnce() -> Result<KVVec<u8>>,
    ) -> Result<Sent> {
        match room {
            Room::Held => {
                link.hold_dgram(self.clone(), ports, bytes()?)?;
                Ok(Sent::Done)
            }
            Room::Unsupported => Err(EHOSTUNREACH),
            Room::Down => Ok(Sent::LinkDown),
            Room::Full(_) => Err(EAGAIN),
            Room::Dropped => {
                self.link_dropped();
                Ok(Sent::Done)
            }
            Room::Taken(_) => Ok(Sent::Done),
        }
    }

    /// The program's bytes, in memory that it pays for. EFAULT, ENOMEM.
    fn copy(msg: &mut SendMsg<'_>, len: usize) -> Result<KVVec<u8>> {
        let mut bytes = KVVec::from_elem(0_u8, len, CHARGED)?;
        if msg.iter().copy_from_iter(&mut bytes) != len {
            return Err(EFAULT);
        }
        Ok(bytes)
    }

    /// Reserves room on the link. A call that blocks waits for it, until datagrams for the link are
    /// dropped; with one that does not, the socket is withheld POLLOUT. Sleeps.
    pub(super) fn reserve(
        self: &Arc<Self>,
        link: &Arc<Link>,
        sk: &Sk,
        n: u32,
        nonblock: bool,
    ) -> Result<Room> {
        let first = link.reserve_dgram(n, None);
        let Room::Full(until) = first else {
            return Ok(first);
        };
        let timeout = sk.sndtimeo(nonblock);
        if timeout == Some(0) {
            let sock: Arc<dyn DgramSocket> = self.clone();
            // Set before the link can call.
            let new = self.starve();
            let room = link.reserve_dgram(n, new.then_some(&sock));
            if new && !matches!(room, Room::Full(_)) {
                self.starved.store(false, Relaxed);
                // Another thread may have found the socket withheld POLLOUT.
                sk.wake_writable();
            }
            return Ok(room);
        }
        let left = until.saturating_sub(now_ns()) / 1_000_000;
        let stall = kernel::time::msecs_to_jiffies(left as u32) + 1;
        let shorter = timeout.is_some_and(|t| t < stall);
        let mut limit = if shorter { timeout } else { Some(stall) };
        let room = link
            .dgram_wait
            .wait(WaitMode::Interruptible, &mut limit, || {
                let room = link.reserve_dgram(n, None);
                (!matches!(room, Room::Full(_))).then_some(room)
            });
        match room {
            Ok(room) => Ok(room),
            Err(WaitError::TimedOut) if !shorter => {
                link.give_up_dgram();
                Ok(Room::Dropped)
            }
            Err(e) => Err(e.to_errno(timeout)),
        }
    }
}
