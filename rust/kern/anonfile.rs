// SPDX-License-Identifier: GPL-2.0

//! Files without a name: the close of such a file drops the object behind it, and that may have
//! operations.
//!
//! C: `include/linux/anon_inodes.h`, `include/linux/poll.h`.

use super::wait::WaitQueue;
use crate::{bindings, kern::module::THIS_MODULE};
use core::marker::PhantomData;
use kernel::{
    error::Error,
    ffi::{c_int, c_long, c_uint, c_ulong},
    iov::IovIterDest,
    prelude::*,
    str::CStr,
    types::ForeignOwnable, //
};

/// The events of `poll()` that [`AnonFile::events`] tells.
pub use bindings::{POLLIN, POLLOUT, POLLPRI, POLLRDNORM, POLLWRNORM};

/// An object with the operations of its file. All may sleep, and several run at the same time.
pub trait AnonFile: Send + Sync + 'static {
    /// A `read()`, which does not sleep for something to come if `nonblock`.
    fn read(&self, iter: &mut IovIterDest<'_>, nonblock: bool) -> Result<usize>;

    /// Threads that wait for events. It is woken when there is one.
    fn waits(&self) -> &WaitQueue;

    /// The events that are now, as bits of `POLL*`.
    fn events(&self) -> u32;

    /// A call on the file. `cmd` and `arg` are the program's; an unknown `cmd` is `ENOTTY`.
    fn ioctl(&self, cmd: u32, arg: usize) -> Result<isize>;
}

/// Makes a file that keeps `state`, and drops it when it is closed; returns its descriptor, which
/// is closed on exec.
///
/// Context: a task's; sleeps. Errors: `EMFILE`, `ENFILE`, `ENOMEM`.
pub fn create_fd<T: Send + Sync + 'static>(name: &'static CStr, state: KBox<T>) -> Result<u32> {
    // SAFETY: the operations know the type of the private data.
    unsafe { create(name, state, &Fops::<T>::TABLE) }
}

/// As [`create_fd`], with the operations of `T`.
pub fn create_fd_with_ops<T: AnonFile>(name: &'static CStr, state: KBox<T>) -> Result<u32> {
    // SAFETY: as above.
    unsafe { create(name, state, &Fops::<T>::TABLE_WITH_OPS) }
}

/// # Safety
///
/// The operations must take the private data for a `KBox<T>`, and drop it by `release`.
unsafe fn create<T: Send + Sync + 'static>(
    name: &'static CStr,
    state: KBox<T>,
    table: &'static bindings::file_operations,
) -> Result<u32> {
    let private = state.into_foreign();
    // SAFETY: name and operations are static; the operations know the type of `private`.
    let fd = unsafe {
        bindings::anon_inode_getfd(
            name.as_char_ptr(),
            table,
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
        // SAFETY: `create` put it there.
        drop(unsafe { KBox::<T>::from_foreign((*file).private_data) });
        0
    }
}

impl<T: AnonFile> Fops<T> {
    const TABLE_WITH_OPS: bindings::file_operations = bindings::file_operations {
        read_iter: Some(Self::read_iter),
        poll: Some(Self::poll),
        unlocked_ioctl: Some(Self::ioctl),
        #[cfg(CONFIG_COMPAT)]
        compat_ioctl: bindings::compat_ptr_ioctl,
        ..Self::TABLE
    };

    /// # Safety
    ///
    /// `file` must have been made by [`create_fd_with_ops`], and not have been released, for `'a`.
    unsafe fn state<'a>(file: *mut bindings::file) -> &'a T {
        // SAFETY: `create` put it there, and it stays until `release`.
        unsafe { <KBox<T> as ForeignOwnable>::borrow((*file).private_data) }
    }

    /// # Safety
    ///
    /// For the kernel's calls on a file of [`create_fd_with_ops`].
    unsafe extern "C" fn read_iter(
        iocb: *mut bindings::kiocb,
        iter: *mut bindings::iov_iter,
    ) -> isize {
        // SAFETY: both are valid and ours for the call, and the iterator is a destination.
        let (state, nonblock, iter) = unsafe {
            let file = (*iocb).ki_filp;
            let nowait = (*iocb).ki_flags & bindings::IOCB_NOWAIT != 0;
            let nonblock = nowait || (*file).f_flags & bindings::O_NONBLOCK != 0;
            (Self::state(file), nonblock, IovIterDest::from_raw(iter))
        };
        match state.read(iter, nonblock) {
            Ok(n) => isize::try_from(n).unwrap_or(isize::MAX),
            Err(e) => e.to_errno() as isize,
        }
    }

    /// # Safety
    ///
    /// As for [`Self::read_iter`].
    unsafe extern "C" fn poll(
        file: *mut bindings::file,
        wait: *mut bindings::poll_table_struct,
    ) -> bindings::__poll_t {
        // SAFETY: the caller's promise.
        let state = unsafe { Self::state(file) };
        // SAFETY: the queue is as old as the file, and epoll leaves it before the file is released.
        // First on the queue, then look: no wake-up is lost.
        unsafe { bindings::poll_wait(file, state.waits().as_raw(), wait) };
        state.events()
    }

    /// # Safety
    ///
    /// As for [`Self::read_iter`].
    unsafe extern "C" fn ioctl(file: *mut bindings::file, cmd: c_uint, arg: c_ulong) -> c_long {
        // SAFETY: the caller's promise.
        let state = unsafe { Self::state(file) };
        match state.ioctl(cmd, arg) {
            Ok(v) => v as c_long,
            Err(e) => e.to_errno() as c_long,
        }
    }
}
