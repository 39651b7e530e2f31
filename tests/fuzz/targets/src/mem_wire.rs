// SPDX-License-Identifier: GPL-2.0

//! The decoders of memory links, against the tables of `Documentation/memory-nodes.rst`.

use zrs_core::mem::payload::{extents, nodes, NodeInfo, RemoteExtent};
use zrs_core::mem::status::Status;
use zrs_core::mem::wire::{MemHeader, Message};
use zrs_core::wire::HEADER_LEN;
use zrs_core::Violation;

use crate::Input;

fn le(b: &[u8], at: usize, n: usize) -> u64 {
    let bytes = b[at..at + n].iter().rev();
    bytes.fold(0, |v, b| (v << 8) | u64::from(*b))
}

/// Name, offset and size of the fields that not every message has.
const FIELDS: [(char, usize, usize); 11] = [
    ('f', 2, 2),
    ('l', 4, 4),
    ('a', 16, 8),
    ('b', 24, 8),
    ('k', 32, 16),
    ('g', 48, 4),
    ('r', 52, 4),
    ('t', 56, 4),
    ('n', 64, 8),
    ('A', 72, 8),
    ('K', 80, 16),
];

/// The fields of asks, and of answers that tell success, by operation.
const OPS: [(&str, &str); 14] = [
    ("", ""),
    ("fabktn", "abnK"),
    ("kn", ""),
    ("kn", "abrtg"),
    ("abkrtnA", "K"),
    ("knK", ""),
    ("kn", ""),
    ("krn", "labgrt"),
    ("g", ""),
    ("lakn", ""),
    ("abkn", "l"),
    ("abg", ""),
    ("abkgrnAK", "b"),
    ("t", ""),
];

/// The fields of a message, or nothing if there is no such message.
fn fields(b: &[u8; HEADER_LEN]) -> Option<&'static str> {
    let (op, status) = (le(b, 12, 2) as usize, le(b, 14, 2));
    let (ask, answer) = *OPS.get(op)?;
    match b[1] {
        48 => Some("lgt"),
        49 => Some(ask),
        50 if status == 0 || op == 12 => Some(answer),
        50 => Some(""),
        51 | 52 => Some("g"),
        _ => None,
    }
}

fn values_are_good(b: &[u8; HEADER_LEN]) -> bool {
    let (op, ok) = (b[12], le(b, 14, 2) == 0);
    let (addr, bytes, addr2) = (le(b, 16, 8), le(b, 24, 8), le(b, 72, 8));
    let (grant, rights, arg) = (le(b, 48, 4), le(b, 52, 4), le(b, 56, 4));
    let unwrapped = addr.checked_add(bytes).is_some();
    match (b[1], op) {
        (48, _) => arg >= 4 && grant != 0,
        (49, 1) => le(b, 2, 2) <= 3,
        (49, 4) => rights < 16 && addr2 <= u64::from(u32::MAX),
        (49, 7) => (1..=3).contains(&rights),
        (49, 8) | (51 | 52, _) => grant != 0,
        (49, 9) => le(b, 4, 4) != 0,
        (49, 10) => (1..=4096).contains(&bytes),
        (49, 11) => grant != 0 && (1..=16 << 20).contains(&bytes) && unwrapped,
        (49, 12) => unwrapped && addr2.checked_add(bytes).is_some(),
        (49, 13) => arg != 0,
        (50, _) if !ok => true,
        (50, 1) => le(b, 84, 4) != 0 && bytes != 0 && unwrapped,
        (50, 3) => rights < 16 && unwrapped,
        (50, 4) => le(b, 84, 4) != 0,
        (50, 7) => {
            grant != 0 && le(b, 4, 4) != 0 && (1..=3).contains(&rights) && arg <= 1 && unwrapped
        }
        (50, 10) => le(b, 4, 4) != 0,
        _ => true,
    }
}

/// Whether a header with `payload` bytes behind it is well-formed.
fn header_is_good(b: &[u8; HEADER_LEN], payload: u32) -> bool {
    let Some(fields) = fields(b) else {
        return false;
    };
    let (id, op) = (le(b, 8, 4), le(b, 12, 2));
    let named = matches!(b[1], 49 | 50);
    let len = le(b, 4, 4);
    b[0] == 1
        && named == (id != 0)
        && named == (op != 0)
        && (b[1] == 50 || le(b, 14, 2) == 0)
        && FIELDS
            .iter()
            .all(|(name, at, n)| fields.contains(*name) || b[*at..at + n].iter().all(|b| *b == 0))
        && len == u64::from(payload)
        && len <= 4096
        && values_are_good(b)
}

