// SPDX-License-Identifier: GPL-2.0
//! Threads scribble on the shared descriptors while data arrives and while the same process uses
//! the socket in every other way.

use std::mem::{offset_of, size_of};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Mutex;

use zrs_sys::abi::*;
use zrs_sys::sock;

use super::{beside, for_a_while, still_works, Ctx, Tally};
use crate::support::checks::{say, Checks};
use crate::support::pattern::Rng;
use crate::support::raw::{self, Result};
use crate::support::wild::Area;

/// The mappings of a socket's ring.
pub struct Maps {
    pub ring: Area,
    pub window: Area,
    /// Where it has one.
    pub escape: Option<Area>,
}

pub fn maps(fd: &OwnedFd) -> Result<Maps> {
    maps_with(fd, 0)
}

/// With flags (ZRS_RX_RING_*), if there is no ring yet.
fn maps_with(fd: &OwnedFd, flags: u32) -> Result<Maps> {
    let layout = sock::rx_ring(fd.as_fd(), flags)?;
    let both = libc::PROT_READ | libc::PROT_WRITE;
    let map = |len, prot, off| Area::map(len as usize, prot, libc::MAP_SHARED, Some(fd), off);
    Ok(Maps {
        ring: map(layout.ring_bytes, both, layout.ring_offset)?,
        window: map(layout.window_bytes, libc::PROT_READ, layout.window_offset)?,
        escape: match layout.escape_bytes {
            0 => None,
            bytes => Some(map(bytes, libc::PROT_READ, layout.escape_offset)?),
        },
    })
}

pub fn run(ctx: &Ctx, checks: &mut Checks) -> Result<()> {
    if !raw::is_zrs() {
        say("# TCP has no rings");
        return Ok(());
    }
    let mut foreign = None;
    let (mut rounds, mut taken) = (0, 0_u64);
    let tally = Tally::default();
    let mut rng = ctx.rng(0);
    for_a_while(ctx.time, || {
        rounds += 1;
        let tag = 1 + rng.below(255) as u8;
        let fd = ctx.flood(tag, 1 << 30)?;
        let flags = any_flags(&mut rng);
        let maps = maps_with(&fd, flags)?;
        let rngs = [
            Mutex::new(ctx.rng(1000 + rounds)),
            Mutex::new(ctx.rng(2000 + rounds)),
        ];
        let scribble = |n: usize| scribble(&maps.ring, &mut rngs[n].lock().unwrap());
        beside(2, scribble, || {
            for_a_while(ctx.time / 8, || {
                taken += use_socket(&fd, &maps, tag, &mut rng, &tally, &mut foreign)?;
                Ok(())
            })
        })?;
        match rng.below(3) {
            0 => raw::shutdown(&fd, libc::SHUT_RDWR)?,
            1 => raw::shutdown(&fd, libc::SHUT_RD)?,
            _ => {}
        }
        // Either may go first.
        if rng.one_in(2) {
            drop(fd);
            drop(maps);
        } else {
            drop(maps);
            drop(fd);
        }
        Ok(())
    })?;
    tally.report(
        checks,
        "ring scribbled on: all calls answer as documented",
        &[libc::EAGAIN],
    );
    checks.eq(
        "ring scribbled on: only the peer's bytes are in window and recv()",
        foreign,
        None,
    );
    say(&format!(
        "#   {rounds} connections, {taken} bytes by recv()"
    ));
    still_works(ctx, "ring scribbled on", checks)
}

fn any_flags(rng: &mut Rng) -> u32 {
    rng.below(4) as u32 & (ZRS_RX_RING_ESCAPE | ZRS_RX_RING_SMALL)
}

