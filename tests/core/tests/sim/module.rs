// SPDX-License-Identifier: GPL-2.0

//! The module's actions on a socket: notifying the link, freeing, giving room back, leasing
//! windows, deadlines, closing.

use std::collections::VecDeque;

use zrs_core::channel::{Failure, State, WINDOW_MIN};
use zrs_core::rx_queue::Moved;

use crate::host::PAGE;
use crate::program::Wait;
use crate::ring::MaybeRing;
use crate::sock::{Held, Window};
use crate::world::{trace, Ev, SockId, World};

impl World {
    /// Puts the channel into its link's list if it has something to say.
    pub fn kick(&mut self, sid: SockId) {
        let s = &mut self.socks[sid];
        let side = &mut self.links[s.link].side[s.host];
        if s.ch.has_pending_control() && !s.queued && side.alive {
            s.queued = true;
            side.pending.push_back(sid);
            let (link, host) = (s.link, s.host);
            self.poke(link, host);
        }
    }

    /// Frees everything that the wire does not need any more.
    pub fn settle(&mut self, sid: SockId) {
        let s = &mut self.socks[sid];
        if s.ch.state() == State::Closed && s.in_table {
            s.in_table = false;
            if s.ch.free() != Some(sid) {
                self.fail("the table lost a channel");
            }
            let side = &mut self.links[s.link].side[s.host];
            side.pending.retain(|p| *p != sid);
            side.starved.retain(|p| *p != sid);
            s.queued = false;
            s.starved = false;
            trace!(self, "sock {sid}: off the table");
        }
        let s = &mut self.socks[sid];
        let host = &mut self.hosts[s.host];
        if let Some(window) = &s.window {
            if s.ch.peer_writes_done() {
                // From now on a WRITE is the peer's fault.
                if let Some(mr) = host.mr(window.key) {
                    mr.valid = false;
                }
                let empty = window.unread.is_empty() || s.closed;
                if empty {
                    self.give_all_room(sid);
                    let s = &mut self.socks[sid];
                    let host = &mut self.hosts[s.host];
                    let Some(window) = s.window.take() else {
                        return;
                    };
                    // A former owner's bytes must not be taken for anything.
                    let bytes = window.pages * PAGE;
                    host.mem[window.start..window.start + bytes].fill(0xa5);
                    let freed = host.pool.free(window.page, window.pages);
                    assert!(freed, "pages that were not leased");
                    self.serve_wish(sid);
                }
            }
        }
    }

    /// Gives back consumed segments, in the stream's order.
    pub fn reap(&mut self, sid: SockId) {
        loop {
            let s = &mut self.socks[sid];
            let moved = s.rx.moved();
            let Some(freed) = s.rx.reap(&s.ring, |_| true) else {
                break;
            };
            s.ch.freed(freed.window, freed.small);
            if let Some(off) = freed.window_off {
                let first = s.window.as_mut().and_then(|w| w.unread.pop_front());
                assert_eq!(first, Some((off, freed.len)));
                let pad = freed.window - freed.len;
                assert!(pad == 0 || pad < 4096 && off % 4096 == 0);
            } else {
                // The peer has all of it now.
                s.given -= moved - s.rx.moved() - u64::from(freed.window);
            }
            match (freed.moved, &mut s.ring.0) {
                (Moved::Area(off), Some(ring)) => {
                    ring.area.free(off, freed.len);
                    ring.area_full = false;
                }
                (Moved::Small(off), Some(ring)) => ring.small.free(off, freed.len),
                _ => {}
            }
            if let Some(Held::Block(_)) = freed.held {
                let (link, host) = (s.link, s.host);
                self.repost(link, host);
            }
        }
        let s = &mut self.socks[sid];
        assert_eq!(s.rx.bytes(), s.count_bytes());
        self.give_room(sid);
        // Segments behind it may move.
        self.watch(self.socks[sid].host);
        self.kick(sid);
        self.settle(sid);
    }

