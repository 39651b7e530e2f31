// SPDX-License-Identifier: GPL-2.0

//! Both ends of grants, joined by two queues: remote keys are used only between OPEN's answer and what the node has been
//! told is the end.

use std::collections::VecDeque;

use zrs_core::mem::grant_cache::{Found, GrantCache, Leave, Lent, KEPT_MS};
use zrs_core::mem::grants::{Grant, Grants, Registered};
use zrs_core::mem::id::{Key, NodeId};
use zrs_core::mem::node::Hold;
use zrs_core::mem::rights::Rights;
use zrs_core::mem::slab::Slot;
use zrs_core::mem::status::Status;
use zrs_core::Violation;

use crate::setup::{node, request, scope, slots, whole, Sizes, TestNode};
use common::Rng;

type NodeGrants = Grants<Vec<Slot<Grant>>>;
type Cache = GrantCache<Vec<Slot<Lent>>>;

const NODE: NodeId = NodeId { domain: 1, node: 2 };

fn hold(n: &mut TestNode, key: Key, rights: Rights) -> Hold {
    n.begin_grant(key, rights, 0).unwrap().0
}

// rows: M3 M4
#[test]
fn what_a_written_must_be() {
    let mut n = node(&Sizes::default());
    let key = n.alloc(&request(1000, 1)).unwrap();
    let mut g: NodeGrants = Grants::new(slots(4));
    let reach = zrs_core::mem::rights::Range { off: 100, len: 50 };
    let number = g.begin(hold(&mut n, key, Rights::WRITE), reach, 3).unwrap();
    let check = |g: &NodeGrants, addr, len| g.check_written(number, addr, len).map(|_| ());
    assert_eq!(check(&g, 100, 50), Err(Status::Stale), "not registered");
    assert_eq!(
        g.closed(number, 0),
        Err(Violation::State),
        "not known to the peer"
    );
    assert_eq!(g.registered(number, 40), Some(Registered::Answer(3)));
    assert_eq!(g.registered(number, 40), None);
    assert_eq!(check(&g, 100, 50), Ok(()));
    for (addr, len) in [(99, 2), (149, 2), (u64::MAX, 2)] {
        assert_eq!(check(&g, addr, len), Err(Status::Range));
    }
    assert_eq!(
        g.check_written(number + 1, 100, 1).err(),
        Some(Status::Stale)
    );
    assert_eq!(g.revoked(number, 0), Err(Violation::State), "not asked for");
    assert_eq!(g.revoke_one(7, |_| false), None);
    assert_eq!(g.revoke_one(7, |_| true), Some(number));
    assert_eq!(g.revoke_one(8, |_| true), None, "once");
    assert_eq!(check(&g, 100, 50), Err(Status::Stale));
    assert_eq!(g.overdue_ms(2000), Some(2007));
    assert!(g.gone(number).is_none(), "the peer may still write");
    assert!(!g.invalidated(number, 8), "it has not said Revoked");
    assert_eq!(g.revoked(number, 8), Ok(()));
    // The invalidation comes behind messages that the peer must take.
    assert_eq!(
        (g.revoked(number, 9), g.overdue_ms(2000)),
        (Err(Violation::State), Some(2008))
    );
    assert_eq!(g.closed(number, 9), Err(Violation::State));
    // A message that arrives before the remote keys are invalid proves nothing.
    assert_eq!(g.heard_one(), None);
    assert!(g.invalidated(number, 9) && !g.invalidated(number, 10));
    assert_eq!(g.overdue_ms(2000), Some(2009));
    assert!(
        g.gone(number).is_none(),
        "the peer may be in the middle of a WRITE"
    );
    assert_eq!((g.heard_one(), g.heard_one()), (Some(number), None));
    assert_eq!(g.overdue_ms(2000), None);
    n.end(g.gone(number).unwrap());
    assert!(g.gone(number).is_none() && g.is_empty());
    // So does the registration of a grant that is revoked meanwhile.
    let number = g.begin(hold(&mut n, key, Rights::READ), reach, 3).unwrap();
    assert_eq!(g.revoke_one(20, |_| true), None);
    assert_eq!(g.revoke_one(30, |_| true), None);
    assert_eq!(g.overdue_ms(2000), Some(2020));
    assert_eq!(g.registered(number, 40), Some(Registered::Stale(3)));
    assert_eq!(g.overdue_ms(2000), Some(2040));
    assert_eq!(g.link_down_one(), Some(number));
    n.end(g.gone(number).unwrap());
    // A reader's grant lets nothing be written.
    let number = g.begin(hold(&mut n, key, Rights::READ), reach, 3).unwrap();
    g.registered(number, 40).unwrap();
    assert_eq!(g.check_written(number, 100, 1).err(), Some(Status::Denied));
}

