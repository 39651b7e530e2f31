// SPDX-License-Identifier: GPL-2.0

//! Mutual proof by a shared key: who is believed, and what an attacker can do with what he sees.
// rows: B16

use common::Rng;
use hmac::{Hmac, Mac};
use proptest::prelude::*;
use sha2::Sha256;
use zrs_core::link_flow::MIN_CREDIT;
use zrs_core::proof::{
    padded, Answer, Challenge, End, Failed, Keys, Macs, Proof, Side, FEATURE, KEYS_MAX, MAC_LEN,
    TEXT_LEN, WITHIN_NS,
};
use zrs_core::wire::{Hello, Versions, FEATURES};

/// Keys of a host, by HMAC-SHA256 as in the kernel.
struct Ring(Vec<Vec<u8>>);

impl Ring {
    fn of(keys: &[&str]) -> Self {
        Self(keys.iter().map(|key| key.as_bytes().to_vec()).collect())
    }
}

impl Keys for Ring {
    fn mac(&self, n: usize, text: &[u8; TEXT_LEN]) -> Option<[u8; MAC_LEN]> {
        let mut mac = Hmac::<Sha256>::new_from_slice(self.0.get(n)?).unwrap();
        mac.update(text);
        Some(mac.finalize().into_bytes().into())
    }
}

fn hello(nonce: u64, features: u32) -> Vec<u8> {
    let hello = Hello {
        versions: Versions::OURS,
        nonce,
        features,
        link_credit: MIN_CREDIT,
        links: 2,
    };
    hello.encode().to_vec()
}

fn end(n: u8, features: u32) -> End {
    End {
        hello: padded(&hello(u64::from(n), features)),
        addr: [n; 16],
        qp: u32::from(n) + 16,
    }
}

fn random<const N: usize>(rng: &mut Rng) -> [u8; N] {
    std::array::from_fn(|_| rng.next_u64() as u8)
}

/// A side of a link with the ends as this side sees them.
fn side_of(rng: &mut Rng, side: Side, own: End, their: End) -> Proof {
    Proof::new(side, (own, their), random(rng), random(rng))
}

fn ends() -> (End, End) {
    let features = FEATURES | FEATURE;
    (end(1, features), end(2, features))
}

fn pair(rng: &mut Rng) -> (Proof, Proof) {
    let (a, b) = ends();
    let connector = side_of(rng, Side::Connector, a, b);
    (connector, side_of(rng, Side::Acceptor, b, a))
}

/// A whole proof between two sides; the proofs of both. An error is that of the side that finds it.
fn prove(
    (a, keys_a): (&mut Proof, &Ring),
    (b, keys_b): (&mut Proof, &Ring),
) -> Result<(Macs, Macs), (Side, Failed)> {
    let at = |side| move |failed| (side, failed);
    let (from_a, from_b) = (a.begin(0).unwrap(), b.begin(0).unwrap());
    let none = b.on_challenge(from_a, keys_b).map_err(at(Side::Acceptor))?;
    assert_eq!(none, None, "the acceptor proves nothing to an unknown peer");
    let first = a
        .on_challenge(from_b, keys_a)
        .map_err(at(Side::Connector))?;
    let first = first.expect("the connector begins");
    assert!(!a.is_done() && !b.is_done());
    let second = b.on_proof(&first, keys_b).map_err(at(Side::Acceptor))?;
    let second = second.expect("the acceptor answers");
    assert!(b.is_done());
    let none = a.on_proof(&second, keys_a).map_err(at(Side::Connector))?;
    assert!(a.is_done() && none.is_none());
    Ok((first, second))
}

fn outcome(a: &[&str], b: &[&str]) -> Result<(), (Side, Failed)> {
    let mut rng = Rng::new(7);
    let (mut left, mut right) = pair(&mut rng);
    prove((&mut left, &Ring::of(a)), (&mut right, &Ring::of(b))).map(drop)
}

#[test]
fn one_key_in_common_is_enough() {
    assert_eq!(outcome(&["old"], &["old"]), Ok(()));
    // Each step of a rotation, in both directions.
    for (a, b) in [
        (&["old"][..], &["old", "new"][..]),
        (&["old", "new"], &["old", "new"]),
        (&["old", "new"], &["new"]),
        (&["new", "old"], &["old"]),
        (&["new"], &["new"]),
    ] {
        assert_eq!(outcome(a, b), Ok(()), "{a:?} {b:?}");
        assert_eq!(outcome(b, a), Ok(()), "{b:?} {a:?}");
    }
}

