// SPDX-License-Identifier: GPL-2.0
//! The rules for sharing ports. The answers are TCP's in the same place, except for marked ones:
//! there is no TIME_WAIT, and addresses of connections are not known from the beginning.
//!
//! Changes settings of the network namespace that it runs in.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};

use libc::{c_int, EACCES, EADDRINUSE, EADDRNOTAVAIL, ECONNREFUSED};

use crate::support::checks::Checks;
use crate::support::process;
use crate::support::raw::{self, Errno, Result};

/// Check the rules for binding, listening and connecting of ports
#[derive(clap::Args)]
pub struct Args {
    /// An address of this host that has an RDMA device
    #[arg(long, value_name = "ADDR")]
    local: Ipv4Addr,
    /// No more than can be seen without an RDMA device: bind() and connects that fail
    #[arg(long)]
    bare: bool,
}

/// A port without a listener.
const NOBODY: u16 = 9;

pub fn run(args: &Args, checks: &mut Checks) {
    if args.bare {
        bare(args.local, checks);
        return;
    }
    let tests: [fn(Ipv4Addr, &mut Checks) -> Option<()>; 11] = [
        addresses,
        reuse_address,
        reuse_port,
        spread,
        other_user,
        low_ports,
        tuples,
        range,
        chosen_by_bind,
        left_to_connect,
        failures,
    ];
    for test in tests {
        test(args.local, checks);
    }
    if raw::is_zrs() {
        listed(args.local, checks);
    }
}

const ANY: Ipv4Addr = Ipv4Addr::UNSPECIFIED;

fn set(fd: &OwnedFd, option: c_int) -> Result<()> {
    raw::setsockopt(fd, libc::SOL_SOCKET, option, &1_i32.to_ne_bytes())
}

/// A socket with some options set.
fn with(options: &[c_int]) -> Result<OwnedFd> {
    let fd = raw::stream()?;
    for &option in options {
        set(&fd, option)?;
    }
    Ok(fd)
}

/// A bound socket with some options set.
fn bound(options: &[c_int], ip: Ipv4Addr, port: u16) -> Result<OwnedFd> {
    let fd = with(options)?;
    raw::bind(&fd, SocketAddrV4::new(ip, port))?;
    Ok(fd)
}

fn listening(options: &[c_int], ip: Ipv4Addr, port: u16) -> Result<OwnedFd> {
    let fd = bound(options, ip, port)?;
    raw::listen(&fd, 100)?;
    Ok(fd)
}

/// A connection from a port of the socket's own, or a chosen one.
fn connected(ip: Ipv4Addr, port: u16) -> Result<OwnedFd> {
    raw::connected(SocketAddrV4::new(ip, port))
}

fn port_of(fd: &OwnedFd) -> Result<u16> {
    raw::getsockname(fd).map(|addr| addr.port())
}

const ADDR: &[c_int] = &[libc::SO_REUSEADDR];
const PORT: &[c_int] = &[libc::SO_REUSEPORT];

fn addresses(local: Ipv4Addr, checks: &mut Checks) -> Option<()> {
    let one = checks.need("bind", bound(&[], local, 7100))?;
    let lo = checks.need(
        "the same port of another address",
        bound(&[], Ipv4Addr::LOCALHOST, 7100),
    );
    checks.errno("of all", bound(&[], ANY, 7100), &[EADDRINUSE]);
    checks.errno(
        "SO_REUSEADDR alone does not help",
        bound(ADDR, local, 7100),
        &[EADDRINUSE],
    );
    checks.errno(
        "SO_REUSEPORT neither",
        bound(PORT, local, 7100),
        &[EADDRINUSE],
    );
    drop((one, lo));
    checks.need("when they are closed, all", bound(&[], ANY, 7100))?;
    Some(())
}

