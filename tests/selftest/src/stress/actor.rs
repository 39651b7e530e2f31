// SPDX-License-Identifier: GPL-2.0
//! The threads of a process: acceptors, connectors, and the keeper, which opens and closes the
//! listener and takes descriptors that other processes have sent.

use std::net::SocketAddrV4;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use super::pump::{self, End, Half};
use super::table::{Count, Op};
use super::Shared;
use crate::support::fds;
use crate::support::pattern::{Pattern, Rng};
use crate::support::process;
use crate::support::raw::{self, Errno, Result};
use crate::support::wild;

/// The client's header: the data that each side is going to send, and where it just stops.
const HEADER: usize = 40;
const WHOLE: u64 = u64::MAX;

struct Deal {
    key: u64,
    up: u64,
    down: u64,
    /// The client, or the server, closes after sending this number of bytes.
    up_stop: u64,
    down_stop: u64,
    /// Both directions at once; else first up.
    both: bool,
}

impl Deal {
    fn encode(&self) -> [u8; HEADER] {
        let both = u64::from(self.both);
        let words = [
            (self.key << 1) | both,
            self.up,
            self.down,
            self.up_stop,
            self.down_stop,
        ];
        let mut bytes = [0; HEADER];
        for (to, word) in bytes.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_be_bytes());
        }
        bytes
    }

    fn decode(bytes: &[u8; HEADER]) -> Self {
        let word = |n: usize| {
            let part = &bytes[n * 8..n * 8 + 8];
            u64::from_be_bytes(part.try_into().expect("8 bytes"))
        };
        Self {
            key: word(0) >> 1,
            up: word(1),
            down: word(2),
            up_stop: word(3),
            down_stop: word(4),
            both: word(0) & 1 != 0,
        }
    }

    /// Whether both ends are to do all they said.
    fn whole(&self) -> bool {
        self.up_stop == WHOLE && self.down_stop == WHOLE
    }

    fn halves(&self) -> (Half, Half) {
        let half = |direction, len: u64, stop: u64| Half {
            pattern: Pattern::new(self.key, direction, 0),
            len: len.min(stop),
        };
        (
            half(0, self.up, self.up_stop),
            half(1, self.down, self.down_stop),
        )
    }
}

/// A thread.
pub struct Actor<'a> {
    pub shared: &'a Shared<'a>,
    pub rng: Rng,
    /// Rings of the current connection; dropping one shuts its socket down.
    pub rings: Vec<zrs::RxRing>,
    slot: usize,
}

impl Actor<'_> {
    /// Makes a call, and says so.
    pub fn call<T>(&self, op: Op, call: impl FnOnce() -> Result<T>) -> Result<T> {
        self.shared.table.begin(self.slot, op);
        let result = call();
        self.shared.table.saw(op, &result);
        self.shared.table.begin(self.slot, Op::Nothing);
        result
    }

    /// For one more thread of this actor; all report their calls in one slot.
    pub fn helper(&mut self) -> Self {
        Actor {
            shared: self.shared,
            rng: Rng::new(self.rng.word(), 0),
            rings: Vec::new(),
            slot: self.slot,
        }
    }

    pub fn count(&self, what: Count, n: u64) {
        self.shared.table.count(what, n);
    }
}

/// A child of the stress: does not return until all is to stop.
pub fn process(shared: &Shared<'_>, index: usize, starts: u64) -> Result<()> {
    let threads = shared.args.threads;
    let listener = Mutex::new(None);
    thread::scope(|s| {
        for n in 0..=threads {
            let slot = index * (threads + 1) + n;
            let rng = Rng::new(shared.args.seed, slot as u64 | (starts << 16));
            let mut actor = Actor {
                shared,
                rng,
                rings: Vec::new(),
                slot,
            };
            let listener = &listener;
            s.spawn(move || {
                actor.shared.table.enter(slot);
                match n {
                    0 => keep(&mut actor, index, listener),
                    n if connects(n) => connect(&mut actor),
                    _ => serve(&mut actor, listener),
                }
                actor.shared.table.begin(slot, Op::Ended);
            });
        }
    });
    Ok(())
}

/// Whether a process's thread of this number connects.
pub fn connects(thread: usize) -> bool {
    thread != 0 && thread % 2 == 0
}

type Listener = Mutex<Option<Arc<OwnedFd>>>;

