// SPDX-License-Identifier: GPL-2.0
//! Each check on a machine that is well, and with one thing broken.
// rows: B8 B13

mod devices;
mod module;
mod nodes;
mod peer;
mod system;

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
fn no_library() {
    let mut mock = well();
    mock.preload = Err("there is no library".into());
    only(&mock.examine(), "zrs run", Warning, "there is no library");
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
