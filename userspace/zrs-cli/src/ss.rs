// SPDX-License-Identifier: GPL-2.0
//! `zrs ss`: the sockets, with the options and in the columns that people know from ss(8).

mod dgrams;

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;

use serde_json::{json, Value};
use zrs::{Info, State};
use zrs_rules::why;

use crate::procs::{self, Users};
use crate::report::{json_line, out};
use crate::show::{collect, open, Table};
use crate::Result;

/// List the ZRS sockets of this network namespace, as ss(8) does
///
/// Without -l or -a those with a connection. Recv-Q: bytes that have arrived and were not yet taken; for a listening
/// socket, connections that wait. Send-Q: bytes sent and not yet acknowledged by the device; for a listening socket, how
/// many connections may wait. A socket that TCP carries is listed as well; ss(8) has its queues. A stream socket
/// that neither listens nor was connected is not listed, nor is a datagram socket without a port.
#[derive(clap::Args)]
pub struct Ss {
    /// Only listening sockets
    #[arg(short, long, conflicts_with = "all")]
    listening: bool,
    /// Listening sockets as well
    #[arg(short, long)]
    all: bool,
    /// Which processes have the socket: of all users for root, else of one's own
    #[arg(short, long)]
    processes: bool,
    /// More columns: the user, the socket's inode, its channel and link, what carries it, and if that is TCP, why
    #[arg(short, long)]
    extended: bool,
    /// One more line each: bytes, how many of them the CPU copied, windows, the pending error
    #[arg(short, long)]
    info: bool,
    /// No line of headings
    #[arg(short = 'H', long)]
    no_header: bool,
    /// Numbers for addresses and ports, as they are in any case
    #[arg(short, long)]
    numeric: bool,
    /// Stream sockets; without -t and -u it is these
    #[arg(short, long)]
    tcp: bool,
    /// Datagram sockets, with the datagrams dropped: in the socket's receive queue (Recv-Drops), and by its links
    /// (Send-Drops). Recv-Q and Send-Q are what counts against SO_RCVBUF and SO_SNDBUF
    #[arg(short, long)]
    udp: bool,
    /// Print a JSON array
    #[arg(long)]
    json: bool,
}

impl Ss {
    pub fn run(&self) -> Result<()> {
        let zrs = open()?;
        let streams = self.tcp || !self.udp;
        let mut sockets = match streams {
            true => collect(zrs.sockets(), "sockets")?,
            false => Vec::new(),
        };
        sockets.retain(|i| self.shows(i.state));
        let mut dgrams = match self.udp {
            true => collect(zrs.dgrams(), "datagram sockets")?,
            false => Vec::new(),
        };
        dgrams.retain(|i| self.shows_dgram(i));
        let users = match self.processes {
            true => Users::read(Path::new("/proc")),
            false => Users::default(),
        };
        if self.json {
            let list = sockets.iter().map(|i| self.json(i, &users));
            let dgrams = dgrams.iter().map(|i| self.dgram_json(i, &users));
            json_line(&Value::Array(list.chain(dgrams).collect()));
            return Ok(());
        }
        if streams {
            out(&self.text(&sockets, &users));
        }
        if self.udp {
            out(&self.dgram_text(&dgrams, &users));
        }
        Ok(())
    }

    fn shows(&self, state: State) -> bool {
        self.all || self.listening == (state == State::Listen)
    }

    fn json(&self, i: &Info, users: &Users) -> Value {
        let mut object = json!({
            "state": i.state.to_string(), "local": i.local.to_string(),
            "remote": i.remote.to_string(), "channel": i.channel, "link": i.link, "uid": i.uid,
            "inode": i.inode, "tx_bytes": i.tx_bytes, "rx_bytes": i.rx_bytes,
            "tx_copied": i.tx_copied, "rx_copied": i.rx_copied,
            "tx_queued": i.tx_queued, "rx_queued": i.rx_queued, "window": i.window,
            "peer_window": i.peer_window, "backlog": i.backlog, "backlog_max": i.backlog_max,
            "error": i.error, "tcp": i.tcp, "carrier": carrier(i), "why": why::name(i.why),
        });
        if self.processes {
            object["processes"] = procs::json(users.of(i.inode));
        }
        object
    }

