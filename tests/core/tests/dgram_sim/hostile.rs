// SPDX-License-Identifier: GPL-2.0

//! A hostile host: its kernel sends what it likes, within its link credit and beyond.

use zrs_core::dgram::wire::{fragments, Body, DgramHeader, PortState, Ports};

use crate::client::LinkState;
use crate::world::{Packet, World, FIRST_PORT};
use common::Rng;

fn ports(rng: &mut Rng, known: u16) -> Ports {
    let any = rng.chance(30);
    Ports {
        dst: if any {
            rng.next_u64() as u16
        } else {
            rng.below(known.into()) as u16
        },
        src: FIRST_PORT + rng.below(3) as u16,
    }
}

impl World {
    /// Client 0 is the hostile one, if there is one.
    pub fn is_hostile(&self, c: usize) -> bool {
        self.cfg.hostile && c == 0
    }

    /// The hostile host sends something.
    pub fn hostile_sends(&mut self) {
        let client = &mut self.clients[0];
        if matches!(client.link, LinkState::Down) {
            client.link = LinkState::Making;
        }
        let LinkState::Up(up) = &mut client.link else {
            return;
        };
        // Mostly it keeps to its credit: else nothing but that would be seen.
        if up.flow.left_to_us() < 20 && !self.rng.chance(2) {
            return;
        }
        let rng = &mut self.rng;
        let ports = ports(rng, self.cfg.ports);
        let total = rng.pick(&[0, 1, 4096, 5000, 65_527]);
        let mut all: Vec<_> = fragments(ports, rng.next_u64() as u32, total).collect();
        let mut credit = || up.flow.sending();
        let mut out: Vec<Packet> = Vec::new();
        let mut push = |header: [u8; 96], len: usize| {
            out.push(Packet {
                header,
                payload: vec![1; len],
                tag: None,
            });
        };
        match rng.below(8) {
            // A flood of good ones, for any ports.
            0..=2 => self.stats.hostile_valid += 1,
            // It ends in the middle.
            3 if all.len() > 1 => {
                let kept = rng.range(1, all.len() as u64 - 1) as usize;
                all.truncate(kept);
                self.stats.hostile_in_part += 1;
            }
            // A fragment twice, left out, or exchanged.
            4 => {
                let at = rng.below(all.len() as u64) as usize;
                match rng.below(3) {
                    0 => all.insert(at, all[at]),
                    1 => {
                        all.remove(at);
                    }
                    _ => all.swap(0, at),
                }
                self.stats.hostile_fragments += 1;
            }
            // A field that is not as it was.
            5 => {
                let at = rng.below(all.len() as u64) as usize;
                let f = &mut all[at];
                match rng.below(4) {
                    0 => f.id ^= 1,
                    1 => f.total = rng.next_u64() as u32,
                    2 => f.offset = rng.next_u64() as u32,
                    _ => f.ports.dst ^= 1,
                }
                self.stats.hostile_fragments += 1;
            }
            6 => {
                let body = match rng.below(3) {
                    0 => Body::Port(ports, PortState::Closed),
                    _ => Body::Probe(ports),
                };
                let link_credit = credit();
                push(DgramHeader { link_credit, body }.encode(), 0);
                all.clear();
            }
            // Any bytes.
            _ => {
                let link_credit = credit();
                let body = Body::Datagram(all[0]);
                let mut header = DgramHeader { link_credit, body }.encode();
                let len = all[0].len() as usize;
                header[rng.below(96) as usize] = rng.next_u64() as u8;
                push(header, len);
                all.clear();
            }
        }
        for f in all {
            let link_credit = credit();
            let body = Body::Datagram(f);
            push(DgramHeader { link_credit, body }.encode(), f.len() as usize);
        }
        client.to_server.extend(out);
    }
}
