// SPDX-License-Identifier: GPL-2.0
//! Memory nodes: host A uses node 1:1 of host B and node 1:2 of host C. A region has the bytes of the
//! calls that succeeded, and no others.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use zrs::mem::{self, Alloc, Derive, NodeEntry, NodeId, Queue, Region, RemoteStorage, Rights};
use zrs::Zrs;
use zrs_sys::abi::{zrs_ioc_mem_serve, zrs_mem_node, ZRS_MEM_SERVE_OPEN};
use zrs_sys::Device;

use super::calls::{err, Calls, Outcome, Steps};
use super::errnos;
use super::knobs::{self, Knob};
use super::pair::World;
use crate::support::checks::say;
use crate::support::raw::{self, Errno};

const B: NodeId = NodeId { domain: 1, node: 1 };
const C: NodeId = NodeId { domain: 1, node: 2 };
/// A node that the test itself serves, in host B.
const OWN: NodeId = NodeId { domain: 1, node: 9 };

/// The length of that node.
const NODE_LEN: u64 = 1 << 20;

/// The length of a region.
const LEN: usize = 640 << 10;
/// Up to this length, the bytes go with the request.
const SMALL: usize = 4096;

type Kept<T> = raw::Result<T>;

fn open() -> Outcome<Zrs> {
    Zrs::open().map_err(|e| format!("/dev/zrs: {e}"))
}

fn alloc(zrs: &Zrs, node: NodeId) -> Kept<Region> {
    let request = Alloc {
        node,
        len: LEN as u64,
        ..Default::default()
    };
    Ok(Region::alloc(zrs, &request)?)
}

fn key(region: &Region) -> Kept<RemoteStorage> {
    Ok(region.derive(&Derive {
        rights: Rights::READ,
        range: (0, LEN as u64),
        uses: 0,
        ttl_ms: 0,
    })?)
}

