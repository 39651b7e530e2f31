// SPDX-License-Identifier: GPL-2.0

//! The messages against the tables of `Documentation/memory-nodes.rst`.

use proptest::prelude::*;
use zrs_core::mem::id::{Key, NodeId};
use zrs_core::mem::payload::{
    extents, nodes, NodeInfo, RemoteExtent, EXTENTS_MAX, NODES_MAX, NODE_DRAINING,
};
use zrs_core::mem::status::Status;
use zrs_core::mem::wire::{MemHeader, Message, Op, PART_MAX};
use zrs_core::wire::{Header, Type as StreamType, HEADER_LEN};
use zrs_core::{ChanId, Violation};

type Bytes = [u8; HEADER_LEN];

/// Offset and size of each field that a type or operation may leave empty.
const FIELDS: [(&str, usize, usize); 11] = [
    ("flags", 2, 2),
    ("len", 4, 4),
    ("addr", 16, 8),
    ("bytes", 24, 8),
    ("key", 32, 16),
    ("grant", 48, 4),
    ("rights", 52, 4),
    ("arg", 56, 4),
    ("node", 64, 8),
    ("addr2", 72, 8),
    ("key2", 80, 16),
];

/// The fields of asks and of successful answers, as the documentation lists them.
const ASKS: [(Op, &str, &str); 13] = [
    (
        Op::Alloc,
        "flags addr bytes key arg node",
        "addr bytes node key2",
    ),
    (Op::Free, "key node", ""),
    (Op::Info, "key node", "addr bytes rights arg grant"),
    (Op::Key, "addr bytes key rights arg node addr2", "key2"),
    (Op::Unkey, "key node key2", ""),
    (Op::Seal, "key node", ""),
    (
        Op::Open,
        "key rights node",
        "len addr bytes grant rights arg",
    ),
    (Op::Close, "grant", ""),
    (Op::Put, "len addr key node", ""),
    (Op::Get, "addr bytes key node", "len"),
    (Op::Wrote, "addr bytes grant", ""),
    (
        Op::Copy,
        "addr bytes key grant rights node addr2 key2",
        "bytes",
    ),
    (Op::Cancel, "arg", ""),
];

fn has(fields: &str, name: &str) -> bool {
    fields.split(' ').any(|f| f == name)
}

/// A good message of that kind: 49 ask, 50 answer.
fn good(kind: u8, op: Op) -> (Bytes, u32) {
    let mut b = [0; HEADER_LEN];
    b[..2].copy_from_slice(&[1, kind]);
    b[8] = 9;
    b[12] = op as u8;
    let (_, ask, answer) = ASKS[op as usize - 1];
    let fields = if kind == 49 { ask } else { answer };
    for (name, at, _) in FIELDS {
        b[at] = u8::from(has(fields, name));
    }
    // The generation of a key is not 0, its number is anything.
    if has(fields, "key2") {
        b[84] = 1;
    }
    (b, u32::from(b[4]))
}

// rows: M1 M2 M4
#[test]
fn every_field_has_its_place() {
    let h = MemHeader {
        bytes: 0x100_0000,
        addr: 0x1122_3344_5566_7788,
        key: Key {
            region: 1,
            gen: 2,
            secret: 3,
        },
        link_credit: 0x77,
        node: NodeId { domain: 4, node: 5 },
        addr2: 6,
        key2: Key {
            region: 7,
            gen: 8,
            secret: 9,
        },
        ..MemHeader::ask(0xabcd, Op::Copy)
    };
    let h = h.with_source_node(NodeId {
        domain: 0x1a,
        node: 0x1b,
    });
    let b = h.encode();
    let le = |at: usize, n: usize| {
        b[at..at + n]
            .iter()
            .rev()
            .fold(0_u64, |v, b| (v << 8) | u64::from(*b))
    };
    assert_eq!(b[..4], [1, 49, 0, 0]);
    assert_eq!(
        (le(4, 4), le(8, 4), le(12, 2), le(14, 2)),
        (0, 0xabcd, 12, 0)
    );
    assert_eq!((le(16, 8), le(24, 8)), (0x1122_3344_5566_7788, 0x100_0000));
    assert_eq!((le(32, 4), le(36, 4), le(40, 8)), (1, 2, 3));
    assert_eq!(
        (le(48, 4), le(52, 4), le(56, 4), le(60, 4)),
        (0x1a, 0x1b, 0, 0x77)
    );
    assert_eq!((le(64, 4), le(68, 4), le(72, 8)), (4, 5, 6));
    assert_eq!((le(80, 4), le(84, 4), le(88, 8)), (7, 8, 9));
    let back = MemHeader::decode(&b, 0).unwrap();
    assert_eq!(
        (back, back.source_node().domain, back.source_node().node),
        (h, 0x1a, 0x1b)
    );
}

