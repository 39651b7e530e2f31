// SPDX-License-Identifier: GPL-2.0

//! The values of `setsockopt` and `getsockopt`.
//!
//! C: `include/linux/sockptr.h`, `include/linux/net.h`.

use crate::bindings;
use core::{marker::PhantomData, mem::MaybeUninit};
use kernel::{
    ffi::{c_char, c_int},
    prelude::*,
    transmute::{AsBytes, FromBytes},
    uaccess::{UserPtr, UserSlice},
};

/// The value that a `setsockopt` brings.
///
/// # Invariants
///
/// `ptr` came from the socket layer with `len`, good for `'a`.
pub struct OptIn<'a> {
    ptr: bindings::sockptr_t,
    len: usize,
    _value: PhantomData<&'a [u8]>,
}

impl OptIn<'_> {
    /// # Safety
    ///
    /// `ptr` and `len` must come from the socket layer, and be good for the lifetime of the result.
    pub(super) unsafe fn from_raw(ptr: bindings::sockptr_t, len: usize) -> Self {
        Self {
            ptr,
            len,
            _value: PhantomData,
        }
    }

    /// Pointer and length from the socket layer.
    pub(super) fn as_raw(&self) -> (bindings::sockptr_t, usize) {
        (self.ptr, self.len)
    }

    /// Reads exactly `out.len()` bytes. Each call reads the program's memory again: read once.
    ///
    /// Context: may sleep. Errors: `EINVAL` if the value is shorter, `EFAULT`.
    pub fn read_bytes(&self, out: &mut [u8]) -> Result {
        if self.len < out.len() {
            return Err(EINVAL);
        }
        // SAFETY: `out` has room for its length, and the value is at least as long (type invariant
        // for a kernel pointer; a program's is checked by the copy).
        let err =
            unsafe { bindings::copy_from_sockptr(out.as_mut_ptr().cast(), self.ptr, out.len()) };
        if err != 0 {
            return Err(EFAULT);
        }
        Ok(())
    }

    /// Reads a `V`. As [`read_bytes`](Self::read_bytes).
    pub fn read<V: FromBytes>(&self) -> Result<V> {
        let mut value = MaybeUninit::<V>::zeroed();
        // SAFETY: the bytes of `value` are zeroed, so initialised, and ours.
        let bytes = unsafe {
            core::slice::from_raw_parts_mut(value.as_mut_ptr().cast::<u8>(), size_of::<V>())
        };
        self.read_bytes(bytes)?;
        // SAFETY: any bytes are a `V`.
        Ok(unsafe { value.assume_init() })
    }
}

/// Where a `getsockopt` puts its value: the addresses of a program's buffer and of its length.
pub struct OptOut {
    value: usize,
    at: usize,
    len: Result<usize>,
}

impl OptOut {
    /// From the program's pointers. Sleeps.
    pub(super) fn from_user(value: usize, at: usize) -> Self {
        let len = UserSlice::new(UserPtr::from_addr(at), size_of::<c_int>());
        let len = len.reader().read::<c_int>();
        Self {
            value,
            at,
            len: len.and_then(|len| usize::try_from(len).map_err(|_| EINVAL)),
        }
    }

    /// The program's pointers.
    pub(super) fn as_raw(&self) -> (*mut c_char, *mut c_int) {
        (
            core::ptr::with_exposed_provenance_mut(self.value),
            core::ptr::with_exposed_provenance_mut(self.at),
        )
    }

    /// How much room the program has. Errors: `EFAULT`, `EINVAL` for a negative length. Protocols
    /// differ in whether an unknown option comes before them.
    pub fn len(&self) -> Result<usize> {
        self.len
    }

    /// Writes `value`, truncated to the buffer's size, and sets the length to the bytes written.
    ///
    /// Context: may sleep. Errors: `EFAULT`, and those of [`len`](Self::len).
    pub fn write_bytes(&mut self, value: &[u8]) -> Result {
        let n = value.len().min(self.len?);
        let value = &value[..n];
        let to = UserSlice::new(UserPtr::from_addr(self.value), n);
        to.writer().write_slice(value)?;
        let at = UserSlice::new(UserPtr::from_addr(self.at), size_of::<c_int>());
        at.writer().write(&(n as c_int))
    }

    /// Writes a `V`. As [`write_bytes`](Self::write_bytes).
    pub fn write<V: AsBytes>(&mut self, value: &V) -> Result {
        self.write_bytes(<V as AsBytes>::as_bytes(value))
    }

    /// Writes an `int`, or a byte where the program has room for no more and the value fits, as
    /// SOL_IP does.
    ///
    /// Context: may sleep. Errors: as [`write_bytes`](Self::write_bytes).
    pub fn write_small(&mut self, value: i32) -> Result {
        let len = self.len?;
        match u8::try_from(value) {
            Ok(byte) if (1..size_of::<i32>()).contains(&len) => self.write_bytes(&[byte]),
            _ => self.write(&value),
        }
    }
}
