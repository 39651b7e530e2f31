// SPDX-License-Identifier: GPL-2.0
//! Compiles the C part, and links the libraries that it calls.

fn main() {
    println!("cargo::rerun-if-changed=src/verbs.c");
    cc::Build::new()
        .file("src/verbs.c")
        .warnings(true)
        .compile("zrs_hostile_verbs");
    println!("cargo::rustc-link-lib=rdmacm");
    println!("cargo::rustc-link-lib=ibverbs");
}
