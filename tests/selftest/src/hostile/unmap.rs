// SPDX-License-Identifier: GPL-2.0
//! The memory under send() and recv() is rewritten, unmapped, protected, thrown away and truncated
//! by another thread while they run.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Mutex;

use super::{beside, count, for_a_while, still_works, Counted, Ctx, Tally};
use crate::support::checks::Checks;
use crate::support::pattern::Rng;
use crate::support::raw::{self, Errno, Result};
use crate::support::wild::{self, Area, PAGE};

const LEN: usize = 1 << 20;

pub fn run(ctx: &Ctx, checks: &mut Checks) -> Result<()> {
    rewrite(ctx, checks)?;
    let file = wild::memfd(LEN, false)?;
    let both = libc::PROT_READ | libc::PROT_WRITE;
    let areas: [(&str, Area, Option<&OwnedFd>); 2] = [
        ("private memory", Area::anonymous(LEN)?, None),
        (
            "a file",
            Area::map(LEN, both, libc::MAP_SHARED, Some(&file), 0)?,
            Some(&file),
        ),
    ];
    spliced(ctx, checks, &areas[0].1, &file)?;
    for (n, (name, area, file)) in areas.iter().enumerate() {
        let rng = Mutex::new(ctx.rng(10 + n as u64));
        let destroy = |_| destroy(area, *file, &mut rng.lock().unwrap());
        let mut sizes = ctx.rng(20 + n as u64);
        sending(ctx, checks, name, area, &mut sizes, destroy)?;
        receiving(ctx, checks, name, area, &mut sizes, destroy)?;
    }
    still_works(ctx, "unmapping", checks)
}

/// Only the contents may change: the peer gets the number of bytes sent, of values that were there.
fn rewrite(ctx: &Ctx, checks: &mut Checks) -> Result<()> {
    let area = Area::anonymous(LEN)?;
    area.fill(0x11);
    let rng = Mutex::new(ctx.rng(0));
    let scribble = |_| {
        let mut rng = rng.lock().unwrap();
        for _ in 0..1000 {
            let value = rng.pick(&[0x1111_1111, 0x2222_2222, 0x3333_3333]);
            area.word32(rng.below(LEN / 4) * 4).store(value, Relaxed);
        }
    };
    let fd = ctx.counted()?;
    let (mut sent, mut sizes) = (0, ctx.rng(1));
    beside(2, scribble, || {
        for_a_while(ctx.time / 5, || {
            let len = 1 + sizes.below(LEN / 2);
            sent += wild::send(&fd, &area, sizes.below(LEN / 2), len, 0)? as u64;
            Ok(())
        })
    })?;
    let Counted { bytes, values } = count(&fd)?;
    checks.eq("rewritten under send(): every byte arrives", bytes, sent);
    checks.yes(
        "rewritten under send(): no byte was never there",
        values.iter().all(|b| [0x11, 0x22, 0x33].contains(b)),
        &format!("{values:?}"),
    );
    Ok(())
}

/// Pages of a file, and of a pipe, that go while they are being sent.
fn spliced(ctx: &Ctx, checks: &mut Checks, area: &Area, file: &OwnedFd) -> Result<()> {
    let (fd, tally, mut sent) = (ctx.counted()?, Tally::default(), 0);
    let (rng, mut sizes) = (Mutex::new(ctx.rng(2)), ctx.rng(3));
    let (from_pipe, to_pipe) = wild::pipe()?;
    area.fill(0);
    let cut = |_| {
        let mut rng = rng.lock().unwrap();
        // Whatever comes of it.
        let _ = wild::truncate(file, rng.below(LEN));
        let _ = wild::truncate(file, LEN);
        let at = rng.below(LEN / PAGE) * PAGE;
        let _ = area.advise(at, LEN - at, libc::MADV_DONTNEED);
    };
    beside(1, cut, || {
        for_a_while(ctx.time / 5, || {
            let off = sizes.below(LEN / 2);
            let result = if sizes.one_in(2) {
                wild::sendfile(&fd, file, off, 1 + sizes.below(LEN / 2))
            } else {
                match wild::vmsplice(&to_pipe, area, off, 60_000) {
                    // There is something in it still.
                    Ok(_) | Err(Errno(libc::EAGAIN)) => {}
                    Err(e) => return Err(e),
                }
                wild::splice(&from_pipe, &fd, 60_000)
            };
            tally.add(&result);
            sent += result.unwrap_or(0) as u64;
            Ok(())
        })
    })?;
    tally.report(checks, "sendfile() and splice() of pages that go", &[]);
    let name = "sendfile() and splice() of pages that go: as much arrives as they said";
    let Counted { bytes, values } = count(&fd)?;
    checks.eq(name, bytes, sent);
    let fine = values.iter().all(|b| *b == 0);
    checks.yes("no byte was never there", fine, &format!("{values:?}"));
    Ok(())
}

