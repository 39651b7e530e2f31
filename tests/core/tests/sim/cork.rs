// SPDX-License-Identifier: GPL-2.0

//! Corked messages: MSG_MORE, the time after which they leave in any case, and the sender when the
//! link had no room.

use zrs_core::channel::Plan;
use zrs_core::wire::SMALL_MAX;

use crate::link::Source;
use crate::world::{Ev, SockId, World};

impl World {
    /// Corks a call of `n` bytes, if it can be; false: it must be sent as any other.
    pub fn hold_back(&mut self, sid: SockId, n: u32) -> bool {
        let s = &self.socks[sid];
        let before = s.ch.corked();
        if before + n > SMALL_MAX || !s.ch.cork(n) {
            return false;
        }
        let (conn, side) = (s.conn, s.side);
        // The program's memory may end early.
        let came = if self.rng.chance(10) {
            self.rng.range(1, u64::from(n)) as u32
        } else {
            n
        };
        assert_eq!(self.socks[sid].ch.uncork(n - came), before + came);
        let n = came;
        self.conns[conn].given[side] += u64::from(n);
        self.stats.held_back += 1;
        if before == 0 {
            let most = 20 * (self.cfg.think + 1);
            self.within(most, Ev::Uncork(sid));
        } else {
            self.stats.joined += 1;
        }
        true
    }

    /// Sends the corked message; false: the link has no room, and another party sends it when it
    /// has.
    pub fn flush(&mut self, sid: SockId) -> bool {
        let s = &mut self.socks[sid];
        let n = s.ch.corked();
        if n == 0 {
            return true;
        }
        let (link, host, side, conn) = (s.link, s.host, s.side, s.conn);
        if !self.links[link].side[host].has_room() {
            s.late = true;
            self.starve(sid);
            return false;
        }
        s.late = false;
        self.stats.flushed_shut += u64::from(s.ch.write_ended());
        let Some(chunk) = s.ch.commit(Plan::Corked(n)) else {
            self.fail(&format!("sock {sid}: {n} corked bytes do not fit"));
        };
        let c = &mut self.conns[conn];
        let h = chunk.header;
        assert_eq!(h.pos, c.sent[side]);
        assert_eq!(chunk.write_to, None);
        let from = Source {
            key: c.stream(side),
            pos: h.pos,
            len: h.len,
        };
        c.sent[side] += u64::from(h.len);
        self.stats.small_bytes += u64::from(h.len);
        self.post_send(link, host, h, Some(from));
        // The end of the stream has waited for it.
        self.kick(sid);
        true
    }

    /// The time of a corked message is over.
    pub fn uncork(&mut self, sid: SockId) {
        if self.socks[sid].in_table {
            self.flush(sid);
        }
    }

    /// The link has room again.
    pub fn flush_late(&mut self, sid: SockId) {
        if self.socks[sid].late && self.socks[sid].in_table && !self.flush(sid) {
            self.stats.late_again += 1;
        }
    }
}
