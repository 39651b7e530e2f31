// SPDX-License-Identifier: GPL-2.0
//! The receiving end of a measurement: by recv() into a buffer, asking or sleeping, by the ring, or
//! mapped.

use std::io::{self, Read};
use std::time::Duration;
use std::{hint, thread};

use zrs::{Area, PageBuf, RxRing, Segment, View};
use zrs_bench::Carrier;

use crate::transport::Conn;
use crate::{said, Result};

/// Receives from one connection.
pub struct Rx<'a> {
    conn: &'a Conn,
    how: How,
    /// Asks again and again instead of sleeping.
    spins: bool,
}

enum How {
    Copy(PageBuf),
    Mapped(Area),
    Ring {
        ring: RxRing,
        /// A segment that was taken in part, and how much of it.
        rest: Option<(Segment, usize)>,
    },
}

/// How long a ZRS socket polls in one call: usually until its data is there.
const SPIN: Duration = Duration::from_millis(100);

/// The least buffer for recv(): small messages may be taken several at a time, over every carrier.
const LEAST: usize = 64 * 1024;

impl<'a> Rx<'a> {
    /// For messages of `size` bytes as `carrier` wants it.
    pub fn new(conn: &'a Conn, carrier: Carrier, size: u64) -> Result<Self> {
        let how = match (conn, carrier) {
            (Conn::Zrs(stream), carrier) if carrier.by_ring() => How::Ring {
                ring: stream.rx_ring().map_err(|e| e.to_string())?,
                rest: None,
            },
            (Conn::Zrs(stream), Carrier::ZrsMapped) => {
                let area = stream.area((size as usize).max(LEAST).next_multiple_of(LEAST));
                How::Mapped(area.map_err(|e| e.to_string())?)
            }
            _ => {
                let buffer = PageBuf::new((size as usize).max(LEAST));
                How::Copy(said(buffer, || "no memory for a message".into())?)
            }
        };
        let spins = match conn {
            // The kernel does it for us.
            Conn::Zrs(stream) if carrier.spins() && !carrier.by_ring() => {
                said(stream.set_busy_poll(SPIN), || "cannot poll".into())?;
                false
            }
            _ => carrier.spins(),
        };
        Ok(Self { conn, how, spins })
    }

    /// Takes exactly `len` bytes and looks at none of them.
    pub fn skip(&mut self, len: u64) -> io::Result<()> {
        match self.take(len, |_| {})? {
            true => Ok(()),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// The next eight bytes, a number in the order of the network.
    pub fn number(&mut self) -> io::Result<u64> {
        let mut bytes = [0; 8];
        match self.fill(&mut bytes)? {
            true => Ok(u64::from_be_bytes(bytes)),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Fills `out`; false when the stream has ended before its first byte.
    pub fn fill(&mut self, out: &mut [u8]) -> io::Result<bool> {
        let mut at = 0;
        let len = out.len() as u64;
        self.take(len, |bytes| {
            bytes.copy_to(&mut out[at..at + bytes.len()]);
            at += bytes.len();
        })
    }

    /// Takes exactly `len` bytes, piece by piece; false when the stream has ended before.
    fn take(&mut self, len: u64, mut each: impl FnMut(View<'_>)) -> io::Result<bool> {
        let mut left = len;
        while left > 0 {
            let most = usize::try_from(left).unwrap_or(usize::MAX);
            let got = match &mut self.how {
                How::Copy(buf) => {
                    let most = most.min(buf.len());
                    let got = read(self.conn, &mut buf[..most], self.spins)?;
                    each(View::from(&buf[..got]));
                    got
                }
                How::Mapped(area) => match area.recv(most)? {
                    Some(got) => {
                        each(got.view());
                        got.len()
                    }
                    None => 0,
                },
                How::Ring { ring, rest } => {
                    let next = match rest.take() {
                        Some(rest) => Some(rest),
                        None if self.spins => poll(ring)?.map(|segment| (segment, 0)),
                        None => ring.recv()?.map(|segment| (segment, 0)),
                    };
                    match next {
                        None => 0,
                        Some((segment, from)) => {
                            let to = segment.len().min(from.saturating_add(most));
                            each(segment.view().part(from..to));
                            if to < segment.len() {
                                *rest = Some((segment, to));
                            }
                            to - from
                        }
                    }
                }
            };
            match got {
                0 if left == len => return Ok(false),
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                _ => left -= got as u64,
            }
        }
        Ok(true)
    }
}

/// So many looks at a ring for one question of the kernel whether the stream has ended.
const LOOKS: u32 = 10_000_000;

/// The next segment, without a system call as long as the stream goes on.
fn poll(ring: &RxRing) -> io::Result<Option<Segment>> {
    loop {
        for _ in 0..LOOKS {
            if ring.has_segment() {
                return ring.recv();
            }
            hint::spin_loop();
        }
        match ring.try_recv() {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            found => return found,
        }
    }
}

/// One recv(); with `spins` asks until there is something, and lets others run in between: on few
/// processors the one that has to bring the bytes may be among them.
fn read(mut conn: &Conn, buf: &mut [u8], spins: bool) -> io::Result<usize> {
    loop {
        let got = match spins {
            true => conn.recv_now(buf),
            false => conn.read(buf),
        };
        match got {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) if spins && e.kind() == io::ErrorKind::WouldBlock => thread::yield_now(),
            got => return got,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn numbers_and_bytes_in_between() {
        for carrier in [Carrier::Tcp, Carrier::TcpSpin] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let mut peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let conn = Conn::Tcp(listener.accept().unwrap().0);
            let sender = thread::spawn(move || {
                peer.write_all(&7u64.to_be_bytes()).unwrap();
                peer.write_all(&vec![1; 200_000]).unwrap();
                peer.write_all(&9u64.to_be_bytes()).unwrap();
                peer.write_all(&[5; 3]).unwrap();
            });
            let mut rx = Rx::new(&conn, carrier, 64).unwrap();
            assert_eq!(rx.number().unwrap(), 7);
            rx.skip(200_000).unwrap();
            assert_eq!(rx.number().unwrap(), 9);
            let mut three = [0; 3];
            assert!(rx.fill(&mut three).unwrap());
            assert_eq!(three, [5; 3]);
            assert!(!rx.fill(&mut three).unwrap());
            assert!(rx.skip(1).is_err());
            sender.join().unwrap();
        }
    }
}
