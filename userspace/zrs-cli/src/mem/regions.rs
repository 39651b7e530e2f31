// SPDX-License-Identifier: GPL-2.0
//! The commands of `zrs mem` that are about regions.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::json;
use zrs::mem::{self, Derive, NodeId, Region, RemoteStorage, Rights};
use zrs::Zrs;

use super::{admission, node, open, seconds, size, storage, told};
use crate::progress::Progress;
use crate::report::{json_line, out, shown};
use crate::{said, Result};

/// Bytes that are read or written at a time.
const PART: usize = 16 << 20;

/// Options of all commands that allocate.
#[derive(clap::Args)]
pub(super) struct Room {
    /// The region ends after this time, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 0)]
    ttl: u32,
    /// The node's admission key, in a file
    #[arg(long, value_name = "FILE")]
    admission: Option<PathBuf>,
    /// Have the host of this node allocate, as the broker; --admission is the broker's then
    #[arg(long, value_name = "NODE", value_parser = node)]
    via: Option<NodeId>,
}

impl Room {
    pub(super) fn alloc(&self, zrs: &Zrs, node: NodeId, len: u64, keep: bool) -> Result<Region> {
        let key = self.admission.as_deref().map(admission).transpose()?;
        let request = mem::Alloc {
            node,
            len,
            keep,
            ttl_ms: self.ttl,
            admission: key.unwrap_or_default(),
            via: self.via,
            ..Default::default()
        };
        told(Region::alloc(zrs, &request), || {
            format!("cannot allocate {len} bytes at node {node}")
        })
    }
}

/// A node, for a new region, or a region.
#[derive(Clone)]
enum Place {
    Node(NodeId),
    Region(RemoteStorage),
}

fn place(text: &str) -> std::result::Result<Place, String> {
    match text.starts_with("zrs:") {
        true => storage(text).map(Place::Region),
        false => node(text).map(Place::Node),
    }
}

/// Lists the regions of the nodes that this host serves
#[derive(clap::Args)]
pub struct Ls {
    /// Only those of this node
    #[arg(value_parser = node)]
    node: Option<NodeId>,
    /// Print a JSON object for each region
    #[arg(long)]
    json: bool,
    /// List them again and again, each S seconds
    #[arg(long, value_name = "S", num_args = 0..=1, default_missing_value = "1", value_parser = seconds)]
    watch: Option<Duration>,
}

impl Ls {
    pub fn run(&self, zrs: &Zrs) -> Result<()> {
        // Home, and clear from there: the list does not flicker.
        let clear = self.watch.is_some() && !self.json && io::stdout().is_terminal();
        loop {
            let text = self.text(zrs)?;
            let read = match clear {
                true => shown(&format!("\x1b[H\x1b[J{text}")),
                false => shown(&text),
            };
            match self.watch {
                Some(time) if read => std::thread::sleep(time),
                _ => return Ok(()),
            }
        }
    }

    /// Whether regions of `node` are listed. A number alone stands for the node in each domain.
    fn lists(&self, node: NodeId) -> bool {
        let same = |n: NodeId| n.node == node.node && (n.domain == 0 || n.domain == node.domain);
        self.node.is_none_or(same)
    }

