// SPDX-License-Identifier: GPL-2.0
//! Received bytes in memory that the peer's device may still write.

use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::{compiler_fence, Ordering};

use crate::sock::MOST_SLICES;

/// Received bytes, where they are.
///
/// A peer's kernel that keeps to the protocol does not write to bytes again before they are given
/// back. A hostile one can change bytes of a window at any time until then, so that what was checked
/// is not what is used later, and a `&[u8]` over them would break Rust's rule that its bytes do not
/// change. Hence a program copies what it looks at ([`View::copy_to`], [`View::to_vec`]), passes it
/// to the kernel ([`View::write_all_to`], [`View::send`]), or says that it trusts the peer
/// ([`View::trusted`]).
///
/// In a part of an [`Area`](crate::Area) where nothing was delivered, reading is SIGBUS, and
/// `write()` and `sendmsg()` return EFAULT.
///
/// # Invariants
///
/// `base` to `base + len` is mapped for `'a`; nothing else is known of the bytes.
#[derive(Clone, Copy)]
pub struct View<'a> {
    base: NonNull<u8>,
    len: usize,
    of: PhantomData<&'a ()>,
}

// SAFETY: reading from any thread is sound, by raw pointers only.
unsafe impl Send for View<'_> {}
// SAFETY: as above.
unsafe impl Sync for View<'_> {}

impl<'a> View<'a> {
    /// The view of bytes that the peer's device may write.
    ///
    /// # Safety
    ///
    /// `base` to `base + len` is mapped for `'a`.
    pub(crate) unsafe fn new(base: NonNull<u8>, len: usize) -> Self {
        // INVARIANT: the caller's promise.
        Self {
            base,
            len,
            of: PhantomData,
        }
    }

    /// Bytes.
    pub fn len(self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    /// A part of it.
    ///
    /// # Panics
    ///
    /// If the range is not inside.
    #[must_use]
    pub fn part(self, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= self.len);
        // INVARIANT: a part of memory that is mapped.
        Self {
            // SAFETY: inside of the memory.
            base: unsafe { self.base.add(range.start) },
            len: range.len(),
            of: PhantomData,
        }
    }

    /// Copies all of it to `out`, which is as long. Only the copy may be looked at twice.
    ///
    /// # Panics
    ///
    /// If `out` has another length.
    pub fn copy_to(self, out: &mut [u8]) {
        assert_eq!(out.len(), self.len);
        // SAFETY: readable by the invariant; `out` is ours alone, so that they do not overlap.
        // Bytes that the peer writes meanwhile may have any value, as those of a file that another
        // process writes: no reference to them exists.
        unsafe {
            self.base
                .as_ptr()
                .copy_to_nonoverlapping(out.as_mut_ptr(), self.len);
        }
        // A copy of the copy is not made from here: the compiler takes these bytes for changed.
        compiler_fence(Ordering::SeqCst);
    }

    /// A copy.
    pub fn to_vec(self) -> Vec<u8> {
        let mut out = vec![0; self.len];
        self.copy_to(&mut out);
        out
    }

    /// The byte at `at`, as it is now.
    ///
    /// # Panics
    ///
    /// If `at` is not inside.
    pub fn byte(self, at: usize) -> u8 {
        assert!(at < self.len);
        // SAFETY: the byte is in mapped memory.
        unsafe { self.base.add(at).read_volatile() }
    }

    /// Where the bytes are.
    pub fn as_ptr(self) -> *const u8 {
        self.base.as_ptr()
    }

    /// Writes all of it by write(2), as the bytes are then; no copy of this process. Blocks as
    /// write() does, and goes on after EINTR; meant for a descriptor that blocks. Errors: as of
    /// write(), and WriteZero; a part may be written then.
    pub fn write_all_to(self, fd: BorrowedFd<'_>) -> io::Result<()> {
        let mut left = self;
        while !left.is_empty() {
            // SAFETY: the kernel reads memory that can be read.
            let n = unsafe { libc::write(fd.as_raw_fd(), left.as_ptr().cast(), left.len) };
            match usize::try_from(n) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => left = left.part(n..left.len),
                Err(_) => match io::Error::last_os_error() {
                    e if e.kind() == io::ErrorKind::Interrupted => {}
                    e => return Err(e),
                },
            }
        }
        Ok(())
    }

    /// sendmsg(2) of views, one after the other, with MSG_NOSIGNAL; no copy of this process. Returns
    /// how many bytes the socket took, of the first 1024 views. Errors and blocking: as of
    /// sendmsg().
    pub fn send(views: &[Self], fd: BorrowedFd<'_>) -> io::Result<usize> {
        let mut parts: Vec<_> = views
            .iter()
            .take(MOST_SLICES)
            .map(|view| libc::iovec {
                iov_base: view.base.as_ptr().cast(),
                iov_len: view.len,
            })
            .collect();
        // SAFETY: all zeroes is a message without anything.
        let mut msg: libc::msghdr = unsafe { std::mem::zeroed() };
        msg.msg_iov = parts.as_mut_ptr();
        msg.msg_iovlen = parts.len() as _;
        // SAFETY: `parts` outlives the call, which reads memory that can be read.
        let n = unsafe { libc::sendmsg(fd.as_raw_fd(), &raw const msg, libc::MSG_NOSIGNAL) };
        usize::try_from(n).map_err(|_| io::Error::last_os_error())
    }

    /// The bytes as a slice, without a copy.
    ///
    /// # Safety
    ///
    /// Nobody writes to them for `'a`, and all of them were delivered. For bytes of a window or an
    /// area the former is a promise about the peer: its kernel, and its device, keep to the
    /// protocol.
    pub unsafe fn trusted(self) -> &'a [u8] {
        // SAFETY: readable by the invariant, and unchanged by the caller's promise.
        unsafe { slice::from_raw_parts(self.base.as_ptr(), self.len) }
    }
}

impl<'a> From<&'a [u8]> for View<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        // INVARIANT: a slice can be read.
        Self {
            base: NonNull::from(bytes).cast(),
            len: bytes.len(),
            of: PhantomData,
        }
    }
}

impl fmt::Debug for View<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View")
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn parts_are_inside() {
        let view = View::from(&b"0123456789"[..]);
        assert_eq!(view.part(3..7).to_vec(), b"3456");
        assert!(view.part(10..10).is_empty());
        assert!(std::panic::catch_unwind(|| view.part(3..11)).is_err());
    }

    #[test]
    fn it_is_written_and_sent() {
        let view = View::from(&b"0123456789"[..]);
        let (a, mut b) = UnixStream::pair().unwrap();
        view.write_all_to(a.as_fd()).unwrap();
        let sent = View::send(&[view.part(5..10), view.part(0..2)], a.as_fd());
        assert_eq!(sent.unwrap(), 7);
        drop(a);
        let mut got = Vec::new();
        b.read_to_end(&mut got).unwrap();
        assert_eq!(got, b"01234567895678901");
        assert_eq!(view.byte(9), b'9');
        assert!(std::panic::catch_unwind(|| view.byte(10)).is_err());
    }

    #[test]
    fn a_copy_is_as_long() {
        let view = View::from(&b"four"[..]);
        let mut out = [0; 4];
        view.copy_to(&mut out);
        assert_eq!(&out, b"four");
        assert!(std::panic::catch_unwind(|| view.copy_to(&mut [0; 3])).is_err());
    }
}
