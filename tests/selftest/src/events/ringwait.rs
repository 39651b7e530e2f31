// SPDX-License-Identifier: GPL-2.0
//! ZRS_IOC_RING_WAIT: events that end it, and refusals.

use std::io;
use std::net::SocketAddrV4;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use libc::{SOL_SOCKET, SO_BUSY_POLL};
use zrs_sys::abi::{zrs_ioc_ring_wait, ZRS_IOC_RING_WAIT};
use zrs_sys::{Doorbell, Look, Ring};

use crate::common::serve::{ask, ECHO};
use crate::support::checks::Checks;
use crate::support::raw::{self, bytes_of, Result};
use crate::support::wild;

/// Check the wait for the receive ring
#[derive(clap::Args)]
pub struct Args {
    /// Where `serve` runs
    #[arg(long, value_name = "ADDR:PORT")]
    peer: SocketAddrV4,
}

/// A time limit beyond any wait that ends.
const PATIENCE: Duration = Duration::from_secs(20);
/// Nothing comes any more after that; a busy machine makes it no more than a smaller part of the
/// same.
const QUIET: Duration = Duration::from_millis(500);

pub fn run(args: &Args, checks: &mut Checks) {
    let tests: [fn(&Args, &mut Checks) -> Option<()>; 7] =
        [refused, data, several, full, interrupted, ended, silent];
    for test in tests {
        test(args, checks);
    }
}

/// A connection to an echo, and its ring.
struct End {
    fd: Arc<OwnedFd>,
    ring: Arc<Ring>,
}

impl End {
    fn new(args: &Args) -> Result<Self> {
        let fd = Arc::new(ask(args.peer, &[ECHO])?);
        let ring = Arc::new(Ring::open(&fd)?);
        Ok(Self { fd, ring })
    }

    fn wait(&self, head: u64, timeout: Option<Duration>) -> Result<()> {
        Ok(self.ring.wait(head, timeout)?)
    }

    /// Takes segment `n`, which is there; its length.
    fn take(&self, n: u64) -> Result<usize> {
        Ok(match self.ring.look(n)? {
            Look::Held(held) => held.view().len(),
            Look::Kernel(len) => raw::recv(&*self.fd, &mut vec![0; len], libc::MSG_DONTWAIT)?,
            Look::Taken => 0,
        })
    }
}

fn refused(args: &Args, checks: &mut Checks) -> Option<()> {
    let plain = checks.need("connect", ask(args.peer, &[ECHO]))?;
    let ask = |reserved| {
        let wait = zrs_ioc_ring_wait {
            head: 1,
            timeout_ns: 1,
            reserved,
        };
        raw::ioctl(&plain, ZRS_IOC_RING_WAIT, &mut bytes_of(&wait))
    };
    checks.errno("a socket without a ring", ask([0; 2]), &[libc::EINVAL]);
    let end = checks.need("a ring", End::new(args))?;
    for reserved in [[1, 0], [0, 1]] {
        let wait = zrs_ioc_ring_wait {
            head: 0,
            timeout_ns: 1,
            reserved,
        };
        let seen = raw::ioctl(&*end.fd, ZRS_IOC_RING_WAIT, &mut bytes_of(&wait));
        checks.errno("reserved not zero", seen, &[libc::EINVAL]);
    }
    let seen = raw::ioctl_bad_pointer(&*end.fd, ZRS_IOC_RING_WAIT);
    checks.errno("a bad pointer", seen, &[libc::EFAULT]);
    let begin = Instant::now();
    let seen = end.wait(end.ring.first() + 1, Some(Duration::from_secs(1)));
    let waited = begin.elapsed();
    checks.errno("nothing comes", seen, &[libc::EAGAIN]);
    // The kernel counts ticks, and a slow machine catches up several at once.
    let fine = waited >= Duration::from_millis(500) && waited < PATIENCE;
    checks.yes("after its time", fine, &format!("{waited:?}"));
    Some(())
}

/// Data that comes while it sleeps, while it polls, and data that is there already.
fn data(args: &Args, checks: &mut Checks) -> Option<()> {
    let end = checks.need("a ring", End::new(args))?;
    let mut n = end.ring.first();
    for (name, us) in [("sleeping", 0_i32), ("polling", 100_000)] {
        let seen = raw::setsockopt(&*end.fd, SOL_SOCKET, SO_BUSY_POLL, &us.to_ne_bytes());
        checks.need("SO_BUSY_POLL", seen)?;
        let all: Result<Vec<usize>> = (0..100)
            .map(|i| {
                let len = [1, 64, 4096][i % 3];
                raw::send_all(&*end.fd, &vec![1; len])?;
                let mut got = 0;
                while got < len {
                    end.wait(n + 1, None)?;
                    end.wait(n + 1, Some(Duration::from_nanos(1)))?;
                    got += end.take(n)?;
                    n += 1;
                }
                Ok(got)
            })
            .collect();
        let sent = (0..100).map(|i| [1, 64, 4096][i % 3]).collect();
        checks.eq(&format!("questions and answers, {name}"), all, Ok(sent));
    }
    Some(())
}

