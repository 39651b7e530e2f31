// SPDX-License-Identifier: GPL-2.0
//! A stream that goes on until it breaks, for tests that kill one side.

use std::net::SocketAddrV4;
use std::os::fd::OwnedFd;

use clap::ValueEnum;
use zrs::PageBuf;

use crate::stream::zerocopy::Zerocopy;
use crate::support::args::size;
use crate::support::checks::{say, Checks};
use crate::support::pattern::{Pattern, Verifier};
use crate::support::raw::{self, Errno, Result};
use crate::support::rx::Rx;

/// How a stream may end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Expect {
    /// The end of the stream; sending: everything was sent
    Eof,
    /// EPIPE
    Epipe,
    /// ECONNRESET
    Reset,
    /// Any other error of the connection: ETIMEDOUT, ENETDOWN, ENODEV, EIO
    Error,
}

fn how(end: Result<()>) -> Expect {
    match end {
        Ok(()) => Expect::Eof,
        Err(Errno(libc::EPIPE)) => Expect::Epipe,
        Err(Errno(libc::ECONNRESET)) => Expect::Reset,
        Err(_) => Expect::Error,
    }
}

/// Send until it breaks; prints "sending" after the first piece
#[derive(clap::Args)]
pub struct SendArgs {
    #[arg(value_name = "ADDR:PORT")]
    addr: SocketAddrV4,
    /// How it must end; several, comma separated: one of them
    #[arg(long, value_enum, value_delimiter = ',', required = true)]
    expect: Vec<Expect>,
    /// Of the data
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// End after this number of bytes
    #[arg(long, value_parser = size, default_value = "1024G")]
    bytes: usize,
    /// Bytes in one send
    #[arg(long, value_parser = size, default_value = "256k")]
    chunk: usize,
    /// Listen at the address instead of connecting to it
    #[arg(long)]
    listen: bool,
    /// Keep the connection after the last byte, and wait for its end
    #[arg(long)]
    linger: bool,
    /// Send with MSG_ZEROCOPY, each piece from newly allocated memory
    #[arg(long)]
    zerocopy: bool,
}

/// The connection: to `connect`, or the first one at `listen`.
fn connection(
    connect: Option<SocketAddrV4>,
    listen: Option<SocketAddrV4>,
    checks: &mut Checks,
) -> Option<OwnedFd> {
    if let Some(addr) = connect {
        return checks.need("connect", raw::connected(addr));
    }
    let listener = checks.listener(listen?)?;
    checks.need("accept", raw::accept(&listener))
}

pub fn send(args: &SendArgs, checks: &mut Checks) {
    let pattern = Pattern::new(args.seed, 0, 0);
    let (connect, listen) = match args.listen {
        false => (Some(args.addr), None),
        true => (None, Some(args.addr)),
    };
    let Some(fd) = connection(connect, listen, checks) else {
        return;
    };
    let Some(mut piece) = checks.need("memory", PageBuf::new(args.chunk).map_err(Into::into))
    else {
        return;
    };
    let mut out = Zerocopy::default();
    if args.zerocopy && checks.need("SO_ZEROCOPY", out.open(&fd)).is_none() {
        return;
    }
    let mut sent = 0;
    let end = loop {
        let len = args.chunk.min(args.bytes - sent);
        if len == 0 && args.linger {
            break raw::recv(&fd, &mut [0], 0).map(drop);
        }
        if len == 0 {
            break raw::shutdown(&fd, libc::SHUT_WR);
        }
        pattern.fill(sent as u64, &mut piece[..len]);
        let done = match args.zerocopy {
            false => raw::send_all(&fd, &piece[..len]),
            true => out.send_all(&fd, &piece[..len]),
        };
        match done {
            Ok(()) if sent == 0 => say("sending"),
            Ok(()) => {}
            Err(e) => break Err(e),
        }
        sent += len;
    };
    say(&format!("# sent {sent} bytes, then {end:?}"));
    let detail = format!("saw {end:?}, expected {:?}", args.expect);
    checks.yes(
        "the end of sending",
        args.expect.contains(&how(end)),
        &detail,
    );
}

/// Receive and verify until the end; prints "receiving" after the first bytes
#[derive(clap::Args)]
pub struct RecvArgs {
    /// Where to listen
    #[arg(long, value_name = "ADDR:PORT", required_unless_present = "connect")]
    listen: Option<SocketAddrV4>,
    /// Connect instead of listening
    #[arg(long, value_name = "ADDR:PORT", conflicts_with = "listen")]
    connect: Option<SocketAddrV4>,
    /// How it must end; several, comma separated: one of them
    #[arg(long, value_enum, value_delimiter = ',', required = true)]
    expect: Vec<Expect>,
    /// Of the data
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The least number of bytes that must have come
    #[arg(long, value_parser = size, default_value = "1")]
    at_least: usize,
    /// Receive by the ring
    #[arg(long)]
    ring: bool,
    /// Receive mapped
    #[arg(long, conflicts_with = "ring")]
    mapped: bool,
    /// Stop reading after the first bytes, until killed
    #[arg(long)]
    stall: bool,
}

pub fn recv(args: &RecvArgs, checks: &mut Checks) {
    let Some(fd) = connection(args.connect, args.listen, checks) else {
        return;
    };
    let rx = match args.mapped {
        true => Rx::mapped(&fd),
        false => Rx::new(&fd, args.ring, 0),
    };
    let Some(mut rx) = checks.need("receiver", rx) else {
        return;
    };
    let mut verifier = Verifier::new(Pattern::new(args.seed, 0, 0));
    let end = rx.all(|bytes| {
        if verifier.pos == 0 {
            say("receiving");
            if args.stall {
                loop {
                    std::thread::park();
                }
            }
        }
        verifier.take(bytes)
    });
    say(&format!("# received {} bytes, then {end:?}", verifier.pos));
    checks.eq("wrong byte", verifier.wrong, None);
    let detail = format!("only {} bytes", verifier.pos);
    checks.yes(
        "received enough",
        verifier.pos >= args.at_least as u64,
        &detail,
    );
    let detail = format!("saw {end:?}, expected {:?}", args.expect);
    checks.yes(
        "the end of receiving",
        args.expect.contains(&how(end)),
        &detail,
    );
}
