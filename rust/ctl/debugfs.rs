// SPDX-License-Identifier: GPL-2.0

//! debugfs: details for engineers beyond the counters of `/dev/zrs`, for root only. `zrs/links` has
//! a line for each link with its internal state; `zrs/lost_bytes` the memory that is not used any
//! more, since devices failed to deregister it. The format is for people and may change. Kernels
//! with fault injection also have the knobs of the module's fault points here, and `cm_event`.

#![deny(unsafe_code)]

#[cfg(CONFIG_FAULT_INJECTION_DEBUG_FS)]
mod cm_event;

use kernel::debugfs::{Dir, File};
use kernel::fmt;
use kernel::prelude::*;
use kernel::sync::Arc;

use crate::ib::mr::lost_bytes;
use crate::kern::fault;
use crate::transport::context::Transport;

const NAME: &CStr = c"zrs";

/// The directory and its files, which are removed when this is dropped.
#[pin_data]
pub(crate) struct Debug {
    #[pin]
    links: File<Arc<Transport>>,
    #[pin]
    lost: File<()>,
    faults: fault::Knobs,
    #[pin]
    cm_event: cm_event::Knob,
    dir: Dir,
}

impl Debug {
    /// Makes `zrs/` in debugfs. A kernel without debugfs is no error.
    pub(crate) fn new(transport: Arc<Transport>) -> impl PinInit<Self, Error> {
        let dir = Dir::new(NAME);
        try_pin_init!(Self {
            links <- dir.read_callback_file(c"links", transport.clone(), &links),
            lost <- dir.read_callback_file(c"lost_bytes", (), &|(), f| {
                writeln!(f, "{}", lost_bytes())
            }),
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

/// Stub for kernels without fault injection.
#[cfg(not(CONFIG_FAULT_INJECTION_DEBUG_FS))]
mod cm_event {
    use super::*;

    /// An empty knob.
    pub(super) struct Knob(());

    impl Knob {
        pub(super) fn new(_dir: &Dir, _transport: Arc<Transport>) -> impl PinInit<Self, Error> {
            Ok(Self(()))
        }
    }
}
