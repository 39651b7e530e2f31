// SPDX-License-Identifier: GPL-2.0
//! The command `zrs`: runs programs, moves files, measures, and shows what the module is doing.
#![deny(unsafe_code)]

mod bench;
mod bpf;
mod cgroup;
mod completions;
mod doctor;
mod drain;
mod key;
mod mem;
mod net;
mod peers;
mod ping;
mod pool;
mod procs;
mod progress;
mod prometheus;
mod recv;
mod report;
mod rules;
mod run;
mod send;
mod set;
mod show;
mod sink;
mod ss;
mod transport;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Zero-copy RDMA sockets: run programs, move files, measure, show what the module is doing.
///
/// Exit status: 0 done, 1 failed (the reason is on stderr), 2 wrong arguments.
#[derive(Parser)]
#[command(name = "zrs", version, max_term_width = 100)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Send(send::Args),
    Recv(recv::Args),
    Ping(ping::Args),
    Bench(bench::Args),
    Run(run::Args),
    Rules(rules::Args),
    Peers(peers::Args),
    Key(key::Args),
    Net(net::Args),
    Bpf(bpf::Args),
    Mem(mem::Args),
    Ss(ss::Ss),
    Pool(pool::Pool),
    Links(show::Links),
    Stats(show::Stats),
    Set(set::Args),
    Drain(drain::Args),
    Doctor(doctor::Args),
    Completions(completions::Args),
}

/// The error is a sentence for the user.
type Result<T> = std::result::Result<T, String>;

fn main() -> ExitCode {
    let done = match Args::parse().command {
        Command::Send(args) => send::run(&args),
        Command::Recv(args) => recv::run(&args),
        Command::Ping(args) => ping::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Run(args) => return run::run(&args),
        Command::Rules(args) => rules::run(&args),
        Command::Peers(args) => peers::run(&args),
        Command::Key(args) => key::run(&args),
        Command::Net(args) => net::run(&args),
        Command::Bpf(args) => bpf::run(&args),
        Command::Mem(args) => mem::run(&args),
        Command::Ss(args) => args.run(),
        Command::Pool(args) => args.run(),
        Command::Links(args) => args.run(),
        Command::Stats(args) => args.run(),
        Command::Set(args) => set::run(&args),
        Command::Drain(args) => drain::run(&args),
        Command::Doctor(args) => return doctor::run(&args),
        Command::Completions(args) => completions::run(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("zrs: {reason}");
            ExitCode::FAILURE
        }
    }
}

/// `result`'s error as "WHAT: reason".
fn said<T>(result: std::io::Result<T>, what: impl FnOnce() -> String) -> Result<T> {
    result.map_err(|e| format!("{}: {}", what(), zrs::reason(&e)))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn arguments_are_consistent() {
        super::Args::command().debug_assert();
    }
}
