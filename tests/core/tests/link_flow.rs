// SPDX-License-Identifier: GPL-2.0

//! Credit of a link: bounds, wrap-around, hostile values, and that two sides can always go on.

use std::collections::VecDeque;

use common::Rng;
use proptest::prelude::*;
use zrs_core::link_flow::{LinkFlow, CONTROL_RESERVE, MIN_CREDIT};
use zrs_core::Violation;

fn flow(ours: u32, theirs: u32) -> LinkFlow {
    LinkFlow::new(ours, theirs).expect("sane")
}

// rows: Z5 B11
#[test]
fn admission() {
    for bad in [0, 1, MIN_CREDIT - 1, (1 << 20) + 1, u32::MAX] {
        assert!(LinkFlow::new(bad, 64).is_none());
        assert!(LinkFlow::new(64, bad).is_none());
    }
    for good in [MIN_CREDIT, 1 << 20] {
        assert!(LinkFlow::new(good, 64).is_some());
        assert!(LinkFlow::new(64, good).is_some());
    }
}

/// Data leaves the reserve alone, control leaves the last one to LinkCredit.
// rows: Z5 C3
#[test]
fn reserves() {
    let mut f = flow(64, 32);
    for left in (0..=32_u32).rev() {
        assert_eq!(f.available(false), left.saturating_sub(CONTROL_RESERVE));
        assert_eq!(f.available(true), left.saturating_sub(1));
        if left > 0 {
            assert_eq!(f.sending(), 64);
        }
    }
}

/// Control messages use their own credit first: data may use as much as before them, as poll() may
/// have promised.
// rows: E4 Z5
#[test]
fn control_leaves_data_its_credit() {
    for left in [9, 10, 40] {
        let mut f = flow(64, 64);
        (left..64).for_each(|_| _ = f.sending());
        let room = f.available(false);
        assert_eq!(room, left - CONTROL_RESERVE);
        for _ in 1..CONTROL_RESERVE {
            f.sending_control();
            assert_eq!(f.available(false), room);
        }
        // The reserve is used up, but for the one credit that is for LinkCredit.
        assert_eq!(f.available(true), room);
        f.sending_control();
        assert_eq!(f.available(false), room - 1);
        // Credit that comes back is the reserve's first.
        f.arrived(64 + CONTROL_RESERVE - 1).unwrap();
        assert_eq!(f.available(false), room - 1);
        f.arrived(64 + CONTROL_RESERVE).unwrap();
        assert_eq!(f.available(false), room);
        (0..room).for_each(|_| _ = f.sending());
        assert_eq!(f.available(false), 0);
        assert_eq!(f.available(true), CONTROL_RESERVE - 1);
    }
}

/// Data that has used all that it may leaves one for LinkCredit, however many control messages are
/// on their way.
// rows: Z5
#[test]
fn data_leaves_the_last_one() {
    let mut f = flow(64, 32);
    (0..20).for_each(|_| _ = f.sending_control());
    while f.available(false) > 0 {
        f.sending();
    }
    assert_eq!(f.left_to_us(), 1);
}

/// The last one may go to a LinkCredit, and to nothing else.
// rows: Z5
#[test]
fn the_last_one() {
    let mut f = flow(32, 32);
    for _ in 0..31 {
        f.sending();
    }
    assert_eq!(f.available(true), 0);
    assert!(!f.credit_due(), "nothing to tell");
    for _ in 0..8 {
        f.arrived(32).unwrap();
        f.reposted();
    }
    assert!(f.credit_due());
    assert_eq!(f.sending(), 40);
    for _ in 0..8 {
        f.arrived(32).unwrap();
        f.reposted();
    }
    assert!(!f.credit_due(), "nothing may be posted any more");
    f.arrived(33).unwrap();
    assert!(f.credit_due());
}

/// The peer's remaining credit decides as well when unread data holds most blocks.
// rows: Z5 C3
#[test]
fn due_when_the_peer_runs_out() {
    let mut f = flow(512, 512);
    // All that data may use is held.
    for _ in 0..512 - CONTROL_RESERVE {
        f.arrived(512).unwrap();
    }
    assert!(!f.credit_due());
    for n in 1..=CONTROL_RESERVE {
        f.arrived(512).unwrap();
        f.reposted();
        assert_eq!(f.credit_due(), n >= CONTROL_RESERVE / 2, "after {n}");
    }
}