/// One of the things that a program may do with the socket. Bytes that recv() gave.
fn use_socket(
    fd: &OwnedFd,
    maps: &Maps,
    tag: u8,
    rng: &mut Rng,
    tally: &Tally,
    foreign: &mut Option<String>,
) -> Result<u64> {
    let mut got = 0;
    match rng.below(8) {
        0 => tally.add(&sock::doorbell(fd.as_fd()).map_err(Into::into)),
        1 => tally.add(&raw::poll(fd, libc::POLLIN | libc::POLLOUT, 1)),
        2 => tally.add(&sock::info(fd.as_fd()).map_err(Into::into)),
        3 => {
            let flags = any_flags(rng);
            tally.add(&sock::rx_ring(fd.as_fd(), flags).map_err(Into::into));
        }
        4 => {
            // The kernel has zeroed both before, and only the peer's bytes come into them.
            let mut look = |name: &str, area: &Area| {
                let at = rng.below(area.len() / 4096) * 4096;
                if !area.holds_only(at, 4096, 0, tag) {
                    *foreign = Some(format!("the {name} at {at}"));
                }
            };
            look("window", &maps.window);
            if let Some(escape) = &maps.escape {
                look("escape area", escape);
            }
        }
        n => {
            let flags = if n == 5 { libc::MSG_PEEK } else { 0 } | libc::MSG_DONTWAIT;
            let mut buf = vec![0; 1 + rng.below(100_000)];
            let received = raw::recv(fd, &mut buf, flags);
            tally.add(&received);
            if let Ok(n) = received {
                if buf[..n].iter().any(|b| *b != tag) {
                    *foreign = Some(format!("recv() of {n} bytes"));
                }
                got = n as u64;
            }
        }
    }
    Ok(got)
}

fn scribble(ring: &Area, rng: &mut Rng) {
    const DESC: usize = size_of::<zrs_ring>();
    let entries = (ring.len() - DESC) / size_of::<zrs_desc>();
    // As many as the kernel uses, or all that the mapping has room for.
    let entries = if rng.one_in(4) { entries } else { 64 };
    let at = DESC + rng.below(entries) * size_of::<zrs_desc>();
    let state = ring.word32(at + offset_of!(zrs_desc, state));
    let any = rng.word();
    match rng.below(20) {
        // States: any, in any order; the same one many times.
        0..=7 => state.store(rng.below(7) as u32, Relaxed),
        8 => state.store(rng.pick(&[u32::MAX, 0x8000_0000, any as u32]), Relaxed),
        9 | 10 => {
            let value = rng.pick(&[ZRS_DESC_READY, ZRS_DESC_DONE, ZRS_DESC_ESCAPED]);
            for n in 0..64 {
                let at = DESC + n * size_of::<zrs_desc>();
                ring.word32(at + offset_of!(zrs_desc, state))
                    .store(value, Relaxed);
            }
        }
        // As a program that follows the rules.
        11 | 12 => {
            let from = rng.pick(&[ZRS_DESC_READY, ZRS_DESC_ESCAPED]);
            let swap = state.compare_exchange(from, ZRS_DESC_HELD, Relaxed, Relaxed);
            if swap.is_ok() {
                state.store(ZRS_DESC_DONE, Relaxed);
            }
        }
        13 => ring
            .word32(at + rng.pick(&[offset_of!(zrs_desc, off), offset_of!(zrs_desc, escape_off)]))
            .store(rng.pick(&[0, u32::MAX, any as u32]), Relaxed),
        14 => ring
            .word32(at + offset_of!(zrs_desc, len))
            .store(rng.pick(&[0, u32::MAX, any as u32]), Relaxed),
        15 => ring
            .word64(at + offset_of!(zrs_desc, pos))
            .store(rng.word(), Relaxed),
        16 => {
            let head = ring.word64(offset_of!(zrs_ring, head));
            let now = head.load(Relaxed);
            let values = [0, u64::MAX, now.wrapping_sub(70), now.wrapping_add(1 << 33)];
            head.store(rng.pick(&values), Relaxed);
        }
        17 => ring
            .word32(offset_of!(zrs_ring, need_credit))
            .store(rng.word() as u32, Relaxed),
        18 => ring
            .word32(rng.pick(&[
                offset_of!(zrs_ring, entries),
                offset_of!(zrs_ring, desc_offset),
                offset_of!(zrs_ring, version),
            ]))
            .store(rng.pick(&[0, 3, u32::MAX]), Relaxed),
        _ => ring
            .word64(rng.below(ring.len() / 8) * 8)
            .store(rng.word(), Relaxed),
    }
}
