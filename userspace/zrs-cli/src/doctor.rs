// SPDX-License-Identifier: GPL-2.0
//! `zrs doctor`: whether this host can use ZRS, and reach another one by it; what is missing, and
//! the remedy.

mod devices;
mod kernel;
mod module;
mod nodes;
mod peer;
mod system;

use std::fmt::Write as _;
use std::process::ExitCode;

use serde_json::{json, Value};

use crate::report::{json_line, out};
use system::{Machine, System};

/// Check whether this host can use ZRS, or why another host is not reached
///
/// Each line is a check: ok, a warning, or a failure, which means that ZRS cannot work or would do
/// harm. Warnings and failures have a remedy below them. With HOST, the steps of making a link to
/// there follow, up to the first that fails; that needs a ZRS socket that listens there (`zrs ping
/// --listen`). Nothing is changed, but a ZRS socket is made if the module is loaded, and memory
/// links to the hosts of the directory of memory nodes. Root sees more than others.
///
/// Exit status: 0 without a failure, 1 with one, 2 wrong arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Make a link to this host: a name or an address
    #[arg(value_name = "HOST")]
    host: Option<String>,
    /// Expect a ZRS socket that listens on this port of HOST
    #[arg(short, long, requires = "host", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    /// Print a JSON object: the array "checks", the numbers "failures" and "warnings"
    #[arg(long)]
    json: bool,
}

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Ok,
    /// It works less well, or it could not be looked at.
    Warning,
    /// It does not work.
    Failure,
}

impl Status {
    fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Failure => "failure",
        }
    }
}

/// A line of the report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// Names the check. Stable, for scripts.
    pub name: String,
    pub status: Status,
    /// The finding.
    pub text: String,
    /// Empty if the check is ok.
    pub remedy: String,
}

impl Check {
    fn new(name: &str, status: Status, text: String, remedy: &str) -> Self {
        let (name, remedy) = (name.into(), remedy.into());
        Self {
            name,
            status,
            text,
            remedy,
        }
    }

    fn ok(name: &str, text: impl Into<String>) -> Self {
        Self::new(name, Status::Ok, text.into(), "")
    }

    fn warning(name: &str, text: impl Into<String>, remedy: &str) -> Self {
        Self::new(name, Status::Warning, text.into(), remedy)
    }

    fn failure(name: &str, text: impl Into<String>, remedy: &str) -> Self {
        Self::new(name, Status::Failure, text.into(), remedy)
    }
}

pub fn run(args: &Args) -> ExitCode {
    let checks = examine(&Machine, args.host.as_deref(), args.port);
    if args.json {
        json_line(&to_json(&checks));
    } else {
        out(&to_text(&checks));
    }
    match count(&checks, Status::Failure) {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

/// All checks: first the kernel, which the module depends on, then the module, the devices, the
/// peer.
fn examine(system: &dyn System, host: Option<&str>, port: Option<u16>) -> Vec<Check> {
    let mut module = system.module();
    let mut checks = kernel::checks(system, module.is_ok());
    let socket = module.is_ok().then(|| system.socket());
    if socket.is_some() {
        // With the pools, for which the socket has waited.
        module = system.module();
    }
    checks.extend(module::checks(system, &module, socket));
    checks.extend(devices::checks(system, module.as_ref().ok()));
    checks.extend(nodes::checks(system, module.is_ok()));
    if let Some(host) = host {
        checks.extend(peer::checks(system, host, port));
    }
    checks
}

fn count(checks: &[Check], status: Status) -> usize {
    checks.iter().filter(|c| c.status == status).count()
}

fn to_json(checks: &[Check]) -> Value {
    let list = checks.iter().map(|c| {
        json!({
            "name": c.name, "status": c.status.name(), "text": c.text, "remedy": c.remedy,
        })
    });
    json!({
        "checks": Value::Array(list.collect()),
        "failures": count(checks, Status::Failure),
        "warnings": count(checks, Status::Warning),
    })
}

fn to_text(checks: &[Check]) -> String {
    let width = checks.iter().map(|c| c.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for c in checks {
        let _ = writeln!(
            text,
            "{:<7}  {:<width$}  {}",
            c.status.name(),
            c.name,
            c.text
        );
        if !c.remedy.is_empty() {
            let _ = writeln!(text, "{:<7}  {:<width$}  > {}", "", "", c.remedy);
        }
    }
    let _ = writeln!(
        text,
        "{} checks, {} warnings, {} failures",
        checks.len(),
        count(checks, Status::Warning),
        count(checks, Status::Failure)
    );
    text
}

#[cfg(test)]
mod tests;
