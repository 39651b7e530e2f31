// SPDX-License-Identifier: GPL-2.0

//! A host's state of a link: the link table, with several parties that hold entries and owners that
//! keep grants, against a map, and the credit of both sides of a link against counters that do not wrap.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::atomic::Ordering;

use zrs_core::entry_word::{Ends, EntryWord, Word, WordCell, Work};
use zrs_core::link_flow::{LinkFlow, CONTROL_RESERVE, MIN_CREDIT};
use zrs_core::link_table::{
    Backing, Grant, GrantError, LinkTable, Recall, Registers, Slot, Storage, Way, CHUNK,
};
use zrs_core::ChanId;

use crate::Input;

/// Registers that say which entry's they are and how often it was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Regs {
    id: ChanId,
    writes: u32,
    work: Work,
}

impl Registers for Regs {
    type Parked = (u32, Work, ChanId);

    fn park(&self) -> Option<Self::Parked> {
        Some((self.writes, self.work, self.id))
    }

    fn unpark(parked: &Self::Parked, id: ChanId) -> Self {
        assert_eq!(parked.2, id, "somebody else's registers");
        let (writes, work, id) = *parked;
        Self { id, writes, work }
    }
}

impl Regs {
    fn word(&self) -> Word {
        Word::new(self.id, self.work, Ends::default(), self.writes)
    }
}

/// The memory of a word.
#[derive(Default)]
struct Bits(Cell<u64>);

impl WordCell for Bits {
    fn load(&self, _: Ordering) -> u64 {
        self.0.get()
    }

    fn store(&self, bits: u64, _: Ordering) {
        self.0.set(bits);
    }
}

/// What the table does while it asks owners.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Asks {
    /// It needs a slot.
    #[default]
    Room,
    /// It sweeps.
    Sweep,
    /// It counts.
    Count,
}

/// The owner of an entry, as a socket is one.
struct Owner {
    number: u16,
    id: Cell<Option<ChanId>>,
    /// The lock is taken: the table must not get the grant.
    locked: Cell<bool>,
    grant: RefCell<Option<Grant<Box<Regs>>>>,
    /// Used since the sweep came by, as the grant has it.
    used: Cell<bool>,
    /// Uses of the kept grant that the table has not counted.
    uncounted: Cell<u64>,
    asks: Rc<Cell<Asks>>,
}

impl Owner {
    fn keeps(&self) -> bool {
        self.grant.borrow().is_some()
    }
}

struct Mem;

impl Storage for Mem {
    type Regs = Regs;
    type Cell = Box<Regs>;
    type Owner = Rc<Owner>;
    type Hot = Vec<Slot<Box<Regs>>>;
    type L2 = Vec<Way<<Regs as Registers>::Parked>>;
    type Chunk = Vec<Backing<<Regs as Registers>::Parked, Rc<Owner>>>;
    type Bulk = Vec<Option<Self::Chunk>>;

    fn recall(owner: &Rc<Owner>, id: ChanId, recall: &mut Recall) -> Option<Grant<Box<Regs>>> {
        if owner.locked.get() {
            return None;
        }
        assert_eq!(owner.id.get(), Some(id), "somebody else's entry");
        let mut kept = owner.grant.borrow_mut();
        let wants = recall.wants(kept.as_mut()?);
        owner.uncounted.set(0);
        match owner.asks.get() {
            Asks::Room => {}
            Asks::Sweep => assert_eq!(wants, !owner.used.replace(false)),
            Asks::Count => assert!(!wants, "it only counts"),
        }
        wants.then(|| kept.take()).flatten()
    }
}

fn work_of(bits: u16) -> Work {
    let all = [Work::TX, Work::RX, Work::COMPLETE].into_iter().enumerate();
    all.filter(|(n, _)| (bits >> n) & 1 != 0)
        .fold(Work::NONE, |sum, (_, bit)| sum | bit)
}

