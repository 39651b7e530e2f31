// SPDX-License-Identifier: GPL-2.0

//! The rules of a network namespace: the first that matches decides.
// rows: B14

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use common::Rng;
use zrs_core::addr::{Addr, Ip};
use zrs_core::rules::{decide, Action, Call, Rule};

fn ip(text: &str) -> Ip {
    match text.parse().unwrap() {
        IpAddr::V4(v4) => v4.into(),
        IpAddr::V6(v6) => Ip::new(v6, 0),
    }
}

fn at(text: &str, port: u16) -> Addr {
    Addr::new(ip(text), port)
}

fn tcp(net: Option<(&str, u8)>, ports: Option<(u16, u16)>) -> Rule {
    let net = net.map(|(text, len)| (ip(text), len));
    Rule::new(Action::Tcp, None, net, ports).unwrap()
}

#[test]
fn networks_and_ports() {
    let of_net = [tcp(Some(("10.1.2.3", 16)), None)];
    let found = |rules: &[Rule], text, port| decide(rules, Call::Connect, at(text, port)).is_some();
    for (text, matches) in [
        ("10.1.255.255", true),
        ("10.2.0.0", false),
        ("::ffff:10.1.0.0", true),
        ("::", false),
        ("2001:db8::1", false),
    ] {
        assert_eq!(found(&of_net, text, 1), matches, "{text}");
    }
    let all_v4 = [tcp(Some(("0.0.0.0", 0)), None)];
    let all_v6 = [tcp(Some(("::", 0)), None)];
    for (text, v4) in [
        ("192.0.2.1", true),
        ("2001:db8::1", false),
        ("fe80::1", false),
    ] {
        assert_eq!(found(&all_v4, text, 1), v4, "{text}");
        assert_eq!(found(&all_v6, text, 1), !v4, "{text}");
    }
    let of_ports = [tcp(None, Some((8000, 8001)))];
    for (port, matches) in [
        (7999, false),
        (8000, true),
        (8001, true),
        (8002, false),
        (0, false),
    ] {
        assert_eq!(found(&of_ports, "0.0.0.0", port), matches, "{port}");
    }
    let both = [tcp(Some(("10.0.0.0", 8)), Some((1, 9)))];
    assert!(
        found(&both, "10.0.0.1", 9)
            && !found(&both, "10.0.0.1", 10)
            && !found(&both, "11.0.0.1", 9)
    );
}

#[test]
fn a_wildcard_is_in_no_network_and_port_0_in_no_range() {
    let any = [tcp(None, None)];
    let bind = |rules: &[Rule], text, port| decide(rules, Call::Bind, at(text, port));
    for text in ["0.0.0.0", "::"] {
        assert_eq!(bind(&[tcp(Some(("0.0.0.0", 0)), None)], text, 80), None);
        assert_eq!(bind(&[tcp(Some(("::", 0)), None)], text, 80), None);
        assert_eq!(bind(&any, text, 0), Some(Action::Tcp));
    }
}

#[test]
fn what_cannot_be() {
    let rule = |net, ports| Rule::new(Action::Tcp, None, net, ports).is_some();
    assert!(!rule(Some((ip("10.0.0.0"), 33)), None));
    assert!(!rule(Some((ip("::"), 129)), None));
    assert!(!rule(Some((ip("10.0.0.0"), 255)), None));
    assert!(!rule(None, Some((0, 5))) && !rule(None, Some((6, 5))));
    assert!(rule(Some((ip("10.0.0.0"), 32)), Some((1, u16::MAX))));
    let kept = tcp(Some(("10.1.2.3", 8)), None);
    assert_eq!(kept.net(), Some((ip("10.0.0.0"), 8)));
    assert_eq!(kept, tcp(Some(("10.9.9.9", 8)), None));
}

/// What a rule is made of: action, call, network, ports.
type Parts = (Action, Option<Call>, Option<(Ip, u8)>, Option<(u16, u16)>);

/// The same decision, bit by bit.
fn slow(rules: &[Parts], call: Call, at: Addr) -> Option<Action> {
    let bit = |ip: Ip, n: u8| {
        let n = if ip.is_v4() { n + 96 } else { n };
        (ip.octets()[usize::from(n / 8)] >> (7 - n % 8)) & 1
    };
    for &(action, only, net, ports) in rules {
        let in_net = match net {
            None => true,
            Some((first, len)) => {
                first.is_v4() == at.ip.is_v4()
                    && at.ip != ip("::")
                    && at.ip != ip("0.0.0.0")
                    && (0..len).all(|n| bit(first, n) == bit(at.ip, n))
            }
        };
        let in_ports = ports.is_none_or(|(a, b)| a <= at.port && at.port <= b);
        if in_net && in_ports && (only.is_none() || only == Some(call)) {
            return Some(action);
        }
    }
    None
}

#[test]
fn any_rules_decide_as_bit_by_bit() {
    let mut rng = Rng::new(23);
    let some_ip = |rng: &mut Rng| -> Ip {
        // Few bits, so that networks match.
        let low = ((rng.below(4) << 30) | rng.below(4)) as u32;
        match rng.below(5) {
            0 => Ip::new(Ipv6Addr::UNSPECIFIED, 0),
            1 => Ipv4Addr::UNSPECIFIED.into(),
            2 => Ip::new(
                Ipv6Addr::from_bits((u128::from(low) << 96) | u128::from(low)),
                0,
            ),
            _ => Ipv4Addr::from_bits(low).into(),
        }
    };
    let mut hits = [0; 3];
    for _ in 0..20_000 {
        let parts: Vec<_> = (0..rng.below(6))
            .map(|_| {
                let action = [Action::Tcp, Action::Zrs][rng.below(2) as usize];
                let call = [None, Some(Call::Connect), Some(Call::Bind)][rng.below(3) as usize];
                let first = some_ip(&mut rng);
                let most = if first.is_v4() { 33 } else { 129 };
                let net = (rng.below(4) > 0).then_some((first, rng.below(most) as u8));
                let low = 1 + rng.below(9) as u16;
                let ports = (rng.below(2) > 0).then_some((low, low + rng.below(4) as u16));
                (action, call, net, ports)
            })
            .collect();
        let rules: Vec<_> = parts
            .iter()
            .map(|&(a, c, n, p)| Rule::new(a, c, n, p).unwrap())
            .collect();
        let to = Addr::new(some_ip(&mut rng), rng.below(12) as u16);
        let call = [Call::Connect, Call::Bind][rng.below(2) as usize];
        let said = decide(&rules, call, to);
        assert_eq!(said, slow(&parts, call, to), "{parts:?} {call:?} {to:?}");
        hits[said.map_or(0, |action| 1 + (action == Action::Zrs) as usize)] += 1;
    }
    assert!(hits.iter().all(|n| *n > 1000), "{hits:?}");
}
