// SPDX-License-Identifier: GPL-2.0
//! `/dev/zrs`: answers and refusals.

use std::fs::File;

use zrs_sys::abi::*;

use crate::support::checks::Checks;
use crate::support::process;
use crate::support::raw::{self, bytes_of};

/// Check the ioctls of /dev/zrs and socket creation
#[derive(clap::Args)]
pub struct Args {}

pub fn run(_: &Args, checks: &mut Checks) {
    let open = File::options().read(true).write(true).open("/dev/zrs");
    let Some(dev) = checks.need("open /dev/zrs", open.map_err(Into::into)) else {
        return;
    };
    unknown(&dev, checks);
    arguments(&dev, checks);
    answers(&dev, checks);
    sockets(&dev, checks);
}

/// An ioctl number of ZRS's with any argument size.
fn number(nr: u32, size: u32) -> u32 {
    (3 << 30) | (size << 16) | (ZRS_IOC_MAGIC << 8) | nr
}

fn unknown(dev: &File, checks: &mut Checks) {
    let mut arg = [0; 512];
    for (name, request) in [
        ("of ZRS, 0x0f", number(0x0f, 16)),
        ("of ZRS, 0x7f", number(0x7f, 16)),
        ("of memory nodes, 0x10", number(0x10, 16)),
        ("version with another size", number(0x00, 24)),
        ("of another kind", 0x5401),
        ("doorbell, which is the socket's", ZRS_IOC_DOORBELL),
    ] {
        checks.errno(
            &format!("unknown ioctl {name}"),
            raw::ioctl(dev, request, &mut arg),
            &[libc::ENOTTY],
        );
    }
}

const ALL: [(&str, u32); 9] = [
    ("VERSION", ZRS_IOC_VERSION),
    ("SOCKET", ZRS_IOC_SOCKET),
    ("STATS", ZRS_IOC_STATS),
    ("POOL", ZRS_IOC_POOL),
    ("LINK", ZRS_IOC_LINK),
    ("SOCK", ZRS_IOC_SOCK),
    ("TABLE", ZRS_IOC_TABLE),
    ("CACHE", ZRS_IOC_CACHE),
    ("MEM_STATS", ZRS_IOC_MEM_STATS),
];

fn arguments(dev: &File, checks: &mut Checks) {
    for (name, request) in ALL {
        let seen = raw::ioctl_bad_pointer(dev, request);
        checks.errno(&format!("{name} with a bad pointer"), seen, &[libc::EFAULT]);
    }
    let mut refuse = |name: &str, request: u32, mut arg: Vec<u8>| {
        let seen = raw::ioctl(dev, request, &mut arg);
        checks.errno(
            &format!("{name} with reserved not zero"),
            seen,
            &[libc::EINVAL],
        );
    };
    let version = zrs_ioc_version {
        reserved: 1,
        ..Default::default()
    };
    refuse("VERSION", ZRS_IOC_VERSION, bytes_of(&version));
    for (lack, reserved) in [(2, 0), (0, 1)] {
        let pool = zrs_ioc_pool {
            lack,
            reserved,
            ..Default::default()
        };
        refuse("POOL", ZRS_IOC_POOL, bytes_of(&pool));
    }
    let cache = zrs_ioc_cache {
        reserved: [0, 0, 0, 0, 0, 0, 0, 1],
        ..Default::default()
    };
    refuse("CACHE", ZRS_IOC_CACHE, bytes_of(&cache));
    let link = zrs_ioc_link {
        reserved1: 1,
        ..Default::default()
    };
    refuse("LINK", ZRS_IOC_LINK, bytes_of(&link));
    let info = zrs_dgram_info {
        reserved: [0, 0, 0, 1],
        ..Default::default()
    };
    refuse(
        "DGRAM",
        ZRS_IOC_DGRAM,
        bytes_of(&zrs_ioc_dgram { cursor: 0, info }),
    );
    let info = zrs_info {
        reserved: [0, 1],
        ..Default::default()
    };
    refuse(
        "SOCK",
        ZRS_IOC_SOCK,
        bytes_of(&zrs_ioc_sock { cursor: 0, info }),
    );
    for (reserved0, last) in [(1, 0), (0, 1)] {
        let table = zrs_ioc_table {
            reserved0,
            reserved: [0, 0, 0, 0, 0, last],
            ..Default::default()
        };
        refuse("TABLE", ZRS_IOC_TABLE, bytes_of(&table));
    }
    let stats = zrs_ioc_mem_stats {
        reserved: [0, 0, 0, 0, 0, 0, 0, 1],
        ..Default::default()
    };
    refuse("MEM_STATS", ZRS_IOC_MEM_STATS, bytes_of(&stats));
    let socket = zrs_ioc_socket {
        reserved: 1,
        ..stream_socket()
    };
    refuse("SOCKET", ZRS_IOC_SOCKET, bytes_of(&socket));
}

