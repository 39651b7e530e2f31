// SPDX-License-Identifier: GPL-2.0

//! The program that has the ring.

use crate::ring::{DONE, ESCAPED, FREE, HELD, KERNEL, READY, SMALL};
use crate::world::{Place, Seg, Taken, World, STREAM};
use common::is_stream;
use zrs_core::rx_queue::EscapeTarget;

impl World {
    pub fn makes_ring(&mut self) {
        if self.ring.escape_target == EscapeTarget::Anywhere || self.ring.made.replace(true) {
            return;
        }
        for m in &mut self.model {
            m.claimed |= !m.in_window() || m.taken > 0;
            if let Some(s) = self.q.get_mut(m.index) {
                s.claimed = m.claimed;
            }
            let state = match (m.taken == m.len, m.claimed) {
                (true, _) => DONE,
                (_, true) => KERNEL,
                _ => READY,
            };
            self.ring.cell(m.index).set(state);
        }
    }

    pub fn program(&mut self) {
        if !self.ring.made.get() {
            return;
        }
        if self.hostile && self.rng.chance(30) {
            let at = self.rng.below(self.capacity as u64) as usize;
            let state = self
                .rng
                .pick(&[FREE, READY, HELD, DONE, KERNEL, ESCAPED, 77]);
            self.ring.state[at].set(state);
            return;
        }
        let waits = |m: &&Seg| matches!(self.ring.cell(m.index).get(), READY | ESCAPED);
        let waiting: Vec<&Seg> = self.model.iter().filter(waits).collect();
        if !waiting.is_empty() && self.rng.chance(50) {
            let m = waiting[self.rng.below(waiting.len() as u64) as usize];
            let cell = self.ring.cell(m.index);
            let place = match cell.replace(HELD) {
                ESCAPED => match self.ring.escape_off.borrow()[self.ring.at(m.index)] {
                    off @ SMALL.. => Place::Small(off - SMALL),
                    off => Place::Area(off),
                },
                _ => m.place,
            };
            let t = Taken {
                index: m.index,
                pos: m.pos,
                len: m.len,
                place,
            };
            self.check(&t);
            self.program.push(t);
        } else if !self.program.is_empty() {
            let at = self.rng.below(self.program.len() as u64) as usize;
            let t = self.program.remove(at);
            // Nobody has touched it while it was held.
            self.check(&t);
            self.ring.cell(t.index).set(DONE);
        }
    }

    /// The program finds its bytes where the ring says.
    pub fn check(&self, t: &Taken) {
        if self.hostile {
            return;
        }
        let m = self.model.iter().find(|m| m.pos == t.pos);
        assert_eq!(m.map(|m| m.place), Some(t.place));
        let bytes = match t.place {
            Place::Window(off) => &self.window[off as usize..][..t.len as usize],
            Place::Area(off) => &self.area_mem[off as usize..][..t.len as usize],
            Place::Small(off) => &self.small_mem[off as usize..][..t.len as usize],
            place => panic!("{place:?} is not the program's"),
        };
        assert!(is_stream(STREAM, t.pos, bytes));
    }
}
