// SPDX-License-Identifier: GPL-2.0

use zrs_core::dgram::credit::{for_streams, has_room, held_most, Asking};
use zrs_core::dgram::wire::FRAGMENTS_MAX;
use zrs_core::link_flow::{LinkFlow, CONTROL_RESERVE, MIN_CREDIT};

/// Both ends of a link on which the first host sends datagrams. All messages arrive at once.
struct Link {
    sender: LinkFlow,
    receiver: LinkFlow,
    asking: Asking,
    asked: u32,
    /// Lone credit messages of the sender.
    lone: u32,
}

impl Link {
    /// The sender has given `ours`, the receiver `theirs`.
    fn new(ours: u32, theirs: u32) -> Self {
        let new = |a, b| LinkFlow::starting_at(a, b, u32::MAX - 100).unwrap();
        Self {
            sender: new(ours, theirs),
            receiver: new(theirs, ours),
            asking: Asking::default(),
            asked: 0,
            lone: 0,
        }
    }

    /// A SEND of data arrives. Its block is posted again, unless a program leaves the data unread.
    fn data(&mut self, unread: bool) {
        let credit = self.sender.sending();
        self.receiver.arrived(credit).unwrap();
        if !unread {
            self.receiver.reposted();
        }
        self.settle();
    }

    /// The receiver's program reads.
    fn read(&mut self) {
        self.receiver.reposted();
        self.settle();
    }

    /// Whether there is room for a datagram of `n` fragments, if need be after the peer was asked.
    fn has_room(&mut self, n: u32) -> bool {
        if has_room(&self.sender, n) {
            return true;
        }
        if !self.asking.is_due(&self.sender, true) {
            return false;
        }
        self.asked += 1;
        let credit = self.sender.sending_control();
        self.receiver.arrived(credit).unwrap();
        let credit = self.receiver.sending_control();
        self.sender.arrived(credit).unwrap();
        self.sender.reposted();
        // The message's own block comes behind the answer.
        self.receiver.reposted();
        self.settle();
        has_room(&self.sender, n)
    }

    /// Lone credit messages, until none is due.
    fn settle(&mut self) {
        for _ in 0..4 {
            if self.receiver.credit_due() {
                let credit = self.receiver.sending_control();
                self.sender.arrived(credit).unwrap();
                self.sender.reposted();
            }
            if self.sender.credit_due() {
                self.lone += 1;
                let credit = self.sender.sending_control();
                self.receiver.arrived(credit).unwrap();
                self.receiver.reposted();
            }
        }
        let due = self.sender.credit_due() || self.receiver.credit_due();
        assert!(!due, "credit goes to and fro");
    }
}

// rows: Z7
#[test]
fn streams_keep_their_reserve() {
    for credit in [MIN_CREDIT, 33, 64, 1000] {
        let mut flow = LinkFlow::starting_at(1 << 20, credit, u32::MAX - 10).unwrap();
        let mut sent = 0;
        while has_room(&flow, 1) {
            flow.sending();
            sent += 1;
        }
        assert_eq!(sent, credit - CONTROL_RESERVE - credit / 8);
        assert_eq!(flow.available(false), credit / 8);
        // Each SEND that the peer frees makes room for another one.
        let start = (u32::MAX - 10).wrapping_add(credit);
        for freed in 1..=sent {
            flow.arrived(start.wrapping_add(freed)).unwrap();
            assert!(has_room(&flow, freed));
            assert!(!has_room(&flow, freed + 1), "all of it, or nothing");
        }
    }
}

// rows: Z7
#[test]
fn streams_take_room_from_datagrams() {
    let mut flow = LinkFlow::new(64, 64).unwrap();
    for _ in 0..40 {
        flow.sending();
    }
    let left = 64 - 40 - CONTROL_RESERVE - for_streams(64);
    assert!(has_room(&flow, left));
    assert!(!has_room(&flow, left + 1));
    assert!(!has_room(&flow, u32::MAX));
}

/// With any credit at both ends, and as much unread data of streams as the peer keeps in blocks, the
/// longest datagram has room whenever nothing is in flight, whatever was sent before.
// rows: Z7 Z5 B11
#[test]
fn the_longest_datagram_always_has_room() {
    for ours in MIN_CREDIT..=64 {
        for theirs in MIN_CREDIT..=64 {
            let most = held_most(theirs);
            assert!((1..=theirs / 2).contains(&most));
            for held in [0, 1, most / 2, most - 1, most] {
                let mut link = Link::new(ours, theirs);
                let fits = |link: &mut Link, what: &str, n: u32| {
                    let room = link.has_room(FRAGMENTS_MAX);
                    let left = link.sender.left_to_us();
                    let at = format!("credit {ours} and {theirs}, {held} unread, {left} left");
                    assert!(room, "{at}: {what} {n}");
                };
                for n in 0..held {
                    link.data(true);
                    fits(&mut link, "data of a stream", n);
                }
                for n in 0..3 * theirs {
                    link.data(false);
                    fits(&mut link, "datagrams", n);
                }
                for n in 0..held {
                    link.read();
                    fits(&mut link, "reads", n);
                }
            }
        }
    }
}

/// Control messages that were on their way when the peer answered: their credit comes back for the
/// longest datagram, too.
// rows: Z7 Z5
#[test]
fn control_messages_behind_the_ask() {
    for behind in 0..6 {
        let mut link = Link::new(MIN_CREDIT, MIN_CREDIT);
        (0..16).for_each(|_| {
            link.sender.sending();
        });
        let new = |flow: &mut LinkFlow, n: u32| {
            (0..n).for_each(|_| flow.arrived(MIN_CREDIT.wrapping_sub(101)).unwrap())
        };
        new(&mut link.receiver, 16);
        link.receiver.reposted_many(16 - held_most(MIN_CREDIT));
        assert!(!has_room(&link.sender, FRAGMENTS_MAX));
        assert!(link.asking.is_due(&link.sender, true));
        link.sender.sending_control();
        new(&mut link.receiver, 1);
        link.receiver.reposted();
        (0..behind).for_each(|_| {
            link.sender.sending_control();
        });
        let answer = link.receiver.sending_control();
        link.sender.arrived(answer).unwrap();
        new(&mut link.receiver, behind);
        link.receiver.reposted_many(behind);
        assert!(link.has_room(FRAGMENTS_MAX), "{behind} behind");
    }
}

/// A peer is asked once, however often a datagram finds no room, until something is sent; and not
/// at all while there is room.
// rows: Z7 Z8
#[test]
fn a_peer_is_asked_once() {
    let mut link = Link::new(64, 64);
    for _ in 0..10_000 {
        link.data(false);
        assert!(link.has_room(16));
    }
    assert_eq!(link.asked, 0);
    // It leaves more unread than it should.
    (0..45).for_each(|_| link.data(true));
    link.lone = 0;
    for asked in 1..20 {
        for _ in 0..50 {
            assert!(!link.has_room(16));
            assert_eq!(link.asked, asked);
        }
        link.data(false);
    }
}

// rows: Z7
#[test]
fn a_peer_that_grants_more() {
    // Elastic link credit: the allowance grows without anything having been freed.
    let mut flow = LinkFlow::new(64, 32).unwrap();
    flow.arrived(1000u32.wrapping_add(flow.sent())).unwrap();
    assert!(has_room(&flow, 500));
}
