// SPDX-License-Identifier: GPL-2.0
//! Vectors and several messages at once (row B1): readv(), writev(), recvmsg(), sendmmsg() and
//! recvmmsg(), with control messages; and requests by io_uring.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::thread;

use libc::{MSG_DONTWAIT, MSG_PEEK, MSG_WAITALL, POLLIN};

use crate::support::calls::{self, Got};
use crate::support::checks::{say, Checks};
use crate::support::pattern::{Pattern, Rng};
use crate::support::raw::{self, Errno, Result};
use crate::support::uring::Uring;

/// Send and receive by vectors and several messages
#[derive(clap::Args)]
pub struct Args {
    /// An address of this host: both ends are here
    #[arg(long, value_name = "ADDR")]
    pub local: Ipv4Addr,
    /// Of the data and of the lengths
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

pub fn run(args: &Args, checks: &mut Checks) {
    let tests: [fn(&Args, &mut Checks) -> Option<()>; 5] = [few, many, messages, received, uring];
    for test in tests {
        test(args, checks);
    }
}

fn ends(args: &Args) -> Result<(OwnedFd, OwnedFd)> {
    let (listener, addr) = raw::listener(SocketAddrV4::new(args.local, 0))?;
    let fd = raw::connected(addr)?;
    Ok((fd, raw::accept(&listener)?))
}

/// Waits until `bytes` bytes have arrived.
fn arrived(fd: &OwnedFd, bytes: usize) -> Result<()> {
    let mut all = vec![0; bytes];
    loop {
        match raw::recv(fd, &mut all, MSG_PEEK)? {
            0 => return Err(Errno(libc::EPIPE)),
            n if n == bytes => return Ok(()),
            _ => thread::yield_now(),
        }
    }
}

/// Received bytes fill one piece after the other, not the first one only.
pub fn few(args: &Args, checks: &mut Checks) -> Option<()> {
    let (fd, peer) = checks.need("connect", ends(args))?;
    let sent = raw::send_pieces(&fd, &[b"ab", b"", b"cdef", b"g"], 0);
    checks.eq("sendmsg() of four pieces", sent, Ok(7));
    checks.need("arrive", arrived(&peer, 7))?;
    let (mut one, mut two) = ([0; 3], [0; 10]);
    for (name, flags) in [("MSG_PEEK", MSG_PEEK), ("MSG_DONTWAIT", MSG_DONTWAIT)] {
        let got = raw::recv_pieces(&peer, &mut one, &mut two, flags);
        let name = format!("recvmsg() into two pieces, {name}");
        checks.eq(
            &name,
            (got, &one[..], &two[..4]),
            (Ok(7), &b"abc"[..], &b"defg"[..]),
        );
        (one, two) = ([0; 3], [0; 10]);
    }
    let mut pieces = vec![vec![], vec![0; 2], vec![], vec![0; 4]];
    checks.need("send", raw::send_all(&fd, b"abcdefgh"))?;
    checks.need("arrive", arrived(&peer, 8))?;
    let got = calls::readv(&peer, &mut pieces);
    checks.eq("readv() into four pieces, two of them empty", got, Ok(6));
    checks.eq("their bytes", pieces.concat(), b"abcdef".to_vec());
    let rest = raw::recv_pieces(&peer, &mut one[..1], &mut two[..1], MSG_WAITALL);
    checks.eq(
        "the rest, MSG_WAITALL",
        (rest, one[0], two[0]),
        (Ok(2), b'g', b'h'),
    );
    Some(())
}

/// Vectors of hundreds of uneven pieces, other ones on either side.
pub fn many(args: &Args, checks: &mut Checks) -> Option<()> {
    const BYTES: usize = 3_000_000;
    let (fd, peer) = checks.need("connect", ends(args))?;
    let pattern = Pattern::new(args.seed, 0, 0);
    let mut all = vec![0; BYTES];
    pattern.fill(0, &mut all);
    let (mut got, mut wrong, mut rng) = (0, None, Rng::new(args.seed, 2));
    let seen = thread::scope(|s| {
        let sender = s.spawn(|| -> Result<()> {
            let mut rng = Rng::new(args.seed, 1);
            let mut sent = 0;
            while sent < BYTES {
                let mut at = sent;
                let pieces: Vec<_> = (0..300)
                    .map(|_| {
                        let n = rng.below(2000).min(BYTES - at);
                        at += n;
                        all[at - n..at].to_vec()
                    })
                    .collect();
                sent += calls::writev(&fd, &pieces)?;
            }
            Ok(())
        });
        while got < BYTES {
            let mut pieces: Vec<_> = (0..500).map(|_| vec![0; rng.below(3000)]).collect();
            let n = calls::readv(&peer, &mut pieces)?;
            if n == 0 {
                return Err(Errno(libc::EPIPE));
            }
            let bytes = pieces.concat();
            wrong = wrong.or(pattern.mismatch(got as u64, &bytes[..n]));
            got += n;
        }
        sender.join().expect("the sender")
    });
    let name = "writev() of 300 pieces, readv() into 500: bytes, the first wrong one";
    checks.eq(name, seen.map(|()| (got, wrong)), Ok((BYTES, None)));
    Some(())
}

pub fn messages(args: &Args, checks: &mut Checks) -> Option<()> {
    let (fd, peer) = checks.need("connect", ends(args))?;
    let large = vec![7; 100_000];
    let pieces: [&[u8]; 4] = [b"one", &large, b"", b"four"];
    let all = pieces.concat();
    for (name, cmsg) in [
        ("sendmmsg()", None),
        // Control messages of other protocols are ignored, as by TCP.
        (
            "sendmmsg() with control messages",
            Some((libc::SOL_IP, libc::IP_TOS, 0)),
        ),
    ] {
        let (sent, back) = thread::scope(|s| {
            let reader = s.spawn(|| {
                let mut back = vec![0; all.len()];
                raw::recv_all(&peer, &mut back).map(|()| back)
            });
            let sent = calls::send_many(&fd, &pieces, cmsg);
            (sent, reader.join().expect("the reader"))
        });
        checks.eq(name, sent, Ok(pieces.map(<[u8]>::len).to_vec()));
        checks.yes("its bytes", back.as_ref() == Ok(&all), "other bytes");
    }
    Some(())
}

pub fn received(args: &Args, checks: &mut Checks) -> Option<()> {
    let (fd, peer) = checks.need("connect", ends(args))?;
    checks.need("send", raw::send_all(&fd, b"abcdefgh"))?;
    checks.need("arrive", arrived(&peer, 8))?;
    let (mut one, mut two, mut three) = ([0; 3], [0; 4], [0; 4]);
    let mut pieces: [&mut [u8]; 3] = [&mut one, &mut two, &mut three];
    let got = calls::recv_many(&peer, &mut pieces, 0);
    // A stream has no names, and only bytes.
    let message = |bytes| Got {
        bytes,
        flags: 0,
        control: 0,
        name: 0,
    };
    checks.eq(
        "recvmmsg() of three",
        got,
        Ok(Vec::from([3, 4, 1].map(message))),
    );
    checks.eq(
        "their bytes",
        (&one, &two, three[0]),
        (b"abc", b"defg", b'h'),
    );
    checks.need("send", raw::send_all(&fd, b"xyz"))?;
    checks.need("arrive", arrived(&peer, 3))?;
    let mut pieces: [&mut [u8]; 3] = [&mut one[..2], &mut two, &mut three];
    let got = calls::recv_many(&peer, &mut pieces, MSG_DONTWAIT);
    let got = got.map(|all| all.iter().map(|m| m.bytes).collect());
    checks.eq(
        "recvmmsg() of three, MSG_DONTWAIT, two of them there",
        got,
        Ok(vec![2, 1]),
    );
    let mut pieces: [&mut [u8]; 1] = [&mut one];
    let got = calls::recv_many(&peer, &mut pieces, MSG_DONTWAIT);
    checks.errno("recvmmsg(), nothing there", got, &[libc::EAGAIN]);
    Some(())
}

/// Requests that complete at once, and those that wait.
pub fn uring(args: &Args, checks: &mut Checks) -> Option<()> {
    let mut ring = match Uring::new() {
        Ok(ring) => ring,
        Err(e) => {
            say(&format!("# there is no io_uring here: {e}"));
            return Some(());
        }
    };
    let any = SocketAddrV4::new(args.local, 0);
    let (listener, addr) = checks.need("listen", raw::listener(any))?;
    let mut fd = None;
    let peer = ring.accept(&listener, || fd = raw::connected(addr).ok());
    let peer = checks.need("io_uring: an accept that waits", peer)?;
    let fd = checks.need("connect", fd.ok_or(Errno(libc::ENOTCONN)))?;
    let mut buf = [0; 5];
    checks.eq("io_uring: send", ring.send(&fd, b"hello", 0), Ok(5));
    let got = ring.recv(&peer, &mut buf, MSG_WAITALL, || Ok(()));
    checks.eq("io_uring: receive", (got, &buf), (Ok(5), b"hello"));
    let got = ring.recv(&peer, &mut buf, MSG_WAITALL, || {
        for piece in [&b"la"[..], b"ter"] {
            thread::sleep(std::time::Duration::from_millis(20));
            raw::send_all(&fd, piece)?;
        }
        Ok(())
    });
    checks.eq(
        "io_uring: a receive that waits, twice",
        (got, &buf),
        (Ok(5), b"later"),
    );
    let seen = ring.poll(&peer, libc::POLLOUT, || Ok(()));
    checks.eq(
        "io_uring: poll",
        seen.map(|bits| bits & libc::POLLOUT),
        Ok(libc::POLLOUT),
    );
    let seen = ring.poll(&peer, POLLIN, || raw::send_all(&fd, b"x"));
    checks.eq(
        "io_uring: a poll that waits",
        seen.map(|bits| bits & POLLIN),
        Ok(POLLIN),
    );
    let got = ring.recv(&peer, &mut buf, MSG_DONTWAIT, || Ok(()));
    checks.eq("io_uring: MSG_DONTWAIT, data there", got, Ok(1));
    let got = ring.recv(&peer, &mut buf, MSG_DONTWAIT, || Ok(()));
    checks.errno("io_uring: MSG_DONTWAIT, none there", got, &[libc::EAGAIN]);
    let got = ring.recv(&peer, &mut buf, 0, || raw::shutdown(&fd, libc::SHUT_WR));
    checks.eq(
        "io_uring: a receive that waits, and the end comes",
        got,
        Ok(0),
    );
    let large = vec![3; 1 << 20];
    let (sent, right) = thread::scope(|s| {
        let reader = s.spawn(|| {
            let mut back = vec![0; large.len()];
            raw::recv_all(&fd, &mut back).map(|()| back == large)
        });
        let sent = ring.send(&peer, &large, MSG_WAITALL | libc::MSG_NOSIGNAL);
        (sent, reader.join().expect("the reader"))
    });
    checks.eq(
        "io_uring: a send that waits for room",
        (sent, right),
        (Ok(1 << 20), Ok(true)),
    );
    Some(())
}