/// Blocks may be counted outside of the flow until a message takes them: what is due, and what the
/// peer is told, is the same.
// rows: Z5 L2
#[test]
fn blocks_counted_outside() {
    let (mut inside, mut outside) = (flow(64, 64), flow(64, 64));
    let (mut gathered, mut due) = (0, 0);
    for n in 0..4000 {
        let allowed = 64 + n / 2;
        assert_eq!(inside.arrived(allowed), outside.arrived(allowed));
        // Phases in which each message is read at once, and in which most blocks are held.
        let read = match n % 200 {
            0..100 => 1,
            100..150 => 0,
            150 => 51,
            _ => 1,
        };
        for _ in 0..read {
            inside.reposted();
            gathered += 1;
            assert_eq!(inside.credit_due(), gathered >= outside.due_at(), "{n}");
        }
        assert_eq!(
            inside.credit_due(),
            outside.credit_due_with(gathered),
            "{n}"
        );
        due += u32::from(inside.credit_due());
        if inside.credit_due() || n % 5 == 0 {
            outside.reposted_many(std::mem::take(&mut gathered));
            assert_eq!(inside.sending(), outside.sending(), "{n}");
        }
    }
    assert!(due > 0);
}

// rows: Z5 B11
#[test]
fn overrun_is_noticed() {
    let mut f = flow(32, 32);
    for _ in 0..32 {
        assert_eq!(f.arrived(32), Ok(()));
    }
    assert_eq!(f.arrived(32), Err(Violation::Credit));

    // Posted again, but not told yet: it is too early to use it.
    let mut f = flow(32, 32);
    for _ in 0..32 {
        assert_eq!(f.arrived(32), Ok(()));
        f.reposted();
    }
    assert_eq!(f.arrived(32), Err(Violation::Credit));

    let mut f = flow(32, 32);
    for _ in 0..32 {
        assert_eq!(f.arrived(32), Ok(()));
        f.reposted();
    }
    f.sending();
    assert_eq!(f.arrived(32), Ok(()));
}

// rows: Z5 B11
#[test]
fn hostile_credit() {
    for (credit, want) in [
        (64, Ok(())),
        (63, Err(Violation::Credit)),
        (0, Err(Violation::Credit)),
        (65, Ok(())),
        (1 << 20, Ok(())),
        ((1 << 20) + 1, Err(Violation::Credit)),
        (1 << 31, Err(Violation::Credit)),
        (u32::MAX, Err(Violation::Credit)),
    ] {
        assert_eq!(flow(64, 64).arrived(credit), want, "{credit}");
    }
    // Relative to the number sent, not to 0.
    let mut f = flow(64, 64);
    f.sending();
    assert_eq!(f.arrived((1 << 20) + 1), Ok(()));
    assert_eq!(f.arrived((1 << 20) + 2), Err(Violation::Credit));
}

/// Where the count starts makes no difference, wherever it wraps.
// rows: Z5
#[test]
fn wraps_around() {
    for at in [u32::MAX - 50, u32::MAX, (1 << 31) - 50, 1 << 31] {
        let mut at_zero = [flow(32, 40), flow(40, 32)];
        let mut wraps = [(32, 40), (40, 32)].map(|(o, t)| LinkFlow::starting_at(o, t, at).unwrap());
        for n in 0..200 {
            for (from, to) in [(0, 1), (1, 0)] {
                let credits = [&mut at_zero, &mut wraps].map(|f| {
                    let credit = f[from].sending();
                    f[to].arrived(credit).unwrap();
                    // Some are held for a while.
                    let held = n % 20 < 10;
                    (0..if held { 0 } else { 2 }).for_each(|_| f[to].reposted());
                    credit
                });
                assert_eq!(credits[0].wrapping_add(at), credits[1]);
                for (a, b) in at_zero.iter().zip(&wraps) {
                    assert_eq!(a.available(false), b.available(false));
                    assert_eq!(a.available(true), b.available(true));
                    assert_eq!(a.credit_due(), b.credit_due());
                }
            }
        }
        // Nor is less than before taken for more.
        let credit = wraps[0].sending();
        assert_eq!(
            wraps[1].arrived(credit.wrapping_sub(50)),
            Err(Violation::Credit)
        );
    }
}

