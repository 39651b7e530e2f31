// SPDX-License-Identifier: GPL-2.0
//! A connection that must not be affected by others on the same link.

use std::io::BufRead;
use std::net::SocketAddrV4;
use std::os::fd::OwnedFd;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::common::serve::{ask, ECHO};
use crate::support::checks::{say, Checks};
use crate::support::pattern::{Pattern, Rng, Verifier};
use crate::support::process;
use crate::support::raw::{self, Errno, Result};

/// Send data to `serve` and verify the echo, all the time; a line on stdin: finish the current
/// transfer, print a result, and pause until the next line
#[derive(clap::Args)]
pub struct Args {
    /// Where `serve` runs
    #[arg(value_name = "ADDR:PORT")]
    peer: SocketAddrV4,
    /// Of data and sizes
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Nothing may take longer than this many seconds
    #[arg(long, default_value_t = 20)]
    patience: u64,
}

pub fn run(args: &Args, checks: &mut Checks) {
    process::alarm(0);
    let (to_main, lines) = mpsc::channel();
    thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            if line.is_err() || to_main.send(()).is_err() {
                return;
            }
        }
    });
    let Some(conn) = checks.need("connect", ask(args.peer, &[ECHO])) else {
        return;
    };
    let mut transfer = Transfer {
        conn,
        pattern: Pattern::new(args.seed, 0, 0),
        verifier: Verifier::new(Pattern::new(args.seed, 0, 0)),
        rng: Rng::new(args.seed, 1),
        sent: 0,
    };
    // The first one asks for windows.
    let first = transfer.round(1 << 20).and_then(|()| transfer.verified());
    if checks.need("transfer", first).is_none() {
        return;
    }
    say("ready");
    let patience = Duration::from_secs(args.patience);
    // Begins at rest.
    while lines.recv().is_ok() {
        let before = transfer.verifier.pos;
        let mut slowest = Duration::ZERO;
        let result = loop {
            let start = std::time::Instant::now();
            let size = transfer.size();
            let done = transfer.round(size).and_then(|()| transfer.verified());
            slowest = slowest.max(start.elapsed());
            // A short pause: the bystander must not be the load itself.
            thread::sleep(Duration::from_millis(2));
            match (done, lines.try_recv()) {
                (Err(e), _) => break Err(e),
                (Ok(()), Ok(())) => break Ok(()),
                (Ok(()), Err(mpsc::TryRecvError::Empty)) => {}
                (Ok(()), Err(mpsc::TryRecvError::Disconnected)) => return,
            }
        };
        let bytes = transfer.verifier.pos - before;
        let detail = format!(
            "{result:?} after {bytes} bytes, wrong byte {:?}, slowest {slowest:?}",
            transfer.verifier.wrong
        );
        let fine = result.is_ok() && transfer.verifier.wrong.is_none() && slowest < patience;
        checks.yes("the bystander noticed nothing", fine, &detail);
        say(&format!("#   {bytes} bytes verified, slowest {slowest:?}"));
        say("resting");
        if !fine {
            return;
        }
    }
}

struct Transfer {
    conn: OwnedFd,
    pattern: Pattern,
    verifier: Verifier,
    rng: Rng,
    sent: u64,
}

impl Transfer {
    fn size(&mut self) -> usize {
        match self.rng.below(3) {
            0 => 1 + self.rng.below(4096),
            1 => 1 + self.rng.below(20_000),
            _ => 1 + self.rng.below(400_000),
        }
    }

    /// So many bytes there and back.
    fn round(&mut self, size: usize) -> Result<()> {
        let (conn, pattern, from) = (&self.conn, self.pattern, self.sent);
        let verifier = &mut self.verifier;
        let end = from + size as u64;
        thread::scope(|s| {
            let sender = s.spawn(move || {
                let mut data = vec![0; size];
                pattern.fill(from, &mut data);
                raw::send_all(conn, &data)
            });
            let mut buf = vec![0; 64 << 10];
            let received = loop {
                let left = (end - verifier.pos).min(buf.len() as u64) as usize;
                if left == 0 {
                    break Ok(());
                }
                match raw::recv(conn, &mut buf[..left], 0) {
                    Ok(0) => break Err(Errno(libc::EPIPE)),
                    Ok(n) => verifier.take(&buf[..n])?,
                    Err(Errno(libc::EINTR)) => {}
                    Err(e) => break Err(e),
                }
            };
            received.and(sender.join().expect("a sender"))
        })?;
        self.sent = end;
        Ok(())
    }

    fn verified(&self) -> Result<()> {
        match self.verifier.wrong {
            None => Ok(()),
            Some(_) => Err(Errno(libc::EIO)),
        }
    }
}