// rows: M4
#[test]
fn grants_have_a_limit() {
    let mut n = node(&Sizes::default());
    let key = n.alloc(&request(1000, 1)).unwrap();
    let mut g: NodeGrants = Grants::new(slots(2));
    for _ in 0..2 {
        g.begin(hold(&mut n, key, Rights::READ), whole(1000), 0)
            .unwrap();
    }
    let more = hold(&mut n, key, Rights::READ);
    let (back, why) = g.begin(more, whole(1000), 0).unwrap_err();
    assert_eq!(why, Status::NoSpace);
    n.end(back);
    assert_eq!(n.info(key, 0).unwrap().holds, 2);
}

enum ToNode {
    Open { at: u32, once: bool },
    Revoked(u32),
    Close(u32),
    Write(u32),
    Beat,
}

enum ToPeer {
    Answer { at: u32, number: u32, once: bool },
    Refused(u32),
    Revoke(u32),
    Beat,
}

struct Pair {
    node: TestNode,
    key: Key,
    grants: NodeGrants,
    cache: Cache,
    up: VecDeque<ToNode>,
    down: VecDeque<ToPeer>,
    /// Places with work requests that have not completed.
    in_flight: Vec<(u32, u32)>,
    registering: Vec<(u32, u32, bool)>,
    invalidating: Vec<u32>,
    deregistering: Vec<u32>,
    /// Grants that the peer has given back.
    ended: Vec<u32>,
    writes: u32,
}

impl Pair {
    fn leave(&mut self, leave: Option<Leave>) {
        match leave {
            Some(Leave::Revoked(number)) => self.up.push_back(ToNode::Revoked(number)),
            Some(Leave::Close(number)) => self.up.push_back(ToNode::Close(number)),
            None => {}
        }
    }

    fn use_it(&mut self, at: u32, number: u32, now: u64) {
        assert!(!self.cache.begin(at, number + 1, now), "another grant");
        if self.cache.begin(at, number, now) {
            self.in_flight.push((at, number));
            self.up.push_back(ToNode::Write(number));
        }
    }

    fn node_hears(&mut self) {
        let heard = self.up.pop_front();
        if heard
            .as_ref()
            .is_some_and(|m| !matches!(m, ToNode::Write(_)))
        {
            self.deregistering
                .extend(std::iter::from_fn(|| self.grants.heard_one()));
        }
        match heard {
            None | Some(ToNode::Beat) => {}
            Some(ToNode::Open { at, once }) => {
                match self.node.begin_grant(self.key, Rights::WRITE, 0) {
                    Ok((hold, _)) => {
                        match self.grants.begin(hold, whole(9), at) {
                            Ok(number) => self.registering.push((number, at, once)),
                            // Others are still being ended.
                            Err((hold, _)) => {
                                self.node.end(hold);
                                self.down.push_back(ToPeer::Refused(at));
                            }
                        }
                    }
                    Err(_) => self.down.push_back(ToPeer::Refused(at)),
                }
            }
            Some(ToNode::Revoked(number)) => {
                self.grants.revoked(number, 0).expect("only after a Revoke");
                self.ended.push(number);
                self.invalidating.push(number);
            }
            Some(ToNode::Close(number)) => {
                self.grants.closed(number, 0).expect("only an open one");
                self.ended.push(number);
                self.invalidating.push(number);
            }
            // The device: the remote key must be valid, whatever the state.
            Some(ToNode::Write(number)) => {
                self.writes += 1;
                let valid = self.grants.check_written(number, 0, 1).is_ok();
                let revoked = self.grants.overdue_ms(0).is_some();
                let ended = self.ended.contains(&number);
                assert!(
                    (valid || revoked) && !ended,
                    "the remote key is not valid any more"
                );
            }
        }
    }

