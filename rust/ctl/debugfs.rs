// SPDX-License-Identifier: GPL-2.0

//! debugfs: what an engineer wants to see beyond the counters of `/dev/zrs`, for root only.
//! `zrs/links` has a line a link: what it waits for. The format is for people and may change. In
//! kernels with fault injection the knobs of the module's points are beside it, and `cm_event`.

#![deny(unsafe_code)]

#[cfg(CONFIG_FAULT_INJECTION_DEBUG_FS)]
mod cm_event;

use kernel::debugfs::{Dir, File};
use kernel::fmt;
use kernel::prelude::*;
use kernel::sync::Arc;

use crate::kern::fault;
use crate::transport::context::Transport;

const NAME: &CStr = c"zrs";

/// The directory and its files; removes them when it goes.
#[pin_data]
pub(crate) struct Debug {
    #[pin]
    links: File<Arc<Transport>>,
    faults: fault::Knobs,
    #[pin]
    cm_event: cm_event::Knob,
    dir: Dir,
}

impl Debug {
    /// Makes `zrs/` in debugfs. Without debugfs there is nothing to see, and no error.
    pub(crate) fn new(transport: Arc<Transport>) -> impl PinInit<Self, Error> {
        let dir = Dir::new(NAME);
        try_pin_init!(Self {
            links <- dir.read_callback_file(c"links", transport.clone(), &links),
            faults: fault::Knobs::new(NAME),
            cm_event <- cm_event::Knob::new(&dir, transport),
            dir: dir,
        })
    }
}

fn links(transport: &Arc<Transport>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for link in transport.snapshot().map_err(|_| fmt::Error)? {
        link.describe(f)?;
    }
    Ok(())
}

/// The same without fault injection: there is none.
#[cfg(not(CONFIG_FAULT_INJECTION_DEBUG_FS))]
mod cm_event {
    use super::*;

    /// Nothing.
    pub(super) struct Knob(());

    impl Knob {
        pub(super) fn new(_dir: &Dir, _transport: Arc<Transport>) -> impl PinInit<Self, Error> {
            Ok(Self(()))
        }
    }
}
