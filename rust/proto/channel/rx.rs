// SPDX-License-Identifier: GPL-2.0

//! Received messages: their effect on a channel, and the checks that they are allowed in its state.

use super::super::wire::{Header, Refusal, Type};
use super::super::{ChanId, Violation};
use super::{
    pad, Channel, Event, Failure, Limits, PeerWindow, State, WANT_ACCEPT, WANT_CONNECT, WANT_END,
    WANT_GRANT, WANT_REQUEST, WANT_REVOKED, WINDOW_MAX, WINDOW_MIN, WINDOW_RETRY,
};

impl Channel {
    /// Processes a message for this channel. A violation means that the link must be closed.
    pub fn on_message(&mut self, h: &Header) -> Result<Event, Violation> {
        if self.state == State::Closed {
            return Ok(Event::None);
        }
        let opening = self.state == State::Opening;
        if opening != matches!(h.kind, Type::Accept | Type::Reject) {
            // Before the answer to CONNECT nothing else may come for the channel but a Reset, which
            // counts as a refusal.
            if !(opening && h.kind == Type::Reset) {
                return Err(Violation::State);
            }
        }
        if opening {
            return self.on_answer(h);
        }
        // A host that does not know the channel answers with a Reset that may name none.
        let reset = h.kind == Type::Reset;
        if h.src != self.remote && !(reset && h.src == ChanId::default()) {
            return Err(Violation::Channel);
        }
        if self.state == State::Accepting && self.want & WANT_ACCEPT != 0 {
            return Err(Violation::State);
        }
        // Such a host's Reset has no credit either.
        let room = !reset && self.on_credit(h)?;
        let event = match h.kind {
            Type::Data | Type::Written => self.on_data(h)?,
            Type::Fin | Type::End | Type::Reset => self.on_end(h)?,
            Type::Credit => Event::None,
            Type::WindowRequest => {
                if self.fin_received || self.end_received {
                    return Err(Violation::State);
                } else if self.window.is_some() {
                    // The request crossed this side's own grant.
                    Event::None
                } else if self.no_reader {
                    self.deny();
                    Event::None
                } else {
                    Event::WindowWanted
                }
            }
            Type::WindowGrant => self.on_grant(h)?,
            Type::WindowRevoke => {
                if self.peer_window.is_none_or(|w| w.lease != h.lease) {
                    return Err(Violation::State);
                }
                self.peer_window = None;
                self.revoked = h.lease;
                self.queue_control(WANT_REVOKED);
                // Senders that waited for room in that window must plan again.
                Event::Room
            }
            Type::Revoked => match self.window {
                Some(w) if w.lease == h.arg0 && w.revoking => {
                    self.window = None;
                    self.maybe_close();
                    Event::Revoked
                }
                _ => return Err(Violation::State),
            },
            _ => return Err(Violation::State),
        };
        self.room |= room || event == Event::Room;
        Ok(if event == Event::None && room {
            Event::Room
        } else {
            event
        })
    }

    /// Whether there has been more room, or a window, since the last call. A message of any type
    /// may bring it, so call this after each: waiting senders must then check again.
    pub fn take_room(&mut self) -> bool {
        core::mem::take(&mut self.room)
    }

    fn on_answer(&mut self, h: &Header) -> Result<Event, Violation> {
        // There is no CONNECT that waits for an answer.
        if self.want & WANT_CONNECT != 0 || self.busy {
            return Err(Violation::State);
        }
        if h.kind == Type::Accept {
            self.theirs = Limits::of(h)?;
            self.remote = h.src;
            self.state = State::Open;
            return Ok(Event::Opened);
        }
        let why = match h.kind {
            Type::Reject => Refusal::from_u32(h.arg0),
            _ => Refusal::NoListener,
        };
        if why == Refusal::BacklogFull {
            self.busy = true;
            return Ok(Event::Busy);
        }
        self.fail(Failure::Refused(why));
        self.close();
        Ok(Event::Failed)
    }

    fn on_credit(&mut self, h: &Header) -> Result<bool, Violation> {
        let c = h.credit;
        let msgs_gain = c.msgs.wrapping_sub(self.acked.msgs);
        let msgs_out = self.tx.msgs.wrapping_sub(self.acked.msgs);
        if msgs_gain > msgs_out || c.small < self.acked.small || c.small > self.tx.small {
            return Err(Violation::Credit);
        }
        let mut gain = msgs_gain != 0 || c.small != self.acked.small;
        self.acked.msgs = c.msgs;
        self.acked.small = c.small;
        if let Some(w) = &mut self.peer_window {
            // The window's credit is counted from the start of its lease.
            if w.lease == h.lease && h.kind != Type::WindowGrant {
                if c.window < w.freed || c.window > w.written {
                    return Err(Violation::Credit);
                }
                gain |= c.window != w.freed;
                w.freed = c.window;
            }
        }
        Ok(gain)
    }

