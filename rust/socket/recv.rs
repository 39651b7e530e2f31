// SPDX-License-Identifier: GPL-2.0

//! Receiving into a program's buffer: one copy, straight from where the device put the bytes.

#![deny(unsafe_code)]

use kernel::prelude::*;
use kernel::sync::Arc;

use super::{take_turn, Sock};
use crate::kern::errno::*;
use crate::kern::sock::msg::RecvMsg;
use crate::kern::wait::WaitMode;
use crate::proto::channel::Channel;
use crate::proto::readiness::Phase;
use crate::stats::STATS;
use crate::transport::pool::HeldBlock;
use crate::transport::window::Window;

/// What holds a segment that is not in the window.
pub(crate) enum Held {
    /// A block of the shared receive queue.
    Block(HeldBlock),
    /// A copy, made so that the block could be used again.
    Spilled(KVec<u8>),
}

/// The right to consume what has arrived.
struct Turn<'a>(&'a Sock);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.inner.lock().rx_turn = false;
        self.0.wait.wake_all();
    }
}

/// Where the next bytes are.
enum Next {
    /// In segment `index`, from byte `taken` on.
    Data {
        index: u32,
        taken: u32,
        len: u32,
        source: Source,
    },
    /// The stream is at its end.
    End,
}

enum Source {
    Window(Arc<Window>, u32),
    Held(Held),
}

impl Sock {
    /// recvmsg(): min(asked, arrived) bytes; 0 at the end of the stream. Waits for the first
    /// byte, with MSG_WAITALL for all of them.
    ///
    /// Errors: ENOTCONN, EAGAIN, EINTR, EFAULT, EOPNOTSUPP (out-of-band data), and what SO_ERROR
    /// holds once all that had arrived is read. Sleeps.
    pub(super) fn recv(this: &Arc<Self>, msg: &mut RecvMsg<'_>) -> Result<usize> {
        if msg.oob() {
            return Err(EOPNOTSUPP());
        }
        let peek = msg.peek();
        let want = msg.len();
        if want == 0 {
            return this.require_connected().map(|()| 0);
        }
        let sk = this.sk().ok_or(ENOTCONN())?;
        let mut timeout = sk.rcvtimeo(msg.nonblock());
        let target = sk.rcvlowat(msg.waitall(), want);
        drop(sk);
        let mut got = 0;
        let mut peeked = None;
        loop {
            let enough = got >= target || got == want;
            let found = if enough {
                // More is taken if it is there, but nobody waits for it.
                this.next(peeked, got > 0).ok_or(EAGAIN).and_then(|r| r)
            } else {
                let waited = this.await_link(WaitMode::Interruptible, &mut timeout, || {
                    this.next(peeked, got > 0)
                });
                match waited {
                    Ok(r) => r,
                    Err(e) => Err(e.to_errno(timeout)),
                }
            };
            let next = match found {
                Ok(next) => next,
                Err(_) if got > 0 => break,
                Err(e) => return Err(e),
            };
            let Next::Data {
                index,
                taken,
                len,
                source,
            } = next
            else {
                break;
            };
            let turn = Turn(this);
            let n = (len.saturating_sub(taken) as usize).min(want - got);
            let copied = copy_out(&source, taken, n, msg);
            let done = match &copied {
                Ok(n) if !peek => *n,
                _ => 0,
            };
            Sock::give_back(this, index, source, done);
            drop(turn);
            match copied {
                Ok(n) => {
                    got += n;
                    this.counters.rx_copied.add(&STATS.rx_copied, n);
                    if !peek {
                        this.counters.rx_bytes.add(&STATS.rx_bytes, n);
                    }
                }
                Err(_) if got > 0 => break,
                Err(e) => return Err(e),
            }
            if peek {
                peeked = Some(index.wrapping_add(1));
            }
            if got == want {
                break;
            }
        }
        Ok(got)
    }

    fn require_connected(&self) -> Result {
        match self.inner.lock().phase {
            Phase::Connected | Phase::Connecting => Ok(()),
            _ => Err(ENOTCONN()),
        }
    }

