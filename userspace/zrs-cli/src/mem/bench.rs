// SPDX-License-Identifier: GPL-2.0
//! `zrs mem bench`: what a memory node's writes, reads and copies come to.

use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use serde_json::json;
use zrs::mem::{self, NodeId, Queue, Region};
use zrs::Zrs;

use super::regions::{relay, Room};
use super::{node, seconds, size, told};
use crate::report::{json_line, out};
use crate::Result;

/// Bytes of one of many copies.
const PART: u64 = 64 << 10;
/// Copies that a queue has at a time.
const QUEUED: u32 = 1024;

/// Measure writes and reads of a node, and copies to another one
///
/// The regions are freed afterwards, the first one while it is being written: the time of that is told, too.
#[derive(clap::Args)]
pub struct Args {
    #[arg(value_parser = node)]
    node: NodeId,
    /// A second node: copies to it by the first node, and by relay of this host
    #[arg(value_parser = node)]
    to: Option<NodeId>,
    /// Length of the regions
    #[arg(long, default_value = "16M", value_parser = size)]
    size: u64,
    /// Bytes of one read or write
    #[arg(long, default_value = "1M", value_parser = size)]
    block: u64,
    /// Reads or writes at the same time
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=64))]
    depth: u32,
    /// Time of each measurement, in seconds
    #[arg(long, value_name = "S", default_value = "1", value_parser = seconds)]
    seconds: Duration,
    /// Print a JSON object for each measurement
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    room: Room,
}

pub fn run(zrs: &Zrs, args: &Args) -> Result<()> {
    if args.block > args.size {
        return Err("--block is more than --size: a block lies in a region".into());
    }
    let region = args.room.alloc(zrs, args.node, args.size, false)?;
    let put = told(blocks(args, |at, buf| region.write_at(buf, at)), || {
        "cannot write the region".into()
    })?;
    say(args, "put", put);
    let get = told(blocks(args, |at, buf| region.read_at(buf, at)), || {
        "cannot read the region".into()
    })?;
    say(args, "get", get);
    let small = told(latency(args, &region), || "cannot read the region".into())?;
    say_time(args, "get 4 KiB", small);
    if let Some(node) = args.to {
        let to = args.room.alloc(zrs, node, args.size, false)?;
        let failed = || format!("cannot copy to node {node}");
        let copy = whole(args, || mem::copy(&region, 0, &to, 0, args.size));
        say(args, "copy", told(copy, failed)?);
        let relayed = whole(args, || relay(&region, &to, args.size));
        say(args, "relay", told(relayed, failed)?);
        if args.size >= PART {
            let calls = told(copies(args, &region, &to), failed)?;
            say_rate(args, "calls of 64 KiB", calls);
            let queued = told(queued(args, zrs, &region, &to), failed)?;
            say_rate(args, "queued 64 KiB", queued);
        }
    }
    let freed = told(free_under_load(args, zrs, &region), || {
        "cannot free the region".into()
    })?;
    say_time(args, "free under load", freed);
    Ok(())
}

fn mib_s(bytes: u64, time: Duration) -> f64 {
    bytes as f64 / f64::from(1 << 20) / time.as_secs_f64()
}

fn say(args: &Args, what: &str, rate: f64) {
    match args.json {
        true => json_line(&json!({"what": what, "value": rate, "unit": "MiB/s"})),
        false => out(&format!("{what:6} {rate:9.1} MiB/s\n")),
    }
}

fn say_time(args: &Args, what: &str, median: Duration) {
    let us = median.as_secs_f64() * 1e6;
    match args.json {
        true => json_line(&json!({"what": what, "value": us, "unit": "us"})),
        false => out(&format!("{what}: {us:.1} us\n")),
    }
}

fn say_rate(args: &Args, what: &str, rate: f64) {
    match args.json {
        true => json_line(&json!({"what": what, "value": rate, "unit": "1/s"})),
        false => out(&format!("{what}: {rate:.0} copies a second\n")),
    }
}

