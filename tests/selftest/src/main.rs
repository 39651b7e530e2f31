// SPDX-License-Identifier: GPL-2.0
//! The programs behind the selftests. Each subcommand prints a line for each thing it looked at,
//! `ok - NAME` or `not ok - NAME: saw X, expected Y`, and exits 0 when all are ok, else 1. Servers
//! print `listening on ADDR:PORT` on stdout first.
//!
//! `--protocol 6` runs everything on TCP, which the expectations were taken from where ZRS does
//! not say otherwise; so the tests are tested without the module.
#![deny(unsafe_code)]

mod common;
mod compare;
mod connect;
mod events;
mod faults;
mod hostile;
mod links;
mod pool;
mod scale;
mod socket;
mod stream;
mod stress;
mod support;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "zrs-selftest", about = "The programs behind the ZRS selftests")]
struct Args {
    /// The protocol of the sockets; 6 is TCP, to test the tests
    #[arg(long, global = true, default_value_t = support::raw::IPPROTO_ZRS)]
    protocol: i32,
    /// Give up after this many seconds (SIGALRM), so that nothing hangs
    #[arg(long, global = true, default_value_t = 300)]
    limit: u32,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Xfer(common::xfer::Args),
    Compare(compare::Args),
    Refused(connect::refused::Args),
    Requests(stream::requests::Args),
    Backlog(connect::backlog::Args),
    Fullwindow(stream::fullwindow::Args),
    Ioctl(socket::ioctl::Args),
    Ipv6(connect::ipv6::Args),
    Errno(socket::errno::Args),
    Options(socket::options::Args),
    Sndbuf(socket::sndbuf::Args),
    Rcvbuf(socket::rcvbuf::Args),
    Calls(socket::calls::Args),
    Linger(socket::calls::LingerArgs),
    Patience(links::patience::Args),
    Cutoff(links::patience::CutArgs),
    Poll(events::poll::Args),
    States(events::states::Args),
    Wakes(events::wakes::Args),
    Ports(socket::ports::Args),
    Epoll(events::epoll::Args),
    Busypoll(events::busypoll::Args),
    Ringwait(events::ringwait::Args),
    Faults(faults::Args),
    Share(socket::share::Args),
    Scatter(socket::scatter::Args),
    Handed(socket::handed::Args),
    Pingpong(common::pingpong::Args),
    Hold(common::hold::Args),
    Oneway(common::oneway::Args),
    Serve(common::serve::Args),
    Lost(common::lost::Args),
    StreamSend(common::stream::SendArgs),
    StreamRecv(common::stream::RecvArgs),
    Hostile(hostile::Args),
    Bystander(common::bystander::Args),
    Stress(stress::Args),
    Zerocopy(stream::zerocopy::Args),
    Splice(stream::splice::Args),
    Windows(stream::windows::Args),
    Isolation(stream::isolation::Args),
    Mapped(stream::mapped::Args),
    Contents(stream::contents::Args),
    Cork(socket::cork::Args),
    Hoard(stream::hoard::Args),
    Fill(common::fill::Args),
    Storm(common::storm::Args),
    Ringspin(events::ringspin::Args),
    Crowd(scale::crowd::Args),
    Churn(scale::churn::Args),
    Fair(scale::fair::Args),
    Stopped(pool::stopped::Args),
    Burst(pool::burst::Args),
    Bulk(pool::bulk::Args),
    Lands(pool::lands::Args),
    Ringsmall(stream::ringsmall::Args),
}

