// SPDX-License-Identifier: GPL-2.0
//! Each check on a machine that is well, and with one thing broken.
// rows: B8 B13

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use clap::Parser;
use zrs::{Cache, Escape, LinkState, Pool, Stats, Version};

use super::module::PARAMS;
use super::system::{At, Attempt, MemNode, Module, Output, System};
use super::*;

/// A machine of files and commands; the module is loaded unless `module` says which error opening
/// /dev/zrs is.
struct Mock {
    files: BTreeMap<String, String>,
    /// Output by command line. A command with empty output fails, one without an entry is not
    /// installed.
    commands: BTreeMap<&'static str, String>,
    module: Result<Stats, i32>,
    version: u32,
    features: u64,
    pool: Option<&'static str>,
    cache: Cache,
    unfit: Vec<zrs::Unfit>,
    socket: i32,
    /// The errno of connect(), and the state of the link then.
    connect: (i32, Option<LinkState>),
    nodes: Vec<MemNode>,
    preload: crate::Result<String>,
    root: bool,
}

fn errno(n: i32) -> io::Result<()> {
    match n {
        0 => Ok(()),
        n => Err(io::Error::from_raw_os_error(n)),
    }
}

impl System for Mock {
    fn read(&self, path: &str) -> Option<String> {
        self.files.get(path).cloned()
    }

    fn bytes(&self, path: &str) -> Option<Vec<u8>> {
        self.read(path).map(String::into_bytes)
    }

    fn list(&self, path: &str) -> Vec<String> {
        let dir = format!("{}/", path.trim_end_matches('/'));
        let below = self.files.keys().filter_map(|f| f.strip_prefix(&dir));
        let mut names: Vec<_> = below
            .filter_map(|f| Some(f.split('/').next()?.to_string()))
            .collect();
        names.dedup();
        names
    }

    fn run(&self, command: &[&str]) -> Option<Output> {
        let stdout = self.commands.get(command.join(" ").as_str())?.clone();
        Some(Output {
            success: !stdout.is_empty(),
            stdout,
        })
    }

    fn module(&self) -> io::Result<Module> {
        let stats = self.module.map_err(io::Error::from_raw_os_error)?;
        let pools = self.pool.map(|device| Pool {
            device: device.into(),
            bytes: 8 << 20,
            block_bytes: 0,
            window_bytes: 0,
            windows: 0,
            blocks_held: 0,
            cache: 0,
            blocks: 512,
            blocks_low: 512,
            blocks_lent: 0,
        });
        Ok(Module {
            version: Version {
                version: self.version,
                features: self.features,
            },
            stats,
            pools: pools.into_iter().collect(),
            caches: vec![self.cache.clone()],
            unfit: self.unfit.clone(),
        })
    }

    fn socket(&self) -> io::Result<()> {
        errno(self.socket)
    }

    fn connect(&self, _addr: SocketAddr) -> Attempt {
        let (result, link) = self.connect;
        Attempt {
            result: errno(result),
            took: Duration::from_millis(2),
            link,
            again: (link == Some(LinkState::Up)).then(|| Duration::from_micros(120)),
        }
    }

    fn nodes(&self) -> Vec<MemNode> {
        self.nodes.clone()
    }

    fn preload(&self) -> crate::Result<String> {
        self.preload.clone()
    }

    fn is_root(&self) -> bool {
        self.root
    }
}

const DEVINFO: &str = "\
hca_id:\tmlx5_0
\tmax_qp:\t\t\t\t131072
\tmax_qp_wr:\t\t\t32768
\tdevice_cap_flags:\t\t0x25361c36
\t\t\t\t\tMEM_MGT_EXTENSIONS
\tmax_sge:\t\t\t30
\tmax_cqe:\t\t\t4194303
\tmax_srq:\t\t\t8388608
\tmax_srq_wr:\t\t\t32767
\tmax_srq_sge:\t\t\t31
\t\tactive_mtu:\t\t4096 (5)
";