/// With iWARP, which tells no number of a queue pair, the acceptor sends nothing before it has the
/// connector's challenge.
#[test]
fn the_connector_sends_first_where_it_has_to() {
    let mut rng = Rng::new(13);
    let keys = Ring::of(&["key"]);
    let (mut own, mut their) = ends();
    (own.qp, their.qp) = (0, 0);
    let mut a = side_of(&mut rng, Side::Connector, own, their);
    let mut b = side_of(&mut rng, Side::Acceptor, their, own);
    let arrives = |at: &mut Proof, answer: Answer| {
        let (kind, bytes) = answer.message();
        let read = |out: &mut [u8]| {
            out.copy_from_slice(bytes);
            Ok::<_, ()>(())
        };
        at.arrived(kind, read, &keys).unwrap()
    };
    assert_eq!(b.begin(0), None);
    assert!(b.is_late(WITHIN_NS + 1), "its time has begun");
    let first = Answer::Challenge(a.begin(0).unwrap());
    let challenge = arrives(&mut b, first).expect("an answer");
    assert!(matches!(challenge, Answer::Challenge(_)));
    let proof = arrives(&mut a, challenge).expect("a proof");
    assert!(matches!(proof, Answer::Proof(_)));
    let proof = arrives(&mut b, proof).expect("a proof");
    assert!(b.is_done() && !a.is_done());
    assert_eq!(arrives(&mut a, proof), None);
    assert!(a.is_done());
}

/// One of two keys in common is removed at either side between the messages.
#[test]
fn a_key_is_removed_while_the_link_is_made() {
    let both = Ring::of(&["old", "new"]);
    for left in ["old", "new"] {
        let one = Ring::of(&[left]);
        for (first, verified, last) in [(&both, &one, &both), (&both, &both, &one)] {
            let mut rng = Rng::new(12);
            let (mut a, mut b) = pair(&mut rng);
            b.on_challenge(a.begin(0).unwrap(), &both).unwrap();
            let macs = a.on_challenge(b.begin(0).unwrap(), first).unwrap().unwrap();
            let macs = b.on_proof(&macs, verified).unwrap().unwrap();
            assert_eq!(a.on_proof(&macs, last), Ok(None), "{left} is left");
        }
    }
}

#[test]
fn without_a_common_key_the_acceptor_says_nothing() {
    let wrong = Err((Side::Acceptor, Failed::Wrong));
    assert_eq!(outcome(&["old"], &["new"]), wrong);
    assert_eq!(outcome(&["a", "b"], &["c", "d"]), wrong);
    // Keys that were revoked meanwhile.
    assert_eq!(outcome(&[], &["a"]), Err((Side::Connector, Failed::NoKey)));
    assert_eq!(outcome(&["a"], &[]), Err((Side::Acceptor, Failed::NoKey)));
}

/// An acceptor that has no key, and makes up a proof.
#[test]
fn an_acceptor_without_the_key() {
    let mut rng = Rng::new(8);
    let keys = Ring::of(&["key"]);
    let (mut a, _) = pair(&mut rng);
    a.on_challenge(random(&mut rng), &keys).unwrap().unwrap();
    assert_eq!(a.on_proof(&random(&mut rng), &keys), Err(Failed::Wrong));
    assert!(!a.is_done());
}

#[test]
fn a_proof_does_not_show_how_many_keys_there_are() {
    let mut rng = Rng::new(9);
    let (mut a, mut b) = pair(&mut rng);
    let macs = a
        .on_challenge(b.begin(0).unwrap(), &Ring::of(&["key"]))
        .unwrap()
        .unwrap();
    let (first, second) = macs.split_at(MAC_LEN);
    assert!(first != second && second != [0; MAC_LEN]);
    assert_eq!(macs.len(), MAC_LEN * KEYS_MAX);
}

