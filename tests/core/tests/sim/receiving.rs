// SPDX-License-Identifier: GPL-2.0

//! The thread of a program that receives, by recv(), by the ring, or both.

use crate::program::{Next, Wait};
use crate::ring::{DONE, ESCAPED, HELD};
use crate::world::{SockId, World};

#[derive(Debug)]
pub struct Reader {
    sid: SockId,
    most: u64,
    /// Steps until it makes a ring.
    ring_in: Option<u64>,
    /// Segments that it holds, until when, and whether it found them in the escape area.
    held: Vec<(u32, u64, bool)>,
    hold_most: usize,
    /// After the reading direction was shut, arrived data is read late.
    lazy_until: Option<u64>,
    /// Steps until it stops reading.
    stops_in: Option<u64>,
    /// Longest time that it takes before it goes on.
    dawdles: Option<u64>,
    /// It goes on then.
    next: u64,
}

impl Reader {
    /// Whether it makes a ring.
    pub fn has_ring(&self) -> bool {
        self.ring_in.is_some()
    }
}

impl World {
    pub fn new_reader(&mut self, sid: SockId) -> Reader {
        let ring = self.rng.chance(self.cfg.rings);
        let ring_in = ring.then(|| self.rng.pick(&[0, 0, 3]));
        let stops = self.rng.chance(self.cfg.stoppers);
        let dawdles = self.rng.chance(self.cfg.dawdlers);
        Reader {
            sid,
            most: self.rng.pick(&[1000, 4096, 65536, 1 << 20]),
            ring_in,
            held: Vec::new(),
            hold_most: self.rng.range(1, 12) as usize,
            lazy_until: None,
            stops_in: stops.then(|| self.rng.pick(&[0, 1, 3, 10, 40])),
            dawdles: dawdles.then(|| 10 * (self.cfg.think + 1)),
            next: 0,
        }
    }

    pub fn reader(&mut self, r: &mut Reader) -> Next {
        let sid = r.sid;
        if self.socks[sid].closed {
            return self.thread_done(sid, true);
        }
        if self.socks[sid].stopped {
            return Next::Wait(Wait::Resume);
        }
        if r.next > self.now {
            return Next::Until(r.next, Wait::Resume);
        }
        match &mut r.ring_in {
            Some(0) => {
                r.ring_in = None;
                self.make_ring(sid);
            }
            Some(n) => *n -= 1,
            None => {}
        }
        match &mut r.stops_in {
            Some(0) => {
                r.stops_in = None;
                self.stats.readers_stopped += 1;
                self.socks[sid].stopped = true;
                return Next::Wait(Wait::Resume);
            }
            Some(n) => *n -= 1,
            None => {}
        }
        if self.socks[sid].shut_read {
            let late = 20 * (self.cfg.think + self.cfg.net_delay);
            let until = match r.lazy_until {
                Some(until) => until,
                None => self.now + self.rng.below(late + 1),
            };
            r.lazy_until = Some(until);
            if until > self.now {
                return Next::Until(until, Wait::Read);
            }
        }
        let mut progress = false;
        if self.socks[sid].ring.0.is_some() {
            if self.socks[sid].scribbler && self.rng.chance(20) {
                self.scribble(sid);
            }
            progress |= self.give_back(r);
            progress |= self.take(r);
        }
        let s = &mut self.socks[sid];
        let ring_waits = s.ring.0.is_some()
            && s.rx.indices().any(|i| {
                let ring = s.ring.0.as_ref();
                ring.is_some_and(|ring| ring.waits(i))
            });
        // A program with a ring calls recv() for segments that the ring does not show, or at
        // random.
        if !ring_waits || self.rng.chance(10) {
            let want = self.rng.range(1, r.most);
            progress |= self.recv(sid, want) > 0;
        }
        if let Some(most) = r.dawdles {
            r.next = self.now + self.rng.below(most);
        }
        if progress {
            return Next::Think;
        }
        let s = &mut self.socks[sid];
        if let Some(first) = r.held.iter().map(|h| h.1).min() {
            return Next::Until(first.max(self.now + 1), Wait::Read);
        }
        if s.rx.readable(&s.ring) {
            return Next::Soon;
        }
        if s.ch.read_ended() || s.shut_read {
            if !s.rx.is_empty() && !s.scribbler {
                self.fail(&format!("sock {sid}: something is left in the queue"));
            }
            self.conns[s.conn].ended[s.side] = true;
            return self.thread_done(sid, true);
        }
        Next::Wait(Wait::Read)
    }

    /// Takes the segments that the ring shows.
    fn take(&mut self, r: &mut Reader) -> bool {
        let s = &mut self.socks[r.sid];
        let Some(ring) = &s.ring.0 else {
            return false;
        };
        let ready: Vec<u32> =
            s.rx.indices()
                .filter(|i| ring.waits(*i))
                .take(r.hold_most.saturating_sub(r.held.len()))
                .collect();
        let taken: Vec<(u32, bool)> = ready
            .iter()
            .map(|i| (*i, ring.cell(*i).replace(HELD) == ESCAPED))
            .collect();
        for (index, escaped) in taken {
            self.stats.ring_segments += 1;
            let ring = self.socks[r.sid].ring.0.as_ref();
            let moved = escaped && ring.is_some_and(|ring| !ring.is_small(index));
            self.stats.ring_escaped += u64::from(moved && !self.socks[r.sid].scribbler);
            let until = self.now + self.rng.below(3 * self.cfg.think + 2);
            r.held.push((index, until, escaped));
            if !self.socks[r.sid].scribbler {
                self.check_desc(r.sid, index, escaped);
            }
        }
        !ready.is_empty()
    }

    /// Gives back segments that were held long enough, in any order.
    fn give_back(&mut self, r: &mut Reader) -> bool {
        let mut any = false;
        while let Some(at) = r.held.iter().rposition(|h| h.1 <= self.now) {
            let (index, _, escaped) = r.held.remove(at);
            self.stats.ring_released_out_of_order += u64::from(at != 0);
            let scribbler = self.socks[r.sid].scribbler;
            if !scribbler {
                // Nobody has touched it while it was held.
                self.check_desc(r.sid, index, escaped);
            }
            let s = &mut self.socks[r.sid];
            if let Some(ring) = &s.ring.0 {
                if !scribbler {
                    self.conns[s.conn].read[s.side] += u64::from(ring.desc(index).len);
                }
                ring.cell(index).set(DONE);
            }
            any = true;
        }
        if any {
            self.reap(r.sid);
        }
        any
    }

    /// A hostile program writes anything into the ring's state words.
    fn scribble(&mut self, sid: SockId) {
        self.stats.ring_scribbles += 1;
        if let Some(ring) = &self.socks[sid].ring.0 {
            for cell in &ring.state {
                if self.rng.chance(30) {
                    cell.set(self.rng.below(7) as u32);
                }
            }
        }
        self.reap(sid);
    }
}