/// A machine with a NIC that passes all checks.
fn well() -> Mock {
    let release = "7.3.4+deb13-amd64";
    let port = "/sys/class/infiniband/mlx5_0/ports/1";
    let file = |path: &str, text: &str| (path.to_string(), text.to_string());
    let mut files = BTreeMap::from([
        file("/proc/sys/kernel/osrelease", &format!("{release}\n")),
        file(
            &format!("/boot/config-{release}"),
            "CONFIG_RUST=y\nCONFIG_IPV6=y\nCONFIG_INFINIBAND_ADDR_TRANS=y\nCONFIG_CONTIG_ALLOC=y\n\
             CONFIG_MPTCP=y\n\
             CONFIG_RUSTC_VERSION_TEXT=\"rustc 1.85.0\"\nCONFIG_BINDGEN_VERSION_TEXT=\"bindgen 0.71.1\"\n",
        ),
        file(
            &format!("/lib/modules/{release}/build/rust/libkernel.rmeta"),
            "",
        ),
        file(
            "/sys/kernel/security/lockdown",
            "[none] integrity confidentiality\n",
        ),
        file("/sys/kernel/btf/vmlinux", ""),
        file(
            "/proc/meminfo",
            "MemTotal: 8000000 kB\nMemAvailable:    4000000 kB\n",
        ),
        file("/proc/sys/net/zrs/tcp", "never\n"),
        file("/sys/module/ib_core/taint", "\n"),
        file("/sys/module/zrs/srcversion", "ABC\n"),
        file(
            "/proc/self/limits",
            "Limit                     Soft Limit           Hard Limit           Units\n\
             Max locked memory         8388608              8388608              bytes\n",
        ),
        file("/sys/class/infiniband/mlx5_0/node_type", "1: CA\n"),
        file("/sys/class/infiniband/mlx5_0/device/vendor", "0x15b3\n"),
        file(&format!("{port}/state"), "4: ACTIVE\n"),
        file(&format!("{port}/link_layer"), "Ethernet\n"),
        file(&format!("{port}/gid_attrs/types/0"), "IB/RoCE v1\n"),
        file(&format!("{port}/gid_attrs/ndevs/0"), "eth1\n"),
        file(&format!("{port}/gid_attrs/types/1"), "RoCE v2\n"),
        file(&format!("{port}/gid_attrs/ndevs/1"), "eth1\n"),
    ]);
    for (name, value) in PARAMS {
        files.insert(
            format!("/sys/module/zrs/parameters/{name}"),
            format!("{value}\n"),
        );
    }
    let commands = BTreeMap::from([
        ("modinfo -F filename zrs", format!("/lib/modules/{release}/updates/zrs.ko\n")),
        ("modinfo -F vermagic zrs", format!("{release} SMP preempt mod_unload\n")),
        ("modinfo -F srcversion zrs", "ABC\n".into()),
        ("modinfo -F wire zrs", "1\n".into()),
        (
            "modinfo -F filename ib_core",
            format!("/lib/modules/{release}/kernel/drivers/infiniband/core/ib_core.ko.xz\n"),
        ),
        ("rustc --version", "rustc 1.85.0\n".into()),
        ("bindgen --version", "bindgen 0.71.1\n".into()),
        ("rdma system", "netns shared copy-on-fork on\n".into()),
        (
            "rdma resource show cm_id",
            "link mlx5_0/1 cm-idn 0 state LISTEN ps TCP pid 1 comm sshd src-addr 0.0.0.0:22\n".into(),
        ),
        ("ibv_devinfo -d mlx5_0", DEVINFO.into()),
        ("ibv_devinfo -v -d mlx5_0", DEVINFO.into()),
        (
            "ip -o addr show",
            "1: lo    inet 127.0.0.1/8 scope host lo\n2: eth1    inet 192.0.2.1/24 scope global eth1\n\
             2: eth1    inet6 fe80::1/64 scope link \n"
                .into(),
        ),
        ("ip -o link show", "1: lo: <UP>\n2: eth1@if3: <UP>\n".into()),
        (
            "ip -o route get 192.0.2.2",
            "192.0.2.2 dev eth1 src 192.0.2.1 uid 0 \\    cache\n".into(),
        ),
        ("ip neigh show to 192.0.2.2", "192.0.2.2 dev eth1 lladdr 02:00:00:00:00:01 REACHABLE\n".into()),
        ("getent ahosts hostb", "2001:db8::2 STREAM hostb\n192.0.2.2 STREAM\n".into()),
    ]);
    Mock {
        files,
        commands,
        module: Ok(Stats::default()),
        version: Version::KNOWN,
        features: u64::MAX,
        pool: Some("mlx5_0"),
        cache: Cache {
            number: 0,
            node: None,
            policy: Escape::UnderPressure,
            devices: 1,
            residency_us: 200,
            cache_bytes: 32 << 20,
            rate: 12_500,
            bytes: 8 << 20,
            small: 0,
            large: 0,
            small_high: 0,
            large_high: 0,
            small_share: 0,
            unread: 0,
            unread_high: 0,
            escapes: 0,
            escaped_bytes: 0,
            escaped: 0,
            escape_failures: 0,
            escape_reserved: 0,
            escape_max: 0,
            waits: 0,
            denied: 0,
            refused: 0,
            dry: 0,
            residency: [0; Cache::BUCKETS],
        },
        unfit: Vec::new(),
        socket: 0,
        connect: (0, Some(LinkState::Up)),
        nodes: Vec::new(),
        preload: Ok("/usr/local/lib/zrs/libzrs_preload.so".into()),
        root: false,
    }
}

