// SPDX-License-Identifier: GPL-2.0

//! A peer that says anything: nothing panics, and nothing that it says takes the accounts out of
//! their bounds.

use std::collections::VecDeque;

use proptest::prelude::*;
use zrs_core::channel::{Event, Failure, Limits, Plan, State};
use zrs_core::wire::{Header, Type, CHUNK_MAX, SMALL_MAX};

use super::*;
use common::headers::valid_header;

/// So little that a peer soon gets to the end of it.
const TIGHT: Limits = Limits {
    msgs: 12,
    small: 4 * SMALL_MAX,
};

/// The books of an auditor that sees everything that goes in and out.
#[derive(Default)]
struct Books {
    /// Messages and bytes of DATA that were accepted, and of these not freed.
    msgs: u32,
    small: u64,
    unread: VecDeque<(u32, u32)>,
    rx_pos: u64,
    /// Of our current lease: size, bytes written, unread bytes by offset.
    size: u64,
    written: u64,
    lease: u32,
    /// The peer's window: address and size.
    peer: Option<(u64, u32)>,
    tx_pos: u64,
    last_word: bool,
    leases: u32,
}

/// The next step of the peer or of this side.
#[derive(Clone, Debug)]
enum Step {
    Peer {
        h: Header,
        /// Which fields are put right, so that more than the first check is reached.
        right: u64,
        near: i8,
    },
    Send(u32, bool),
    Free,
    Grant(u32, u64),
    Deny,
    Revoke,
    Say,
    ShutWrite,
    ShutRead,
    Shut(bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (valid_header(), any::<u64>(), -2_i8..3)
            .prop_map(|(h, right, near)| Step::Peer { h, right, near }),
        4 => (1_u32..300_000, any::<bool>()).prop_map(|(n, bulk)| Step::Send(n, bulk)),
        3 => Just(Step::Free),
        2 => (60_000_u32..200_000, any::<u64>()).prop_map(|(s, a)| Step::Grant(s, a)),
        1 => Just(Step::Deny),
        1 => Just(Step::Revoke),
        6 => Just(Step::Say),
        1 => prop_oneof![
            6 => Just(Step::ShutWrite),
            2 => Just(Step::ShutRead),
            2 => any::<bool>().prop_map(Step::Shut),
        ],
    ]
}

impl Books {
    /// Puts the fields of a message right that `right` names, which is most of them: the first
    /// one that is wrong ends the link.
    fn put_right(&self, h: &mut Header, right: u64, near: i8) {
        let bit = |n: u64| (right >> (5 * n)) & 31 != 0;
        (h.dst, h.src) = (id(20, 2), id(10, 1));
        let often = [Type::Data, Type::Written, Type::Credit, Type::WindowGrant];
        if bit(0) && !often.contains(&h.kind) {
            h.kind = if right & 1 == 0 {
                Type::Data
            } else {
                Type::Written
            };
            h.len = h.arg0;
        }
        if bit(1) {
            h.pos = self.rx_pos;
        }
        if bit(2) {
            h.credit = Default::default();
        }
        if bit(3) {
            (h.woff, h.arg0, h.lease) = (self.written, self.lease, 1);
        }
        if bit(4) && h.kind == Type::WindowGrant {
            h.arg1 = 65536 + (h.arg1 & 0xffff);
        }
        match h.kind {
            Type::Data => h.len = h.len % SMALL_MAX + 1,
            Type::Written => {
                let to_end = self.size - self.written.checked_rem(self.size).unwrap_or(0);
                h.len = (h.len % 60_000 + 1).min(to_end.max(1) as u32);
            }
            _ => {}
        }
        let wobble = |v: u64| v.wrapping_add_signed(i64::from(near));
        match right >> 56 {
            0..5 => h.pos = wobble(self.rx_pos),
            5..10 => h.woff = wobble(self.written),
            10..15 => h.credit.msgs = wobble(0) as u32,
            _ => {}
        }
    }

