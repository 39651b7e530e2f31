// SPDX-License-Identifier: GPL-2.0

//! The pipe that a `splice()` from a socket fills.
//!
//! C: `include/linux/splice.h` (`splice_to_pipe`), `include/linux/pipe_fs_i.h`. A pipe holds pages
//! and the range of bytes in each; each has a reference until it is read. Readers cannot steal a
//! page from it (`nosteal_pipe_buf_ops`).

use crate::{
    bindings,
    kern::{
        contig::{ContigPages, PagePtr, Payload},
        fault::points,
    },
};
use core::{marker::PhantomData, ptr::NonNull};
use kernel::{
    alloc::flags::{GFP_KERNEL_ACCOUNT, __GFP_ZERO},
    ffi::{c_int, c_uint},
    page::{Page, PAGE_SHIFT, PAGE_SIZE},
    prelude::*,
};

/// Pages that are put into the pipe at once.
const BATCH: usize = 16;

/// A pipe that is being filled.
///
/// # Invariants
///
/// `pipe` is locked by this thread for `'a`.
pub struct Pipe<'a> {
    pipe: NonNull<bindings::pipe_inode_info>,
    _locked: PhantomData<&'a mut bindings::pipe_inode_info>,
}

/// Pages on their way into a pipe, each with a reference that goes with it.
struct Batch {
    pages: [*mut bindings::page; BATCH],
    parts: [bindings::partial_page; BATCH],
    len: usize,
}

impl Batch {
    fn new() -> Self {
        Self {
            pages: [core::ptr::null_mut(); BATCH],
            parts: Default::default(),
            len: 0,
        }
    }

    /// Adds a page, of whose references the batch takes one over. False if there is no room.
    fn push(&mut self, page: *mut bindings::page, offset: usize, len: usize) -> bool {
        let at = self.len;
        let (Some(slot), Some(part)) = (self.pages.get_mut(at), self.parts.get_mut(at)) else {
            return false;
        };
        *slot = page;
        *part = bindings::partial_page {
            offset: offset as c_uint,
            len: len as c_uint,
            private: 0,
        };
        self.len += 1;
        true
    }
}

/// Drops a page that the pipe had no room for.
///
/// # Safety
///
/// Only `splice_to_pipe` may call this, with a description that [`Pipe::put`] has made.
unsafe extern "C" fn release(desc: *mut bindings::splice_pipe_desc, index: c_uint) {
    // SAFETY: the description is valid, and `index` one of its pages.
    let page = unsafe { *(*desc).pages.add(index as usize) };
    // SAFETY: the page has the reference that it was put into the batch with.
    unsafe { bindings::put_page(page) };
}

impl Pipe<'_> {
    /// # Safety
    ///
    /// `pipe` must be locked by this thread for all of the result's life.
    pub(super) unsafe fn from_raw(pipe: *mut bindings::pipe_inode_info) -> Result<Self> {
        // INVARIANT: the caller's promise.
        Ok(Self {
            pipe: NonNull::new(pipe).ok_or(EINVAL)?,
            _locked: PhantomData,
        })
    }

    /// Returns the number of bytes that the pipe took: 0 when it is full. `EPIPE`, with `SIGPIPE`,
    /// if it has no reader.
    fn put(&mut self, mut batch: Batch) -> Result<usize> {
        let mut desc = bindings::splice_pipe_desc {
            pages: batch.pages.as_mut_ptr(),
            partial: batch.parts.as_mut_ptr(),
            nr_pages: batch.len as c_int,
            nr_pages_max: BATCH as c_uint,
            ops: &raw const bindings::nosteal_pipe_buf_ops,
            spd_release: Some(release),
        };
        // SAFETY: the pipe is locked (type invariant); the description is valid, and each of its
        // pages has a reference, which goes to the pipe or to `release`.
        let n = unsafe { bindings::splice_to_pipe(self.pipe.as_ptr(), &mut desc) };
        match usize::try_from(n) {
            Ok(n) => Ok(n),
            Err(_) if n == -(bindings::EAGAIN as isize) => Ok(0),
            Err(_) => Err(Error::from_errno(n as c_int)),
        }
    }

    /// Puts the pages of `len` bytes at `off` of `mem` into the pipe, as far as there is room. They
    /// are lent until [`ContigPages::is_sole_owner`]. Returns how many bytes.
    ///
    /// Errors: `EINVAL` if the range is not all inside of `mem`, `EPIPE`. Context: may not sleep.
    pub fn add_pages(&mut self, mem: &ContigPages, off: usize, len: usize) -> Result<usize> {
        let end = off.checked_add(len).filter(|end| *end <= mem.bytes());
        let end = end.ok_or(EINVAL)?;
        let mut done = off;
        while done < end {
            let mut batch = Batch::new();
            let mut at = done;
            while at < end && batch.len < BATCH {
                let within = at & (PAGE_SIZE - 1);
                let n = (PAGE_SIZE - within).min(end - at);
                let page = mem
                    .page(at >> PAGE_SHIFT)
                    .map(PagePtr::as_ptr)
                    .ok_or(EINVAL)?;
                // SAFETY: the page is one of `mem`'s, which has a reference to it.
                unsafe { bindings::get_page(page) };
                batch.push(page, within, n);
                at += n;
            }
            match self.put(batch) {
                Ok(n) if n == at - done => done += n,
                Ok(n) => return Ok(done + n - off),
                Err(_) if done > off => break,
                Err(e) => return Err(e),
            }
        }
        Ok(done - off)
    }

    /// Copies `payload` into pages that are made for it, as far as there is room in the pipe.
    /// Returns how many bytes. Sleeps. Errors: `EINVAL` if the payload's range is none, `ENOMEM`,
    /// `EPIPE`.
    pub fn copy(&mut self, payload: &Payload<'_>) -> Result<usize> {
        let (mut done, len) = (0, payload.len());
        while done < len {
            let n = PAGE_SIZE.min(len - done);
            match self.copy_one(payload, done, n) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(_) if done > 0 => break,
                Err(e) => return Err(e),
            }
        }
        Ok(done)
    }

    /// Copies `len` bytes, a page at most.
    fn copy_one(&mut self, payload: &Payload<'_>, from: usize, len: usize) -> Result<usize> {
        let len = len.min(PAGE_SIZE);
        let src = payload.at(from, len)?;
        points::SHARE.check()?;
        let page = Page::alloc_page(GFP_KERNEL_ACCOUNT | __GFP_ZERO)?;
        // SAFETY: the page is not from high memory, so it has an address.
        let base = unsafe { bindings::page_address(page.as_ptr()) };
        // SAFETY: `src` is good for `len` bytes, no more than a page, and the page is ours alone.
        unsafe { bindings::copy_payload(base, src.cast(), len) };
        let mut batch = Batch::new();
        // SAFETY: the page has a reference, that of `page`, which is dropped in the end.
        unsafe { bindings::get_page(page.as_ptr()) };
        batch.push(page.as_ptr(), 0, len);
        self.put(batch)
    }
}
