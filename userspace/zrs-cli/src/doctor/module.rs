// SPDX-License-Identifier: GPL-2.0
//! The module, its parameters and counters; limits and libraries for programs.

use std::cmp::Reverse;
use std::io;

use zrs::{os_error, reason, Version};
use zrs_rules::why::{self, KNOWN, NO_LISTENER, NO_RESOURCES, NO_ZRS, SLOW};

use super::kernel::{option, read_config, same_source};
use super::system::{exists, line, output, Module, System};
use super::Check;

/// `errno`s that are told apart here and in `peer.rs`.
pub const EACCES: i32 = 13;
const ENOMEM: i32 = 12;

/// The parameters that an administrator sets, with their defaults.
pub const PARAMS: [(&str, &str); 10] = [
    ("service_port", "340"),
    ("pool_mib", "0"),
    ("blocks", "512"),
    ("link_credit", "64"),
    ("links_per_peer", "2"),
    ("max_channels", "16384"),
    ("connect_timeout_ms", "1000"),
    ("ack_timeout_ms", "500"),
    ("retry_count", "6"),
    ("heartbeat_ms", "10000"),
];

/// The least size of a receive pool, and memory that should be available for some of them, MiB.
const POOL_MIB: u64 = 8;
const FREE_MIB: u64 = 64;
/// Bytes that MSG_ZEROCOPY should be able to pin.
const LOCKED: u64 = 8 << 20;

/// `socket`: what came of making one, if the module is loaded.
pub fn checks(
    system: &dyn System,
    module: &io::Result<Module>,
    socket: Option<io::Result<()>>,
) -> Vec<Check> {
    let mut checks = vec![loaded(system, module)];
    if let Ok(module) = module {
        checks.push(parameters(system));
        checks.extend(namespace(system));
        checks.push(service_port(system));
        checks.extend(socket.map(|s| made(system, s)));
        checks.push(pools(module));
        checks.push(counters(module));
        checks.extend(by_tcp(module));
    } else {
        checks.extend(memory(system));
    }
    checks.extend(next_load(system));
    checks.push(memlock(system));
    checks.push(preload(system));
    checks.push(bpf(system));
    checks
}

fn loaded(system: &dyn System, module: &io::Result<Module>) -> Check {
    let name = "module";
    let module = match module {
        Ok(module) => module,
        Err(e) if os_error(e) == Some(EACCES) => {
            return Check::failure(
                name,
                format!("{e}"),
                "ask for access to /dev/zrs (its group, or a udev rule), or run as root",
            )
        }
        Err(e) if system.list("/sys/module").iter().any(|m| m == "zrs") => {
            return Check::failure(
                name,
                format!("zrs is loaded, but: {e}"),
                "is there a /dev of its own here, as in a container? give it /dev/zrs",
            )
        }
        Err(_) => return Check::failure(name, "zrs is not loaded", "modprobe zrs"),
    };
    let version = module.version;
    let text = format!("zrs is loaded, interface {}", version.version);
    let missing: Vec<_> = version.missing().collect();
    if version.version < Version::KNOWN || !missing.is_empty() {
        return Check::warning(
            name,
            format!(
                "{text}, older than this command; without: {}",
                missing.join(", ")
            ),
            "load the module that came with this command: rmmod zrs, modprobe zrs",
        );
    }
    if same_source(system) == Some(false) {
        return Check::warning(
            name,
            format!("{text}, but it is not the one that is installed"),
            "when no socket is open: rmmod zrs, modprobe zrs",
        );
    }
    Check::ok(name, text)
}

fn parameter(system: &dyn System, name: &str) -> Option<String> {
    line(system, &format!("/sys/module/zrs/parameters/{name}"))
}

