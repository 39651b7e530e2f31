// SPDX-License-Identifier: GPL-2.0
//! `zrs bpf`: the BPF program for programs that cannot be preloaded, and the control groups that it is for.

use std::fs;
use std::path::PathBuf;

use serde_json::{json, Value};
use zrs_bpf::{Loaded, Pinned, DIR};

use crate::cgroup::{self, Cgroup};
use crate::report::{json_line, out};
use crate::{said, Result};

/// Choose control groups whose programs get ZRS sockets
///
/// A BPF program in the kernel makes TCP sockets of the chosen control groups ZRS sockets, whatever language their
/// programs are written in. It is loaded once, by root, and stays until it is unloaded. While the module is not
/// loaded, the sockets stay TCP.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Load the program, and pin it below /sys/fs/bpf/zrs
    Load {
        /// The members of this group may choose control groups, as `zrs run --cgroup` does
        #[arg(long, value_name = "GROUP")]
        group: Option<String>,
    },
    /// Take the program out of the kernel
    Unload,
    /// Say whether it is loaded, and which control groups it is for
    Show {
        /// Print a JSON object
        #[arg(long)]
        json: bool,
    },
    /// Choose a control group, and those below it
    Add {
        /// Its name, such as /system.slice/web.service; if none is given, the one that this command runs in
        cgroup: Option<PathBuf>,
    },
    /// Choose it no more
    Remove {
        /// As for add
        cgroup: Option<PathBuf>,
    },
}

/// The map of the program.
pub fn opened() -> Result<Pinned> {
    Pinned::open()?.ok_or_else(|| {
        format!("no BPF program is at {DIR}: `zrs bpf load` as root (or start zrs-bpf.service)")
    })
}

/// Forgets control groups that are gone, and those of `zrs run` that no process is in any more.
pub fn sweep(pinned: &Pinned) -> Result<()> {
    let Some(all) = cgroup::all()? else {
        return Ok(());
    };
    for id in pinned.cgroups()? {
        match all.get(&id) {
            Some(group) if !group.is_left_over() => continue,
            Some(group) => group.remove(),
            None => {}
        }
        pinned.remove(id)?;
    }
    Ok(())
}

/// The number of the group `name`.
fn gid(name: &str) -> Result<u32> {
    let groups = said(fs::read_to_string("/etc/group"), || "/etc/group".into())?;
    let found = groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then(|| fields.nth(1)?.parse().ok())?
    });
    found.ok_or_else(|| format!("there is no group {name}: groupadd --system {name}"))
}

fn chosen(name: &Option<PathBuf>) -> Result<Cgroup> {
    name.as_ref()
        .map_or_else(Cgroup::own, |name| Cgroup::named(name))
}

pub fn run(args: &Args) -> Result<()> {
    match &args.command {
        Command::Load { group } => {
            let gid = group.as_deref().map(gid).transpose()?;
            match Pinned::load(gid)? {
                Loaded::Now => out(&format!("loaded, and pinned at {DIR}\n")),
                Loaded::Before => out(&format!("was loaded already, and is pinned at {DIR}\n")),
            }
        }
        Command::Unload => {
            if !Pinned::unload()? {
                out("was not loaded\n");
            }
        }
        Command::Show { json } => return show(*json),
        Command::Add { cgroup } => opened()?.add(chosen(cgroup)?.id)?,
        Command::Remove { cgroup } => {
            let group = chosen(cgroup)?;
            if !opened()?.remove(group.id)? {
                return Err(format!("{} was not chosen", group.path.display()));
            }
        }
    }
    Ok(())
}

fn show(json: bool) -> Result<()> {
    let pinned = Pinned::open()?;
    let mut paths = Vec::new();
    if let Some(pinned) = &pinned {
        let all = cgroup::all()?.unwrap_or_default();
        for id in pinned.cgroups()? {
            paths.push((
                id,
                all.get(&id).map(|group| group.path.display().to_string()),
            ));
        }
    }
    paths.sort();
    if json {
        let list = paths
            .iter()
            .map(|(id, path)| json!({ "id": id, "path": path }));
        json_line(&json!({ "loaded": pinned.is_some(), "cgroups": Value::Array(list.collect()) }));
        return Ok(());
    }
    if pinned.is_none() {
        out("not loaded\n");
        return Ok(());
    }
    let mut text = format!("loaded, {} control groups\n", paths.len());
    for (id, path) in &paths {
        text += &format!(
            "{}\n",
            path.clone()
                .unwrap_or_else(|| format!("number {id}, which is not seen here"))
        );
    }
    out(&text);
    Ok(())
}
