// SPDX-License-Identifier: GPL-2.0

//! The rules of ports against TCP's, socket by socket.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops;
use std::rc::Rc;

use proptest::prelude::*;
use zrs_core::addr::{Addr, Bound, Ip};
use zrs_core::ports::{
    hash, Binding, Group, Map, NoMemory, PortSpace, Refused, Search, Sharing, Tuple, Users,
};

/// A map with memory for `room` entries, which counts its searches.
struct Sorted<K, V> {
    map: BTreeMap<K, V>,
    room: Rc<Cell<usize>>,
    searches: Rc<Cell<usize>>,
}

impl<K: Ord + Copy, V: Copy> Map<K, V> for Sorted<K, V> {
    fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.map.get_mut(key)
    }

    fn first(&self, from: ops::Bound<&K>) -> Option<(K, V)> {
        self.searches.set(self.searches.get() + 1);
        let mut from = self.map.range((from, ops::Bound::Unbounded));
        from.next().map(|(k, v)| (*k, *v))
    }

    fn insert(&mut self, key: K, value: V) -> Result<(), NoMemory> {
        self.room
            .set(self.room.get().checked_sub(1).ok_or(NoMemory)?);
        assert!(self.map.insert(key, value).is_none(), "was there already");
        Ok(())
    }

    fn remove(&mut self, key: &K) {
        self.map.remove(key);
    }
}

type Space = PortSpace<Sorted<Group, Users>, Sorted<Tuple, ()>>;

fn space(room: usize) -> (Space, Rc<Cell<usize>>) {
    let (space, room, _) = counted(room);
    (space, room)
}

/// A space, its memory and how many searches it took.
fn counted(room: usize) -> (Space, Rc<Cell<usize>>, Rc<Cell<usize>>) {
    let (room, searches) = (Rc::new(Cell::new(room)), Rc::new(Cell::new(0)));
    let groups = Sorted {
        map: BTreeMap::new(),
        room: room.clone(),
        searches: searches.clone(),
    };
    let tuples = Sorted {
        map: BTreeMap::new(),
        room: room.clone(),
        searches: searches.clone(),
    };
    (PortSpace::new(groups, tuples), room, searches)
}

/// All of IPv6 and IPv4, all of IPv6 alone, and some of it, the last two the same on two
/// interfaces.
const ALL: u8 = 250;
const ALL_V6: u8 = 251;
const V6: [u8; 2] = [252, 253];
const LOCAL: [u8; 2] = [254, 255];

/// One of these; 0: all of IPv4; else one of IPv4.
fn at(kind: u8) -> Bound {
    let ip = match kind {
        0 => Ip::ANY_V4,
        ALL | ALL_V6 => Ip::ANY,
        254.. => Ip::new("fe80::1".parse().unwrap(), kind.into()),
        252.. => Ip::new(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, kind.into()), 7),
        kind => Ipv4Addr::new(10, 0, 0, kind).into(),
    };
    Bound::new(ip, kind == ALL_V6)
}

fn addr(kind: u8, port: u16) -> Addr {
    Addr::new(at(kind).ip(), port)
}

const NOT: Sharing = Sharing {
    reuse_addr: false,
    reuse_port: None,
};
const ADDR: Sharing = Sharing {
    reuse_addr: true,
    reuse_port: None,
};

fn by_port(user: u32) -> Sharing {
    Sharing {
        reuse_addr: false,
        reuse_port: Some(user),
    }
}

// rows: Z1 B6
#[test]
fn addresses_overlap() {
    let (mut s, _) = space(100);
    let one = s.bind(1, at(1), 80, NOT).unwrap();
    assert_eq!(s.bind(1, at(1), 80, NOT), Err(Refused::InUse));
    assert_eq!(s.bind(1, at(0), 80, NOT), Err(Refused::InUse));
    s.bind(1, at(2), 80, NOT).unwrap();
    s.bind(1, at(0), 81, NOT).unwrap();
    assert_eq!(s.bind(1, at(3), 81, NOT), Err(Refused::InUse));
    s.bind(2, at(0), 80, NOT).unwrap();
    s.unbind(one);
    s.bind(1, at(1), 80, NOT).unwrap();
}

