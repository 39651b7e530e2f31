// SPDX-License-Identifier: GPL-2.0
//! `zrs bench` as a user sees it: both ends, over TCP on this machine.
// rows: B13

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

/// A server, ended with the test.
struct Server(Child, String);

impl Server {
    fn start() -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_zrs"))
            .args(["bench", "--server", "127.0.0.1:0"])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let stderr = child.stderr.take().unwrap();
        BufReader::new(stderr).read_line(&mut line).unwrap();
        let addr = line.strip_prefix("listening on ").expect(&line).trim();
        let addr = addr.to_string();
        Self(child, addr)
    }

    fn client(&self, args: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_zrs"))
            .args(["bench", "--client", &self.1, "--seconds", "0.01", "--json"])
            .args(args)
            .output()
            .unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn samples(output: &Output) -> Vec<Value> {
    let stdout = String::from_utf8_lossy(&output.stdout);
    let last: Value = serde_json::from_str(stdout.lines().last().expect("no output")).unwrap();
    last["samples"].as_array().unwrap().clone()
}

#[test]
fn every_measure_over_tcp() {
    let server = Server::start();
    let output = server.client(&[
        "--carriers",
        "tcp,tcp-spin",
        "--sizes",
        "1,100k",
        "--rounds",
        "2",
        "--messages",
        "20",
        "--connections",
        "20",
    ]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let samples = samples(&output);
    // Four measures of streams, two modes of round trips and exchanges, of two sizes; nine of connections.
    assert_eq!(samples.len(), 2 * (2 * (4 + 2 + 1) + 9), "{stderr}");
    for sample in &samples {
        let names: &[&str] = match sample["measure"].as_str().unwrap() {
            "throughput" | "both-ways" | "nonblocking" | "cost" => &["mib_s"],
            "latency" => &["median_us"],
            "connect" | "exchange" | "epoll-echo" => &["per_s"],
            "rate" => &["per_s_1_1", "per_s_4_1", "per_s_1_16", "per_s_4_16"],
            "hold" => &["held_ratio"],
            "fair" => &["p99_ratio"],
            "mixed" => &["alone_median_us", "beside_p99_us", "bulk_ratio"],
            "uploads" => &["sum_17_mib_s", "sum_32_mib_s", "sum_64_mib_s"],
            "pool" => &["ratio_16"],
            // Other programs of this machine take and give memory, too.
            "memory" => continue,
            other => panic!("{other}"),
        };
        let value = |name: &str| sample["values"][name].as_f64().unwrap();
        assert!(names.iter().all(|name| value(name) > 0.0), "{sample}");
        match sample["measure"].as_str().unwrap() {
            "uploads" => assert!((0.0..=1.0).contains(&value("ratio_64")), "{sample}"),
            "mixed" => assert!(value("beside_p99_us") >= value("beside_median_us")),
            "hold" => assert_eq!(value("idle"), 50.0 * 20.0),
            _ => {}
        }
    }
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(stdout.contains("100 Ki") && stdout.contains("latency, us"));
}

#[test]
fn datagrams_by_udp() {
    let server = Server::start();
    let output = server.client(&[
        "--carriers",
        "udp",
        "--sizes",
        "1,64,2000,100k",
        "--rounds",
        "1",
        "--messages",
        "20",
    ]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let samples = samples(&output);
    // Two sizes are none of datagrams; the flood has its own.
    assert_eq!(samples.len(), 2 + 2 + 1, "{stderr}");
    for sample in &samples {
        let names: &[&str] = match sample["measure"].as_str().unwrap() {
            "dgram-latency" => &["median_us", "p99_us"],
            "dgram-rate" => &["mib_s", "per_s", "sent_mib_s"],
            "dgram-flood" => &["beside_ratio", "sent_per_s", "arrived_per_s"],
            other => panic!("{other}"),
        };
        let value = |name: &str| sample["values"][name].as_f64().unwrap();
        assert!(names.iter().all(|name| value(name) > 0.0), "{sample}");
        if sample["measure"] == "dgram-rate" {
            assert!((0.0..1.0).contains(&value("lost")), "{sample}");
        }
    }
}

#[test]
fn the_plain_route_is_another_one() {
    let server = Server::start();
    let args = ["--carriers", "tcp-plain", "--only", "rate", "--rounds", "1"];
    let output = server.client(&args);
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("give --plain HOST"), "{stderr}");
    let output = server.client(&[&args[..], &["--plain", &server.1]].concat());
    let samples = samples(&output);
    assert_eq!(samples.len(), 1);
    assert_eq!(samples[0]["carrier"], "tcp-plain");
}

#[test]
fn too_many_connections_are_said() {
    let server = Server::start();
    let output = Command::new("sh")
        .args(["-c", "ulimit -n 256; exec \"$@\"", "sh"])
        .arg(env!("CARGO_BIN_EXE_zrs"))
        .args(["bench", "--client", &server.1, "--seconds", "0.01"])
        .args(["--carriers", "tcp", "--only", "hold", "--rounds", "1"])
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr.contains("50064 descriptors are needed, the limit is 256: raise it"),
        "{stderr}"
    );
}

#[test]
fn fixed_counts_are_kept() {
    let server = Server::start();
    let output = server.client(&[
        "--carriers",
        "tcp",
        "--only",
        "cost",
        "--sizes",
        "4k",
        "--messages",
        "37",
        "--rounds",
        "1",
    ]);
    let samples = samples(&output);
    assert_eq!(samples[0]["values"]["messages"], 37.0);
    assert_eq!(samples[0]["values"]["bytes"], 37.0 * 4096.0);
}

#[test]
fn what_cannot_be_measured_is_said_and_left_out() {
    let server = Server::start();
    // There is no RDMA device with this address.
    let args = [
        "--carriers",
        "verbs,tcp",
        "--only",
        "throughput",
        "--sizes",
        "64",
    ];
    let output = server.client(&args);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert!(
        stderr.contains("throughput verbs 64 is left out in round 1: the server: no RDMA device"),
        "{stderr}"
    );
    assert!(samples(&output).iter().all(|s| s["carrier"] == "tcp"));
    let output = server.client(&["--carriers", "verbs", "--only", "latency", "--sizes", "64"]);
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn a_server_survives_nonsense() {
    let server = Server::start();
    for bad in [
        "hello\n",
        "{\"measure\":\"latency\",\"carrier\":\"tcp\",\"size\":0,\"count\":1,\"connections\":1}\n",
    ] {
        let mut stream = TcpStream::connect(&server.1).unwrap();
        stream.write_all(bad.as_bytes()).unwrap();
        drop(stream);
    }
    let args = [
        "--carriers",
        "tcp",
        "--only",
        "latency",
        "--sizes",
        "64",
        "--rounds",
        "1",
    ];
    assert!(server.client(&args).status.success());
}

#[test]
fn no_server_is_said() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = free.local_addr().unwrap().to_string();
    drop(free);
    let output = Command::new(env!("CARGO_BIN_EXE_zrs"))
        .args(["bench", "--client", &addr])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        stderr.contains("does zrs bench --server run there?"),
        "{stderr}"
    );
}
