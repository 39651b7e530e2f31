// SPDX-License-Identifier: GPL-2.0
//! The module: its file and signature, its parameters and counters.

use super::*;

#[test]
fn the_module_that_is_installed() {
    let checks = well()
        .command("modinfo -F vermagic zrs", "7.3.5+deb13-amd64 SMP\n")
        .examine();
    only(
        &checks,
        "module file",
        Failure,
        "was built for 7.3.5+deb13-amd64",
    );
    let none = || well().without_program("modinfo -F filename zrs");
    only(&none().examine(), "module file", Warning, "not installed");
    let checks = none().unloaded().examine();
    has(&checks, "module file", Failure, "no zrs.ko");
    has(
        &checks,
        "build tools",
        Status::Ok,
        "rustc 1.85.0, bindgen 0.71.1, Rust metadata",
    );
    let checks = none()
        .unloaded()
        .command("rustc --version", "rustc 1.96.1\n")
        .examine();
    has(&checks, "build tools", Warning, "rustc 1.96.1 cannot read");
    let checks = none().unloaded().without("/lib/modules").examine();
    has(&checks, "build tools", Warning, "no Rust metadata");
    // zrs-dkms makes it.
    let dkms = || {
        let mock = none().unloaded().without("/lib/modules");
        mock.file("/usr/src/zrs-0.1.0/dkms/check", "")
    };
    has(&dkms().examine(), "build tools", Status::Ok, "zrs-dkms");
    let checks = dkms()
        .command("rustc --version", "rustc 1.96.1\n")
        .examine();
    has(&checks, "build tools", Warning, "rustc 1.96.1 cannot read");
    let older = none()
        .unloaded()
        .command("bindgen --version", "bindgen 0.70.0\n");
    has(
        &older.examine(),
        "build tools",
        Warning,
        "bindgen 0.70.0 is not bindgen 0.71.1",
    );
    let checks = none().unloaded().without_program("rustc").examine();
    has(&checks, "build tools", Warning, "no rustc");
    let checks = none().unloaded().without_program("bindgen").examine();
    has(&checks, "build tools", Warning, "no bindgen");
    let checks = well().file("/sys/module/zrs/srcversion", "DEF\n").examine();
    only(&checks, "module", Warning, "not the one that is installed");
}

#[test]
fn signatures() {
    let locked = || {
        well().file(
            "/sys/kernel/security/lockdown",
            "none [integrity] confidentiality\n",
        )
    };
    has(
        &locked().examine(),
        "signature",
        Status::Ok,
        "has taken the module",
    );
    let locked = || locked().unloaded();
    has(&locked().examine(), "signature", Failure, "is not signed");
    let signed = || locked().command("modinfo -F signer zrs", "our key\n");
    has(&signed().examine(), "signature", Warning, "our key");
    let enrolled = signed().command("mokutil --list-enrolled", "Subject: CN=our key\n");
    has(&enrolled.examine(), "signature", Status::Ok, "is enrolled");
    let enforced = well()
        .unloaded()
        .without_program("modinfo")
        .file("/sys/module/module/parameters/sig_enforce", "Y\n");
    has(
        &enforced.examine(),
        "signature",
        Warning,
        "enforces signatures",
    );
    let boot = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c";
    let checks = well().file(boot, "\u{6}\0\0\0\u{1}").examine();
    has(&checks, "signature", Status::Ok, "Secure Boot is on");
}

#[test]
fn the_module_that_is_loaded() {
    let mut denied = well();
    denied.module = Err(13);
    has(&denied.examine(), "module", Failure, "ermission denied");
    let mut hidden = well();
    hidden.module = Err(2);
    has(&hidden.examine(), "module", Failure, "is loaded, but");
    let mut older = well();
    older.features = 1;
    only(&older.examine(), "module", Warning, "without: receive ring");
}

