// SPDX-License-Identifier: GPL-2.0

//! The operations of the table, step by step.

use zrs_core::entry_word::Work;
use zrs_core::link_table::{GrantError, LinkTable, Slot, TableStats, Way, CHUNK};
use zrs_core::ChanId;

use crate::regs::{table, Count, Regs};
use common::headers::id;
use common::table::{chunk, submit, Denied, Mem, Table, Tiers};

const SMALL: Tiers = Tiers {
    hot: 2,
    sets: 1,
    ways: 1,
    chunks: 2,
};

fn plain(id: ChanId) -> Regs {
    Regs::new(id, 100 + u64::from(id.index), Work::NONE)
}

fn filled(tiers: Tiers, entries: u32) -> (Table<Regs, u32>, Vec<ChanId>) {
    let mut t = table(tiers, 1);
    let ids = (0..entries).map(|n| submit(&mut t, n, plain).expect("free"));
    let ids = ids.collect();
    (t, ids)
}

/// Asks for an entry and gives it back as it was; its value.
fn touch(t: &mut Table<Regs, u32>, id: ChanId) -> Result<u64, GrantError> {
    let grant = t.grant(id)?;
    let value = grant.regs().value;
    t.write_back(grant);
    Ok(value)
}

// rows: L2
#[test]
fn numbers_and_generations() {
    let mut t = table::<u32>(SMALL, 1);
    assert!(t.is_empty());
    assert_eq!(
        t.submit(7, |_| unreachable!("there is no home for it")),
        Err(7)
    );
    assert!(t.wants_chunk());
    let first = submit(&mut t, 10, |id| {
        assert_eq!(id, self::id(1, 1), "make sees the number");
        plain(id)
    });
    assert_eq!(first, Ok(id(1, 1)));
    assert_eq!(
        (t.owner(id(1, 1)), t.work(id(1, 1))),
        (Some(&10), Work::SUBMITTED)
    );
    assert_eq!(submit(&mut t, 20, plain), Ok(id(2, 1)));
    assert_eq!(t.len(), 2);

    assert_eq!(t.remove(id(1, 1)), Ok(10));
    assert_eq!(t.remove(id(1, 1)), Err(GrantError::Unknown));
    assert_eq!((t.owner(id(1, 1)), t.len()), (None, 1));
    assert_eq!(
        submit(&mut t, 30, plain),
        Ok(id(1, 2)),
        "the same number, another generation"
    );
    assert_eq!(t.remove(id(1, 1)), Err(GrantError::Unknown));
    assert_eq!(touch(&mut t, id(1, 1)), Err(GrantError::Unknown));
    assert_eq!(touch(&mut t, id(1, 2)), Ok(101));
    assert_eq!(t.owner(id(2, 1)), Some(&20));
}

// rows: L2 B11
#[test]
fn what_is_not_there() {
    let (mut t, ids) = filled(SMALL, 1);
    let strange = [
        ChanId::default(),
        id(0, 1),
        id(1, 0),
        id(1, 2),
        id(2, 0),
        id(2, 1),
        id(64, 0),
        id(65, 0),
        id(65, 1),
        id(129, 1),
        id(u32::MAX, 1),
    ];
    for id in strange {
        assert_eq!(t.remove(id), Err(GrantError::Unknown), "{id:?}");
        assert_eq!((t.owner(id), t.work(id)), (None, Work::NONE), "{id:?}");
        assert_eq!(t.grant(id).err(), Some(GrantError::Unknown), "{id:?}");
        let for_work = t.grant_for(id, Work::TX);
        assert_eq!(for_work.err(), Some(GrantError::Unknown.into()), "{id:?}");
    }
    assert_eq!(touch(&mut t, ids[0]), Ok(101));
    let mut none = table::<u32>(Tiers { chunks: 0, ..SMALL }, 1);
    assert!(!none.wants_chunk(), "it may have none");
    assert_eq!(none.submit(1, plain), Err(1));
    assert_eq!(none.next_from(0), None);
    assert!(none.add_chunk(chunk()).is_some());
}

