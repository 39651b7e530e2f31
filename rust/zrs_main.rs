// SPDX-License-Identifier: GPL-2.0

//! ZRS, zero-copy RDMA sockets: the module's entry, and the order of start and stop.

mod bindings;
mod ctl;
mod dgram;
mod ib;
mod kern;
mod memnode;
mod module;
mod params;
mod pool;
// The items of the core are `pub` for the tests on the host.
#[allow(unreachable_pub)]
mod proto;
mod qp_link;
mod socket;
mod stats;
mod transport;
mod uapi;

use kernel::prelude::*;

use ctl::{
    chardev::{Contexts, Control},
    debugfs::Debug,
};
use dgram::DgramSock;
use ib::device::ClientRegistration;
use kern::{chardev::Registration, contig, param::Live, sock::family::SocketFamily};
use module::{Devices, Keeper, Module};
use socket::Sock;

module! {
    type: Zrs,
    name: "zrs",
    authors: ["The ZRS authors"],
    description: "Zero-copy RDMA sockets",
    license: "GPL",
}

/// The state of the loaded module. The fields end in this order: nothing that follows
/// from writing a parameter, no new sockets, no new calls, no devices and so no links on them, then
/// whatever is left.
#[pin_data]
struct Zrs {
    live: Live,
    streams: SocketFamily<Sock>,
    datagrams: SocketFamily<DgramSock>,
    #[pin]
    debug: Debug,
    #[pin]
    control: Registration<Control>,
    client: ClientRegistration<Devices>,
    module: Module,
}

impl kernel::InPlaceModule for Zrs {
    fn init(_module: &'static ThisModule) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            module: {
                kern::layout::check()?;
                contig::init();
                params::check()?;
                Module::start()?
            },
            client: ClientRegistration::new(Devices::of(module))?,
            debug <- Debug::new(module.transport().clone()),
            control <- Registration::register(c"zrs", Contexts {
                sockets: module.sockets.clone(),
                dgrams: module.dgrams.clone(),
                memory: module.memory.clone(),
            }),
            datagrams: SocketFamily::register(module.dgrams.clone())?,
            streams: SocketFamily::register(module.sockets.clone())?,
            live: Live::new(Keeper::new(module.transport().clone())?),
        })
    }
}