    /// Leases a window to the peer, asked for or not.
    fn lease(&mut self, sid: SockId) -> bool {
        let room = self.cfg.pool_pages[self.socks[sid].host] as u64;
        let least = u64::from(WINDOW_MIN) / PAGE as u64;
        let pages = self.rng.range(least, (room / 2).clamp(least, 80)) as usize;
        let mut size = (pages * PAGE) as u32;
        if self.cfg.odd_windows {
            size -= self.rng.below(u64::from(size - WINDOW_MIN) + 1).min(4095) as u32;
        }
        let s = &mut self.socks[sid];
        let host = &mut self.hosts[s.host];
        // While something of a former window is unread, its pages are not ours to give.
        if s.window.is_some() {
            return false;
        }
        // Nor is main memory reserved for another one while moved data is unread.
        if s.rx.moved() > 0 {
            self.stats.no_lease_for_moved += 1;
            return false;
        }
        let Some(page) = host.pool.alloc(pages) else {
            return false;
        };
        // The registration of the window.
        let h = s.host;
        if self.no_memory(h) {
            self.hosts[h].pool.free(page, pages);
            return false;
        }
        let s = &mut self.socks[sid];
        let host = &mut self.hosts[h];
        let (addr, key) = host.register(sid, page, size);
        if s.ch.grant(size, addr, key) {
            s.window = Some(Window {
                page,
                pages,
                size,
                start: page * PAGE,
                key,
                unread: VecDeque::new(),
                landed: VecDeque::new(),
            });
            return true;
        }
        if !s.ch.read_ended() && !s.shut_read && !s.closed && s.ch.state() != State::Opening {
            self.fail(&format!("sock {sid}: no grant, and no reason for that"));
        }
        if let Some(mr) = host.mr(key) {
            mr.valid = false;
        }
        host.pool.free(page, pages);
        false
    }

    pub fn answer_window(&mut self, sid: SockId) {
        if !self.socks[sid].in_table {
            return;
        }
        if self.lease(sid) {
            self.socks[sid].wish_until = 0;
        } else {
            if self.wishes(sid) {
                return;
            }
            self.socks[sid].ch.deny();
            if self.rng.chance(30) {
                // Another channel has it: the next request may succeed.
                self.revoke_one(self.socks[sid].host);
            }
        }
        self.kick(sid);
    }

    /// A channel without a window waits for one if it may. False if the grant must say that there
    /// is none.
    fn wishes(&mut self, sid: SockId) -> bool {
        let s = &mut self.socks[sid];
        let host = s.host;
        if s.wish_until == 0 {
            s.wish_until = self.now + self.cfg.wish_time;
            self.at(self.cfg.wish_time, Ev::WishOver(sid));
        }
        let s = &self.socks[sid];
        // Data in its last window may be read soon.
        let reads = s.window.is_some() && !self.rng.chance(50);
        if s.wish_until <= self.now || reads || s.rx.moved() > 0 {
            self.socks[sid].wish_until = 0;
            return false;
        }
        self.stats.wishes_wait += 1;
        self.hosts[host].wishes.push_back(sid);
        // Empty windows, whichever program reads the data that was in them.
        for s in self.socks.iter().filter(|s| s.host == host && s.in_table) {
            if s.window.is_some() && s.rx.in_window() == 0 && s.ch.revoke() {
                self.stats.windows_asked_back += 1;
            }
        }
        let all = self.socks.len();
        (0..all).for_each(|sid| self.kick(sid));
        self.watch(host);
        true
    }

    /// A window of `sid` has been returned: the first waiter looks again.
    fn serve_wish(&mut self, sid: SockId) {
        let host = &mut self.hosts[self.socks[sid].host];
        if let Some(sid) = host.wishes.pop_front() {
            self.stats.wishes_served += 1;
            self.at(0, Ev::AnswerWindow(sid));
        }
    }

    pub fn wish_over(&mut self, sid: SockId) {
        let host = &mut self.hosts[self.socks[sid].host];
        if let Some(at) = host.wishes.iter().position(|w| *w == sid) {
            host.wishes.remove(at);
            self.socks[sid].wish_until = 0;
            if self.socks[sid].in_table {
                self.socks[sid].ch.deny();
                self.kick(sid);
            }
        }
    }

    /// Leases a window without a request.
    pub fn offer_window(&mut self, sid: SockId) {
        if self.lease(sid) {
            self.stats.window_offers += 1;
        }
        self.kick(sid);
    }