struct Course {
    t: LinkTable<Mem>,
    /// The words of the entries, by number.
    words: BTreeMap<u32, EntryWord<Bits>>,
    /// Generation, owner and registers as they were written last, by number.
    live: BTreeMap<u32, (u32, Rc<Owner>, Regs)>,
    asks: Rc<Cell<Asks>>,
    gens: BTreeMap<u32, u32>,
    former: Vec<ChanId>,
    held: Vec<Grant<Box<Regs>>>,
    slots: usize,
    homes: usize,
    chunks: usize,
    granted: u64,
    contended: u64,
}

impl Course {
    fn new(input: &mut Input<'_>) -> Self {
        let (slots, ways) = (1 + input.below(4), 1 + input.below(4));
        let (sets, chunks) = (input.below(4), input.below(3));
        let seed = input.u64();
        let blank = || {
            let id = ChanId::default();
            let (writes, work) = (0, Work::NONE);
            Slot::new(Box::new(Regs { id, writes, work }))
        };
        let t = LinkTable::new(
            (0..slots).map(|_| blank()).collect(),
            (0..sets * ways).map(|_| Way::new()).collect(),
            ways as u32,
            (0..chunks).map(|_| None).collect(),
            seed,
        );
        Self {
            t: t.expect("whole sets"),
            words: BTreeMap::new(),
            live: BTreeMap::new(),
            asks: Rc::default(),
            gens: BTreeMap::new(),
            former: Vec::new(),
            held: Vec::new(),
            slots,
            homes: 0,
            chunks,
            granted: 0,
            contended: 0,
        }
    }

    /// A party has the entry, or its owner keeps the grant.
    fn locked(&self, id: ChanId) -> bool {
        let owner = self.live.get(&id.index).filter(|e| e.0 == id.gen);
        self.held.iter().any(|g| g.id() == id) || owner.is_some_and(|e| e.1.keeps())
    }

    /// Grants that are out, and that the table cannot get back.
    fn at_work(&self) -> usize {
        let owners = self.live.values().map(|e| &e.1);
        let locked = owners.filter(|o| o.keeps() && o.locked.get()).count();
        self.held.len() + locked
    }

    fn submit(&mut self, number: u16) {
        let full = self.live.len() == self.homes;
        assert_eq!(
            self.t.wants_chunk(),
            full && self.homes < CHUNK * self.chunks
        );
        if self.t.wants_chunk() {
            let chunk = (0..CHUNK).map(|_| Backing::new()).collect();
            assert!(self.t.add_chunk(chunk).is_none());
            self.homes += CHUNK;
        }
        let mut made = None;
        let owner = Rc::new(Owner {
            number,
            id: Cell::new(None),
            locked: Cell::new(false),
            grant: RefCell::new(None),
            used: Cell::new(false),
            uncounted: Cell::new(0),
            asks: self.asks.clone(),
        });
        let got = self.t.submit(owner.clone(), |id| {
            let (writes, work) = (0, work_of(number));
            *made.insert(Regs { id, writes, work })
        });
        assert_eq!(got.is_ok(), self.live.len() < self.homes);
        let (Ok(id), Some(regs)) = (got.clone(), made) else {
            assert!(got.is_err_and(|back| Rc::ptr_eq(&back, &owner)));
            return;
        };
        owner.id.set(Some(id));
        assert_eq!(regs.id, id);
        assert!((1..=self.homes as u32).contains(&id.index));
        let gen = self.gens.entry(id.index).or_default();
        *gen += 1;
        assert_eq!(id.gen, *gen, "each life has the next generation");
        self.publish(id, regs.word());
        assert!(self.live.insert(id.index, (id.gen, owner, regs)).is_none());
        self.former.push(id);
    }