// rows: B6
#[test]
fn families_overlap() {
    let (mut s, _) = space(100);
    let all = s.bind(1, at(ALL), 80, NOT).unwrap();
    for kind in [0, 1, ALL, ALL_V6, V6[0], LOCAL[0]] {
        assert_eq!(s.bind(1, at(kind), 80, NOT), Err(Refused::InUse), "{kind}");
    }
    s.unbind(all);
    let v6 = s.bind(1, at(ALL_V6), 80, NOT).unwrap();
    for kind in [ALL, ALL_V6, V6[0], LOCAL[0]] {
        assert_eq!(s.bind(1, at(kind), 80, NOT), Err(Refused::InUse), "{kind}");
    }
    let v4 = s.bind(1, at(0), 80, NOT).unwrap();
    assert_eq!(s.bind(1, at(1), 80, NOT), Err(Refused::InUse));
    s.unbind(v6);
    s.bind(1, at(V6[0]), 80, NOT).unwrap();
    s.bind(1, at(LOCAL[0]), 80, NOT).unwrap();
    s.bind(1, at(LOCAL[1]), 80, NOT).unwrap();
    for kind in [1, ALL, ALL_V6, V6[0], LOCAL[0], LOCAL[1]] {
        assert_eq!(s.bind(1, at(kind), 80, NOT), Err(Refused::InUse), "{kind}");
    }
    s.unbind(v4);
    s.bind(1, at(1), 80, NOT).unwrap();
    s.bind(1, at(2), 80, NOT).unwrap();
    assert_eq!(s.bind(1, at(0), 80, NOT), Err(Refused::InUse));
}

// rows: B6
#[test]
fn a_chosen_port_is_of_one_family() {
    let (mut s, _) = space(100);
    let v6 = s.connect_from(1, 40000, NOT, addr(V6[0], 80)).unwrap();
    assert_eq!(v6.addr().ip, Ip::ANY);
    s.bind(1, at(0), 40000, NOT).unwrap();
    assert_eq!(s.bind(1, at(V6[1]), 40000, NOT), Err(Refused::InUse));
    let v4 = s.connect_from(1, 40001, NOT, addr(1, 80)).unwrap();
    assert_eq!(v4.addr().ip, Ip::ANY_V4);
    s.bind(1, at(ALL_V6), 40001, NOT).unwrap();
    assert_eq!(s.bind(1, at(2), 40001, NOT), Err(Refused::InUse));
}

// rows: Z1
#[test]
fn address_is_reused_until_somebody_listens() {
    let (mut s, _) = space(100);
    let mut a = s.bind(1, at(1), 80, ADDR).unwrap();
    let mut b = s.bind(1, at(0), 80, ADDR).unwrap();
    assert_eq!(s.bind(1, at(1), 80, NOT), Err(Refused::InUse));
    s.listen(&mut a, ADDR).unwrap();
    assert_eq!(s.listen(&mut b, ADDR), Err(Refused::InUse));
    assert_eq!(s.bind(1, at(1), 80, ADDR), Err(Refused::InUse));
    s.unlisten(&mut a);
    s.listen(&mut b, ADDR).unwrap();
    assert_eq!(s.listen(&mut a, ADDR), Err(Refused::InUse));
    // The options count as they are at listen().
    s.unlisten(&mut b);
    assert_eq!(s.listen(&mut a, NOT), Err(Refused::InUse));
    s.unbind(b);
    s.listen(&mut a, NOT).unwrap();
    s.unlisten(&mut a);
    assert_eq!(s.bind(1, at(1), 80, ADDR), Err(Refused::InUse));
}

