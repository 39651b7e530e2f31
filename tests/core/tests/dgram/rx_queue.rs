// SPDX-License-Identifier: GPL-2.0

use std::collections::VecDeque;
use std::net::Ipv4Addr;

use proptest::prelude::*;
use zrs_core::addr::{Addr, Ip};
use zrs_core::dgram::rx_queue::{Datagram, RxQueue, OVERHEAD};

use super::slots;

fn datagram(len: u32, data: u32) -> Datagram<u32> {
    Datagram {
        from: Addr::new(Ip::from(Ipv4Addr::LOCALHOST), 7),
        to: Ip::from(Ipv4Addr::LOCALHOST),
        len,
        born: 0,
        drops: 0,
        peeked: false,
        data,
    }
}

fn arrive(q: &mut RxQueue<Vec<Option<Datagram<u32>>>>, len: u32, rcvbuf: u32) -> bool {
    q.push(datagram(len, 0), rcvbuf).is_ok()
}

// rows: Z7
#[test]
fn bounded_by_rcvbuf() {
    let mut q = RxQueue::new(slots(100));
    let rcvbuf = 10 * (100 + OVERHEAD);
    for _ in 0..10 {
        assert!(arrive(&mut q, 100, rcvbuf));
    }
    assert!(!arrive(&mut q, 0, rcvbuf));
    assert!(!arrive(&mut q, 100, rcvbuf));
    assert_eq!((q.len(), q.drops(), q.charged()), (10, 2, rcvbuf.into()));
    // There is room for the same length again.
    q.pop();
    assert!(!arrive(&mut q, 101, rcvbuf));
    assert!(arrive(&mut q, 100, rcvbuf));
    assert_eq!(q.drops(), 3);
}

// rows: Z7
#[test]
fn empty_datagrams_are_bounded_as_well() {
    let mut q = RxQueue::new(slots(1000));
    let rcvbuf = 2304;
    let taken = (0..1000).filter(|_| arrive(&mut q, 0, rcvbuf)).count();
    assert_eq!(taken, 2304 / OVERHEAD as usize);
    assert_eq!(q.drops() as usize, 1000 - taken);
}

// rows: Z7
#[test]
fn an_empty_queue_takes_one_of_any_size() {
    let mut q = RxQueue::new(slots(10));
    assert!(arrive(&mut q, 65_507, 2304));
    assert!(!arrive(&mut q, 1, 2304));
    assert_eq!(q.pop().map(|d| d.len), Some(65_507));
    assert!(arrive(&mut q, 65_507, 0));
    q.pop();
    assert_eq!((q.drops(), q.charged()), (1, 0));
}

// rows: Z7
#[test]
fn a_look_at_the_room_takes_none() {
    let mut q = RxQueue::new(slots(10));
    for _ in 0..100 {
        assert!(q.has_room(65_507, 2304));
    }
    assert_eq!((q.drops(), q.charged(), q.len()), (0, 0, 0));
    assert!(arrive(&mut q, 2304 - 2 * OVERHEAD - 10, 2304));
    assert!(q.has_room(10, 2304));
    assert!(!q.has_room(11, 2304));
    assert!(arrive(&mut q, 10, 2304));
    // One that had room when it began to arrive is dropped if it has none when it is whole.
    assert_eq!(q.push(datagram(10, 7), 2304).map_err(|d| d.data), Err(7));
    assert_eq!((q.drops(), q.charged(), q.len()), (1, 2304, 2));
}

// rows: Z7
#[test]
fn taken_out_for_nobody_is_a_drop() {
    let mut q = RxQueue::new(slots(10));
    assert!(arrive(&mut q, 10, 9999));
    assert!(arrive(&mut q, 20, 9999));
    q.pop();
    q.count_drop();
    assert_eq!((q.drops(), q.len()), (1, 1));
    assert!(arrive(&mut q, 30, 9999));
    assert_eq!(q.pop().map(|d| (d.len, d.drops)), Some((20, 0)));
    assert_eq!(q.pop().map(|d| (d.len, d.drops)), Some((30, 1)));
}

// rows: Z7
#[test]
fn peeking_at_an_offset() {
    let mut q = RxQueue::new(slots(10));
    let sizes = [5, 0, 3, 0];
    for len in sizes {
        assert!(arrive(&mut q, len, 9999));
    }
    assert_eq!(q.bytes(), 8);
    let at = |q: &mut RxQueue<Vec<Option<Datagram<u32>>>>, off| {
        let shows = q.shows(off);
        let shown = q.peek_at(off).map(|(d, from)| (d.len, from));
        assert_eq!(shown.is_some(), shows);
        shown
    };
    assert_eq!(at(&mut q, None), Some((5, 0)));
    assert_eq!(at(&mut q, Some(0)), Some((5, 0)));
    assert_eq!(at(&mut q, Some(4)), Some((5, 4)));
    // An empty one is shown once.
    assert_eq!(at(&mut q, Some(5)), Some((0, 0)));
    assert_eq!(at(&mut q, Some(5)), Some((3, 0)));
    assert_eq!(at(&mut q, Some(7)), Some((3, 2)));
    assert_eq!(at(&mut q, Some(8)), Some((0, 0)));
    assert_eq!(at(&mut q, Some(8)), None);
    assert_eq!(at(&mut q, Some(100)), None);
    q.pop();
    assert_eq!(at(&mut q, Some(0)), Some((3, 0)));
    // Without an offset it is the first one, shown or not.
    assert_eq!(at(&mut q, None), Some((0, 0)));
}

