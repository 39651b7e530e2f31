// SPDX-License-Identifier: GPL-2.0
//! Something that keeps the module in use.

use std::fs::File;
use std::io::Read;
use std::net::SocketAddrV4;
use std::os::fd::AsFd;

use clap::ValueEnum;
use zrs_sys::Map;

use crate::checks::{say, Checks};
use crate::raw::{self, Result};
use crate::serve::{ask, DISCARD};

/// Hold something open until stdin ends; prints "holding" when it does
#[derive(clap::Args)]
pub struct Args {
    #[arg(long, value_enum)]
    what: What,
    /// listen: where; conn, ring, map: where `serve` runs
    #[arg(long, value_name = "ADDR:PORT", required_if_eq_any([
        ("what", "listen"), ("what", "conn"), ("what", "ring"), ("what", "map")]))]
    addr: Option<SocketAddrV4>,
}

#[derive(Clone, Copy, ValueEnum)]
enum What {
    /// /dev/zrs
    Dev,
    /// A fresh socket
    Socket,
    /// A listening socket
    Listen,
    /// A connected socket
    Conn,
    /// A connected socket with its ring mapped
    Ring,
    /// Only the mappings of a ring: the socket is closed, and not shut down before
    Map,
}

pub fn run(args: &Args, checks: &mut Checks) {
    raw::alarm(0);
    let Some(held) = checks.need("hold", hold(args)) else {
        return;
    };
    say("holding");
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    drop(held);
}

fn hold(args: &Args) -> Result<Box<dyn std::any::Any>> {
    let addr = args
        .addr
        .unwrap_or(SocketAddrV4::new([127, 0, 0, 1].into(), 0));
    Ok(match args.what {
        What::Dev => Box::new(File::options().read(true).write(true).open("/dev/zrs")?),
        What::Socket => Box::new(raw::stream()?),
        What::Listen => Box::new(raw::listener(addr)?),
        What::Conn => Box::new(ask(addr, &[DISCARD])?),
        What::Ring => Box::new(zrs::Stream::from(ask(addr, &[DISCARD])?).rx_ring()?),
        What::Map => {
            let fd = ask(addr, &[DISCARD])?;
            let ring = zrs_sys::sock::rx_ring(fd.as_fd())?;
            let (ring_len, window_len) = (ring.ring_bytes as usize, ring.window_bytes as usize);
            Box::new((
                Map::shared_write(fd.as_fd(), ring.ring_offset, ring_len)?,
                Map::shared_read(fd.as_fd(), ring.window_offset, window_len)?,
            ))
        }
    })
}