// rows: Z1
#[test]
fn port_is_reused_by_its_user() {
    let (mut s, _) = space(100);
    let mut a = s.bind(1, at(1), 80, by_port(7)).unwrap();
    let mut b = s.bind(1, at(1), 80, by_port(7)).unwrap();
    s.listen(&mut a, by_port(7)).unwrap();
    s.listen(&mut b, by_port(7)).unwrap();
    let c = s.bind(1, at(0), 80, by_port(7)).unwrap();
    for other in [NOT, ADDR, by_port(8)] {
        assert_eq!(s.bind(1, at(1), 80, other), Err(Refused::InUse));
    }
    assert_eq!(s.bind_free(1, at(1), 80, by_port(7)), Err(Refused::InUse));
    for b in [a, b, c] {
        s.unbind(b);
    }
    s.bind_free(1, at(1), 80, by_port(7)).unwrap();
}

// rows: Z1 B5
#[test]
fn a_port_serves_many_destinations() {
    let (mut s, _) = space(1000);
    let many: Vec<_> = (1..=200)
        .map(|r| s.connect_from(1, 40000, NOT, addr(r, 80)).unwrap())
        .collect();
    let again = s.connect_from(1, 40000, NOT, addr(7, 80));
    assert_eq!(again, Err(Refused::Connected));
    s.connect_from(1, 40000, NOT, addr(7, 81)).unwrap();
    s.connect_from(2, 40000, NOT, addr(7, 80)).unwrap();
    // No socket binds it now, and no bound port is chosen.
    assert_eq!(s.bind(1, at(1), 40000, NOT), Err(Refused::InUse));
    assert_eq!(s.bind_free(1, at(1), 40000, NOT), Err(Refused::InUse));
    s.bind(1, at(1), 40001, ADDR).unwrap();
    let theirs = s.connect_from(1, 40001, ADDR, addr(7, 80));
    assert_eq!(theirs, Err(Refused::InUse));
    for b in many {
        assert!(b.chosen());
        s.unbind(b);
    }
    s.connect_from(1, 40000, NOT, addr(9, 80)).unwrap();
}

/// Sockets that are bound to an address, and have left the port to connect().
// rows: Z1 B6
#[test]
fn a_port_of_an_address_serves_many_destinations() {
    let (mut s, _) = space(1000);
    let from = |s: &mut Space, own, to| s.connect_at(1, at(own), 40000, NOT, addr(to, 80));
    let one = from(&mut s, 1, 7).unwrap();
    assert_eq!((one.addr(), one.chosen()), (addr(1, 40000), true));
    let other = from(&mut s, 1, 8).unwrap();
    let same = from(&mut s, 2, 7).unwrap();
    assert_eq!(from(&mut s, 1, 7), Err(Refused::Connected));
    // A connection from any address may be from this one.
    let any = s.connect_from(1, 40000, NOT, addr(7, 80));
    assert_eq!(any, Err(Refused::Connected));
    assert_eq!(s.bind_free(1, at(1), 40000, NOT), Err(Refused::InUse));
    s.bind_free(1, at(3), 40000, NOT).unwrap();
    assert_eq!(from(&mut s, 1, 9), Err(Refused::InUse));
    for b in [one, other, same] {
        s.unbind(b);
    }
    s.bind_free(1, at(1), 40000, NOT).unwrap();
}

// rows: Z1
#[test]
fn a_connection_is_there_once() {
    let (mut s, _) = space(100);
    let mut a = s.bind(1, at(1), 80, ADDR).unwrap();
    let mut b = s.bind(1, at(1), 80, ADDR).unwrap();
    let mut all = s.bind(1, at(0), 80, ADDR).unwrap();
    let mut other = s.bind(1, at(2), 80, ADDR).unwrap();
    s.connect(&mut a, addr(9, 1)).unwrap();
    assert_eq!(s.connect(&mut b, addr(9, 1)), Err(Refused::Connected));
    // From which address "all" would be is not known.
    assert_eq!(s.connect(&mut all, addr(9, 1)), Err(Refused::Connected));
    s.connect(&mut other, addr(9, 1)).unwrap();
    s.connect(&mut all, addr(9, 2)).unwrap();
    assert_eq!(s.connect(&mut b, addr(9, 2)), Err(Refused::Connected));
    s.connect(&mut b, addr(9, 3)).unwrap();
    s.disconnect(&mut a);
    // Another try, elsewhere.
    s.connect(&mut b, addr(9, 1)).unwrap();
    s.connect(&mut a, addr(9, 3)).unwrap();
}

