// SPDX-License-Identifier: GPL-2.0
//! The way to another host, step by step.

use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::time::Duration;

use zrs::{os_error, reason, LinkState};

use super::devices::device_of;
use super::module::word_after;
use super::system::{output, Attempt, System, ETIMEDOUT};
use super::Check;

/// Port 1 (tcpmux), which no program in use listens on. If the peer's ZRS refuses the connection,
/// the link is up, as it is if the connection succeeds.
const NO_PORT: u16 = 1;

/// Errors of connect(), as Documentation/uapi.rst has them.
const ENOMEM: i32 = 12;
const ENODEV: i32 = 19;
const EPROTO: i32 = 71;
const ENETUNREACH: i32 = 101;
const ECONNRESET: i32 = 104;
const ENOBUFS: i32 = 105;
const ECONNREFUSED: i32 = 111;
const EHOSTUNREACH: i32 = 113;

/// The steps, up to the first that fails.
pub fn checks(system: &dyn System, host: &str, port: Option<u16>) -> Vec<Check> {
    let mut checks = Vec::new();
    // Stops at a failure.
    let _ = steps(system, host, port, &mut checks);
    checks
}

/// None: a step has failed, and is the last of `checks`.
fn steps(
    system: &dyn System,
    host: &str,
    port: Option<u16>,
    checks: &mut Vec<Check>,
) -> Option<()> {
    let (addr, check) = address(system, host, port.unwrap_or(NO_PORT));
    checks.push(check);
    let addr = addr?;
    let (interface, check) = route(system, addr.ip());
    checks.push(check);
    let interface = interface?;
    if interface != "lo" {
        let device = device_of(system, &interface);
        let name = "device to there";
        match device {
            Some(device) => checks.push(Check::ok(name, device)),
            None => {
                checks.push(Check::failure(
                    name,
                    format!("no RDMA device belongs to {interface}"),
                    "reach the host by an address in the RDMA network; or, to try it: \
                     rdma link add NAME type rxe netdev INTERFACE",
                ));
                return None;
            }
        }
    }
    let attempt = system.connect(addr);
    checks.extend(outcome(system, host, addr, port, &attempt));
    Some(())
}

fn address(system: &dyn System, host: &str, port: u16) -> (Option<SocketAddr>, Check) {
    let name = "address";
    if let Ok(ip) = host.parse::<IpAddr>() {
        return (
            Some(SocketAddr::new(ip, port)),
            Check::ok(name, format!("{ip}")),
        );
    }
    // With a number of an interface: "fe80::1%2".
    if let Ok(v6) = format!("[{host}]:{port}").parse::<SocketAddrV6>() {
        return (Some(v6.into()), Check::ok(name, host));
    }
    let found = output(system, &["getent", "ahosts", host]).unwrap_or_default();
    let ips = found
        .lines()
        .filter_map(|l| l.split_whitespace().next()?.parse::<IpAddr>().ok());
    match ips.min_by_key(IpAddr::is_ipv6) {
        Some(ip) => (
            Some(SocketAddr::new(ip, port)),
            Check::ok(name, format!("{host} is {ip}")),
        ),
        None => (
            None,
            Check::failure(
                name,
                format!("{host} has no address"),
                "give an address, or enter the name in DNS or /etc/hosts",
            ),
        ),
    }
}

/// The interface that leads there.
fn route(system: &dyn System, ip: IpAddr) -> (Option<String>, Check) {
    let name = "route";
    let found = output(system, &["ip", "-o", "route", "get", &ip.to_string()]);
    let line = found.as_deref().unwrap_or_default();
    match word_after(line, "dev") {
        Some(dev) => {
            let from = word_after(line, "src").unwrap_or("?");
            let via = word_after(line, "via");
            let text = via.map_or(String::new(), |via| format!(", by the router {via}"));
            (
                Some(dev.to_string()),
                Check::ok(name, format!("over {dev}, from {from}{text}")),
            )
        }
        None => (
            None,
            Check::failure(
                name,
                format!("there is no route to {ip}"),
                "give an interface of the RDMA network an address in that host's network: ip addr add",
            ),
        ),
    }
}

fn ms(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1e3)
}

