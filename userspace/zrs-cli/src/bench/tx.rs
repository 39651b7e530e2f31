// SPDX-License-Identifier: GPL-2.0
//! The sending end of a measurement of throughput: one message again and again, by send(), or by
//! calls that do not block, with poll() in between; or some in turn, by MSG_ZEROCOPY, each of them
//! only when the device is done with it.

use std::io::{self, Write};

use zrs::{PageBuf, Stream};
use zrs_bench::{Carrier, Measure};

use super::control::Job;
use crate::transport::Conn;
use crate::{said, Result};

/// Sends on one connection.
pub struct Tx<'a> {
    how: How<'a>,
    messages: Vec<PageBuf>,
}

enum How<'a> {
    Wait(&'a Conn),
    Poll(&'a Conn),
    Zerocopy(&'a Stream, Calls),
}

/// Message buffers used in rotation with MSG_ZEROCOPY.
const TURNS: usize = 4;

/// Calls with MSG_ZEROCOPY: by their numbers, modulo 2^32.
#[derive(Default)]
struct Calls {
    /// How many there were.
    made: u32,
    /// How many of them are complete.
    complete: u32,
    /// How many there were when the message of each turn had been sent.
    sent: [u32; TURNS],
    /// Whose turn is next.
    turn: usize,
}

impl<'a> Tx<'a> {
    /// For the messages of `job` as its carrier and measure want it.
    pub fn new(conn: &'a Conn, job: &Job) -> Result<Self> {
        let (how, turns) = match (conn, job.carrier) {
            _ if job.measure == Measure::Nonblocking => (How::Poll(conn), 1),
            (Conn::Zrs(stream), Carrier::ZrsZerocopy) => {
                said(stream.set_zero_copy(true), || {
                    "cannot send by MSG_ZEROCOPY".into()
                })?;
                (How::Zerocopy(stream, Calls::default()), TURNS)
            }
            _ => (How::Wait(conn), 1),
        };
        let message = || -> io::Result<PageBuf> {
            let mut buf = PageBuf::new(job.size as usize)?;
            buf.fill(0x5a);
            Ok(buf)
        };
        let messages: io::Result<_> = (0..turns).map(|_| message()).collect();
        Ok(Self {
            how,
            messages: said(messages, || "no memory for a message".into())?,
        })
    }

    /// Sends `count` messages. By MSG_ZEROCOPY their memory may be in use still.
    pub fn send(&mut self, count: u64) -> io::Result<()> {
        for _ in 0..count {
            match &mut self.how {
                How::Wait(conn) => (&mut &**conn).write_all(&self.messages[0])?,
                How::Poll(conn) => conn.send_polling(&self.messages[0])?,
                How::Zerocopy(stream, calls) => calls.send(stream, &self.messages)?,
            }
        }
        Ok(())
    }
}

impl Calls {
    /// Sends the next message.
    fn send(&mut self, stream: &Stream, messages: &[PageBuf]) -> io::Result<()> {
        let turn = self.turn;
        self.turn = (turn + 1) % TURNS;
        // No more than those of all turns are ever outstanding.
        while (self.complete.wrapping_sub(self.sent[turn]) as i32) < 0 {
            self.wait(stream)?;
        }
        let mut left = &messages[turn][..];
        while !left.is_empty() {
            match stream.send_zero_copy(left) {
                Ok(n) => {
                    self.made = self.made.wrapping_add(1);
                    left = &left[n..];
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                // The limit of calls without completion is reached.
                Err(e) if is_nobufs(&e) && self.made != self.complete => self.wait(stream)?,
                Err(e) => return Err(e),
            }
        }
        self.sent[turn] = self.made;
        Ok(())
    }

    /// Waits for the completion of a call or more.
    fn wait(&mut self, stream: &Stream) -> io::Result<()> {
        let done = stream.wait_completion()?;
        // Messages are of one size: all of them are copied, or none is, and so they complete in
        // order.
        if done.first != self.complete {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("{done:?}, and {} were complete", self.complete),
            ));
        }
        self.complete = done.last.wrapping_add(1);
        Ok(())
    }
}

fn is_nobufs(e: &io::Error) -> bool {
    zrs::os_error(e) == Some(rustix::io::Errno::NOBUFS.raw_os_error())
}