/// All connections that the default range has room for, to two destinations: each costs as much as
/// the first one, and so do the other decisions.
// rows: B5
#[test]
fn cost_does_not_grow() {
    const LOW: u16 = 32768;
    const HIGH: u16 = 60999;
    let (mut s, _, searches) = counted(usize::MAX);
    let cost = |f: &mut dyn FnMut()| {
        let before = searches.get();
        f();
        searches.get() - before
    };
    let dearest = 4;
    let mut bindings = Vec::new();
    for remote in [addr(1, 80), addr(2, 80)] {
        let (hash, mut tried) = (hash(7, 1, addr(0, 0), remote) as u32, 0_u32);
        for _ in LOW..=HIGH {
            let mut search = Search::for_connect(LOW, HIGH, hash, tried);
            let spent = cost(&mut || {
                let port = search.next().unwrap();
                bindings.push(s.connect_from(1, port, NOT, remote).unwrap());
            });
            assert!(spent <= dearest, "{spent}");
            tried = tried.wrapping_add(search.tried());
        }
        let full = Err(Refused::Connected);
        let mut search = Search::for_connect(LOW, HIGH, hash, tried);
        assert!(search.all(|port| s.connect_from(1, port, NOT, remote) == full));
    }
    assert_eq!(bindings.len(), 2 * 28232);

    let spent = cost(&mut || bindings.push(s.bind(1, at(1), 80, ADDR).unwrap()));
    for _ in 0..10_000 {
        let again = cost(&mut || bindings.push(s.bind(1, at(1), 80, ADDR).unwrap()));
        assert!(again <= spent + 2, "{again} after {spent}");
    }
    let more = cost(&mut || assert!(s.bind(1, at(0), LOW, ADDR).is_err()));
    assert!(more <= dearest, "{more}");
    for binding in bindings {
        assert_eq!(cost(&mut || s.unbind(binding)), 0);
    }
}

// rows: B9
#[test]
fn without_memory_nothing_is_kept() {
    let (mut s, room) = space(0);
    let none = Err(Refused::NoMemory);
    assert_eq!(s.bind(1, at(1), 80, NOT), none);
    assert_eq!(s.connect_from(1, 40000, NOT, addr(9, 1)), none);
    room.set(1);
    // Enough for the connection, not for the port.
    assert_eq!(s.connect_from(1, 40000, NOT, addr(9, 1)), none);
    room.set(2);
    s.connect_from(1, 40000, NOT, addr(9, 1)).unwrap();
    room.set(1);
    let mut b = s.bind(1, at(1), 80, NOT).unwrap();
    assert_eq!(s.connect(&mut b, addr(9, 1)), Err(Refused::NoMemory));
    assert_eq!(s.listen(&mut b, ADDR), Err(Refused::NoMemory));
    s.listen(&mut b, NOT).unwrap();
    s.unbind(b);
    room.set(1);
    s.bind(1, at(1), 80, NOT).unwrap();
}

/// A socket of the model.
#[derive(Clone, Copy, Debug)]
struct Model {
    net: usize,
    bound: Bound,
    only_v6: bool,
    port: u16,
    sharing: Sharing,
    listening: bool,
    chosen: bool,
    remote: Option<Addr>,
}

