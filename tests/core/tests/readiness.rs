// SPDX-License-Identifier: GPL-2.0

//! Readiness: the events of poll(), phase by phase.

use zrs_core::readiness::{events, Phase, View, ERR, HUP, IN, OUT, RDHUP};

/// An idle connected socket with room to send.
const IDLE: View = View {
    phase: Phase::Connected,
    readable: false,
    writable: true,
    read_ended: false,
    write_ended: false,
    write_shut: false,
    error: false,
};

const PHASES: [Phase; 7] = [
    Phase::Fresh,
    Phase::Listening { queued: false },
    Phase::Listening { queued: true },
    Phase::Connecting,
    Phase::Connected,
    Phase::Failed,
    Phase::Carried,
];

/// Every combination of the conditions in a phase.
fn views(phase: Phase) -> impl Iterator<Item = View> {
    (0..64_u32).map(move |bits| {
        let bit = |n: u32| bits & (1 << n) != 0;
        View {
            phase,
            readable: bit(0),
            writable: bit(1),
            read_ended: bit(2),
            write_ended: bit(3),
            write_shut: bit(4),
            error: bit(5),
        }
    })
}

/// The numbers are the kernel's: include/uapi/linux/eventpoll.h, and tcp_poll() in net/ipv4/tcp.c
/// for their combinations.
// rows: E4
#[test]
fn numbers() {
    assert_eq!(IN, 0x001 | 0x040); // EPOLLIN | EPOLLRDNORM
    assert_eq!(OUT, 0x004 | 0x100); // EPOLLOUT | EPOLLWRNORM
    assert_eq!((ERR, HUP, RDHUP), (0x008, 0x010, 0x2000));
}

// rows: E4 E1
#[test]
fn connected() {
    let table = [
        ("idle", IDLE, OUT),
        (
            "no room",
            View {
                writable: false,
                ..IDLE
            },
            0,
        ),
        (
            "data",
            View {
                readable: true,
                ..IDLE
            },
            IN | OUT,
        ),
        (
            "peer shut",
            View {
                read_ended: true,
                ..IDLE
            },
            IN | RDHUP | OUT,
        ),
        (
            "peer shut, data left",
            View {
                readable: true,
                read_ended: true,
                ..IDLE
            },
            IN | RDHUP | OUT,
        ),
        (
            "we shut: sending fails at once",
            View {
                writable: false,
                write_ended: true,
                write_shut: true,
                ..IDLE
            },
            OUT,
        ),
        (
            "peer closed: sending fails at once, but we have shut nothing",
            View {
                writable: false,
                read_ended: true,
                write_ended: true,
                ..IDLE
            },
            IN | RDHUP | OUT,
        ),
        (
            "both shut",
            View {
                writable: false,
                read_ended: true,
                write_ended: true,
                write_shut: true,
                ..IDLE
            },
            IN | RDHUP | OUT | HUP,
        ),
        (
            "reset, what had arrived is readable",
            View {
                readable: true,
                writable: false,
                read_ended: true,
                write_ended: true,
                write_shut: true,
                error: true,
                ..IDLE
            },
            IN | RDHUP | OUT | HUP | ERR,
        ),
    ];
    for (what, view, want) in table {
        assert_eq!(events(&view), want, "{what}");
    }
}

// rows: E4
#[test]
fn not_connected() {
    for (phase, want) in [
        // As TCP has it for a socket that was never connected.
        (Phase::Fresh, OUT | HUP),
        (Phase::Listening { queued: false }, 0),
        (Phase::Listening { queued: true }, IN),
        (Phase::Connecting, 0),
        // Both directions, whichever was asked for.
        (Phase::Failed, IN | OUT | HUP | RDHUP),
    ] {
        for v in views(phase) {
            let error = if v.error { ERR } else { 0 };
            assert_eq!(events(&v), want | error, "{v:?}");
        }
    }
}

/// Rules that hold whatever the socket is.
// rows: E4
#[test]
fn always() {
    for v in PHASES.into_iter().flat_map(views) {
        let mask = events(&v);
        assert_eq!(mask & ERR != 0, v.error, "{v:?}");
        assert_eq!(mask & !(IN | OUT | ERR | HUP | RDHUP), 0);
        for all in [IN, OUT] {
            assert!(mask & all == 0 || mask & all == all, "{v:?}");
        }
        assert!(
            mask & RDHUP == 0 || mask & IN != 0,
            "the end is readable: {v:?}"
        );
        if v.phase == Phase::Connected {
            // Each condition alone turns its event on and off: a level ends with its cause.
            assert_eq!(mask & IN != 0, v.readable || v.read_ended);
            assert_eq!(mask & OUT != 0, v.writable || v.write_ended);
            assert_eq!(mask & RDHUP != 0, v.read_ended);
            assert_eq!(mask & HUP != 0, v.read_ended && v.write_shut);
        }
    }
}
