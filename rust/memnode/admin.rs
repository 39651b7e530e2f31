// SPDX-License-Identifier: GPL-2.0

//! Calls on `/dev/zrs` about memory nodes.

#![deny(unsafe_code)]

use kernel::iov::IovIterDest;
use kernel::prelude::*;
use kernel::sync::atomic::Atomic;
use kernel::sync::Arc;
use kernel::time::{delay::fsleep, Delta};
use kernel::uaccess::{UserPtr, UserSlice};

use super::broker::HostBroker;
use super::cm::{service_port, Listener};
use super::context::{HostRef, Memory};
use super::host::{errno_of, Call, Host};
use super::node::{Offer, Served};
use super::queue::QueueFile;
use super::region::RegionFile;
use super::rw::{ask, ask_ok, wait_for};
use super::side::Life;
use crate::kern::anonfile::{self, AnonFile, POLLPRI};
use crate::kern::errno::EADDRINUSE;
use crate::kern::folios::MemfdPages;
use crate::kern::net::Net;
use crate::kern::regfile;
use crate::kern::sock::reach;
use crate::kern::task;
use crate::kern::wait::WaitQueue;
use crate::proto::addr::{Addr, Ip};
use crate::proto::mem::admission::Admission;
use crate::proto::mem::broker::{Rule, GIVEN};
use crate::proto::mem::id::{Key, NodeId, StorageId};
use crate::proto::mem::node::State as RegionState;
use crate::proto::mem::payload::NODE_DRAINING;
use crate::proto::mem::rights::Rights;
use crate::proto::mem::status::Status;
use crate::proto::mem::wire::{MemHeader, Op, FLAG_KEEP, FLAG_VIA};
use crate::uapi::*;

/// Most bytes of a region that a host may have at a node, in percent, where nothing is said.
const HOST_PERCENT: u32 = 50;

/// How often, and after how long each time, an allocation tries again while pages are being zeroed.
const ZEROING_ATTEMPTS: u32 = 500;
const ZEROING_INTERVAL: Delta = Delta::from_millis(20);

/// How often, and after how long each time, a host tries again to listen.
const LISTEN_ATTEMPTS: u32 = 100;
const LISTEN_INTERVAL: Delta = Delta::from_millis(10);

/// A call on the device. ENOTTY for other calls.
pub(crate) fn ioctl(memory: &Arc<Memory>, cmd: u32, arg: usize) -> Result<isize> {
    match cmd {
        ZRS_IOC_MEM_SERVE => serve(memory, arg),
        ZRS_IOC_MEM_NODES => answer(arg, |n| nodes(memory, n)),
        ZRS_IOC_MEM_ALLOC => alloc(memory, arg),
        ZRS_IOC_MEM_OPEN => open(memory, arg),
        ZRS_IOC_MEM_BROKER => broker(memory, arg),
        ZRS_IOC_MEM_DRAIN => drain(memory, arg),
        ZRS_IOC_MEM_QUEUE => queue(memory, arg),
        ZRS_IOC_MEM_REGION => answer(arg, |r| region(memory, r)),
        ZRS_IOC_MEM_FREE => free(memory, arg),
        ZRS_IOC_MEM_STATS => answer(arg, |s| stats(memory, s)),
        _ => Err(ENOTTY),
    }
}

fn node_of(node: &zrs_mem_node) -> NodeId {
    NodeId {
        domain: node.domain,
        node: node.node,
    }
}

/// The node whose host is the broker.
fn broker_of(flags: u32, via: &zrs_mem_node) -> Result<Option<NodeId>> {
    if flags & ZRS_MEM_VIA == 0 {
        zero(&[u64::from(via.domain), u64::from(via.node)])?;
        return Ok(None);
    }
    Ok(Some(node_of(via)))
}

pub(super) fn key_of(key: &zrs_mem_key) -> Key {
    Key {
        region: key.region,
        gen: key.gen,
        secret: key.secret,
    }
}

fn may_administer() -> Result {
    task::may_administer_net().then_some(()).ok_or(EPERM)
}

/// The descriptor of a node that is served.
struct ServedFile {
    host: HostRef,
    /// The node's place; it is taken until the node has ended, which is after this.
    at: usize,
}

impl AnonFile for ServedFile {
    fn read(&self, _iter: &mut IovIterDest<'_>, _nonblock: bool) -> Result<usize> {
        Err(EINVAL)
    }

    fn waits(&self) -> &WaitQueue {
        &self.host.waits
    }

