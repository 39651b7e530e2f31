// SPDX-License-Identifier: GPL-2.0
//! A hostile peer: speaks the ZRS protocol over verbs from userspace, and breaks it, against the
//! module of another host. Prints `ok - CASE` or `not ok - CASE: why` for each case.
//!
//! It runs in the network namespace of one host, with the module and `/dev/zrs` in the same kernel:
//! the sockets that it attacks are its own, in the namespace `--net` of the other host, so that
//! each case sees both ends. The module must not listen in its own namespace.
#![deny(unsafe_code)]

mod bystander;
mod cases;
mod forged;
mod mem_peer;
mod peer;
#[allow(unsafe_code)]
mod verbs;
mod world;

use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;

use crate::bystander::Bystander;
use crate::cases::pose::{self, Pose};
use crate::world::World;

#[derive(Parser)]
#[command(
    name = "zrs-hostile",
    about = "A peer that breaks every rule of the ZRS protocol"
)]
struct Args {
    /// Our address; the next one is ours too
    #[arg(long, default_value = "10.77.0.3")]
    local: Ipv4Addr,
    /// The address of the module's host
    #[arg(long, default_value = "10.77.0.2")]
    victim: Ipv4Addr,
    /// Its network namespace
    #[arg(long, default_value = "zrsB")]
    net: String,
    /// The namespace of a third host that talks with it all the time; empty: none
    #[arg(long, default_value = "zrsA")]
    bystander: String,
    /// Factor for all time limits
    #[arg(long, default_value_t = 1)]
    scale: u32,
    /// Of the random cases
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How long the random cases run
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Leave out the cases that wait for long timeouts
    #[arg(long)]
    quick: bool,
    /// Run one of this number of cases only; the random ones always
    #[arg(long, default_value_t = 1)]
    every: usize,
    /// Give up after this number of seconds
    #[arg(long, default_value_t = 600)]
    limit: u32,
    /// Print the cases
    #[arg(long)]
    list: bool,
    /// Stand still in a state
    #[arg(long, hide = true, requires = "port")]
    pose: Option<Pose>,
    #[arg(long, hide = true)]
    port: Option<u16>,
    #[arg(long, hide = true)]
    source: Option<u16>,
    /// Only cases with one of these in their names
    cases: Vec<String>,
}

fn say(line: &str) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

fn main() -> ExitCode {
    let args = Args::parse();
    if args.list {
        cases::all().iter().for_each(|case| say(case.name));
        return ExitCode::SUCCESS;
    }
    verbs::alarm(args.limit);
    match run(&args) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(e) => {
            say(&format!("not ok - zrs-hostile: {e}"));
            ExitCode::FAILURE
        }
    }
}

/// How many cases have failed.
fn run(args: &Args) -> io::Result<usize> {
    let mut world = World::new(
        args.local,
        args.victim,
        &args.net,
        args.scale,
        args.seed,
        args.seconds,
    )?;
    if let Some(pose) = args.pose {
        world.speak_from(args.source.unwrap_or(900));
        pose::stand(&mut world, pose, args.port.unwrap_or(0))?;
        return Ok(0);
    }
    let begin = world.stats()?;
    if !args.bystander.is_empty() {
        world.bystander = Some(Bystander::start(&args.bystander, &args.net, args.victim)?);
    }
    let (mut failed, mut ran) = (0, 0);
    say(&format!(
        "# SEED={} chooses the random messages, and the cases if not all run",
        args.seed
    ));
    let chosen = |name: &str| match args.cases.is_empty() {
        // These suit other parameters of the module, memory nodes or keys, and run only if they are
        // asked for.
        true => ![
            "named/",
            "memory/",
            "memory-key/",
            "memory-silent/",
            "proof/",
        ]
        .iter()
        .any(|group| name.starts_with(group)),
        false => args.cases.iter().any(|c| name.contains(c)),
    };
    for (i, case) in cases::all().iter().enumerate() {
        let sampled = case.is_random() || (i + args.seed as usize) % args.every == 0;
        if !chosen(case.name) || !sampled || args.quick && case.slow {
            continue;
        }
        ran += 1;
        let from = Instant::now();
        match case.run(&mut world) {
            Ok(()) => say(&format!("ok - {}", case.name)),
            Err(e) => {
                failed += 1;
                say(&format!("not ok - {}: {e}", case.name));
            }
        }
        let took = from.elapsed().as_millis();
        if took > 2000 * u128::from(args.scale) {
            say(&format!("# {} took {took} ms", case.name));
        }
    }
    if let Some(bystander) = world.bystander.take() {
        let rounds = bystander.rounds();
        match bystander.stop() {
            Ok(()) => say(&format!(
                "ok - the bystander noticed nothing ({ran} cases, {rounds} rounds)"
            )),
            Err(e) => {
                failed += 1;
                say(&format!("not ok - the bystander noticed nothing: {e}"));
            }
        }
    }
    match world.settled(&begin, 30) {
        Ok(()) => say("ok - nothing is left behind"),
        Err(e) => {
            failed += 1;
            say(&format!("not ok - nothing is left behind: {e}"));
        }
    }
    Ok(failed)
}
