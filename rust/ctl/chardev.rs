// SPDX-License-Identifier: GPL-2.0

//! `/dev/zrs`: requests to the module as a whole. All users may open it; it shows links and sockets
//! in the caller's network namespace only. `figures.rs` has the figures of the machine, and the
//! part of them for other callers than the administrator.

#![deny(unsafe_code)]

use kernel::prelude::*;
use kernel::sync::Arc;
use kernel::uaccess::{UserPtr, UserSlice};

use super::{figures, keys, peers, rules};
use crate::dgram::context::Dgrams;
use crate::dgram::DgramSock;
use crate::ib::device::DeviceName;
use crate::kern::chardev::DeviceOps;
use crate::kern::errno::{EAFNOSUPPORT, ESOCKTNOSUPPORT};
use crate::kern::net::Net;
use crate::kern::sock::family::SocketFamily;
use crate::kern::task;
use crate::memnode::admin;
use crate::memnode::context::Memory;
use crate::params;
use crate::socket::context::Sockets;
use crate::socket::{be32, Sock};
use crate::transport::context::Transport;
use crate::transport::link::{Link, LinkState};
use crate::uapi::*;

/// The device.
pub(crate) struct Control;

/// The contexts that the calls work on.
#[derive(Clone)]
pub(crate) struct Contexts {
    pub(crate) sockets: Arc<Sockets>,
    pub(crate) dgrams: Arc<Dgrams>,
    pub(crate) memory: Arc<Memory>,
}

impl DeviceOps for Control {
    type State = Contexts;

    fn ioctl(contexts: &Contexts, cmd: u32, arg: usize) -> Result<isize> {
        let sockets = &contexts.sockets;
        let transport = &sockets.transport;
        match cmd {
            ZRS_IOC_VERSION => answer(arg, version),
            ZRS_IOC_SOCKET => socket(arg),
            ZRS_IOC_STATS => answer(arg, |s| figures::stats(transport, s)),
            ZRS_IOC_POOL => answer(arg, |p| figures::pool(&transport.pools, p)),
            ZRS_IOC_LINK => answer(arg, |l| link(transport, l)),
            ZRS_IOC_SOCK => answer(arg, |s| sock(sockets, s)),
            ZRS_IOC_DGRAM => answer(arg, |s| dgram(&contexts.dgrams, s)),
            ZRS_IOC_TABLE => answer(arg, |t| figures::table(transport, t)),
            ZRS_IOC_CACHE => answer(arg, |c| figures::cache(&transport.pools, c)),
            ZRS_IOC_RULES => answer(arg, |r| rules::rules(sockets, r)),
            ZRS_IOC_PEERS => answer(arg, |p| peers::peers(contexts, p)),
            ZRS_IOC_KEYS => answer(arg, |k| keys::keys(contexts, k)),
            ZRS_IOC_FALLBACK => answer(arg, |f| figures::fallback(sockets, f)),
            // The groups do not restrict an administrator's calls.
            ZRS_IOC_MEM_ALLOC | ZRS_IOC_MEM_OPEN | ZRS_IOC_MEM_QUEUE
                if !params::may_use(&Net::current()) =>
            {
                Err(EACCES)
            }
            _ => admin::ioctl(&contexts.memory, cmd, arg),
        }
    }
}

fn version(v: &mut zrs_ioc_version) -> Result {
    zero(&[u64::from(v.reserved)])?;
    v.version = ZRS_UAPI_VERSION;
    v.features = ZRS_FEATURES;
    Ok(())
}

fn socket(arg: usize) -> Result<isize> {
    let slice = UserSlice::new(UserPtr::from_addr(arg), size_of::<zrs_ioc_socket>());
    let s: zrs_ioc_socket = slice.reader().read()?;
    zero(&[u64::from(s.reserved)])?;
    // A seccomp filter that forbids a task to make sockets mostly judges socket(), and does not see
    // this call.
    if task::is_filtered() {
        return Err(EPERM);
    }
    // The families and the types that socket() has for ZRS, and no others.
    if s.family != AF_INET && s.family != AF_INET6 {
        return Err(EAFNOSUPPORT);
    }
    let fd = match s.type_ {
        SOCK_STREAM => SocketFamily::<Sock>::create_fd(s.family, s.flags)?,
        SOCK_DGRAM => SocketFamily::<DgramSock>::create_fd(s.family, s.flags)?,
        _ => return Err(ESOCKTNOSUPPORT),
    };
    Ok(fd as isize)
}

pub(super) fn put_name(out: &mut [u8; ZRS_NAME_LEN], name: &DeviceName) {
    for (o, b) in out
        .iter_mut()
        .zip(name.as_bytes().iter().take(ZRS_NAME_LEN - 1))
    {
        *o = *b;
    }
}

fn flags(link: &Link) -> u32 {
    let mut flags = 0;
    if link.accepted {
        flags |= ZRS_LINK_F_ACCEPTED;
    }
    if link.is_keyed() && link.state() == LinkState::Up {
        flags |= ZRS_LINK_F_PROVED;
    }
    flags
}

fn link(transport: &Arc<Transport>, l: &mut zrs_ioc_link) -> Result {
    zero(&[u64::from(l.reserved1)])?;
    let net = Net::current();
    let links = transport.snapshot()?;
    let first = usize::try_from(l.cursor).map_err(|_| ENOENT)?;
    let (index, link) = links
        .iter()
        .enumerate()
        .skip(first)
        .find(|(_, link)| link.net == net)
        .ok_or(ENOENT)?;
    let sending = link.sending();
    let (local, remote) = (link.local_ip(), link.remote_ip());
    *l = zrs_ioc_link {
        cursor: index as u64 + 1,
        local_addr: be32(local),
        remote_addr: be32(remote),
        state: match link.state() {
            LinkState::Connecting => ZRS_LINK_CONNECTING,
            LinkState::Up => ZRS_LINK_UP,
            LinkState::Down => ZRS_LINK_DOWN,
        },
        channels: link.channels() as u32,
        tx_bytes: link.tx_bytes.get(),
        rx_bytes: link.rx_bytes.get(),
        flags: flags(link),
        waiting: sending.waiting,
        bulk: sending.bulk,
        bulk_max: sending.bulk_most,
        waits: link.waits.get(),
        id: link.id,
        dgram_drops: link.dgram_drops(),
        local_addr6: local.octets(),
        remote_addr6: remote.octets(),
        scope_id: local.scope().max(remote.scope()),
        ..Default::default()
    };
    if let Some(name) = link.device_name() {
        put_name(&mut l.device, &name);
    }
    Ok(())
}

fn sock(sockets: &Arc<Sockets>, s: &mut zrs_ioc_sock) -> Result {
    zero(&s.info.reserved)?;
    let net = Net::current();
    let (cursor, info) = sockets.next_socket(&net, s.cursor).ok_or(ENOENT)?;
    s.cursor = cursor;
    s.info = info;
    Ok(())
}

fn dgram(dgrams: &Arc<Dgrams>, s: &mut zrs_ioc_dgram) -> Result {
    zero(&[u64::from(s.info.reserved0)])?;
    zero(&s.info.reserved)?;
    let (cursor, info) = dgrams
        .next_socket(&Net::current(), s.cursor)
        .ok_or(ENOENT)?;
    s.cursor = cursor;
    s.info = info;
    Ok(())
}
