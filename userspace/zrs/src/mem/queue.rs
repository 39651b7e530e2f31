// SPDX-License-Identifier: GPL-2.0
//! Queued operations: many at a time, with completions.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use zrs_sys::{abi, MemQueue};

use super::Region;
use crate::Zrs;

/// A queue of operations. They have no order, but for those that [`Queue::drain`] is called before.
///
/// A buffer belongs to the queue until the operation's completion. The descriptor can be polled: for
/// reading if there is a completion, for writing if there is room. Dropping the queue cancels what
/// is under way, and waits for its end.
///
/// ```no_run
/// # use zrs::{mem::Region, Zrs};
/// # fn copy(zrs: &Zrs, a: &Region, b: &Region) -> std::io::Result<()> {
/// let mut queue = zrs::mem::Queue::new(zrs, 64)?;
/// let copy = queue.copy(a, 0, b, 0, 1 << 20);
/// queue.submit()?;
/// let completed = queue.completion()?;
/// assert_eq!(completed.id, copy);
/// println!("{} bytes", completed.result?);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Queue {
    queue: MemQueue,
    flags: u8,
}

/// A completion.
#[derive(Debug)]
pub struct Completed {
    /// The operation, as the call that queued it has returned.
    pub id: u64,
    /// Bytes; fewer than asked for at the end of what was read.
    pub result: io::Result<u64>,
    /// Bytes from the first on that have landed for sure.
    pub done: u64,
    /// The buffer of a write or read.
    pub buffer: Option<Vec<u8>>,
}

impl Queue {
    /// A queue for up to `entries` operations, 1 to 4096; an operation has its entry until its
    /// completion is taken.
    pub fn new(zrs: &Zrs, entries: u32) -> io::Result<Self> {
        Ok(Self {
            queue: zrs.device.mem_queue(entries)?,
            flags: 0,
        })
    }

    /// The next operation begins when all before it are done, and those behind it when it is done.
    pub fn drain(&mut self) -> &mut Self {
        self.flags = abi::ZRS_MEM_F_DRAIN;
        self
    }

    fn flags(&mut self) -> u8 {
        std::mem::take(&mut self.flags)
    }

    /// Has the node of `from` write `len` bytes into the region `to`. As all calls that queue, it
    /// returns the operation's id; [`Queue::submit`] has the operation begin.
    pub fn copy(&mut self, from: &Region, off: u64, to: &Region, to_off: u64, len: u64) -> u64 {
        let flags = self.flags();
        let (from, to) = ((from.as_fd(), off), (to.as_fd(), to_off));
        self.queue.copy(from, to, len, flags)
    }

    /// Writes all of `data` to `to`.
    pub fn write(&mut self, data: Vec<u8>, to: &Region, off: u64) -> u64 {
        let flags = self.flags();
        self.queue.transfer(true, (to.as_fd(), off), data, flags)
    }

    /// Fills `buffer` from `from`.
    pub fn read(&mut self, from: &Region, off: u64, buffer: Vec<u8>) -> u64 {
        let flags = self.flags();
        let from = (from.as_fd(), off);
        self.queue.transfer(false, from, buffer, flags)
    }

    /// Cancels the operation `id`. The cancel's completion comes when no further byte of the operation
    /// can land, or is ENOENT if the operation was done before.
    pub fn cancel(&mut self, id: u64) -> u64 {
        self.queue.cancel(id)
    }

    /// Has what was queued begin; how many operations. The regions have to be open still.
    ///
    /// EAGAIN: there is no room before completions are taken; call it again then. Any other error is
    /// that of the first operation, which is dropped without a completion.
    pub fn submit(&mut self) -> io::Result<usize> {
        self.queue.submit()
    }

    /// Operations that have begun, or wait to begin, and have no completion yet.
    pub fn under_way(&self) -> usize {
        self.queue.under_way()
    }

    /// The next completion; waits for it.
    pub fn completion(&mut self) -> io::Result<Completed> {
        let (cqe, buffer) = self.queue.completion()?;
        Ok(Completed {
            id: cqe.user_data,
            result: u64::try_from(cqe.res)
                .map_err(|_| io::Error::from_raw_os_error(-(cqe.res as i32))),
            done: cqe.done,
            buffer,
        })
    }
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.queue.as_fd()
    }
}
