// SPDX-License-Identifier: GPL-2.0
//! The directory file: which host serves which memory node.
//!
//! ```text
//! # node   RDMA address of its host
//! 1:1      192.0.2.11
//! 1:2      192.0.2.12
//! 3        fe80::1%eth0       # node 3 of this host's own domain
//! ```
//!
//! A file is taken as a whole or not at all. The error names each line that is refused, and what to
//! do about it.
#![deny(unsafe_code)]

mod line;

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::str::FromStr;

pub use line::{Entry, Problem, Scope};
pub use zrs_core::mem::id::NodeId;

/// Where the file is unless another one is named.
pub const PATH: &str = "/etc/zrs/nodes";

/// Most nodes in a directory.
pub const NODES_MAX: usize = zrs_core::mem::directory::ENTRIES_MAX;

/// Most bytes of a file.
pub const BYTES_MAX: u64 = 1 << 20;

/// Lines that an error names at most.
const NAMED_MAX: usize = 10;

/// The entries of a directory, in the order of their nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nodes(Vec<Entry>);

impl Nodes {
    /// The entries.
    pub fn entries(&self) -> &[Entry] {
        &self.0
    }

    /// Reads a directory file.
    pub fn read(path: &Path) -> Result<Self, ReadError> {
        let failed = |what| ReadError {
            path: path.to_owned(),
            what,
        };
        let file = std::fs::File::open(path).map_err(|e| failed(Failure::Io(e)))?;
        let mut bytes = Vec::new();
        let read = file.take(BYTES_MAX + 1).read_to_end(&mut bytes);
        read.map_err(|e| failed(Failure::Io(e)))?;
        if bytes.len() as u64 > BYTES_MAX {
            return Err(failed(Failure::Size));
        }
        let text = String::from_utf8(bytes).map_err(|_| failed(Failure::Binary))?;
        text.parse().map_err(|e| failed(Failure::Lines(e)))
    }
}

/// As a file has them.
impl fmt::Display for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|entry| writeln!(f, "{entry}"))
    }
}

impl FromStr for Nodes {
    type Err = BadLines;

    fn from_str(text: &str) -> Result<Self, BadLines> {
        let mut bad = Vec::new();
        // The line of each node, and its entry.
        let mut found = BTreeMap::<NodeId, (usize, Entry)>::new();
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        for (n, line) in (1..).zip(text.lines()) {
            match line::parse(line) {
                Ok(None) => {}
                Ok(Some(entry)) => match found.get(&entry.node) {
                    Some((first, _)) => bad.push((n, Problem::Twice(entry.node, *first))),
                    None if found.len() == NODES_MAX => bad.push((n, Problem::TooMany)),
                    None => drop(found.insert(entry.node, (n, entry))),
                },
                Err(why) => bad.push((n, why)),
            }
        }
        if !bad.is_empty() {
            return Err(BadLines(bad));
        }
        Ok(Self(found.into_values().map(|(_, entry)| entry).collect()))
    }
}

/// Lines that are refused, by their numbers; at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadLines(pub Vec<(usize, Problem)>);

impl fmt::Display for BadLines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (line, why)) in self.0.iter().take(NAMED_MAX).enumerate() {
            let end = if at == 0 { "" } else { "\n" };
            write!(f, "{end}line {line}: {why}")?;
        }
        match self.0.len().saturating_sub(NAMED_MAX) {
            0 => Ok(()),
            1 => write!(f, "\nand 1 more line"),
            more => write!(f, "\nand {more} more lines"),
        }
    }
}

impl std::error::Error for BadLines {}

/// Why a directory file was not read.
#[derive(Debug)]
pub struct ReadError {
    /// The file.
    pub path: PathBuf,
    /// The failure.
    pub what: Failure,
}

/// A failure to read the directory.
#[derive(Debug)]
pub enum Failure {
    /// The file could not be read.
    Io(io::Error),
    /// It has more than [`BYTES_MAX`] bytes.
    Size,
    /// It is not text.
    Binary,
    /// Some of its lines are refused.
    Lines(BadLines),
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match &self.what {
            Failure::Io(e) if e.kind() == io::ErrorKind::NotFound => write!(
                f,
                "{path}: there is no such file; write one with a line for each node, as '1:2 192.0.2.12'"
            ),
            Failure::Io(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                write!(f, "{path}: may not be read by this user; run this as root")
            }
            Failure::Io(e) => write!(f, "{path}: {e}"),
            Failure::Size => write!(
                f,
                "{path}: has more than {BYTES_MAX} bytes; is it the directory of the nodes?"
            ),
            Failure::Binary => write!(f, "{path}: is not text; is it the directory of the nodes?"),
            Failure::Lines(lines) => write!(f, "{path}: no entry was taken\n{lines}"),
        }
    }
}

impl std::error::Error for ReadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.what {
            Failure::Io(e) => Some(e),
            Failure::Lines(lines) => Some(lines),
            Failure::Size | Failure::Binary => None,
        }
    }
}