fn reuse_address(local: Ipv4Addr, checks: &mut Checks) -> Option<()> {
    let a = checks.need("bind", bound(ADDR, local, 7101))?;
    let b = checks.need("SO_REUSEADDR on both", bound(ADDR, local, 7101))?;
    let all = checks.need("and on all addresses", bound(ADDR, ANY, 7101))?;
    checks.errno("not on one", bound(&[], local, 7101), &[EADDRINUSE]);
    checks.eq("the first one listens", raw::listen(&a, 1), Ok(()));
    checks.errno("not the second", raw::listen(&b, 1), &[EADDRINUSE]);
    checks.errno("nor on all addresses", raw::listen(&all, 1), &[EADDRINUSE]);
    checks.errno(
        "nobody binds where one listens",
        bound(ADDR, local, 7101),
        &[EADDRINUSE],
    );
    checks.eq("listen again: a backlog", raw::listen(&a, 9), Ok(()));
    checks.need("shutdown", raw::shutdown(&a, libc::SHUT_RD))?;
    checks.eq("then the second listens", raw::listen(&b, 1), Ok(()));
    checks.errno("the first no more", raw::listen(&a, 1), &[EADDRINUSE]);
    drop(b);
    checks.eq("until it is closed", raw::listen(&a, 1), Ok(()));
    Some(())
}

fn reuse_port(local: Ipv4Addr, checks: &mut Checks) -> Option<()> {
    let a = checks.need("bind", bound(PORT, local, 7102))?;
    let b = checks.need("SO_REUSEPORT on both", bound(PORT, local, 7102))?;
    checks.errno("not on one", bound(&[], local, 7102), &[EADDRINUSE]);
    checks.errno(
        "SO_REUSEADDR is another thing",
        bound(ADDR, local, 7102),
        &[EADDRINUSE],
    );
    checks.eq("one listens", raw::listen(&a, 1), Ok(()));
    checks.eq("the other too", raw::listen(&b, 1), Ok(()));
    checks.need("and more", listening(PORT, local, 7102))?;
    checks.need("on all addresses", listening(PORT, ANY, 7102))?;
    checks.errno(
        "still not without it",
        bound(&[], local, 7102),
        &[EADDRINUSE],
    );
    Some(())
}

/// Accepts all waiting connections, and returns their number.
fn take(listener: &OwnedFd) -> Result<usize> {
    let mut n = 0;
    while raw::poll(listener, libc::POLLIN, 0)? != 0 {
        raw::accept(listener)?;
        n += 1;
    }
    Ok(n)
}

/// Connections are spread over the listeners at an address, and go there before they go to a
/// listener on all addresses.
fn spread(local: Ipv4Addr, checks: &mut Checks) -> Option<()> {
    const CONNS: usize = 40;
    let all = checks.need("listen on all", listening(PORT, ANY, 7103))?;
    let mine = [(); 2].map(|()| listening(PORT, local, 7103));
    let [a, b] = mine.map(|one| checks.need("listen", one));
    let mine = [a?, b?];
    let mut clients = Vec::new();
    for _ in 0..CONNS {
        clients.push(checks.need("connect", connected(local, 7103))?);
    }
    let mut taken = [0; 2];
    let late = Instant::now() + process::patience(5);
    while taken.iter().sum::<usize>() < CONNS && Instant::now() < late {
        for (n, one) in taken.iter_mut().zip(&mine) {
            *n += checks.need("accept", take(one))?;
        }
        thread::sleep(Duration::from_millis(10));
    }
    drop(mine);
    checks.yes(
        "each of two has some",
        taken.iter().all(|&n| n > 0),
        &format!("{taken:?}"),
    );
    checks.eq("both have all", taken.iter().sum(), CONNS);
    let to_all = checks.need("connect when they are gone", connected(local, 7103));
    let one = raw::poll(&all, libc::POLLIN, 60_000).and_then(|_| take(&all));
    checks.eq("who listens on all has one", one, Ok(1));
    drop(to_all);
    Some(())
}

