// SPDX-License-Identifier: GPL-2.0
//! The measurements of a run, and their order.

use zrs_bench::{Carrier, Measure};

use super::dgram;

/// The user's choice; an empty list is everything.
pub struct Choice<'a> {
    pub measures: &'a [Measure],
    pub carriers: &'a [Carrier],
    /// There is a route for tcp-plain.
    pub plain: bool,
    pub sizes: &'a [u64],
    /// Only the sizes that the targets are about.
    pub quick: bool,
    pub seconds: f64,
    pub connections: u64,
    /// Messages or trips of each measurement, instead of a time.
    pub messages: Option<u64>,
}

/// One measurement of every round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Item {
    pub measure: Measure,
    pub carrier: Carrier,
    pub size: u64,
    /// How long it should take.
    pub seconds: f64,
    /// Number of messages, trips or connections, if that does not follow from the time.
    pub count: Option<u64>,
    /// Connections, for measures with many that are not themselves counted.
    pub connections: u64,
}

/// Bytes in the messages of a throughput.
const STREAM_SIZES: [u64; 8] = [
    64,
    1 << 10,
    4 << 10,
    16 << 10,
    64 << 10,
    256 << 10,
    1 << 20,
    4 << 20,
];
/// Bytes in the messages of a throughput both ways.
const BOTH_SIZES: [u64; 4] = [64, 4 << 10, 64 << 10, 1 << 20];
/// Bytes in the messages of a throughput of a sender that does not block.
const POLL_SIZES: [u64; 3] = [4 << 10, 64 << 10, 1 << 20];
/// Bytes of a response.
const EXCHANGE_SIZES: [u64; 3] = [1 << 10, 16 << 10, 256 << 10];
/// Bytes in the messages of a round trip.
const TRIP_SIZES: [u64; 6] = [1, 64, 1 << 10, 4 << 10, 16 << 10, 64 << 10];
/// Bytes in the messages whose cost is measured.
const COST_SIZES: [u64; 4] = [64, 1 << 10, 4 << 10, 1 << 20];
/// Cost sizes at which only sockets in their usual mode are compared.
const MESSAGE_SIZES: [u64; 2] = [1 << 10, 4 << 10];
/// The size that the targets are about; measured for longer.
const TARGET_SIZES: [u64; 2] = [64, 1 << 20];

/// Bytes in the messages of busy connections, while others are idle: small, so that most of the
/// work is the lookup of connections.
const HOLD_SIZE: u64 = 4 << 10;
/// Bytes in the messages of a rate, and of round trips of many connections or during a bulk
/// transfer.
const SMALL_SIZE: u64 = 64;
/// The number of held connections, as a multiple of those whose memory is measured.
const HELD: u64 = 50;
/// Connections with round trips during a bulk transfer.
const ASKING: u64 = 100;
/// Connections of a server with epoll: the default of redis-benchmark.
const ECHOING: u64 = 50;
/// Connections whose messages are counted.
const COUNTED: u64 = 16;

/// Bytes in the messages of a connection, while other readers have stopped.
const POOL_SIZE: u64 = 1 << 20;
/// Connections whose readers stop.
const STOPPED: u64 = 16;
/// Bytes in the messages of many connections with bulk data.
const LOAD_SIZE: u64 = 256 << 10;
/// The most of them that send at once.
const SENDING: u64 = 64;

/// Bytes in datagrams that go one way, and one after the other there and back.
const DGRAM_SIZES: [u64; 4] = [1 << 10, 4 << 10, 16 << 10, dgram::MOST];
const DGRAM_TRIP_SIZES: [u64; 5] = [64, 1 << 10, 4 << 10, 16 << 10, dgram::MOST];
/// The smallest datagram that MSG_ZEROCOPY sends from the program's pages.
const PINNED_LEAST: u64 = 4097;
/// Bytes in a datagram of the flood beside a stream.
const FLOOD_SIZE: u64 = 1 << 10;

