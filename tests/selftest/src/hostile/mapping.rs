// SPDX-License-Identifier: GPL-2.0
//! Attempts of a program on its mappings of ring and window, while another thread receives through
//! them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::Mutex;
use std::thread;

use super::ring::maps;
use super::{for_a_while, still_works, Ctx};
use crate::support::checks::{say, Checks};
use crate::support::process;
use crate::support::raw::{self, Errno, Result};
use crate::support::wild::{self, Area, PAGE};

/// Bytes that arrive during the test; the sender waits for the ring's reader.
const FLOOD: u64 = 1 << 40;

pub fn run(ctx: &Ctx, checks: &mut Checks) -> Result<()> {
    if !raw::is_zrs() {
        say("# TCP has no mappings");
        return Ok(());
    }
    let fd = ctx.flood(8, FLOOD)?;
    let ring = zrs::Stream::from(fd.try_clone()?).rx_ring()?;
    let (stop, bytes, wrong) = (AtomicBool::new(false), AtomicU64::new(0), Mutex::new(None));
    let result = thread::scope(|s| {
        s.spawn(|| loop {
            match ring.recv() {
                Ok(Some(segment)) => {
                    if segment.to_vec().iter().any(|b| *b != 8) {
                        *wrong.lock().unwrap() = Some("other bytes".to_string());
                    }
                    bytes.fetch_add(segment.len() as u64, Relaxed);
                }
                _ if stop.load(Relaxed) => return,
                end => {
                    *wrong.lock().unwrap() = Some(format!("{end:?}"));
                    return;
                }
            }
        });
        let done = refusals(ctx, &fd, checks).and_then(|()| again_and_again(ctx, &fd, checks));
        stop.store(true, Relaxed);
        raw::shutdown(&fd, libc::SHUT_RDWR)?;
        done
    });
    let wrong = wrong.into_inner().unwrap();
    checks.eq("the ring's reader noticed nothing", wrong, None);
    let bytes = bytes.into_inner();
    checks.yes("the ring's reader got something", bytes > 0, "nothing");
    say(&format!("#   {bytes} bytes through the ring"));
    result?;
    drop((ring, fd));
    still_works(ctx, "mappings", checks)
}

/// Each of these on second mappings, with the errno it must give.
fn refusals(_: &Ctx, fd: &std::os::fd::OwnedFd, checks: &mut Checks) -> Result<()> {
    let maps = maps(fd)?;
    let (invalid, fault) = (&[libc::EINVAL][..], &[libc::EINVAL, libc::EFAULT][..]);
    let ring_len = maps.ring.len();
    for (name, area) in [("window", &maps.window), ("ring", &maps.ring)] {
        let len = area.len();
        let mut results = Vec::new();
        let mut no = |what, result, errnos| results.push((what, result, errnos));
        if len > PAGE {
            no("munmap of a part", area.unmap(0, PAGE), invalid);
            let result = area.protect(PAGE, len - PAGE, libc::PROT_NONE);
            no("mprotect of a part", result, invalid);
        }
        no(
            "MADV_DOFORK",
            area.advise(0, len, libc::MADV_DOFORK),
            invalid,
        );
        let may = libc::MREMAP_MAYMOVE;
        no("mremap to more", area.try_remap(len, len + PAGE, 0), fault);
        no(
            "mremap to more, moved",
            area.try_remap(len, 2 * len, may),
            fault,
        );
        no("mremap to a second one", area.try_remap(0, len, may), fault);
        let flags = may | libc::MREMAP_DONTUNMAP;
        no(
            "mremap that leaves it",
            area.try_remap(len, len, flags),
            fault,
        );
        let other = Area::map(
            len,
            libc::PROT_NONE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            None,
            0,
        )?;
        no("mremap to another place", area.try_move_to(&other), invalid);
        for (what, result, errnos) in results {
            checks.errno(&format!("{name}: {what}"), result, errnos);
        }
        // A failed mremap() may have unmapped the other place, but not this one.
        let here = area.protect(0, len, libc::PROT_READ);
        checks.eq(&format!("{name}: still mapped"), here, Ok(()));
    }
    // The kernel unmaps the old mapping before it asks for the new one.
    let others = self::maps(fd)?;
    for (name, area) in [("window", &others.window), ("ring", &others.ring)] {
        let result = area.try_remap_file(1);
        let name = format!("{name}: another part of the file");
        checks.errno(&name, result, invalid);
    }
    let window = &maps.window;
    let len = window.len();
    let result = window.protect(0, len, libc::PROT_READ | libc::PROT_WRITE);
    checks.errno("window: mprotect to writable", result, &[libc::EACCES]);
    let result = window.advise(0, len, libc::MADV_DONTNEED);
    checks.errno("window: MADV_DONTNEED", result, &[libc::EINVAL]);
    let result = window.read_as_debugger(0, &mut [0; 64]);
    checks.errno("window: as a debugger reads", result, &[libc::EFAULT]);
    // The ring's pages are ordinary ones, which the program may throw away; then they are gone for
    // it.
    let result = maps.ring.advise(0, ring_len, libc::MADV_DONTNEED);
    checks.eq("ring: MADV_DONTNEED", result, Ok(()));
    let child = wild::fork_touch(&maps.ring)?;
    let died = [128 + libc::SIGSEGV, 128 + libc::SIGBUS];
    let status = process::wait(child)?;
    checks.yes(
        "ring: a child does not have it",
        died.contains(&status),
        &format!("exit status {status}"),
    );
    let child = wild::fork_touch(window)?;
    let status = process::wait(child)?;
    checks.eq("window: a child does not have it", status, died[0]);
    checks.eq("exec", process::wait(wild::fork_exec()?), Ok(0));
    Ok(())
}

/// Mappings come and go, and are treated badly in between.
fn again_and_again(ctx: &Ctx, fd: &std::os::fd::OwnedFd, checks: &mut Checks) -> Result<()> {
    let rngs: Vec<_> = (0..3).map(|n| Mutex::new(ctx.rng(n))).collect();
    let mut rounds = 0;
    let mut strange = None;
    let mut children = Vec::new();
    super::beside(
        2,
        |n| {
            // The second thread finds nothing mapped, or the other one's mapping.
            if let Ok(maps) = maps(fd) {
                let _ = maps
                    .window
                    .advise(0, maps.window.len(), libc::MADV_DONTFORK);
                super::pause(rngs[n].lock().unwrap().below(3) as u64);
            }
        },
        || {
            for_a_while(ctx.time / 2, || {
                let mut rng = rngs[2].lock().unwrap();
                rounds += 1;
                let maps = maps(fd)?;
                let area = if rng.one_in(2) {
                    &maps.ring
                } else {
                    &maps.window
                };
                let len = area.len();
                let result = match rng.below(7) {
                    0 => area.protect(0, len, libc::PROT_NONE),
                    1 => area.protect(0, len, libc::PROT_READ),
                    2 => area.advise(0, len, libc::MADV_RANDOM),
                    3 => area.advise(0, len, libc::MADV_DONTFORK),
                    4 => area.unmap(0, len),
                    5 => {
                        children.push(wild::fork_idle(rng.below(20) as u32)?);
                        Ok(())
                    }
                    _ => {
                        children.push(wild::fork_exec()?);
                        Ok(())
                    }
                };
                if let Err(e) = result {
                    strange = Some(e);
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
    checks.eq("mappings come and go", strange, None::<Errno>);
    say(&format!("#   {rounds} rounds"));
    Ok(())
}
