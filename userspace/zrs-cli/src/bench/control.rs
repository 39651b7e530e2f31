// SPDX-License-Identifier: GPL-2.0
//! The messages of client and server over TCP: a JSON object a line.
//!
//! The client sends a [`Job`]; the server gets ready and answers [`Answer::Ready`]; both play their
//! parts; the server answers [`Answer::Done`]. A job that cannot be is [`Answer::Failed`].

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{IpAddr, TcpStream};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use zrs_bench::{Carrier, Measure};

/// Figures by name.
pub type Values = BTreeMap<String, f64>;

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    pub measure: Measure,
    pub carrier: Carrier,
    /// Bytes in a message.
    pub size: u64,
    /// Messages, round trips or connections.
    pub count: u64,
    /// Total of connections, for measures with many that are not themselves counted.
    pub connections: u64,
}

/// The server's answers.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// It listens.
    Ready {
        /// On this port.
        port: u16,
        /// The life of the kernel it runs on: the same as the client's if the two share one.
        boot: String,
    },
    /// It has taken all connections, and goes on when the client says [`Go`].
    Held,
    /// Its part is done.
    Done(Values),
    /// It cannot; a sentence.
    Failed(String),
}

/// The client's message to continue.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct Go;

/// One end of the conversation.
pub struct Control {
    lines: BufReader<TcpStream>,
}

/// The longest line; nothing that is said comes near it.
const LONGEST: usize = 64 * 1024;

impl Control {
    pub fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self {
            lines: BufReader::new(stream),
        })
    }

    /// The own address of this conversation: the way to the peer.
    pub fn local_ip(&self) -> io::Result<IpAddr> {
        Ok(self.lines.get_ref().local_addr()?.ip())
    }

    /// The peer's address.
    pub fn peer_ip(&self) -> io::Result<IpAddr> {
        Ok(self.lines.get_ref().peer_addr()?.ip())
    }

    pub fn say<T: Serialize>(&mut self, what: &T) -> io::Result<()> {
        let mut line = serde_json::to_vec(what)?;
        line.push(b'\n');
        self.lines.get_mut().write_all(&line)
    }

    /// The peer's next message; None when it has ended the conversation.
    pub fn hear<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        let mut line = Vec::new();
        let mut limited = io::Read::take(&mut self.lines, LONGEST as u64);
        limited.read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Ok(None);
        }
        let bad = |e| io::Error::new(io::ErrorKind::InvalidData, e);
        serde_json::from_slice(&line).map(Some).map_err(bad)
    }

    /// As [`Control::hear`], and the end is an error.
    pub fn must_hear<T: DeserializeOwned>(&mut self) -> io::Result<T> {
        self.hear()?
            .ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))
    }
}

/// Tells lives of kernels apart.
pub fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .unwrap_or_default()
        .trim()
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn pair() -> (Control, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (Control::new(stream).unwrap(), listener.accept().unwrap().0)
    }

    #[test]
    fn there_and_back() {
        let (mut here, there) = pair();
        let mut there = Control::new(there).unwrap();
        let job = Job {
            measure: Measure::Latency,
            carrier: Carrier::ZrsSpin,
            size: 64,
            count: 1000,
            connections: 1,
        };
        here.say(&job).unwrap();
        assert_eq!(there.must_hear::<Job>().unwrap(), job);
        for answer in [
            Answer::Ready {
                port: 1,
                boot: "x".into(),
            },
            Answer::Held,
            Answer::Done([("mib_s".to_string(), 0.5)].into()),
            Answer::Failed("no \"device\"\n".into()),
        ] {
            there.say(&answer).unwrap();
            assert_eq!(here.must_hear::<Answer>().unwrap(), answer);
        }
        here.say(&Go).unwrap();
        assert_eq!(there.hear::<Go>().unwrap(), Some(Go));
        drop(there);
        assert!(here.hear::<Answer>().unwrap().is_none());
        assert!(here.must_hear::<Answer>().is_err());
    }

    #[test]
    fn nonsense_is_an_error() {
        for bad in [&b"{}\n"[..], b"\xff\xfe\n", b"[1, 2", &[b'['; 100_000]] {
            let (mut here, mut there) = pair();
            there.write_all(bad).unwrap();
            drop(there);
            assert!(here.hear::<Job>().is_err());
        }
    }
}
