// SPDX-License-Identifier: GPL-2.0

//! Datagrams: their messages against the tables of `Documentation/protocol.rst`, and the fragments
//! of two links on their way into one socket against lists.

use std::collections::VecDeque;
use std::net::Ipv4Addr;

use zrs_core::addr::{Addr, Ip};
use zrs_core::dgram::assembly::{Arrived, Assembly};
use zrs_core::dgram::rx_queue::{Datagram, RxQueue, OVERHEAD};
use zrs_core::dgram::wire::{fragments, DgramHeader, Fragment, Message, Ports, FEATURE};
use zrs_core::wire::HEADER_LEN;
use zrs_core::Violation;

use crate::Input;

fn le(b: &[u8], at: usize, n: usize) -> u64 {
    let bytes = b[at..at + n].iter().rev();
    bytes.fold(0, |v, b| (v << 8) | u64::from(*b))
}

/// Whether a header with `payload` bytes behind it is well-formed.
fn header_is_good(b: &[u8; HEADER_LEN], payload: u32) -> bool {
    let (len, total, offset) = (le(b, 4, 4), le(b, 24, 8), le(b, 32, 8));
    let fragment = total <= 65_527
        && offset <= total
        && offset % 4096 == 0
        && (len == 4096 && offset + len <= total || len < 4096 && offset + len == total)
        && (len != 0 || total == 0);
    b[0] == 1
        && b[2..4] == [0, 0]
        && b[8..24].iter().all(|b| *b == 0)
        && b[84..].iter().all(|b| *b == 0)
        && len == u64::from(payload)
        && match b[1] {
            32 => fragment,
            33 | 34 => len == 0,
            _ => false,
        }
}

fn header(b: &[u8; HEADER_LEN], payload: u32) {
    let decoded = DgramHeader::decode(b, payload);
    assert_eq!(decoded.is_ok(), header_is_good(b, payload), "{decoded:?}");
    if b[0] != 1 {
        assert_eq!(decoded, Err(Violation::Version));
    }
    if (32..48).contains(&b[1]) {
        // Answers come from the acceptor, all else from the connector.
        let connectors = b[1] != 34;
        let right = Message::decode(b, payload, FEATURE, connectors);
        assert_eq!(right, decoded.map(Message::Dgram));
        assert!(Message::decode(b, payload, FEATURE, !connectors).is_err());
        assert!(Message::decode(b, payload, !FEATURE, connectors).is_err());
    }
    let Ok(h) = decoded else {
        return;
    };
    let mut known = *b;
    // Fields without meaning.
    known[40..60].fill(0);
    known[72..84].fill(0);
    if b[1] != 32 {
        known[24..40].fill(0);
    }
    if b[1] == 33 {
        known[68..72].fill(0);
    }
    assert_eq!(h.encode(), known);
    assert_eq!(u64::from(h.link_credit), le(b, 60, 4));
}

/// A header as it should be, but for a few bytes.
fn nearly_good_header(input: &mut Input<'_>) -> ([u8; HEADER_LEN], u32) {
    let mut b = input.bytes::<HEADER_LEN>();
    let kind = 32 + b[1] % 3;
    b[..4].copy_from_slice(&[1, kind, 0, 0]);
    b[8..24].fill(0);
    b[84..].fill(0);
    let total = le(&b, 24, 2) % 65_528;
    let offset = le(&b, 32, 2) / 4096 * 4096;
    b[24..40].fill(0);
    b[24..28].copy_from_slice(&(total as u32).to_le_bytes());
    b[32..36].copy_from_slice(&(offset as u32).to_le_bytes());
    let len = total.saturating_sub(offset).min(4096) as u32;
    let len = if b[1] == 32 { len } else { 0 };
    b[4..8].copy_from_slice(&len.to_le_bytes());
    for _ in 0..input.u8() % 3 {
        let at = input.below(b.len());
        b[at] = input.u8();
    }
    let more = u32::from(input.u8() == 1);
    (b, (le(&b, 4, 4) as u32).wrapping_add(more))
}

type Queue = RxQueue<Vec<Option<Datagram<Vec<Fragment>>>>>;

fn slots<T>(n: usize) -> Vec<Option<T>> {
    (0..n).map(|_| None).collect()
}

/// A link, and the fragments that it expects.
#[derive(Default)]
struct Link {
    assembly: Assembly<Vec<Fragment>>,
    /// The fragments that are still to come of the last datagram, and whether it is kept.
    rest: VecDeque<Fragment>,
    kept: bool,
}

struct Course {
    queue: Queue,
    rcvbuf: u32,
    /// Lengths of the datagrams in the queue.
    model: VecDeque<u32>,
    drops: u32,
}

