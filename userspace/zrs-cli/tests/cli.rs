// SPDX-License-Identifier: GPL-2.0
//! The command as a user sees it: arguments, messages, exit codes, and whole transfers over TCP.
// rows: B10 Z1

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

fn zrs() -> Command {
    Command::new(env!("CARGO_BIN_EXE_zrs"))
}

fn run(args: &[&str]) -> Output {
    zrs().args(args).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn scratch(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// Starts a listening command and returns it with the address that it tells, and its stderr.
fn listening(args: &[&str]) -> (Child, String, impl Read) {
    let mut child = zrs()
        .args(args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    stderr.read_line(&mut line).unwrap();
    let addr = line
        .strip_prefix("listening on ")
        .expect(&line)
        .trim()
        .to_string();
    (child, addr, stderr)
}

fn last_json(output: &Output) -> serde_json::Value {
    let stdout = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(stdout.lines().last().expect("no output")).unwrap()
}

#[test]
fn wrong_arguments_exit_2() {
    for args in [
        &[][..],
        &["nonsense"],
        &["send"],
        &["send", "file"],
        &["recv", "--listen", "127.0.0.1:0"],
        &[
            "recv",
            "--listen",
            "127.0.0.1:0",
            "--output",
            "x",
            "--discard",
        ],
        &[
            "recv",
            "--listen",
            "127.0.0.1:0",
            "--output",
            "x",
            "--transport",
            "pigeon",
        ],
        &["ping"],
        &["ping", "127.0.0.1:1", "--listen", "127.0.0.1:1"],
        &["ping", "127.0.0.1:1", "-s", "0"],
        &["ping", "127.0.0.1:1", "-i", "-1"],
        &["pool", "--watch", "0"],
        &["pool", "--watch", "soon"],
    ] {
        assert_eq!(run(args).status.code(), Some(2), "zrs {args:?}");
    }
}

#[test]
fn help_tells_what_is_timed() {
    for command in ["send", "recv"] {
        let help = run(&[command, "--help"]);
        assert!(help.status.success());
        assert!(String::from_utf8_lossy(&help.stdout).contains("timed part"));
    }
}

#[test]
fn errors_are_sentences_and_exit_1() {
    let missing = run(&["send", "/nonexistent", "127.0.0.1:1"]);
    assert_eq!(missing.status.code(), Some(1));
    assert_eq!(
        stderr(&missing),
        "zrs: cannot open /nonexistent: no such file or directory\n"
    );

    let dir = run(&["send", "/", "127.0.0.1:1"]);
    assert_eq!(stderr(&dir), "zrs: / is not a regular file\n");

    let listen = ["recv", "--listen", "[::1]:7000", "--discard"];
    let v6 = run(&[&listen[..], &["--transport", "rsockets"]].concat());
    assert_eq!(v6.status.code(), Some(1));
    assert!(stderr(&v6).contains("IPv4"), "{}", stderr(&v6));

    // A port that was free a moment ago.
    let addr = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let file = scratch("refused.in");
    std::fs::write(&file, "x").unwrap();
    let refused = run(&[
        "send",
        file.to_str().unwrap(),
        &addr.to_string(),
        "--transport",
        "tcp",
    ]);
    assert_eq!(refused.status.code(), Some(1));
    assert_eq!(
        stderr(&refused),
        format!(
            "zrs: cannot connect to {addr}: connection refused; is a receiver listening there?\n"
        )
    );
}

#[test]
fn without_the_module_it_says_so() {
    if Path::new("/dev/zrs").exists() {
        return;
    }
    for args in [
        &["ss"][..],
        &["pool"],
        &["pool", "--watch"],
        &["links"],
        &["stats", "--json"],
    ] {
        let output = run(args);
        assert_eq!(output.status.code(), Some(1));
        assert!(
            stderr(&output).contains("sudo modprobe zrs"),
            "{}",
            stderr(&output)
        );
    }
    let output = run(&["recv", "--listen", "127.0.0.1:0", "--discard"]);
    assert!(
        stderr(&output).starts_with("zrs: cannot make a ZRS socket: "),
        "{}",
        stderr(&output)
    );
}

/// Sends `len` bytes over TCP and checks both reports and the file.
fn transfer(name: &str, len: usize) {
    let (from, to) = (
        scratch(&format!("{name}.in")),
        scratch(&format!("{name}.out")),
    );
    let data: Vec<u8> = (0..len as u32)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    std::fs::write(&from, &data).unwrap();
    let (receiver, addr, _stderr) = listening(&[
        "recv",
        "--listen",
        "127.0.0.1:0",
        "--output",
        to.to_str().unwrap(),
        "--json",
        "--transport",
        "tcp",
    ]);
    let sent = run(&[
        "send",
        from.to_str().unwrap(),
        &addr,
        "--json",
        "--transport",
        "tcp",
    ]);
    let received = receiver.wait_with_output().unwrap();
    assert!(sent.status.success(), "{}", stderr(&sent));
    assert!(received.status.success());
    let (sent, received) = (last_json(&sent), last_json(&received));
    assert_eq!(sent["bytes"], len);
    assert_eq!(received["bytes"], len);
    assert_eq!(sent["sha256"], received["sha256"]);
    assert_eq!(sent["sha256"].as_str().unwrap().len(), 64);
    assert!(sent["tx_copied"].is_null() && received["rx_copied"].is_null());
    assert!(std::fs::read(&to).unwrap() == data, "the files differ");
}

#[test]
fn files_cross_over_tcp() {
    for (name, len) in [("empty", 0), ("one", 1), ("large", (5 << 20) + 77)] {
        transfer(name, len);
    }
}

#[test]
fn progress_is_lines_without_a_terminal() {
    let from = scratch("progress.in");
    std::fs::write(&from, vec![7; 12 << 20]).unwrap();
    let (receiver, addr, _stderr) = listening(&[
        "recv",
        "--listen",
        "127.0.0.1:0",
        "--discard",
        "--transport",
        "tcp",
    ]);
    let sent = run(&["send", from.to_str().unwrap(), &addr, "--transport", "tcp"]);
    assert!(
        stderr(&sent).contains("100% 12582912 of 12582912 bytes\n"),
        "{}",
        stderr(&sent)
    );
    assert!(!stderr(&sent).contains('\r'));
    let received = receiver.wait_with_output().unwrap();
    assert!(String::from_utf8_lossy(&received.stdout).starts_with("received 12582912 bytes in "));
}

#[test]
fn stdout_gets_the_file_alone() {
    let from = scratch("stdout.in");
    std::fs::write(&from, b"the file").unwrap();
    let (receiver, addr, mut rest) = listening(&[
        "recv",
        "--listen",
        "127.0.0.1:0",
        "--output",
        "-",
        "--json",
        "--transport",
        "tcp",
    ]);
    assert!(
        run(&["send", from.to_str().unwrap(), &addr, "--transport", "tcp"])
            .status
            .success()
    );
    assert_eq!(receiver.wait_with_output().unwrap().stdout, b"the file");
    let mut json = String::new();
    rest.read_to_string(&mut json).unwrap();
    let json: serde_json::Value = serde_json::from_str(json.lines().last().unwrap()).unwrap();
    assert_eq!(json["bytes"], 8);
}

#[test]
fn ping_over_tcp() {
    let (mut echo, addr, _stderr) =
        listening(&["ping", "--listen", "127.0.0.1:0", "--transport", "tcp"]);
    let common = ["ping", &addr, "--transport", "tcp", "-c", "3", "-i", "0.01"];
    let text = run(&common);
    let json = run(&[&common[..], &["-s", "200000", "--json"]].concat());
    echo.kill().unwrap();
    echo.wait().unwrap();
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(
        text.contains(": seq=3 time=") && text.contains("3 sent, 3 received"),
        "{text}"
    );
    assert!(text.contains("rtt min/avg/max = "), "{text}");
    assert_eq!(last_json(&json)["received"], 3);
}
