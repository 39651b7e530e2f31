// SPDX-License-Identifier: GPL-2.0
//! The RDMA devices: what each lacks, its port, its addresses, and what keeps packets from it.

use super::system::{exists, line, output, Module, System};
use super::Check;

const CLASS: &str = "/sys/class/infiniband";
const NET: &str = "/sys/class/net";
/// Of RoCE v2.
const ROCE_PORT: &str = "4791";
/// Of iWARP: the service port, unless the parameter says another one.
const IWARP_PORT: &str = "340";

/// The least that a device must offer, by the names of ibv_devinfo: as `lacking()` in
/// rust/pool/device.rs asks for it, with a queue pair for one link.
pub(super) const LIMITS: [(&str, u64); 4] = [
    ("max_sge", 3),
    ("max_qp_wr", 513),
    ("max_cqe", 578),
    ("max_qp", 1),
];
/// With these, and without the parameter `own_receives`, all links share a receive queue, as
/// `shares_receives()` there decides; else each link has its own.
pub(super) const SHARED: [(&str, u64); 3] =
    [("max_srq", 1), ("max_srq_wr", 64), ("max_srq_sge", 2)];
/// A capability, as ibv_devinfo prints it.
const FAST_REGISTRATION: &str = "MEM_MGT_EXTENSIONS";
/// Below this, messages of 4 KiB are several packets.
const MTU: u64 = 4096;

pub fn checks(system: &dyn System, module: Option<&Module>) -> Vec<Check> {
    let names = system.list(CLASS);
    if names.is_empty() {
        return vec![Check::failure(
            "devices",
            "there is no RDMA device",
            "load the NIC's driver; to try ZRS without one: rdma link add rxe0 type rxe netdev INTERFACE",
        )];
    }
    let devices: Vec<_> = names.iter().map(|n| Device::read(system, n)).collect();
    let interfaces = Interfaces::read(system);
    let mut checks = vec![namespaces(system, &names)];
    let mut usable = 0;
    for device in &devices {
        // In another network namespace it is none of ours.
        if let Some(other) = device.elsewhere(&interfaces) {
            checks.push(Check::ok(
                &device.check("interface"),
                format!("{other} is in another network namespace"),
            ));
            continue;
        }
        let own = [
            device.limits(system, module),
            device.port(),
            device.mtu(system),
            device.address(&interfaces),
        ];
        let bad = |c: &Check| c.status == super::Status::Failure;
        usable += usize::from(!own.iter().any(bad));
        checks.extend(own);
        checks.extend(device.iwarp());
    }
    if usable == 0 {
        checks.push(Check::failure(
            "devices",
            "no RDMA device of this network namespace can be used",
            "mend what the lines above say of one of them, or add another one",
        ));
    }
    let software = |rnic: bool| devices.iter().any(|d| d.software && d.rnic == rnic);
    if software(false) {
        checks.push(firewall(system, "firewall", "udp", ROCE_PORT));
    }
    if software(true) {
        let port = line(system, "/sys/module/zrs/parameters/service_port");
        let port = port.as_deref().unwrap_or(IWARP_PORT);
        checks.push(firewall(system, "firewall (iWARP)", "tcp", port));
    }
    checks
}

/// The RDMA device that an interface belongs to.
pub fn device_of(system: &dyn System, interface: &str) -> Option<String> {
    let names = system.list(CLASS);
    names.into_iter().find(|name| {
        let device = Device::read(system, name);
        device.gids.iter().any(|g| g.interface == interface)
    })
}

fn namespaces(system: &dyn System, names: &[String]) -> Check {
    let all = names.join(", ");
    let mode = output(system, &["rdma", "system"]).unwrap_or_default();
    match mode.contains("netns exclusive") {
        true => Check::ok(
            "devices",
            format!("{all}; each belongs to one network namespace (exclusive mode)"),
        ),
        false => Check::ok("devices", all),
    }
}

/// The interfaces of this network namespace, and their addresses.
struct Interfaces(Vec<(String, String)>);

impl Interfaces {
    fn read(system: &dyn System) -> Option<Self> {
        let text = output(system, &["ip", "-o", "addr", "show"])?;
        let each = text.lines().filter_map(|l| {
            let words: Vec<_> = l.split_whitespace().collect();
            // "2: eth0    inet 192.0.2.1/24 ..."
            let address = match words.get(2) {
                Some(&"inet" | &"inet6") => words.get(3)?.split('/').next()?,
                _ => "",
            };
            Some(((*words.get(1)?).to_string(), address.to_string()))
        });
        let links = output(system, &["ip", "-o", "link", "show"]).unwrap_or_default();
        let names = links.lines().filter_map(|l| {
            let name = l.split_whitespace().nth(1)?.trim_end_matches(':');
            let name = name.split('@').next()?;
            Some((name.to_string(), String::new()))
        });
        Some(Self(each.chain(names).collect()))
    }

    fn has(&self, interface: &str) -> bool {
        self.0.iter().any(|(name, _)| name == interface)
    }

