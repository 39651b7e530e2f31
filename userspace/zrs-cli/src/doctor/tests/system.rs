// SPDX-License-Identifier: GPL-2.0
//! The kernel, its packages, the machine's settings and memory.

use super::*;

#[test]
fn the_kernel() {
    let kernel = |release: &str| {
        let all = well().file("/proc/sys/kernel/osrelease", release).examine();
        all.into_iter().next().unwrap()
    };
    assert_eq!(kernel("7.2.12-amd64").status, Status::Ok);
    for (release, status) in [
        ("7.4.0-rc1", Warning),
        ("8.0", Warning),
        ("7.1.9", Failure),
        ("6.12.48+deb13-amd64", Failure),
        ("nonsense", Failure),
    ] {
        assert_eq!(kernel(release).status, status, "{release}");
    }
}

#[test]
fn packages_are_named_where_there_are_some() {
    let remedy = |release: &str| {
        let system = well().unloaded().without_program("modinfo -F filename zrs");
        let all = system.file("/proc/sys/kernel/osrelease", release).examine();
        let file = all.into_iter().find(|c| c.name == "module file").unwrap();
        assert_eq!(file.status, Failure, "{release}");
        file.remedy
    };
    assert!(remedy("7.2.12-amd64").contains("zrs-modules-7.2.12-amd64"));
    let old = remedy("6.12.48+deb13-amd64");
    assert!(!old.contains("zrs-modules-") && old.contains("boot a supported kernel"));
}

#[test]
fn the_configuration() {
    let release = "7.3.4+deb13-amd64";
    let config = format!("/boot/config-{release}");
    let unloaded = || well().unloaded();
    let checks = unloaded()
        .file(
            &config,
            "# CONFIG_RUST is not set\nCONFIG_IPV6=m\nCONFIG_INFINIBAND_ADDR_TRANS=y\n",
        )
        .examine();
    has(
        &checks,
        "kernel config",
        Failure,
        "CONFIG_RUST, CONFIG_IPV6, CONFIG_CONTIG_ALLOC is not set",
    );
    let checks = unloaded().without(&config).examine();
    has(&checks, "kernel config", Warning, "no configuration");
    let checks = unloaded()
        .without(&config)
        .command("zcat /proc/config.gz", "CONFIG_RUST=y\n")
        .examine();
    has(&checks, "kernel config", Failure, "CONFIG_IPV6");
}

#[test]
fn a_replaced_stack() {
    let taint = well().file("/sys/module/rdma_cm/taint", "OE\n");
    only(
        &taint.examine(),
        "RDMA stack",
        Failure,
        "rdma_cm is not the kernel's own",
    );
    let compat = well().file("/sys/module/mlx_compat/taint", "OE\n");
    only(&compat.examine(), "RDMA stack", Failure, "mlx_compat");
    let path = "/lib/modules/7.3.4/updates/dkms/ib_core.ko\n";
    let updates = well().command("modinfo -F filename ib_core", path);
    only(&updates.examine(), "RDMA stack", Failure, "updates");
    let path = "/lib/modules/7.3.4/extra/rdma_cm.ko\n";
    let extra = well().command("modinfo -F filename rdma_cm", path);
    only(
        &extra.examine(),
        "RDMA stack",
        Failure,
        "the kernel's own rdma_cm",
    );
    let path = "/lib/modules/7.3.4/kernel/mlx_compat.ko\n";
    let compat = well().command("modinfo -F filename mlx_compat", path);
    only(
        &compat.examine(),
        "RDMA stack",
        Failure,
        "mlx_compat.ko is installed",
    );
    let source = well().file("/usr/src/ofa_kernel/default/Module.symvers", "");
    only(&source.examine(), "RDMA stack", Warning, "ofa_kernel");
}

#[test]
fn memory() {
    let mut none = well();
    none.socket = 12;
    only(&none.examine(), "socket", Failure, "annot allocate memory");
    let mut huge = well();
    huge.cache.bytes = 64 << 20;
    only(
        &huge.examine(),
        "pools",
        Warning,
        "64 MiB in a cache of 32 MiB",
    );
    let little = well()
        .unloaded()
        .file("/proc/meminfo", "MemAvailable: 40000 kB\n");
    has(
        &little.examine(),
        "memory",
        Warning,
        "39 MiB are available; a receive pool",
    );
    let limit = |bytes: &str| {
        let text = format!("Max locked memory         {bytes}              {bytes}    bytes\n");
        well().file("/proc/self/limits", &text)
    };
    only(
        &limit("0").examine(),
        "locked memory",
        Warning,
        "is 0 bytes",
    );
    only(
        &limit("65536").examine(),
        "locked memory",
        Warning,
        "is 65536 bytes",
    );
    has(
        &limit("unlimited").examine(),
        "locked memory",
        Status::Ok,
        "unlimited",
    );
    let mut root = limit("0");
    root.root = true;
    has(
        &root.examine(),
        "locked memory",
        Status::Ok,
        "does not bind root",
    );
}

#[test]
fn the_bpf_program() {
    let text = |mock: Mock, text: &str| has(&mock.examine(), "zrs bpf", Status::Ok, text);
    text(well(), "only root sees");
    let mut root = well();
    root.root = true;
    text(root, "not loaded; only");
    text(
        well().file("/sys/fs/bpf/zrs/link", ""),
        "its program is loaded",
    );
    text(well().without("/sys/kernel/btf"), "the kernel has no BTF");
    let config = "/boot/config-7.3.4+deb13-amd64";
    text(well().file(config, "CONFIG_RUST=y\n"), "CONFIG_MPTCP");
}
