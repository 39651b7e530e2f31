// SPDX-License-Identifier: GPL-2.0

//! Readiness of a socket: the events that poll() returns, and the wake-ups of waiting threads. The
//! table of states and events is in `proto/readiness.rs`.

#![deny(unsafe_code)]

use kernel::sync::Arc;

use super::{Inner, Sock};
use crate::kern::sock::{PollCall, SkRef, POLL_BUSY_LOOP};
use crate::kern::task::{self, now_ns};
use crate::kern::wait::{Timeout, WaitError, WaitMode};
use crate::params;
use crate::proto::channel::Channel;
use crate::proto::readiness::{self, Phase, View};
use crate::transport::link::Link;

impl Sock {
    /// Wakes the threads that wait to read. `sk`: the struct sock, as it was when data arrived. Any
    /// context without `inner`.
    pub(crate) fn wake_read(&self, sk: Option<SkRef>) {
        self.wait.wake_all();
        if let Some(sk) = sk {
            sk.wake_readable();
        }
    }

    /// Wakes a thread that waits in accept(): a connection was queued.
    pub(super) fn wake_accept(&self) {
        self.wait.wake_one();
        if let Some(sk) = self.sk() {
            sk.wake_readable();
        }
    }

    /// Wakes threads that wait to send.
    pub(crate) fn wake_write(&self) {
        self.wait.wake_all();
        if let Some(sk) = self.sk() {
            sk.wake_writable();
        }
    }

    /// Wakes all waiting threads: the socket's state has changed.
    pub(crate) fn wake_state(&self) {
        self.wait.wake_all();
        if let Some(sk) = self.sk() {
            sk.wake_state();
        }
    }

    /// As [`Self::wake_state`], with the lock held. No wake-up function asks for readiness before
    /// it returns: TCP wakes under its lock as well.
    pub(crate) fn wake_state_in(&self, inner: &Inner) {
        self.wait.wake_all();
        if let Some(sk) = &inner.sk {
            sk.wake_state();
        }
    }

    /// poll(): the events that hold now; see
    /// [`SocketOps::poll`](crate::kern::sock::family::SocketOps::poll).
    pub(super) fn poll_events(self: &Arc<Self>, asked: u32, busy: Option<PollCall>) -> u32 {
        let seen = self.look_ready(asked);
        let Some(call) = busy else {
            return seen;
        };
        let (link, polls) = self.busy_link();
        let link = link.filter(|_| task::eager());
        let ready = seen & (asked | readiness::ERR | readiness::HUP) != 0;
        if ready || polls == 0 || task::signal_pending() {
            return seen;
        }
        let over = self.is_over(call);
        // The kernel's busy loop ignores the caller's timeout; but a call without one does not
        // loop.
        if over && task::poll_limit_ns() != Some(0) {
            task::leave_busy_loop();
        }
        let Some(link) = link else {
            return seen;
        };
        // Poll once each time the kernel's loop calls.
        link.spin(|| true, || None::<()>);
        let again = if over { 0 } else { POLL_BUSY_LOOP };
        self.look_ready(asked) | again
    }

    /// Whether the timeout of the poll() or select() has passed. The socket remembers one call: a
    /// second one ends the busy polling of the first.
    fn is_over(&self, call: PollCall) -> bool {
        let now = now_ns();
        let limit = if call.begins {
            task::poll_limit_ns().unwrap_or(0)
        } else {
            0
        };
        let mut asked = self.asked.lock();
        if call.begins {
            asked.busy_call = (call.id, now.saturating_add(limit));
        }
        let (id, end) = asked.busy_call;
        id != call.id || now >= end
    }

