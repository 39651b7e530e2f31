// SPDX-License-Identifier: GPL-2.0
//! `zrs set`: the module's parameters, those of an administrator first.

use std::fmt::Write as _;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde_json::{json, Value};

use crate::report::{json_line, out};
use crate::{key, net, peers, rules, Result};

pub const PARAMETERS: &str = "/sys/module/zrs/parameters";
/// The settings of a network namespace.
pub const NET: &str = "/proc/sys/net/zrs";

/// The parameters that an administrator has a reason to change, and their meaning. The others are for
/// developers: their defaults follow from measurements and from each other.
const ADMIN: [(&str, &str); 22] = [
    (
        "pool_mib",
        "receive pool of each cache, MiB; 0: by rate, residency and cache",
    ),
    (
        "escape",
        "when unread data goes to main memory: never, under-pressure, always",
    ),
    (
        "escape_mib",
        "main memory for such data, MiB; 0: a quarter of all",
    ),
    (
        "window_kib",
        "largest window of a connection with bulk data, KiB; 0: four chunks",
    ),
    (
        "blocks",
        "blocks of each device for small messages, a page each",
    ),
    ("max_channels", "connections that the host can have"),
    (
        "user_percent",
        "part of the connections, and of the links to other hosts, that one user can have, percent",
    ),
    (
        "net_percent",
        "part of the connections and links that one network namespace can have, percent",
    ),
    (
        "mem_user_percent",
        "part of a memory link's and a node's places that one user can have, percent",
    ),
    (
        "links_per_peer",
        "links to one host, and links that it may make",
    ),
    (
        "service_port",
        "port of the RDMA connection manager; the same on all hosts",
    ),
    (
        "connect_timeout_ms",
        "how long connect() waits for an answer, milliseconds",
    ),
    (
        "fallback_ms",
        "how long connect() waits for a link before it uses TCP, milliseconds",
    ),
    (
        "asking_per_user",
        "hosts that one user's connects that may use TCP ask for a link at a time",
    ),
    (
        "heartbeat_ms",
        "silence after which a host is asked whether it is there, milliseconds; 0: never",
    ),
    (
        "dead_ms",
        "time without an answer after which its link ends, milliseconds",
    ),
    (
        "autocorking",
        "1: small messages that follow each other fast leave together",
    ),
    (
        "copy_tail_kib",
        "end of a blocking send that is copied, and not waited for, KiB; 0: nothing is",
    ),
    (
        "busy_poll_us",
        "how long a blocking call polls before it sleeps, microseconds",
    ),
    (
        "tcp",
        "TCP beside ZRS for new sockets: never, auto, required",
    ),
    (
        "enabled",
        "ZRS in network namespaces but the first, unless they have their own setting: off, on",
    ),
    (
        "tcp_no_new_privs",
        "1: also for tasks with no_new_privs, whose TCP Landlock does not see",
    ),
];

/// The settings of a network namespace that are no module parameters.
const NET_ONLY: [(&str, &str); 2] = [
    (
        "first_group",
        "the first of the groups whose members may use ZRS",
    ),
    ("last_group", "the last one"),
];

/// Show the module's parameters, or change them while it is loaded
///
/// Without arguments, the parameters for administrators are shown. Those that change "any time" can
/// be set here, as root; the others "at load", by a line "options zrs NAME=VALUE" in
/// /etc/modprobe.d. Either all changes are made or none. With --net, the settings of the network
/// namespace of this command; the parameters are the default of namespaces without a setting.
#[derive(clap::Args)]
pub struct Args {
    /// Change these parameters
    #[arg(value_name = "NAME=VALUE", conflicts_with_all = ["show", "all", "json"])]
    changes: Vec<String>,
    /// Make the changes of this file: NAME=VALUE, one a line; # begins a comment
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["show", "all", "json"])]
    file: Option<PathBuf>,
    /// Of this network namespace, not of the machine
    #[arg(long, conflicts_with = "all")]
    net: bool,
    /// Show the parameters (the default without changes), then what else this network namespace has: who may use ZRS in it, its
    /// peers, keys and rules, as their files have them
    #[arg(long, conflicts_with = "json")]
    show: bool,
    /// Show those for developers as well
    #[arg(short, long)]
    all: bool,
    /// Show them as JSON: an array of objects
    #[arg(long)]
    json: bool,
}

/// A parameter as sysfs shows it.
struct Parameter {
    name: String,
    value: String,
    /// At any time, not only at load.
    writable: bool,
}

