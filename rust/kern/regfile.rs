// SPDX-License-Identifier: GPL-2.0

//! Regular files of a pseudo file system of this module: `pread`, `pwrite`, `lseek`, `splice` and
//! `copy_file_range` work on them, which the files of `anon_inode_getfd` do not take (their inode
//! is of no type).
//!
//! C: `include/linux/fs.h`, `include/linux/pseudo_fs.h`. The file system is mounted while there is
//! a file, so that the module can go when there is none: the superblock holds the module.

use crate::{
    bindings,
    kern::{errno::ESTALE, module::THIS_MODULE},
};
use core::{
    cell::UnsafeCell,
    marker::PhantomData,
    ptr::{null_mut, NonNull},
};
use kernel::{
    error::{from_err_ptr, to_result},
    ffi::{c_int, c_long, c_uint, c_ulong},
    fs::file::{File, FileDescriptorReservation},
    iov::{IovIterDest, IovIterSource},
    prelude::*,
    str::CStr,
    sync::aref::ARef,
    types::ForeignOwnable,
};

/// The object behind a file. All operations may sleep, and several run at the same time.
pub trait RegularFile: Send + Sync + Sized + 'static {
    /// Gives the bytes from `pos` on to `iter`, until that is full; 0 at the end.
    fn read(&self, pos: u64, iter: &mut IovIterDest<'_>) -> Result<usize>;

    /// Takes the bytes of `iter` to `pos`.
    fn write(&self, pos: u64, iter: &mut IovIterSource<'_>) -> Result<usize>;

    /// Begins to read as [`Self::read`] does, for a call that does not wait. Gives `call` back, and
    /// leaves `iter` as it is, where it must be made by [`Self::read`].
    fn begin_read(
        &self,
        pos: u64,
        iter: &mut IovIterDest<'_>,
        call: AsyncCall,
    ) -> Result<(), AsyncCall>;

    /// As [`Self::begin_read`], for a write.
    fn begin_write(
        &self,
        pos: u64,
        iter: &mut IovIterSource<'_>,
        call: AsyncCall,
    ) -> Result<(), AsyncCall>;

    /// Copies `len` bytes at `from_pos` of `from` to `pos`; how many were copied.
    fn copy(from: &Self, from_pos: u64, to: &Self, pos: u64, len: u64) -> Result<usize>;

    /// A call on the file. `cmd` and `arg` are the program's; an unknown `cmd` is `ENOTTY`.
    fn ioctl(&self, cmd: u32, arg: usize) -> Result<isize>;
}

/// A read or write of `io_uring` or libaio, which is completed once. Its file stays open until
/// then.
///
/// # Invariants
///
/// `iocb` has a `ki_complete`, which was not called yet and is called by this alone.
pub struct AsyncCall {
    iocb: NonNull<bindings::kiocb>,
}

// SAFETY: any task may complete a call.
unsafe impl Send for AsyncCall {}

impl AsyncCall {
    /// # Safety
    ///
    /// `iocb` must be valid. If this gives a call, and that is not given to [`Self::forget`], then
    /// the kernel must be told `EIOCBQUEUED`.
    unsafe fn of(iocb: *mut bindings::kiocb) -> Option<Self> {
        // SAFETY: the caller's promise.
        let waits = unsafe { (*iocb).ki_complete.is_none() };
        let iocb = NonNull::new(iocb).filter(|_| !waits)?;
        // INVARIANT: as was checked; the caller leaves it to this.
        Some(Self { iocb })
    }

    /// The call goes on as one that waits.
    fn forget(self) {
        core::mem::forget(self);
    }

    /// Completes the call. Any context.
    pub fn complete(self, result: Result<usize>) {
        self.tell(result);
        core::mem::forget(self);
    }

    fn tell(&self, result: Result<usize>) {
        let iocb = self.iocb.as_ptr();
        let res = count_of(result);
        // SAFETY: by the type invariant; it is valid until `ki_complete` is called, and the callers
        // do nothing with it afterwards.
        unsafe {
            if res > 0 {
                (*iocb).ki_pos += res as bindings::loff_t;
            }
            if let Some(complete) = (*iocb).ki_complete {
                complete(iocb, res as c_long);
            }
        }
    }
}

impl Drop for AsyncCall {
    /// It is dropped where there was no memory to go on.
    fn drop(&mut self) {
        self.tell(Err(ENOMEM));
    }
}

/// The file system, its mount, and how many files need that; the last two are the kernel's to
/// change, under its `pin_fs_lock`.
struct Pseudo {
    fs: UnsafeCell<bindings::file_system_type>,
    mount: UnsafeCell<*mut bindings::vfsmount>,
    count: UnsafeCell<c_int>,
}

// SAFETY: only the kernel changes it, under its own locks.
unsafe impl Sync for Pseudo {}

/// Its name.
const NAME: &CStr = c"zrs_region";

static PSEUDO: Pseudo = Pseudo {
    fs: UnsafeCell::new(bindings::file_system_type {
        name: NAME.to_bytes_with_nul().as_ptr().cast(),
        init_fs_context: Some(init_fs_context),
        kill_sb: Some(bindings::kill_anon_super),
        owner: THIS_MODULE,
        ..pin_init::zeroed()
    }),
    mount: UnsafeCell::new(null_mut()),
    count: UnsafeCell::new(0),
};

/// `statfs` shows it: "ZRSm".
const MAGIC: c_ulong = 0x5a52_536d;

/// # Safety
///
/// Called by the kernel with a valid context.
unsafe extern "C" fn init_fs_context(fc: *mut bindings::fs_context) -> c_int {
    // SAFETY: the kernel's context is valid.
    let made = unsafe { bindings::init_pseudo(fc, MAGIC) };
    if made.is_null() {
        return ENOMEM.to_errno();
    }
    0
}

/// The mounted file system, until it is dropped.
struct Mounted(());

impl Mounted {
    fn new() -> Result<Self> {
        // SAFETY: all three are statics for that call alone.
        to_result(unsafe {
            bindings::simple_pin_fs(PSEUDO.fs.get(), PSEUDO.mount.get(), PSEUDO.count.get())
        })?;
        Ok(Self(()))
    }

    fn mount(&self) -> *mut bindings::vfsmount {
        // SAFETY: while one is pinned the mount stays, and so does the pointer to it.
        unsafe { *PSEUDO.mount.get() }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // SAFETY: `new` has pinned it once.
        unsafe { bindings::simple_release_fs(PSEUDO.mount.get(), PSEUDO.count.get()) };
    }
}

/// The common state of the open files of an inode, behind its `i_private`, which is null when there
/// is none.
/// Each of them has it as its private data.
struct Private<T> {
    state: T,
    /// `O_RDONLY`, `O_WRONLY` or `O_RDWR`: what a descriptor may be open for.
    mode: u32,
    /// How many files are open; under the inode's `i_lock`, as is its `i_private`.
    files: UnsafeCell<usize>,
    _mounted: Mounted,
}

// SAFETY: `files` is used under a lock.
unsafe impl<T: Sync> Sync for Private<T> {}

/// Calls `f` with the `i_lock` of an inode. `f` may not sleep.
///
/// # Safety
///
/// The inode must be valid.
unsafe fn with_i_lock<R>(inode: *mut bindings::inode, f: impl FnOnce() -> R) -> R {
    // SAFETY: the caller's promise.
    unsafe { bindings::spin_lock(&raw mut (*inode).i_lock) };
    let result = f();
    // SAFETY: as above, and it was taken just now.
    unsafe { bindings::spin_unlock(&raw mut (*inode).i_lock) };
    result
}

/// Makes a file of `len` bytes for `state`; returns its descriptor. `flags`: `O_RDONLY`, `O_WRONLY`
/// or `O_RDWR`, and `O_CLOEXEC`. Programs of its owner may open it again by `/proc`, for nothing
/// else than the first descriptor was open for. `state` is dropped with the last open file.
///
/// Context: a task's; sleeps. Errors: `EINVAL` for other flags or a length that no file has,
/// `EMFILE`, `ENFILE`, `ENOMEM`.
pub fn create_fd<T: RegularFile>(
    name: &'static CStr,
    state: T,
    len: u64,
    flags: u32,
) -> Result<u32> {
    let mode = flags & bindings::O_ACCMODE;
    let len = bindings::loff_t::try_from(len).map_err(|_| EINVAL)?;
    if flags & !(bindings::O_ACCMODE | bindings::O_CLOEXEC) != 0 || mode == bindings::O_ACCMODE {
        return Err(EINVAL);
    }
    let mounted = Mounted::new()?;
    let mount = mounted.mount();
    let private = KBox::new(
        Private {
            state,
            mode,
            files: UnsafeCell::new(1),
            _mounted: mounted,
        },
        GFP_KERNEL,
    )?;
    let fd = FileDescriptorReservation::get_unused_fd_flags(flags & bindings::O_CLOEXEC)?;
    // SAFETY: the mount is valid while `private` is there.
    let inode = unsafe { bindings::new_inode((*mount).mnt_sb) };
    if inode.is_null() {
        return Err(ENOMEM);
    }
    // SAFETY: the inode is new and no other thread has it.
    unsafe {
        // Programs tell files by their numbers.
        (*inode).i_ino = bindings::get_next_ino().into();
        let kind = (bindings::S_IFREG | 0o600) as bindings::umode_t;
        let idmap = &raw mut bindings::nop_mnt_idmap;
        bindings::inode_init_owner(idmap, inode, core::ptr::null(), kind);
        (*inode).i_size = len;
        (*inode).i_op = &raw const INODE_OPS;
        (*inode).__bindgen_anon_3.i_fop = Fops::<T>::table();
    }
    // SAFETY: the module is running this code. `fput` gives the reference back.
    unsafe { bindings::__module_get(THIS_MODULE) };
    // SAFETY: inode and mount are valid; name and operations live for ever. If it succeeds the file
    // has the inode.
    let file = unsafe {
        bindings::alloc_file_pseudo(
            inode,
            mount,
            name.as_char_ptr(),
            mode as c_int,
            Fops::<T>::table(),
        )
    };
    let file = from_err_ptr(file).inspect_err(|_| {
        // SAFETY: no file has taken them.
        unsafe {
            bindings::iput(inode);
            bindings::module_put(THIS_MODULE);
        }
    })?;
    let private = private.into_foreign();
    // SAFETY: a new file that no other thread has. The operations know the type of `private`;
    // its one file is this.
    unsafe {
        (*file).f_mode |= bindings::FMODE_POSITIONED | bindings::FMODE_CAN_ODIRECT;
        (*file).private_data = private;
        (*inode).i_private = private;
    }
    let file = NonNull::new(file.cast::<File>()).ok_or(ENOMEM)?;
    // SAFETY: a new file, whose one count is ours; no other thread has it, so its position is not
    // used without a lock. `File` is transparent.
    let file = unsafe { ARef::from_raw(file) };
    let number = fd.reserved_fd();
    fd.fd_install(file);
    Ok(number)
}

/// An open file of [`create_fd`], which stays open while this exists.
///
/// # Invariants
///
/// `file` has the operations of `T`, and a reference of ours.
pub struct OpenFile<T> {
    file: *mut bindings::file,
    _state: PhantomData<T>,
}

impl<T: RegularFile> OpenFile<T> {
    /// The file behind a descriptor of the calling task. `EBADF` if it is none of these.
    pub fn get(fd: i32) -> Result<Self> {
        let fd = u32::try_from(fd).map_err(|_| EBADF)?;
        // SAFETY: takes any number.
        let file = unsafe { bindings::fget(fd) };
        if file.is_null() {
            return Err(EBADF);
        }
        // SAFETY: `fget` has taken a reference; the operations of an open file stay.
        if !core::ptr::eq(unsafe { (*file).f_op }, Fops::<T>::table()) {
            // SAFETY: as above.
            unsafe { bindings::fput(file) };
            return Err(EBADF);
        }
        // INVARIANT: as was checked; the reference is ours.
        Ok(Self {
            file,
            _state: PhantomData,
        })
    }

    fn mode(&self) -> u32 {
        // SAFETY: by the type invariants. `fcntl` leaves these bits as they are.
        unsafe { (*self.file).f_flags & bindings::O_ACCMODE }
    }

    /// Whether it is open for reading.
    pub fn reads(&self) -> bool {
        self.mode() != bindings::O_WRONLY
    }

    /// Whether it is open for writing.
    pub fn writes(&self) -> bool {
        self.mode() != bindings::O_RDONLY
    }
}

impl<T: RegularFile> core::ops::Deref for OpenFile<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: by the type invariants the file is open, and made by `create_fd`.
        unsafe { Fops::<T>::state(self.file) }
    }
}

