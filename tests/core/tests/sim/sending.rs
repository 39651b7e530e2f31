// SPDX-License-Identifier: GPL-2.0

//! The thread of a program that sends.

use std::collections::VecDeque;

use zrs_core::channel::Plan;
use zrs_core::wire::SMALL_MAX;

use crate::link::Source;
use crate::program::{Next, Wait};
use crate::world::{Ev, SockId, World};

/// The action of a sender that has sent everything.
#[derive(Clone, Copy, Debug)]
enum Finish {
    Shut,
    Close,
    CloseLater,
}

#[derive(Debug)]
pub struct Writer {
    sid: SockId,
    /// Bytes of each call to come.
    calls: VecDeque<u32>,
    /// Bytes left of this call.
    left: u32,
    bulk: bool,
    nonblocking: bool,
    /// It corks small calls now and then.
    corks: bool,
    /// Room was there and pages are being pinned.
    planned: Option<Plan>,
    /// There was no room: it asks by poll() before it tries again.
    poll: bool,
    waits_for_window: bool,
    finish: Finish,
}

impl World {
    pub fn new_writer(&mut self, sid: SockId) -> Writer {
        let total = match self.rng.below(10) {
            0 => 0,
            1 => 1,
            _ => self.rng.below(self.cfg.most_bytes) + 1,
        };
        let mut calls = VecDeque::new();
        let mut rest = total;
        while rest > 0 {
            let n = if self.rng.chance(self.cfg.bulk) {
                let most = self.rng.pick(&[10_000, 600_000]);
                self.rng.range(4097, most)
            } else {
                self.rng.pick(&[1, 17, 500, 4095, 4096])
            };
            calls.push_back(n.min(rest) as u32);
            rest -= n.min(rest);
        }
        let finish = match self.rng.below(100) {
            n if n < self.cfg.early_close / 2 => Finish::Close,
            n if n < self.cfg.early_close => Finish::CloseLater,
            _ => Finish::Shut,
        };
        Writer {
            sid,
            calls,
            left: 0,
            bulk: false,
            nonblocking: self.rng.chance(self.cfg.nonblocking),
            corks: self.rng.chance(self.cfg.corks),
            planned: None,
            poll: false,
            waits_for_window: false,
            finish,
        }
    }

    pub fn writer(&mut self, w: &mut Writer) -> Next {
        let sid = w.sid;
        let s = &self.socks[sid];
        if s.closed || s.ch.write_ended() {
            return self.thread_done(sid, false);
        }
        if w.left == 0 {
            let Some(n) = w.calls.pop_front() else {
                return self.sent_all(w);
            };
            if w.corks && n <= SMALL_MAX && self.rng.chance(70) && self.hold_back(sid, n) {
                if self.rng.chance(20) {
                    self.flush(sid);
                }
                return Next::Think;
            }
            w.left = n;
            w.bulk = n > SMALL_MAX;
        }
        // The corked message goes first.
        if !self.flush(sid) {
            return Next::Wait(Wait::Write);
        }
        let s = &mut self.socks[sid];
        let room = self.links[s.link].side[s.host].has_room();
        if w.poll && !s.ch.writable() {
            self.stats.polls_not_writable += 1;
            return Next::Wait(Wait::Write);
        }
        if !room {
            self.starve(sid);
            return Next::Wait(Wait::Write);
        }
        let old = w.planned.is_some();
        let plan = match w.planned.take() {
            Some(plan) => plan,
            None => {
                let plan = self.plan(w);
                if plan == Plan::Wait {
                    if w.poll {
                        self.fail(&format!("sock {sid}: writable, but nothing can be sent"));
                    }
                    self.stats.writer_waits += 1;
                    w.poll = w.nonblocking;
                    return if w.poll {
                        Next::Soon
                    } else {
                        Next::Wait(Wait::Write)
                    };
                }
                if self.rng.chance(20) {
                    // Pinning takes its time.
                    w.planned = Some(plan);
                    return Next::Think;
                }
                plan
            }
        };
        w.poll = false;
        let plan = self.maybe_less(plan);
        self.send_chunk(w, plan, old)
    }

    fn plan(&mut self, w: &mut Writer) -> Plan {
        let s = &mut self.socks[w.sid];
        let had_window = s.ch.peer_window_size().is_some();
        let mut plan = s.ch.plan(w.left, w.bulk);
        if plan == Plan::Wait && w.bulk && w.nonblocking {
            plan = s.ch.plan(w.left, false);
        }
        if w.waits_for_window && !had_window {
            self.stats.bulk_writer_moved_on += 1;
        }
        w.waits_for_window = plan == Plan::Wait && had_window;
        self.kick(w.sid);
        plan
    }

    pub fn starve(&mut self, sid: SockId) {
        let s = &mut self.socks[sid];
        if !s.starved {
            s.starved = true;
            self.links[s.link].side[s.host].starved.push_back(sid);
        }
        self.stats.link_starved += 1;
    }

    /// The program's memory may have ended early, or not be pinned in one piece.
    fn maybe_less(&mut self, plan: Plan) -> Plan {
        if !self.rng.chance(10) {
            return plan;
        }
        match plan {
            Plan::Small(n) => Plan::Small(self.rng.range(1, u64::from(n)) as u32),
            Plan::Bulk(n) => Plan::Bulk(self.rng.range(1, u64::from(n)) as u32),
            Plan::Aligned(n) => Plan::Aligned(self.rng.range(1, u64::from(n)) as u32),
            plan => plan,
        }
    }

    fn send_chunk(&mut self, w: &mut Writer, plan: Plan, old: bool) -> Next {
        let s = &mut self.socks[w.sid];
        let Some(chunk) = s.ch.commit(plan) else {
            if !old {
                self.fail(&format!("sock {}: {plan:?}, but it does not fit", w.sid));
            }
            // The window is gone by now; the rest is planned again.
            self.stats.plans_outdated += 1;
            return Next::Soon;
        };
        let (link, host, side) = (s.link, s.host, s.side);
        let c = &mut self.conns[s.conn];
        let h = chunk.header;
        assert_eq!(h.pos, c.sent[side]);
        let from = Source {
            key: c.stream(side),
            pos: h.pos,
            len: h.len,
        };
        c.given[side] += u64::from(h.len);
        c.sent[side] += u64::from(h.len);
        match chunk.write_to {
            Some((addr, key)) => {
                self.stats.bulk_bytes += u64::from(h.len);
                self.post_write(link, host, addr, key, from);
                self.post_send(link, host, h, None);
            }
            None => {
                self.stats.small_bytes += u64::from(h.len);
                self.post_send(link, host, h, Some(from));
            }
        }
        w.left -= h.len;
        if w.left == 0 {
            Next::Think
        } else {
            Next::Soon
        }
    }

    fn sent_all(&mut self, w: &mut Writer) -> Next {
        let sid = w.sid;
        match w.finish {
            Finish::Shut => {
                self.socks[sid].ch.shut_write();
                self.flush(sid);
                self.kick(sid);
            }
            Finish::Close => self.close(sid),
            Finish::CloseLater => {
                let most = 10 * (self.cfg.net_delay + self.cfg.think + 1);
                self.within(most, Ev::Close(sid));
            }
        }
        self.thread_done(sid, false)
    }
}