    fn ask(&mut self, id: ChanId, work: Option<Work>) {
        let known = self
            .live
            .get(&id.index)
            .filter(|e| e.0 == id.gen)
            .map(|e| e.2);
        // A party that looks for work reads the word first.
        let word = self.words.get(&id.index).filter(|word| word.may_be(id));
        assert_eq!(word.map(EntryWord::load), known.map(|regs| regs.word()));
        let idle = known
            .zip(work)
            .is_some_and(|(r, w)| !(r.work | Work::SUBMITTED).has(w));
        let has = |word: Word| work.is_none_or(|work| word.work().has(work));
        assert_eq!(word.is_some_and(|word| !has(word.load())), idle);
        if idle {
            return;
        }
        match self.t.grant(id) {
            Ok(grant) => {
                assert!(!self.locked(id), "granted to two");
                assert_eq!((grant.id(), Some(**grant.regs())), (id, known));
                self.granted += 1;
                self.live[&id.index].1.used.set(true);
                self.held.push(grant);
            }
            Err(why) => {
                let crowded = self.at_work() == self.slots;
                match why {
                    GrantError::Unknown => assert_eq!(known, None),
                    GrantError::Locked => assert!(self.locked(id)),
                    GrantError::Crowded => assert!(crowded && !self.locked(id)),
                }
                self.contended +=
                    u64::from(matches!(why, GrantError::Locked | GrantError::Crowded));
            }
        }
    }

    fn write_back(&mut self, which: usize, value: u16) {
        if self.held.is_empty() {
            return;
        }
        let grant = self.worked_on(which, value);
        let owner = &self.live[&grant.id().index].1;
        owner.uncounted.set(0);
        owner.locked.set(false);
        self.t.write_back(grant);
    }

    /// A party's work on an entry is done.
    fn worked_on(&mut self, which: usize, value: u16) -> Grant<Box<Regs>> {
        let mut grant = self.held.swap_remove(which % self.held.len());
        let regs = grant.regs_mut();
        regs.writes += 1;
        regs.work = work_of(value);
        let regs = **regs;
        if let Some(entry) = self.live.get_mut(&regs.id.index) {
            entry.2 = regs;
        }
        self.publish(regs.id, regs.word());
        grant
    }

    /// The owner keeps the grant that a party is done with.
    fn keep(&mut self, which: usize, value: u16) {
        if self.held.is_empty() {
            return;
        }
        let grant = self.worked_on(which, value);
        let owner = &self.live[&grant.id().index].1;
        owner.locked.set(false);
        assert!(owner.grant.replace(Some(grant)).is_none());
    }

    /// A party works on an entry whose owner keeps the grant, under the lock of the owner.
    fn use_again(&mut self, id: ChanId) {
        let known = self.live.get(&id.index).filter(|e| e.0 == id.gen);
        let Some((_, owner, regs)) = known.filter(|e| !e.1.locked.get()) else {
            return;
        };
        let Some(mut grant) = owner.grant.take() else {
            return;
        };
        assert_eq!((grant.id(), **grant.regs_again()), (id, *regs));
        owner.locked.set(true);
        owner.used.set(true);
        owner.uncounted.set(owner.uncounted.get() + 1);
        self.granted += 1;
        self.held.push(grant);
    }

    /// A thread takes, or releases, the lock of an owner that keeps its grant, and does not use it.
    fn lock(&mut self, id: ChanId) {
        let known = self.live.get(&id.index).filter(|e| e.0 == id.gen);
        if let Some((_, owner, _)) = known.filter(|e| e.1.keeps()) {
            owner.locked.set(!owner.locked.get());
        }
    }

    fn count(&mut self, first: u32, slots: u32) {
        self.asks.set(Asks::Count);
        let before = self.t.stats();
        let more = self.t.count_hits(first, slots);
        assert_eq!(more, first + slots < self.t.reached());
        let after = self.t.stats();
        assert_eq!((after.hot, after.parked), (before.hot, before.parked));
        self.asks.set(Asks::Room);
    }

    fn publish(&mut self, id: ChanId, word: Word) {
        let new = || EntryWord::new(Bits::default());
        self.words.entry(id.index).or_insert_with(new).publish(word);
    }