fn parameters(system: &dyn System) -> Check {
    let name = "parameters";
    let changed: Vec<_> = PARAMS
        .iter()
        .filter_map(|(param, default)| {
            let value = parameter(system, param)?;
            (value != *default).then(|| format!("{param}={value}"))
        })
        .collect();
    let number = |name| parameter(system, name).and_then(|v| v.parse::<u64>().ok());
    let links = match (number("blocks"), number("link_credit")) {
        (Some(blocks), Some(credit)) => blocks / credit.max(1),
        _ => 0,
    };
    let text = match changed.as_slice() {
        [] => format!("the defaults; room for {links} links a device"),
        some => format!("{}; room for {links} links a device", some.join(" ")),
    };
    if changed.iter().any(|c| c.starts_with("service_port=")) {
        return Check::warning(
            name,
            text,
            "service_port has to be the same on all hosts; without a reason, leave it at 340",
        );
    }
    Check::ok(name, text)
}

/// The listener on the service port of the RDMA connection manager. ZRS listens there once one of
/// its sockets does.
fn service_port(system: &dyn System) -> Check {
    let name = "service port";
    let port = parameter(system, "service_port").unwrap_or_else(|| "340".into());
    let Some(ids) = output(system, &["rdma", "resource", "show", "cm_id"]) else {
        return Check::warning(
            name,
            "rdma(8) does not say which ports are in use",
            "apt install iproute2; as root",
        );
    };
    let listens = |l: &&str| {
        l.contains("state LISTEN")
            && l.contains("ps TCP")
            && word_after(l, "src-addr").is_some_and(|a| a.ends_with(&format!(":{port}")))
    };
    let lines: Vec<_> = ids.lines().filter(listens).collect();
    let owner = |l: &str| word_after(l, "comm").unwrap_or("?").to_string();
    match lines.iter().map(|l| owner(l)).find(|o| o != "[zrs]") {
        Some(other) => Check::failure(
            name,
            format!("{other} listens on port {port} of the RDMA connection manager"),
            "end it, or load zrs with another service_port on all hosts",
        ),
        None if lines.is_empty() => {
            Check::ok(name, format!("{port}, free: no ZRS socket listens here"))
        }
        None => Check::ok(name, format!("{port}, zrs listens")),
    }
}

/// The word behind `word`.
pub fn word_after<'a>(line: &'a str, word: &str) -> Option<&'a str> {
    let mut words = line.split_whitespace();
    words.by_ref().find(|w| *w == word)?;
    words.next()
}

/// The settings of this network namespace, as `zrs set --net` shows them.
fn namespace(system: &dyn System) -> Option<Check> {
    const NET: &str = "/proc/sys/net/zrs";
    let value = |name: &String| {
        Some(format!(
            "{name}={}",
            line(system, &format!("{NET}/{name}"))?
        ))
    };
    let names = system.list(NET);
    let values: Vec<_> = names.iter().filter_map(value).collect();
    (!values.is_empty()).then(|| Check::ok("network namespace", values.join(" ")))
}