    fn text(&self, zrs: &Zrs) -> Result<String> {
        let mut text = String::new();
        let mut nodes = BTreeMap::new();
        for region in zrs.mem_regions() {
            let r = told(region, || "cannot list the regions".into())?;
            let (node, bytes, free) = r.node;
            if !self.lists(node) {
                continue;
            }
            let known = nodes.entry((node.domain, node.node));
            known.or_insert((0, node, bytes, free)).0 += 1;
            let state = ["live", "sealing", "sealed", "closing"];
            let state = state.get(r.state as usize).copied().unwrap_or("?");
            let line = if self.json {
                json!({
                    "node": node.to_string(), "region": r.id.0, "gen": r.id.1, "bytes": r.len, "owner": r.owner,
                    "state": state, "keep": r.keep, "holds": r.holds, "node_bytes": bytes, "node_free": free,
                })
                .to_string()
            } else {
                let keep = if r.keep { " kept" } else { "" };
                format!(
                    "{node} {}.{} {} bytes, host {}, {state}{keep}, {} in use",
                    r.id.0, r.id.1, r.len, r.owner, r.holds
                )
            };
            text += &line;
            text.push('\n');
        }
        let watched = self.watch.is_some() && !self.json;
        for (count, node, bytes, free) in nodes.into_values().filter(|_| watched) {
            text += &format!("{node}: {count} regions, {free} of {bytes} bytes free\n");
        }
        Ok(text)
    }
}

/// Allocate a region that stays until it is freed; prints its storage id
#[derive(clap::Args)]
pub struct Alloc {
    #[arg(value_parser = node)]
    node: NodeId,
    #[arg(value_parser = size)]
    size: u64,
    #[command(flatten)]
    room: Room,
}

impl Alloc {
    pub fn run(&self, zrs: &Zrs) -> Result<()> {
        let region = self.room.alloc(zrs, self.node, self.size, true)?;
        out(&format!("{}\n", region.storage()));
        Ok(())
    }
}

/// A region that is to be filled.
struct Target {
    region: Region,
    /// It was allocated for that.
    new: bool,
}

impl Target {
    /// The region at `to`, or a new one of `len` bytes.
    fn of(to: &Place, room: &Room, zrs: &Zrs, len: u64) -> Result<Self> {
        let (region, new) = match to {
            Place::Node(node) => (room.alloc(zrs, *node, len, true)?, true),
            Place::Region(id) => (open(zrs, id)?, false),
        };
        Ok(Self { region, new })
    }

    /// Fills it, and returns its storage id and the result of `fill`. If that fails, a new region,
    /// whose storage id nobody knows, is freed again.
    fn fill<T>(self, fill: impl FnOnce(&Region) -> Result<T>) -> Result<(String, T)> {
        match fill(&self.region) {
            Ok(filled) => Ok((self.region.storage().to_string(), filled)),
            Err(e) => {
                if self.new {
                    let _ = self.region.free();
                }
                Err(e)
            }
        }
    }
}

/// Write a file into a new region of a node, or into a region; prints the storage id
#[derive(clap::Args)]
pub struct Put {
    file: PathBuf,
    #[arg(value_name = "NODE|REGION", value_parser = place)]
    to: Place,
    #[command(flatten)]
    room: Room,
}

impl Put {
    pub fn run(&self, zrs: &Zrs) -> Result<()> {
        let shown = self.file.display();
        let mut file = said(File::open(&self.file), || format!("cannot open {shown}"))?;
        let len = said(file.metadata(), || format!("{shown}"))?.len();
        if len == 0 {
            return Err(format!("{shown} is empty, and no region is"));
        }
        let target = Target::of(&self.to, &self.room, zrs, len)?;
        let (storage, ()) = target.fill(|region| {
            let mut progress = Progress::new(len);
            let mut buf = vec![0; PART.min(len as usize)];
            let mut at = 0;
            while at < len {
                let n = said(file.read(&mut buf), || format!("cannot read {shown}"))?;
                if n == 0 {
                    break;
                }
                told(region.write_all_at(&buf[..n], at), || {
                    "cannot write the region".into()
                })?;
                at += n as u64;
                progress.add(n as u64);
            }
            progress.finish();
            Ok(())
        })?;
        out(&format!("{storage}\n"));
        Ok(())
    }
}

/// Read a region into a file
#[derive(clap::Args)]
pub struct Get {
    #[arg(value_name = "REGION", value_parser = storage)]
    from: RemoteStorage,
    file: PathBuf,
}