// rows: M4
#[test]
fn a_message_has_its_own_fields_and_no_others() {
    for (op, ask, answer) in ASKS {
        for (kind, fields) in [(49, ask), (50, answer)] {
            let (b, payload) = good(kind, op);
            let decoded = MemHeader::decode(&b, payload);
            assert_eq!(decoded.map(|h| h.encode()), Ok(b), "{op:?} {kind}");
            for (name, at, size) in FIELDS.into_iter().filter(|f| !has(fields, f.0)) {
                for byte in at..at + size {
                    let mut b = b;
                    b[byte] |= 0x80;
                    let payload = u32::from_le_bytes(b[4..8].try_into().unwrap());
                    let want = Err(Violation::Reserved);
                    assert_eq!(MemHeader::decode(&b, payload), want, "{op:?} {kind} {name}");
                }
            }
            // A failure tells nothing but itself; COPY tells how much has landed.
            let mut b = b;
            b[14] = Status::Stale as u8;
            if kind == 49 {
                assert_eq!(MemHeader::decode(&b, payload), Err(Violation::Reserved));
            } else if !fields.is_empty() && op != Op::Copy {
                assert_eq!(
                    MemHeader::decode(&b, payload),
                    Err(Violation::Reserved),
                    "{op:?}"
                );
            } else {
                assert!(MemHeader::decode(&b, payload).is_ok());
            }
        }
    }
}

// rows: M4
#[test]
fn values_are_in_their_limits() {
    let bad = |op: Op, kind: u8, at: usize, v: &[u8]| {
        let (mut b, payload) = good(kind, op);
        b[at..at + v.len()].copy_from_slice(v);
        let payload = if at == 4 { b[4].into() } else { payload };
        MemHeader::decode(&b, payload)
    };
    let length = Err(Violation::Length);
    assert_eq!(bad(Op::Put, 49, 4, &[0]), length, "no bytes");
    assert_eq!(bad(Op::Get, 49, 24, &[1, 0x10]), length, "4097 bytes");
    assert_eq!(
        bad(Op::Wrote, 49, 24, &(PART_MAX + 1).to_le_bytes()),
        length
    );
    assert_eq!(bad(Op::Wrote, 49, 16, &[0xff; 8]), length, "wraps");
    assert_eq!(bad(Op::Copy, 49, 72, &[0xff; 8]), length, "wraps");
    assert_eq!(
        bad(Op::Open, 49, 52, &[4]),
        length,
        "no right of remote keys"
    );
    assert_eq!(bad(Op::Open, 50, 56, &[2]), length);
    assert_eq!(bad(Op::Key, 49, 52, &[16]), length, "unknown right");
    assert_eq!(bad(Op::Key, 49, 76, &[1]), length, "more than 2^32 uses");
    assert_eq!(bad(Op::Alloc, 49, 2, &[4]), length, "unknown flag");
    assert_eq!(bad(Op::Alloc, 50, 84, &[0]), length, "generation 0");
    assert_eq!(bad(Op::Cancel, 49, 56, &[0]), length, "no number");
    // What a program may ask for is the node's to answer.
    assert!(bad(Op::Copy, 49, 24, &[0; 8]).is_ok());
    let (b, _) = good(49, Op::Put);
    assert_eq!(MemHeader::decode(&b, 2), length, "another length behind it");
    let mut long = b;
    long[4..8].copy_from_slice(&4097_u32.to_le_bytes());
    assert_eq!(MemHeader::decode(&long, 4097), length);
}

