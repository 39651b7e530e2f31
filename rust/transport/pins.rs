// SPDX-License-Identifier: GPL-2.0

//! Pages of a program that a link's device reads.

#![deny(unsafe_code)]

use kernel::prelude::*;
use kernel::sync::Arc;

use super::conn::Charge;
use super::link::Link;
use super::tx::MAX_SGES;
use crate::ib::dma::{Direction, DmaRuns, Sge};
use crate::ib::memory::PinnedRuns;
use crate::kern::errno::ENOTCONN;
use crate::kern::pin::PinnedPages;
use crate::proto::dgram::wire::FRAGMENT;

/// Pages of a program, mapped for the link's device.
pub(crate) struct Pins {
    runs: DmaRuns<PinnedRuns>,
    /// Dropped after the mapping.
    _charge: Option<Charge>,
}

impl Pins {
    /// Fills `sges` with the elements of `len` bytes from byte `from` on; returns their number.
    /// EINVAL outside of the pages.
    pub(super) fn fill_sges(&self, from: usize, len: usize, sges: &mut [Sge]) -> Result<usize> {
        Ok(self.runs.fill_sges(from, len, sges)?.0)
    }

    /// Whether each fragment of a datagram in these pages has at most `most` elements.
    fn fits(&self, most: usize) -> bool {
        let mut scratch = [Sge::default(); MAX_SGES];
        let Some(sges) = scratch.get_mut(..most.min(MAX_SGES)) else {
            return false;
        };
        let total = self.runs.bytes();
        (0..total).step_by(FRAGMENT as usize).all(|from| {
            let len = (total - from).min(FRAGMENT as usize);
            let filled = self.runs.fill_sges(from, len, sges);
            filled.is_ok_and(|(_, bytes)| bytes == len)
        })
    }
}

impl Link {
    /// Maps pinned pages, with their `charge`, for the link's device. Sleeps. ENOMEM; ENOTCONN when
    /// the link is down, which its channels are about to be told.
    pub(crate) fn map_pages(
        &self,
        pages: PinnedPages,
        charge: Option<Charge>,
    ) -> Result<Arc<Pins>> {
        self.map_runs(PinnedRuns::new(pages)?, charge)
    }

    /// As [`Self::map_pages`], for a datagram in `first`, and then in `more`. E2BIG: a fragment has
    /// more pieces than the device takes in one work request.
    pub(crate) fn map_dgram(
        &self,
        first: PinnedPages,
        more: KVec<PinnedPages>,
        charge: Option<Charge>,
    ) -> Result<Arc<Pins>> {
        let mut pages = PinnedRuns::new(first)?;
        for next in more {
            pages = pages.add(next)?;
        }
        let max_sge = self.tx.lock().queues.as_ref().map(|q| q.max_sge);
        let pins = self.map_runs(pages, charge)?;
        // One is for the header.
        let most = max_sge.ok_or(ENOTCONN)?.min(MAX_SGES).saturating_sub(1);
        if !pins.fits(most) {
            return Err(E2BIG);
        }
        Ok(pins)
    }

    fn map_runs(&self, runs: PinnedRuns, charge: Option<Charge>) -> Result<Arc<Pins>> {
        let verbs = self.tx.lock().queues.as_ref().map(|q| q.verbs.clone());
        let runs = DmaRuns::map(&verbs.ok_or(ENOTCONN)?.pd, runs, Direction::ToDevice)?;
        let pins = Pins {
            runs,
            _charge: charge,
        };
        Ok(Arc::new(pins, GFP_KERNEL)?)
    }
}
