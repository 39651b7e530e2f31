// SPDX-License-Identifier: GPL-2.0
//! The received bytes equal the sent ones: each size around each boundary, from each place in a
//! page, by each way to send, in any pieces, and by each way to receive. Both sides draw the cases
//! from the same seed.

use std::fs::File;
use std::io::Read;
use std::net::SocketAddrV4;
use std::os::fd::{AsFd, OwnedFd};

use zrs::{PageBuf, Stream};

use crate::support::args::{End, Side};
use crate::support::checks::{say, Checks};
use crate::support::pattern::{Pattern, Rng, Verifier};
use crate::support::raw::{self, Errno, Result};
use crate::support::rx::Rx;
use crate::support::verified;
use crate::support::wild;

/// Send and receive in all ways
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    end: End,
    /// Of the data, the cases, and the pieces
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many of the cases; all of them if that is more
    #[arg(long, default_value_t = 60)]
    cases: usize,
}

/// Boundaries: pages, messages without a window, pinning, mapping, chunks, the window, and more.
const AROUND: [usize; 7] = [1, 4096, 16_384, 65_536, 262_144, 1 << 20, 4 << 20];
const BESIDE: [isize; 4] = [-1, 0, 1, 1777];
const ALIGNS: [usize; 4] = [0, 1, 2000, 4095];

#[derive(Clone, Copy, Debug)]
enum Sender {
    Whole,
    Pieces,
    Vectored,
    NonBlocking,
    ZeroCopy,
}
const SENDERS: [Sender; 5] = [
    Sender::Whole,
    Sender::Pieces,
    Sender::Vectored,
    Sender::NonBlocking,
    Sender::ZeroCopy,
];

#[derive(Clone, Copy, Debug)]
enum Receiver {
    Plain,
    Ring,
    Mapped,
    Spliced,
    Mixed,
}
const RECEIVERS: [Receiver; 5] = [
    Receiver::Plain,
    Receiver::Ring,
    Receiver::Mapped,
    Receiver::Spliced,
    Receiver::Mixed,
];

#[derive(Clone, Copy, Debug)]
struct Case {
    size: usize,
    align: usize,
    sender: Sender,
    receiver: Receiver,
}

const ALL: usize = AROUND.len() * BESIDE.len() * ALIGNS.len() * SENDERS.len() * RECEIVERS.len();

impl Case {
    /// The `n`th of all.
    fn nth(mut n: usize) -> Self {
        let mut digit = |base: usize| {
            let digit = n % base;
            n /= base;
            digit
        };
        let (receiver, sender) = (digit(RECEIVERS.len()), digit(SENDERS.len()));
        let (align, beside, around) = (
            digit(ALIGNS.len()),
            digit(BESIDE.len()),
            digit(AROUND.len()),
        );
        Self {
            size: AROUND[around].saturating_add_signed(BESIDE[beside]),
            align: ALIGNS[align],
            sender: SENDERS[sender],
            receiver: RECEIVERS[receiver],
        }
    }

    /// Those that a run has, in its order.
    fn some(args: &Args) -> Vec<Self> {
        let mut order: Vec<usize> = (0..ALL).collect();
        let mut rng = Rng::new(args.seed, 0);
        for at in (1..ALL).rev() {
            order.swap(at, rng.below(at + 1));
        }
        order.truncate(args.cases);
        order.into_iter().map(Self::nth).collect()
    }
}

pub fn run(args: &Args, checks: &mut Checks) {
    match args.end.side() {
        Side::Server(addr) => drop(server(args, addr, checks)),
        Side::Client(addr) => drop(client(args, addr, checks)),
    }
}

fn server(args: &Args, addr: SocketAddrV4, checks: &mut Checks) -> Option<()> {
    let listener = checks.listener(addr)?;
    for (index, case) in (0..).zip(Case::some(args)) {
        let name = format!("{case:?}");
        let conn = checks.need(&name, raw::accept(&listener))?;
        let mut seen = Verifier::new(Pattern::new(args.seed, 0, index));
        let mut rng = Rng::new(args.seed, 1 + index);
        let received = receive(&conn, case, &mut seen, &mut rng);
        let _open = checks.need(&name, received)?;
        if let Some(wrong) = seen.wrong {
            checks.fail(&name, &format!("wrong at {wrong}"));
        }
        checks.need(&name, verified::answer(&conn, &seen))?;
    }
    Some(())
}

/// The owner of the receiving side: dropping it shuts the connection down.
struct Open {
    _stream: Stream,
    _rx: Rx,
}

