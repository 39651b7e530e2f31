// SPDX-License-Identifier: GPL-2.0

//! The host's link table: the memory of [`LinkTable`], its lock, and the parties' way to an entry.
//!
//! The lock is a leaf: it is held for the steps of the table alone, never while a party works on what it was
//! granted. A party holds its socket's `inner` meanwhile and does not sleep, so whoever finds an entry locked has
//! it in a moment. Nothing else is taken under the lock of the [`Quota`] either.

#![deny(unsafe_code)]

use core::cell::Cell;

use kernel::alloc::kvec::KVVec;
use kernel::prelude::*;
use kernel::sync::{new_spinlock, Arc, SpinLock};
use kernel::time::msecs_to_jiffies;
use kernel::workqueue::WorkItem;

use super::context::{Transport, SWEEP};
use super::sched::FlowId;
use crate::kern::errno::{EDQUOT, ENOBUFS};
use crate::kern::fault;
use crate::kern::lockdep::{self, HandMade};
use crate::kern::task::{cpu_relax, random_u64};
use crate::params;
use crate::pool::lessee::{Directory, Lessee};
use crate::proto::channel::{self, Channel, State};
use crate::proto::link_table::{
    Backing, GrantError, LinkTable, Slot, Storage, TableStats, Way, CHUNK,
};
use crate::proto::quota::{self, Holder, Quota, QuotaCount, Shares};
use crate::proto::ChanId;
use crate::socket::Sock;

/// Where the table lies.
struct Memory;

impl Storage for Memory {
    type Regs = Channel;
    type Cell = KBox<Channel>;
    type Owner = Arc<Sock>;
    type Hot = KVVec<Slot<KBox<Channel>>>;
    type L2 = KVVec<Way<channel::PackedChannel>>;
    type Chunk = KVVec<Backing<channel::PackedChannel, Arc<Sock>>>;
    type Bulk = KVVec<Option<Self::Chunk>>;
}

/// `n` of what `make` makes. Sleeps. ENOMEM.
fn filled<T>(n: usize, mut make: impl FnMut() -> Result<T>) -> Result<KVVec<T>> {
    let mut all = KVVec::with_capacity(n, GFP_KERNEL)?;
    for _ in 0..n {
        all.push(make()?, GFP_KERNEL)?;
    }
    Ok(all)
}

/// Of the table, the part that only the administrator gets, in percent.
const RESERVE_PERCENT: u32 = 5;

fn percent_of(n: u32, percent: u32) -> u32 {
    (u64::from(n) * u64::from(percent) / 100) as u32
}

/// Sizes of the tiers, in entries.
#[derive(Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) hot: u32,
    /// Of the second tier, a whole number of sets,
    pub(crate) near: u32,
    /// and of each set.
    pub(crate) ways: u32,
    /// Most entries.
    pub(crate) most: u32,
    /// Of these, those that are for the administrator.
    reserve: u32,
}

/// The table of all channels.
#[pin_data]
pub(crate) struct Table {
    #[pin]
    table: SpinLock<LinkTable<Memory>>,
    /// Who has how much of it.
    #[pin]
    quota: SpinLock<Quota<KVVec<QuotaCount>>>,
    sizes: Sizes,
}

impl Table {
    /// A table of the sizes that the parameters say. Sleeps. ENOMEM.
    pub(crate) fn new() -> Result<Arc<Self>> {
        let ways = params::TABLE_WAYS.get();
        let sizes = Sizes {
            hot: params::TABLE_HOT.get(),
            near: params::TABLE_NEAR.get().next_multiple_of(ways),
            ways,
            most: params::MAX_CHANNELS.get(),
            reserve: percent_of(params::MAX_CHANNELS.get(), RESERVE_PERCENT),
        };
        let vacant = || Channel::connect(ChanId::default(), 0, 0, params::LIMITS);
        let hot = filled(sizes.hot as usize, || {
            Ok(Slot::new(KBox::new(vacant(), GFP_KERNEL)?))
        })?;
        let near = filled(sizes.near as usize, || Ok(Way::new()))?;
        let bulk = filled((sizes.most as usize).div_ceil(CHUNK), || Ok(None))?;
        let table = LinkTable::new(hot, near, ways, bulk, random_u64()).ok_or(EINVAL)?;
        let shares = Shares {
            most: sizes.most - sizes.reserve,
            user_percent: params::USER_PERCENT.get(),
            net_most: percent_of(sizes.most, params::NET_PERCENT.get()).max(1),
        };
        Arc::pin_init(
            pin_init!(Self {
                table <- new_spinlock!(table, "zrs_transport::table"),
                quota <- new_spinlock!(Quota::new(KVVec::new(), shares), "zrs_transport::quota"),
                sizes,
            }),
            GFP_KERNEL,
        )
    }

