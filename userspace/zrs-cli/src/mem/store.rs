// SPDX-License-Identifier: GPL-2.0
//! The descriptor store of systemd (`FileDescriptorStoreMax=`): a node that outlives its daemon's restart.
//!
//! Descriptors that were stored are open in the new process, from number 3 on; `LISTEN_FDNAMES` has their names.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use rustix::net::{sendmsg, SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

/// The names of the descriptors that were given to this process, which keeps them open.
pub(super) fn names() -> Vec<String> {
    let var = |name| std::env::var(name).unwrap_or_default();
    if var("LISTEN_PID").parse() != Ok(std::process::id()) {
        return Vec::new();
    }
    var("LISTEN_FDNAMES").split(':').map(Into::into).collect()
}

/// Has systemd store a descriptor; nothing where the process has no such service manager.
pub(super) fn keep(name: &str, fd: BorrowedFd<'_>) -> io::Result<()> {
    tell(&format!("FDSTORE=1\nFDNAME={name}"), Some(fd))
}

/// Tells systemd that the service is up.
pub(super) fn ready() -> io::Result<()> {
    tell("READY=1", None)
}

fn tell(what: &str, fd: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let Some(to) = std::env::var_os("NOTIFY_SOCKET") else {
        return Ok(());
    };
    let to = to.to_string_lossy();
    let addr = match to.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(&*to)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&addr)?;
    let fds: Vec<BorrowedFd<'_>> = fd.into_iter().collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut rights = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        rights.push(SendAncillaryMessage::ScmRights(&fds));
    }
    sendmsg(
        socket.as_fd(),
        &[IoSlice::new(what.as_bytes())],
        &mut rights,
        SendFlags::NOSIGNAL,
    )?;
    Ok(())
}