    fn text(&self, sockets: &[Info], users: &Users) -> String {
        let mut header = vec![
            "State",
            "<Recv-Q",
            "<Send-Q",
            "<Local Address:Port",
            "Peer Address:Port",
        ];
        header.extend(self.processes.then_some("Process"));
        header.extend(self.extended.then_some("Details"));
        let mut table = Table::new(&header);
        for i in sockets {
            let (waiting, sending) = match i.state {
                State::Listen => (i.backlog.into(), i.backlog_max.into()),
                _ => (i.rx_queued, i.tx_queued),
            };
            let mut row = vec![
                state(i.state).to_string(),
                waiting.to_string(),
                sending.to_string(),
                address(i.local),
                address(i.remote),
            ];
            row.extend(self.processes.then(|| procs::text(users.of(i.inode))));
            row.extend(self.extended.then(|| {
                format!(
                    "uid:{} ino:{} chan:{} link:{} carrier:{}{}",
                    i.uid,
                    i.inode,
                    i.channel,
                    i.link,
                    carrier(i),
                    match i.why {
                        0 => String::new(),
                        number => format!(" why:{}", why::name(number)),
                    }
                )
            }));
            table.row(row);
        }
        self.lines(&table.text(), sockets.iter().map(details))
    }

    /// The lines of a table, with the details of each socket where they are asked for.
    fn lines(&self, text: &str, details: impl Iterator<Item = String>) -> String {
        let mut lines = text.lines();
        let mut all = String::new();
        let header = lines.next().filter(|_| !self.no_header);
        if let Some(line) = header {
            let _ = writeln!(all, "{line}");
        }
        for (line, details) in lines.zip(details) {
            let _ = writeln!(all, "{line}");
            if self.info {
                let _ = writeln!(all, "\t{details}");
            }
        }
        all
    }
}

/// The protocols of its connections.
fn carrier(i: &Info) -> &'static str {
    match (i.tcp, i.why) {
        (false, _) => "zrs",
        (true, 0) => "zrs,tcp",
        (true, _) => "tcp",
    }
}

/// As ss(8) names it, where it has a name for it.
fn state(state: State) -> &'static str {
    match state {
        State::Closed | State::Bound => "UNCONN",
        State::Listen => "LISTEN",
        State::Connecting => "SYN-SENT",
        State::Established => "ESTAB",
        State::Closing => "CLOSING",
        State::Other(_) => "UNKNOWN",
    }
}

/// As ss has it: a port that is none is a star, and a link-local address has its interface behind it.
fn address(addr: SocketAddr) -> String {
    let ip = match addr {
        SocketAddr::V4(v4) => v4.ip().to_string(),
        SocketAddr::V6(v6) if v6.scope_id() == 0 => format!("[{}]", v6.ip()),
        SocketAddr::V6(v6) => format!("[{}]%{}", v6.ip(), v6.scope_id()),
    };
    match addr.port() {
        0 => format!("{ip}:*"),
        port => format!("{ip}:{port}"),
    }
}