#[test]
fn parameters() {
    let value = |name: &str, value: &str| {
        let path = format!("/sys/module/zrs/parameters/{name}");
        well().file(&path, value).examine()
    };
    only(
        &value("service_port", "341\n"),
        "parameters",
        Warning,
        "service_port=341",
    );
    has(
        &value("blocks", "2048\n"),
        "parameters",
        Status::Ok,
        "blocks=2048; room for 32 links",
    );
    let conf = |text: &str| well().file("/etc/modprobe.d/zrs.conf", text).examine();
    let hidden = well()
        .file("/usr/lib/modprobe.d/zrs.conf", "install zrs ...\n")
        .file("/etc/modprobe.d/zrs.conf", "options zrs blocks=512\n");
    only(
        &hidden.examine(),
        "modprobe.d",
        Warning,
        "hides the package's",
    );
    only(
        &conf("options zrs pool_mb=64\n"),
        "modprobe.d",
        Warning,
        "no parameter pool_mb",
    );
    only(
        &conf("options zrs blocks=2048\n"),
        "modprobe.d",
        Warning,
        "blocks=2048 is not in effect: it is 512",
    );
    has(
        &conf("options zrs blocks=512\n"),
        "modprobe.d",
        Status::Ok,
        "blocks=512",
    );
    only(
        &conf("blacklist zrs\n"),
        "modprobe.d",
        Warning,
        "blacklists",
    );
    has(
        &conf("options rdma_rxe x=1\n"),
        "module",
        Status::Ok,
        "loaded",
    );
}

/// The names and defaults are the module's.
#[test]
fn parameters_are_the_modules() {
    let source = include_str!("../../../../../rust/params.rs");
    for (name, default) in PARAMS {
        let found = source
            .split(&format!("\"{name}\", "))
            .nth(1)
            .and_then(|rest| rest.split([',', '\n']).next());
        assert_eq!(found, Some(default), "{name}");
    }
}

#[test]
fn limits_are_the_modules() {
    let sources = [
        include_str!("../../../../../rust/proto/sizing.rs"),
        include_str!("../../../../../rust/pool.rs"),
    ];
    let source = sources.concat();
    let number = |name: &str| {
        let (_, rest) = source.split_once(&format!("const {name}: u32 = "))?;
        rest.split_once(';')?.0.parse::<u64>().ok()
    };
    let (limits, shared) = (
        crate::doctor::devices::LIMITS,
        crate::doctor::devices::SHARED,
    );
    let credit = PARAMS.iter().find(|(name, _)| *name == "link_credit");
    let credit = credit.and_then(|(_, n)| n.parse::<u64>().ok());
    for (limit, needed) in limits.into_iter().chain(shared) {
        let own = match limit {
            "max_sge" => number("MIN_SGE"),
            "max_srq_sge" => number("RECV_SGE"),
            // With the last work request of a link of memory nodes.
            "max_qp_wr" => number("SQ_DEPTH").map(|wrs| wrs + 1),
            "max_cqe" => credit
                .zip(number("SQ_DEPTH"))
                .map(|(credit, wrs)| credit + wrs + 2),
            "max_srq_wr" => credit,
            _ => continue,
        };
        assert_eq!(own, Some(needed), "{limit}");
    }
}

#[test]
fn counters() {
    let with = |set: fn(&mut Mock)| {
        let mut mock = well();
        set(&mut mock);
        mock.examine()
    };
    let checks = with(|m| m.cache.dry = 3);
    only(&checks, "counters", Warning, "dry 3");
    let checks = with(|m| m.cache.refused = 1);
    only(&checks, "counters", Warning, "refused 1");
    let checks = with(|m| m.cache.escape_failures = 1);
    only(&checks, "counters", Warning, "escape_failures 1");
    let checks = with(|m| {
        let stats = Stats {
            protocol_errors: 2,
            ..Default::default()
        };
        m.module = Ok(stats);
    });
    only(&checks, "counters", Warning, "protocol_errors 2");
}

#[test]
fn connects_by_tcp_are_explained() {
    let mut mock = well();
    mock.module = Ok(Stats {
        tcp_slow: 2,
        tcp_no_listener: 3,
        ..Default::default()
    });
    has(
        &mock.examine(),
        "fallback",
        Status::Ok,
        "5 connects used TCP: 3 no-listener (no program",
    );
}

#[test]
fn draining() {
    let mut mock = well().file("/sys/module/zrs/parameters/drain", "1\n");
    mock.socket = 93;
    let checks = mock.examine();
    only(&checks, "socket", Failure, "zrs drain is in effect");
}

/// The module's file says which versions of the protocol it speaks.
#[test]
fn the_wire_version_is_the_modules() {
    let source = include_str!("../../../../../rust/proto/wire.rs");
    let (_, rest) = source.split_once("pub const VERSION: u8 = ").unwrap();
    let (version, _) = rest.split_once(';').unwrap();
    let said = include_str!("../../../../../rust/helpers/kern.c");
    assert!(said.contains(&format!("MODULE_INFO(wire, \"{version}\");")));
}
