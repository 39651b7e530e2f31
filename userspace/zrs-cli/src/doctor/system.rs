// SPDX-License-Identifier: GPL-2.0
//! I/O of `zrs doctor`: files, commands, the module. The checks use a [`System`], so that tests can
//! replace the machine by a mock.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs};

use zrs::mem::{Key, Known, NodeEntry, NodeId, Region, RemoteStorage, StorageId};
use zrs::{Cache, LinkState, Pool, Stats, Unfit, Version, Zrs};

pub const ETIMEDOUT: i32 = 110;
const EIO: i32 = 5;

/// The output of a command.
pub struct Output {
    pub success: bool,
    pub stdout: String,
}

/// Answers of `/dev/zrs`.
pub struct Module {
    pub version: Version,
    pub stats: Stats,
    pub pools: Vec<Pool>,
    pub caches: Vec<Cache>,
    /// Empty if the module is too old to tell.
    pub unfit: Vec<Unfit>,
}

/// A node of the directory.
#[derive(Clone, Debug)]
pub struct MemNode {
    pub node: NodeId,
    pub addr: IpAddr,
    pub at: At,
}

/// The answer of its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// It serves the node.
    Served,
    /// It does not.
    Absent,
    /// It was not reached: the errno.
    Lost(i32),
}

/// The result of connecting.
pub struct Attempt {
    pub result: io::Result<()>,
    pub took: Duration,
    /// The state of the link to there, if there is one.
    pub link: Option<LinkState>,
    /// How long connecting took once more, over that link.
    pub again: Option<Duration>,
}

/// A machine, as the checks see it.
pub trait System {
    /// A file's content; None if it is not there or cannot be read.
    fn read(&self, path: &str) -> Option<String>;
    /// The same of a file that is not text.
    fn bytes(&self, path: &str) -> Option<Vec<u8>>;
    /// The names in a directory, sorted; empty if it is not there.
    fn list(&self, path: &str) -> Vec<String>;
    /// Runs a command that changes nothing; None if there is no such program.
    fn run(&self, command: &[&str]) -> Option<Output>;
    /// Opens `/dev/zrs` and asks it.
    fn module(&self) -> io::Result<Module>;
    /// Makes a ZRS socket and closes it.
    fn socket(&self) -> io::Result<()>;
    /// Connects ZRS sockets and closes them.
    fn connect(&self, addr: SocketAddr) -> Attempt;
    /// The nodes of the directory, whose hosts are asked; of some hosts only if there are many.
    fn nodes(&self) -> Vec<MemNode>;
    /// The library of `zrs run`.
    fn preload(&self) -> crate::Result<String>;
    /// Whether the command runs with root's rights.
    fn is_root(&self) -> bool;
}

/// The machine that the command runs on.
pub struct Machine;

impl System for Machine {
    fn read(&self, path: &str) -> Option<String> {
        Some(String::from_utf8_lossy(&self.bytes(path)?).into_owned())
    }

    fn bytes(&self, path: &str) -> Option<Vec<u8>> {
        fs::read(path).ok()
    }

    fn list(&self, path: &str) -> Vec<String> {
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        let names: BTreeSet<_> = entries
            .filter_map(|e| e.file_name().into_string().ok())
            .collect();
        names.into_iter().collect()
    }

