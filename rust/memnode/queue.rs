// SPDX-License-Identifier: GPL-2.0

//! Queues of operations of programs: the descriptor. `proto/mem/queue` has the order and the
//! limits, `operation` the steps of an operation.
//!
//! Lock order: a queue's `reading`, then `Host::state`.

#![deny(unsafe_code)]

use core::ops::Range;

use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::iov::IovIterDest;
use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Relaxed};
use kernel::sync::{new_mutex, Arc, Mutex};
use kernel::transmute::AsBytes;
use kernel::uaccess::{UserPtr, UserSlice};

use super::context::HostRef;
use super::host::{now_ms, Host, State};
use super::operation::{Operation, Outlook};
use super::region::{Place, RegionFile};
use crate::kern::anonfile::{AnonFile, POLLIN, POLLOUT, POLLRDNORM, POLLWRNORM};
use crate::kern::pin::{LockedPages, PinnedPages};
use crate::kern::regfile::OpenFile;
use crate::kern::wait::{WaitMode, WaitQueue};
use crate::proto::mem::queue::{CancelAction, Completion, Entry, Queue};
use crate::proto::mem::slab::Slot;
use crate::proto::mem::status::Status;
use crate::uapi::*;

/// Operations of a queue that are under way at a time: a COPY may have a key of the target for
/// itself, and a region has no more than 64.
const UNDER_WAY: usize = 32;
/// Operations that are taken before the first of them begins.
const BATCH: u32 = 64;
/// Completions that a `read()` takes at a time.
const READ: usize = 32;
/// Most bytes of an operation.
const LEN_MAX: u64 = 1 << 30;
/// The node of a canceled operation has this long to end it, in milliseconds: longer than it has to
/// wait for a copy's target.
const CANCEL_MS: u64 = 5000;

/// State that the descriptor, the host and the calls of a queue share.
#[pin_data]
pub(super) struct Shared {
    /// Something has happened to an operation.
    touched: Atomic<bool>,
    completions: Atomic<u32>,
    /// Completions in `reading` that the program has not got: its memory has faulted.
    left: Atomic<u32>,
    room: Atomic<bool>,
    #[pin]
    waits: WaitQueue,
    #[pin]
    reading: Mutex<Reading>,
}

/// Completions that a `read()` has taken and not given to the program.
struct Reading {
    taken: [zrs_mem_cqe; READ],
    left: Range<usize>,
}

impl Shared {
    pub(super) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            try_pin_init!(Self {
                touched: Atomic::new(false),
                completions: Atomic::new(0),
                left: Atomic::new(0),
                room: Atomic::new(true),
                waits <- crate::new_wait_queue!("zrs_mem_queue::waits"),
                reading <- new_mutex!(
                    Reading {
                        taken: core::array::from_fn(|_| zrs_mem_cqe::default()),
                        left: 0..0,
                    },
                    "zrs_mem_queue::reading"
                ),
            }),
            GFP_KERNEL,
        )
    }

    /// Something has happened to an operation.
    pub(super) fn touch(&self) {
        self.touched.store(true, Relaxed);
    }

    /// Whether something has happened since the last call.
    pub(super) fn take_touched(&self) -> bool {
        let touched = self.touched.load(Relaxed);
        self.touched.store(false, Relaxed);
        touched
    }
}

/// The operations of a queue.
pub(super) struct OpQueue {
    shared: Arc<Shared>,
    core: Queue<KVVec<Slot<Entry>>>,
    ops: KVVec<Option<KBox<Operation>>>,
    /// Places of the operations under way.
    active: KVec<u32>,
    /// One of them waits for room, or for another step.
    again: bool,
    /// [`State::posted`] when one of them had posted last: the queue that has waited longest is
    /// first where there is room for a chunk.
    posted: u64,
    /// The descriptor is closed.
    closed: bool,
}

impl OpQueue {
    fn new(shared: &Arc<Shared>, entries: usize) -> Result<KBox<Self>> {
        let mut slots = KVVec::with_capacity(entries, GFP_KERNEL_ACCOUNT)?;
        let mut ops = KVVec::with_capacity(entries, GFP_KERNEL_ACCOUNT)?;
        for _ in 0..entries {
            slots.push(Slot::EMPTY, GFP_KERNEL_ACCOUNT)?;
            ops.push(None, GFP_KERNEL_ACCOUNT)?;
        }
        let queue = Self {
            shared: shared.clone(),
            core: Queue::new(slots),
            ops,
            active: KVec::with_capacity(UNDER_WAY, GFP_KERNEL)?,
            again: false,
            posted: 0,
            closed: false,
        };
        Ok(KBox::new(queue, GFP_KERNEL)?)
    }

