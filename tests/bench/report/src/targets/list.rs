// SPDX-License-Identifier: GPL-2.0
//! The list of the targets.

use zrs_bench::{Carrier, Measure};

use super::{Bound, Target, NONE};

const MIB: u64 = 1 << 20;

/// The ring, fed by blocking send() or by MSG_ZEROCOPY.
const RING: &[Carrier] = &[Carrier::ZrsRing, Carrier::ZrsZerocopy];

const VERBS: &[Carrier] = &[Carrier::Verbs, Carrier::VerbsEvents];

const CPU: &[&str] = &["emulator_s_per_gib", "busy_s_per_gib"];

/// All of them.
pub const TARGETS: [Target; 24] = [
    Target {
        name: "ring, 1 MiB messages, of ib_write_bw",
        rows: "B3 Z6",
        measure: Measure::Throughput,
        size: MIB,
        values: &["mib_s"],
        ours: RING,
        theirs: VERBS,
        goal: Bound::AtLeast(0.97),
        ..NONE
    },
    Target {
        name: "ring, 1 MiB messages, of rsockets",
        rows: "B3 Z6",
        measure: Measure::Throughput,
        size: MIB,
        values: &["mib_s"],
        ours: RING,
        theirs: &[Carrier::Rsockets],
        goal: Bound::AtLeast(1.7),
        cause: "a blocking send() posts nothing while it waits for the device, which copies and \
            checksums each byte for both",
        ..NONE
    },
    Target {
        name: "send and recv, 1 MiB messages, of rsockets",
        rows: "Z4 Z6",
        measure: Measure::Throughput,
        size: MIB,
        values: &["mib_s"],
        ours: &[Carrier::Zrs],
        theirs: &[Carrier::Rsockets],
        goal: Bound::AtLeast(1.4),
        cause: "a blocking send() posts nothing while it waits for the device, and recv() copies \
            once",
        ..NONE
    },
    Target {
        name: "round trip of 64 bytes, best mode, of rsockets",
        rows: "Z6",
        measure: Measure::Latency,
        size: 64,
        values: &["median_us"],
        ours: &[Carrier::ZrsSpin, Carrier::Zrs],
        theirs: &[Carrier::Rsockets, Carrier::RsocketsSpin],
        goal: Bound::AtMost(0.8),
        cause: "header and payload are two places of one SEND, where rsockets write inline; and a \
            receiver that polls arms the queue after each call",
        ..NONE
    },
    Target {
        name: "round trip of 64 bytes, best mode, of ib_send_lat's best",
        rows: "Z6",
        measure: Measure::Latency,
        size: 64,
        values: &["median_us"],
        ours: &[Carrier::ZrsSpin, Carrier::Zrs],
        theirs: VERBS,
        goal: Bound::AtMost(1.0),
        cause: "a program that polls takes the processor that the device's worker needs",
        ..NONE
    },
    Target {
        name: "round trip of 64 bytes, sleeping, of ib_send_lat by events",
        rows: "Z6",
        measure: Measure::Latency,
        size: 64,
        values: &["median_us"],
        ours: &[Carrier::Zrs],
        theirs: &[Carrier::VerbsEvents],
        goal: Bound::AtMost(0.9),
        cause: "the receiver's part: a completion, the connection's queue, two system calls and a \
            wake-up",
        ..NONE
    },
    Target {
        name: "processor time a GiB, ring, 1 MiB messages, of ib_write_bw",
        rows: "B3 Z4",
        measure: Measure::Cost,
        size: MIB,
        values: CPU,
        ours: RING,
        theirs: VERBS,
        goal: Bound::AtMost(1.05),
        ..NONE
    },
    Target {
        name: "processor time a GiB, ring, 1 MiB messages, of rsockets",
        rows: "B3 Z4",
        measure: Measure::Cost,
        size: MIB,
        values: CPU,
        ours: RING,
        theirs: &[Carrier::Rsockets],
        goal: Bound::AtMost(0.75),
        cause: "the device's part, the same for both, is most of it, and has not been counted",
        ..NONE
    },
    Target {
        name: "connections a second, of rsockets",
        rows: "B4",
        measure: Measure::Connect,
        size: 0,
        values: &["per_s"],
        ours: &[Carrier::Zrs],
        theirs: &[Carrier::Rsockets],
        goal: Bound::AtLeast(20.0),
        cause:
            "a connection that is made and ended at once is three or four messages, one after the \
            other",
        ..NONE
    },
    Target {
        name: "connections opened and held a second, of rsockets",
        rows: "B4 B5",
        measure: Measure::Memory,
        size: 0,
        values: &["opened_per_s"],
        ours: &[Carrier::Zrs],
        theirs: &[Carrier::Rsockets],
        goal: Bound::AtLeast(20.0),
        ..NONE
    },
    Target {
        name: "memory of an idle endpoint, of rsockets",
        rows: "B5",
        measure: Measure::Memory,
        size: 0,
        values: &["bytes_per_endpoint"],
        ours: &[Carrier::Zrs],
        theirs: &[Carrier::Rsockets],
        goal: Bound::AtMost(1.0 / 40.0),
        ..NONE
    },
    Target {
        name: "memory of an idle endpoint",
        rows: "B5",
        measure: Measure::Memory,
        size: 0,
        values: &["bytes_per_endpoint"],
        ours: &[Carrier::Zrs],
        goal: Bound::AtMost(6144.0),
        ..NONE
    },
    Target {
        name: "16 busy connections beside 50,000 idle ones, of the same alone",
        rows: "B5 L3",
        measure: Measure::Hold,
        size: 4 << 10,
        values: &["held_ratio"],
        ours: &[Carrier::Zrs],
        goal: Bound::AtLeast(0.9),
        needs: Some(("idle", 50_000.0)),
        ..NONE
    },
    Target {
        name: "99th percentile of 100 asking connections beside a bulk sender, of the same alone",
        rows: "B4 L3 L4",
        measure: Measure::Fair,
        size: 64,
        values: &["p99_ratio"],
        ours: &[Carrier::Zrs],
        goal: Bound::AtMost(3.0),
        ..NONE
    },
    Target {
        name: "a busy reader beside 16 that have stopped, of the same alone",
        rows: "C3 C5",
        measure: Measure::Pool,
        size: MIB,
        values: &["ratio_16"],
        ours: &[Carrier::Zrs],
        goal: Bound::AtLeast(0.95),
        ..NONE
    },
    Target {
        name: "the most of the receive pool that is in use, 1 to 64 senders",
        rows: "C2",
        measure: Measure::Load,
        size: 256 << 10,
        values: &["most"],
        ours: &[Carrier::Zrs],
        goal: Bound::AtMost(1.0),
        ..NONE
    },
    Target {
        name: "signalled completions a MiB, 1 MiB messages",
        rows: "Z4 Z8",
        measure: Measure::Cost,
        size: MIB,
        values: &["signaled_per_mib"],
        ours: &[Carrier::ZrsRing],
        goal: Bound::AtMost(5.0),
        ..NONE
    },
    Target {
        name: "system calls of the receiver a MiB, ring that is polled, 1 MiB messages",
        rows: "B3",
        measure: Measure::Cost,
        size: MIB,
        values: &["recv_calls_per_mib"],
        ours: &[Carrier::ZrsRingSpin],
        goal: Bound::AtMost(0.0),
        cause:
            "a reader that waits for a processor lets the ring become crowded, and then rings the \
            doorbell",
        ..NONE
    },
    Target {
        name: "bytes the receiver copies a byte, ring, 1 MiB messages",
        rows: "B3 Z6",
        measure: Measure::Cost,
        size: MIB,
        values: &["rx_copied_per_byte"],
        ours: &[Carrier::ZrsRing],
        goal: Bound::AtMost(0.001),
        ..NONE
    },
    Target {
        name: "bytes the receiver copies a byte, mapped, 1 MiB messages",
        rows: "Z6",
        measure: Measure::Cost,
        size: MIB,
        values: &["rx_copied_per_byte"],
        ours: &[Carrier::ZrsMapped],
        goal: Bound::AtMost(0.001),
        ..NONE
    },
    Target {
        name: "bytes the sender copies a byte, MSG_ZEROCOPY, 1 MiB messages",
        rows: "B2 Z4",
        measure: Measure::Cost,
        size: MIB,
        values: &["tx_copied_per_byte"],
        ours: &[Carrier::ZrsZerocopy],
        goal: Bound::AtMost(0.001),
        ..NONE
    },
    Target {
        name: "round trip of a datagram of 64 bytes, sleeping, of ib_send_lat by events",
        rows: "Z7",
        measure: Measure::DgramLatency,
        size: 64,
        values: &["median_us"],
        ours: &[Carrier::Zrs],
        theirs: &[Carrier::VerbsEvents],
        goal: Bound::AtMost(0.9),
        cause: "each completion wakes a worker, and that the program; and two system calls",
        ..NONE
    },
    Target {
        name: "datagrams of 65507 bytes, of ib_send_bw by events",
        rows: "Z7",
        measure: Measure::DgramRate,
        size: 65_507,
        values: &["mib_s"],
        ours: &[Carrier::Zrs, Carrier::ZrsZerocopy],
        theirs: &[Carrier::VerbsEvents],
        goal: Bound::AtLeast(0.9),
        cause: "a fragment of 4 KiB with its header is two packets, where verbs have one; and the \
                receiver copies",
        ..NONE
    },
    Target {
        name: "a stream beside a flood of datagrams, of the same alone",
        rows: "Z7",
        measure: Measure::DgramFlood,
        size: 1 << 10,
        values: &["beside_ratio"],
        ours: &[Carrier::Zrs],
        goal: Bound::AtLeast(0.8),
        ..NONE
    },
];
