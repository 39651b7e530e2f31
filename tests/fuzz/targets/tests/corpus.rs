// SPDX-License-Identifier: GPL-2.0

//! The fuzz targets on the kept inputs and on random ones. An input that fails is written to a
//! file, and can be kept in `corpus/` when what it shows is mended.
//!
//! `FUZZ_RUNS=n` takes n random inputs for each target, `SEED=n` others than usually.

use std::panic::catch_unwind;
use std::path::Path;

use zrs_fuzz_targets::{Target, TARGETS};

fn number(name: &str, usual: u64) -> u64 {
    let value = std::env::var(name).ok().filter(|v| !v.is_empty());
    value.map_or(usual, |v| v.parse().expect("a number"))
}

fn run(name: &str, target: Target, data: &[u8], from: &str) {
    if catch_unwind(|| target(data)).is_ok() {
        return;
    }
    let path = std::env::temp_dir().join(format!("zrs-fuzz-{name}"));
    let kept = std::fs::write(&path, data);
    panic!("{name}: fails on {from}; kept in {path:?}: {kept:?}");
}

fn kept_inputs(name: &str, target: Target) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpus")
        .join(name);
    let mut count = 0;
    for entry in std::fs::read_dir(&dir).expect("the corpus") {
        let path = entry.expect("an entry").path();
        let data = std::fs::read(&path).expect("an input");
        run(name, target, &data, &path.display().to_string());
        count += 1;
        if cfg!(miri) && count >= 5 {
            break;
        }
    }
    assert!(count > 0, "{dir:?} is empty");
}

/// splitmix64.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }
}

fn random_inputs(name: &str, target: Target) {
    let seed = number("SEED", 1);
    let runs = number("FUZZ_RUNS", if cfg!(miri) { 5 } else { 20_000 });
    for n in 0..runs {
        let mut rng = Rng(seed.wrapping_mul(1 << 32).wrapping_add(n));
        let most = [20, 200, 1500][(rng.next() % 3) as usize];
        let len = rng.next() % most;
        let data: Vec<u8> = (0..len).map(|_| rng.next() as u8).collect();
        run(
            name,
            target,
            &data,
            &format!("random input {n}, SEED={seed}"),
        );
    }
}

fn target(name: &str) {
    let (name, target) = TARGETS.iter().find(|t| t.0 == name).expect("a target");
    kept_inputs(name, *target);
    random_inputs(name, *target);
}

// rows: B11 L2
#[test]
fn wire() {
    target("wire");
}

// rows: Z5 Z6 C3 C4 B9 B11
#[test]
fn channel() {
    target("channel");
}

// rows: Z5 L2 B11
#[test]
fn link_table() {
    target("link_table");
}

// rows: B3 B11
#[test]
fn ring() {
    target("ring");
}

// rows: M1 M4 B11
#[test]
fn mem_wire() {
    target("mem_wire");
}

// rows: Z7 B11
#[test]
fn dgram() {
    target("dgram");
}
