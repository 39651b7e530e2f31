// SPDX-License-Identifier: GPL-2.0

//! The datagrams that arrive on a link.

#![deny(unsafe_code)]

use kernel::prelude::*;
use kernel::sync::{Arc, UniqueArc};

use super::{Begin, Blocks, Data, DgramReceiver, DgramSocket};
use crate::kern::task::now_ns;
use crate::proto::addr::{Addr, Ip};
use crate::proto::dgram::assembly::{Arrived, Assembly};
use crate::proto::dgram::refusals::Refusals;
use crate::proto::dgram::wire::{Body, DgramHeader, Fragment, Message, PortState};
use crate::proto::Violation;
use crate::transport::link::Link;
use crate::transport::rx::Arrival;

/// A datagram that arrives.
pub(crate) struct Incoming {
    sock: Arc<dyn DgramSocket>,
    from: Addr,
    to: Ip,
    data: UniqueArc<Data>,
}

impl Incoming {
    /// A datagram for `sock`, whose bytes go to `data`, which has their number.
    pub(crate) fn new(
        sock: Arc<dyn DgramSocket>,
        from: Addr,
        to: Ip,
        data: UniqueArc<Data>,
    ) -> Self {
        Self {
            sock,
            from,
            to,
            data,
        }
    }

    /// Takes the bytes of a fragment. EINVAL if they do not fit, which does not occur.
    fn take(&mut self, f: &Fragment, arrival: &mut Arrival<'_>) -> Result {
        self.data.take(f, arrival)
    }

    fn deliver(self) {
        self.sock.deliver(self.from, self.to, self.data);
    }
}

/// The datagrams that arrive on a link.
#[derive(Default)]
pub(in crate::transport) struct DgramRx {
    pub(super) assembly: Assembly<Incoming>,
    refusals: Refusals,
}

impl Link {
    /// A message for datagrams has arrived. Sleeps.
    pub(in crate::transport) fn dgram_arrived(
        self: &Arc<Self>,
        h: &DgramHeader,
        arrival: &mut Arrival<'_>,
    ) -> Result<(), Violation> {
        let receiver = self.dgram_receiver.as_deref();
        let answer = match &h.body {
            Body::Datagram(f) => {
                self.dgram_passed();
                // The caller has the drain lock.
                self.rx_bytes.add_alone(u64::from(f.len()));
                let closed = self.fragment_arrived(receiver, f, arrival)?;
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
        arrival: &mut Arrival<'_>,
    ) -> Result<bool, Violation> {
        let mut rx = self.dgram_rx.lock();
        let mut closed = false;
        let begin = || {
            let blocks = Blocks::of(arrival.pool());
            let begin = receiver.map(|r| r.begin(self, blocks, f.ports, f.total));
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
                if incoming.take(f, arrival).is_err() {
                    drop(rx.assembly.give_up());
                }
            }
            Arrived::Whole(mut incoming) => {
                if incoming.take(f, arrival).is_ok() {
                    incoming.deliver();
                }
            }
        }
        Ok(closed)
    }
}
