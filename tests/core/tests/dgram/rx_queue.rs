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
    let room = q.reserve(len, rcvbuf);
    room.map(|room| q.push(room, datagram(len, 0))).is_some()
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
    // One on its way counts as one that is there.
    q.pop();
    let room = q.reserve(65_507, 2304).expect("empty");
    assert!(!arrive(&mut q, 1, 2304));
    q.release(room);
    assert_eq!((q.drops(), q.charged()), (2, 0));
}

// rows: Z7
#[test]
fn lost_with_the_link_is_no_drop() {
    let mut q = RxQueue::new(slots::<Datagram<u32>>(10));
    let (lost, failed) = (q.reserve(10, 9999).unwrap(), q.reserve(20, 9999).unwrap());
    q.release(lost);
    assert_eq!(q.drops(), 0);
    q.drop_reserved(failed);
    assert_eq!((q.drops(), q.charged(), q.len()), (1, 0, 0));
}

// rows: Z7
#[test]
fn cut_by_a_filter_it_has_room_for_what_is_left() {
    let mut q = RxQueue::new(slots(10));
    let room = q.reserve(5000, 9999).unwrap();
    q.push(room, datagram(3, 0));
    assert_eq!((q.len(), q.charged()), (1, u64::from(3 + OVERHEAD)));
    assert!(arrive(&mut q, 5000, 9999));
    assert_eq!(q.pop().map(|d| d.len), Some(3));
    assert_eq!(q.pop().map(|d| d.len), Some(5000));
    assert_eq!((q.charged(), q.drops()), (0, 0));
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
    // Its room has gone to one that is on its way.
    let first = q.pop().unwrap();
    let room = q.reserve(30, 9999).unwrap();
    assert_eq!(q.put_back(first).map(|d| d.len), Some(10));
    assert_eq!((q.len(), q.drops()), (1, 1));
    q.push(room, datagram(30, 0));
    assert_eq!(q.pop().map(|d| (d.len, d.drops)), Some((20, 0)));
    assert_eq!(q.pop().map(|d| (d.len, d.drops)), Some((30, 1)));
    assert_eq!(q.charged(), 0);
}

// rows: Z7
#[test]
fn without_a_slot_it_is_dropped() {
    let mut q = RxQueue::new(slots(2));
    let room = q.reserve(1, 99_999).unwrap();
    assert!(arrive(&mut q, 1, 99_999));
    assert!(q.is_short_of_slots());
    assert!(!arrive(&mut q, 1, 99_999));
    assert_eq!(q.drops(), 1);
    let old = q.move_to(slots(4));
    assert_eq!((old.len(), q.slots()), (2, 4));
    assert!(!q.is_short_of_slots());
    assert!(arrive(&mut q, 1, 99_999));
    q.push(room, datagram(1, 5));
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
        ops in proptest::collection::vec((0..6_u8, 0..5000_u32), 0..100),
    ) {
        let mut q = RxQueue::new(slots(size));
        let mut model: VecDeque<(u32, u32)> = VecDeque::new();
        let mut open = Vec::new();
        let mut drops = 0;
        for (n, (op, len)) in (0_u32..).zip(ops) {
            let charged: u64 = model.iter().map(|d| d.0)
                .chain(open.iter().map(|(len, _)| *len))
                .map(|len| u64::from(len + OVERHEAD)).sum();
            prop_assert_eq!(q.charged(), charged);
            match op {
                0..=2 => {
                    let fits = charged + u64::from(len + OVERHEAD) <= rcvbuf.into();
                    let fits = (fits || charged == 0) && model.len() + open.len() < size;
                    match q.reserve(len, rcvbuf) {
                        Some(room) => {
                            prop_assert!(fits);
                            open.push((len, room));
                        }
                        None => {
                            prop_assert!(!fits);
                            drops += 1;
                        }
                    }
                }
                3 if !open.is_empty() => {
                    let (len, room) = open.swap_remove(n as usize % open.len());
                    q.push(room, datagram(len, n));
                    model.push_back((len, n));
                }
                4 if !open.is_empty() => {
                    let (_, room) = open.swap_remove(n as usize % open.len());
                    q.release(room);
                }
                _ => {
                    prop_assert_eq!(q.peek().map(|d| (d.len, d.data)), model.front().copied());
                    prop_assert_eq!(q.pop().map(|d| (d.len, d.data)), model.pop_front());
                }
            }
            prop_assert_eq!((q.len(), q.is_empty(), q.drops()), (model.len(), model.is_empty(), drops));
        }
        for (_, room) in open {
            q.release(room);
        }
    }
}