    /// `POLLPRI` when the node takes no regions and has none.
    fn events(&self) -> u32 {
        let st = &mut *self.host.state.lock();
        let empty = |s: &mut Served| s.node.draining() && s.node.regions() == 0;
        match st.node_at(self.at).is_some_and(empty) {
            true => POLLPRI,
            false => 0,
        }
    }

    fn ioctl(&self, _cmd: u32, _arg: usize) -> Result<isize> {
        Err(ENOTTY)
    }
}

impl Drop for ServedFile {
    fn drop(&mut self) {
        self.host.with(|st| st.unserve(self.at));
    }
}

fn admission_of(flags: u32, key: [u8; 16]) -> Admission {
    match flags & ZRS_MEM_SERVE_OPEN {
        0 => Admission::Key(key),
        _ => Admission::Open,
    }
}

/// Lets peers make memory links to this host. EADDRINUSE: the port has another owner.
fn listen(host: &Arc<Host>) -> Result {
    let mut attempts = 0;
    let listening = loop {
        if host.state.lock().listening.is_some() {
            return Ok(());
        }
        match Listener::start(host) {
            Ok(listening) => break listening,
            // The owner may be another thread, which is about to say so, or the namespace's last
            // host, which is ending.
            Err(e) if e == EADDRINUSE && attempts < LISTEN_ATTEMPTS => {
                attempts += 1;
                fsleep(LISTEN_INTERVAL);
            }
            Err(e) => return Err(e),
        }
        if task::fatal_signal_pending() {
            return Err(EINTR);
        }
    };
    let unused = {
        let st = &mut *host.state.lock();
        match st.listening {
            Some(_) => Some(listening),
            None => {
                st.listening = Some(listening);
                None
            }
        }
    };
    // Dropping it waits for its handlers, which take the lock.
    drop(unused);
    Ok(())
}

fn serve(memory: &Arc<Memory>, arg: usize) -> Result<isize> {
    may_administer()?;
    let s: zrs_ioc_mem_serve = read(arg)?;
    zero(&s.reserved)?;
    zero(&[u64::from(s.reserved0)])?;
    if s.flags & !ZRS_MEM_SERVE_OPEN != 0 || s.host_percent > 100 {
        return Err(EINVAL);
    }
    let net = Net::current();
    let own = memory.own_domain(&net);
    let host = memory.host(&net)?;
    let offer = Offer {
        id: node_of(&s.node).qualified(own),
        admission: admission_of(s.flags, s.admission),
        host_percent: if s.host_percent == 0 {
            HOST_PERCENT
        } else {
            s.host_percent
        },
    };
    // Before its memory is pinned.
    host.state.lock().place_for(offer.id, own)?;
    let id = offer.id;
    let pages = MemfdPages::pin(s.memfd, s.offset, s.len)?;
    let mut served = Some(Served::new(offer, Arc::new(pages, GFP_KERNEL)?)?);
    listen(&host)?;
    let entered = {
        let st = &mut *host.state.lock();
        st.place_for(id, own)
            .map(|at| st.enter_node(at, &mut served))
    };
    // Without a place, its memory is unpinned here, without the lock.
    drop(served);
    let at = entered?;
    host.zero_pages();
    let file = KBox::new(ServedFile { host, at }, GFP_KERNEL)?;
    Ok(anonfile::create_fd_with_ops(c"zrs_node", file)? as isize)
}

/// A node takes no new regions any more, or does again.
fn drain(memory: &Arc<Memory>, arg: usize) -> Result<isize> {
    may_administer()?;
    let d: zrs_ioc_mem_drain = read(arg)?;
    zero(&d.reserved)?;
    zero(&[u64::from(d.reserved0)])?;
    if d.flags & !ZRS_MEM_DRAIN_UNDO != 0 {
        return Err(EINVAL);
    }
    let net = Net::current();
    let own = memory.own_domain(&net);
    let host = memory.host(&net)?;
    host.with(|st| {
        let at = st.place_of(node_of(&d.node).qualified(own), own);
        let served = at.and_then(|at| st.node_at(at)).ok_or(ENXIO)?;
        served.node.set_draining(d.flags & ZRS_MEM_DRAIN_UNDO == 0);
        Ok(0)
    })
}