fn stream_socket() -> zrs_ioc_socket {
    zrs_ioc_socket {
        family: libc::AF_INET as u32,
        type_: libc::SOCK_STREAM as u32,
        flags: 0,
        reserved: 0,
    }
}

fn answers(dev: &File, checks: &mut Checks) {
    let mut arg = [0; size_of::<zrs_ioc_version>()];
    if checks
        .need("VERSION", raw::ioctl(dev, ZRS_IOC_VERSION, &mut arg))
        .is_some()
    {
        let version = u32::from_ne_bytes([arg[0], arg[1], arg[2], arg[3]]);
        checks.eq("version", version, ZRS_UAPI_VERSION);
        checks.eq("reserved after VERSION", &arg[4..8], &[0; 4]);
        let features = u64::from_ne_bytes(arg[8..].try_into().expect("eight bytes"));
        let known = ZRS_FEATURE_STREAM
            | ZRS_FEATURE_RX_RING
            | ZRS_FEATURE_RING_WAIT
            | ZRS_FEATURE_RECV_MAP
            | ZRS_FEATURE_ESCAPE
            | ZRS_FEATURE_IPV6
            | ZRS_FEATURE_TCP
            | ZRS_FEATURE_DGRAM
            | ZRS_FEATURE_RING_SMALL;
        checks.eq("features", features & known, known);
    }
    let mut arg = [0; size_of::<zrs_ioc_stats>()];
    if checks
        .need("STATS", raw::ioctl(dev, ZRS_IOC_STATS, &mut arg))
        .is_some()
    {
        checks.yes(
            "reserved after STATS",
            arg[18 * 8..].iter().all(|&b| b == 0),
            "not zero",
        );
    }
    let seen = zrs_sys::Device::open().and_then(|device| device.table());
    if let Some(t) = checks.need("TABLE", seen.map_err(Into::into)) {
        checks.yes(
            "TABLE: the tiers are there, the second is a whole number of sets",
            t.hot_slots > 0 && t.most > 0 && t.ways > 0 && t.near_places % t.ways == 0,
            &format!("{t:?}"),
        );
        checks.yes(
            "TABLE: no channel is in two tiers",
            t.hot <= t.hot_slots && t.near <= t.near_places && t.hot + t.near <= t.entries,
            &format!("{t:?}"),
        );
        checks.eq(
            "reserved after TABLE",
            (t.reserved0, t.reserved),
            (0, [0; 6]),
        );
    }
    caches(checks);
    for (name, request) in [ALL[3], ALL[4], ALL[5], ALL[7]] {
        let mut arg = [0xff; 512];
        arg[8..].fill(0);
        let seen = raw::ioctl(dev, request, &mut arg);
        checks.errno(&format!("{name} behind the last"), seen, &[libc::ENOENT]);
    }
}