    pub fn revoke_some(&mut self, host: usize) {
        if self.cfg.revoke_every != 0 && self.cfg.revocations != 0 {
            self.cfg.revocations -= 1;
            self.revoke_one(host);
            let most = 2 * self.cfg.revoke_every;
            self.within(most, Ev::Revoke(host));
        }
    }

    fn revoke_one(&mut self, host: usize) {
        let with: Vec<SockId> = (0..self.socks.len())
            .filter(|s| self.socks[*s].host == host && self.socks[*s].window.is_some())
            .collect();
        if !with.is_empty() {
            let sid = self.rng.pick(&with);
            self.socks[sid].ch.revoke();
            self.kick(sid);
        }
    }

    pub fn connect_timer(&mut self, sid: SockId) {
        if self.socks[sid].dead {
            return;
        }
        if self.socks[sid].ch.time_out() {
            self.stats.timed_out += 1;
            self.conns[self.socks[sid].conn].timed_out = true;
            self.wake_all(sid);
            self.settle(sid);
        }
    }

    /// A connect that found the backlog full is tried again.
    pub fn try_again(&mut self, sid: SockId) {
        let s = &self.socks[sid];
        if !s.dead && s.ch.try_again() {
            self.stats.tried_again += 1;
            self.kick(sid);
        }
    }

    pub fn shut_read(&mut self, sid: SockId) {
        let s = &mut self.socks[sid];
        if s.closed {
            return;
        }
        self.stats.shut_reads += 1;
        s.ch.shut_read();
        s.shut_read = true;
        self.wake_all(sid);
    }

    /// The program closes the socket, or is killed.
    pub fn close(&mut self, sid: SockId) {
        let s = &mut self.socks[sid];
        if std::mem::replace(&mut s.closed, true) {
            return;
        }
        trace!(self, "sock {sid}: close");
        let unread = !s.rx.is_empty();
        self.stats.closes_with_unread += u64::from(unread);
        s.gave_up = s.ch.state() == State::Opening;
        s.closed_at = Some(s.arrived);
        s.closed_unread = unread;
        s.ch.shut(unread);
        s.moving = None;
        self.flush(sid);
        loop {
            let s = &mut self.socks[sid];
            let Some(held) = s.rx.discard(&s.ring) else {
                break;
            };
            if let Some(Held::Block(_)) = held {
                let (link, host) = (s.link, s.host);
                self.repost(link, host);
            }
        }
        let s = &mut self.socks[sid];
        assert_eq!(s.rx.bytes(), 0);
        s.given = 0;
        s.ring = MaybeRing(None);
        if self.cfg.drop_orphans {
            self.within(20, Ev::DropOrphan(sid));
        }
        self.kick(sid);
        self.settle(sid);
        self.wake_all(sid);
    }

    /// An orphan's time is over: the module forgets it, unless the peer may still write.
    pub fn drop_orphan(&mut self, sid: SockId) {
        let s = &mut self.socks[sid];
        let link = s.link;
        if s.in_table && self.links[link].hostile.is_some() {
            // In no other way can the window's key be taken from the peer.
            self.fail_link(link);
            return;
        }
        let s = &mut self.socks[sid];
        let silent = !s.ch.has_pending_control() && s.ch.corked() == 0;
        if s.in_table && silent && s.window.is_none() {
            trace!(self, "sock {sid}: dropped");
            s.ch.abort(Failure::TimedOut);
            self.conns[s.conn].dropped = true;
            self.stats.orphans_dropped += 1;
            self.settle(sid);
        }
    }

    // ---- waking -----------------------------------------------------------------------------

    pub fn wake_reader(&mut self, sid: SockId) {
        self.wake(self.socks[sid].reader, Some(Wait::Read));
    }

    pub fn wake_writer(&mut self, sid: SockId) {
        self.wake(self.socks[sid].writer, Some(Wait::Write));
    }

    /// The socket's state has changed.
    pub fn wake_all(&mut self, sid: SockId) {
        let s = &self.socks[sid];
        for actor in [s.opener, s.reader, s.writer] {
            self.wake(actor, None);
        }
    }
}