#[test]
fn messages_out_of_order() {
    let mut rng = Rng::new(10);
    let keys = Ring::of(&["key"]);
    let (mut a, mut b) = pair(&mut rng);
    // A proof before the challenge.
    assert_eq!(b.on_proof(&[0; 64], &keys), Err(Failed::Order));
    // Two challenges: the first answer is for the first one.
    let first = a.on_challenge(b.begin(0).unwrap(), &keys).unwrap().unwrap();
    assert_eq!(a.on_challenge(random(&mut rng), &keys), Err(Failed::Order));
    b.on_challenge(a.begin(0).unwrap(), &keys).unwrap();
    let second = b.on_proof(&first, &keys).unwrap().unwrap();
    assert_eq!(b.on_proof(&first, &keys), Err(Failed::Order), "once more");
    a.on_proof(&second, &keys).unwrap();
    assert_eq!(a.on_proof(&second, &keys), Err(Failed::Order));
    assert_eq!(a.on_challenge(random(&mut rng), &keys), Err(Failed::Order));
}

#[test]
fn a_peer_that_does_not_answer() {
    let mut rng = Rng::new(11);
    let keys = Ring::of(&["key"]);
    let (mut a, mut b) = pair(&mut rng);
    for side in [&mut a, &mut b] {
        assert!(!side.is_late(u64::MAX), "not connected");
        side.begin(0);
        assert!(!side.is_late(WITHIN_NS));
        assert!(side.is_late(WITHIN_NS + 1));
    }
    a.on_challenge(b.begin(0).unwrap(), &keys).unwrap();
    assert!(a.is_late(WITHIN_NS + 1), "half a proof is none");
    let (mut a, _) = pair(&mut rng);
    prove((&mut a, &keys), (&mut b, &keys)).unwrap();
    assert!(!a.is_late(u64::MAX) && !b.is_late(u64::MAX));
}

/// All that can differ between what one side sent and the other side got, or where it runs.
#[derive(Clone, Copy, Debug)]
enum Tamper {
    HelloByte {
        of_acceptor: bool,
        at: usize,
        bit: u8,
    },
    Address {
        of_acceptor: bool,
        at: usize,
        bit: u8,
    },
    QueuePair {
        of_acceptor: bool,
        bit: u32,
    },
    Challenge {
        of_acceptor: bool,
        at: usize,
        bit: u8,
    },
    Feature {
        of_acceptor: bool,
    },
}

fn tamper() -> impl Strategy<Value = Tamper> {
    prop_oneof![
        (any::<bool>(), 0..56_usize, 0..8_u8).prop_map(|(of_acceptor, at, bit)| {
            Tamper::HelloByte {
                of_acceptor,
                at,
                bit,
            }
        }),
        (any::<bool>(), 0..16_usize, 0..8_u8).prop_map(|(of_acceptor, at, bit)| Tamper::Address {
            of_acceptor,
            at,
            bit
        }),
        (any::<bool>(), 0..24_u32)
            .prop_map(|(of_acceptor, bit)| Tamper::QueuePair { of_acceptor, bit }),
        (any::<bool>(), 0..32_usize, 0..8_u8).prop_map(|(of_acceptor, at, bit)| {
            Tamper::Challenge {
                of_acceptor,
                at,
                bit,
            }
        }),
        any::<bool>().prop_map(|of_acceptor| Tamper::Feature { of_acceptor }),
    ]
}

/// What the other side sees of an end and its challenge.
fn tampered(
    how: Tamper,
    acceptors: bool,
    (mut end, mut challenge): (End, Challenge),
) -> (End, Challenge) {
    match how {
        Tamper::HelloByte {
            of_acceptor,
            at,
            bit,
        } if of_acceptor == acceptors => {
            end.hello[at] ^= 1 << bit;
        }
        Tamper::Address {
            of_acceptor,
            at,
            bit,
        } if of_acceptor == acceptors => {
            end.addr[at] ^= 1 << bit;
        }
        Tamper::QueuePair { of_acceptor, bit } if of_acceptor == acceptors => end.qp ^= 1 << bit,
        Tamper::Challenge {
            of_acceptor,
            at,
            bit,
        } if of_acceptor == acceptors => {
            challenge[at] ^= 1 << bit;
        }
        // The first feature bit: datagrams.
        Tamper::Feature { of_acceptor } if of_acceptor == acceptors => end.hello[16] ^= 1,
        _ => {}
    }
    (end, challenge)
}

