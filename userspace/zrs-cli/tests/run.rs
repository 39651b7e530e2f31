// SPDX-License-Identifier: GPL-2.0
//! `zrs run`: options that are not as they should be. (What it does is `tests/selftests/run`.)
// rows: Z1

use std::process::Command;

#[test]
fn wrong_options_are_named() {
    for (option, value, why) in [
        ("--tcp-port", "0", "'0' is not a port from 1 to 65535"),
        ("--tcp-port", "90-80", "'90-80' ends before it begins"),
        ("--only-port", "22,http", "'http' is not a port"),
        (
            "--tcp-net",
            "10.0.0.0/33",
            "'33' is not a length from 0 to 32",
        ),
        ("--only-net", "host", "'host' is not an address"),
        ("--tcp", "on", "'on' is not never, auto, required or only"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_zrs"))
            .args(["run", option, value, "--", "true"])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{option} {value}: {said}");
        assert!(said.contains(why), "{option} {value}: {said}");
    }
}

#[test]
fn a_program_is_needed() {
    let output = Command::new(env!("CARGO_BIN_EXE_zrs"))
        .args(["run", "--verbose"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
}