    fn on_data(&mut self, h: &Header) -> Result<Event, Violation> {
        if self.fin_received || self.end_received {
            return Err(Violation::State);
        }
        if h.pos != self.rx_pos {
            return Err(Violation::Position);
        }
        // The peer may not use room that was not announced to it.
        let outstanding = self.rx.msgs.wrapping_sub(self.advertised.msgs);
        if outstanding >= self.ours.msgs {
            return Err(Violation::Credit);
        }
        let len = u64::from(h.len);
        let mut room = len;
        let mut event = Event::Data;
        if h.kind == Type::Data {
            let small = self.rx.small.wrapping_add(len);
            if small.wrapping_sub(self.advertised.small) > u64::from(self.ours.small) {
                return Err(Violation::Credit);
            }
            self.rx.small = small;
        } else {
            // The peer cannot know of a window before the grant has left.
            let granted = self.want & WANT_GRANT == 0;
            let w = self.window.as_mut().filter(|_| granted);
            let w = w.ok_or(Violation::State)?;
            let size = u64::from(w.size);
            let off = h.woff.checked_rem(size).ok_or(Violation::State)?;
            let arrived = h.woff.wrapping_add(len);
            let skipped = h.woff.wrapping_sub(w.arrived);
            let fits = skipped == 0 || skipped == pad(w.size, w.arrived);
            if h.arg0 != w.lease || !fits || off.saturating_add(len) > size {
                return Err(Violation::Position);
            }
            if arrived.wrapping_sub(w.advertised) > size {
                return Err(Violation::Credit);
            }
            w.arrived = arrived;
            room = len.saturating_add(skipped);
            self.window_unread = self.window_unread.saturating_add(room);
            event = Event::Written {
                off: off as u32,
                pad: skipped as u32,
            };
        }
        self.rx_pos = self.rx_pos.wrapping_add(len);
        self.rx.msgs = self.rx.msgs.wrapping_add(1);
        if self.no_reader {
            if self.gone {
                self.queue_reset();
            }
            self.unwanted.msgs = self.unwanted.msgs.wrapping_add(1);
            let sum = match event {
                Event::Written { .. } => &mut self.unwanted_window,
                _ => &mut self.unwanted.small,
            };
            *sum = sum.wrapping_add(room);
            self.free_unwanted();
            event = Event::Unwanted;
        }
        Ok(event)
    }

    fn on_end(&mut self, h: &Header) -> Result<Event, Violation> {
        if self.end_received && h.kind == Type::Reset {
            // The peer may answer each message to a forgotten channel by a Reset.
            return Ok(Event::None);
        }
        if self.end_received || (h.kind == Type::Fin && self.fin_received) {
            return Err(Violation::State);
        }
        if h.kind != Type::Reset && h.pos != self.rx_pos {
            return Err(Violation::Position);
        }
        // A program that reads no more has read all that this side had sent before its own Fin.
        let whole = self.has_ended() && h.credit.msgs == self.tx.msgs;
        // Data before the Fin of a channel that was broken off may have been dropped.
        self.fin_received |= h.kind != Type::Reset && self.failure.is_none();
        if h.kind == Type::Fin {
            return Ok(Event::Fin);
        }
        self.end_received = true;
        self.corked = 0;
        let owed = self.peer_window.is_some() || self.want & WANT_REVOKED != 0;
        self.peer_window = None;
        let failed = h.kind == Type::Reset && !whole;
        if failed {
            self.fail(Failure::Reset);
        }
        if owed && !self.end_sent {
            // The peer waits for this side's END before it releases its window.
            self.want = WANT_END;
        } else {
            self.close();
        }
        Ok(if failed { Event::Failed } else { Event::Fin })
    }

    fn on_grant(&mut self, h: &Header) -> Result<Event, Violation> {
        if self.peer_window.is_some() {
            return Err(Violation::State);
        }
        self.window_requested = false;
        self.want &= !WANT_REQUEST;
        if h.arg1 == 0 {
            self.window_retry_at = self.tx_pos.saturating_add(WINDOW_RETRY);
            return Ok(Event::Room);
        }
        // Lease 0 means no lease.
        if !(WINDOW_MIN..=WINDOW_MAX).contains(&h.arg1)
            || h.lease == 0
            || h.arg2.checked_add(u64::from(h.arg1)).is_none()
        {
            return Err(Violation::Length);
        }
        self.peer_window = Some(PeerWindow {
            lease: h.lease,
            addr: h.arg2,
            key: h.arg0,
            size: h.arg1,
            written: 0,
            freed: 0,
        });
        Ok(Event::Room)
    }
}
