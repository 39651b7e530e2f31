// SPDX-License-Identifier: GPL-2.0
//! `zrs pool`: the caches, what the receive pools use of each, how long data stays there and what leaves it for
//! main memory; then the pools, one for each RDMA device in use.

use std::fmt::Write as _;
use std::io::{self, IsTerminal};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{json, Value};
use zrs::{Cache, Zrs};

use crate::report::shown;
use crate::show::{collect, open, percent, Table};
use zrs::Unfit;

use crate::Result;

/// Show what the receive pools use of each cache, how long data stays in it, and the pools themselves
///
/// A pool's size is rate x residency x resident percent, at least 8 MiB and at most half of the cache, for all
/// devices that share it (or what the parameter pool_mib says). Blocks hold small messages, windows large ones.
/// Unread: data that no program has taken; what stays longer than the residency may escape to main memory, as the
/// policy says. Residency: how many messages stayed for so long. Pools: Blocks and Leased are bytes,
/// BlocksUsed those in receive queues and with data, LeastReady the fewest that were ever left in the shared queue. A
/// line below names the limit of each device that cannot be used.
#[derive(clap::Args)]
pub struct Pool {
    /// Print a JSON object: the arrays "caches", "pools" and "unfit"; with --watch one on each line
    #[arg(long)]
    json: bool,
    /// Repeat every SECONDS [default: 1], with the changes since the last report, until interrupted
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1", value_parser = seconds)]
    watch: Option<Duration>,
}

fn seconds(text: &str) -> std::result::Result<Duration, String> {
    match text.parse() {
        Ok(s) if (0.1..=86_400.0).contains(&s) => Ok(Duration::from_secs_f64(s)),
        _ => Err("not a number of seconds from 0.1 to 86400".into()),
    }
}

/// Caches, receive pools and unfit devices at one time.
struct Seen {
    at: Instant,
    caches: Vec<Cache>,
    pools: Vec<zrs::Pool>,
    unfit: Vec<zrs::Unfit>,
}

/// Clears a terminal, and goes to its first line.
const CLEAR: &str = "\x1b[H\x1b[2J";

impl Pool {
    pub fn run(&self) -> Result<()> {
        let zrs = open()?;
        let mut before = None;
        loop {
            let seen = Seen::now(&zrs)?;
            let text = match self.json {
                true => format!("{}\n", seen.json()),
                false => seen.text(before.as_ref()),
            };
            let clear = self.watch.is_some() && !self.json && io::stdout().is_terminal();
            let text = match (clear, before.is_some() && !self.json) {
                (true, _) => format!("{CLEAR}{text}"),
                (false, true) => format!("\n{text}"),
                (false, false) => text,
            };
            // Ends when the reader of stdout is gone.
            match (shown(&text), self.watch) {
                (true, Some(pause)) => thread::sleep(pause),
                _ => return Ok(()),
            }
            before = Some(seen);
        }
    }
}

impl Seen {
    fn now(zrs: &Zrs) -> Result<Self> {
        Ok(Self {
            at: Instant::now(),
            caches: collect(zrs.caches(), "caches")?,
            pools: collect(zrs.pools(), "receive pools")?,
            // An older module lists none.
            unfit: zrs.unfit().map_while(|entry| entry.ok()).collect(),
        })
    }

    fn json(&self) -> Value {
        let caches = self.caches.iter().map(|c| {
            json!({
                "cache": c.number, "node": c.node, "policy": c.policy.to_string(),
                "devices": c.devices, "residency_us": c.residency_us, "cache_bytes": c.cache_bytes,
                "rate": c.rate, "bytes": c.bytes, "small": c.small, "large": c.large,
                "small_high": c.small_high, "large_high": c.large_high,
                "small_share": c.small_share, "unread": c.unread, "unread_high": c.unread_high,
                "escapes": c.escapes, "escaped_bytes": c.escaped_bytes, "escaped": c.escaped,
                "escape_failures": c.escape_failures, "escape_reserved": c.escape_reserved,
                "escape_max": c.escape_max, "waits": c.waits, "denied": c.denied,
                "refused": c.refused, "dry": c.dry, "residency": c.residency,
            })
        });
        let pools = self.pools.iter().map(|p| {
            json!({
                "device": p.device, "cache": p.cache, "bytes": p.bytes,
                "block_bytes": p.block_bytes, "window_bytes": p.window_bytes,
                "windows": p.windows, "blocks": p.blocks, "blocks_low": p.blocks_low,
                "blocks_held": p.blocks_held, "blocks_lent": p.blocks_lent,
            })
        });
        let unfit = self.unfit.iter().map(
            |u| json!({ "device": u.device, "limit": u.limit, "has": u.has, "needs": u.needs }),
        );
        json!({
            "caches": Value::Array(caches.collect()),
            "pools": Value::Array(pools.collect()),
            "unfit": Value::Array(unfit.collect()),
        })
    }

    /// The report as text; counters have their increase per second since `before`.
    fn text(&self, before: Option<&Self>) -> String {
        let mut text = String::new();
        for cache in &self.caches {
            let since = before.and_then(|b| {
                let then = b.caches.iter().find(|c| c.number == cache.number)?;
                Some((then, self.at.duration_since(b.at)))
            });
            text += &cache_text(cache, since);
            text.push('\n');
        }
        text += &self.pools_text();
        for Unfit {
            device,
            limit,
            has,
            needs,
        } in &self.unfit
        {
            text += &match limit {
                Some(limit) => {
                    format!("{device} cannot be used: {limit} is {has}, {needs} needed\n")
                }
                None => format!("{device} cannot be used: the kernel log has the error\n"),
            };
        }
        text
    }

