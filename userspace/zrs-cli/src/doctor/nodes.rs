// SPDX-License-Identifier: GPL-2.0
//! Memory nodes: the file of the directory, the directory, and the hosts in it.

use std::io;

use zrs::reason;
use zrs_nodes::Nodes;

use super::system::{At, MemNode, System};
use super::Check;

/// Nodes that a line names at most.
const NAMED_MAX: usize = 5;

/// `loaded`: the module answers.
pub fn checks(system: &dyn System, loaded: bool) -> Vec<Check> {
    let file = system
        .read(zrs_nodes::PATH)
        .map(|text| text.parse::<Nodes>());
    let nodes = if loaded { system.nodes() } else { Vec::new() };
    let mut checks = Vec::new();
    match file {
        None => {}
        Some(Err(bad)) => {
            let bad = bad.to_string().replace('\n', "; ");
            let text = format!("{} is refused as a whole: {bad}", zrs_nodes::PATH);
            let remedy = "mend these lines, and load it by: zrs mem nodes load";
            checks.push(Check::failure("nodes file", text, remedy));
        }
        Some(Ok(file)) if loaded => checks.push(in_effect(&file, &nodes)),
        Some(Ok(file)) => checks.push(Check::ok("nodes file", count(file.entries().len()))),
    }
    if !nodes.is_empty() {
        checks.extend(hosts(&nodes));
    }
    checks
}

/// Whether the directory has what the file says.
fn in_effect(file: &Nodes, nodes: &[MemNode]) -> Check {
    let name = "nodes file";
    let known = |entry: &&zrs_nodes::Entry| {
        let same = |n: &&MemNode| n.node == entry.node && n.addr == entry.addr;
        !nodes.iter().any(|n| same(&n))
    };
    let missing = file.entries().iter().filter(known);
    let missing: Vec<_> = missing.map(ToString::to_string).collect();
    if missing.is_empty() {
        return Check::ok(
            name,
            format!("{}, as the directory", count(file.entries().len())),
        );
    }
    Check::warning(
        name,
        format!(
            "the directory has not what {} says: {}",
            zrs_nodes::PATH,
            list(&missing)
        ),
        "load it by: zrs mem nodes load",
    )
}

/// The answers of the hosts.
fn hosts(nodes: &[MemNode]) -> Vec<Check> {
    let (mut lost, mut absent) = (Vec::new(), Vec::new());
    for n in nodes {
        match &n.at {
            At::Served => {}
            At::Absent => absent.push(format!("{} at {}", n.node, n.addr)),
            At::Lost(errno) => {
                let why = reason(&io::Error::from_raw_os_error(*errno));
                lost.push(format!("{} at {}: {why}", n.node, n.addr));
            }
        }
    }
    let mut checks = Vec::new();
    if !lost.is_empty() {
        checks.push(Check::warning(
            "memory hosts",
            format!("hosts of nodes are not reached: {}", list(&lost)),
            "look at the way there by: zrs doctor ADDRESS; an address that is wrong is changed by: zrs mem nodes add",
        ));
    }
    if !absent.is_empty() {
        checks.push(Check::warning(
            "memory nodes",
            format!("their hosts do not serve them: {}", list(&absent)),
            "start zrs mem serve there, or remove the entry by: zrs mem nodes del",
        ));
    }
    if checks.is_empty() {
        let text = format!("{}, all served", count(nodes.len()));
        checks.push(Check::ok("memory nodes", text));
    }
    checks
}

fn count(nodes: usize) -> String {
    match nodes {
        1 => "1 node".into(),
        n => format!("{n} nodes"),
    }
}

fn list(all: &[String]) -> String {
    let named = all
        .iter()
        .take(NAMED_MAX)
        .cloned()
        .collect::<Vec<_>>()
        .join(", ");
    match all.len().saturating_sub(NAMED_MAX) {
        0 => named,
        more => format!("{named}, and {more} more"),
    }
}
