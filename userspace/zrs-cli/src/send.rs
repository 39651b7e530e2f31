// SPDX-License-Identifier: GPL-2.0
//! `zrs send`.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};
use zrs::PageBuf;

use crate::progress::Progress;
use crate::report::{self, Report};
use crate::transport::{Conn, Transport};
use crate::{said, Result};

/// Send a file to `zrs recv`
///
/// The timed part goes from the first byte sent until the receiver has taken the last one and
/// ended its direction. Reading the file and hashing lie outside: the file is read into memory
/// before, one larger than half of the available memory in parts between which the clock stands.
#[derive(clap::Args)]
pub struct Args {
    /// The file
    path: PathBuf,
    /// Where `zrs recv` listens
    #[arg(value_name = "ADDR:PORT")]
    addr: String,
    /// Print one JSON object as the last line on stdout
    #[arg(long)]
    json: bool,
    /// The transport of the bytes
    #[arg(long, value_enum, default_value = "zrs")]
    transport: Transport,
}

/// Bytes in one send. The last send also has the remainder: in a separate send, the module would
/// copy a small remainder.
const PIECE: usize = 1 << 20;

pub fn run(args: &Args) -> Result<()> {
    let mut source = Source::open(args)?;
    let mut batch = source.next()?;
    let mut conn = args.transport.connect(&args.addr)?;
    let mut progress = Progress::new(source.total);
    let mut hasher = Sha256::new();
    let lost = |sent: u64, e: io::Error| {
        let addr = &args.addr;
        format!(
            "the transfer to {addr} broke off after {sent} bytes: {}",
            zrs::reason(&e)
        )
    };

    let mut sent = 0;
    let mut outside = Duration::ZERO;
    let start = Instant::now();
    loop {
        for piece in pieces(&source.memory[..batch]) {
            conn.write_all(piece).map_err(|e| lost(sent, e))?;
            sent += piece.len() as u64;
            progress.add(piece.len() as u64);
        }
        if sent == source.total {
            break;
        }
        let pause = Instant::now();
        hasher.update(&source.memory[..batch]);
        batch = source.next()?;
        outside += pause.elapsed();
    }
    finish(&mut conn).map_err(|e| lost(sent, e))?;
    let wall = start.elapsed();
    progress.finish();
    hasher.update(&source.memory[..batch]);

    let info = said(conn.info(), || "cannot read the socket's counters".into())?;
    let report = Report {
        bytes: sent,
        timed: wall - outside,
        wall,
        hash: Some(hasher.finalize()),
        copied: info.map(|i| i.tx_copied),
    };
    match args.json {
        true => report::json_line(&report.json("tx_copied")),
        false => report::out(&report.text("sent")),
    }
    Ok(())
}

/// The file, in memory batch by batch.
struct Source {
    name: String,
    file: File,
    total: u64,
    /// Bytes not yet read.
    left: u64,
    memory: PageBuf,
}

impl Source {
    fn open(args: &Args) -> Result<Self> {
        let name = args.path.display().to_string();
        let file = said(File::open(&args.path), || format!("cannot open {name}"))?;
        let meta = said(file.metadata(), || format!("cannot look at {name}"))?;
        if !meta.is_file() {
            return Err(format!("{name} is not a regular file"));
        }
        let total = meta.len();
        let memory = said(PageBuf::new(batch_len(total)), || {
            format!("no memory for {name}")
        })?;
        Ok(Self {
            name,
            file,
            total,
            left: total,
            memory,
        })
    }

    /// Reads the next batch; returns its length.
    fn next(&mut self) -> Result<usize> {
        let len = self.left.min(self.memory.len() as u64) as usize;
        let read = self.file.read_exact(&mut self.memory[..len]);
        said(read, || {
            format!("cannot read {} (did it shrink?)", self.name)
        })?;
        self.left -= len as u64;
        Ok(len)
    }
}

/// How much of a file of `total` bytes is in memory at a time.
fn batch_len(total: u64) -> usize {
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let available = meminfo
        .lines()
        .find_map(|line| {
            line.strip_prefix("MemAvailable:")?
                .trim()
                .strip_suffix(" kB")?
                .parse()
                .ok()
        })
        .map_or(256 << 20, |kib: u64| kib << 10);
    let most = (available / 2).max(16 << 20);
    if total <= most {
        return total as usize;
    }
    // No batch may be a small rest: all of them the same, in whole pieces, but for the last.
    let batches = total.div_ceil(most);
    total.div_ceil(batches).next_multiple_of(PIECE as u64) as usize
}

/// `batch` cut into pieces; the last one is up to twice as large.
fn pieces(batch: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = batch;
    std::iter::from_fn(move || {
        let len = if rest.len() < 2 * PIECE {
            rest.len()
        } else {
            PIECE
        };
        let (piece, after) = rest.split_at(len);
        rest = after;
        (len > 0).then_some(piece)
    })
}

/// Ends our direction and waits for the receiver to end its own, which means that it has it all.
fn finish(conn: &mut Conn) -> io::Result<()> {
    conn.shutdown_write()?;
    match conn.read(&mut [0])? {
        0 => Ok(()),
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "the receiver talks back",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lens(total: usize) -> Vec<usize> {
        pieces(&vec![0; total]).map(<[u8]>::len).collect()
    }

    #[test]
    fn the_last_piece_takes_the_tail() {
        assert!(lens(0).is_empty());
        assert_eq!(lens(1), [1]);
        assert_eq!(lens(PIECE), [PIECE]);
        assert_eq!(lens(PIECE + 1), [PIECE + 1]);
        assert_eq!(lens(2 * PIECE), [PIECE, PIECE]);
        assert_eq!(lens(3 * PIECE + 5), [PIECE, PIECE, PIECE + 5]);
    }

    #[test]
    fn batches_end_with_no_small_rest() {
        assert_eq!(batch_len(0), 0);
        assert_eq!(batch_len(12_345), 12_345);
        let huge = 1 << 50;
        let batch = batch_len(huge) as u64;
        assert_eq!(batch % PIECE as u64, 0);
        assert!(batch < huge);
    }
}
