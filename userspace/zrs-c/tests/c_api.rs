// SPDX-License-Identifier: GPL-2.0
//! The header compiles as C and C++, its structures have the library's layout, and a program
//! compiled with it gets the documented results.
// rows: B13

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::mem::{offset_of, size_of};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use zrs_c::ffi::mem::{zrs_mem_done, zrs_mem_op, zrs_mem_request, zrs_mem_scope, zrs_storage};
use zrs_c::ffi::{zrs_completion, zrs_segment};

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn scratch(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// Runs a compiler, `CC` or its like; false if it is not there.
fn compiles(variable: &str, default: &str, args: &[&OsStr]) -> bool {
    let compiler = env::var(variable).unwrap_or_else(|_| default.into());
    let mut command = Command::new(&compiler);
    command.args(["-Wall", "-Wextra", "-Werror", "-pedantic", "-I"]);
    command.arg(here("include")).args(args);
    match command.status() {
        Ok(status) => {
            assert!(status.success(), "{command:?}");
            true
        }
        Err(e) if e.kind() == ErrorKind::NotFound => false,
        Err(e) => panic!("{compiler}: {e}"),
    }
}

fn source(name: &str, text: &str) -> PathBuf {
    let path = scratch(name);
    fs::write(&path, text).unwrap();
    path
}

const CHECK_ONLY: &str = "-fsyntax-only";

#[test]
fn it_is_c() {
    let source = source("alone.c", "#include <zrs/zrs.h>\n#include <zrs/zrs.h>\n");
    let args = ["-std=c11".as_ref(), CHECK_ONLY.as_ref(), source.as_os_str()];
    assert!(compiles("CC", "cc", &args), "no C compiler");
}

#[test]
fn it_is_cpp() {
    let text = "#include <zrs/zrs.h>\nauto *function = &zrs_rx_open;\n";
    let source = source("alone.cpp", text);
    let args = [
        "-std=c++17".as_ref(),
        CHECK_ONLY.as_ref(),
        source.as_os_str(),
    ];
    if !compiles("CXX", "c++", &args) {
        println!("skipped: no C++ compiler");
    }
}

macro_rules! layout {
    ($($s:ident { $($field:ident)* })*) => {{
        let mut text = String::from("#include <zrs/zrs.h>\n");
        $(
            let name = stringify!($s);
            text += &format!("_Static_assert(sizeof(struct {name}) == {}, \"\");\n", size_of::<$s>());
            $(text += &format!(
                "_Static_assert(offsetof(struct {name}, {}) == {}, \"\");\n",
                stringify!($field),
                offset_of!($s, $field),
            );)*
        )*
        text
    }};
}

#[test]
fn structures_are_the_same() {
    let text = layout! {
        zrs_segment { data len held copied reserved }
        zrs_completion { first last copied reserved }
        zrs_storage { domain node va len region gen secret }
        zrs_mem_request { domain node len va flags ttl_ms admission }
        zrs_mem_scope { rights uses off len ttl_ms reserved }
        zrs_mem_op { op flags reserved0 region from reserved1 off from_off len id reserved2 }
        zrs_mem_done { id result landed flags reserved }
    };
    let source = source("structures.c", &text);
    // Without holes, all fields must have been named here.
    let args = ["-Wpadded".as_ref(), CHECK_ONLY.as_ref(), source.as_os_str()];
    assert!(compiles("CC", "cc", &args), "no C compiler");
}

/// Compiles `tests/calls.c` with a library, and runs it.
fn calls(name: &str, library: &Path) {
    let (source, program) = (here("tests/calls.c"), scratch(name));
    let args = [
        "-o".as_ref(),
        program.as_os_str(),
        source.as_os_str(),
        library.as_os_str(),
    ];
    assert!(compiles("CC", "cc", &args), "no C compiler");
    let mut command = Command::new(&program);
    // Not the library that is installed, or was built before.
    command.env("LD_LIBRARY_PATH", env!("CARGO_TARGET_TMPDIR"));
    let done = command.output().unwrap();
    let text = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{}\n{text}", done.status);
}

/// Where cargo has put the libraries that it built for this test.
fn built(name: &str) -> PathBuf {
    env::current_exe().unwrap().with_file_name(name)
}

#[test]
fn calls_from_c_to_the_shared_library() {
    // By the name that it says it has.
    let library = scratch("libzrs.so.0");
    let _ = fs::remove_file(&library);
    symlink(built("libzrs_c.so"), &library).unwrap();
    calls("calls", &library);
}

#[test]
fn calls_from_c_to_the_static_library() {
    calls("calls-static", &built("libzrs_c.a"));
}
