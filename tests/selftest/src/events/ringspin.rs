// SPDX-License-Identifier: GPL-2.0
//! A ring's reader that never sleeps: while data flows it looks at memory only. It calls getpid()
//! before and after, so that a tracer of its system calls sees those in between.

use std::hint;
use std::net::SocketAddrV4;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use zrs_sys::{Look, Ring};

use crate::support::args::{End, Side};
use crate::support::checks::{say, Checks};
use crate::support::pattern::{Pattern, Verifier};
use crate::support::raw::{self, Errno, Result};
use crate::support::{verified, wild};

/// Read by the ring without a system call
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    end: End,
    #[arg(long, default_value_t = 8)]
    mib: u64,
    /// So many small messages instead
    #[arg(long)]
    small: Option<usize>,
    /// Between two messages
    #[arg(long, value_name = "MS", default_value_t = 100)]
    pause: u64,
}

/// Bytes of a message; less than the reader takes in a pause, so that it waits for data, not data
/// for it: while half of a window (four messages) is unread, the module asks for the doorbell.
const MESSAGE: usize = 128 * 1024;
/// Bytes of small messages, in turn, and how many come without a pause: less than the module asks
/// for the doorbell for.
const SMALL: [usize; 10] = [1, 4096, 64, 65, 2, 4095, 700, 63, 1500, 2048];
const BATCH: usize = 4;

impl Args {
    /// The lengths of the messages, and how many come between two pauses.
    fn messages(&self) -> (Vec<usize>, usize) {
        match self.small {
            Some(n) => (SMALL.iter().copied().cycle().take(n).collect(), BATCH),
            None => (vec![MESSAGE; (self.mib << 20) as usize / MESSAGE], 1),
        }
    }

    fn bytes(&self) -> u64 {
        self.messages().0.iter().map(|len| *len as u64).sum()
    }
}

pub fn run(args: &Args, checks: &mut Checks) {
    match args.end.side() {
        Side::Server(addr) => drop(server(args, addr, checks)),
        Side::Client(addr) => drop(client(args, addr, checks)),
    }
}

/// System calls that mark a place.
fn mark() {
    let _ = std::process::id();
}

fn server(args: &Args, addr: SocketAddrV4, checks: &mut Checks) -> Option<()> {
    let (listener, addr) = checks.need("listen", raw::listener(addr))?;
    say(&format!(
        "listening on {addr}, process {}",
        std::process::id()
    ));
    let conn = Arc::new(checks.need("accept", raw::accept(&listener))?);
    let ring = Arc::new(checks.need("a ring", Ring::open(&conn).map_err(Errno::from))?);
    let mut seen = Verifier::new(Pattern::new(1, 0, 0));
    // A small message that came before the ring would have to be fetched.
    checks.need("tell", raw::send_all(&conn, &[0]))?;
    mark();
    let read = read(&ring, &conn, args.bytes(), &mut seen);
    mark();
    checks.need("read", read)?;
    checks.need("answer", verified::answer(&conn, &seen))
}

fn read(ring: &Arc<Ring>, conn: &OwnedFd, bytes: u64, seen: &mut Verifier) -> Result<()> {
    let mut next = ring.first();
    while seen.pos < bytes {
        while ring.head() <= next {
            hint::spin_loop();
        }
        match ring.look(next)? {
            // Memory for a copy might take a system call.
            Look::Held(held) => seen.take(wild::trusted(held.view()))?,
            Look::Kernel(len) => {
                let mut small = vec![0; len];
                raw::recv_all(conn, &mut small)?;
                seen.take(&small)?;
            }
            Look::Taken => {}
        }
        next += 1;
    }
    Ok(())
}

fn client(args: &Args, addr: SocketAddrV4, checks: &mut Checks) -> Option<()> {
    let conn = checks.need("connect", raw::connected(addr))?;
    checks.need("hear", raw::recv_all(&conn, &mut [0]))?;
    let pattern = Pattern::new(1, 0, 0);
    let mut message = vec![0; MESSAGE];
    let (messages, batch) = args.messages();
    let mut pos = 0;
    for batch in messages.chunks(batch) {
        for len in batch {
            pattern.fill(pos, &mut message[..*len]);
            checks.need("send", raw::send_all(&conn, &message[..*len]))?;
            pos += *len as u64;
        }
        thread::sleep(Duration::from_millis(args.pause));
    }
    verified::end(&conn, pos, checks)
}
