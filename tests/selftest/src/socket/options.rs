// SPDX-License-Identifier: GPL-2.0
//! Every option of a ZRS socket, compared with the same one of a TCP socket in the same machine:
//! the results of setsockopt() with some numbers, and of getsockopt() afterwards. Differences are
//! in a list, and no option in the list is equal.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

use libc::{AF_INET, AF_INET6, IPPROTO_IP, IPPROTO_IPV6, IPPROTO_TCP, SOCK_STREAM, SOL_SOCKET};

use crate::support::checks::Checks;
use crate::support::raw::{self, Errno, Result};

/// Compare all options of SOL_SOCKET, IPPROTO_TCP, IPPROTO_IP and IPPROTO_IPV6 with TCP's
#[derive(clap::Args)]
pub struct Args {
    /// An address of this host that has an RDMA device
    #[arg(long, value_name = "ADDR")]
    local: Ipv4Addr,
    /// Another one
    #[arg(long, value_name = "ADDR")]
    local6: Ipv6Addr,
}

/// The options that a level may have, by their numbers, for a family.
const LEVELS: [(&str, i32, std::ops::RangeInclusive<i32>, i32); 6] = [
    ("SOL_SOCKET", SOL_SOCKET, 1..=90, AF_INET),
    ("IPPROTO_TCP", IPPROTO_TCP, 1..=50, AF_INET),
    ("IPPROTO_IP", IPPROTO_IP, 1..=60, AF_INET),
    ("AF_INET6, IPPROTO_TCP", IPPROTO_TCP, 1..=50, AF_INET6),
    ("AF_INET6, IPPROTO_IP", IPPROTO_IP, 1..=60, AF_INET6),
    ("IPPROTO_IPV6", IPPROTO_IPV6, 1..=80, AF_INET6),
];

/// The values that are set, one after the other.
const VALUES: [i32; 7] = [1, 0, -1, 3, 88, 1500, 1 << 20];

/// Differences from TCP: the level, the option, its name, and why.
const DIFFERENT: &[(i32, i32, &str, &str)] = &[
    (SOL_SOCKET, 7, "SO_SNDBUF", "begins elsewhere"),
    (SOL_SOCKET, 8, "SO_RCVBUF", "begins elsewhere"),
    (SOL_SOCKET, 18, "SO_RCVLOWAT", "not limited by SO_RCVBUF"),
    (SOL_SOCKET, 37, "SO_TIMESTAMPING", "no id of bytes"),
    (SOL_SOCKET, 38, "SO_PROTOCOL", "another one"),
    (SOL_SOCKET, 42, "SO_PEEK_OFF", "TCP's"),
    (SOL_SOCKET, 49, "SO_INCOMING_CPU", "not known"),
    (SOL_SOCKET, 65, "SO_TIMESTAMPING_NEW", "no id of bytes"),
    (SOL_SOCKET, 74, "SO_TXREHASH", "TCP's"),
    (SOL_SOCKET, 80, "SO_DEVMEM_DONTNEED", "TCP's"),
    (IPPROTO_TCP, 1, "TCP_NODELAY", "always on"),
    (IPPROTO_TCP, 2, "TCP_MAXSEG", "no segments"),
    (IPPROTO_TCP, 9, "TCP_DEFER_ACCEPT", "not rounded"),
    (IPPROTO_TCP, 11, "TCP_INFO", "shorter"),
    (
        IPPROTO_TCP,
        23,
        "TCP_FASTOPEN",
        "not limited by the backlog",
    ),
    (
        IPPROTO_TCP,
        30,
        "TCP_FASTOPEN_CONNECT",
        "as TCP where it is switched off",
    ),
];

/// Refused with EOPNOTSUPP; by TCP too as long as no memory cgroup counts the memory of sockets.
const UNSUPPORTED: (i32, i32, &str) = (SOL_SOCKET, 73, "SO_RESERVE_MEM");