    /// Counts a channel for `holder`.
    fn charge_quota(&self, holder: Holder) -> Result {
        loop {
            let wanted = {
                let mut quota = self.quota.lock();
                match quota.take(holder) {
                    Ok(()) => return Ok(()),
                    Err(quota::QuotaError::User | quota::QuotaError::Net) => return Err(EDQUOT),
                    Err(quota::QuotaError::Crowded) => quota.wanted(),
                }
            };
            let more = filled(wanted, || Ok(QuotaCount::NONE))?;
            let spare = self.quota.lock().move_to(more);
            drop(spare);
        }
    }

    /// Takes an entry for `sock`, of `holder`, with the channel that `make` makes.
    fn submit(
        &self,
        sock: &Arc<Sock>,
        holder: Holder,
        make: impl FnOnce(ChanId) -> Channel,
    ) -> Result<ChanId> {
        let most = match holder.is_admin() {
            true => self.sizes.most,
            false => self.sizes.most - self.sizes.reserve,
        };
        loop {
            let chunk = {
                let mut table = self.table.lock();
                if table.len() >= most {
                    return Err(ENOBUFS);
                }
                if !table.wants_chunk() {
                    return table.submit(sock.clone(), make).map_err(|_| ENOBUFS);
                }
                drop(table);
                filled(CHUNK, || Ok(Backing::new()))?
            };
            // Somebody else may have brought one as well; then there is one more than needed.
            let spare = self.table.lock().add_chunk(chunk);
            drop(spare);
        }
    }

    /// Works on channel `id`, which nobody else can meanwhile. `None` if there is no such channel. The caller
    /// holds the `inner` of the channel's socket, and works on one channel at a time.
    fn with<R>(&self, id: ChanId, work: impl FnOnce(&mut Channel) -> R) -> Option<R> {
        let mut grant = loop {
            match self.table.lock().grant(id) {
                Ok(grant) => break grant,
                Err(GrantError::Unknown) => return None,
                Err(GrantError::Locked | GrantError::Crowded) => {}
            }
            cpu_relax();
        };
        let _held = lockdep::acquired(HandMade::Entry);
        let result = work(grant.regs_mut());
        self.table.lock().write_back(grant);
        Some(result)
    }

    /// The socket of channel `id`.
    pub(crate) fn owner(&self, id: ChanId) -> Option<Arc<Sock>> {
        self.table.lock().owner(id).cloned()
    }

    /// The first channel whose number is at least `q`: the number, and its socket.
    pub(crate) fn next_from(&self, q: u32) -> Option<(u32, Arc<Sock>)> {
        let mut from = q;
        loop {
            let (at, owner) = {
                let table = self.table.lock();
                let (at, owner) = table.look_from(from, LOOK)?;
                (at, owner.cloned())
            };
            if let Some(sock) = owner {
                return Some((at, sock));
            }
            from = at;
        }
    }

    /// How large it is.
    pub(crate) fn sizes(&self) -> Sizes {
        self.sizes
    }

    /// What has happened in it.
    pub(crate) fn stats(&self) -> TableStats {
        self.table.lock().stats()
    }

    /// Channels.
    pub(crate) fn len(&self) -> u32 {
        self.table.lock().len()
    }

    /// Looks at the next [`SWEEP_SLOTS`] hot slots; who was parked is in the first places of what is returned.
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
        let sock = self.owner(user)?;
        Some(sock)
    }
}

/// Numbers that are looked at in one go.
const LOOK: u32 = 256;

/// Slots that the sweep looks at in one go, so that nobody waits long for the lock.
const SWEEP_SLOTS: usize = 32;

impl Transport {
    /// There are channels, so that there may be some to park.
    pub(crate) fn watch_table(self: &Arc<Self>) {
        let delay = msecs_to_jiffies(params::TABLE_SWEEP_MS.get());
        let queue = &self.queue;
        let _ = queue.enqueue_delayed::<Arc<Transport>, SWEEP>(self.clone(), delay);
    }

