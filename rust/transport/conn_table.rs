// SPDX-License-Identifier: GPL-2.0

//! The host's link table: the memory of [`LinkTable`], its lock, and a connection's access to its
//! entry.
//!
//! The lock bit L of an entry is the lock of its connection, which contains the [`Chan`]. The
//! `Chan` keeps the grant of its entry while the registers are hot, so work on a hot entry takes no
//! other lock. The table's lock protects allocation, and moves between the tiers: an entry is
//! faulted in with its connection's lock held and the table's lock inside. To free a slot, and for
//! the sweep, the table, under its lock, asks other connections for their grants. It only tries
//! their locks, and skips a connection that is at work. A thread that holds the lock of a
//! connection with a hot entry waits for no other entry, so a wait for a slot is short.
//!
//! The receive path finds a channel's connection by the channel's number, without the table: each
//! number has a place, which tells the flow of the channel on its link, and the link has the
//! connections of its flows. Other parties find the connection in the place, which has a lock of
//! its own.
//!
//! Each connection has the word of its entry (`proto/entry_word.rs`) next to the lock: the state of
//! the channel while the registers are parked, also for readers that do not take the lock.
//!
//! Locks: that of a connection, then `table`; under `table`, the locks of other connections are
//! only tried. `place` and `quota` are leaves.

#![deny(unsafe_code)]

use core::cell::Cell;
use core::mem;
use core::sync::atomic::Ordering;

use kernel::alloc::kvec::KVVec;
use kernel::prelude::*;
use kernel::sync::atomic::{Acquire, Atomic, Relaxed, Release};
use kernel::sync::{new_spinlock, Arc, SetOnce, SpinLock};
use kernel::time::msecs_to_jiffies;
use kernel::workqueue::WorkItem;
use pin_init::pin_init_array_from_fn;

use super::conn::ConnOps;
use super::context::{Transport, SWEEP};
use super::sched::{Channels, FlowId};
use crate::kern::errno::ENOBUFS;
use crate::kern::task::{cond_resched, cpu_relax, random_u64};
use crate::kern::{cpu, fault};
use crate::params;
use crate::pool::lessee::{Directory, Lessee};
use crate::pool::quota::{percent_of, Quotas, Room};
use crate::proto::channel::{self, Channel};
use crate::proto::entry_word::{EntryWord, Word, WordCell, Work};
use crate::proto::link_table::{
    Backing, Grant, GrantError, LinkTable, Recall, Slot, Storage, TableStats, Way, CHUNK,
};
use crate::proto::quota::Holder;
use crate::proto::sizing;
use crate::proto::ChanId;

/// The memory that the link table uses.
struct Memory;

impl Storage for Memory {
    type Regs = Channel;
    type Cell = KBox<Channel>;
    type Owner = Arc<dyn ConnOps>;
    type Hot = KVVec<Slot<KBox<Channel>>>;
    type L2 = KVVec<Way<channel::PackedChannel>>;
    type Chunk = KVVec<Backing<channel::PackedChannel, Arc<dyn ConnOps>>>;
    type Bulk = KVVec<Option<Self::Chunk>>;

    fn recall(
        conn: &Arc<dyn ConnOps>,
        id: ChanId,
        recall: &mut Recall,
    ) -> Option<Grant<KBox<Channel>>> {
        conn.recall(id, recall)
    }
}

/// The place of a channel number in the directory: 32 bytes, so that a chunk of them fills its
/// memory.
#[pin_data]
struct Place {
    /// The connection.
    #[pin]
    owner: SpinLock<Option<Arc<dyn ConnOps>>>,
    /// The generation of the connection's channel. It is stored and read with `owner` locked.
    gen: Atomic<u32>,
    /// The flow of the channel that was last attached to a link. It is stored, and read for a
    /// message that arrives on that link, under the link's lock.
    flow: Atomic<u32>,
}

impl Place {
    fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            owner <- new_spinlock!(None, "zrs_chan::place"),
            gen: Atomic::new(0),
            flow: Atomic::new(0),
        })
    }
}

/// The places of a chunk of numbers. Never freed before the table.
type Places = SetOnce<Pin<KBox<[Place; CHUNK]>>>;

