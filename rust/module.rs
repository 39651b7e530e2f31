// SPDX-License-Identifier: GPL-2.0

//! The single instances of the module, their start and their end. The folders below get them as
//! contexts; there is no global.

#![deny(unsafe_code)]

use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Full, Release};
use kernel::sync::Arc;
use kernel::workqueue::{impl_has_delayed_work, new_delayed_work, DelayedWork, WorkItem};

use crate::dgram::context::Dgrams;
use crate::ib::device::{Client, Device, DeviceEvent};
use crate::kern::param::{Group, Watcher};
use crate::kern::pernet::{NetExit, NetExits};
use crate::kern::sock::family::SocketFamily;
use crate::kern::sysctl::NetSettings;
use crate::kern::work::{self, Queue};
use crate::memnode::context::Memory;
use crate::params;
use crate::pool::context::Pools;
use crate::pool::device::RdmaDev;
use crate::socket::context::Sockets;
use crate::socket::Sock;
use crate::transport::conn_table::Table;
use crate::transport::context::Transport;
use crate::transport::peers::Peers;

/// Has the module go by parameters that were written.
pub(crate) struct Keeper(Arc<Transport>);

impl Keeper {
    /// For the pools, the connection table and the links of `transport`. ENOMEM.
    pub(crate) fn new(transport: Arc<Transport>) -> Result<Arc<Self>> {
        Ok(Arc::new(Self(transport), GFP_KERNEL)?)
    }
}

/// The module as a client of the RDMA core.
pub(crate) struct Devices {
    transport: Arc<Transport>,
    memory: Arc<Memory>,
}

impl Devices {
    /// For the pools, the links and the memory nodes of `module`.
    pub(crate) fn of(module: &Module) -> Self {
        Self {
            transport: module.transport().clone(),
            memory: module.memory.clone(),
        }
    }
}

/// A device, and its events that no worker has handled yet.
#[pin_data]
pub(crate) struct DeviceUse {
    dev: Arc<RdmaDev>,
    transport: Arc<Transport>,
    memory: Arc<Memory>,
    has_failed: Atomic<bool>,
    port_active: Atomic<bool>,
    gids_changed: Atomic<bool>,
    #[pin]
    work: DelayedWork<DeviceUse>,
}

impl_has_delayed_work! {
    impl HasDelayedWork<Self> for DeviceUse { self.work }
}

impl WorkItem for DeviceUse {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        if this.has_failed.xchg(false, Full) {
            let (device, pool) = this.dev.device_failed();
            if let Some(pool) = pool {
                this.transport.fail_links_of(&pool, "its device has failed");
            }
            if let Some(device) = device {
                this.memory.device_failed(&device);
            }
        }
        if this.port_active.xchg(false, Full) {
            this.dev.port_active();
        }
        if this.gids_changed.xchg(false, Full) {
            this.transport.ways_changed();
        }
    }
}

impl Client for Devices {
    const NAME: &'static CStr = c"zrs";
    type Context = Self;
    type Data = DeviceUse;

    fn add(users: &Self, device: &Device) -> Result<Arc<DeviceUse>> {
        let dev = users.transport.pools.add_device(device)?;
        let own = dev.clone();
        let data = Arc::pin_init(
            pin_init!(DeviceUse {
                dev: own,
                transport: users.transport.clone(),
                memory: users.memory.clone(),
                has_failed: Atomic::new(false),
                port_active: Atomic::new(false),
                gids_changed: Atomic::new(false),
                work <- new_delayed_work!("zrs_device_use::work"),
            }),
            GFP_KERNEL,
        );
        let data = data.inspect_err(|_| {
            // The worker may have been quicker.
            if let Some(pool) = users.transport.pools.remove_device(&dev) {
                users.transport.drop_links_of(&pool);
                pool.device_gone();
            }
        })?;
        users.transport.ways_changed();
        Ok(data)
    }