impl<T> Drop for OpenFile<T> {
    fn drop(&mut self) {
        // SAFETY: the reference is ours. If it is the last one, the file is released later.
        unsafe { bindings::fput(self.file) };
    }
}

/// Operations of the inodes: no attribute can be changed, above all not the size.
static INODE_OPS: bindings::inode_operations = bindings::inode_operations {
    setattr: Some(setattr),
    ..pin_init::zeroed()
};

/// # Safety
///
/// Called by the kernel.
unsafe extern "C" fn setattr(
    _idmap: *mut bindings::mnt_idmap,
    _dentry: *mut bindings::dentry,
    _attr: *mut bindings::iattr,
) -> c_int {
    EINVAL.to_errno()
}

/// The return value of a system call for `result`.
fn count_of(result: Result<usize>) -> isize {
    match result {
        Ok(n) => isize::try_from(n).unwrap_or(isize::MAX),
        Err(e) => e.to_errno() as isize,
    }
}

struct Fops<T>(PhantomData<T>);

impl<T: RegularFile> Fops<T> {
    const TABLE: bindings::file_operations = bindings::file_operations {
        owner: THIS_MODULE,
        llseek: Some(bindings::generic_file_llseek),
        read_iter: Some(Self::read_iter),
        write_iter: Some(Self::write_iter),
        copy_file_range: Some(Self::copy_file_range),
        splice_read: Some(bindings::copy_splice_read),
        splice_write: Some(bindings::iter_file_splice_write),
        fsync: Some(bindings::noop_fsync),
        unlocked_ioctl: Some(Self::ioctl),
        #[cfg(CONFIG_COMPAT)]
        compat_ioctl: bindings::compat_ptr_ioctl,
        open: Some(Self::open),
        release: Some(Self::release),
        ..pin_init::zeroed()
    };