// rows: Z7
#[test]
fn put_back_it_is_the_first_again() {
    let mut q = RxQueue::new(slots(2));
    assert!(arrive(&mut q, 10, 9999));
    assert!(arrive(&mut q, 20, 9999));
    let charged = q.charged();
    let first = q.pop().unwrap();
    assert_eq!(q.put_back(first), None);
    assert_eq!((q.len(), q.charged(), q.drops()), (2, charged, 0));
    // Its slot has gone to another one.
    let first = q.pop().unwrap();
    assert!(arrive(&mut q, 30, 9999));
    assert_eq!(q.put_back(first).map(|d| d.len), Some(10));
    assert_eq!((q.len(), q.drops()), (2, 1));
    assert_eq!(q.pop().map(|d| (d.len, d.drops)), Some((20, 0)));
    assert_eq!(q.pop().map(|d| (d.len, d.drops)), Some((30, 0)));
    assert_eq!(q.charged(), 0);
}

// rows: Z7
#[test]
fn without_a_slot_it_is_dropped() {
    let mut q = RxQueue::new(slots(2));
    assert!(arrive(&mut q, 1, 99_999));
    assert!(!q.is_short_of_slots());
    assert!(arrive(&mut q, 1, 99_999));
    assert!(q.is_short_of_slots());
    assert!(!arrive(&mut q, 1, 99_999));
    assert_eq!(q.drops(), 1);
    let old = q.move_to(slots(4));
    assert_eq!((old.len(), q.slots()), (2, 4));
    assert!(!q.is_short_of_slots());
    assert!(arrive(&mut q, 1, 99_999));
    assert!(!q.is_short_of_slots());
    assert_eq!(q.len(), 3);
}

// rows: Z7
#[test]
fn drops_are_told_with_the_next_datagram() {
    let mut q = RxQueue::new(slots(10));
    let rcvbuf = 2 * OVERHEAD;
    assert!(arrive(&mut q, 0, rcvbuf));
    assert!(arrive(&mut q, 0, rcvbuf));
    assert!(!arrive(&mut q, 0, rcvbuf));
    assert!(!arrive(&mut q, 0, rcvbuf));
    assert_eq!(q.pop().map(|d| d.drops), Some(0));
    assert!(arrive(&mut q, 0, rcvbuf));
    assert_eq!(q.pop().map(|d| d.drops), Some(0));
    assert_eq!(q.peek().map(|d| d.drops), Some(2));
    assert_eq!(q.pop().map(|d| d.drops), Some(2));
}

proptest! {
    // rows: Z7
    #[test]
    fn against_a_list(
        size in 0..12_usize,
        rcvbuf in prop_oneof![0..300_u32, 0..70_000_u32, Just(u32::MAX)],
        ops in proptest::collection::vec((any::<bool>(), 0..5000_u32), 0..100),
    ) {
        let mut q = RxQueue::new(slots(size));
        let mut model: VecDeque<(u32, u32)> = VecDeque::new();
        let mut drops = 0;
        for (n, (arrives, len)) in (0_u32..).zip(ops) {
            let charged: u64 = model.iter().map(|d| u64::from(d.0 + OVERHEAD)).sum();
            prop_assert_eq!(q.charged(), charged);
            if arrives {
                let fits = charged == 0 || charged + u64::from(len + OVERHEAD) <= rcvbuf.into();
                prop_assert_eq!(q.has_room(len, rcvbuf), fits);
                let fits = fits && model.len() < size;
                let pushed = q.push(datagram(len, n), rcvbuf).map_err(|d| d.data);
                prop_assert_eq!(pushed, if fits { Ok(()) } else { Err(n) });
                if fits {
                    model.push_back((len, n));
                } else {
                    drops += 1;
                }
            } else {
                prop_assert_eq!(q.peek().map(|d| (d.len, d.data)), model.front().copied());
                prop_assert_eq!(q.pop().map(|d| (d.len, d.data)), model.pop_front());
            }
            prop_assert_eq!((q.len(), q.is_empty(), q.drops()), (model.len(), model.is_empty(), drops));
        }
    }
}
