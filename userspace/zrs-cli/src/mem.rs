// SPDX-License-Identifier: GPL-2.0
//! `zrs mem`: memory nodes and their regions.

mod bench;
mod broker;
mod mount;
mod nodes;
mod regions;
mod serve;
mod store;

use std::io;

use zrs::mem::Admission;
use zrs::Zrs;

use crate::Result;

/// Serve memory to other hosts, and use theirs
///
/// A node is named by its domain and number, as 1:2, or by its number alone in the host's own domain.
/// A region is named by its storage id, as zrs:1:2/..., which is a secret: any holder may do all that its
/// key allows.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    Serve(serve::Args),
    Broker(broker::Args),
    Nodes(nodes::Args),
    Drain(serve::Drain),
    Ls(regions::Ls),
    Alloc(regions::Alloc),
    Put(regions::Put),
    Get(regions::Get),
    Cp(regions::Cp),
    Key(regions::Key),
    Unkey(regions::Unkey),
    Seal(regions::Seal),
    Free(regions::Free),
    Mount(mount::Args),
    Bench(bench::Args),
}

pub fn run(args: &Args) -> Result<()> {
    let zrs = crate::show::open()?;
    match &args.command {
        Command::Serve(a) => serve::run(&zrs, a),
        Command::Broker(a) => broker::run(&zrs, a),
        Command::Nodes(a) => nodes::run(&zrs, a),
        Command::Drain(a) => a.run(&zrs),
        Command::Ls(a) => a.run(&zrs),
        Command::Alloc(a) => a.run(&zrs),
        Command::Put(a) => a.run(&zrs),
        Command::Get(a) => a.run(&zrs),
        Command::Cp(a) => a.run(&zrs),
        Command::Key(a) => a.run(&zrs),
        Command::Unkey(a) => a.run(&zrs),
        Command::Seal(a) => a.run(&zrs),
        Command::Free(a) => a.run(&zrs),
        Command::Mount(a) => mount::run(zrs, a),
        Command::Bench(a) => bench::run(&zrs, a),
    }
}

/// A number of bytes, with K, M, G or T behind it for powers of 1024.
fn size(text: &str) -> std::result::Result<u64, String> {
    let wrong = || format!("'{text}' is not a number of bytes, as 4096, 64M or 8G");
    let (digits, shift) = match text.chars().last().map(|c| c.to_ascii_uppercase()) {
        Some('K') => (&text[..text.len() - 1], 10),
        Some('M') => (&text[..text.len() - 1], 20),
        Some('G') => (&text[..text.len() - 1], 30),
        Some('T') => (&text[..text.len() - 1], 40),
        _ => (text, 0),
    };
    let n: u64 = digits.parse().map_err(|_| wrong())?;
    let bytes = n.checked_shl(shift).filter(|b| b >> shift == n);
    bytes.filter(|b| *b != 0).ok_or_else(wrong)
}

fn node(text: &str) -> std::result::Result<zrs::mem::NodeId, String> {
    let parsed = text.parse();
    parsed.map_err(|_| format!("'{text}' is not a node: write DOMAIN:NUMBER, as 1:2, or NUMBER"))
}

fn storage(text: &str) -> std::result::Result<zrs::mem::RemoteStorage, String> {
    let parsed = text.parse();
    parsed.map_err(|_| "not a storage id: 'zrs mem alloc' and 'zrs mem put' print them".into())
}

/// An admission key from the first 32 hexadecimal digits of a file.
fn admission(path: &std::path::Path) -> Result<Admission> {
    let shown = path.display();
    let text = crate::said(std::fs::read_to_string(path), || format!("{shown}"))?;
    let wrong = || {
        format!("{shown}: an admission key is 32 hexadecimal digits; make one by 'openssl rand -hex 16'")
    };
    let digits = text.trim();
    if digits.len() != 32 || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(wrong());
    }
    let mut key = Admission::default();
    for (i, byte) in key.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digits[2 * i..2 * i + 2], 16).map_err(|_| wrong())?;
    }
    Ok(key)
}

