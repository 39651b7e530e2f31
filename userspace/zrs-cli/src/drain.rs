// SPDX-License-Identifier: GPL-2.0
//! `zrs drain`: new connections by TCP, so that the module can be unloaded.

use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use zrs::Zrs;

use crate::report::out;
use crate::{said, set, Result};

/// How often the sockets are counted.
const LOOK: Duration = Duration::from_millis(100);

/// Let ZRS come to its end, so that the module can be unloaded
///
/// From now on no ZRS sockets are made: programs under "zrs run --tcp=auto", and those of control
/// groups that "zrs bpf" has, get TCP sockets.
/// Sockets that are there in that mode connect with TCP, and no new connections with ZRS are
/// accepted. The connections that there are go on to their end; programs that listen have to be
/// restarted. Then: modprobe -r zrs.
#[derive(clap::Args)]
pub struct Args {
    /// Wait up to this many seconds until no socket is left
    #[arg(short, long, value_name = "SECONDS", conflicts_with = "stop")]
    wait: Option<u64>,
    /// Use ZRS again
    #[arg(long)]
    stop: bool,
}

pub fn run(args: &Args) -> Result<()> {
    let value = if args.stop { "0" } else { "1" };
    set::apply(
        Path::new(set::PARAMETERS),
        &[("drain".into(), value.into())],
    )?;
    if args.stop {
        return Ok(());
    }
    let zrs = Zrs::open().map_err(|e| e.to_string())?;
    let begin = Instant::now();
    loop {
        let stats = said(zrs.stats(), || "cannot read the module's counters".into())?;
        let left = stats.sockets;
        if left == 0 {
            out("no sockets are left: modprobe -r zrs\n");
            return Ok(());
        }
        let text = format!("sockets left: {left} (zrs ss -p shows whose they are)");
        match args.wait {
            None => {
                out(&format!("{text}\n"));
                return Ok(());
            }
            Some(seconds) if begin.elapsed() >= Duration::from_secs(seconds) => return Err(text),
            Some(_) => sleep(LOOK),
        }
    }
}
