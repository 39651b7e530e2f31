// SPDX-License-Identifier: GPL-2.0
//! Something that keeps the module in use.

use std::fs::File;
use std::io::Read;
use std::net::SocketAddrV4;
use std::os::fd::AsFd;

use clap::ValueEnum;
use zrs_sys::Map;

use crate::common::serve::{ask, DISCARD, FLOOD};
use crate::support::checks::{say, Checks};
use crate::support::process;
use crate::support::raw::{self, Result};
use crate::support::wild;

/// Hold something open until stdin ends; prints "holding" when it does
#[derive(clap::Args)]
pub struct Args {
    #[arg(long, value_enum)]
    what: What,
    /// listen, full: where; conn, ring, map: where `serve` runs
    #[arg(long, value_name = "ADDR:PORT", required_if_eq_any([
        ("what", "listen"), ("what", "full"), ("what", "conn"), ("what", "ring"), ("what", "map"), ("what", "lent")]))]
    addr: Option<SocketAddrV4>,
}

#[derive(Clone, Copy, ValueEnum)]
enum What {
    /// /dev/zrs
    Dev,
    /// A fresh socket
    Socket,
    /// A listening socket
    Listen,
    /// One with a full backlog
    Full,
    /// A connected socket
    Conn,
    /// A connected socket with its ring mapped
    Ring,
    /// Only the mappings of a ring: the socket is closed, and not shut down before
    Map,
    /// Pages that were received mapped, and others in a pipe; their bytes are looked at in the end
    Lent,
}

/// A held object, and the check that it is unchanged.
type Held = Box<dyn FnOnce() -> bool>;

fn keep(it: impl Sized + 'static) -> Held {
    Box::new(move || {
        drop(it);
        true
    })
}

/// Bytes that are received mapped, and that go into a pipe.
const LENT: usize = 300_000;
const PIPED: usize = 64 << 10;
const TAG: u8 = 21;

pub fn run(args: &Args, checks: &mut Checks) {
    process::alarm(0);
    let Some(held) = checks.need("hold", hold(args)) else {
        return;
    };
    say("holding");
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    checks.yes("what was held", held(), "other bytes");
}

/// Receives as much into an area and into a pipe.
fn lend(addr: SocketAddrV4) -> Result<Held> {
    let mut command = vec![FLOOD, TAG];
    command.extend((1_u64 << 40).to_be_bytes());
    let fd = ask(addr, &command)?;
    let mut area = zrs::Stream::from(fd.try_clone()?).area(LENT)?;
    // On a slow machine little is there at first, and is copied.
    let got = loop {
        let received = area.recv_at(0, LENT)?;
        if received.copied < received.range.len() {
            break received.range;
        }
    };
    let (from, to) = wild::pipe()?;
    let piped = wild::splice(&fd, &to, PIPED)?;
    Ok(Box::new(move || {
        let mut bytes = vec![0; piped];
        let read = File::from(from).read_exact(&mut bytes).is_ok();
        drop((fd, to));
        let lent = area.bytes(got).to_vec();
        read && lent.iter().chain(&bytes).all(|b| *b == TAG)
    }))
}

fn hold(args: &Args) -> Result<Held> {
    let addr = args
        .addr
        .unwrap_or(SocketAddrV4::new([127, 0, 0, 1].into(), 0));
    Ok(match args.what {
        What::Dev => keep(File::options().read(true).write(true).open("/dev/zrs")?),
        What::Socket => keep(raw::stream()?),
        What::Listen => keep(raw::listener(addr)?),
        What::Full => {
            let (listener, addr) = raw::listener(addr)?;
            raw::listen(&listener, 1)?;
            keep((listener, raw::connected(addr)?))
        }
        What::Conn => keep(ask(addr, &[DISCARD])?),
        What::Ring => keep(zrs::Stream::from(ask(addr, &[DISCARD])?).rx_ring()?),
        What::Lent => lend(addr)?,
        What::Map => {
            let fd = ask(addr, &[DISCARD])?;
            let ring = zrs_sys::sock::rx_ring(fd.as_fd(), 0)?;
            let (ring_len, window_len) = (ring.ring_bytes as usize, ring.window_bytes as usize);
            keep((
                Map::shared_write(fd.as_fd(), ring.ring_offset, ring_len)?,
                Map::shared_read(fd.as_fd(), ring.window_offset, window_len)?,
            ))
        }
    })
}
