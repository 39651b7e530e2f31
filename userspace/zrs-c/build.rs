// SPDX-License-Identifier: GPL-2.0
//! Gives the shared library the name that programs are to load. A change that breaks them raises
//! it.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libzrs.so.0");
}
