// SPDX-License-Identifier: GPL-2.0
//! A queue of operations on regions of memory nodes, with the buffers of what is under way.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use crate::abi::*;
use crate::sock::poll;

/// ZRS_QUEUE_SUBMIT of operations whose memory is the caller's: how many the kernel has taken.
///
/// # Safety
///
/// From now on until its completion has been read, the kernel reads the memory that a WRITE names and
/// writes that of a READ. Where no memory is, the kernel says EFAULT.
pub unsafe fn submit(
    fd: BorrowedFd<'_>,
    sqes: *const zrs_mem_sqe,
    count: u32,
) -> io::Result<usize> {
    let mut arg = zrs_queue_submit {
        sqes: sqes as u64,
        count,
        flags: 0,
    };
    // SAFETY: the request reads one `zrs_queue_submit`; the rest is the caller's promise.
    let r = unsafe { libc::ioctl(fd.as_raw_fd(), ZRS_QUEUE_SUBMIT as _, &raw mut arg) };
    usize::try_from(r).map_err(|_| io::Error::last_os_error())
}

/// Reads completions of a queue of [`Device::mem_queue_fd`](crate::Device::mem_queue_fd), up to
/// `count` of those that are there: how many. Waits for the first one, for ever without a `timeout`;
/// none: there was none in that time. Signals do not end the wait.
///
/// # Safety
///
/// There is room for `count` completions at `cqes`. Where no memory is, the kernel says EFAULT.
pub unsafe fn reap(
    fd: BorrowedFd<'_>,
    cqes: *mut zrs_mem_cqe,
    count: u32,
    timeout: Option<Duration>,
) -> io::Result<usize> {
    const SIZE: usize = size_of::<zrs_mem_cqe>();
    // Too far away to be said is for ever.
    let deadline = timeout.and_then(|t| Instant::now().checked_add(t));
    loop {
        // SAFETY: the caller's promise.
        let r = unsafe { libc::read(fd.as_raw_fd(), cqes.cast(), count as usize * SIZE) };
        if let Ok(bytes) = usize::try_from(r) {
            if bytes == 0 || bytes % SIZE != 0 {
                // It is no queue.
                return Err(io::Error::from_raw_os_error(libc::EINVAL));
            }
            return Ok(bytes / SIZE);
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EINTR) => continue,
            Some(libc::EAGAIN) => {}
            _ => return Err(error),
        }
        let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Ok(0);
        }
        // Another thread may be first to read what there is.
        poll(fd, libc::POLLIN, left)?;
    }
}

/// A queue and the buffers of its operations. Dropping it cancels what is under way, and waits for
/// its end: the kernel has the buffers until then.
#[derive(Debug)]
pub struct MemQueue {
    file: File,
    /// Operations that the kernel has not taken.
    pending: Vec<zrs_mem_sqe>,
    /// Buffers of those that have no completion, by name; none for operations without.
    buffers: HashMap<u64, Vec<u8>>,
    /// Names of operations that the kernel has taken and not completed.
    under_way: usize,
    next: u64,
}

impl From<OwnedFd> for MemQueue {
    /// Of a new descriptor of ZRS_IOC_MEM_QUEUE.
    fn from(fd: OwnedFd) -> Self {
        Self {
            file: File::from(fd),
            pending: Vec::new(),
            buffers: HashMap::new(),
            under_way: 0,
            next: 1,
        }
    }
}

impl AsFd for MemQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl MemQueue {
    fn push(&mut self, sqe: zrs_mem_sqe, buffer: Option<Vec<u8>>) -> u64 {
        let name = self.next;
        self.next += 1;
        self.pending.push(zrs_mem_sqe {
            user_data: name,
            ..sqe
        });
        if let Some(buffer) = buffer {
            self.buffers.insert(name, buffer);
        }
        name
    }