    fn remove(&mut self, id: ChanId) {
        let known = self.live.get(&id.index).filter(|e| e.0 == id.gen);
        let expected = match known {
            None => Err(GrantError::Unknown),
            Some(_) if self.locked(id) => Err(GrantError::Locked),
            Some(entry) => Ok(entry.1.number),
        };
        let got = self.t.remove(id);
        assert_eq!(got.map(|owner| owner.number), expected);
        self.contended += u64::from(expected == Err(GrantError::Locked));
        if expected.is_ok() {
            self.publish(id, Word::FREE);
            self.live.remove(&id.index);
        }
    }

    fn check(&self) {
        let stats = self.t.stats();
        assert_eq!(stats.entries as usize, self.live.len());
        assert_eq!(self.t.len() as usize, self.live.len());
        assert_eq!(self.t.is_empty(), self.live.is_empty());
        assert!(stats.hot as usize <= self.slots);
        let kept = self.live.values().filter(|e| e.1.keeps()).count();
        assert!(stats.hot as usize >= self.held.len() + kept);
        assert!(stats.hot + stats.l2 <= stats.entries);
        let came = stats.hits + stats.l2_hits + stats.faults;
        let uncounted: u64 = self.live.values().map(|e| e.1.uncounted.get()).sum();
        assert_eq!(came + uncounted, self.granted);
        assert_eq!(stats.contended, self.contended);
    }
}

/// From here on the first byte of a step is for kept grants, except for two kinds.
const KEPT: u8 = 0xc0;

fn table(input: &mut Input<'_>) {
    let mut c = Course::new(input);
    while !input.is_empty() {
        let what = input.u8();
        let value = input.u16();
        let which = usize::from(value);
        // A number that is there, that was there, or any.
        let id = match (value % 3, c.live.iter().nth(which / 3 % 70)) {
            (0, Some((&q, &(gen, ..)))) => ChanId { index: q, gen },
            (1, _) if !c.former.is_empty() => c.former[which % c.former.len()],
            _ => ChanId {
                index: u32::from(value % 12).wrapping_sub(1),
                gen: u32::from(value >> 8) % 4,
            },
        };
        match what % 8 {
            0 | 1 if what >= KEPT => c.keep(which, value),
            2 | 3 if what >= KEPT => c.use_again(id),
            4 if what >= KEPT => c.lock(id),
            5 if what >= KEPT => c.count(u32::from(value) % 4, u32::from(value >> 8) % 4),
            0 | 1 => c.submit(value),
            2 => c.ask(id, None),
            3 => c.ask(id, Some(work_of(value >> 4))),
            4 | 5 => c.write_back(which, value),
            6 => c.remove(id),
            _ if value & 1 == 0 => {
                let mut held: Vec<ChanId> = c.held.iter().map(Grant::id).collect();
                let locked = c.live.values().filter(|e| e.1.locked.get());
                held.extend(locked.filter_map(|e| e.1.id.get()));
                c.asks.set(Asks::Sweep);
                let before = c.t.stats();
                let mut parked = 0;
                c.t.sweep(u32::from(value >> 1) % 6, |id, owner| {
                    assert!(!held.contains(&id), "parked while it was locked");
                    assert_eq!(c.live[&id.index].0, id.gen);
                    assert!(Rc::ptr_eq(&c.live[&id.index].1, owner) && !owner.keeps());
                    parked += 1;
                });
                c.asks.set(Asks::Room);
                let after = c.t.stats();
                assert_eq!(after.parked - before.parked, parked);
                assert_eq!(u64::from(before.hot - after.hot), parked);
            }
            _ => {
                let from = u32::from(value % 12);
                let next = c.live.range(from..).next().map(|(q, e)| (*q, e.1.number));
                assert_eq!(c.t.next_from(from).map(|(q, o)| (q, o.number)), next);
                let known = c.live.get(&id.index).filter(|e| e.0 == id.gen);
                let owner = c.t.owner(id).map(Rc::as_ptr);
                assert_eq!(owner, known.map(|e| Rc::as_ptr(&e.1)));
            }
        }
        c.check();
    }
    while !c.held.is_empty() {
        c.write_back(0, 0);
    }
    c.live.values().for_each(|e| e.1.locked.set(false));
    // Nothing is lost, wherever it is.
    for (q, (gen, owner, _)) in c.live.clone() {
        let id = ChanId { index: q, gen };
        if owner.keeps() {
            c.use_again(id);
        } else {
            c.ask(id, None);
        }
        assert_eq!(c.held.len(), 1);
        c.write_back(0, 0);
    }
}