impl Parameter {
    /// The parameter's meaning, if the parameter is for administrators.
    fn meaning(&self) -> Option<&'static str> {
        let mut all = ADMIN.iter().chain(&NET_ONLY);
        all.find(|(n, _)| *n == self.name).map(|(_, m)| *m)
    }

    fn json(&self) -> Value {
        json!({
            "name": self.name, "value": self.value, "writable": self.writable,
            "for": if self.meaning().is_some() { "administrators" } else { "developers" },
            "meaning": self.meaning(),
        })
    }
}

pub fn run(args: &Args) -> Result<()> {
    let dir = Path::new(if args.net { NET } else { PARAMETERS });
    let mut changes = Vec::new();
    if let Some(file) = &args.file {
        let text = fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))?;
        changes = lines(&text).map_err(|reason| format!("{}: {reason}", file.display()))?;
    }
    for text in &args.changes {
        changes.push(change(text)?);
    }
    if args.file.is_some() || !args.changes.is_empty() {
        return apply(dir, &changes);
    }
    let parameters = read(dir)?;
    let shown = parameters
        .iter()
        .filter(|p| args.all || p.meaning().is_some());
    if args.json {
        json_line(&shown.map(Parameter::json).collect());
    } else {
        out(&table(&shown.collect::<Vec<_>>()));
        if args.show {
            out(&lists());
        }
    }
    Ok(())
}

/// What a network namespace has beside its settings.
fn lists() -> String {
    let mut text = String::new();
    let list = |lines: Result<Vec<String>>| lines.map(|lines| lines.concat());
    for (title, lines) in [
        ("this network namespace (zrs net)", net::shown()),
        ("peers (zrs peers)", list(peers::listed())),
        ("keys (zrs key)", list(key::listed())),
        ("rules (zrs rules)", list(rules::listed())),
    ] {
        let lines = lines.unwrap_or_else(|why| format!("# {why}\n"));
        let _ = write!(text, "\n# {title}\n{lines}");
    }
    text
}

/// NAME=VALUE.
fn change(text: &str) -> Result<(String, String)> {
    match text.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() && !value.trim().is_empty() => {
            Ok((name.trim().into(), value.trim().into()))
        }
        _ => Err(format!("{text:?} is not NAME=VALUE")),
    }
}

/// The changes that a file asks for.
fn lines(text: &str) -> Result<Vec<(String, String)>> {
    let lines = text
        .lines()
        .map(|l| l.split('#').next().unwrap_or_default().trim());
    let numbered = lines.zip(1..).filter(|(l, _)| !l.is_empty());
    numbered
        .map(|(l, n)| change(l).map_err(|reason| format!("line {n}: {reason}")))
        .collect()
}

/// All parameters: administrators' in the order of [`ADMIN`], then the others by name.
fn read(dir: &Path) -> Result<Vec<Parameter>> {
    let entries = fs::read_dir(dir).map_err(|e| match e.kind() {
        ErrorKind::NotFound => {
            format!(
                "the module is not loaded (no {}): modprobe zrs",
                dir.display()
            )
        }
        _ => format!("{}: {e}", dir.display()),
    })?;
    let mut parameters = Vec::new();
    for entry in entries {
        let path = entry.map_err(|e| e.to_string())?.path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let said = |e: std::io::Error| format!("{}: {e}", path.display());
        let value = fs::read_to_string(&path).map_err(said)?.trim().to_string();
        let mode = fs::metadata(&path).map_err(said)?.permissions();
        let writable = !mode.readonly();
        parameters.push(Parameter {
            name,
            value,
            writable,
        });
    }
    let rank = |p: &Parameter| ADMIN.iter().position(|(n, _)| *n == p.name);
    parameters.sort_by_key(|p| (rank(p).unwrap_or(ADMIN.len()), p.name.clone()));
    Ok(parameters)
}

/// Makes all changes, or none: what was changed before one that is refused gets its old value back.
pub fn apply(dir: &Path, changes: &[(String, String)]) -> Result<()> {
    let parameters = read(dir)?;
    let mut old = Vec::new();
    for (name, _) in changes {
        let parameter = parameters.iter().find(|p| p.name == *name);
        let parameter = parameter.ok_or_else(|| {
            if dir == Path::new(NET) {
                format!(
                    "{name} is no setting of a network namespace: zrs set --net lists them; of \
                         the machine: zrs set {name}=..."
                )
            } else {
                format!("there is no parameter {name}: zrs set --all lists them")
            }
        })?;
        if !parameter.writable {
            return Err(format!(
                "{name} can be set when the module is loaded only: put \"options zrs {name}=...\" into \
                 /etc/modprobe.d/zrs-local.conf, then: modprobe -r zrs && modprobe zrs"
            ));
        }
        old.push((name, &parameter.value));
    }
    for (done, (name, value)) in changes.iter().enumerate() {
        let Err(e) = fs::write(dir.join(name), value) else {
            continue;
        };
        for (name, value) in old[..done].iter().rev() {
            let _ = fs::write(dir.join(name), value);
        }
        return Err(match e.kind() {
            ErrorKind::InvalidInput => format!(
                "{name} cannot be {value}, and nothing was changed: modinfo -p zrs has what it can be"
            ),
            ErrorKind::PermissionDenied => {
                format!("{name}: only root of this machine may change it: sudo zrs set ...")
            }
            _ => format!("{name}: {e}"),
        });
    }
    Ok(())
}

