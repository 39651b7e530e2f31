// SPDX-License-Identifier: GPL-2.0

//! Owners that keep their grants, as the module's sockets do: the lock of an owner is the lock bit
//! of its entry, and the table asks for the registers that it needs.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use zrs_core::link_table::{
    Backing, Grant, GrantError, LinkTable, Recall, Registers, Slot, Storage, Way, CHUNK,
};
use zrs_core::ChanId;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Regs {
    id: ChanId,
    uses: u64,
}

impl Registers for Regs {
    type Parked = Regs;

    fn park(&self) -> Option<Regs> {
        Some(*self)
    }

    fn unpark(parked: &Regs, id: ChanId) -> Self {
        assert_eq!(parked.id, id, "somebody else's registers");
        *parked
    }
}

/// What the lock of a socket guards.
#[derive(Default)]
struct Inner {
    id: Option<ChanId>,
    grant: Option<Grant<Box<Regs>>>,
}

#[derive(Default)]
struct Sock {
    inner: Mutex<Inner>,
}

struct Kept;

impl Storage for Kept {
    type Regs = Regs;
    type Cell = Box<Regs>;
    type Owner = Arc<Sock>;
    type Hot = Vec<Slot<Box<Regs>>>;
    type L2 = Vec<Way<Regs>>;
    type Chunk = Vec<Backing<Regs, Arc<Sock>>>;
    type Bulk = Vec<Option<Self::Chunk>>;

    fn recall(sock: &Arc<Sock>, id: ChanId, recall: &mut Recall) -> Option<Grant<Box<Regs>>> {
        let mut inner = sock.inner.try_lock().ok()?;
        if inner.id != Some(id) || !recall.wants(inner.grant.as_mut()?) {
            return None;
        }
        inner.grant.take()
    }
}

type Table = Mutex<LinkTable<Kept>>;

fn table(hot: usize, l2: usize) -> Table {
    let blank = || {
        let id = ChanId::default();
        Slot::new(Box::new(Regs { id, uses: 0 }))
    };
    let table = LinkTable::new(
        (0..hot).map(|_| blank()).collect(),
        (0..l2).map(|_| Way::new()).collect(),
        1,
        vec![None],
        7,
    );
    Mutex::new(table.expect("whole sets"))
}

impl Sock {
    fn submit(table: &Table) -> Arc<Self> {
        let sock = Arc::new(Self::default());
        let id = {
            let mut t = table.lock().unwrap();
            if t.wants_chunk() {
                assert!(t
                    .add_chunk((0..CHUNK).map(|_| Backing::new()).collect())
                    .is_none());
            }
            let id = t.submit(sock.clone(), |id| Regs { id, uses: 0 });
            id.ok().expect("a home")
        };
        sock.inner.lock().unwrap().id = Some(id);
        sock
    }

    /// Uses the registers once; `None` if the entry is gone.
    fn with<R>(&self, table: &Table, work: impl FnOnce(&mut Regs) -> R) -> Option<R> {
        let mut inner = self.inner.lock().unwrap();
        let id = inner.id?;
        let (result, grant) = match inner.grant.take() {
            Some(mut grant) => (work(grant.regs_again()), grant),
            None => {
                let mut grant = loop {
                    match table.lock().unwrap().grant(id) {
                        Ok(grant) => break grant,
                        Err(GrantError::Unknown) => panic!("the entry of a socket is gone"),
                        Err(_) => {}
                    }
                    thread::yield_now();
                };
                (work(grant.regs_mut()), grant)
            }
        };
        inner.grant = Some(grant);
        Some(result)
    }

    fn free(&self, table: &Table) {
        let mut inner = self.inner.lock().unwrap();
        let id = inner.id.take().expect("freed once");
        let owner = {
            let mut t = table.lock().unwrap();
            if let Some(grant) = inner.grant.take() {
                t.write_back(grant);
            }
            t.remove(id)
        };
        assert!(std::ptr::eq(Arc::as_ptr(&owner.unwrap()), self));
    }

    fn is_hot(&self) -> bool {
        self.inner.lock().unwrap().grant.is_some()
    }
}

