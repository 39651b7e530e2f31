// SPDX-License-Identifier: GPL-2.0

//! A channel that is parked and brought back before anything is done to it, as if its entry had
//! been sent out of its slot just then, whatever is under way.

use std::ops::{Deref, DerefMut};

use zrs_core::channel::{self, Limits};
use zrs_core::link_table::Registers;
use zrs_core::wire::Header;
use zrs_core::{ChanId, Violation};

#[derive(PartialEq, Eq)]
pub struct Channel(channel::Channel);

impl Channel {
    pub fn connect(local: ChanId, src: u16, dst: u16, ours: Limits) -> Self {
        Self(channel::Channel::connect(local, src, dst, ours))
    }

    pub fn accept(local: ChanId, h: &Header, ours: Limits) -> Result<Self, Violation> {
        channel::Channel::accept(local, h, ours).map(Self)
    }

    pub fn ports_of(h: &Header) -> (u16, u16) {
        channel::Channel::ports_of(h)
    }

    pub fn has_pending_control(&self) -> bool {
        self.0.has_pending_control()
    }
}

impl Deref for Channel {
    type Target = channel::Channel;

    fn deref(&self) -> &channel::Channel {
        &self.0
    }
}

impl DerefMut for Channel {
    fn deref_mut(&mut self) -> &mut channel::Channel {
        self.0 = there_and_back(&self.0);
        &mut self.0
    }
}

impl std::fmt::Debug for Channel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// The channel after it was parked: the same one, but that a position from which to ask for a window again that lies
/// behind it is not kept.
pub fn there_and_back(c: &channel::Channel) -> channel::Channel {
    let there = |c: &channel::Channel| match c.park() {
        Some(parked) => channel::Channel::unpark(&parked, c.local()),
        None => panic!("cannot be parked: {c:?}"),
    };
    let back = there(c);
    assert_eq!(back.word(), c.word());
    if back != *c {
        assert_eq!(without_retry(&back), without_retry(c));
        assert_eq!(there(&back), back, "nothing is left to forget");
    }
    back
}

fn without_retry(c: &channel::Channel) -> String {
    let text = format!("{c:?}");
    let (head, tail) = text.split_once("window_retry_at: ").expect("a field");
    let (_, tail) = tail.split_once(',').expect("another field");
    format!("{head}{tail}")
}