    /// Parks the channels that nothing has happened to since the last time, and asks for the windows that they
    /// have leased.
    fn sweep_table(self: &Arc<Self>) {
        for _ in 0..(params::TABLE_HOT.get() as usize).div_ceil(SWEEP_SLOTS) {
            let parked = self.table.sweep();
            for id in parked.into_iter().take_while(|id| id.index != 0) {
                if let Some(sock) = self.table.owner(id) {
                    sock.on_parked();
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

/// The channel of a socket, if it has one: the socket's way to its entry, which is freed with it. Under the
/// socket's `inner`; what is given to work on it may neither sleep nor ask for a channel again.
pub(crate) struct Chan(Option<Entry>);

struct Entry {
    table: Arc<Table>,
    id: ChanId,
    /// Who it is counted for.
    holder: Holder,
    /// On its link, once it is there.
    flow: Option<FlowId>,
    /// What is only asked about it, as it was last written back: nobody changes a channel but by its socket's `Chan`.
    seen: Cell<Seen>,
}

/// What calls ask about a channel at every look, and need no grant for.
#[derive(Clone, Copy, Default)]
struct Seen {
    read_ended: bool,
    write_ended: bool,
    peer_writes_done: bool,
    pending: bool,
    over: bool,
    corked: u32,
}

impl Seen {
    fn of(chan: &Channel) -> Self {
        Self {
            read_ended: chan.read_ended(),
            write_ended: chan.write_ended(),
            peer_writes_done: chan.peer_writes_done(),
            pending: chan.has_pending_control(),
            over: chan.state() == State::Closed,
            corked: chan.corked(),
        }
    }
}

impl Chan {
    /// None.
    pub(crate) const fn none() -> Self {
        Self(None)
    }

    /// A channel for `sock`, which `make` makes. Sleeps; without the socket's lock. EDQUOT when the owner of the
    /// socket or its network namespace has its share, ENOBUFS when there are as many as there may be, ENOMEM.
    pub(crate) fn submit(
        transport: &Arc<Transport>,
        sock: &Arc<Sock>,
        make: impl FnOnce(ChanId) -> Channel,
    ) -> Result<Self> {
        let holder = sock.holder();
        transport.table.charge_quota(holder)?;
        let table = &transport.table;
        let id = table.submit(sock, holder, make).inspect_err(|_| {
            table.quota.lock().give(holder);
        })?;
        transport.watch_table();
        let chan = Self(Some(Entry {
            table: transport.table.clone(),
            id,
            holder,
            flow: None,
            seen: Cell::default(),
        }));
        chan.with(|_| ());
        Ok(chan)
    }

    /// Which.
    pub(crate) fn id(&self) -> Option<ChanId> {
        self.0.as_ref().map(|entry| entry.id)
    }

    /// Its place on its link.
    pub(crate) fn flow(&self) -> Option<FlowId> {
        self.0.as_ref()?.flow
    }

    /// It is on its link, if it is still this one; false if not. Under the link's lock.
    pub(crate) fn set_flow(&mut self, flow: FlowId) -> bool {
        let entry = self.0.as_mut().filter(|entry| entry.id == flow.id);
        entry.map(|entry| entry.flow = Some(flow)).is_some()
    }

    /// Whether there is one.
    pub(crate) fn is_some(&self) -> bool {
        self.0.is_some()
    }

    /// Works on it; `None` if there is none.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut Channel) -> R) -> Option<R> {
        let entry = self.0.as_ref()?;
        entry.table.with(entry.id, |chan| {
            let result = work(chan);
            entry.seen.set(Seen::of(chan));
            result
        })
    }

    /// Whether there is one of which that is true.
    pub(crate) fn is_some_and(&self, what: impl FnOnce(&Channel) -> bool) -> bool {
        self.with(|chan| what(chan)).unwrap_or(false)
    }

    fn seen(&self) -> Option<Seen> {
        self.0.as_ref().map(|entry| entry.seen.get())
    }

    /// Whether the peer sends no more, or there is none. Without a grant, as those below.
    pub(crate) fn read_ended(&self) -> bool {
        self.seen().is_none_or(|seen| seen.read_ended)
    }

    /// Whether nothing can be sent any more, or there is none.
    pub(crate) fn write_ended(&self) -> bool {
        self.seen().is_none_or(|seen| seen.write_ended)
    }

    /// Whether no WRITE of the peer can come any more, or there is none.
    pub(crate) fn peer_writes_done(&self) -> bool {
        self.seen().is_none_or(|seen| seen.peer_writes_done)
    }

    /// Whether it has something to say.
    pub(crate) fn has_pending_control(&self) -> bool {
        self.seen().is_some_and(|seen| seen.pending)
    }

    /// Bytes that are held back.
    pub(crate) fn corked(&self) -> u32 {
        self.seen().map_or(0, |seen| seen.corked)
    }

    /// Whether it has ended, and its owner is to be told.
    pub(crate) fn is_over(&self) -> bool {
        self.seen().is_some_and(|seen| seen.over)
    }

    /// Frees its entry, if it has come to its end. What is returned is to be dropped without locks.
    pub(crate) fn take_ended(&mut self) -> Option<Arc<Sock>> {
        if !self.is_over() {
            return None;
        }
        self.free()
    }

    fn free(&mut self) -> Option<Arc<Sock>> {
        let entry = self.0.take()?;
        let owner = entry.table.table.lock().remove(entry.id);
        entry.table.quota.lock().give(entry.holder);
        owner.ok()
    }
}

impl Drop for Chan {
    /// Whoever drops it has a reference to the socket as well, so that this is not the last one.
    fn drop(&mut self) {
        drop(self.free());
    }
}
