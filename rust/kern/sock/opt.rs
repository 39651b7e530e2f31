// SPDX-License-Identifier: GPL-2.0

//! The values of `setsockopt` and `getsockopt`.
//!
//! C: `include/linux/sockptr.h`, `include/linux/net.h` (`sockopt_t`).

use crate::bindings;
use core::{marker::PhantomData, mem::MaybeUninit};
use kernel::{
    ffi::c_int,
    iov::IovIterDest,
    prelude::*,
    transmute::{AsBytes, FromBytes},
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

/// Where a `getsockopt` puts its value.
///
/// # Invariants
///
/// `opt` came from the socket layer, valid and ours alone for `'a`.
pub struct OptOut<'a> {
    opt: *mut bindings::sockopt_t,
    _opt: PhantomData<&'a mut bindings::sockopt_t>,
}

impl OptOut<'_> {
    /// # Safety
    ///
    /// `opt` must come from the socket layer, valid and not used by other code for the lifetime of
    /// the result.
    pub(super) unsafe fn from_raw(opt: *mut bindings::sockopt_t) -> Self {
        Self {
            opt,
            _opt: PhantomData,
        }
    }

    /// How much room the program has.
    pub fn len(&self) -> usize {
        // SAFETY: valid (type invariant).
        usize::try_from(unsafe { (*self.opt).optlen }).unwrap_or(0)
    }

    /// Writes `value`, truncated to the buffer's size, and sets the length to the bytes written.
    ///
    /// Context: may sleep. Errors: `EFAULT`.
    pub fn write_bytes(&mut self, value: &[u8]) -> Result {
        let n = value.len().min(self.len());
        let value = &value[..n];
        // SAFETY: valid and ours (type invariant); the socket layer made the iterator a
        // destination.
        let iter = unsafe { IovIterDest::from_raw(core::ptr::addr_of_mut!((*self.opt).iter_out)) };
        if iter.copy_to_iter(value) != n {
            return Err(EFAULT);
        }
        // SAFETY: as above.
        unsafe { (*self.opt).optlen = n as c_int };
        Ok(())
    }

    /// Writes a `V`. As [`write_bytes`](Self::write_bytes).
    pub fn write<V: AsBytes>(&mut self, value: &V) -> Result {
        self.write_bytes(<V as AsBytes>::as_bytes(value))
    }

    /// Writes an `int`, or a byte where the program has room for no more and the value fits, as
    /// SOL_IP does.
    ///
    /// Context: may sleep. Errors: `EFAULT`.
    pub fn write_small(&mut self, value: i32) -> Result {
        match u8::try_from(value) {
            Ok(byte) if (1..size_of::<i32>()).contains(&self.len()) => self.write_bytes(&[byte]),
            _ => self.write(&value),
        }
    }
}