/// The smallest size for mapped receives and a polled ring.
const LARGE_LEAST: u64 = 64 << 10;

/// The carriers that `measure` compares.
fn carriers(measure: Measure) -> &'static [Carrier] {
    use Carrier::{
        Rsockets, RsocketsSpin, Tcp, TcpPlain, TcpSpin, Udp, UdpPlain, Verbs, VerbsEvents, Zrs,
        ZrsMapped, ZrsRing, ZrsRingSpin, ZrsSpin, ZrsZerocopy,
    };
    match measure {
        Measure::Throughput => &[
            Verbs,
            VerbsEvents,
            ZrsRing,
            ZrsZerocopy,
            ZrsMapped,
            Zrs,
            Rsockets,
            Tcp,
            TcpPlain,
        ],
        Measure::Cost => &[
            Verbs,
            VerbsEvents,
            ZrsRing,
            ZrsRingSpin,
            ZrsZerocopy,
            ZrsMapped,
            Zrs,
            Rsockets,
            Tcp,
            TcpPlain,
        ],
        Measure::BothWays => &[Verbs, VerbsEvents, ZrsRing, Zrs, Rsockets, Tcp, TcpPlain],
        Measure::Latency => &[
            Verbs,
            ZrsSpin,
            RsocketsSpin,
            TcpSpin,
            VerbsEvents,
            Zrs,
            Rsockets,
            Tcp,
            TcpPlain,
        ],
        Measure::Rate => &[Verbs, VerbsEvents, Zrs, Rsockets, Tcp, TcpPlain],
        Measure::Nonblocking | Measure::Exchange | Measure::Mixed | Measure::Uploads => {
            &[Zrs, Rsockets, Tcp, TcpPlain]
        }
        Measure::Connect | Measure::Memory => &[Zrs, Rsockets, Tcp],
        // rsockets have no descriptors for epoll, and 700 KiB for each connection.
        Measure::EpollEcho | Measure::Hold => &[Zrs, Tcp, TcpPlain],
        Measure::Fair | Measure::Pool => &[Zrs, Tcp],
        Measure::Load => &[Zrs],
        // rsockets of datagrams need a LID, which RoCE has none of.
        Measure::DgramLatency => &[Verbs, ZrsSpin, VerbsEvents, Zrs, Udp, UdpPlain],
        Measure::DgramRate => &[Verbs, VerbsEvents, ZrsZerocopy, Zrs, Udp, UdpPlain],
        Measure::DgramFlood => &[Zrs, Udp, UdpPlain],
    }
}

fn sizes(measure: Measure, quick: bool) -> &'static [u64] {
    match measure {
        Measure::Throughput | Measure::BothWays | Measure::Cost if quick => &[1 << 20],
        Measure::Latency | Measure::DgramLatency if quick => &[64],
        Measure::DgramRate if quick => &[1 << 10, dgram::MOST],
        Measure::Nonblocking if quick => &[64 << 10],
        Measure::Exchange if quick => &[16 << 10],
        Measure::Throughput => &STREAM_SIZES,
        Measure::BothWays => &BOTH_SIZES,
        Measure::Nonblocking => &POLL_SIZES,
        Measure::Exchange => &EXCHANGE_SIZES,
        Measure::Latency => &TRIP_SIZES,
        Measure::Cost => &COST_SIZES,
        Measure::Hold => &[HOLD_SIZE],
        Measure::Fair | Measure::Mixed | Measure::EpollEcho | Measure::Rate => &[SMALL_SIZE],
        Measure::Pool => &[POOL_SIZE],
        Measure::Load | Measure::Uploads => &[LOAD_SIZE],
        Measure::DgramLatency => &DGRAM_TRIP_SIZES,
        Measure::DgramRate => &DGRAM_SIZES,
        Measure::DgramFlood => &[FLOOD_SIZE],
        Measure::Connect | Measure::Memory => &[0],
    }
}

