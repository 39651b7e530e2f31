// SPDX-License-Identifier: GPL-2.0

//! The escape of unread data: data older than the threshold moves to main memory, oldest first, by
//! a copy that takes its time; the room returns to the peer, and an empty window goes to a channel
//! that waits for one.

use std::cmp::Reverse;

use zrs_core::rx_queue::{Moved, ToMove};

use crate::program::Wait;
use crate::sock::Held;
use crate::world::{trace, Ev, SockId, World};
use common::is_stream;

/// When data moves to main memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Policy {
    Never,
    /// While a channel waits for room.
    UnderPressure,
    Always,
}

/// A move that was begun: the copied bytes, and their destination.
pub struct Moving {
    what: ToMove,
    bytes: Vec<u8>,
    area_off: u32,
}

impl World {
    /// Schedules a host's look at old messages.
    pub fn watch(&mut self, host: usize) {
        if !std::mem::replace(&mut self.hosts[host].watching, true) {
            let delay = self.cfg.residency + 1;
            self.at(delay, Ev::Age(host));
        }
    }

    /// Whether a channel waits for a window, or shared blocks are nearly used up.
    fn pressure(&self, host: usize) -> bool {
        let scarce = self.links.iter().any(|l| {
            let side = &l.side[host];
            l.up && l.hostile != Some(host) && side.posted < i64::from(side.blocks) / 2
        });
        scarce || !self.hosts[host].wishes.is_empty()
    }

    fn may_move(&self, host: usize) -> bool {
        match self.hosts[host].policy {
            Policy::Never => false,
            Policy::UnderPressure => self.pressure(host),
            Policy::Always => true,
        }
    }

    /// The policy is written while everything goes on.
    pub fn switch_policy(&mut self, host: usize) {
        if self.cfg.policy_switches == 0 || !self.busy() {
            return;
        }
        self.cfg.policy_switches -= 1;
        self.stats.policy_switches += 1;
        let all = [Policy::Never, Policy::UnderPressure, Policy::Always];
        self.hosts[host].policy = self.rng.pick(&all);
        trace!(self, "host {host}: policy {:?}", self.hosts[host].policy);
        self.watch(host);
        let most = 50 * (self.cfg.residency + self.cfg.think + 1);
        self.within(most, Ev::SwitchPolicy(host));
    }

    /// The mover of a host looks at the oldest messages.
    pub fn age(&mut self, host: usize) {
        self.hosts[host].watching = false;
        if !self.hosts[host].up || !self.may_move(host) {
            return;
        }
        let before = (self.now + 1).saturating_sub(self.cfg.residency);
        let mut old = Vec::new();
        let mut young = false;
        for (sid, s) in self.socks.iter_mut().enumerate() {
            if s.host != host || s.dead || s.closed || s.rx.is_empty() {
                continue;
            }
            young |= s.newest >= before;
            if s.moving.is_none() {
                let block = |held: &Held| matches!(held, Held::Block(_));
                if let Some(what) = s.rx.next_to_move(&s.ring, before, true, block) {
                    let born = s.rx.get_mut(what.index).map(|seg| seg.born);
                    old.push((born, sid, what));
                }
            }
        }
        old.sort_by_key(|(born, ..)| Reverse(*born));
        for _ in 0..self.rng.range(1, 8) {
            if let Some((_, sid, what)) = old.pop() {
                young |= !self.begin_move(sid, what);
            }
        }
        if !old.is_empty() {
            self.hosts[host].watching = true;
            self.within(2, Ev::Age(host));
        } else if young {
            self.watch(host);
        }
    }

