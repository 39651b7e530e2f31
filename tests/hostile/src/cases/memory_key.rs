// SPDX-License-Identifier: GPL-2.0
//! The proof of a key on memory links: the module's host has a key for our address. Nothing is
//! served, and nothing is asked, before the right proof. A peer that cheats loses its link, and no
//! other.

use std::io;

use zrs_core::mem::status::Status;
use zrs_core::mem::wire::{MemHeader, Op as MemOp, Type as MemType};
use zrs_core::proof::{Challenge, Macs, Proof, Side, PROOF_LEN};
use zrs_core::wire::{Hello, Type};

use super::memory::as_node;
use super::proof::{
    accepted, counted, ends, keyed, keys, Begun, Ring, CHALLENGE, NOBODYS, OTHERS, OURS,
};
use super::{ensure, slow, whole, Case};
use crate::mem_peer::{MemPeer, Victim};
use crate::peer::{hello, said};
use crate::verbs::Listener;
use crate::world::{expect_errno, joined, Outcome, World};

const SMALL: u64 = 1 << 20;
const DENIED: &[i32] = &[libc::EACCES];

/// Challenges are exchanged on the link.
fn begin(w: &World, peer: &mut MemPeer, side: Side) -> io::Result<Begun> {
    peer.say(Type::Challenge, &CHALLENGE)?;
    Ok(Begun {
        side,
        ends: ends(w, &peer.ep, peer.hellos)?,
        theirs: peer.hear(Type::Challenge, w.limit(10))?,
    })
}

/// A link to the module that is up by the right proof.
fn proved(w: &mut World, keys: &[&[u8]]) -> io::Result<MemPeer> {
    let mut peer = MemPeer::connect_as(w, &keyed())?;
    let begun = begin(w, &mut peer, Side::Connector)?;
    let (mut ours, ring) = (begun.proof(), Ring(keys));
    let macs = ours.on_challenge(begun.theirs, &ring).ok().flatten();
    let macs = macs.ok_or_else(|| said("no proof of ours"))?;
    peer.say(Type::Proof, &macs)?;
    let theirs = peer.hear(Type::Proof, w.limit(10))?;
    match ours.on_proof(&theirs, &ring) {
        Ok(None) if ours.is_done() => {}
        other => return Err(said(&format!("the module's proof: {other:?}"))),
    }
    peer.greet()?;
    peer.expect(MemType::Hello, w.limit(10))?;
    Ok(peer)
}

/// The right proof: the link serves as any other one.
fn right(w: &mut World, ours: &[&[u8]]) -> Outcome {
    let _keys = keys(w)?;
    let victim = Victim::new(w, SMALL)?;
    let proofs = w.zrs.proofs()?;
    let mut peer = proved(w, ours)?;
    peer.alive(&victim, w)?;
    let put = MemHeader {
        node: victim.node,
        key: victim.key,
        ..peer.new_ask(MemOp::Put)
    };
    let (answer, _) = peer.ask(put, b"proved", w)?;
    ensure(answer.status == Status::Ok, "PUT was refused")?;
    ensure(victim.bytes()?.starts_with(b"proved"), "no byte has come")?;
    counted(w, &proofs, &[("proved", 1)])?;
    drop(peer);
    victim.free(w)
}