    fn pools_text(&self) -> String {
        let mut table = Table::new(&[
            "Device",
            "<Cache",
            "<Bytes",
            "<Blocks",
            "<Leased",
            "<Windows",
            "<BlocksHeld",
            "<LeastReady",
            "<BlocksUsed",
            "<BlocksLent",
        ]);
        for p in &self.pools {
            table.row(vec![
                p.device.clone(),
                p.cache.to_string(),
                p.bytes.to_string(),
                p.block_bytes.to_string(),
                p.window_bytes.to_string(),
                p.windows.to_string(),
                p.blocks_held.to_string(),
                p.blocks_low.to_string(),
                p.blocks.to_string(),
                p.blocks_lent.to_string(),
            ]);
        }
        table.text()
    }
}

/// The cache in the previous report, and the time since then.
type Since<'a> = Option<(&'a Cache, Duration)>;

fn cache_text(c: &Cache, since: Since<'_>) -> String {
    // "12", or "12 (+3.0/s)".
    let grown = |get: fn(&Cache) -> u64, put: fn(f64) -> String| {
        since.map_or(String::new(), |(then, time)| {
            let more = get(c).saturating_sub(get(then)) as f64 / time.as_secs_f64().max(1e-9);
            format!(" (+{}/s)", put(more))
        })
    };
    let count = |get: fn(&Cache) -> u64| format!("{}{}", get(c), grown(get, |n| format!("{n:.1}")));
    let amount = |get: fn(&Cache) -> u64| format!("{}{}", size(get(c) as f64), grown(get, size));

    let node = c.node.map_or(String::new(), |n| format!(" of node {n}"));
    let cache = match c.cache_bytes {
        0 => "of unknown size".into(),
        bytes => format!("of {}", size(bytes as f64)),
    };
    let mut text = format!(
        "Cache {}{node}, {cache}: {} for {} {}, {:.1} Gb/s x {} us\n",
        c.number,
        size(c.bytes as f64),
        c.devices,
        if c.devices == 1 { "device" } else { "devices" },
        c.rate as f64 * 8.0 / 1000.0,
        c.residency_us,
    );
    let mut table = Table::new(&["  Class", "<Own", "<Used", "<Most", "<Used%"]);
    let large_share = c.bytes.saturating_sub(c.small_share);
    for (name, own, used, most) in [
        ("  small", Some(c.small_share), c.small, c.small_high),
        ("  large", Some(large_share), c.large, c.large_high),
        ("  unread", None, c.unread, c.unread_high),
    ] {
        table.row(vec![
            name.into(),
            own.map_or("-".into(), |n| size(n as f64)),
            size(used as f64),
            size(most as f64),
            percent(used, c.bytes),
        ]);
    }
    text += &table.text();
    let _ = writeln!(
        text,
        "  escape {}: {} messages, {}; {} there now, {} of {} promised; {} without memory",
        c.policy,
        count(|c| c.escapes),
        amount(|c| c.escaped_bytes),
        size(c.escaped as f64),
        size(c.escape_reserved as f64),
        size(c.escape_max as f64),
        count(|c| c.escape_failures),
    );
    let _ = writeln!(
        text,
        "  windows: {} waits, {} denied; connects: {} refused; queue of blocks: {} times dry",
        count(|c| c.waits),
        count(|c| c.denied),
        count(|c| c.refused),
        count(|c| c.dry),
    );
    text + &residency_text(c, since)
}

/// Columns of the longest bar.
const BAR: u128 = 30;

/// How long data stayed: a line for each range that has something.
fn residency_text(c: &Cache, since: Since<'_>) -> String {
    let mut messages = c.residency;
    let mut when = "since loading".to_string();
    if let Some((then, time)) = since {
        for (now, then) in messages.iter_mut().zip(then.residency) {
            *now = now.saturating_sub(then);
        }
        when = format!("in {:.1} s", time.as_secs_f64());
    }
    let total: u64 = messages.iter().sum();
    let longest = messages.iter().copied().max().unwrap_or(0).max(1);
    let mut table = Table::new(&["", "<", "<", ""]);
    for (n, &count) in messages.iter().enumerate().filter(|(_, count)| **count > 0) {
        let bar = (u128::from(count) * BAR).div_ceil(longest.into()) as usize;
        table.row(vec![
            format!("    {}", range(n)),
            count.to_string(),
            percent(count, total),
            "#".repeat(bar),
        ]);
    }
    // Without its header, which has no words.
    let table = table.text();
    let rows = table.split_once('\n').map_or("", |(_, rows)| rows);
    format!("  residency {when}: {total} messages\n{rows}")
}

/// The range of residencies that bucket `n` of the histogram counts.
fn range(n: usize) -> String {
    let time = |us: u64| match us {
        0..1024 => format!("{us} us"),
        1024..1_048_576 => format!("{:.1} ms", us as f64 / 1e3),
        _ => format!("{:.1} s", us as f64 / 1e6),
    };
    match n {
        0 => format!("below {}", time(1)),
        _ if n + 1 == Cache::BUCKETS => format!("from {}", time(1 << (n - 1))),
        _ => format!("{} to {}", time(1 << (n - 1)), time(1 << n)),
    }
}

/// Bytes, for people.
fn size(bytes: f64) -> String {
    let mut unit = "B";
    let mut left = bytes;
    for next in ["KiB", "MiB", "GiB", "TiB"] {
        if left < 1024.0 {
            break;
        }
        (left, unit) = (left / 1024.0, next);
    }
    match unit {
        "B" => format!("{left:.0} B"),
        _ => format!("{left:.1} {unit}"),
    }
}

#[cfg(test)]
mod tests;
