// SPDX-License-Identifier: GPL-2.0

//! The scheduler of a link: the channels on it, and the queues of channels that wait to send.
//!
//! Each channel is a *flow* as long as it is on the link. Channels with a control message to send
//! wait in the queue [`TrafficClass::Control`]: one message each, round robin. Channels whose
//! programs found the link full wait in [`TrafficClass::Small`] and [`TrafficClass::Bulk`]. When
//! there is room, the first ones are *scheduled*: a scheduled flow goes before all others until it
//! has sent [`QUANTUM`] bytes, then it waits again, behind the others. Deficits are kept: that is
//! surplus round robin, fair in bytes whatever the size of the messages. A scheduled flow that does
//! not send delays no other flow. Deficits are only tracked under contention. A small message never
//! waits behind bulk data.

use core::ops::DerefMut;

use super::ChanId;

/// Bytes that a scheduled flow may send, while others wait.
pub const QUANTUM: i32 = 128 * 1024;

/// The least that a flow is granted: a deficit is better than many small messages.
const MIN_GRANT: u32 = 16 * 1024;

/// The classes of waiting flows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TrafficClass {
    /// To send a control message.
    Control,
    /// To send a small message.
    Small,
    /// To send bulk data.
    Bulk,
}

const CLASSES: usize = 3;

/// Both neighbours in a queue: 1 + flow, 0: none.
#[derive(Clone, Copy, Default)]
struct Hook {
    before: u32,
    behind: u32,
    waits: bool,
}

/// A flow; storage is filled with empty ones.
pub struct Flow<T> {
    taken: Option<(ChanId, T)>,
    next_free: u32,
    hooks: [Hook; CLASSES],
    deficits: [Deficit; CLASSES],
}

/// The credit of a flow in a queue.
#[derive(Clone, Copy, Default)]
struct Deficit {
    /// It was scheduled, and may still send.
    scheduled: bool,
    /// Bytes that it may send; less than 0: deficit.
    left: i32,
}

impl Deficit {
    const NONE: Self = Self {
        scheduled: false,
        left: 0,
    };

    /// Schedules the flow, again or for the first time. Returns false if it still has a deficit.
    fn schedule(&mut self) -> bool {
        if !self.scheduled {
            self.left = self.left.saturating_add(QUANTUM).min(QUANTUM);
        }
        self.scheduled = self.left > 0;
        self.scheduled
    }
}

impl<T> Flow<T> {
    /// An empty one.
    pub const fn new() -> Self {
        Self {
            taken: None,
            next_free: 0,
            hooks: [Hook {
                before: 0,
                behind: 0,
                waits: false,
            }; CLASSES],
            deficits: [Deficit::NONE; CLASSES],
        }
    }
}

impl<T> Default for Flow<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// First and last of a queue: 1 + flow, 0: none.
#[derive(Clone, Copy, Default)]
struct ListHead {
    first: u32,
    last: u32,
    len: u32,
}

/// The channels of a link. `S`: the storage of the flows, which may grow.
pub struct Scheduler<S> {
    flows: S,
    /// 1 + the first flow of the free list, 0: none.
    free: u32,
    /// Flows from here on have never been used.
    fresh: u32,
    taken: u32,
    queues: [ListHead; CLASSES],
}