/// Refused with ENOPROTOOPT, but not by TCP.
const REFUSED: &[(i32, i32, &str)] = &[
    (IPPROTO_TCP, 10, "TCP_WINDOW_CLAMP"),
    (IPPROTO_TCP, 13, "TCP_CONGESTION"),
    (IPPROTO_TCP, 14, "TCP_MD5SIG"),
    (IPPROTO_TCP, 16, "TCP_THIN_LINEAR_TIMEOUTS"),
    (IPPROTO_TCP, 17, "TCP_THIN_DUPACK"),
    (IPPROTO_TCP, 19, "TCP_REPAIR"),
    (IPPROTO_TCP, 20, "TCP_REPAIR_QUEUE"),
    (IPPROTO_TCP, 21, "TCP_QUEUE_SEQ"),
    (IPPROTO_TCP, 22, "TCP_REPAIR_OPTIONS"),
    (IPPROTO_TCP, 24, "TCP_TIMESTAMP"),
    (IPPROTO_TCP, 26, "TCP_CC_INFO"),
    (IPPROTO_TCP, 27, "TCP_SAVE_SYN"),
    (IPPROTO_TCP, 28, "TCP_SAVED_SYN"),
    (IPPROTO_TCP, 29, "TCP_REPAIR_WINDOW"),
    (IPPROTO_TCP, 31, "TCP_ULP"),
    (IPPROTO_TCP, 32, "TCP_MD5SIG_EXT"),
    (IPPROTO_TCP, 33, "TCP_FASTOPEN_KEY"),
    (IPPROTO_TCP, 34, "TCP_FASTOPEN_NO_COOKIE"),
    (IPPROTO_TCP, 35, "TCP_ZEROCOPY_RECEIVE"),
    (IPPROTO_TCP, 36, "TCP_INQ"),
    (IPPROTO_TCP, 37, "TCP_TX_DELAY"),
    (IPPROTO_TCP, 38, "TCP_AO_ADD_KEY"),
    (IPPROTO_TCP, 39, "TCP_AO_DEL_KEY"),
    (IPPROTO_TCP, 40, "TCP_AO_INFO"),
    (IPPROTO_TCP, 41, "TCP_AO_GET_KEYS"),
    (IPPROTO_TCP, 42, "TCP_AO_REPAIR"),
    (IPPROTO_TCP, 43, "TCP_IS_MPTCP"),
    (IPPROTO_TCP, 44, "TCP_RTO_MAX_MS"),
    (IPPROTO_TCP, 45, "TCP_RTO_MIN_US"),
    (IPPROTO_TCP, 46, "TCP_DELACK_MAX_US"),
    (IPPROTO_IP, 3, "IP_HDRINCL"),
    (IPPROTO_IP, 4, "IP_OPTIONS"),
    (IPPROTO_IP, 5, "IP_ROUTER_ALERT"),
    (IPPROTO_IP, 6, "IP_RECVOPTS"),
    (IPPROTO_IP, 7, "IP_RETOPTS"),
    (IPPROTO_IP, 8, "IP_PKTINFO"),
    (IPPROTO_IP, 9, "IP_PKTOPTIONS"),
    (IPPROTO_IP, 11, "IP_RECVERR"),
    (IPPROTO_IP, 12, "IP_RECVTTL"),
    (IPPROTO_IP, 13, "IP_RECVTOS"),
    (IPPROTO_IP, 14, "IP_MTU"),
    (IPPROTO_IP, 15, "IP_FREEBIND"),
    (IPPROTO_IP, 16, "IP_IPSEC_POLICY"),
    (IPPROTO_IP, 17, "IP_XFRM_POLICY"),
    (IPPROTO_IP, 18, "IP_PASSSEC"),
    (IPPROTO_IP, 19, "IP_TRANSPARENT"),
    (IPPROTO_IP, 20, "IP_RECVORIGDSTADDR"),
    (IPPROTO_IP, 21, "IP_MINTTL"),
    (IPPROTO_IP, 22, "IP_NODEFRAG"),
    (IPPROTO_IP, 23, "IP_CHECKSUM"),
    (IPPROTO_IP, 25, "IP_RECVFRAGSIZE"),
    (IPPROTO_IP, 26, "IP_RECVERR_RFC4884"),
    (IPPROTO_IP, 32, "IP_MULTICAST_IF"),
    (IPPROTO_IP, 33, "IP_MULTICAST_TTL"),
    (IPPROTO_IP, 34, "IP_MULTICAST_LOOP"),
    (IPPROTO_IP, 35, "IP_ADD_MEMBERSHIP"),
    (IPPROTO_IP, 36, "IP_DROP_MEMBERSHIP"),
    (IPPROTO_IP, 37, "IP_UNBLOCK_SOURCE"),
    (IPPROTO_IP, 38, "IP_BLOCK_SOURCE"),
    (IPPROTO_IP, 39, "IP_ADD_SOURCE_MEMBERSHIP"),
    (IPPROTO_IP, 40, "IP_DROP_SOURCE_MEMBERSHIP"),
    (IPPROTO_IP, 41, "IP_MSFILTER"),
    (IPPROTO_IP, 42, "MCAST_JOIN_GROUP"),
    (IPPROTO_IP, 43, "MCAST_BLOCK_SOURCE"),
    (IPPROTO_IP, 44, "MCAST_UNBLOCK_SOURCE"),
    (IPPROTO_IP, 45, "MCAST_LEAVE_GROUP"),
    (IPPROTO_IP, 46, "MCAST_JOIN_SOURCE_GROUP"),
    (IPPROTO_IP, 47, "MCAST_LEAVE_SOURCE_GROUP"),
    (IPPROTO_IP, 48, "MCAST_MSFILTER"),
    (IPPROTO_IP, 49, "IP_MULTICAST_ALL"),
    (IPPROTO_IP, 50, "IP_UNICAST_IF"),
    (IPPROTO_IP, 52, "IP_PROTOCOL"),
    (IPPROTO_IPV6, 1, "IPV6_ADDRFORM"),
    (IPPROTO_IPV6, 2, "IPV6_2292PKTINFO"),
    (IPPROTO_IPV6, 3, "IPV6_2292HOPOPTS"),
    (IPPROTO_IPV6, 4, "IPV6_2292DSTOPTS"),
    (IPPROTO_IPV6, 5, "IPV6_2292RTHDR"),
    (IPPROTO_IPV6, 6, "IPV6_2292PKTOPTIONS"),
    (IPPROTO_IPV6, 8, "IPV6_2292HOPLIMIT"),
    (IPPROTO_IPV6, 11, "IPV6_FLOWINFO"),
    (IPPROTO_IPV6, 17, "IPV6_MULTICAST_IF"),
    (IPPROTO_IPV6, 18, "IPV6_MULTICAST_HOPS"),
    (IPPROTO_IPV6, 19, "IPV6_MULTICAST_LOOP"),
    (IPPROTO_IPV6, 20, "IPV6_ADD_MEMBERSHIP"),
    (IPPROTO_IPV6, 21, "IPV6_DROP_MEMBERSHIP"),
    (IPPROTO_IPV6, 22, "IPV6_ROUTER_ALERT"),
    (IPPROTO_IPV6, 24, "IPV6_MTU"),
    (IPPROTO_IPV6, 25, "IPV6_RECVERR"),
    (IPPROTO_IPV6, 27, "IPV6_JOIN_ANYCAST"),
    (IPPROTO_IPV6, 28, "IPV6_LEAVE_ANYCAST"),
    (IPPROTO_IPV6, 29, "IPV6_MULTICAST_ALL"),
    (IPPROTO_IPV6, 30, "IPV6_ROUTER_ALERT_ISOLATE"),
    (IPPROTO_IPV6, 31, "IPV6_RECVERR_RFC4884"),
    (IPPROTO_IPV6, 32, "IPV6_FLOWLABEL_MGR"),
    (IPPROTO_IPV6, 33, "IPV6_FLOWINFO_SEND"),
    (IPPROTO_IPV6, 34, "IPV6_IPSEC_POLICY"),
    (IPPROTO_IPV6, 35, "IPV6_XFRM_POLICY"),
    (IPPROTO_IPV6, 42, "MCAST_JOIN_GROUP"),
    (IPPROTO_IPV6, 43, "MCAST_BLOCK_SOURCE"),
    (IPPROTO_IPV6, 44, "MCAST_UNBLOCK_SOURCE"),
    (IPPROTO_IPV6, 45, "MCAST_LEAVE_GROUP"),
    (IPPROTO_IPV6, 46, "MCAST_JOIN_SOURCE_GROUP"),
    (IPPROTO_IPV6, 47, "MCAST_LEAVE_SOURCE_GROUP"),
    (IPPROTO_IPV6, 48, "MCAST_MSFILTER"),
    (IPPROTO_IPV6, 49, "IPV6_RECVPKTINFO"),
    (IPPROTO_IPV6, 50, "IPV6_PKTINFO"),
    (IPPROTO_IPV6, 51, "IPV6_RECVHOPLIMIT"),
    (IPPROTO_IPV6, 53, "IPV6_RECVHOPOPTS"),
    (IPPROTO_IPV6, 54, "IPV6_HOPOPTS"),
    (IPPROTO_IPV6, 55, "IPV6_RTHDRDSTOPTS"),
    (IPPROTO_IPV6, 56, "IPV6_RECVRTHDR"),
    (IPPROTO_IPV6, 57, "IPV6_RTHDR"),
    (IPPROTO_IPV6, 58, "IPV6_RECVDSTOPTS"),
    (IPPROTO_IPV6, 59, "IPV6_DSTOPTS"),
    (IPPROTO_IPV6, 60, "IPV6_RECVPATHMTU"),
    (IPPROTO_IPV6, 61, "IPV6_PATHMTU"),
    (IPPROTO_IPV6, 62, "IPV6_DONTFRAG"),
    (IPPROTO_IPV6, 66, "IPV6_RECVTCLASS"),
    (IPPROTO_IPV6, 70, "IPV6_AUTOFLOWLABEL"),
    (IPPROTO_IPV6, 72, "IPV6_ADDR_PREFERENCES"),
    (IPPROTO_IPV6, 73, "IPV6_MINHOPCOUNT"),
    (IPPROTO_IPV6, 74, "IPV6_RECVORIGDSTADDR"),
    (IPPROTO_IPV6, 75, "IPV6_TRANSPARENT"),
    (IPPROTO_IPV6, 76, "IPV6_UNICAST_IF"),
    (IPPROTO_IPV6, 77, "IPV6_RECVFRAGSIZE"),
    (IPPROTO_IPV6, 78, "IPV6_FREEBIND"),
];