    /// The events that hold now. Room to send is checked, and waited for, only if `asked` has
    /// [`readiness::OUT`].
    fn look_ready(self: &Arc<Self>, asked: u32) -> u32 {
        if self.reap() {
            self.send_pending();
        }
        if asked & readiness::OUT == 0 {
            // A caller that does not ask for POLLOUT does not wait for room.
            return readiness::events(&view(self, &mut self.inner.lock(), false));
        }
        let (room, link, place, unsignaled, push, corked) = {
            let mut inner = self.inner.lock();
            let room = inner.conn.chan.is_some_and(Channel::writable);
            inner.conn.wants_room |= !room;
            let holds = inner.has_send_room();
            let unsignaled = inner.unsignaled_message().filter(|_| !holds);
            let corked = inner.conn.chan.corked() > 0;
            let push = !holds && corked;
            let place = inner.conn.chan.flow();
            (
                room && holds,
                inner.conn.link.clone(),
                place,
                unsignaled,
                push,
                corked,
            )
        };
        Sock::ask_done(unsignaled);
        if push {
            // Corked bytes count against SO_SNDBUF, and make room only when they have been sent.
            self.flush();
        }
        // The link's lock is taken before the socket's, so the link's room is checked between the
        // two sections under the socket's lock.
        let writable = room
            && match (link, place) {
                (Some(link), Some(place)) => link.has_room_or_block(self, place, corked),
                _ => true,
            }
            // Corked bytes may have waited for the room just found: they go first.
            && (!self.tx_blocked.cork() || self.flush());
        let mut inner = self.inner.lock();
        inner.conn.promised = writable;
        readiness::events(&view(self, &mut inner, writable))
    }

    /// See [`Inner::busy_link`].
    pub(super) fn busy_link(&self) -> BusyLink {
        self.inner.lock().busy_link()
    }

    /// Waits until `cond` returns something, as [`WaitQueue::wait`] does, for an event that the
    /// link brings. Polls for as long as the socket may, then sleeps; when woken for completions of
    /// the link, the thread processes them itself.
    pub(super) fn await_link<R>(
        &self,
        mode: WaitMode,
        timeout: &mut Timeout,
        mut cond: impl FnMut() -> Option<R>,
    ) -> core::result::Result<R, WaitError> {
        if let Some(r) = cond() {
            return Ok(r);
        }
        let link = self.busy_link();
        self.await_more(link, mode, timeout, cond)
    }

    /// As [`Self::await_link`], for a caller that has just called `cond` and [`Inner::busy_link`]
    /// itself.
    pub(super) fn await_more<R>(
        &self,
        (link, polls): BusyLink,
        mode: WaitMode,
        timeout: &mut Timeout,
        mut cond: impl FnMut() -> Option<R>,
    ) -> core::result::Result<R, WaitError> {
        // As of one that sleeps, other threads must not depend on one that gets no processor.
        let spins = link.as_ref().filter(|_| polls > 0 && task::eager());
        if let Some(link) = spins {
            let begin = task::jiffies();
            let end = now_ns().saturating_add(u64::from(polls) * 1000);
            let spent = || task::jiffies().wrapping_sub(begin);
            let over = || timeout.is_some_and(|t| spent() >= t) || now_ns() >= end;
            let found = link.spin(over, &mut cond);
            if let Some(left) = timeout {
                *left = left.saturating_sub(spent());
            }
            if let Some(r) = found {
                return Ok(r);
            }
        }
        self.wait.sleep_or_poll(mode, timeout, link.as_ref(), cond)
    }
}

/// The link of a socket, and how many microseconds the calls of the socket poll.
pub(super) type BusyLink = (Option<Arc<Link>>, u32);

impl Inner {
    /// The link whose completions an eager task may take while it waits, and how many microseconds
    /// the calls of the socket poll.
    pub(super) fn busy_link(&self) -> BusyLink {
        let polls = match self.sk.as_ref().map_or(0, |sk| sk.busy_poll()) {
            0 => params::BUSY_POLL_US.get(),
            us => us,
        };
        (self.conn.link.clone(), polls.min(params::MOST_BUSY_POLL_US))
    }
}

/// The inputs of the readiness table.
fn view(sock: &Sock, inner: &mut Inner, writable: bool) -> View {
    let phase = match inner.phase {
        Phase::Listening { .. } => Phase::Listening {
            queued: !sock.asked.lock().queue.is_empty(),
        },
        phase => phase,
    };
    let error = inner
        .sk
        .as_ref()
        .is_some_and(|sk| sk.err().is_some() || sk.has_notifications());
    let ended = |c: &mut Channel| (c.read_ended(), c.write_ended());
    let (read_ended, write_ended) = inner.conn.chan.with(ended).unwrap_or_default();
    View {
        phase,
        readable: inner.rx.readable(&inner.ring),
        writable,
        read_ended: read_ended || inner.shut_read || inner.reported,
        write_ended,
        // As with TCP, the peer's close alone is no hang-up: programs that see one may not read the
        // data that has arrived.
        write_shut: inner.shut_write || inner.reported || inner.sent_in_vain,
        error,
    }
}
