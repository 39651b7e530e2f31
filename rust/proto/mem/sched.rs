// SPDX-License-Identifier: GPL-2.0

//! Deficit round robin between the hosts that have copies queued at a node: each gets its turn by
//! bytes, whatever the size or number of its copies.

use core::ops::DerefMut;

/// Bytes that a host may have copied before it is the next one's turn. At least as large as a
/// chunk.
pub const QUANTUM: u32 = 1 << 20;

/// A host that has copies queued.
#[derive(Clone, Copy, Default)]
pub struct Flow {
    jobs: u32,
    deficit: i64,
    /// The oldest of its jobs that can go on now, and its number in the order of arrival.
    ready: Option<(u64, u32)>,
}

/// The hosts, by their numbers.
pub struct Scheduler<F> {
    flows: F,
    current: usize,
}

impl<F: DerefMut<Target = [Flow]>> Scheduler<F> {
    /// No host has a job.
    pub fn new(flows: F) -> Self {
        Self { flows, current: 0 }
    }

    /// A job of `flow` arrives. False if there is no such number.
    pub fn enter(&mut self, flow: u32) -> bool {
        let known = self.flows.get_mut(flow as usize);
        known.map(|f| f.jobs = f.jobs.saturating_add(1)).is_some()
    }

    /// A job of `flow` is gone.
    pub fn leave(&mut self, flow: u32) {
        if let Some(f) = self.flows.get_mut(flow as usize) {
            f.jobs = f.jobs.saturating_sub(1);
            if f.jobs == 0 {
                // A host that comes back is neither punished nor paid for its absence.
                f.deficit = 0;
            }
        }
    }

    /// Jobs of `flow`.
    pub fn jobs(&self, flow: u32) -> u32 {
        self.flows.get(flow as usize).map_or(0, |f| f.jobs)
    }

    /// No job can go on, as far as is known.
    pub fn clear(&mut self) {
        self.flows.iter_mut().for_each(|f| f.ready = None);
    }

    /// A job of `flow` can go on; `order` tells which of a host's jobs came first.
    pub fn offer(&mut self, flow: u32, order: u64, job: u32) {
        if let Some(f) = self.flows.get_mut(flow as usize) {
            if f.ready.is_none_or(|(first, _)| order < first) {
                f.ready = Some((order, job));
            }
        }
    }

    /// The job whose turn it is among those that were offered.
    pub fn pick(&mut self) -> Option<u32> {
        if let Some(Flow {
            deficit: 1..,
            ready: Some((_, job)),
            ..
        }) = self.flows.get(self.current)
        {
            return Some(*job);
        }
        let n = self.flows.len();
        for step in 1..=n {
            let at = self.current.wrapping_add(step).checked_rem(n)?;
            let flow = self.flows.get_mut(at)?;
            let Some((_, job)) = flow.ready else {
                continue;
            };
            let quantum = i64::from(QUANTUM);
            flow.deficit = flow.deficit.saturating_add(quantum).min(quantum);
            if flow.deficit > 0 {
                self.current = at;
                return Some(job);
            }
        }
        None
    }

    /// A job of `flow` sends `bytes`.
    pub fn charge(&mut self, flow: u32, bytes: u64) {
        if let Some(f) = self.flows.get_mut(flow as usize) {
            f.deficit = f.deficit.saturating_sub_unsigned(bytes);
        }
    }
}
