// SPDX-License-Identifier: GPL-2.0

//! What a host has of a link: the table of channels against a map, and the credit of both sides of
//! a link against counters that do not wrap.

use std::collections::{BTreeMap, VecDeque};

use zrs_core::link_flow::{LinkFlow, CONTROL_RESERVE, MIN_CREDIT};
use zrs_core::slot_table::{Slot, SlotTable};
use zrs_core::ChanId;

use crate::Input;

fn table(input: &mut Input<'_>) {
    let slots = 1 + input.below(9);
    let mut t = SlotTable::new((0..slots).map(|_| Slot::empty()).collect::<Vec<_>>());
    let mut live: BTreeMap<u32, (u32, u16)> = BTreeMap::new();
    let mut gens = vec![0_u32; slots + 1];
    let mut former = Vec::new();
    while !input.is_empty() {
        let what = input.u8();
        let value = input.u16();
        // A number that is there, that was there, or any.
        let id = match (value % 3, live.iter().nth(usize::from(value) % slots)) {
            (0, Some((&q, &(gen, _)))) => ChanId { q, gen },
            (1, _) if !former.is_empty() => former[usize::from(value) % former.len()],
            _ => ChanId {
                q: u32::from(value % 12).wrapping_sub(1),
                gen: u32::from(value >> 8) % 4,
            },
        };
        let known = live
            .get(&id.q)
            .filter(|(gen, _)| *gen == id.gen)
            .map(|v| v.1);
        match what % 4 {
            0 => {
                let mut told = None;
                let got = t.insert(|id| {
                    told = Some(id);
                    value
                });
                assert_eq!(got, told);
                assert_eq!(got.is_some(), live.len() < slots);
                if let Some(id) = got {
                    assert!((1..=slots as u32).contains(&id.q));
                    let gen = &mut gens[id.q as usize];
                    *gen += 1;
                    assert_eq!(id.gen, *gen, "each life has the next generation");
                    assert_eq!(live.insert(id.q, (id.gen, value)), None);
                    former.push(id);
                }
            }
            1 => assert_eq!(t.get(id).copied(), known),
            2 => {
                assert_eq!(t.remove(id), known);
                if known.is_some() {
                    live.remove(&id.q);
                }
            }
            _ => {
                let from = u32::from(value % 12);
                let next = live.range(from..).next().map(|(q, v)| (*q, v.1));
                assert_eq!(t.next_from(from).map(|(q, v)| (q, *v)), next);
            }
        }
        assert_eq!(t.len() as usize, live.len());
        assert_eq!(t.is_empty(), live.is_empty());
    }
}

/// One side of a link, and what is true of it in numbers that do not wrap.
struct Side {
    flow: LinkFlow,
    /// Link credit under way to this side, and whether with data.
    pipe: VecDeque<(u64, bool)>,
    sent: u64,
    /// What the peer has allowed.
    allowed: u64,
    arrived: u64,
    room: u64,
    told: u64,
    /// Blocks that hold something: data, or a message that is dealt with at once.
    held_data: u64,
    held: u64,
    blocks: u64,
}

struct Pair {
    at: u32,
    side: [Side; 2],
}

impl Pair {
    fn new(at: u32, blocks: [u32; 2]) -> Option<Self> {
        let side = |me: usize| -> Option<Side> {
            let (ours, theirs) = (blocks[me], blocks[1 - me]);
            Some(Side {
                flow: LinkFlow::starting_at(ours, theirs, at)?,
                pipe: VecDeque::new(),
                sent: 0,
                allowed: u64::from(theirs),
                arrived: 0,
                room: u64::from(ours),
                told: u64::from(ours),
                held_data: 0,
                held: 0,
                blocks: u64::from(ours),
            })
        };
        Some(Self {
            at,
            side: [side(0)?, side(1)?],
        })
    }

    fn post(&mut self, me: usize, data: bool) {
        let s = &mut self.side[me];
        s.sent += 1;
        s.told = s.room;
        assert!(s.sent <= s.allowed, "more than the peer allows");
        let credit = s.flow.sending();
        assert_eq!(credit, self.at.wrapping_add(s.told as u32));
        let told = s.told;
        self.side[1 - me].pipe.push_back((told, data));
    }

    fn send(&mut self, me: usize, control: bool) -> bool {
        let can = self.side[me].flow.available(control) > 0;
        if can {
            self.post(me, !control);
        }
        can
    }

    fn lone(&mut self, me: usize) -> bool {
        let can = self.side[me].flow.credit_due();
        if can {
            self.post(me, false);
        }
        can
    }