    fn op(&mut self, at: u32) -> Option<&mut KBox<Operation>> {
        self.ops.get_mut(at as usize)?.as_mut()
    }

    /// Queues an operation. False if there is no room.
    fn submit(&mut self, user_data: u64, drain: bool, op: KBox<Operation>) -> bool {
        let Some(at) = self.core.submit(user_data, drain) else {
            return false;
        };
        if let Some(place) = self.ops.get_mut(at as usize) {
            *place = Some(op);
        }
        self.shared.touch();
        true
    }

    /// Queues the cancel of an operation. False if there is no room.
    fn cancel(&mut self, user_data: u64, target: u64) -> bool {
        let Some(action) = self.core.cancel(user_data, target) else {
            return false;
        };
        if let CancelAction::Cancel(at) = action {
            if let Some(op) = self.op(at) {
                op.cancel(now_ms());
            }
        }
        self.shared.touch();
        true
    }

    /// Cancels all operations: the descriptor is closed.
    fn close(&mut self) {
        self.closed = true;
        while let Some(at) = self.core.close_one() {
            if let Some(op) = self.op(at) {
                op.cancel(now_ms());
            }
        }
        self.shared.touch();
    }

    /// Takes the steps that are due. Whether an operation has ended or begun.
    fn advance(&mut self, st: &mut State, host: &Arc<Host>) -> bool {
        let mut changed = false;
        self.again = false;
        loop {
            let mut begun = false;
            while self.active.len() < UNDER_WAY {
                let Some(at) = self.core.issue(|_| true) else {
                    break;
                };
                let _ = self.active.push_within_capacity(at);
                begun = true;
            }
            let mut ended = false;
            let mut n = 0;
            while let Some(at) = self.active.get(n).copied() {
                let outlook = match self.op(at) {
                    Some(op) => op.advance(st, host),
                    None => Outlook::Over(Status::Io, 0),
                };
                match outlook {
                    Outlook::Waits => n += 1,
                    Outlook::Again => {
                        self.again = true;
                        n += 1;
                    }
                    Outlook::Over(status, done) => {
                        // The pages stay charged until the completion is taken.
                        self.core.complete(at, status, done);
                        let _ = self.active.remove(n);
                        ended = true;
                    }
                }
            }
            changed |= begun | ended;
            if !ended {
                break;
            }
        }
        self.publish();
        changed
    }

    /// Tells the program what `poll()` asks for.
    fn publish(&self) {
        let shared = &self.shared;
        shared.completions.store(self.core.completions(), Relaxed);
        shared.room.store(self.core.has_room(), Relaxed);
        shared.waits.wake_all();
    }
}

/// Sorts the queues by the time of their last chunk. Most are in order.
fn in_turn(queues: &mut [KBox<OpQueue>]) {
    for end in 2..=queues.len() {
        for at in (2..=end).rev() {
            match queues.get_mut(at - 2..at) {
                Some([before, this]) if before.posted > this.posted => {
                    core::mem::swap(before, this);
                }
                _ => break,
            }
        }
    }
}

impl State {
    fn queue(&mut self, shared: &Arc<Shared>) -> Option<&mut KBox<OpQueue>> {
        let mut queues = self.queues.iter_mut();
        queues.find(|q| Arc::ptr_eq(&q.shared, shared))
    }

    /// Takes the steps of queued operations, and of calls that do not wait, that are due. Whether
    /// one has ended or begun, so that there may be more to do.
    pub(super) fn queue_actions(&mut self, host: &Arc<Host>) -> bool {
        let mut queues = core::mem::take(&mut self.queues);
        let calls = self.asyncs.posted();
        let (mut changed, mut calls_looked_at) = (false, false);
        for queue in queues.iter_mut() {
            if queue.posted > calls && !calls_looked_at {
                changed |= self.async_actions(host);
                calls_looked_at = true;
            }
            if queue.shared.take_touched() || queue.again {
                let before = self.posted;
                changed |= queue.advance(self, host);
                if self.posted != before {
                    queue.posted = self.posted;
                }
            }
        }
        if !calls_looked_at {
            changed |= self.async_actions(host);
        }
        queues.retain(|q| !q.closed || q.core.under_way() != 0);
        in_turn(&mut queues);
        self.queues = queues;
        changed
    }

    /// Ends the links to nodes that do not end an operation that was canceled.
    pub(super) fn leave_stalled_nodes(&mut self, now: u64) {
        let stalled = |op: &KBox<Operation>| op.canceled_since(now) >= CANCEL_MS;
        let mut links: KVec<usize> = KVec::new();
        for queue in self.queues.iter() {
            for at in queue.active.iter() {
                let op = queue.ops.get(*at as usize).and_then(Option::as_ref);
                if let Some(op) = op.filter(|op| stalled(op)) {
                    if let Some(slot) = op.link(self) {
                        // Without memory for this it is tried at the next look.
                        let _ = links.push(slot, GFP_KERNEL);
                    }
                }
            }
        }
        for slot in links {
            self.silent(slot);
        }
    }
}

