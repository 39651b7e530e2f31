// SPDX-License-Identifier: GPL-2.0
//! The proof of a key: the module's host has one for our address, and another one for our other
//! address. We have the right one, and cheat with everything else.

use std::io;
use std::net::Ipv4Addr;
use std::thread::{sleep, JoinHandle};
use std::time::{Duration, Instant};

use hmac::{Hmac, Mac};
use sha2::Sha256;
use zrs::keys::{add_secret, Proofs};
use zrs::{Stream, Zrs};
use zrs_core::proof::{self, Challenge, End, Keys, Macs, Proof, Side, MAC_LEN, TEXT_LEN};
use zrs_core::wire::{Denial, Header, Hello, Type, HELLO_MOST};
use zrs_core::ChanId;
use zrs_rules::keys::Entry;

use super::server::carries;
use super::{ensure, slow, whole, Case};
use crate::peer::{hello, said, Peer};
use crate::verbs::{in_net, Endpoint, Listener, REJECTED};
use crate::world::{expect_end, expect_errno, joined, Outcome, World};

/// The key for our address, the key for our other address, and a key that the module lacks.
pub(super) const OURS: &[u8] = b"the key for our first address...";
pub(super) const OTHERS: &[u8] = b"the key for our second address..";
pub(super) const NOBODYS: &[u8] = b"a key that the module lacks.....";

/// Keys of ours.
pub(super) struct Ring<'a>(pub(super) &'a [&'a [u8]]);

impl Keys for Ring<'_> {
    fn mac(&self, n: usize, text: &[u8; TEXT_LEN]) -> Option<[u8; MAC_LEN]> {
        let mut mac = Hmac::<Sha256>::new_from_slice(self.0.get(n)?).ok()?;
        mac.update(text);
        Some(mac.finalize().into_bytes().into())
    }
}

/// The keys of the module's host, until it is dropped.
pub(super) struct KeysThere {
    net: String,
    entries: Vec<Entry>,
}

impl KeysThere {
    fn put(&mut self, at: Ipv4Addr, name: &str, secret: &[u8]) -> Outcome {
        let text = format!("{at}/32 {name}");
        let entries = zrs_rules::keys::parse_all(&text).map_err(|e| said(&e.to_string()))?;
        in_net(&self.net, || {
            for entry in &entries {
                add_secret(&entry.name, secret)?;
                Zrs::open()?.put_key(entry)?;
            }
            Ok(())
        })?;
        self.entries.extend(entries);
        Ok(())
    }
}

impl Drop for KeysThere {
    fn drop(&mut self) {
        // The next case fails if a key stays.
        let _ = in_net(&self.net, || {
            let zrs = Zrs::open()?;
            for entry in &self.entries {
                zrs.remove_key(entry.net, Some(&entry.name))?;
            }
            Ok(())
        });
    }
}

pub(super) fn keys(w: &World) -> io::Result<KeysThere> {
    let mut there = KeysThere {
        net: w.net.clone(),
        entries: Vec::new(),
    };
    there.put(w.local, "hostile-ours", OURS)?;
    there.put(w.other, "hostile-others", OTHERS)?;
    Ok(there)
}

/// The hello of a host with a key.
pub(super) fn keyed() -> Hello {
    Hello {
        features: proof::FEATURE,
        ..hello()
    }
}

/// A message of the proof.
fn message(kind: Type, len: usize) -> Header {
    let mut h = Header::new(kind, ChanId::default(), ChanId::default());
    h.len = len as u32;
    h
}

pub(super) fn say(peer: &mut Peer, kind: Type, bytes: &[u8]) -> Outcome {
    peer.send(message(kind, bytes.len()), bytes)
}

/// The payload of the module's next message, which must be of this type.
pub(super) fn hear<const N: usize>(w: &World, peer: &mut Peer, kind: Type) -> io::Result<[u8; N]> {
    let (_, bytes) = peer.expect(kind, w.limit(10))?;
    bytes.try_into().map_err(|_| said("of another length"))
}

/// Both ends of a link with these hellos: ours and the module's.
pub(super) fn ends(
    w: &World,
    ep: &Endpoint,
    [sent, heard]: [[u8; HELLO_MOST]; 2],
) -> io::Result<(End, End)> {
    let (own, theirs) = ep.numbers()?;
    let end = |hello, addr: Ipv4Addr, qp| End {
        hello,
        addr: addr.to_ipv6_mapped().octets(),
        qp,
    };
    Ok((end(sent, w.local, own), end(heard, w.victim, theirs)))
}