    /// Copies a segment that may move. False if it must be tried again.
    fn begin_move(&mut self, sid: SockId, what: ToMove) -> bool {
        let host = self.socks[sid].host;
        assert!(self.may_move(host));
        if self.no_memory(host) {
            self.stats.escapes_without_memory += 1;
            return false;
        }
        let s = &mut self.socks[sid];
        let len = what.len as usize;
        let bytes = match (what.window_off, &s.window) {
            (Some(off), Some(w)) => self.hosts[host].mem[w.start + off as usize..][..len].to_vec(),
            _ => match s.rx.get_mut(what.index).and_then(|seg| seg.held.as_ref()) {
                Some(Held::Block(bytes)) => bytes.clone(),
                _ => self.fail(&format!("sock {sid}: nothing holds {what:?}")),
            },
        };
        let c = &self.conns[s.conn];
        if !c.hostile && !is_stream(c.stream(1 - s.side), what.pos, &bytes) {
            self.fail(&format!("sock {sid}: wrong bytes are moved: {what:?}"));
        }
        let mut area_off = 0;
        if let (true, Some(ring)) = (what.to_area, &mut s.ring.0) {
            let Some(off) = ring.area.alloc(what.len) else {
                // Until a part of it is free, data in the window stays; blocks do not.
                ring.area_full = true;
                self.stats.areas_full += 1;
                return false;
            };
            ring.area_mem[off as usize..][..len].copy_from_slice(&bytes);
            area_off = off;
        }
        s.moving = Some(Moving {
            what,
            bytes,
            area_off,
        });
        self.within(self.cfg.move_delay, Ev::Moved(sid));
        true
    }

    /// The copy replaces the segment, if it was not taken before.
    pub fn moved(&mut self, sid: SockId) {
        let s = &mut self.socks[sid];
        let Some(m) = s.moving.take() else {
            return;
        };
        let (host, link, what) = (s.host, s.link, m.what);
        trace!(self, "sock {sid}: moves {what:?}");
        let done = if what.to_area {
            let done = s.rx.move_to_area(&s.ring, &what, m.area_off);
            if let (false, Some(ring)) = (done, &mut s.ring.0) {
                ring.area.undo(m.area_off);
            }
            self.stats.escapes_to_area += u64::from(done);
            done
        } else {
            let copy = Held::Spilled(m.bytes);
            match s.rx.move_held(&s.ring, &what, copy) {
                Ok(None) => {
                    self.stats.escapes_held += 1;
                    true
                }
                Ok(Some(_)) => {
                    self.stats.escapes_of_blocks += 1;
                    self.repost(link, host);
                    true
                }
                Err(_) => false,
            }
        };
        self.stats.escapes_too_late += u64::from(!done);
        if let (true, Some(off)) = (done, what.window_off) {
            self.left_window(sid, off, what.len);
        }
        self.give_room(sid);
        let s = &self.socks[sid];
        if s.rx.in_window() == 0 && s.window.is_some() && !self.hosts[host].wishes.is_empty() {
            s.ch.revoke();
        }
        self.kick(sid);
        self.settle(sid);
        self.watch(host);
    }

    /// A segment that was in the window is not there any more.
    fn left_window(&mut self, sid: SockId, off: u32, len: u32) {
        let s = &mut self.socks[sid];
        let host = &mut self.hosts[s.host];
        let Some(w) = &mut s.window else {
            self.fail(&format!(
                "sock {sid}: moved from a window that was given back"
            ));
        };
        if w.unread.pop_front() != Some((off, len)) {
            self.fail(&format!("sock {sid}: moved what is not the oldest"));
        }
        // Nobody may look for it there; the peer does not write there yet.
        host.mem[w.start + off as usize..][..len as usize].fill(0x5a);
    }

    /// The room of moved segments is the peer's again, as far as main memory is reserved for it.
    pub fn give_room(&mut self, sid: SockId) {
        let s = &mut self.socks[sid];
        if let Some(w) = &s.window {
            let room = s.rx.give(u64::from(w.size));
            s.given += room;
            s.ch.moved(room);
            let most = 2 * u64::from(w.size);
            if s.rx.moved() > most {
                let moved = s.rx.moved();
                self.fail(&format!("sock {sid}: {moved} bytes have moved, of {most}"));
            }
            self.stats.given_before_read += u64::from(room > 0);
            self.stats.escape_limits_met += u64::from(s.rx.moved() > s.given);
        }
        let s = &mut self.socks[sid];
        let kept = s.rx.in_window() + s.rx.moved() - s.given;
        // Data that arrives without a reader is counted by the channel alone.
        if !s.shut_read && !s.closed && s.ch.window_unread() != kept {
            let unread = s.ch.window_unread();
            self.fail(&format!("sock {sid}: room of {unread} bytes, of {kept}"));
        }
    }