/// Frees a region of a node that is served here, without a key of it. If the task is killed, the
/// region is still freed, after the call.
fn free(memory: &Arc<Memory>, arg: usize) -> Result<isize> {
    may_administer()?;
    let f: zrs_ioc_mem_free = read(arg)?;
    zero(&f.reserved)?;
    let net = Net::current();
    let own = memory.own_domain(&net);
    let host = memory.host(&net)?;
    let call = Call::new()?;
    host.with(|st| -> Result {
        let at = st.place_of(node_of(&f.node), own).ok_or(ENXIO)?;
        st.free_by_number(at, &call, f.region, f.gen);
        Ok(())
    })?;
    match wait_for(&host, &call)?.h.status {
        Status::Ok => Ok(0),
        status => Err(errno_of(status)),
    }
}

fn nodes(memory: &Arc<Memory>, n: &mut zrs_ioc_mem_nodes) -> Result {
    zero(&[u64::from(n.own_domain)])?;
    let net = Net::current();
    if n.op == ZRS_MEM_NODES_LIST {
        return list_nodes(memory, &net, n);
    }
    zero(&[u64::from(n.state), n.incarnation, n.free])?;
    may_administer()?;
    let node = node_of(&n.node);
    match n.op {
        ZRS_MEM_NODES_SET => {
            let ip = Ip::new(core::net::Ipv6Addr::from(n.addr), n.scope_id);
            memory.set_entry(&net, node, ip)
        }
        ZRS_MEM_NODES_DEL => memory.remove_entry(&net, node),
        ZRS_MEM_NODES_CLEAR => memory.clear_entries(&net, None),
        ZRS_MEM_NODES_SELF => memory.clear_entries(&net, Some(node.domain)),
        _ => Err(EINVAL),
    }
}

/// The cursor is 0, or 1 + a node as one number.
fn list_nodes(memory: &Arc<Memory>, net: &Net, n: &mut zrs_ioc_mem_nodes) -> Result {
    let after = n.cursor.checked_sub(1).map(|at| NodeId {
        domain: (at >> 32) as u32,
        node: at as u32,
    });
    let entry = memory.next_entry(net, after).ok_or(ENOENT)?;
    let node = entry.node;
    let at = (u64::from(node.domain) << 32) | u64::from(node.node);
    let own_domain = memory.own_domain(net);
    let known = match memory.host_if_any(net) {
        Some(host) => host.state.lock().known(node, own_domain, entry.addr),
        None => Err(Status::Unreachable),
    };
    let state = match known {
        Ok(info) if info.state & NODE_DRAINING != 0 => ZRS_MEM_NODE_DRAINING,
        Ok(_) => ZRS_MEM_NODE_SERVED,
        Err(Status::NoNode) => ZRS_MEM_NODE_ABSENT,
        Err(_) => ZRS_MEM_NODE_UNKNOWN,
    };
    *n = zrs_ioc_mem_nodes {
        cursor: at.checked_add(1).ok_or(ENOENT)?,
        node: zrs_mem_node {
            domain: node.domain,
            node: node.node,
        },
        addr: entry.addr.octets(),
        scope_id: entry.addr.scope(),
        own_domain,
        state,
        incarnation: known.map_or(0, |info| info.incarnation),
        free: known.map_or(0, |info| info.free),
        ..Default::default()
    };
    Ok(())
}

/// Whether the task may reach the hosts of `node` and `via`, as its sockets may. EPERM; the errors
/// of [`reach::may_reach`]. Sleeps.
fn may_reach(memory: &Memory, net: &Net, node: NodeId, via: Option<NodeId>) -> Result {
    for node in [Some(node), via].into_iter().flatten() {
        let ip = memory.resolve(net, node);
        if let Some(ip) = ip.filter(|ip| !net.is_own(ip.v6(), ip.scope())) {
            reach::may_reach(Addr::new(ip, service_port()).into())?;
        }
    }
    Ok(())
}

