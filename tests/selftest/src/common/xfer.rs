// SPDX-License-Identifier: GPL-2.0
//! Transfers of given sizes, one connection for each, every byte verified.

use std::os::fd::OwnedFd;
use std::thread;

use zrs::PageBuf;
use zrs_sys::abi::ZRS_CARRIER_ZRS;

use crate::support::args::{size, End};
use crate::support::checks::{say, Checks};
use crate::support::pattern::{Pattern, Verifier};
use crate::support::raw::{self, Result};
use crate::support::rx::Rx;

/// Move data of given sizes and verify every byte; both ends get the same sizes and seed
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    end: End,
    /// Sizes, one connection for each: 0,1,4096,64M
    #[arg(long, value_delimiter = ',', value_parser = size, default_value = "0,1,4096,64k")]
    sizes: Vec<usize>,
    /// Of the data
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Receive by the ring
    #[arg(long)]
    ring: bool,
    /// Both directions at once; else client to server
    #[arg(long)]
    both: bool,
    /// Buffers begin this many bytes into a page
    #[arg(long, default_value_t = 0)]
    align: usize,
    /// Bytes in one send; 0: everything in one
    #[arg(long, value_parser = size, default_value = "0")]
    chunk: usize,
    /// Non-blocking sockets, with poll()
    #[arg(long)]
    nonblock: bool,
    /// All connections are open before the first byte, and move their data at once
    #[arg(long)]
    parallel: bool,
}

pub fn run(args: &Args, checks: &mut Checks) {
    let listener = match args.end.server {
        None => None,
        Some(addr) => {
            let Some(fd) = checks.listener(addr) else {
                return;
            };
            Some(fd)
        }
    };
    let next = |checks: &mut Checks| match (&listener, args.end.client) {
        (Some(fd), _) => checks.need("accept", raw::accept(fd)),
        (None, Some(addr)) => checks.need("connect", raw::connected(addr)),
        (None, None) => None,
    };
    let server = listener.is_some();
    let sizes = args.sizes.iter().enumerate();
    if !args.parallel {
        for (index, &len) in sizes {
            let Some(conn) = next(checks) else { return };
            transfer(args, server, index as u64, len, &conn, checks);
            if !checks.fine() {
                return;
            }
        }
        return;
    }
    let mut conns = Vec::new();
    for (index, &len) in sizes {
        let Some(conn) = next(checks) else { return };
        conns.push((index as u64, len, conn));
    }
    thread::scope(|s| {
        let moves = conns.into_iter().map(|(index, len, conn)| {
            s.spawn(move || {
                let mut checks = Checks::default();
                transfer(args, server, index, len, &conn, &mut checks);
                checks
            })
        });
        for done in moves.collect::<Vec<_>>() {
            checks.add(&done.join().expect("a transfer panicked"));
        }
    });
}

fn transfer(
    args: &Args,
    server: bool,
    index: u64,
    len: usize,
    conn: &OwnedFd,
    checks: &mut Checks,
) {
    let name = format!("{len} bytes");
    let (ours, theirs) = if server { (1, 0) } else { (0, 1) };
    let tx_len = if server && !args.both { 0 } else { len };
    let rx_len = if server || args.both { len } else { 0 };
    let set = raw::set_nonblocking(conn, args.nonblock);
    if checks.need("set O_NONBLOCK", set).is_none() {
        return;
    }
    // Dropped only when both directions are done: a ring's end shuts the socket down.
    let rx = Rx::new(conn, args.ring, args.align);
    let Some(mut rx) = checks.need(&format!("{name}: receiver"), rx) else {
        return;
    };
    let mut verifier = Verifier::new(Pattern::new(args.seed, theirs, index));
    let (sent, received) = thread::scope(|s| {
        let pattern = Pattern::new(args.seed, ours, index);
        let sender = s.spawn(move || transmit(args, conn, pattern, tx_len));
        let received = rx.all(|bytes| verifier.take(bytes));
        (sender.join().expect("the sender panicked"), received)
    });
    checks.need(&format!("{name}: send"), sent);
    checks.need(&format!("{name}: receive"), received);
    checks.eq(&format!("{name}: received"), verifier.pos, rx_len as u64);
    if let Some(at) = verifier.wrong {
        checks.fail(
            &format!("{name}: content"),
            &format!("byte {at} is wrong, seed {}", args.seed),
        );
    }
    if raw::is_zrs() {
        use std::os::fd::AsFd;
        if let Some(i) = checks.need(
            "ZRS_INFO",
            zrs_sys::sock::info(conn.as_fd()).map_err(Into::into),
        ) {
            checks.eq("the carrier is ZRS", i.carriers, ZRS_CARRIER_ZRS);
            let name = format!("{name}: counted tx and rx bytes");
            checks.eq(
                &name,
                (i.tx_bytes, i.rx_bytes),
                (tx_len as u64, rx_len as u64),
            );
            say(&format!(
                "# {len} tx_copied={} rx_copied={}",
                i.tx_copied, i.rx_copied
            ));
        }
    }
}

fn transmit(args: &Args, conn: &OwnedFd, pattern: Pattern, len: usize) -> Result<()> {
    let mut memory = PageBuf::new(args.align + len)?;
    let data = &mut memory[args.align..];
    pattern.fill(0, data);
    let chunk = if args.chunk == 0 {
        len.max(1)
    } else {
        args.chunk
    };
    for part in data.chunks(chunk) {
        raw::send_all(conn, part)?;
    }
    raw::shutdown(conn, libc::SHUT_WR)
}
