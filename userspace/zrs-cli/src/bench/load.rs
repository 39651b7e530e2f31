// SPDX-License-Identifier: GPL-2.0
//! Use of the receive pool, by its size: while one connection sends, and more and more of them at
//! once. At any load it must not exceed the pool.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use zrs::{Cache, Zrs};

use super::control::{Job, Values};
use super::hold::{at_once, busy, end};
use super::stream;
use crate::transport::{Listener, Transport};
use crate::{said, Result};

/// So many send at once.
const LOADS: [u64; 4] = [1, 4, 16, 64];
/// Between two looks.
const LOOK: Duration = Duration::from_millis(1);

/// Parts of the pool's size.
#[derive(Clone, Copy, Default)]
struct Most {
    used: f64,
    unread: f64,
}

fn caches(zrs: &Zrs) -> Result<Vec<Cache>> {
    said(zrs.caches().collect(), || "cannot read the caches".into())
}

/// Looks at the caches until it is `over`: the most that was seen, of any of them.
fn watch(zrs: &Zrs, over: &AtomicBool) -> Result<Most> {
    let mut most = Most::default();
    while !over.load(Relaxed) {
        for c in caches(zrs)? {
            let part = |bytes: u64| bytes as f64 / c.bytes as f64;
            most.used = most.used.max(part(c.small + c.large));
            most.unread = most.unread.max(part(c.unread));
        }
        thread::sleep(LOOK);
    }
    Ok(most)
}

/// The maximum of each class, and of unread data, since the module was loaded: it cannot be missed
/// between two samples.
fn high(zrs: &Zrs) -> Result<f64> {
    let high = caches(zrs)?.into_iter().map(|c| {
        let most = c.small_high.max(c.large_high).max(c.unread_high);
        most as f64 / c.bytes as f64
    });
    Ok(high.fold(0.0, f64::max))
}

/// The client's part.
pub fn near(transport: Transport, addr: &str, job: &Job) -> Result<Values> {
    let zrs = Zrs::open().map_err(|e| e.to_string())?;
    let conns = (0..job.connections)
        .map(|_| transport.connect(addr))
        .collect::<Result<Vec<_>>>()?;
    let mut values = Values::new();
    let (mut seconds, mut highest) = (0.0, 0.0_f64);
    for load in LOADS {
        let sending = &conns[..conns.len().min(load as usize)];
        let over = AtomicBool::new(false);
        let (took, most) = thread::scope(|scope| {
            let watcher = scope.spawn(|| watch(&zrs, &over));
            let took = busy(sending, job, job.count.div_ceil(load));
            over.store(true, Relaxed);
            let most = watcher
                .join()
                .unwrap_or_else(|_| Err("the thread that looks died".into()));
            Ok::<_, String>((took?, most?))
        })?;
        seconds += took;
        highest = highest.max(most.used).max(most.unread);
        values.insert(format!("used_{load}"), most.used);
        values.insert(format!("unread_{load}"), most.unread);
    }
    end(&conns)?;
    values.insert("most".into(), highest.max(high(&zrs)?));
    values.insert("seconds".into(), seconds);
    Ok(values)
}

/// The server's part.
pub fn far(listener: &Listener, job: &Job) -> Result<Values> {
    let conns = (0..job.connections)
        .map(|_| said(listener.accept(), || "cannot accept".into()))
        .collect::<Result<Vec<_>>>()?;
    at_once(&conns, |conn| stream::far(conn, job).map(drop))?;
    Ok(Values::new())
}
