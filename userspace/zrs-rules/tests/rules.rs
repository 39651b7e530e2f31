// SPDX-License-Identifier: GPL-2.0
//! The rules as a user writes them, and their decisions.
// rows: Z1

use zrs_rules::{joined, Beside, Net, Ports, Rules, Verdict};

/// The rules of a program named "prog" with these variables; none of them is bad.
fn rules(vars: &[(&str, &str)]) -> Rules {
    Rules::new(lookup(vars), &["prog", "prog3.13"], |name| {
        panic!("{name} is bad")
    })
}

fn lookup<'a>(vars: &'a [(&str, &str)]) -> impl Fn(&str) -> Option<String> + 'a {
    |name| {
        let (_, value) = vars.iter().find(|(n, _)| *n == name)?;
        Some((*value).to_string())
    }
}

fn connect(rules: &Rules, to: &str) -> Verdict {
    rules.connect(to.parse().unwrap())
}

fn bind(rules: &Rules, at: &str) -> Verdict {
    rules.bind(at.parse().unwrap())
}

#[test]
fn without_rules_only_loopback_is_tcp() {
    let rules = rules(&[]);
    assert_eq!(rules.socket(), Verdict::Zrs);
    for at in [
        "127.0.0.1:80",
        "127.255.0.9:1",
        "[::1]:80",
        "[::ffff:127.0.0.1]:80",
    ] {
        assert_eq!(connect(&rules, at), Verdict::Tcp("loopback"), "{at}");
        assert_eq!(bind(&rules, at), Verdict::Tcp("loopback"), "{at}");
    }
    for at in [
        "128.0.0.1:80",
        "126.255.255.255:80",
        "[::2]:80",
        "[::ffff:10.0.0.1]:80",
    ] {
        assert_eq!(connect(&rules, at), Verdict::Zrs, "{at}");
        assert_eq!(bind(&rules, at), Verdict::Zrs, "{at}");
    }
}

#[test]
fn datagrams_only_if_asked_for() {
    assert_eq!(rules(&[]).dgram_socket(), None);
    let udp = ("ZRS_RUN_UDP", "1");
    assert_eq!(rules(&[udp]).dgram_socket(), Some(Verdict::Zrs));
    let other = ("ZRS_RUN_ONLY_PROGRAMS", "other");
    let verdict = rules(&[udp, other]).dgram_socket();
    assert_eq!(verdict, Some(Verdict::Tcp("not a listed program")));
}

#[test]
fn tcp_beside_zrs_is_off_unless_asked_for() {
    assert_eq!(rules(&[]).tcp(), Beside::Never);
    for mode in Beside::ALL {
        assert_eq!(rules(&[("ZRS_RUN_TCP", mode.name())]).tcp(), mode);
        assert_eq!(mode.name().parse(), Ok(mode));
    }
    let mut bad = Vec::new();
    let vars = [("ZRS_RUN_TCP", "always")];
    let rules = Rules::new(lookup(&vars), &["prog"], |name| bad.push(name.to_string()));
    assert_eq!(
        (rules.tcp(), bad),
        (Beside::Never, vec!["ZRS_RUN_TCP".to_string()])
    );
}

#[test]
fn the_wildcard_is_loopback_only_as_a_destination() {
    let rules = rules(&[]);
    for at in ["0.0.0.0:80", "[::]:80"] {
        assert_eq!(connect(&rules, at), Verdict::Tcp("loopback"), "{at}");
        assert_eq!(bind(&rules, at), Verdict::Zrs, "{at}");
    }
}

#[test]
fn listed_networks() {
    let rules = rules(&[("ZRS_RUN_TCP_NETS", "10.1.0.0/16, 192.0.2.7,2001:db8::/32")]);
    for at in [
        "10.1.255.255:80",
        "192.0.2.7:80",
        "[2001:db8:1::]:80",
        "[::ffff:10.1.0.0]:80",
    ] {
        assert_eq!(connect(&rules, at), Verdict::Tcp("listed network"), "{at}");
        assert_eq!(bind(&rules, at), Verdict::Tcp("listed network"), "{at}");
    }
    for at in [
        "10.2.0.0:80",
        "10.0.255.255:80",
        "192.0.2.8:80",
        "[2001:db9::]:80",
    ] {
        assert_eq!(connect(&rules, at), Verdict::Zrs, "{at}");
    }
    assert_eq!(bind(&rules, "0.0.0.0:80"), Verdict::Zrs);
}

#[test]
fn a_network_of_length_0_is_everything_of_its_family() {
    let rules = rules(&[("ZRS_RUN_TCP_NETS", "0.0.0.0/0")]);
    assert_eq!(
        connect(&rules, "10.0.0.1:80"),
        Verdict::Tcp("listed network")
    );
    assert_eq!(connect(&rules, "[2001:db8::1]:80"), Verdict::Zrs);
}

