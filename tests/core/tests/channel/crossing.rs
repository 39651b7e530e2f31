// SPDX-License-Identifier: GPL-2.0

//! Every order in which messages can cross: two channels with two programs, and all interleavings
//! of the programs' calls, the deliveries of the links and the sends of the transmit workers.

use std::collections::{HashSet, VecDeque};

use zrs_core::channel::{Event, Failure, Plan, State};
use zrs_core::wire::{Header, Type};

use super::*;

/// The next step of a program. Each waits until it can be done or has become pointless.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Op {
    /// Sends a byte.
    Small,
    /// Sends half a window.
    Bulk,
    /// Reads all that is there.
    Read,
    ShutWrite,
    ShutRead,
    /// Closes.
    Close,
    /// The time for connecting is over.
    TimeOut,
    /// Not the program: the host takes the window back.
    Revoke,
}

use Op::*;

const WINDOW: u32 = 65536;

#[derive(Debug)]
struct End {
    ch: Option<Channel>,
    /// Position in its script.
    at: usize,
    /// Bytes of window and of DATA of each segment that is not read yet.
    unread: VecDeque<(u32, u32)>,
    sent: u64,
    got: u64,
    /// It was closed with data unread, or data came after it.
    broke: bool,
    gave_up: bool,
    /// It has sent its last message.
    ended: bool,
}

#[derive(Debug)]
struct Pair {
    end: [End; 2],
    pipe: [VecDeque<Header>; 2],
}

#[derive(Clone, Copy, Debug)]
enum Move {
    Do(usize),
    Say(usize),
    Deliver(usize),
}

const MOVES: [Move; 6] = [
    Move::Do(0),
    Move::Do(1),
    Move::Say(0),
    Move::Say(1),
    Move::Deliver(0),
    Move::Deliver(1),
];

impl Pair {
    fn new() -> Self {
        let end = |ch| End {
            ch,
            at: 0,
            unread: VecDeque::new(),
            sent: 0,
            got: 0,
            broke: false,
            gave_up: false,
            ended: false,
        };
        Self {
            end: [end(Some(connecting(LIMITS))), end(None)],
            pipe: [VecDeque::new(), VecDeque::new()],
        }
    }

    /// Makes a move if it is possible.
    fn go(&mut self, m: Move, scripts: [&[Op]; 2]) -> bool {
        match m {
            Move::Do(side) => {
                let op = scripts[side].get(self.end[side].at).copied();
                let silent = !self.has_pending_control(side);
                let done = op.is_some_and(|op| self.act(side, op));
                self.end[side].at += usize::from(done);
                // It may have had to wait, but asked for a window.
                done || (silent && self.has_pending_control(side))
            }
            Move::Say(side) => {
                let said = self.end[side].ch.as_mut().and_then(say);
                self.end[side].ended |= said
                    .as_ref()
                    .is_some_and(|h| matches!(h.kind, Type::End | Type::Reset));
                self.pipe[1 - side].extend(said);
                said.is_some()
            }
            Move::Deliver(side) => match self.pipe[side].pop_front() {
                Some(h) => {
                    self.deliver(side, &h);
                    true
                }
                None => false,
            },
        }
    }

    fn has_pending_control(&self, side: usize) -> bool {
        self.end[side]
            .ch
            .as_ref()
            .is_some_and(Channel::has_pending_control)
    }

    fn act(&mut self, side: usize, op: Op) -> bool {
        let end = &mut self.end[side];
        let Some(ch) = &mut end.ch else {
            return false;
        };
        match op {
            Small | Bulk => {
                if ch.write_ended() {
                    return true;
                }
                let n = if op == Bulk { WINDOW / 2 } else { 1 };
                let plan = ch.plan(n, op == Bulk);
                let Some(chunk) = ch.commit(plan) else {
                    assert_eq!(plan, Plan::Wait);
                    return false;
                };
                end.sent += u64::from(chunk.header.len);
                self.pipe[1 - side].push_back(over_the_wire(&chunk.header));
            }
            Read => {
                for (window, small) in end.unread.drain(..) {
                    ch.freed(window, small);
                }
            }
            ShutWrite => ch.shut_write(),
            ShutRead => ch.shut_read(),
            Close => {
                end.gave_up |= ch.state() == State::Opening;
                end.broke |= !end.unread.is_empty();
                ch.shut(!end.unread.is_empty());
                end.unread.clear();
            }
            TimeOut => end.gave_up |= ch.time_out(),
            Revoke => _ = ch.revoke(),
        }
        true
    }

