// SPDX-License-Identifier: GPL-2.0
//! What connections that do nothing cost: the memory that the whole machine uses, programs, slab
//! and pages together, before and after so many have been made.

use std::time::Duration;
use std::{fs, thread};

use super::control::{Answer, Control, Go, Job, Values};
use crate::transport::{Listener, Transport};
use crate::{said, Result};

/// How long a machine is looked at that may be giving memory back, how often, and what does not count.
const REST: Duration = Duration::from_millis(200);
const REST_ROUNDS: u32 = 25;
const REST_BYTES: f64 = 64.0 * 1024.0;

/// What is used, in bytes.
struct Used {
    all: f64,
    slab: f64,
}

impl Used {
    /// Of the machine. File caches do not count: they come and go by themselves.
    fn now() -> Result<Self> {
        let text = said(fs::read_to_string("/proc/meminfo"), || {
            "cannot read /proc/meminfo".into()
        })?;
        Self::of(&text).ok_or_else(|| "/proc/meminfo is not understood".into())
    }

    fn of(meminfo: &str) -> Option<Self> {
        let field = |name: &str| {
            let line = meminfo.lines().find_map(|l| l.strip_prefix(name))?;
            let kib = line.strip_prefix(':')?.trim().strip_suffix(" kB")?;
            Some(kib.parse::<f64>().ok()? * 1024.0)
        };
        // Shared memory is part of Cached, and no file has it.
        let cached = field("Buffers")? + field("Cached")? - field("Shmem")?;
        Some(Self {
            all: field("MemTotal")? - field("MemFree")? - cached,
            slab: field("Slab")?,
        })
    }

    /// The same once nothing is given back any more: what went before frees its memory for a while yet,
    /// and would be taken off what is measured.
    fn at_rest() -> Result<Self> {
        let mut last = Self::now()?;
        for _ in 0..REST_ROUNDS {
            thread::sleep(REST);
            let now = Self::now()?;
            if last.all - now.all < REST_BYTES {
                return Ok(now);
            }
            last = now;
        }
        Ok(last)
    }

    fn since(&self, before: &Self) -> Values {
        [
            ("used_bytes".to_string(), self.all - before.all),
            ("slab_bytes".to_string(), self.slab - before.slab),
        ]
        .into()
    }
}

/// The client's part: `same` if the server runs on the same kernel.
pub fn near(
    transport: Transport,
    addr: &str,
    job: &Job,
    control: &mut Control,
    same: bool,
) -> Result<Values> {
    // What is made once, with the first connection, is no connection's.
    let first = transport.connect(addr)?;
    expect_held(control)?;
    let before = Used::at_rest()?;
    talk(control.say(&Go))?;
    let mut held = Vec::with_capacity(job.count as usize);
    for n in 0..job.count {
        let conn = transport.connect(addr);
        held.push(conn.map_err(|e| format!("after {n} connections: {e}"))?);
    }
    expect_held(control)?;
    let near = Used::now()?.since(&before);
    talk(control.say(&Go))?;
    let far = match talk(control.must_hear())? {
        Answer::Done(values) => values,
        other => return Err(unexpected(&other)),
    };
    drop((first, held));
    // One kernel has both ends in it, two have one each.
    let mut values = Values::new();
    for (name, value) in near {
        let other = far.get(&name).copied().unwrap_or(f64::NAN);
        let sum = if same { value } else { value + other };
        values.insert(
            name.replace("_bytes", "_bytes_per_endpoint")
                .replace("used_", ""),
            sum / (2 * job.count) as f64,
        );
    }
    values.insert("connections".into(), job.count as f64);
    Ok(values)
}

/// The server's part.
pub fn far(listener: &Listener, job: &Job, control: &mut Control) -> Result<Values> {
    let accept = || said(listener.accept(), || "cannot accept".into());
    let first = accept()?;
    let before = Used::at_rest()?;
    talk(control.say(&Answer::Held))?;
    talk(control.must_hear::<Go>())?;
    let held = (0..job.count)
        .map(|_| accept())
        .collect::<Result<Vec<_>>>()?;
    talk(control.say(&Answer::Held))?;
    talk(control.must_hear::<Go>())?;
    let values = Used::now()?.since(&before);
    drop((first, held));
    Ok(values)
}

fn talk<T>(result: std::io::Result<T>) -> Result<T> {
    said(result, || "the other side is gone".into())
}

fn expect_held(control: &mut Control) -> Result<()> {
    match talk(control.must_hear())? {
        Answer::Held => Ok(()),
        other => Err(unexpected(&other)),
    }
}

fn unexpected(answer: &Answer) -> String {
    match answer {
        Answer::Failed(reason) => format!("the server: {reason}"),
        _ => "the server does not keep to the protocol; are both sides of the same version?".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meminfo() {
        let text = "MemTotal:  1000 kB\nMemFree:  400 kB\nBuffers: 10 kB\nCached: 100 kB\n\
                    Shmem: 30 kB\nSlab: 50 kB\n";
        let used = Used::of(text).unwrap();
        assert_eq!(used.all, 520.0 * 1024.0);
        assert_eq!(used.slab, 50.0 * 1024.0);
        assert!(Used::of("MemTotal: 1 kB\n").is_none());
        assert!(Used::now().is_ok());
    }
}
