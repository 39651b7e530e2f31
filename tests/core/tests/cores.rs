// SPDX-License-Identifier: GPL-2.0

//! Messages of 64 bytes from one host with many processors to another, in virtual time: locks and
//! shared cache lines, for how long a message holds them, and how often another one waits. The
//! module's code decides on credit and on the turns of senders; the times are those of
//! `Documentation/scaling.rst`, in nanoseconds. `cargo test --test cores -- --nocapture` prints the
//! waits.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use common::headers::id;
use zrs_core::link_flow::LinkFlow;
use zrs_core::scheduler::{Flow, Scheduler, TrafficClass};

/// A call, what it holds left out: send() and recv().
const CALL: u64 = 550;
/// The link's lock: to reserve, and to commit and post, the doorbell included.
const RESERVE: u64 = 45;
const POST: u64 = 365;
/// A copy of the bytes, and the way from device to device.
const COPY: u64 = 20;
const WIRE: u64 = 900;
/// Completions are taken one after the other.
const DRAIN: u64 = 310;
/// Two atomic instructions on a cache line that another processor has changed.
const LINE: u64 = 100;
/// A lock that goes from processor to processor.
const HANDED: u64 = 100;

/// Initial credit of a link, each way.
const CREDIT: u32 = 64;
const SIZE: u32 = 64;
const SMALL: TrafficClass = TrafficClass::Small;
/// Virtual time.
const END: u64 = 5_000_000;

/// A lock or cache line: processors hold it one after the other, in the order of their requests.
#[derive(Default)]
struct Held {
    free_at: u64,
    takes: u64,
    waits: u64,
}

impl Held {
    /// Takes it at `now` or later, for `time`; returns when it is given back.
    fn take(&mut self, now: u64, time: u64) -> u64 {
        self.takes += 1;
        self.waits += u64::from(self.free_at > now);
        self.free_at = self.free_at.max(now) + time;
        self.free_at
    }

    fn waits(&self) -> f64 {
        self.waits as f64 / self.takes.max(1) as f64
    }

    /// The part of the virtual time in which it was held, if each holder had it for `time`.
    fn busy(&self, time: u64) -> f64 {
        (self.takes * time) as f64 / END as f64
    }
}

/// One end of a link.
struct End {
    tx: Held,
    flow: LinkFlow,
}

impl End {
    fn new() -> Self {
        Self {
            tx: Held::default(),
            flow: LinkFlow::new(CREDIT, CREDIT).unwrap(),
        }
    }
}

struct Link {
    from: End,
    to: End,
    reserved: u32,
    senders: Scheduler<Vec<Flow<usize>>>,
    drain: Held,
    /// Messages that have arrived and were not taken: sender, and credit in the header.
    arrived: VecDeque<(usize, u32)>,
    draining: bool,
}

/// A processor of either host, with a thread and a socket; those with one number are connected.
#[derive(Default)]
struct Core {
    link: usize,
    flow: u32,
    /// It has found no room.
    blocked: bool,
    unread: u64,
    reading: bool,
    sent: u64,
    read: u64,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Send(usize),
    Post(usize),
    Arrives(usize, u32),
    Drain(usize),
    Read(usize),
    Credit(usize, u32),
}

struct Machine {
    links: Vec<Link>,
    cores: Vec<Core>,
    /// A cache line of the receiving device, and locks of the whole machine.
    line: Held,
    machine: Held,
    /// Locks of the whole machine that a message takes in each of its three parts: send(),
    /// delivery, recv().
    shared: u32,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    number: u64,
}

impl Machine {
    /// `pairs` of processors, whose sockets are on `links` links in turn.
    fn new(pairs: usize, links: usize, shared: u32) -> Self {
        let mut cores: Vec<Core> = (0..pairs).map(|_| Core::default()).collect();
        let mut all: Vec<Link> = (0..links)
            .map(|_| Link {
                from: End::new(),
                to: End::new(),
                reserved: 0,
                senders: Scheduler::new((0..pairs).map(|_| Flow::new()).collect()),
                drain: Held::default(),
                arrived: VecDeque::new(),
                draining: false,
            })
            .collect();
        for (n, core) in cores.iter_mut().enumerate() {
            core.link = n % links;
            core.flow = all[core.link].senders.add(id(n as u32 + 1, 1), n).unwrap();
        }
        let mut machine = Self {
            links: all,
            cores,
            line: Held::default(),
            machine: Held::default(),
            shared,
            events: BinaryHeap::new(),
            number: 0,
        };
        for n in 0..pairs {
            machine.at(n as u64, Event::Send(n));
        }
        machine
    }