/// A vector of `n` values made by `make`. Sleeps. ENOMEM.
fn filled<T>(n: usize, mut make: impl FnMut() -> Result<T>) -> Result<KVVec<T>> {
    let mut all = KVVec::with_capacity(n, GFP_KERNEL)?;
    for _ in 0..n {
        all.push(make()?, GFP_KERNEL)?;
    }
    Ok(all)
}

/// Memory of a hot slot: its registers, in a block of the allocator, and the slot.
const HOT_BYTES: usize =
    mem::size_of::<Channel>().next_power_of_two() + mem::size_of::<Slot<KBox<Channel>>>();

/// Share of the table that is reserved for the administrator, in percent.
const RESERVE_PERCENT: u32 = 5;

/// Sizes of the tiers, in entries.
#[derive(Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) hot: u32,
    /// Entries of the second tier, a whole number of sets.
    pub(crate) near: u32,
    /// Entries of each set of the second tier.
    pub(crate) ways: u32,
    /// Most entries in all.
    pub(crate) most: u32,
    /// Entries that are reserved for the administrator, of all.
    reserve: u32,
}

/// The table of all channels.
#[pin_data]
pub(crate) struct Table {
    #[pin]
    table: SpinLock<LinkTable<Memory>>,
    /// For each channel number: its connection and its flow.
    places: KVVec<Places>,
    /// Entries in use, by user and network namespace.
    #[pin]
    quota: Quotas,
    sizes: Sizes,
}

impl Table {
    /// Makes a table with the sizes that the module's parameters give. Sleeps. ENOMEM.
    pub(crate) fn new() -> Result<Arc<Self>> {
        let ways = params::TABLE_WAYS.get();
        let most = params::MAX_CHANNELS.get();
        let sizes = Sizes {
            hot: match params::TABLE_HOT.get() {
                0 => sizing::hot_slots(most, HOT_BYTES, cpu::total_ram_bytes()),
                slots => slots,
            },
            near: params::TABLE_NEAR.get().next_multiple_of(ways),
            ways,
            most,
            reserve: percent_of(most, RESERVE_PERCENT),
        };
        let vacant = || Channel::connect(ChanId::default(), 0, 0, params::LIMITS);
        let hot = filled(sizes.hot as usize, || {
            Ok(Slot::new(KBox::new(vacant(), GFP_KERNEL)?))
        })?;
        let near = filled(sizes.near as usize, || Ok(Way::new()))?;
        let bulk = filled((sizes.most as usize).div_ceil(CHUNK), || Ok(None))?;
        let places = filled((sizes.most as usize).div_ceil(CHUNK), || Ok(SetOnce::new()))?;
        let table = LinkTable::new(hot, near, ways, bulk, random_u64()).ok_or(EINVAL)?;
        Arc::pin_init(
            pin_init!(Self {
                table <- new_spinlock!(table, "zrs_transport::table"),
                places,
                quota <- Quotas::new(Room {
                    all: sizes.most,
                    users: sizes.most - sizes.reserve,
                }),
                sizes,
            }),
            GFP_KERNEL,
        )
    }

    /// The parameters of the shares have changed. Holders of more than they have now keep it.
    pub(super) fn set_shares(&self) {
        self.quota.set_shares();
    }

    /// Takes an entry for `conn`, counted for `holder`, and puts the channel that `make` makes into
    /// it.
    fn submit(
        &self,
        conn: &Arc<dyn ConnOps>,
        holder: Holder,
        make: impl FnOnce(ChanId) -> Channel,
    ) -> Result<ChanId> {
        let most = match holder.is_admin() {
            true => self.sizes.most,
            false => self.sizes.most - self.sizes.reserve,
        };
        let id = loop {
            let (chunk, places) = {
                let mut table = self.table.lock();
                if table.len() >= most {
                    return Err(ENOBUFS);
                }
                if !table.wants_chunk() {
                    break table.submit(conn.clone(), make).map_err(|_| ENOBUFS)?;
                }
                drop(table);
                let places = pin_init_array_from_fn(|_| Place::new());
                let places = KBox::pin_init(places, GFP_KERNEL)?;
                (filled(CHUNK, || Ok(Backing::new()))?, places)
            };
            // Another thread may have added a chunk as well; then this chunk is dropped.
            let mut places = Some(places);
            let spare = {
                let mut table = self.table.lock();
                let spare = table.add_chunk(chunk);
                let of_it = (table.backings() as usize / CHUNK).checked_sub(1);
                let to = of_it.and_then(|at| self.places.get(at));
                if let (None, Some(to)) = (&spare, to) {
                    places.take().map(|places| to.populate(places));
                }
                spare
            };
            drop(spare);
        };
        if let Some(place) = self.place(id.index) {
            let mut owner = place.owner.lock();
            place.gen.store(id.gen, Relaxed);
            *owner = Some(conn.clone());
        }
        Ok(id)
    }

