// SPDX-License-Identifier: GPL-2.0

//! The decoders of the wire, against the tables of `Documentation/protocol.rst`.

use zrs_core::wire::{Header, Hello, HEADER_LEN, HELLO_LEN};
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
    assert_eq!((h.dst.q, h.dst.gen), (le32(b, 8), le32(b, 12)));
    assert_eq!((h.src.q, h.src.gen), (le32(b, 16), le32(b, 20)));
    assert_eq!((h.pos, h.woff), (le64(b, 24), le64(b, 32)));
    assert_eq!(
        (h.credit.window, h.credit.small),
        (le64(b, 40), le64(b, 48))
    );
    assert_eq!((h.credit.msgs, h.link_credit), (le32(b, 56), le32(b, 60)));
    assert_eq!((h.arg0, h.arg1), (le32(b, 64), le32(b, 68)));
    assert_eq!((h.arg2, h.lease), (le64(b, 72), le32(b, 80)));
}

fn hello_is_good(b: &[u8]) -> bool {
    b.len() >= HELLO_LEN
        && b[..4] == *b"ZRS1"
        && b[4..8] == [1, 48, 0, 0]
        && le32(b, 28) == 4096
        && le32(b, 32) == 262_144
        && b[36..48] == [0; 12]
}

fn hello(b: &[u8]) {
    let decoded = Hello::decode(b);
    assert_eq!(decoded.is_ok(), hello_is_good(b), "{decoded:?}");
    assert_eq!(Hello::is_from_zrs(b), b.starts_with(b"ZRS1"));
    if let Ok(hello) = decoded {
        assert_eq!(hello.encode(), b[..HELLO_LEN]);
        assert_eq!((hello.nonce, hello.features), (le64(b, 8), le64(b, 16)));
        assert_eq!(hello.link_credit, le32(b, 24));
    }
}

/// A header with a payload's length, or a hello.
pub fn wire(data: &[u8]) {
    let mut input = Input(data);
    match input.u8() % 4 {
        0 => hello(input.0),
        how => {
            let some = input.u32();
            let b = input.bytes::<HEADER_LEN>();
            let payload = match how {
                1 => 0,
                2 => le32(&b, 4),
                _ => some,
            };
            header(&b, payload);
        }
    }
}
