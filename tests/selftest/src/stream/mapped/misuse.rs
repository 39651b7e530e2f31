// SPDX-License-Identifier: GPL-2.0
//! Forbidden and permitted uses of an area.

use std::os::fd::{AsFd, OwnedFd};

use libc::{MADV_DOFORK, MADV_DONTNEED, MAP_PRIVATE, MAP_SHARED, PROT_READ, PROT_WRITE, SIGSEGV};
use zrs_sys::abi::{
    zrs_ioc_recv_map, ZRS_AREA_OFFSET, ZRS_IOC_RECV_MAP, ZRS_RECV_MAP_DONTWAIT, ZRS_RECV_MAP_SHIFT,
};

use super::kept::receive;
use super::{Args, Conn, CHUNK};
use crate::support::checks::Checks;
use crate::support::process;
use crate::support::raw::{self, Result};
use crate::support::wild::{self, Area};

fn call(fd: &impl AsFd, call: zrs_ioc_recv_map) -> Result<()> {
    raw::ioctl(fd, ZRS_IOC_RECV_MAP, &mut raw::bytes_of(&call)).map(drop)
}

fn map(fd: &OwnedFd, len: usize, prot: i32, flags: i32) -> Result<Area> {
    Area::map(len, prot, flags, Some(fd), ZRS_AREA_OFFSET)
}

/// A child's exit by a signal; 0 for none.
fn signal_of_touch(area: &Area) -> Result<i32> {
    Ok(process::wait(wild::fork_touch(area)?)? & 0x7f)
}

pub fn all(_: &Args, conn: &mut Conn, checks: &mut Checks) -> Option<()> {
    let area = checks.need("an area", map(&conn.fd, 4 * CHUNK, PROT_READ, MAP_SHARED))?;
    mapping(conn, &area, checks);
    arguments(conn, &area, checks);

    let n = checks.need("receive", receive(&conn.fd, &area, 0, CHUNK))?;
    checks.errno(
        "written to",
        area.protect(0, n, PROT_READ | PROT_WRITE),
        &[libc::EACCES],
    );
    checks.eq("a child has no area", signal_of_touch(&area), Ok(SIGSEGV));
    verify(conn, &area, 0, n, checks)?;
    // Bytes before the address in its page stay, be that a page of the pool's or a copied one.
    let before = bytes(&area, 0, 100);
    let m = checks.need("receive", receive(&conn.fd, &area, 100, 5000))?;
    verify(conn, &area, 100, m, checks)?;
    let k = checks.need("receive", receive(&conn.fd, &area, 2 * CHUNK, 50))?;
    verify(conn, &area, 2 * CHUNK, k, checks)?;
    let n = checks.need("receive", receive(&conn.fd, &area, 100 + m, 50))?;
    verify(conn, &area, 100 + m, n, checks)?;
    let after = bytes(&area, 0, 100);
    checks.yes("what was there stays", before == after, "changed");
    // Nothing is lost by a receive that fails.
    checks.errno(
        "no address",
        receive(&conn.fd, &area, 4 * CHUNK, 1),
        &[libc::EFAULT],
    );
    checks.need("unmap", area.unmap(0, area.len()))?;
    checks.errno(
        "unmapped",
        receive(&conn.fd, &area, 0, CHUNK),
        &[libc::EFAULT],
    );

    let mut rest = vec![0; CHUNK];
    loop {
        match checks.need("receive", raw::recv(&conn.fd, &mut rest, 0))? {
            0 => break,
            n => checks.need("verify", conn.take(&rest[..n]))?,
        }
    }
    let again = checks.need("an area", map(&conn.fd, CHUNK, PROT_READ, MAP_SHARED))?;
    let end = receive(&conn.fd, &again, 0, CHUNK);
    checks.eq("the end of the stream", end, Ok(0));
    checks.need("a ring", raw::make_ring(&conn.fd))?;
    let end = receive(&conn.fd, &again, 0, CHUNK);
    checks.errno("a socket with a ring", end, &[libc::EINVAL]);
    again.unmap(0, CHUNK).ok()
}

