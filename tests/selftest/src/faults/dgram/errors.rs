// SPDX-License-Identifier: GPL-2.0
//! The error queue of datagram sockets: refused datagrams (IP_RECVERR) and notifications
//! (MSG_ZEROCOPY).

use std::net::SocketAddrV4;
use std::os::fd::AsFd;
use std::time::Instant;

use zrs_sys::sock;

use super::super::calls::{err, Calls, Outcome, Steps};
use super::super::errnos;
use super::super::pair::World;
use super::Ends;
use crate::support::raw::{self, Errno};

/// SO_EE_ORIGIN_ICMP and SO_EE_ORIGIN_ZEROCOPY.
const BY_PEER: u8 = 2;
const BY_ZEROCOPY: u8 = 5;

/// Sockets, the first of them connected to a port without a socket, with IP_RECVERR.
struct Refused {
    ends: Ends,
    far: SocketAddrV4,
    nobody: SocketAddrV4,
}

impl Refused {
    fn new(world: &World, ends: Ends) -> Outcome<Self> {
        let on = 1_i32.to_ne_bytes();
        let set = raw::setsockopt(&ends.near, libc::SOL_IP, libc::IP_RECVERR, &on);
        set.map_err(err("IP_RECVERR"))?;
        let far = raw::getpeername(&ends.near).map_err(err("getpeername"))?;
        let nobody = world.address();
        let refused = Self { ends, far, nobody };
        refused.aim(refused.nobody)?;
        Ok(refused)
    }

    fn aim(&self, at: SocketAddrV4) -> Outcome<()> {
        raw::connect(&self.ends.near, at).map_err(err("connect"))
    }

    /// Takes all errors that wait.
    fn drain(&self) -> Outcome<()> {
        let near = &self.ends.near;
        while raw::recv_error(near, &mut [0; 8]) != Err(Errno(libc::EAGAIN)) {}
        raw::so_error(near).map(drop).map_err(err("SO_ERROR"))
    }

    /// Sends datagrams until one is refused, which it is at most each 100 ms.
    fn until_refused(&self, world: &World) -> Outcome<()> {
        let end = Instant::now() + world.limit();
        while Instant::now() < end {
            // It may have the error of the last one.
            let _ = raw::send(&self.ends.near, b"nobody", libc::MSG_NOSIGNAL);
            let ms = 150 * world.scale as i32;
            let seen = raw::poll(&self.ends.near, 0, ms).map_err(err("poll"))?;
            if seen & libc::POLLERR != 0 {
                return Ok(());
            }
        }
        Err("nothing is refused".into())
    }

    /// The errors are read, and datagrams arrive at the port that has a socket.
    fn works(mut self, world: &World) -> Outcome<Self> {
        self.drain()?;
        self.aim(self.far)?;
        self.ends.works(world)?;
        self.drain()?;
        self.aim(self.nobody)?;
        Ok(self)
    }
}

impl Calls<'_> {
    /// recvmsg(MSG_ERRQUEUE). As with UDP, a call that fails may lose the entry.
    pub(super) fn errors_read(&mut self) {
        self.sweep(
            "datagrams: recvmsg(MSG_ERRQUEUE) of a refused one",
            errnos::RECV,
            Steps {
                setup: |world: &World, kept| {
                    let refused = match kept {
                        Some(refused) => refused,
                        None => Refused::new(world, Ends::new(world)?)?,
                    };
                    refused.until_refused(world)?;
                    Ok(refused)
                },
                call: |refused: &mut Refused| raw::recv_error(&refused.ends.near, &mut [0; 8]),
                after: |world: &World, refused: Refused, result: raw::Result<(i32, u8)>| {
                    match result {
                        Ok((libc::ECONNREFUSED, BY_PEER)) | Err(_) => {}
                        Ok(other) => return Err(format!("{other:?} of a refused one")),
                    }
                    refused.works(world).map(Some)
                },
            },
        );
        self.sweep(
            "datagrams: recvmsg(MSG_ERRQUEUE) of a notification",
            errnos::RECV,
            Steps {
                setup: |world: &World, kept| {
                    let mut ends = Ends::kept(world, kept)?;
                    ends.next(20_000)?;
                    let sent = sock::send_zerocopy(ends.near.as_fd(), &ends.message);
                    sent.map_err(|e| format!("send: {e}"))?;
                    let ms = world.limit().as_millis() as i32;
                    let seen = raw::poll(&ends.near, 0, ms).map_err(err("poll"))?;
                    match seen & libc::POLLERR {
                        0 => Err("no notification".into()),
                        _ => Ok(ends),
                    }
                },
                call: |ends: &mut Ends| raw::recv_error(&ends.near, &mut [0; 8]),
                after: |world: &World, ends: Ends, result: raw::Result<(i32, u8)>| {
                    match result {
                        Ok((0, BY_ZEROCOPY)) | Err(_) => {}
                        Ok(other) => return Err(format!("{other:?} of a notification")),
                    }
                    let again = raw::recv_error(&ends.near, &mut [0; 8]);
                    if result.is_ok() && again != Err(Errno(libc::EAGAIN)) {
                        return Err(format!("{again:?} after a notification"));
                    }
                    ends.must_arrive(world)?;
                    Ok(Some(ends))
                },
            },
        );
    }
}