    /// Those of an interface that connections may use without naming it.
    fn addresses(&self, interface: &str) -> Vec<&str> {
        self.0
            .iter()
            .filter(|(name, a)| name == interface && !a.is_empty() && !a.starts_with("fe80:"))
            .map(|(_, a)| a.as_str())
            .collect()
    }
}

/// An entry of the GID table: an address, and how packets with it look.
struct Gid {
    kind: String,
    interface: String,
}

struct Device {
    name: String,
    /// "rxe0/1": the first port.
    state: String,
    ethernet: bool,
    rnic: bool,
    software: bool,
    gids: Vec<Gid>,
}

impl Device {
    fn read(system: &dyn System, name: &str) -> Self {
        let dir = format!("{CLASS}/{name}");
        let port = format!("{dir}/ports/1");
        let text = |path: String| line(system, &path).unwrap_or_default();
        let types = format!("{port}/gid_attrs/types");
        // Reading an entry that is empty is an error.
        let gids = system.list(&types).into_iter().filter_map(|n| {
            Some(Gid {
                kind: line(system, &format!("{types}/{n}"))?,
                interface: line(system, &format!("{port}/gid_attrs/ndevs/{n}"))?,
            })
        });
        let mut gids: Vec<_> = gids.collect();
        if gids.is_empty() {
            // IPoIB, and iWARP devices whose GIDs have no interface.
            let below = |i: &String| exists(system, &format!("{NET}/{i}/device/infiniband/{name}"));
            let interfaces = system.list(NET).into_iter().filter(below);
            gids.extend(interfaces.map(|interface| Gid {
                kind: String::new(),
                interface,
            }));
        }
        Self {
            name: name.into(),
            state: text(format!("{port}/state")),
            ethernet: text(format!("{port}/link_layer")) == "Ethernet",
            rnic: text(format!("{dir}/node_type")).contains("RNIC"),
            software: !exists(system, &format!("{dir}/device")),
            gids,
        }
    }

    fn check(&self, what: &str) -> String {
        format!("{} {what}", self.name)
    }

    /// Its interface, if that is in another network namespace.
    fn elsewhere(&self, interfaces: &Option<Interfaces>) -> Option<&str> {
        let interfaces = interfaces.as_ref()?;
        let first = self.gids.first()?;
        let there = self.gids.iter().any(|g| interfaces.has(&g.interface));
        (!there).then_some(first.interface.as_str())
    }

    /// Whether ZRS can use the device at all.
    fn limits(&self, system: &dyn System, module: Option<&Module>) -> Check {
        let name = self.check("limits");
        let made = module.is_some_and(|m| m.pools.iter().any(|p| p.device == self.name));
        if made {
            return Check::ok(&name, "ZRS uses it");
        }
        let remedy = "ZRS cannot use this device: hardware.rst, in Documentation or /usr/share/doc/zrs, has a table of drivers";
        // The module has tried the device, and knows the limits that the kernel's driver reports.
        let unfit = module.and_then(|m| m.unfit.iter().find(|u| u.device == self.name));
        if let Some((unfit, limit)) = unfit.and_then(|u| Some((u, u.limit?))) {
            return Check::failure(
                &name,
                format!("{limit} is {}, {} are needed", unfit.has, unfit.needs),
                remedy,
            );
        }
        let Some(info) = output(system, &["ibv_devinfo", "-v", "-d", &self.name]) else {
            return Check::warning(
                &name,
                "ibv_devinfo does not tell what the device can do",
                "apt install ibverbs-utils ibverbs-providers; modprobe ib_uverbs",
            );
        };
        let value = |field: &str| {
            let line = info
                .lines()
                .find_map(|l| l.trim().strip_prefix(field)?.strip_prefix(':'))?;
            line.split_whitespace().next()?.parse::<u64>().ok()
        };
        let mut lacks: Vec<_> = LIMITS
            .iter()
            .filter_map(|(field, least)| {
                let has = value(field)?;
                (has < *least).then(|| format!("{field} is {has}, {least} are needed"))
            })
            .collect();
        if !info.contains(FAST_REGISTRATION) {
            lacks.push("no fast registration (MEM_MGT_EXTENSIONS)".into());
        }
        if lacks.is_empty() && module.is_some() {
            return Check::failure(
                &name,
                "it has what ZRS needs, as far as programs can see, but ZRS has no pool there",
                "the kernel's log has the reason: dmesg | grep zrs",
            );
        }
        if lacks.is_empty() {
            let own = line(system, "/sys/module/zrs/parameters/own_receives");
            let shared = own.as_deref() != Some("1")
                && SHARED
                    .iter()
                    .all(|(field, least)| value(field).is_none_or(|has| has >= *least));
            let receives = if shared {
                "one receive queue for all links"
            } else {
                "a receive queue for each link"
            };
            let pairs = value("max_qp").map_or(String::new(), |n| format!(", {n} queue pairs"));
            return Check::ok(&name, format!("it has what ZRS needs: {receives}{pairs}"));
        }
        Check::failure(&name, lacks.join("; "), remedy)
    }