/// The remedy for an error of a memory node.
fn remedy(e: &io::Error) -> &'static str {
    match zrs::os_error(e) {
        Some(6) => "; no host serves this node: see 'zrs mem nodes'",
        Some(9) => "; the key of this storage id does not allow this",
        Some(13) => "; the key is not of this region, does not allow this, the node wants an admission key (--admission FILE), \
                     or a list of peers or a key allows no link (zrs peers, zrs key list --counts)",
        Some(116) => "; the region was freed, or its key revoked, expired or used up: ask its owner for another storage id",
        Some(30) => "; the region is sealed",
        Some(28) => "; the node has no room for this, or the region ends before: see 'zrs mem ls' on its host",
        Some(122) => "; this host has its share of the node's memory: free regions, or serve with --host-percent",
        Some(34) => "; the storage id reaches beyond its region",
        Some(111) => "; the node's host serves no memory: 'zrs mem serve' there",
        Some(113) => "; the node's host cannot be reached: see 'zrs doctor'",
        Some(11) => "; the node is busy with other copies: repeat it later",
        Some(108) => "; the node takes no new regions: it is being drained or given up, or the module unloaded",
        Some(19) => "; no RDMA device reaches the node's host, or only one of iWARP, which has no memory links: see 'zrs doctor'",
        Some(5) => "; memory could not be read or written: see the kernel's log on both hosts",
        Some(104) => "; the link to the node was lost: repeat it, the result is the same",
        Some(1) => "; this needs CAP_NET_ADMIN (run it as root), or a BPF program of the control group forbids it",
        Some(17) => "; this host is the broker of the node already",
        Some(16) => "; this host serves that node already: see 'zrs mem ls'",
        Some(12) => "; there is no memory for it, here or at the node: repeat it later; to serve, choose a smaller --size or set \
                     /proc/sys/vm/nr_hugepages",
        Some(22) => "; the request contradicts itself, or its ranges overlap: see zrs-mem(8)",
        Some(95) => "; the node's device cannot do this: see the kernel's log on its host",
        Some(98) => "; another program has the service port of memory nodes: see 'zrs set'",
        Some(125) => "; it was canceled: repeat it",
        Some(25) => "; the zrs module that is loaded is older than this command",
        _ => "",
    }
}

/// A time between two looks, as 0.5.
fn seconds(text: &str) -> std::result::Result<std::time::Duration, String> {
    let time = text.parse().ok().filter(|s| *s >= 0.1 && *s <= 86400.0);
    let time = time.map(std::time::Duration::from_secs_f64);
    time.ok_or_else(|| format!("'{text}' is not a number of seconds from 0.1 to 86400"))
}

/// `result`'s error as "WHAT: reason; remedy".
fn told<T>(result: io::Result<T>, what: impl FnOnce() -> String) -> Result<T> {
    result.map_err(|e| format!("{}: {}{}", what(), zrs::reason(&e), remedy(&e)))
}

/// A region by its storage id.
fn open(zrs: &Zrs, id: &zrs::mem::RemoteStorage) -> Result<zrs::mem::Region> {
    told(zrs::mem::Region::open(zrs, *id), || {
        format!("cannot open the region at node {}", id.node)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_of_a_node_has_a_remedy() {
        // Those of the statuses (`rust/proto/mem/status.rs`), but ENOENT, which only a cancel gets.
        for errno in [
            13, 116, 30, 34, 6, 113, 111, 28, 122, 11, 104, 12, 5, 22, 108, 125, 19, 95,
        ] {
            let e = io::Error::from_raw_os_error(errno);
            assert!(remedy(&e).starts_with("; "), "{e}");
        }
    }

    #[test]
    fn sizes() {
        assert_eq!(size("4096"), Ok(4096));
        assert_eq!(size("3K"), Ok(3072));
        assert_eq!(size("8g"), Ok(8 << 30));
        for bad in ["", "0", "K", "-1", "1.5G", "99999999999T"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }
}
