// SPDX-License-Identifier: GPL-2.0
//! `/dev/zrs`: state and counters of the module. Lists cover the caller's network namespace.

use std::io;
use std::iter;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

use zrs_sys::{abi, Device};

use crate::error::{self, unknown};
use crate::{addr, Cache, DgramInfo, Info};

/// An open `/dev/zrs`. Needs no privilege.
#[derive(Debug)]
pub struct Zrs {
    pub(crate) device: Device,
}

/// Version of the module's interface, and its features (`ZRS_FEATURE_*` of the header).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// The version; this library knows [`Version::KNOWN`].
    pub version: u32,
    /// Feature bits.
    pub features: u64,
}

impl Version {
    /// The version of the interface that this library was written for.
    pub const KNOWN: u32 = abi::ZRS_UAPI_VERSION;

    /// Stream sockets over IPv4.
    pub fn has_stream(&self) -> bool {
        self.features & abi::ZRS_FEATURE_STREAM != 0
    }

    /// The receive ring.
    pub fn has_rx_ring(&self) -> bool {
        self.features & abi::ZRS_FEATURE_RX_RING != 0
    }

    /// Data that stays unread for long moves to main memory, for rings that ask for it too;
    /// [`Zrs::caches`].
    pub fn has_escape(&self) -> bool {
        self.features & abi::ZRS_FEATURE_ESCAPE != 0
    }

    /// The names of the features that this library knows and the module, being older, lacks.
    pub fn missing(&self) -> impl Iterator<Item = &'static str> + '_ {
        let known = FEATURES.iter();
        known
            .filter(|(bit, _)| self.features & bit == 0)
            .map(|(_, name)| *name)
    }

    /// The name of the feature, if the module lacks it.
    pub(crate) fn lacks(&self, feature: u64) -> Option<&'static str> {
        let (bit, name) = FEATURES.iter().find(|(bit, _)| *bit == feature)?;
        (self.features & bit == 0).then_some(name)
    }
}

/// The features that this library knows.
const FEATURES: &[(u64, &str)] = &[
    (abi::ZRS_FEATURE_STREAM, "stream sockets"),
    (abi::ZRS_FEATURE_RX_RING, "receive ring"),
    (abi::ZRS_FEATURE_RING_WAIT, "wait for the receive ring"),
    (abi::ZRS_FEATURE_RECV_MAP, "receiving by mapping"),
    (abi::ZRS_FEATURE_ESCAPE, "escape to main memory"),
    (abi::ZRS_FEATURE_IPV6, "IPv6"),
    (abi::ZRS_FEATURE_TCP, "TCP beside ZRS"),
    (abi::ZRS_FEATURE_DGRAM, "datagrams"),
    (abi::ZRS_FEATURE_MEM, "memory nodes"),
    (abi::ZRS_FEATURE_FALLBACK, "fallback to TCP"),
    (abi::ZRS_FEATURE_RULES, "rules"),
    (abi::ZRS_FEATURE_MEM_QUEUE, "queues of memory nodes"),
    (abi::ZRS_FEATURE_MEM_BROKER, "brokers of memory nodes"),
    (abi::ZRS_FEATURE_MEM_NODES, "several memory nodes of a host"),
    (abi::ZRS_FEATURE_PEERS, "peers"),
    (abi::ZRS_FEATURE_KEYS, "keys"),
    (
        abi::ZRS_FEATURE_MEM_ADMIN,
        "freeing regions of memory nodes by number",
    ),
    (abi::ZRS_FEATURE_MEM_STATS, "counters of memory nodes"),
    (
        abi::ZRS_FEATURE_RING_SMALL,
        "small messages in the receive ring",
    ),
];

macro_rules! stats {
    ($(#[$what:meta])* $stats:ident: $abi:ident, $prefix:literal; $($(#[$doc:meta])* $name:ident,)*) => {
        $(#[$what])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $stats {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl $stats {
            /// Names, as `zrs stats` has them, and values, in the header's order.
            pub fn fields(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((concat!($prefix, stringify!($name)), self.$name),)*].into_iter()
            }
        }

        impl From<abi::$abi> for $stats {
            fn from(s: abi::$abi) -> Self {
                Self { $($name: s.$name,)* }
            }
        }
    };
}