/// Whether its size is not the user's choice.
fn own_size(measure: Measure) -> bool {
    use Measure::{DgramFlood, EpollEcho, Fair, Hold, Load, Mixed, Pool, Rate, Uploads};
    matches!(
        measure,
        Hold | Fair | Mixed | EpollEcho | Rate | Uploads | Pool | Load | DgramFlood
    )
}

/// Whether a measure is not one of datagrams, or can have them of this size.
fn is_datagram(measure: Measure, carrier: Carrier, size: u64) -> bool {
    // As with any send, less is copied.
    let least = match carrier {
        Carrier::ZrsZerocopy => PINNED_LEAST,
        _ => dgram::LEAST,
    };
    !measure.is_of_datagrams() || (least..=dgram::MOST).contains(&size)
}

/// SMC is measured as TCP is, where it is asked for: Debian's kernel has none.
fn has_smc(measure: Measure, choice: &Choice) -> bool {
    choice.carriers.contains(&Carrier::Smc) && carriers(measure).contains(&Carrier::Tcp)
}

/// The measurements of a round: the carriers of one size after one another.
pub fn plan(choice: &Choice) -> Vec<Item> {
    let mut items = Vec::new();
    for measure in Measure::ALL {
        if !choice.measures.is_empty() && !choice.measures.contains(&measure) {
            continue;
        }
        let chosen = match sizes(measure, choice.quick) {
            &[0] => &[0],
            own if own_size(measure) => own,
            own if choice.sizes.is_empty() => own,
            _ => choice.sizes,
        };
        for &size in chosen {
            let smc = has_smc(measure, choice).then_some(&Carrier::Smc);
            for &carrier in carriers(measure).iter().chain(smc) {
                let chosen = match choice.carriers {
                    [] => !carrier.is_plain() || choice.plain,
                    some => some.contains(&carrier),
                };
                // Less is not mapped, and comes by the ring in part only.
                let large = matches!(carrier, Carrier::ZrsMapped | Carrier::ZrsRingSpin);
                let usual = carrier == Carrier::Zrs || !carrier.is_zrs() && !carrier.is_verbs();
                let compared = measure == Measure::Cost
                    && choice.carriers.is_empty()
                    && MESSAGE_SIZES.contains(&size);
                let fits = (!large || size >= LARGE_LEAST) && is_datagram(measure, carrier, size);
                if chosen && fits && (!compared || usual) {
                    items.push(item(measure, carrier, size, choice));
                }
            }
        }
    }
    items
}

fn item(measure: Measure, carrier: Carrier, size: u64, choice: &Choice) -> Item {
    let longer = match measure {
        Measure::Cost => 3.0,
        // Several phases, which differ little.
        Measure::Pool | Measure::Rate => 2.0,
        Measure::Uploads => 4.0,
        Measure::DgramFlood => 3.0,
        // A loss at the end of a short flood would be most of it.
        Measure::DgramRate => 2.0,
        Measure::Throughput if TARGET_SIZES.contains(&size) => 2.0,
        _ => 1.0,
    };
    let count = match (measure, carrier) {
        (Measure::Memory, Carrier::Rsockets) => Some(choice.connections.div_ceil(10)),
        (Measure::Memory, _) => Some(choice.connections),
        (Measure::Connect | Measure::Exchange, _) => None,
        _ => choice.messages,
    };
    let connections = match measure {
        Measure::Hold if choice.quick => choice.connections,
        Measure::Hold => HELD * choice.connections,
        Measure::Fair => ASKING,
        Measure::Pool => STOPPED,
        Measure::Load | Measure::Uploads => SENDING,
        Measure::EpollEcho => ECHOING,
        Measure::Rate => COUNTED,
        _ => 1,
    };
    Item {
        measure,
        carrier,
        size,
        seconds: choice.seconds * longer,
        count,
        connections,
    }
}

/// In how many rounds something is measured. Memory hardly changes, and takes long.
const MEMORY_ROUNDS: u32 = 3;

