// SPDX-License-Identifier: GPL-2.0
//! The memory that the whole machine uses, programs, slab and pages together.

use std::time::Duration;
use std::{fs, thread};

/// How long a machine is looked at that may be giving memory back, how often, and what does not
/// count.
const REST: Duration = Duration::from_millis(200);
const REST_ROUNDS: u32 = 25;
const REST_BYTES: f64 = 64.0 * 1024.0;

/// Memory in use, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Used {
    /// Everything but file caches: they come and go by themselves.
    pub all: f64,
    /// Of it, the kernel's small objects.
    pub slab: f64,
}

impl Used {
    /// Of the machine.
    ///
    /// # Errors
    /// A sentence, if `/proc/meminfo` cannot be read or is not understood.
    pub fn now() -> Result<Self, String> {
        let text = fs::read_to_string("/proc/meminfo")
            .map_err(|e| format!("cannot read /proc/meminfo: {e}"))?;
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

    /// The same once nothing is given back any more: what went before frees its memory for a while
    /// yet, and would be taken off what is measured. Sleeps for up to five seconds.
    ///
    /// # Errors
    /// As [`Used::now`].
    pub fn at_rest() -> Result<Self, String> {
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

    /// The increase since `before`. In between, the kernel may free pages that it keeps for each
    /// processor, which may hide a part of the increase, but none of the slab's: that is the
    /// minimum.
    pub fn since(self, before: Self) -> Self {
        let slab = self.slab - before.slab;
        Self {
            all: (self.all - before.all).max(slab),
            slab,
        }
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
        let with = |all, slab| Used { all, slab };
        let grown = |all, slab| with(all, slab).since(with(100.0, 10.0));
        assert_eq!(
            (grown(150.0, 30.0).all, grown(150.0, 30.0).slab),
            (50.0, 20.0)
        );
        assert_eq!(
            (grown(90.0, 30.0).all, grown(90.0, 30.0).slab),
            (20.0, 20.0)
        );
        assert!(Used::now().is_ok());
    }
}
