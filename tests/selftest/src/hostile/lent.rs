// SPDX-License-Identifier: GPL-2.0
//! Lent pages: given back, unmapped, spliced, kept and inherited by some threads, while others
//! receive into the same places and from the same socket.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Mutex;

use libc::{MADV_DONTNEED, MAP_SHARED, PROT_READ};
use zrs_sys::abi::{
    zrs_ioc_recv_map, ZRS_AREA_OFFSET, ZRS_IOC_RECV_MAP, ZRS_RECV_MAP_DONTWAIT, ZRS_RECV_MAP_SHIFT,
};

use super::{beside, for_a_while, still_works, Ctx, Tally};
use crate::support::checks::{say, Checks};
use crate::support::pattern::Rng;
use crate::support::process;
use crate::support::raw::{self, Errno, Result};
use crate::support::wild::{self, Area, PAGE};

/// Bytes that arrive during the test.
const FLOOD: u64 = 1 << 40;
/// Their value.
const TAG: u8 = 11;
/// Bytes of an area.
const LEN: usize = 512 << 10;
/// The room of a pipe.
const PIPE: usize = 64 << 10;

fn area(fd: &OwnedFd) -> Result<Area> {
    Area::map(LEN, PROT_READ, MAP_SHARED, Some(fd), ZRS_AREA_OFFSET)
}

/// Somewhere in the area, whatever its contents.
fn receive(fd: &OwnedFd, area: &Area, rng: &mut Rng) -> Result<()> {
    let off = rng.below(LEN);
    let call = zrs_ioc_recv_map {
        addr: area.addr(off),
        len: 1 + rng.below(2 * LEN) as u64,
        flags: ZRS_RECV_MAP_DONTWAIT | rng.pick(&[0, ZRS_RECV_MAP_SHIFT]),
        ..Default::default()
    };
    raw::ioctl(fd, ZRS_IOC_RECV_MAP, &mut raw::bytes_of(&call)).map(drop)
}

fn fine(bytes: &[u8]) -> Result<()> {
    match bytes.iter().all(|b| *b == TAG) {
        true => Ok(()),
        false => Err(Errno(libc::EBADMSG)),
    }
}

/// Through an area that no other thread touches.
fn verified(own: &mut zrs::Area) -> Result<()> {
    match own.recv(100_000)? {
        Some(bytes) => fine(&bytes.to_vec()),
        None => Err(Errno(libc::EPIPE)),
    }
}

/// Into a pipe and out of it.
fn spliced(fd: &OwnedFd, pipe: &(File, OwnedFd)) -> Result<()> {
    let mut bytes = vec![0; wild::splice(fd, &pipe.1, PIPE)?];
    (&pipe.0).read_exact(&mut bytes)?;
    fine(&bytes)
}

pub fn run(ctx: &Ctx, checks: &mut Checks) -> Result<()> {
    if !raw::is_zrs() {
        say("# TCP lends nothing");
        return Ok(());
    }
    let fd = ctx.flood(TAG, FLOOD)?;
    let shared = area(&fd)?;
    let own = Mutex::new(zrs::Stream::from(fd.try_clone()?).area(LEN)?);
    let (from, to) = wild::pipe()?;
    let pipe = (File::from(from), to);
    let rngs: Vec<_> = (0..4).map(|n| Mutex::new(ctx.rng(n))).collect();
    let (into, right, other) = (Tally::default(), Tally::default(), Tally::default());
    let mut children = Vec::new();
    beside(
        4,
        |n| {
            let rng = &mut *rngs[n].lock().unwrap();
            match n {
                0 => into.add(&receive(&fd, &shared, rng)),
                1 => {
                    let at = rng.below(LEN / PAGE);
                    let pages = 1 + rng.below(LEN / PAGE - at);
                    other.add(&shared.advise(at * PAGE, pages * PAGE, MADV_DONTNEED));
                }
                2 => right.add(&verified(&mut own.lock().unwrap())),
                _ => right.add(&spliced(&fd, &pipe)),
            }
        },
        || {
            let mut rng = ctx.rng(4);
            let kept = wild::pipe()?;
            for_a_while(ctx.time, || {
                match rng.below(5) {
                    0 => {
                        // One more area, unmapped again with its pages.
                        let fleeting = area(&fd)?;
                        into.add(&receive(&fd, &fleeting, &mut rng));
                    }
                    // Lent pages go into a pipe without a reader, until that is full.
                    1 => {
                        let end = raw::poll(&kept.1, libc::POLLOUT, 0)?;
                        let at = rng.below(LEN / PAGE) * PAGE;
                        if end & libc::POLLOUT != 0 {
                            other.add(&wild::vmsplice(&kept.1, &shared, at, PAGE));
                        }
                    }
                    2 => children.push(wild::fork_idle(rng.below(10) as u32)?),
                    3 => {
                        let mut bytes = vec![0; 1 + rng.below(PIPE)];
                        let got = raw::recv(&fd, &mut bytes, libc::MSG_DONTWAIT);
                        right.add(&got.and_then(|n| fine(&bytes[..n])));
                    }
                    _ => super::pause(1),
                }
                while children.len() > 4 {
                    process::wait(children.remove(0))?;
                }
                Ok(())
            })
        },
    )?;
    for child in children {
        process::wait(child)?;
    }
    into.report(
        checks,
        "received to where others give back",
        &[libc::EAGAIN, libc::EFAULT],
    );
    other.report(checks, "pages given back and kept", &[libc::EFAULT]);
    right.report(checks, "the right bytes", &[libc::EAGAIN]);
    raw::shutdown(&fd.as_fd(), libc::SHUT_RDWR)?;
    drop((own, shared, fd));
    still_works(ctx, "lent", checks)
}