/// A challenge of ours: the same for each link, as a replay needs it.
pub(super) const CHALLENGE: Challenge = [0x5c; 32];

/// A proof after the exchange of the challenges.
pub(super) struct Begun {
    pub(super) side: Side,
    pub(super) ends: (End, End),
    pub(super) theirs: Challenge,
}

impl Begun {
    /// Returns the connector's proof, with these keys.
    pub(super) fn macs(&self, keys: &[&[u8]]) -> Macs {
        let (mut ours, ring) = (self.proof(), Ring(keys));
        match ours.on_challenge(self.theirs, &ring) {
            Ok(Some(macs)) => macs,
            other => unreachable!("{other:?} of a connector"),
        }
    }

    pub(super) fn proof(&self) -> Proof {
        let filler = [0xf1; proof::PROOF_LEN];
        Proof::new(self.side, self.ends, CHALLENGE, filler)
    }
}

/// Challenges are exchanged on the link.
fn begin(w: &World, peer: &mut Peer, side: Side) -> io::Result<Begun> {
    say(peer, Type::Challenge, &CHALLENGE)?;
    Ok(Begun {
        side,
        ends: ends(w, &peer.ep, peer.hellos)?,
        theirs: hear(w, peer, Type::Challenge)?,
    })
}

/// Makes a link to the module, and exchanges the challenges.
fn link(w: &mut World) -> io::Result<(Peer, Begun)> {
    let mut peer = w.link_as(keyed(), true)?;
    let begun = begin(w, &mut peer, Side::Connector)?;
    Ok((peer, begun))
}

/// How often each counter of proofs has counted since.
fn more(w: &World, since: &Proofs) -> io::Result<Vec<(&'static str, u64)>> {
    let now = w.zrs.proofs()?;
    let all = [
        ("proved", now.proved - since.proved),
        ("unoffered", now.unoffered - since.unoffered),
        ("keyless", now.keyless - since.keyless),
        ("wrong", now.wrong - since.wrong),
        ("unusable", now.unusable - since.unusable),
        ("silent", now.silent - since.silent),
        ("refused_there", now.refused_there - since.refused_there),
    ];
    Ok(all.into_iter().filter(|(_, n)| *n != 0).collect())
}

