// SPDX-License-Identifier: GPL-2.0
//! The receive pool: how it is shared by readers that read, readers that do not, and programs that
//! want more of it than there is. Shared by the programs here: the counters of the cache that the
//! pools of both hosts lie in, and the module's parameters.

pub mod bulk;
pub mod burst;
pub mod lands;
pub mod stopped;

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use zrs_sys::abi::zrs_ioc_cache;
use zrs_sys::Device;

use crate::support::checks::Checks;
use crate::support::process;
use crate::support::raw::{self, Errno, Result};

/// How long something may take that is to happen; on any machine much longer than it does.
fn patience() -> Duration {
    process::patience(20)
}
/// The interval between two checks of a condition.
const LOOK: Duration = Duration::from_millis(10);

/// The cache's counters. ENOENT: no device has a pool yet.
fn counters() -> Result<zrs_ioc_cache> {
    let cache = Device::open().and_then(|device| device.cache(0));
    cache.map_err(Errno::from)?.ok_or(Errno(libc::ENOENT))
}

/// As [`counters`]; None on TCP.
fn cache(checks: &mut Checks) -> Option<zrs_ioc_cache> {
    if !raw::is_zrs() {
        return None;
    }
    checks.need("the cache's counters", counters())
}

/// Looks at the cache until `fine`, which is a result. Nothing on TCP.
fn becomes(name: &str, fine: impl Fn(&zrs_ioc_cache) -> bool, checks: &mut Checks) -> Option<()> {
    let start = Instant::now();
    while let Some(cache) = cache(checks) {
        let seen = fine(&cache);
        if seen || start.elapsed() > patience() {
            checks.yes(name, seen, &said(&cache));
            break;
        }
        thread::sleep(LOOK);
    }
    checks.fine().then_some(())
}

/// The counters that most results here check, as text.
fn said(c: &zrs_ioc_cache) -> String {
    format!(
        "of {} bytes {} are blocks and {} windows, {} bytes are unread; {} messages of {} bytes have escaped, \
         {} bytes of them are there, {} reserved of {}; {} waits, {} denied, {} refused, {} times dry",
        c.bytes,
        c.small_bytes,
        c.large_bytes,
        c.unread,
        c.escapes,
        c.escaped_bytes,
        c.escaped,
        c.escape_reserved,
        c.escape_max,
        c.waits,
        c.denied,
        c.refused,
        c.dry
    )
}

/// Writes a parameter of the module.
fn set_param(name: &str, value: &str) -> Result<()> {
    let path = Path::new("/sys/module/zrs/parameters").join(name);
    fs::write(path, value).map_err(Into::into)
}