/// The result of a call: an int, or the length of another value.
#[derive(PartialEq, Debug)]
enum Value {
    Int(i32),
    Long(usize),
}

fn get(fd: &OwnedFd, level: i32, name: i32) -> Result<Value> {
    let mut buf = [0; 512];
    Ok(match raw::getsockopt(fd, level, name, &mut buf)? {
        4 => Value::Int(i32::from_ne_bytes([buf[0], buf[1], buf[2], buf[3]])),
        len => Value::Long(len),
    })
}

fn number(value: i32) -> [u8; 4] {
    value.to_ne_bytes()
}

/// The answers of an option of a fresh socket to all values.
fn fresh(
    family: i32,
    protocol: i32,
    level: i32,
    name: i32,
) -> Result<Vec<(Result<()>, Result<Value>)>> {
    let fd = raw::socket(family, SOCK_STREAM, protocol)?;
    let mut seen = vec![(Ok(()), get(&fd, level, name))];
    for value in VALUES {
        let set = raw::setsockopt(&fd, level, name, &number(value));
        seen.push((set, get(&fd, level, name)));
    }
    seen.push((
        raw::setsockopt(&fd, level, name, &[1]),
        get(&fd, level, name),
    ));
    Ok(seen)
}

/// Both ends of a connection of this host with itself.
fn pair(protocol: i32, local: IpAddr) -> Result<[OwnedFd; 3]> {
    let family = if local.is_ipv6() { AF_INET6 } else { AF_INET };
    let listener = raw::socket(family, SOCK_STREAM, protocol)?;
    raw::bind_any(&listener, SocketAddr::new(local, 0))?;
    raw::listen(&listener, 16)?;
    let client = raw::socket(family, SOCK_STREAM, protocol)?;
    raw::connect_any(&client, raw::name_any(&listener, false)?)?;
    let accepted = raw::accept(&listener)?;
    Ok([listener, client, accepted])
}

