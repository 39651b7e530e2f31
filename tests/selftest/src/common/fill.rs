// SPDX-License-Identifier: GPL-2.0
//! The maximum of connections, for the tests of accounting and quotas.

use std::io::Read;
use std::net::SocketAddrV4;
use std::os::fd::OwnedFd;

use crate::support::checks::{say, Checks};
use crate::support::process;
use crate::support::raw::{self, Errno};

/// Open many connections and keep them until stdin ends
///
/// Prints "opened N" when the requested number is open, or "opened N, then CALL: ERRNO".
#[derive(clap::Args)]
pub struct Args {
    /// Where to connect
    #[arg(long, value_name = "ADDR:PORT", required_unless_present = "listen")]
    connect: Option<SocketAddrV4>,
    /// Where to listen instead; accepts the connections
    #[arg(long, value_name = "ADDR:PORT", conflicts_with = "connect")]
    listen: Option<SocketAddrV4>,
    #[arg(long, default_value_t = 0)]
    conns: usize,
    /// Bytes that are sent on each, once all are open; nothing is ever received
    #[arg(long, default_value_t = 0)]
    send: usize,
}

/// Bytes of one send: fewer than a block has.
const CHUNK: usize = 2000;

pub fn run(args: &Args, checks: &mut Checks) {
    process::alarm(0);
    let listener = match args.listen.map(listener).transpose() {
        Ok(listener) => listener,
        Err(e) => return say(&format!("opened 0, then listen: {e}")),
    };
    if let Some((_, addr)) = &listener {
        say(&format!("listening on {addr}"));
    }
    let mut conns: Vec<OwnedFd> = Vec::new();
    let stopped = loop {
        if conns.len() == args.conns {
            break None;
        }
        let next = match (&listener, args.connect) {
            (Some((listener, _)), _) => raw::accept(listener).map_err(|e| ("accept", e)),
            (None, Some(addr)) => open(addr),
            (None, None) => return,
        };
        match next {
            Ok(conn) => conns.push(conn),
            Err(e) => break Some(e),
        }
    };
    match stopped {
        Some((call, e)) => say(&format!("opened {}, then {call}: {e}", conns.len())),
        None => say(&format!("opened {}", conns.len())),
    }
    if args.send > 0 {
        let bytes = vec![0x5a; CHUNK];
        for conn in &conns {
            for _ in 0..args.send / CHUNK {
                checks.need("send", raw::send_all(conn, &bytes));
            }
        }
        say("sent");
    }
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

/// With room for many that wait.
fn listener(addr: SocketAddrV4) -> Result<(OwnedFd, SocketAddrV4), Errno> {
    let (fd, addr) = raw::listener(addr)?;
    raw::listen(&fd, 4096)?;
    Ok((fd, addr))
}

fn open(addr: SocketAddrV4) -> Result<OwnedFd, (&'static str, Errno)> {
    let fd = raw::stream().map_err(|e| ("socket", e))?;
    raw::connect(&fd, addr).map_err(|e| ("connect", e))?;
    Ok(fd)
}