#[test]
fn only_these_networks() {
    let rules = rules(&[("ZRS_RUN_ONLY_NETS", "10.77.0.0/24")]);
    assert_eq!(connect(&rules, "10.77.0.2:80"), Verdict::Zrs);
    assert_eq!(
        connect(&rules, "10.78.0.2:80"),
        Verdict::Tcp("not a listed network")
    );
    assert_eq!(bind(&rules, "0.0.0.0:80"), Verdict::Zrs);
}

#[test]
fn ports() {
    let listed = rules(&[("ZRS_RUN_TCP_PORTS", "22,8000-8002")]);
    for (port, tcp) in [
        (21, false),
        (22, true),
        (23, false),
        (7999, false),
        (8000, true),
        (8002, true),
        (8003, false),
    ] {
        let want = if tcp {
            Verdict::Tcp("listed port")
        } else {
            Verdict::Zrs
        };
        assert_eq!(
            connect(&listed, &format!("10.0.0.1:{port}")),
            want,
            "{port}"
        );
        assert_eq!(bind(&listed, &format!("0.0.0.0:{port}")), want, "{port}");
    }
    let only = rules(&[("ZRS_RUN_ONLY_PORTS", "6379")]);
    assert_eq!(connect(&only, "10.0.0.1:6379"), Verdict::Zrs);
    assert_eq!(
        connect(&only, "10.0.0.1:6380"),
        Verdict::Tcp("not a listed port")
    );
    // A client that binds its address alone: the port is not known before connect().
    assert_eq!(bind(&only, "10.0.0.1:0"), Verdict::Zrs);
}

#[test]
fn programs() {
    let socket = |vars: &[(&str, &str)]| rules(vars).socket();
    assert_eq!(
        socket(&[("ZRS_RUN_TCP_PROGRAMS", "a, prog")]),
        Verdict::Tcp("listed program")
    );
    assert_eq!(
        socket(&[("ZRS_RUN_TCP_PROGRAMS", "prog3.13")]),
        Verdict::Tcp("listed program")
    );
    assert_eq!(
        socket(&[("ZRS_RUN_TCP_PROGRAMS", "pro,prog3")]),
        Verdict::Zrs
    );
    assert_eq!(socket(&[("ZRS_RUN_ONLY_PROGRAMS", "prog")]), Verdict::Zrs);
    assert_eq!(
        socket(&[("ZRS_RUN_ONLY_PROGRAMS", "other")]),
        Verdict::Tcp("not a listed program")
    );
}

#[test]
fn a_bad_variable_counts_as_not_set_and_is_named() {
    let vars = [
        ("ZRS_RUN_TCP_NETS", "10.0.0.0/33"),
        ("ZRS_RUN_ONLY_PORTS", "1-"),
        ("ZRS_RUN_TCP_PORTS", "9"),
    ];
    let mut bad = Vec::new();
    let rules = Rules::new(lookup(&vars), &["prog"], |name| bad.push(name.to_string()));
    assert_eq!(bad, ["ZRS_RUN_TCP_NETS", "ZRS_RUN_ONLY_PORTS"]);
    assert_eq!(connect(&rules, "10.0.0.1:80"), Verdict::Zrs);
    assert_eq!(connect(&rules, "10.0.0.1:9"), Verdict::Tcp("listed port"));
}

#[test]
fn what_is_refused() {
    for text in [
        "",
        "10.0.0.0/33",
        "10.0.0.0/",
        "10.0.0/8",
        "::/129",
        "host",
        "10.0.0.0/-1",
    ] {
        assert!(text.parse::<Net>().is_err(), "{text}");
    }
    for text in ["", "0", "65536", "9-8", "-", "1-", "-1", "a", "0-9"] {
        assert!(text.parse::<Ports>().is_err(), "{text}");
    }
}

#[test]
fn a_list_reads_as_it_was_written() {
    let nets: Vec<Net> = ["10.1.0.0/16", "192.0.2.7", "2001:db8::/32"]
        .map(|t| t.parse().unwrap())
        .into();
    let text = joined(&nets);
    assert_eq!(text, "10.1.0.0/16,192.0.2.7/32,2001:db8::/32");
    assert_eq!(
        text.split(',')
            .map(|t| t.parse().unwrap())
            .collect::<Vec<Net>>(),
        nets
    );
    let ports: Vec<Ports> = ["22", "8000-8100"].map(|t| t.parse().unwrap()).into();
    assert_eq!(joined(&ports), "22,8000-8100");
}