    fn deliver(&mut self, side: usize, h: &Header) {
        let end = &mut self.end[side];
        let Some(ch) = &mut end.ch else {
            assert_eq!(h.kind, Type::Connect);
            end.ch = Some(Channel::accept(id(20, 2), h, LIMITS).expect("accepted"));
            return;
        };
        if ch.state() == State::Closed {
            // The host knows of no such channel: this side had its last word, or what comes is the
            // answer of a host that knows of none either.
            assert!(
                end.gave_up || end.ended || h.kind == Type::Reset,
                "{h:?} for a channel that has ended"
            );
            end.got += u64::from(h.len);
            if !matches!(h.kind, Type::Fin | Type::End | Type::Reset | Type::Credit) {
                self.pipe[1 - side].push_back(Header::new(Type::Reset, h.src, h.dst));
            }
            return;
        }
        let event = ch.on_message(h).unwrap_or_else(|e| panic!("{e:?}: {h:?}"));
        match event {
            Event::Data => end.unread.push_back((0, h.len)),
            Event::Written { pad, .. } => end.unread.push_back((h.len + pad, 0)),
            Event::Unwanted => end.broke = true,
            // While something of the old one is unread, there is none to give.
            Event::WindowWanted if !ch.grant(WINDOW, 0, 1) => ch.deny(),
            _ => {}
        }
        end.got += u64::from(h.len);
    }

    /// Nothing can happen any more.
    fn check_end(&self, scripts: [&[Op]; 2]) {
        for (side, script) in scripts.into_iter().enumerate() {
            let (end, peer) = (&self.end[side], &self.end[1 - side]);
            let Some(ch) = &end.ch else {
                assert!(self.end[0].gave_up, "CONNECT was never sent");
                continue;
            };
            assert_eq!(
                end.at,
                script.len(),
                "side {side} waits for ever: {self:#?}"
            );
            assert_eq!(ch.state(), State::Closed, "side {side}: {self:#?}");
            match ch.failure() {
                None => {}
                Some(Failure::TimedOut) => assert!(end.gave_up),
                Some(Failure::Reset) => assert!(peer.broke || peer.gave_up, "{self:#?}"),
                other => panic!("{other:?}"),
            }
            let peer_opened = !self.end[0].gave_up;
            assert!(
                end.got == peer.sent || !peer_opened,
                "in order, nothing is lost: {self:#?}"
            );
        }
    }
}

/// Visits every state that can be reached; returns how many there are.
fn explore(scripts: [&[Op]; 2]) -> usize {
    let mut seen = HashSet::new();
    let mut todo = vec![Vec::new()];
    while let Some(path) = todo.pop() {
        let mut last = true;
        for m in MOVES {
            // Channels cannot be copied, so each state is reached again from the beginning.
            let mut pair = Pair::new();
            path.iter().for_each(|m| assert!(pair.go(*m, scripts)));
            if !pair.go(m, scripts) {
                continue;
            }
            last = false;
            if seen.insert(format!("{pair:?}")) {
                let mut path = path.clone();
                path.push(m);
                assert!(path.len() < 100, "round in circles");
                todo.push(path);
            }
        }
        if last {
            let mut pair = Pair::new();
            path.iter().for_each(|m| assert!(pair.go(*m, scripts)));
            pair.check_end(scripts);
        }
    }
    seen.len()
}

// rows: B9 E4 L2
#[test]
fn every_order_of_ends() {
    let scripts: [&[Op]; 6] = [
        &[Close],
        &[Small, Close],
        &[Small, ShutWrite, Read, Close],
        &[ShutRead, Small, Close],
        &[Read, Small, Close],
        &[ShutWrite, ShutRead, Close],
    ];
    let mut states = 0;
    for a in scripts {
        for b in scripts {
            states += explore([a, b]);
        }
    }
    println!("{states} states");
}

// rows: B9 E3
#[test]
fn every_order_of_giving_up() {
    let mut states = 0;
    for a in [&[TimeOut, Close][..], &[TimeOut, Small, Close]] {
        for b in [
            &[Close][..],
            &[Small, Close],
            &[Bulk, ShutWrite, Read, Close],
        ] {
            states += explore([a, b]);
        }
    }
    println!("{states} states");
}

// rows: Z3 C3 B9
#[test]
fn every_order_of_windows_and_ends() {
    let pairs: [[&[Op]; 2]; 6] = [
        [&[Bulk, Close], &[Revoke, Close]],
        [&[Bulk, Small, Close], &[Read, Close]],
        [&[Bulk, ShutWrite, Close], &[Revoke, Read, Close]],
        [&[Bulk, Bulk, Close], &[ShutRead, Read, Close]],
        [&[Bulk, Close], &[Bulk, Close]],
        [&[Bulk, Revoke, Close], &[Bulk, Close]],
    ];
    let states: usize = pairs.map(explore).iter().sum();
    println!("{states} states");
}
