// SPDX-License-Identifier: GPL-2.0
//! `zrs stats --prometheus`: counters, caches, pools and links in Prometheus' text format 0.0.4.

use std::fmt::Write as _;

use zrs::{Cache, Link, LinkTable, MemStats, Pool, Stats, Version, Zrs};

use crate::show::{collect, scoped};
use crate::{said, Result};

/// Answers of the module.
pub struct Seen {
    pub version: Version,
    pub stats: Stats,
    /// An older module has none.
    pub mem: Option<MemStats>,
    pub table: LinkTable,
    pub caches: Vec<Cache>,
    pub pools: Vec<Pool>,
    pub links: Vec<Link>,
}

impl Seen {
    pub fn now(zrs: &Zrs) -> Result<Self> {
        Ok(Self {
            version: said(zrs.version(), || "cannot read the module's version".into())?,
            stats: said(zrs.stats(), || "cannot read the module's counters".into())?,
            mem: zrs.mem_stats().ok(),
            table: said(zrs.table(), || "cannot read the link table".into())?,
            caches: collect(zrs.caches(), "caches")?,
            pools: collect(zrs.pools(), "receive pools")?,
            links: collect(zrs.links(), "links")?,
        })
    }
}

/// Of a metric. Counters' names end in `_total`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
    /// Of a counter of the module's that this command does not know.
    Untyped,
}
use Kind::{Counter, Gauge, Histogram, Untyped};

/// The module's counters by their names in [`Stats`] and [`MemStats`].
const STATS: [(&str, Kind, &str); 40] = [
    (
        "tx_bytes",
        Counter,
        "Payload accepted from programs, bytes.",
    ),
    ("rx_bytes", Counter, "Payload delivered to programs, bytes."),
    (
        "tx_copied",
        Counter,
        "Payload to send that the CPU copied, bytes.",
    ),
    (
        "rx_copied",
        Counter,
        "Payload that the CPU copied to programs, bytes.",
    ),
    (
        "rx_spilled",
        Counter,
        "Payload copied out of shared blocks before a read, bytes.",
    ),
    (
        "work_requests",
        Counter,
        "Work requests posted, receives apart.",
    ),
    ("recv_requests", Counter, "Receive work requests posted."),
    ("completions", Counter, "Completions taken."),
    (
        "empty_events",
        Counter,
        "Completion events that found nothing.",
    ),
    (
        "resources_made",
        Counter,
        "RDMA resources made: PDs, CQs, SRQs, QPs, MRs and ids.",
    ),
    ("pages_pinned", Gauge, "Program pages that are pinned."),
    ("sockets", Gauge, "Open sockets."),
    (
        "channels",
        Gauge,
        "Channels, those of closed sockets included.",
    ),
    ("links", Gauge, "Links of all network namespaces."),
    ("pool_bytes", Gauge, "Receive pools of all devices, bytes."),
    (
        "pool_used",
        Gauge,
        "Bytes of the pools that are leased or hold unread data.",
    ),
    (
        "protocol_errors",
        Counter,
        "Links closed because of what a peer sent.",
    ),
    ("signaled", Counter, "Work requests with a completion."),
    (
        "windows_revoked",
        Counter,
        "Windows asked back for another channel.",
    ),
    (
        "tcp_known",
        Counter,
        "Connects by TCP to a host or port found to have no ZRS lately.",
    ),
    (
        "tcp_no_zrs",
        Counter,
        "Connects by TCP: no RDMA device on the way, or no ZRS there.",
    ),
    (
        "tcp_slow",
        Counter,
        "Connects by TCP: no link to the host was up in time.",
    ),
    (
        "tcp_no_listener",
        Counter,
        "Connects by TCP: no program listens there with ZRS.",
    ),
    (
        "tcp_no_resources",
        Counter,
        "Connects by TCP: no memory or room for ZRS, or the link was lost.",
    ),
    (
        "mem_regions",
        Gauge,
        "Regions of the memory nodes that are served here.",
    ),
    (
        "mem_region_bytes",
        Gauge,
        "Bytes of these nodes that are in regions.",
    ),
    (
        "mem_links",
        Gauge,
        "Memory links that are up, to and from other hosts.",
    ),
    (
        "mem_grants_given",
        Gauge,
        "Grants of remote keys of memory nodes here to other hosts.",
    ),
    (
        "mem_grants_held",
        Gauge,
        "Grants of remote keys of other hosts' memory nodes to this host.",
    ),
    (
        "mem_requests_sent",
        Counter,
        "Requests of memory nodes sent to other hosts.",
    ),
    (
        "mem_requests_served",
        Counter,
        "Requests of memory nodes answered by this host.",
    ),
    (
        "mem_requests_refused",
        Counter,
        "Requests of memory nodes answered by this host with an error.",
    ),
    (
        "mem_program_write_bytes",
        Counter,
        "Written to regions by programs of this host, bytes.",
    ),
    (
        "mem_program_read_bytes",
        Counter,
        "Read from regions by programs of this host, bytes.",
    ),
    (
        "mem_node_write_bytes",
        Counter,
        "Written to memory nodes here, bytes.",
    ),
    (
        "mem_node_read_bytes",
        Counter,
        "Read from memory nodes here without a remote key, bytes.",
    ),
    (
        "mem_copied_out_bytes",
        Counter,
        "Copied from memory nodes here to those of other hosts, bytes.",
    ),
    (
        "mem_copied_within_bytes",
        Counter,
        "Copied from memory nodes here to nodes here, bytes.",
    ),
    (
        "mem_late_revokes",
        Counter,
        "Memory links ended: a remote key was not given back in time.",
    ),
    (
        "mem_silent_links",
        Counter,
        "Memory links ended: another answer was late.",
    ),
];