    fn event(users: &Self, data: &Arc<DeviceUse>, event: DeviceEvent) {
        match event {
            DeviceEvent::Failed => data.has_failed.store(true, Release),
            DeviceEvent::PortActive => data.port_active.store(true, Release),
            DeviceEvent::GidChange => data.gids_changed.store(true, Release),
        }
        // Delayed work can be taken back.
        let queue = &users.transport.queue;
        let _ = queue.enqueue_delayed::<Arc<DeviceUse>, 0>(data.clone(), 0);
    }

    fn remove(users: &Self, _device: &Device, data: Arc<DeviceUse>) {
        // No event comes any more.
        work::cancel_delayed::<DeviceUse, 0>(&data);
        if let Some(pool) = users.transport.pools.remove_device(&data.dev) {
            users.transport.drop_links_of(&pool);
            pool.device_gone();
        }
    }
}

/// The contexts of pools, links, sockets and memory nodes. Dropping it stops them; by then no
/// socket is open and there is no device.
pub(crate) struct Module {
    pub(crate) sockets: Arc<Sockets>,
    pub(crate) dgrams: Arc<Dgrams>,
    pub(crate) memory: Arc<Memory>,
    _nets: NetExits<Nets>,
    _settings: NetSettings,
}

/// Per-namespace state, which does not keep the network namespaces alive.
struct Nets {
    sockets: Arc<Sockets>,
    memory: Arc<Memory>,
}

impl NetExit for Nets {
    fn net_exit(&self, id: usize) {
        self.sockets.rules.net_exit(id);
        self.sockets.transport.peers.lists.net_exit(id);
        self.sockets.transport.peers.keys.lists.net_exit(id);
        self.sockets.transport.counts.net_exit(id);
        self.memory.net_exit(id);
    }
}

impl Module {
    /// Makes the contexts. Sleeps. ENOMEM.
    pub(crate) fn start() -> Result<Self> {
        let queue = Queue::new(
            kernel::c_str!("zrs"),
            work::Flags {
                unbound: true,
                mem_reclaim: true,
                ..Default::default()
            },
        )?;
        let queue = Arc::new(queue, GFP_KERNEL)?;
        let table = Table::new()?;
        let pools = Pools::new(queue.clone(), table.clone())?;
        let peers = Peers::new()?;
        let transport = Transport::new(queue, pools, table, peers.clone())?;
        let sockets = Sockets::new(transport.clone())?;
        let dgrams = Dgrams::new(transport.clone())?;
        let memory = Memory::new(peers)?;
        let nets = Nets {
            sockets: sockets.clone(),
            memory: memory.clone(),
        };
        let module = Self {
            sockets,
            dgrams,
            memory,
            _nets: NetExits::new(Arc::new(nets, GFP_KERNEL)?)?,
            _settings: NetSettings::new(&params::NET)?,
        };
        // From here on contexts keep each other until the module is dropped.
        transport.pools.set_links(transport.clone());
        transport.set_acceptor(module.sockets.clone());
        transport.set_dgram_receiver(module.dgrams.clone());
        Ok(module)
    }

    /// The context of links.
    pub(crate) fn transport(&self) -> &Arc<Transport> {
        &self.sockets.transport
    }
}

/// Registers the protocol number of sockets that also use TCP, unless the module is drained.
fn offer_beside() {
    let wanted = params::DRAIN.get() == 0;
    if SocketFamily::<Sock>::offer_beside(wanted).is_err() {
        pr_warn!("programs of chosen control groups get TCP: the protocol is not registered\n");
    }
}

impl Drop for Module {
    /// Sleeps.
    fn drop(&mut self) {
        self.memory.stop();
        self.sockets.stop();
        let transport = self.transport();
        transport.stop();
        transport.pools.stop();
        transport.queue.flush();
    }
}

impl Watcher for Keeper {
    fn written(&self, group: Group) {
        match group {
            params::POOLS => self.0.pools.resize(),
            params::SHARES => self.0.set_shares(),
            params::KEEPALIVE => self.0.check_keepalive_now(),
            params::END => offer_beside(),
            _ => {}
        }
    }

    fn begun(&self) {
        offer_beside();
    }
}
