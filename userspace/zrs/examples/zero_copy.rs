// SPDX-License-Identifier: GPL-2.0
//! Moves stdin of one host to stdout of another, without a copy by ZRS on either side:
//!
//! ```text
//! hostB$ zero_copy recv 10.77.0.2:7000 >copy
//! hostA$ zero_copy send 10.77.0.2:7000 <file
//! ```

use std::collections::VecDeque;
use std::env;
use std::fs::File;
use std::io::{self, Read};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::process::ExitCode;

use zrs::{Listener, Outgoing, PageBuf, Stream};

/// Bytes of one buffer, and how many of them the device may have at once.
const SIZE: usize = 256 * 1024;
const TURNS: usize = 4;

fn main() -> ExitCode {
    let args: Vec<_> = env::args().skip(1).collect();
    let args: Vec<_> = args.iter().map(String::as_str).collect();
    let result = match args[..] {
        ["recv", addr] => recv(addr),
        ["send", addr] => send(addr),
        _ => {
            eprintln!("usage: zero_copy recv ADDRESS:PORT >FILE\n       zero_copy send ADDRESS:PORT <FILE");
            return ExitCode::from(2);
        }
    };
    if let Err(e) = result {
        eprintln!("zero_copy: {e}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn recv(addr: &str) -> io::Result<()> {
    let listener = Listener::bind(addr)?;
    eprintln!("listening on {}", listener.local_addr()?);
    let (stream, _peer) = listener.accept()?;
    let ring = stream.rx_ring()?;
    // Not by Stdout, which would look for lines.
    let out = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    let mut bytes = 0;
    while let Some(segment) = ring.recv()? {
        bytes += segment.len();
        segment.view().write_all_to(out.as_fd())?;
    } // Each segment's room is the peer's again when it is dropped.
    let copied = stream.info()?.rx_copied;
    eprintln!("received {bytes} bytes, copied {copied}");
    Ok(())
}

fn send(addr: &str) -> io::Result<()> {
    let mut stream = Stream::connect(addr)?;
    stream.set_zero_copy(true)?;
    let mut on_the_way = VecDeque::with_capacity(TURNS);
    let mut bytes = 0;
    loop {
        let oldest = match on_the_way.len() {
            TURNS => on_the_way.pop_front(),
            _ => None,
        };
        let mut pages = match oldest {
            Some(oldest) => Outgoing::wait(oldest)?,
            None => PageBuf::new(SIZE)?,
        };
        let len = fill(&mut pages)?;
        if len == 0 {
            break;
        }
        let mut next = stream.outgoing(pages, len);
        next.send_all()?;
        on_the_way.push_back(next);
        bytes += len;
    }
    stream.shutdown(Shutdown::Write)?;
    // The peer's end comes when it has everything.
    if stream.read(&mut [0])? != 0 {
        return Err(io::Error::other("the peer says something"));
    }
    let copied = stream.info()?.tx_copied;
    eprintln!("sent {bytes} bytes, copied {copied}");
    Ok(())
}

/// Fills `buf` from stdin; less of it at the end.
fn fill(buf: &mut [u8]) -> io::Result<usize> {
    let mut len = 0;
    while len < buf.len() {
        match io::stdin().read(&mut buf[len..])? {
            0 => break,
            n => len += n,
        }
    }
    Ok(len)
}
