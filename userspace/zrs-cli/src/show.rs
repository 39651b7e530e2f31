// SPDX-License-Identifier: GPL-2.0
//! `zrs links`, `stats`: what `/dev/zrs` tells, as tables or JSON.

use std::fmt::Write as _;
use std::io;
use std::net::IpAddr;

use serde_json::{json, Value};
use zrs::Zrs;
use zrs_rules::why;

use crate::prometheus;
use crate::report::{json_line, out};
use crate::{said, Result};

/// List the links: queue pairs between this host and others; and show the link table
///
/// Id: as `zrs ss -e` and the tracepoints have it. Made: by us, for the connections that we ask for, or by the peer for its own. Waiting: connections that wait for
/// their turn to send; Waits: how often a sender found no room. Bulk: bytes on their way into the peer's windows;
/// BulkMax: how many there may be. The link table has the state of each connection, of all
/// network namespaces, in one of three tiers; Found is how often it was there when it was needed, since the
/// module was loaded.
#[derive(clap::Args)]
pub struct Links {
    /// Print a JSON object: the array "links" and the object "table"
    #[arg(long)]
    json: bool,
}

/// Show the module's version and its counters since it was loaded
#[derive(clap::Args)]
pub struct Stats {
    /// Print a JSON object
    #[arg(long)]
    json: bool,
    /// Print what `zrs pool` and `zrs links` have as well, in Prometheus' text format
    #[arg(long, conflicts_with = "json")]
    prometheus: bool,
}

pub fn open() -> Result<Zrs> {
    Zrs::open().map_err(|e| e.to_string())
}

pub fn collect<T>(list: impl Iterator<Item = io::Result<T>>, what: &str) -> Result<Vec<T>> {
    said(list.collect(), || format!("cannot list the {what}"))
}

impl Links {
    pub fn run(&self) -> Result<()> {
        let zrs = open()?;
        let links = collect(zrs.links(), "links")?;
        let tiers = said(zrs.table(), || "cannot read the link table".into())?;
        if self.json {
            let list = links.iter().map(|l| {
                json!({
                    "id": l.id, "device": l.device, "local": scoped(l.local, l.scope_id),
                    "remote": scoped(l.remote, l.scope_id), "state": l.state.to_string(),
                    "channels": l.channels, "tx_bytes": l.tx_bytes, "rx_bytes": l.rx_bytes,
                    "accepted": l.accepted, "proved": l.proved, "waiting": l.waiting, "waits": l.waits,
                    "bulk": l.bulk, "bulk_max": l.bulk_max, "dgram_drops": l.dgram_drops,
                })
            });
            json_line(&json!({
                "links": Value::Array(list.collect()),
                "table": {
                    "hot_slots": tiers.hot_slots, "near_places": tiers.near_places,
                    "ways": tiers.ways, "most": tiers.most, "entries": tiers.entries,
                    "hot": tiers.hot, "near": tiers.near, "hits": tiers.hits,
                    "near_hits": tiers.near_hits, "faults": tiers.faults,
                    "parked": tiers.parked, "evicted": tiers.evicted,
                    "contended": tiers.contended,
                },
            }));
            return Ok(());
        }
        let mut table = Table::new(&[
            "<Id",
            "Device",
            "Local",
            "Peer",
            "State",
            "Made",
            "<Channels",
            "<TxBytes",
            "<RxBytes",
            "<Waiting",
            "<Waits",
            "<Bulk",
            "<BulkMax",
            "<Drops",
        ]);
        for l in links {
            table.row(vec![
                l.id.to_string(),
                l.device,
                scoped(l.local, l.scope_id),
                scoped(l.remote, l.scope_id),
                l.state.to_string(),
                if l.accepted { "peer" } else { "us" }.into(),
                l.channels.to_string(),
                l.tx_bytes.to_string(),
                l.rx_bytes.to_string(),
                l.waiting.to_string(),
                l.waits.to_string(),
                l.bulk.to_string(),
                l.bulk_max.to_string(),
                l.dgram_drops.to_string(),
            ]);
        }
        out(&format!("{}\n{}", table.text(), tiers_text(&tiers)));
        Ok(())
    }
}

/// An address, with its interface if it is a link-local one.
pub fn scoped(ip: IpAddr, scope: u32) -> String {
    match ip {
        IpAddr::V6(v6) if v6.is_unicast_link_local() => format!("{ip}%{scope}"),
        _ => ip.to_string(),
    }
}

/// The link table: a row for each tier, and the moves between tiers.
fn tiers_text(t: &zrs::LinkTable) -> String {
    let asked = t.hits + t.near_hits + t.faults;
    let mut table = Table::new(&["Tier", "<Places", "<Channels", "<Found", "<Rate"]);
    for (name, places, channels, found) in [
        ("hot", t.hot_slots, t.hot, t.hits),
        ("near", t.near_places, t.near, t.near_hits),
        ("home", t.most, t.home(), t.faults),
    ] {
        table.row(vec![
            name.into(),
            places.to_string(),
            channels.to_string(),
            found.to_string(),
            percent(found, asked),
        ]);
    }
    format!(
        "{}{} in each set of near; {} parked, {} evicted; {} asked again\n",
        table.text(),
        t.ways,
        t.parked,
        t.evicted,
        t.contended
    )
}

