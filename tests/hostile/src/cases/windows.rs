// SPDX-License-Identifier: GPL-2.0
//! Taking all windows, and the fate of a revoked one.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::thread::sleep;
use std::time::{Duration, Instant};

use zrs_core::channel::WINDOW_MIN;
use zrs_core::wire::{Header, Type};
use zrs_core::ChanId;

use super::resource::honest;
use super::{ensure, slow, whole, Case};
use crate::peer::{hello, said, Chan, Peer, Window, CREDIT};
use crate::verbs::{set_rcvbuf, Op};
use crate::world::{expect_end, Outcome, Victim, World};

/// Opens channels and takes windows until one of them is revoked: returns all channels, the last of
/// which waits for a window, and the one whose window is revoked.
fn take_all(
    w: &World,
    peer: &mut Peer,
    victim: &Victim,
    first: Chan,
) -> io::Result<(Vec<Chan>, usize)> {
    let mut chans = vec![first];
    loop {
        let last = chans.last_mut().expect("one");
        peer.send(last.header(Type::WindowRequest), &[])?;
        let (h, _) = peer.recv(w.limit(10))?;
        match h.kind {
            Type::WindowGrant if h.arg1 != 0 => {
                last.window = Some(Window {
                    lease: h.lease,
                    addr: h.arg2,
                    key: h.arg0,
                    size: h.arg1,
                    written: 0,
                });
                ensure(chans.len() < 100, "the pool has no end")?;
                chans.push(peer.open(victim.port, w.limit(10))?);
            }
            // None of them is idle yet.
            Type::WindowGrant => sleep(Duration::from_millis(50)),
            Type::WindowRevoke => {
                let asked = chans.iter().position(|c| c.local == h.dst);
                let asked = asked.ok_or_else(|| said("a window of no channel is asked back"))?;
                let lease = chans[asked].window.map(|window| window.lease);
                ensure(lease == Some(h.lease), "another lease is asked back")?;
                return Ok((chans, asked));
            }
            kind => return Err(said(&format!("{kind:?} to a WindowRequest"))),
        }
    }
}

/// The answer to the last channel's WindowRequest. The sweep of the link table may ask for
/// windows of other, idle channels before it comes; we do not give these windows back.
fn answer_to_last(w: &World, peer: &mut Peer, chans: &[Chan]) -> io::Result<Header> {
    let last = chans.last().expect("one").local;
    loop {
        let (h, _) = peer.recv(w.limit(10))?;
        match h.kind {
            Type::WindowGrant if h.dst == last => return Ok(h),
            Type::WindowRevoke if h.dst != last => {}
            kind => return Err(said(&format!("{kind:?} where WindowGrant was expected"))),
        }
    }
}

/// Others get none, and go the small way.
fn all(w: &mut World) -> Outcome {
    let (mut peer, first, _stream, victim) = w.channel()?;
    let before = w.stats()?;
    take_all(w, &mut peer, &victim, first)?;
    let bystander = w.bystander.as_ref();
    bystander.map_or(Ok(()), |b| b.goes_on(w.limit(10), 3))?;
    honest(w, "zrsA", 9997)?;
    ensure(
        w.stats()?.protocol_errors == before.protocol_errors,
        "a violation was counted",
    )
}

/// Gives it back, and writes into it all the same.
fn stale_key(w: &mut World) -> Outcome {
    let (mut peer, first, mut stream, victim) = w.channel()?;
    let (mut chans, asked) = take_all(w, &mut peer, &victim, first)?;
    let old = chans[asked].window.expect("a window");
    give_back(&mut peer, &mut chans[asked])?;
    // The waiting channel has it now: perhaps the same pages.
    let h = answer_to_last(w, &mut peer, &chans)?;
    ensure(h.arg1 != 0, "nobody got the window")?;
    ensure(h.arg0 != old.key, "the same key again")?;
    let before = w.stats()?;
    peer.post(Op::Write, &[b'o'; 5000], old.addr, old.key)?;
    w.expect_closed(&mut peer, &before)?;
    expect_end(&mut stream, &[], &[libc::ECONNRESET])
}

/// Never gives it back: after 10 seconds the link goes.
fn kept(w: &mut World) -> Outcome {
    let (mut peer, first, mut stream, victim) = w.channel()?;
    let (mut chans, _) = take_all(w, &mut peer, &victim, first)?;
    let began = Instant::now();
    let before = w.stats()?;
    // The waiting channel is told soon that there is none. (The bystander gives back its window when
    // that has been idle: whoever waits gets it, and the next one has to wait.)
    for tries in 1.. {
        let h = answer_to_last(w, &mut peer, &chans)?;
        if h.arg1 == 0 {
            break;
        }
        ensure(tries < 4, "somebody got the window")?;
        let last = peer.open(victim.port, w.limit(10))?;
        peer.send(last.header(Type::WindowRequest), &[])?;
        chans.push(last);
    }
    peer.closed(w.limit(20))
        .ok_or_else(|| said("the link was not closed"))?;
    ensure(began.elapsed() > Duration::from_secs(6), "closed too early")?;
    w.expect_closed(&mut peer, &before)?;
    expect_end(&mut stream, &[], &[libc::ECONNRESET])
}

