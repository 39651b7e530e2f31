// SPDX-License-Identifier: GPL-2.0

//! The channel: its states, credit, windows and ends; each channel is parked and brought back
//! before anything is done to it.

mod cork;
mod credit;
mod crossing;
mod ends;
mod hostile;
mod states;
mod windows;

use common::headers::{id, over_the_wire};
use common::parking::Channel;
use zrs_core::channel::{Event, Limits, Plan, State};
use zrs_core::wire::{Header, Type};
use zrs_core::Violation;

const LIMITS: Limits = Limits {
    msgs: 64,
    small: 65536,
};

/// The next control message of a channel, encoded and decoded.
fn say(c: &mut Channel) -> Option<Header> {
    c.next_control().map(|h| over_the_wire(&h))
}

/// The next control message, which must be of that type.
fn say_a(c: &mut Channel, kind: Type) -> Header {
    match say(c) {
        Some(h) if h.kind == kind => h,
        other => panic!("{kind:?} expected: {other:?}"),
    }
}

fn connecting(limits: Limits) -> Channel {
    Channel::connect(id(10, 1), 50000, 80, limits)
}

/// Two ends of an open channel with these limits: of the side that connects, of the other.
fn pair_with(connects: Limits, accepts: Limits) -> (Channel, Channel) {
    let mut a = connecting(connects);
    let connect = say_a(&mut a, Type::Connect);
    let mut b = Channel::accept(id(20, 2), &connect, accepts).expect("accepted");
    assert_eq!(
        a.on_message(&say_a(&mut b, Type::Accept)),
        Ok(Event::Opened)
    );
    assert_eq!((a.state(), b.state()), (State::Open, State::Open));
    (a, b)
}

fn pair() -> (Channel, Channel) {
    pair_with(LIMITS, LIMITS)
}

/// Everything that `from` has to say arrives at `to`; the events.
fn tell(from: &mut Channel, to: &mut Channel) -> Vec<Event> {
    std::iter::from_fn(|| say(from))
        .map(|h| to.on_message(&h).unwrap_or_else(|e| panic!("{e:?}: {h:?}")))
        .collect()
}

/// Commits `n` bytes as DATA.
fn small(c: &mut Channel, n: u32) -> Header {
    let chunk = c.commit(Plan::Small(n)).expect("room");
    assert_eq!(chunk.write_to, None);
    over_the_wire(&chunk.header)
}

/// Commits `n` bytes as a WRITE; where to, and what announces it.
fn bulk(c: &mut Channel, n: u32) -> ((u64, u32), Header) {
    let chunk = c.commit(Plan::Bulk(n)).expect("room");
    (
        chunk.write_to.expect("a WRITE"),
        over_the_wire(&chunk.header),
    )
}

/// `to` leases a window to `from`, unasked.
fn lease(to: &mut Channel, from: &mut Channel, size: u32, addr: u64, key: u32) {
    assert!(to.grant(size, addr, key));
    let grant = say_a(to, Type::WindowGrant);
    assert_eq!(from.on_message(&grant), Ok(Event::Room));
    assert_eq!(
        (to.window_size(), from.peer_window_size()),
        (Some(size), Some(size))
    );
}

const STATE: Result<Event, Violation> = Err(Violation::State);