    fn at(&mut self, time: u64, event: Event) {
        self.number += 1;
        self.events.push(Reverse((time, self.number, event)));
    }

    fn shared_locks(&mut self, now: u64) -> u64 {
        (0..self.shared).fold(now, |now, _| self.machine.take(now, HANDED))
    }

    fn run(mut self) -> Self {
        while let Some(Reverse((now, _, event))) = self.events.pop() {
            if now > END {
                break;
            }
            match event {
                Event::Send(n) => self.send(now, n),
                Event::Post(n) => self.post(now, n),
                Event::Arrives(n, credit) => {
                    let at = self.cores[n].link;
                    self.links[at].arrived.push_back((n, credit));
                    if !std::mem::replace(&mut self.links[at].draining, true) {
                        self.at(now, Event::Drain(at));
                    }
                }
                Event::Drain(at) => self.drain(now, at),
                Event::Read(n) => self.read(now, n),
                Event::Credit(at, credit) => self.credit(now, at, credit),
            }
        }
        self
    }

    fn send(&mut self, now: u64, n: usize) {
        let now = self.shared_locks(now);
        let core = &mut self.cores[n];
        let link = &mut self.links[core.link];
        let now = link.from.tx.take(now, RESERVE);
        let room = link.from.flow.available(false) > link.reserved;
        let id = id(n as u32 + 1, 1);
        let may = link.senders.try_dequeue(SMALL, id, core.flow, SIZE, room);
        core.blocked = may.is_none();
        if may.is_some() {
            link.reserved += 1;
            self.at(now + COPY, Event::Post(n));
        } else if room {
            // Others wait longer.
            let at = core.link;
            self.wake(now, at);
        }
    }

    fn post(&mut self, now: u64, n: usize) {
        let core = &mut self.cores[n];
        let link = &mut self.links[core.link];
        let now = link.from.tx.take(now, POST);
        link.reserved -= 1;
        let credit = link.from.flow.sending();
        link.senders
            .sent(SMALL, id(n as u32 + 1, 1), core.flow, SIZE);
        core.sent += 1;
        self.at(now + WIRE, Event::Arrives(n, credit));
        self.at(now + CALL, Event::Send(n));
    }

    fn drain(&mut self, now: u64, at: usize) {
        let link = &mut self.links[at];
        let Some((n, credit)) = link.arrived.pop_front() else {
            link.draining = false;
            return;
        };
        let now = link.drain.take(now, DRAIN);
        link.to.flow.arrived(credit).expect("honest peers");
        let now = self.shared_locks(now);
        let core = &mut self.cores[n];
        core.unread += 1;
        if !std::mem::replace(&mut core.reading, true) {
            self.at(now, Event::Read(n));
        }
        self.at(now, Event::Drain(at));
    }

    fn read(&mut self, now: u64, n: usize) {
        let now = self.shared_locks(now + CALL);
        let now = self.line.take(now, LINE);
        let core = &mut self.cores[n];
        core.unread -= 1;
        core.read += 1;
        core.reading = core.unread > 0;
        let (at, more) = (core.link, core.reading);
        let end = &mut self.links[at].to;
        end.flow.reposted();
        if end.flow.credit_due() {
            let sent = end.tx.take(now, POST);
            let credit = end.flow.sending_control();
            self.at(sent + WIRE, Event::Credit(at, credit));
        }
        if more {
            self.at(now, Event::Read(n));
        }
    }