proptest! {
    /// An attacker on the way changes anything that both sides see.
    #[test]
    fn nothing_may_differ(how in tamper(), seed: u64) {
        let mut rng = Rng::new(seed);
        let keys = Ring::of(&["key", "other"]);
        let (a, b) = ends();
        let (from_a, from_b) = (random(&mut rng), random(&mut rng));
        let (seen_a, got_a) = tampered(how, false, (a, from_a));
        let (seen_b, got_b) = tampered(how, true, (b, from_b));
        let mut left = Proof::new(Side::Connector, (a, seen_b), from_a, random(&mut rng));
        let mut right = Proof::new(Side::Acceptor, (b, seen_a), from_b, random(&mut rng));
        right.on_challenge(got_a, &keys).unwrap();
        let macs = left.on_challenge(got_b, &keys).unwrap().unwrap();
        prop_assert_eq!(right.on_proof(&macs, &keys), Err(Failed::Wrong));
        prop_assert!(!right.is_done());
        // Nor does the connector believe an acceptor that is less careful.
        let mut careless = right;
        let answer = {
            let (mut same_a, mut same_b) = pair(&mut rng);
            let (_, second) = prove((&mut same_a, &keys), (&mut same_b, &keys)).unwrap();
            second
        };
        prop_assert_eq!(left.on_proof(&answer, &keys), Err(Failed::Wrong));
        prop_assert!(careless.on_proof(&answer, &keys).is_err());
    }

    /// What was seen on one link is of no use on another one between the same hosts.
    #[test]
    fn replays_fail(seed: u64) {
        let mut rng = Rng::new(seed);
        let keys = Ring::of(&["key"]);
        let (mut a, mut b) = pair(&mut rng);
        let heard = a.begin(0).unwrap();
        let (first, second) = prove((&mut a, &keys), (&mut b, &keys)).unwrap();
        let (mut a, mut b) = pair(&mut rng);
        // To the acceptor, with the old challenge.
        b.on_challenge(heard, &keys).unwrap();
        prop_assert_eq!(b.on_proof(&first, &keys), Err(Failed::Wrong));
        prop_assert_eq!(b.on_proof(&second, &keys), Err(Failed::Wrong));
        // To the connector.
        let _ = a.on_challenge(heard, &keys).unwrap();
        prop_assert_eq!(a.on_proof(&second, &keys), Err(Failed::Wrong));
        prop_assert_eq!(a.on_proof(&first, &keys), Err(Failed::Wrong));
    }

    /// A peer without a key gives a host its own challenge and its own proof back, on the same
    /// link, and on another one that the host makes or accepts at the same time; all that it can
    /// choose is as it likes.
    #[test]
    fn reflections_fail(seed: u64, same_address: bool) {
        let mut rng = Rng::new(seed);
        let keys = Ring::of(&["key"]);
        let (host, mut attacker) = ends();
        attacker.hello = host.hello;
        attacker.qp = host.qp;
        if same_address {
            attacker.addr = host.addr;
        }
        // The same link: the host is the connector.
        let mut a = side_of(&mut rng, Side::Connector, host, attacker);
        let challenge = a.begin(0).unwrap();
        let own = a.on_challenge(challenge, &keys).unwrap().unwrap();
        prop_assert_eq!(a.on_proof(&own, &keys), Err(Failed::Wrong));
        // Two links between the host and the attacker that the host makes.
        let mut first = side_of(&mut rng, Side::Connector, host, attacker);
        let mut second = side_of(&mut rng, Side::Connector, host, attacker);
        let (to_first, to_second) = (second.begin(0).unwrap(), first.begin(0).unwrap());
        let p = first.on_challenge(to_first, &keys).unwrap().unwrap();
        let q = second.on_challenge(to_second, &keys).unwrap().unwrap();
        prop_assert_eq!(first.on_proof(&q, &keys), Err(Failed::Wrong));
        prop_assert_eq!(second.on_proof(&p, &keys), Err(Failed::Wrong));
        // One that it makes and one that it accepts. With the host's own address, queue pair and
        // hello, the attacker is no more than the way from the host to itself.
        if !same_address {
            let mut made = side_of(&mut rng, Side::Connector, host, attacker);
            let mut taken = side_of(&mut rng, Side::Acceptor, host, attacker);
            let (c, d) = (made.begin(0).unwrap(), taken.begin(0).unwrap());
            taken.on_challenge(c, &keys).unwrap();
            let p = made.on_challenge(d, &keys).unwrap().unwrap();
            prop_assert_eq!(taken.on_proof(&p, &keys), Err(Failed::Wrong));
        }
    }
}