    fn place(&self, q: u32) -> Option<&Place> {
        let index = q.checked_sub(1)? as usize;
        self.places.get(index / CHUNK)?.as_ref()?.get(index % CHUNK)
    }

    /// Takes the grant of the registers of channel `id`. The connection keeps it until the table
    /// recalls it. `None` if there is no such channel. The caller holds the connection's lock.
    fn grant(&self, id: ChanId) -> Option<Grant<KBox<Channel>>> {
        loop {
            match self.table.lock().grant(id) {
                Ok(grant) => return Some(grant),
                Err(GrantError::Unknown) => return None,
                Err(GrantError::Locked | GrantError::Crowded) => {}
            }
            cpu_relax();
        }
    }

    /// Frees entry `id`; `grant`: its kept grant, if any. The caller drops the result without
    /// locks.
    fn remove(&self, id: ChanId, grant: Option<Grant<KBox<Channel>>>) -> Option<Arc<dyn ConnOps>> {
        let found = self
            .place(id.index)
            .and_then(|place| place.owner.lock().take());
        let owner = {
            let mut table = self.table.lock();
            if let Some(grant) = grant {
                table.write_back(grant);
            }
            table.remove(id)
        };
        // Not the last reference: `owner` is one.
        drop(found);
        owner.ok()
    }

    /// The connection of channel `id`.
    pub(crate) fn owner(&self, id: ChanId) -> Option<Arc<dyn ConnOps>> {
        let place = self.place(id.index)?;
        let owner = place.owner.lock();
        let conn = owner.as_ref()?;
        (place.gen.load(Relaxed) == id.gen).then(|| conn.clone())
    }

    /// The connection of channel `id` if it is among `channels`, those of a link. Under the link's
    /// lock.
    pub(super) fn find(&self, id: ChanId, channels: &Channels) -> Option<Arc<dyn ConnOps>> {
        // The number may have another channel by now, on any link: the flow knows its own.
        let flow = self.place(id.index)?.flow.load(Relaxed);
        channels.get(id, flow).cloned()
    }

    /// A channel has got its `flow` on a link. Under the link's lock.
    fn set_flow(&self, flow: FlowId) {
        if let Some(place) = self.place(flow.id.index) {
            place.flow.store(flow.flow, Relaxed);
        }
    }

    /// The first channel whose number is at least `q`: the number, and its connection. Sleeps.
    pub(crate) fn next_from(&self, q: u32) -> Option<(u32, Arc<dyn ConnOps>)> {
        let mut from = q;
        loop {
            let (at, owner) = {
                let table = self.table.lock();
                let (at, owner) = table.look_from(from, LOOK)?;
                (at, owner.cloned())
            };
            if let Some(conn) = owner {
                return Some((at, conn));
            }
            from = at;
            cond_resched();
        }
    }

    /// The sizes of the table's tiers.
    pub(crate) fn sizes(&self) -> Sizes {
        self.sizes
    }

    /// The counters of the table.
    pub(crate) fn stats(&self) -> TableStats {
        let mut first = 0;
        while self.table.lock().count_hits(first, SWEEP_SLOTS as u32) {
            first += SWEEP_SLOTS as u32;
        }
        self.table.lock().stats()
    }

    /// The number of channels.
    pub(crate) fn len(&self) -> u32 {
        self.table.lock().len()
    }

    /// Checks the next [`SWEEP_SLOTS`] hot slots. The ids of the channels that were parked come
    /// first in the array that is returned.
    fn sweep(&self) -> [ChanId; SWEEP_SLOTS] {
        let mut parked = [ChanId::default(); SWEEP_SLOTS];
        let mut places = parked.iter_mut();
        self.table.lock().sweep(SWEEP_SLOTS as u32, |id, _| {
            if let Some(place) = places.next() {
                *place = id;
            }
        });
        parked
    }
}

