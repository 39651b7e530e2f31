// SPDX-License-Identifier: GPL-2.0
//! `zrs mem broker`: allocates at a node for other hosts, for as long as it runs.

use std::path::PathBuf;

use zrs::mem::NodeId;
use zrs::Zrs;

use super::{admission, node, size, told};
use crate::report::out;
use crate::Result;

/// Allocate regions of a node for other hosts, until interrupted; all of these regions end then, but
/// for kept ones
///
/// Other hosts ask for them by 'zrs mem alloc NODE SIZE --via' and a node of this host. One of --admission
/// and --open is needed; it says which hosts may ask.
#[derive(clap::Args)]
pub struct Args {
    /// The node where regions are allocated
    #[arg(long = "for", value_name = "NODE", value_parser = node)]
    node: NodeId,
    /// Most bytes in such regions, as 512M or 4G
    #[arg(long, value_parser = size)]
    quota: u64,
    /// Hosts that ask must show the 32 hexadecimal digits in this file
    #[arg(
        long,
        value_name = "FILE",
        required_unless_present = "open",
        conflicts_with = "open"
    )]
    admission: Option<PathBuf>,
    /// Every host may ask
    #[arg(long)]
    open: bool,
    /// The node's own admission key, in a file
    #[arg(long, value_name = "FILE")]
    node_admission: Option<PathBuf>,
}

pub fn run(zrs: &Zrs, args: &Args) -> Result<()> {
    let key = args.admission.as_deref().map(admission).transpose()?;
    let theirs = args.node_admission.as_deref().map(admission).transpose()?;
    let made = zrs.mem_broker(args.node, args.quota, key, theirs.unwrap_or_default());
    let _rule = told(made, || {
        format!("cannot be the broker of node {}", args.node)
    })?;
    out(&format!(
        "allocating {} bytes of node {} for others\n",
        args.quota, args.node
    ));
    loop {
        // Until a signal ends the process, and the descriptor with it.
        std::thread::park();
    }
}