/// Two sides and their messages to send, with blocks held by data for a while or for ever.
struct Pair {
    flow: [LinkFlow; 2],
    pipe: [VecDeque<(bool, u32)>; 2],
    posted: [u32; 2],
    held: [u32; 2],
    blocks: [u32; 2],
    lone: u32,
}

impl Pair {
    fn new(blocks: [u32; 2]) -> Self {
        Self {
            // Soon to wrap.
            flow: [0, 1].map(|s: usize| {
                let at = u32::MAX - 500;
                LinkFlow::starting_at(blocks[s], blocks[1 - s], at).expect("sane")
            }),
            pipe: [VecDeque::new(), VecDeque::new()],
            posted: blocks,
            held: [0; 2],
            blocks,
            lone: 0,
        }
    }

    fn send(&mut self, side: usize, data: bool) -> bool {
        let may = self.flow[side].available(!data) > 0;
        if may {
            let credit = match data {
                true => self.flow[side].sending(),
                false => self.flow[side].sending_control(),
            };
            self.pipe[1 - side].push_back((data, credit));
            self.lone = 0;
        }
        may
    }

    fn lone_credit(&mut self, side: usize) -> bool {
        let due = self.flow[side].credit_due();
        if due {
            let credit = self.flow[side].sending_control();
            self.pipe[1 - side].push_back((false, credit));
            self.lone += 1;
            assert!(self.lone < 64, "to and fro for ever");
        }
        due
    }

    fn deliver(&mut self, side: usize) -> bool {
        let Some((data, credit)) = self.pipe[side].pop_front() else {
            return false;
        };
        assert!(self.posted[side] > 0, "overrun");
        self.posted[side] -= 1;
        self.flow[side].arrived(credit).unwrap();
        if data {
            self.held[side] += 1;
        } else {
            self.repost(side);
        }
        true
    }

    fn repost(&mut self, side: usize) {
        self.posted[side] += 1;
        self.flow[side].reposted();
    }

    fn read(&mut self, side: usize) -> bool {
        let any = self.held[side] > 0;
        if any {
            self.held[side] -= 1;
            self.repost(side);
        }
        any
    }

    /// Until nothing is in flight and no lone credit is due. That must happen.
    fn drain(&mut self) {
        let mut steps = 0;
        while (0..2).any(|s| self.lone_credit(s) || self.deliver(s)) {
            steps += 1;
            assert!(steps < 100_000);
        }
    }
}

/// However messages cross, when the network is quiet each side may send control messages, even if
/// no data was read and none ever is.
// rows: Z5 C3
#[test]
fn control_always_gets_through() {
    for seed in 0..3000 {
        let mut rng = Rng::new(seed);
        let blocks = [0; 2].map(|_| rng.pick(&[32, 33, 47, 64, 200, 1024]));
        let mut p = Pair::new(blocks);
        let bias = rng.below(100);
        let reads = rng.pick(&[0, 5, 50]);
        for _ in 0..rng.range(100, 4000) {
            let side = rng.below(2) as usize;
            match rng.below(5) {
                0 | 1 => {
                    let data = rng.chance(bias);
                    p.send(side, data);
                }
                2 => {
                    p.deliver(side);
                }
                3 => {
                    p.lone_credit(side);
                }
                _ => {
                    if rng.chance(reads) {
                        p.read(side);
                    }
                }
            }
            for side in 0..2 {
                let on_its_way = p.pipe[side].len() as u32;
                assert!(
                    on_its_way <= p.posted[side],
                    "seed {seed}: more than is posted"
                );
                let data = p.pipe[side].iter().filter(|(data, _)| *data).count() as u32;
                assert!(
                    data + p.held[side] + CONTROL_RESERVE <= p.blocks[side],
                    "seed {seed}: data has used the reserve"
                );
            }
        }
        p.drain();
        for side in 0..2 {
            assert!(
                p.flow[side].available(true) > 0,
                "seed {seed}: {:?}",
                p.flow
            );
            assert_eq!(p.posted[side] + p.held[side], p.blocks[side]);
        }
        // And when everything is read, data goes as well.
        for side in 0..2 {
            while p.read(side) {}
        }
        p.drain();
        for side in 0..2 {
            let least = p.blocks[1 - side] - p.blocks[1 - side] / 4 - CONTROL_RESERVE;
            assert!(
                p.flow[side].available(false) >= least,
                "seed {seed}: {:?}",
                p.flow
            );
        }
    }
}

