// SPDX-License-Identifier: GPL-2.0
//! The datagram sockets of `zrs ss`.

use std::fmt::Write as _;

use serde_json::{json, Value};
use zrs::DgramInfo;

use super::{address, Ss};
use crate::procs::{self, Users};
use crate::show::Table;

impl Ss {
    /// As with ss(8), a socket without a peer counts as a listening one.
    pub(super) fn shows_dgram(&self, i: &DgramInfo) -> bool {
        self.all || self.listening == (i.remote.port() == 0)
    }

    pub(super) fn dgram_json(&self, i: &DgramInfo, users: &Users) -> Value {
        let mut object = json!({
            "state": state(i), "local": i.local.to_string(), "remote": i.remote.to_string(),
            "uid": i.uid, "inode": i.inode, "tx_bytes": i.tx_bytes, "rx_bytes": i.rx_bytes,
            "tx_datagrams": i.tx_datagrams, "rx_datagrams": i.rx_datagrams,
            "tx_queued": i.tx_queued, "rx_queued": i.rx_queued, "rx_waiting": i.rx_waiting,
            "rx_drops": i.rx_drops, "tx_drops": i.tx_drops, "error": i.error,
            "sndbuf": i.sndbuf, "rcvbuf": i.rcvbuf,
        });
        if self.processes {
            object["processes"] = procs::json(users.of(i.inode));
        }
        object
    }

    pub(super) fn dgram_text(&self, sockets: &[DgramInfo], users: &Users) -> String {
        let mut header = vec![
            "State",
            "<Recv-Q",
            "<Send-Q",
            "<Recv-Drops",
            "<Send-Drops",
            "<Local Address:Port",
            "Peer Address:Port",
        ];
        header.extend(self.processes.then_some("Process"));
        header.extend(self.extended.then_some("Details"));
        let mut table = Table::new(&header);
        for i in sockets {
            let mut row = vec![
                state(i).to_string(),
                i.rx_queued.to_string(),
                i.tx_queued.to_string(),
                i.rx_drops.to_string(),
                i.tx_drops.to_string(),
                address(i.local),
                address(i.remote),
            ];
            row.extend(self.processes.then(|| procs::text(users.of(i.inode))));
            row.extend(
                self.extended
                    .then(|| format!("uid:{} ino:{}", i.uid, i.inode)),
            );
            table.row(row);
        }
        self.lines(&table.text(), sockets.iter().map(details))
    }
}

fn state(i: &DgramInfo) -> &'static str {
    match i.remote.port() {
        0 => "UNCONN",
        _ => "ESTAB",
    }
}

fn details(i: &DgramInfo) -> String {
    let mut text = format!(
        "bytes_sent:{} sent:{} bytes_received:{} received:{} waiting:{} sndbuf:{} rcvbuf:{}",
        i.tx_bytes, i.tx_datagrams, i.rx_bytes, i.rx_datagrams, i.rx_waiting, i.sndbuf, i.rcvbuf
    );
    if i.error != 0 {
        let _ = write!(text, " error:{}", i.error);
    }
    text
}
