// SPDX-License-Identifier: GPL-2.0
// rows: C2 C5 B8

use super::*;

fn cache() -> Cache {
    let mut residency = [0; Cache::BUCKETS];
    (residency[2], residency[4], residency[Cache::BUCKETS - 1]) = (30, 1, 10);
    Cache {
        number: 1,
        node: Some(0),
        policy: zrs::Escape::UnderPressure,
        devices: 2,
        residency_us: 200,
        cache_bytes: 32 << 20,
        rate: 25_000,
        bytes: 8 << 20,
        small: 512 << 10,
        large: 3 << 20,
        small_high: 1 << 20,
        large_high: 6 << 20,
        small_share: 2 << 20,
        unread: 100,
        unread_high: 2048,
        escapes: 12,
        escaped_bytes: 48 << 10,
        escaped: 4096,
        escape_failures: 0,
        escape_reserved: 1 << 20,
        escape_max: 1 << 30,
        waits: 3,
        denied: 2,
        refused: 1,
        dry: 0,
        residency,
    }
}

const FIRST: &str = "\
Cache 1 of node 0, of 32.0 MiB: 8.0 MiB for 2 devices, 200.0 Gb/s x 200 us
  Class       Own       Used     Most   Used%
  small   2.0 MiB  512.0 KiB  1.0 MiB   6.25%
  large   6.0 MiB    3.0 MiB  6.0 MiB  37.50%
  unread        -      100 B  2.0 KiB   0.00%
";

#[test]
fn a_cache_is_a_block() {
    let text = cache_text(&cache(), None);
    let (first, rest) = text.split_at(FIRST.len());
    assert_eq!(first, FIRST);
    assert_eq!(
        rest,
        "  escape under-pressure: 12 messages, 48.0 KiB; 4.0 KiB there now, 1.0 MiB of 1.0 GiB promised; \
         0 without memory\n  \
         windows: 3 waits, 2 denied; connects: 1 refused; queue of blocks: 0 times dry\n  \
         residency since loading: 41 messages\n    \
         2 us to 4 us   30  73.17%  ##############################\n    \
         8 us to 16 us   1   2.44%  #\n    \
         from 4.2 s     10  24.39%  ##########\n"
    );
}

#[test]
fn each_place_has_its_range() {
    assert_eq!(range(0), "below 1 us");
    assert_eq!(range(1), "1 us to 2 us");
    assert_eq!(range(10), "512 us to 1.0 ms");
    assert_eq!(range(20), "524.3 ms to 1.0 s");
    assert_eq!(range(22), "2.1 s to 4.2 s");
    assert_eq!(range(23), "from 4.2 s");
}

#[test]
fn rates_are_of_the_time_between() {
    let then = cache();
    let mut now = then.clone();
    now.escapes += 10;
    now.escaped_bytes += 8 << 20;
    now.waits += 1;
    now.residency[3] += 7;
    let text = cache_text(&now, Some((&then, Duration::from_secs(2))));
    for part in [
        "22 (+5.0/s) messages, 8.0 MiB (+4.0 MiB/s); ",
        ": 4 (+0.5/s) waits, 2 (+0.0/s) denied",
        "residency in 2.0 s: 7 messages\n    4 us to 8 us  7  100.00%  ####",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

#[test]
fn nothing_is_a_number_too() {
    let cache = Cache {
        node: None,
        cache_bytes: 0,
        bytes: 0,
        residency: [0; Cache::BUCKETS],
        ..cache()
    };
    let text = cache_text(&cache, Some((&cache, Duration::ZERO)));
    assert!(
        text.starts_with("Cache 1, of unknown size: 0 B for 2 devices"),
        "{text}"
    );
    assert!(text.ends_with(": 0 messages\n"), "{text}");
}

#[test]
fn json_has_both_lists() {
    let seen = Seen {
        at: Instant::now(),
        caches: vec![cache()],
        pools: vec![zrs::Pool {
            device: "rxe0".into(),
            bytes: 8 << 20,
            block_bytes: 1 << 20,
            window_bytes: 2 << 20,
            windows: 2,
            blocks_held: 3,
            cache: 1,
            blocks: 128,
            blocks_low: 100,
            blocks_lent: 5,
        }],
        unfit: vec![],
    };
    let json = seen.json();
    assert_eq!(json["caches"][0]["policy"], "under-pressure");
    assert_eq!(json["caches"][0]["residency"][2], 30);
    assert_eq!(json["pools"][0]["blocks_low"], 100);
    assert_eq!(json["pools"][0]["blocks_lent"], 5);
    let text = seen.text(None);
    let last = text.lines().last().unwrap_or_default();
    let words: Vec<_> = last.split_whitespace().collect();
    assert_eq!(
        words,
        ["rxe0", "1", "8388608", "1048576", "2097152", "2", "3", "100", "128", "5"]
    );
}

#[test]
fn a_device_that_cannot_be_used_has_a_line() {
    let unfit = |limit| zrs::Unfit {
        device: "i40iw0".into(),
        limit,
        has: 2,
        needs: 3,
    };
    let seen = Seen {
        at: Instant::now(),
        caches: vec![],
        pools: vec![],
        unfit: vec![unfit(Some("max_send_sge")), unfit(None)],
    };
    let text = seen.text(None);
    let lines: Vec<_> = text.lines().skip(1).collect();
    assert_eq!(
        lines,
        [
            "i40iw0 cannot be used: max_send_sge is 2, 3 needed",
            "i40iw0 cannot be used: the kernel log has the error"
        ]
    );
    assert_eq!(seen.json()["unfit"][0]["limit"], "max_send_sge");
}