/// Opens and shuts the listener, and uses descriptors from others.
fn keep(actor: &mut Actor<'_>, index: usize, listener: &Listener) {
    let table = &actor.shared.table;
    let (ip, port) = (
        *actor.shared.args.local.ip(),
        actor.shared.args.local.port(),
    );
    let addr = SocketAddrV4::new(ip, port + index as u16);
    thread::scope(|clients| {
        while !table.stopped() {
            if listener.lock().unwrap().is_none() {
                // A child process may still have the previous one.
                match open(actor, addr) {
                    Ok(fd) => *listener.lock().unwrap() = Some(Arc::new(fd)),
                    Err(_) => thread::sleep(Duration::from_millis(20)),
                }
            }
            let inbox = &actor.shared.inboxes[index].1;
            let mail = actor.call(Op::Poll, || raw::poll(inbox, libc::POLLIN, 100));
            if mail.is_ok_and(|n| n != 0) {
                // A process that was killed in between may have left nothing, or taken it.
                if let Ok(fd) = actor.call(Op::Pass, || fds::recv_fd_now(inbox)) {
                    actor.count(Count::Passed, 1);
                    // Not here: all acceptors may be waiting for a descriptor behind it in the
                    // inbox, and only this thread closes the listener.
                    let mut other = actor.helper();
                    clients.spawn(move || client(&mut other, fd));
                }
            }
            // Closing a listener resets the connections that wait for accept(): not where no
            // connection may break.
            if actor.rng.one_in(40) && actor.shared.args.rough() {
                let old = listener.lock().unwrap().take();
                if let Some(old) = old {
                    if actor.rng.one_in(2) {
                        let _ = actor.call(Op::Shutdown, || raw::shutdown(&old, libc::SHUT_RD));
                    }
                }
            }
        }
        *listener.lock().unwrap() = None;
    });
}

fn open(actor: &mut Actor<'_>, addr: SocketAddrV4) -> Result<OwnedFd> {
    let fd = actor.call(Op::Socket, raw::stream)?;
    let on = 1_i32.to_ne_bytes();
    raw::setsockopt(&fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, &on)?;
    actor.call(Op::Bind, || raw::bind(&fd, addr))?;
    let backlog = actor.rng.pick(&[1, 4, 64]);
    actor.call(Op::Listen, || raw::listen(&fd, backlog))?;
    raw::set_nonblocking(&fd, true)?;
    Ok(fd)
}