fn mapping(conn: &Conn, area: &Area, checks: &mut Checks) {
    let private = map(&conn.fd, CHUNK, PROT_READ, MAP_PRIVATE).map(drop);
    checks.errno("a private area", private, &[libc::EINVAL]);
    let writable = map(&conn.fd, CHUNK, PROT_READ | PROT_WRITE, MAP_SHARED).map(drop);
    checks.errno("a writable area", writable, &[libc::EACCES]);
    let part = area.unmap(CHUNK, CHUNK);
    checks.errno("a part is unmapped", part, &[libc::EINVAL]);
    let more = area.try_remap(area.len(), 2 * area.len(), libc::MREMAP_MAYMOVE);
    checks.errno("made longer", more, &[libc::EFAULT, libc::EINVAL]);
    let forks = area.advise(0, area.len(), MADV_DOFORK);
    checks.errno("for children too", forks, &[libc::EINVAL]);
    let given = area.advise(0, area.len(), MADV_DONTNEED);
    checks.eq("given back before anything came", given, Ok(()));
}

fn arguments(conn: &Conn, area: &Area, checks: &mut Checks) {
    let fine = zrs_ioc_recv_map {
        addr: area.addr(0),
        len: CHUNK as u64,
        ..Default::default()
    };
    let with = |change: fn(&mut zrs_ioc_recv_map)| {
        let mut call = fine;
        change(&mut call);
        call
    };
    for (name, change, errno) in [
        ("no bytes", with(|c| c.len = 0), libc::EINVAL),
        ("unknown flags", with(|c| c.flags = 4), libc::EINVAL),
        ("reserved", with(|c| c.reserved0 = 1), libc::EINVAL),
        ("reserved", with(|c| c.reserved[1] = 1), libc::EINVAL),
        ("address 0", with(|c| c.addr = 0), libc::EFAULT),
        (
            "the kernel's",
            with(|c| c.addr = wild::KERNEL),
            libc::EFAULT,
        ),
        ("the last", with(|c| c.addr = u64::MAX), libc::EFAULT),
    ] {
        checks.errno(name, call(&conn.fd, change), &[errno]);
    }
    let bad = raw::ioctl_bad_pointer(&conn.fd, ZRS_IOC_RECV_MAP);
    checks.errno("a bad pointer", bad, &[libc::EFAULT]);

    // Another socket's, and memory that is not one.
    let Some(fresh) = checks.need("socket", raw::stream()) else {
        return;
    };
    checks.errno("another's area", call(&fresh, fine), &[libc::EFAULT]);
    if let Some(own) = checks.need("an area", map(&fresh, CHUNK, PROT_READ, MAP_SHARED)) {
        let own_call = zrs_ioc_recv_map {
            addr: own.addr(0),
            ..fine
        };
        checks.errno("not connected", call(&fresh, own_call), &[libc::ENOTCONN]);
        checks.errno("another's area", call(&conn.fd, own_call), &[libc::EFAULT]);
        let _ = own.unmap(0, CHUNK);
    }
    if let Some(memory) = checks.need("memory", Area::anonymous(CHUNK)) {
        let elsewhere = zrs_ioc_recv_map {
            addr: memory.addr(0),
            flags: ZRS_RECV_MAP_DONTWAIT | ZRS_RECV_MAP_SHIFT,
            ..fine
        };
        checks.errno("memory", call(&conn.fd, elsewhere), &[libc::EFAULT]);
    }
}

/// The received bytes are right.
fn verify(conn: &mut Conn, area: &Area, off: usize, len: usize, checks: &mut Checks) -> Option<()> {
    checks.need("verify", conn.take(&bytes(area, off, len)))
}

fn bytes(area: &Area, off: usize, len: usize) -> Vec<u8> {
    (off..off + len)
        .map(|at| area.byte(at).load(std::sync::atomic::Ordering::Relaxed))
        .collect()
}
