// SPDX-License-Identifier: GPL-2.0
//! Signals that ask a program to end.

use std::io;
use std::mem::MaybeUninit;
use std::ptr;

/// SIGHUP, SIGINT and SIGTERM, blocked in this thread and in those that it starts.
pub struct Ending(libc::sigset_t);

impl Ending {
    /// Blocks them. Threads that run already are ended by them as before.
    pub fn block() -> io::Result<Self> {
        let mut set = MaybeUninit::uninit();
        // SAFETY: sigemptyset() writes the set before the others use it; the signals exist.
        let (set, failed) = unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGTERM] {
                libc::sigaddset(set.as_mut_ptr(), signal);
            }
            let failed = libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), ptr::null_mut());
            (set.assume_init(), failed)
        };
        match failed {
            0 => Ok(Self(set)),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }

    /// Waits for one of them.
    pub fn wait(&self) {
        let mut signal = 0;
        // SAFETY: the set was made by `block`, and the number can be written. It fails for sets with
        // unknown signals only.
        unsafe { libc::sigwait(&raw const self.0, &raw mut signal) };
    }
}
