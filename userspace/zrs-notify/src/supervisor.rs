// SPDX-License-Identifier: GPL-2.0
//! Answers the calls that the filter stops.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use zrs_sys::abi::{IPPROTO_ZRS, ZRS_TCP_AUTO, ZRS_TCP_NEVER};

use crate::sys;

/// The other side of the filter.
pub struct Supervisor {
    listener: OwnedFd,
    mode: u32,
    /// The network namespace of this process, and so of sockets that it makes.
    net: Option<u64>,
    /// The user of this process.
    user: Option<u32>,
}

/// The number of a network namespace.
fn net_of(task: &str) -> Option<u64> {
    fs::metadata(format!("/proc/{task}/ns/net"))
        .ok()
        .map(|meta| meta.ino())
}

/// The user that sockets of a task belong to.
fn user_of(task: &str) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{task}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    // The last of real, effective, saved and file system's.
    line.split_ascii_whitespace().nth(3)?.parse().ok()
}

/// The answer to a call.
enum Answer {
    /// A socket.
    Socket(OwnedFd),
    /// The call goes on unchanged.
    Its,
    /// An errno.
    Errno(i32),
}

impl Supervisor {
    pub(crate) fn new(listener: OwnedFd, mode: u32) -> Self {
        Self {
            listener,
            mode,
            net: net_of("self"),
            user: user_of("self"),
        }
    }

    /// Answers until the last process with the filter has ended. Without it, socket() of those
    /// that are left fails with ENOSYS.
    pub fn run(&self) -> io::Result<()> {
        while let Some(call) = sys::next_call(&self.listener)? {
            let kind = call.args[1] as i32;
            match self.answer(&call) {
                Answer::Its => sys::proceed(&self.listener, call.id),
                Answer::Errno(errno) => sys::fail(&self.listener, call.id, errno),
                Answer::Socket(fd) => {
                    let cloexec = kind & libc::SOCK_CLOEXEC != 0;
                    if let Err(errno) = sys::give(&self.listener, call.id, &fd, cloexec) {
                        // Such as EMFILE: the program has no descriptor left.
                        sys::fail(&self.listener, call.id, errno);
                    }
                }
            }
        }
        Ok(())
    }

    fn answer(&self, call: &sys::Call) -> Answer {
        // A socket has the namespace and the user of the process that makes it.
        let task = call.pid.to_string();
        let (net, user) = (net_of(&task), user_of(&task));
        if call.pid == 0 || net.is_none() || net != self.net || user != self.user {
            return Answer::Its;
        }
        if !sys::is_valid(&self.listener, call.id) {
            // Another process may have its number by now. The answer goes nowhere.
            return Answer::Its;
        }
        let (family, kind) = (call.args[0] as i32, call.args[1] as i32);
        let kind = kind | libc::SOCK_CLOEXEC;
        let fd = match sys::socket(family, kind, IPPROTO_ZRS as i32) {
            Ok(fd) => fd,
            // The module is not there, or has no IPv6.
            Err(libc::EPROTONOSUPPORT | libc::EAFNOSUPPORT | libc::ESOCKTNOSUPPORT) => {
                return Answer::Its;
            }
            // It is being unloaded, for which the kernel has no other errno. Or memory is short, and
            // then the program's own call says so.
            Err(libc::ENOMEM | libc::ENOBUFS) if self.mode == ZRS_TCP_AUTO => return Answer::Its,
            Err(errno) => return Answer::Errno(errno),
        };
        let dgram = kind & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) == libc::SOCK_DGRAM;
        if dgram {
            return match zrs_sys::sock::set_dgram_udp(fd.as_fd()) {
                Ok(()) => Answer::Socket(fd),
                Err(_) => Answer::Its,
            };
        }
        if self.mode != ZRS_TCP_NEVER && zrs_sys::sock::set_tcp(fd.as_fd(), self.mode).is_err() {
            return Answer::Its;
        }
        Answer::Socket(fd)
    }
}
