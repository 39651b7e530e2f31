// SPDX-License-Identifier: GPL-2.0
//! The selftest programs on TCP: their expectations hold there, and they notice when not.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};

fn selftest(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_zrs-selftest"));
    command
        .args(["--protocol", "6", "--limit", "60"])
        .args(args);
    command
}

fn run(args: &[&str]) -> Output {
    selftest(args).output().unwrap()
}

struct Server {
    child: Child,
    addr: String,
    stdout: BufReader<ChildStdout>,
}

fn server(args: &[&str]) -> Server {
    let mut child = selftest(args)
        .stdout(Stdio::piped())
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    let addr = line
        .strip_prefix("listening on ")
        .expect(&line)
        .trim()
        .to_string();
    Server {
        child,
        addr,
        stdout,
    }
}

impl Server {
    /// Its exit status and output.
    fn done(mut self) -> (bool, String) {
        let mut text = String::new();
        self.stdout.read_to_string(&mut text).unwrap();
        (self.child.wait().unwrap().success(), text)
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

fn passes(output: &Output) {
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(text.contains("ok - ") && !text.contains("not ok"), "{text}");
}

/// An address without a listener.
fn free_addr() -> String {
    std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .to_string()
}

fn pair(command: &str, server_args: &[&str], client_args: &[&str]) -> (Output, bool, String) {
    let server = server(&[&[command, "--server", "127.0.0.1:0"], server_args].concat());
    let client = run(&[&[command, "--client", &server.addr], client_args].concat());
    let (fine, text) = server.done();
    (client, fine, text)
}

#[test]
fn transfers() {
    let sizes = ["--sizes", "0,1,4095,4096,4097,262145,3M"];
    for more in [
        &[][..],
        &["--both"],
        &["--align", "3", "--chunk", "1000"],
        &["--nonblock", "--both"],
    ] {
        let args = [&sizes[..], more].concat();
        let (client, fine, text) = pair("xfer", &args, &args);
        passes(&client);
        assert!(fine, "{text}");
    }
}

#[test]
fn a_wrong_byte_is_noticed() {
    let (_, fine, text) = pair(
        "xfer",
        &["--seed", "1", "--sizes", "100"],
        &["--seed", "2", "--sizes", "100"],
    );
    assert!(!fine && text.contains("byte 0 is wrong"), "{text}");
    let (_, fine, text) = pair("xfer", &["--sizes", "100"], &["--sizes", "99"]);
    assert!(!fine && text.contains("saw 99, expected 100"), "{text}");
}

#[test]
fn crowds() {
    for (command, args) in [
        ("crowd", &["--conns", "203"][..]),
        ("churn", &["--conns", "203"]),
        ("fair", &["--conns", "20"]),
    ] {
        let (client, fine, text) = pair(command, args, args);
        passes(&client);
        assert!(fine, "{command}: {text}");
    }
    // The server waits for one more.
    let server = server(&[
        "churn",
        "--server",
        "127.0.0.1:0",
        "--conns",
        "11",
        "--limit",
        "2",
    ]);
    let client = run(&["churn", "--client", &server.addr, "--conns", "10"]);
    assert_eq!(client.status.code(), Some(1));
    assert!(!server.done().0);
}

#[test]
fn pools() {
    for (command, args) in [
        ("burst", &["--conns", "203"][..]),
        ("bulk", &["--conns", "9", "--bytes", "3M"]),
        ("lands", &["--bytes", "64M", "--messages", "1"]),
        (
            "stopped",
            &["--how", "recv", "--expect", "stays", "--busy", "3"],
        ),
        ("stopped", &["--how", "small", "--expect", "leaves"]),
    ] {
        let (client, fine, text) = pair(command, args, args);
        passes(&client);
        assert!(fine, "{command}: {text}");
    }
}

#[test]
fn full_windows() {
    let (client, fine, text) = pair("fullwindow", &[], &["--more", "2M"]);
    passes(&client);
    assert!(fine, "{text}");
}

#[test]
fn refusals() {
    let addr = free_addr();
    passes(&run(&[
        "refused",
        &addr,
        "--errno",
        "ECONNREFUSED",
        "--within-ms",
        "2000",
    ]));
    let other = run(&["refused", &addr, "--errno", "ETIMEDOUT"]);
    assert_eq!(other.status.code(), Some(1));
    let text = String::from_utf8_lossy(&other.stdout).into_owned();
    assert!(
        text.contains("saw Err(ECONNREFUSED), expected ETIMEDOUT"),
        "{text}"
    );
}

#[test]
fn errors_and_readiness() {
    let server = server(&["serve", "127.0.0.1:0"]);
    let common = ["--peer", &server.addr, "--local", "127.0.0.1"];
    let errors = run(&[&["errno"], &common[..]].concat());
    let refused = free_addr();
    let readiness = run(&[&["poll"], &common[..], &["--refused", &refused]].concat());
    server.kill();
    passes(&errors);
    passes(&readiness);
}

#[test]
fn states_of_readiness() {
    passes(&run(&["states", "--local", "127.0.0.1"]));
}

#[test]
fn wake_ups() {
    let server = server(&["serve", "127.0.0.1:0"]);
    let common = ["--peer", &server.addr, "--local", "127.0.0.1"];
    for what in ["herd", "others"] {
        passes(&run(&[&["wakes", "--what", what], &common[..]].concat()));
    }
    let idle = ["wakes", "--what", "idle", "--conns", "10", "--seconds", "1"];
    passes(&run(&[&idle, &common[..]].concat()));
    server.kill();
}

#[test]
fn in_other_hands() {
    let server = server(&["handed", "--server", "127.0.0.1:0"]);
    passes(&run(&["handed", "--client", &server.addr]));
    server.kill();
}

#[test]
fn full_backlogs() {
    passes(&run(&["backlog", "--local", "127.0.0.1"]));
}

#[test]
fn user_timeouts() {
    passes(&run(&["patience", "--local", "127.0.0.1"]));
}

#[test]
fn vectors_and_messages() {
    passes(&run(&["scatter", "--local", "127.0.0.1"]));
}

#[test]
fn hostile_programs() {
    let server = server(&["serve", "127.0.0.1:0"]);
    // One process for each: some count descriptors. Not "signals": where a backlog is full, TCP's
    // connect() tries again only after seconds, and longer each time.
    for what in ["fetch", "unmap", "memory", "close", "kill", "exhaust"] {
        let common = [
            "--peer",
            &server.addr,
            "--local",
            "127.0.0.1",
            "--ms",
            "300",
        ];
        let output = run(&[&["hostile", "--what", what], &common[..]].concat());
        println!("{what}");
        passes(&output);
    }
    server.kill();
}

#[test]
fn bystanders() {
    let server = server(&["serve", "127.0.0.1:0"]);
    let mut child = selftest(&["bystander", &server.addr])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = || lines.next().unwrap().unwrap();
    assert_eq!(next(), "ready");
    stdin.write_all(b"go\nrest\n").unwrap();
    assert_eq!(next(), "ok - the bystander noticed nothing");
    assert!(next().contains("bytes verified"));
    assert_eq!(next(), "resting");
    // Its connection breaks: that it notices.
    server.kill();
    stdin.write_all(b"go\n").unwrap();
    let line = next();
    assert!(line.starts_with("not ok - the bystander"), "{line}");
    drop(stdin);
    assert_eq!(child.wait().unwrap().code(), Some(1));
}

/// Two of them, as in two hosts. With a file that marks the end: the listening ones stay until all
/// connecting ones have ended.
fn stress(port: u16, more: &[&str], until: Option<&Path>) -> [Output; 2] {
    let hosts = [1, 2].map(|n| format!("127.0.0.{n}:{port}"));
    let peers = hosts.join(",");
    let mut children = hosts.each_ref().map(|local| {
        // TCP retries a SYN that a listener with a full backlog dropped, less and less often.
        let mut command = selftest(&[
            "stress",
            "--seconds",
            "2",
            "--most",
            "100k",
            "--patience",
            "50",
        ]);
        command
            .args(["--peers", &peers, "--local", local])
            .args(more);
        if let Some(file) = until {
            command.arg("--serve-until").arg(file);
        }
        command.stdout(Stdio::piped()).spawn().unwrap()
    });
    if let Some(file) = until {
        for child in &mut children {
            let mut said = BufReader::new(child.stdout.as_mut().unwrap()).lines();
            assert!(said.any(|line| line.unwrap() == "# clients ended"));
        }
        std::fs::write(file, "").unwrap();
    }
    children.map(|child| child.wait_with_output().unwrap())
}

#[test]
fn stress_undisturbed_and_with_kills() {
    let until = std::env::temp_dir().join(format!("zrs-stress-{}", std::process::id()));
    for output in stress(20_100, &[], Some(&until)) {
        passes(&output);
    }
    std::fs::remove_file(&until).unwrap();
    for output in stress(20_200, &["--kill-ms", "200", "--peers-killed"], None) {
        passes(&output);
    }
}

#[test]
fn streams_and_their_ends() {
    let receiver = server(&[
        "stream-recv",
        "--listen",
        "127.0.0.1:0",
        "--expect",
        "eof",
        "--at-least",
        "1M",
    ]);
    passes(&run(&[
        "stream-send",
        &receiver.addr,
        "--bytes",
        "1M",
        "--expect",
        "eof",
    ]));
    let (fine, text) = receiver.done();
    assert!(fine, "{text}");

    // The receiver is killed: the sender sees EPIPE or ECONNRESET.
    let mut receiver = server(&[
        "stream-recv",
        "--listen",
        "127.0.0.1:0",
        "--expect",
        "eof",
        "--stall",
    ]);
    let sender = selftest(&["stream-send", &receiver.addr, "--expect", "epipe,reset"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    receiver.stdout.read_line(&mut line).unwrap();
    assert_eq!(line, "receiving\n");
    receiver.kill();
    passes(&sender.wait_with_output().unwrap());
}

#[test]
fn holds_until_stdin_ends() {
    let mut child = selftest(&["hold", "--what", "socket"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert_eq!(line, "holding\n");
    assert!(child.try_wait().unwrap().is_none());
    child.stdin.take().unwrap().flush().unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn without_the_module_it_fails() {
    if !std::path::Path::new("/dev/zrs").exists() {
        assert_eq!(run(&["ioctl"]).status.code(), Some(1));
    }
}

#[test]
fn rows() {
    let output = run(&["compare", "--local", "127.0.0.1", "--v6", "::1"]);
    passes(&output);
    // Those that are not of ZRS alone.
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let ok = text.lines().filter(|line| line.starts_with("ok - "));
    assert_eq!(ok.count(), 14, "{text}");
    // No preload carries them here.
    let output = run(&[
        "compare",
        "--local",
        "127.0.0.1",
        "--v6",
        "::1",
        "--preload",
    ]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let by_tcp = text.matches("a connection was made by TCP");
    assert_eq!(by_tcp.count(), 14, "{text}");
}
