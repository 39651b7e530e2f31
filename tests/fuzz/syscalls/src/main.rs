// SPDX-License-Identifier: GPL-2.0
//! Fuzzing of the system calls on ZRS sockets and `/dev/zrs`.
//!
//! A program is some calls on a few descriptors (`text.rs` has the format). Programs are drawn from
//! a description of all calls (`calls.rs`), run in a child each (`exec.rs`, `worker.rs`), and kept
//! as the ground for others when they reach code that none has reached (KCOV). It runs as root in a
//! machine with the hosts zrsA and zrsB, which it may well break.
#![deny(unsafe_code)]

mod calls;
mod consts;
mod cover;
mod desc;
mod exec;
mod fuzz;
mod gen;
mod klog;
mod mutate;
mod prog;
mod rng;
mod special;
#[allow(unsafe_code)]
mod sys;
mod text;
mod worker;

#[cfg(test)]
mod tests;

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand};

use fuzz::Fuzzer;
use rng::Rng;

#[derive(Parser)]
#[command(
    name = "zrs-fuzz",
    about = "Fuzzes the system calls on ZRS sockets and /dev/zrs"
)]
struct Args {
    /// How many times slower than usual this machine is
    #[arg(long, global = true, default_value_t = 1)]
    scale: u32,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Fuzz(FuzzArgs),
    Run(RunArgs),
    Minimize(MinimizeArgs),
    Check(CheckArgs),
}

/// Run the corpus, then fuzz
#[derive(clap::Args)]
struct FuzzArgs {
    /// Programs to begin with: files and folders
    #[arg(long, value_name = "PATH")]
    corpus: Vec<PathBuf>,
    /// How long, the corpus apart; 0 runs the corpus only
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Seed of all random numbers
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Folder for findings, new programs and those that ran last
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Reduce the kept programs to the needed ones
    #[arg(long)]
    minimize: bool,
    /// zrs.ko, to count its points
    #[arg(long, value_name = "FILE")]
    module: Option<PathBuf>,
}

/// Run programs and say what each call returned
#[derive(clap::Args)]
struct RunArgs {
    /// Files and folders
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Number of times to run all of them
    #[arg(long, default_value_t = 1)]
    times: u32,
}

/// Print the shortest part of a program after which the kernel log still has something bad
#[derive(clap::Args)]
struct MinimizeArgs {
    file: PathBuf,
}

/// Read programs without running them; name the calls that no program has
#[derive(clap::Args)]
struct CheckArgs {
    #[arg(required = true)]
    files: Vec<PathBuf>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let scale = args.scale.max(1);
    let good = match args.command {
        Command::Fuzz(args) => fuzz(scale, &args),
        Command::Run(args) => run(scale, &args),
        Command::Minimize(args) => minimize(scale, &args),
        Command::Check(args) => check(&args),
    };
    match good {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("zrs-fuzz: {e}");
            ExitCode::from(2)
        }
    }
}

fn read(files: &[PathBuf]) -> io::Result<Vec<(PathBuf, prog::Program)>> {
    fuzz::read_programs(files).map_err(io::Error::other)
}

fn fuzz(scale: u32, args: &FuzzArgs) -> io::Result<bool> {
    let corpus = read(&args.corpus)?;
    let mut fuzzer = Fuzzer::new(scale, args.out.as_deref())?;
    if !fuzzer.exec.has_coverage() {
        println!("this kernel has no KCOV: not guided by coverage, but by what calls return");
    }
    println!(
        "seed {}, {} programs to begin with",
        args.seed,
        corpus.len()
    );
    for (path, program) in corpus {
        let (before, kept) = (fuzzer.findings.len(), fuzzer.corpus.len());
        fuzzer.try_program(program.clone(), false)?;
        if fuzzer.findings.len() != before {
            println!("    by {}", path.display());
        }
        // The corpus is the ground for others in any case.
        if fuzzer.corpus.len() == kept {
            fuzzer.corpus.push(program);
        }
    }
    fuzzer.settle()?;
    let replayed = (fuzzer.programs, fuzzer.seen.len());
    println!("replayed: programs={} seen={}", replayed.0, replayed.1);
    if args.seconds > 0 {
        let end = Instant::now() + Duration::from_secs(args.seconds);
        fuzzer.fuzz(&mut Rng::new(args.seed), end, args.minimize)?;
    }
    let coverage = fuzzer.exec.has_coverage();
    if coverage {
        tell_coverage(&fuzzer, args)?;
    }
    println!(
        "fuzz: programs={} calls={} {}={} corpus={} findings={} seed={}",
        fuzzer.programs,
        fuzzer.calls,
        if coverage { "points" } else { "pairs" },
        fuzzer.seen.len(),
        fuzzer.corpus.len(),
        fuzzer.findings.len(),
        args.seed
    );
    Ok(fuzzer.findings.is_empty() && !fuzzer.seen.is_empty())
}

fn tell_coverage(fuzzer: &Fuzzer, args: &FuzzArgs) -> io::Result<()> {
    let sum = cover::Functions::of_module().sum(fuzzer.seen.iter().copied());
    let all = args.module.as_deref().and_then(cover::points).unwrap_or(0);
    let percent = (sum.points * 100).checked_div(all).unwrap_or(0);
    println!(
        "coverage: points={} of={all} percent={percent} rust={} functions={}",
        sum.points,
        sum.rust,
        sum.functions.len()
    );
    if let Some(out) = &args.out {
        let lines = sum
            .functions
            .iter()
            .map(|(name, n)| format!("{n} {name}\n"));
        std::fs::write(out.join("functions.txt"), lines.collect::<String>())?;
    }
    Ok(())
}

fn run(scale: u32, args: &RunArgs) -> io::Result<bool> {
    let programs = read(&args.files)?;
    let mut fuzzer = Fuzzer::new(scale, None)?;
    for _ in 0..args.times {
        for (path, program) in &programs {
            let (ran, _) = fuzzer.run(program)?;
            println!("# {}\n{}", path.display(), fuzz::describe(program, &ran));
        }
    }
    fuzzer.settle()?;
    Ok(fuzzer.findings.is_empty())
}

fn minimize(scale: u32, args: &MinimizeArgs) -> io::Result<bool> {
    let mut fuzzer = Fuzzer::new(scale, None)?;
    for (_, program) in read(std::slice::from_ref(&args.file))? {
        let (_, wrong) = fuzzer.run(&program)?;
        if !wrong {
            println!("# nothing is wrong with it");
            return Ok(false);
        }
        let less = fuzzer.minimize(program, |fuzzer, program| {
            fuzzer.findings.clear();
            fuzzer.run(program).map(|(_, wrong)| wrong)
        })?;
        print!("{less}");
    }
    Ok(true)
}

fn check(args: &CheckArgs) -> io::Result<bool> {
    let programs = read(&args.files)?;
    let mut missing: Vec<&str> = calls::all().map(|d| d.name).collect();
    for call in programs.iter().flat_map(|(_, p)| &p.calls) {
        missing.retain(|name| *name != call.desc.name);
    }
    println!(
        "{} programs; calls that none has: {}",
        programs.len(),
        missing.join(" ")
    );
    Ok(missing.is_empty())
}
