// SPDX-License-Identifier: GPL-2.0
// rows: B8

use std::collections::BTreeSet;

use zrs::{Escape, LinkState};

use super::*;

fn seen() -> Seen {
    let mut residency = [0; Cache::BUCKETS];
    (residency[0], residency[3], residency[Cache::BUCKETS - 1]) = (5, 2, 1);
    Seen {
        version: Version {
            version: 2,
            features: 0x3f,
        },
        stats: Stats {
            tx_bytes: 77,
            sockets: 3,
            ..Default::default()
        },
        mem: Some(MemStats {
            regions: 6,
            requests_sent: 8,
            ..Default::default()
        }),
        table: LinkTable {
            entries: 9,
            hot: 4,
            near: 3,
            hits: 100,
            ..Default::default()
        },
        caches: vec![Cache {
            number: 1,
            node: Some(0),
            policy: Escape::UnderPressure,
            devices: 1,
            residency_us: 200,
            cache_bytes: 32 << 20,
            rate: 0,
            bytes: 8 << 20,
            small: 0,
            large: 0,
            small_high: 0,
            large_high: 0,
            small_share: 0,
            unread: 0,
            unread_high: 0,
            escapes: 6,
            escaped_bytes: 0,
            escaped: 0,
            escape_failures: 0,
            escape_reserved: 0,
            escape_max: 0,
            waits: 0,
            denied: 0,
            refused: 0,
            dry: 0,
            residency,
        }],
        pools: vec![Pool {
            device: "a\"b\\c\nd".into(),
            bytes: 8 << 20,
            block_bytes: 0,
            window_bytes: 0,
            windows: 2,
            blocks_held: 0,
            cache: 1,
            blocks: 512,
            blocks_low: 500,
            blocks_lent: 0,
        }],
        links: vec![Link {
            device: "mlx5_0".into(),
            local: [192, 0, 2, 1].into(),
            remote: [192, 0, 2, 2].into(),
            scope_id: 0,
            state: LinkState::Up,
            channels: 10,
            tx_bytes: 1000,
            rx_bytes: 2000,
            accepted: false,
            proved: false,
            waiting: 0,
            bulk: 0,
            bulk_max: 0,
            waits: 1,
            id: 4,
            dgram_drops: 0,
        }],
    }
}

/// The text without anything, which has no caches, pools and links, from a module without counters of memory nodes.
fn idle() -> Seen {
    Seen {
        mem: None,
        caches: vec![],
        pools: vec![],
        links: vec![],
        ..seen()
    }
}

/// Checks the format: for each metric HELP, TYPE and samples, each name once; a newline at the end. Returns the names.
fn check(text: &str) -> BTreeSet<String> {
    assert!(text.ends_with('\n'));
    let mut names = BTreeSet::new();
    let (mut name, mut kind) = ("", "");
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let help;
            (name, help) = rest.split_once(' ').expect(line);
            assert!(!help.is_empty() && names.insert(name.to_string()), "{line}");
            assert!(name.starts_with("zrs_"), "{line}");
            let rest = lines.next().unwrap().strip_prefix("# TYPE ").expect(line);
            kind = rest.strip_prefix(name).expect(rest).trim();
            assert!(
                ["counter", "gauge", "histogram", "untyped"].contains(&kind),
                "{rest}"
            );
            assert_eq!(kind == "counter", name.ends_with("_total"), "{name}");
            continue;
        }
        let (series, value) = line.rsplit_once(' ').expect(line);
        assert!(value.parse::<u64>().is_ok(), "{line}");
        let of = series.split('{').next().unwrap();
        let suffix = of.strip_prefix(name).expect(line);
        assert_eq!(suffix.is_empty(), kind != "histogram", "{line}");
        assert!(series.contains('{') == series.ends_with('}'), "{line}");
    }
    names
}

#[test]
fn the_format_holds() {
    let names = check(&text(&idle()));
    assert!(
        !names.iter().any(|n| n.starts_with("zrs_mem_")),
        "{names:?}"
    );
    let names = check(&text(&seen()));
    assert!(names.len() > 40, "{names:?}");
}

#[test]
fn samples() {
    let text = text(&seen());
    for line in [
        "# HELP zrs_tx_bytes_total Payload accepted from programs, bytes.",
        "# TYPE zrs_tx_bytes_total counter",
        "zrs_tx_bytes_total 77",
        "# TYPE zrs_sockets gauge",
        "zrs_sockets 3",
        "# TYPE zrs_mem_regions gauge",
        "zrs_mem_regions 6",
        "zrs_mem_requests_sent_total 8",
        "zrs_info{version=\"2\",features=\"0x3f\"} 1",
        "zrs_table_channels{tier=\"home\"} 2",
        "zrs_table_found_total{tier=\"hot\"} 100",
        "zrs_cache_escapes_total{cache=\"1\"} 6",
        r#"zrs_device_windows{device="a\"b\\c\nd"} 2"#,
        "zrs_link_tx_bytes_total{link=\"4\",device=\"mlx5_0\",local=\"192.0.2.1\",remote=\"192.0.2.2\",state=\"UP\"} 1000",
        "zrs_residency_seconds_bucket{cache=\"1\",le=\"0.000001\"} 5",
        "zrs_residency_seconds_bucket{cache=\"1\",le=\"0.000008\"} 7",
        "zrs_residency_seconds_bucket{cache=\"1\",le=\"+Inf\"} 8",
        "zrs_residency_seconds_count{cache=\"1\"} 8",
    ] {
        assert!(text.lines().any(|l| l == line), "{line} in {text}");
    }
}

#[test]
fn counters_are_the_modules() {
    let mem = MemStats::default();
    let fields = Stats::default().fields().chain(mem.fields());
    let fields: Vec<_> = fields.map(|(name, _)| name).collect();
    assert_eq!(fields, STATS.map(|(name, _, _)| name));
}

/// Each metric that the dashboard uses exists.
#[test]
fn the_dashboard_knows_the_names() {
    let file = include_str!("../../../../Documentation/grafana.json");
    let json: serde_json::Value = serde_json::from_str(file).unwrap();
    let names = check(&text(&seen()));
    let panels = json["panels"].as_array().unwrap();
    assert!(panels.len() > 5);
    for target in panels.iter().flat_map(|p| p["targets"].as_array().unwrap()) {
        let expr = target["expr"].as_str().unwrap();
        let words = expr.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let mut asked = words.filter(|w| w.starts_with("zrs_")).peekable();
        assert!(asked.peek().is_some(), "{expr}");
        for name in asked {
            let name = name.trim_end_matches("_bucket");
            assert!(names.contains(name), "{name} in {expr}");
        }
    }
}