/// Tries again until the link to the node is there again.
fn again<T>(world: &World, what: &str, mut call: impl FnMut() -> Kept<T>) -> Outcome<T> {
    let end = Instant::now() + world.limit();
    loop {
        match call() {
            Ok(result) => return Ok(result),
            Err(e) if Instant::now() > end || !errnos::MEMORY_BROKEN.contains(&e.0) => {
                return Err(err(what)(e));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// A region and its content.
struct Known {
    zrs: Zrs,
    region: Region,
    bytes: Vec<u8>,
    /// Bytes to be written, unlike all before.
    next: Vec<u8>,
    number: u8,
    /// Faults that had struck at posting before the call.
    posts: i64,
    key: Option<RemoteStorage>,
    /// Of copies: where to.
    other: Option<Region>,
    queue: Option<Queue>,
}

fn posts() -> Outcome<i64> {
    knobs::posts().map_err(|e| e.to_string())
}

impl Known {
    /// A new region of `node`, for a program of host A, or B if `own`.
    fn new(world: &World, node: NodeId, own: bool) -> Outcome<Self> {
        match own {
            true => world.enter_b(),
            false => world.enter_a(),
        }
        .map_err(err("setns"))?;
        let zrs = open()?;
        let region = again(world, "alloc", || alloc(&zrs, node))?;
        Ok(Self {
            zrs,
            region,
            bytes: vec![0; LEN],
            next: Vec::new(),
            number: 0,
            posts: posts()?,
            key: None,
            other: None,
            queue: None,
        })
    }

    /// The region of the last round, or a new one; with `len` bytes to be written.
    fn kept(
        world: &World,
        kept: Option<Self>,
        (node, own): (NodeId, bool),
        len: usize,
    ) -> Outcome<Self> {
        let mut known = match kept {
            Some(kept) => kept,
            None => Self::new(world, node, own)?,
        };
        known.number = known.number.wrapping_add(1);
        let number = known.number;
        let byte = |at: usize| (at as u8).wrapping_mul(7).wrapping_add(number);
        known.next = (0..len).map(byte).collect();
        known.posts = posts()?;
        Ok(known)
    }

    /// The region has the bytes that are known; unless a fault at posting has ended the link, when
    /// the first `open` bytes may be old or new.
    fn check(&mut self, world: &World, open: usize) -> Outcome<()> {
        let lost = posts()? != self.posts;
        self.compare(world, open, lost)
    }

    /// The region has the bytes that are known; `lost`: the first `open` bytes may be old or new.
    fn compare(&mut self, world: &World, open: usize, lost: bool) -> Outcome<()> {
        let mut got = vec![0; LEN];
        again(world, "read", || {
            let mut at = 0;
            while at < LEN {
                at += self.region.read_at(&mut got[at..], at as u64)?;
            }
            Ok(())
        })?;
        let may = |at: usize| lost && at < open && got[at] == self.next[at];
        match (0..LEN).find(|&at| got[at] != self.bytes[at] && !may(at)) {
            Some(at) => Err(format!("a wrong byte at {at}")),
            None => {
                self.bytes = got;
                Ok(())
            }
        }
    }

    /// The call has failed: without a lost link nothing of it has had an effect.
    fn failed(&mut self, world: &World, e: Errno, open: usize) -> Outcome<()> {
        if e.0 == libc::ECONNRESET && posts()? == self.posts {
            return Err("ECONNRESET, and no link has ended".into());
        }
        self.check(world, open)
    }

    /// The call has written `n` of the bytes.
    fn written(&mut self, world: &World, n: usize) -> Outcome<()> {
        if n == 0 || n > self.next.len() {
            return Err(format!("{n} bytes of {}", self.next.len()));
        }
        self.bytes[..n].copy_from_slice(&self.next[..n]);
        self.check(world, self.next.len())
    }
}

impl Calls<'_> {
    pub fn memory(&mut self) {
        self.nodes();
        for (where_, own) in [
            ("another host's node", false),
            ("the host's own node", true),
        ] {
            self.regions(where_, own);
            // Beyond 512 KiB in three chunks.
            for len in [100, SMALL, 600_000] {
                self.transfers(where_, own, len);
            }
        }
        self.copies();
        self.queues();
        let total = self.total;
        say(&format!("# {total} points failed in all calls"));
    }

    /// Serving, brokers and the directory, in host B.
    fn nodes(&mut self) {
        let enter = |world: &World, _: Option<Zrs>| {
            world.enter_b().map_err(err("setns"))?;
            open()
        };
        type Node = (Device, File);
        let serve = |(device, memory): &mut Node| -> Kept<OwnedFd> {
            Ok(device.mem_serve(zrs_ioc_mem_serve {
                node: zrs_mem_node {
                    domain: OWN.domain,
                    node: OWN.node,
                },
                memfd: memory.as_raw_fd(),
                flags: ZRS_MEM_SERVE_OPEN,
                len: NODE_LEN,
                ..Default::default()
            })?)
        };
        self.sweep(
            "memory: ZRS_IOC_MEM_SERVE",
            errnos::MEMORY_FD,
            Steps {
                setup: |world: &World, kept: Option<Node>| match kept {
                    Some(kept) => Ok(kept),
                    None => {
                        world.enter_b().map_err(err("setns"))?;
                        let device = Device::open().map_err(|e| e.to_string())?;
                        let memory = zrs_sys::region::memory(c"node", NODE_LEN, false);
                        Ok((device, memory.map_err(|e| e.to_string())?))
                    }
                },
                call: serve,
                after: move |_: &World, mut node: Node, result: Kept<OwnedFd>| {
                    // Whatever has failed, the node is not half there.
                    drop(result);
                    serve(&mut node).map_err(err("once more"))?;
                    Ok(Some(node))
                },
            },
        );
        let broker = |zrs: &mut Zrs| -> Kept<mem::Broking> {
            Ok(zrs.mem_broker(C, 1 << 20, None, [0; 16])?)
        };
        self.sweep(
            "memory: ZRS_IOC_MEM_BROKER",
            errnos::MEMORY_FD,
            Steps {
                setup: enter,
                call: broker,
                after: move |_: &World, mut zrs: Zrs, result: Kept<mem::Broking>| {
                    drop(result);
                    broker(&mut zrs).map_err(err("once more"))?;
                    Ok(Some(zrs))
                },
            },
        );
        self.sweep(
            "memory: ZRS_IOC_MEM_NODES",
            errnos::IOCTL,
            Steps {
                setup: enter,
                call: |zrs: &mut Zrs| -> Kept<()> {
                    Ok(zrs.mem_set_node(&NodeEntry {
                        node: OWN,
                        addr: [10, 77, 0, 9].into(),
                        scope_id: 0,
                    })?)
                },
                after: |_: &World, zrs: Zrs, result: Kept<()>| {
                    let there = zrs.mem_nodes().flatten().any(|e| e.node == OWN);
                    if there != result.is_ok() {
                        return Err(format!("{result:?}, and the entry is there: {there}"));
                    }
                    if there {
                        zrs.mem_remove_node(OWN).map_err(|e| e.to_string())?;
                    }
                    Ok(Some(zrs))
                },
            },
        );
    }

    fn regions(&mut self, where_: &str, own: bool) {
        let place = (B, own);
        self.sweep(
            &format!("memory: alloc, {where_}"),
            errnos::MEMORY_FD,
            Steps {
                setup: |world: &World, kept: Option<(Zrs, i64)>| {
                    let zrs = match kept {
                        Some((zrs, _)) => zrs,
                        None => Known::new(world, B, own)?.zrs,
                    };
                    Ok((zrs, posts()?))
                },
                call: |(zrs, _): &mut (Zrs, i64)| alloc(zrs, B),
                after: |world: &World, kept: (Zrs, i64), result: Kept<Region>| {
                    let reset = result.is_err_and(|e| e.0 == libc::ECONNRESET);
                    if reset && posts()? == kept.1 {
                        return Err("ECONNRESET, and no link has ended".into());
                    }
                    // It works, and the region is zero.
                    let zrs = &kept.0;
                    let mut byte = [1];
                    let region = again(world, "alloc", || alloc(zrs, B))?;
                    again(world, "read", || Ok(region.read_at(&mut byte, 0)?))?;
                    match byte {
                        [0] => Ok(Some(kept)),
                        [other] => Err(format!("a new region has a {other}")),
                    }
                },
            },
        );
        self.sweep(
            &format!("memory: open, {where_}"),
            errnos::MEMORY_FD,
            Steps {
                setup: |world: &World, kept| Known::kept(world, kept, place, 0),
                call: |known: &mut Known| -> Kept<Region> {
                    Ok(Region::open(&known.zrs, known.region.storage())?)
                },
                after: |world: &World, mut known: Known, result: Kept<Region>| {
                    match result {
                        Ok(_) => {}
                        Err(e) => known.failed(world, e, 0)?,
                    }
                    Ok(Some(known))
                },
            },
        );
        self.sweep(
            &format!("memory: ZRS_REGION_KEY, {where_}"),
            errnos::MEMORY,
            Steps {
                setup: |world: &World, kept| Known::kept(world, kept, place, 0),
                call: |known: &mut Known| key(&known.region),
                after: |world: &World, mut known: Known, result: Kept<RemoteStorage>| {
                    match result {
                        Ok(id) => {
                            let opened = || Ok(Region::open(&known.zrs, id)?);
                            again(world, "open by the key", opened)?;
                            known
                                .region
                                .revoke(id.storage.key)
                                .map_err(|e| e.to_string())?;
                        }
                        Err(e) => known.failed(world, e, 0)?,
                    }
                    Ok(Some(known))
                },
            },
        );
        self.sweep(
            &format!("memory: ZRS_REGION_UNKEY, {where_}"),
            errnos::MEMORY,
            Steps {
                setup: |world: &World, kept| {
                    let mut known = Known::kept(world, kept, place, 0)?;
                    if known.key.is_none() {
                        known.key = Some(again(world, "key", || key(&known.region))?);
                    }
                    Ok(known)
                },
                call: |known: &mut Known| -> Kept<()> {
                    let key = known.key.ok_or(Errno(libc::EINVAL))?;
                    Ok(known.region.revoke(key.storage.key)?)
                },
                after: |world: &World, mut known: Known, result: Kept<()>| {
                    match result {
                        Ok(()) => {
                            let id = known.key.take().ok_or("no key")?;
                            let opened = Region::open(&known.zrs, id).map_err(Errno::from);
                            if opened.err() != Some(Errno(libc::ESTALE)) {
                                return Err("a revoked key opens the region".into());
                            }
                        }
                        Err(e) => {
                            // It may have been revoked before the link was lost.
                            if posts()? != known.posts {
                                known.key = None;
                            }
                            known.failed(world, e, 0)?;
                        }
                    }
                    Ok(Some(known))
                },
            },
        );
        // By number: a node of this host alone.
        let ends: &[(&str, bool)] = match own {
            true => &[
                ("REGION_SEAL", false),
                ("REGION_FREE", true),
                ("IOC_MEM_FREE", true),
            ],
            false => &[("REGION_SEAL", false), ("REGION_FREE", true)],
        };
        for &(name, free) in ends {
            self.sweep(
                &format!("memory: ZRS_{name}, {where_}"),
                errnos::MEMORY,
                Steps {
                    setup: |world: &World, kept| Known::kept(world, kept, place, 0),
                    call: |known: &mut Known| -> Kept<()> {
                        let fd = known.region.as_fd();
                        let id = known.region.storage();
                        let key = id.storage.key;
                        let done = match name {
                            "REGION_FREE" => zrs_sys::region::free(fd),
                            "REGION_SEAL" => zrs_sys::region::seal(fd),
                            _ => known.zrs.mem_free(id.node, (key.region, key.gen)),
                        };
                        Ok(done?)
                    },
                    after: |world: &World, mut known: Known, result: Kept<()>| {
                        let gone = if free { libc::ESTALE } else { libc::EROFS };
                        match result {
                            Ok(()) => {
                                let wrote = known.region.write_at(&[1], 0).map_err(Errno::from);
                                if wrote != Err(Errno(gone)) {
                                    return Err(format!("written afterwards: {wrote:?}"));
                                }
                                Ok(None)
                            }
                            // It may have been done before the link was lost.
                            Err(_) if posts()? != known.posts => Ok(None),
                            Err(e) => {
                                known.failed(world, e, 0)?;
                                Ok(Some(known))
                            }
                        }
                    },
                },
            );
        }
    }

    /// pwrite() and pread() of `len` bytes.
    fn transfers(&mut self, where_: &str, own: bool, len: usize) {
        let place = (B, own);
        self.sweep(
            &format!("memory: pwrite() of {len} bytes, {where_}"),
            errnos::MEMORY,
            Steps {
                setup: |world: &World, kept| Known::kept(world, kept, place, len),
                call: |known: &mut Known| -> Kept<usize> {
                    Ok(known.region.write_at(&known.next, 0)?)
                },
                after: |world: &World, mut known: Known, result: Kept<usize>| {
                    match result {
                        Ok(n) => known.written(world, n)?,
                        Err(e) => known.failed(world, e, len)?,
                    }
                    Ok(Some(known))
                },
            },
        );
        self.sweep(
            &format!("memory: pread() of {len} bytes, {where_}"),
            errnos::MEMORY,
            Steps {
                setup: |world: &World, kept: Option<Known>| {
                    let fresh = kept.is_none();
                    let mut known = Known::kept(world, kept, place, len)?;
                    if fresh {
                        again(world, "write", || {
                            let n = known.region.write_at(&known.next, 0)?;
                            if n == len {
                                Ok(())
                            } else {
                                Err(Errno(libc::EIO))
                            }
                        })?;
                        known.bytes[..len].copy_from_slice(&known.next);
                    }
                    // The call's buffer has other bytes.
                    known.next.fill(0xee);
                    Ok(known)
                },
                call: |known: &mut Known| -> Kept<usize> {
                    Ok(known.region.read_at(&mut known.next, 0)?)
                },
                after: |world: &World, mut known: Known, result: Kept<usize>| {
                    match result {
                        Ok(0) => return Err("the end of the region".into()),
                        Ok(n) if known.next[..n] != known.bytes[..n] => {
                            return Err("wrong bytes".into());
                        }
                        Ok(_) => {}
                        Err(e) => known.failed(world, e, 0)?,
                    }
                    Ok(Some(known))
                },
            },
        );
    }

    /// copy_file_range() from node to node, and within one.
    fn copies(&mut self) {
        const COPIED: usize = 300_000;
        for (name, from) in [("between nodes", C), ("within a node", B)] {
            self.sweep(
                &format!("memory: copy_file_range() {name}"),
                errnos::MEMORY,
                Steps {
                    setup: |world: &World, kept| {
                        let mut known = Known::kept(world, kept, (B, false), COPIED)?;
                        if known.other.is_none() {
                            let made = again(world, "alloc", || alloc(&known.zrs, from))?;
                            known.other = Some(made);
                        }
                        let source = known.other.as_ref().ok_or("no source")?;
                        again(world, "write", || Ok(source.write_at(&known.next, 0)?))?;
                        Ok(known)
                    },
                    call: |known: &mut Known| -> Kept<u64> {
                        let source = known.other.as_ref().ok_or(Errno(libc::EINVAL))?;
                        Ok(mem::copy(source, 0, &known.region, 0, COPIED as u64)?)
                    },
                    after: |world: &World, mut known: Known, result: Kept<u64>| {
                        match result {
                            Ok(n) => known.written(world, n as usize)?,
                            // The kernel writes the positions back after the copy.
                            Err(Errno(libc::EFAULT)) => known.compare(world, COPIED, true)?,
                            Err(e) => known.failed(world, e, COPIED)?,
                        }
                        Ok(Some(known))
                    },
                },
            );
        }
    }

    /// A queue, and operations by it.
    fn queues(&mut self) {
        const WRITTEN: usize = 70_000;
        self.sweep(
            "memory: ZRS_IOC_MEM_QUEUE",
            errnos::MEMORY_FD,
            Steps {
                setup: |world: &World, kept| Known::kept(world, kept, (B, false), 0),
                call: |known: &mut Known| -> Kept<Queue> { Ok(Queue::new(&known.zrs, 64)?) },
                after: |_: &World, known, _: Kept<Queue>| Ok(Some(known)),
            },
        );
        self.sweep(
            "memory: ZRS_QUEUE_SUBMIT and the completion",
            errnos::MEMORY,
            Steps {
                setup: |world: &World, kept| {
                    let mut known = Known::kept(world, kept, (B, false), WRITTEN)?;
                    if known.queue.is_none() {
                        known.queue = Some(Queue::new(&known.zrs, 8).map_err(|e| e.to_string())?);
                    }
                    Ok(known)
                },
                call: |known: &mut Known| -> Kept<u64> {
                    let queue = known.queue.as_mut().ok_or(Errno(libc::EINVAL))?;
                    queue.write(known.next.clone(), &known.region, 0);
                    queue.submit()?;
                    // Each submitted operation has a completion; a read that fails takes none.
                    let completed = queue.completion().or_else(|_| queue.completion())?;
                    Ok(completed.result?)
                },
                after: |world: &World, mut known: Known, result: Kept<u64>| {
                    let queue = known.queue.as_ref().ok_or("no queue")?;
                    if queue.under_way() != 0 {
                        return Err(format!("{} operations under way", queue.under_way()));
                    }
                    match result {
                        Ok(n) => known.written(world, n as usize)?,
                        Err(e) => known.failed(world, e, WRITTEN)?,
                    }
                    Ok(Some(known))
                },
            },
        );
    }
}

/// The life of regions at both nodes on new links, while `knob` is armed for its `nth` use. Each call
/// succeeds, or fails with a documented errno and succeeds when it is repeated. Whether the fault
/// struck, and the errors, as "alloc ENOMEM".
pub fn run(world: &World, knob: &Knob, nth: u32) -> Outcome<(bool, Vec<String>)> {
    let io = |e: std::io::Error| e.to_string();
    end_links(world)?;
    world.enter_a().map_err(err("setns"))?;
    let begin = Instant::now();
    knob.arm(nth).map_err(io)?;
    let result = session(world);
    let struck = knob.disarm().map_err(io)?;
    let seen = result?;
    if begin.elapsed() > 8 * world.limit() {
        return Err(format!("took {:?}", begin.elapsed()));
    }
    if !struck && !seen.is_empty() {
        return Err(format!("{seen:?} without a fault"));
    }
    Ok((struck, seen))
}

/// Has each memory link end: a message that cannot be posted ends its link.
fn end_links(world: &World) -> Outcome<()> {
    let io = |e: std::io::Error| e.to_string();
    let points = knobs::points().map_err(io)?;
    let post = points.iter().find(|p| p.name == "fail_post");
    let post = post.ok_or("there is no fail_post")?;
    for (own, node) in [(false, B), (false, C), (true, C)] {
        let known = Known::new(world, node, own)?;
        post.arm(1).map_err(io)?;
        let _ = known.region.info();
        post.disarm().map_err(io)?;
    }
    Ok(())
}

fn session(world: &World) -> Outcome<Vec<String>> {
    let zrs = open()?;
    let mut seen = Vec::new();
    let sent: Vec<u8> = (0..LEN).map(|at| (at as u8).wrapping_mul(11)).collect();
    let end = Instant::now() + 4 * world.limit();
    // One call, until it succeeds.
    let mut call = |what: &str, call: &mut dyn FnMut() -> Kept<()>| -> Outcome<()> {
        while let Err(e) = call() {
            seen.push(format!("{what} {e}"));
            if !errnos::MEMORY_BROKEN.contains(&e.0) {
                return Err(format!("{what}: {e} is not documented"));
            }
            if Instant::now() > end {
                return Err(format!("{what}: still {e}"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    };
    let mut regions = Vec::new();
    for node in [B, C] {
        let mut region = None;
        call("alloc", &mut || {
            region = Some(alloc(&zrs, node)?);
            Ok(())
        })?;
        regions.push(region.ok_or("no region")?);
    }
    let whole = |n: usize, of: usize| {
        if n == of {
            Ok(())
        } else {
            Err(Errno(libc::EIO))
        }
    };
    let (from, to) = (&regions[0], &regions[1]);
    call("write", &mut || whole(from.write_at(&sent[..100], 0)?, 100))?;
    call("write", &mut || whole(from.write_at(&sent, 0)?, LEN))?;
    call("copy", &mut || {
        whole(mem::copy(from, 0, to, 0, LEN as u64)? as usize, LEN)
    })?;
    let mut got = vec![0; LEN];
    call("read", &mut || whole(to.read_at(&mut got, 0)?, LEN))?;
    if got != sent {
        return Err("the copy is not right".into());
    }
    let mut derived = None;
    call("key", &mut || {
        derived = Some(key(to)?);
        Ok(())
    })?;
    let derived = derived.ok_or("no key")?;
    call("open", &mut || {
        let opened = Region::open(&zrs, derived)?;
        whole(opened.read_at(&mut got[..100], 0)?, 100)
    })?;
    call("unkey", &mut || Ok(to.revoke(derived.storage.key)?))?;
    let opened = Region::open(&zrs, derived).map(|opened| opened.read_at(&mut [0], 0));
    if opened.is_ok_and(|read| read.is_ok()) {
        return Err("a revoked key reads".into());
    }
    call("seal", &mut || Ok(zrs_sys::region::seal(to.as_fd())?))?;
    for region in regions {
        // One that was freed when the link was lost is freed.
        call(
            "free",
            &mut || match zrs_sys::region::free(region.as_fd()) {
                Err(e) if e.raw_os_error() == Some(libc::ESTALE) => Ok(()),
                result => Ok(result?),
            },
        )?;
        drop(File::from(OwnedFd::from(region)));
    }
    Ok(seen)
}