/// A cache and its pools have consistent values. Sockets make pools, so one is made here.
fn caches(checks: &mut Checks) -> Option<()> {
    let _socket = checks.need("a socket", raw::stream())?;
    let device = checks.need("device", zrs_sys::Device::open().map_err(Into::into))?;
    let mut cursor = 0;
    let mut pools = Vec::new();
    while let Some(pool) = checks.need("POOL", device.pool(cursor).map_err(Into::into))? {
        cursor = pool.cursor;
        pools.push(pool);
    }
    cursor = 0;
    let mut devices = 0;
    while let Some(c) = checks.need("CACHE", device.cache(cursor).map_err(Into::into))? {
        cursor = c.cursor;
        devices += c.devices as usize;
        let seen = &format!("{c:?}");
        let mine = pools.iter().filter(|p| u64::from(p.cache) + 1 == c.cursor);
        checks.eq(
            "CACHE: devices that say it is theirs",
            mine.count(),
            c.devices as usize,
        );
        checks.yes(
            "CACHE: a policy, and times and sizes that are not 0",
            c.policy <= ZRS_ESCAPE_ALWAYS && c.residency_us > 0 && c.rate > 0 && c.bytes > 0,
            seen,
        );
        checks.yes(
            "CACHE: use is within the size, and below its high-water marks",
            c.small_bytes + c.large_bytes <= c.bytes
                && c.small_bytes <= c.small_high
                && c.large_bytes <= c.large_high
                && c.unread <= c.unread_high,
            seen,
        );
        checks.yes(
            "CACHE: what is in main memory was moved there, and promised before",
            c.escaped <= c.escaped_bytes && c.escape_reserved <= c.escape_max,
            seen,
        );
        checks.eq("reserved after CACHE", c.reserved, [0; 8]);
    }
    checks.eq("CACHE: each device has one", devices, pools.len());
    for p in &pools {
        checks.yes(
            "POOL: not more blocks are free than there are",
            p.blocks > 0 && p.blocks_low <= p.blocks,
            &format!("{p:?}"),
        );
        // Devices that cannot be used are listed only on request.
        checks.eq(
            "POOL: a device that is used lacks nothing, reserved is 0",
            (p.lack, p.lack_has, p.lack_needs, p.reserved),
            (0, 0, 0, 0),
        );
    }
    Some(())
}

fn sockets(dev: &File, checks: &mut Checks) {
    let none = [
        libc::EAFNOSUPPORT,
        libc::ESOCKTNOSUPPORT,
        libc::EPROTONOSUPPORT,
    ];
    let make = |family: i32, type_: i32, flags: u32| {
        let (family, type_) = (family as u32, type_ as u32);
        raw::ioctl(
            dev,
            ZRS_IOC_SOCKET,
            &mut bytes_of(&zrs_ioc_socket {
                family,
                type_,
                flags,
                reserved: 0,
            }),
        )
    };
    let (inet, stream) = (libc::AF_INET, libc::SOCK_STREAM);
    for (name, seen, expected) in [
        ("AF_UNIX", make(libc::AF_UNIX, stream, 0), &none[..1]),
        ("family 12345", make(12345, stream, 0), &none[..1]),
        ("family -1", make(-1, stream, 0), &none[..1]),
        ("SOCK_RAW", make(inet, libc::SOCK_RAW, 0), &none[1..]),
        (
            "type 99",
            make(inet, 99, 0),
            &[libc::EINVAL, libc::ESOCKTNOSUPPORT],
        ),
        ("flags 1", make(inet, stream, 1), &[libc::EINVAL]),
    ] {
        checks.errno(&format!("ZRS_IOC_SOCKET, {name}"), seen, expected);
    }
    for (name, seen) in [
        (
            "AF_INET, SOCK_SEQPACKET",
            raw::socket(inet, libc::SOCK_SEQPACKET, raw::IPPROTO_ZRS),
        ),
        (
            "AF_UNIX, SOCK_STREAM",
            raw::socket(libc::AF_UNIX, stream, raw::IPPROTO_ZRS),
        ),
    ] {
        checks.errno(&format!("socket() of {name}"), seen, &none);
    }

    // The filter is the thread's.
    let seen = std::thread::scope(|scope| {
        let filtered = scope.spawn(|| {
            process::allow_all_calls()?;
            make(inet, stream, 0)
        });
        filtered.join().expect("a thread")
    });
    let name = "ZRS_IOC_SOCKET under a seccomp filter that allows everything";
    checks.errno(name, seen, &[libc::EPERM]);

    let seen = zrs_sys::Device::open().and_then(|device| {
        let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        device.socket(inet as u32, stream as u32, flags as u32)
    });
    let Some(fd) = checks.need("ZRS_IOC_SOCKET", seen.map_err(Into::into)) else {
        return;
    };
    for (name, option, value) in [
        ("SO_TYPE", libc::SO_TYPE, stream),
        ("SO_DOMAIN", libc::SO_DOMAIN, inet),
        ("SO_PROTOCOL", libc::SO_PROTOCOL, raw::IPPROTO_ZRS),
    ] {
        let seen = raw::getsockopt_int(&fd, libc::SOL_SOCKET, option);
        checks.eq(&format!("{name} of a socket made so"), seen, Ok(value));
    }
}