    /// The window returns to the pool: it is empty, and its room is all the peer's, or no one's.
    pub fn give_all_room(&mut self, sid: SockId) {
        let s = &mut self.socks[sid];
        assert_eq!(s.rx.in_window(), 0);
        let room = s.rx.give(u64::MAX);
        s.given += room;
        s.ch.moved(room);
        self.stats.windows_back_unread += u64::from(s.rx.moved() > 0);
        self.stats.windows_back_from_stopped += u64::from(s.rx.moved() > 0 && s.stopped);
        assert_eq!(s.rx.moved(), s.given);
        if !s.shut_read && !s.closed && s.ch.window_unread() != 0 {
            self.fail(&format!("sock {sid}: room is lost with the window"));
        }
    }

    /// With the policy Never nothing moves.
    pub fn check_never(&self) {
        let s = &self.stats;
        let moves = s.escapes_held + s.escapes_to_area + s.escapes_of_blocks;
        let never = self.cfg.policy == [Policy::Never; 2] && s.policy_switches == 0;
        if never && moves != 0 {
            self.fail("data has moved, and should never");
        }
    }

    // ---- readers that stop ------------------------------------------------------------------

    /// Nothing happens any more, except for programs that have stopped reading: no other program
    /// may wait for them. Then they go on. False if there are none.
    pub fn resume(&mut self) -> bool {
        let stopped = |w: &Self, sid: SockId| {
            let s = &w.socks[sid];
            s.stopped && !s.dead && !s.closed
        };
        let sids: Vec<SockId> = (0..self.socks.len())
            .filter(|s| stopped(self, *s))
            .collect();
        for host in 0..2 {
            if self.hosts[host].policy == Policy::Always {
                self.check_all_moved(host);
            }
        }
        let held_up = |sid: &&SockId| self.hosts[self.socks[**sid].host].policy == Policy::Never;
        if !sids.is_empty() && !sids.iter().any(|sid| held_up(&sid)) {
            for conn in 0..self.conns.len() {
                self.check_beside_stopped(conn);
            }
        }
        for sid in &sids {
            self.stats.readers_resumed += 1;
            self.socks[*sid].stopped = false;
            self.wake(self.socks[*sid].reader, Some(Wait::Resume));
        }
        !sids.is_empty()
    }

    /// A connection whose programs read on has come to its end, whichever others have stopped.
    fn check_beside_stopped(&mut self, conn: usize) {
        let c = &self.conns[conn];
        let socks = || c.socks.iter().flatten().map(|sid| &self.socks[*sid]);
        if c.hostile || socks().any(|s| s.stopped || s.dead) {
            return;
        }
        for s in socks().filter(|s| s.conn == conn) {
            for actor in [s.opener, s.reader, s.writer].into_iter().flatten() {
                if !self.actors[actor].finished() {
                    self.fail(&format!("conn {conn} waits for one that has stopped"));
                }
            }
        }
        self.stats.finished_beside_stopped += 1;
    }

    /// With the policy Always all that can move has moved, when it had the time.
    fn check_all_moved(&mut self, host: usize) {
        for sid in 0..self.socks.len() {
            let s = &mut self.socks[sid];
            if s.host != host || s.dead || s.closed {
                continue;
            }
            let mut stays = false;
            for index in s.rx.indices() {
                let Some(seg) = s.rx.get_mut(index) else {
                    continue;
                };
                let (claimed, done) = (seg.claimed, seg.taken == seg.len);
                let block = matches!(seg.held, Some(Held::Block(_)));
                let in_window = seg.window_off.is_some();
                assert!(!in_window || seg.moved == Moved::No);
                let ring = s.ring.0.as_ref();
                let program = |r: &crate::ring::Ring| !r.waits(index) || !r.has_room();
                stays |= in_window && (done || !claimed && ring.is_some_and(program));
                self.stats.stays_for_the_program += u64::from(in_window && stays);
                if (block && !done) || (in_window && !stays) {
                    self.fail(&format!("sock {sid}: segment {index} has not moved"));
                }
            }
        }
    }
}
