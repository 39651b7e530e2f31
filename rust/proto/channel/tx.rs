// SPDX-License-Identifier: GPL-2.0

//! Sent messages: data as it is planned and committed, and control messages.

use super::super::wire::{Credit, Header, Type, CHUNK_MAX, SMALL_MAX};
use super::super::ChanId;
use super::{
    Channel, Chunk, Plan, State, WANT_ACCEPT, WANT_CONNECT, WANT_CREDIT, WANT_END, WANT_FIN,
    WANT_GRANT, WANT_REQUEST, WANT_RESET, WANT_REVOKE, WANT_REVOKED,
};

impl Channel {
    /// Plans the next `want` bytes. `bulk`: the call that they belong to is above the small class.
    /// Requests a window from the peer when one is missing. Corked bytes go first.
    pub fn plan(&mut self, want: u32, bulk: bool) -> Plan {
        if self.state != State::Open || self.write_ended() || self.corked != 0 || want == 0 {
            return Plan::Wait;
        }
        if self.tx.msgs.wrapping_sub(self.acked.msgs) >= self.theirs.msgs {
            return Plan::Wait;
        }
        if bulk {
            if let Some(w) = &self.peer_window {
                return w.plan(want);
            }
            if self.window_requested {
                return Plan::Wait;
            }
            if self.tx_pos >= self.window_retry_at {
                self.window_requested = true;
                self.queue_control(WANT_REQUEST);
                return Plan::Wait;
            }
        }
        let n = want.min(SMALL_MAX);
        if !self.has_room(n) {
            return Plan::Wait;
        }
        Plan::Small(n)
    }

    /// Whether poll() reports room to send: room for at least one full DATA behind the corked
    /// bytes.
    pub fn writable(&self) -> bool {
        // A pending window request does not delay small data.
        let msgs = self.tx.msgs.wrapping_sub(self.acked.msgs);
        let behind = msgs.wrapping_add(u32::from(self.corked != 0));
        self.state == State::Open
            && !self.write_ended()
            && behind < self.theirs.msgs
            && self.has_room(SMALL_MAX)
    }

    /// Commits a chunk as planned, or a shorter one of the same kind; `None` if it does not fit
    /// (any more). [`Plan::Corked`] commits all corked bytes, also when this side's direction has
    /// been shut since.
    pub fn commit(&mut self, plan: Plan) -> Option<Chunk> {
        let corked = matches!(plan, Plan::Corked(_));
        if corked && plan != Plan::Corked(self.corked)
            || !corked && (self.corked != 0 || self.write_ended())
            || self.state != State::Open
        {
            return None;
        }
        if self.tx.msgs.wrapping_sub(self.acked.msgs) >= self.theirs.msgs {
            return None;
        }
        let (kind, len) = match plan {
            Plan::Wait => return None,
            Plan::Small(n) | Plan::Corked(n) => (Type::Data, n),
            Plan::Bulk(n) | Plan::Aligned(n) => (Type::Written, n),
        };
        if len == 0 {
            return None;
        }
        let mut header = Header::new(kind, self.remote, self.local);
        header.len = len;
        header.pos = self.tx_pos;
        let mut write_to = None;
        let n = u64::from(len);
        if kind == Type::Data {
            let small = self.tx.small.wrapping_add(n);
            let over = small.wrapping_sub(self.acked.small) > u64::from(self.theirs.small);
            if len > SMALL_MAX || over {
                return None;
            }
            self.tx.small = small;
            self.corked = 0;
        } else {
            let w = self.peer_window.as_mut()?;
            let size = u64::from(w.size);
            let aligned = matches!(plan, Plan::Aligned(_));
            let from = w.written.wrapping_add(if aligned { w.pad() } else { 0 });
            let off = from.checked_rem(size)?;
            let written = from.wrapping_add(n);
            if len > CHUNK_MAX
                || off.saturating_add(n) > size
                || written.wrapping_sub(w.freed) > size
            {
                return None;
            }
            header.woff = from;
            header.arg0 = w.lease;
            write_to = Some((w.addr.checked_add(off)?, w.key));
            w.written = written;
        }
        self.tx_pos = self.tx_pos.wrapping_add(n);
        self.tx.msgs = self.tx.msgs.wrapping_add(1);
        self.fill_credit(&mut header);
        Some(Chunk { header, write_to })
    }

    /// The next control message, in the order required by the protocol. `link_credit` is not filled
    /// in. A WindowGrant of a size above 0 is sent after the registration of the window is posted.
    pub fn next_control(&mut self) -> Option<Header> {
        if !self.has_pending_control() {
            return None;
        }
        if self.state == State::Opening {
            self.want &= !WANT_CONNECT;
            let mut h = Header::new(Type::Connect, ChanId::default(), self.local);
            h.arg0 = self.ports;
            self.fill_limits(&mut h);
            return Some(h);
        }
        let order = [
            (WANT_ACCEPT, Type::Accept),
            (WANT_REVOKED, Type::Revoked),
            (WANT_GRANT, Type::WindowGrant),
            (WANT_REVOKE, Type::WindowRevoke),
            (WANT_REQUEST, Type::WindowRequest),
            (WANT_CREDIT, Type::Credit),
            (WANT_FIN, Type::Fin),
            (WANT_RESET, Type::Reset),
            (WANT_END, Type::End),
        ];
        let (bit, kind) = order
            .into_iter()
            .find(|(bit, _)| self.sendable_control() & bit != 0)?;
        self.want &= !bit;
        let mut h = Header::new(kind, self.remote, self.local);
        if kind != Type::Accept {
            self.fill_credit(&mut h);
        }
        match kind {
            Type::Accept => {
                self.fill_limits(&mut h);
                self.state = State::Open;
            }
            Type::WindowGrant => {
                if let Some(w) = &self.window {
                    h.arg0 = w.key;
                    h.arg1 = w.size;
                    h.arg2 = w.addr;
                    h.lease = w.lease;
                }
            }
            Type::WindowRevoke => {
                if let Some(w) = &mut self.window {
                    w.revoking = true;
                    h.lease = w.lease;
                }
            }
            Type::Revoked => h.arg0 = self.revoked,
            Type::Fin => {
                h.pos = self.tx_pos;
                self.fin_sent = true;
            }
            Type::End | Type::Reset => {
                h.pos = self.tx_pos;
                self.fin_sent = true;
                self.end_sent = true;
                self.want = 0;
                self.maybe_close();
            }
            _ => {}
        }
        Some(h)
    }

    fn fill_credit(&mut self, h: &mut Header) {
        h.credit = Credit {
            window: 0,
            small: self.freed.small,
            msgs: self.freed.msgs,
        };
        if let Some(w) = &mut self.window {
            // Until the grant was sent, the peer knows nothing of this lease.
            if self.want & WANT_GRANT == 0 {
                h.lease = w.lease;
                h.credit.window = w.freed;
                w.advertised = w.freed;
            }
        }
        self.advertised = self.freed;
        self.want &= !WANT_CREDIT;
    }

    fn fill_limits(&self, h: &mut Header) {
        h.arg1 = self.ours.msgs;
        h.arg2 = u64::from(self.ours.small);
    }
}