impl Model {
    /// Whether it can connect to `remote`, as TCP sockets can.
    fn reaches(&self, remote: Addr) -> bool {
        let ip = self.bound.ip();
        let any = ip == Ip::ANY && !(self.only_v6 && remote.ip.is_v4());
        any || (ip == Ip::ANY_V4 || ip != Ip::ANY) && ip.is_v4() == remote.ip.is_v4()
    }
}

/// ipv6_rcv_saddr_equal() in the kernel, where both wildcards match; inet_rcv_saddr_equal() comes
/// to the same where a socket is one of IPv4. Another scope is another `sk_bound_dev_if` there.
fn overlap(a: &Model, b: &Model) -> bool {
    let (one, two) = (a.bound.ip(), b.bound.ip());
    let (mapped1, mapped2) = (one.is_v4(), two.is_v4());
    if mapped1 && mapped2 {
        return one == two || one == Ip::ANY_V4 || two == Ip::ANY_V4;
    }
    if one == Ip::ANY && two == Ip::ANY {
        return true;
    }
    if two == Ip::ANY && !(b.only_v6 && mapped1) {
        return true;
    }
    if one == Ip::ANY && !(a.only_v6 && mapped2) {
        return true;
    }
    one == two
}

/// inet_bind_conflict() in the kernel.
fn conflict(new: &Model, old: &Model) -> bool {
    let by_addr = new.sharing.reuse_addr && old.sharing.reuse_addr && !old.listening;
    let by_port =
        new.sharing.reuse_port.is_some() && new.sharing.reuse_port == old.sharing.reuse_port;
    new.net == old.net && new.port == old.port && overlap(new, old) && !by_addr && !by_port
}

fn twice(a: &Model, remote: Addr, b: &Model) -> bool {
    let (one, two) = (a.bound.ip(), b.bound.ip());
    let same = one == two || one.is_any() || two.is_any();
    a.net == b.net && a.port == b.port && same && b.remote == Some(remote)
}

#[derive(Clone, Debug)]
enum Op {
    Bind(Model),
    BindFree(Model),
    Choose(Model, Addr),
    Listen(prop::sample::Index, Sharing),
    Unlisten(prop::sample::Index),
    Connect(prop::sample::Index, Addr),
    Disconnect(prop::sample::Index),
    Unbind(prop::sample::Index),
}

fn sharings() -> impl Strategy<Value = Sharing> {
    (any::<bool>(), prop::option::of(0_u32..2)).prop_map(|(reuse_addr, reuse_port)| Sharing {
        reuse_addr,
        reuse_port,
    })
}

fn sockets() -> impl Strategy<Value = Model> {
    let kinds = prop::sample::select(&[0, 1, 2, ALL, ALL_V6, V6[0], V6[1], LOCAL[0], LOCAL[1]][..]);
    (0_usize..2, kinds, 1_u16..3, sharings()).prop_map(|(net, kind, port, sharing)| Model {
        net,
        bound: at(kind),
        only_v6: kind > ALL,
        port,
        sharing,
        listening: false,
        chosen: false,
        remote: None,
    })
}

fn ops() -> impl Strategy<Value = Op> {
    let kinds = || prop::sample::select(&[1, 2, V6[0], V6[1], LOCAL[0], LOCAL[1]][..]);
    let remotes = move || (kinds(), 1_u16..3).prop_map(|(ip, port)| addr(ip, port));
    let which = any::<prop::sample::Index>;
    prop_oneof![
        4 => sockets().prop_map(Op::Bind),
        1 => sockets().prop_map(Op::BindFree),
        3 => (sockets(), remotes()).prop_map(|(s, r)| Op::Choose(s, r)),
        2 => (which(), sharings()).prop_map(|(i, s)| Op::Listen(i, s)),
        1 => which().prop_map(Op::Unlisten),
        3 => (which(), remotes()).prop_map(|(i, r)| Op::Connect(i, r)),
        1 => which().prop_map(Op::Disconnect),
        2 => which().prop_map(Op::Unbind),
    ]
}

