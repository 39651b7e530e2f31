// SPDX-License-Identifier: GPL-2.0

//! The wire: layout byte by byte, round trips, and everything that must not be accepted.

use common::headers::{id, payload_of, valid_header, TYPES};
use proptest::prelude::*;
use zrs_core::wire::{
    Agreed, Credit, Denial, Header, Hello, Refusal, Role, Type, Versions, CHUNK_MAX, FEATURES,
    HEADER_LEN, HELLO_LEN, HELLO_MOST, SMALL_MAX, VERSION,
};
use zrs_core::{ChanId, Violation};

fn full() -> Header {
    Header {
        kind: Type::Written,
        len: 0x0003_0201,
        dst: id(0x0706_0504, 0x0b0a_0908),
        src: id(0x0f0e_0d0c, 0x1312_1110),
        pos: 0x1b1a_1918_1716_1514,
        woff: 0x2322_2120_1f1e_1d1c,
        credit: Credit {
            window: 0x2b2a_2928_2726_2524,
            small: 0x3332_3130_2f2e_2d2c,
            msgs: 0x3736_3534,
        },
        link_credit: 0x3b3a_3938,
        arg0: 0x3f3e_3d3c,
        arg1: 0x4342_4140,
        arg2: 0x4b4a_4948_4746_4544,
        lease: 0x4f4e_4d4c,
    }
}

/// A message of the type that is valid in itself.
fn valid(kind: Type) -> Header {
    let none = ChanId::default();
    let (dst, src) = match kind {
        Type::LinkCredit | Type::Heartbeat => (none, none),
        Type::Connect => (none, id(2, 1)),
        _ => (id(1, 1), id(2, 1)),
    };
    let mut h = Header::new(kind, dst, src);
    if matches!(kind, Type::Data | Type::Written) {
        h.len = 1;
    }
    h
}

fn decode(h: &Header) -> Result<Header, Violation> {
    Header::decode(&h.encode(), payload_of(h))
}

// rows: Z3 C6
#[test]
fn header_layout() {
    assert_eq!(HEADER_LEN, 96);
    let bytes = full().encode();
    // Every byte of every field says where it lies: fields begin behind the 4 bytes of version,
    // type and flags.
    let mut want = [0; HEADER_LEN];
    want[..4].copy_from_slice(&[1, 5, 0, 0]);
    for (n, b) in want[4..84].iter_mut().enumerate() {
        *b = n as u8;
    }
    // The length must be one that is allowed.
    want[4..8].copy_from_slice(&[0x01, 0x02, 0x03, 0x00]);
    assert_eq!(bytes, want);
    assert_eq!(decode(&full()), Ok(full()));
}

// rows: Z3 C6
#[test]
fn type_numbers_are_for_ever() {
    for (n, kind) in TYPES.into_iter().enumerate() {
        assert_eq!(kind as usize, n + 1);
        assert_eq!(valid(kind).encode()[1] as usize, n + 1);
    }
}

/// A hello of a host that speaks these versions.
fn speaks(lowest: u8, highest: u8) -> Hello {
    Hello {
        versions: Versions { lowest, highest },
        nonce: 1,
        features: 0,
        link_credit: 64,
        links: 2,
    }
}

// rows: B16
#[test]
fn a_rejection_says_why() {
    let hello = Hello::decode(&hello_of_version_1()).unwrap();
    let plain = hello.encode();
    assert_eq!(Hello::denial(&plain), None);
    for (role, why) in [
        (Role::Streams, Denial::Unproved),
        (Role::Streams, Denial::Listed),
        (Role::Streams, Denial::Keyless),
        (Role::Memory, Denial::Unproved),
        (Role::Memory, Denial::Listed),
    ] {
        let denied = hello.encode_denial(role, why);
        assert_eq!(Hello::denial(&denied), Some(why));
        // Otherwise it is the hello, also for a host that does not know reasons.
        assert_eq!(Hello::decode_with_role(&denied), Ok((role, hello)));
        let mut later = denied;
        later[21] = 0xff;
        assert_eq!(Hello::denial(&later), None, "a reason of a later host");
    }
    assert_eq!(Hello::denial(&[]), None);
    assert_eq!(Hello::denial(&[1; 48]), None, "not of ZRS");
}