stats! {
    /// Counters of the whole module since it was loaded. Without CAP_NET_ADMIN in the first user namespace, those of
    /// the caller's network namespace, and 0 where there is none.
    Stats: zrs_ioc_stats, "";
    /// Payload accepted from programs, bytes.
    tx_bytes,
    /// Payload delivered to programs, bytes.
    rx_bytes,
    /// Of `tx_bytes`: copied by the CPU.
    tx_copied,
    /// Of `rx_bytes`: copied by the CPU.
    rx_copied,
    /// Copied out of shared blocks before a read, bytes.
    rx_spilled,
    /// Work requests posted, receives apart.
    work_requests,
    /// Receive work requests posted.
    recv_requests,
    /// Completions taken.
    completions,
    /// Completion events that found nothing.
    empty_events,
    /// RDMA resources ever made: PDs, CQs, SRQs, QPs, MRs and ids.
    resources_made,
    /// Program pages pinned now.
    pages_pinned,
    /// Sockets open now.
    sockets,
    /// Channels alive now, orphans included.
    channels,
    /// Links alive now.
    links,
    /// Receive pools of all devices, bytes.
    pool_bytes,
    /// Of `pool_bytes`: leased or in shared blocks.
    pool_used,
    /// Links closed because of a peer's violation.
    protocol_errors,
    /// Of `work_requests`: with a completion.
    signaled,
    /// Windows that were revoked for another channel.
    windows_revoked,
    /// Connects by TCP: the host or the port was found to have no ZRS lately.
    tcp_known,
    /// Connects by TCP: no RDMA device on the way, or no ZRS there.
    tcp_no_zrs,
    /// Connects by TCP: no link to the host was up in time.
    tcp_slow,
    /// Connects by TCP: no program listens there with ZRS.
    tcp_no_listener,
    /// Connects by TCP: no memory or room for ZRS, or the link was lost.
    tcp_no_resources,
}

stats! {
    /// Memory nodes in the caller's network namespace: what is there now, and counters since the module was loaded.
    MemStats: zrs_ioc_mem_stats, "mem_";
    /// Regions of the nodes that are served here now.
    regions,
    /// Bytes of these nodes that are in regions.
    region_bytes,
    /// Memory links that are up, to and from other hosts.
    links,
    /// Grants of remote keys of nodes here to other hosts.
    grants_given,
    /// Grants of remote keys of other hosts' nodes to this host.
    grants_held,
    /// Requests sent to other hosts.
    requests_sent,
    /// Requests answered, of other hosts and of programs here.
    requests_served,
    /// Of `requests_served`: with an error, but EAGAIN and cancels.
    requests_refused,
    /// Written to regions by programs here, bytes.
    program_write_bytes,
    /// Read from regions by programs here, bytes.
    program_read_bytes,
    /// Written to nodes here, also by copies of other hosts, bytes.
    node_write_bytes,
    /// Read from nodes here, but not by remote keys, bytes.
    node_read_bytes,
    /// Copied from nodes here to those of other hosts, bytes.
    copied_out_bytes,
    /// Copied from nodes here to nodes here, bytes.
    copied_within_bytes,
    /// Links that ended because a remote key was not given back in time.
    late_revokes,
    /// Links that ended because another answer was late.
    silent_links,
}

/// The receive pool of one RDMA device. Sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// The RDMA device's name.
    pub device: String,
    /// Size of the pool.
    pub bytes: u64,
    /// Of it: blocks of the shared receive queue.
    pub block_bytes: u64,
    /// Of it: leased to channels as windows now.
    pub window_bytes: u64,
    /// Leases now.
    pub windows: u64,
    /// Shared blocks with unread data.
    pub blocks_held: u64,
    /// Number of the cache that it shares with others: [`Cache::number`].
    pub cache: u32,
    /// Blocks in the shared receive queue, and with data.
    pub blocks: u32,
    /// The fewest that were left in the queue since the module was loaded.
    pub blocks_low: u32,
    /// Of the blocks: kept for unread datagrams, or mapped into programs.
    pub blocks_lent: u32,
}

/// An RDMA device that ZRS cannot use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfit {
    /// The RDMA device's name.
    pub device: String,
    /// The limit that is too low; `None`: the kernel log has the error.
    pub limit: Option<&'static str>,
    /// What the device has.
    pub has: u32,
    /// What is needed.
    pub needs: u32,
}

