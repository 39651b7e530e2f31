// SPDX-License-Identifier: GPL-2.0

//! SO_SNDBUF: bounds the datagrams that a socket has posted and that the device is not done with.
//! Datagrams that wait for their link to come up do not count; [`Link::hold_dgram`] bounds them.
//!
//! A peer that acknowledges nothing must not hold up datagrams for other peers. So a full send
//! buffer delays a sender for `dgram_stall_ms` at most. Then the datagrams in flight are counted no
//! longer: each link bounds its own anyway.
//!
//! [`Link::hold_dgram`]: crate::transport::link::Link::hold_dgram

#![deny(unsafe_code)]

use kernel::prelude::*;
use kernel::sync::atomic::{Full, Relaxed};
use kernel::sync::Arc;
use kernel::time::msecs_to_jiffies;

use super::{DgramSock, Inner};
use crate::kern::sock::Sk;
use crate::kern::task::now_ns;
use crate::kern::wait::{WaitError, WaitMode};
use crate::proto::dgram::sndbuf;
use crate::stats::Counter;
use crate::transport::conn::{Charge, SendBuffer};
use crate::transport::dgram::{stall_ns, DgramSocket};

/// The datagrams of a socket that are in flight.
pub(super) struct InFlight {
    sock: Arc<DgramSock>,
    bytes: Counter,
}

impl SendBuffer for InFlight {
    fn uncharge(&self, bytes: usize) {
        self.bytes.sub(bytes as u64);
        self.sock.send_room_changed();
    }
}

impl Inner {
    /// Bytes in flight.
    pub(super) fn tx_held(&self) -> u64 {
        self.in_flight.as_ref().map_or(0, |f| f.bytes.get())
    }

    /// Whether poll() promises room in the send buffer; if not, notes since when, unless that is
    /// known.
    fn has_send_room(&mut self) -> bool {
        let limit = self.sk.as_ref().map_or(0, |sk| sk.sndbuf());
        let room = sndbuf::writable(limit, self.tx_held());
        self.full_since = match room {
            true => None,
            false => Some(self.full_since.unwrap_or_else(now_ns)),
        };
        room
    }

    /// For how many nanoseconds a sender waits for room in the send buffer, which is full.
    fn stall_left(&mut self) -> u64 {
        self.has_send_room();
        let since = self.full_since.unwrap_or_else(now_ns);
        since.saturating_add(stall_ns()).saturating_sub(now_ns())
    }
}

impl DgramSock {
    /// Charges a datagram of `len` bytes to the send buffer. Waits for room. Sleeps. EAGAIN, EINTR;
    /// ENOMEM.
    pub(super) fn charge(self: &Arc<Self>, sk: &Sk, len: usize, nonblock: bool) -> Result<Charge> {
        let bytes = sndbuf::charge(len);
        let mut flight = self.in_flight()?;
        if let Some(charge) = self.try_charge(&flight, sk, bytes) {
            return Ok(charge);
        }
        let timeout = sk.sndtimeo(nonblock);
        if timeout == Some(0) {
            self.call_in_time();
            return Err(EAGAIN);
        }
        // Not from the beginning of the call: a signal may restart the call again and again.
        let left = self.inner.lock().stall_left();
        let stall = msecs_to_jiffies((left / 1_000_000) as u32) + 1;
        let shorter = timeout.is_some_and(|t| t < stall);
        let mut limit = if shorter { timeout } else { Some(stall) };
        let link = self.tx_link();
        loop {
            let charge =
                self.wait
                    .wait_or_poll(
                        WaitMode::Interruptible,
                        &mut limit,
                        link.as_ref(),
                        || match self.is_counted(&flight) {
                            true => self.try_charge(&flight, sk, bytes).map(Some),
                            false => Some(None),
                        },
                    );
            match charge {
                Ok(Some(charge)) => return Ok(charge),
                // Another thread has had its bytes forgotten.
                Ok(None) => flight = self.in_flight()?,
                Err(WaitError::TimedOut) if !shorter => {
                    self.forget_in_flight(&flight);
                    // The datagram has waited for long enough, whatever other threads have sent.
                    return Ok(Self::charge_to(&self.in_flight()?, sk.sndbuf(), bytes));
                }
                Err(e) => return Err(e.to_errno(timeout)),
            }
        }
    }

    /// Whether the bytes of `flight` count against the send buffer.
    fn is_counted(&self, flight: &Arc<InFlight>) -> bool {
        let inner = self.inner.lock();
        let counted = inner.in_flight.as_ref();
        counted.is_some_and(|counted| Arc::ptr_eq(counted, flight))
    }

