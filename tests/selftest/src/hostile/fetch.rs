// SPDX-License-Identifier: GPL-2.0
//! Other threads rewrite the memory of ioctls, options and messages while the kernel reads it.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Mutex;

use zrs_sys::abi::*;

use super::{beside, for_a_while, still_works, Ctx, Tally};
use crate::common::serve::{ask, DISCARD};
use crate::support::checks::Checks;
use crate::support::pattern::Rng;
use crate::support::raw::{self, Result};
use crate::support::wild::{self, Area, KERNEL};

/// The part of the area that arguments are in.
const ARGUMENT: usize = 512;
const AREA: usize = 64 << 10;

/// Calls `call` with an area whose first bytes change all the time.
fn hammer(ctx: &Ctx, n: u64, part: u32, mut call: impl FnMut(&Area) -> Result<()>) -> Result<()> {
    let area = Area::anonymous(AREA)?;
    let rngs = [Mutex::new(ctx.rng(n)), Mutex::new(ctx.rng(n + 100))];
    let scribble = |thread: usize| {
        let mut rng = rngs[thread].lock().unwrap();
        for _ in 0..200 {
            let value = match rng.below(8) {
                0..=2 => 0,
                3 => libc::AF_INET as u32,
                4 => libc::SOCK_STREAM as u32,
                5 => u32::MAX,
                6 => rng.below(300) as u32,
                _ => rng.word() as u32,
            };
            area.word32(rng.below(ARGUMENT / 4) * 4)
                .store(value, Relaxed);
            if rng.one_in(16) {
                // Now and then everything is as it should be.
                for off in (0..ARGUMENT).step_by(8) {
                    area.word64(off).store(0, Relaxed);
                }
                let socket = libc::AF_INET as u64 | ((libc::SOCK_STREAM as u64) << 32);
                area.word64(0).store(rng.pick(&[0, socket]), Relaxed);
                std::thread::sleep(std::time::Duration::from_micros(200));
            }
        }
    };
    beside(2, scribble, || for_a_while(ctx.time / part, || call(&area)))
}

pub fn run(ctx: &Ctx, checks: &mut Checks) -> Result<()> {
    if raw::is_zrs() {
        device(ctx, checks)?;
        options(ctx, checks)?;
    }
    messages(ctx, checks)?;
    still_works(ctx, "fetch", checks)
}

/// Every request of /dev/zrs, and some unknown ones.
fn device(ctx: &Ctx, checks: &mut Checks) -> Result<()> {
    let dev: OwnedFd = File::options()
        .read(true)
        .write(true)
        .open("/dev/zrs")?
        .into();
    let (einval, enoent) = (libc::EINVAL, libc::ENOENT);
    let requests: [(&str, u32, &[i32]); 8] = [
        ("ZRS_IOC_VERSION", ZRS_IOC_VERSION, &[einval]),
        (
            "ZRS_IOC_SOCKET",
            ZRS_IOC_SOCKET,
            &[einval, libc::EAFNOSUPPORT, libc::ESOCKTNOSUPPORT],
        ),
        ("ZRS_IOC_STATS", ZRS_IOC_STATS, &[einval]),
        ("ZRS_IOC_POOL", ZRS_IOC_POOL, &[einval, enoent]),
        ("ZRS_IOC_LINK", ZRS_IOC_LINK, &[einval, enoent]),
        ("ZRS_IOC_SOCK", ZRS_IOC_SOCK, &[einval, enoent]),
        ("ZRS_IOC_TABLE", ZRS_IOC_TABLE, &[einval]),
        ("ZRS_IOC_MEM_STATS", ZRS_IOC_MEM_STATS, &[einval]),
    ];
    for (n, (name, request, errnos)) in requests.into_iter().enumerate() {
        let tally = Tally::default();
        hammer(ctx, n as u64, 12, |area| {
            if request == ZRS_IOC_SOCKET {
                tally.add(&wild::ioctl_fd(&dev, request, area));
            } else {
                tally.add(&wild::ioctl(&dev, request, area));
            }
            Ok(())
        })?;
        tally.report(checks, &format!("{name}, rewritten while read"), errnos);
    }
    let (tally, mut rng) = (Tally::default(), ctx.rng(20));
    hammer(ctx, 21, 12, |area| {
        let request = (rng.word() as u32 & !0xff00) | (ZRS_IOC_MAGIC << 8);
        if !requests.iter().any(|r| r.1 == request) {
            tally.add(&wild::ioctl(&dev, request, area));
        }
        Ok(())
    })?;
    tally.report(checks, "requests that are none", &[libc::ENOTTY]);
    Ok(())
}

