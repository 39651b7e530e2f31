// SPDX-License-Identifier: GPL-2.0

//! The decoders of the wire, against the tables of `Documentation/protocol.rst`.

use zrs_core::wire::{Agreed, Header, Hello, Versions, HEADER_LEN, HELLO_LEN};
use zrs_core::Violation;

use crate::Input;

fn le32(b: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]])
}

fn le64(b: &[u8], at: usize) -> u64 {
    u64::from(le32(b, at)) | (u64::from(le32(b, at + 4)) << 32)
}

/// Whether a header with `payload` bytes behind it is well-formed.
fn header_is_good(b: &[u8; HEADER_LEN], payload: u32) -> bool {
    let len = le32(b, 4);
    let len_good = match b[1] {
        4 => (1..=4096).contains(&len) && payload == len,
        5 => (1..=262_144).contains(&len) && payload == 0,
        1..=15 => len == 0 && payload == 0,
        _ => false,
    };
    let (dst, src) = (le32(b, 8), le32(b, 16));
    let (no_dst, no_src) = (b[8..16] == [0; 8], b[16..24] == [0; 8]);
    let ids_good = match b[1] {
        14 | 15 => no_dst && no_src,
        1 => no_dst && src != 0,
        3 | 8 => dst != 0 && (src != 0 || no_src),
        _ => dst != 0 && src != 0,
    };
    b[0] == 1 && b[2] == 0 && b[3] == 0 && b[84..] == [0; 12] && len_good && ids_good
}

fn header(b: &[u8; HEADER_LEN], payload: u32) {
    let decoded = Header::decode(b, payload);
    assert_eq!(decoded.is_ok(), header_is_good(b, payload), "{decoded:?}");
    if b[0] != 1 {
        assert_eq!(decoded, Err(Violation::Version));
    }
    let Ok(h) = decoded else {
        return;
    };
    assert_eq!(h.encode(), *b, "one message has one encoding");
    assert_eq!((h.kind as u8, h.len), (b[1], le32(b, 4)));
    assert_eq!((h.dst.index, h.dst.gen), (le32(b, 8), le32(b, 12)));
    assert_eq!((h.src.index, h.src.gen), (le32(b, 16), le32(b, 20)));
    assert_eq!((h.pos, h.woff), (le64(b, 24), le64(b, 32)));
    assert_eq!(
        (h.credit.window, h.credit.small),
        (le64(b, 40), le64(b, 48))
    );
    assert_eq!((h.credit.msgs, h.link_credit), (le32(b, 56), le32(b, 60)));
    assert_eq!((h.arg0, h.arg1), (le32(b, 64), le32(b, 68)));
    assert_eq!((h.arg2, h.lease), (le64(b, 72), le32(b, 80)));
}

/// The lowest and the highest version of a hello.
fn versions(b: &[u8]) -> (u8, u8) {
    (b[4], if b[20] == 0 { b[4] } else { b[20] })
}

fn hello_is_good(b: &[u8]) -> bool {
    b.len() >= HELLO_LEN
        && b[..4] == *b"ZRS1"
        && b[4] != 0
        && (48..=56).contains(&b[5])
        && b.len() >= usize::from(b[5])
        && matches!(b[6..8], [0 | 1, 0])
        && versions(b).0 <= versions(b).1
        && le32(b, 28) >= 4096
        && le32(b, 32) >= 262_144
}

fn hello(b: &[u8]) {
    let any = Hello::decode_with_role(b);
    assert_eq!(any.is_ok(), hello_is_good(b), "{any:?}");
    if let Ok((role, hello)) = any {
        assert_eq!(role as u8, b[6]);
        assert_eq!(
            Hello::decode_with_role(&hello.encode_for(role)),
            Ok((role, hello))
        );
    }
    let decoded = Hello::decode(b);
    let for_streams = any.is_ok() && b[6] == 0;
    assert_eq!(decoded.is_ok(), for_streams, "{decoded:?}");
    assert_eq!(Hello::is_from_zrs(b), b.starts_with(b"ZRS1"));
    if let Ok(hello) = decoded {
        let Versions { lowest, highest } = hello.versions;
        assert_eq!((lowest, highest), versions(b));
        assert_eq!((hello.nonce, hello.features), (le64(b, 8), le32(b, 16)));
        assert_eq!((hello.link_credit, hello.links), (le32(b, 24), le32(b, 36)));
        assert_eq!(Hello::decode(&hello.encode()), Ok(hello));
        // Any host, made from other bytes of the hello.
        let ours = Hello {
            versions: Versions {
                lowest: b[8].max(1),
                highest: b[8].max(b[9]).max(1),
            },
            features: le32(b, 10),
            ..hello
        };
        let both: Vec<u8> = (ours.versions.lowest..=ours.versions.highest)
            .filter(|v| (lowest..=highest).contains(v))
            .collect();
        let want = both.last().map(|version| Agreed {
            version: *version,
            features: le32(b, 10) & le32(b, 16),
        });
        assert_eq!((ours.agree(&hello), hello.agree(&ours)), (want, want));
    }
}

/// Puts other values at a few places.
fn change(input: &mut Input<'_>, b: &mut [u8]) {
    for _ in 0..input.u8() % 4 {
        let at = input.below(b.len());
        b[at] = input.u8();
    }
}

/// A header as it should be, but for a few bytes.
fn nearly_good_header(input: &mut Input<'_>) -> ([u8; HEADER_LEN], u32) {
    let mut b = input.bytes::<HEADER_LEN>();
    let kind = b[1] % 16;
    let len = match kind {
        4 => 1 + le32(&b, 4) % 4096,
        5 => 1 + le32(&b, 4) % 262_144,
        _ => 0,
    };
    b[..4].copy_from_slice(&[1, kind, 0, 0]);
    b[4..8].copy_from_slice(&len.to_le_bytes());
    if matches!(kind, 1 | 14 | 15) {
        b[8..16].fill(0);
    }
    if matches!(kind, 14 | 15) {
        b[16..24].fill(0);
    }
    b[84..].fill(0);
    change(input, &mut b);
    let payload = if b[1] == 4 { le32(&b, 4) } else { 0 };
    let more = u32::from(input.u8() == 1);
    (b, payload.wrapping_add(more))
}

fn nearly_good_hello(input: &mut Input<'_>) -> [u8; HELLO_LEN] {
    let mut b = input.bytes::<HELLO_LEN>();
    b[..4].copy_from_slice(b"ZRS1");
    b[4] = b[4].max(1);
    b[5..8].copy_from_slice(&[48, 0, 0]);
    if b[20] < b[4] {
        b[20] = 0;
    }
    b[28..32].copy_from_slice(&4096_u32.to_le_bytes());
    b[32..36].copy_from_slice(&262_144_u32.to_le_bytes());
    change(input, &mut b);
    b
}

/// A header with a payload's length, or a hello; any, or nearly as they should be.
pub fn wire(data: &[u8]) {
    let mut input = Input(data);
    match input.u8() % 8 {
        0 => hello(input.0),
        1 => hello(&nearly_good_hello(&mut input)),
        how @ 2..=4 => {
            let some = input.u32();
            let b = input.bytes::<HEADER_LEN>();
            let payload = match how {
                2 => 0,
                3 => le32(&b, 4),
                _ => some,
            };
            header(&b, payload);
        }
        _ => {
            let (b, payload) = nearly_good_header(&mut input);
            header(&b, payload);
        }
    }
}
