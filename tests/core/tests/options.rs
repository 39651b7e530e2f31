// SPDX-License-Identifier: GPL-2.0

//! The numbers that TCP's options may be.

use zrs_core::options::*;
use zrs_core::tcp_info::{self, TcpInfo};

// rows: Z1 B6
#[test]
fn what_is_set_is_read() {
    let mut options = Options::default();
    for (name, first, value) in [
        (TCP_MAXSEG, 536, 1400),
        (TCP_CORK, 0, 1),
        (TCP_KEEPIDLE, 7200, 32767),
        (TCP_KEEPINTVL, 75, 1),
        (TCP_KEEPCNT, 9, 127),
        (TCP_SYNCNT, 6, 1),
        (TCP_LINGER2, 60, -1),
        (TCP_DEFER_ACCEPT, 0, 3),
        (TCP_QUICKACK, 1, 0),
        (TCP_USER_TIMEOUT, 0, i32::MAX),
        (TCP_FASTOPEN, 0, 16),
        (TCP_NOTSENT_LOWAT, 0, 16384),
    ] {
        assert_eq!(options.get(name), Some(first), "{name} at first");
        assert_eq!(options.set(name, value, true), Ok(()), "{name}");
        assert_eq!(options.get(name), Some(value), "{name}");
    }
}

// rows: B14
#[test]
fn what_was_changed() {
    let mut options = Options::default();
    assert_eq!(options.changed().count(), 0);
    for (name, value) in [(TCP_KEEPCNT, 5), (TCP_KEEPIDLE, 7200), (TCP_NODELAY, 0)] {
        options.set(name, value, true).unwrap();
    }
    // A default that is set again, and a value that is ignored, are no change.
    assert_eq!(options.changed().collect::<Vec<_>>(), [(TCP_KEEPCNT, 5)]);
}

// rows: B6
#[test]
fn what_is_refused_changes_nothing() {
    let mut options = Options::default();
    for (name, values) in [
        (TCP_MAXSEG, &[-1, 87, 32768][..]),
        (TCP_KEEPIDLE, &[i32::MIN, 0, 32768]),
        (TCP_KEEPINTVL, &[0, 32768]),
        (TCP_KEEPCNT, &[0, 128]),
        (TCP_SYNCNT, &[0, 128]),
        (TCP_USER_TIMEOUT, &[-1]),
        (TCP_FASTOPEN, &[-1]),
    ] {
        for &value in values {
            assert_eq!(
                options.set(name, value, true),
                Err(OptionError::Value),
                "{name}, {value}"
            );
        }
    }
    assert_eq!(options.set(TCP_FASTOPEN, 1, false), Err(OptionError::Value));
    for name in [i32::MIN, 0, 10, 11, 13, 14, 1000] {
        assert_eq!(
            options.set(name, 1, true),
            Err(OptionError::Unknown),
            "{name}"
        );
        assert_eq!(options.get(name), None, "{name}");
    }
    assert_eq!(options, Options::default());
}

// rows: Z1
#[test]
fn what_counts_as_something_else() {
    let mut options = Options::default();
    for (name, value, seen) in [
        (TCP_NODELAY, 0, 1),
        (TCP_CORK, -7, 1),
        (TCP_LINGER2, 121, 120),
        (TCP_LINGER2, -5, -1),
        (TCP_LINGER2, 0, 60),
        (TCP_DEFER_ACCEPT, -1, 0),
        (TCP_QUICKACK, 2, 1),
        (TCP_MAXSEG, 0, 536),
    ] {
        assert_eq!(options.set(name, value, true), Ok(()), "{name}");
        assert_eq!(options.get(name), Some(seen), "{name} set to {value}");
    }
}

