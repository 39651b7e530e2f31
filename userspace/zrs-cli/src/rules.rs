// SPDX-License-Identifier: GPL-2.0
//! `zrs rules`: which sockets stay with TCP, for all programs of a network namespace.

mod check;

use std::fs;
use std::path::PathBuf;

use zrs::Zrs;
use zrs_rules::line::{parse, parse_all, Rule, PATH};

use crate::report::out;
use crate::show::open;
use crate::{said, Result};

/// Show or change which sockets stay with TCP
///
/// The rules are for all sockets of this network namespace that may use TCP (zrs run, ZRS_TCP_AUTO), in order: the first
/// that matches decides. A rule is "tcp" or "zrs", then "connect" or "bind" if it is for one of these calls, then
/// "any", or "net NET", "port PORTS" or both: "tcp port 22,8000-8100", "zrs connect net 192.0.2.0/24".
/// Changes need CAP_NET_ADMIN.
#[derive(clap::Args)]
pub struct Args {
    /// List the servers that are open by ZRS, which a TCP firewall does not close, or by ZRS and TCP
    #[arg(long)]
    check: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Print the rules, as a file has them
    List,
    /// Add a rule behind the others
    Add {
        /// Before the others instead
        #[arg(long)]
        first: bool,
        #[arg(required = true)]
        rule: Vec<String>,
    },
    /// Remove a rule
    Del {
        #[arg(required = true)]
        rule: Vec<String>,
    },
    /// Remove all rules
    Flush,
    /// Replace all rules by those of a file
    Load {
        #[arg(default_value = PATH)]
        file: PathBuf,
    },
}

pub fn run(args: &Args) -> Result<()> {
    if args.check {
        return match args.command {
            None => check::run(),
            Some(_) => Err("--check stands alone".into()),
        };
    }
    match &args.command {
        None | Some(Command::List) => {
            out(&listed()?.concat());
            Ok(())
        }
        Some(Command::Add { first, rule }) => {
            let mut rules = words(rule)?;
            let zrs = open()?;
            let at = if *first { 0 } else { u32::MAX };
            if *first {
                rules.reverse();
            }
            changed(
                &zrs,
                rules.iter().try_for_each(|rule| zrs.add_rule(rule, at)),
            )
        }
        Some(Command::Del { rule }) => {
            let zrs = open()?;
            for rule in words(rule)? {
                match zrs.remove_rule(&rule) {
                    Err(e)
                        if zrs::os_error(&e) == Some(rustix::io::Errno::NOENT.raw_os_error()) =>
                    {
                        return Err(format!(
                            "there is no rule '{rule}': zrs rules list shows them"
                        ));
                    }
                    done => changed(&zrs, done)?,
                }
            }
            Ok(())
        }
        Some(Command::Flush) => {
            let zrs = open()?;
            changed(&zrs, zrs.set_rules(&[]))
        }
        Some(Command::Load { file }) => {
            let text = said(fs::read_to_string(file), || {
                format!("cannot read {}", file.display())
            })?;
            let rules = parse_all(&text).map_err(|why| format!("{}: {why}", file.display()))?;
            let zrs = open()?;
            changed(&zrs, zrs.set_rules(&rules))
        }
    }
}

/// The list, as a file of `load` has it.
pub fn listed() -> Result<Vec<String>> {
    let rules = said(open()?.rules(), || "cannot list the rules".into())?;
    Ok(rules.iter().map(|rule| format!("{rule}\n")).collect())
}

/// The rules that the command's words are.
fn words(words: &[String]) -> Result<Vec<Rule>> {
    let rules = parse(&words.join(" "))?;
    match rules.is_empty() {
        true => Err("there is no rule: tcp or zrs, then any, net NET or port PORTS".into()),
        false => Ok(rules),
    }
}

fn changed(zrs: &Zrs, done: std::io::Result<()>) -> Result<()> {
    let Err(e) = done else { return Ok(()) };
    use rustix::io::Errno;
    let is = |errno: Errno| zrs::os_error(&e) == Some(errno.raw_os_error());
    Err(if is(Errno::PERM) {
        "only an administrator of the network namespace changes its rules (CAP_NET_ADMIN)".into()
    } else if is(Errno::NOSPC) {
        format!(
            "there can be {} rules: write networks and ranges of ports",
            zrs_rules::line::RULES_MAX
        )
    } else if zrs
        .version()
        .is_ok_and(|version| version.missing().any(|name| name == "rules"))
    {
        "the module is older than this command, and has no rules".into()
    } else {
        format!("cannot change the rules: {}", zrs::reason(&e))
    })
}
