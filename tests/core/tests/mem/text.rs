// SPDX-License-Identifier: GPL-2.0

//! The text forms of node ids and storage ids.

use proptest::prelude::*;
use zrs_core::mem::id::{Key, NodeId, StorageId};
use zrs_core::mem::text::{RemoteStorage, TextError, DIGITS_LEN};

fn node(domain: u32, node: u32) -> NodeId {
    NodeId { domain, node }
}

fn storage(node: NodeId, va: u64, len: u64, key: (u32, u32, u64)) -> RemoteStorage {
    let (region, gen, secret) = key;
    let key = Key {
        region,
        gen,
        secret,
    };
    let storage = StorageId { va, len, key };
    RemoteStorage { node, storage }
}

fn parse(text: &str) -> Result<RemoteStorage, TextError> {
    text.parse()
}

// rows: M1
#[test]
fn both_forms_of_a_node_id() {
    for (text, id) in [
        ("1:2", node(1, 2)),
        ("2", node(0, 2)),
        ("0", node(0, 0)),
        ("7:0", node(7, 0)),
        ("4294967295:4294967295", node(u32::MAX, u32::MAX)),
    ] {
        assert_eq!(text.parse::<NodeId>(), Ok(id), "{text}");
        assert_eq!(id.to_string(), text);
    }
    assert_eq!(
        "0:5".parse::<NodeId>(),
        Ok(node(0, 5)),
        "the own domain, by its number"
    );
    for text in [
        "",
        ":",
        "1:",
        ":2",
        "1:2:3",
        "+1",
        "-1",
        "1:-2",
        " 1",
        "1 ",
        "01",
        "1:02",
        "00",
        "1:+2",
        "x",
        "1:x",
        "4294967296",
        "4294967296:1",
        "1:99999999999999999999",
        "١",
    ] {
        assert_eq!(text.parse::<NodeId>(), Err(TextError::Node), "{text}");
    }
}

// rows: M1
#[test]
fn a_storage_id_has_known_digits() {
    let id = storage(node(1, 2), 0, 0, (0, 1, 0));
    // 160 bits are zero; then comes the generation's byte 1, whose highest five bits are zero, too.
    let zeros = "a".repeat(32);
    let digits = format!("{zeros}aeaaaaaaaaaaaaaaaaaa");
    assert_eq!(digits.len(), DIGITS_LEN);
    assert_eq!(id.to_string(), format!("zrs:1:2/{digits}"));
    let own = RemoteStorage {
        node: node(0, 2),
        ..id
    };
    assert_eq!(own.to_string(), format!("zrs:2/{digits}"));
    for text in [
        &id.to_string(),
        &format!("zrs:1:2/{}", digits.to_uppercase()),
    ] {
        assert_eq!(parse(text), Ok(id));
    }
    // As base32 of other programs has it: base64.b32encode(bytes(range(32))) in Python.
    let bytes = std::array::from_fn(|n| n as u8);
    let counted = RemoteStorage {
        node: node(0, 9),
        storage: StorageId::decode(&bytes).unwrap(),
    };
    let text = "zrs:9/aaaqeayeaudaocajbifqydiob4ibceqtcqkrmfyydenbwha5dypq";
    assert_eq!(counted.to_string(), text);
    assert_eq!(parse(text), Ok(counted));
}

// rows: M1
#[test]
fn what_is_no_storage_id() {
    let good = storage(node(1, 2), 0x1000, 0x2000, (3, 4, u64::MAX)).to_string();
    let (head, digits) = good.split_once('/').unwrap();
    let with = |digits: &str| parse(&format!("{head}/{digits}"));
    assert!(with(digits).is_ok());
    for text in [
        "",
        "zrs",
        "1:2/",
        "ZRS:1:2/",
        &good[1..],
        &format!(" {good}"),
    ] {
        assert_eq!(parse(text), Err(TextError::Scheme), "{text}");
    }
    assert_eq!(parse(head), Err(TextError::Length), "no slash");
    assert_eq!(with(&digits[1..]), Err(TextError::Length));
    assert_eq!(with(&format!("{digits}a")), Err(TextError::Length));
    assert_eq!(
        with(&format!("{digits}====")),
        Err(TextError::Length),
        "padding"
    );
    assert_eq!(parse(&format!("zrs:x/{digits}")), Err(TextError::Node));
    assert_eq!(parse(&format!("zrs:/{digits}")), Err(TextError::Node));
    for bad in ["0", "1", "8", "9", "-", "=", " ", "\n"] {
        for at in [0, 20, DIGITS_LEN - 1] {
            let mut text = digits.to_owned();
            text.replace_range(at..=at, bad);
            assert_eq!(with(&text), Err(TextError::Digit), "{bad:?} at {at}");
        }
    }
    // 52 bytes, but fewer characters.
    let wide = format!("é{}", &digits[2..]);
    assert_eq!(with(&wide), Err(TextError::Digit));
    // The last digit has one bit.
    let mut ends = ('a'..='z').chain('2'..='7');
    let good_ends = ends.by_ref().filter(|end| {
        let text = format!("{}{end}", &digits[..DIGITS_LEN - 1]);
        with(&text).is_ok()
    });
    assert_eq!(good_ends.collect::<String>(), "aq");
    let wraps = storage(node(1, 2), u64::MAX, 1, (3, 4, 5));
    let never = storage(node(1, 2), 0, 1, (3, 0, 5));
    for id in [wraps, never] {
        assert_eq!(parse(&id.to_string()), Err(TextError::Storage));
    }
}

// rows: M4
#[test]
fn a_secret_is_shown_by_the_text_alone() {
    let id = storage(node(1, 2), 0, 1, (3, 4, 0xdead_beef));
    assert!(!format!("{id:?} {id:x?}").contains("beef"));
}

proptest! {
    // rows: M1
    #[test]
    fn every_id_has_a_text(
        at in any::<(u32, u32)>(), va in any::<u64>(), len in any::<u64>(), key in (any::<u32>(), 1..=u32::MAX, any::<u64>()),
    ) {
        let id = storage(node(at.0, at.1), va, len.min(u64::MAX - va), key);
        let text = id.to_string();
        prop_assert!(text.is_ascii());
        prop_assert_eq!(parse(&text), Ok(id));
        prop_assert_eq!(id.node.to_string().parse::<NodeId>(), Ok(id.node));
    }

    // rows: M1
    #[test]
    fn what_is_parsed_is_printed_again(text in "(zrs:)?[0-9:]{1,5}/?[a-z2-7]{50,53}") {
        if let Ok(id) = parse(&text) {
            prop_assert_eq!(parse(&id.to_string()), Ok(id));
            let digits = |t: &str| t.split_once('/').unwrap().1.to_owned();
            prop_assert_eq!(digits(&id.to_string()), digits(&text));
        }
    }
}
