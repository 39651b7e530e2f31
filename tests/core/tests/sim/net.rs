// SPDX-License-Identifier: GPL-2.0

//! The actions of links: posting, arriving, transmitting, failing.

use zrs_core::channel::{Failure, State};
use zrs_core::link_flow::CONTROL_RESERVE;
use zrs_core::wire::{Header, Type};
use zrs_core::{ChanId, Violation};

use crate::link::{Item, Link, Message, Source, CONTROL_SLOTS};
use crate::world::{trace, Ev, World};

/// No world makes more links than this.
const MOST_LINKS: usize = 20;

impl World {
    // ---- making -----------------------------------------------------------------------------

    /// The link that `host` opens its next channel on: one that it has, or a new one. None if
    /// there is no memory for it.
    pub fn link_for(&mut self, host: usize) -> Option<usize> {
        let usable: Vec<usize> = (0..self.links.len())
            .filter(|l| self.links[*l].side[host].alive && self.links[*l].hostile != Some(host))
            .collect();
        let anew = self.cfg.more_links && self.links.len() < MOST_LINKS && self.rng.chance(20);
        if !usable.is_empty() && !anew {
            return Some(self.rng.pick(&usable));
        }
        if self.no_memory(host) {
            return None;
        }
        Some(self.make_link(host))
    }

    /// `host` connects to the other one; its messages arrive when that is done.
    fn make_link(&mut self, host: usize) -> usize {
        self.stats.links_made += 1;
        let mut l = Link::new(&self.cfg, &mut self.rng);
        let delay = l.delay;
        l.last_arrival = [self.now + 2 * delay; 2];
        let link = self.links.len();
        trace!(self, "host {host}: makes link {link}");
        if !self.hosts[1 - host].up {
            // Nobody answers.
            self.stats.links_to_nobody += 1;
            l.up = false;
            l.was_up = false;
            l.side[1 - host].alive = false;
            self.within(4 * delay + 10, Ev::LinkLost(link, host));
        }
        self.links.push(l);
        link
    }

    // ---- posting ----------------------------------------------------------------------------

    fn post(&mut self, link: usize, to: usize, item: Item) {
        let l = &mut self.links[link];
        if !l.up {
            return;
        }
        let delay = self.rng.below(l.delay + 1);
        let when = l.last_arrival[to].max(self.now + delay);
        l.last_arrival[to] = when;
        l.pipe[to].push_back((when, item));
        if l.pipe[to].len() == 1 {
            let delay = when - self.now;
            self.at(delay, Ev::Arrive(link, to));
        }
    }

    /// Posts a WRITE from `side`.
    pub fn post_write(&mut self, link: usize, side: usize, addr: u64, key: u32, from: Source) {
        self.post(link, 1 - side, Item::Write { addr, key, from });
    }

    /// Posts a SEND from `side`. The caller has made sure that there is credit and a slot for it.
    pub fn post_send(&mut self, link: usize, side: usize, mut h: Header, payload: Option<Source>) {
        let s = &mut self.links[link].side[side];
        let control = !matches!(h.kind, Type::Data | Type::Written);
        if control {
            h.link_credit = s.flow.sending_control();
            s.control_slots.take(1);
        } else {
            h.link_credit = s.flow.sending();
        }
        s.told = s.room;
        s.slots_free -= 1;
        s.in_flight.push_back(control);
        // Data has room only because control messages use their own.
        let low = s.slots_free <= CONTROL_SLOTS || s.flow.left_to_us() <= CONTROL_RESERVE;
        self.stats.control_leaves_room += u64::from(control && low && s.has_room());
        if h.kind == Type::LinkCredit {
            s.lone += 1;
            self.stats.lone_link_credits += 1;
        } else {
            self.links[link].side.iter_mut().for_each(|s| s.lone = 0);
        }
        trace!(self, "link {link} {side}: send {h:?}");
        let header = h.encode();
        self.post_raw(link, side, Message { header, payload });
    }

