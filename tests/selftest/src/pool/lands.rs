// SPDX-License-Identifier: GPL-2.0
//! Segments are announced as they land: the reader works on the first one of a message while the
//! last one is not sent, and cannot be, as there is no room for it before something was read.

use std::net::SocketAddrV4;
use std::os::fd::{AsFd, OwnedFd};
use std::thread;
use std::time::Duration;

use crate::scale::{call, serve};
use crate::support::args::{size, End, Side};
use crate::support::checks::{say, Checks};
use crate::support::pattern::{Pattern, Verifier};
use crate::support::raw::{self, Errno, Result};
use crate::support::rx::Rx;
use crate::support::verified;

/// Read the first segment of a message that is not sent as a whole; both ends get the same
/// arguments
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    end: End,
    /// Of the data
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Read by the ring
    #[arg(long)]
    ring: bool,
    /// Messages, one after the other
    #[arg(long, default_value_t = 3)]
    messages: u64,
    /// Bytes of a message: more than goes without a reader
    #[arg(long, value_parser = size, default_value = "4M")]
    bytes: usize,
}

/// The most that a segment has.
const SEGMENT: u64 = 256 << 10;

pub fn run(args: &Args, checks: &mut Checks) {
    match args.end.side() {
        Side::Server(addr) => drop(server(args, addr, checks)),
        Side::Client(addr) => drop(client(args, addr, checks)),
    }
}

fn server(args: &Args, addr: SocketAddrV4, checks: &mut Checks) -> Option<()> {
    let (control, listeners) = serve(addr, 1, checks)?;
    let conn = checks.need("accept", raw::accept(&listeners[0]))?;
    let mut rx = checks.need("receiver", Rx::new(&conn, args.ring, 0))?;
    let mut seen = Verifier::new(Pattern::new(args.seed, 0, 0));
    for n in 1..=args.messages {
        let (begin, end) = (seen.pos, n * args.bytes as u64);
        let more = rx.next(|bytes| seen.take(bytes));
        checks.need("the first segment", more)?;
        let first = seen.pos - begin;
        let fine = (1..=SEGMENT).contains(&first) && seen.wrong.is_none();
        let detail = format!("{first} bytes, the first wrong one is {:?}", seen.wrong);
        checks.yes("a first segment, and right", fine, &detail);
        if raw::is_zrs() {
            let info = zrs_sys::sock::info(conn.as_fd()).map_err(Errno::from);
            let info = checks.need("ZRS_INFO", info)?;
            let there = info.rx_bytes + info.rx_queued;
            say(&format!("# {first} of {there} bytes are read, of {end}"));
            let detail = format!("{there} of {end} bytes");
            checks.yes("the last one has not arrived", there < end, &detail);
        }
        // The sender says whether it is sending still, and then goes on.
        checks.need("tell", control.tell(first))?;
        checks.need("hear", control.hear())?;
        while seen.pos < end {
            let most = (end - seen.pos).min(SEGMENT) as usize;
            let more = rx.next_upto(most, |bytes| seen.take(bytes));
            match checks.need("the rest", more)? {
                true => {}
                false => break,
            }
        }
        // The next one comes when this one is read.
        checks.need("tell", control.tell(seen.pos))?;
    }
    let more = checks.need("the end", rx.next(|bytes| seen.take(bytes)))?;
    checks.yes("nothing behind the last one", !more, "there is more");
    checks.need("answer", verified::answer(&conn, &seen))
}

fn client(args: &Args, addr: SocketAddrV4, checks: &mut Checks) -> Option<()> {
    let (control, addrs) = call(addr, checks)?;
    let conn = checks.need("connect", raw::connected(addrs[0]))?;
    let pattern = Pattern::new(args.seed, 0, 0);
    let mut message = vec![0; args.bytes];
    for n in 0..args.messages {
        pattern.fill(n * args.bytes as u64, &mut message);
        let sent = thread::scope(|scope| {
            let sender = scope.spawn(|| send(&conn, &message));
            let heard = control.hear();
            // The room is used up by then, on most machines: it cannot be all of it in any case.
            thread::sleep(Duration::from_millis(50));
            if raw::is_zrs() {
                let name = "it is being sent while the reader has the first segment";
                checks.yes(name, !sender.is_finished(), "send() has returned");
            }
            let told = heard.and_then(|_| control.tell(n));
            checks.need("the reader", told);
            sender.join().expect("the sender panicked")
        });
        checks.eq("bytes of one send()", sent, Ok(args.bytes));
        let read = checks.need("hear", control.hear())?;
        checks.eq("bytes read", read, (n + 1) * args.bytes as u64);
    }
    verified::end(&conn, args.messages * args.bytes as u64, checks)
}

/// One send() of all of it.
fn send(conn: &OwnedFd, message: &[u8]) -> Result<usize> {
    raw::send(conn, message, libc::MSG_NOSIGNAL)
}