/// One queue pair between two hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// The RDMA device's name.
    pub device: String,
    /// This host.
    pub local: IpAddr,
    /// The other.
    pub remote: IpAddr,
    /// The number of the interface if these are link-local addresses, else 0.
    pub scope_id: u32,
    /// Its state.
    pub state: LinkState,
    /// Channels on it now.
    pub channels: u32,
    /// Payload sent, bytes.
    pub tx_bytes: u64,
    /// Payload received, bytes.
    pub rx_bytes: u64,
    /// The peer has made it: it carries the connections that come from there. Ours go by links that
    /// we make.
    pub accepted: bool,
    /// The hosts have proved that they share a key.
    pub proved: bool,
    /// Channels that wait for their turn to send.
    pub waiting: u32,
    /// Bytes on their way into the peer's windows.
    pub bulk: u32,
    /// How many there may be, 0: not known yet.
    pub bulk_max: u32,
    /// How often a sender found the link without room.
    pub waits: u64,
    /// Its number: no other link has had it since the module was loaded.
    pub id: u32,
    /// Datagrams dropped because the link had no room.
    pub dgram_drops: u32,
}

/// The link table: the state of each channel of the machine, whatever its network namespace, in one
/// of three tiers. Sizes are in channels; counters count from loading on. Without CAP_NET_ADMIN in the first user
/// namespace: the sizes, and the entries of the caller's network namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkTable {
    /// Places in the first tier, where a channel can be worked on.
    pub hot_slots: u32,
    /// Places in the second tier.
    pub near_places: u32,
    /// Of these, in each set.
    pub ways: u32,
    /// Channels that there may be: places in the third tier.
    pub most: u32,
    /// Channels now.
    pub entries: u32,
    /// Of them: in the first tier.
    pub hot: u32,
    /// Of them: in the second.
    pub near: u32,
    /// Requests that found the channel in the first tier.
    pub hits: u64,
    /// Requests that brought it back from the second.
    pub near_hits: u64,
    /// Requests that brought it back from the third.
    pub faults: u64,
    /// Channels that left the first tier because nothing happened to them.
    pub parked: u64,
    /// Channels that left it because others needed the place.
    pub evicted: u64,
    /// Requests that had to be made again.
    pub contended: u64,
}

impl LinkTable {
    /// Channels in the third tier. The three numbers of the table are of one moment.
    pub fn home(&self) -> u32 {
        self.entries
            .saturating_sub(self.hot)
            .saturating_sub(self.near)
    }
}

impl From<abi::zrs_ioc_table> for LinkTable {
    fn from(t: abi::zrs_ioc_table) -> Self {
        Self {
            hot_slots: t.hot_slots,
            near_places: t.near_places,
            ways: t.ways,
            most: t.most,
            entries: t.entries,
            hot: t.hot,
            near: t.near,
            hits: t.hits,
            near_hits: t.near_hits,
            faults: t.faults,
            parked: t.parked,
            evicted: t.evicted,
            contended: t.contended,
        }
    }
}

/// The state of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkState {
    /// Waits for the peer.
    Connecting,
    /// Carries channels.
    Up,
    /// Is going away.
    Down,
    /// A state this library does not know.
    Other(u32),
}

impl std::fmt::Display for LinkState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Connecting => "CONNECTING",
            Self::Up => "UP",
            Self::Down => "DOWN",
            Self::Other(_) => "?",
        })
    }
}

impl Zrs {
    /// Opens `/dev/zrs`. ENOENT: the module is not loaded.
    pub fn open() -> io::Result<Self> {
        Ok(Self {
            device: Device::open().map_err(error::device)?,
        })
    }

    /// The module's version and features.
    pub fn version(&self) -> io::Result<Version> {
        let v = self.device.version().map_err(unknown("ZRS_IOC_VERSION"))?;
        Ok(Version {
            version: v.version,
            features: v.features,
        })
    }

    /// The module's counters.
    pub fn stats(&self) -> io::Result<Stats> {
        let stats = self.device.stats().map_err(unknown("ZRS_IOC_STATS"))?;
        Ok(stats.into())
    }

    /// The counters of memory nodes. ENOTTY: the module is older than this call.
    pub fn mem_stats(&self) -> io::Result<MemStats> {
        let stats = self.device.mem_stats();
        Ok(stats.map_err(unknown("ZRS_IOC_MEM_STATS"))?.into())
    }

    /// The link table. ENOTTY: the module is older than this call.
    pub fn table(&self) -> io::Result<LinkTable> {
        let table = self.device.table().map_err(unknown("ZRS_IOC_TABLE"))?;
        Ok(table.into())
    }