    /// The table, at the same address each time, which tells these files from others.
    #[inline(never)]
    fn table() -> &'static bindings::file_operations {
        &Self::TABLE
    }

    /// # Safety
    ///
    /// `file` must have been made by [`create_fd`] and not have been released, for `'a`.
    unsafe fn state<'a>(file: *mut bindings::file) -> &'a T {
        // SAFETY: `create_fd` or `open` put it there, and it stays until `release`.
        unsafe { &(*(*file).private_data.cast::<Private<T>>()).state }
    }

    /// # Safety
    ///
    /// For the kernel's calls on a file of [`create_fd`].
    unsafe extern "C" fn read_iter(
        iocb: *mut bindings::kiocb,
        iter: *mut bindings::iov_iter,
    ) -> isize {
        // SAFETY: both are valid and ours for the call, and the iterator is a destination.
        let (file, pos, iter) = unsafe {
            let state = Self::state((*iocb).ki_filp);
            (state, (*iocb).ki_pos, IovIterDest::from_raw(iter))
        };
        let Ok(pos) = u64::try_from(pos) else {
            return EINVAL.to_errno() as isize;
        };
        // SAFETY: as above.
        if let Some(call) = unsafe { AsyncCall::of(iocb) } {
            match file.begin_read(pos, iter, call) {
                Ok(()) => return -(bindings::EIOCBQUEUED as isize),
                Err(call) => call.forget(),
            }
        }
        let result = file.read(pos, iter);
        if let Ok(n) = result {
            // SAFETY: as above.
            unsafe { (*iocb).ki_pos += n as bindings::loff_t };
        }
        count_of(result)
    }

    /// # Safety
    ///
    /// As for [`Self::read_iter`].
    unsafe extern "C" fn write_iter(
        iocb: *mut bindings::kiocb,
        iter: *mut bindings::iov_iter,
    ) -> isize {
        // SAFETY: both are valid and ours for the call, and the iterator is a source.
        let (file, pos, append, iter) = unsafe {
            let state = Self::state((*iocb).ki_filp);
            let append = (*iocb).ki_flags & bindings::IOCB_APPEND != 0;
            (state, (*iocb).ki_pos, append, IovIterSource::from_raw(iter))
        };
        if append {
            return EINVAL.to_errno() as isize;
        }
        let Ok(pos) = u64::try_from(pos) else {
            return EINVAL.to_errno() as isize;
        };
        // SAFETY: as above.
        if let Some(call) = unsafe { AsyncCall::of(iocb) } {
            match file.begin_write(pos, iter, call) {
                Ok(()) => return -(bindings::EIOCBQUEUED as isize),
                Err(call) => call.forget(),
            }
        }
        let result = file.write(pos, iter);
        if let Ok(n) = result {
            // SAFETY: as above.
            unsafe { (*iocb).ki_pos += n as bindings::loff_t };
        }
        count_of(result)
    }

    /// # Safety
    ///
    /// For the kernel's calls on two files with these operations.
    unsafe extern "C" fn copy_file_range(
        from: *mut bindings::file,
        from_pos: bindings::loff_t,
        to: *mut bindings::file,
        pos: bindings::loff_t,
        len: usize,
        _flags: c_uint,
    ) -> isize {
        // SAFETY: the kernel calls this for files that both have it.
        let (from, to) = unsafe { (Self::state(from), Self::state(to)) };
        let (Ok(from_pos), Ok(pos)) = (u64::try_from(from_pos), u64::try_from(pos)) else {
            return EINVAL.to_errno() as isize;
        };
        count_of(T::copy(from, from_pos, to, pos, len as u64))
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

    /// Opens the file again. `EACCES` for more than the first descriptor was open for, `ESTALE` if
    /// all its descriptors were closed.
    ///
    /// # Safety
    ///
    /// For the kernel's call on an inode of [`create_fd`], with a new file of it.
    unsafe extern "C" fn open(inode: *mut bindings::inode, file: *mut bindings::file) -> c_int {
        // SAFETY: the inode is valid, and the file is ours for the call. What `i_private` points to
        // stays while the lock is held, and then while the file is counted.
        unsafe {
            let wanted = (*file).f_flags & bindings::O_ACCMODE;
            let opened = with_i_lock(inode, || {
                let private = (*inode).i_private.cast::<Private<T>>();
                if private.is_null() {
                    return Err(ESTALE);
                }
                if (*private).mode != bindings::O_RDWR && (*private).mode != wanted {
                    return Err(EACCES);
                }
                *(*private).files.get() += 1;
                Ok(private)
            });
            match opened {
                Ok(private) => {
                    (*file).f_mode |= bindings::FMODE_CAN_ODIRECT;
                    (*file).private_data = private.cast();
                    0
                }
                Err(e) => e.to_errno(),
            }
        }
    }

    /// # Safety
    ///
    /// As for [`Self::read_iter`], and this must be the last use of `file`.
    unsafe extern "C" fn release(inode: *mut bindings::inode, file: *mut bindings::file) -> c_int {
        // SAFETY: `create_fd` or `open` put it there and counted the file. After the last one
        // no file refers to it any more, and no call borrows it.
        unsafe {
            let private = (*file).private_data;
            let last = with_i_lock(inode, || {
                let files = (*private.cast::<Private<T>>()).files.get();
                *files -= 1;
                if *files == 0 {
                    (*inode).i_private = null_mut();
                }
                *files == 0
            });
            if last {
                drop(KBox::<Private<T>>::from_foreign(private));
            }
        }
        0
    }
}