    fn run(&self, command: &[&str]) -> Option<Output> {
        let (program, args) = command.split_first()?;
        let path = env::var("PATH").unwrap_or_else(|_| "/usr/bin:/bin".into());
        let output = Command::new(program)
            .args(args)
            // An ordinary user's PATH has no sbin.
            .env("PATH", format!("{path}:/usr/local/sbin:/usr/sbin:/sbin"))
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .output()
            .ok()?;
        Some(Output {
            success: output.status.success(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        })
    }

    fn module(&self) -> io::Result<Module> {
        let zrs = Zrs::open()?;
        Ok(Module {
            version: zrs.version()?,
            stats: zrs.stats()?,
            pools: zrs.pools().collect::<io::Result<_>>()?,
            caches: zrs.caches().collect::<io::Result<_>>()?,
            unfit: zrs.unfit().map_while(Result::ok).collect(),
        })
    }

    fn socket(&self) -> io::Result<()> {
        zrs_socket().map(drop)
    }

    fn connect(&self, addr: SocketAddr) -> Attempt {
        // A link that carries nothing ends with the last socket.
        let _held = zrs_socket();
        let once = || {
            let start = Instant::now();
            let result = zrs::Stream::connect(addr).map(drop);
            (result, start.elapsed())
        };
        let (mut result, mut took) = once();
        // The connection manager repeats a lost request later than a connect waits.
        if result.as_ref().err().and_then(zrs::os_error) == Some(ETIMEDOUT) {
            (result, took) = once();
        }
        let link = link_to(addr);
        let again = (link == Some(LinkState::Up)).then(|| once().1);
        Attempt {
            result,
            took,
            link,
            again,
        }
    }

    fn nodes(&self) -> Vec<MemNode> {
        let mut hosts = BTreeMap::new();
        for (entry, known) in known_nodes() {
            if known == Known::Nothing {
                hosts
                    .entry((entry.addr, entry.scope_id))
                    .or_insert(entry.node);
            }
        }
        // An ask makes the link, whose hosts say there what they serve.
        let asked: Vec<_> = hosts.into_iter().take(HOSTS_MAX).collect();
        let asked: BTreeMap<_, _> = std::thread::scope(|scope| {
            let asked = asked.into_iter();
            let all: Vec<_> = asked
                .map(|(at, node)| (at, scope.spawn(move || ask(node))))
                .collect();
            let joined = all
                .into_iter()
                .map(|(at, one)| (at, one.join().unwrap_or(EIO)));
            joined.collect()
        });
        let node = |(entry, known): (NodeEntry, Known)| {
            let at = match known {
                Known::Served { .. } => At::Served,
                Known::Absent => At::Absent,
                Known::Nothing => At::Lost(*asked.get(&(entry.addr, entry.scope_id))?),
            };
            let NodeEntry { node, addr, .. } = entry;
            Some(MemNode { node, addr, at })
        };
        known_nodes().into_iter().filter_map(node).collect()
    }

    fn preload(&self) -> crate::Result<String> {
        crate::run::library().map(|path| path.display().to_string())
    }

    fn is_root(&self) -> bool {
        rustix::process::geteuid().is_root()
    }
}

/// Hosts of memory nodes that are asked at the same time, and at most.
const HOSTS_MAX: usize = 64;

fn known_nodes() -> Vec<(NodeEntry, Known)> {
    let zrs = Zrs::open().ok();
    zrs.iter()
        .flat_map(|zrs| zrs.mem_known_nodes().map_while(Result::ok))
        .collect()
}

/// Asks the host of a node for a region that does not exist; the errno.
fn ask(node: NodeId) -> i32 {
    let key = Key {
        region: u32::MAX,
        gen: u32::MAX,
        secret: 0,
    };
    let storage = StorageId { va: 0, len: 0, key };
    let asked = Zrs::open().and_then(|zrs| Region::open(&zrs, RemoteStorage { node, storage }));
    asked.err().and_then(|e| zrs::os_error(&e)).unwrap_or(EIO)
}

/// The best state of the links of ours to a host.
fn link_to(addr: SocketAddr) -> Option<LinkState> {
    let zrs = Zrs::open().ok()?;
    let links = zrs.links().map_while(Result::ok);
    links
        .filter(|l| l.remote == addr.ip() && !l.accepted)
        .map(|l| l.state)
        .max_by_key(|s| *s == LinkState::Up)
}

/// An IPv4 stream socket of ZRS.
fn zrs_socket() -> io::Result<std::os::fd::OwnedFd> {
    use rustix::net::{socket_with, AddressFamily, Protocol, SocketFlags, SocketType};
    let protocol = std::num::NonZeroU32::new(zrs::IPPROTO_ZRS).map(Protocol::from_raw);
    let (kind, flags) = (SocketType::STREAM, SocketFlags::CLOEXEC);
    Ok(socket_with(AddressFamily::INET, kind, flags, protocol)?)
}

/// Whether there is such a file or directory.
pub fn exists(system: &dyn System, path: &str) -> bool {
    let path = Path::new(path);
    let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else {
        return false;
    };
    let dir = dir.to_string_lossy();
    system.list(&dir).iter().any(|n| OsStr::new(n) == name)
}

/// A file of one line, as sysfs has them.
pub fn line(system: &dyn System, path: &str) -> Option<String> {
    Some(system.read(path)?.trim().to_string())
}

/// The output of a command that is installed and succeeds.
pub fn output(system: &dyn System, command: &[&str]) -> Option<String> {
    let output = system.run(command)?;
    output.success.then_some(output.stdout)
}
