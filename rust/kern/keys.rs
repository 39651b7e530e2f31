// SPDX-License-Identifier: GPL-2.0

//! Keys of the kernel's keyrings, of the type "logon", which programs cannot read, and MACs by
//! them.
//!
//! C: `include/linux/key.h`, `include/keys/user-type.h`, `include/crypto/sha2.h`.

use crate::bindings;
use core::ptr::NonNull;
use kernel::{
    error::{from_err_ptr, to_result},
    ffi::c_void,
    prelude::*,
};

/// A counted reference to a key.
///
/// # Invariants
///
/// `ptr` is a `struct key` of the type "logon"; the object owns one reference to it.
pub(crate) struct Key {
    ptr: NonNull<c_void>,
}

// SAFETY: The reference count may be changed from any thread, and the payload is read under RCU.
unsafe impl Send for Key {}
// SAFETY: As above.
unsafe impl Sync for Key {}

impl Key {
    /// The key of this description in the keyrings of the running task: its thread, process and
    /// session keyrings, and those in them. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOKEY`, `EKEYREVOKED`, `EKEYEXPIRED`; `EOPNOTSUPP` if the kernel has no keys.
    pub(crate) fn find(description: &CStr) -> Result<Self> {
        // SAFETY: The description ends with a NUL.
        let key = unsafe { bindings::request_logon_key(description.as_char_ptr()) };
        let ptr = NonNull::new(from_err_ptr(key)?).ok_or(EINVAL)?;
        // INVARIANT: The core looked for a key of that type, and gave us the reference.
        Ok(Self { ptr })
    }

    /// Its length; 0 if it was revoked.
    pub(crate) fn bytes(&self) -> usize {
        // SAFETY: By the type invariants it is a key.
        unsafe { bindings::key_bytes(self.ptr.as_ptr()) as usize }
    }

    /// Whether the key may be used.
    ///
    /// # Errors
    ///
    /// `EKEYREVOKED`, `EKEYEXPIRED`, `ENOKEY` (invalidated).
    pub(crate) fn validate(&self) -> Result {
        // SAFETY: By the type invariants it is a key.
        to_result(unsafe { bindings::key_validate(self.ptr.as_ptr()) })
    }

    /// HMAC-SHA256 of `text`.
    ///
    /// # Errors
    ///
    /// Those of [`Key::validate`].
    pub(crate) fn hmac_sha256(&self, text: &[u8]) -> Result<[u8; 32]> {
        let mut out = [0; 32];
        // SAFETY: By the type invariants it is a key. The text has the length that is said, and
        // `out` that of a MAC.
        to_result(unsafe {
            bindings::key_hmac_sha256(
                self.ptr.as_ptr(),
                text.as_ptr(),
                text.len(),
                out.as_mut_ptr(),
            )
        })?;
        Ok(out)
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        // SAFETY: By the type invariants the reference is ours.
        unsafe { bindings::key_put(self.ptr.as_ptr()) };
    }
}