    /// The receive pools, one for each RDMA device in use.
    pub fn pools(&self) -> impl Iterator<Item = io::Result<Pool>> + '_ {
        list(|cursor| {
            let pool = self.device.pool(cursor);
            Ok(pool.map_err(unknown("ZRS_IOC_POOL"))?.map(|p| {
                let pool = Pool {
                    device: name(&p.device),
                    bytes: p.bytes,
                    block_bytes: p.block_bytes,
                    window_bytes: p.window_bytes,
                    windows: p.windows,
                    blocks_held: p.blocks_held,
                    cache: p.cache,
                    blocks: p.blocks,
                    blocks_low: p.blocks_low,
                    blocks_lent: p.blocks_lent,
                };
                (p.cursor, pool)
            }))
        })
    }

    /// The devices that ZRS cannot use, as far as it was tried. EINVAL: the module is older than
    /// this list.
    pub fn unfit(&self) -> impl Iterator<Item = io::Result<Unfit>> + '_ {
        let all = list(|cursor| {
            let pool = self.device.pool_or_lack(cursor);
            Ok(pool.map_err(unknown("ZRS_IOC_POOL"))?.map(|p| {
                let limit = match p.lack {
                    abi::ZRS_LACK_REG => Some("IB_DEVICE_MEM_MGT_EXTENSIONS"),
                    abi::ZRS_LACK_SEND_SGE => Some("max_send_sge"),
                    abi::ZRS_LACK_RECV_SGE => Some("max_recv_sge"),
                    abi::ZRS_LACK_QP_WR => Some("max_qp_wr"),
                    abi::ZRS_LACK_CQE => Some("max_cqe"),
                    _ => None,
                };
                let unfit = (p.lack != 0).then(|| Unfit {
                    device: name(&p.device),
                    limit,
                    has: p.lack_has,
                    needs: p.lack_needs,
                });
                (p.cursor, unfit)
            }))
        });
        all.filter_map(Result::transpose)
    }

    /// The caches, each with its use by its devices' pools. ENOTTY: the module is older than this
    /// call.
    pub fn caches(&self) -> impl Iterator<Item = io::Result<Cache>> + '_ {
        list(|cursor| {
            let cache = self.device.cache(cursor);
            let cache = cache.map_err(unknown("ZRS_IOC_CACHE"))?;
            Ok(cache.map(|c| (c.cursor, c.into())))
        })
    }

    /// The links to other hosts.
    pub fn links(&self) -> impl Iterator<Item = io::Result<Link>> + '_ {
        list(|cursor| {
            let link = self.device.link(cursor);
            Ok(link.map_err(unknown("ZRS_IOC_LINK"))?.map(|l| {
                let link = Link {
                    device: name(&l.device),
                    local: addr::ip(l.local_addr6),
                    remote: addr::ip(l.remote_addr6),
                    scope_id: l.scope_id,
                    state: match l.state {
                        abi::ZRS_LINK_CONNECTING => LinkState::Connecting,
                        abi::ZRS_LINK_UP => LinkState::Up,
                        abi::ZRS_LINK_DOWN => LinkState::Down,
                        other => LinkState::Other(other),
                    },
                    channels: l.channels,
                    tx_bytes: l.tx_bytes,
                    rx_bytes: l.rx_bytes,
                    accepted: l.flags & abi::ZRS_LINK_F_ACCEPTED != 0,
                    proved: l.flags & abi::ZRS_LINK_F_PROVED != 0,
                    waiting: l.waiting,
                    bulk: l.bulk,
                    bulk_max: l.bulk_max,
                    waits: l.waits,
                    id: l.id,
                    dgram_drops: l.dgram_drops,
                };
                (l.cursor, link)
            }))
        })
    }

    /// The sockets.
    pub fn sockets(&self) -> impl Iterator<Item = io::Result<Info>> + '_ {
        list(|cursor| {
            let sock = self.device.sock(cursor);
            let sock = sock.map_err(unknown("ZRS_IOC_SOCK"))?;
            Ok(sock.map(|s| (s.cursor, s.info.into())))
        })
    }

    /// The datagram sockets that have a port. ENOTTY: the module is older than this call.
    pub fn dgrams(&self) -> impl Iterator<Item = io::Result<DgramInfo>> + '_ {
        list(|cursor| {
            let sock = self.device.dgram(cursor);
            let sock = sock.map_err(unknown("ZRS_IOC_DGRAM"))?;
            Ok(sock.map(|s| (s.cursor, s.info.into())))
        })
    }
}