/// A wait for more than one segment goes on until all of them are there.
fn several(args: &Args, checks: &mut Checks) -> Option<()> {
    let end = checks.need("a ring", End::new(args))?;
    let first = end.ring.first();
    let (sent, seen) = thread::scope(|s| {
        let sender = s.spawn(|| -> Result<()> {
            for n in first..first + 3 {
                raw::send_all(&*end.fd, &[1])?;
                // One by one, so that the echo does not make one of them.
                let begin = Instant::now();
                while end.ring.head() <= n && begin.elapsed() < PATIENCE {
                    thread::sleep(Duration::from_millis(1));
                }
            }
            Ok(())
        });
        let seen = end.wait(first + 3, Some(PATIENCE));
        let head = end.ring.head();
        (
            sender.join().expect("the sender"),
            seen.map(|()| head - first),
        )
    });
    checks.eq("three are sent", sent, Ok(()));
    checks.eq("and waited for", seen, Ok(3));
    Some(())
}

/// When the peer can send no more before something is taken, a wait for more than there is ends.
fn full(args: &Args, checks: &mut Checks) -> Option<()> {
    const BYTES: usize = 2 << 20;
    let end = checks.need("a ring", End::new(args))?;
    let (sent, seen, got) = thread::scope(|s| {
        let sender = s.spawn(|| raw::send_all(&*end.fd, &vec![1; BYTES]));
        let seen = end.wait(u64::MAX, Some(PATIENCE));
        let mut all = vec![0; BYTES];
        let got = raw::recv_all(&*end.fd, &mut all);
        (sender.join().expect("the sender"), seen, got)
    });
    checks.eq("a wait for more than can come", seen, Ok(()));
    checks.eq("all is sent", sent, Ok(()));
    checks.eq("and comes", got, Ok(()));
    Some(())
}

fn interrupted(args: &Args, checks: &mut Checks) -> Option<()> {
    let end = checks.need("a ring", End::new(args))?;
    checks.need("sigaction", wild::handle_signal(false, 0))?;
    let thread = wild::this_thread();
    let over = AtomicBool::new(false);
    let seen = thread::scope(|s| {
        s.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(20));
                let _ = wild::signal_thread(thread);
            }
        });
        let seen = end.wait(u64::MAX, None);
        over.store(true, Ordering::Relaxed);
        seen
    });
    checks.errno("a signal", seen, &[libc::EINTR]);
    Some(())
}

/// The stream's end ends it, and so does one's own shutdown.
fn ended(args: &Args, checks: &mut Checks) -> Option<()> {
    for (name, how) in [
        ("the peer's end", libc::SHUT_WR),
        ("SHUT_RD", libc::SHUT_RD),
    ] {
        let end = checks.need("a ring", End::new(args))?;
        let seen = thread::scope(|s| {
            s.spawn(|| {
                thread::sleep(Duration::from_millis(50));
                raw::shutdown(&*end.fd, how)
            });
            end.wait(u64::MAX, Some(PATIENCE))
        });
        checks.eq(&format!("{name} ends it"), seen, Ok(()));
        let seen = raw::recv(&*end.fd, &mut [0], 0);
        checks.eq("and recv() says so", seen, Ok(0));
        let seen = end.wait(u64::MAX, None);
        checks.eq("nor does it wait afterwards", seen, Ok(()));
    }
    Some(())
}

/// A doorbell without effect.
struct Mute(Arc<OwnedFd>);

impl Doorbell for Mute {
    fn ring(&self) {}

    fn wait(&self, head: u64, timeout: Option<Duration>) -> io::Result<()> {
        self.0.wait(head, timeout)
    }
}

/// A program that holds all it can, gives it back and does not tell: it gets more all the same,
/// without a system call.
fn silent(args: &Args, checks: &mut Checks) -> Option<()> {
    const BYTES: usize = 32 << 20;
    let fd = Arc::new(checks.need("connect", ask(args.peer, &[ECHO]))?);
    let bell = Box::new(Mute(fd.clone()));
    let ring = Ring::open_with(&fd, bell).map_err(Into::into);
    let ring = Arc::new(checks.need("a ring", ring)?);
    let more_than = |n: u64, patience: Duration| {
        let begin = Instant::now();
        while ring.head() <= n && begin.elapsed() < patience {
            thread::sleep(Duration::from_millis(1));
        }
        ring.head() > n
    };
    let (mut n, mut turns) = (ring.first(), 0);
    let seen = thread::scope(|s| -> Result<()> {
        s.spawn(|| raw::send_all(&*fd, &vec![1; BYTES]));
        for _ in 0..3 {
            let mut held = Vec::new();
            while more_than(n, if held.is_empty() { PATIENCE } else { QUIET }) {
                match ring.look(n)? {
                    Look::Held(segment) => held.push(segment),
                    Look::Kernel(len) => {
                        _ = raw::recv(&*fd, &mut vec![0; len], libc::MSG_DONTWAIT)?
                    }
                    Look::Taken => {}
                }
                n += 1;
            }
            turns += u32::from(!held.is_empty());
        }
        raw::shutdown(&*fd, libc::SHUT_RDWR)
    });
    checks.eq("all of it held, three times", seen, Ok(()));
    checks.eq("given back without a word, and more came", turns, 3);
    Some(())
}
