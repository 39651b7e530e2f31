// SPDX-License-Identifier: GPL-2.0

//! The two steps of a move: the bytes are copied, and later they have moved, unless something came
//! between.

use zrs_core::rx_queue::{Descriptors, EscapeTarget, ToMove};

use crate::ring::READY;
use crate::world::{Flying, Held, Place, Seg, World, STREAM};
use common::is_stream;

impl World {
    /// The next segment to move, by the plain list.
    pub fn expected(&self, before: u64, window: bool, blocks: bool) -> Option<ToMove> {
        let mut behind = !window;
        for m in self.model.iter().take_while(|m| m.born < before) {
            let to_area = !m.claimed && self.ring.escape_target() == EscapeTarget::Area;
            let what = ToMove {
                index: m.index,
                pos: m.pos,
                len: m.len,
                born: m.born,
                window_off: None,
                to_area: false,
            };
            match m.place {
                Place::Block if blocks && m.taken < m.len => return Some(what),
                Place::Window(off) => {
                    let nowhere = self.ring.escape_target() == EscapeTarget::Nowhere;
                    let free = m.claimed || self.ring.waits(m.index) && !nowhere;
                    if free && !behind && m.taken < m.len && m.mapped == 0 {
                        let window_off = Some(off);
                        return Some(ToMove {
                            window_off,
                            to_area,
                            ..what
                        });
                    }
                    behind = true;
                }
                _ => {}
            }
        }
        None
    }

    /// The first step of a move: its bytes are copied.
    pub fn copies(&mut self) {
        let before = match self.rng.chance(50) {
            true => u64::MAX,
            false => self.now.saturating_sub(self.rng.below(20)),
        };
        let blocks = self.rng.chance(70);
        let is_block = |held: &Held| blocks && matches!(held, Held::Block(_));
        let window = self.rng.chance(80);
        let what = self.q.next_to_move(&self.ring, before, window, is_block);
        assert_eq!(what, self.expected(before, window, blocks));
        let Some(what) = what.filter(|_| self.flying.is_none()) else {
            return;
        };
        let place = what.window_off.map_or(Place::Block, Place::Window);
        let bytes = self.bytes(what.index, what.pos, what.len, place);
        assert!(is_stream(STREAM, what.pos, &bytes));
        let mut area_off = 0;
        if what.to_area {
            let Some(off) = self.area.alloc(what.len) else {
                self.seen.area_full += 1;
                return;
            };
            area_off = off;
            self.area_mem[off as usize..][..bytes.len()].copy_from_slice(&bytes);
        }
        self.flying = Some(Flying {
            what,
            bytes,
            area_off,
        });
    }

    /// The second step, whatever has happened in between.
    pub fn moves(&mut self) {
        let Some(Flying {
            what,
            bytes,
            area_off,
        }) = self.flying.take()
        else {
            return;
        };
        let ring = &self.ring;
        let found = self.model.iter_mut().find(|m| m.pos == what.pos);
        let mut seg = found.filter(|m| m.taken < m.len && m.mapped == 0);
        if what.to_area {
            let ready =
                |m: &&mut Seg| m.in_window() && !m.claimed && ring.cell(m.index).get() == READY;
            seg = seg.filter(ready);
            let done = self.q.move_to_area(&self.ring, &what, area_off);
            assert_eq!(done, seg.is_some());
            match seg {
                Some(m) => {
                    m.place = Place::Area(area_off);
                    self.seen.to_area += 1;
                }
                None => {
                    self.area.undo(area_off);
                    self.seen.late += 1;
                }
            }
        } else if let Some(off) = what.window_off {
            let free = |m: &&mut Seg| {
                let whole = ring.escape_target() == EscapeTarget::Anywhere && ring.waits(m.index);
                m.place == Place::Window(off) && (m.claimed || whole)
            };
            seg = seg.filter(free);
            let copy = Held::Copy(bytes.clone());
            let done = self.q.move_held(&self.ring, &what, copy.clone());
            match seg {
                Some(m) => {
                    assert_eq!(done, Ok(None));
                    (m.place, m.claimed) = (Place::Copy, true);
                    self.seen.held += 1;
                }
                None => {
                    assert_eq!(done, Err(copy));
                    self.seen.late += 1;
                }
            }
        } else {
            // A reader may have borrowed the block.
            let borrowed = match self.q.get_mut(what.index) {
                Some(s) if s.pos == what.pos && self.rng.chance(20) => s.held.take(),
                _ => None,
            };
            let copy = Held::Copy(bytes.clone());
            let done = self.q.move_held(&self.ring, &what, copy.clone());
            match seg {
                Some(m) if borrowed.is_none() => {
                    assert_eq!(done, Ok(Some(Held::Block(bytes.clone()))));
                    m.place = Place::Spilled;
                    self.seen.blocks += 1;
                }
                _ => assert_eq!(done, Err(copy)),
            }
            if let (Some(held), Some(s)) = (borrowed, self.q.get_mut(what.index)) {
                s.held = Some(held);
            }
            return;
        }
        // Moved bytes are not in the window any more, and must not be read there.
        let moved = self.model.iter().any(|m| m.pos == what.pos && m.is_moved());
        if let (Some(off), true) = (what.window_off, moved) {
            self.window[off as usize..][..bytes.len()].fill(0xee);
        }
    }
}
