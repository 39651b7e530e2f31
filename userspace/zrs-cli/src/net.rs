// SPDX-License-Identifier: GPL-2.0
//! `zrs net`: whether this network namespace, and which groups in it, may use ZRS.

use std::fs;
use std::path::Path;

use crate::report::out;
use crate::set::{apply, NET};
use crate::Result;

/// All groups.
const LAST: &str = "4294967294";

/// Show or change whether this network namespace may use ZRS
///
/// Where ZRS is off, connect(), bind() and listen() of sockets that may use TCP are left to TCP, those of others fail
/// with EACCES, and no host gets a link; connections that there are stay until their links end. Namespaces without a
/// setting go by the parameter "enabled", but for the first one, which is on. "groups" has the programs that may use
/// ZRS, by the numbers of their groups. Changes need CAP_NET_ADMIN in the first user namespace: they are not for the
/// administrators of containers.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Print both settings
    Show,
    /// ZRS may be used
    On,
    /// ZRS may not be used
    Off,
    /// Only programs in a group from FIRST to LAST may use ZRS
    Groups {
        /// A number, or "all"
        first: String,
        /// A number; the same as FIRST if not given
        last: Option<String>,
    },
}

pub fn run(args: &Args) -> Result<()> {
    match &args.command {
        None | Some(Command::Show) => {
            out(&shown()?);
            Ok(())
        }
        Some(Command::On) => set(&[("enabled", "on")]),
        Some(Command::Off) => set(&[("enabled", "off")]),
        Some(Command::Groups { first, last }) => {
            let (first, last) = groups(first, last.as_deref())?;
            set(&[("first_group", &first), ("last_group", &last)])
        }
    }
}

/// Both settings, as `show` prints them.
pub fn shown() -> Result<String> {
    let value = |name: &str| {
        let text = fs::read_to_string(Path::new(NET).join(name));
        text.map(|text| text.trim().to_string())
            .map_err(|e| format!("{NET}/{name}: {e}: is the module loaded, and new enough?"))
    };
    let (first, last) = (value("first_group")?, value("last_group")?);
    let groups = match (first.as_str(), last.as_str()) {
        ("0", LAST) => "all".into(),
        _ => format!("{first} to {last}"),
    };
    Ok(format!("{}\ngroups {groups}\n", value("enabled")?))
}

fn set(changes: &[(&str, &str)]) -> Result<()> {
    let changes: Vec<(String, String)> = changes
        .iter()
        .map(|(name, value)| ((*name).into(), (*value).into()))
        .collect();
    apply(Path::new(NET), &changes)
}

/// The first and the last group.
fn groups(first: &str, last: Option<&str>) -> Result<(String, String)> {
    if first == "all" && last.is_none() {
        return Ok(("0".into(), LAST.into()));
    }
    let number = |text: &str| match text.parse::<u32>() {
        Ok(n) if n != u32::MAX => Ok(n),
        _ => Err(format!("'{text}' is not the number of a group, or all")),
    };
    let first = number(first)?;
    let last = last.map_or(Ok(first), number)?;
    match first <= last {
        true => Ok((first.to_string(), last.to_string())),
        false => Err(format!(
            "the groups end ({last}) before they begin ({first})"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::groups;

    #[test]
    fn ranges_of_groups() {
        fn pair(a: &str, b: &str) -> Result<(String, String), String> {
            Ok((a.into(), b.into()))
        }
        assert_eq!(groups("all", None), pair("0", "4294967294"));
        assert_eq!(groups("100", None), pair("100", "100"));
        assert_eq!(groups("100", Some("200")), pair("100", "200"));
        for (first, last) in [
            ("users", None),
            ("2", Some("1")),
            ("4294967295", None),
            ("all", Some("1")),
        ] {
            assert!(groups(first, last).is_err(), "{first} {last:?}");
        }
    }
}