    fn peer_says(&mut self, c: &mut Channel, h: &Header) -> Result<bool, TestCaseError> {
        let before = c.state();
        let Ok(event) = c.on_message(h) else {
            // The link is closed now.
            c.abort(Failure::Protocol);
            prop_assert_eq!(c.state(), State::Closed);
            return Ok(false);
        };
        if before == State::Closed {
            prop_assert_eq!(event, Event::None);
            return Ok(true);
        }
        if matches!(h.kind, Type::Data | Type::Written) {
            prop_assert_eq!(h.pos, self.rx_pos);
            self.rx_pos += u64::from(h.len);
            self.msgs += 1;
        }
        match event {
            Event::Data => {
                prop_assert_eq!(h.kind, Type::Data);
                self.small += u64::from(h.len);
                self.unread.push_back((0, h.len));
            }
            Event::Written { off, .. } => {
                prop_assert_eq!(u64::from(off), self.written % self.size);
                prop_assert!(u64::from(off) + u64::from(h.len) <= self.size);
                self.written += u64::from(h.len);
                self.unread.push_back((h.len, 0));
            }
            Event::Unwanted if h.kind == Type::Written => self.written += u64::from(h.len),
            Event::Unwanted => self.small += u64::from(h.len),
            Event::Revoked => prop_assert!(c.window_size().is_none()),
            Event::Room if h.kind == Type::WindowGrant && h.arg1 != 0 => {
                self.peer = Some((h.arg2, h.arg1));
            }
            Event::Room if h.kind == Type::WindowRevoke => self.peer = None,
            _ => {}
        }
        // Unread data never exceeds the granted room.
        let unread =
            |f: fn(&(u32, u32)) -> u32| self.unread.iter().map(f).map(u64::from).sum::<u64>();
        prop_assert!(self.unread.len() as u32 <= TIGHT.msgs);
        prop_assert!(unread(|u| u.1) <= u64::from(TIGHT.small));
        prop_assert!(unread(|u| u.0) <= self.size);
        Ok(true)
    }

    fn send(&mut self, c: &mut Channel, want: u32, bulk: bool) -> Result<(), TestCaseError> {
        let plan = c.plan(want, bulk);
        let Some(chunk) = c.commit(plan) else {
            prop_assert_eq!(plan, Plan::Wait);
            return Ok(());
        };
        let h = over_the_wire(&chunk.header);
        prop_assert!(!self.last_word);
        prop_assert_eq!((h.pos, h.dst, h.src), (self.tx_pos, id(10, 1), id(20, 2)));
        prop_assert!(h.len <= want);
        self.tx_pos += u64::from(h.len);
        if let Some((to, _)) = chunk.write_to {
            let Some((addr, size)) = self.peer else {
                return Err(TestCaseError::fail("a WRITE into no window"));
            };
            prop_assert!(to >= addr && h.len <= CHUNK_MAX);
            prop_assert!(to - addr + u64::from(h.len) <= u64::from(size));
        } else {
            prop_assert!(h.len <= SMALL_MAX);
        }
        self.check_credit(&h)
    }

    /// We never claim to have freed more than has arrived.
    fn check_credit(&self, h: &Header) -> Result<(), TestCaseError> {
        prop_assert!(h.credit.msgs <= self.msgs);
        prop_assert!(h.credit.small <= self.small);
        if h.lease != 0 && h.kind != Type::WindowGrant {
            prop_assert!(h.credit.window <= self.written);
        }
        Ok(())
    }

    fn take(&mut self, c: &mut Channel, step: Step) -> Result<bool, TestCaseError> {
        match step {
            Step::Peer { mut h, right, near } => {
                self.put_right(&mut h, right, near);
                return self.peer_says(c, &h);
            }
            Step::Send(n, bulk) => self.send(c, n, bulk)?,
            Step::Free => {
                if let Some((window, small)) = self.unread.pop_front() {
                    c.freed(window, small);
                }
            }
            Step::Grant(size, addr) => {
                if c.grant(size, addr, 1) {
                    prop_assert!(self.unread.iter().all(|u| u.0 == 0));
                    self.leases += 1;
                    (self.size, self.written, self.lease) = (u64::from(size), 0, self.leases);
                }
            }
            Step::Deny => c.deny(),
            Step::Revoke => _ = c.revoke(),
            Step::Say => {
                let had = c.has_pending_control();
                let said = say(c);
                prop_assert_eq!(said.is_some(), had);
                if let Some(h) = said {
                    prop_assert!(!self.last_word, "after the last word: {:?}", h);
                    self.last_word = matches!(h.kind, Type::End | Type::Reset);
                    if h.kind != Type::Accept {
                        self.check_credit(&h)?;
                    }
                }
            }
            Step::ShutWrite => c.shut_write(),
            Step::ShutRead => c.shut_read(),
            Step::Shut(unread) => c.shut(unread),
        }
        Ok(true)
    }
}