// rows: M4
#[test]
fn versions_types_operations() {
    let (b, _) = good(49, Op::Free);
    let with = |at: usize, v: u8| {
        let mut b = b;
        b[at] = v;
        MemHeader::decode(&b, 0)
    };
    for v in (0..=255).filter(|v| *v != 1) {
        assert_eq!(with(0, v), Err(Violation::Version));
    }
    for v in (0..=255).filter(|v| !(48..=52).contains(v)) {
        assert_eq!(with(1, v), Err(Violation::Type), "type {v}");
    }
    for v in [0].into_iter().chain(14..=255) {
        assert_eq!(with(12, v), Err(Violation::Type), "operation {v}");
    }
    assert_eq!(with(8, 0), Err(Violation::Type), "no number");
    // An unknown status is that of a later host.
    let mut b = MemHeader::answer(3, Op::Free, Status::Ok).encode();
    b[14..16].copy_from_slice(&[0xff, 0xee]);
    assert_eq!(MemHeader::decode(&b, 0).map(|h| h.status), Ok(Status::Io));
}

// rows: M4
#[test]
fn types_without_operation() {
    for h in [
        MemHeader::hello(64, 1024, 96),
        MemHeader::revoke(5),
        MemHeader::revoke(5).because(Status::Sealed),
        MemHeader::revoked(6),
    ] {
        let b = h.encode();
        assert_eq!(MemHeader::decode(&b, h.len), Ok(h));
        for at in [8, 12] {
            let mut b = b;
            b[at] = 1;
            assert_eq!(MemHeader::decode(&b, h.len), Err(Violation::Type), "{h:?}");
        }
        let mut b = b;
        b[48] = 0;
        b[49] = 0;
        assert_eq!(
            MemHeader::decode(&b, h.len),
            Err(Violation::Length),
            "{h:?}"
        );
    }
}

// rows: M4 M5
#[test]
fn a_revoke_tells_of_a_seal_and_of_nothing_else() {
    for status in Status::ALL {
        let plain = MemHeader::revoke(5);
        let told = plain.because(status);
        let seal = status == Status::Sealed;
        assert_eq!(
            (told == plain, told.status == status),
            (!seal, seal || status == Status::Ok)
        );
        for h in [plain, MemHeader::revoked(5)] {
            let mut b = h.encode();
            b[14] = status as u8;
            let good = status == Status::Ok || (seal && h == plain);
            assert_eq!(MemHeader::decode(&b, 0).is_ok(), good, "{status:?}");
        }
    }
}

// rows: M4
#[test]
fn no_stream_on_a_memory_link() {
    let none = ChanId::default();
    for kind in [StreamType::LinkCredit, StreamType::Heartbeat] {
        let mut h = Header::new(kind, none, none);
        h.link_credit = 5;
        let m = Message::decode(&h.encode(), 0).unwrap();
        assert_eq!((m, m.link_credit()), (Message::Link(h), 5));
    }
    for (kind, len) in [(StreamType::Challenge, 32), (StreamType::Proof, 64)] {
        let mut h = Header::new(kind, none, none);
        h.len = len;
        let b = h.encode();
        assert_eq!(Message::decode(&b, len), Ok(Message::Link(h)));
        assert_eq!(Message::decode(&b, len - 1), Err(Violation::Length));
    }
    let chan = ChanId { index: 1, gen: 1 };
    let credit = Header::new(StreamType::Credit, chan, chan);
    assert_eq!(Message::decode(&credit.encode(), 0), Err(Violation::Type));
    let revoke = MemHeader::revoke(1);
    assert_eq!(
        Message::decode(&revoke.encode(), 0),
        Ok(Message::Mem(revoke))
    );
    assert_eq!(
        Header::decode(&revoke.encode(), 0),
        Err(Violation::Type),
        "nor the other way"
    );
}