/// The items of `round` in its order: the carriers of each size take turns in being the first.
pub fn order(items: &[Item], round: u32) -> Vec<Item> {
    let in_round = |item: &&Item| item.measure != Measure::Memory || round < MEMORY_ROUNDS;
    let mut ordered: Vec<Item> = items.iter().filter(in_round).copied().collect();
    for group in ordered.chunk_by_mut(|a, b| (a.measure, a.size) == (b.measure, b.size)) {
        group.rotate_left(round as usize % group.len());
    }
    ordered
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Choice = Choice {
        measures: &[],
        carriers: &[],
        plain: true,
        sizes: &[],
        quick: false,
        seconds: 1.0,
        connections: 1000,
        messages: None,
    };

    #[test]
    fn everything_and_a_part() {
        let all = plan(&ALL);
        let one_size = 3 + 3 + 6 + 2 + 4 + 3 + 4 + 2 + 1 + 3 + 3;
        assert_eq!(
            all.len(),
            8 * (8 + 2)
                + (4 + 2 + 2 * 4)
                + (7 * 4 + 4 * 3 + 9 * 6 + 4 * 3)
                + (6 * 5 + 5 * 2 + 6 * 2)
                + one_size
        );
        let quick = plan(&Choice { quick: true, ..ALL });
        assert_eq!(quick.len(), 9 + 10 + 7 + 4 + 9 + 4 + (6 + 5 + 6) + one_size);
        let plain = plan(&Choice {
            plain: false,
            ..ALL
        });
        assert!(!plain.iter().any(|i| i.carrier.is_plain()));
        let pinned = |i: &&Item| i.carrier == Carrier::ZrsZerocopy && i.measure.is_of_datagrams();
        let sizes: Vec<_> = all.iter().filter(pinned).map(|i| i.size).collect();
        assert_eq!(sizes, [16 << 10, dgram::MOST]);
        let held = |items: &[Item]| {
            let hold = items.iter().find(|i| i.measure == Measure::Hold);
            hold.map(|i| (i.size, i.connections))
        };
        assert_eq!(
            (held(&all), held(&quick)),
            (Some((4096, 50_000)), Some((4096, 1000)))
        );
        let some = plan(&Choice {
            measures: &[Measure::Latency, Measure::Memory],
            carriers: &[Carrier::Rsockets],
            sizes: &[7],
            ..ALL
        });
        assert_eq!(some.len(), 2);
        assert_eq!((some[0].size, some[0].count), (7, None));
        assert_eq!((some[1].size, some[1].count), (0, Some(100)));
    }

    #[test]
    fn smc_where_it_is_asked_for() {
        let smc = |carriers, measure| {
            let items = plan(&Choice {
                measures: &[measure],
                carriers,
                sizes: &[64],
                ..ALL
            });
            items.iter().filter(|i| i.carrier == Carrier::Smc).count()
        };
        assert_eq!(smc(&[], Measure::Latency), 0);
        assert_eq!(smc(&[Carrier::Smc, Carrier::Zrs], Measure::Latency), 1);
        assert_eq!(smc(&[Carrier::Smc], Measure::Load), 0);
    }

    #[test]
    fn each_carrier_is_first_once() {
        let items = plan(&Choice {
            measures: &[Measure::Throughput],
            sizes: &[64, 128],
            ..ALL
        });
        for round in 0..8 {
            let ordered = order(&items, round);
            assert_eq!(ordered[0].carrier, items[round as usize].carrier);
            assert!(ordered[..8].iter().all(|i| i.size == 64));
            assert!(ordered[8..].iter().all(|i| i.size == 128));
        }
        assert_eq!(order(&items, 8), items);
        let memory = plan(&Choice {
            measures: &[Measure::Memory],
            ..ALL
        });
        assert_eq!(order(&memory, MEMORY_ROUNDS - 1).len(), memory.len());
        assert!(order(&memory, MEMORY_ROUNDS).is_empty());
    }
}