    /// Posts any SEND.
    pub fn post_raw(&mut self, link: usize, side: usize, m: Message) {
        self.post(link, 1 - side, Item::Send(m));
    }

    /// A message is done: its slot is free.
    pub fn sent(&mut self, link: usize, side: usize) {
        let s = &mut self.links[link].side[side];
        if !s.alive {
            return;
        }
        s.slots_free += 1;
        assert!(s.slots_free <= s.slots);
        if s.in_flight.pop_front() == Some(true) {
            s.control_slots.give(1);
        }
        self.link_room(link, side);
    }

    // ---- arriving ---------------------------------------------------------------------------

    pub fn arrive(&mut self, link: usize, side: usize) {
        let Some((_, item)) = self.links[link].pipe[side].pop_front() else {
            return; // The link has failed.
        };
        if let Some((when, _)) = self.links[link].pipe[side].front() {
            let delay = when - self.now;
            self.at(delay, Ev::Arrive(link, side));
        }
        if matches!(item, Item::Send(_)) && self.links[link].hostile != Some(1 - side) {
            self.within(self.cfg.worker_delay, Ev::Sent(link, 1 - side));
        }
        if self.links[link].hostile == Some(side) {
            self.hostile_receives(link, item);
            return;
        }
        match item {
            Item::Write { addr, key, from } => self.write_lands(link, side, addr, key, from),
            Item::Send(message) => {
                let l = &mut self.links[link];
                let s = &mut l.side[side];
                s.posted -= 1;
                if s.posted < 0 {
                    if l.hostile.is_none() {
                        self.fail("the shared receive queue is overrun");
                    }
                    self.stats.hostile_overruns += 1;
                }
                if self.links[link].side[side].posted
                    < i64::from(self.links[link].side[side].blocks) / 2
                {
                    self.watch(side);
                }
                let s = &mut self.links[link].side[side];
                s.cq.push_back(message);
                if !s.draining {
                    s.draining = true;
                    self.within(self.cfg.worker_delay, Ev::Drain(link, side));
                }
            }
        }
    }

    /// A WRITE lands: it must stay inside a live lease and off everything that is unread.
    fn write_lands(&mut self, link: usize, host: usize, addr: u64, key: u32, from: Source) {
        let hostile = self.links[link].hostile.is_some();
        let Some(mr) = self.hosts[host].mr(key).filter(|m| m.valid) else {
            if hostile {
                // The device refuses, and the queue pair is broken by that.
                self.stats.hostile_writes_refused += 1;
                self.fail_link(link);
                return;
            }
            self.fail(&format!(
                "a WRITE with the key {key:#x}, which is not valid"
            ));
        };
        let off = addr.wrapping_sub(mr.addr);
        if off
            .checked_add(u64::from(from.len))
            .is_none_or(|end| end > u64::from(mr.size))
        {
            self.fail(&format!(
                "a WRITE of {} bytes at {off} leaves the lease",
                from.len
            ));
        }
        let (sid, start) = (mr.sock, mr.start + off as usize);
        assert_eq!(self.socks[sid].link, link);
        let off = off as u32;
        let Some(window) = &mut self.socks[sid].window else {
            self.fail("a WRITE into a window that was given back");
        };
        if !hostile {
            let hit = window
                .unread
                .iter()
                .chain(&window.landed)
                .any(|at| overlap(*at, (off, from.len)));
            window.landed.push_back((off, from.len));
            if hit {
                self.fail(&format!(
                    "sock {sid}: a WRITE onto bytes that are not read yet"
                ));
            }
        }
        let to = &mut self.hosts[host].mem[start..start + from.len as usize];
        common::fill_stream(from.key, from.pos, to);
    }

    /// The worker processes some of the arrived messages.
    pub fn drain(&mut self, link: usize, side: usize) {
        self.links[link].side[side].draining = false;
        let budget = self.rng.range(1, 16);
        self.take_completions(link, side, budget);
        let s = &mut self.links[link].side[side];
        if !s.cq.is_empty() && !s.draining {
            s.draining = true;
            self.within(self.cfg.worker_delay, Ev::Drain(link, side));
        }
    }

