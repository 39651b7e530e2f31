// SPDX-License-Identifier: GPL-2.0

//! The proof of a shared key on a memory link: nothing else comes first.
// rows: B16

use hmac::{Hmac, Mac};
use proptest::prelude::*;
use sha2::Sha256;
use zrs_core::mem::link::{End, Link};
use zrs_core::mem::status::Status;
use zrs_core::mem::wire::{MemHeader, Message, Op};
use zrs_core::proof::{
    self, padded, Answer, Challenge, Failed, Keys, Macs, Proof, MAC_LEN, PROOF_LEN, TEXT_LEN,
    WITHIN_NS,
};
use zrs_core::wire::{Header, Hello, Role, Type, Versions};
use zrs_core::{ChanId, Violation};

struct Ring(&'static [&'static [u8]]);

const KEY: Ring = Ring(&[b"the key of both"]);
const OTHER: Ring = Ring(&[b"another one"]);
const NONE: Ring = Ring(&[]);

impl Keys for Ring {
    fn mac(&self, n: usize, text: &[u8; TEXT_LEN]) -> Option<[u8; MAC_LEN]> {
        let mut mac = Hmac::<Sha256>::new_from_slice(self.0.get(n)?).unwrap();
        mac.update(text);
        Some(mac.finalize().into_bytes().into())
    }
}

/// The host that makes the link, or the other one, as it is seen in the proof of a link for `role`.
fn host(end: End, role: Role) -> proof::End {
    let n = end.side() as u8;
    let hello = Hello {
        versions: Versions::OURS,
        nonce: u64::from(n),
        features: proof::FEATURE,
        link_credit: 64,
        links: 1,
    };
    proof::End {
        hello: padded(&hello.encode_for(role)),
        addr: [n; 16],
        qp: u32::from(n) + 16,
    }
}

fn proof_of(end: End, role: Role, challenge: u8) -> Proof {
    let other = match end {
        End::Requester => End::Node,
        End::Node => End::Requester,
    };
    let ends = (host(end, role), host(other, role));
    Proof::new(end.side(), ends, [challenge; 32], [0xf0; PROOF_LEN])
}

/// An end whose hello and that of the peer offer a proof.
fn keyed(end: End, challenge: u8) -> Link {
    let mut link = Link::new(end);
    link.says(true);
    link.prove(proof_of(end, Role::Memory, challenge));
    link
}

fn message(kind: Type, len: usize) -> Message {
    let none = ChanId::default();
    let mut h = Header::new(kind, none, none);
    h.len = len as u32;
    Message::Link(h)
}

fn proof_in(answer: Answer) -> Macs {
    match answer {
        Answer::Proof(macs) => macs,
        Answer::Challenge(_) => panic!("both have sent their challenge"),
    }
}

fn challenged(link: &mut Link, by: Challenge, keys: &Ring) -> Result<Option<Macs>, Failed> {
    let answer = link.proves(&message(Type::Challenge, by.len()), &by, keys)?;
    Ok(answer.map(proof_in))
}

fn proved(link: &mut Link, by: &Macs, keys: &Ring) -> Result<Option<Macs>, Failed> {
    let answer = link.proves(&message(Type::Proof, by.len()), by, keys)?;
    Ok(answer.map(proof_in))
}

/// A link whose hosts have proved their key; the proofs of both.
fn pair(challenges: [u8; 2]) -> (Link, Link, [Macs; 2]) {
    let (mut a, mut b) = (
        keyed(End::Requester, challenges[0]),
        keyed(End::Node, challenges[1]),
    );
    let (from_a, from_b) = (a.begin(0).flatten().unwrap(), b.begin(0).flatten().unwrap());
    assert_eq!(challenged(&mut b, from_a, &KEY), Ok(None));
    let first = challenged(&mut a, from_b, &KEY).unwrap().unwrap();
    assert!(a.is_proving() && b.is_proving());
    let second = proved(&mut b, &first, &KEY).unwrap().unwrap();
    assert!(a.is_proving() && !b.is_proving());
    assert_eq!(proved(&mut a, &second, &KEY), Ok(None));
    assert!(!a.is_proving());
    (a, b, [first, second])
}

