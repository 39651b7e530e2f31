// SPDX-License-Identifier: GPL-2.0

//! ZRS, zero-copy RDMA sockets: the module's entry, and the order of start and stop.

mod bindings;
mod debug;
mod dev;
mod host;
mod ib;
mod kern;
mod params;
// The items of the core are `pub` for the tests on the host.
#[allow(unreachable_pub)]
mod proto;
mod socket;
mod stats;
mod transport;
mod uapi;

use kernel::{prelude::*, sync::Arc};

use host::Host;
use kern::{chardev, contig, param, sock::family::SocketFamily};
use socket::Sock;
use transport::device::Devices;

module! {
    type: Zrs,
    name: "zrs",
    authors: ["The ZRS authors"],
    description: "Zero-copy RDMA sockets",
    license: "GPL",
}

/// What the module holds while it is loaded. The fields end in this order: nothing that follows from
/// writing a parameter, no new sockets, no new calls, no devices and so no links on them, then the
/// host with whatever is left.
#[pin_data]
struct Zrs {
    live: param::Live,
    family: SocketFamily<Sock>,
    #[pin]
    debug: debug::Debug,
    #[pin]
    control: chardev::Registration<dev::Control>,
    client: ib::device::ClientRegistration<Devices>,
    host: Running,
}

/// The host; stops it when it goes.
struct Running(Arc<Host>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.stop();
    }
}

impl kernel::InPlaceModule for Zrs {
    fn init(_module: &'static ThisModule) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            host: {
                bindings::check_layout()?;
                contig::init();
                params::check()?;
                Running(Host::start()?)
            },
            client: ib::device::ClientRegistration::new()?,
            debug <- debug::Debug::new(host.0.clone()),
            control <- chardev::Registration::register(c"zrs"),
            family: SocketFamily::register()?,
            live: param::Live::new(),
        })
    }
}