/// Asks for a window for the last channel: its size, 0 for none, and how many windows of the
/// channels were asked back before, which are given back.
fn ask(w: &World, peer: &mut Peer, chans: &mut [Chan]) -> io::Result<(u32, usize)> {
    let last = chans.last().expect("one");
    let id = last.local;
    peer.send(last.header(Type::WindowRequest), &[])?;
    let mut returned = 0;
    loop {
        let (h, _) = peer.recv(w.limit(10))?;
        let chan = chans.iter_mut().find(|c| c.local == h.dst);
        let chan = chan.ok_or_else(|| said("a message for no channel"))?;
        match h.kind {
            Type::WindowGrant if h.dst == id => {
                chan.window = (h.arg1 != 0).then_some(Window {
                    lease: h.lease,
                    addr: h.arg2,
                    key: h.arg0,
                    size: h.arg1,
                    written: 0,
                });
                return Ok((h.arg1, returned));
            }
            Type::WindowRevoke => {
                give_back(peer, chan)?;
                returned += 1;
            }
            kind => return Err(said(&format!("{kind:?} to a WindowRequest"))),
        }
    }
}

/// Gives the channel's window back.
fn give_back(peer: &mut Peer, chan: &mut Chan) -> Outcome {
    let window = chan.window.take().ok_or_else(|| said("no window"))?;
    let mut revoked = chan.header(Type::Revoked);
    revoked.arg0 = window.lease;
    peer.send(revoked, &[])
}

/// A peer that takes one message in a second: often enough for the device not to give up.
struct Slow {
    peer: Peer,
    next: Instant,
}

impl Slow {
    /// Whether the link is there. Often.
    fn is_up(&mut self) -> io::Result<bool> {
        if self.peer.is_closed() {
            return Ok(false);
        }
        if Instant::now() >= self.next {
            self.peer.receive_one()?;
            self.next = Instant::now() + Duration::from_secs(1);
        }
        Ok(true)
    }
}

/// Gives a window back, and takes hardly any message from then on: the work request that makes its
/// key invalid does not complete. Nobody gets the pages, another host is asked for a window
/// meanwhile, which is leased again, and after 10 seconds the link goes. (On a device where an
/// invalidation gives a window back, and without a bystander, whose windows would be asked back,
/// too.)
fn stuck(w: &mut World) -> Outcome {
    let (mut stuck, mut chan, mut stream, victim) = w.channel()?;
    stuck.get_window(&mut chan, w.limit(10))?;
    let before = w.stats()?;
    let mut peer = w.link_from(Some(w.other), hello(), true)?;
    let mut chans = vec![peer.open(victim.port, w.limit(10))?];
    let end = Instant::now() + w.limit(30);
    let mut returned;
    loop {
        let (size, n) = ask(w, &mut peer, &mut chans)?;
        returned = n;
        if size != 0 {
            ensure(chans.len() < 100, "the pool has no end")?;
            chans.push(peer.open(victim.port, w.limit(10))?);
        } else if stuck.has_message()? {
            break;
        } else {
            // None of them is idle yet.
            ensure(Instant::now() < end, "no window is asked back")?;
            sleep(Duration::from_millis(50));
        }
    }
    stuck.expect(Type::WindowRevoke, w.limit(10))?;
    stuck.stop_receiving(w.limit(10))?;
    let began = Instant::now();
    give_back(&mut stuck, &mut chan)?;
    let mut stuck = Slow {
        peer: stuck,
        next: began,
    };
    // By then the module has the window, and nobody waits for it any more.
    let settled = Instant::now() + Duration::from_secs(2);
    while Instant::now() < settled && stuck.is_up()? {
        sleep(Duration::from_millis(10));
    }
    // The last answer above was none, though a window of the other host may have come back.
    let mut size = 0;
    while size == 0 {
        ensure(stuck.is_up()?, "the other host waits for the link's end")?;
        let n;
        (size, n) = ask(w, &mut peer, &mut chans)?;
        returned += n;
    }
    ensure(stuck.is_up()?, "the other host waits for the link's end")?;
    ensure(returned > 0, "the pages are given away")?;
    let end = Instant::now() + w.limit(20);
    while stuck.is_up()? {
        ensure(Instant::now() < end, "the link was not closed")?;
        peer.pump()?;
        sleep(Duration::from_millis(10));
    }
    ensure(began.elapsed() > Duration::from_secs(8), "closed too early")?;
    w.expect_closed(&mut stuck.peer, &before)?;
    expect_end(&mut stream, &[], &[libc::ECONNRESET])?;
    w.expect_alive(&mut peer, &before)
}