/// The checks that follow from an attempt to connect.
fn outcome(
    system: &dyn System,
    host: &str,
    addr: SocketAddr,
    port: Option<u16>,
    attempt: &Attempt,
) -> Vec<Check> {
    let up = attempt.link == Some(LinkState::Up);
    let refused = refusal(&attempt.result);
    let link = Check::ok("link", format!("up, after {}", ms(attempt.took)));
    let again = attempt
        .again
        .map(|t| Check::ok("round trip", format!("{} to connect again", ms(t))));
    match (refused, port) {
        // Where the link is up, the answer came from the peer's ZRS.
        (None, None) => [Some(link), again].into_iter().flatten().collect(),
        (Some(ECONNREFUSED), None) if up => [Some(link), again].into_iter().flatten().collect(),
        (None, Some(port)) => {
            let open = Check::ok("port", format!("{port} of {host} takes connections"));
            [Some(link), again, Some(open)]
                .into_iter()
                .flatten()
                .collect()
        }
        (Some(ECONNREFUSED), Some(port)) if up => {
            let closed = Check::failure(
                "port",
                format!("{host} refuses connections to port {port}"),
                "start the program there with ZRS: a port that is open by TCP is not by ZRS (`zrs ss -l` lists those \
                 that are)",
            );
            [Some(link), again, Some(closed)]
                .into_iter()
                .flatten()
                .collect()
        }
        (Some(ETIMEDOUT), Some(port)) if up => {
            let full = Check::failure(
                "port",
                format!("{host} does not take the connection to port {port}: its backlog is full"),
                "the program there does not call accept(), or too seldom (`zrs ss -l` shows its queue)",
            );
            vec![link, full]
        }
        (Some(errno), _) => vec![failed(system, host, addr, errno, attempt)],
    }
}

/// The errno of a connect() that failed.
fn refusal(result: &io::Result<()>) -> Option<i32> {
    let error = result.as_ref().err()?;
    Some(os_error(error).unwrap_or(0))
}

/// The step that failed, and why.
fn failed(
    system: &dyn System,
    host: &str,
    addr: SocketAddr,
    errno: i32,
    attempt: &Attempt,
) -> Check {
    let neighbour = output(
        system,
        &["ip", "neigh", "show", "to", &addr.ip().to_string()],
    );
    let lost = neighbour.is_some_and(|n| n.contains("FAILED") || n.contains("INCOMPLETE"));
    match errno {
        ETIMEDOUT | EHOSTUNREACH if lost => Check::failure(
            "neighbour",
            format!("{host} does not answer ARP or neighbour discovery"),
            "is the host up, its interface too, and in the same VLAN? try ping",
        ),
        ETIMEDOUT => Check::failure(
            "link",
            format!("{host} does not answer, after {}", ms(attempt.took)),
            "does a firewall on the way drop UDP port 4791 (RoCE v2)? is its RDMA device up? run zrs doctor there",
        ),
        EHOSTUNREACH => Check::failure(
            "link",
            format!("the RDMA connection manager does not reach {host}"),
            "does the interface there have an RDMA device (`rdma link`)? do both ends speak the same: RoCE v2, \
             InfiniBand or iWARP?",
        ),
        ECONNREFUSED => Check::failure(
            "link",
            format!("{host} has RDMA, but ZRS does not answer there"),
            "load zrs there, and let a ZRS socket listen: `zrs ping --listen ADDR:PORT`; service_port has to be the \
             same on both hosts",
        ),
        ENODEV => Check::failure(
            "link",
            "the RDMA device on the way cannot be used",
            "see the lines of the devices above, and dmesg | grep zrs",
        ),
        ENETUNREACH => Check::failure(
            "link",
            format!("no RDMA route to {host}"),
            "the address has to be in the network of the RDMA device, or behind its router",
        ),
        EPROTO => Check::failure(
            "link",
            format!("this host and {host} speak no common version of the protocol"),
            "install the same version of ZRS on both hosts; dmesg | grep zrs has the versions",
        ),
        ENOMEM | ENOBUFS => Check::failure(
            "link",
            format!("there is no room for a link, here or at {host}"),
            "load zrs with more blocks (blocks / link_credit links fit a device), on the host where `zrs links` shows \
             that many",
        ),
        ECONNRESET => Check::failure(
            "link",
            format!("the link to {host} went down while it was made"),
            "try again; dmesg | grep zrs at both ends has the reason",
        ),
        _ => {
            let why = attempt.result.as_ref().err().map(reason);
            Check::failure(
                "link",
                why.unwrap_or_default(),
                "the kernel's log may say more: dmesg | grep zrs",
            )
        }
    }
}