fn options(ctx: &Ctx, checks: &mut Checks) -> Result<()> {
    let fd = ctx.flood(1, 1 << 20)?;
    let (level, ring, info) = (SOL_ZRS as i32, ZRS_RX_RING as i32, ZRS_INFO as i32);
    let (set, get) = (Tally::default(), Tally::default());
    hammer(ctx, 30, 6, |area| {
        let len = area.word32(256).load(Relaxed);
        set.add(&wild::setsockopt(&fd, level, ring, area, len));
        for name in [ring, info] {
            get.add(&wild::getsockopt(&fd, level, name, area, 300));
        }
        Ok(())
    })?;
    let errnos = [libc::EINVAL, libc::EFAULT, libc::ENOBUFS];
    set.report(
        checks,
        "setsockopt(ZRS_RX_RING), rewritten while read",
        &errnos,
    );
    let errnos = [libc::EINVAL, libc::EFAULT, libc::ENOTCONN];
    get.report(
        checks,
        "getsockopt(), its length rewritten while read",
        &errnos,
    );
    let tally = Tally::default();
    hammer(ctx, 31, 12, |area| {
        for request in [ZRS_IOC_DOORBELL, libc::FIONREAD as u32, 0x5411] {
            tally.add(&wild::ioctl(&fd, request, area));
        }
        Ok(())
    })?;
    tally.report(checks, "ioctls of a socket", &[]);
    Ok(())
}

/// The data part of an area of messages: the pointers of a header lead there, or nowhere.
const DATA: usize = AREA / 2;
const IOV: usize = 64;

fn scribble_message(area: &Area, rng: &mut Rng, receive: bool) {
    let data = area.addr(DATA);
    let bad = [KERNEL, 8, u64::MAX - 4095];
    let pointer = |rng: &mut Rng| match rng.below(6) {
        0 => rng.pick(&bad),
        _ => data + rng.below(DATA / 2) as u64,
    };
    let len = |rng: &mut Rng| match rng.below(10) {
        0 => rng.pick(&[0, u64::MAX, 1 << 40, i32::MAX as u64]),
        1..=4 => rng.below(64) as u64,
        _ => rng.below(DATA / 2) as u64,
    };
    // An overlong piece would let the kernel write beyond the area; as a source it is harmless.
    let len = |rng: &mut Rng| match len(rng) {
        n if receive && n > (DATA / 2) as u64 => n.min((DATA / 2) as u64),
        n => n,
    };
    for _ in 0..50 {
        let (off, value) = match rng.below(12) {
            0 => (0, if rng.one_in(4) { rng.pick(&bad) } else { 0 }),
            1 => (8, rng.pick(&[0, 16, 128])),
            2 if rng.one_in(8) => (16, rng.pick(&[KERNEL, 8])),
            2 | 3 => (16, area.addr(IOV)),
            4 => (24, rng.pick(&[0, 1, 2, 4, 4, 5000])),
            5 => (32, if rng.one_in(4) { KERNEL } else { 0 }),
            6 => (40, rng.pick(&[0, 64, u64::MAX])),
            7 => (48, rng.word()),
            n => (IOV + 16 * (n - 8), pointer(rng)),
        };
        // 5000 pieces lie behind the four that are good: of zeroes, as all of the area up to DATA.
        area.word64(off).store(value, Relaxed);
        area.word64(IOV + 16 * rng.below(4) + 8)
            .store(len(rng), Relaxed);
    }
}

/// sendmsg() and recvmsg() whose header and pieces change.
fn messages(ctx: &Ctx, checks: &mut Checks) -> Result<()> {
    let area = Area::anonymous(AREA)?;
    let rng = Mutex::new(ctx.rng(40));
    let fd = ask(ctx.peer, &[DISCARD])?;
    let tally = Tally::default();
    let mut flags = ctx.rng(41);
    beside(
        1,
        |_| scribble_message(&area, &mut rng.lock().unwrap(), false),
        || {
            for_a_while(ctx.time / 6, || {
                let flag = flags.pick(&[0, libc::MSG_DONTWAIT]);
                tally.add(&wild::sendmsg(&fd, &area, flag));
                Ok(())
            })
        },
    )?;
    let errnos = [
        libc::EFAULT,
        libc::EINVAL,
        libc::EMSGSIZE,
        libc::EAGAIN,
        libc::ENOBUFS,
    ];
    tally.report(
        checks,
        "sendmsg(), header and pieces rewritten while read",
        &errnos,
    );

    let fd = ctx.flood(3, 1 << 30)?;
    let area = Area::anonymous(AREA)?;
    let tally = Tally::default();
    beside(
        1,
        |_| scribble_message(&area, &mut rng.lock().unwrap(), true),
        || {
            for_a_while(ctx.time / 6, || {
                tally.add(&wild::recvmsg(&fd, &area, libc::MSG_DONTWAIT));
                Ok(())
            })
        },
    )?;
    tally.report(
        checks,
        "recvmsg(), header and pieces rewritten while read",
        &errnos,
    );
    checks.yes(
        "what recvmsg() wrote was the peer's",
        area.holds_only(DATA, AREA - DATA, 0, 3),
        "other bytes",
    );
    Ok(())
}
