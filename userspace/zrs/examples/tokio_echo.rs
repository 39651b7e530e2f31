// SPDX-License-Identifier: GPL-2.0
//! ZRS in tokio: an echo of the ring's segments.
//!
//! ```text
//! hostB$ tokio_echo server 10.77.0.2:7000
//! hostA$ tokio_echo client 10.77.0.2:7000 16          # MiB
//! ```
//!
//! The ring has no descriptor. The socket is readable while the ring has something, at the end of
//! the stream and after an error, so `try_recv()` is to it what `recv()` is to other sockets: it is
//! called until it would block, which it returns only when the socket is not readable.
//!
//! A non-blocking `write()` copies. MSG_ZEROCOPY does not work well with tokio: its notifications
//! are EPOLLERR, which tokio takes for the end of the writing side, and never waits for room again.

use std::collections::VecDeque;
use std::env;
use std::io::{self, ErrorKind};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::process::ExitCode;

use tokio::io::unix::AsyncFd;
use tokio::io::Interest;
use zrs::{Listener, RxRing, Segment, Stream, View};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let args: Vec<_> = env::args().skip(1).collect();
    let args: Vec<_> = args.iter().map(String::as_str).collect();
    let result = match args[..] {
        ["server", addr] => server(addr).await,
        ["client", addr, mib] => match mib.parse() {
            Ok(mib) => client(addr, mib).await,
            Err(_) => return usage(),
        },
        _ => return usage(),
    };
    if let Err(e) = result {
        eprintln!("tokio_echo: {e}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn usage() -> ExitCode {
    eprintln!("usage: tokio_echo server ADDRESS:PORT\n       tokio_echo client ADDRESS:PORT MIB");
    ExitCode::from(2)
}

/// A stream that is received by its ring.
struct Conn {
    stream: AsyncFd<Stream>,
    ring: RxRing,
}

impl Conn {
    fn new(stream: Stream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        let ring = stream.rx_ring()?;
        // SAFETY: a Stream has one descriptor, which is open as long as it lives and is not
        // replaced.
        let stream = unsafe { AsyncFd::register(stream)? };
        Ok(Self { stream, ring })
    }

    /// The next segment. None: the end of the stream.
    async fn recv(&self) -> io::Result<Option<Segment>> {
        self.stream
            .async_io(Interest::READABLE, |_| self.ring.try_recv())
            .await
    }

    /// Sends all parts, as if they were one.
    async fn send(&self, parts: &mut VecDeque<View<'_>>) -> io::Result<()> {
        while !parts.is_empty() {
            let mut sent = self
                .stream
                .async_io(Interest::WRITABLE, |stream| {
                    View::send(parts.make_contiguous(), stream.as_fd())
                })
                .await?;
            while let Some(part) = parts.pop_front() {
                if sent < part.len() {
                    parts.push_front(part.part(sent..part.len()));
                    break;
                }
                sent -= part.len();
            }
        }
        Ok(())
    }

    /// The peer gets the end of the stream; it may still send.
    fn end(&self) -> io::Result<()> {
        self.stream.get_ref().shutdown(Shutdown::Write)
    }
}

async fn server(addr: &str) -> io::Result<()> {
    let listener = Listener::bind(addr)?;
    println!("listening on {}", listener.local_addr()?);
    listener.set_nonblocking(true)?;
    // SAFETY: as with a Stream, in Conn::new().
    let listener = unsafe { AsyncFd::register(listener)? };
    loop {
        let accept = listener.async_io(Interest::READABLE, Listener::accept);
        let (stream, peer) = accept.await?;
        tokio::spawn(async move {
            match echo(stream).await {
                Ok(counts) => println!("{peer}: {counts}"),
                Err(e) => println!("{peer}: {e}"),
            }
        });
    }
}

/// Segments that go back in one call. As long as they are held, the peer has their room no more.
const BATCH: usize = 16;

async fn echo(stream: Stream) -> io::Result<Counts> {
    let conn = Conn::new(stream)?;
    let mut counts = Counts::default();
    while let Some(first) = conn.recv().await? {
        let mut batch = vec![first];
        while batch.len() < BATCH {
            match conn.ring.try_recv() {
                Ok(Some(segment)) => batch.push(segment),
                Ok(None) => break,
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) => return Err(e),
            }
        }
        batch.iter().for_each(|segment| counts.add(segment));
        // Without a copy: bytes that the peer changes meanwhile come back to it changed.
        conn.send(&mut batch.iter().map(Segment::view).collect())
            .await?;
    }
    conn.end()?;
    Ok(counts)
}

/// Bytes of each `send()` of the client.
const PIECE: usize = 64 * 1024;

async fn client(addr: &str, mib: usize) -> io::Result<()> {
    // Connecting is short and has a limit of time, so that it may as well block.
    let conn = Conn::new(Stream::connect(addr)?)?;
    // The sent pattern does not repeat at a power of two.
    let pattern = || (0..=250_u8).cycle();
    let period: Vec<_> = pattern().take(251 + PIECE).collect();
    let len = mib << 20;
    let sender = async {
        for at in (0..len).step_by(PIECE) {
            let piece = &period[at % 251..][..PIECE.min(len - at)];
            conn.send(&mut [View::from(piece)].into()).await?;
        }
        conn.end()
    };
    let receiver = async {
        let mut counts = Counts::default();
        while let Some(segment) = conn.recv().await? {
            let expected = pattern().skip(counts.bytes % 251);
            if !segment
                .to_vec()
                .into_iter()
                .eq(expected.take(segment.len()))
            {
                let text = format!("not what was sent, from byte {} on", counts.bytes);
                return Err(io::Error::other(text));
            }
            counts.add(&segment);
        }
        Ok(counts)
    };
    // Both at once: if the echo is not read, the server stops reading.
    let ((), counts) = tokio::try_join!(sender, receiver)?;
    if counts.bytes != len {
        let text = format!("{} of {len} bytes came back", counts.bytes);
        return Err(io::Error::other(text));
    }
    println!("came back as it was: {counts}");
    Ok(())
}

/// Counters of received data.
#[derive(Default)]
struct Counts {
    bytes: usize,
    zero_copy: usize,
}

impl Counts {
    fn add(&mut self, segment: &Segment) {
        self.bytes += segment.len();
        if segment.is_zero_copy() {
            self.zero_copy += segment.len();
        }
    }
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes, {} without a copy", self.bytes, self.zero_copy)
    }
}