impl Directory for Table {
    fn lessee(&self, user: ChanId) -> Option<Arc<dyn Lessee>> {
        Some(self.owner(user)?.lessee())
    }
}

/// Channel numbers that are checked under one hold of the table's lock.
const LOOK: u32 = 256;

/// Slots that the sweep checks under one hold of the table's lock, to keep that hold short.
const SWEEP_SLOTS: usize = 32;

impl Transport {
    /// Schedules the sweep: there are channels that may have to be parked.
    pub(crate) fn watch_table(self: &Arc<Self>) {
        let delay = msecs_to_jiffies(params::TABLE_SWEEP_MS.get());
        let queue = &self.queue;
        let _ = queue.enqueue_delayed::<Arc<Transport>, SWEEP>(self.clone(), delay);
    }

    /// Parks the channels that were not used since the last sweep, and requests the return of their
    /// leased windows.
    fn sweep_table(self: &Arc<Self>) {
        let slots = self.table.table.lock().reached();
        for _ in 0..(slots as usize).div_ceil(SWEEP_SLOTS) {
            let parked = self.table.sweep();
            for id in parked.into_iter().take_while(|id| id.index != 0) {
                if let Some(conn) = self.table.owner(id) {
                    conn.parked();
                }
            }
        }
        if self.table.len() > 0 {
            self.watch_table();
        }
    }
}

impl WorkItem<SWEEP> for Transport {
    type Pointer = Arc<Transport>;

    fn run(transport: Arc<Transport>) {
        fault::asynchronous(|| transport.sweep_table());
    }
}

/// The channel of a connection, if it has one: the connection's access to its entry, which is freed
/// with it. Protected by the connection's lock, the lock of the entry. Closures that work on it
/// must neither sleep nor use a `Chan` again.
pub(crate) struct Chan(Option<Entry>);

struct Entry {
    table: Arc<Table>,
    id: ChanId,
    /// The user and the network namespace that the entry is counted for.
    holder: Holder,
    /// The channel's flow on its link, once it has one.
    flow: Option<FlowId>,
    /// The grant of the registers, while they are hot and until the table recalls it.
    grant: Cell<Option<Grant<KBox<Channel>>>>,
    /// The connection's word, which is that of this entry while it is `current`.
    word: Arc<ConnWord>,
    /// The connection has this entry.
    current: bool,
}

/// The word of a connection's entry.
pub(crate) type ConnWord = EntryWord<Atomic<u64>>;

impl WordCell for Atomic<u64> {
    #[inline(always)]
    fn load(&self, order: Ordering) -> u64 {
        match order {
            Ordering::Relaxed => Atomic::load(self, Relaxed),
            _ => Atomic::load(self, Acquire),
        }
    }

    #[inline(always)]
    fn store(&self, bits: u64, order: Ordering) {
        match order {
            Ordering::Relaxed => Atomic::store(self, bits, Relaxed),
            _ => Atomic::store(self, bits, Release),
        }
    }
}

/// The word of a connection without an entry.
pub(crate) const fn free_word() -> ConnWord {
    EntryWord::new(Atomic::new(0))
}

impl Chan {
    /// No channel.
    pub(crate) const fn none() -> Self {
        Self(None)
    }

    /// Takes an entry for `conn`, with the channel that `make` makes. The caller must put the
    /// result into the connection, by [`Conn::open`](super::conn::Conn::open), before using it.
    /// Sleeps; not under the connection's lock. EDQUOT when the connection's owner or network
    /// namespace has used its quota, ENOBUFS when the table is full, ENOMEM.
    pub(crate) fn submit(
        transport: &Arc<Transport>,
        conn: &Arc<impl ConnOps>,
        make: impl FnOnce(ChanId) -> Channel,
    ) -> Result<Self> {
        let word = conn.word().clone();
        let conn: Arc<dyn ConnOps> = conn.clone();
        let holder = conn.holder();
        transport.table.quota.take(holder)?;
        let table = &transport.table;
        let id = table.submit(&conn, holder, make).inspect_err(|_| {
            table.quota.give(holder);
        })?;
        transport.watch_table();
        Ok(Self(Some(Entry {
            table: transport.table.clone(),
            id,
            holder,
            flow: None,
            grant: Cell::new(None),
            word,
            current: false,
        })))
    }

    /// The channel's id.
    pub(crate) fn id(&self) -> Option<ChanId> {
        self.0.as_ref().map(|entry| entry.id)
    }