/// One message of each type that a memory link carries once it is up.
fn others() -> Vec<Message> {
    let mem = [
        MemHeader::hello(64, 1024, 0),
        MemHeader::ask(1, Op::Alloc),
        MemHeader::ask(2, Op::Open),
        MemHeader::answer(1, Op::Free, Status::Ok),
        MemHeader::revoke(1),
        MemHeader::revoked(1),
    ];
    let link = [message(Type::LinkCredit, 0), message(Type::Heartbeat, 0)];
    mem.map(Message::Mem).into_iter().chain(link).collect()
}

#[test]
fn nothing_comes_before_the_proof_is_done() {
    for end in [End::Requester, End::Node] {
        // Before the challenge, and before the proof.
        for steps in 0..2 {
            let mut link = keyed(end, 1);
            if steps == 1 {
                challenged(&mut link, [2; 32], &KEY).unwrap();
            }
            for m in others() {
                assert_eq!(link.arrived(&m), Err(Violation::State), "{end:?} {m:?}");
                assert_eq!(link.proves(&m, &[], &KEY), Err(Failed::Order), "{m:?}");
            }
            assert!(link.is_proving());
            assert_eq!(link.peer(), None);
        }
    }
}

#[test]
fn the_link_is_as_any_other_one_behind_it() {
    let (a, b, [first, second]) = pair([1, 2]);
    for (mut link, expected) in [
        (a, MemHeader::answer(1, Op::Free, Status::Ok)),
        (b, MemHeader::ask(1, Op::Free)),
    ] {
        let hello = Message::Mem(MemHeader::hello(64, 1024, 0));
        let m = Message::Mem(expected);
        assert_eq!(
            link.arrived(&m),
            Err(Violation::State),
            "the hello is still the first"
        );
        assert_eq!(link.arrived(&hello), Ok(()));
        assert_eq!(link.arrived(&m), Ok(()));
        assert_eq!(link.arrived(&message(Type::Heartbeat, 0)), Ok(()));
        for (kind, len) in [(Type::Challenge, 32), (Type::Proof, 64)] {
            assert_eq!(link.arrived(&message(kind, len)), Err(Violation::State));
        }
        for macs in [first, second] {
            assert_eq!(proved(&mut link, &macs, &KEY), Err(Failed::Order));
        }
        assert!(!link.is_late(u64::MAX));
    }
}

#[test]
fn without_a_key_there_is_no_proof() {
    let mut link = Link::new(End::Node);
    let hello = Message::Mem(MemHeader::hello(64, 1024, 0));
    assert_eq!(link.arrived(&hello), Err(Violation::State), "no hello yet");
    assert!(!link.is_keyed() && !link.is_unproved());
    link.says(false);
    assert!(!link.is_proving() && link.is_unproved());
    assert_eq!(challenged(&mut link, [1; 32], &KEY), Err(Failed::Order));
    assert_eq!(
        link.arrived(&message(Type::Challenge, 32)),
        Err(Violation::State)
    );
    assert_eq!(link.arrived(&hello), Ok(()));
    assert!(!link.is_late(u64::MAX));
    // A key is demanded, and the peer's hello has not been heard.
    let mut link = Link::new(End::Requester);
    link.says(true);
    assert!(link.is_proving() && link.begin(0).is_none());
    assert_eq!(link.arrived(&hello), Err(Violation::State));
    assert_eq!(challenged(&mut link, [1; 32], &KEY), Err(Failed::Order));
}

#[test]
fn another_key_and_none() {
    let mut node = keyed(End::Node, 2);
    let mut requester = keyed(End::Requester, 1);
    let macs = challenged(&mut requester, [2; 32], &OTHER)
        .unwrap()
        .unwrap();
    challenged(&mut node, [1; 32], &KEY).unwrap();
    assert_eq!(proved(&mut node, &macs, &KEY), Err(Failed::Wrong));
    assert!(node.is_proving());
    assert_eq!(proved(&mut requester, &macs, &OTHER), Err(Failed::Wrong));
    let mut late = keyed(End::Requester, 1);
    assert_eq!(challenged(&mut late, [2; 32], &NONE), Err(Failed::NoKey));
}