impl AsFd for Zrs {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}

/// Walks a list by its cursor; ends after the first error.
fn list<T>(
    mut next: impl FnMut(u64) -> io::Result<Option<(u64, T)>>,
) -> impl Iterator<Item = io::Result<T>> {
    let mut cursor = Some(0);
    iter::from_fn(move || match next(cursor?) {
        // A cursor that stands still would be a list without end.
        Ok(Some((then, entry))) => {
            cursor = Some(then).filter(|_| Some(then) > cursor);
            Some(Ok(entry))
        }
        Ok(None) => None,
        Err(e) => {
            cursor = None;
            Some(Err(e))
        }
    })
}

/// A name as the kernel gives it: bytes up to the first zero.
fn name(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_follow_the_cursor() {
        let entries = [(0, 'a'), (3, 'b'), (7, 'c')];
        let at = |cursor| {
            let found = entries.iter().find(|(at, _)| *at >= cursor);
            Ok(found.map(|&(at, entry)| (at + 1, entry)))
        };
        let all: Vec<_> = list(at).map(Result::unwrap).collect();
        assert_eq!(all, ['a', 'b', 'c']);
    }

    /// A module that knows none of our calls: /dev/null answers them as such a one.
    #[test]
    fn an_older_module_is_named() {
        let null = std::fs::File::open("/dev/null").unwrap();
        let zrs = Zrs {
            device: null.into(),
        };
        let all = [
            ("ZRS_IOC_VERSION", zrs.version().map(drop)),
            ("ZRS_IOC_STATS", zrs.stats().map(drop)),
            ("ZRS_IOC_MEM_STATS", zrs.mem_stats().map(drop)),
            ("ZRS_IOC_TABLE", zrs.table().map(drop)),
            ("ZRS_IOC_POOL", zrs.pools().try_for_each(|e| e.map(drop))),
            ("ZRS_IOC_CACHE", zrs.caches().try_for_each(|e| e.map(drop))),
            ("ZRS_IOC_LINK", zrs.links().try_for_each(|e| e.map(drop))),
            ("ZRS_IOC_SOCK", zrs.sockets().try_for_each(|e| e.map(drop))),
            ("ZRS_IOC_DGRAM", zrs.dgrams().try_for_each(|e| e.map(drop))),
        ];
        for (call, result) in all {
            let error = result.unwrap_err();
            assert_eq!(error::os_error(&error), Some(25), "ENOTTY");
            assert_eq!(
                error.to_string(),
                format!(
                    "{call}: the zrs module that is loaded is older than this library, \
                     and does not know this"
                )
            );
        }
    }

    #[test]
    fn what_a_module_has_not() {
        let version = |features| Version {
            version: 2,
            features,
        };
        assert_eq!(version(u64::MAX).missing().count(), 0, "a newer module");
        assert_eq!(version(0).missing().count(), FEATURES.len());
        let first = version(0b00_1011);
        let missing: Vec<_> = first.missing().collect();
        assert_eq!(
            missing,
            [
                "wait for the receive ring",
                "escape to main memory",
                "IPv6",
                "TCP beside ZRS",
                "datagrams",
                "memory nodes",
                "fallback to TCP",
                "rules",
                "queues of memory nodes",
                "brokers of memory nodes",
                "several memory nodes of a host",
                "peers",
                "keys",
                "freeing regions of memory nodes by number",
                "counters of memory nodes",
                "small messages in the receive ring"
            ]
        );
        assert_eq!(first.lacks(abi::ZRS_FEATURE_IPV6), Some("IPv6"));
        assert_eq!(first.lacks(abi::ZRS_FEATURE_RX_RING), None);
    }

    #[test]
    fn lists_end() {
        assert_eq!(
            list(|_| Ok(Some((0, ())))).count(),
            1,
            "a cursor that stands still"
        );
        assert_eq!(
            list(|_| Err::<Option<(u64, ())>, _>(io::ErrorKind::Other.into())).count(),
            1
        );
    }

    #[test]
    fn names() {
        assert_eq!(name(b"rxe0\0\0junk"), "rxe0");
        assert_eq!(name(b"full"), "full");
    }
}
