// SPDX-License-Identifier: GPL-2.0
//! `zrs mem nodes`: the directory of this network namespace.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{self, Stdio};
use std::time::Duration;

use serde_json::json;
use zrs::mem::{Known, NodeEntry, NodeId};
use zrs::Zrs;
use zrs_nodes::{Entry, Nodes, Scope};

use super::{node, told};
use crate::report::{json_line, out};
use crate::{said, Result};

/// Show or change which host serves which node
///
/// The address is followed by the state of the node: of this host's nodes the current one, of others the one that
/// their host told when the current link was made.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Args {
    /// Print a JSON object for each node
    #[arg(long)]
    json: bool,
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
    /// Run a command again and again, and keep the directory as its output says
    ///
    /// The output is as the file of "load" has it. If the command fails, or says nothing that can be
    /// read, the directory stays as it is.
    Watch {
        /// Time between two runs, in seconds
        #[arg(long, value_name = "S", default_value = "5", value_parser = super::seconds)]
        interval: Duration,
        /// Run it once
        #[arg(long)]
        once: bool,
        #[arg(required = true, last = true, value_name = "CMD")]
        command: Vec<String>,
    },
    /// Set this host's own domain; the directory is empty afterwards
    #[command(name = "self")]
    Own { domain: u32 },
}

pub fn run(zrs: &Zrs, args: &Args) -> Result<()> {
    match &args.command {
        None => list(zrs, args.json),
        Some(Command::Load { file }) => load(zrs, file),
        Some(Command::Add { node, addr }) => add(zrs, *node, *addr, 0),
        Some(Command::Del { node }) => told(zrs.mem_remove_node(*node), || {
            format!("cannot remove node {node}")
        }),
        Some(Command::Watch {
            interval,
            once,
            command,
        }) => watch(zrs, command, *interval, *once),
        Some(Command::Own { domain }) => told(zrs.mem_own_domain(*domain), || {
            format!("cannot set the domain {domain}")
        }),
    }
}

/// The text can be loaded again: what is known is a comment there.
fn list(zrs: &Zrs, as_json: bool) -> Result<()> {
    for entry in zrs.mem_known_nodes() {
        let (entry, known) = told(entry, || "cannot read the directory".into())?;
        let (state, served) = match known {
            Known::Nothing => (None, None),
            Known::Absent => (Some("not served"), None),
            Known::Served {
                draining,
                incarnation,
                free,
            } => {
                let state = if draining { "draining" } else { "served" };
                (Some(state), Some((format!("{incarnation:016x}"), free)))
            }
        };
        if as_json {
            json_line(&json!({
                "node": entry.node.to_string(), "addr": entry.addr, "state": state,
                "incarnation": served.as_ref().map(|s| &s.0), "free": served.as_ref().map(|s| s.1),
            }));
            continue;
        }
        let listed = Entry {
            node: entry.node,
            addr: entry.addr,
            scope: Some(Scope::Index(entry.scope_id)).filter(|_| entry.scope_id != 0),
        };
        let mut line = listed.to_string();
        if let Some(state) = state {
            line += &format!("  # {state}");
        }
        if let Some((incarnation, free)) = served {
            line += &format!(", {free} bytes free, incarnation {incarnation}");
        }
        out(&format!("{line}\n"));
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
    apply(zrs, &nodes).map(drop)
}

/// Makes the directory as `nodes` has it; whether anything had to change. Nodes that stay are there
/// all the time.
fn apply(zrs: &Zrs, nodes: &Nodes) -> Result<bool> {
    let mut wanted = BTreeMap::new();
    for entry in nodes.entries() {
        let at = (entry.addr, scope_of(entry.scope.as_ref())?);
        wanted.insert(entry.node, at);
    }
    // All of the file is right: only now is the directory changed.
    let mut gone = Vec::new();
    for entry in zrs.mem_nodes() {
        let have = told(entry, || "cannot read the directory".into())?;
        match wanted.get(&have.node) {
            Some(at) if *at == (have.addr, have.scope_id) => drop(wanted.remove(&have.node)),
            Some(_) => {}
            None => gone.push(have.node),
        }
    }
    let changed = !gone.is_empty() || !wanted.is_empty();
    for node in gone {
        told(zrs.mem_remove_node(node), || {
            format!("cannot remove node {node}")
        })?;
    }
    for (node, (addr, scope)) in wanted {
        add(zrs, node, addr, scope)?;
    }
    Ok(changed)
}

/// The table that a command says.
fn table(command: &[String]) -> Result<Nodes> {
    let shown = &command[0];
    let mut process = process::Command::new(shown);
    process.args(&command[1..]).stdin(Stdio::null());
    process.stderr(Stdio::inherit());
    let done = said(process.output(), || format!("cannot run '{shown}'"))?;
    if !done.status.success() {
        return Err(format!("'{shown}' failed: {}", done.status));
    }
    let text = String::from_utf8(done.stdout).map_err(|_| format!("'{shown}' says no text"))?;
    let parsed = text.parse::<Nodes>();
    parsed.map_err(|e| format!("the output of '{shown}' is refused: {e}"))
}

fn watch(zrs: &Zrs, command: &[String], interval: Duration, once: bool) -> Result<()> {
    // An error is told when it is another one than last time.
    let mut last = String::new();
    loop {
        match table(command).and_then(|nodes| apply(zrs, &nodes).map(|c| (c, nodes))) {
            Ok((changed, nodes)) => {
                if changed || !last.is_empty() {
                    out(&format!("{} nodes\n", nodes.entries().len()));
                }
                last.clear();
            }
            Err(e) if once => return Err(e),
            Err(e) => {
                if e != last {
                    eprintln!("zrs: {e}; the directory stays as it is");
                }
                last = e;
            }
        }
        if once {
            return Ok(());
        }
        std::thread::sleep(interval);
    }
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