/// The whole text.
pub fn text(seen: &Seen) -> String {
    let mut t = Text::default();
    t.metric("info", Gauge, "The module's interface; always 1.");
    let version = seen.version.version.to_string();
    let features = format!("{:#x}", seen.version.features);
    t.sample(&[("version", &version), ("features", &features)], 1u64);

    let mem = seen.mem.iter().flat_map(MemStats::fields);
    for (name, value) in seen.stats.fields().chain(mem) {
        let known = STATS.iter().find(|(n, _, _)| *n == name);
        let (_, kind, help) = *known.unwrap_or(&(name, Untyped, "A counter of the module's."));
        t.metric(name, kind, help);
        t.sample(&[], value);
    }
    table(&mut t, &seen.table);
    caches(&mut t, &seen.caches);
    pools(&mut t, &seen.pools);
    links(&mut t, &seen.links);
    t.text
}

fn table(t: &mut Text, table: &LinkTable) {
    t.metric(
        "table_channels",
        Gauge,
        "Channels in each tier of the link table.",
    );
    for (tier, n) in [
        ("hot", table.hot),
        ("near", table.near),
        ("home", table.home()),
    ] {
        t.sample(&[("tier", tier)], n);
    }
    t.metric(
        "table_found",
        Counter,
        "Requests that found the channel in a tier.",
    );
    for (tier, n) in [
        ("hot", table.hits),
        ("near", table.near_hits),
        ("home", table.faults),
    ] {
        t.sample(&[("tier", tier)], n);
    }
    t.metric("table_max_channels", Gauge, "Channels that there may be.");
    t.sample(&[], table.most);
}

/// A metric with labels: name, kind, help text, and the value of one object.
type Field<T> = (&'static str, Kind, &'static str, fn(&T) -> u64);

const CACHE: [Field<Cache>; 15] = [
    (
        "cache_bytes",
        Gauge,
        "Size of the cache, 0 if it is not known.",
        |c| c.cache_bytes,
    ),
    (
        "cache_pool_bytes",
        Gauge,
        "Size of the pools in the cache.",
        |c| c.bytes,
    ),
    (
        "cache_small_bytes",
        Gauge,
        "Of the pools: blocks of the shared receive queues in use.",
        |c| c.small,
    ),
    (
        "cache_large_bytes",
        Gauge,
        "Of the pools: windows in use.",
        |c| c.large,
    ),
    (
        "cache_unread_bytes",
        Gauge,
        "Data that no program has read.",
        |c| c.unread,
    ),
    (
        "cache_escapes",
        Counter,
        "Messages moved to main memory.",
        |c| c.escapes,
    ),
    (
        "cache_escaped_bytes",
        Counter,
        "Bytes moved to main memory.",
        |c| c.escaped_bytes,
    ),
    (
        "cache_escape_failures",
        Counter,
        "Messages to be moved for which there was no memory.",
        |c| c.escape_failures,
    ),
    (
        "cache_escaped_now_bytes",
        Gauge,
        "Data in main memory.",
        |c| c.escaped,
    ),
    (
        "cache_escape_reserved_bytes",
        Gauge,
        "Main memory promised to connections.",
        |c| c.escape_reserved,
    ),
    (
        "cache_escape_max_bytes",
        Gauge,
        "Main memory that may be promised.",
        |c| c.escape_max,
    ),
    (
        "cache_window_waits",
        Counter,
        "Requests for a window that had to wait.",
        |c| c.waits,
    ),
    (
        "cache_window_denied",
        Counter,
        "Requests for a window that were not fulfilled.",
        |c| c.denied,
    ),
    (
        "cache_connects_refused",
        Counter,
        "Connects refused for want of escape memory.",
        |c| c.refused,
    ),
    (
        "cache_queue_dry",
        Counter,
        "How often a shared receive queue was empty.",
        |c| c.dry,
    ),
];