    fn deliver(&mut self, me: usize) -> bool {
        let at = self.at;
        let s = &mut self.side[me];
        let Some((credit, data)) = s.pipe.pop_front() else {
            return false;
        };
        s.arrived += 1;
        *(if data { &mut s.held_data } else { &mut s.held }) += 1;
        assert!(
            s.held + s.held_data <= s.blocks,
            "the receive queue is overrun"
        );
        s.allowed = credit;
        let arrived = s.flow.arrived(at.wrapping_add(credit as u32));
        assert_eq!(arrived, Ok(()), "an honest peer");
        true
    }

    fn repost(&mut self, me: usize, data: bool) -> bool {
        let s = &mut self.side[me];
        let held = if data { &mut s.held_data } else { &mut s.held };
        if *held == 0 {
            return false;
        }
        *held -= 1;
        s.room += 1;
        s.flow.reposted();
        true
    }

    fn check(&self) {
        for s in &self.side {
            let left = s.allowed - s.sent;
            assert_eq!(u64::from(s.flow.left_to_us()), left);
            assert_eq!(u64::from(s.flow.available(true)), left.saturating_sub(1));
            let data = left.saturating_sub(u64::from(CONTROL_RESERVE));
            assert_eq!(u64::from(s.flow.available(false)), data);
            if s.flow.credit_due() {
                assert!(s.room > s.told && left > 0);
            }
        }
    }

    /// Everything arrives, and is read if `read`: then both may send again, if only control.
    fn settle(&mut self, read: bool) {
        for _ in 0..10_000 {
            let mut moved = false;
            for me in 0..2 {
                while self.deliver(me) {
                    moved = true;
                }
                while self.repost(me, false) || (read && self.repost(me, true)) {
                    moved = true;
                }
                moved |= self.lone(me);
            }
            self.check();
            if !moved {
                let may = |s: &Side| s.flow.available(!read) > 0;
                assert!(self.side.iter().all(may), "nobody can go on");
                return;
            }
        }
        panic!("credit goes to and fro for ever");
    }

    /// Messages with any link credit, as many as are taken: only within bounds. Ends the course.
    fn lie(&mut self, me: usize, credit: u32) {
        let at = self.at;
        let s = &mut self.side[me];
        loop {
            s.arrived += 1;
            let gain = credit.wrapping_sub(at.wrapping_add(s.allowed as u32));
            let room = credit.wrapping_sub(at.wrapping_add(s.sent as u32));
            let good = s.arrived <= s.told && gain < 1 << 31 && room <= 1 << 20;
            assert_eq!(s.flow.arrived(credit).is_ok(), good);
            if !good {
                return;
            }
            s.allowed = s.sent + u64::from(room);
            assert_eq!(s.flow.left_to_us(), room);
        }
    }
}

fn flow(input: &mut Input<'_>) {
    // Often near where the counts wrap.
    let at = match input.u8() % 3 {
        0 => input.u32(),
        1 => 0_u32.wrapping_sub(input.u8().into()),
        _ => (1_u32 << 31).wrapping_sub(input.u8().into()),
    };
    let blocks = [0, 1].map(|_| MIN_CREDIT - 2 + u32::from(input.u8()));
    let sane = blocks.iter().all(|b| *b >= MIN_CREDIT);
    let pair = Pair::new(at, blocks);
    assert_eq!(pair.is_some(), sane);
    let Some(mut p) = pair else {
        return;
    };
    while !input.is_empty() {
        let op = input.u8();
        let me = usize::from(op & 1);
        let times = 1 + (op >> 4);
        for _ in 0..times {
            match (op >> 1) & 7 {
                0 | 1 => p.send(me, false),
                2 => p.send(me, true),
                3 => p.lone(me),
                4 => p.deliver(me),
                5 => p.repost(me, true),
                6 => p.repost(me, false),
                _ if op == 0xff => {
                    let near = p.side[me].allowed as u32;
                    let how = input.u8();
                    let some = input.u32();
                    let credit = match how % 2 {
                        0 => some,
                        _ => at
                            .wrapping_add(near)
                            .wrapping_add(some % 64)
                            .wrapping_sub(32),
                    };
                    return p.lie(me, credit);
                }
                _ => {
                    p.settle(op & 0x10 != 0);
                    true
                }
            };
            p.check();
        }
    }
    p.settle(false);
    p.settle(true);
}

/// The table of channels, or both sides of a link.
pub fn link_table(data: &[u8]) {
    let mut input = Input(data);
    match input.u8() % 2 {
        0 => table(&mut input),
        _ => flow(&mut input),
    }
}