impl Mock {
    fn file(mut self, path: &str, text: &str) -> Self {
        self.files.insert(path.into(), text.into());
        self
    }

    fn without(mut self, path: &str) -> Self {
        self.files.retain(|f, _| !f.starts_with(path));
        self
    }

    fn command(mut self, command: &'static str, text: &str) -> Self {
        self.commands.insert(command, text.into());
        self
    }

    fn without_program(mut self, program: &str) -> Self {
        self.commands.retain(|c, _| !c.starts_with(program));
        self
    }

    /// /dev/zrs is not there.
    fn unloaded(mut self) -> Self {
        self.module = Err(2);
        self.without("/sys/module/zrs/")
    }

    fn examine(&self) -> Vec<Check> {
        examine(self, None, None)
    }
}

/// Exactly one line is not ok: `name`, with `status` and `text` in it. It has a remedy.
#[track_caller]
fn only(checks: &[Check], name: &str, status: Status, text: &str) {
    let bad: Vec<_> = checks.iter().filter(|c| c.status != Status::Ok).collect();
    let [c] = bad.as_slice() else {
        panic!("not one line: {bad:#?}");
    };
    assert_eq!((c.name.as_str(), c.status), (name, status), "{c:?}");
    assert!(c.text.contains(text), "{text} in {c:?}");
    assert!(!c.remedy.is_empty(), "{c:?}");
}

/// Some line is so.
#[track_caller]
fn has(checks: &[Check], name: &str, status: Status, text: &str) {
    let found = checks
        .iter()
        .any(|c| c.name == name && c.status == status && c.text.contains(text));
    assert!(found, "{name} {status:?} {text} in {checks:#?}");
}

use Status::{Failure, Warning};