    fn registered(&mut self) {
        let Some((number, at, once)) = self.registering.pop() else {
            return;
        };
        match self.grants.registered(number, 0) {
            Some(Registered::Answer(ask)) => {
                assert_eq!(ask, at);
                self.down.push_back(ToPeer::Answer { at, number, once });
            }
            Some(Registered::Stale(ask)) => {
                self.down.push_back(ToPeer::Refused(ask));
                assert!(
                    self.grants.gone(number).is_none(),
                    "the peer may have guessed the remote key"
                );
                self.invalidating.push(number);
            }
            None => panic!("registered twice"),
        }
    }

    fn peer_hears(&mut self, now: u64) {
        match self.down.pop_front() {
            None => {}
            Some(ToPeer::Answer { at, number, once }) => {
                self.cache.opened(at, number, once).unwrap();
                self.use_it(at, number, now);
            }
            Some(ToPeer::Refused(at)) => self.cache.forget(at),
            Some(ToPeer::Revoke(number)) => {
                let leave = self.cache.revoke(number);
                self.leave(leave);
            }
            Some(ToPeer::Beat) => self.up.push_back(ToNode::Beat),
        }
    }

    fn step(&mut self, rng: &mut Rng, now: u64) {
        match rng.below(12) {
            0 | 1 => match self.cache.find(NODE, self.key, Rights::WRITE) {
                Found::Open { at, number } => self.use_it(at, number, now),
                Found::Opening(_) => {}
                Found::None => {
                    if let Some(at) = self.cache.begin_open(NODE, self.key, Rights::WRITE, now) {
                        let once = rng.chance(20);
                        self.up.push_back(ToNode::Open { at, once });
                    }
                }
            },
            2 | 3 if !self.in_flight.is_empty() => {
                let n = rng.below(self.in_flight.len() as u64) as usize;
                let (at, number) = self.in_flight.swap_remove(n);
                let leave = self.cache.end(at);
                self.leave(leave);
                let last = !self.in_flight.contains(&(at, number));
                if last && leave.is_none() {
                    let leave = self.cache.finish(at, number);
                    self.leave(leave);
                }
            }
            4 => {
                let leave = self.cache.leave_idle(now, 5);
                self.leave(leave);
            }
            5 => {
                while let Some(number) = self.grants.revoke_one(now, |_| true) {
                    self.down.push_back(ToPeer::Revoke(number));
                }
            }
            6 => self.registered(),
            7 => {
                if let Some(number) = self.deregistering.pop() {
                    self.node
                        .end(self.grants.gone(number).expect("deregistered"));
                }
            }
            8 => {
                if let Some(number) = self.invalidating.pop() {
                    assert!(self.grants.invalidated(number, now));
                    self.down.push_back(ToPeer::Beat);
                }
            }
            9 | 10 => self.node_hears(),
            _ => self.peer_hears(now),
        }
    }
}

// rows: M3 M5
#[test]
fn remote_keys_are_used_while_they_are_valid() {
    let mut writes = 0;
    for seed in 0..u64::from(common::cases(3000)) {
        let mut rng = Rng::new(seed);
        let mut n = node(&Sizes::default());
        let root = n.alloc(&request(9, 1)).unwrap();
        let key = n
            .derive(root, &scope(Rights::DATA, whole(9)), 2, 0)
            .unwrap();
        let mut p = Pair {
            node: n,
            key,
            grants: Grants::new(slots(8)),
            cache: GrantCache::new(slots(4)),
            up: VecDeque::new(),
            down: VecDeque::new(),
            in_flight: Vec::new(),
            registering: Vec::new(),
            invalidating: Vec::new(),
            deregistering: Vec::new(),
            ended: Vec::new(),
            writes: 0,
        };
        for now in 0..300 {
            p.step(&mut rng, now);
        }
        // Free: all come back in the end.
        p.node.free(root, 5, 0).unwrap();
        for now in 300.. {
            assert!(now < 20_000, "seed {seed}: it is never quiet");
            while let Some(number) = p.grants.revoke_one(now, |h| p.node.must_stop(h, 0)) {
                p.down.push_back(ToPeer::Revoke(number));
            }
            p.step(&mut rng, now);
            if p.node.next_quiet() == Some((5, Status::Ok)) {
                break;
            }
        }
        assert!(p.grants.is_empty() && p.up.iter().all(|m| !matches!(m, ToNode::Write(_))));
        writes += p.writes;
    }
    assert!(writes > 1000 || cfg!(miri));
}

