// SPDX-License-Identifier: GPL-2.0

//! The datagrams that arrive on a link.

#![deny(unsafe_code)]

use kernel::alloc::kvec::KVVec;
use kernel::prelude::*;
use kernel::sync::{Arc, UniqueArc};

use super::{Begin, DgramReceiver, DgramSocket};
use crate::kern::task::{now_ns, real_ns};
use crate::proto::addr::{Addr, Ip};
use crate::proto::dgram::assembly::{Arrived, Assembly};
use crate::proto::dgram::refusals::Refusals;
use crate::proto::dgram::rx_queue::{Datagram, Reservation};
use crate::proto::dgram::wire::{Body, DgramHeader, Fragment, Message, PortState};
use crate::proto::Violation;
use crate::transport::link::Link;

/// A datagram that arrives.
pub(crate) struct Incoming {
    sock: Arc<dyn DgramSocket>,
    from: Addr,
    to: Ip,
    /// `None` once it is delivered.
    kept: Option<(Reservation, UniqueArc<KVVec<u8>>)>,
}

impl Incoming {
    /// A datagram for `sock`, whose bytes go to `bytes`, which has their number.
    pub(crate) fn new(
        sock: Arc<dyn DgramSocket>,
        from: Addr,
        to: Ip,
        room: Reservation,
        bytes: UniqueArc<KVVec<u8>>,
    ) -> Self {
        Self {
            sock,
            from,
            to,
            kept: Some((room, bytes)),
        }
    }

    /// Copies the bytes of a fragment. EINVAL if they do not fit, which does not occur.
    fn copy(&mut self, f: &Fragment, copy: impl FnOnce(&mut [u8]) -> Result) -> Result {
        let place = f.offset as usize..f.end() as usize;
        let (_, bytes) = self.kept.as_mut().ok_or(EINVAL)?;
        copy(bytes.get_mut(place).ok_or(EINVAL)?)
    }

    fn deliver(mut self) {
        if let Some((room, bytes)) = self.kept.take() {
            let datagram = Datagram {
                from: self.from,
                to: self.to,
                len: bytes.len() as u32,
                born: real_ns(),
                drops: 0,
                data: bytes.into(),
            };
            self.sock.deliver(room, datagram);
        }
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        if let Some((room, _)) = self.kept.take() {
            self.sock.release(room);
        }
    }
}

/// The datagrams that arrive on a link.
#[derive(Default)]
pub(in crate::transport) struct DgramRx {
    pub(super) assembly: Assembly<Incoming>,
    refusals: Refusals,
}

impl Link {
    /// A message for datagrams has arrived; `copy` copies its first bytes. Sleeps.
    pub(in crate::transport) fn dgram_arrived(
        self: &Arc<Self>,
        h: &DgramHeader,
        copy: impl FnOnce(&mut [u8]) -> Result,
    ) -> Result<(), Violation> {
        let receiver = self.transport.dgram_receiver();
        let receiver = receiver.as_deref();
        let answer = match &h.body {
            Body::Datagram(f) => {
                self.dgram_passed();
                // The caller has the drain lock.
                self.rx_bytes.add_alone(u64::from(f.len()));
                let closed = self.fragment_arrived(receiver, f, copy)?;
                closed.then_some((f.ports, PortState::Closed))
            }
            Body::Probe(ports) => {
                let open = receiver.is_some_and(|r| r.is_open(self, *ports));
                let state = if open {
                    PortState::Open
                } else {
                    PortState::Closed
                };
                Some((*ports, state))
            }
            Body::Port(ports, state) => {
                if let Some(receiver) = receiver {
                    receiver.answered(self, *ports, *state);
                }
                None
            }
        };
        if let Some((ports, state)) = answer {
            let may = self.dgram_rx.lock().refusals.may_answer(ports, now_ns());
            if may {
                let h = DgramHeader {
                    link_credit: 0,
                    body: Body::Port(ports.reversed(), state),
                };
                self.reply(Message::Dgram(h));
            }
        }
        Ok(())
    }

    /// Returns whether no socket takes the datagram.
    fn fragment_arrived(
        self: &Arc<Self>,
        receiver: Option<&dyn DgramReceiver>,
        f: &Fragment,
        copy: impl FnOnce(&mut [u8]) -> Result,
    ) -> Result<bool, Violation> {
        let mut rx = self.dgram_rx.lock();
        let mut closed = false;
        let begin = || {
            let begin = receiver.map(|r| r.begin(self, f.ports, f.total));
            match begin {
                Some(Begin::Kept(incoming)) => return Some(incoming),
                Some(Begin::Dropped) => {}
                Some(Begin::Closed) | None => closed = true,
            }
            None
        };
        match rx.assembly.arrived(f, begin)? {
            Arrived::Dropped => {}
            Arrived::Part(incoming) => {
                if incoming.copy(f, copy).is_err() {
                    drop(rx.assembly.give_up());
                }
            }
            Arrived::Whole(mut incoming) => {
                if incoming.copy(f, copy).is_ok() {
                    incoming.deliver();
                }
            }
        }
        Ok(closed)
    }
}
