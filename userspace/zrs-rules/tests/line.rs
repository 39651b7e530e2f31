// SPDX-License-Identifier: GPL-2.0
//! The rules of a network namespace as text.
// rows: B14 Z1

use zrs_rules::line::{parse, parse_all, Action, Call, RULES_MAX};

fn texts(line: &str) -> Vec<String> {
    let rules = parse(line).unwrap_or_else(|why| panic!("{line}: {why}"));
    rules.iter().map(ToString::to_string).collect()
}

#[test]
fn what_is_printed_can_be_read() {
    for line in [
        "tcp any",
        "zrs bind any",
        "tcp port 22",
        "tcp connect port 8000-8100",
        "zrs net 192.0.2.0/24",
        "tcp bind net 2001:db8::/32 port 80",
    ] {
        assert_eq!(texts(line), [line]);
    }
    assert_eq!(texts("tcp net 192.0.2.7"), ["tcp net 192.0.2.7/32"]);
    let rule = parse("zrs connect any").unwrap()[0];
    assert_eq!((rule.action, rule.call), (Action::Zrs, Some(Call::Connect)));
}

#[test]
fn a_list_is_a_rule_for_each_element() {
    assert_eq!(
        texts("tcp bind net 10.0.0.0/8,::1 port 1,3-4 # both"),
        [
            "tcp bind net 10.0.0.0/8 port 1",
            "tcp bind net 10.0.0.0/8 port 3-4",
            "tcp bind net ::1/128 port 1",
            "tcp bind net ::1/128 port 3-4",
        ]
    );
}

#[test]
fn a_mistake_gets_a_sentence() {
    for (line, why) in [
        ("udp any", "'udp' is not tcp or zrs"),
        ("tcp", "say what it is for"),
        ("tcp connect", "say what it is for"),
        ("tcp any port 1", "'any' stands alone"),
        ("tcp net", "nothing after 'net'"),
        ("tcp net 10.0.0.0/33", "'33' is not a length from 0 to 32"),
        ("tcp net example.org", "'example.org' is not an address"),
        ("tcp port 0", "'0' is not a port"),
        ("tcp port 9-3", "ends before it begins"),
        ("tcp port 1 port 2", "'port' comes twice"),
        ("tcp from 10.0.0.1", "'from' is not"),
    ] {
        let said = parse(line).unwrap_err();
        assert!(said.contains(why), "{line}: {said}");
    }
    let said = parse_all("# head\n\ntcp any\nno\ntcp port x\n").unwrap_err();
    assert_eq!(said.lines().count(), 2, "{said}");
    assert!(said.starts_with("line 4: "), "{said}");
    let most = "tcp any\n".repeat(RULES_MAX);
    assert_eq!(parse_all(&most).map(|rules| rules.len()), Ok(RULES_MAX));
    assert!(parse_all(&(most + "tcp any")).is_err());
}