#[test]
fn small_reads_leave_half_of_the_grants_to_others() {
    let mut cache = GrantCache::new(slots(4));
    let key = Key {
        region: 1,
        gen: 1,
        secret: 1,
    };
    for full in [false, false, true, true] {
        assert_eq!(cache.is_half_full(), full);
        cache.begin_open(NODE, key, Rights::READ, 0).unwrap();
    }
    assert!(cache.is_half_full());
}

// rows: M5
#[test]
fn a_lost_link_ends_all_grants() {
    let mut n = node(&Sizes::default());
    let key = n.alloc(&request(9, 1)).unwrap();
    let mut g: NodeGrants = Grants::new(slots(8));
    let numbers: Vec<_> = (0..4)
        .map(|ask| {
            g.begin(hold(&mut n, key, Rights::WRITE), whole(9), ask)
                .unwrap()
        })
        .collect();
    g.registered(numbers[0], 0).unwrap();
    g.registered(numbers[1], 0).unwrap();
    let revoked = g.revoke_one(0, |_| true).unwrap();
    g.revoked(revoked, 0).unwrap();
    assert!(g.invalidated(revoked, 0));
    let mut ended: Vec<_> = std::iter::from_fn(|| g.link_down_one()).collect();
    ended.sort_unstable();
    assert_eq!(ended, numbers[..2]);
    for number in ended {
        n.end(g.gone(number).unwrap());
    }
    // Registrations under way end as they end.
    assert_eq!(g.registered(numbers[2], 0), Some(Registered::Stale(2)));
    assert!(g.gone(numbers[2]).is_none(), "its remote key is valid");
    assert_eq!(g.link_down_one(), Some(numbers[2]));
    n.end(g.gone(numbers[2]).unwrap());
    n.end(g.gone(numbers[3]).unwrap());
    assert_eq!((g.len(), n.info(key, 0).unwrap().holds), (0, 0));
}

// rows: M4 M5
#[test]
fn a_grant_whose_extents_are_not_kept_is_given_back() {
    let key = Key {
        region: 1,
        gen: 1,
        secret: 1,
    };
    let mut cache: Cache = GrantCache::new(slots(1));
    for once in [false, true] {
        let at = cache.begin_open(NODE, key, Rights::WRITE, 0).unwrap();
        cache.opened(at, 7, once).unwrap();
        assert_eq!(cache.give_back(at), Some(Leave::Close(7)));
        assert_eq!(cache.give_back(at), None);
        assert_eq!(cache.find(NODE, key, Rights::WRITE), Found::None);
        assert!(cache.is_empty() && cache.revoke(7).is_none());
    }
}

// rows: M3 M5
#[test]
fn a_grant_that_an_operation_was_told_of_is_kept_for_it() {
    let key = Key {
        region: 1,
        gen: 1,
        secret: 1,
    };
    let mut cache: Cache = GrantCache::new(slots(2));
    for number in 1..3 {
        let of = Key {
            region: number,
            ..key
        };
        let at = cache.begin_open(NODE, of, Rights::READ, 0).unwrap();
        cache.opened(at, number, false).unwrap();
        cache.tell(at, number, u64::from(number));
    }
    assert_eq!(cache.begin_open(NODE, key, Rights::WRITE, 5), None);
    assert_eq!(cache.leave_idle(5, 0), None, "both are going to be used");
    assert_eq!(cache.finish(1, 1), None, "another grant");
    assert_eq!(cache.leave_idle(5, 0), None);
    assert_eq!(cache.finish(1, 2), None);
    assert_eq!(
        cache.leave_idle(5, 0),
        Some(Leave::Close(2)),
        "that one is over"
    );
    assert!(cache.begin(0, 1, 5), "and the other one was kept");
    assert_eq!(
        cache.leave_idle(5 + KEPT_MS, 0),
        None,
        "something is in flight"
    );
    assert_eq!(cache.end(0), None);
    assert_eq!(cache.leave_idle(4 + KEPT_MS, 0), None);
    let left = cache.leave_idle(5 + KEPT_MS, 0);
    assert_eq!(left, Some(Leave::Close(1)), "its program does not go on");
    assert_eq!(cache.finish(0, 1), None);
    // For one operation: it goes with that.
    let at = cache.begin_open(NODE, key, Rights::WRITE, 6).unwrap();
    cache.opened(at, 9, true).unwrap();
    cache.tell(at, 9, 6);
    assert_eq!(cache.finish(at, 9), Some(Leave::Close(9)));
}
