// SPDX-License-Identifier: GPL-2.0
//! `zrs peers`: which hosts may have links with this network namespace.

use std::fs;
use std::path::PathBuf;

use rustix::io::Errno;
use zrs::Zrs;
use zrs_rules::peers::{networks, parse_all, Entry, Verdict, PATH, PEERS_MAX};

use crate::report::out;
use crate::show::open;
use crate::{said, Result};

/// Show or change which hosts may be peers
///
/// The list is for all links of this network namespace, in both directions: streams, datagrams and memory nodes. The
/// entry with the longest network that has a host's address decides, in whatever order they are; a host that no entry
/// has is allowed, so that a list of allowed hosts ends with "deny any". Links that a change does not allow end at
/// once. Changes need CAP_NET_ADMIN.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Print the list, as a file has it
    List {
        /// Print how many links the lists have refused as well
        #[arg(long)]
        counts: bool,
    },
    /// Allow hosts: networks, addresses, or any
    Allow {
        #[arg(required = true)]
        net: Vec<String>,
    },
    /// Refuse hosts
    Deny {
        #[arg(required = true)]
        net: Vec<String>,
    },
    /// Remove the entries of these networks
    Del {
        #[arg(required = true)]
        net: Vec<String>,
    },
    /// Remove all entries: every host is allowed
    Flush,
    /// Replace the list by that of a file
    Load {
        #[arg(default_value = PATH)]
        file: PathBuf,
    },
}

pub fn run(args: &Args) -> Result<()> {
    match &args.command {
        None => list(false),
        Some(Command::List { counts }) => list(*counts),
        Some(Command::Allow { net }) => put(Verdict::Allow, net),
        Some(Command::Deny { net }) => put(Verdict::Deny, net),
        Some(Command::Del { net }) => {
            let zrs = open()?;
            for net in networks(net.iter().map(String::as_str))? {
                match zrs.remove_peer(net) {
                    Err(e) if zrs::os_error(&e) == Some(Errno::NOENT.raw_os_error()) => {
                        return Err(format!(
                            "there is no entry of {net}: zrs peers list shows them"
                        ));
                    }
                    done => changed(&zrs, done)?,
                }
            }
            Ok(())
        }
        Some(Command::Flush) => {
            let zrs = open()?;
            changed(&zrs, zrs.set_peers(&[]))
        }
        Some(Command::Load { file }) => {
            let text = said(fs::read_to_string(file), || {
                format!("cannot read {}", file.display())
            })?;
            let entries = parse_all(&text).map_err(|why| format!("{}: {why}", file.display()))?;
            let zrs = open()?;
            changed(&zrs, zrs.set_peers(&entries))
        }
    }
}

/// The list, as a file of `load` has it.
pub fn listed() -> Result<Vec<String>> {
    let entries = said(open()?.peers(), || "cannot list the peers".into())?;
    Ok(entries.iter().map(|entry| format!("{entry}\n")).collect())
}

fn list(counts: bool) -> Result<()> {
    let mut lines = listed()?;
    if counts {
        let zrs = open()?;
        let refused = said(zrs.refused_links(), || "cannot count".into())?;
        lines.push(format!(
            "# links since loading, of all network namespaces: refused {}, not asked for {}, refused by peers {}\n",
            refused.here, refused.unasked, refused.there
        ));
    }
    out(&lines.concat());
    Ok(())
}

fn put(verdict: Verdict, net: &[String]) -> Result<()> {
    let nets = networks(net.iter().map(String::as_str))?;
    let zrs = open()?;
    for net in nets {
        changed(&zrs, zrs.put_peer(&Entry { verdict, net }))?;
    }
    if let Some(hint) = hint(&zrs.peers().unwrap_or_default()) {
        eprintln!("zrs: {hint}");
    }
    Ok(())
}

/// A hint for a list that allows hosts and refuses none.
fn hint(entries: &[Entry]) -> Option<&'static str> {
    let denies = entries.iter().any(|entry| entry.verdict == Verdict::Deny);
    (!denies && !entries.is_empty())
        .then_some("all other hosts are allowed as well: zrs peers deny any refuses them")
}

fn changed(zrs: &Zrs, done: std::io::Result<()>) -> Result<()> {
    let Err(e) = done else { return Ok(()) };
    let is = |errno: Errno| zrs::os_error(&e) == Some(errno.raw_os_error());
    Err(if is(Errno::PERM) {
        "only an administrator of the network namespace changes its peers (CAP_NET_ADMIN)".into()
    } else if is(Errno::NOSPC) {
        format!("there can be {PEERS_MAX} entries: write networks instead of addresses")
    } else if zrs
        .version()
        .is_ok_and(|version| version.missing().any(|name| name == "peers"))
    {
        "the module is older than this command, and has no list of peers".into()
    } else {
        format!("cannot change the peers: {}", zrs::reason(&e))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_refuses_nothing() {
        let hinted = |text| hint(&parse_all(text).unwrap()).is_some();
        assert!(hinted("allow 192.0.2.0/24"));
        assert!(!hinted("allow 192.0.2.0/24\ndeny any"));
        assert!(!hinted(""));
    }
}