fn header(b: &[u8; HEADER_LEN], payload: u32) {
    let decoded = MemHeader::decode(b, payload);
    assert_eq!(decoded.is_ok(), header_is_good(b, payload), "{decoded:?}");
    if b[0] != 1 {
        assert_eq!(decoded, Err(Violation::Version));
    }
    if b[1] >= 48 {
        assert_eq!(Message::decode(b, payload), decoded.map(Message::Mem));
    }
    let Ok(h) = decoded else {
        return;
    };
    let mut known = *b;
    if le(b, 14, 2) >= Status::ALL.len() as u64 {
        assert_eq!(h.status, Status::Io);
        known[14..16].copy_from_slice(&[13, 0]);
    }
    assert_eq!(h.encode(), known, "one message has one encoding");
    assert_eq!(
        (u64::from(h.id), u64::from(h.link_credit)),
        (le(b, 8, 4), le(b, 60, 4))
    );
    assert_eq!(
        (h.addr, h.bytes, h.addr2),
        (le(b, 16, 8), le(b, 24, 8), le(b, 72, 8))
    );
    assert_eq!((h.key.secret, h.key2.secret), (le(b, 40, 8), le(b, 88, 8)));
    assert_eq!(
        (u64::from(h.node.domain), u64::from(h.node.node)),
        (le(b, 64, 4), le(b, 68, 4))
    );
}

fn hello_payload(b: &[u8]) {
    let whole = b.len() % 48 == 0 && b.len() <= 16 * 48;
    let decoded = nodes(b);
    assert_eq!(decoded.is_ok(), whole);
    let Ok(decoded) = decoded else {
        return;
    };
    for (info, b) in decoded.zip(b.chunks(48)) {
        let good = le(b, 40, 8) == 0 && le(b, 24, 8) <= le(b, 16, 8) && le(b, 36, 4) <= 63;
        assert_eq!(info.is_ok(), good, "{info:?}");
        if let Ok(info) = info {
            assert_eq!(NodeInfo::encode(&info), b);
        }
    }
}

fn open_payload(b: &[u8], bytes: u64) {
    let each = b.chunks(24);
    let whole = b.len() % 24 == 0 && b.len() <= 170 * 24;
    let mut sum = Some(0_u64);
    let mut good = whole;
    for e in each.filter(|_| whole) {
        let (iova, len) = (le(e, 0, 8), le(e, 8, 8));
        good &= len != 0 && iova.checked_add(len).is_some() && le(e, 20, 4) == 0;
        sum = sum.and_then(|s| s.checked_add(len));
    }
    let decoded = extents(b, bytes);
    assert_eq!(decoded.is_ok(), good && sum == Some(bytes));
    if let Ok(decoded) = decoded {
        let back: Vec<u8> = decoded.flat_map(|e| RemoteExtent::encode(&e)).collect();
        assert_eq!(back, b);
    }
}

/// A header as it should be, but for a few bytes.
fn nearly_good_header(input: &mut Input<'_>) -> ([u8; HEADER_LEN], u32) {
    let mut b = input.bytes::<HEADER_LEN>();
    let kind = 48 + b[1] % 5;
    let named = matches!(kind, 49 | 50);
    let op = if named { 1 + b[12] % 13 } else { 0 };
    b[..2].copy_from_slice(&[1, kind]);
    b[12..14].copy_from_slice(&[op, 0]);
    b[14] = if kind == 50 { b[14] % 24 } else { 0 };
    b[15] = 0;
    if !named {
        b[8..12].fill(0);
    }
    let mine = fields(&b).unwrap_or_default();
    for (name, at, n) in FIELDS {
        if !mine.contains(name) {
            b[at..at + n].fill(0);
        } else if matches!(name, 'l' | 'b' | 'r') {
            // Small, so that most are in their limits.
            b[at + n.min(2) - 1..at + n].fill(0);
        }
    }
    for _ in 0..input.u8() % 4 {
        let at = input.below(b.len());
        b[at] = input.u8();
    }
    let more = u32::from(input.u8() == 1);
    (b, (le(&b, 4, 4) as u32).wrapping_add(more))
}

/// A header with a payload's length, or a payload; any, or nearly as they should be.
pub fn mem_wire(data: &[u8]) {
    let mut input = Input(data);
    match input.u8() % 8 {
        0 => hello_payload(input.0),
        1 => {
            let bytes = input.u64();
            open_payload(input.0, bytes);
        }
        2 => {
            // Extents whose lengths add up.
            let mut b = input.0[..input.0.len() / 24 * 24].to_vec();
            let mut sum = 0;
            for e in b.chunks_mut(24) {
                e[6..8].fill(0);
                e[10..16].fill(0);
                e[20..].fill(0);
                sum += le(e, 8, 8);
            }
            open_payload(&b, sum);
        }
        how @ 3..=4 => {
            let some = input.u32();
            let b = input.bytes::<HEADER_LEN>();
            header(&b, if how == 3 { le(&b, 4, 4) as u32 } else { some });
        }
        _ => {
            let (b, payload) = nearly_good_header(&mut input);
            header(&b, payload);
        }
    }
}