#[test]
fn lengths() {
    let mut link = keyed(End::Node, 1);
    for len in [0, 31, 33, 64] {
        let m = message(Type::Challenge, len);
        let found = link.proves(&m, &vec![0; len], &KEY);
        assert_eq!(found, Err(Failed::Order), "{len}");
    }
    challenged(&mut link, [2; 32], &KEY).unwrap();
    for len in [0, 32, 63, 65] {
        let m = message(Type::Proof, len);
        let found = link.proves(&m, &vec![0; len], &KEY);
        assert_eq!(found, Err(Failed::Order), "{len}");
    }
}

#[test]
fn a_peer_that_does_not_answer() {
    let mut link = keyed(End::Node, 1);
    assert!(!link.is_late(u64::MAX), "the queue pair is not connected");
    link.begin(7).unwrap();
    assert!(!link.is_late(WITHIN_NS + 7) && link.is_late(WITHIN_NS + 8));
    challenged(&mut link, [2; 32], &KEY).unwrap();
    assert!(link.is_late(WITHIN_NS + 8), "half a proof is none");
}

#[test]
fn replays_and_reflections_fail() {
    let (_, _, [first, second]) = pair([1, 2]);
    // The same challenge of the peer, and another one of ours.
    let mut node = keyed(End::Node, 3);
    challenged(&mut node, [1; 32], &KEY).unwrap();
    assert_eq!(proved(&mut node, &first, &KEY), Err(Failed::Wrong));
    let mut requester = keyed(End::Requester, 3);
    let own = challenged(&mut requester, [2; 32], &KEY).unwrap().unwrap();
    assert_eq!(proved(&mut requester, &second, &KEY), Err(Failed::Wrong));
    assert_eq!(proved(&mut requester, &own, &KEY), Err(Failed::Wrong));
    // Its own challenge, and its own proof.
    let mut requester = keyed(End::Requester, 4);
    let own = challenged(&mut requester, [4; 32], &KEY).unwrap().unwrap();
    assert_eq!(proved(&mut requester, &own, &KEY), Err(Failed::Wrong));
}

/// The role is in the hellos: a proof for streams, between the same queue pairs, is of no use.
#[test]
fn a_proof_for_streams_is_none_for_memory() {
    let mut streams = proof_of(End::Requester, Role::Streams, 1);
    let macs = streams.on_challenge([2; 32], &KEY).unwrap().unwrap();
    let mut node = keyed(End::Node, 2);
    challenged(&mut node, [1; 32], &KEY).unwrap();
    assert_eq!(proved(&mut node, &macs, &KEY), Err(Failed::Wrong));
    assert!(node.is_proving());
}

#[derive(Clone, Debug)]
enum Step {
    Challenge(u8),
    Proof(Vec<u8>),
    Other(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..4_u8).prop_map(Step::Challenge),
        proptest::collection::vec(any::<u8>(), PROOF_LEN).prop_map(Step::Proof),
        (0..8_usize).prop_map(Step::Other),
    ]
}

proptest! {
    /// Whatever a peer without the key sends: the end is not up, and takes none of it.
    #[test]
    fn no_key_no_link(node: bool, steps in proptest::collection::vec(step(), 0..12)) {
        let end = if node { End::Node } else { End::Requester };
        let mut link = keyed(end, 1);
        let all = others();
        for step in steps {
            match step {
                Step::Challenge(by) => {
                    let _ = challenged(&mut link, [by; 32], &KEY);
                }
                Step::Proof(bytes) => {
                    let macs = bytes.try_into().unwrap();
                    prop_assert!(proved(&mut link, &macs, &KEY).is_err());
                }
                Step::Other(n) => prop_assert!(link.arrived(&all[n]).is_err()),
            }
            prop_assert!(link.is_proving() && link.peer().is_none());
        }
    }
}