/// Whether a host without negotiation accepts the hello: it demands each of these bytes.
fn taken_by_version_1(b: &[u8]) -> bool {
    b.len() >= 48
        && b[..8] == *b"ZRS1\x01\x30\0\0"
        && b[28..36] == [0, 0x10, 0, 0, 0, 0, 4, 0]
        && b[40..48] == [0; 8]
}

/// The hello of such a host.
fn hello_of_version_1() -> [u8; 48] {
    let mut b = [0; 48];
    b[..8].copy_from_slice(b"ZRS1\x01\x30\0\0");
    b[8..16].fill(0xee);
    b[24] = 64;
    b[28..36].copy_from_slice(&[0, 0x10, 0, 0, 0, 0, 4, 0]);
    b[36] = 2;
    b
}

// rows: Z3
#[test]
fn hello_layout() {
    assert_eq!((HELLO_LEN, HELLO_MOST), (48, 56));
    let hello = Hello {
        versions: Versions {
            lowest: 1,
            highest: 0x14,
        },
        nonce: 0x0f0e_0d0c_0b0a_0908,
        features: 0x1312_1110,
        link_credit: 0x1b1a_1918,
        links: 0x2726_2524,
    };
    let mut want = [0; HELLO_LEN];
    want[..4].copy_from_slice(b"ZRS1");
    want[4..8].copy_from_slice(&[1, 48, 0, 0]);
    for (n, b) in want[8..28].iter_mut().enumerate() {
        *b = n as u8 + 8;
    }
    want[21..24].fill(0);
    want[28..32].copy_from_slice(&[0x00, 0x10, 0x00, 0x00]); // SMALL_MAX
    want[32..36].copy_from_slice(&[0x00, 0x00, 0x04, 0x00]); // CHUNK_MAX
    want[36..40].copy_from_slice(&[0x24, 0x25, 0x26, 0x27]);
    assert_eq!(hello.encode(), want);
    assert_eq!(Hello::decode(&want), Ok(hello));
    // Padded, as the connection manager delivers it.
    let mut padded = want.to_vec();
    padded.resize(196, 0);
    assert_eq!(Hello::decode(&padded), Ok(hello));
}

// rows: Z3 B11
#[test]
fn hello_refused() {
    let good = speaks(1, 1).encode();
    assert_eq!(Hello::decode(&[]), Err(Violation::Length));
    assert_eq!(Hello::decode(&good[..47]), Err(Violation::Length));
    let changed = |at: usize, to: u8| {
        let mut bad = good;
        bad[at] = to;
        Hello::decode(&bad)
    };
    for at in 0..4 {
        assert_eq!(changed(at, 0xff), Err(Violation::Version), "the magic");
    }
    assert_eq!(changed(4, 0), Err(Violation::Version), "version 0");
    for len in (0..=u8::MAX).filter(|len| *len != 48) {
        assert_eq!(changed(5, len), Err(Violation::Length), "{len} bytes");
    }
    for at in [6, 7] {
        for bit in 0..8 {
            assert_eq!(changed(at, 1 << bit), Err(Violation::Reserved), "the role");
        }
    }
    // The highest version, 0x80, is below the lowest.
    let mut bad = good;
    (bad[4], bad[20]) = (0x81, 0x80);
    assert_eq!(Hello::decode(&bad), Err(Violation::Version));
    for (at, to) in [(29, 0x0f), (29, 0), (34, 3), (34, 0)] {
        assert_eq!(
            changed(at, to),
            Err(Violation::Version),
            "less than all take"
        );
    }
}

