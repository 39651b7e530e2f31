// SPDX-License-Identifier: GPL-2.0
//! All kinds of memory as the source of a send and the destination of a receive.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering::Relaxed;
use std::thread;

use zrs_sys::sock;

use super::ring::maps;
use super::{count, pause, still_works, Counted, Ctx};
use crate::common::serve::{ask, DATA, DATA_LEN};
use crate::support::checks::{say, Checks};
use crate::support::raw::{self, Errno, Result};
use crate::support::wild::{self, Area, Userfault, PAGE};

/// Above the threshold of pinning, and no multiple of anything.
const LEN: usize = 300_001;
const ROOM: usize = 2 << 20;

const RW: i32 = libc::PROT_READ | libc::PROT_WRITE;

pub fn run(ctx: &Ctx, checks: &mut Checks) -> Result<()> {
    whole(ctx, checks)?;
    holes(ctx, checks)?;
    if raw::is_zrs() {
        own_mappings(ctx, checks)?;
    }
    userfault(ctx, checks)?;
    receive(ctx, checks)?;
    still_works(ctx, "memory", checks)
}

/// Sends from `area`, small and large, and asks for the received bytes.
fn sends_all(ctx: &Ctx, checks: &mut Checks, name: &str, area: &Area, value: u8) -> Result<()> {
    let len = LEN.min(area.len() - 1);
    let fd = ctx.counted()?;
    let mut sent = 0;
    for (len, flags) in [(len, 0), (100, 0), (5000, libc::MSG_DONTWAIT)] {
        let mut done = 0;
        while done < len {
            match wild::send(&fd, area, 1 + done, len - done, flags) {
                Ok(n) => done += n,
                Err(Errno(libc::EAGAIN)) => drop(raw::poll(&fd, libc::POLLOUT, -1)?),
                Err(e) => {
                    checks.fail(&format!("send from {name}"), &e.to_string());
                    return Ok(());
                }
            }
        }
        sent += len as u64;
    }
    let expected = Counted {
        bytes: sent,
        values: vec![value],
    };
    checks.eq(&format!("send from {name}"), count(&fd)?, expected);
    Ok(())
}

fn whole(ctx: &Ctx, checks: &mut Checks) -> Result<()> {
    let filled = |area: Area| {
        area.fill(9);
        area
    };
    let area = Area::anonymous(ROOM)?;
    sends_all(ctx, checks, "memory never touched", &area, 0)?;
    let area = filled(area);
    area.protect(0, ROOM, libc::PROT_READ)?;
    sends_all(ctx, checks, "read-only memory", &area, 9)?;

    let area = Area::anonymous(2 * ROOM)?;
    let _ = area.advise(0, 2 * ROOM, libc::MADV_HUGEPAGE);
    sends_all(ctx, checks, "transparent huge pages", &filled(area), 9)?;

    let file = wild::memfd(ROOM, false)?;
    let map = |prot, flags, file| Area::map(ROOM, prot, flags, Some(file), 0);
    let area = filled(map(RW, libc::MAP_SHARED, &file)?);
    sends_all(ctx, checks, "shared memory", &area, 9)?;
    let area = map(libc::PROT_READ, libc::MAP_SHARED, &file)?;
    sends_all(ctx, checks, "read-only shared memory", &area, 9)?;
    let area = map(RW, libc::MAP_PRIVATE, &file)?;
    sends_all(ctx, checks, "a private mapping of a file", &area, 9)?;

    // The program itself: a file system's pages. Which bytes they are is not known here.
    let exe: OwnedFd = File::open("/proc/self/exe")?.into();
    let area = map(libc::PROT_READ, libc::MAP_PRIVATE, &exe)?;
    let fd = ctx.counted()?;
    let sent = wild::send(&fd, &area, 0, LEN, 0);
    checks.eq("send from a file on disk", sent, Ok(LEN));
    let counted = count(&fd)?;
    checks.eq("send from a file on disk: count", counted.bytes, LEN as u64);

    // The kernel only has huge pages if it is told to keep some.
    let pool = "/proc/sys/vm/nr_hugepages";
    let before = std::fs::read_to_string(pool).unwrap_or_default();
    let _ = std::fs::write(pool, "4");
    match wild::memfd(ROOM, true).and_then(|file| {
        let flags = libc::MAP_SHARED | libc::MAP_HUGETLB;
        Area::map(ROOM, RW, flags, Some(&file), 0)
    }) {
        Ok(area) => sends_all(ctx, checks, "huge pages", &filled(area), 9)?,
        Err(e) => say(&format!(
            "ok - send from huge pages # SKIP none to be had: {e}"
        )),
    }
    let _ = std::fs::write(pool, before.trim());
    Ok(())
}

