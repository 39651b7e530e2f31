// SPDX-License-Identifier: GPL-2.0

//! The rules that must hold when nothing can happen any more, and the picture of the world that a
//! broken one leaves.

use zrs_core::channel::Failure;

use crate::world::World;

impl World {
    pub fn check_end(&mut self) {
        for host in 0..2 {
            if self.hosts[host].table_stats().entries != 0 {
                self.fail(&format!("channels left in the table of host {host}"));
            }
            if self.hosts[host].pool.used() != 0 || self.hosts[host].valid_mrs() != 0 {
                self.fail(&format!("windows left in the pool of host {host}"));
            }
        }
        for link in 0..self.links.len() {
            self.check_link(link);
        }
        for conn in 0..self.conns.len() {
            self.check_conn(conn);
        }
        self.check_never();
    }

    fn check_link(&mut self, link: usize) {
        let l = &self.links[link];
        let quiet = l.pipe.iter().all(|p| p.is_empty())
            && l.side
                .iter()
                .all(|s| s.pending.is_empty() && s.answers.is_empty());
        if !quiet {
            self.fail(&format!("link {link} still has something to say"));
        }
        for side in 0..2 {
            let (s, peer) = (&l.side[side], &l.side[1 - side]);
            if l.hostile == Some(side) {
                continue;
            }
            // A host that died has no blocks any more.
            let whole = s.posted == i64::from(s.blocks) && s.cq.is_empty();
            if !whole && !s.died {
                self.fail(&format!("link {link}: blocks of side {side} are lost"));
            }
            if s.slots_free != s.slots {
                self.fail(&format!("link {link}: slots of side {side} are lost"));
            }
            // The peer may send as much as is posted, minus the unannounced part.
            let known = peer.flow.available(true) + 1;
            let least = s.blocks - (s.blocks / 4).max(1) + 1;
            if l.up && !(least..=s.blocks).contains(&known) {
                self.fail(&format!("link {link}: credit of side {side}: {known}"));
            }
        }
    }

    fn check_conn(&mut self, conn: usize) {
        let c = &self.conns[conn];
        for side in 0..2 {
            let Some(sid) = c.socks[side] else {
                continue;
            };
            let s = &self.socks[sid];
            if s.dead || s.conn != conn {
                continue;
            }
            let peer = c.socks[1 - side].map(|p| &self.socks[p]);
            let link = &self.links[c.link];
            let reason = match s.ch.failure() {
                None => true,
                Some(Failure::Refused(why)) => side == 0 && (c.hostile || c.refused == Some(why)),
                Some(Failure::TimedOut) => (side == 0 && c.timed_out) || c.dropped,
                Some(Failure::LinkLost) => !link.up && link.was_up,
                Some(Failure::Unreachable) => side == 0 && !link.was_up,
                Some(Failure::NoResources) => side == 0 && c.no_memory,
                // Only a peer that closed before it had it all breaks the stream.
                Some(Failure::Reset) => {
                    c.hostile
                        || c.dropped
                        || c.unaccepted
                        || c.timed_out
                        || peer.is_some_and(|p| {
                            p.gave_up
                                || p.closed_unread
                                || p.closed_at.is_some_and(|at| at < c.sent[side])
                        })
                }
                Some(_) => false,
            };
            if !reason {
                let why = s.ch.failure();
                self.fail(&format!(
                    "conn {conn} side {side}: no reason to fail: {why:?}"
                ));
            }
            if c.hostile {
                continue;
            }
            let whole = c.ended[side] && s.ch.failure().is_none();
            if whole && !s.shut_read && !s.scribbler && c.read[side] != c.given[1 - side] {
                self.fail(&format!(
                    "conn {conn} side {side}: the stream ended at {} of {}",
                    c.read[side],
                    c.given[1 - side]
                ));
            }
            if c.read[side] > c.sent[1 - side] {
                self.fail(&format!("conn {conn} side {side}: read more than was sent"));
            }
        }
    }

    /// The connections from number `first` on, one for each host, have been as connections are.
    pub fn check_whole(&self, first: usize) {
        if self.conns.len() != first + 2 {
            self.fail("afterwards a host could not connect");
        }
        for (n, c) in self.conns.iter().enumerate().skip(first) {
            for side in 0..2 {
                let Some(sid) = c.socks[side] else {
                    self.fail(&format!("afterwards conn {n} was not accepted"));
                };
                let failure = self.socks[sid].ch.failure();
                let read = c.ended[side] && c.read[side] == c.given[1 - side];
                if failure.is_some() || !read {
                    self.fail(&format!("afterwards conn {n} side {side}: {failure:?}"));
                }
            }
        }
    }

    /// Ends the run with a picture of the world.
    pub fn fail(&self, why: &str) -> ! {
        let mut text = format!("sim: seed {} at {}: {why}\n", self.seed, self.now);
        for (n, l) in self.links.iter().enumerate() {
            text += &format!(
                "link {n}: up {} delay {} hostile {:?}\n",
                l.up, l.delay, l.hostile
            );
            for (side, s) in l.side.iter().enumerate() {
                text += &format!(
                    "  side {side}: alive {} {:?} posted {}/{} slots {}/{} pending {:?} answers {} \
                     starved {:?} arrived {} on its way {}\n",
                    s.alive,
                    s.flow,
                    s.posted,
                    s.blocks,
                    s.slots_free,
                    s.slots,
                    s.pending,
                    s.answers.len(),
                    s.starved,
                    s.cq.len(),
                    l.pipe[side].len()
                );
            }
        }
        for (n, h) in self.hosts.iter().enumerate() {
            text += &format!(
                "host {n}: up {} {} channels, {}/{} pages leased\n",
                h.up,
                h.table_stats().entries,
                h.pool.used(),
                h.pool.pages()
            );
        }
        for (n, a) in self.actors.iter().enumerate() {
            if !a.finished() {
                text += &format!("actor {n}: {a:?}\n");
            }
        }
        for (n, s) in self.socks.iter().enumerate().filter(|(_, s)| s.in_table) {
            text += &format!(
                "sock {n}: host {} conn {} link {} closed {} queued {} starved {} waits {} \
                 segments\n  {:?}\n",
                s.host,
                s.conn,
                s.link,
                s.closed,
                s.queued,
                s.starved,
                s.rx.len(),
                s.ch
            );
        }
        eprint!("{text}");
        panic!("seed {} at {}: {why}", self.seed, self.now);
    }
}