fn caches(t: &mut Text, caches: &[Cache]) {
    if caches.is_empty() {
        return;
    }
    let names: Vec<_> = caches.iter().map(|c| c.number.to_string()).collect();
    for (name, kind, help, get) in CACHE {
        t.metric(name, kind, help);
        for (c, name) in caches.iter().zip(&names) {
            t.sample(&[("cache", name)], get(c));
        }
    }
    // Without a sum, which the module does not keep.
    t.metric(
        "residency_seconds",
        Histogram,
        "How long messages stayed in the pool.",
    );
    for (c, name) in caches.iter().zip(&names) {
        let mut below = 0;
        let (last, buckets) = c.residency.split_last().unwrap_or((&0, &[]));
        for (n, count) in buckets.iter().enumerate() {
            below += count;
            // Less than 2^n us.
            let le = (1u64 << n) as f64 / 1e6;
            t.sample_of(
                "_bucket",
                &[("cache", name), ("le", &le.to_string())],
                below,
            );
        }
        t.sample_of("_bucket", &[("cache", name), ("le", "+Inf")], below + last);
        t.sample_of("_count", &[("cache", name)], below + last);
    }
}

const POOL: [Field<Pool>; 8] = [
    (
        "device_pool_bytes",
        Gauge,
        "Size of the device's receive pool.",
        |p| p.bytes,
    ),
    (
        "device_block_bytes",
        Gauge,
        "Of it: blocks of the shared receive queue.",
        |p| p.block_bytes,
    ),
    (
        "device_window_bytes",
        Gauge,
        "Of it: leased as windows.",
        |p| p.window_bytes,
    ),
    ("device_windows", Gauge, "Windows that are leased.", |p| {
        p.windows
    }),
    (
        "device_blocks",
        Gauge,
        "Blocks in the shared receive queue, or with data.",
        |p| p.blocks.into(),
    ),
    (
        "device_blocks_low",
        Gauge,
        "The fewest that were left in the queue since loading.",
        |p| p.blocks_low.into(),
    ),
    (
        "device_blocks_held",
        Gauge,
        "Blocks with data that nobody has read.",
        |p| p.blocks_held,
    ),
    (
        "device_blocks_lent",
        Gauge,
        "Blocks that are kept for datagrams, or mapped into programs.",
        |p| p.blocks_lent.into(),
    ),
];

fn pools(t: &mut Text, pools: &[Pool]) {
    for (name, kind, help, get) in POOL.iter().filter(|_| !pools.is_empty()) {
        t.metric(name, *kind, help);
        for p in pools {
            t.sample(&[("device", &p.device)], get(p));
        }
    }
}

const LINK: [Field<Link>; 6] = [
    ("link_channels", Gauge, "Channels on the link.", |l| {
        l.channels.into()
    }),
    ("link_tx_bytes", Counter, "Payload sent by the link.", |l| {
        l.tx_bytes
    }),
    (
        "link_rx_bytes",
        Counter,
        "Payload received by the link.",
        |l| l.rx_bytes,
    ),
    (
        "link_waiting",
        Gauge,
        "Channels that wait for their turn to send.",
        |l| l.waiting.into(),
    ),
    (
        "link_waits",
        Counter,
        "How often a sender found the link without room.",
        |l| l.waits,
    ),
    (
        "link_bulk_bytes",
        Gauge,
        "Data in flight into the peer's windows.",
        |l| l.bulk.into(),
    ),
];

fn links(t: &mut Text, links: &[Link]) {
    for (name, kind, help, get) in LINK.iter().filter(|_| !links.is_empty()) {
        t.metric(name, *kind, help);
        for l in links {
            let labels = [
                ("link", l.id.to_string()),
                ("device", l.device.clone()),
                ("local", scoped(l.local, l.scope_id)),
                ("remote", scoped(l.remote, l.scope_id)),
                ("state", l.state.to_string()),
            ];
            let labels = labels
                .each_ref()
                .map(|(name, value)| (*name, value.as_str()));
            t.sample(&labels, get(l));
        }
    }
}

/// The text as it grows, and the metric that samples belong to.
#[derive(Default)]
struct Text {
    text: String,
    name: String,
}

impl Text {
    fn metric(&mut self, name: &str, kind: Kind, help: &str) {
        let (suffix, kind) = match kind {
            Counter => ("_total", "counter"),
            Gauge => ("", "gauge"),
            Histogram => ("", "histogram"),
            Untyped => ("", "untyped"),
        };
        self.name = format!("zrs_{name}{suffix}");
        let _ = writeln!(self.text, "# HELP {} {help}", self.name);
        let _ = writeln!(self.text, "# TYPE {} {kind}", self.name);
    }

    fn sample(&mut self, labels: &[(&str, &str)], value: impl Into<u64>) {
        self.sample_of("", labels, value);
    }

    fn sample_of(&mut self, suffix: &str, labels: &[(&str, &str)], value: impl Into<u64>) {
        let labels: Vec<_> = labels
            .iter()
            .map(|(name, value)| format!("{name}=\"{}\"", escaped(value)))
            .collect();
        let labels = match labels.as_slice() {
            [] => String::new(),
            some => format!("{{{}}}", some.join(",")),
        };
        let _ = writeln!(self.text, "{}{suffix}{labels} {}", self.name, value.into());
    }
}

/// A label's value: RDMA devices can be renamed to anything.
fn escaped(value: &str) -> String {
    let mut text = String::new();
    for c in value.chars() {
        match c {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            c => text.push(c),
        }
    }
    text
}

#[cfg(test)]
mod tests;
