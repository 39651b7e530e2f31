// SPDX-License-Identifier: GPL-2.0

//! Faults of hosts and links: death and return, standstill, shortage of memory, a slow network.

use crate::world::{trace, Ev, World};

impl World {
    /// Draws when things will go wrong.
    pub fn plan_troubles(&mut self) {
        for host in 0..2 {
            self.at(self.cfg.revoke_every, Ev::Revoke(host));
            let most = 50 * (self.cfg.residency + self.cfg.think + 1);
            self.within(most, Ev::SwitchPolicy(host));
        }
        let scale = self.cfg.net_delay + self.cfg.think + 10;
        if self.cfg.link_failure {
            let link = self.rng.below(self.cfg.links as u64) as usize;
            self.within(20 * scale, Ev::LinkFails(link));
        }
        for _ in 0..self.cfg.crashes {
            let host = self.rng.below(2) as usize;
            let scale = self.rng.pick(&[scale, 10 * scale]);
            self.within(20 * scale, Ev::Crash(host));
        }
        for _ in 0..self.cfg.pauses {
            let host = self.rng.below(2) as usize;
            self.within(100 * scale, Ev::Pause(host));
        }
        for _ in 0..self.cfg.shortages {
            let host = self.rng.below(2) as usize;
            self.within(50 * scale, Ev::Shortage(host, true));
        }
        for _ in 0..self.cfg.stalls {
            let link = self.rng.below(self.links.len() as u64) as usize;
            self.within(100 * scale, Ev::Stall(link));
        }
    }

    fn long(&mut self) -> u64 {
        let scale = self.cfg.net_delay + self.cfg.think + 10;
        let most = self.rng.pick(&[scale, 30 * scale]);
        self.rng.range(1, most)
    }

    /// A host dies: all that it knew is gone, and its device with its memory.
    pub fn crash(&mut self, host: usize) {
        if !self.hosts[host].up || !self.busy() {
            return;
        }
        trace!(self, "host {host}: dies");
        self.stats.crashes += 1;
        self.count_table(host);
        self.hosts[host] = self.fresh_host(host);
        self.hosts[host].up = false;
        for s in self.socks.iter_mut().filter(|s| s.host == host) {
            self.stats.socks_died += u64::from(s.in_table);
            s.die();
        }
        for a in self.actors.iter_mut().filter(|a| a.host == host) {
            a.die();
        }
        for link in 0..self.links.len() {
            if self.links[link].hostile != Some(host) {
                self.forget_side(link, host);
                let side = &mut self.links[link].side[host];
                side.died = true;
                side.cq.clear();
                self.fail_link(link);
            }
        }
        let delay = self.long();
        self.at(delay, Ev::Boot(host));
    }

    /// A host comes back and knows nothing of its former life.
    pub fn boot(&mut self, host: usize) {
        if std::mem::replace(&mut self.hosts[host].up, true) {
            return;
        }
        trace!(self, "host {host}: boots");
        self.start_listeners(host);
        for _ in 0..self.rng.below(3) {
            self.start_client(host);
        }
    }

    /// A host's processors stand still: its workers, programs and timers.
    pub fn pause(&mut self, host: usize) {
        if self.busy() {
            let until = self.now + self.long();
            trace!(self, "host {host}: stands still until {until}");
            self.stats.pauses += 1;
            self.hosts[host].paused_until = until;
        }
    }

    /// Allocations of a host may fail, for a while.
    pub fn shortage(&mut self, host: usize, short: bool) {
        if !short {
            self.hosts[host].short = false;
        } else if self.busy() && self.hosts[host].up {
            self.stats.shortages += 1;
            self.hosts[host].short = true;
            let delay = self.long();
            self.at(delay, Ev::Shortage(host, false));
        }
    }

    /// Whether an allocation fails just now.
    pub fn no_memory(&mut self, host: usize) -> bool {
        let fails = self.hosts[host].short && self.rng.chance(40);
        self.stats.allocations_failed += u64::from(fails);
        fails
    }

    /// Nothing arrives on a link for a while.
    pub fn stall(&mut self, link: usize) {
        if self.busy() {
            self.stats.stalls += 1;
            let until = self.now + self.long();
            for last in &mut self.links[link].last_arrival {
                *last = until.max(*last);
            }
        }
    }
}