    /// The channel's flow on its link.
    pub(crate) fn flow(&self) -> Option<FlowId> {
        self.0.as_ref()?.flow
    }

    /// Stores the channel's flow. Returns false if the connection has another channel by now, or
    /// none. Under the link's lock.
    pub(crate) fn set_flow(&mut self, flow: FlowId) -> bool {
        let entry = self.0.as_mut().filter(|entry| entry.id == flow.id);
        let Some(entry) = entry else {
            return false;
        };
        entry.flow = Some(flow);
        entry.table.set_flow(flow);
        true
    }

    /// The connection has this entry from now on, and no other. Faults the entry in.
    pub(super) fn set_current(&mut self) {
        if let Some(entry) = &mut self.0 {
            entry.current = true;
        }
        self.with(|_| ());
    }

    /// Whether the connection has a channel.
    pub(crate) fn is_some(&self) -> bool {
        self.0.is_some()
    }

    /// Calls `work` on the channel's registers, and publishes their word; `None` if there is no
    /// channel. Faults the entry in.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut Channel) -> R) -> Option<R> {
        let entry = self.0.as_ref()?;
        let (result, grant) = match entry.grant.take() {
            Some(mut grant) => (work(grant.regs_again()), grant),
            None => {
                let mut grant = entry.table.grant(entry.id)?;
                (work(grant.regs_mut()), grant)
            }
        };
        entry.word.publish(grant.regs().word());
        entry.grant.set(Some(grant));
        Some(result)
    }

    /// Returns the grant of entry `id` to the table, unless `recall` declines it.
    pub(crate) fn give_back(
        &self,
        id: ChanId,
        recall: &mut Recall,
    ) -> Option<Grant<KBox<Channel>>> {
        let entry = self.0.as_ref().filter(|entry| entry.id == id)?;
        let mut grant = entry.grant.take()?;
        if recall.wants(&mut grant) {
            return Some(grant);
        }
        entry.grant.set(Some(grant));
        None
    }

    /// Whether there is a channel for which `what` returns true.
    pub(crate) fn is_some_and(&self, what: impl FnOnce(&Channel) -> bool) -> bool {
        self.with(|chan| what(chan)).unwrap_or(false)
    }

    /// The word of the entry: the state of the channel, hot or parked.
    fn word(&self) -> Option<Word> {
        self.0.as_ref().map(|entry| entry.word.load())
    }

    /// Whether the peer sends no more, or there is no channel. Like the methods below, it does not
    /// fault the entry in.
    pub(crate) fn read_ended(&self) -> bool {
        self.word().is_none_or(|word| word.ends().read)
    }

    /// Whether the channel sends no more data, or there is no channel.
    pub(crate) fn write_ended(&self) -> bool {
        self.word().is_none_or(|word| word.ends().write)
    }

    /// Whether the peer's WRITEs have all arrived, or there is no channel.
    pub(crate) fn peer_writes_done(&self) -> bool {
        self.word().is_none_or(|word| word.ends().peer_writes)
    }

    /// Whether the channel has a control message to send.
    pub(crate) fn has_pending_control(&self) -> bool {
        self.word().is_some_and(|word| word.work().has(Work::TX))
    }

    /// The number of corked bytes.
    pub(crate) fn corked(&self) -> u32 {
        self.word().map_or(0, Word::corked)
    }

    /// Whether the channel has ended, so that its connection must be told.
    pub(crate) fn is_over(&self) -> bool {
        self.word()
            .is_some_and(|word| word.work().has(Work::COMPLETE))
    }

    /// Frees the entry if the channel has ended. The caller must drop the result without locks.
    pub(crate) fn take_ended(&mut self) -> Option<Arc<dyn ConnOps>> {
        if !self.is_over() {
            return None;
        }
        self.free()
    }

    fn free(&mut self) -> Option<Arc<dyn ConnOps>> {
        let entry = self.0.take()?;
        if entry.current {
            entry.word.publish(Word::FREE);
        }
        let owner = entry.table.remove(entry.id, entry.grant.take());
        entry.table.quota.give(entry.holder);
        owner
    }
}

impl Drop for Chan {
    /// The caller has its own reference to the connection, so the one dropped here is not the last.
    fn drop(&mut self) {
        drop(self.free());
    }
}