/// SO_RCVBUF is set while a grant waits for the link credit that we keep back: the window is
/// revoked behind the grant, and the next one is smaller. (The sweep of the link table, which
/// revokes idle windows, must not come in between.)
fn rcvbuf(w: &mut World) -> Outcome {
    let (mut peer, mut chan, stream, _victim) = w.channel()?;
    let before = w.stats()?;
    let credit = peer.credit_told();
    let send = |peer: &mut Peer, mut h: Header| {
        h.link_credit = credit;
        peer.send_as_is(&h.encode(), &[])
    };
    peer.gives_credit = false;
    // Each earns a Reset, until the module has no credit but for a word on its own.
    let nobody = ChanId {
        index: u32::MAX,
        gen: 1,
    };
    for q in 0..2 * CREDIT {
        let me = ChanId {
            index: (1 << 20) | q,
            gen: 1,
        };
        send(&mut peer, Header::new(Type::WindowRequest, nobody, me))?;
    }
    let spent = credit.wrapping_add(CREDIT - 1);
    peer.wait(w.limit(10), |p| (p.credit_told() >= spent).then_some(()))?;
    send(&mut peer, chan.header(Type::WindowRequest))?;
    let leased = peer.wait(w.limit(10), |_| match stream.info() {
        Ok(info) if info.window == 0 => None,
        info => Some(info.map(|info| info.window)),
    })??;
    ensure(leased > u64::from(WINDOW_MIN), "the window is small anyway")?;
    set_rcvbuf(stream.as_fd(), WINDOW_MIN)?;
    while peer.has_message()? {
        let (h, _) = peer.recv(w.limit(10))?;
        ensure(h.kind == Type::Reset, &format!("{:?} has come", h.kind))?;
    }
    peer.gives_credit = true;
    let mut next = || loop {
        let (h, _) = peer.recv(w.limit(10))?;
        if h.dst == chan.local {
            return Ok::<_, io::Error>(h);
        }
    };
    let (grant, revoke) = (next()?, next()?);
    ensure(
        grant.kind == Type::WindowGrant && u64::from(grant.arg1) == leased,
        "another window was granted",
    )?;
    ensure(
        revoke.kind == Type::WindowRevoke && revoke.lease == grant.lease,
        &format!("{:?}: it was not asked back", revoke.kind),
    )?;
    let mut revoked = chan.header(Type::Revoked);
    revoked.arg0 = grant.lease;
    peer.send(revoked, &[])?;
    let window = peer.get_window(&mut chan, w.limit(10))?;
    ensure(window.size == WINDOW_MIN, "the next one is not smaller")?;
    w.expect_alive(&mut peer, &before)
}

/// Changes what a program has peeked at: the next calls show the same bytes, those of the message that
/// no call has shown yet as well.
fn peeked(w: &mut World) -> Outcome {
    const LEN: usize = 10_000;
    let (mut peer, mut chan, mut stream, _victim) = w.channel()?;
    let window = peer.get_window(&mut chan, w.limit(10))?;
    peer.write(&mut chan, &[b'a'; LEN])?;
    let mut seen = [0; 100];
    let n = stream.peek(&mut seen)?;
    ensure(
        n == 100 && seen == [b'a'; 100],
        "other bytes than were sent",
    )?;
    peer.post(Op::Write, &[b'b'; LEN], window.addr, window.key)?;
    // Behind the answer, the bytes have landed.
    peer.alive(w.limit(10))?;
    stream.peek(&mut seen)?;
    ensure(seen == [b'a'; 100], "MSG_PEEK shows other bytes")?;
    let mut all = [0; LEN];
    stream.read_exact(&mut all)?;
    ensure(all == [b'a'; LEN], "recv() gives other bytes")?;
    // Its room is the peer's again.
    peer.write(&mut chan, &[b'c'; LEN])?;
    peer.send(chan.header(Type::Fin), &[])?;
    expect_end(&mut stream, &[b'c'; LEN], &[0])?;
    peer.alive(w.limit(10))
}

pub const CASES: &[Case] = &[
    whole("windows/peeked", peeked),
    whole("windows/all", all),
    whole("windows/rcvbuf", rcvbuf),
    whole("windows/stale-key", stale_key),
    slow("windows/kept", kept),
    slow("named/stuck-invalidation", stuck),
];