fn receive(conn: &OwnedFd, case: Case, seen: &mut Verifier, rng: &mut Rng) -> Result<Open> {
    let mut plain = Rx::new(conn, false, case.align)?;
    let stream = Stream::from(conn.try_clone()?);
    let mut area = stream.area(256 << 10)?;
    let (from, to) = wild::pipe()?;
    let mut from = File::from(from);
    let mut how = case.receiver;
    if let Receiver::Ring = how {
        let mut rx = Rx::new(conn, true, 0)?;
        rx.all(|bytes| seen.take(bytes))?;
        return Ok(Open {
            _stream: stream,
            _rx: rx,
        });
    }
    loop {
        if let Receiver::Mixed = case.receiver {
            how = rng.pick(&[Receiver::Plain, Receiver::Mapped, Receiver::Spliced]);
        }
        let most = piece(rng);
        let more = match how {
            Receiver::Mapped => match area.recv(most)? {
                Some(bytes) => seen.take(&bytes.to_vec()).map(|()| true)?,
                None => false,
            },
            Receiver::Spliced => {
                let mut bytes = vec![0; wild::splice(conn, &to, most.min(64 << 10))?];
                from.read_exact(&mut bytes)?;
                seen.take(&bytes)?;
                !bytes.is_empty()
            }
            _ => plain.next_upto(most, |bytes| seen.take(bytes))?,
        };
        if !more {
            return Ok(Open {
                _stream: stream,
                _rx: plain,
            });
        }
    }
}

/// The length of a piece: mostly large, sometimes tiny.
fn piece(rng: &mut Rng) -> usize {
    let around = rng.pick(&[100, 5000, 20_000, 70_000, 300_000, 300_000]);
    1 + rng.below(around)
}

fn client(args: &Args, addr: SocketAddrV4, checks: &mut Checks) -> Option<()> {
    let cases = Case::some(args);
    say(&format!("# {} of {ALL} cases", cases.len()));
    for (index, case) in (0..).zip(cases) {
        let name = format!("{case:?}");
        let conn = checks.need(&name, raw::connected(addr))?;
        let memory = PageBuf::new(case.align + case.size).map_err(Errno::from);
        let mut memory = checks.need(&name, memory)?;
        Pattern::new(args.seed, 0, index).fill(0, &mut memory[case.align..]);
        let mut rng = Rng::new(args.seed, !index);
        checks.need(
            &name,
            send(&conn, case.sender, &memory[case.align..], &mut rng),
        )?;
        // The memory stays as it is until all of it has arrived.
        if !ended(&conn, case.size as u64, &name, checks)? {
            return None;
        }
    }
    Some(())
}

/// As [`verified::end`], quieter.
fn ended(conn: &OwnedFd, sent: u64, name: &str, checks: &mut Checks) -> Option<bool> {
    checks.need(name, raw::shutdown(conn, libc::SHUT_WR))?;
    let mut words = [[0; 8]; 2];
    checks.need(name, raw::recv_all(conn, words.as_flattened_mut()))?;
    let seen = words.map(u64::from_le_bytes);
    let fine = seen == [sent, u64::MAX];
    if !fine {
        checks.fail(name, &format!("arrived, and first wrong byte: {seen:?}"));
    }
    Some(fine)
}

fn send(conn: &OwnedFd, how: Sender, mut bytes: &[u8], rng: &mut Rng) -> Result<()> {
    match how {
        Sender::Whole => return raw::send_all(conn, bytes),
        Sender::NonBlocking => raw::set_nonblocking(conn, true)?,
        Sender::ZeroCopy => zrs_sys::sock::set_zerocopy(conn.as_fd(), true)?,
        Sender::Pieces | Sender::Vectored => {}
    }
    while !bytes.is_empty() {
        let (one, rest) = bytes.split_at(piece(rng).min(bytes.len()));
        let sent = match how {
            Sender::Vectored => {
                let (two, rest) = rest.split_at(piece(rng).min(rest.len()));
                let (three, _) = rest.split_at(piece(rng).min(rest.len()));
                raw::send_pieces(conn, &[one, two, three], 0)
            }
            Sender::ZeroCopy => zrs_sys::sock::send_zerocopy(conn.as_fd(), one).map_err(Into::into),
            _ => raw::send(conn, one, 0),
        };
        match sent {
            Ok(n) => bytes = &bytes[n..],
            Err(Errno(libc::EAGAIN)) => drop(raw::poll(conn, libc::POLLOUT, -1)?),
            // Too many notifications.
            Err(Errno(libc::ENOBUFS)) => {
                while zrs_sys::sock::completion(conn.as_fd())?.is_some() {}
            }
            Err(e) => return Err(e),
        }
    }
    raw::set_nonblocking(conn, false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_cases_are_drawn_once() {
        let all: std::collections::HashSet<String> =
            (0..ALL).map(|n| format!("{:?}", Case::nth(n))).collect();
        assert_eq!(all.len(), ALL);
    }
}
