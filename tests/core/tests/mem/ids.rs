// SPDX-License-Identifier: GPL-2.0

//! Node ids, keys, storage ids, statuses.

use std::collections::BTreeSet;

use zrs_core::mem::id::{secrets_match, Key, NodeId, StorageId};
use zrs_core::mem::status::Status;

use common::Rng;

// rows: M1
#[test]
fn a_node_without_domain_is_of_the_own_one() {
    let id = NodeId { domain: 0, node: 7 };
    assert_eq!(id.qualified(3), NodeId { domain: 3, node: 7 });
    let other = NodeId { domain: 9, node: 7 };
    assert_eq!(other.qualified(3), other);
}

// rows: M1
#[test]
fn storage_ids_have_32_bytes() {
    let key = Key {
        region: 0x0403_0201,
        gen: 0x0807_0605,
        secret: 0x100f_0e0d_0c0b_0a09,
    };
    assert_eq!(key.encode(), std::array::from_fn(|n| n as u8 + 1));
    assert_eq!(Key::decode(key.encode()), key);
    let id = StorageId {
        va: 0x1122,
        len: 0x3344,
        key,
    };
    let bytes = id.encode();
    assert_eq!(
        (bytes[0], bytes[1], bytes[8], bytes[9]),
        (0x22, 0x11, 0x44, 0x33)
    );
    assert_eq!(bytes[16..], key.encode());
    assert_eq!(StorageId::decode(&bytes), Some(id));
    let wraps = StorageId {
        va: u64::MAX,
        len: 1,
        key,
    };
    assert_eq!(StorageId::decode(&wraps.encode()), None);
    let never = StorageId {
        key: Key { gen: 0, ..key },
        ..id
    };
    assert_eq!(StorageId::decode(&never.encode()), None);
}

// rows: M4
#[test]
fn secrets_are_compared_whole_and_not_printed() {
    let mut rng = Rng::new(1);
    for _ in 0..1000 {
        let a: [u8; 16] = std::array::from_fn(|_| rng.next_u64() as u8);
        let mut b = a;
        assert!(secrets_match(&a, &b));
        b[rng.below(16) as usize] ^= 1 << rng.below(8);
        assert!(!secrets_match(&a, &b));
    }
    let key = Key {
        region: 1,
        gen: 2,
        secret: 0xdead_beef,
    };
    let shown = format!("{key:?} {key:x?}");
    assert!(
        !shown.contains("3735928559") && !shown.contains("beef"),
        "{shown}"
    );
}

// rows: M4
#[test]
fn every_status_has_its_errno() {
    let mut numbers = BTreeSet::new();
    for (n, status) in (0_u16..).zip(Status::ALL) {
        assert_eq!((status as u16, Status::from_u16(n)), (n, status));
        assert!(numbers.insert(status.errno()), "{status:?}");
    }
    for n in Status::ALL.len() as u16..=u16::MAX {
        assert_eq!(Status::from_u16(n), Status::Io);
    }
    // EACCES, ESTALE, EROFS, ERANGE, ENXIO as the documentation has them.
    let of = |s: Status| s.errno();
    assert_eq!((of(Status::Denied), of(Status::Stale)), (13, 116));
    assert_eq!(
        (of(Status::Sealed), of(Status::Range), of(Status::NoNode)),
        (30, 34, 6)
    );
}
