// SPDX-License-Identifier: GPL-2.0
//! Errors as C knows them.

use std::io;

/// The errno for `error`.
pub(crate) fn of(error: &io::Error) -> i32 {
    zrs::os_error(error).unwrap_or(match error.kind() {
        // The module is of another version, or something that is no notification was on the error
        // queue.
        io::ErrorKind::InvalidData => libc::EPROTO,
        io::ErrorKind::OutOfMemory => libc::ENOMEM,
        _ => libc::EIO,
    })
}

/// The error that `errno` says.
pub(crate) fn error(errno: i32) -> io::Error {
    io::Error::from_raw_os_error(errno)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_without_a_number_have_one() {
        assert_eq!(of(&error(libc::ENOBUFS)), libc::ENOBUFS);
        assert_eq!(of(&io::ErrorKind::InvalidData.into()), libc::EPROTO);
        assert_eq!(of(&io::Error::other("anything")), libc::EIO);
    }
}
