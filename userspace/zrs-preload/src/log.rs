// SPDX-License-Identifier: GPL-2.0
//! One line for each decision, if asked for.

use std::ffi::CString;
use std::fmt::{Arguments, Write};

use libc::c_int;

use crate::config;
use crate::real::{errno, set_errno};

/// Where the lines go.
pub enum To {
    /// The program's stderr.
    Stderr,
    /// The end of this file, which is opened for each line: programs close descriptors that they do
    /// not know.
    File(CString),
}

/// Writes a line. errno stays.
pub fn log(what: Arguments<'_>) {
    let config = config::get();
    write(&config.log, &config.name, what);
}

/// The same while there are no rules yet.
pub fn write(to: &Option<To>, name: &str, what: Arguments<'_>) {
    let Some(to) = to else { return };
    let before = errno();
    // SAFETY: it takes nothing and never fails.
    let pid = unsafe { libc::getpid() };
    let mut line = Line {
        text: [0; 256],
        len: 0,
    };
    // Text that is too long for a line is cut.
    let _ = write!(line, "zrs run: {name}[{pid}]: {what}");
    line.end();
    match to {
        To::Stderr => line.write_to(libc::STDERR_FILENO),
        To::File(path) => {
            let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND | libc::O_CLOEXEC;
            // SAFETY: the path ends with a zero.
            let fd = unsafe { libc::open(path.as_ptr(), flags, 0o666) };
            if fd >= 0 {
                line.write_to(fd);
                // SAFETY: it is ours.
                unsafe { libc::close(fd) };
            }
        }
    }
    set_errno(before);
}

struct Line {
    text: [u8; 256],
    len: usize,
}

impl Line {
    fn end(&mut self) {
        let last = self.len.min(self.text.len() - 1);
        self.text[last] = b'\n';
        self.len = last + 1;
    }

    fn write_to(&self, fd: c_int) {
        // SAFETY: the buffer has that length. A line that cannot be written is lost.
        unsafe { libc::write(fd, self.text.as_ptr().cast(), self.len) };
    }
}

impl Write for Line {
    fn write_str(&mut self, s: &str) -> std::fmt::Result {
        let room = &mut self.text[self.len..];
        let n = room.len().min(s.len());
        room[..n].copy_from_slice(&s.as_bytes()[..n]);
        self.len += n;
        Ok(())
    }
}