fn alloc(memory: &Arc<Memory>, arg: usize) -> Result<isize> {
    let slice = UserSlice::new(UserPtr::from_addr(arg), size_of::<zrs_ioc_mem_alloc>());
    let (mut reader, mut writer) = slice.reader_writer();
    let mut a: zrs_ioc_mem_alloc = reader.read()?;
    zero(&[a.reserved])?;
    let out = &a.storage;
    zero(&[
        out.va,
        out.len,
        out.key.secret,
        u64::from(out.key.region),
        u64::from(out.key.gen),
    ])?;
    if a.flags & !(ZRS_MEM_KEEP | ZRS_MEM_VIA) != 0
        || a.len == 0
        || a.va.checked_add(a.len).is_none()
    {
        return Err(EINVAL);
    }
    let net = Net::current();
    let host = memory.host(&net)?;
    let node = node_of(&a.node).qualified(memory.own_domain(&net));
    let keep = a.flags & ZRS_MEM_KEEP != 0;
    let via = broker_of(a.flags, &a.via)?.map(|via| via.qualified(memory.own_domain(&net)));
    may_reach(memory, &net, node, via)?;
    let h = MemHeader {
        flags: if keep { FLAG_KEEP } else { 0 } | via.map_or(0, |_| FLAG_VIA),
        addr: a.va,
        bytes: a.len,
        key: Key::decode(a.admission),
        arg: a.ttl_ms,
        node,
        ..MemHeader::ask(0, Op::Alloc)
    };
    let mut attempts = 0;
    let key = loop {
        let answer = ask(&host, via.unwrap_or(node), h, KVec::new())?.h;
        match answer.status {
            Status::Ok => break answer.key2,
            Status::Again if attempts < ZEROING_ATTEMPTS && !task::fatal_signal_pending() => {
                attempts += 1;
                fsleep(ZEROING_INTERVAL);
            }
            status => return Err(errno_of(status)),
        }
    };
    let storage = StorageId {
        va: a.va,
        len: a.len,
        key,
    };
    let kept_host = (*host).clone();
    // From here on, dropping the file frees the region.
    let mut file = RegionFile {
        host,
        node,
        storage,
        via,
        rights: if via.is_some() { GIVEN } else { Rights::ALL },
        owned: true,
        small_gets: Atomic::new(0),
    };
    a.storage = zrs_mem_storage {
        va: a.va,
        len: a.len,
        key: zrs_mem_key {
            region: key.region,
            gen: key.gen,
            secret: key.secret,
        },
    };
    writer.write(&a)?;
    file.owned = !keep;
    let fd = regfile::create_fd(c"zrs_region", file, a.len, O_RDWR | O_CLOEXEC);
    if keep && fd.is_err() {
        // The program does not know that it is there.
        let free = MemHeader {
            key,
            node,
            ..MemHeader::ask(0, Op::Free)
        };
        kept_host.with(|st| st.in_the_background(&kept_host, via.unwrap_or(node), free));
    }
    Ok(fd? as isize)
}

fn open(memory: &Arc<Memory>, arg: usize) -> Result<isize> {
    let o: zrs_ioc_mem_open = read(arg)?;
    zero(&[u64::from(o.reserved)])?;
    if o.flags & !ZRS_MEM_VIA != 0 {
        return Err(EINVAL);
    }
    let net = Net::current();
    let host = memory.host(&net)?;
    let node = node_of(&o.node).qualified(memory.own_domain(&net));
    let storage = StorageId {
        va: o.storage.va,
        len: o.storage.len,
        key: key_of(&o.storage.key),
    };
    if storage.key.gen == 0 || storage.va.checked_add(storage.len).is_none() {
        return Err(EINVAL);
    }
    let via = broker_of(o.flags, &o.via)?.map(|via| via.qualified(memory.own_domain(&net)));
    may_reach(memory, &net, node, via)?;
    let h = MemHeader {
        key: storage.key,
        node,
        ..MemHeader::ask(0, Op::Info)
    };
    let info = ask_ok(&host, node, h, KVec::new())?.h;
    let rights = Rights::from_bits(info.rights).ok_or(EIO)?;
    // A storage id names a part of its region.
    let end = info.addr.checked_add(info.bytes).ok_or(EIO)?;
    if storage.va < info.addr || storage.va + storage.len > end {
        return Err(errno_of(Status::Range));
    }
    let mode = match (
        rights.contains(Rights::READ),
        rights.contains(Rights::WRITE),
    ) {
        (true, false) => O_RDONLY,
        (false, true) => O_WRONLY,
        _ => O_RDWR,
    };
    let file = RegionFile {
        host,
        node,
        via,
        storage,
        rights,
        owned: false,
        small_gets: Atomic::new(0),
    };
    Ok(regfile::create_fd(c"zrs_region", file, storage.len, mode | O_CLOEXEC)? as isize)
}

/// The descriptor of a rule of the broker.
struct RuleFile {
    host: HostRef,
    node: NodeId,
}

impl Drop for RuleFile {
    fn drop(&mut self) {
        self.host.with(|st| st.end_rule(self.node));
    }
}