    fn take_completions(&mut self, link: usize, side: usize, budget: u64) {
        for _ in 0..budget {
            let Some(message) = self.links[link].side[side].cq.pop_front() else {
                break;
            };
            if self.links[link].side[side].distrusted {
                self.repost(link, side);
                continue;
            }
            if let Err(e) = self.take_message(link, side, &message) {
                self.violated(link, side, e, &message);
            }
        }
    }

    fn take_message(&mut self, link: usize, side: usize, m: &Message) -> Result<(), Violation> {
        let decoded = Header::decode(&m.header, m.payload.map_or(0, |p| p.len));
        let flow = &mut self.links[link].side[side].flow;
        let checked = decoded.and_then(|h| flow.arrived(h.link_credit).map(|()| h));
        let h = match checked {
            Ok(h) => h,
            Err(e) => {
                self.repost(link, side);
                return Err(e);
            }
        };
        let s = &mut self.links[link].side[side];
        s.taken += 1;
        if s.taken > s.told {
            self.fail(&format!("link {link} {side}: takes more than it granted"));
        }
        let result = self.deliver(link, side, &h, m.payload);
        self.link_room(link, side);
        result
    }

    /// A peer has violated the protocol. Only an adversary does.
    fn violated(&mut self, link: usize, side: usize, what: Violation, m: &Message) {
        if self.links[link].hostile != Some(1 - side) {
            let h = Header::decode(&m.header, m.payload.map_or(0, |p| p.len));
            self.fail(&format!("link {link} {side}: {what:?}: {h:?}"));
        }
        trace!(self, "link {link} {side}: violation {what:?}");
        self.stats.count_violation(what);
        self.links[link].side[side].distrusted = true;
        self.fail_link(link);
    }

    /// A block is posted again.
    pub fn repost(&mut self, link: usize, side: usize) {
        let s = &mut self.links[link].side[side];
        s.posted += 1;
        assert!(s.posted <= i64::from(s.blocks));
        s.flow.reposted();
        s.room += 1;
        self.poke(link, side);
    }

    /// There may be more room on the link than before.
    fn link_room(&mut self, link: usize, side: usize) {
        self.poke(link, side);
        if self.links[link].side[side].has_room() {
            for sid in std::mem::take(&mut self.links[link].side[side].starved) {
                self.socks[sid].starved = false;
                self.flush_late(sid);
                self.wake_writer(sid);
            }
        }
    }

    // ---- transmitting -----------------------------------------------------------------------

    /// Lets the transmit worker run if it can do anything.
    pub fn poke(&mut self, link: usize, side: usize) {
        let s = &mut self.links[link].side[side];
        let says = !s.pending.is_empty() || !s.answers.is_empty();
        let can = (says && s.may_talk()) || s.credit_due();
        if can && s.alive && !s.scheduled {
            s.scheduled = true;
            self.within(self.cfg.worker_delay, Ev::Transmit(link, side));
        }
    }

    pub fn transmit(&mut self, link: usize, side: usize) {
        self.links[link].side[side].scheduled = false;
        if !self.links[link].side[side].alive {
            return;
        }
        if self.rng.chance(20) {
            let slots = self.rng.range(1, 4) as u32;
            self.hosts[side].sweep(slots);
        }
        let mut budget = self.rng.range(1, 8);
        while budget > 0 && self.links[link].side[side].may_talk() {
            budget -= 1;
            if let Some(h) = self.links[link].side[side].answers.pop_front() {
                self.post_send(link, side, h, None);
                continue;
            }
            let Some(sid) = self.links[link].side[side].pending.pop_front() else {
                break;
            };
            let s = &mut self.socks[sid];
            s.queued = false;
            if let Some(h) = s.ch.next_control() {
                s.said(&h, &mut self.stats);
                self.post_send(link, side, h, None);
            }
            self.kick(sid);
            self.settle(sid);
        }
        let s = &mut self.links[link].side[side];
        if s.credit_due() {
            if s.flow.available(true) == 0 {
                self.stats.last_credit_used += 1;
            }
            let none = ChanId::default();
            self.post_send(link, side, Header::new(Type::LinkCredit, none, none), None);
            if self.links[link].side[side].lone > 64 && self.links[link].hostile.is_none() {
                self.fail("link credit goes to and fro for ever");
            }
        }
        self.poke(link, side);
    }

