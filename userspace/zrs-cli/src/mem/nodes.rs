// SPDX-License-Identifier: GPL-2.0
//! `zrs mem nodes`: the directory of this network namespace.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use zrs::mem::{NodeEntry, NodeId};
use zrs::Zrs;
use zrs_nodes::{Nodes, Scope};

use super::{node, told};
use crate::report::out;
use crate::Result;

/// Show or change which host serves which node
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Replace all entries by those of a file
    Load {
        #[arg(default_value = zrs_nodes::PATH)]
        file: PathBuf,
    },
    /// Add a node, or change its address
    Add {
        #[arg(value_parser = node)]
        node: NodeId,
        /// The RDMA address of its host
        addr: IpAddr,
    },
    /// Remove a node
    Del {
        #[arg(value_parser = node)]
        node: NodeId,
    },
    /// Set this host's own domain; the directory is empty afterwards
    #[command(name = "self")]
    Own { domain: u32 },
}

pub fn run(zrs: &Zrs, args: &Args) -> Result<()> {
    match &args.command {
        None => list(zrs),
        Some(Command::Load { file }) => load(zrs, file),
        Some(Command::Add { node, addr }) => add(zrs, *node, *addr, 0),
        Some(Command::Del { node }) => told(zrs.mem_remove_node(*node), || {
            format!("cannot remove node {node}")
        }),
        Some(Command::Own { domain }) => told(zrs.mem_own_domain(*domain), || {
            format!("cannot set the domain {domain}")
        }),
    }
}

fn list(zrs: &Zrs) -> Result<()> {
    for entry in zrs.mem_nodes() {
        let entry = told(entry, || "cannot read the directory".into())?;
        out(&format!("{} {}\n", entry.node, entry.addr));
    }
    Ok(())
}

fn add(zrs: &Zrs, node: NodeId, addr: IpAddr, scope_id: u32) -> Result<()> {
    let entry = NodeEntry {
        node,
        addr,
        scope_id,
    };
    told(zrs.mem_set_node(&entry), || {
        format!("cannot add node {node} at {addr}")
    })
}

fn load(zrs: &Zrs, file: &Path) -> Result<()> {
    let nodes = Nodes::read(file).map_err(|e| e.to_string())?;
    let mut entries = Vec::new();
    for entry in nodes.entries() {
        entries.push((entry.node, entry.addr, scope_of(entry.scope.as_ref())?));
    }
    // All of the file is right: only now is the directory changed.
    told(zrs.mem_clear_nodes(), || {
        "cannot replace the directory".into()
    })?;
    for (node, addr, scope) in entries {
        add(zrs, node, addr, scope)?;
    }
    Ok(())
}

fn scope_of(scope: Option<&Scope>) -> Result<u32> {
    match scope {
        None => Ok(0),
        Some(Scope::Index(n)) => Ok(*n),
        Some(Scope::Name(name)) => {
            let path = format!("/sys/class/net/{name}/ifindex");
            let index = std::fs::read_to_string(path).ok();
            let index = index.and_then(|text| text.trim().parse().ok());
            index.ok_or_else(|| format!("there is no interface '{name}'"))
        }
    }
}