#[test]
fn all_is_well() {
    let checks = well().examine();
    let bad: Vec<_> = checks.iter().filter(|c| c.status != Status::Ok).collect();
    assert!(bad.is_empty(), "{bad:#?}");
    for c in &checks {
        assert!(c.remedy.is_empty() && !c.text.is_empty(), "{c:?}");
    }
    has(&checks, "mlx5_0 address", Status::Ok, "eth1 192.0.2.1");
    has(&checks, "parameters", Status::Ok, "room for 8 links");
    let unloaded = well().unloaded().examine();
    only(&unloaded, "module", Failure, "zrs is not loaded");
    has(&unloaded, "kernel config", Status::Ok, "CONFIG_RUST");
    has(&checks, "module file", Status::Ok, "zrs.ko, wire version 1");
    has(&checks, "network namespace", Status::Ok, "tcp=never");
}

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
    let source = include_str!("../../../../rust/params.rs");
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
        include_str!("../../../../rust/proto/sizing.rs"),
        include_str!("../../../../rust/pool.rs"),
    ];
    let source = sources.concat();
    let number = |name: &str| {
        let (_, rest) = source.split_once(&format!("const {name}: u32 = "))?;
        rest.split_once(';')?.0.parse::<u64>().ok()
    };
    let (limits, shared) = (super::devices::LIMITS, super::devices::SHARED);
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
fn the_service_port() {
    let ids = |text: &str| well().command("rdma resource show cm_id", text).examine();
    let listens = |comm: &str, port: u16| {
        ids(&format!(
            "link rxe0/1 cm-idn 1 state LISTEN ps TCP comm {comm} src-addr 0.0.0.0:{port}\n"
        ))
    };
    has(
        &listens("[zrs]", 340),
        "service port",
        Status::Ok,
        "zrs listens",
    );
    only(
        &listens("rping", 340),
        "service port",
        Failure,
        "rping listens on port 340",
    );
    has(&listens("rping", 1340), "service port", Status::Ok, "free");
    let checks = well().without_program("rdma resource").examine();
    only(&checks, "service port", Warning, "does not say");
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

/// The module's file says which versions of the protocol it speaks.
#[test]
fn the_wire_version_is_the_modules() {
    let source = include_str!("../../../../rust/proto/wire.rs");
    let (_, rest) = source.split_once("pub const VERSION: u8 = ").unwrap();
    let (version, _) = rest.split_once(';').unwrap();
    let said = include_str!("../../../../rust/helpers/kern.c");
    assert!(said.contains(&format!("MODULE_INFO(wire, \"{version}\");")));
}

#[test]
fn memory_nodes() {
    let path = "/etc/zrs/nodes";
    let node = |node: &str, at| MemNode {
        node: node.parse().unwrap(),
        addr: "192.0.2.11".parse().unwrap(),
        at,
    };
    let with = |file: &str, nodes: Vec<MemNode>| {
        let mock = well().file(path, file);
        Mock { nodes, ..mock }
    };
    let file = "1:1 192.0.2.11\n1:2 192.0.2.11\n";
    let served = || vec![node("1:1", At::Served), node("1:2", At::Served)];
    let checks = with(file, served()).examine();
    has(
        &checks,
        "nodes file",
        Status::Ok,
        "2 nodes, as the directory",
    );
    has(&checks, "memory nodes", Status::Ok, "2 nodes, all served");
    assert!(checks.iter().all(|c| c.status == Status::Ok), "{checks:#?}");

    let checks = with("1:1 192.0.2.11\n1:2 here\n", served()).examine();
    only(&checks, "nodes file", Failure, "line 2: ");
    let checks = with("1:1 192.0.2.11\n1:2 192.0.2.12\n", served()).examine();
    only(&checks, "nodes file", Warning, "says: 1:2 192.0.2.12");
    let one = vec![node("1:1", At::Served)];
    only(
        &with(file, one).examine(),
        "nodes file",
        Warning,
        "says: 1:2 192.0.2.11",
    );

    let absent = vec![node("1:1", At::Served), node("1:2", At::Absent)];
    only(
        &with(file, absent).examine(),
        "memory nodes",
        Warning,
        "them: 1:2 at 192.0.2.11",
    );
    let lost = vec![node("1:1", At::Lost(113)), node("1:2", At::Served)];
    only(
        &with(file, lost).examine(),
        "memory hosts",
        Warning,
        "1:1 at 192.0.2.11: no route to host",
    );
    let lost = (1..9)
        .map(|n| node(&format!("2:{n}"), At::Lost(113)))
        .collect();
    let many = Mock {
        nodes: lost,
        ..well()
    };
    only(&many.examine(), "memory hosts", Warning, ", and 3 more");

    let unloaded = well().file(path, file).unloaded().examine();
    has(&unloaded, "nodes file", Status::Ok, "2 nodes");
}

#[test]
fn no_library() {
    let mut mock = well();
    mock.preload = Err("there is no library".into());
    only(&mock.examine(), "zrs run", Warning, "there is no library");
}

#[test]
fn no_device() {
    let mut mock = well().without("/sys/class/infiniband");
    mock.pool = None;
    let checks = mock.examine();
    has(&checks, "pools", Failure, "no RDMA device");
    has(&checks, "devices", Failure, "there is no RDMA device");
}

#[test]
fn what_a_device_lacks() {
    let info = |from: &str, to: &str| {
        assert!(DEVINFO.contains(from));
        well()
            .unloaded()
            .command("ibv_devinfo -v -d mlx5_0", &DEVINFO.replace(from, to))
            .examine()
    };
    for (from, to, text) in [
        (
            "max_sge:\t\t\t30",
            "max_sge:\t\t\t2",
            "max_sge is 2, 3 are needed",
        ),
        (
            "max_qp_wr:\t\t\t32768",
            "max_qp_wr:\t\t\t16",
            "max_qp_wr is 16, 513 are needed",
        ),
        (
            "max_qp:\t\t\t\t131072",
            "max_qp:\t\t\t\t0",
            "max_qp is 0, 1 are needed",
        ),
        ("MEM_MGT_EXTENSIONS", "", "no fast registration"),
    ] {
        let checks = info(from, to);
        has(&checks, "mlx5_0 limits", Failure, text);
        has(
            &checks,
            "devices",
            Failure,
            "no RDMA device of this network namespace",
        );
    }
    // Without a shared receive queue the module makes one for each link.
    for (from, to) in [
        ("max_srq:\t\t\t8388608", "max_srq:\t\t\t0"),
        ("max_srq_wr:\t\t\t32767", "max_srq_wr:\t\t\t16"),
        ("max_srq_sge:\t\t\t31", "max_srq_sge:\t\t\t1"),
    ] {
        let text = "a receive queue for each link, 131072 queue pairs";
        has(&info(from, to), "mlx5_0 limits", Status::Ok, text);
    }
    // A loaded module that does not answer may have the parameter.
    let checks = |own: Option<&str>| {
        let mock = well().unloaded();
        match own {
            Some(own) => mock.file("/sys/module/zrs/parameters/own_receives", own),
            None => mock,
        }
        .examine()
    };
    for own in [None, Some("0\n")] {
        let text = "one receive queue for all links, 131072 queue pairs";
        has(&checks(own), "mlx5_0 limits", Status::Ok, text);
    }
    let text = "a receive queue for each link, 131072 queue pairs";
    has(&checks(Some("1\n")), "mlx5_0 limits", Status::Ok, text);
    // The module has found the limit, as the kernel reports it.
    let mut unfit = well();
    unfit.pool = None;
    unfit.unfit = vec![zrs::Unfit {
        device: "mlx5_0".into(),
        limit: Some("max_recv_sge"),
        has: 1,
        needs: 2,
    }];
    let text = "max_recv_sge is 1, 2 are needed";
    has(&unfit.examine(), "mlx5_0 limits", Failure, text);
    let mut refused = well();
    refused.pool = Some("mlx5_1");
    has(
        &refused.examine(),
        "mlx5_0 limits",
        Failure,
        "has no pool there",
    );
    let checks = well().unloaded().without_program("ibv_devinfo").examine();
    has(&checks, "mlx5_0 limits", Warning, "does not tell");
    has(&checks, "mlx5_0 MTU", Warning, "does not tell");
}

const PORT: &str = "/sys/class/infiniband/mlx5_0/ports/1";

#[test]
fn the_port_and_its_address() {
    let down = well().file(&format!("{PORT}/state"), "1: DOWN\n").examine();
    has(&down, "mlx5_0 port", Failure, "DOWN, not active");
    let small = DEVINFO.replace("4096 (5)", "1024 (3)");
    let checks = well().command("ibv_devinfo -d mlx5_0", &small).examine();
    only(&checks, "mlx5_0 MTU", Warning, "1024 bytes");
    let empty = well().without(&format!("{PORT}/gid_attrs")).examine();
    has(
        &empty,
        "mlx5_0 address",
        Failure,
        "no interface belongs to it",
    );
    let infiniband = well()
        .without(&format!("{PORT}/gid_attrs"))
        .file(&format!("{PORT}/link_layer"), "InfiniBand\n")
        .file(
            "/sys/class/net/eth1/device/infiniband/mlx5_0/node_type",
            "1: CA\n",
        )
        .examine();
    has(&infiniband, "mlx5_0 address", Status::Ok, "eth1 192.0.2.1");
    let v1 = well()
        .without(&format!("{PORT}/gid_attrs/types/1"))
        .examine();
    has(&v1, "mlx5_0 address", Failure, "no GID of RoCE v2");
    let addresses = "2: eth1    inet6 fe80::1/64 scope link \n";
    let local = well().command("ip -o addr show", addresses).examine();
    has(&local, "mlx5_0 address", Failure, "eth1 has no address");
    let no_ip = well().without_program("ip").examine();
    has(&no_ip, "mlx5_0 address", Warning, "ip(8)");
    let elsewhere = well()
        .command("ip -o addr show", "1: lo    inet 127.0.0.1/8\n")
        .command("ip -o link show", "1: lo: <UP>\n")
        .examine();
    has(
        &elsewhere,
        "mlx5_0 interface",
        Status::Ok,
        "another network namespace",
    );
    has(&elsewhere, "devices", Failure, "of this network namespace");
    let iwarp = well()
        .file("/sys/class/infiniband/mlx5_0/node_type", "4: RNIC\n")
        .without(&format!("{PORT}/gid_attrs/types/1"));
    has(&iwarp.examine(), "mlx5_0 transport", Status::Ok, "(340)");
}

#[test]
fn firewalls() {
    // Of hardware no packet passes them.
    let drop = "table inet f {\n chain c {\n type filter hook input priority filter; policy drop;\n udp dport 53 accept\n }\n}\n";
    let checks = well().command("nft list ruleset", drop).examine();
    assert!(checks.iter().all(|c| c.name != "firewall"));

    let soft = || well().without("/sys/class/infiniband/mlx5_0/device");
    has(&soft().examine(), "firewall", Status::Ok, "no nft");
    let nft = |text: &str| soft().command("nft list ruleset", text).examine();
    only(&nft(drop), "firewall", Failure, "none names UDP port 4791");
    let open = drop.replace("dport 53", "dport 4791");
    has(&nft(&open), "firewall", Status::Ok, "lets UDP port 4791 in");
    let closed = drop.replace("dport 53 accept", "dport 4791 drop");
    only(&nft(&closed), "firewall", Failure, "udp dport 4791 drop");
    has(
        &nft("table inet f {\n}\n"),
        "firewall",
        Status::Ok,
        "policy is to accept",
    );
    let denied = soft()
        .command("nft --version", "nftables v1.1\n")
        .command("nft list ruleset", "");
    only(&denied.examine(), "firewall", Warning, "cannot be read");
    // siw's packets are those of a TCP connection of this host.
    let iwarp = |text: &str| {
        let mock = soft().command("nft list ruleset", text);
        let rnic = mock.file("/sys/class/infiniband/mlx5_0/node_type", "4: RNIC\n");
        rnic.examine()
    };
    has(
        &iwarp(drop),
        "firewall (iWARP)",
        Failure,
        "none names TCP port 340",
    );
    let open = drop.replace("udp dport 53", "tcp dport 340");
    has(
        &iwarp(&open),
        "firewall (iWARP)",
        Status::Ok,
        "lets TCP port 340 in",
    );
    assert!(iwarp(&open).iter().all(|c| c.name != "firewall"));
    let iptables = soft().command("iptables -S INPUT", "-P INPUT DROP\n");
    only(&iptables.examine(), "firewall", Failure, "none names");
    let iptables = soft().command(
        "iptables -S INPUT",
        "-P INPUT ACCEPT\n-A INPUT -p udp -m udp --dport 4791 -j DROP\n",
    );
    only(
        &iptables.examine(),
        "firewall",
        Failure,
        "--dport 4791 -j DROP",
    );
}

/// The steps alone.
fn to(mock: &Mock, host: &str, port: Option<u16>) -> Vec<Check> {
    peer::checks(mock, host, port)
}

#[test]
fn a_host_that_is_reached() {
    let names = |checks: &[Check]| checks.iter().map(|c| c.name.clone()).collect::<Vec<_>>();
    for connect in [(0, Some(LinkState::Up)), (111, Some(LinkState::Up))] {
        let mut mock = well();
        mock.connect = connect;
        let checks = to(&mock, "hostb", None);
        let steps = ["address", "route", "device to there", "link", "round trip"];
        assert_eq!(names(&checks), steps);
        assert!(checks.iter().all(|c| c.status == Status::Ok), "{checks:#?}");
        assert_eq!(checks[0].text, "hostb is 192.0.2.2");
        assert_eq!(checks[4].text, "0.12 ms to connect again");
    }
    let checks = to(&well(), "192.0.2.2", Some(7000));
    has(
        &checks,
        "port",
        Status::Ok,
        "7000 of 192.0.2.2 takes connections",
    );
}

#[test]
fn the_step_that_fails() {
    let host = "192.0.2.2";
    only(
        &to(&well(), "nowhere", None),
        "address",
        Failure,
        "nowhere has no address",
    );
    only(
        &to(&well(), "198.51.100.1", None),
        "route",
        Failure,
        "no route",
    );
    let other = well().command(
        "ip -o route get 192.0.2.2",
        "192.0.2.2 dev eth0 src 192.0.2.9\n",
    );
    only(
        &to(&other, host, None),
        "device to there",
        Failure,
        "no RDMA device belongs to eth0",
    );

    let with = |errno: i32, link: Option<LinkState>| {
        let mut mock = well();
        mock.connect = (errno, link);
        mock
    };
    let up = Some(LinkState::Up);
    for (errno, text) in [
        (111, "ZRS does not answer there"),
        (110, "does not answer, after 2.00 ms"),
        (113, "connection manager does not reach"),
        (19, "cannot be used"),
        (101, "no RDMA route"),
        (71, "no common version"),
        (12, "no room"),
        (105, "no room"),
        (104, "went down"),
        (93, "rotocol not supported"),
    ] {
        only(&to(&with(errno, None), host, None), "link", Failure, text);
    }
    for errno in [110, 113] {
        let lost =
            with(errno, None).command("ip neigh show to 192.0.2.2", "192.0.2.2 dev eth1 FAILED\n");
        only(
            &to(&lost, host, None),
            "neighbour",
            Failure,
            "does not answer ARP",
        );
    }
    only(
        &to(&with(111, up), host, Some(7)),
        "port",
        Failure,
        "refuses connections to port 7",
    );
    only(
        &to(&with(110, up), host, Some(7)),
        "port",
        Failure,
        "backlog is full",
    );
    only(
        &to(&with(111, None), host, Some(7)),
        "link",
        Failure,
        "ZRS does not answer",
    );
}

#[test]
fn this_host_needs_no_device_on_the_way() {
    let here = well().command(
        "ip -o route get 192.0.2.1",
        "local 192.0.2.1 dev lo src 192.0.2.1 uid 0\n",
    );
    let checks = to(&here, "192.0.2.1", None);
    assert!(checks.iter().all(|c| c.name != "device to there"));
    assert!(checks.iter().any(|c| c.name == "link"));
}

#[test]
fn addresses_with_an_interface() {
    let mock = well().command("ip -o route get fe80::2", "fe80::2 dev eth1 src fe80::1\n");
    has(
        &to(&mock, "fe80::2%2", None),
        "address",
        Status::Ok,
        "fe80::2%2",
    );
    has(&to(&mock, "fe80::2%2", None), "link", Status::Ok, "up");
}

#[test]
fn reports() {
    let checks = [
        Check::ok("kernel", "fine"),
        Check::failure("x", "broken", "mend it"),
    ];
    assert_eq!(
        to_text(&checks),
        "ok       kernel  fine\n\
         failure  x       broken\n                 > mend it\n\
         2 checks, 0 warnings, 1 failures\n"
    );
    let json = to_json(&checks);
    assert_eq!(
        (&json["failures"], &json["warnings"]),
        (&json!(1), &json!(0))
    );
    assert_eq!(json["checks"][1]["remedy"], "mend it");
    assert_eq!(json["checks"][0]["status"], "ok");
}

#[test]
fn arguments() {
    #[derive(Parser)]
    struct Whole {
        #[command(flatten)]
        args: Args,
    }
    let parse = |args: &[&str]| Whole::try_parse_from([&["doctor"], args].concat());
    assert!(parse(&["hostb", "--port", "7000", "--json"]).is_ok());
    assert!(parse(&["--port", "7000"]).is_err(), "a port of no host");
    assert!(parse(&["hostb", "--port", "0"]).is_err());
    assert_eq!(
        parse(&["hostb"]).unwrap().args.host.as_deref(),
        Some("hostb")
    );
}