impl Get {
    pub fn run(&self, zrs: &Zrs) -> Result<()> {
        let region = open(zrs, &self.from)?;
        let shown = self.file.display();
        let mut file = said(File::create(&self.file), || format!("cannot make {shown}"))?;
        let mut progress = Progress::new(region.len());
        let mut buf = vec![0; PART.min(region.len() as usize)];
        let mut at = 0;
        while at < region.len() {
            let n = told(region.read_at(&mut buf, at), || {
                "cannot read the region".into()
            })?;
            if n == 0 {
                break;
            }
            said(file.write_all(&buf[..n]), || {
                format!("cannot write {shown}")
            })?;
            at += n as u64;
            progress.add(n as u64);
        }
        progress.finish();
        Ok(())
    }
}

/// Copy a region to a new region of a node, or into a region: its node writes, and no byte passes
/// this host; prints the storage id of the copy
#[derive(clap::Args)]
pub struct Cp {
    #[arg(value_name = "REGION", value_parser = storage)]
    from: RemoteStorage,
    #[arg(value_name = "NODE|REGION", value_parser = place)]
    to: Place,
    /// All bytes pass this host
    #[arg(long)]
    relay: bool,
    /// Print a JSON object with "region", "bytes" and "mib_s" instead
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    room: Room,
}

impl Cp {
    pub fn run(&self, zrs: &Zrs) -> Result<()> {
        let from = open(zrs, &self.from)?;
        let len = from.len();
        let target = Target::of(&self.to, &self.room, zrs, len)?;
        let (storage, seconds) = target.fill(|to| {
            let began = Instant::now();
            let copied = match self.relay {
                true => relay(&from, to, len),
                false => copy(&from, to, len),
            };
            let copied = told(copied, || "cannot copy the region".into())?;
            if copied != len {
                return Err(format!(
                    "only {copied} of {len} bytes were copied; repeat it"
                ));
            }
            Ok(began.elapsed().as_secs_f64())
        })?;
        match self.json {
            true => json_line(&json!({
                "region": storage, "bytes": len, "mib_s": len as f64 / f64::from(1 << 20) / seconds,
            })),
            false => out(&format!("{storage}\n")),
        }
        Ok(())
    }
}

/// Copies `len` bytes of a region to another one. What ends a copy in its middle is told by the
/// attempt to go on.
fn copy(from: &Region, to: &Region, len: u64) -> io::Result<u64> {
    let mut done = 0;
    while done < len {
        match mem::copy(from, done, to, done, len - done)? {
            0 => break,
            n => done += n,
        }
    }
    Ok(done)
}

/// Reads `len` bytes of a region and writes them to another one.
pub(super) fn relay(from: &Region, to: &Region, len: u64) -> io::Result<u64> {
    let mut buf = vec![0; PART.min(len as usize)];
    let mut at = 0;
    while at < len {
        let n = from.read_at(&mut buf, at)?;
        if n == 0 {
            break;
        }
        to.write_all_at(&buf[..n], at)?;
        at += n as u64;
    }
    Ok(at)
}

/// Derive a key: prints the storage id to hand on
#[derive(clap::Args)]
pub struct Key {
    #[arg(value_name = "REGION", value_parser = storage)]
    from: RemoteStorage,
    /// r: read, w: write, g: derive and revoke keys and seal, f: free
    #[arg(long, value_parser = rights)]
    rights: Rights,
    /// How many operations may begin with it
    #[arg(long, default_value_t = 0)]
    uses: u32,
    /// The key ends after this time, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 0)]
    ttl: u32,
    /// Only from this byte of the region on
    #[arg(long, default_value_t = 0)]
    offset: u64,
    /// Length of the part in bytes
    #[arg(long, value_parser = size)]
    length: Option<u64>,
}