// rows: L3
#[test]
fn sizes_that_make_no_table() {
    let new = |hot: usize, near: usize, ways| {
        let slot = || Slot::new(Box::new(plain(ChanId::default())));
        LinkTable::<Mem<Regs, u32>>::new(
            (0..hot).map(|_| slot()).collect(),
            (0..near).map(|_| Way::new()).collect(),
            ways,
            vec![None],
            1,
        )
        .is_some()
    };
    assert!(new(1, 0, 1) && new(1, 0, 4) && new(1, 8, 4) && new(3, 3, 3));
    assert!(!new(0, 0, 1) && !new(1, 6, 4) && !new(1, 3, 4) && !new(1, 4, 0));
}

// rows: L3 B5
#[test]
fn as_many_as_there_are_homes() {
    let _count = Count::begin();
    let (mut t, ids) = filled(SMALL, 2 * CHUNK as u32);
    assert_eq!((t.len(), t.stats().hot), (2 * CHUNK as u32, 2));
    assert!(!t.wants_chunk() && t.add_chunk(chunk()).is_some());
    assert_eq!(t.submit(1000, plain), Err(1000));
    for (n, id) in ids.iter().enumerate() {
        assert_eq!(t.owner(*id), Some(&(n as u32)));
        assert_eq!(touch(&mut t, *id), Ok(100 + u64::from(id.index)));
    }
    t.remove(ids[77]).expect("nobody has it");
    assert!(!t.wants_chunk());
    assert_eq!(submit(&mut t, 1000, plain), Ok(id(78, 2)));
}

// rows: B8
#[test]
fn walking() {
    let (mut t, ids) = filled(SMALL, 6);
    for gone in [0, 3, 5] {
        t.remove(ids[gone]).expect("nobody has it");
    }
    let mut seen = Vec::new();
    let mut cursor = 0;
    while let Some((q, owner)) = t.next_from(cursor) {
        seen.push((q, *owner));
        cursor = q + 1;
    }
    assert_eq!(seen, [(2, 1), (3, 2), (5, 4)]);
    assert_eq!(t.next_from(1), t.next_from(0));
    assert_eq!((t.next_from(6), t.next_from(u32::MAX)), (None, None));
}

// rows: L1 L2
#[test]
fn one_at_a_time() {
    let _count = Count::begin();
    let (mut t, ids) = filled(SMALL, 3);
    let mut grant = t.grant(ids[0]).expect("nobody has it");
    assert_eq!((grant.id(), grant.regs().value), (ids[0], 101));
    assert_eq!(t.grant(ids[0]).err(), Some(GrantError::Locked));
    assert_eq!(t.remove(ids[0]), Err(GrantError::Locked));
    // The holder's changes are invisible before it writes back.
    grant.regs_mut().work = Work::TX;
    assert_eq!(t.grant_for(ids[0], Work::TX).err(), Some(Denied::Idle));
    assert_eq!(t.work(ids[0]), Work::SUBMITTED);

    let other = t.grant(ids[1]).expect("nobody has it");
    assert_eq!(t.grant(ids[2]).err(), Some(GrantError::Crowded));
    assert_eq!(t.stats().contended, 3);
    t.write_back(grant);
    assert!(t.work(ids[0]).has(Work::SUBMITTED | Work::TX));
    let third = t.grant(ids[2]).expect("there is a slot again");
    assert_eq!(
        t.grant_for(ids[0], Work::TX).err(),
        Some(GrantError::Crowded.into())
    );
    t.write_back(other);
    let again = t
        .grant_for(ids[0], Work::TX)
        .expect("it was asked for again");
    t.write_back(again);
    t.write_back(third);
}

/// An entry made while every slot is locked goes home at once, and is found there.
// rows: L2 L3
#[test]
fn no_slot_for_a_new_one() {
    let _count = Count::begin();
    let (mut t, ids) = filled(SMALL, 2);
    let held = ids.iter().map(|id| t.grant(*id).expect("nobody has it"));
    let held: Vec<_> = held.collect();
    let third = submit(&mut t, 3, |id| Regs::new(id, 5, Work::TX)).expect("a home");
    assert!(t.work(third).has(Work::TX));
    assert_eq!(t.grant(third).err(), Some(GrantError::Crowded));
    let stays = |id| Regs {
        stay: true,
        ..plain(id)
    };
    assert_eq!(submit(&mut t, 4, stays), Err(4), "it cannot be parked");
    held.into_iter().for_each(|grant| t.write_back(grant));
    assert_eq!(submit(&mut t, 4, stays), Ok(id(4, 1)));
    assert_eq!(touch(&mut t, third), Ok(5));
}

