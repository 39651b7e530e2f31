// SPDX-License-Identifier: GPL-2.0
//! Page-aligned memory, in huge pages where the system has them: few, long physical runs, so that
//! a send needs few work requests.

use std::io;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;

use crate::Map;

/// A buffer of whole pages, zeroed at first.
///
/// ```
/// let mut buf = zrs_sys::PageBuf::new(10_000)?;
/// buf[..5].copy_from_slice(b"hello");
/// assert_eq!((buf.len(), buf[5]), (10_000, 0));
/// assert_eq!(buf.as_ptr() as usize % 4096, 0);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct PageBuf {
    map: Map,
    len: usize,
}

impl PageBuf {
    /// `len` bytes, 0 allowed. ENOMEM as mmap gives it.
    pub fn new(len: usize) -> io::Result<Self> {
        let map = Map::anonymous(len.max(1))?;
        map.advise_huge();
        Ok(Self { map, len })
    }

    /// Its first byte. It is not unmapped any more, but for [`PageBuf::from_raw`].
    pub fn into_raw(self) -> NonNull<u8> {
        ManuallyDrop::new(self).map.base()
    }

    /// The buffer that [`PageBuf::into_raw`] has made a pointer of.
    ///
    /// # Safety
    ///
    /// It had `len` bytes, and has no other user.
    pub unsafe fn from_raw(base: NonNull<u8>, len: usize) -> Self {
        // SAFETY: it was released with that length, and has no other owner.
        let map = unsafe { Map::from_raw(base, len.max(1)) };
        Self { map, len }
    }
}

impl Deref for PageBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the mapping is at least `len` bytes, initialised by the kernel, and private; it
        // is written only through `deref_mut`, which borrows `self` exclusively.
        unsafe { slice::from_raw_parts(self.map.base().as_ptr(), self.len) }
    }
}

impl DerefMut for PageBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `self` is borrowed exclusively.
        unsafe { slice::from_raw_parts_mut(self.map.base().as_ptr(), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::PageBuf;

    #[test]
    fn aligned_zeroed_writable() {
        let mut buf = PageBuf::new(10_000).unwrap();
        assert_eq!(buf.as_ptr() as usize % 4096, 0);
        assert_eq!(buf.len(), 10_000);
        assert!(buf.iter().all(|&b| b == 0));
        buf[9_999] = 7;
        assert_eq!(buf[9_999], 7);
        assert!(PageBuf::new(0).unwrap().is_empty());
    }

    #[test]
    fn a_pointer_and_back() {
        for len in [0, 10_000] {
            let base = PageBuf::new(len).unwrap().into_raw();
            // SAFETY: it was one of that length.
            let buf = unsafe { PageBuf::from_raw(base, len) };
            assert_eq!((buf.len(), buf.as_ptr()), (len, base.as_ptr().cast_const()));
        }
    }
}