/// Memory that is not there, or ends in the middle.
fn holes(ctx: &Ctx, checks: &mut Checks) -> Result<()> {
    let fd = ctx.counted()?;
    let mut sent = 0;
    let area = Area::anonymous(ROOM)?;
    area.fill(4);
    let mut short = |name: &str, area: &Area, checks: &mut Checks| -> Result<()> {
        // The second half is not there.
        for (len, flags) in [(LEN, 0), (LEN, libc::MSG_DONTWAIT), (200, 0), (6000, 0)] {
            let from = ROOM / 2 - len / 2;
            let result = wild::send(&fd, area, from, len, flags);
            let part = matches!(result, Ok(n) if n > 0 && n <= len / 2);
            let none = result == Err(Errno(libc::EFAULT));
            let name = format!("send of {len} bytes that run into {name}: a part or EFAULT");
            checks.yes(&name, part || none, &format!("{result:?}"));
            sent += result.unwrap_or(0) as u64;
            // The other half alone. A full send buffer is EAGAIN before the memory is looked at.
            let mut result = wild::send(&fd, area, ROOM / 2, len, flags);
            for _ in 0..1000 {
                if result != Err(Errno(libc::EAGAIN)) {
                    break;
                }
                pause(20);
                result = wild::send(&fd, area, ROOM / 2, len, flags);
            }
            let name = name.replace("that run into", "wholly in");
            let name = name.replace("a part or EFAULT", "EFAULT");
            checks.errno(&name, result, &[libc::EFAULT]);
        }
        Ok(())
    };
    area.protect(ROOM / 2, ROOM / 2, libc::PROT_NONE)?;
    short("memory without access", &area, checks)?;
    area.unmap(ROOM / 2, ROOM / 2)?;
    short("what is not mapped", &area, checks)?;
    let file = wild::memfd(ROOM, false)?;
    let area = Area::map(ROOM, RW, libc::MAP_SHARED, Some(&file), 0)?;
    area.fill(4);
    wild::truncate(&file, ROOM / 2)?;
    short("what was cut off a file", &area, checks)?;
    for len in [100, LEN] {
        let result = wild::send_from_kernel(&fd, len);
        let name = format!("send of {len} bytes from the kernel's addresses");
        checks.errno(&name, result, &[libc::EFAULT]);
    }
    let expected = Counted {
        bytes: sent,
        values: vec![4],
    };
    checks.eq("what was sent before the holes", count(&fd)?, expected);
    Ok(())
}