    /// The next bytes for recv(), with the turn taken; `None` when there are none yet.
    /// With `some`, the call has got something already, and an error is left for the next call.
    fn next(&self, from: Option<u32>, some: bool) -> Option<Result<Next>> {
        let mut inner = self.inner.lock();
        let inner = &mut *inner;
        if inner.rx_turn {
            return None;
        }
        match inner.phase {
            Phase::Connecting => return None,
            Phase::Connected => {}
            // What went wrong with connect() is told once; then it is a fresh socket.
            _ => {
                let pending = inner.sk.as_ref().and_then(|sk| sk.take_err());
                return Some(Err(pending.unwrap_or(ENOTCONN())));
            }
        }
        if let Some(index) = inner.rx.claim_next(&inner.ring, from) {
            let window = inner.window.clone();
            let seg = inner.rx.get_mut(index)?;
            let source = match (seg.window_off, window) {
                (Some(off), Some(window)) => Source::Window(window, off),
                (None, _) => Source::Held(seg.held.take()?),
                (Some(_), None) => return Some(Err(EIO)),
            };
            let next = Next::Data {
                index,
                taken: seg.taken,
                len: seg.len,
                source,
            };
            take_turn(&mut inner.rx_turn);
            return Some(Ok(next));
        }
        if let Some(sk) = &inner.sk {
            let error = if some { sk.err() } else { sk.take_err() };
            if let Some(e) = error {
                return Some(Err(e));
            }
        }
        let ended = inner.chan.as_ref().is_none_or(Channel::read_ended);
        (ended || inner.shut_read).then_some(Ok(Next::End))
    }

    /// Puts a borrowed segment back, `n` bytes of it consumed, and gives room back to the peer.
    fn give_back(this: &Arc<Self>, index: u32, source: Source, n: usize) {
        {
            let mut inner = this.inner.lock();
            let inner = &mut *inner;
            if let (Source::Held(held), Some(seg)) = (source, inner.rx.get_mut(index)) {
                seg.held = Some(held);
            }
            inner.rx.advance(&inner.ring, index, n as u32);
        }
        this.reap();
        Sock::talk(this);
    }

    /// Gives back what has been consumed, in the order of the stream. Returns whether there was
    /// any; then [`Self::talk`] is due.
    pub(super) fn reap(&self) -> bool {
        let mut any = false;
        loop {
            let freed = {
                let mut inner = self.inner.lock();
                let inner = &mut *inner;
                let Some(freed) = inner.rx.reap(&inner.ring) else {
                    break;
                };
                if let Some(c) = &mut inner.chan {
                    c.freed(freed.window, freed.small);
                }
                freed
            };
            any = true;
            let n = freed.by_program as usize;
            self.counters.rx_bytes.add(&STATS.rx_bytes, n);
            release_held(freed.held);
        }
        any
    }

    /// Lets the link send if the channel has something to say, and lets go of what is not
    /// needed any more.
    pub(super) fn talk(this: &Arc<Self>) {
        let (control, ended) = {
            let inner = this.inner.lock();
            match &inner.chan {
                Some(c) => (c.has_control() && !inner.queued, c.window_quiet()),
                None => (false, false),
            }
        };
        if control {
            Sock::kick(this);
        }
        if ended {
            this.settle_window();
        }
    }
}

/// Frees what a segment was held in. Not under a socket's or link's lock.
pub(super) fn release_held(held: Option<Held>) {
    if let Some(Held::Block(block)) = held {
        block.repost();
    }
}

fn copy_out(source: &Source, taken: u32, n: usize, msg: &mut RecvMsg<'_>) -> Result<usize> {
    let taken = taken as usize;
    match source {
        Source::Window(window, off) => window.copy_to_iter(*off as usize + taken, n, msg.iter()),
        Source::Held(Held::Block(block)) => block.copy_to_iter(taken, n, msg.iter()),
        Source::Held(Held::Spilled(bytes)) => {
            let bytes = bytes.get(taken..taken + n).ok_or(EINVAL)?;
            match msg.iter().copy_to_iter(bytes) {
                0 if n > 0 => Err(EFAULT),
                n => Ok(n),
            }
        }
    }
}
