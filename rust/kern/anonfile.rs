// SPDX-License-Identifier: GPL-2.0

//! Files without a name or operations: the close of such a file drops the object behind it.
//!
//! C: `include/linux/anon_inodes.h`.

use crate::{bindings, kern::module::THIS_MODULE};
use core::marker::PhantomData;
use kernel::{
    error::Error,
    ffi::c_int,
    prelude::*,
    str::CStr,
    types::ForeignOwnable, //
};

/// Makes a file that keeps `state`, and drops it when it is closed; returns its descriptor, which is
/// closed on exec.
///
/// Context: a task's; sleeps. Errors: `EMFILE`, `ENFILE`, `ENOMEM`.
pub fn create_fd<T: Send + Sync + 'static>(name: &'static CStr, state: KBox<T>) -> Result<u32> {
    let private = state.into_foreign();
    // SAFETY: name and operations live for ever; the operations take `private` for what it is.
    let fd = unsafe {
        bindings::anon_inode_getfd(
            name.as_char_ptr(),
            &Fops::<T>::TABLE,
            private,
            (bindings::O_RDWR | bindings::O_CLOEXEC) as c_int,
        )
    };
    u32::try_from(fd).map_err(|_| {
        // SAFETY: no file has taken it over.
        drop(unsafe { KBox::<T>::from_foreign(private) });
        Error::from_errno(fd)
    })
}

struct Fops<T>(PhantomData<T>);

impl<T: Send + Sync + 'static> Fops<T> {
    const TABLE: bindings::file_operations = bindings::file_operations {
        owner: THIS_MODULE,
        release: Some(Self::release),
        ..pin_init::zeroed()
    };

    /// # Safety
    ///
    /// `file` must have been made by [`create_fd`], and this must be its last use.
    unsafe extern "C" fn release(_inode: *mut bindings::inode, file: *mut bindings::file) -> c_int {
        // SAFETY: `create_fd` put it there.
        drop(unsafe { KBox::<T>::from_foreign((*file).private_data) });
        0
    }
}
