// SPDX-License-Identifier: GPL-2.0
//! The destination of received bytes, and a clock that excludes the time of writing.

use std::fs::File;
use std::hint::black_box;
use std::io::{self, Read, Seek, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

use sha2::digest::Output;
use sha2::{Digest, Sha256};

use zrs::View;

use crate::{said, Result};

/// The destination of the bytes.
enum To {
    /// One byte of each cache line is looked at.
    Nowhere,
    /// Written; hashed afterwards, by reading the file.
    File(File),
    /// Written to stdout or something else that cannot be read again; hashed as they come.
    Stream(Box<dyn Write>, Sha256),
}

/// Takes the bytes as they come, from memory of the caller's.
pub struct Sink {
    to: To,
    name: String,
    bytes: u64,
    /// When the first byte came.
    start: Option<Instant>,
    /// Time spent here since then.
    outside: Duration,
}

const CACHE_LINE: usize = 64;

impl Sink {
    /// Writes to the file at `path`, which is truncated; `-` is stdout. None: discards the bytes.
    pub fn new(path: Option<&Path>) -> Result<Self> {
        let (to, name) = match path {
            None => (To::Nowhere, "nothing".into()),
            Some(path) if path == Path::new("-") => (
                To::Stream(Box::new(io::stdout()), Sha256::new()),
                "stdout".into(),
            ),
            Some(path) => {
                let name = path.display().to_string();
                let mut options = File::options();
                options.read(true).write(true).create(true).truncate(true);
                let file = said(options.open(path), || format!("cannot write {name}"))?;
                let regular = file.metadata().is_ok_and(|m| m.is_file());
                match regular {
                    true => (To::File(file), name),
                    false => (To::Stream(Box::new(file), Sha256::new()), name),
                }
            }
        };
        Ok(Self {
            to,
            name,
            bytes: 0,
            start: None,
            outside: Duration::ZERO,
        })
    }

    /// Takes bytes that a peer may still write. Those that are written and hashed are copied first.
    pub fn take(&mut self, view: View<'_>) -> Result<()> {
        let now = Instant::now();
        self.start.get_or_insert(now);
        self.bytes += view.len() as u64;
        let written = match &mut self.to {
            To::Nowhere => {
                // Part of the timed part: a receiver at least looks at what it got.
                let lines = (0..view.len()).step_by(CACHE_LINE);
                black_box(lines.fold(0, |x, at| x ^ view.byte(at)));
                return Ok(());
            }
            To::File(file) => view.write_all_to(file.as_fd()),
            To::Stream(stream, hasher) => {
                let bytes = view.to_vec();
                hasher.update(&bytes);
                stream.write_all(&bytes)
            }
        };
        said(written, || format!("cannot write {}", self.name))?;
        self.outside += now.elapsed();
        Ok(())
    }

    /// Bytes taken.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Time since the first byte, without and with the time spent in writing and hashing.
    pub fn elapsed(&self) -> (Duration, Duration) {
        let wall = self.start.map_or(Duration::ZERO, |start| start.elapsed());
        (wall.saturating_sub(self.outside), wall)
    }

    /// The hash of all bytes; None if they went nowhere.
    pub fn finish(self) -> Result<Option<Output<Sha256>>> {
        match self.to {
            To::Nowhere => Ok(None),
            To::File(mut file) => {
                said(hash(&mut file), || format!("cannot read {}", self.name)).map(Some)
            }
            To::Stream(mut stream, hasher) => {
                said(stream.flush(), || format!("cannot write {}", self.name))?;
                Ok(Some(hasher.finalize()))
            }
        }
    }
}

fn hash(file: &mut File) -> io::Result<Output<Sha256>> {
    let mut hasher = Sha256::new();
    let mut buf = vec![0; 1 << 20];
    file.rewind()?;
    loop {
        match file.read(&mut buf)? {
            0 => return Ok(hasher.finalize()),
            len => hasher.update(&buf[..len]),
        }
    }
}