    /// An answer to a message for an unknown channel, once for its messages in flight. An honest
    /// peer causes no more of them than it has channels and credit, which may double while none is
    /// answered; beyond that they are dropped.
    pub fn answer(&mut self, link: usize, side: usize, h: Header) {
        let honest = self.links[link].hostile.is_none();
        let s = &mut self.links[link].side[side];
        let credit = if honest { 2 * s.blocks as usize } else { 0 };
        if s.answers.back() == Some(&h) {
            self.stats.answered_already += 1;
        } else if s.answers.len() < self.cfg.most_answers + credit {
            s.answers.push_back(h);
        } else if honest {
            self.fail("more answers than channels and credit");
        } else {
            self.stats.answers_dropped += 1;
        }
        self.poke(link, side);
    }

    // ---- failing ----------------------------------------------------------------------------

    /// The network breaks a link.
    pub fn link_fails(&mut self, link: usize) {
        if self.links[link].up && self.busy() {
            self.stats.link_failures += 1;
            self.fail_link(link);
        }
    }

    /// A link breaks: messages in flight are lost, and both sides learn of it sooner or later.
    pub fn fail_link(&mut self, link: usize) {
        if !self.links[link].up {
            return;
        }
        trace!(self, "link {link} fails");
        let l = &mut self.links[link];
        l.up = false;
        l.pipe.iter_mut().for_each(|p| p.clear());
        let most = 2 * l.delay + 10;
        for side in 0..2 {
            self.within(most, Ev::LinkLost(link, side));
        }
    }

    /// A side learns that a link is gone.
    pub fn link_lost(&mut self, link: usize, side: usize) {
        if !self.links[link].side[side].alive {
            return;
        }
        trace!(self, "link {link} is lost to side {side}");
        // Arrived messages are taken before any channel is notified.
        self.take_completions(link, side, u64::MAX);
        self.forget_side(link, side);
        let why = match self.links[link].was_up {
            true => Failure::LinkLost,
            false => Failure::Unreachable,
        };
        for sid in 0..self.socks.len() {
            let s = &mut self.socks[sid];
            if s.host != side || s.link != link || !s.in_table {
                continue;
            }
            s.queued = false;
            s.starved = false;
            // A link that goes down just now says nothing about whether the peer listens.
            let opening = s.ch.state() == State::Opening;
            let again = opening && self.links[link].was_up && !s.retried && !s.closed;
            if opening {
                self.stats.connects_lost += 1;
            } else {
                self.stats.channels_lost += 1;
            }
            let s = &mut self.socks[sid];
            s.ch.abort(why);
            self.settle(sid);
            if again {
                self.connect_again(sid);
            }
            self.wake_all(sid);
        }
    }

    /// A side of a link is over for its host.
    pub fn forget_side(&mut self, link: usize, side: usize) {
        let s = &mut self.links[link].side[side];
        s.alive = false;
        s.pending.clear();
        s.answers.clear();
        s.starved.clear();
        s.slots_free = s.slots;
        s.in_flight.clear();
    }
}

/// Whether two ranges, offset and length, have bytes in common.
pub fn overlap(a: (u32, u32), b: (u32, u32)) -> bool {
    u64::from(a.0) < u64::from(b.0) + u64::from(b.1)
        && u64::from(b.0) < u64::from(a.0) + u64::from(a.1)
}