/// The result of another user's call: 0 or its errno.
fn as_nobody(call: impl FnOnce() -> Result<()>) -> Result<c_int> {
    let child = process::fork(|| {
        let said = process::become_nobody().and_then(|()| call());
        said.map_or_else(|e| e.0 as u8, |()| 0)
    })?;
    process::wait(child)
}

fn other_user(local: Ipv4Addr, checks: &mut Checks) -> Option<()> {
    let both = &[libc::SO_REUSEADDR, libc::SO_REUSEPORT];
    let ours = checks.need("bind", bound(both, local, 7104))?;
    // The host takes connections from then on, for which a privileged port is needed: the module
    // binds it, not the program.
    checks.eq(
        "an ordinary user listens, the first in the namespace",
        as_nobody(|| listening(&[], local, 7106).map(drop)),
        Ok(0),
    );
    let bind = |options: &'static [c_int]| as_nobody(|| bound(options, local, 7104).map(drop));
    checks.eq("another user: SO_REUSEPORT", bind(PORT), Ok(EADDRINUSE));
    checks.eq("another user: SO_REUSEADDR", bind(ADDR), Ok(0));
    checks.eq(
        "who does not listen",
        as_nobody(|| {
            let theirs = bound(ADDR, local, 7104)?;
            raw::listen(&ours, 1)?;
            raw::listen(&theirs, 1)
        }),
        Ok(EADDRINUSE),
    );
    Some(())
}

const UNPRIVILEGED: &str = "ip_unprivileged_port_start";
const RANGE: &str = "ip_local_port_range";
const RESERVED: &str = "ip_local_reserved_ports";