    /// ZRS_MEM_OP_COPY of `len` bytes; its name.
    pub fn copy(
        &mut self,
        from: (BorrowedFd<'_>, u64),
        to: (BorrowedFd<'_>, u64),
        len: u64,
        flags: u8,
    ) -> u64 {
        let sqe = zrs_mem_sqe {
            op: ZRS_MEM_OP_COPY,
            flags,
            fd: to.0.as_raw_fd(),
            src_fd: from.0.as_raw_fd(),
            off: to.1,
            src: from.1,
            len,
            ..Default::default()
        };
        self.push(sqe, None)
    }

    /// ZRS_MEM_OP_WRITE of all of `data`, or ZRS_MEM_OP_READ that fills it; its name.
    pub fn transfer(
        &mut self,
        write: bool,
        region: (BorrowedFd<'_>, u64),
        mut data: Vec<u8>,
        flags: u8,
    ) -> u64 {
        let sqe = zrs_mem_sqe {
            op: if write {
                ZRS_MEM_OP_WRITE
            } else {
                ZRS_MEM_OP_READ
            },
            flags,
            fd: region.0.as_raw_fd(),
            off: region.1,
            src: data.as_mut_ptr() as u64,
            len: data.len() as u64,
            ..Default::default()
        };
        self.push(sqe, Some(data))
    }

    /// ZRS_MEM_OP_CANCEL; its name.
    pub fn cancel(&mut self, name: u64) -> u64 {
        let sqe = zrs_mem_sqe {
            op: ZRS_MEM_OP_CANCEL,
            src: name,
            ..Default::default()
        };
        self.push(sqe, None)
    }

    /// ZRS_QUEUE_SUBMIT: gives the kernel what it takes of the operations; how many. The first one
    /// that is refused is dropped with the error, those behind it stay.
    pub fn submit(&mut self) -> io::Result<usize> {
        if self.pending.is_empty() {
            return Ok(0);
        }
        let (sqes, count) = (self.pending.as_ptr(), self.pending.len() as u32);
        // SAFETY: there are `count` operations at `sqes`; the memory that they name is in `buffers`
        // until their completions have been read.
        let taken = unsafe { submit(self.file.as_fd(), sqes, count) };
        let error = match taken {
            Ok(taken) => {
                self.pending.drain(..taken);
                self.under_way += taken;
                return Ok(taken);
            }
            Err(error) => error,
        };
        if error.raw_os_error() != Some(libc::EAGAIN) {
            let refused = self.pending.remove(0);
            self.buffers.remove(&refused.user_data);
        }
        Err(error)
    }

    /// Operations that the kernel has taken and not completed.
    pub fn under_way(&self) -> usize {
        self.under_way
    }

    /// A completion, and the buffer of its operation; waits for one.
    pub fn completion(&mut self) -> io::Result<(zrs_mem_cqe, Option<Vec<u8>>)> {
        let mut bytes = [0; size_of::<zrs_mem_cqe>()];
        self.file.read_exact(&mut bytes)?;
        let [name, res, done, _flags] =
            std::array::from_fn(|n| u64::from_ne_bytes(bytes[n * 8..][..8].try_into().unwrap()));
        self.under_way = self.under_way.saturating_sub(1);
        let cqe = zrs_mem_cqe {
            user_data: name,
            res: res as i64,
            done,
            ..Default::default()
        };
        Ok((cqe, self.buffers.remove(&name)))
    }
}

impl Drop for MemQueue {
    fn drop(&mut self) {
        for sqe in std::mem::take(&mut self.pending) {
            self.buffers.remove(&sqe.user_data);
        }
        for name in self.buffers.keys().copied().collect::<Vec<_>>() {
            self.cancel(name);
        }
        while !self.buffers.is_empty() {
            // Those that are not taken now are when completions have been read.
            let submitted = self.submit();
            let full = submitted.is_err_and(|e| e.raw_os_error() == Some(libc::EAGAIN));
            if (self.under_way == 0 && !full) || self.completion().is_err() {
                // The kernel may write to them: they are never free again.
                std::mem::forget(std::mem::take(&mut self.buffers));
            }
        }
    }
}