/// The descriptor of a queue.
pub(super) struct QueueFile {
    host: HostRef,
    shared: Arc<Shared>,
}

impl QueueFile {
    /// An empty queue. Sleeps. ENOMEM.
    pub(super) fn new(host: HostRef, entries: usize) -> Result<Self> {
        let shared = Shared::new()?;
        let queue = OpQueue::new(&shared, entries)?;
        host.state.lock().queues.push(queue, GFP_KERNEL)?;
        Ok(Self { host, shared })
    }

    fn has_room(&self) -> bool {
        let st = &mut *self.host.state.lock();
        st.queue(&self.shared).is_some_and(|q| q.core.has_room())
    }

    fn submit(&self, arg: usize) -> Result<isize> {
        let s: zrs_queue_submit = read(arg)?;
        zero(&[u64::from(s.flags)])?;
        if s.count > ZRS_MEM_QUEUE_MAX {
            return Err(EINVAL);
        }
        let mut taken = 0;
        let mut refused = None;
        while taken < s.count && refused.is_none() {
            let offset = u64::from(taken) * size_of::<zrs_mem_sqe>() as u64;
            let at = s.sqes.checked_add(offset).ok_or(EFAULT);
            match at.and_then(|at| self.submit_one(at as usize)) {
                Ok(()) => taken += 1,
                Err(e) => refused = Some(e),
            }
            if taken % BATCH == 0 {
                self.host.with(|_| ());
            }
        }
        self.host.with(|_| ());
        match (taken, refused) {
            (0, Some(e)) => Err(e),
            (n, _) => Ok(n as isize),
        }
    }

    fn submit_one(&self, at: usize) -> Result {
        let slice = UserSlice::new(UserPtr::from_addr(at), size_of::<zrs_mem_sqe>());
        let sqe: zrs_mem_sqe = slice.reader().read()?;
        zero(&[u64::from(sqe.reserved0), u64::from(sqe.reserved1)])?;
        zero(&sqe.reserved2)?;
        // Before the memory is pinned.
        if !self.has_room() {
            return Err(EAGAIN);
        }
        if sqe.op == ZRS_MEM_OP_CANCEL {
            zero(&[sqe.fd as u64, sqe.src_fd as u64, sqe.flags.into()])?;
            zero(&[sqe.off, sqe.len])?;
            return self.insert(|q| q.cancel(sqe.user_data, sqe.src));
        }
        if sqe.flags & !ZRS_MEM_F_DRAIN != 0 || sqe.len == 0 || sqe.len > LEN_MAX {
            return Err(EINVAL);
        }
        let op = KBox::new(self.operation(&sqe)?, GFP_KERNEL_ACCOUNT)?;
        let drain = sqe.flags & ZRS_MEM_F_DRAIN != 0;
        self.insert(|q| q.submit(sqe.user_data, drain, op))
    }

    fn insert(&self, insert: impl FnOnce(&mut OpQueue) -> bool) -> Result {
        let st = &mut *self.host.state.lock();
        let queue = st.queue(&self.shared).ok_or(EBADF)?;
        insert(queue).then_some(()).ok_or(EAGAIN)
    }

    /// A region of this host by its descriptor.
    fn region(&self, fd: i32) -> Result<OpenFile<RegionFile>> {
        let file = OpenFile::<RegionFile>::get(fd)?;
        if file.host.net != self.host.net {
            return Err(EXDEV);
        }
        Ok(file)
    }

    fn operation(&self, sqe: &zrs_mem_sqe) -> Result<Operation> {
        let file = self.region(sqe.fd)?;
        let size = file.storage.len;
        let shared = self.shared.clone();
        let writes = sqe.op != ZRS_MEM_OP_READ;
        if !(if writes { file.writes() } else { file.reads() }) {
            return Err(EBADF);
        }
        let outside = match writes {
            true => sqe.off.checked_add(sqe.len).is_none_or(|end| end > size),
            false => sqe.off >= size,
        };
        match sqe.op {
            ZRS_MEM_OP_COPY => {
                let from = self.region(sqe.src_fd)?;
                if !from.reads() {
                    return Err(EBADF);
                }
                let left = from.storage.len.saturating_sub(sqe.src);
                if outside || left == 0 {
                    return Operation::refused(shared, Status::Range);
                }
                let (from, to) = (from.place(sqe.src), file.place(sqe.off));
                Operation::copy(shared, from, to, file.may_grant(), sqe.len.min(left))
            }
            ZRS_MEM_OP_WRITE | ZRS_MEM_OP_READ => {
                zero(&[sqe.src_fd as u64])?;
                if outside {
                    return Operation::refused(shared, Status::Range);
                }
                let len = match writes {
                    true => sqe.len,
                    false => sqe.len.min(size - sqe.off),
                };
                self.moving(file.place(sqe.off), sqe.src, len, writes)
            }
            _ => Err(EINVAL),
        }
    }