/// Something that must not end well on a link that offers a proof, which is begun where `begins`.
/// That link ends, nothing is said on it any more, and another one of ours goes on.
fn cheated(
    w: &mut World,
    begins: bool,
    expected: &[(&'static str, u64)],
    violations: u64,
    cheat: impl FnOnce(&mut World, &mut MemPeer, &Victim, Option<Begun>) -> Outcome,
) -> Outcome {
    let _keys = keys(w)?;
    let victim = Victim::new(w, SMALL)?;
    let mut other = proved(w, &[OURS])?;
    let mut peer = MemPeer::connect_as(w, &keyed())?;
    let begun = match begins {
        true => Some(begin(w, &mut peer, Side::Connector)?),
        false => {
            let _: Challenge = peer.hear(Type::Challenge, w.limit(10))?;
            None
        }
    };
    let (before, proofs) = (w.stats()?, w.zrs.proofs()?);
    cheat(w, &mut peer, &victim, begun)?;
    peer.is_closed(w.limit(10))?;
    ensure(!peer.has_message()?, "the module has answered")?;
    let after = w.stats()?;
    let count = after.protocol_errors - before.protocol_errors;
    let what = format!("{count} violations counted, expected {violations}");
    ensure(count == violations, &what)?;
    counted(w, &proofs, expected)?;
    ensure(
        victim.bytes()?.iter().all(|b| *b == 0),
        "a byte was changed",
    )?;
    other.alive(&victim, w)?;
    drop((peer, other));
    victim.free(w)
}

/// A message other than the one that comes next.
fn forbidden(w: &mut World, begins: bool, say: fn(&mut MemPeer, &Victim) -> Outcome) -> Outcome {
    cheated(w, begins, &[], 1, |_, peer, victim, _| say(peer, victim))
}

/// A proof that is wrong.
fn wrong(w: &mut World, macs: fn(Begun) -> Macs) -> Outcome {
    cheated(w, true, &[("wrong", 1)], 0, |_, peer, _, begun| {
        let begun = begun.ok_or_else(|| said("not begun"))?;
        peer.say(Type::Proof, &macs(begun))
    })
}

/// An ask with the right key of a region.
fn ask(peer: &mut MemPeer, victim: &Victim, op: MemOp) -> MemHeader {
    let h = MemHeader {
        node: victim.node,
        key: victim.key,
        ..peer.new_ask(op)
    };
    match op {
        MemOp::Open => MemHeader { rights: 2, ..h },
        MemOp::Get => MemHeader { bytes: 100, ..h },
        _ => h,
    }
}

fn put(peer: &mut MemPeer, victim: &Victim) -> Outcome {
    let h = ask(peer, victim, MemOp::Put);
    peer.send(h, b"unproved")
}

/// The same behind our hello, as on a link without a proof.
fn greet_and_put(peer: &mut MemPeer, victim: &Victim) -> Outcome {
    peer.greet()?;
    put(peer, victim)
}

fn open(peer: &mut MemPeer, victim: &Victim) -> Outcome {
    peer.greet()?;
    let h = ask(peer, victim, MemOp::Open);
    peer.send(h, &[])
}

fn get(peer: &mut MemPeer, victim: &Victim) -> Outcome {
    peer.greet()?;
    let h = ask(peer, victim, MemOp::Get);
    peer.send(h, &[])
}

/// The proof of an earlier memory link, which the module took, once more.
fn replayed(w: &mut World) -> Outcome {
    let (earlier, challenge) = {
        let _keys = keys(w)?;
        let mut peer = MemPeer::connect_as(w, &keyed())?;
        let begun = begin(w, &mut peer, Side::Connector)?;
        let macs = begun.macs(&[OURS]);
        peer.say(Type::Proof, &macs)?;
        let _: Macs = peer.hear(Type::Proof, w.limit(10))?;
        (macs, begun.theirs)
    };
    cheated(w, true, &[("wrong", 1)], 0, |_, peer, _, begun| {
        let fresh = begun.is_some_and(|begun| begun.theirs != challenge);
        ensure(fresh, "the same challenge twice")?;
        peer.say(Type::Proof, &earlier)
    })
}

/// The proof is right, for a link of streams between the same queue pairs.
fn for_streams(w: &mut World) -> Outcome {
    wrong(w, |mut begun| {
        // The role.
        begun.ends.0.hello[6] = 0;
        begun.ends.1.hello[6] = 0;
        begun.macs(&[OURS])
    })
}

/// We have no key, and let the module itself answer its challenge, on a link of streams to us.
fn relayed(w: &mut World) -> Outcome {
    let _keys = keys(w)?;
    let victim = Victim::new(w, SMALL)?;
    let server = w.serve()?;
    let proofs = w.zrs.proofs()?;
    let (mut oracle, caller) = accepted(w, &server, keyed())?;
    let mut peer = MemPeer::connect_as(w, &keyed())?;
    let begun = begin(w, &mut peer, Side::Connector)?;
    super::proof::say(&mut oracle, Type::Challenge, &begun.theirs)?;
    let macs: Macs = {
        let _: Challenge = super::proof::hear(w, &mut oracle, Type::Challenge)?;
        super::proof::hear(w, &mut oracle, Type::Proof)?
    };
    peer.say(Type::Proof, &macs)?;
    peer.is_closed(w.limit(10))?;
    ensure(!peer.has_message()?, "the module has answered")?;
    counted(w, &proofs, &[("wrong", 1)])?;
    super::proof::say(&mut oracle, Type::Proof, &macs)?;
    expect_errno(joined(caller), DENIED)?;
    victim.free(w)
}

/// A hello without the offer of a proof.
fn not_offered(w: &mut World) -> Outcome {
    let _keys = keys(w)?;
    let victim = Victim::new(w, SMALL)?;
    let proofs = w.zrs.proofs()?;
    match MemPeer::connect_as(w, &hello()) {
        Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {}
        Err(e) => return Err(e),
        Ok(_) => return Err(said("not refused")),
    }
    counted(w, &proofs, &[("unoffered", 1)])?;
    victim.free(w)
}

/// Peers that prove nothing keep no place from a peer that does: the oldest link of the address ends,
/// long before the time for its proof is over.
fn places(w: &mut World) -> Outcome {
    let _keys = keys(w)?;
    let victim = Victim::new(w, SMALL)?;
    let proofs = w.zrs.proofs()?;
    let mut oldest = MemPeer::connect_as(w, &keyed())?;
    let _other = MemPeer::connect_as(w, &keyed())?;
    let mut peer = proved(w, &[OURS])?;
    counted(w, &proofs, &[("proved", 1)])?;
    oldest.is_closed(w.limit(10))?;
    peer.alive(&victim, w)?;
    drop(peer);
    victim.free(w)
}

/// An offer of a proof where the module has no key for us.
fn keyless(w: &mut World) -> Outcome {
    let victim = Victim::new(w, SMALL)?;
    let proofs = w.zrs.proofs()?;
    match MemPeer::connect_as(w, &keyed()) {
        Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {}
        Err(e) => return Err(e),
        Ok(_) => return Err(said("not refused")),
    }
    counted(w, &proofs, &[("keyless", 1)])?;
    victim.free(w)
}

/// We are the node that the module asks. It takes the link up by the right proof alone.
fn node_right(w: &mut World) -> Outcome {
    let _keys = keys(w)?;
    let proofs = w.zrs.proofs()?;
    as_node(w, &[libc::EDQUOT], |server| {
        let mut peer = MemPeer::accept_as(w, server, &keyed())?;
        let begun = begin(w, &mut peer, Side::Acceptor)?;
        let macs = peer.hear(Type::Proof, w.limit(10))?;
        let (mut ours, ring) = (begun.proof(), Ring(&[OURS]));
        let _ = ours.on_challenge(begun.theirs, &ring);
        match ours.on_proof(&macs, &ring) {
            Ok(Some(macs)) => peer.say(Type::Proof, &macs)?,
            other => return Err(said(&format!("the module's proof: {other:?}"))),
        }
        peer.greet()?;
        peer.expect(MemType::Hello, w.limit(10))?;
        let (asked, _) = peer.expect(MemType::Ask, w.limit(10))?;
        let no = MemHeader::answer(asked.id, MemOp::Alloc, Status::Quota);
        peer.send(no, &[])?;
        counted(w, &proofs, &[("proved", 1)])
    })
}

/// As a node we cheat: the module asks us nothing, and its program gets an error.
fn node_cheats(
    w: &mut World,
    ours: Hello,
    (errno, violations): (&[i32], u64),
    expected: &[(&'static str, u64)],
    cheat: fn(&World, &mut MemPeer) -> Outcome,
) -> Outcome {
    let _keys = keys(w)?;
    let (before, proofs) = (w.stats()?, w.zrs.proofs()?);
    as_node(w, errno, |server: &Listener| {
        let mut peer = MemPeer::accept_as(w, server, &ours)?;
        cheat(w, &mut peer)?;
        peer.is_closed(w.limit(10))?;
        ensure(peer.inbox.is_empty(), "the module has said more")
    })?;
    let count = w.stats()?.protocol_errors - before.protocol_errors;
    let what = format!("{count} violations counted, expected {violations}");
    ensure(count == violations, &what)?;
    counted(w, &proofs, expected)
}

/// Its challenge and its proof come back to the module.
fn reflect(w: &World, peer: &mut MemPeer) -> Outcome {
    let theirs: Challenge = peer.hear(Type::Challenge, w.limit(10))?;
    peer.say(Type::Challenge, &theirs)?;
    let macs: Macs = peer.hear(Type::Proof, w.limit(10))?;
    peer.say(Type::Proof, &macs)
}

/// A proof by a key that the module does not have.
fn strange(w: &World, peer: &mut MemPeer) -> Outcome {
    let begun = begin(w, peer, Side::Acceptor)?;
    let _: Macs = peer.hear(Type::Proof, w.limit(10))?;
    let ends = (begun.ends.1, begun.ends.0);
    let mut ours = Proof::new(Side::Connector, ends, begun.theirs, [0xf1; PROOF_LEN]);
    let macs = ours.on_challenge(CHALLENGE, &Ring(&[NOBODYS]));
    let macs = macs.ok().flatten().ok_or_else(|| said("no proof"))?;
    peer.say(Type::Proof, &macs)
}

pub const CASES: &[Case] = &[
    whole("memory-key/right", |w| right(w, &[OURS])),
    whole("memory-key/right-second", |w| right(w, &[NOBODYS, OURS])),
    whole("memory-key/put-first", |w| forbidden(w, false, put)),
    whole("memory-key/hello-and-put-first", |w| {
        forbidden(w, false, greet_and_put)
    }),
    whole("memory-key/open-first", |w| forbidden(w, false, open)),
    whole("memory-key/get-first", |w| forbidden(w, false, get)),
    whole("memory-key/hello-first", |w| {
        forbidden(w, false, |p, _| p.greet())
    }),
    whole("memory-key/proof-first", |w| {
        forbidden(w, false, |p, _| p.say(Type::Proof, &[0; PROOF_LEN]))
    }),
    whole("memory-key/put-for-a-proof", |w| forbidden(w, true, put)),
    whole("memory-key/hello-and-put-for-a-proof", |w| {
        forbidden(w, true, greet_and_put)
    }),
    whole("memory-key/open-for-a-proof", |w| forbidden(w, true, open)),
    whole("memory-key/hello-for-a-proof", |w| {
        forbidden(w, true, |p, _| p.greet())
    }),
    whole("memory-key/heartbeat-for-a-proof", |w| {
        forbidden(w, true, |p, _| p.say(Type::Heartbeat, &[]))
    }),
    whole("memory-key/challenge-twice", |w| {
        forbidden(w, true, |p, _| p.say(Type::Challenge, &CHALLENGE))
    }),
    whole("memory-key/half-a-proof", |w| {
        forbidden(w, true, |p, _| p.say(Type::Proof, &[0; PROOF_LEN / 2]))
    }),
    whole("memory-key/ask-behind-a-wrong-proof", |w| {
        cheated(w, true, &[("wrong", 1)], 0, |_, peer, victim, _| {
            peer.say(Type::Proof, &[0; PROOF_LEN])?;
            put(peer, victim)
        })
    }),
    whole("memory-key/replayed", replayed),
    whole("memory-key/relayed-from-streams", relayed),
    whole("memory-key/for-streams", for_streams),
    whole("memory-key/other-key", |w| {
        wrong(w, |begun| begun.macs(&[NOBODYS, OTHERS]))
    }),
    whole("memory-key/zeros", |w| wrong(w, |_| [0; PROOF_LEN])),
    whole("memory-key/ends-changed-over", |w| {
        wrong(w, |mut begun| {
            core::mem::swap(&mut begun.ends.0, &mut begun.ends.1);
            begun.macs(&[OURS])
        })
    }),
    whole("memory-key/other-queue-pair", |w| {
        wrong(w, |mut begun| {
            begun.ends.0.qp ^= 1;
            begun.macs(&[OURS])
        })
    }),
    whole("memory-key/gone", |w| {
        cheated(w, true, &[("refused_there", 1)], 0, |w, peer, _, _| {
            let proofs = w.zrs.proofs()?;
            peer.ep.disconnect()?;
            peer.wait(w.limit(10), |_| {
                let counted = w.zrs.proofs().ok()?.refused_there;
                (counted != proofs.refused_there).then_some(())
            })?;
            Ok(())
        })
    }),
    slow("memory-key/silent", |w| {
        cheated(w, true, &[("silent", 1)], 0, |_, _, _, _| Ok(()))
    }),
    whole("memory-key/places", places),
    whole("memory-key/not-offered", not_offered),
    whole("memory-key/no-key-here", keyless),
    whole("memory-key/node-right", node_right),
    whole("memory-key/node-reflects", |w| {
        node_cheats(w, keyed(), (DENIED, 0), &[("wrong", 1)], reflect)
    }),
    whole("memory-key/node-other-key", |w| {
        node_cheats(w, keyed(), (DENIED, 0), &[("wrong", 1)], strange)
    }),
    whole("memory-key/node-not-offered", |w| {
        node_cheats(w, hello(), (DENIED, 0), &[("unoffered", 1)], |_, _| Ok(()))
    }),
    slow("memory-key/node-silent", |w| {
        node_cheats(
            w,
            keyed(),
            (&[libc::EHOSTUNREACH], 0),
            &[("silent", 1)],
            |_, _| Ok(()),
        )
    }),
    whole("memory-key/node-hello-first", |w| {
        node_cheats(w, keyed(), (&[libc::ECONNRESET], 1), &[], |_, p| p.greet())
    }),
];
