// SPDX-License-Identifier: GPL-2.0
//! The properties by which such systems are compared (`testing.rst` has the table): a row for each,
//! and a short test that it holds. For properties with a thorough test elsewhere, the same
//! functions are called.

mod calls;
mod copies;
mod many;

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::thread;

use crate::events::wakes::Children;
use crate::socket::calls::Pair;
use crate::support::checks::{say, Checks};
use crate::support::fds;
use crate::support::pattern::Pattern;
use crate::support::process;
use crate::support::raw::{self, Errno, Result};

/// Check the properties by which such systems are compared, on connections of this host with itself
#[derive(clap::Args)]
pub struct Args {
    /// An address of this host that has an RDMA device
    #[arg(long, value_name = "ADDR")]
    local: Ipv4Addr,
    /// An IPv6 address of the same interface
    #[arg(long, value_name = "ADDR")]
    v6: Ipv6Addr,
    /// A row that takes longer, in seconds, fails
    #[arg(long, default_value_t = 60)]
    each: u32,
    /// The program runs under a preload: sockets are made in the plainest way, and a row that goes
    /// by TCP fails
    #[arg(long)]
    preload: bool,
    /// Of the data
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Its name, whether it is of TCP's sockets too, and its test.
type Row = (&'static str, bool, fn(&Args, &mut Checks) -> Option<()>);

const ROWS: &[Row] = &[
    ("poll/select", true, calls::poll_and_select),
    ("epoll level", true, calls::level),
    ("epoll edge, one-shot", true, calls::edge_and_oneshot),
    ("epoll exclusive, nested", true, calls::exclusive_and_nested),
    ("fork", true, calls::fork),
    ("exec, SCM_RIGHTS", true, calls::exec_and_pass),
    ("dup", true, calls::dup),
    ("MSG_PEEK / DONTWAIT / WAITALL", true, calls::flags),
    ("scatter receive", true, calls::scatter),
    ("sendmmsg/recvmmsg, cmsg", true, calls::messages),
    ("sendfile / splice", true, calls::files),
    ("io_uring", true, calls::uring),
    ("zero-copy send", false, copies::send),
    ("zero-copy receive", false, copies::receive),
    ("MSG_ZEROCOPY on the error queue", true, copies::error_queue),
    ("IPv6", true, calls::ipv6),
    ("many sockets on one QP", false, many::on_one_link),
    ("idle connections parked", false, many::parked),
    ("cache-resident receive pool", false, many::pool),
];

pub fn run(args: &Args, checks: &mut Checks) {
    if args.preload {
        raw::without_flags();
    }
    for row @ (name, on_tcp, _) in ROWS {
        if !on_tcp && !raw::is_zrs() {
            say(&format!("# {name}: not of TCP"));
            continue;
        }
        // In a separate process, which ends after a time limit in any case.
        let before = tcp_opened();
        let status = process::fork(|| alone(row, args)).and_then(process::wait);
        let by_tcp = before.is_none() || tcp_opened() != before;
        if by_tcp && (args.preload || raw::is_zrs()) {
            checks.fail(name, "a connection was made by TCP");
        } else {
            let detail = format!("the exit status of its process is {status:?}");
            checks.yes(name, status == Ok(0), &detail);
        }
    }
}

/// Connections that programs of this host have opened by TCP.
fn tcp_opened() -> Option<u64> {
    let snmp = std::fs::read_to_string("/proc/net/snmp").ok()?;
    // A line of names, then one of numbers.
    let numbers = snmp
        .lines()
        .filter(|line| line.starts_with("Tcp:"))
        .nth(1)?;
    numbers.split_whitespace().nth(5)?.parse().ok()
}

/// The exit status that says whether all of a row holds.
fn alone((_, _, test): &Row, args: &Args) -> u8 {
    process::alarm(args.each);
    let mut parts = Checks::of_parts();
    let done = test(args, &mut parts);
    u8::from(done.is_none() || !parts.fine())
}

fn listener(args: &Args) -> Result<(OwnedFd, SocketAddrV4)> {
    raw::listener(SocketAddrV4::new(args.local, 0))
}

fn pair(args: &Args) -> Result<Pair> {
    let (listener, addr) = listener(args)?;
    Ok(Pair {
        client: raw::connected(addr)?,
        server: raw::accept(&listener)?,
    })
}

/// A process that serves as long as this lives, and where. It makes its own socket, so that no row
/// is about one that another process has made whose name does not say so.
fn peer(args: &Args, serve: impl FnOnce(&OwnedFd)) -> Result<(Children, SocketAddrV4)> {
    let (hears, tell) = fds::unix_pair()?;
    let child = process::fork(|| {
        process::alarm(args.each);
        let listener = listener(args).and_then(|(listener, addr)| {
            raw::send_all(&tell, &addr.port().to_be_bytes())?;
            Ok(listener)
        });
        listener.map_or(1, |listener| {
            serve(&listener);
            0
        })
    })?;
    drop(tell);
    let child = Children(vec![child]);
    let mut port = [0; 2];
    raw::recv_all(&hears, &mut port)?;
    let addr = SocketAddrV4::new(args.local, u16::from_be_bytes(port));
    Ok((child, addr))
}

/// `bytes` bytes arrive as they were sent. EILSEQ: others.
fn carry(args: &Args, from: &OwnedFd, to: &OwnedFd, bytes: usize) -> Result<()> {
    let pattern = Pattern::new(args.seed, 0, bytes as u64);
    let (mut sent, mut got) = (vec![0; bytes], vec![0; bytes]);
    pattern.fill(0, &mut sent);
    thread::scope(|scope| {
        let sender = scope.spawn(|| raw::send_all(from, &sent));
        raw::recv_all(to, &mut got)?;
        sender.join().expect("the sender")
    })?;
    match pattern.mismatch(0, &got) {
        None => Ok(()),
        Some(_) => Err(Errno(libc::EILSEQ)),
    }
}