fn serve(actor: &mut Actor<'_>, listener: &Listener) {
    while !actor.shared.table.stopped() {
        let fd = listener.lock().unwrap().clone();
        let Some(fd) = fd else {
            actor.shared.table.begin(actor.slot, Op::Nothing);
            thread::sleep(Duration::from_millis(10));
            continue;
        };
        let ready = actor.call(Op::Poll, || raw::poll(&fd, libc::POLLIN, 100));
        if !ready.is_ok_and(|n| n != 0) {
            continue;
        }
        if let Ok(conn) = actor.call(Op::Accept, || raw::accept(&fd)) {
            drop(fd);
            actor.count(Count::Served, 1);
            server(actor, conn);
        } else {
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// The accepting end of a connection.
fn server(actor: &mut Actor<'_>, conn: OwnedFd) {
    let _ = raw::set_nonblocking(&conn, false);
    let mut header = [0; HEADER];
    let told = actor.call(Op::Recv, || match raw::recv_all(&conn, &mut header) {
        // It has ended, as some do at once.
        Err(Errno(libc::EPIPE)) => Ok(false),
        other => other.map(|()| true),
    });
    if told != Ok(true) {
        return;
    }
    let deal = Deal::decode(&header);
    let (up, down) = deal.halves();
    let end = if deal.both {
        pump::both(actor, &conn, down, up)
    } else {
        let end = pump::receive(actor, &conn, up);
        match end {
            End::Done => pump::send(actor, &conn, down),
            other => other,
        }
    };
    // A side that does not stop early sees all of it, unless a process was killed.
    if deal.whole() {
        finish(actor, &conn, end);
    }
    close(actor, conn);
}

/// The connection's end after all was sent and received.
fn finish(actor: &mut Actor<'_>, conn: &OwnedFd, end: End) {
    match end {
        End::Done => {
            let _ = actor.call(Op::Shutdown, || raw::shutdown(conn, libc::SHUT_WR));
            let last = actor.call(Op::Recv, || raw::recv(conn, &mut [0], 0));
            match last {
                Ok(0) => actor.count(Count::Complete, 1),
                Ok(_) => actor.count(Count::Wrong, 1),
                Err(_) => actor.count(Count::Broken, 1),
            }
        }
        End::Cut => actor.count(Count::Cut, 1),
        End::Broken => actor.count(Count::Broken, 1),
    }
}

fn close(actor: &mut Actor<'_>, conn: OwnedFd) {
    let rings = std::mem::take(&mut actor.rings);
    let first = actor.rng.one_in(2);
    let _ = actor.call(Op::Close, || {
        if first {
            drop(conn);
            drop(rings);
        } else {
            drop(rings);
            drop(conn);
        }
        Ok(())
    });
}

fn connect(actor: &mut Actor<'_>) {
    while actor.shared.table.connecting() {
        let peer = actor.rng.pick(&actor.shared.args.peers);
        let process = actor.rng.below(actor.shared.args.processes);
        let mut addr = SocketAddrV4::new(*peer.ip(), peer.port() + process as u16);
        if actor.rng.one_in(50) {
            // Nobody is there.
            addr.set_port(9);
        }
        let Ok(fd) = actor.call(Op::Socket, raw::stream) else {
            thread::sleep(Duration::from_millis(20));
            continue;
        };
        match connect_to(actor, &fd, addr) {
            Ok(true) => {}
            // Closed in the middle of it.
            Ok(false) => continue,
            Err(_) => {
                thread::sleep(Duration::from_millis(10));
                continue;
            }
        }
        actor.count(Count::Connected, 1);
        if actor.rng.one_in(8) {
            let to = actor.rng.below(actor.shared.inboxes.len());
            let inbox = &actor.shared.inboxes[to].0;
            let _ = actor.call(Op::Pass, || fds::send_fd_now(inbox, &fd));
            continue;
        }
        client(actor, fd);
    }
}

fn connect_to(actor: &mut Actor<'_>, fd: &OwnedFd, addr: SocketAddrV4) -> Result<bool> {
    // 15 s where the backlog is full: it is not to be taken for one that hangs.
    let tries = 3_i32.to_ne_bytes();
    raw::setsockopt(fd, libc::IPPROTO_TCP, libc::TCP_SYNCNT, &tries)?;
    if actor.rng.one_in(4) {
        raw::set_nonblocking(fd, true)?;
        match actor.call(Op::Connect, || raw::connect(fd, addr)) {
            Ok(()) => {}
            Err(Errno(libc::EINPROGRESS)) => {
                if actor.rng.one_in(4) {
                    return Ok(false);
                }
                actor.call(Op::Poll, || raw::poll(fd, libc::POLLOUT, -1))?;
                actor.call(Op::Connect, || match raw::so_error(fd)? {
                    Errno(0) => Ok(()),
                    e => Err(e),
                })?;
            }
            Err(e) => return Err(e),
        }
        raw::set_nonblocking(fd, false)?;
    } else {
        actor.call(Op::Connect, || raw::connect(fd, addr))?;
    }
    Ok(true)
}

/// The connecting end of a connection.
fn client(actor: &mut Actor<'_>, mut conn: OwnedFd) {
    if actor.rng.one_in(16) {
        // It just closes.
        return close(actor, conn);
    }
    if actor.rng.one_in(8) {
        let Ok(copy) = conn.try_clone() else { return };
        close(actor, std::mem::replace(&mut conn, copy));
    }
    if actor.rng.one_in(8) {
        let _ = actor.call(Op::Name, || raw::getsockname(&conn));
        let _ = actor.call(Op::Name, || raw::getpeername(&conn));
    }
    let child = if actor.rng.one_in(16) {
        let ms = actor.rng.below(50) as u32;
        actor.count(Count::Forks, 1);
        actor.call(Op::Fork, || wild::fork_idle(ms)).ok()
    } else {
        None
    };
    let (up, down) = (len(actor), len(actor));
    let mut stop = |len: u64| match actor.rng.one_in(12) {
        true => actor.rng.below(len as usize + 1) as u64,
        false => WHOLE,
    };
    let (up_stop, down_stop) = (stop(up), stop(down));
    let deal = Deal {
        key: actor.rng.word() >> 1,
        up,
        down,
        up_stop,
        down_stop,
        both: actor.rng.one_in(2),
    };
    let begun = actor.call(Op::Send, || raw::send_all(&conn, &deal.encode()));
    if begun.is_ok() {
        let (up, down) = deal.halves();
        let end = if deal.both {
            pump::both(actor, &conn, up, down)
        } else {
            match pump::send(actor, &conn, up) {
                End::Done if deal.up_stop == WHOLE => pump::receive(actor, &conn, down),
                other => other,
            }
        };
        if deal.whole() {
            match end {
                // The listener closed before this one was accepted.
                End::Broken => {}
                end => finish(actor, &conn, end),
            }
        }
    }
    close(actor, conn);
    if let Some(child) = child {
        let _ = process::wait(child);
    }
}

fn len(actor: &mut Actor<'_>) -> u64 {
    let most = actor.shared.args.most;
    let most = match actor.rng.below(8) {
        0 => 0,
        1 | 2 => 100,
        3 | 4 => 4096,
        5 => 65_536,
        _ => most,
    };
    actor.rng.below(most.min(actor.shared.args.most) + 1) as u64
}