/// Entries used since the last sweep stay; others go.
// rows: L3
#[test]
fn sweeping() {
    let count = Count::begin();
    let tiers = Tiers { hot: 4, ..SMALL };
    let (mut t, ids) = filled(tiers, 4);
    let mut told = Vec::new();
    t.sweep(4, |id, _| told.push(id));
    assert_eq!(told, [], "they are all new");
    assert_eq!(touch(&mut t, ids[1]), Ok(102));
    let held = t.grant(ids[2]).expect("nobody has it");
    t.sweep(100, |id, owner| told.push(self::id(owner + 1, id.gen)));
    told.sort_by_key(|id| id.index);
    assert_eq!(told, [ids[0], ids[3]]);
    assert_eq!((t.stats().hot, t.stats().parked), (2, 2));
    t.write_back(held);
    t.sweep(4, |_, _| {});
    assert_eq!((t.stats().hot, count.now()), (0, 4));
    // Back again, from wherever they are.
    for id in &ids {
        assert_eq!(touch(&mut t, *id), Ok(100 + u64::from(id.index)));
    }
    let stats = t.stats();
    assert_eq!(stats.hits, 2);
    assert_eq!((stats.l2_hits, stats.faults), (1, 3), "one way, one set");
    assert_eq!((stats.hot, stats.l2, stats.evicted), (4, 0, 0));
}

/// A sweep of a slot at a time comes to all of them.
// rows: L3
#[test]
fn a_slot_at_a_time() {
    let _count = Count::begin();
    let (mut t, _) = filled(Tiers { hot: 5, ..SMALL }, 5);
    let mut told = 0;
    for _ in 0..5 {
        t.sweep(1, |_, _| told += 1);
    }
    assert_eq!(told, 0);
    for n in 1..=5 {
        t.sweep(1, |_, _| told += 1);
        assert_eq!(told, n);
    }
    t.sweep(0, |_, _| told += 1);
    assert_eq!(told, 5);
}

/// Entries that were not used lately go first, if a look at a few slots finds one.
// rows: L3
#[test]
fn whom_room_is_made_by() {
    let _count = Count::begin();
    let tiers = Tiers {
        hot: 4,
        sets: 0,
        ..SMALL
    };
    let mut kept = 0;
    for seed in 0..200 {
        let mut t = table(tiers, seed);
        let ids: Vec<ChanId> = (0..4)
            .map(|n| submit(&mut t, n, plain).expect("free"))
            .collect();
        t.sweep(4, |_, _| {});
        for used in &ids[..3] {
            touch(&mut t, *used).expect("it is hot");
        }
        submit(&mut t, 4, plain).expect("free");
        let before = t.stats();
        for used in &ids[..3] {
            touch(&mut t, *used).expect("nobody has it");
        }
        kept += u32::from(t.stats().faults == before.faults);
    }
    // Of eight looks at random at four slots, one finds the fourth in nine cases of ten.
    assert!((150..200).contains(&kept), "{kept}");
}

/// The second tier takes what goes out of the slots, and the way back is found. Numbers that follow
/// each other are in different sets, so that it is used whole.
// rows: L3
#[test]
fn the_second_tier() {
    for (sets, ways, most_lost) in [(16, 2, 2), (16, 4, 4), (256, 4, 50), (100, 1, 15)] {
        let _count = Count::begin();
        let tiers = Tiers {
            hot: 1,
            sets,
            ways,
            chunks: 20,
        };
        let near = (sets * ways) as u32;
        let (mut t, ids) = filled(tiers, near + 1);
        let stats = t.stats();
        assert_eq!((stats.hot, stats.evicted), (1, u64::from(near)));
        assert!(near - stats.l2 <= most_lost, "{sets} {ways} {stats:?}");
        for id in &ids {
            assert_eq!(touch(&mut t, *id), Ok(100 + u64::from(id.index)));
        }
        let after = t.stats();
        assert_eq!(after.l2_hits + after.faults, u64::from(near) + 1);
        for id in ids {
            t.remove(id).expect("nobody has it");
        }
        let TableStats {
            entries, hot, l2, ..
        } = t.stats();
        assert_eq!((entries, hot, l2), (0, 0, 0));
    }
}
