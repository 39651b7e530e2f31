// SPDX-License-Identifier: GPL-2.0
//! Faults: allocations, copies, verbs and the connection manager fail, one call at a time. Runs in
//! one process with both hosts' network namespaces, on a kernel with fault injection.

mod beside;
mod calls;
mod copying;
mod dgram;
mod errnos;
mod events;
mod knobs;
mod lending;
mod memory;
mod pair;
mod session;

use std::net::Ipv4Addr;

use crate::support::checks::{say, Checks};
use crate::support::process;

/// Inject faults, one after the other, and check the errors that programs get
#[derive(clap::Args)]
pub struct Args {
    /// calls: each call with its Nth allocation failing; datagrams: the same calls on datagram
    /// sockets; companion: on those with UDP inside; beside: the calls on sockets with TCP beside ZRS; memory: the calls of memory nodes;
    /// points: the module's points, each at its Nth use in a connection's life; async: allocations
    /// in work items and handlers; memory-points, memory-async: the same in the life of regions;
    /// events: each event of the connection manager, to links in all their states
    #[arg(long, value_parser = ["calls", "datagrams", "companion", "beside", "memory",
        "points", "async", "memory-points", "memory-async", "events"])]
    what: String,
    /// Host B
    #[arg(long, default_value = "10.77.0.2")]
    addr: Ipv4Addr,
    /// With TCP beside ZRS: the sockets of points and async; the clients of events, which then has
    /// only the events that come while a link is made
    #[arg(long)]
    beside: bool,
    /// How much slower than usual everything is
    #[arg(long, default_value_t = 1)]
    scale: u32,
    /// Every N, not some of them
    #[arg(long)]
    full: bool,
    /// Only paths, points or events with this in their name
    #[arg(long, default_value = "")]
    only: String,
    /// Only this N of points and async
    #[arg(long)]
    nth: Option<u32>,
}

pub fn run(args: &Args, checks: &mut Checks) {
    if let Err(e) = run_all(args, checks) {
        checks.fail("fault injection", &e);
    }
}

fn run_all(args: &Args, checks: &mut Checks) -> Result<(), String> {
    let io = |e: std::io::Error| e.to_string();
    knobs::prepare().map_err(io)?;
    // A page fault in between would take the fault.
    process::lock_memory().map_err(|e| format!("mlockall: {e}"))?;
    let world = pair::World::new(args.addr, args.scale, args.beside).map_err(io)?;
    match args.what.as_str() {
        "calls" | "datagrams" | "companion" | "beside" | "memory" => {
            let nth = knobs::FailNth::open().map_err(io)?;
            let (full, only) = (args.full, args.only.clone());
            let mut calls = calls::Calls {
                world: &world,
                nth,
                checks,
                total: 0,
                full,
                only,
                posts: 0,
            };
            match args.what.as_str() {
                "calls" => calls.all(),
                "datagrams" => calls.datagrams(),
                "companion" => calls.companion(),
                "memory" => calls.memory(),
                _ => calls.beside(),
            }
        }
        "points" | "memory-points" => {
            for knob in knobs::points().map_err(io)? {
                // A failed deregistration leaks memory for good: fault/deregister has this point.
                if knob.name.contains(&args.only) && knob.name != "fail_deregister" {
                    sessions(args, &world, &knob, checks);
                }
            }
        }
        "events" => events::all(&world, &args.only, checks),
        _ => sessions(args, &world, &knobs::asynchronous(), checks),
    }
    Ok(())
}

/// One session after the other, on a new link each, with the Nth use of `knob` failing.
fn sessions(args: &Args, world: &pair::World, knob: &knobs::Knob, checks: &mut Checks) {
    let beside = match world.beside {
        true => ", TCP beside ZRS",
        false => "",
    };
    let mut hit = 0;
    let mut seen = std::collections::BTreeMap::<String, u32>::new();
    let mut nth = args.nth.unwrap_or(1);
    let result = loop {
        process::alarm(300 * args.scale);
        let session = match args.what.starts_with("memory") {
            true => memory::run(world, knob, nth),
            false => session::run(world, knob, nth),
        };
        match session {
            Ok((struck, verdict)) => {
                for what in verdict {
                    *seen.entry(what).or_default() += 1;
                }
                hit += u32::from(struck);
                if !struck || args.nth.is_some() {
                    break Ok(());
                }
            }
            Err(e) => break Err(e),
        }
        nth += if args.full { 1 } else { 1 + nth };
    };
    let result = result.and_then(|()| world.idle());
    let list: Vec<_> = seen.iter().map(|(what, n)| format!("{n} {what}")).collect();
    let list = match list.join(", ") {
        list if list.is_empty() => "no error".into(),
        list => list,
    };
    match result {
        Ok(()) => {
            checks.yes(
                &format!("{}{beside}: {hit} sessions with a fault, {list}", knob.name),
                hit > 0,
                "it never failed",
            );
        }
        Err(e) => checks.fail(&knob.name, &format!("at N = {nth}: {e} (so far {list})")),
    }
    say(&format!("# {}: N up to {nth}", knob.name));
}
