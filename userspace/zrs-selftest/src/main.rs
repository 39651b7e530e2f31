// SPDX-License-Identifier: GPL-2.0
//! The programs behind the selftests. Each subcommand prints a line for each thing it looked at,
//! `ok - NAME` or `not ok - NAME: saw X, expected Y`, and exits 0 when all are ok, else 1. Servers
//! print `listening on ADDR:PORT` on stdout first.
//!
//! `--protocol 6` runs everything on TCP, which the expectations were taken from where ZRS does
//! not say otherwise; so the tests are tested without the module.
#![deny(unsafe_code)]

mod backlog;
mod busypoll;
mod bystander;
#[allow(unsafe_code)]
mod calls;
mod checks;
mod compare;
mod contents;
mod cork;
mod epoll;
mod faults;
mod fill;
mod fullwindow;
mod handed;
mod hoard;
mod hold;
mod hostile;
mod ioctl;
mod ipv6;
mod isolation;
mod lost;
mod mapped;
mod oneway;
mod patience;
mod pattern;
mod pingpong;
mod poll;
mod pool;
mod ports;
mod probe;
#[allow(unsafe_code)]
mod raw;
mod rcvbuf;
mod refused;
mod requests;
mod ringspin;
mod ringwait;
mod rx;
mod scale;
mod scatter;
mod serve;
mod share;
mod sndbuf;
mod sockcalls;
mod sockerr;
mod sockopts;
mod splice;
mod states;
mod storm;
mod stream;
mod stress;
#[allow(unsafe_code)]
mod uring;
mod verified;
mod wakes;
#[allow(unsafe_code)]
mod wild;
mod windows;
mod xfer;
mod zerocopy;

use std::net::SocketAddrV4;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "zrs-selftest", about = "The programs behind the ZRS selftests")]
struct Args {
    /// The protocol of the sockets; 6 is TCP, to test the tests
    #[arg(long, global = true, default_value_t = raw::IPPROTO_ZRS)]
    protocol: i32,
    /// Give up after this many seconds (SIGALRM), so that nothing hangs
    #[arg(long, global = true, default_value_t = 300)]
    limit: u32,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Xfer(xfer::Args),
    Compare(compare::Args),
    Refused(refused::Args),
    Requests(requests::Args),
    Backlog(backlog::Args),
    Fullwindow(fullwindow::Args),
    Ioctl(ioctl::Args),
    Ipv6(ipv6::Args),
    Sockerr(sockerr::Args),
    Sockopts(sockopts::Args),
    Sndbuf(sndbuf::Args),
    Rcvbuf(rcvbuf::Args),
    Sockcalls(sockcalls::Args),
    Linger(sockcalls::LingerArgs),
    Patience(patience::Args),
    Cutoff(patience::CutArgs),
    Poll(poll::Args),
    States(states::Args),
    Wakes(wakes::Args),
    Ports(ports::Args),
    Epoll(epoll::Args),
    Busypoll(busypoll::Args),
    Ringwait(ringwait::Args),
    Faults(faults::Args),
    Share(share::Args),
    Scatter(scatter::Args),
    Handed(handed::Args),
    Pingpong(pingpong::Args),
    Hold(hold::Args),
    Oneway(oneway::Args),
    Serve(serve::Args),
    Lost(lost::Args),
    StreamSend(stream::SendArgs),
    StreamRecv(stream::RecvArgs),
    Hostile(hostile::Args),
    Bystander(bystander::Args),
    Stress(stress::Args),
    Zerocopy(zerocopy::Args),
    Splice(splice::Args),
    Windows(windows::Args),
    Isolation(isolation::Args),
    Mapped(mapped::Args),
    Contents(contents::Args),
    Cork(cork::Args),
    Hoard(hoard::Args),
    Fill(fill::Args),
    Storm(storm::Args),
    Ringspin(ringspin::Args),
    Crowd(scale::crowd::Args),
    Churn(scale::churn::Args),
    Fair(scale::fair::Args),
    Stopped(pool::stopped::Args),
    Burst(pool::burst::Args),
    Bulk(pool::bulk::Args),
    Lands(pool::lands::Args),
}

