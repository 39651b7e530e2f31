// SPDX-License-Identifier: GPL-2.0
//! Registrations with epoll of a socket that another one is put in the place of.
//!
//! Some programs (nginx for its upstreams) register a socket before they connect it. The kernel
//! tells what is registered in `/proc/self/fdinfo`, so that `epoll_ctl()` need not be intercepted
//! for the few sockets that are replaced.

use std::ffi::CStr;
use std::mem::zeroed;

use libc::{c_char, c_int, epoll_event};

/// So many are carried over; a socket is rarely in more than one.
const MOST: usize = 8;

/// The epoll registrations of a socket.
pub struct Registered {
    list: [(c_int, epoll_event); MOST],
    len: usize,
}

impl Registered {
    /// Registers `fd` for the same.
    pub fn put(self, fd: c_int) {
        for (epoll, mut event) in self.list.into_iter().take(self.len) {
            // SAFETY: `event` is one.
            unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, fd, &mut event) };
        }
    }
}

/// Finds where `fd` is registered in this process, and takes it out there.
pub fn take(fd: c_int) -> Registered {
    let none = epoll_event { events: 0, u64: 0 };
    let mut found = Registered {
        list: [(-1, none); MOST],
        len: 0,
    };
    // SAFETY: any bytes make one.
    let mut stat: libc::stat = unsafe { zeroed() };
    // SAFETY: `stat` has room.
    if unsafe { libc::fstat(fd, &mut stat) } == 0 {
        each_epoll(|epoll| {
            let event = registration(epoll, fd, stat.st_ino);
            if let (Some(event), Some(room)) = (event, found.list.get_mut(found.len)) {
                *room = (epoll, event);
                found.len += 1;
                let no_event = std::ptr::null_mut();
                // SAFETY: EPOLL_CTL_DEL looks at no event.
                unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_DEL, fd, no_event) };
            }
        });
    }
    found
}

/// Calls `with` for each descriptor of this process that is an epoll instance.
fn each_epoll(mut with: impl FnMut(c_int)) {
    let Some(dir) = open(c"/proc/self/fd", libc::O_DIRECTORY) else {
        return;
    };
    // The kernel aligns the entries; nothing else does.
    let mut entries = [0u64; 256];
    loop {
        let room = size_of_val(&entries);
        // SAFETY: the buffer has `room` bytes.
        let n = unsafe { libc::syscall(libc::SYS_getdents64, dir.0, entries.as_mut_ptr(), room) };
        let Some(n) = usize::try_from(n).ok().filter(|n| *n > 0) else {
            return;
        };
        let mut at = 0;
        while at < n {
            // SAFETY: the kernel has put whole entries into the first `n` bytes; the length and the
            // name of the entry are inside, and the name ends with a zero.
            let (len, name) = unsafe {
                let entry = entries.as_ptr().byte_add(at).cast::<libc::dirent64>();
                let name = (&raw const (*entry).d_name).cast::<c_char>();
                (usize::from((*entry).d_reclen), CStr::from_ptr(name))
            };
            at += len;
            let mut link = [0u8; 32];
            let to = link.as_mut_ptr().cast();
            // SAFETY: `link` has that much room, and the name ends with a zero.
            let n = unsafe { libc::readlinkat(dir.0, name.as_ptr(), to, link.len()) };
            let text = usize::try_from(n).ok().and_then(|n| link.get(..n));
            if text == Some(b"anon_inode:[eventpoll]") {
                with(number(name.to_bytes(), 10) as c_int);
            }
        }
    }
}

/// The events that `fd`, with this inode, is registered for in `epoll`.
fn registration(epoll: c_int, fd: c_int, inode: u64) -> Option<epoll_event> {
    let mut path = *b"/proc/self/fdinfo/\0\0\0\0\0\0\0\0\0\0\0\0";
    let mut digits = [0u8; 10];
    let mut rest = epoll as u32;
    let mut first = digits.len();
    while rest > 0 || first == digits.len() {
        first -= 1;
        digits[first] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    path[18..][..digits.len() - first].copy_from_slice(&digits[first..]);
    let file = open(CStr::from_bytes_until_nul(&path).ok()?, 0)?;

    let mut line = [0u8; 160];
    let mut len = 0;
    let mut text = [0u8; 1024];
    loop {
        // SAFETY: `text` has that much room.
        let n = unsafe { libc::read(file.0, text.as_mut_ptr().cast(), text.len()) };
        let n = usize::try_from(n).ok().filter(|n| *n > 0)?;
        for &byte in &text[..n] {
            if byte != b'\n' {
                if let Some(room) = line.get_mut(len) {
                    *room = byte;
                    len += 1;
                }
                continue;
            }
            if let Some(event) = registered(&line[..len], fd, inode) {
                return Some(event);
            }
            len = 0;
        }
    }
}

/// Parses a line of an epoll instance's fdinfo that is about `fd`:
/// `tfd:        5 events:       19 data:                5  pos:0 ino:1a2b sdev:8`, all but the first in hex.
fn registered(line: &[u8], fd: c_int, inode: u64) -> Option<epoll_event> {
    let mut words = line.split(|b| *b == b' ').filter(|word| !word.is_empty());
    let mut next = || words.next();
    if next()? != b"tfd:" || number(next()?, 10) != fd as u64 || next()? != b"events:" {
        return None;
    }
    let events = number(next()?, 16) as u32;
    if next()? != b"data:" {
        return None;
    }
    let data = number(next()?, 16);
    next()?;
    let about = number(next()?.strip_prefix(b"ino:")?, 16);
    (about == inode).then_some(epoll_event { events, u64: data })
}

/// The digits at the beginning.
fn number(text: &[u8], base: u32) -> u64 {
    text.iter()
        .map_while(|b| char::from(*b).to_digit(base))
        .fold(0u64, |n, digit| {
            n.wrapping_mul(base.into()).wrapping_add(digit.into())
        })
}

/// A file of /proc, closed with its owner.
struct File(c_int);

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: no other code has it.
        unsafe { libc::close(self.0) };
    }
}

fn open(path: &CStr, flags: c_int) -> Option<File> {
    // SAFETY: the path ends with a zero.
    let fd = unsafe { libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC | flags) };
    (fd >= 0).then_some(File(fd))
}
