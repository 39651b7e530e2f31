// SPDX-License-Identifier: GPL-2.0

//! What goes wrong: links that fail, hosts that die.

use crate::host::{Host, HOSTS};
use crate::link::Link;
use crate::requester::Retry;
use crate::world::{trace, World};

impl World {
    pub fn trouble(&mut self) {
        if self.stats.links_failed < self.cfg.link_failures
            && !self.links.is_empty()
            && self.rng.chance(60)
        {
            let link = self.rng.below(self.links.len() as u64) as usize;
            if !self.links[link].broken {
                trace!(self, "link {link} fails");
                self.stats.links_failed += 1;
                self.links[link].broken = true;
            }
        }
        if self.stats.crashes < self.cfg.crashes && self.rng.chance(20) {
            let host = self.honest();
            self.crash(host);
        }
    }

    /// An end of a link is down; the other end will learn of it.
    pub fn end_down(&mut self, link: usize, end: usize) {
        if !std::mem::replace(&mut self.links[link].up[end], false) {
            return;
        }
        trace!(self, "link {link}: end {end} is down");
        self.links[link].broken = true;
        if end == 0 {
            self.requester_end_down(link);
        } else {
            self.node_end_down(link);
        }
    }

    fn crash(&mut self, host: usize) {
        if !self.hosts[host].up {
            return;
        }
        trace!(self, "host {host} dies");
        self.stats.crashes += 1;
        let died = self.hosts[host].incarnation;
        self.oracle
            .regions
            .retain(|r, _| (r.0, r.1) != (host, died));
        for n in 0..self.links.len() {
            let fresh = Link::new(&self.cfg, self.links[n].requester, self.links[n].node);
            let l = &mut self.links[n];
            if l.node == host {
                l.broken = true;
                l.up[1] = false;
                l.to_node.clear();
                l.dma.clear();
                l.stalled = None;
                l.mrs.clear();
                l.registering.clear();
                l.invalidating.clear();
                l.invalid.clear();
                l.deregistering.clear();
                l.grants = fresh.grants;
                l.server = fresh.server;
            } else if l.requester == host {
                l.broken = true;
                l.up[0] = false;
                l.to_requester.clear();
                l.waiting.clear();
                l.asks = fresh.asks;
                l.cache = fresh.cache;
                self.tags.retain(|_, t| t.link != n);
            }
        }
        let links = &self.links;
        let of_host = |r: &Retry| match r {
            Retry::Open { link, .. } | Retry::Close { link, .. } => links[*link].requester == host,
            Retry::Mark { host: h, .. } | Retry::Cancel { host: h, .. } => *h == host,
            Retry::PutMark { op } => self.ops.get(op).is_none_or(|o| o.host == host),
        };
        self.retries.retain(|r| !of_host(r));
        self.failed_jobs.retain(|f| f.0 != host);
        for (name, _) in self.ops.iter().filter(|o| o.1.host == host) {
            self.names.remove(name);
        }
        self.ops.retain(|_, o| o.host != host);
        self.hosts[host] = Host::new(&self.cfg, &mut self.rng);
        self.hosts[host].up = false;
    }

    pub fn boot(&mut self, host: usize) {
        if host < HOSTS && !std::mem::replace(&mut self.hosts[host].up, true) {
            trace!(self, "host {host} boots");
        }
    }
}