fn broker(memory: &Arc<Memory>, arg: usize) -> Result<isize> {
    may_administer()?;
    let b: zrs_ioc_mem_broker = read(arg)?;
    zero(&b.reserved)?;
    zero(&[u64::from(b.reserved0)])?;
    if b.flags & !ZRS_MEM_SERVE_OPEN != 0 || b.quota == 0 {
        return Err(EINVAL);
    }
    let net = Net::current();
    let host = memory.host(&net)?;
    let rule = Rule {
        node: node_of(&b.node).qualified(memory.own_domain(&net)),
        quota: b.quota,
        admission: admission_of(b.flags, b.admission),
    };
    listen(&host)?;
    let made = HostBroker::new()?;
    {
        let st = &mut *host.state.lock();
        st.broker.get_or_insert(made);
        st.add_rule(rule, Key::decode(b.node_admission))?;
    }
    let file = RuleFile {
        host,
        node: rule.node,
    };
    let file = KBox::new(file, GFP_KERNEL)?;
    Ok(anonfile::create_fd(c"zrs_mem_broker", file)? as isize)
}

fn queue(memory: &Arc<Memory>, arg: usize) -> Result<isize> {
    let q: zrs_ioc_mem_queue = read(arg)?;
    zero(&[u64::from(q.flags), q.reserved])?;
    if q.entries == 0 || q.entries > ZRS_MEM_QUEUE_MAX {
        return Err(EINVAL);
    }
    let host = memory.host(&Net::current())?;
    let file = KBox::new(QueueFile::new(host, q.entries as usize)?, GFP_KERNEL)?;
    Ok(anonfile::create_fd_with_ops(c"zrs_mem_queue", file)? as isize)
}

fn region(memory: &Arc<Memory>, r: &mut zrs_ioc_mem_region) -> Result {
    may_administer()?;
    zero(&r.reserved)?;
    let host = memory.host(&Net::current())?;
    let st = host.state.lock();
    // The place of the node, and the number of the region within it.
    let (first, from) = ((r.cursor >> 32) as usize, r.cursor as u32);
    let nodes = st.served.iter().enumerate().skip(first);
    let mut listed = nodes.filter_map(|(at, served)| {
        let served = served.as_ref()?;
        let from = if at == first { from } else { 0 };
        Some((at, served, served.node.list_from(from)?))
    });
    let (at, served, listed) = listed.next().ok_or(ENOENT)?;
    let (bytes, free) = served.bytes();
    let id = served.node.id();
    *r = zrs_ioc_mem_region {
        cursor: ((at as u64) << 32) | (u64::from(listed.region) + 1),
        node: zrs_mem_node {
            domain: id.domain,
            node: id.node,
        },
        len: listed.len,
        region: listed.region,
        gen: listed.gen,
        owner: listed.owner,
        state: match listed.state {
            RegionState::Live => ZRS_REGION_LIVE,
            RegionState::Sealing => ZRS_REGION_SEALING,
            RegionState::Sealed => ZRS_REGION_SEALED,
            RegionState::Closing => ZRS_REGION_CLOSING,
        },
        flags: if listed.keep { ZRS_MEM_KEEP } else { 0 },
        holds: listed.holds,
        node_bytes: bytes,
        node_free: free,
        ..Default::default()
    };
    Ok(())
}

/// ZRS_IOC_MEM_STATS: regions, links and grants of now, and the counters.
fn stats(memory: &Memory, s: &mut zrs_ioc_mem_stats) -> Result {
    zero(&s.reserved)?;
    let net = Net::current();
    *s = zrs_ioc_mem_stats::default();
    if let Some(host) = memory.host_if_any(&net) {
        let st = host.state.lock();
        for served in st.served.iter().flatten() {
            let (bytes, free) = served.bytes();
            s.regions += served.node.regions() as u64;
            s.region_bytes += bytes - free;
        }
        for side in st.sides.iter().flatten().filter(|s| s.life == Life::Up) {
            s.links += 1;
            s.grants_given += side.grants.len() as u64;
            s.grants_held += side.cache.len() as u64;
        }
    }
    if let Some(counts) = memory.counts_if_any(&net) {
        s.requests_sent = counts.requests_sent.get();
        s.requests_served = counts.requests_served.get();
        s.requests_refused = counts.requests_refused.get();
        s.program_write_bytes = counts.program_write_bytes.get();
        s.program_read_bytes = counts.program_read_bytes.get();
        s.node_write_bytes = counts.node_write_bytes.get();
        s.node_read_bytes = counts.node_read_bytes.get();
        s.copied_out_bytes = counts.copied_out_bytes.get();
        s.copied_within_bytes = counts.copied_within_bytes.get();
        s.late_revokes = counts.late_revokes.get();
        s.silent_links = counts.silent_links.get();
    }
    Ok(())
}
