// SPDX-License-Identifier: GPL-2.0
//! `zrs mem serve`: gives memory to a node for as long as it runs.

use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::Duration;

use sha2::{Digest, Sha256};
use zrs::mem::{Admission, NodeId};
use zrs::Zrs;

use super::{admission, node, size, store, told};
use crate::report::out;
use crate::{said, Result};

/// Serve memory as a node, until interrupted; all of its regions end then
///
/// One of --admission and --open is needed; it says which hosts may allocate. A service with a
/// descriptor store (systemd's FileDescriptorStoreMax=) keeps the node and its regions when it is
/// started again.
#[derive(clap::Args)]
pub struct Args {
    /// The node's id
    #[arg(long, value_parser = node)]
    node: NodeId,
    /// How much memory, as 512M or 8G
    #[arg(long, value_parser = size)]
    size: u64,
    /// Of huge pages of 2 MiB
    #[arg(long)]
    huge: bool,
    /// Hosts that allocate must show the 32 hexadecimal digits in this file
    #[arg(
        long,
        value_name = "FILE",
        required_unless_present = "open",
        conflicts_with = "open"
    )]
    admission: Option<PathBuf>,
    /// Every host may allocate
    #[arg(long)]
    open: bool,
    /// Maximum share of the memory for each other host
    #[arg(long, value_name = "PERCENT", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100))]
    host_percent: u32,
}

/// What the names of stored nodes begin with.
const NAME: &str = "zrs-node-";

/// The name of a node in the descriptor store. A node of other options has another one.
fn stored_name(args: &Args, key: Option<&Admission>) -> String {
    let id = args.node;
    let mut options = Sha256::new();
    options.update([args.huge.into(), args.host_percent as u8]);
    options.update(key.map_or(&[][..], |key| &key[..]));
    let digest: [u8; 32] = options.finalize().into();
    let (tag, _) = digest.split_at(8);
    let tag = tag.iter().fold(0, |tag, b| (tag << 8) | u64::from(*b));
    format!("{NAME}{}-{}-{}-{tag:016x}", id.domain, id.node, args.size)
}

pub fn run(zrs: &Zrs, args: &Args) -> Result<()> {
    let id = args.node;
    let key = args.admission.as_deref().map(admission).transpose()?;
    let name = stored_name(args, key.as_ref());
    let names = store::names();
    let stored = names.contains(&name);
    let others = |n: &&String| n.starts_with(NAME) && **n != name;
    if let Some(other) = names.iter().find(others) {
        return Err(format!(
            "the service manager has {other}, a node of other options: stop the service, which ends \
             the regions there, and start it again"
        ));
    }
    let _serving = match stored {
        // Its descriptor is open in this process.
        true => None,
        false => {
            let served = zrs.mem_serve(id, args.size, args.huge, key, args.host_percent);
            let serving = told(served, || format!("cannot serve node {id}"))?;
            let kept = store::keep(&name, serving.as_fd());
            said(kept, || "cannot tell the service manager".into())?;
            Some(serving)
        }
    };
    let again = if stored { " again" } else { "" };
    out(&format!(
        "serving node {id} with {} bytes{again}\n",
        args.size
    ));
    said(store::ready(), || "cannot tell the service manager".into())?;
    loop {
        // Until a signal ends the process, and the descriptor with it.
        std::thread::park();
    }
}

/// Let a node of this host take no new regions; existing regions stay
#[derive(clap::Args)]
pub struct Drain {
    #[arg(value_parser = node)]
    node: NodeId,
    /// Let it take regions again
    #[arg(long)]
    undo: bool,
    /// Wait until it has no region
    #[arg(long, conflicts_with = "undo")]
    wait: bool,
}

impl Drain {
    pub(super) fn run(&self, zrs: &Zrs) -> Result<()> {
        let drained = zrs.mem_drain(self.node, !self.undo);
        told(drained, || format!("cannot drain node {}", self.node))?;
        while self.wait && self.has_regions(zrs)? {
            std::thread::sleep(Duration::from_millis(200));
        }
        Ok(())
    }

    fn has_regions(&self, zrs: &Zrs) -> Result<bool> {
        for region in zrs.mem_regions() {
            let region = told(region, || "cannot list the regions".into())?;
            // A number alone is a node of the host's own domain.
            let (node, here) = (region.node.0, self.node);
            if node.node == here.node && (here.domain == 0 || node.domain == here.domain) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