/// One side of a link, and its counters in numbers that do not wrap.
struct Side {
    flow: LinkFlow,
    /// Link credit in flight to this side, and whether with data.
    pipe: VecDeque<(u64, bool)>,
    sent: u64,
    /// Messages that the peer has allowed.
    allowed: u64,
    arrived: u64,
    room: u64,
    told: u64,
    /// Blocks that hold something: data, or a message that is dealt with at once.
    held_data: u64,
    held: u64,
    blocks: u64,
}

struct Pair {
    at: u32,
    side: [Side; 2],
}

impl Pair {
    fn new(at: u32, blocks: [u32; 2]) -> Option<Self> {
        let side = |me: usize| -> Option<Side> {
            let (ours, theirs) = (blocks[me], blocks[1 - me]);
            Some(Side {
                flow: LinkFlow::starting_at(ours, theirs, at)?,
                pipe: VecDeque::new(),
                sent: 0,
                allowed: u64::from(theirs),
                arrived: 0,
                room: u64::from(ours),
                told: u64::from(ours),
                held_data: 0,
                held: 0,
                blocks: u64::from(ours),
            })
        };
        Some(Self {
            at,
            side: [side(0)?, side(1)?],
        })
    }

    fn post(&mut self, me: usize, data: bool) {
        let s = &mut self.side[me];
        s.sent += 1;
        s.told = s.room;
        assert!(s.sent <= s.allowed, "more than the peer allows");
        let credit = match data {
            true => s.flow.sending(),
            false => s.flow.sending_control(),
        };
        assert_eq!(credit, self.at.wrapping_add(s.told as u32));
        let told = s.told;
        self.side[1 - me].pipe.push_back((told, data));
    }

    fn send(&mut self, me: usize, control: bool) -> bool {
        let can = self.side[me].flow.available(control) > 0;
        if can {
            self.post(me, !control);
        }
        can
    }

    fn lone(&mut self, me: usize) -> bool {
        let can = self.side[me].flow.credit_due();
        if can {
            self.post(me, false);
        }
        can
    }

    fn deliver(&mut self, me: usize) -> bool {
        let at = self.at;
        let s = &mut self.side[me];
        let Some((credit, data)) = s.pipe.pop_front() else {
            return false;
        };
        s.arrived += 1;
        *(if data { &mut s.held_data } else { &mut s.held }) += 1;
        assert!(
            s.held + s.held_data <= s.blocks,
            "the receive queue is overrun"
        );
        s.allowed = credit;
        let arrived = s.flow.arrived(at.wrapping_add(credit as u32));
        assert_eq!(arrived, Ok(()), "an honest peer");
        true
    }

    fn repost(&mut self, me: usize, data: bool) -> bool {
        let s = &mut self.side[me];
        let held = if data { &mut s.held_data } else { &mut s.held };
        if *held == 0 {
            return false;
        }
        *held -= 1;
        s.room += 1;
        s.flow.reposted();
        true
    }

