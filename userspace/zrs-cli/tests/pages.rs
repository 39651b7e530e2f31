// SPDX-License-Identifier: GPL-2.0
//! The manual pages have the options that the command has, and the completions know its commands.
// rows: B13

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

fn zrs(args: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_zrs"))
        .args(args)
        .output()
        .unwrap();
    assert!(output.status.success(), "zrs {args:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn pages() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Documentation/man")
}

/// The commands that `zrs --help` lists.
fn commands() -> Vec<String> {
    let help = zrs(&["--help"]);
    let (_, list) = help.split_once("\nCommands:\n").unwrap();
    let lines = list.lines().take_while(|l| l.starts_with("  "));
    // Lines that continue a description are indented further.
    let names = lines.filter(|l| !l.starts_with("   "));
    let first = names.filter_map(|l| l.split_whitespace().next());
    first.filter(|n| *n != "help").map(Into::into).collect()
}

/// The options that `--help` lists: "-v, --verbose".
fn helped(args: &[&str]) -> BTreeSet<String> {
    let help = zrs(&[args, &["--help"]].concat());
    // The text above the options is not indented.
    let lines = help.lines().filter(|l| l.starts_with("  ")).map(str::trim);
    let lines = lines.filter(|l| l.starts_with('-'));
    let words = lines.flat_map(|l| l.split_whitespace().take(2).map(str::to_string));
    let options = words.map(|w| w.trim_end_matches([',', '.']).to_string());
    // Neither "[<SECONDS>]" nor the dashes before possible values.
    options
        .filter(|w| w.starts_with('-') && w.len() > 1)
        .collect()
}

/// The options that a page or a part of it describes: ".It Fl -verbose , Fl v Ar x".
fn described(text: &str) -> BTreeSet<String> {
    let lines = text.lines().filter_map(|l| l.strip_prefix(".It Fl "));
    lines
        .flat_map(|l| l.split(" Fl ").filter_map(|o| o.split_whitespace().next()))
        .map(|o| format!("-{o}"))
        .collect()
}

/// A page's file, without the indirection of ".so man1/zrs-send.1".
fn page(name: &str) -> Option<PathBuf> {
    let files = [1, 8].map(|section| pages().join(format!("{name}.{section}")));
    let file = files.into_iter().find(|f| f.exists())?;
    let text = fs::read_to_string(&file).unwrap();
    match text.trim().strip_prefix(".so ") {
        Some(other) => Some(pages().join(Path::new(other).file_name().unwrap())),
        None => Some(file),
    }
}

#[test]
fn the_commands_are_there() {
    let commands = commands();
    assert!(commands.len() >= 11, "{commands:?}");
    let main = fs::read_to_string(pages().join("zrs.8")).unwrap();
    for c in commands {
        let listed = main
            .lines()
            .filter_map(|l| l.strip_prefix(".It Cm "))
            .any(|l| l.split(" , Cm ").any(|name| name == c));
        assert!(listed, "zrs(8) does not list {c}");
    }
}

#[test]
fn options_are_the_pages() {
    let main = fs::read_to_string(pages().join("zrs.8")).unwrap();
    let mut by_page: BTreeMap<PathBuf, BTreeSet<String>> = BTreeMap::new();
    for c in commands() {
        let file = page(&format!("zrs-{c}")).unwrap_or_else(|| panic!("{c} has no page"));
        by_page.entry(file).or_default().extend(helped(&[&c]));
    }
    assert!(by_page.len() > 5);
    for (file, options) in by_page {
        let text = fs::read_to_string(&file).unwrap();
        assert_eq!(described(&text), options, "{}", file.display());
    }
    assert_eq!(described(&main), helped(&[]), "zrs");
}

#[test]
fn pages_begin_as_pages_do() {
    let mut n = 0;
    for entry in fs::read_dir(pages()).unwrap() {
        let file = entry.unwrap().path();
        let text = fs::read_to_string(&file).unwrap();
        if text.starts_with(".so ") {
            continue;
        }
        let name = file.file_stem().unwrap().to_str().unwrap();
        let section = file.extension().unwrap().to_str().unwrap();
        let title = format!("\n.Dt {} {section}\n", name.to_uppercase());
        assert!(text.contains(&title), "{}", file.display());
        assert!(
            text.contains(&format!("\n.Nm {name}")),
            "{}",
            file.display()
        );
        assert!(text.contains("\n.Sh SEE ALSO\n"), "{}", file.display());
        n += 1;
    }
    assert!(n >= 10);
}

/// References among our own pages lead somewhere.
#[test]
fn references() {
    for entry in fs::read_dir(pages()).unwrap() {
        let text = fs::read_to_string(entry.unwrap().path()).unwrap();
        let words: Vec<_> = text.split_whitespace().collect();
        for three in words.windows(3).filter(|w| matches!(w[0], ".Xr" | "Xr")) {
            if three[1].contains("zrs") {
                let file = format!("{}.{}", three[1], three[2]);
                assert!(pages().join(&file).exists(), "{file}");
            }
        }
    }
}

/// Where there is a mandoc.
#[test]
fn mandoc_has_nothing_to_say() {
    for entry in fs::read_dir(pages()).unwrap() {
        let file = entry.unwrap().path();
        let lint = Command::new("mandoc")
            .args(["-T", "lint", "-W", "warning"])
            .arg(&file)
            .output();
        match lint {
            Err(e) if e.kind() == ErrorKind::NotFound => return,
            result => {
                let said = String::from_utf8_lossy(&result.unwrap().stdout).into_owned();
                let is_link = fs::read_to_string(&file).unwrap().starts_with(".so ");
                assert!(said.is_empty() || is_link, "{said}");
            }
        }
    }
}

#[test]
fn completions_know_the_commands() {
    for shell in ["bash", "zsh", "fish"] {
        let text = zrs(&["completions", shell]);
        for c in commands() {
            assert!(text.contains(&c), "{shell}: {c}");
        }
        assert!(text.contains("prometheus"), "{shell}");
    }
    let wrong = Command::new(env!("CARGO_BIN_EXE_zrs"))
        .args(["completions", "csh"])
        .output()
        .unwrap();
    assert_eq!(wrong.status.code(), Some(2));
}

/// A shell that is there can read what is made for it.
#[test]
fn bash_reads_its_completions() {
    let script = Path::new(env!("CARGO_TARGET_TMPDIR")).join("completions.bash");
    fs::write(&script, zrs(&["completions", "bash"])).unwrap();
    match Command::new("bash").arg("-n").arg(&script).status() {
        Err(e) if e.kind() == ErrorKind::NotFound => {}
        status => assert!(status.unwrap().success()),
    }
}