/// The role is told beside the hello, and a link for memory is none for streams.
// rows: Z3 M4
#[test]
fn hello_of_a_memory_link() {
    let hello = speaks(1, 1);
    let [streams, memory] = [Role::Streams, Role::Memory].map(|role| hello.encode_for(role));
    assert_eq!(streams, hello.encode());
    assert_eq!(memory[6..8], [1, 0]);
    let differ: Vec<_> = (0..HELLO_LEN)
        .filter(|at| streams[*at] != memory[*at])
        .collect();
    assert_eq!(differ, [6]);
    assert_eq!(
        Hello::decode_with_role(&streams),
        Ok((Role::Streams, hello))
    );
    assert_eq!(Hello::decode_with_role(&memory), Ok((Role::Memory, hello)));
    assert_eq!(Hello::decode(&memory), Err(Violation::Reserved));
    assert!(Hello::is_from_zrs(&memory) && !taken_by_version_1(&memory));
    for role in 2..=u16::MAX {
        let mut unknown = memory;
        unknown[6..8].copy_from_slice(&role.to_le_bytes());
        assert_eq!(
            Hello::decode_with_role(&unknown),
            Err(Violation::Reserved),
            "role {role}"
        );
    }
}

/// A host without negotiation and ours: each takes the other's hello, and they agree on version 1.
// rows: Z3
#[test]
fn hello_of_before() {
    let ours = Hello {
        versions: Versions::OURS,
        features: FEATURES,
        ..speaks(1, 1)
    };
    assert!(taken_by_version_1(&ours.encode()));
    let theirs = Hello::decode(&hello_of_version_1()).unwrap();
    assert_eq!((theirs.link_credit, theirs.links), (64, 2));
    let agreed = Some(Agreed {
        version: 1,
        features: 0,
    });
    assert_eq!(ours.agree(&theirs), agreed);
    // One that has no version 1 any more is refused by it, and refuses it.
    let later = speaks(2, 3);
    assert!(!taken_by_version_1(&later.encode()));
    assert_eq!(later.agree(&theirs), None);
}

/// A later host uses reserved bytes, and a longer hello.
// rows: Z3
#[test]
fn hello_of_later() {
    let hello = speaks(1, 9);
    let mut later = [0xa5; 196];
    later[..HELLO_LEN].copy_from_slice(&hello.encode());
    for at in (21..24).chain(40..HELLO_LEN) {
        later[at] = 0xff;
    }
    for len in 48..=56 {
        later[5] = len;
        assert_eq!(Hello::decode(&later), Ok(hello), "{len} bytes");
        let short = &later[..usize::from(len) - 1];
        assert_eq!(Hello::decode(short), Err(Violation::Length));
    }
    // It takes larger messages than ours.
    later[29] = 0x20;
    later[34] = 0x40;
    assert_eq!(Hello::decode(&later), Ok(hello));
}

// rows: Z3 B11
#[test]
fn version_type_flags_and_reserved() {
    for kind in TYPES {
        let h = valid(kind);
        let good = h.encode();
        let broken = |at: usize, to: u8| {
            let mut bytes = good;
            bytes[at] = to;
            Header::decode(&bytes, payload_of(&h))
        };
        assert!(broken(0, VERSION).is_ok());
        for version in (0..=255).filter(|v| *v != VERSION) {
            assert_eq!(broken(0, version), Err(Violation::Version));
        }
        for unknown in [0, 18, 31, 32, 47, 48, 63, 64, 255] {
            assert_eq!(broken(1, unknown), Err(Violation::Type));
        }
        for at in [2, 3] {
            for bit in 0..8 {
                assert_eq!(broken(at, 1 << bit), Err(Violation::Type));
            }
        }
        for at in 84..HEADER_LEN {
            for bit in 0..8 {
                assert_eq!(broken(at, 1 << bit), Err(Violation::Reserved), "byte {at}");
            }
        }
    }
}

