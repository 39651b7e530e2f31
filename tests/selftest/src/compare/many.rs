// SPDX-License-Identifier: GPL-2.0
//! The rows about resources that connections share: queue pairs, the link table, the receive pool.

use std::fs;
use std::net::IpAddr;
use std::path::Path;

use zrs::{Cache, Link, LinkTable, Zrs};

use super::{carry, pair, Args};
use crate::socket::calls::{until, Pair};
use crate::support::args::size;
use crate::support::checks::{say, Checks};
use crate::support::raw::{Errno, Result};

fn pairs(args: &Args, count: usize) -> Result<Vec<Pair>> {
    (0..count).map(|_| pair(args)).collect()
}

/// A little, both ways, on each.
fn used(args: &Args, pairs: &[Pair]) -> Result<()> {
    for (index, pair) in pairs.iter().enumerate() {
        carry(args, &pair.client, &pair.server, 100 + index)?;
        carry(args, &pair.server, &pair.client, 5000 + index)?;
    }
    Ok(())
}

/// The links to ourselves that this side has made.
fn links(args: &Args) -> Result<Vec<Link>> {
    let links: std::io::Result<Vec<_>> = Zrs::open()?.links().collect();
    let here = IpAddr::from(args.local);
    let ours = |link: &Link| !link.accepted && link.local == here && link.remote == here;
    Ok(links?.into_iter().filter(ours).collect())
}

/// Some hundred connections have no more queue pairs than a few have.
pub fn on_one_link(args: &Args, checks: &mut Checks) -> Option<()> {
    const CONNECTIONS: usize = 300;
    let most = fs::read_to_string("/sys/module/zrs/parameters/links_per_peer");
    let most = checks.need("links_per_peer", most.map_err(Errno::from))?;
    let most: usize = most.trim().parse().ok()?;
    let pairs = checks.need("connections", pairs(args, CONNECTIONS))?;
    checks.need("data on each", used(args, &pairs))?;
    let links = checks.need("links", links(args))?;
    say(&format!(
        "# {CONNECTIONS} connections, links: {}",
        links.len()
    ));
    let detail = format!("{} of them", links.len());
    checks.yes("links", (1..=most).contains(&links.len()), &detail);
    let channels: u32 = links.iter().map(|link| link.channels).sum();
    let detail = format!("{channels} of them");
    checks.yes(
        "channels on them",
        channels as usize >= CONNECTIONS,
        &detail,
    );
    Some(())
}

fn table() -> Result<LinkTable> {
    Ok(Zrs::open()?.table()?)
}

/// Nothing happens to them, so that their state leaves the first tier; then they are used, and it
/// is back.
pub fn parked(args: &Args, checks: &mut Checks) -> Option<()> {
    const CONNECTIONS: usize = 16;
    let before = checks.need("the table", table())?;
    let pairs = checks.need("connections", pairs(args, CONNECTIONS))?;
    checks.need("data on each", used(args, &pairs))?;
    let hot = until(&Ok(0), || table().map(|table| table.hot));
    checks.eq("in the first tier when they are idle", hot, Ok(0));
    let idle = checks.need("the table", table())?;
    let least = 2 * CONNECTIONS as u64;
    let detail = format!("{idle:?}, before {before:?}");
    checks.yes("entries", u64::from(idle.entries) >= least, &detail);
    let parked = idle.parked - before.parked;
    checks.yes("parked", parked >= least, &detail);
    checks.need("data on each, again", used(args, &pairs))?;
    let after = checks.need("the table", table())?;
    let back = |table: &LinkTable| table.near_hits + table.faults;
    let detail = format!("{after:?}, before {idle:?}");
    let came = back(&after) - back(&idle) >= least;
    checks.yes("brought back", came, &detail);
    Some(())
}

fn cache() -> Result<Cache> {
    let first = Zrs::open()?.caches().next();
    Ok(first.ok_or(Errno(libc::ENOENT))??)
}

/// The size of the last-level cache of CPU 0 from sysfs; 0 if it is unknown.
fn last_level() -> u64 {
    let index = |n: u32| Path::new("/sys/devices/system/cpu/cpu0/cache").join(format!("index{n}"));
    let read = |n, file: &str| fs::read_to_string(index(n).join(file)).ok();
    let caches = (0..8).filter_map(|n| {
        let level: u32 = read(n, "level")?.trim().parse().ok()?;
        let size = size(read(n, "size")?.trim()).ok()?;
        Some((level, size as u64))
    });
    caches.max().map_or(0, |(_, size)| size)
}

/// The pool stays in its part of the cache, whose size sysfs tells, however much goes through it.
/// `pool/frames` counts the page frames.
pub fn pool(args: &Args, checks: &mut Checks) -> Option<()> {
    /// No pool is smaller.
    const FLOOR: u64 = 8 << 20;
    let pair = checks.need("connect", pair(args))?;
    let before = checks.need("the cache", cache())?;
    let detail = format!("{before:?}");
    let whole = last_level();
    checks.eq("the cache's size", before.cache_bytes, whole);
    let most = FLOOR.max(whole / 2);
    checks.yes("its size", (1..=most).contains(&before.bytes), &detail);
    let all = 4 * before.bytes as usize;
    checks.need("data", carry(args, &pair.client, &pair.server, all))?;
    let after = checks.need("the cache", cache())?;
    let detail = format!("{after:?}, before {before:?}");
    checks.eq("its size afterwards", after.bytes, before.bytes);
    let used = after.small_high + after.large_high;
    let fits = after.large_high > 0 && used <= after.bytes;
    checks.yes("the most that was in use", fits, &detail);
    checks.yes("unread", after.unread_high <= after.bytes, &detail);
    Some(())
}