fn main() -> ExitCode {
    let args = Args::parse();
    raw::set_protocol(args.protocol);
    raw::alarm(args.limit);
    let mut checks = checks::Checks::default();
    match args.command {
        Command::Xfer(args) => xfer::run(&args, &mut checks),
        Command::Compare(args) => compare::run(&args, &mut checks),
        Command::Refused(args) => refused::run(&args, &mut checks),
        Command::Requests(args) => requests::run(&args, &mut checks),
        Command::Backlog(args) => backlog::run(&args, &mut checks),
        Command::Fullwindow(args) => fullwindow::run(&args, &mut checks),
        Command::Ioctl(args) => ioctl::run(&args, &mut checks),
        Command::Ipv6(args) => ipv6::run(&args, &mut checks),
        Command::Sockerr(args) => sockerr::run(&args, &mut checks),
        Command::Sockopts(args) => sockopts::run(&args, &mut checks),
        Command::Rcvbuf(args) => rcvbuf::run(&args, &mut checks),
        Command::Sndbuf(args) => sndbuf::run(&args, &mut checks),
        Command::Sockcalls(args) => sockcalls::run(&args, &mut checks),
        Command::Linger(args) => sockcalls::run_linger(&args, &mut checks),
        Command::Patience(args) => patience::run(&args, &mut checks),
        Command::Cutoff(args) => patience::run_cut(&args, &mut checks),
        Command::Poll(args) => poll::run(&args, &mut checks),
        Command::States(args) => states::run(&args, &mut checks),
        Command::Wakes(args) => wakes::run(&args, &mut checks),
        Command::Ports(args) => ports::run(&args, &mut checks),
        Command::Epoll(args) => epoll::run(&args, &mut checks),
        Command::Busypoll(args) => busypoll::run(&args, &mut checks),
        Command::Ringwait(args) => ringwait::run(&args, &mut checks),
        Command::Faults(args) => faults::run(&args, &mut checks),
        Command::Share(args) => share::run(&args, &mut checks),
        Command::Scatter(args) => scatter::run(&args, &mut checks),
        Command::Handed(args) => handed::run(&args, &mut checks),
        Command::Pingpong(args) => pingpong::run(&args, &mut checks),
        Command::Hold(args) => hold::run(&args, &mut checks),
        Command::Oneway(args) => oneway::run(&args, &mut checks),
        Command::Serve(args) => serve::run(&args, &mut checks),
        Command::Lost(args) => lost::run(&args, &mut checks),
        Command::StreamSend(args) => stream::send(&args, &mut checks),
        Command::StreamRecv(args) => stream::recv(&args, &mut checks),
        Command::Bystander(args) => bystander::run(&args, &mut checks),
        Command::Stress(args) => stress::run(&args, &mut checks),
        Command::Hostile(args) => hostile::run(&args, &mut checks),
        Command::Zerocopy(args) => zerocopy::run(&args, &mut checks),
        Command::Splice(args) => splice::run(&args, &mut checks),
        Command::Windows(args) => windows::run(&args, &mut checks),
        Command::Isolation(args) => isolation::run(&args, &mut checks),
        Command::Mapped(args) => mapped::run(&args, &mut checks),
        Command::Contents(args) => contents::run(&args, &mut checks),
        Command::Cork(args) => cork::run(&args, &mut checks),
        Command::Hoard(args) => hoard::run(&args, &mut checks),
        Command::Fill(args) => fill::run(&args, &mut checks),
        Command::Storm(args) => storm::run(&args),
        Command::Ringspin(args) => ringspin::run(&args, &mut checks),
        Command::Crowd(args) => scale::crowd::run(&args, &mut checks),
        Command::Churn(args) => scale::churn::run(&args, &mut checks),
        Command::Fair(args) => scale::fair::run(&args, &mut checks),
        Command::Stopped(args) => pool::stopped::run(&args, &mut checks),
        Command::Burst(args) => pool::burst::run(&args, &mut checks),
        Command::Bulk(args) => pool::bulk::run(&args, &mut checks),
        Command::Lands(args) => pool::lands::run(&args, &mut checks),
    }
    checks.exit()
}

/// A number of bytes: 4096, 64k, 64M, 1G.
fn size(text: &str) -> Result<usize, String> {
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 10),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 20),
        Some(b'g' | b'G') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let number: usize = digits.parse().map_err(|e| format!("{text}: {e}"))?;
    number
        .checked_mul(1 << shift)
        .ok_or_else(|| format!("{text} is too large"))
}

/// Which end of a test this process is.
#[derive(clap::Args)]
#[group(required = true, multiple = false)]
struct End {
    /// Listen here
    #[arg(long, value_name = "ADDR:PORT")]
    server: Option<SocketAddrV4>,
    /// Connect to the server
    #[arg(long, value_name = "ADDR:PORT")]
    client: Option<SocketAddrV4>,
}

/// The same, with its address.
enum Side {
    Server(SocketAddrV4),
    Client(SocketAddrV4),
}

impl End {
    fn side(&self) -> Side {
        match (self.server, self.client) {
            (Some(addr), _) => Side::Server(addr),
            (None, Some(addr)) => Side::Client(addr),
            (None, None) => unreachable!("one of them is required"),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn arguments_are_consistent() {
        super::Args::command().debug_assert();
    }

    #[test]
    fn sizes() {
        assert_eq!(super::size("64M"), Ok(64 << 20));
        assert_eq!(super::size("17"), Ok(17));
        assert!(
            super::size("M").is_err() && super::size("").is_err() && super::size("-1").is_err()
        );
        assert!(super::size("99999999999999G").is_err());
    }
}