pub fn run(args: &Args, checks: &mut Checks) {
    for (level_name, level, names, family) in LEVELS {
        let local = match family {
            AF_INET6 => args.local6.into(),
            _ => args.local.into(),
        };
        let zrs = checks.need("a connection", pair(raw::protocol(), local));
        let tcp = checks.need("a connection over TCP", pair(IPPROTO_TCP, local));
        let (Some(zrs), Some(tcp)) = (zrs, tcp) else {
            return;
        };
        for name in names {
            let connected = |fds: &[OwnedFd; 3]| fds.each_ref().map(|fd| get(fd, level, name));
            let ours = (fresh(family, raw::protocol(), level, name), connected(&zrs));
            let theirs = (fresh(family, IPPROTO_TCP, level, name), connected(&tcp));
            let different = DIFFERENT.iter().find(|d| (d.0, d.1) == (level, name));
            let refused = REFUSED.iter().find(|d| (d.0, d.1) == (level, name));
            if (level, name) == (UNSUPPORTED.0, UNSUPPORTED.1) {
                let text = format!("{}: refused", UNSUPPORTED.2);
                let first = ours.0.as_ref().ok().and_then(|all| all.get(1)).map(|o| o.0);
                checks.eq(&text, first, Some(Err(Errno(libc::EOPNOTSUPP))));
            } else if let Some((.., text, why)) = different {
                let text = format!("{text}: other than with TCP: {why}");
                checks.yes(&text, ours != theirs, &format!("both say {ours:?}"));
            } else if let Some((.., text)) = refused {
                let text = format!("{text}: refused");
                checks.yes(
                    &text,
                    is_refused(&ours) && !is_refused(&theirs),
                    &format!("saw {ours:?}, and of TCP {theirs:?}"),
                );
            } else {
                checks.eq(&format!("{level_name} {name}: as TCP"), ours, theirs);
            }
        }
    }
}

type Seen = (Result<Vec<(Result<()>, Result<Value>)>>, [Result<Value>; 3]);

/// Whether every call said ENOPROTOOPT, but for the value that was too short.
fn is_refused((fresh, connected): &Seen) -> bool {
    const NONE: Errno = Errno(libc::ENOPROTOOPT);
    let Ok(fresh) = fresh else {
        return false;
    };
    let sets = fresh.get(1..=VALUES.len()).unwrap_or_default();
    let mut gets = fresh.iter().map(|(_, get)| get).chain(connected);
    sets.iter().all(|(set, _)| *set == Err(NONE)) && gets.all(|get| *get == Err(NONE))
}
