// SPDX-License-Identifier: GPL-2.0
//! The cases: one rule of the protocol each, and the module's reaction when it is broken.

mod crowd;
mod dgram;
mod handshake;
mod header;
mod memory;
mod memory_key;
mod memory_silent;
pub mod pose;
mod proof;
mod random;
mod rdma;
mod resource;
mod server;
mod state;
mod windows;

use zrs_core::wire::{Header, HEADER_LEN};

use crate::peer::{said, Chan, Peer};
use crate::world::{expect_end, Outcome, World};

/// The effect of a message on the link.
type Act = fn(&mut Peer, &mut Chan) -> Outcome;

#[derive(Clone, Copy)]
enum Run {
    /// A whole case.
    Whole(fn(&mut World) -> Outcome),
    /// The message closes the link, and is counted.
    Violation(Act),
    /// The same, after the peer has said that its stream is at its end.
    ViolationAfterEnd(Act),
    /// The device closes the link, since the request is not allowed.
    Refused(Act),
    /// The message changes nothing: the connection goes on.
    Ignored(Act),
}

/// A case.
#[derive(Clone, Copy)]
pub struct Case {
    pub name: &'static str,
    run: Run,
    /// Waits for timeouts of many seconds.
    pub slow: bool,
}

const fn whole(name: &'static str, run: fn(&mut World) -> Outcome) -> Case {
    Case {
        name,
        run: Run::Whole(run),
        slow: false,
    }
}

const fn slow(name: &'static str, run: fn(&mut World) -> Outcome) -> Case {
    Case {
        name,
        run: Run::Whole(run),
        slow: true,
    }
}

const fn violation(name: &'static str, act: Act) -> Case {
    Case {
        name,
        run: Run::Violation(act),
        slow: false,
    }
}

const fn after_end(name: &'static str, act: Act) -> Case {
    Case {
        name,
        run: Run::ViolationAfterEnd(act),
        slow: false,
    }
}

const fn refused(name: &'static str, act: Act) -> Case {
    Case {
        name,
        run: Run::Refused(act),
        slow: false,
    }
}

const fn ignored(name: &'static str, act: Act) -> Case {
    Case {
        name,
        run: Run::Ignored(act),
        slow: false,
    }
}

/// All cases.
pub fn all() -> Vec<Case> {
    [
        crowd::CASES,
        handshake::CASES,
        header::CASES,
        state::CASES,
        rdma::CASES,
        resource::CASES,
        windows::CASES,
        server::CASES,
        dgram::CASES,
        memory::CASES,
        memory_key::CASES,
        memory_silent::CASES,
        proof::CASES,
        random::CASES,
    ]
    .concat()
}

/// The data sent to the victim's program before the case begins.
pub const DATA: [u8; 100] = [b'd'; 100];
pub const BULK: [u8; 1000] = [b'b'; 1000];

impl Case {
    /// It does something else with each seed.
    pub fn is_random(&self) -> bool {
        self.name.starts_with("random/")
    }

    /// Runs the case; afterwards nothing may be left and the bystander must go on.
    pub fn run(&self, world: &mut World) -> Outcome {
        let base = world.stats()?;
        let outcome = match self.run {
            Run::Whole(run) => run(world),
            _ => self.message(world),
        };
        let outcome = outcome.and_then(|()| world.settled(&base, 15));
        let bystander = world.bystander.as_ref();
        outcome.and(bystander.map_or(Ok(()), |b| b.goes_on(world.limit(10), 1)))
    }

    /// A link with a channel that has carried something of everything; then the message.
    fn message(&self, world: &mut World) -> Outcome {
        let (mut peer, mut chan, mut stream, _victim) = world.channel()?;
        peer.data(&mut chan, &DATA)?;
        peer.get_window(&mut chan, world.limit(10))?;
        peer.write(&mut chan, &BULK)?;
        peer.alive(world.limit(10))?;
        let before = world.stats()?;
        let sent = [&DATA[..], &BULK].concat();
        match self.run {
            Run::Violation(act) => {
                act(&mut peer, &mut chan)?;
                world.expect_violation(&mut peer, &before)?;
                expect_end(&mut stream, &sent, &[libc::ECONNRESET])
            }
            Run::ViolationAfterEnd(act) => {
                act(&mut peer, &mut chan)?;
                world.expect_violation(&mut peer, &before)?;
                expect_end(&mut stream, &sent, &[0, libc::ECONNRESET])
            }
            Run::Refused(act) => {
                act(&mut peer, &mut chan)?;
                world.expect_closed(&mut peer, &before)?;
                expect_end(&mut stream, &sent, &[libc::ECONNRESET])
            }
            Run::Ignored(act) => {
                act(&mut peer, &mut chan)?;
                world.expect_alive(&mut peer, &before)?;
                peer.data(&mut chan, b"goes on")?;
                peer.send(chan.header(zrs_core::wire::Type::Fin), &[])?;
                expect_end(&mut stream, &[&sent[..], b"goes on"].concat(), &[0])
            }
            Run::Whole(_) => unreachable!("has no message"),
        }
    }
}

/// Sends a header whose encoded bytes are changed.
fn changed(
    peer: &mut Peer,
    mut h: Header,
    change: impl FnOnce(&mut [u8; HEADER_LEN]),
    payload: &[u8],
) -> Outcome {
    h.link_credit = peer.credit_told();
    let mut bytes = h.encode();
    change(&mut bytes);
    peer.send_as_is(&bytes, payload)
}

/// An error unless it is so.
pub fn ensure(so: bool, what: &str) -> Outcome {
    if so {
        Ok(())
    } else {
        Err(said(what))
    }
}