    fn port(&self) -> Check {
        let name = self.check("port");
        match self.state.split_once(": ").map_or("", |(_, state)| state) {
            "ACTIVE" => Check::ok(&name, "active"),
            state => Check::failure(
                &name,
                format!("{}, not active", if state.is_empty() { "unknown" } else { state }),
                "ip link set INTERFACE up; is the cable in, and the switch's port up? on InfiniBand: is there a subnet manager?",
            ),
        }
    }

    fn mtu(&self, system: &dyn System) -> Check {
        let name = self.check("MTU");
        let info = output(system, &["ibv_devinfo", "-d", &self.name]).unwrap_or_default();
        let mtu = info
            .lines()
            .find_map(|l| l.trim().strip_prefix("active_mtu:"))
            .and_then(|l| l.split_whitespace().next()?.parse::<u64>().ok());
        match mtu {
            Some(mtu) if mtu < MTU => Check::warning(
                &name,
                format!("packets carry {mtu} bytes"),
                "ip link set INTERFACE mtu 9000, or 4200 at least, at both ends and at the switch, for packets of 4096 bytes",
            ),
            Some(mtu) => Check::ok(&name, format!("packets carry {mtu} bytes")),
            None => Check::warning(
                &name,
                "ibv_devinfo does not tell the MTU",
                "apt install ibverbs-utils ibverbs-providers; modprobe ib_uverbs",
            ),
        }
    }

    /// By which addresses the device is reached.
    fn address(&self, interfaces: &Option<Interfaces>) -> Check {
        let name = self.check("address");
        let Some(first) = self.gids.first() else {
            return Check::failure(
                &name,
                "no interface belongs to it: it has no address",
                "set its interface up with an address: ip addr add ADDRESS/LENGTH dev INTERFACE; on InfiniBand: modprobe ib_ipoib",
            );
        };
        // RoCE v1 is not routed, and the connection manager takes v2 by default.
        let roce = self.ethernet && !self.rnic;
        if roce && !self.gids.iter().any(|g| g.kind == "RoCE v2") {
            return Check::failure(
                &name,
                "it has no GID of RoCE v2",
                "switch RoCE v2 on, in the driver or the NIC's firmware",
            );
        }
        let Some(interfaces) = interfaces else {
            return Check::warning(
                &name,
                "ip(8) does not tell the addresses",
                "apt install iproute2",
            );
        };
        let mut found: Vec<_> = Vec::new();
        for gid in &self.gids {
            for address in interfaces.addresses(&gid.interface) {
                if !found.contains(&address) {
                    found.push(address);
                }
            }
        }
        match found.as_slice() {
            [] => Check::failure(
                &name,
                format!("{} has no address but a link-local one", first.interface),
                "ip addr add ADDRESS/LENGTH dev INTERFACE",
            ),
            some => Check::ok(&name, format!("{} {}", first.interface, some.join(" "))),
        }
    }

    fn iwarp(&self) -> Option<Check> {
        self.rnic.then(|| {
            Check::ok(
                &self.check("transport"),
                "iWARP: links are TCP connections to the service port (340), which firewalls have to let through",
            )
        })
    }
}

/// Rules that drop what a software device receives on a port. The packets of other devices pass no
/// firewall of this host.
fn firewall(system: &dyn System, name: &str, protocol: &str, port: &str) -> Check {
    let upper = protocol.to_uppercase();
    let remedy = format!(
        "let {upper} port {port} in, from the hosts that you trust: nft add rule inet filter input ip saddr NETWORK \
         {protocol} dport {port} accept"
    );
    let nft = output(system, &["nft", "list", "ruleset"]);
    let tables = output(system, &["iptables", "-S", "INPUT"]);
    if nft.is_none() && tables.is_none() {
        // Without the programs there are hardly rules.
        let there = system.run(&["nft", "--version"]).is_some();
        return match there {
            true => Check::warning(name, "its rules cannot be read", "run zrs doctor as root"),
            false => Check::ok(name, "there is no nft and no iptables"),
        };
    }
    let nft = nft.unwrap_or_default();
    let tables = tables.unwrap_or_default();
    let drops = |l: &str| {
        l.contains("drop") || l.contains("reject") || l.contains("DROP") || l.contains("REJECT")
    };
    let rules = || nft.lines().chain(tables.lines()).map(str::trim);
    // "udp dport 4791 accept", "-p udp -m udp --dport 4791 -j ACCEPT"
    let names =
        |l: &str| l.contains(protocol) && l.split(|c: char| !c.is_ascii_digit()).any(|w| w == port);
    if let Some(rule) = rules().find(|l| names(l) && drops(l)) {
        return Check::failure(
            name,
            format!("a rule drops {upper} port {port}: {rule}"),
            &remedy,
        );
    }
    if rules().any(names) {
        return Check::ok(name, format!("a rule lets {upper} port {port} in"));
    }
    let closed = nft
        .lines()
        .any(|l| l.contains("hook input") && l.contains("policy drop"))
        || tables.lines().any(|l| l.trim() == "-P INPUT DROP");
    match closed {
        true => Check::failure(
            name,
            format!("what no rule accepts is dropped, and none names {upper} port {port}"),
            &remedy,
        ),
        false => Check::ok(
            name,
            format!("no rule names {upper} port {port}, and the policy is to accept"),
        ),
    }
}
