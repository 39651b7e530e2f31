// SPDX-License-Identifier: GPL-2.0
//! The kernel's keyrings, as `<linux/keyctl.h>` has them.

use std::ffi::CStr;
use std::io;

use libc::c_long;

/// The keyring of this process, which ends with it.
pub const PROCESS: i32 = -2;
/// The keyring of this user.
pub const USER: i32 = -4;

const KEYCTL_LINK: c_long = 8;

fn serial(ret: c_long) -> io::Result<i32> {
    match i32::try_from(ret) {
        Ok(serial) if serial >= 0 => Ok(serial),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Makes a key of the type "logon", which no program can read, in `keyring`, instead of that of the
/// same description. Returns its number.
pub fn add_logon_key(description: &CStr, secret: &[u8], keyring: i32) -> io::Result<i32> {
    // SAFETY: both texts end with a NUL, the secret has the length given, and all live across the
    // call, which copies them.
    serial(unsafe {
        libc::syscall(
            libc::SYS_add_key,
            c"logon".as_ptr(),
            description.as_ptr(),
            secret.as_ptr(),
            secret.len(),
            keyring,
        )
    })
}

/// Puts a key into another keyring as well, instead of that of the same description there.
pub fn link_key(key: i32, keyring: i32) -> io::Result<()> {
    // SAFETY: numbers only.
    serial(unsafe { libc::syscall(libc::SYS_keyctl, KEYCTL_LINK, key, keyring) }).map(drop)
}
