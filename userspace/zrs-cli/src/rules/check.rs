// SPDX-License-Identifier: GPL-2.0
//! `zrs rules --check`: netfilter filters TCP, not RDMA; the consequence for each server.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::SocketAddr;

use zrs::{Info, State};

use crate::report::out;
use crate::show::{collect, open};
use crate::Result;

pub fn run() -> Result<()> {
    let sockets = collect(open()?.sockets(), "sockets")?;
    let drops = closes_something();
    out(&text(&sockets, drops));
    Ok(())
}

/// Whether a packet filter of this namespace has rules; `None`: that cannot be seen.
fn closes_something() -> Option<bool> {
    let answer = std::process::Command::new("nft")
        .args(["list", "ruleset"])
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&answer.stdout);
    answer
        .status
        .success()
        .then(|| text.contains("drop") || text.contains("reject"))
}

/// The report on the servers.
fn text(sockets: &[Info], drops: Option<bool>) -> String {
    let servers = |tcp: bool| -> BTreeSet<SocketAddr> {
        let listen = sockets.iter().filter(|i| i.state == State::Listen);
        listen.filter(|i| i.tcp == tcp).map(|i| i.local).collect()
    };
    let (both, zrs) = (servers(true), servers(false));
    if both.is_empty() && zrs.is_empty() {
        return "no server listens with ZRS in this network namespace\n".into();
    }
    let mut all = String::new();
    if !both.is_empty() {
        all += "open by ZRS and by TCP:\n";
        all += &list(&both);
        all += match drops {
            Some(true) => {
                "  A packet filter drops something here. What it closes of these for TCP is open by ZRS all the same:\n  \
                 netfilter does not see RDMA.\n"
            }
            Some(false) => "  No packet filter drops anything here.\n",
            None => {
                "  Whether a packet filter closes these for TCP cannot be seen (nft list ruleset, as root). What it closes is\n  \
                 open by ZRS all the same: netfilter does not see RDMA.\n"
            }
        };
        all += "  To close one for ZRS, let TCP have the port (a restart of the server takes it over):\n";
        for port in ports(&both) {
            all += &format!("    zrs rules add tcp bind port {port}\n");
        }
        all +=
            "  Or close the way to ZRS: UDP port 4791 for RoCE, of the hosts that may not come.\n";
        all += "  If one of these was for ZRS alone: zrs run --tcp=required, or --tcp=never.\n";
    }
    if !zrs.is_empty() {
        all += "open by ZRS alone, which no packet filter for TCP closes:\n";
        all += &list(&zrs);
        all += "  To keep hosts away, close UDP port 4791 (RoCE) for them, or keep the servers with TCP: zrs run --tcp=only.\n";
    }
    all
}

fn list(servers: &BTreeSet<SocketAddr>) -> String {
    let mut all = String::new();
    for at in servers {
        let _ = writeln!(all, "    {at}");
    }
    all
}

fn ports(servers: &BTreeSet<SocketAddr>) -> BTreeSet<u16> {
    servers.iter().map(SocketAddr::port).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(port: u16, tcp: bool) -> Info {
        Info {
            state: State::Listen,
            local: ([0; 4], port).into(),
            tcp,
            ..crate::ss::tests::socket(State::Listen, port, 0)
        }
    }

    #[test]
    fn each_server_is_named_with_what_to_do() {
        assert!(text(&[], None).starts_with("no server"));
        let seen = text(&[server(80, true), server(6379, false)], Some(true));
        for part in [
            "open by ZRS and by TCP:\n    0.0.0.0:80\n",
            "drops something here",
            "zrs rules add tcp bind port 80\n",
            "open by ZRS alone, which no packet filter for TCP closes:\n    0.0.0.0:6379\n",
        ] {
            assert!(seen.contains(part), "{part}: {seen}");
        }
        assert!(text(&[server(80, true)], None).contains("cannot be seen"));
    }
}