/// Both sides send control as long as they may, and nothing arrives before they are done.
// rows: Z5
#[test]
fn crossing_floods() {
    for blocks in [[32, 32], [32, 1024], [1024, 1024]] {
        let mut p = Pair::new(blocks);
        for round in 0..1000 {
            for side in 0..2 {
                while p.send(side, false) {}
            }
            for side in [round % 2, 1 - round % 2] {
                while p.deliver(side) {}
                while p.lone_credit(side) {}
            }
            p.drain();
            assert!(
                (0..2).all(|s| p.flow[s].available(true) > 0),
                "{:?}",
                p.flow
            );
        }
    }
}

proptest! {
    /// Whatever a peer announces, the credit stays within the announcement and within bounds.
    // rows: B11 Z5
    #[test]
    fn hostile_sequences(
        ours in MIN_CREDIT..2000,
        theirs in MIN_CREDIT..2000,
        ops in prop::collection::vec((0_u8..4, any::<u32>(), -3_i32..300), 1..200),
    ) {
        let mut f = flow(ours, theirs);
        let (mut sent, mut allowed) = (0_u32, theirs);
        for (op, random, near) in ops {
            match op {
                0 if f.available(false) > 0 => {
                    f.sending();
                    sent = sent.wrapping_add(1);
                }
                1 => f.reposted(),
                _ => {
                    let say = if op == 2 { random } else { allowed.wrapping_add_signed(near) };
                    if f.arrived(say).is_err() {
                        return Ok(());
                    }
                    allowed = say;
                }
            }
            prop_assert_eq!(f.available(true), allowed.wrapping_sub(sent).saturating_sub(1));
            prop_assert!(f.available(true) < 1 << 20);
        }
    }

    /// The peer frees what it likes, in any order, and tells at any time. Neither control messages,
    /// within their reserve, nor credit take room from data; and data never has more than its part.
    // rows: E4 Z5
    #[test]
    fn promised_credit_stays(
        credit in MIN_CREDIT..100,
        ops in prop::collection::vec((0_u8..5, 0_u32..40), 1..400),
    ) {
        let mut f = flow(1 << 20, credit);
        // In flight or held at the peer; freed and not told.
        let (mut data, mut control, mut freed, mut allowed) = (0_u32, 0_u32, [0_u32; 2], credit);
        for (op, n) in ops {
            let room = f.available(false);
            match op {
                0 if room > 0 => {
                    f.sending();
                    data += 1;
                    prop_assert_eq!(f.available(false), room - 1);
                }
                1 if f.available(true) > 0 => {
                    f.sending_control();
                    control += 1;
                    let used_up = control + freed[1] >= CONTROL_RESERVE;
                    let taken = u32::from(used_up).min(room);
                    prop_assert!(f.available(false) + taken >= room);
                    prop_assert!(f.available(false) <= room);
                }
                2 if data > 0 => {
                    let n = 1 + n % data;
                    data -= n;
                    freed[0] += n;
                }
                3 if control > 0 => {
                    let n = 1 + n % control;
                    control -= n;
                    freed[1] += n;
                }
                4 => {
                    allowed += freed.iter().sum::<u32>();
                    freed = [0; 2];
                    f.arrived(allowed).unwrap();
                    prop_assert!(f.available(false) >= room);
                }
                _ => {}
            }
            prop_assert!(data + CONTROL_RESERVE <= credit);
            prop_assert!(f.left_to_us() > 0);
        }
    }
}