/// Window and ring as source and destination.
fn own_mappings(ctx: &Ctx, checks: &mut Checks) -> Result<()> {
    let source = ctx.flood(6, 1 << 20)?;
    let maps = maps(&source)?;
    // The window's beginning is filled by the flood; as a source, any window will do.
    for _ in 0..1000 {
        if maps.window.len() >= LEN && maps.window.byte(LEN).load(Relaxed) == 6 {
            break;
        }
        pause(20);
    }
    let fd = ctx.counted()?;
    let before = sock::info(fd.as_fd())?.tx_copied;
    let mut sent = 0;
    for len in [1000, LEN] {
        let result = wild::send(&fd, &maps.window, 0, len, 0);
        checks.eq(
            &format!("send of {len} bytes from a window"),
            result,
            Ok(len),
        );
        sent += len as u64;
    }
    let copied = sock::info(fd.as_fd())?.tx_copied - before;
    checks.eq("from a window everything is copied", copied, sent);
    let expected = Counted {
        bytes: sent,
        values: vec![6],
    };
    checks.eq("what came from the window", count(&fd)?, expected);

    let fd = ctx.counted()?;
    let result = wild::send(&fd, &maps.ring, 0, maps.ring.len(), 0);
    checks.eq("send from a ring", result, Ok(maps.ring.len()));
    let bytes = count(&fd)?.bytes;
    checks.eq("send from a ring: count", bytes, maps.ring.len() as u64);
    // The socket's ring, so that the sent bytes change with the received ones.
    let result = wild::send(&source, &maps.ring, 0, maps.ring.len(), 0);
    checks.eq("send of a ring by its socket", result, Ok(maps.ring.len()));
    let result = wild::recv(&source, &maps.window, 0, 5000, 0);
    checks.errno("recv into a window", result, &[libc::EFAULT]);
    // Afterwards the ring contains bytes of the stream; only this program is affected.
    let result = wild::recv(&source, &maps.ring, 0, 500, libc::MSG_DONTWAIT);
    let fine = matches!(result, Ok(500) | Err(Errno(libc::EAGAIN)));
    checks.yes("recv into its own ring", fine, &format!("{result:?}"));
    Ok(())
}

/// Page faults that a program answers late.
fn userfault(ctx: &Ctx, checks: &mut Checks) -> Result<()> {
    let area = Area::anonymous(ROOM)?;
    let faults = match Userfault::new(&area) {
        Ok(faults) => faults,
        Err(e) => {
            say(&format!(
                "ok - send from memory with a userfaultfd # SKIP {e}"
            ));
            return Ok(());
        }
    };
    let fd = ctx.counted()?;
    let result = thread::scope(|s| {
        let sending = s.spawn(|| wild::send(&fd, &area, 0, LEN, 0));
        pause(100);
        // Others use the link at the same time.
        let others = still_works(ctx, "while a send waits for its memory", checks);
        let filled = faults.fill(&area);
        let sent = sending.join().expect("a send");
        others.and(filled).and(sent)
    });
    checks.eq("send from memory with a userfaultfd", result, Ok(LEN));
    let expected = Counted {
        bytes: LEN as u64,
        values: vec![0],
    };
    checks.eq("what came from it", count(&fd)?, expected);
    Ok(())
}

/// A receive into memory that cannot be written loses nothing.
fn receive(ctx: &Ctx, checks: &mut Checks) -> Result<()> {
    let area = Area::anonymous(4 * PAGE)?;
    area.fill(0);
    area.protect(2 * PAGE, PAGE, libc::PROT_READ)?;
    area.unmap(3 * PAGE, PAGE)?;
    let fd = ask(ctx.peer, &[DATA])?;
    raw::poll(&fd, libc::POLLIN, -1)?;
    for (name, off, flags) in [
        ("read-only memory", 2 * PAGE, 0),
        ("what is not mapped", 3 * PAGE, 0),
        ("read-only memory, peeking", 2 * PAGE, libc::MSG_PEEK),
        (
            "what is not mapped, waiting for all",
            3 * PAGE,
            libc::MSG_WAITALL,
        ),
    ] {
        let result = wild::recv(&fd, &area, off, 100, flags);
        checks.errno(&format!("recv into {name}"), result, &[libc::EFAULT]);
    }
    let result = wild::recv(&fd, &area, 2 * PAGE - 50, 100, 0);
    // TCP gives the part of a segment that fits only if the rest fits too.
    let part = if raw::is_zrs() {
        Ok(50)
    } else {
        Err(Errno(libc::EFAULT))
    };
    checks.eq("recv that runs into read-only memory", result, part);
    let mut left = vec![0; DATA_LEN - result.unwrap_or(0)];
    raw::recv_all(&fd, &mut left)?;
    let fine = left.iter().all(|b| *b == DATA);
    checks.yes("what it did not get comes by the next", fine, "other bytes");
    checks.eq("then the end", raw::recv(&fd, &mut left, 0), Ok(0));
    Ok(())
}