    fn credit(&mut self, now: u64, at: usize, credit: u32) {
        let end = &mut self.links[at].from;
        let now = end.tx.take(now, RESERVE);
        end.flow.arrived(credit).expect("honest peers");
        // The block of a message without data is posted again at once.
        end.flow.reposted();
        self.wake(now, at);
    }

    /// Wakes senders, as far as there is room.
    fn wake(&mut self, now: u64, at: usize) {
        let link = &mut self.links[at];
        for _ in link.reserved..link.from.flow.available(false) {
            let Some(n) = link.senders.next_ready(SMALL).copied() else {
                break;
            };
            if std::mem::take(&mut self.cores[n].blocked) {
                self.number += 1;
                let event = Event::Send(n);
                self.events.push(Reverse((now, self.number, event)));
            }
        }
    }

    /// Millions of messages that were read in a second.
    fn rate(&self) -> f64 {
        let read: u64 = self.cores.iter().map(|core| core.read).sum();
        read as f64 / END as f64 * 1000.0
    }

    /// The least and the most that a sender has sent.
    fn shares(&self) -> f64 {
        let sent = || self.cores.iter().map(|core| core.sent);
        sent().min().unwrap() as f64 / sent().max().unwrap() as f64
    }
}

/// One figure of all links.
fn most(machine: &Machine, what: impl Fn(&Link) -> f64) -> f64 {
    machine.links.iter().map(what).fold(0.0, f64::max)
}

/// Runs it, checks that nothing was lost, and prints a line.
fn run(pairs: usize, links: usize, shared: u32) -> Machine {
    let machine = Machine::new(pairs, links, shared).run();
    for core in &machine.cores {
        assert!(core.read <= core.sent);
    }
    let sent: u64 = machine.cores.iter().map(|core| core.sent).sum();
    let read: u64 = machine.cores.iter().map(|core| core.read).sum();
    let in_flight = u64::from(CREDIT) * links as u64;
    assert!(sent - read <= in_flight, "{sent} sent, {read} read");
    println!(
        "{pairs:>3} processors, {links} links, {shared:>2} locks of the machine: \
         {:5.2} million a second; drain is busy {:.2}; waits: tx {:.2}, device {:.2}, machine {:.2}",
        machine.rate(),
        most(&machine, |link| link.drain.busy(DRAIN)),
        most(&machine, |link| link.from.tx.waits()),
        machine.line.waits(),
        machine.machine.waits(),
    );
    machine
}

// rows: B20 L4
#[test]
fn links_bound_many_processors_and_more_links_help() {
    let rates: BTreeMap<(usize, usize), f64> = [1, 2, 4, 8, 16, 32]
        .into_iter()
        .flat_map(|pairs| [1, 2, 8].map(|links| (pairs, links)))
        .filter(|(pairs, links)| pairs >= links)
        .map(|(pairs, links)| ((pairs, links), run(pairs, links, 0).rate()))
        .collect();
    let bound = 1000.0 / (RESERVE + POST) as f64;
    // A processor alone is its own bound.
    assert!(rates[&(1, 1)] < 1.1 && rates[&(1, 1)] > 0.9);
    // Many are bound by the link's lock.
    for links in [1, 2] {
        let rate = rates[&(32, links)];
        assert!(rate > 0.85 * bound * links as f64, "{rate}");
        assert!(rate <= bound * links as f64, "{rate}");
    }
    // Eight links are bound by the device's line.
    assert!(rates[&(32, 8)] > 0.8 * 1000.0 / LINE as f64);
}

// rows: B20 L4
#[test]
fn senders_on_a_link_have_fair_shares() {
    for links in [1, 2, 8] {
        let machine = run(32, links, 0);
        assert!(machine.shares() > 0.8, "{}", machine.shares());
        // Nothing of the whole machine was held.
        assert_eq!(machine.machine.takes, 0);
    }
}

// rows: B20
#[test]
fn a_lock_of_the_machine_would_bound_all_links() {
    let (none, one, six) = (run(32, 8, 0), run(32, 8, 1), run(32, 8, 6));
    assert!(one.rate() < 0.7 * none.rate());
    assert!(six.rate() < 0.2 * none.rate());
    assert!(one.machine.waits() > 0.9);
}