/// Copies of 64 KiB, one call after the other: how many a second.
fn copies(args: &Args, from: &Region, to: &Region) -> io::Result<f64> {
    let (began, mut count) = (Instant::now(), 0_u64);
    while began.elapsed() < args.seconds {
        let at = count % (args.size / PART) * PART;
        if mem::copy(from, at, to, at, PART)? != PART {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        count += 1;
    }
    Ok(count as f64 / began.elapsed().as_secs_f64())
}

/// The same by a queue.
fn queued(args: &Args, zrs: &Zrs, from: &Region, to: &Region) -> io::Result<f64> {
    let mut queue = Queue::new(zrs, QUEUED)?;
    let (began, mut begun, mut ended) = (Instant::now(), 0_u64, 0_u64);
    while began.elapsed() < args.seconds || ended < begun {
        while begun - ended < u64::from(QUEUED) && began.elapsed() < args.seconds {
            let at = begun % (args.size / PART) * PART;
            queue.copy(from, at, to, at, PART);
            begun += 1;
        }
        queue.submit()?;
        if queue.completion()?.result? != PART {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        ended += 1;
    }
    Ok(ended as f64 / began.elapsed().as_secs_f64())
}

/// The time of a free while `depth` threads write the region.
fn free_under_load(args: &Args, zrs: &Zrs, region: &Region) -> io::Result<Duration> {
    let again = Region::open(zrs, region.storage())?;
    let over = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        for n in 0..u64::from(args.depth) {
            scope.spawn(move || {
                let buf = vec![0xa5; args.block as usize];
                let at = n % (args.size / args.block) * args.block;
                while region.write_at(&buf, at).is_ok() && !over.load(Relaxed) {}
            });
        }
        std::thread::sleep(args.seconds.min(Duration::from_millis(200)));
        let began = Instant::now();
        let freed = again.free();
        let time = began.elapsed();
        over.store(true, Relaxed);
        freed.map(|()| time)
    })
}

/// Blocks by `depth` threads until the time is over: MiB/s.
fn blocks(
    args: &Args,
    one: impl Fn(u64, &mut [u8]) -> io::Result<usize> + Sync,
) -> io::Result<f64> {
    let (began, count) = (Instant::now(), args.size / args.block);
    let thread = &|mut block: u64| -> io::Result<u64> {
        let mut buf = vec![0x5a; args.block as usize];
        let mut bytes = 0;
        while began.elapsed() < args.seconds {
            let mut done = 0;
            while done < buf.len() {
                let at = block % count * args.block + done as u64;
                match one(at, &mut buf[done..])? {
                    0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                    n => done += n,
                }
            }
            bytes += done as u64;
            block += u64::from(args.depth);
        }
        Ok(bytes)
    };
    let total = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..u64::from(args.depth))
            .map(|n| scope.spawn(move || thread(n)))
            .collect();
        let ended = threads.into_iter().map(|t| t.join().expect("no panic"));
        ended.sum::<io::Result<u64>>()
    })?;
    Ok(mib_s(total, began.elapsed()))
}

/// Whole regions, one after the other: MiB/s.
fn whole(args: &Args, copy: impl Fn() -> io::Result<u64>) -> io::Result<f64> {
    let (began, mut bytes) = (Instant::now(), 0);
    while began.elapsed() < args.seconds {
        let copied = copy()?;
        if copied != args.size {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        bytes += copied;
    }
    Ok(mib_s(bytes, began.elapsed()))
}

/// Reads of 4 KiB, one after the other: the median.
fn latency(args: &Args, region: &Region) -> io::Result<Duration> {
    let mut buf = vec![0; args.size.min(4096) as usize];
    let (began, mut all) = (Instant::now(), Vec::new());
    while began.elapsed() < args.seconds {
        let at = Instant::now();
        region.read_at(&mut buf, 0)?;
        all.push(at.elapsed());
    }
    all.sort_unstable();
    Ok(all[all.len() / 2])
}