fn refused_if(no: bool, why: Refused) -> Result<(), Refused> {
    if no {
        return Err(why);
    }
    Ok(())
}

/// The model's answer to `op` on the sockets `all`, which it applies.
fn model(all: &mut Vec<Model>, op: &Op) -> Result<(), Refused> {
    let other = |all: &[Model], i: usize, f: &dyn Fn(&Model) -> bool| {
        all.iter().enumerate().any(|(j, m)| j != i && f(m))
    };
    match *op {
        Op::Bind(new) => {
            refused_if(all.iter().any(|m| conflict(&new, m)), Refused::InUse)?;
            all.push(new);
        }
        Op::BindFree(new) => {
            let used = |m: &Model| m.net == new.net && m.port == new.port && overlap(m, &new);
            refused_if(all.iter().any(used), Refused::InUse)?;
            all.push(new);
        }
        Op::Choose(mut new, remote) => {
            let bound = |m: &Model| m.net == new.net && m.port == new.port && !m.chosen;
            refused_if(all.iter().any(bound), Refused::InUse)?;
            new.only_v6 = !remote.ip.is_v4();
            new.bound = Bound::new(remote.ip.any_of_family(), true);
            let connected = all.iter().any(|m| twice(&new, remote, m));
            refused_if(connected, Refused::Connected)?;
            (new.chosen, new.remote) = (true, Some(remote));
            all.push(new);
        }
        Op::Listen(i, sharing) => {
            let i = i.index(all.len());
            let mut new = all[i];
            new.sharing = sharing;
            refused_if(other(all, i, &|m| conflict(&new, m)), Refused::InUse)?;
            new.listening = true;
            all[i] = new;
        }
        Op::Unlisten(i) => {
            let i = i.index(all.len());
            all[i].listening = false;
        }
        Op::Connect(i, remote) => {
            let i = i.index(all.len());
            all[i].remote = None;
            let new = all[i];
            refused_if(
                other(all, i, &|m| twice(&new, remote, m)),
                Refused::Connected,
            )?;
            all[i].remote = Some(remote);
        }
        Op::Disconnect(i) => {
            let i = i.index(all.len());
            all[i].remote = None;
        }
        Op::Unbind(i) => {
            let i = i.index(all.len());
            all.swap_remove(i);
        }
    }
    Ok(())
}

/// The same on the real thing.
fn real(s: &mut Space, all: &mut Vec<Binding>, op: &Op) -> Result<(), Refused> {
    let at = |i: &prop::sample::Index, n| i.index(n);
    let n = all.len();
    match op {
        Op::Bind(m) => all.push(s.bind(m.net, m.bound, m.port, m.sharing)?),
        Op::BindFree(m) => all.push(s.bind_free(m.net, m.bound, m.port, m.sharing)?),
        Op::Choose(m, r) => all.push(s.connect_from(m.net, m.port, m.sharing, *r)?),
        Op::Listen(i, sharing) => s.listen(&mut all[at(i, n)], *sharing)?,
        Op::Unlisten(i) => s.unlisten(&mut all[at(i, n)]),
        Op::Connect(i, r) => s.connect(&mut all[at(i, n)], *r)?,
        Op::Disconnect(i) => s.disconnect(&mut all[at(i, n)]),
        Op::Unbind(i) => {
            let gone = all.swap_remove(at(i, n));
            s.unbind(gone);
        }
    }
    Ok(())
}