pub(super) fn counted(w: &World, since: &Proofs, expected: &[(&'static str, u64)]) -> Outcome {
    let found = more(w, since)?;
    let why = format!("counted {found:?}, expected {expected:?}");
    ensure(found == expected, &why)
}

/// Something in place of a right proof: the link ends, and this is counted.
fn refused(
    w: &mut World,
    expected: &[(&'static str, u64)],
    cheat: impl FnOnce(&mut World, &mut Peer, Begun) -> Outcome,
) -> Outcome {
    let _keys = keys(w)?;
    let _victim = w.listen()?;
    let (mut peer, begun) = link(w)?;
    let (before, proofs) = (w.stats()?, w.zrs.proofs()?);
    cheat(w, &mut peer, begun)?;
    w.expect_closed(&mut peer, &before)?;
    ensure(!peer.has_message()?, "the module has answered")?;
    counted(w, &proofs, expected)
}

/// A proof that is wrong.
fn wrong(w: &mut World, macs: fn(Begun) -> Macs) -> Outcome {
    refused(w, &[("wrong", 1)], |_, peer, begun| {
        say(peer, Type::Proof, &macs(begun))
    })
}

/// Sends the right proof for a link that differs in one field.
fn wrong_end(w: &mut World, change: fn(&mut End, &mut End)) -> Outcome {
    refused(w, &[("wrong", 1)], |_, peer, mut begun| {
        change(&mut begun.ends.0, &mut begun.ends.1);
        say(peer, Type::Proof, &begun.macs(&[OURS]))
    })
}

/// A message that the protocol does not allow before the link is up, or not once more: the link
/// ends as one that breaks a rule, and no channel is opened. The number is that of a port with a
/// listener.
fn forbidden(w: &mut World, begins: bool, act: fn(&mut Peer, u16) -> Outcome) -> Outcome {
    let _keys = keys(w)?;
    let victim = w.listen()?;
    let mut peer = w.link_as(keyed(), true)?;
    if begins {
        begin(w, &mut peer, Side::Connector)?;
    }
    let (before, proofs) = (w.stats()?, w.zrs.proofs()?);
    act(&mut peer, victim.port)?;
    w.expect_violation(&mut peer, &before)?;
    let after = w.stats()?;
    ensure(after.channels == before.channels, "a channel was opened")?;
    counted(w, &proofs, &[])
}

/// A message of the proof of another length than it has.
fn length(w: &mut World, kind: Type, len: usize) -> Outcome {
    let _keys = keys(w)?;
    let _victim = w.listen()?;
    let mut peer = w.link_as(keyed(), true)?;
    let bytes = match kind {
        Type::Proof => {
            let begun = begin(w, &mut peer, Side::Connector)?;
            [begun.macs(&[OURS]), [0; proof::PROOF_LEN]].concat()
        }
        _ => [CHALLENGE; 2].concat(),
    };
    let (before, proofs) = (w.stats()?, w.zrs.proofs()?);
    say(&mut peer, kind, &bytes[..len])?;
    w.expect_violation(&mut peer, &before)?;
    counted(w, &proofs, &[])
}

/// A link that is up by a proof with these keys, which the module has answered with its own; and
/// our proof.
fn proved(w: &mut World, keys: &[&[u8]]) -> io::Result<(Peer, Macs)> {
    let (mut peer, begun) = link(w)?;
    let (mut ours, ring) = (begun.proof(), Ring(keys));
    let macs = ours.on_challenge(begun.theirs, &ring).ok().flatten();
    let macs = macs.ok_or_else(|| said("no proof of ours"))?;
    say(&mut peer, Type::Proof, &macs)?;
    let theirs = hear(w, &mut peer, Type::Proof)?;
    match ours.on_proof(&theirs, &ring) {
        Ok(None) if ours.is_done() => Ok((peer, macs)),
        other => Err(said(&format!("the module's proof: {other:?}"))),
    }
}

/// The right proof: the link carries a connection.
fn right(w: &mut World, ours: &[&[u8]]) -> Outcome {
    let _keys = keys(w)?;
    let victim = w.listen()?;
    let proofs = w.zrs.proofs()?;
    let (mut peer, _) = proved(w, ours)?;
    let mut chan = peer.open(victim.port, w.limit(10))?;
    let mut stream = victim.accept(w)?;
    peer.data(&mut chan, b"proved")?;
    peer.send(chan.header(Type::Fin), &[])?;
    expect_end(&mut stream, b"proved", &[0])?;
    peer.alive(w.limit(10))?;
    counted(w, &proofs, &[("proved", 1)])
}

/// The proof of an earlier link, which the module took, once more. Our challenge is the same.
fn replayed(w: &mut World) -> Outcome {
    refused(w, &[("proved", 1), ("wrong", 1)], |w, peer, begun| {
        let (mut earlier, past) = link(w)?;
        let macs = past.macs(&[OURS]);
        say(&mut earlier, Type::Proof, &macs)?;
        let _: Macs = hear(w, &mut earlier, Type::Proof)?;
        ensure(past.theirs != begun.theirs, "the same challenge twice")?;
        say(peer, Type::Proof, &macs)
    })
}

/// The right proof, once more on a link that is up by it.
fn twice(w: &mut World) -> Outcome {
    let _keys = keys(w)?;
    let _victim = w.listen()?;
    let (mut peer, macs) = proved(w, &[OURS])?;
    let before = w.stats()?;
    say(&mut peer, Type::Proof, &macs)?;
    w.expect_violation(&mut peer, &before)
}

/// A hello without the offer of a proof.
fn not_offered(w: &mut World) -> Outcome {
    let _keys = keys(w)?;
    let _victim = w.listen()?;
    let proofs = w.zrs.proofs()?;
    let from = w.source();
    let ep = Peer::ask(from, w.service(), &hello().encode(), 0)?;
    let event = ep.event(w.limit(10))?.ok_or_else(|| said("no answer"))?;
    ensure(event.kind == REJECTED, "not refused")?;
    let why = Hello::denial(event.data());
    ensure(why == Some(Denial::Unproved), "refused for another reason")?;
    counted(w, &proofs, &[("unoffered", 1)])
}

/// We go in the middle of the proof.
fn gone(w: &mut World) -> Outcome {
    let _keys = keys(w)?;
    let _victim = w.listen()?;
    let (peer, _) = link(w)?;
    let base = w.zrs.proofs()?;
    peer.ep.disconnect()?;
    drop(peer);
    let end = Instant::now() + w.limit(10);
    while more(w, &base)?.is_empty() && Instant::now() < end {
        sleep(Duration::from_millis(10));
    }
    counted(w, &base, &[("refused_there", 1)])
}

/// The module's link to us, for a program's connection, which we accept with this hello.
pub(super) fn accepted(
    w: &World,
    server: &Listener,
    hello: Hello,
) -> io::Result<(Peer, JoinHandle<io::Result<Stream>>)> {
    let caller = w.caller();
    let (ep, theirs) = w.request(server)?;
    let offered = Hello::decode(&theirs).is_ok_and(|h| h.features & proof::FEATURE != 0);
    ensure(offered, "the module offers no proof")?;
    let peer = Peer::accept(ep, &theirs, &hello.encode(), true, w.limit(10))?;
    Ok((peer, caller))
}

/// The module proves its key to us, and we prove ours: it opens a channel.
fn server_right(w: &mut World) -> Outcome {
    let _keys = keys(w)?;
    let server = w.serve()?;
    let proofs = w.zrs.proofs()?;
    let (mut peer, caller) = accepted(w, &server, keyed())?;
    let begun = begin(w, &mut peer, Side::Acceptor)?;
    let macs = hear(w, &mut peer, Type::Proof)?;
    let (mut ours, ring) = (begun.proof(), Ring(&[OURS]));
    let _ = ours.on_challenge(begun.theirs, &ring);
    match ours.on_proof(&macs, &ring) {
        Ok(Some(macs)) => say(&mut peer, Type::Proof, &macs)?,
        other => return Err(said(&format!("the module's proof: {other:?}"))),
    }
    carries(w, &mut peer, caller)?;
    counted(w, &proofs, &[("proved", 1)])
}

/// Our answer to the module's proof is wrong: nothing follows on the link, and connect() fails.
fn server_wrong(w: &mut World, answer: fn(&World, &mut Peer) -> Outcome) -> Outcome {
    let _keys = keys(w)?;
    let server = w.serve()?;
    let (before, proofs) = (w.stats()?, w.zrs.proofs()?);
    let (mut peer, caller) = accepted(w, &server, keyed())?;
    answer(w, &mut peer)?;
    expect_errno(joined(caller), &[libc::EACCES])?;
    w.expect_closed(&mut peer, &before)?;
    ensure(!peer.has_message()?, "the module says more")?;
    counted(w, &proofs, &[("wrong", 1)])
}

/// Its challenge and its proof come back to the module.
fn reflect(w: &World, peer: &mut Peer) -> Outcome {
    let theirs: Challenge = hear(w, peer, Type::Challenge)?;
    say(peer, Type::Challenge, &theirs)?;
    let macs: Macs = hear(w, peer, Type::Proof)?;
    say(peer, Type::Proof, &macs)
}

/// A proof by a key that the module does not have.
fn strange(w: &World, peer: &mut Peer) -> Outcome {
    let begun = begin(w, peer, Side::Acceptor)?;
    let _: Macs = hear(w, peer, Type::Proof)?;
    let text = Begun {
        side: Side::Connector,
        ..begun
    };
    say(peer, Type::Proof, &text.macs(&[NOBODYS]))
}

/// We accept without the offer of a proof.
fn server_not_offered(w: &mut World) -> Outcome {
    let _keys = keys(w)?;
    let server = w.serve()?;
    let proofs = w.zrs.proofs()?;
    let (mut peer, caller) = accepted(w, &server, hello())?;
    expect_errno(joined(caller), &[libc::EACCES])?;
    let _ = peer.closed(w.limit(10));
    ensure(!peer.has_message()?, "the module says something")?;
    counted(w, &proofs, &[("unoffered", 1)])
}

/// We have no key, and let the module itself answer its challenge, on its link to us.
fn relayed(w: &mut World) -> Outcome {
    let _keys = keys(w)?;
    let _victim = w.listen()?;
    let server = w.serve()?;
    let proofs = w.zrs.proofs()?;
    let (mut oracle, caller) = accepted(w, &server, keyed())?;
    let (mut peer, begun) = link(w)?;
    let _: Challenge = hear(w, &mut oracle, Type::Challenge)?;
    say(&mut oracle, Type::Challenge, &begun.theirs)?;
    let macs: Macs = hear(w, &mut oracle, Type::Proof)?;
    let before = w.stats()?;
    say(&mut peer, Type::Proof, &macs)?;
    w.expect_closed(&mut peer, &before)?;
    counted(w, &proofs, &[("wrong", 1)])?;
    say(&mut oracle, Type::Proof, &macs)?;
    expect_errno(joined(caller), &[libc::EACCES])?;
    counted(w, &proofs, &[("wrong", 2)])
}

pub const CASES: &[Case] = &[
    whole("proof/right", |w| right(w, &[OURS])),
    whole("proof/right-second", |w| right(w, &[NOBODYS, OURS])),
    whole("proof/replayed", replayed),
    whole("proof/relayed", relayed),
    whole("proof/other-key", |w| {
        wrong(w, |begun| begun.macs(&[NOBODYS, OTHERS]))
    }),
    whole("proof/other-prefix", |w| {
        wrong(w, |begun| begun.macs(&[OTHERS]))
    }),
    whole("proof/zeros", |w| wrong(w, |_| [0; proof::PROOF_LEN])),
    whole("proof/one-bit", |w| {
        wrong(w, |begun| {
            let mut macs = begun.macs(&[OURS]);
            macs[MAC_LEN - 1] ^= 1;
            macs
        })
    }),
    whole("proof/halves-apart", |w| {
        wrong(w, |begun| {
            let mut macs = begun.macs(&[OURS]);
            macs.rotate_left(MAC_LEN / 2);
            macs
        })
    }),
    whole("proof/other-challenge", |w| {
        wrong(w, |begun| {
            let theirs = [0; 32];
            Begun { theirs, ..begun }.macs(&[OURS])
        })
    }),
    whole("proof/challenges-changed-over", |w| {
        wrong(w, |begun| {
            let side = Side::Connector;
            let mut ours = Proof::new(side, begun.ends, begun.theirs, [0; 64]);
            let macs = ours.on_challenge(CHALLENGE, &Ring(&[OURS]));
            macs.ok().flatten().expect("a connector proves")
        })
    }),
    whole("proof/other-nonce", |w| {
        wrong_end(w, |own, _| own.hello[8] ^= 1)
    }),
    whole("proof/other-nonce-there", |w| {
        wrong_end(w, |_, their| their.hello[15] ^= 1)
    }),
    whole("proof/other-address", |w| {
        wrong_end(w, |own, _| own.addr[15] ^= 7)
    }),
    whole("proof/other-address-there", |w| {
        wrong_end(w, |_, their| their.addr[12] ^= 1)
    }),
    whole("proof/other-queue-pair", |w| {
        wrong_end(w, |own, _| own.qp ^= 1)
    }),
    whole("proof/other-queue-pair-there", |w| {
        wrong_end(w, |_, their| their.qp ^= 1)
    }),
    whole("proof/ends-changed-over", |w| wrong_end(w, core::mem::swap)),
    whole("proof/second-try", |w| {
        refused(w, &[("wrong", 1)], |_, peer, begun| {
            say(peer, Type::Proof, &[0; proof::PROOF_LEN])?;
            say(peer, Type::Proof, &begun.macs(&[OURS]))
        })
    }),
    slow("proof/silent", |w| {
        refused(w, &[("silent", 1)], |_, _, _| Ok(()))
    }),
    whole("proof/gone", gone),
    whole("proof/not-offered", not_offered),
    whole("proof/twice", twice),
    whole("proof/challenge-twice", |w| {
        forbidden(w, true, |peer, _| say(peer, Type::Challenge, &CHALLENGE))
    }),
    whole("proof/before-the-challenge", |w| {
        forbidden(w, false, |peer, _| say(peer, Type::Proof, &[0; 64]))
    }),
    whole("proof/connect-first", |w| {
        forbidden(w, false, |peer, port| {
            let h = peer.connect_header(port);
            peer.send(h, &[])
        })
    }),
    whole("proof/connect-for-a-proof", |w| {
        forbidden(w, true, |peer, port| {
            let h = peer.connect_header(port);
            peer.send(h, &[])
        })
    }),
    whole("proof/heartbeat-for-a-proof", |w| {
        forbidden(w, true, |peer, _| {
            let none = ChanId::default();
            peer.send(Header::new(Type::Heartbeat, none, none), &[])
        })
    }),
    whole("proof/length-0", |w| length(w, Type::Proof, 0)),
    whole("proof/length-32", |w| length(w, Type::Proof, 32)),
    whole("proof/length-63", |w| length(w, Type::Proof, 63)),
    whole("proof/length-65", |w| length(w, Type::Proof, 65)),
    whole("proof/length-128", |w| length(w, Type::Proof, 128)),
    whole("proof/challenge-of-0", |w| length(w, Type::Challenge, 0)),
    whole("proof/challenge-of-31", |w| length(w, Type::Challenge, 31)),
    whole("proof/challenge-of-33", |w| length(w, Type::Challenge, 33)),
    whole("proof/server-right", server_right),
    whole("proof/server-reflects", |w| server_wrong(w, reflect)),
    whole("proof/server-other-key", |w| server_wrong(w, strange)),
    whole("proof/server-not-offered", server_not_offered),
];