/// Whether there is memory for the receive pools, before the module is loaded. Each is physically
/// contiguous.
fn memory(system: &dyn System) -> Option<Check> {
    let name = "memory";
    let text = system.read("/proc/meminfo")?;
    let kib = |field| {
        let line = text.lines().find_map(|l| l.strip_prefix(field))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    let mib = kib("MemAvailable:")? >> 10;
    let found = format!("{mib} MiB are available");
    if mib < FREE_MIB {
        return Some(Check::warning(
            name,
            format!("{found}; a receive pool has {POOL_MIB} MiB at least, contiguous"),
            "end programs, or load zrs early after the boot; pool_mib makes the pools smaller",
        ));
    }
    Some(Check::ok(name, found))
}

fn made(system: &dyn System, socket: io::Result<()>) -> Check {
    let name = "socket";
    let Err(e) = socket else {
        return Check::ok(name, "socket() makes ZRS sockets");
    };
    if parameter(system, "drain").as_deref() == Some("1") {
        return Check::failure(
            name,
            "zrs drain is in effect: no ZRS sockets are made",
            "zrs drain --stop; or, to load another module: modprobe -r zrs && modprobe zrs",
        );
    }
    let text = format!("socket() fails: {}", reason(&e));
    let remedy = match os_error(&e) {
        Some(ENOMEM) => {
            "no contiguous memory for a receive pool: set pool_mib smaller, or load zrs early after the boot"
        }
        _ => "the kernel's log may say more: dmesg | grep zrs",
    };
    Check::failure(name, text, remedy)
}

fn pools(module: &Module) -> Check {
    let name = "pools";
    let mib = |bytes: u64| bytes.div_ceil(1 << 20);
    if module.pools.is_empty() {
        return Check::failure(
            name,
            "no RDMA device has a receive pool",
            "see the lines of the devices below, and dmesg | grep zrs",
        );
    }
    let of: Vec<_> = module
        .pools
        .iter()
        .map(|p| format!("{} {} MiB", p.device, mib(p.bytes)))
        .collect();
    let text = of.join(", ");
    let larger = module
        .caches
        .iter()
        .find(|c| c.cache_bytes > 0 && c.bytes > c.cache_bytes);
    if let Some(c) = larger {
        return Check::warning(
            name,
            format!(
                "{text}: {} MiB in a cache of {} MiB",
                mib(c.bytes),
                mib(c.cache_bytes)
            ),
            "data leaves the cache before it is read: set pool_mib to at most half of the cache",
        );
    }
    Check::ok(name, text)
}

/// The top reasons why connects used TCP, if some did. That is how it is meant, so it is no fault.
fn by_tcp(module: &Module) -> Option<Check> {
    const MOST: usize = 2;
    let stats = &module.stats;
    let mut all = [
        (KNOWN, stats.tcp_known),
        (NO_ZRS, stats.tcp_no_zrs),
        (SLOW, stats.tcp_slow),
        (NO_LISTENER, stats.tcp_no_listener),
        (NO_RESOURCES, stats.tcp_no_resources),
    ];
    all.sort_by_key(|(_, times)| Reverse(*times));
    let top = all.iter().filter(|(_, times)| *times > 0).take(MOST);
    let text: Vec<_> = top
        .map(|&(number, times)| format!("{times} {} ({})", why::name(number), why::text(number)))
        .collect();
    let sum: u64 = all.iter().map(|(_, times)| times).sum();
    (sum > 0).then(|| {
        Check::ok(
            "fallback",
            format!("{sum} connects used TCP: {}", text.join(", ")),
        )
    })
}

/// Counters that stay 0 while all is well.
fn counters(module: &Module) -> Check {
    let name = "counters";
    let sum = |get: fn(&zrs::Cache) -> u64| module.caches.iter().map(get).sum::<u64>();
    let all = [
        (
            "protocol_errors",
            module.stats.protocol_errors,
            "a peer broke the protocol: dmesg | grep zrs names it",
        ),
        (
            "dry",
            sum(|c| c.dry),
            "the shared receive queue was empty: load zrs with more blocks",
        ),
        (
            "refused",
            sum(|c| c.refused),
            "connections were refused for lack of memory: set escape_mib larger",
        ),
        (
            "escape_failures",
            sum(|c| c.escape_failures),
            "there was no memory for unread data: set escape_mib larger, or limits of control groups",
        ),
    ];
    let bad: Vec<_> = all.iter().filter(|(_, n, _)| *n > 0).collect();
    let Some((_, _, remedy)) = bad.first() else {
        return Check::ok(name, "no errors since the module was loaded");
    };
    let text: Vec<_> = bad
        .iter()
        .map(|(name, n, _)| format!("{name} {n}"))
        .collect();
    Check::warning(name, text.join(", "), remedy)
}

/// Options in modprobe.d, which hold from the next load on: parameters that the module does not
/// have, and values that differ from those in effect.
fn next_load(system: &dyn System) -> Option<Check> {
    let name = "modprobe.d";
    let mut found = Vec::new();
    for dir in ["/etc/modprobe.d", "/run/modprobe.d"] {
        let text = system.read(&format!("{dir}/zrs.conf"));
        let hides = text.is_some_and(|t| !t.contains("install zrs"));
        if hides && exists(system, "/usr/lib/modprobe.d/zrs.conf") {
            return Some(Check::warning(
                name,
                format!(
                    "{dir}/zrs.conf hides the package's file of that name: modprobe does not check the RDMA \
                     stack any more"
                ),
                "give it another name, such as zrs-local.conf",
            ));
        }
    }
    for dir in ["/etc/modprobe.d", "/run/modprobe.d", "/usr/lib/modprobe.d"] {
        for file in system.list(dir).iter().filter(|f| f.ends_with(".conf")) {
            let text = system.read(&format!("{dir}/{file}")).unwrap_or_default();
            for line in text.lines() {
                let mut words = line.split_whitespace();
                match (words.next(), words.next()) {
                    (Some("options"), Some("zrs")) => found.extend(words.map(str::to_string)),
                    (Some("blacklist"), Some("zrs")) => {
                        return Some(Check::warning(
                            name,
                            format!("{dir}/{file} blacklists zrs"),
                            "nothing loads it but an explicit `modprobe zrs`; remove the line if that is not meant",
                        ))
                    }
                    _ => {}
                }
            }
        }
    }
    let known = system.list("/sys/module/zrs/parameters");
    if found.is_empty() {
        return None;
    }
    let split = |o: &String| {
        let (name, value) = o.split_once('=').unwrap_or((o, "1"));
        (name.to_string(), value.to_string())
    };
    let options: Vec<_> = found.iter().map(split).collect();
    if let Some((name_, _)) = options
        .iter()
        .find(|(o, _)| !known.is_empty() && !known.contains(o))
    {
        return Some(Check::warning(
            name,
            format!("zrs has no parameter {name_}"),
            "`modinfo -p zrs` lists them; correct the options in modprobe.d",
        ));
    }
    let other = options
        .iter()
        .find(|(o, v)| parameter(system, o).is_some_and(|now| now != *v));
    if let Some((o, v)) = other {
        let now = parameter(system, o).unwrap_or_default();
        return Some(Check::warning(
            name,
            format!("{o}={v} is not in effect: it is {now}"),
            "it takes effect when the module is loaded the next time",
        ));
    }
    Some(Check::ok(name, found.join(" ")))
}

fn memlock(system: &dyn System) -> Check {
    let name = "locked memory";
    let limits = system.read("/proc/self/limits").unwrap_or_default();
    let limit = limits
        .lines()
        .find_map(|l| l.strip_prefix("Max locked memory"))
        .and_then(|l| l.split_whitespace().next());
    let remedy =
        "MSG_ZEROCOPY fails with ENOBUFS above it: raise LimitMEMLOCK= of the unit, or memlock in \
                  /etc/security/limits.conf";
    match limit {
        None => Check::warning(name, "/proc/self/limits does not say how much", remedy),
        Some("unlimited") => Check::ok(name, "RLIMIT_MEMLOCK is unlimited"),
        Some(bytes) => {
            let text = format!("RLIMIT_MEMLOCK is {bytes} bytes");
            if system.is_root() {
                return Check::ok(name, format!("{text}, which does not bind root"));
            }
            match bytes.parse::<u64>() {
                Ok(n) if n >= LOCKED => Check::ok(name, text),
                _ => Check::warning(name, text, remedy),
            }
        }
    }
}

fn preload(system: &dyn System) -> Check {
    let name = "zrs run";
    match system.preload() {
        Ok(path) => Check::ok(name, format!("its library is {path}")),
        Err(why) => Check::warning(
            name,
            why,
            "only `zrs run` needs it; other programs of ZRS do not",
        ),
    }
}

/// The BPF program of `zrs bpf`, `zrs run --cgroup` and the units' drop-in, which is optional.
fn bpf(system: &dyn System) -> Check {
    let name = "zrs bpf";
    if exists(system, zrs_bpf::DIR) {
        return Check::ok(name, "its program is loaded");
    }
    if !exists(system, "/sys/kernel/btf/vmlinux") {
        return Check::ok(
            name,
            "not loaded, and cannot be: the kernel has no BTF (CONFIG_DEBUG_INFO_BTF)",
        );
    }
    let release = line(system, "/proc/sys/kernel/osrelease").unwrap_or_default();
    let config = read_config(system, &release);
    if config.is_some_and(|c| option(&c, "CONFIG_MPTCP") != Some("y")) {
        return Check::ok(
            name,
            "not loaded, and cannot be: the kernel has no hook for it (CONFIG_MPTCP)",
        );
    }
    if !system.is_root() {
        return Check::ok(name, "only root sees whether its program is loaded");
    }
    Check::ok(
        name,
        "not loaded; only `zrs run --cgroup` and units need it",
    )
}