    /// A WRITE or READ, with its pages.
    fn moving(&self, place: Place, addr: u64, len: u64, write: bool) -> Result<Operation> {
        let page = kernel::page::PAGE_SIZE as u64;
        let end = addr.checked_add(len).ok_or(EFAULT)?;
        let pages = end.div_ceil(page) - addr / page;
        let locked = LockedPages::new(pages as usize)?;
        let later = (!write).then_some(&self.host.memory.pages);
        let mut chunks = KVec::new();
        let mut done = 0;
        while done < len {
            let chunk =
                PinnedPages::of_program((addr + done) as usize, (len - done) as usize, later)?;
            done += chunk.len() as u64;
            chunks.push(chunk, GFP_KERNEL_ACCOUNT)?;
        }
        Operation::moving(self.shared.clone(), place, write, chunks, len, locked)
    }

    /// Takes up to `most` completions; the others stay where poll() sees them.
    fn take(&self, reading: &mut Reading, most: usize) {
        let st = &mut *self.host.state.lock();
        let Some(queue) = st.queue(&self.shared) else {
            return;
        };
        let mut n = 0;
        for place in reading.taken.iter_mut().take(most) {
            let Some((at, completion)) = queue.core.reap() else {
                break;
            };
            *place = cqe(&completion);
            if let Some(op) = queue.ops.get_mut(at as usize) {
                *op = None;
            }
            n += 1;
        }
        reading.left = 0..n;
        if n != 0 {
            queue.publish();
        }
    }
}

fn cqe(c: &Completion) -> zrs_mem_cqe {
    zrs_mem_cqe {
        user_data: c.user_data,
        res: match c.status {
            Status::Ok => c.done as i64,
            status => -i64::from(status.errno()),
        },
        done: c.done,
        ..Default::default()
    }
}

impl AnonFile for QueueFile {
    fn read(&self, iter: &mut IovIterDest<'_>, nonblock: bool) -> Result<usize> {
        const SIZE: usize = size_of::<zrs_mem_cqe>();
        if iter.len() < SIZE {
            return Err(EINVAL);
        }
        let mut done = 0;
        loop {
            {
                let reading = &mut *self.shared.reading.lock();
                while iter.len() >= SIZE {
                    if reading.left.is_empty() {
                        self.take(reading, iter.len() / SIZE);
                    }
                    let Some(cqe) = reading.taken.get(reading.left.start) else {
                        break;
                    };
                    if reading.left.is_empty() {
                        break;
                    }
                    // If it does not arrive, the next call gives it again.
                    if iter.copy_to_iter(cqe.as_bytes()) != SIZE {
                        self.shared.left.store(reading.left.len() as u32, Relaxed);
                        self.shared.waits.wake_all();
                        return if done == 0 { Err(EFAULT) } else { Ok(done) };
                    }
                    reading.left.start += 1;
                    done += SIZE;
                }
                self.shared.left.store(reading.left.len() as u32, Relaxed);
            }
            if done != 0 {
                return Ok(done);
            }
            if nonblock {
                return Err(EAGAIN);
            }
            let some = || (self.events() & POLLIN != 0).then_some(());
            let waited = self
                .shared
                .waits
                .wait(WaitMode::Interruptible, &mut None, some);
            waited.map_err(|e| e.to_errno(None))?;
        }
    }

    fn waits(&self) -> &WaitQueue {
        &self.shared.waits
    }

    fn events(&self) -> u32 {
        let mut events = 0;
        let unread = |count: &Atomic<u32>| count.load(Relaxed) != 0;
        if unread(&self.shared.completions) || unread(&self.shared.left) {
            events |= POLLIN | POLLRDNORM;
        }
        if self.shared.room.load(Relaxed) {
            events |= POLLOUT | POLLWRNORM;
        }
        events
    }

    fn ioctl(&self, cmd: u32, arg: usize) -> Result<isize> {
        match cmd {
            ZRS_QUEUE_SUBMIT => self.submit(arg),
            _ => Err(ENOTTY),
        }
    }
}

impl Drop for QueueFile {
    /// Operations that are under way are canceled, and keep the program's pages until they end.
    fn drop(&mut self) {
        self.host.with(|st| {
            if let Some(queue) = st.queue(&self.shared) {
                queue.close();
            }
        });
    }
}