/// A setting of the network namespace, while this lives.
struct Setting(&'static str, String);

impl Setting {
    fn new(name: &'static str, value: &str) -> Result<Self> {
        let path = format!("/proc/sys/net/ipv4/{name}");
        let old = std::fs::read_to_string(&path)?;
        std::fs::write(&path, value)?;
        Ok(Self(name, old))
    }
}

impl Drop for Setting {
    fn drop(&mut self) {
        let _ = std::fs::write(format!("/proc/sys/net/ipv4/{}", self.0), &self.1);
    }
}

fn low_ports(local: Ipv4Addr, checks: &mut Checks) -> Option<()> {
    let bind = |port| as_nobody(|| bound(&[], local, port).map(drop));
    checks.eq("an ordinary user and port 300", bind(300), Ok(EACCES));
    checks.need("root and port 300", bound(&[], local, 300))?;
    let _setting = checks.need(UNPRIVILEGED, Setting::new(UNPRIVILEGED, "300"))?;
    checks.eq("port 300 when it is an ordinary one", bind(300), Ok(0));
    checks.eq("port 299", bind(299), Ok(EACCES));
    Some(())
}

fn to(fd: &OwnedFd, ip: Ipv4Addr, port: u16) -> Result<()> {
    raw::connect(fd, SocketAddrV4::new(ip, port))
}

/// The same connection twice.
fn tuples(local: Ipv4Addr, checks: &mut Checks) -> Option<()> {
    let _one = checks.need("listen", listening(&[], local, 7111))?;
    let _two = checks.need("listen", listening(&[], local, 7112))?;
    let a = checks.need("bind", bound(ADDR, local, 7105))?;
    let b = checks.need("bind", bound(ADDR, local, 7105))?;
    let all = checks.need("bind", bound(ADDR, ANY, 7105))?;
    checks.eq("connect from a bound port", to(&a, local, 7111), Ok(()));
    checks.eq("which it is from", port_of(&a), Ok(7105));
    checks.errno("a second time", to(&b, local, 7111), &[EADDRNOTAVAIL]);
    checks.errno("from all", to(&all, local, 7111), &[EADDRNOTAVAIL]);
    checks.eq("to another port", to(&b, local, 7112), Ok(()));
    checks.errno("a second time", to(&all, local, 7112), &[EADDRNOTAVAIL]);
    checks.errno("a third", to(&all, local, 7111), &[EADDRNOTAVAIL]);
    if raw::is_zrs() {
        drop(a);
        // TCP's would be in TIME_WAIT.
        checks.eq("when it is closed", to(&all, local, 7111), Ok(()));
    }
    Some(())
}

/// Ports that connect() chooses.
fn range(local: Ipv4Addr, checks: &mut Checks) -> Option<()> {
    let _reserved = checks.need(RESERVED, Setting::new(RESERVED, "40001"))?;
    let _range = checks.need(RANGE, Setting::new(RANGE, "40000 40005"))?;
    let _one = checks.need("listen", listening(&[], local, 7121))?;
    let _two = checks.need("listen", listening(&[], local, 7122))?;
    let bound = checks.need("bind", bound(ADDR, local, 40003))?;
    let mut clients = Vec::new();
    let mut ports = Vec::new();
    for _ in 0..4 {
        let client = checks.need("connect", connected(local, 7121))?;
        ports.push(checks.need("getsockname", port_of(&client))?);
        clients.push(client);
    }
    ports.sort_unstable();
    checks.eq(
        "of the range, but neither reserved nor bound",
        ports,
        vec![40000, 40002, 40004, 40005],
    );
    checks.errno(
        "when all are used",
        connected(local, 7121),
        &[EADDRNOTAVAIL],
    );
    let other = checks.need("another destination", connected(local, 7122))?;
    let its = checks.need("getsockname", port_of(&other))?;
    checks.yes(
        "shares a port",
        [40000, 40002, 40004, 40005].contains(&its),
        &its.to_string(),
    );
    checks.errno(
        "nobody binds it",
        self::bound(ADDR, local, 40002),
        &[EADDRINUSE],
    );
    checks.errno("or all", self::bound(&[], ANY, its), &[EADDRINUSE]);
    checks.errno(
        "no port is left for bind()",
        self::bound(ADDR, local, 0),
        &[EADDRINUSE],
    );
    checks.eq("from the bound one", to(&bound, local, 7121), Ok(()));
    if raw::is_zrs() {
        // TCP's would be in TIME_WAIT.
        let freed = clients
            .pop()
            .map(|c| port_of(&c))
            .and_then(|port| checks.need("getsockname", port))?;
        let again = checks.need("connect when one is closed", connected(local, 7121))?;
        checks.eq("takes its port", port_of(&again), Ok(freed));
        drop((clients, again, other));
        checks.need("bind when all are closed", self::bound(&[], ANY, 40002))?;
    }
    Some(())
}

/// Ports that bind() chooses.
fn chosen_by_bind(local: Ipv4Addr, checks: &mut Checks) -> Option<()> {
    let _one = checks.need("listen", listening(&[], local, 7131))?;
    let _reserved = checks.need(RESERVED, Setting::new(RESERVED, "41002"))?;
    let _range = checks.need(RANGE, Setting::new(RANGE, "41000 41005"))?;
    let mut fds = Vec::new();
    let mut ports = Vec::new();
    for _ in 0..5 {
        let fd = checks.need("bind to port 0", bound(ADDR, local, 0))?;
        ports.push(checks.need("getsockname", port_of(&fd))?);
        fds.push(fd);
    }
    ports.sort_unstable();
    checks.eq(
        "each port once",
        ports,
        vec![41000, 41001, 41003, 41004, 41005],
    );
    checks.errno("no more", bound(ADDR, local, 0), &[EADDRINUSE]);
    checks.errno("nor by SO_REUSEPORT", bound(PORT, local, 0), &[EADDRINUSE]);
    checks.need("but at another address", bound(&[], Ipv4Addr::LOCALHOST, 0))?;
    let fd = checks.need("socket", raw::stream())?;
    checks.errno("none to listen", raw::listen(&fd, 1), &[EADDRINUSE]);
    checks.errno("none to connect", to(&fd, local, 7131), &[EADDRNOTAVAIL]);
    fds.pop();
    checks.eq("until one is closed", to(&fd, local, 7131), Ok(()));
    Some(())
}

/// IP_BIND_ADDRESS_NO_PORT: bind() takes an address, connect() a port of it.
fn left_to_connect(local: Ipv4Addr, checks: &mut Checks) -> Option<()> {
    let _one = checks.need("listen", listening(&[], local, 7151))?;
    let _two = checks.need("listen", listening(&[], local, 7152))?;
    let _range = checks.need(RANGE, Setting::new(RANGE, "43000 43000"))?;
    let later = || {
        let fd = raw::stream()?;
        let on = 1_i32.to_ne_bytes();
        raw::setsockopt(&fd, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, &on)?;
        raw::bind(&fd, SocketAddrV4::new(local, 0))?;
        Ok(fd)
    };
    let name = |fd: &OwnedFd| raw::getsockname(fd);
    let unbound = Ok(SocketAddrV4::new(local, 0));
    let from = Ok(SocketAddrV4::new(local, 43000));
    let a = checks.need("bind without a port", later())?;
    checks.eq("the address, and no port", name(&a), unbound);
    let again = raw::bind(&a, SocketAddrV4::new(local, 0));
    checks.eq("it may be bound again", again, Ok(()));
    let refused = to(&a, local, NOBODY);
    checks.errno("a connect that fails", refused, &[ECONNREFUSED]);
    if raw::is_zrs() {
        // TCP's keeps the port to show.
        checks.eq("leaves the address", name(&a), unbound);
    }
    checks.eq("connect", to(&a, local, 7151), Ok(()));
    checks.eq("takes a port", name(&a), from);
    let b = checks.need("another one, where the only port is taken", later())?;
    let same = to(&b, local, 7151);
    checks.errno("not to the same place", same, &[EADDRNOTAVAIL]);
    checks.eq("elsewhere", to(&b, local, 7152), Ok(()));
    checks.eq("from the same port", name(&b), from);
    let taken = bound(&[], local, 0);
    checks.errno("which bind() cannot choose", taken, &[EADDRINUSE]);
    let c = checks.need("a third", later())?;
    let none = raw::listen(&c, 1);
    checks.errno("nor listen()", none, &[EADDRINUSE]);
    if raw::is_zrs() {
        // TCP's would be in TIME_WAIT.
        drop((a, b));
        checks.eq("until it is free", raw::listen(&c, 1), Ok(()));
        checks.eq("at the address", name(&c), from);
    }
    Some(())
}

/// A failed connect() gives back its port.
fn failures(local: Ipv4Addr, checks: &mut Checks) -> Option<()> {
    let _one = checks.need("listen", listening(&[], local, 7141))?;
    let _two = checks.need("listen", listening(&[], local, 7142))?;
    let _range = checks.need(RANGE, Setting::new(RANGE, "42000 42001"))?;
    let mut fds = Vec::new();
    let mut seen = Vec::new();
    for _ in 0..4 {
        let fd = checks.need("socket", raw::stream())?;
        seen.push(to(&fd, local, NOBODY));
        fds.push(fd);
    }
    checks.eq(
        "ports of refused connects go back",
        seen,
        vec![Err(Errno(ECONNREFUSED)); 4],
    );
    let [a, b, c, d] = fds.try_into().ok()?;
    checks.eq("then one connects", to(&a, local, 7141), Ok(()));
    checks.eq("two connect", to(&b, local, 7141), Ok(()));
    checks.errno("no third", to(&c, local, 7141), &[EADDRNOTAVAIL]);
    checks.eq("but elsewhere", to(&c, local, 7142), Ok(()));
    checks.eq(
        "another binds",
        raw::bind(&d, SocketAddrV4::new(local, 7143)),
        Ok(()),
    );

    let e = checks.need("bind", bound(ADDR, local, 7144))?;
    let f = checks.need("bind", bound(ADDR, local, 7144))?;
    checks.errno("refused", to(&e, local, NOBODY), &[ECONNREFUSED]);
    checks.errno("both", to(&f, local, NOBODY), &[ECONNREFUSED]);
    checks.eq("with its port", port_of(&e), Ok(7144));
    checks.eq("one connects from it", to(&e, local, 7141), Ok(()));
    checks.errno("not both", to(&f, local, 7141), &[EADDRNOTAVAIL]);
    checks.eq("both elsewhere", to(&f, local, 7142), Ok(()));

    let g = checks.need("socket", raw::stream())?;
    checks.need("set O_NONBLOCK", raw::set_nonblocking(&g, true))?;
    let mut said = to(&g, local, NOBODY);
    if said == Err(Errno(libc::EINPROGRESS)) {
        checks.need("poll", raw::poll(&g, libc::POLLOUT, 60_000))?;
        said = to(&g, local, NOBODY);
    }
    checks.errno("refused without waiting", said, &[ECONNREFUSED]);
    checks.need("clear O_NONBLOCK", raw::set_nonblocking(&g, false))?;
    checks.errno(
        "where all ports are used",
        to(&g, local, 7141),
        &[EADDRNOTAVAIL],
    );
    checks.eq("where one is free", to(&g, local, 7142), Ok(()));
    Some(())
}

/// Each listening socket is listed once, whichever others come and go during the listing.
fn listed(local: Ipv4Addr, checks: &mut Checks) -> Option<()> {
    const FIRST: u16 = 20_000;
    const MANY: u16 = 300;
    let device = checks.need(
        "open /dev/zrs",
        zrs_sys::Device::open().map_err(Errno::from),
    )?;
    let mut fds = BTreeMap::new();
    for port in FIRST..FIRST + MANY {
        fds.insert(port, checks.need("listen", listening(&[], local, port))?);
    }
    let mut seen: BTreeMap<u16, u32> = BTreeMap::new();
    let mut cursor = 0;
    loop {
        let next = device.sock(cursor).map_err(Errno::from);
        let Some(sock) = checks.need("ZRS_IOC_SOCK", next)? else {
            break;
        };
        cursor = sock.cursor;
        let port = u16::from_be(sock.info.local_port);
        if !(FIRST..FIRST + MANY).contains(&port) {
            continue;
        }
        *seen.entry(port).or_default() += 1;
        if seen.len() == 100 && fds.len() == usize::from(MANY) {
            fds.retain(|port, _| port % 3 != 0);
            // Others in the same places.
            for port in (FIRST..FIRST + MANY).filter(|port| port % 6 == 0) {
                fds.insert(port, checks.need("listen", listening(&[], local, port))?);
            }
        }
    }
    let right = |(port, n): (&u16, &u32)| *n == 1 || (port % 6 == 0 && *n == 2);
    checks.yes(
        "no socket is listed twice",
        seen.iter().all(right),
        &format!("{seen:?}"),
    );
    let missing: Vec<_> = fds.keys().filter(|port| !seen.contains_key(port)).collect();
    checks.yes(
        "none is left out",
        missing.is_empty(),
        &format!("{missing:?}"),
    );
    Some(())
}

fn bare(local: Ipv4Addr, checks: &mut Checks) -> Option<()> {
    let a = checks.need("bind", bound(ADDR, local, 7100))?;
    let b = checks.need("bind", bound(ADDR, ANY, 7100))?;
    let c = checks.need("bind", bound(&[], local, 0))?;
    let d = checks.need("socket", raw::stream())?;
    for (name, fd) in [("bound", &a), ("unbound", &d)] {
        checks.errno(
            &format!("connect without an RDMA device, {name}"),
            to(fd, local, NOBODY),
            &[libc::ENODEV],
        );
    }
    checks.errno("bind in use", bound(&[], local, 7100), &[EADDRINUSE]);
    drop((a, b, c));
    checks.need("bind when it is closed", bound(&[], local, 7100))?;
    Some(())
}