// The places of the fields in <linux/tcp.h>.
// rows: Z1
#[test]
fn tcp_info_as_programs_read_it() {
    let info = TcpInfo {
        state: tcp_info::LISTEN,
        mss: 536,
        waiting: 3,
        backlog: 128,
        notsent: 7,
        bytes_sent: 1 << 40,
        bytes_acked: (1 << 40) - 1,
        bytes_received: 5,
    };
    let bytes = info.bytes();
    let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
    let long = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap());
    assert_eq!(bytes[0], 10);
    assert_eq!((word(16), word(20)), (536, 536), "tcpi_snd_mss, rcv_mss");
    assert_eq!((word(24), word(28)), (3, 128), "tcpi_unacked, sacked");
    assert_eq!(long(120), (1 << 40) - 1, "tcpi_bytes_acked");
    assert_eq!(long(128), 5, "tcpi_bytes_received");
    assert_eq!(word(144), 7, "tcpi_notsent_bytes");
    assert_eq!(long(200), 1 << 40, "tcpi_bytes_sent");
    assert_eq!(
        bytes.iter().filter(|&&b| b != 0).count(),
        1 + 4 + 2 + 5 + 1 + 1 + 1
    );
}

// When a peer is asked whether it is there, and for how long it may leave that unanswered.
// rows: B12
#[test]
fn keep_alive_times() {
    let of = |values: &[(i32, i32)]| {
        let mut options = Options::default();
        for &(name, value) in values {
            assert_eq!(options.set(name, value, true), Ok(()));
        }
        options.keep_alive_ms()
    };
    assert_eq!(of(&[]), (7_200_000, 675_000));
    let quick = [(TCP_KEEPIDLE, 4), (TCP_KEEPINTVL, 2), (TCP_KEEPCNT, 3)];
    assert_eq!(of(&quick), (4000, 6000));
    let with = |ms| of(&[&quick[..], &[(TCP_USER_TIMEOUT, ms)]].concat());
    assert_eq!(with(9000), (4000, 5000), "the other one counts");
    assert_eq!(with(60_000), (4000, 56_000), "also if it is longer");
    assert_eq!(with(1), (4000, 2000), "one interval at least");
    let most = [
        (TCP_KEEPIDLE, 32767),
        (TCP_KEEPINTVL, 32767),
        (TCP_KEEPCNT, 127),
    ];
    assert_eq!(of(&most), (32_767_000, 4_161_409_000));
}

// For how long connect() goes on where the backlog is full.
// rows: Z1 E5
#[test]
fn connect_times() {
    let of = |values: &[(i32, i32)]| {
        let mut options = Options::default();
        for &(name, value) in values {
            assert_eq!(options.set(name, value, true), Ok(()));
        }
        options.connect_ms()
    };
    assert_eq!(of(&[]), 127_000);
    for (count, seconds) in [(1, 3), (2, 7), (5, 63), (6, 127), (7, 247), (127, 14_647)] {
        assert_eq!(of(&[(TCP_SYNCNT, count)]), seconds * 1000, "{count}");
    }
    assert_eq!(of(&[(TCP_USER_TIMEOUT, 1)]), 1);
    assert_eq!(of(&[(TCP_USER_TIMEOUT, 126_999)]), 126_999);
    assert_eq!(of(&[(TCP_USER_TIMEOUT, i32::MAX)]), 127_000, "the sooner");
    let both = [(TCP_SYNCNT, 127), (TCP_USER_TIMEOUT, 5_000_000)];
    assert_eq!(of(&both), 5_000_000);
}

// rows: B14
#[test]
fn options_of_tcp_alone() {
    // TCP_MD5SIG, TCP_AO_ADD_KEY; IP_TRANSPARENT, IP_MINTTL; IPV6_MINHOPCOUNT, IPV6_RTHDR.
    for (level, name) in [(6, 14), (6, 38), (0, 19), (0, 21), (41, 73), (41, 57)] {
        assert!(is_tcp_only(level, name), "{level}, {name}");
    }
    // The same numbers at other levels; TCP_CONGESTION, IP_RECVERR, IPV6_RECVERR, IPV6_V6ONLY.
    for (level, name) in [
        (0, 14),
        (1, 19),
        (6, 21),
        (41, 14),
        (6, 73),
        (6, 13),
        (0, 11),
        (41, 25),
        (41, 26),
    ] {
        assert!(!is_tcp_only(level, name), "{level}, {name}");
    }
}
