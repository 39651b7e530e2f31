// SPDX-License-Identifier: GPL-2.0
//! The keys of a network namespace as text, as `zrs key` and /etc/zrs/keys have them. The secrets
//! are elsewhere.
//!
//! ```text
//! # NET NAME
//! 192.0.2.0/24 rack-2026
//! 2001:db8::/32 rack-2026
//! ```

use std::fmt;
use std::str::FromStr;

use crate::Net;

/// Where the file of keys is unless another one is named.
pub const PATH: &str = "/etc/zrs/keys";

/// Where the secrets are that the keys of the file have: a file each, of the key's name.
pub const SECRETS: &str = "/etc/zrs/keys.d";

/// The longest name.
pub const NAME_MAX: usize = 63;

/// The least length of a secret, in bytes.
pub const BYTES_MIN: usize = 16;

/// Most keys of a network.
pub const KEYS_OF_NET: usize = 2;

/// The name of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name(String);

impl FromStr for Name {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let good = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
        let valid = !text.is_empty() && text.len() <= NAME_MAX && text.bytes().all(good);
        match valid && !text.starts_with('.') {
            true => Ok(Self(text.into())),
            false => Err(format!(
                "'{text}' is not a name of a key: up to {NAME_MAX} letters, digits, '.', '_' and '-'"
            )),
        }
    }
}

impl Name {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A key of a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The hosts that have to prove that they have it.
    pub net: Net,
    /// Its name.
    pub name: Name,
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.net, self.name)
    }
}

fn parse(line: &str) -> Result<Option<Entry>, String> {
    let text = line.split('#').next().unwrap_or_default();
    let words: Vec<&str> = text.split_whitespace().collect();
    match words[..] {
        [] => Ok(None),
        [net, name] => {
            let net: Net = net.parse()?;
            Ok(Some(Entry {
                net: net.whole(),
                name: name.parse()?,
            }))
        }
        _ => Err("a line is a network and the name of a key".into()),
    }
}

/// The keys of a file's text; or what is wrong with it, a line for each mistake.
pub fn parse_all(text: &str) -> Result<Vec<Entry>, String> {
    let (mut entries, mut bad) = (Vec::<Entry>::new(), Vec::new());
    for (n, line) in (1..).zip(text.lines()) {
        match parse(line) {
            Ok(None) => {}
            Ok(Some(new)) => {
                if entries.contains(&new) {
                    bad.push(format!("line {n}: {new} comes twice"));
                }
                entries.push(new);
                let of_net = entries
                    .iter()
                    .filter(|e| Some(e.net) == entries.last().map(|e| e.net));
                if of_net.count() > KEYS_OF_NET {
                    bad.push(format!(
                        "line {n}: the network has {KEYS_OF_NET} keys already"
                    ));
                }
            }
            Err(why) => bad.push(format!("line {n}: {why}")),
        }
    }
    match bad.is_empty() {
        true => Ok(entries),
        false => Err(bad.join("\n")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files() {
        let text = "# keys\n192.0.2.9/24 a-1 # the old one\n\n192.0.2.0/24 b\n2001:db8::/32 b\n";
        let entries = parse_all(text).unwrap();
        let lines: Vec<String> = entries.iter().map(Entry::to_string).collect();
        assert_eq!(
            lines,
            ["192.0.2.0/24 a-1", "192.0.2.0/24 b", "2001:db8::/32 b"]
        );
        assert_eq!(parse_all(&lines.join("\n")).unwrap(), entries);
        for (text, mistake) in [
            ("192.0.2.0/24", "line 1: a line is a network"),
            ("192.0.2.0/24 a b", "line 1: a line is a network"),
            ("192.0.2.0/24 ../a", "line 1: '../a' is not a name"),
            ("192.0.2.0/24 .a", "line 1: '.a' is not a name"),
            ("10.0.0.300 a", "line 1: '10.0.0.300' is not an address"),
            (
                "10.0.0.0/8 a\n10.1.0.0/8 a",
                "line 2: 10.0.0.0/8 a comes twice",
            ),
            (
                "10.0.0.0/8 a\n10.0.0.0/8 b\n10.0.0.0/8 c",
                "line 3: the network has 2",
            ),
        ] {
            let said = parse_all(text).unwrap_err();
            assert!(said.starts_with(mistake), "{said}");
        }
        assert!("x".repeat(NAME_MAX).parse::<Name>().is_ok());
        assert!("x".repeat(NAME_MAX + 1).parse::<Name>().is_err());
    }
}
