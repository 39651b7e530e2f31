// SPDX-License-Identifier: GPL-2.0

//! How programs read: recv(), with and without MSG_PEEK, and the ring.
//! Every byte is checked.

use zrs_core::area_ring::AreaRing;
use zrs_core::rx_queue::Moved;
use zrs_core::wire::SMALL_MAX;

use crate::ring::{MaybeRing, Ring};
use crate::sock::Held;
use crate::world::{SockId, World};
use common::is_stream;

impl World {
    /// recv(): at most `want` bytes, checked; returns how many there were.
    pub fn recv(&mut self, sid: SockId, want: u64) -> u64 {
        let mut got = 0;
        let mut from = None;
        if self.rng.chance(5) {
            self.peek(sid, want);
        }
        while got < want {
            let s = &mut self.socks[sid];
            let Some(index) = s.rx.claim_next(&s.ring, from) else {
                break;
            };
            let Some((pos, n)) = self.check_segment(sid, index, want - got) else {
                break;
            };
            let s = &mut self.socks[sid];
            let c = &mut self.conns[s.conn];
            if s.ring.0.is_none() && !s.scribbler && pos != c.read[s.side] {
                self.fail(&format!("sock {sid}: out of order at {pos}"));
            }
            self.stats.recv_beside_ring += u64::from(s.ring.0.is_some());
            let seg = s.rx.get_mut(index);
            let small = seg.is_some_and(|seg| matches!(seg.moved, Moved::Small(_)));
            self.stats.small_by_recv += u64::from(small);
            s.rx.advance(&s.ring, index, n as u32);
            c.read[s.side] += n;
            self.release_emptied(sid, index);
            got += n;
            from = Some(index);
            if self.rng.chance(50) {
                self.reap(sid);
            }
        }
        self.reap(sid);
        got
    }

    /// A block can be reused while the segments before this one are held.
    fn release_emptied(&mut self, sid: SockId, index: u32) {
        let s = &mut self.socks[sid];
        let emptied = s.rx.get_mut(index).filter(|seg| seg.taken == seg.len);
        if let Some(Held::Block(_)) = emptied.and_then(|seg| seg.held.take()) {
            let (link, host) = (s.link, s.host);
            self.repost(link, host);
        }
    }

    /// recv() with MSG_PEEK.
    fn peek(&mut self, sid: SockId, want: u64) {
        let mut got = 0;
        let mut from = None;
        while got < want {
            let s = &mut self.socks[sid];
            let Some(index) = s.rx.claim_next(&s.ring, from) else {
                break;
            };
            got += self
                .check_segment(sid, index, want - got)
                .map_or(0, |(_, n)| n);
            from = Some(index.wrapping_add(1));
            self.stats.peeks += 1;
        }
    }

    /// Checks up to `most` bytes at the reading position of a segment; returns that position in
    /// the stream and how many bytes it were.
    fn check_segment(&mut self, sid: SockId, index: u32, most: u64) -> Option<(u64, u64)> {
        let s = &mut self.socks[sid];
        let c = &self.conns[s.conn];
        let mem = &self.hosts[s.host].mem;
        let seg = s.rx.get_mut(index)?;
        let n = u64::from(seg.len - seg.taken).min(most);
        let pos = seg.pos + u64::from(seg.taken);
        let bytes = match (&seg.held, seg.window_off, seg.moved, &s.window, &s.ring.0) {
            (Some(Held::Block(b) | Held::Spilled(b)), None, ..) => &b[seg.taken as usize..],
            (None, Some(off), _, Some(w), _) => &mem[w.start + (off + seg.taken) as usize..],
            (None, None, Moved::Area(off), _, Some(r)) => &r.area_mem[(off + seg.taken) as usize..],
            (None, None, Moved::Small(off), _, Some(r)) => {
                &r.area_mem[(r.in_small(off) + seg.taken) as usize..]
            }
            _ => self.fail(&format!("sock {sid}: a segment without a place")),
        };
        let bytes = &bytes[..n as usize];
        if !c.hostile && !is_stream(c.stream(1 - s.side), pos, bytes) {
            self.fail(&format!("sock {sid}: wrong bytes at {pos}"));
        }
        Some((pos, n))
    }

    /// Checks the bytes that a descriptor shows to the program.
    pub fn check_desc(&self, sid: SockId, index: u32, escaped: bool) {
        let s = &self.socks[sid];
        let Some(ring) = &s.ring.0 else {
            self.fail(&format!("sock {sid}: no ring"));
        };
        let d = ring.desc(index);
        let from = match (&s.window, escaped) {
            (_, true) => &ring.area_mem[d.escape_off.get() as usize..],
            (Some(w), false) => &self.hosts[s.host].mem[w.start + d.off as usize..],
            _ => self.fail(&format!("sock {sid}: a ring without a window")),
        };
        let bytes = &from[..d.len as usize];
        let c = &self.conns[s.conn];
        if !c.hostile && !is_stream(c.stream(1 - s.side), d.pos, bytes) {
            self.fail(&format!("sock {sid}: wrong bytes in the ring at {}", d.pos));
        }
    }

    /// ZRS_RX_RING.
    pub fn make_ring(&mut self, sid: SockId) {
        let host = self.socks[sid].host;
        if self.no_memory(host) {
            return;
        }
        if self.socks[sid].window.is_none() {
            self.offer_window(sid);
        }
        let area = match self.rng.chance(self.cfg.areas) {
            true => self.cfg.area_bytes,
            false => 0,
        };
        // Enough for all, or less than that.
        let limits = self.socks[sid].limits;
        let small = match self.rng.chance(self.cfg.smalls) {
            true if self.rng.chance(70) => {
                AreaRing::enough_for(limits.small, limits.msgs, SMALL_MAX)
            }
            true => 2 * SMALL_MAX,
            false => 0,
        };
        let s = &mut self.socks[sid];
        let mut ring = Ring::new(s.entries, area, small);
        self.stats.ring_made_in_mid_stream += u64::from(!s.rx.is_empty());
        for index in s.rx.indices() {
            if let Some(seg) = s.rx.get_mut(index) {
                seg.claimed |= seg.window_off.is_none() || seg.taken > 0;
                ring.publish(index, seg);
            }
        }
        s.ring = MaybeRing(Some(ring));
    }
}