fn table(parameters: &[&Parameter]) -> String {
    let width = |f: fn(&Parameter) -> &str| parameters.iter().map(|p| f(p).len()).max();
    let name = width(|p| &p.name).unwrap_or(0).max("parameter".len());
    let value = width(|p| &p.value).unwrap_or(0).max("value".len());
    let mut text = String::new();
    let mut line = |cells: [&str; 4]| {
        let [a, b, c, d] = cells;
        let _ = writeln!(text, "{a:<name$}  {b:>value$}  {c:<8}  {d}");
    };
    line(["parameter", "value", "changes", "meaning"]);
    for p in parameters {
        let when = if p.writable { "any time" } else { "at load" };
        let meaning = p.meaning().unwrap_or("for developers: modinfo -p zrs");
        line([&p.name, &p.value, when, meaning]);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// Files as in sysfs: two that can be written, one that cannot.
    fn parameters(test: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("zrs-set-{test}-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        for (name, value, mode) in [
            ("pool_mib", "0\n", 0o644),
            ("escape", "under-pressure\n", 0o644),
            ("blocks", "512\n", 0o444),
            ("table_hot", "0\n", 0o444),
        ] {
            let _ = fs::remove_file(dir.join(name));
            fs::write(dir.join(name), value).unwrap();
            fs::set_permissions(dir.join(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        dir
    }

    fn value(dir: &Path, name: &str) -> String {
        fs::read_to_string(dir.join(name)).unwrap().trim().into()
    }

    fn changes(list: &[(&str, &str)]) -> Vec<(String, String)> {
        list.iter()
            .map(|(n, v)| ((*n).into(), (*v).into()))
            .collect()
    }

    #[test]
    fn administrators_come_first() {
        let dir = parameters("order");
        let list = read(&dir).unwrap();
        let names: Vec<_> = list.iter().map(|p| p.name.as_str()).collect();
        assert_eq!(names, ["pool_mib", "escape", "blocks", "table_hot"]);
        assert!(list[0].writable && !list[2].writable);
        let text = table(&list.iter().collect::<Vec<_>>());
        let line = text.lines().nth(3).unwrap();
        let words: Vec<_> = line.split_whitespace().take(4).collect();
        assert_eq!(words, ["blocks", "512", "at", "load"], "{text}");
        assert_eq!(list[3].json()["for"], "developers");
        assert_eq!(list[0].json()["for"], "administrators");
    }

    #[test]
    fn changes_are_made() {
        let dir = parameters("made");
        apply(&dir, &changes(&[("pool_mib", "64"), ("escape", "never")])).unwrap();
        assert_eq!(value(&dir, "pool_mib"), "64");
        assert_eq!(value(&dir, "escape"), "never");
    }

    #[test]
    fn all_or_none() {
        let dir = parameters("none");
        let wrong = changes(&[("pool_mib", "64"), ("blocks", "1024")]);
        assert!(apply(&dir, &wrong)
            .unwrap_err()
            .contains("options zrs blocks="));
        let wrong = changes(&[("pool_mib", "64"), ("pool", "1")]);
        assert!(apply(&dir, &wrong)
            .unwrap_err()
            .contains("no parameter pool"));
        assert_eq!(value(&dir, "pool_mib"), "0");
    }

    #[test]
    fn files() {
        let text = "# sizes\npool_mib = 64   # MiB\n\nescape=never\n";
        let expected = changes(&[("pool_mib", "64"), ("escape", "never")]);
        assert_eq!(lines(text).unwrap(), expected);
        assert!(lines("pool_mib=1\nescape\n")
            .unwrap_err()
            .starts_with("line 2: "));
    }

    #[test]
    fn without_the_module() {
        let error = apply(Path::new("/nonexistent"), &[]).unwrap_err();
        assert!(error.contains("modprobe zrs"), "{error}");
    }

    /// The module has each of them.
    #[test]
    fn the_module_has_them() {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../rust/params.rs");
        let source = fs::read_to_string(source).unwrap();
        for (name, _) in ADMIN {
            assert!(source.contains(&format!(", \"{name}\", ")), "{name}");
        }
    }
}