// rows: L1 L2 L3
#[test]
fn the_table_asks_for_what_it_needs() {
    let t = table(2, 1);
    let socks: Vec<_> = (0..3).map(|_| Sock::submit(&t)).collect();
    let count = |sock: &Arc<Sock>| {
        sock.with(&t, |r| {
            r.uses += 1;
            r.uses - 1
        })
    };
    assert_eq!(count(&socks[0]), Some(0));
    assert_eq!(count(&socks[1]), Some(0));
    assert!(socks[0].is_hot() && socks[1].is_hot());
    // Both have been used: one of them makes room all the same.
    assert_eq!(count(&socks[2]), Some(0));
    assert_eq!(socks.iter().filter(|sock| sock.is_hot()).count(), 2);
    assert_eq!(t.lock().unwrap().stats().hot, 2);
    // A socket that is at work is passed over.
    let held = socks[2].inner.lock().unwrap();
    assert_eq!(count(&socks[0]).max(count(&socks[1])), Some(1));
    assert!(held.grant.is_some());
    drop(held);
    // The sweep parks what was not used since it came by.
    let parked = || {
        let mut parked = Vec::new();
        t.lock().unwrap().sweep(2, |id, _| parked.push(id));
        parked
    };
    assert!(parked().is_empty(), "just used");
    assert_eq!(count(&socks[2]), Some(1));
    assert_eq!(parked().len(), 1);
    assert!(socks[2].is_hot());
    assert_eq!(parked(), [socks[2].inner.lock().unwrap().id.unwrap()]);
    assert_eq!(t.lock().unwrap().stats().hot, 0);
    socks.iter().for_each(|sock| sock.free(&t));
    assert!(t.lock().unwrap().is_empty());
}

// rows: L1 L3
#[test]
fn hits_are_counted_where_they_are() {
    let t = table(9, 0);
    let sock = Sock::submit(&t);
    for _ in 0..5 {
        sock.with(&t, |_| ());
    }
    assert_eq!(t.lock().unwrap().reached(), 1, "the first slot is first");
    let other = Sock::submit(&t);
    assert_eq!(t.lock().unwrap().reached(), 2);
    let hits = || t.lock().unwrap().stats().hits;
    assert_eq!(hits(), 1, "the table has not asked yet");
    assert!(t.lock().unwrap().count_hits(0, 1), "there is another slot");
    assert!(!t.lock().unwrap().count_hits(1, 1));
    assert_eq!(hits(), 5);
    assert!(sock.is_hot(), "it was only asked");
    sock.with(&t, |_| ());
    sock.free(&t);
    other.free(&t);
    assert_eq!(hits(), 6);
    assert_eq!(t.lock().unwrap().reached(), 2, "they may be used again");
}

/// Threads work on a few sockets with fewer slots, while others sweep and count: no use is lost,
/// and no thread waits for ever.
// rows: L1 L2 L3 L5
#[test]
#[cfg_attr(miri, ignore = "long")]
fn threads_share_a_table() {
    for hot in [1, 2, 3] {
        let t = table(hot, 2);
        let socks: Vec<_> = (0..5).map(|_| Sock::submit(&t)).collect();
        let over = AtomicBool::new(false);
        let done: Vec<BTreeMap<usize, u64>> = thread::scope(|s| {
            s.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    t.lock().unwrap().sweep(2, |_, _| {});
                    t.lock().unwrap().count_hits(0, 3);
                    thread::yield_now();
                }
            });
            let workers: Vec<_> = (0..4_u64)
                .map(|seed| {
                    let (socks, t) = (&socks, &t);
                    s.spawn(move || {
                        let mut done = BTreeMap::new();
                        let mut x = seed + 1;
                        for _ in 0..20_000 {
                            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                            let at = (x >> 33) as usize % socks.len();
                            socks[at].with(t, |r| r.uses += 1);
                            *done.entry(at).or_default() += 1;
                        }
                        done
                    })
                })
                .collect();
            let done = workers.into_iter().map(|w| w.join().unwrap()).collect();
            over.store(true, Ordering::Relaxed);
            done
        });
        let mut all = 0;
        for (at, sock) in socks.iter().enumerate() {
            let uses: u64 = done.iter().filter_map(|d| d.get(&at)).sum();
            assert_eq!(sock.with(&t, |r| r.uses), Some(uses), "a use was lost");
            all += uses + 1;
            sock.free(&t);
        }
        let stats = t.lock().unwrap().stats();
        assert_eq!(stats.hits + stats.l2_hits + stats.faults, all);
        assert_eq!((stats.entries, stats.hot, stats.l2), (0, 0, 0));
    }
}