/// Freed room belongs to the peer when it is announced, not before: a peer that uses room before
/// the announcement knows more than it can. Else freed and unannounced room could grow beyond all
/// bounds.
// rows: B11 L3 Z5
#[test]
fn more_than_it_was_told() {
    let data = |n: u64| {
        let mut h = Header::new(Type::Data, id(20, 2), id(10, 1));
        (h.pos, h.len) = (n * u64::from(SMALL_MAX), SMALL_MAX);
        h
    };
    let (_, mut c) = pair_with(LIMITS, TIGHT);
    for n in 0..4 {
        assert_eq!(c.on_message(&data(n)), Ok(Event::Data));
        c.freed(0, SMALL_MAX);
    }
    assert_eq!(c.on_message(&data(4)), Err(Violation::Credit));
    assert_eq!(say_a(&mut c, Type::Credit).credit.msgs, 4);
    assert_eq!(c.on_message(&data(4)), Ok(Event::Data));

    let (_, mut c) = pair_with(LIMITS, TIGHT);
    let one = |n: u32| {
        let mut h = Header::new(Type::Data, id(20, 2), id(10, 1));
        (h.pos, h.len) = (n.into(), 1);
        h
    };
    for n in 0..TIGHT.msgs {
        assert_eq!(c.on_message(&one(n)), Ok(Event::Data));
        c.freed(0, 1);
    }
    assert_eq!(c.on_message(&one(TIGHT.msgs)), Err(Violation::Credit));

    let (mut a, mut c) = pair();
    lease(&mut c, &mut a, 65536, 0, 1);
    let written = |n: u32| {
        let mut h = Header::new(Type::Written, id(20, 2), id(10, 1));
        (h.len, h.arg0, h.lease) = (32768, 1, 1);
        h.pos = u64::from(n) * 32768;
        h.woff = h.pos;
        h
    };
    for n in 0..2 {
        assert!(c.on_message(&written(n)).is_ok());
        c.freed(32768, 0);
    }
    assert_eq!(c.on_message(&written(2)), Err(Violation::Credit));
    say_a(&mut c, Type::Credit);
    assert!(c.on_message(&written(2)).is_ok());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    // rows: B11
    #[test]
    fn anything_from_the_peer(steps in prop::collection::vec(step(), 1..80)) {
        let (_, mut c) = pair_with(LIMITS, TIGHT);
        let mut books = Books::default();
        for step in steps {
            if !books.take(&mut c, step)? {
                break;
            }
        }
    }

    /// Nothing is put right: most of it is refused, none of it panics, in any state.
    // rows: B11
    #[test]
    fn random_headers(headers in prop::collection::vec(valid_header(), 1..30), start in 0_u8..4) {
        let connect = say_a(&mut connecting(LIMITS), Type::Connect);
        let mut c = match start {
            0 => connecting(LIMITS),
            1 => Channel::accept(id(20, 2), &connect, LIMITS).expect("accepted"),
            2 => pair().0,
            _ => {
                let mut c = connecting(LIMITS);
                say_a(&mut c, Type::Connect);
                c
            }
        };
        for h in headers {
            let _ = Channel::accept(id(1, 1), &h, LIMITS);
            match c.on_message(&h) {
                Ok(Event::Data) => c.freed(0, h.len),
                Ok(Event::Written { pad, .. }) => c.freed(h.len + pad, 0),
                _ => {}
            }
            let _ = c.plan(5000, true);
            while say(&mut c).is_some() {}
        }
    }
}