fn main() -> ExitCode {
    let args = Args::parse();
    support::raw::set_protocol(args.protocol);
    support::process::alarm(args.limit);
    let mut checks = support::checks::Checks::default();
    match args.command {
        Command::Xfer(args) => common::xfer::run(&args, &mut checks),
        Command::Compare(args) => compare::run(&args, &mut checks),
        Command::Refused(args) => connect::refused::run(&args, &mut checks),
        Command::Requests(args) => stream::requests::run(&args, &mut checks),
        Command::Backlog(args) => connect::backlog::run(&args, &mut checks),
        Command::Fullwindow(args) => stream::fullwindow::run(&args, &mut checks),
        Command::Ioctl(args) => socket::ioctl::run(&args, &mut checks),
        Command::Ipv6(args) => connect::ipv6::run(&args, &mut checks),
        Command::Errno(args) => socket::errno::run(&args, &mut checks),
        Command::Options(args) => socket::options::run(&args, &mut checks),
        Command::Rcvbuf(args) => socket::rcvbuf::run(&args, &mut checks),
        Command::Sndbuf(args) => socket::sndbuf::run(&args, &mut checks),
        Command::Calls(args) => socket::calls::run(&args, &mut checks),
        Command::Linger(args) => socket::calls::run_linger(&args, &mut checks),
        Command::Patience(args) => links::patience::run(&args, &mut checks),
        Command::Cutoff(args) => links::patience::run_cut(&args, &mut checks),
        Command::Poll(args) => events::poll::run(&args, &mut checks),
        Command::States(args) => events::states::run(&args, &mut checks),
        Command::Wakes(args) => events::wakes::run(&args, &mut checks),
        Command::Ports(args) => socket::ports::run(&args, &mut checks),
        Command::Epoll(args) => events::epoll::run(&args, &mut checks),
        Command::Busypoll(args) => events::busypoll::run(&args, &mut checks),
        Command::Ringwait(args) => events::ringwait::run(&args, &mut checks),
        Command::Faults(args) => faults::run(&args, &mut checks),
        Command::Share(args) => socket::share::run(&args, &mut checks),
        Command::Scatter(args) => socket::scatter::run(&args, &mut checks),
        Command::Handed(args) => socket::handed::run(&args, &mut checks),
        Command::Pingpong(args) => common::pingpong::run(&args, &mut checks),
        Command::Hold(args) => common::hold::run(&args, &mut checks),
        Command::Oneway(args) => common::oneway::run(&args, &mut checks),
        Command::Serve(args) => common::serve::run(&args, &mut checks),
        Command::Lost(args) => common::lost::run(&args, &mut checks),
        Command::StreamSend(args) => common::stream::send(&args, &mut checks),
        Command::StreamRecv(args) => common::stream::recv(&args, &mut checks),
        Command::Bystander(args) => common::bystander::run(&args, &mut checks),
        Command::Stress(args) => stress::run(&args, &mut checks),
        Command::Hostile(args) => hostile::run(&args, &mut checks),
        Command::Zerocopy(args) => stream::zerocopy::run(&args, &mut checks),
        Command::Splice(args) => stream::splice::run(&args, &mut checks),
        Command::Windows(args) => stream::windows::run(&args, &mut checks),
        Command::Isolation(args) => stream::isolation::run(&args, &mut checks),
        Command::Mapped(args) => stream::mapped::run(&args, &mut checks),
        Command::Contents(args) => stream::contents::run(&args, &mut checks),
        Command::Cork(args) => socket::cork::run(&args, &mut checks),
        Command::Hoard(args) => stream::hoard::run(&args, &mut checks),
        Command::Fill(args) => common::fill::run(&args, &mut checks),
        Command::Storm(args) => common::storm::run(&args),
        Command::Ringspin(args) => events::ringspin::run(&args, &mut checks),
        Command::Crowd(args) => scale::crowd::run(&args, &mut checks),
        Command::Churn(args) => scale::churn::run(&args, &mut checks),
        Command::Fair(args) => scale::fair::run(&args, &mut checks),
        Command::Stopped(args) => pool::stopped::run(&args, &mut checks),
        Command::Burst(args) => pool::burst::run(&args, &mut checks),
        Command::Bulk(args) => pool::bulk::run(&args, &mut checks),
        Command::Lands(args) => pool::lands::run(&args, &mut checks),
        Command::Ringsmall(args) => stream::ringsmall::run(&args, &mut checks),
    }
    checks.exit()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn arguments_are_consistent() {
        super::Args::command().debug_assert();
    }
}