fn rights(text: &str) -> std::result::Result<Rights, String> {
    let one = |c| match c {
        'r' => Ok(Rights::READ),
        'w' => Ok(Rights::WRITE),
        'g' => Ok(Rights::GRANT),
        'f' => Ok(Rights::FREE),
        _ => Err(format!("'{c}' is no right: write r, w, g or f")),
    };
    text.chars()
        .try_fold(Rights::NONE, |all, c| Ok(all | one(c)?))
}

impl Key {
    pub fn run(&self, zrs: &Zrs) -> Result<()> {
        let region = open(zrs, &self.from)?;
        let left = region.len().saturating_sub(self.offset);
        let wanted = Derive {
            rights: self.rights,
            range: (self.offset, self.length.unwrap_or(left)),
            uses: self.uses,
            ttl_ms: self.ttl,
        };
        let key = told(region.derive(&wanted), || "cannot derive a key".into())?;
        out(&format!("{key}\n"));
        Ok(())
    }
}

/// Revoke a key and those derived from it; nothing that they let in lands afterwards
#[derive(clap::Args)]
pub struct Unkey {
    #[arg(value_name = "REGION", value_parser = storage)]
    by: RemoteStorage,
    /// The storage id with the key to revoke
    #[arg(value_name = "KEY", value_parser = storage)]
    key: RemoteStorage,
}

impl Unkey {
    pub fn run(&self, zrs: &Zrs) -> Result<()> {
        let region = open(zrs, &self.by)?;
        told(region.revoke(self.key.storage.key), || {
            "cannot revoke the key".into()
        })
    }
}

/// Let nothing write a region any more; nothing lands afterwards
#[derive(clap::Args)]
pub struct Seal {
    #[arg(value_name = "REGION", value_parser = storage)]
    region: RemoteStorage,
}

impl Seal {
    pub fn run(&self, zrs: &Zrs) -> Result<()> {
        let region = open(zrs, &self.region)?;
        told(region.seal(), || "cannot seal the region".into())
    }
}

/// Free a region; nothing lands in it afterwards
///
/// The administrator of a node's host frees a region without its storage id: by --node, and --region as
/// "zrs mem ls" lists it.
#[derive(clap::Args)]
pub struct Free {
    #[arg(value_name = "REGION", value_parser = storage, required_unless_present = "node")]
    region: Option<RemoteStorage>,
    /// The broker's node, if a broker has allocated it
    #[arg(long, value_name = "NODE", value_parser = node)]
    via: Option<NodeId>,
    /// The node of this host that the region is of
    #[arg(long, value_name = "NODE", value_parser = node, requires = "number", conflicts_with_all = ["region", "via"])]
    node: Option<NodeId>,
    /// The region, as "zrs mem ls" lists it: number and generation, as 3.1789
    #[arg(long = "region", value_name = "N.GEN", value_parser = number, requires = "node")]
    number: Option<(u32, u32)>,
}

fn number(text: &str) -> std::result::Result<(u32, u32), String> {
    let parts = text.split_once('.');
    let parsed = parts.and_then(|(n, gen)| Some((n.parse().ok()?, gen.parse().ok()?)));
    parsed.ok_or_else(|| {
        format!(
            "'{text}' is not a region's number and generation, as 3.1789: 'zrs mem ls' lists them"
        )
    })
}

impl Free {
    pub fn run(&self, zrs: &Zrs) -> Result<()> {
        if let (Some(node), Some((number, gen))) = (self.node, self.number) {
            return match zrs.mem_free(node, (number, gen)) {
                Err(e) if zrs::os_error(&e) == Some(116) => Err(format!(
                    "node {node} has no region {number}.{gen}: see 'zrs mem ls'"
                )),
                done => told(done, || {
                    format!("cannot free region {number}.{gen} of node {node}")
                }),
            };
        }
        let Some(storage) = self.region else {
            return Err("which region? Give its storage id, or --node and --region".into());
        };
        let region = told(Region::open_via(zrs, storage, self.via), || {
            format!("cannot open the region at node {}", storage.node)
        })?;
        told(region.free(), || "cannot free the region".into())
    }
}
