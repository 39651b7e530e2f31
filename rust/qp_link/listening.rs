// SPDX-License-Identifier: GPL-2.0

//! The ids that accept links in a network namespace.

#![deny(unsafe_code)]

use kernel::prelude::*;
use kernel::sync::Arc;

use super::address::to_cm;
use crate::ib::cm::{CmHandler, CmId};
use crate::kern::errno::EAFNOSUPPORT;
use crate::kern::net::Net;
use crate::proto::addr::Ip;
use crate::stats::STATS;

/// The ids that accept links, until it is dropped: that waits for their handlers. There is one for
/// each address family: iWARP devices listen with a socket for each, and one id for both would
/// report IPv4 addresses as v4-mapped.
pub(crate) struct Listening {
    _v4: CmId,
    /// None where the kernel has no IPv6.
    _v6: Option<CmId>,
}

impl Listening {
    /// Listens on `port` of `net`. Each request goes to a handler that `handler` makes, one for
    /// each address family. Sleeps. EACCES without CAP_NET_BIND_SERVICE, ENOMEM. If the port is in
    /// use, EADDRNOTAVAIL, as the address is unspecified.
    pub(crate) fn new<H: CmHandler>(
        net: &Net,
        port: u16,
        backlog: i32,
        handler: impl Fn() -> Result<Arc<H>>,
    ) -> Result<Self> {
        let open = |any: Ip| -> Result<CmId> {
            let id = CmId::new(net, handler()?)?;
            STATS.resources_made.add(1);
            id.set_afonly(true)?;
            id.bind_addr(to_cm(any, port))?;
            id.listen(backlog)?;
            Ok(id)
        };
        let v4 = open(Ip::ANY_V4)?;
        let v6 = match open(Ip::ANY) {
            Err(e) if e == EAFNOSUPPORT => None,
            id => Some(id?),
        };
        Ok(Self { _v4: v4, _v6: v6 })
    }
}