    /// Charges `bytes`, or notes that a thread waits for room.
    fn try_charge(&self, flight: &Arc<InFlight>, sk: &Sk, bytes: usize) -> Option<Charge> {
        let limit = sk.sndbuf();
        let mut inner = self.inner.lock();
        if !sndbuf::admits(limit, flight.bytes.get()) {
            inner.tx_full = true;
            return None;
        }
        Some(Self::charge_to(flight, limit, bytes))
    }

    /// Charges `bytes`, whether there is room or not.
    fn charge_to(flight: &Arc<InFlight>, limit: u32, bytes: usize) -> Charge {
        flight.bytes.add(bytes as u64);
        // A thread that waits for room is woken by a signaled completion. The unsignaled messages
        // have less than half of the limit.
        let fills = !sndbuf::writable(limit, flight.bytes.get());
        Charge::new(flight.clone(), bytes, fills)
    }

    /// The count of bytes in flight. Sleeps. ENOMEM.
    fn in_flight(self: &Arc<Self>) -> Result<Arc<InFlight>> {
        if let Some(flight) = &self.inner.lock().in_flight {
            return Ok(flight.clone());
        }
        let new = Arc::new(
            InFlight {
                sock: self.clone(),
                bytes: Counter::new(),
            },
            GFP_KERNEL,
        )?;
        // Another thread may have made one first; then `new` is dropped without the lock.
        let flight = {
            let mut inner = self.inner.lock();
            inner.in_flight.get_or_insert_with(|| new.clone()).clone()
        };
        Ok(flight)
    }

    /// Counts the bytes of `flight` no longer.
    fn forget_in_flight(&self, flight: &Arc<InFlight>) {
        let old = {
            let mut inner = self.inner.lock();
            let same = |f: &Arc<InFlight>| Arc::ptr_eq(f, flight);
            match inner.in_flight.as_ref().is_some_and(same) {
                true => {
                    inner.full_since = None;
                    inner.in_flight.take()
                }
                false => None,
            }
        };
        drop(old);
        self.send_room_changed();
    }

    /// The link calls that [`Self::call_in_time`] has asked. If a datagram has completed within
    /// `dgram_stall_ms`, another call is asked for. Takes the link's lock.
    pub(super) fn send_buffer_late(self: &Arc<Self>) {
        let left = {
            let mut inner = self.inner.lock();
            if inner.has_send_room() {
                return;
            }
            inner.stall_left()
        };
        match left {
            0 => self.forget_all(),
            _ => self.call_in_time(),
        }
    }

    /// Counts the bytes in flight no longer.
    fn forget_all(&self) {
        let flight = self.inner.lock().in_flight.clone();
        if let Some(flight) = flight {
            self.forget_in_flight(&flight);
        }
    }

    /// Has the socket called when its send buffer has been full for `dgram_stall_ms`, by the link
    /// that it has sent on last. Takes the link's lock.
    fn call_in_time(self: &Arc<Self>) {
        if self.called.xchg(true, Full) {
            return;
        }
        let sock: Arc<dyn DgramSocket> = self.clone();
        let link = self.tx_link();
        let called = link.is_some_and(|link| link.call_in_time(&sock));
        if !called {
            // The link has ended.
            self.called.store(false, Relaxed);
            self.forget_all();
        }
    }

    /// Whether poll() may promise room in the send buffer. If not, the socket is woken when there
    /// is some. Takes the link's lock.
    pub(super) fn poll_send_room(self: &Arc<Self>) -> bool {
        let room = {
            let mut inner = self.inner.lock();
            let room = inner.has_send_room();
            inner.tx_full |= !room;
            room
        };
        if !room {
            self.call_in_time();
        }
        room
    }

    /// The send buffer may have room: wakes the threads that wait for it.
    pub(super) fn send_room_changed(&self) {
        let sk = {
            let mut inner = self.inner.lock();
            inner.full_since = None;
            if !inner.has_send_room() || !inner.tx_full {
                return;
            }
            inner.tx_full = false;
            inner.sk.clone()
        };
        self.wait.wake_all();
        if let Some(sk) = sk {
            sk.wake_writable();
        }
    }

    /// Bytes in flight, for SIOCOUTQ and `zrs ss`. With `asks`, asks for the completion of messages
    /// that are not signaled. Takes links' locks; sleeps.
    pub(super) fn tx_queued(&self, asks: bool) -> u64 {
        let held = self.inner.lock().tx_held();
        if held > 0 && asks {
            let links = self.ctx.transport.snapshot();
            for link in links.into_iter().flatten().filter(|l| l.net == self.net) {
                link.has_delivered();
            }
        }
        held
    }
}