impl<T: 'static, S: DerefMut<Target = [Flow<T>]>> Scheduler<S> {
    /// Empty flows, perhaps none.
    pub fn new(flows: S) -> Self {
        Self {
            flows,
            free: 0,
            fresh: 0,
            taken: 0,
            queues: [ListHead::default(); CLASSES],
        }
    }

    /// Channels.
    pub fn len(&self) -> usize {
        self.taken as usize
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.taken == 0
    }

    /// The number of flows.
    pub fn flows(&self) -> usize {
        self.flows.len()
    }

    /// Moves the flows to larger storage; they keep their numbers. Returns the old storage, empty,
    /// or `flows` if it is not larger.
    pub fn move_to(&mut self, mut flows: S) -> S {
        if flows.len() > self.flows.len() {
            for (new, old) in flows.iter_mut().zip(self.flows.iter_mut()) {
                core::mem::swap(new, old);
            }
            core::mem::swap(&mut flows, &mut self.flows);
        }
        flows
    }

    /// Takes a flow for channel `id`; gives `value` back when there is none.
    pub fn add(&mut self, id: ChanId, value: T) -> Result<u32, T> {
        let flow = match self.free.checked_sub(1) {
            Some(flow) => flow,
            None => self.fresh,
        };
        let Some(place) = self.flows.get_mut(flow as usize) else {
            return Err(value);
        };
        let next = place.next_free;
        *place = Flow::new();
        place.taken = Some((id, value));
        if self.free == 0 {
            self.fresh = flow.wrapping_add(1);
        } else {
            self.free = next;
        }
        self.taken = self.taken.wrapping_add(1);
        Ok(flow)
    }

    /// Channel `id` leaves its flow, and all queues. `None` if it is not there.
    pub fn remove(&mut self, id: ChanId, flow: u32) -> Option<T> {
        self.get(id, flow)?;
        for class in [
            TrafficClass::Control,
            TrafficClass::Small,
            TrafficClass::Bulk,
        ] {
            self.unlink(class, flow);
        }
        let free = self.free;
        let place = self.flows.get_mut(flow as usize)?;
        let (_, value) = place.taken.take()?;
        place.next_free = free;
        self.free = flow.wrapping_add(1);
        self.taken = self.taken.wrapping_sub(1);
        Some(value)
    }

    /// The value of channel `id`, if it has this flow.
    pub fn get(&self, id: ChanId, flow: u32) -> Option<&T> {
        let taken = self.flows.get(flow as usize)?.taken.as_ref();
        taken.filter(|(who, _)| *who == id).map(|(_, value)| value)
    }

    /// The value of the channel in this flow.
    pub fn at(&self, flow: usize) -> Option<&T> {
        let taken = self.flows.get(flow)?.taken.as_ref();
        taken.map(|(_, value)| value)
    }

    /// All channels.
    #[cfg(not(MODULE))]
    pub fn iter(&self) -> impl Iterator<Item = (ChanId, &T)> {
        let taken = self.flows.iter().filter_map(|flow| flow.taken.as_ref());
        taken.map(|(id, value)| (*id, value))
    }

    /// Removes all channels.
    pub fn drain(&mut self) -> impl Iterator<Item = (ChanId, T)> + '_ {
        self.queues = [ListHead::default(); CLASSES];
        self.taken = 0;
        self.free = 0;
        self.fresh = 0;
        self.flows
            .iter_mut()
            .filter_map(|flow| core::mem::take(flow).taken)
    }

    /// The number of channels that wait in a queue.
    pub fn waiting(&self, class: TrafficClass) -> usize {
        self.ends(class).len as usize
    }

    /// Whether the channel in this flow waits in the queue.
    pub fn waits(&self, class: TrafficClass, flow: u32) -> bool {
        self.hook(class, flow).is_some_and(|hook| hook.waits)
    }

    /// Channel `id` waits, behind all others, unless it waits already. False if it does not have
    /// this flow.
    pub fn enqueue(&mut self, class: TrafficClass, id: ChanId, flow: u32) -> bool {
        if self.get(id, flow).is_none() {
            return false;
        }
        self.push(class, flow, false);
        true
    }

    /// The first in a queue.
    pub fn peek(&self, class: TrafficClass) -> Option<(ChanId, &T)> {
        let flow = self.ends(class).first.checked_sub(1)?;
        let taken = self.flows.get(flow as usize)?.taken.as_ref();
        taken.map(|(id, value)| (*id, value))
    }

    /// Takes the first out of a queue, with its flow.
    pub fn dequeue(&mut self, class: TrafficClass) -> Option<(ChanId, u32, &T)> {
        let flow = self.ends(class).first.checked_sub(1)?;
        self.unlink(class, flow);
        let taken = self.flows.get(flow as usize)?.taken.as_ref();
        taken.map(|(id, value)| (*id, flow, value))
    }

    /// Channel `id` has `want` bytes to send. Returns how many of them it may send now, if the link
    /// has `room`; `None`: it waits in `class` until it is scheduled.
    pub fn try_dequeue(
        &mut self,
        class: TrafficClass,
        id: ChanId,
        flow: u32,
        want: u32,
        room: bool,
    ) -> Option<u32> {
        self.get(id, flow)?;
        let others = self.waiting(class) > usize::from(self.waits(class, flow));
        let first = self.ends(class).first == flow.wrapping_add(1);
        let deficit = self.deficit_mut(class, flow)?;
        if !others {
            *deficit = Deficit::NONE;
        } else if room && first && !deficit.scheduled {
            // It would be scheduled next.
            deficit.schedule();
        }
        let Deficit { scheduled, left } = *deficit;
        if !room || others && !scheduled {
            self.push(class, flow, scheduled);
            return None;
        }
        let most = match others {
            true => u32::try_from(left).unwrap_or(0).max(MIN_GRANT),
            false => want,
        };
        self.unlink(class, flow);
        Some(want.min(most))
    }

    /// The channel has sent `bytes`, headers included, of a grant in this class.
    pub fn sent(&mut self, class: TrafficClass, id: ChanId, flow: u32, bytes: u32) {
        if self.get(id, flow).is_none() {
            return;
        }
        if let Some(deficit) = self
            .deficit_mut(class, flow)
            .filter(|deficit| deficit.scheduled)
        {
            let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
            deficit.left = deficit.left.saturating_sub(bytes);
            deficit.scheduled = deficit.left > 0;
        }
    }

    /// Schedules the first flow in a queue without a deficit: those before it wait on, with a
    /// smaller one.
    pub fn next_ready(&mut self, class: TrafficClass) -> Option<&T> {
        // After one round each deficit is smaller by a quantum, and none was ever more than a
        // chunk.
        for _ in 0..self.waiting(class).saturating_mul(4) {
            let flow = self.ends(class).first.checked_sub(1)?;
            self.unlink(class, flow);
            if self.deficit_mut(class, flow)?.schedule() {
                let taken = self.flows.get(flow as usize)?.taken.as_ref();
                return taken.map(|(_, value)| value);
            }
            self.push(class, flow, false);
        }
        None
    }

    fn deficit_mut(&mut self, class: TrafficClass, flow: u32) -> Option<&mut Deficit> {
        let place = self.flows.get_mut(flow as usize)?;
        place.deficits.get_mut(class as usize)
    }

    fn ends(&self, class: TrafficClass) -> ListHead {
        self.queues.get(class as usize).copied().unwrap_or_default()
    }

    fn hook(&self, class: TrafficClass, flow: u32) -> Option<&Hook> {
        self.flows.get(flow as usize)?.hooks.get(class as usize)
    }

    fn set_hook(&mut self, class: TrafficClass, number: u32, set: impl FnOnce(&mut Hook)) {
        let flow = number.checked_sub(1);
        let place = flow.and_then(|flow| self.flows.get_mut(flow as usize));
        if let Some(hook) = place.and_then(|place| place.hooks.get_mut(class as usize)) {
            set(hook);
        }
    }

    /// Adds the flow to the queue, behind all others or before them, unless it waits already.
    fn push(&mut self, class: TrafficClass, flow: u32, before: bool) {
        if self.waits(class, flow) {
            return;
        }
        let number = flow.wrapping_add(1);
        let mut ends = self.ends(class);
        let (before, behind) = match before {
            true => (0, core::mem::replace(&mut ends.first, number)),
            false => (core::mem::replace(&mut ends.last, number), 0),
        };
        self.set_hook(class, number, |hook| {
            *hook = Hook {
                before,
                behind,
                waits: true,
            }
        });
        self.set_hook(class, before, |other| other.behind = number);
        self.set_hook(class, behind, |other| other.before = number);
        if ends.first == 0 {
            ends.first = number;
        }
        if ends.last == 0 {
            ends.last = number;
        }
        ends.len = ends.len.wrapping_add(1);
        self.set_ends(class, ends);
    }

    fn unlink(&mut self, class: TrafficClass, flow: u32) {
        let Some(hook) = self.hook(class, flow).copied().filter(|hook| hook.waits) else {
            return;
        };
        let mut ends = self.ends(class);
        match hook.before {
            0 => ends.first = hook.behind,
            before => self.set_hook(class, before, |other| other.behind = hook.behind),
        }
        match hook.behind {
            0 => ends.last = hook.before,
            behind => self.set_hook(class, behind, |other| other.before = hook.before),
        }
        ends.len = ends.len.wrapping_sub(1);
        self.set_ends(class, ends);
        self.set_hook(class, flow.wrapping_add(1), |hook| *hook = Hook::default());
    }

    fn set_ends(&mut self, class: TrafficClass, ends: ListHead) {
        if let Some(place) = self.queues.get_mut(class as usize) {
            *place = ends;
        }
    }
}
