// SPDX-License-Identifier: GPL-2.0
//! ZRS sockets for programs without libc, by seccomp's notifications.
//!
//! A filter stops each socket(2) for a TCP socket, in the program and all its descendants; this
//! process makes a ZRS socket and puts it into the program as the call's result. No other call is
//! slower, and no rights are needed: without `CAP_SYS_ADMIN`, the program has no_new_privs.
//!
//! [`filter`] is the filter, [`Supervisor`] answers.

pub mod filter;
mod supervisor;
mod sys;

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

pub use supervisor::Supervisor;
pub use sys::Signals;

/// Starts `command` with the filter. Its sockets get the `ZRS_TCP_*` of `mode`. `udp`: its UDP sockets
/// become datagram sockets of ZRS.
///
/// Errors: those of starting it; `ResourceBusy`: this process is below such a filter already.
pub fn start(
    command: &mut Command,
    mode: u32,
    udp: bool,
    signals: &Signals,
) -> io::Result<(Child, Supervisor)> {
    let (ours, theirs) = UnixDatagram::pair()?;
    let filter = filter::socket(udp);
    let (signals, sender) = (signals.before(), theirs.as_raw_fd());
    let install = move || {
        signals.restore()?;
        let listener = sys::install(&filter)?;
        sys::send_fd(sender, &listener)
    };
    // SAFETY: between fork and exec it makes system calls alone, and allocates nothing.
    unsafe { command.pre_exec(install) };
    let child = command.spawn()?;
    let listener = sys::receive_fd(&ours)?;
    Ok((child, Supervisor::new(listener, mode)))
}
