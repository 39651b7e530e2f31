// SPDX-License-Identifier: GPL-2.0
//! The kernel log: lines that tell of a bug.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;

/// As in `tests/lib/kernel-log.sh`.
const BAD: &[&str] = &[
    "WARNING:",
    "BUG:",
    "BUG ",
    "Oops",
    "KASAN",
    "UBSAN",
    "kernel panic",
    "general protection fault",
    "possible circular",
    "possible recursive",
    "possible irq lock",
    "possible deadlock",
    "INFO: task",
    "INFO: rcu",
    "INFO: possible",
    "INFO: trying",
    "detected stall",
    "soft lockup",
    "hard LOCKUP",
    "scheduling while atomic",
    "sleeping function",
    "unreferenced object",
    "refcount_t",
    "corruption",
    "use-after-free",
    "all Trace",
    "all trace",
    "rust_kernel: panicked",
    "still being used",
    "leaked",
];

/// Whether a line tells of a bug.
pub fn is_bad(line: &str) -> bool {
    BAD.iter().any(|bad| line.contains(bad))
}

/// Lines written to the log from now on. They stay in the log for others.
pub struct KernelLog(File);

impl KernelLog {
    pub fn new() -> io::Result<Self> {
        let mut options = File::options();
        let mut file = options
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open("/dev/kmsg")?;
        file.seek(SeekFrom::End(0))?;
        Ok(Self(file))
    }

    /// The lines since the last look.
    pub fn take(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        let mut record = vec![0; 8192];
        loop {
            match self.0.read(&mut record) {
                Ok(n) => {
                    let text = String::from_utf8_lossy(&record[..n]);
                    let first = text.lines().next().unwrap_or("");
                    let line = first.split_once(';').map_or(first, |(_, line)| line);
                    lines.push(line.to_owned());
                }
                // Some lines were overwritten before they were read.
                Err(e) if e.raw_os_error() == Some(libc::EPIPE) => {}
                Err(_) => return lines,
            }
        }
    }
}