// rows: C1 B11
#[test]
fn lengths() {
    for kind in TYPES {
        for len in [
            0,
            1,
            SMALL_MAX,
            SMALL_MAX + 1,
            CHUNK_MAX,
            CHUNK_MAX + 1,
            u32::MAX,
        ] {
            for payload in [
                0,
                1,
                SMALL_MAX,
                SMALL_MAX + 1,
                CHUNK_MAX,
                CHUNK_MAX + 1,
                u32::MAX,
            ] {
                let mut h = valid(kind);
                h.len = len;
                let good = match kind {
                    Type::Data => payload == len && (1..=SMALL_MAX).contains(&len),
                    Type::Written => payload == 0 && (1..=CHUNK_MAX).contains(&len),
                    _ => payload == 0 && len == 0,
                };
                let want = if good { Ok(h) } else { Err(Violation::Length) };
                assert_eq!(Header::decode(&h.encode(), payload), want);
            }
        }
    }
}

// rows: L2 B11
#[test]
fn channel_numbers() {
    let none = ChanId::default();
    let (some, half) = (id(7, 3), id(0, 3));
    for kind in TYPES {
        for dst in [none, some, half] {
            for src in [none, some, half] {
                let mut h = valid(kind);
                (h.dst, h.src) = (dst, src);
                let good = match kind {
                    Type::LinkCredit | Type::Heartbeat => dst == none && src == none,
                    Type::Connect => dst == none && src == some,
                    Type::Reject | Type::Reset => dst == some && src != half,
                    _ => dst == some && src == some,
                };
                let want = if good { Ok(h) } else { Err(Violation::Channel) };
                assert_eq!(decode(&h), want, "{h:?}");
            }
        }
    }
}

// rows: B16
#[test]
fn messages_of_a_proof() {
    let none = ChanId::default();
    for (kind, number, len) in [(Type::Challenge, 16, 32), (Type::Proof, 17, 64)] {
        let mut h = Header::new(kind, none, none);
        h.len = len;
        assert_eq!(h.encode()[1], number);
        assert_eq!(Header::decode(&h.encode(), len), Ok(h));
        for wrong in [0, len - 1, len + 1, SMALL_MAX, u32::MAX] {
            assert_eq!(Header::decode(&h.encode(), wrong), Err(Violation::Length));
            let other = Header { len: wrong, ..h };
            assert_eq!(Header::decode(&other.encode(), len), Err(Violation::Length));
            assert_eq!(
                Header::decode(&other.encode(), wrong),
                Err(Violation::Length)
            );
        }
        for (dst, src) in [(id(1, 1), none), (none, id(1, 1))] {
            let other = Header { dst, src, ..h };
            assert_eq!(
                Header::decode(&other.encode(), len),
                Err(Violation::Channel)
            );
        }
    }
}

// rows: C3 Z3
#[test]
fn refusals() {
    assert_eq!(Refusal::from_u32(1), Refusal::NoListener);
    assert_eq!(Refusal::from_u32(2), Refusal::NoResources);
    assert_eq!(Refusal::from_u32(3), Refusal::BacklogFull);
    for unknown in [0, 4, u32::MAX] {
        assert_eq!(Refusal::from_u32(unknown), Refusal::NoListener);
    }
    for known in [
        Refusal::NoListener,
        Refusal::NoResources,
        Refusal::BacklogFull,
    ] {
        assert_eq!(Refusal::from_u32(known as u32), known);
    }
}