fn info(n: u32) -> NodeInfo {
    NodeInfo {
        node: NodeId { domain: 1, node: n },
        incarnation: 0x1234_5678_9abc_def0,
        bytes: 8 << 30,
        free: 1 << 30,
        state: NODE_DRAINING,
        page_shift: 21,
    }
}

// rows: M1
#[test]
fn nodes_in_a_hello() {
    let all: Vec<_> = (0..NODES_MAX as u32).map(info).collect();
    let bytes: Vec<u8> = all.iter().flat_map(NodeInfo::encode).collect();
    let back: Result<Vec<_>, _> = nodes(&bytes).unwrap().collect();
    assert_eq!(back.as_ref(), Ok(&all));
    assert!(nodes(&bytes[1..]).is_err(), "no whole number of them");
    let more = [&bytes[..], &info(99).encode()].concat();
    assert!(nodes(&more).is_err(), "more than there may be");
    let mut b = info(1).encode();
    b[40] = 1;
    assert_eq!(NodeInfo::decode(&b), Err(Violation::Reserved));
    let impossible = NodeInfo {
        free: 9 << 30,
        ..info(1)
    };
    assert_eq!(
        NodeInfo::decode(&impossible.encode()),
        Err(Violation::Length)
    );
}

// rows: M3
#[test]
fn extents_of_a_grant() {
    let all: Vec<_> = (0..EXTENTS_MAX as u64)
        .map(|n| RemoteExtent {
            iova: n << 32,
            len: n + 1,
            rkey: n as u32 * 7,
        })
        .collect();
    let total = all.iter().map(|e| e.len).sum();
    let bytes: Vec<u8> = all.iter().flat_map(RemoteExtent::encode).collect();
    assert!(bytes.len() <= 4096);
    assert!(extents(&bytes, total).unwrap().eq(all.iter().copied()));
    assert!(extents(&bytes, total - 1).is_err());
    assert!(extents(&bytes, total + 1).is_err());
    assert!(extents(&bytes[..bytes.len() - 1], total).is_err());
    let more = [&bytes[..], &bytes[..24]].concat();
    assert!(extents(&more, total + 1).is_err(), "more than there may be");
    for bad in [
        RemoteExtent { len: 0, ..all[0] },
        RemoteExtent {
            iova: u64::MAX,
            ..all[0]
        },
    ] {
        assert!(extents(&bad.encode(), bad.len).is_err());
    }
    let mut reserved = all[0].encode();
    reserved[23] = 1;
    assert_eq!(RemoteExtent::decode(&reserved), Err(Violation::Reserved));
}

proptest! {
    // rows: M4
    #[test]
    fn one_message_has_one_encoding(
        kind in 48u8..=52, op in 0u8..=14, noise in prop::collection::vec((0usize..96, any::<u8>()), 0..6),
    ) {
        let mut b = if kind <= 50 && (1..=13).contains(&op) && kind > 48 {
            good(kind, Op::ALL[op as usize - 1]).0
        } else {
            MemHeader::revoke(1).encode()
        };
        b[1] = kind;
        for (at, v) in noise {
            b[at] = v;
        }
        let payload = u32::from_le_bytes(b[4..8].try_into().unwrap());
        if let Ok(h) = MemHeader::decode(&b, payload) {
            if h.status != Status::Io {
                prop_assert_eq!(h.encode(), b);
            }
            prop_assert_eq!(MemHeader::decode(&h.encode(), payload), Ok(h));
        }
    }
}
