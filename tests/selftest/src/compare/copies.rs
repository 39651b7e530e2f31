// SPDX-License-Identifier: GPL-2.0
//! The rows about bytes that are not copied.

use std::os::fd::{AsFd, OwnedFd};
use std::thread;

use libc::{MSG_NOSIGNAL, POLLERR};
use zrs::PageBuf;
use zrs_sys::abi::zrs_info;

use super::{pair, Args};
use crate::stream::zerocopy::Zerocopy;
use crate::support::checks::Checks;
use crate::support::pattern::{Pattern, Verifier};
use crate::support::raw::{self, Errno, Result};
use crate::support::rx::Rx;

/// Bytes of one call of a sender.
const CALL: usize = 64 << 10;
const CALLS: usize = 32;
/// Nothing takes longer, in milliseconds.
const SOON: i32 = 60_000;

fn info(fd: &OwnedFd) -> Result<zrs_info> {
    Ok(zrs_sys::sock::info(fd.as_fd())?)
}

/// A blocking send() of a megabyte, from the program's pages.
pub fn send(args: &Args, checks: &mut Checks) -> Option<()> {
    const BYTES: usize = 1 << 20;
    let pair = checks.need("connect", pair(args))?;
    let pattern = Pattern::new(args.seed, 0, 0);
    let (mut bytes, mut got) = (vec![0; BYTES], vec![0; BYTES]);
    pattern.fill(0, &mut bytes);
    let (sent, read) = thread::scope(|scope| {
        let sender = scope.spawn(|| raw::send(&pair.client, &bytes, MSG_NOSIGNAL));
        let read = raw::recv_all(&pair.server, &mut got);
        (sender.join().expect("the sender"), read)
    });
    checks.eq("send() and recv()", (sent, read), (Ok(BYTES), Ok(())));
    checks.eq("a wrong byte", pattern.mismatch(0, &got), None);
    let info = checks.need("ZRS_INFO", info(&pair.client))?;
    let seen = (info.tx_bytes, info.tx_copied);
    checks.eq("sent, and copied of it", seen, (BYTES as u64, 0));
    Some(())
}

/// The pool's pages at the program's addresses, and the window that a ring shows.
pub fn receive(args: &Args, checks: &mut Checks) -> Option<()> {
    const BYTES: usize = CALL * CALLS;
    type Way = fn(&OwnedFd) -> Result<Rx>;
    let ways: [(&str, Way); 2] = [
        ("mapped", Rx::mapped),
        ("a ring", |fd| Rx::new(fd, true, 0)),
    ];
    for (index, (name, way)) in (0..).zip(ways) {
        let pair = checks.need(name, pair(args))?;
        let mut rx = checks.need(name, way(&pair.server))?;
        let pattern = Pattern::new(args.seed, 0, index);
        let mut bytes = vec![0; BYTES];
        pattern.fill(0, &mut bytes);
        let mut seen = Verifier::new(pattern);
        let done = thread::scope(|scope| {
            let sender = scope.spawn(|| {
                let mut calls = bytes.chunks(CALL);
                calls.try_for_each(|call| raw::send_all(&pair.client, call))
            });
            while seen.pos < BYTES as u64 && rx.next_upto(CALL, |bytes| seen.take(bytes))? {}
            sender.join().expect("the sender")
        });
        checks.need(name, done)?;
        checks.eq(name, (seen.pos, seen.wrong), (BYTES as u64, None));
        let info = checks.need(name, info(&pair.server))?;
        let counted = (info.rx_bytes, info.rx_copied);
        let name = format!("{name}: received, and copied of it");
        checks.eq(&name, counted, (BYTES as u64, 0));
    }
    Some(())
}

/// One notification or more, which are about each call once; none when they are read.
pub fn error_queue(args: &Args, checks: &mut Checks) -> Option<()> {
    let pair = checks.need("connect", pair(args))?;
    let pattern = Pattern::new(args.seed, 0, 0);
    let mut bytes = checks.need("memory", PageBuf::new(CALL * CALLS).map_err(Errno::from))?;
    pattern.fill(0, &mut bytes);
    let mut out = Zerocopy::default();
    checks.need("SO_ZEROCOPY", out.open(&pair.client))?;
    let mut got = vec![0; bytes.len()];
    let sent = thread::scope(|scope| {
        let reader = scope.spawn(|| raw::recv_all(&pair.server, &mut got));
        let sent: Result<Vec<_>> = bytes
            .chunks(CALL)
            .map(|call| out.send(&pair.client, call))
            .collect();
        reader.join().expect("the reader").and(sent)
    });
    checks.eq("calls", sent, Ok(vec![CALL; CALLS]));
    checks.eq("a wrong byte", pattern.mismatch(0, &got), None);
    let seen = raw::poll(&pair.client, 0, SOON);
    checks.eq("poll() says that there is one", seen, Ok(POLLERR));
    checks.need("notifications", out.reap_all(&pair.client))?;
    checks.eq("calls that they are about", out.told, out.calls);
    if raw::is_zrs() {
        let copied = out.last.map(|last| last.copied);
        checks.eq("copied, as the last one says", copied, Some(false));
    }
    let seen = raw::poll(&pair.client, 0, 0);
    checks.eq("poll() says that there are no more", seen, Ok(0));
    Some(())
}