    fn check(&self) {
        for (s, peer) in [0, 1].map(|me| (&self.side[me], &self.side[1 - me])) {
            let in_flight = peer.pipe.iter().filter(|(_, data)| *data).count() as u64;
            let most = peer.blocks - u64::from(CONTROL_RESERVE);
            assert!(
                in_flight + peer.held_data <= most,
                "data has used the reserve"
            );
            let left = s.allowed - s.sent;
            assert_eq!(u64::from(s.flow.left_to_us()), left);
            assert_eq!(u64::from(s.flow.available(true)), left.saturating_sub(1));
            // Control messages use their own credit first, and never all of it.
            let data = u64::from(s.flow.available(false));
            let least = left.saturating_sub(u64::from(CONTROL_RESERVE));
            assert!((least..=left.saturating_sub(1)).contains(&data));
            if s.flow.credit_due() {
                assert!(s.room > s.told && left > 0);
            }
        }
    }

    /// Everything arrives, and is read if `read`: then both may send again, if only control.
    fn settle(&mut self, read: bool) {
        for _ in 0..10_000 {
            let mut moved = false;
            for me in 0..2 {
                while self.deliver(me) {
                    moved = true;
                }
                while self.repost(me, false) || (read && self.repost(me, true)) {
                    moved = true;
                }
                moved |= self.lone(me);
            }
            self.check();
            if !moved {
                let may = |s: &Side| s.flow.available(!read) > 0;
                assert!(self.side.iter().all(may), "nobody can go on");
                return;
            }
        }
        panic!("credit goes to and fro for ever");
    }

    /// Messages with any link credit, all that are accepted: only within bounds. Ends the course.
    fn lie(&mut self, me: usize, credit: u32) {
        let at = self.at;
        let s = &mut self.side[me];
        loop {
            s.arrived += 1;
            let gain = credit.wrapping_sub(at.wrapping_add(s.allowed as u32));
            let room = credit.wrapping_sub(at.wrapping_add(s.sent as u32));
            let good = s.arrived <= s.told && gain < 1 << 31 && room <= 1 << 20;
            assert_eq!(s.flow.arrived(credit).is_ok(), good);
            if !good {
                return;
            }
            s.allowed = s.sent + u64::from(room);
            assert_eq!(s.flow.left_to_us(), room);
        }
    }
}

fn flow(input: &mut Input<'_>) {
    // Often near where the counts wrap.
    let at = match input.u8() % 3 {
        0 => input.u32(),
        1 => 0_u32.wrapping_sub(input.u8().into()),
        _ => (1_u32 << 31).wrapping_sub(input.u8().into()),
    };
    let blocks = [0, 1].map(|_| MIN_CREDIT - 2 + u32::from(input.u8()));
    let sane = blocks.iter().all(|b| *b >= MIN_CREDIT);
    let pair = Pair::new(at, blocks);
    assert_eq!(pair.is_some(), sane);
    let Some(mut p) = pair else {
        return;
    };
    while !input.is_empty() {
        let op = input.u8();
        let me = usize::from(op & 1);
        let times = 1 + (op >> 4);
        for _ in 0..times {
            match (op >> 1) & 7 {
                0 | 1 => p.send(me, false),
                2 => p.send(me, true),
                3 => p.lone(me),
                4 => p.deliver(me),
                5 => p.repost(me, true),
                6 => p.repost(me, false),
                _ if op == 0xff => {
                    let near = p.side[me].allowed as u32;
                    let how = input.u8();
                    let some = input.u32();
                    let credit = match how % 2 {
                        0 => some,
                        _ => at
                            .wrapping_add(near)
                            .wrapping_add(some % 64)
                            .wrapping_sub(32),
                    };
                    return p.lie(me, credit);
                }
                _ => {
                    p.settle(op & 0x10 != 0);
                    true
                }
            };
            p.check();
        }
    }
    p.settle(false);
    p.settle(true);
}

/// The link table, or both sides of a link.
pub fn link_table(data: &[u8]) {
    let mut input = Input(data);
    match input.u8() % 2 {
        0 => table(&mut input),
        _ => flow(&mut input),
    }
}
