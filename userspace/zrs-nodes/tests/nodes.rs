// SPDX-License-Identifier: GPL-2.0
//! The directory file: valid lines, refused lines, and the messages about them.

use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;

use zrs_nodes::{BadLines, Entry, NodeId, Nodes, Problem, Scope, BYTES_MAX, NODES_MAX};

fn node(domain: u32, node: u32) -> NodeId {
    NodeId { domain, node }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn entry(node: NodeId, addr: &str) -> Entry {
    Entry {
        node,
        addr: ip(addr),
        scope: None,
    }
}

fn parse(text: &str) -> Result<Nodes, BadLines> {
    text.parse()
}

/// The problem of a file with that line behind a good one.
fn problem(line: &str) -> Problem {
    let BadLines(bad) = parse(&format!("9:9 192.0.2.99\n{line}\n")).unwrap_err();
    let [(2, why)] = &bad[..] else {
        panic!("{line}: {bad:?}");
    };
    why.clone()
}

/// The message about such a line.
fn said(line: &str) -> String {
    problem(line).to_string()
}

// rows: M1
#[test]
fn a_file_as_it_should_be() {
    let text = "\u{feff}# the nodes of rack 1\n\n1:2  192.0.2.12\r\n\t1:1\t192.0.2.11 # the first\n3 fe80::1%eth0\n\
                2:1 2001:db8::1\n4 ::ffff:192.0.2.14\n5 fe80::2%7\n#6 192.0.2.16";
    let nodes = parse(text).unwrap();
    let local = |n, addr, scope| Entry {
        scope: Some(scope),
        ..entry(node(0, n), addr)
    };
    let want = [
        local(3, "fe80::1", Scope::Name("eth0".to_owned())),
        entry(node(0, 4), "192.0.2.14"),
        local(5, "fe80::2", Scope::Index(7)),
        entry(node(1, 1), "192.0.2.11"),
        entry(node(1, 2), "192.0.2.12"),
        entry(node(2, 1), "2001:db8::1"),
    ];
    assert_eq!(nodes.entries(), want, "in the order of the nodes");
    let printed = nodes.to_string();
    assert_eq!(
        printed,
        "3 fe80::1%eth0\n4 192.0.2.14\n5 fe80::2%7\n1:1 192.0.2.11\n1:2 192.0.2.12\n2:1 2001:db8::1\n"
    );
    assert_eq!(parse(&printed), Ok(nodes));
    for empty in ["", "\n\n", "# nothing", "   \n\t\n"] {
        assert_eq!(parse(empty), Ok(Nodes::default()));
    }
    // Several nodes of one host.
    assert_eq!(
        parse("1 192.0.2.1\n2 192.0.2.1").unwrap().entries().len(),
        2
    );
}

// rows: M1
#[test]
fn what_is_said_about_nodes() {
    for bad in [
        "x",
        "1:",
        ":1",
        "1:2:3",
        "-1",
        "+1",
        "01",
        "1.2",
        "4294967296",
        "192.0.2.1",
    ] {
        let text = said(&format!("{bad} 192.0.2.1"));
        let want = format!(
            "'{bad}' is not a node id; write its domain and number as '1:2', or the number alone"
        );
        assert_eq!(text, want);
    }
    let none = "node 1:2 has no address; write the RDMA address of its host, as '1:2 192.0.2.12'";
    assert_eq!(said("1:2"), none);
    assert_eq!(said("1:2 # 192.0.2.1"), none);
    assert_eq!(
        said("1:2 192.0.2.1 192.0.2.2"),
        "'192.0.2.2' is behind the address; a line has one node and one address, a comment begins with '#'"
    );
    assert_eq!(
        said("9:9 192.0.2.1"),
        "node 9:9 is in line 1 already; leave one of the two"
    );
    let own = parse("0:5 192.0.2.1\n5 192.0.2.2").unwrap_err();
    assert_eq!(
        own.0,
        [(2, Problem::Twice(node(0, 5), 1))],
        "two forms of one id"
    );
}

// rows: M1
#[test]
fn what_is_said_about_addresses() {
    assert_eq!(
        said("1 host-b"),
        "'host-b' is not an IP address; names are not looked up, write what 'getent hosts host-b' prints"
    );
    for bad in [
        "192.0.2",
        "192.0.2.256",
        "192.0.2.01",
        "2001:db8::g",
        "%eth0",
        "host:7000",
        "1/2",
        "[x]:1",
    ] {
        assert_eq!(
            problem(&format!("1 {bad}")),
            Problem::Address(bad.to_owned())
        );
    }
    for (bad, addr) in [
        ("192.0.2.1:7000", "192.0.2.1"),
        ("192.0.2.0/24", "192.0.2.0"),
        ("2001:db8::1/64", "2001:db8::1"),
        ("[2001:db8::1]:7000", "2001:db8::1"),
        ("[2001:db8::1]", "2001:db8::1"),
    ] {
        let text = said(&format!("1 {bad}"));
        assert_eq!(
            text,
            format!("'{bad}' is more than an address; write '{addr}' alone")
        );
    }
    for bad in ["0.0.0.0", "::", "224.0.0.1", "255.255.255.255", "ff02::1"] {
        let text = said(&format!("1 {bad}"));
        let want = format!(
            "{bad} is not the address of one host; write the address of the host's RDMA interface"
        );
        assert_eq!(text, want);
    }
    assert_eq!(problem("1 ::ffff:0.0.0.0"), Problem::Many(ip("0.0.0.0")));
    assert_eq!(
        said("1 fe80::1"),
        "fe80::1 is link-local; append the interface of this host, as 'fe80::1%eth0'"
    );
    for bad in ["192.0.2.1%eth0", "2001:db8::1%3", "192.0.2.1%"] {
        let (addr, _) = bad.split_once('%').unwrap();
        let text = said(&format!("1 {bad}"));
        assert_eq!(
            text,
            format!("{addr} is not link-local; leave out the interface behind '%'")
        );
    }
    for bad in [
        "",
        "0",
        "4294967296",
        "a-name-of-16-byt",
        "a/b",
        "a%b",
        ".",
        "..",
        "a:b",
    ] {
        let text = said(&format!("1 fe80::1%{bad}"));
        assert_eq!(
            text,
            format!("'{bad}' is not an interface; 'ip link' lists those of this host")
        );
    }
    assert!(parse("1 fe80::1%a-name-of-15-by").is_ok());
}

// rows: M1
#[test]
fn all_bad_lines_are_named_and_none_is_taken() {
    let bad = parse("1 192.0.2.1\nx 192.0.2.2\n3\n# fine\n4 192.0.2.4\n").unwrap_err();
    assert_eq!(
        bad.to_string(),
        "line 2: 'x' is not a node id; write its domain and number as '1:2', or the number alone\n\
         line 3: node 3 has no address; write the RDMA address of its host, as '3 192.0.2.12'"
    );
    let named = |n| {
        let text = "x\n".repeat(n);
        let said = parse(&text).unwrap_err().to_string();
        (
            said.lines().count(),
            said.lines().last().unwrap().to_owned(),
        )
    };
    assert_eq!(named(10).0, 10);
    assert_eq!(named(11), (11, "and 1 more line".to_owned()));
    assert_eq!(named(500), (11, "and 490 more lines".to_owned()));
}

// rows: M1
#[test]
fn a_directory_has_a_limit() {
    let line = |n: usize| format!("1:{n} 192.0.2.1\n");
    let most: String = (0..NODES_MAX).map(line).collect();
    assert_eq!(parse(&most).unwrap().entries().len(), 4096);
    let BadLines(bad) = parse(&(most + &line(NODES_MAX))).unwrap_err();
    assert_eq!(bad, [(NODES_MAX + 1, Problem::TooMany)]);
    assert_eq!(
        bad[0].1.to_string(),
        "there are 4096 nodes before; leave out those that this host does not use"
    );
}

struct File(PathBuf);

impl File {
    fn new(name: &str, bytes: &[u8]) -> Self {
        let path = std::env::temp_dir().join(format!("zrs-nodes-{}-{name}", std::process::id()));
        fs::write(&path, bytes).unwrap();
        Self(path)
    }

    fn said(&self) -> String {
        let said = Nodes::read(&self.0).unwrap_err().to_string();
        let path = format!("{}: ", self.0.display());
        said.strip_prefix(&path)
            .expect("the file is named")
            .to_owned()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

// rows: M1
#[test]
fn files() {
    let good = File::new("good", b"1:2 192.0.2.12\n");
    let nodes = Nodes::read(&good.0).unwrap();
    assert_eq!(nodes.entries(), [entry(node(1, 2), "192.0.2.12")]);
    let bad = File::new("bad", b"x\n");
    assert_eq!(
        bad.said(),
        "no entry was taken\n\
         line 1: 'x' is not a node id; write its domain and number as '1:2', or the number alone"
    );
    let binary = File::new("binary", b"1:2 192.0.2.12\n\xff\n");
    assert_eq!(
        binary.said(),
        "is not text; is it the directory of the nodes?"
    );
    let comment = vec![b'#'; BYTES_MAX as usize];
    assert_eq!(
        Nodes::read(&File::new("full", &comment).0).unwrap(),
        Nodes::default()
    );
    let long = File::new("long", &[&comment[..], b"#"].concat());
    assert_eq!(
        long.said(),
        "has more than 1048576 bytes; is it the directory of the nodes?"
    );
    let gone = PathBuf::from("/nonexistent/nodes");
    assert_eq!(
        Nodes::read(&gone).unwrap_err().to_string(),
        "/nonexistent/nodes: there is no such file; write one with a line for each node, as '1:2 192.0.2.12'"
    );
    let folder = Nodes::read(&std::env::temp_dir()).unwrap_err();
    assert!(folder.to_string().contains("directory"), "{folder}");
}

/// No text makes the parser panic. A directory that it has parsed is printed as text that parses to the same directory.
// rows: M1
#[test]
fn any_text() {
    const WORDS: [&str; 22] = [
        "1:2 192.0.2.1\n",
        "7 fe80::1%3 # one\n",
        "1",
        "1:2",
        ":",
        "%",
        "#",
        "192.0.2.1",
        "fe80::1",
        "%eth0",
        "/24",
        "[",
        "]",
        " ",
        "  ",
        "\t",
        "\n",
        "\r\n",
        "é",
        "::",
        "ff02::1",
        "\0",
    ];
    // Xorshift is a sufficient random number generator here.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut taken = 0;
    for _ in 0..20_000 {
        let mut text = String::new();
        loop {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            if state % 8 == 0 {
                break;
            }
            text += WORDS[(state >> 32) as usize % WORDS.len()];
        }
        match parse(&text) {
            Ok(nodes) => {
                taken += nodes.entries().len();
                assert_eq!(parse(&nodes.to_string()), Ok(nodes), "{text:?}");
            }
            Err(bad) => assert!(!bad.to_string().is_empty()),
        }
    }
    assert!(taken > 20, "{taken}");
}