proptest! {
    // rows: Z1 B5 B6
    #[test]
    fn as_tcp(ops in prop::collection::vec(ops(), 0..60)) {
        let (mut space, _) = space(usize::MAX);
        let (mut sockets, mut bindings) = (Vec::new(), Vec::new());
        for op in ops {
            // A listening socket neither listens again nor connects, and a connected one does not
            // listen.
            let fits = match &op {
                Op::Bind(_) | Op::BindFree(_) | Op::Choose(..) => true,
                _ if sockets.is_empty() => false,
                Op::Listen(i, _) => {
                    let m: &Model = &sockets[i.index(sockets.len())];
                    !m.listening && m.remote.is_none() && !m.chosen
                }
                Op::Connect(i, remote) => {
                    let m = &sockets[i.index(sockets.len())];
                    !m.listening && !m.chosen && m.reaches(*remote)
                }
                _ => true,
            };
            if fits {
                let expected = model(&mut sockets, &op);
                prop_assert_eq!(real(&mut space, &mut bindings, &op), expected, "{:?}", op);
                for (m, b) in sockets.iter().zip(&bindings) {
                    prop_assert_eq!((m.bound, m.port, m.chosen), (b.bound(), b.addr().port, b.chosen()));
                }
            }
        }
        // Closed sockets leave nothing.
        for b in bindings {
            space.unbind(b);
        }
        for (net, ip, port) in [(0, ALL, 1), (0, ALL, 2), (1, ALL, 1), (1, ALL, 2)] {
            prop_assert!(space.bind_free(net, at(ip), port, NOT).is_ok());
        }
    }

    // rows: Z1
    #[test]
    fn every_port_once(low: u16, span in 0_u16..300, bind: bool, hash: u32, tried: u16) {
        let high = low.saturating_add(span);
        let search = || match bind {
            true => Search::for_bind(low, high, hash),
            false => Search::for_connect(low, high, hash, tried.into()),
        };
        let mut sorted: Vec<_> = search().collect();
        sorted.sort_unstable();
        prop_assert_eq!(sorted, (low..=high).collect::<Vec<_>>());
        let first = search().next();
        if bind {
            prop_assert!(low == high || first.is_some_and(|p| (p - low) % 2 == 1));
        } else {
            let begin = Search::for_connect(low, high, hash, 0).next();
            prop_assert!(begin.is_some_and(|p| (p - low) % 2 == 0));
            // The next search continues where the last one ended.
            let all = u32::from(high - low) + 1;
            let mut before = Search::for_connect(low, high, hash, 0);
            prop_assert_eq!(before.nth((u32::from(tried) % all) as usize), first);
        }
    }

    /// All bits of the ends count.
    // rows: Z1 B6
    #[test]
    fn hashes_differ(secret: u64, net: usize, ip: u128, port: u16, bit in 0_u32..144) {
        let end = |bit: u32| {
            let flip = |from, bits| u128::from((from..from + bits).contains(&bit)) << bit.saturating_sub(from).min(127);
            let ip = ip ^ flip(16, 128);
            Addr::new(Ip::new(Ipv6Addr::from(ip), 0), port ^ flip(0, 16) as u16)
        };
        let (ends, other) = (end(u32::MAX), end(bit));
        let h = |local, remote| hash(secret, net, local, remote);
        prop_assert_ne!(h(ends, ends), h(other, ends));
        prop_assert_ne!(h(ends, ends), h(ends, other));
        prop_assert_ne!(hash(!secret, net, ends, ends), h(ends, ends));
        let on = |scope| Addr::new(Ip::new(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1), scope), port);
        prop_assert_ne!(h(on(1), ends), h(on(2), ends));
        prop_assert_ne!(h(ends, on(1)), h(ends, on(2)));
    }
}

// rows: Z1
#[test]
fn the_whole_range() {
    assert_eq!(Search::for_connect(1, 65535, 77, 99).count(), 65535);
    let one: Vec<_> = Search::for_bind(65535, 65535, 5).collect();
    assert_eq!(one, [65535]);
    let mut search = Search::for_connect(10, 13, 1, 0);
    let order: Vec<_> = search.by_ref().collect();
    assert_eq!(order, [12, 11, 13, 10]);
    assert_eq!((search.tried(), search.next()), (4, None));
    let order: Vec<_> = Search::for_bind(10, 13, 0).collect();
    assert_eq!(order, [11, 13, 10, 12]);
}
