// SPDX-License-Identifier: GPL-2.0
//! The MSG_ZEROCOPY calls of one socket: the number that each has, and which of them are complete.

use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use zrs_sys::sock::{self, Completion};

/// Numbers calls as the kernel does, though not modulo 2^32, and keeps the results of completions.
///
/// It has to see all calls and all completions of the socket.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    /// Locked over each call, so that they are numbered in the kernel's order.
    next: Mutex<Next>,
    told: Mutex<Told>,
    /// A completion has been read, or no thread waits for one any more.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Next {
    /// Whether SO_ZEROCOPY is set, else calls have no number. None: not looked up yet.
    enabled: Option<bool>,
    /// The number of the next call that sends something.
    call: u64,
}

/// Which calls are complete.
#[derive(Debug, Default)]
struct Told {
    /// All before this call.
    all: u64,
    /// Ranges of calls after that, which completed before `all`: the first, and the one behind the
    /// last.
    more: Vec<(u64, u64)>,
    /// A thread waits for the next completion, without the lock.
    awaited: bool,
}

impl Told {
    fn add(&mut self, done: Completion) {
        // Each call completes once, so that this is the next one with that number.
        let first = self.all + u64::from(done.first.wrapping_sub(self.all as u32));
        let count = u64::from(done.last.wrapping_sub(done.first)) + 1;
        self.more.push((first, first + count));
        while let Some(at) = self.more.iter().position(|&(first, _)| first == self.all) {
            self.all = self.more.swap_remove(at).1;
        }
    }

    fn has(&self, call: u64) -> bool {
        let within = |&(first, end): &(u64, u64)| (first..end).contains(&call);
        call < self.all || self.more.iter().any(within)
    }
}

impl Calls {
    pub(crate) fn enable(&self, fd: BorrowedFd<'_>, on: bool) -> io::Result<()> {
        let mut next = lock(&self.next);
        sock::set_zerocopy(fd, on)?;
        next.enabled = Some(on);
        Ok(())
    }

    /// One call; how much it sent, and its number if it has one.
    pub(crate) fn send(
        &self,
        fd: BorrowedFd<'_>,
        bufs: &[IoSlice<'_>],
    ) -> io::Result<(usize, Option<u64>)> {
        let mut next = lock(&self.next);
        let enabled = match next.enabled {
            Some(enabled) => enabled,
            None => *next.enabled.insert(sock::zerocopy(fd)?),
        };
        let sent = match bufs {
            [buf] => sock::send_zerocopy(fd, buf)?,
            bufs => sock::send_zerocopy_vectored(fd, bufs)?,
        };
        if sent == 0 || !enabled {
            return Ok((sent, None));
        }
        let call = next.call;
        next.call += 1;
        Ok((sent, Some(call)))
    }

    /// The next completion, if there is one and no other thread waits for it.
    pub(crate) fn completion(&self, fd: BorrowedFd<'_>) -> io::Result<Option<Completion>> {
        let mut told = lock(&self.told);
        if told.awaited {
            return Ok(None);
        }
        let done = sock::completion(fd)?;
        if let Some(done) = done {
            told.add(done);
            self.changed.notify_all();
        }
        Ok(done)
    }

    /// Waits for the next completion.
    pub(crate) fn wait_completion(&self, fd: BorrowedFd<'_>) -> io::Result<Completion> {
        loop {
            let told = self.unless(|told| told.awaited);
            if let Some(done) = self.read(told, fd)? {
                return Ok(done);
            }
        }
    }

    /// Whether a call is complete; takes the completions that are there.
    pub(crate) fn is_complete(&self, fd: BorrowedFd<'_>, call: u64) -> io::Result<bool> {
        loop {
            if lock(&self.told).has(call) {
                return Ok(true);
            }
            if self.completion(fd)?.is_none() {
                return Ok(lock(&self.told).has(call));
            }
        }
    }

    /// Waits until a call is complete.
    pub(crate) fn wait(&self, fd: BorrowedFd<'_>, call: u64) -> io::Result<()> {
        loop {
            let told = self.unless(|told| told.awaited && !told.has(call));
            if told.has(call) {
                return Ok(());
            }
            self.read(told, fd)?;
        }
    }

    /// Sleeps while `what` holds.
    fn unless(&self, what: impl Fn(&Told) -> bool) -> MutexGuard<'_, Told> {
        self.changed
            .wait_while(lock(&self.told), |told| what(told))
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the next completion; no other thread does. Without the lock: others may look.
    fn read(
        &self,
        mut told: MutexGuard<'_, Told>,
        fd: BorrowedFd<'_>,
    ) -> io::Result<Option<Completion>> {
        told.awaited = true;
        drop(told);
        let result = sock::wait_completion(fd, None);
        let mut told = lock(&self.told);
        told.awaited = false;
        if let Ok(Some(done)) = result {
            told.add(done);
        }
        self.changed.notify_all();
        result
    }
}

/// The locked data is consistent at every step, so that a panic elsewhere does not matter.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(first: u32, last: u32) -> Completion {
        Completion {
            first,
            last,
            copied: false,
        }
    }

    #[test]
    fn completions_may_come_in_any_order() {
        let mut told = Told::default();
        told.add(done(1, 1));
        told.add(done(4, 6));
        assert!([1, 4, 6].into_iter().all(|call| told.has(call)));
        assert!([0, 2, 3, 7].into_iter().all(|call| !told.has(call)));
        told.add(done(0, 0));
        told.add(done(2, 3));
        assert!((0..7).all(|call| told.has(call)));
        assert_eq!((told.all, told.more.len()), (7, 0));
    }

    #[test]
    fn the_kernels_numbers_wrap() {
        let mut told = Told {
            all: (5 << 32) - 2,
            ..Told::default()
        };
        // Beyond the wrap, then across it.
        told.add(done(1, 1));
        assert!(told.has((5 << 32) + 1) && !told.has(5 << 32));
        told.add(done(u32::MAX - 1, 0));
        assert_eq!(told.all, (5 << 32) + 2);
    }
}