proptest! {
    // rows: Z3 C6
    #[test]
    fn header_round_trip(h in valid_header()) {
        prop_assert_eq!(decode(&h), Ok(h));
    }

    // rows: Z3
    #[test]
    fn hello_round_trip(
        range in (1..=u8::MAX, 1..=u8::MAX),
        nonce: u64,
        features: u32,
        link_credit: u32,
        links: u32,
        padding in 0_usize..200,
    ) {
        let versions = Versions { lowest: range.0.min(range.1), highest: range.0.max(range.1) };
        let hello = Hello { versions, nonce, features, link_credit, links };
        let mut bytes = hello.encode().to_vec();
        bytes.resize(HELLO_LEN + padding, 0);
        prop_assert_eq!(Hello::decode(&bytes), Ok(hello));
        prop_assert_eq!(taken_by_version_1(&bytes), versions.lowest == 1);
    }

    /// Two hosts agree on the highest version of both ranges and on the common bits, whichever of
    /// them asks, or they do not agree.
    // rows: Z3
    #[test]
    fn agreement(
        a in (1..=u8::MAX, 1..=u8::MAX),
        b in prop_oneof![(1..=u8::MAX, 1..=u8::MAX), (1..5_u8, 1..5_u8)],
        features: [u32; 2],
    ) {
        let hello = |range: (u8, u8), features| Hello {
            features,
            ..speaks(range.0.min(range.1), range.0.max(range.1))
        };
        let a = Hello::decode(&hello(a, features[0]).encode()).unwrap();
        let b = Hello::decode(&hello(b, features[1]).encode()).unwrap();
        let speak = |h: &Hello, v: u8| (h.versions.lowest..=h.versions.highest).contains(&v);
        let both = (1..=u8::MAX).rev().find(|v| speak(&a, *v) && speak(&b, *v));
        let want = both.map(|version| Agreed { version, features: features[0] & features[1] });
        prop_assert_eq!(a.agree(&b), want);
        prop_assert_eq!(b.agree(&a), want);
    }

    /// Whatever is accepted is exactly what was said: nothing is read into it, and no two
    /// encodings mean the same.
    // rows: B11
    #[test]
    fn random_headers(mut bytes: [u8; 32], rest: [[u8; 32]; 2], payload: u32, tame: u16) {
        let mut all = [0; HEADER_LEN];
        // Without help hardly any would come through.
        let help = |bit: u16| tame & (1 << bit) != 0;
        if help(0) {
            bytes[0] = VERSION;
        }
        if help(1) {
            bytes[1] = bytes[1] % 15 + 1;
        }
        if help(2) {
            bytes[2..4].fill(0);
        }
        if help(3) {
            bytes[5..8].fill(0);
        }
        if help(4) {
            bytes[8..24].fill(0);
        }
        if help(5) {
            bytes[4] = 0;
        }
        all[..32].copy_from_slice(&bytes);
        all[32..64].copy_from_slice(&rest[0]);
        all[64..].copy_from_slice(&rest[1]);
        if help(6) {
            all[84..].fill(0);
        }
        let len = u32::from_le_bytes([all[4], all[5], all[6], all[7]]);
        for payload in [payload, 0, len] {
            if let Ok(h) = Header::decode(&all, payload) {
                prop_assert_eq!(h.encode(), all);
            }
        }
    }

    // rows: B11
    #[test]
    fn random_hellos(bytes in prop::collection::vec(any::<u8>(), 0..100), tame: bool) {
        let mut bytes = bytes;
        if tame && bytes.len() >= HELLO_LEN {
            bytes[..4].copy_from_slice(b"ZRS1");
            bytes[4] = bytes[4].max(1);
            bytes[5..8].copy_from_slice(&[48, 0, 0]);
            bytes[20] = bytes[20].max(bytes[4]);
            bytes[28..36].copy_from_slice(&[0, 0x10, 0, 0, 0, 0, 4, 0]);
            prop_assert!(Hello::decode(&bytes).is_ok());
        }
        if let Ok(hello) = Hello::decode(&bytes) {
            prop_assert_eq!(Hello::decode(&hello.encode()), Ok(hello));
            prop_assert!(hello.versions.lowest >= 1 && hello.versions.lowest <= hello.versions.highest);
        }
    }
}