impl Course {
    fn charged(&self) -> u64 {
        let all = self.model.iter();
        all.map(|len| u64::from(len + OVERHEAD)).sum()
    }

    fn arrived(&mut self, link: &mut Link, f: &Fragment) {
        let before = self.charged();
        let has_room = before == 0 || before + u64::from(f.total + OVERHEAD) <= self.rcvbuf.into();
        let Link {
            assembly,
            rest,
            kept,
        } = link;
        let begins = rest.is_empty();
        let allowed = rest.front().map_or(f.offset == 0, |next| next == f);
        let (queue, rcvbuf) = (&mut self.queue, self.rcvbuf);
        let mut asked = false;
        let arrived = assembly.arrived(f, || {
            asked = true;
            queue.has_room(f.total, rcvbuf).then(Vec::new)
        });
        if !allowed {
            assert!(matches!(arrived, Err(Violation::Position)));
            assert!(!asked);
            return;
        }
        assert_eq!(asked, begins, "the first fragment is asked for");
        if begins {
            *kept = has_room;
            if !has_room {
                self.queue.count_drop();
                self.drops += 1;
            }
            *rest = fragments(f.ports, f.id, f.total).collect();
        }
        rest.pop_front();
        match arrived.expect("it is allowed") {
            Arrived::Dropped => assert!(!*kept),
            Arrived::Part(fragments) => {
                assert!(*kept && !rest.is_empty());
                fragments.push(*f);
            }
            Arrived::Whole(mut fragments) => {
                assert!(rest.is_empty());
                fragments.push(*f);
                let ip = Ip::from(Ipv4Addr::LOCALHOST);
                let datagram = Datagram {
                    from: Addr::new(ip, f.ports.src),
                    to: ip,
                    len: f.total,
                    born: 0,
                    drops: 0,
                    peeked: false,
                    data: fragments,
                };
                let fits = has_room && self.model.len() < self.queue.slots();
                assert_eq!(self.queue.push(datagram, rcvbuf).is_ok(), fits);
                match fits {
                    true => self.model.push_back(f.total),
                    false => self.drops += 1,
                }
            }
        }
        if rest.is_empty() {
            *kept = false;
        }
    }

    fn lost(&mut self, link: &mut Link) {
        assert_eq!(link.assembly.give_up().is_some(), link.kept);
        *link = Link::default();
    }

    fn read(&mut self) {
        let datagram = self.queue.pop();
        let expected = self.model.pop_front();
        assert_eq!(datagram.as_ref().map(|d| d.len), expected);
        if let Some(d) = datagram {
            let first = d.data[0];
            let all: Vec<Fragment> = fragments(first.ports, first.id, d.len).collect();
            assert_eq!(d.data, all, "each fragment once, and in order");
        }
    }
}

fn any_fragment(input: &mut Input<'_>) -> Fragment {
    let total = [0, 1, 4096, 4097, 8192, 12_289, 65_527][input.below(7)];
    let ports = Ports {
        dst: input.u8().into(),
        src: 1,
    };
    let id = input.u8().into();
    let all: Vec<Fragment> = fragments(ports, id, total).collect();
    all[input.below(all.len())]
}

fn course(input: &mut Input<'_>) {
    let rcvbuf = [0, 5000, 20_000, 212_992][input.below(4)];
    let mut c = Course {
        queue: RxQueue::new(slots(input.below(20))),
        rcvbuf,
        model: VecDeque::new(),
        drops: 0,
    };
    let mut links = [Link::default(), Link::default()];
    while !input.is_empty() {
        let op = input.u8();
        let n = usize::from(op >> 7);
        match op % 16 {
            // Mostly what is expected.
            0..=8 => {
                let next = links[n].rest.front().copied();
                let f = next.unwrap_or_else(|| Fragment {
                    offset: 0,
                    ..any_fragment(input)
                });
                c.arrived(&mut links[n], &f);
            }
            9..=10 => {
                let f = any_fragment(input);
                c.arrived(&mut links[n], &f);
            }
            11 => c.lost(&mut links[n]),
            12 => {
                c.queue.move_to(slots(input.below(40)));
            }
            _ => c.read(),
        }
        assert_eq!(c.queue.charged(), c.charged());
        assert_eq!((c.queue.len(), c.queue.drops()), (c.model.len(), c.drops));
    }
    for link in &mut links {
        c.lost(link);
    }
}

/// A header with a payload's length, or a course of fragments.
pub fn dgram(data: &[u8]) {
    let mut input = Input(data);
    match input.u8() % 4 {
        0 => {
            let b = input.bytes::<HEADER_LEN>();
            let payload = input.u32();
            header(&b, payload);
        }
        1 => {
            let (b, payload) = nearly_good_header(&mut input);
            header(&b, payload);
        }
        _ => course(&mut input),
    }
}
