// SPDX-License-Identifier: GPL-2.0
//! The corpus in the repository can be read, and has every call of the description.
// rows: B11

use std::path::Path;
use std::process::Command;

#[test]
fn it_has_every_call() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../corpus");
    let output = Command::new(env!("CARGO_BIN_EXE_zrs-fuzz"))
        .arg("check")
        .arg(corpus)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}
