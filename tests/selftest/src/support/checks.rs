// SPDX-License-Identifier: GPL-2.0
//! The results of checks: value seen, value expected.

use std::fmt::Debug;
use std::io::Write;
use std::net::SocketAddrV4;
use std::os::fd::OwnedFd;
use std::process::ExitCode;

use crate::support::raw::{self, Errno, Result};

#[derive(Default)]
pub struct Checks {
    failed: u32,
    /// They are parts of a result, not results.
    parts: bool,
}

/// Prints a line now, also into a pipe.
pub fn say(text: &str) {
    let mut stdout = std::io::stdout().lock();
    let _ = writeln!(stdout, "{text}").and_then(|()| stdout.flush());
}

impl Checks {
    /// For the parts of a result: prints the failed ones, as comments.
    pub fn of_parts() -> Self {
        Self {
            parts: true,
            ..Self::default()
        }
    }

    /// A listening socket on `addr`; prints the address that it got, for the script that waits for
    /// that.
    pub fn listener(&mut self, addr: SocketAddrV4) -> Option<OwnedFd> {
        let (listener, addr) = self.need("listen", raw::listener(addr))?;
        say(&format!("listening on {addr}"));
        Some(listener)
    }

    /// `seen` must be `expected`.
    pub fn eq<T: PartialEq + Debug>(&mut self, name: &str, seen: T, expected: T) -> bool {
        let fine = seen == expected;
        self.report(name, fine, || {
            format!("saw {seen:?}, expected {expected:?}")
        })
    }

    /// `seen` must be true; `detail` is printed if not.
    pub fn yes(&mut self, name: &str, seen: bool, detail: &str) -> bool {
        self.report(name, seen, || detail.to_string())
    }

    /// The call must have failed with one of `expected`.
    pub fn errno<T: Debug>(&mut self, name: &str, seen: Result<T>, expected: &[i32]) -> bool {
        let fine = matches!(&seen, Err(e) if expected.contains(&e.0));
        let names: Vec<_> = expected.iter().map(|&e| Errno(e).to_string()).collect();
        self.report(name, fine, || {
            format!("saw {seen:?}, expected {}", names.join(" or "))
        })
    }

    /// The call must have succeeded. Prints only failures: it is a step, not a result.
    pub fn need<T>(&mut self, name: &str, seen: Result<T>) -> Option<T> {
        match seen {
            Ok(value) => Some(value),
            Err(e) => {
                self.report(name, false, || format!("saw {e}, expected success"));
                None
            }
        }
    }

    /// Adds the results of another thread.
    pub fn add(&mut self, other: &Self) {
        self.failed += other.failed;
    }

    /// Something that went wrong.
    pub fn fail(&mut self, name: &str, detail: &str) {
        self.report(name, false, || detail.to_string());
    }

    /// Whether nothing has failed yet.
    pub fn fine(&self) -> bool {
        self.failed == 0
    }

    fn report(&mut self, name: &str, fine: bool, detail: impl FnOnce() -> String) -> bool {
        self.failed += u32::from(!fine);
        match (fine, self.parts) {
            (true, true) => {}
            (true, false) => say(&format!("ok - {name}")),
            (false, true) => say(&format!("# {name}: {}", detail())),
            (false, false) => say(&format!("not ok - {name}: {}", detail())),
        }
        fine
    }

    pub fn exit(&self) -> ExitCode {
        if self.fine() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }
}