fn destroy(area: &Area, file: Option<&OwnedFd>, rng: &mut Rng) {
    let off = rng.below(LEN / PAGE) * PAGE;
    let len = LEN - off;
    let len = if rng.one_in(3) {
        len
    } else {
        len.min(16 * PAGE)
    };
    let both = libc::PROT_READ | libc::PROT_WRITE;
    // Whether each succeeds depends on the effect of the earlier ones.
    let _ = match (rng.below(6), file) {
        (0, Some(file)) => wild::truncate(file, off).and_then(|()| wild::truncate(file, LEN)),
        (0, None) => area.unmap(off, len).and_then(|()| area.refill(off, len)),
        (1, Some(file)) => wild::truncate(file, rng.below(LEN)),
        (1, None) => area.unmap(off, len),
        (2, _) => area.protect(off, len, libc::PROT_NONE),
        (3, _) => area.protect(off, len, libc::PROT_READ),
        (4, _) => area.advise(off, len, libc::MADV_DONTNEED),
        (_, Some(file)) => wild::truncate(file, LEN).and_then(|()| area.protect(0, LEN, both)),
        (_, None) => area.refill(off, len),
    };
}

fn sending(
    ctx: &Ctx,
    checks: &mut Checks,
    name: &str,
    area: &Area,
    rng: &mut Rng,
    destroy: impl Fn(usize) + Sync,
) -> Result<()> {
    let fd = ctx.counted()?;
    let (mut sent, tally) = (0, Tally::default());
    beside(1, destroy, || {
        for_a_while(ctx.time / 5, || {
            let off = rng.below(LEN / 2);
            let len = 1 + rng.pick(&[300, 10_000, LEN / 2 - 1]);
            let flags = rng.pick(&[0, 0, libc::MSG_DONTWAIT]);
            let result = wild::send(&fd, area, off, len, flags);
            tally.add(&result);
            match result {
                Ok(n) => sent += n as u64,
                Err(Errno(libc::EAGAIN)) => drop(raw::poll(&fd, libc::POLLOUT, 100)?),
                Err(_) => {}
            }
            Ok(())
        })
    })?;
    let errnos = [libc::EFAULT, libc::EAGAIN];
    tally.report(checks, &format!("send() from {name} that goes"), &errnos);
    let name = format!("send() from {name} that goes: as much arrives as it said");
    checks.eq(&name, count(&fd)?.bytes, sent);
    Ok(())
}

fn receiving(
    ctx: &Ctx,
    checks: &mut Checks,
    name: &str,
    area: &Area,
    rng: &mut Rng,
    destroy: impl Fn(usize) + Sync,
) -> Result<()> {
    const MOST: u64 = 1 << 40;
    let fd = ctx.flood(5, MOST)?;
    let tally = Tally::default();
    beside(1, destroy, || {
        for_a_while(ctx.time / 5, || {
            let len = 1 + rng.pick(&[300, 10_000, LEN / 2 - 1]);
            let flags = rng.pick(&[0, libc::MSG_DONTWAIT, libc::MSG_PEEK]);
            tally.add(&wild::recv(&fd, area, rng.below(LEN / 2), len, flags));
            Ok(())
        })
    })?;
    let errnos = [libc::EFAULT, libc::EAGAIN];
    tally.report(checks, &format!("recv() into {name} that goes"), &errnos);
    Ok(())
}
