// SPDX-License-Identifier: GPL-2.0
//! Connections that come and go: made, used for a byte each way, and ended, by either side first.

use std::net::SocketAddrV4;
use std::os::fd::OwnedFd;
use std::time::Instant;

use super::{call, channels_end, each, few_links, part, serve, Ends};
use crate::support::checks::{say, Checks};
use crate::support::raw::{self, Errno, Result};

/// Make, use and end many connections, some at a time
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    ends: Ends,
    /// Connections; both ends get the same number
    #[arg(long, default_value_t = 10_000)]
    conns: u64,
    /// The most links that may carry them
    #[arg(long, default_value_t = 8)]
    most_links: u64,
}

/// So many are open at a time on each port.
const DEPTH: u64 = 4;

pub fn run(args: &Args, checks: &mut Checks) {
    match (args.ends.end.server, args.ends.end.client) {
        (Some(addr), _) => drop(server(args, addr, checks)),
        (None, Some(addr)) => drop(client(args, addr, checks)),
        (None, None) => {}
    }
}

/// The side that ends a connection first follows from the question's byte.
fn client_ends(question: u8) -> bool {
    question % 2 == 0
}

/// `DEPTH` connections at a time of the `own` ones of a port, and the byte that each is asked by.
fn in_turns(own: u64, mut turn: impl FnMut(std::ops::Range<u64>) -> Result<()>) -> Result<u64> {
    let mut done = 0;
    while done < own {
        let next = own.min(done + DEPTH);
        turn(done..next)?;
        done = next;
    }
    Ok(own)
}

/// The other end has ended the connection, and said nothing more.
fn ended(conn: &OwnedFd) -> Result<()> {
    match raw::recv(conn, &mut [0], 0)? {
        0 => Ok(()),
        _ => Err(Errno(libc::EPROTO)),
    }
}

fn server(args: &Args, addr: SocketAddrV4, checks: &mut Checks) -> Option<()> {
    let (control, listeners) = serve(addr, args.ends.ports, checks)?;
    let done = each(&listeners, checks, |index, listener| {
        in_turns(part(args.conns, listeners.len(), index), |turn| {
            let conns = turn
                .map(|_| raw::accept(listener))
                .collect::<Result<Vec<_>>>()?;
            for conn in conns {
                let mut question = [0];
                raw::recv_all(&conn, &mut question)?;
                raw::send_all(&conn, &[question[0].wrapping_add(1)])?;
                if client_ends(question[0]) {
                    ended(&conn)?;
                }
            }
            Ok(())
        })
    })?;
    checks.need("tell", control.tell(done.iter().sum()))?;
    checks.errno("the end", control.hear(), &[libc::EPIPE]);
    Some(())
}

fn client(args: &Args, addr: SocketAddrV4, checks: &mut Checks) -> Option<()> {
    let (control, addrs) = call(addr, checks)?;
    let start = Instant::now();
    let done = each(&addrs, checks, |index, &addr| {
        in_turns(part(args.conns, addrs.len(), index), |turn| {
            let conns = turn
                .clone()
                .map(|_| raw::connected(addr))
                .collect::<Result<Vec<_>>>()?;
            for (n, conn) in turn.clone().zip(&conns) {
                raw::send_all(conn, &[n as u8])?;
            }
            for (n, conn) in turn.zip(conns) {
                let mut answer = [0];
                raw::recv_all(&conn, &mut answer)?;
                if answer[0] != (n as u8).wrapping_add(1) {
                    return Err(Errno(libc::EPROTO));
                }
                if !client_ends(n as u8) {
                    ended(&conn)?;
                }
            }
            Ok(())
        })
    })?;
    let rate = args.conns as f64 / start.elapsed().as_secs_f64();
    say(&format!(
        "{rate:.0} connections/s made, used and ended, {} at a time",
        DEPTH * addrs.len() as u64
    ));
    few_links(checks, args.most_links);
    let name = "connections made, used and ended";
    checks.eq(name, done.iter().sum(), args.conns);
    let seen = checks.need("hear", control.hear());
    checks.eq("as many at the other end", seen, Some(args.conns));
    channels_end(checks, 2);
    Some(())
}