fn details(i: &Info) -> String {
    let mut text = format!(
        "bytes_sent:{} copied_sent:{} bytes_received:{} copied_received:{} window:{} peer_window:{}",
        i.tx_bytes, i.tx_copied, i.rx_bytes, i.rx_copied, i.window, i.peer_window
    );
    if i.error != 0 {
        let _ = write!(text, " error:{}", i.error);
    }
    text
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Args {
        #[command(flatten)]
        ss: Ss,
    }

    fn ss(args: &[&str]) -> Ss {
        Args::parse_from([&["ss"], args].concat()).ss
    }

    pub fn socket(state: State, local: u16, remote: u16) -> Info {
        Info {
            state,
            channel: 5,
            local: ([10, 77, 0, 1], local).into(),
            remote: ([0; 4], remote).into(),
            uid: 1000,
            inode: 77,
            tx_bytes: 9,
            rx_bytes: 0,
            tx_copied: 8,
            rx_copied: 0,
            tx_queued: 4,
            rx_queued: 3,
            window: 0,
            peer_window: 0,
            backlog: 1,
            error: 0,
            link: 2,
            backlog_max: 128,
            tcp: state == State::Listen,
            why: 0,
        }
    }

    #[test]
    fn which_sockets() {
        let shown = |args: &[&str]| {
            let ss = ss(args);
            [State::Listen, State::Established, State::Connecting].map(|state| ss.shows(state))
        };
        assert_eq!(shown(&[]), [false, true, true]);
        assert_eq!(shown(&["-tnl"]), [true, false, false]);
        assert_eq!(shown(&["-a"]), [true; 3]);
    }

    #[test]
    fn the_columns_of_ss() {
        let sockets = [
            socket(State::Listen, 7000, 0),
            socket(State::Established, 7000, 40000),
        ];
        assert_eq!(
            ss(&["-a"]).text(&sockets, &Users::default()),
            "State   Recv-Q  Send-Q  Local Address:Port  Peer Address:Port\n\
             LISTEN       1     128      10.77.0.1:7000  0.0.0.0:*\n\
             ESTAB        3       4      10.77.0.1:7000  0.0.0.0:40000\n"
        );
        assert_eq!(
            ss(&["-Hei"]).text(&sockets[1..], &Users::default()),
            "ESTAB       3       4      10.77.0.1:7000  0.0.0.0:40000      \
             uid:1000 ino:77 chan:5 link:2 carrier:zrs\n\
             \tbytes_sent:9 copied_sent:8 bytes_received:0 copied_received:0 window:0 peer_window:0\n"
        );
    }

    #[test]
    fn a_listener_of_both_says_so() {
        let text = ss(&["-lHe"]).text(&[socket(State::Listen, 7000, 0)], &Users::default());
        assert!(
            text.ends_with("uid:1000 ino:77 chan:5 link:2 carrier:zrs,tcp\n"),
            "{text}"
        );
        let mut carried = socket(State::Established, 7000, 1);
        (carried.tcp, carried.why) = (true, 7);
        let text = ss(&["-He"]).text(&[carried], &Users::default());
        assert!(text.ends_with(" carrier:tcp why:no-listener\n"), "{text}");
    }

    #[test]
    fn states_have_the_names_of_ss() {
        let names = [0, 1, 2, 3, 4, 5].map(|s| state(State::from(s)));
        let expected = ["UNCONN", "UNCONN", "LISTEN", "SYN-SENT", "ESTAB", "CLOSING"];
        assert_eq!(names, expected);
    }

    #[test]
    fn addresses() {
        for text in ["10.0.0.1:7", "[fd00::1]:7", "[::ffff:10.0.0.1]:7"] {
            assert_eq!(address(text.parse().unwrap()), text);
        }
        assert_eq!(address("[::]:0".parse().unwrap()), "[::]:*");
        assert_eq!(address("[fe80::1%2]:7".parse().unwrap()), "[fe80::1]%2:7");
    }

    #[test]
    fn json_has_processes_when_asked() {
        let info = socket(State::Established, 1, 2);
        let object = ss(&["--json"]).json(&info, &Users::default());
        assert_eq!(
            (&object["state"], &object["link"]),
            (&json!("ESTAB"), &json!(2))
        );
        assert!(object.get("processes").is_none());
        let object = ss(&["--json", "-p"]).json(&info, &Users::default());
        assert_eq!(object["processes"], json!([]));
    }
}