/// `part` of `all`, or a dash of nothing.
pub fn percent(part: u64, all: u64) -> String {
    match all {
        0 => "-".into(),
        _ => format!("{:.2}%", part as f64 * 100.0 / all as f64),
    }
}

impl Stats {
    pub fn run(&self) -> Result<()> {
        let zrs = open()?;
        if self.prometheus {
            out(&prometheus::text(&prometheus::Seen::now(&zrs)?));
            return Ok(());
        }
        let version = said(zrs.version(), || "cannot read the module's version".into())?;
        let stats = said(zrs.stats(), || "cannot read the module's counters".into())?;
        // An older module has none.
        let (fallbacks, mem) = (zrs.fallbacks().ok(), zrs.mem_stats().ok());
        let mem = mem.iter().flat_map(zrs::MemStats::fields);
        let fields = stats.fields().chain(mem);
        if self.json {
            let mut object = json!({ "version": version.version, "features": version.features });
            for (name, value) in fields {
                object[name] = value.into();
            }
            if let Some(seen) = &fallbacks {
                let by_why = seen
                    .all()
                    .map(|(number, times)| (why::name(number).to_string(), times.into()));
                object["tcp"] = json!({
                    "by_why": Value::Object(by_why.collect()),
                    "known": seen.known, "known_max": seen.known_max,
                });
            }
            json_line(&object);
            return Ok(());
        }
        let mut table = Table::new(&["Counter", "<Value"]);
        table.row(vec!["version".into(), version.version.to_string()]);
        table.row(vec!["features".into(), format!("{:#x}", version.features)]);
        // The module is older than this command.
        for name in version.missing() {
            table.row(vec!["missing".into(), name.into()]);
        }
        for (name, value) in fields {
            table.row(vec![name.into(), value.to_string()]);
        }
        out(&table.text());
        // Those who may not count these are not shown the machine.
        let refused = zrs.refused_links();
        if refused.is_err_and(|e| e.kind() == io::ErrorKind::PermissionDenied) {
            out("Of this network namespace, and 0 where that is not known: the machine's are for root.\n");
        }
        if let Some(seen) = &fallbacks {
            out(&fallbacks_text(seen.all().collect()));
        }
        Ok(())
    }
}

/// The most frequent reasons for which TCP has carried sockets, and their meaning; empty if TCP has carried none.
fn fallbacks_text(mut all: Vec<(u32, u64)>) -> String {
    const MOST: usize = 5;
    all.retain(|(_, times)| *times > 0);
    all.sort_by_key(|(_, times)| std::cmp::Reverse(*times));
    if all.is_empty() {
        return String::new();
    }
    let mut text = "\nSockets that TCP has carried, by reason:\n".to_string();
    for &(number, times) in all.iter().take(MOST) {
        let _ = writeln!(
            text,
            "{times:>8}  {}: {}",
            why::name(number),
            why::text(number)
        );
    }
    text
}

/// Columns as wide as their widest cell; a header that begins with `<` aligns to the right.
pub struct Table {
    right: Vec<bool>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new(header: &[&str]) -> Self {
        Self {
            right: header.iter().map(|h| h.starts_with('<')).collect(),
            rows: vec![header
                .iter()
                .map(|h| h.trim_start_matches('<').to_string())
                .collect()],
        }
    }

    pub fn row(&mut self, row: Vec<String>) {
        debug_assert_eq!(row.len(), self.right.len());
        self.rows.push(row);
    }

    pub fn text(&self) -> String {
        let width = |column: usize| {
            self.rows
                .iter()
                .filter_map(|row| row.get(column))
                .map(String::len)
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.right.len()).map(width).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for ((cell, &width), &right) in row.iter().zip(&widths).zip(&self.right) {
                let _ = match right {
                    true => write!(line, "{cell:>width$}  "),
                    false => write!(line, "{cell:<width$}  "),
                };
            }
            let _ = writeln!(text, "{}", line.trim_end());
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::{fallbacks_text, tiers_text, Table};

    #[test]
    fn the_top_reasons_are_explained() {
        assert_eq!(fallbacks_text(vec![(4, 0)]), "");
        let text = fallbacks_text(vec![(4, 2), (6, 3), (9, 0)]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4, "{text}");
        assert!(lines[2].starts_with("       3  slow: the link"), "{text}");
    }

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&["Name", "<N"]);
        table.row(vec!["x".into(), "1000".into()]);
        table.row(vec!["longer".into(), "7".into()]);
        assert_eq!(table.text(), "Name       N\nx       1000\nlonger     7\n");
    }

    #[test]
    fn the_tiers_of_the_link_table() {
        let mut tiers = zrs::LinkTable {
            hot_slots: 2,
            near_places: 4,
            ways: 2,
            most: 100,
            entries: 9,
            hot: 2,
            near: 3,
            ..Default::default()
        };
        let text = tiers_text(&tiers);
        assert!(
            text.contains("home     100         4      0     -\n"),
            "{text}"
        );
        (tiers.hits, tiers.near_hits, tiers.faults) = (985, 10, 5);
        (tiers.parked, tiers.evicted, tiers.contended) = (11, 12, 13);
        assert_eq!(
            tiers_text(&tiers),
            "Tier  Places  Channels  Found    Rate\n\
             hot        2         2    985  98.50%\n\
             near       4         3     10   1.00%\n\
             home     100         4      5   0.50%\n\
             2 in each set of near; 11 parked, 12 evicted; 13 asked again\n"
        );
    }
}
