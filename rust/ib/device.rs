// SPDX-License-Identifier: GPL-2.0

//! RDMA devices and the client that learns of them.
//!
//! C header: `include/rdma/ib_verbs.h`.
//!
//! Lock order: the core calls [`Client::add`] and [`Client::remove`] with the device's client lock
//! held shared, or none. They may sleep and take any lock of ours that is never held while a
//! [`ClientRegistration`] is made or dropped.

use crate::{bindings, kern::net::Net};
use core::{
    ffi::c_void,
    ptr::{addr_of, addr_of_mut, NonNull},
};
use kernel::{
    error::{from_result, to_result},
    fmt,
    prelude::*,
    sync::{
        atomic::{Atomic, Full, Relaxed},
        Arc, //
    },
};

/// A counted registration reference to an RDMA device.
///
/// While one lives the device stays registered: its removal waits. Every holder must drop it when
/// [`Client::remove`] is called.
///
/// # Invariants
///
/// `ptr` points to a registered device, and the object owns one reference got by
/// `ib_device_try_get`.
pub(crate) struct Device {
    ptr: NonNull<bindings::ib_device>,
}

// SAFETY: The reference count of a device may be changed from any thread, and what this type reads
// of it does not change while it is registered.
unsafe impl Send for Device {}
// SAFETY: As above.
unsafe impl Sync for Device {}

impl Device {
    /// Takes a reference, unless the device is being unregistered.
    ///
    /// # Safety
    ///
    /// `ptr` must point to a device whose memory is valid for the duration of the call.
    pub(super) unsafe fn try_get(ptr: *mut bindings::ib_device) -> Option<Self> {
        let ptr = NonNull::new(ptr)?;
        // SAFETY: The caller guarantees that `ptr` is valid.
        if !unsafe { bindings::ib_device_try_get(ptr.as_ptr()) } {
            return None;
        }
        // INVARIANT: We have just got a registration reference, so it is registered.
        Some(Self { ptr })
    }

    /// The raw device.
    pub(super) fn as_ptr(&self) -> *mut bindings::ib_device {
        self.ptr.as_ptr()
    }

    /// The device's name at this moment (it can be renamed).
    pub(crate) fn name(&self) -> DeviceName {
        let mut out = [0u8; 64];
        // SAFETY: By the type invariants the device is valid. A rename may write at the same time,
        // so the bytes are read one by one through the raw pointer, and the last is never used.
        let name = unsafe { addr_of!((*self.as_ptr()).name) }.cast::<u8>();
        for (i, byte) in out.iter_mut().enumerate().take(63) {
            // SAFETY: `name` is an array of 64 bytes and `i` is less than 63.
            *byte = unsafe { name.add(i).read_volatile() };
            if *byte == 0 {
                break;
            }
        }
        DeviceName(out)
    }

    /// The number of completion vectors, at least one.
    pub(crate) fn num_comp_vectors(&self) -> u32 {
        // SAFETY: By the type invariants the device is valid; the field is constant.
        let n = unsafe { (*self.as_ptr()).num_comp_vectors };
        u32::try_from(n).unwrap_or(0).max(1)
    }

    /// The NUMA node of the device, if it has one.
    pub(crate) fn numa_node(&self) -> Option<i32> {
        // SAFETY: By the type invariants the device is valid.
        let node = unsafe { bindings::ibdev_to_node(self.as_ptr()) };
        (node >= 0).then_some(node)
    }

    /// Whether DMA addresses of this device are kernel virtual addresses (Soft-RoCE, siw).
    pub(crate) fn uses_virt_dma(&self) -> bool {
        // SAFETY: By the type invariants the device is valid.
        unsafe { bindings::ib_uses_virt_dma(self.as_ptr()) }
    }

    /// Whether threads of this machine's do the device's work (Soft-RoCE, siw).
    pub(crate) fn is_software(&self) -> bool {
        // No other ones have such addresses.
        self.uses_virt_dma()
    }

    /// Whether it is Soft-RoCE, which has faults that other devices do not have.
    pub(crate) fn is_soft_roce(&self) -> bool {
        self.driver() == bindings::rdma_driver_id_RDMA_DRIVER_RXE
    }

    /// Whether it is the tests' Soft-RoCE (`tests/vm/build-device`), whose faults with invalidated
    /// and repeated registrations are mended (reports 04 and 11 of
    /// `Documentation/upstream/kernel`).
    fn is_mended(&self) -> bool {
        const VERSION: u32 = 0x5a52;
        // SAFETY: By the type invariants the device is valid; its attributes are constant.
        let version = unsafe { (*self.as_ptr()).attrs.hw_ver };
        self.is_soft_roce() && version == VERSION
    }

    /// Whether the device executes a registration again when it repeats a request before it, which
    /// fails the queue pair: it has to be posted to an idle send queue.
    pub(crate) fn repeats_registrations(&self) -> bool {
        self.is_soft_roce() && !self.is_mended()
    }

    /// Whether nothing of a peer's lands in a region's memory once its invalidation has completed.
    /// On Soft-RoCE and siw a packet whose key was looked at before is written (on siw, by
    /// `siw_proc_write()`, after a deregistration, too, but it sees the region as it was).
    pub(crate) fn invalidation_is_final(&self) -> bool {
        !self.is_software() && !self.is_soft_roce() || self.is_mended()
    }

    fn driver(&self) -> bindings::rdma_driver_id {
        // SAFETY: By the type invariants the device is valid; its operations are constant.
        unsafe { (*self.as_ptr()).ops.driver_id }
    }

    /// Whether the device is done with the memory of a send or WRITE only if that was signaled, and
    /// has completed. siw hands the pages of large ones that are not signaled to TCP, which may
    /// read them again until the peer has acknowledged them, while later requests complete; the
    /// bytes of signaled ones it copies (`siw_qp_prepare_tx()`).
    pub(crate) fn needs_signals(&self) -> bool {
        self.driver() == bindings::rdma_driver_id_RDMA_DRIVER_SIW
    }

    /// Whether it is an iWARP device: a READ's sink needs a remote key, and has one element.
    pub(crate) fn is_iwarp(&self) -> bool {
        // SAFETY: By the type invariants the device is registered; every device has a port 1, whose
        // protocol is constant.
        unsafe { bindings::rdma_protocol_iwarp(self.as_ptr(), 1) }
    }

    /// Whether connecting waits for the peer: until TCP's SYN is answered, or for minutes
    /// (`siw_connect()`).
    pub(crate) fn connect_waits(&self) -> bool {
        self.driver() == bindings::rdma_driver_id_RDMA_DRIVER_SIW
    }

    /// Whether the device cannot make connections, because its interface is not in the first
    /// network namespace: siw makes its TCP sockets in the namespace of the thread that asks, which
    /// is a kernel thread (`siw_connect()`, `siw_create_listen()`).
    pub(crate) fn is_outside(&self) -> bool {
        if self.driver() != bindings::rdma_driver_id_RDMA_DRIVER_SIW {
            return false;
        }
        // SAFETY: By the type invariants the device is registered; every device has a port 1.
        let netdev = unsafe { bindings::ib_device_get_netdev(self.as_ptr(), 1) };
        if netdev.is_null() {
            return false;
        }
        // SAFETY: We have a reference on the interface, which is given back here. The interface may
        // leave its namespace at any time: the pointer to the namespace is only compared.
        unsafe {
            let outside = bindings::dev_net(netdev) != bindings::init_net();
            bindings::dev_put(netdev);
            outside
        }
    }

    /// Whether connections of `net` can be on the device: the core lets the namespace use it, and
    /// an interface of the device is there.
    pub(crate) fn is_in(&self, net: &Net) -> bool {
        // SAFETY: By the type invariants the device is registered, and `net` is held.
        unsafe { bindings::rdma_dev_in_net(self.as_ptr(), net.as_ptr()) }
    }

    /// The rate of the device's first port, in bytes a microsecond; 0 if it reports none. Sleeps.
    pub(crate) fn rate(&self) -> u32 {
        let mut attr = bindings::ib_port_attr::default();
        // SAFETY: By the type invariants the device is registered; every device has a port 1, and
        // the call fills `attr`, which lives until it returns.
        let found = to_result(unsafe { bindings::ib_query_port(self.as_ptr(), 1, &mut attr) });
        match found {
            Ok(()) => port_rate(attr.active_speed.into(), attr.active_width.into()),
            Err(_) => 0,
        }
    }

    /// The limits of the device.
    pub(crate) fn attrs(&self) -> Attrs {
        // SAFETY: By the type invariants the device is valid; its attributes are constant from
        // registration on.
        let a = unsafe { &*addr_of!((*self.as_ptr()).attrs) };
        // The limits are signed up to Linux 7.2, unsigned from 7.3 on.
        fn n(v: impl TryInto<u32>) -> u32 {
            v.try_into().unwrap_or(0)
        }
        Attrs {
            max_qp_wr: n(a.max_qp_wr),
            max_send_sge: n(a.max_send_sge),
            max_read_sge: n(a.max_sge_rd),
            max_recv_sge: n(a.max_recv_sge),
            max_cqe: n(a.max_cqe),
            max_srq: n(a.max_srq),
            max_srq_wr: n(a.max_srq_wr),
            max_srq_sge: n(a.max_srq_sge),
            max_reads: n(a.max_qp_rd_atom).min(n(a.max_qp_init_rd_atom)),
            max_fast_reg_pages: a.max_fast_reg_page_list_len,
            page_size_cap: a.page_size_cap,
            fast_registration: a.device_cap_flags
                & (bindings::ib_device_cap_flags_IB_DEVICE_MEM_MGT_EXTENSIONS as u64)
                != 0,
        }
    }
}

impl Clone for Device {
    fn clone(&self) -> Self {
        // SAFETY: By the type invariants the device is valid.
        let got = unsafe { bindings::ib_device_try_get(self.as_ptr()) };
        // We hold one, so the count was not zero and another can always be had.
        debug_assert!(got);
        // INVARIANT: The device is registered, and we own the reference just taken.
        Self { ptr: self.ptr }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: By the type invariants we own a reference, and give it up here.
        unsafe { bindings::ib_device_put(self.as_ptr()) };
    }
}

impl PartialEq for Device {
    fn eq(&self, other: &Self) -> bool {
        self.ptr == other.ptr
    }
}

impl Eq for Device {}

/// Bytes a microsecond of a port, from the codes of `enum ib_port_speed` and `enum ib_port_width`.
fn port_rate(speed: u32, width: u32) -> u32 {
    // Signalling, in Mbit/s of a lane.
    let lane = match speed {
        1 => 2_500,
        2 => 5_000,
        4 | 8 => 10_000,
        16 => 14_000,
        32 => 25_000,
        64 => 50_000,
        128 => 100_000,
        256 => 200_000,
        _ => 0,
    };
    let lanes = match width {
        1 => 1,
        2 => 4,
        4 => 8,
        8 => 12,
        16 => 2,
        _ => 0,
    };
    lane * lanes / 8
}

/// A device's name, copied.
pub(crate) struct DeviceName([u8; 64]);

impl DeviceName {
    /// The bytes of the name, without the NUL.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.0.split(|&b| b == 0).next().unwrap_or(&[])
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(core::str::from_utf8(self.as_bytes()).unwrap_or("?"))
    }
}

/// Capabilities of a device, see `struct ib_device_attr`.
#[derive(Clone, Copy)]
pub(crate) struct Attrs {
    /// Work requests in one queue.
    pub(crate) max_qp_wr: u32,
    /// Scatter/gather elements of one send.
    pub(crate) max_send_sge: u32,
    /// The same of one READ.
    pub(crate) max_read_sge: u32,
    /// The same of one receive.
    pub(crate) max_recv_sge: u32,
    /// Entries of one completion queue.
    pub(crate) max_cqe: u32,
    /// Shared receive queues.
    pub(crate) max_srq: u32,
    /// Work requests in one shared receive queue.
    pub(crate) max_srq_wr: u32,
    /// Scatter/gather elements of one shared receive.
    pub(crate) max_srq_sge: u32,
    /// READs of a queue pair that may be outstanding, in either direction.
    pub(crate) max_reads: u32,
    /// Pages of one fast-registered region.
    pub(crate) max_fast_reg_pages: u32,
    /// Bit n: a region can be made of pages of 2^n bytes.
    pub(crate) page_size_cap: u64,
    /// REG_MR and LOCAL_INV work requests are there.
    pub(crate) fast_registration: bool,
}

/// The events of `enum ib_event_type` that a device reports to its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeviceEvent {
    /// The device has failed: its queue pairs do nothing any more, and say nothing.
    Failed,
    /// A port has come up, perhaps with another rate, or has another rate; or the client has just
    /// seen the device.
    PortActive,
    /// An address has come to a port, or has gone.
    GidChange,
}

/// A client of the RDMA core: notified of devices that come and go.
///
/// Only devices that kernel users can drive are shown (the core checks).
pub(crate) trait Client: 'static {
    /// The name in messages and in the core's bookkeeping.
    const NAME: &'static CStr;

    /// State shared by all devices.
    type Context: Send + Sync + 'static;

    /// The client's state for one device.
    type Data: Send + Sync + 'static;

    /// A device has come. May sleep. On an error the device is left alone.
    fn add(context: &Self::Context, device: &Device) -> Result<Arc<Self::Data>>;

    /// Something has happened to the device. The caller holds locks of the core, under which the
    /// device must not be asked anything: schedule work, which [`Client::remove`] waits for.
    fn event(context: &Self::Context, data: &Arc<Self::Data>, event: DeviceEvent);

    /// The device goes, or the client is being unregistered. May sleep; returns when every object
    /// on the device is gone or will go without further help. Removal of the device waits for
    /// the last [`Device`] after that.
    fn remove(context: &Self::Context, device: &Device, data: Arc<Self::Data>);
}

/// The one client of this module: the core's callback names only the device, and setting the
/// data needs the client. Written only by [`ClientRegistration`].
static CLIENT: Atomic<usize> = Atomic::new(0);

/// The core's client, followed by our fields.
#[repr(C)]
struct Registered<T: Client> {
    // First, so that the core's pointer is one to the whole.
    client: bindings::ib_client,
    context: T::Context,
}

/// The per-device state that the core keeps for us.
#[repr(C)]
struct Attached<T: Client> {
    // First, so that the core's pointer is one to the whole.
    events: bindings::ib_event_handler,
    device: Device,
    data: Arc<T::Data>,
}

/// A registered client. One at a time per module.
///
/// Dropping it calls [`Client::remove`] for each device and returns when no callback runs or will
/// run again; it sleeps.
///
/// # Invariants
///
/// `client` is registered with the core, comes from `KBox::into_raw`, and [`CLIENT`] names it.
pub(crate) struct ClientRegistration<T: Client> {
    client: NonNull<Registered<T>>,
}

// SAFETY: The registration is a handle of a core object with its own locking; the context may be
// sent.
unsafe impl<T: Client> Send for ClientRegistration<T> {}
// SAFETY: There is nothing to do with a shared reference.
unsafe impl<T: Client> Sync for ClientRegistration<T> {}

impl<T: Client> ClientRegistration<T> {
    /// Registers the client; [`Client::add`] is called for every device there is before this
    /// returns. Sleeps.
    ///
    /// # Errors
    ///
    /// `EBUSY` if this module has a client already, `ENOMEM`.
    pub(crate) fn new(context: T::Context) -> Result<Self> {
        let client = bindings::ib_client {
            name: T::NAME.as_char_ptr(),
            add: Some(Self::add),
            remove: Some(Self::remove),
            ..Default::default()
        };
        let client = KBox::into_raw(KBox::new(Registered::<T> { client, context }, GFP_KERNEL)?);
        if CLIENT.cmpxchg(0, client as usize, Full).is_err() {
            // SAFETY: It came from `KBox::into_raw` above and was not shared.
            drop(unsafe { KBox::from_raw(client) });
            return Err(EBUSY);
        }
        // SAFETY: `client` is initialised, its callbacks match the core's types, and it stays where
        // it is until it has been unregistered.
        if let Err(e) = to_result(unsafe { bindings::ib_register_client(client.cast()) }) {
            CLIENT.store(0, Relaxed);
            // SAFETY: The core has forgotten it; it came from `KBox::into_raw` above.
            drop(unsafe { KBox::from_raw(client) });
            return Err(e);
        }
        // INVARIANT: It has been registered, and `CLIENT` names it.
        Ok(Self {
            // SAFETY: `KBox::into_raw` gives no null pointer.
            client: unsafe { NonNull::new_unchecked(client) },
        })
    }

    /// # Safety
    ///
    /// Called by the core with a valid device that is being registered with this client.
    unsafe extern "C" fn add(ibdev: *mut bindings::ib_device) -> i32 {
        from_result(|| {
            // SAFETY: The core's device is valid during the callback.
            let device = unsafe { Device::try_get(ibdev) }.ok_or(ENODEV)?;
            let uninit = KBox::<Attached<T>>::new_uninit(GFP_KERNEL)?;
            let client = CLIENT.load(Relaxed) as *mut Registered<T>;
            // SAFETY: Callbacks run only while the client that `CLIENT` names is there; its context
            // does not change.
            let data = T::add(unsafe { &(*client).context }, &device)?;
            let events = bindings::ib_event_handler {
                device: ibdev,
                handler: Some(Self::event),
                ..Default::default()
            };
            let attached = Attached {
                events,
                device,
                data,
            };
            let attached = KBox::into_raw(KBox::write(uninit, attached));
            // SAFETY: Callbacks run only while the client that `CLIENT` names is registered, and
            // the core calls us with the locks held that setting the data needs. `remove` takes the
            // box back, and unregisters the handler, which is in the box, before.
            unsafe {
                bindings::ib_set_client_data(ibdev, client.cast(), attached.cast());
                bindings::ib_register_event_handler(addr_of_mut!((*attached).events));
            }
            // Port events since `T::add` were missed.
            // SAFETY: The callback of a client that is there, as above; `remove` does not run yet.
            unsafe {
                T::event(
                    &(*client).context,
                    &(*attached).data,
                    DeviceEvent::PortActive,
                )
            };
            Ok(0)
        })
    }

    /// # Safety
    ///
    /// Called by the core with a handler that `add` has registered, and a valid event.
    unsafe extern "C" fn event(
        handler: *mut bindings::ib_event_handler,
        event: *mut bindings::ib_event,
    ) {
        // SAFETY: The event is valid during the call.
        let event = match unsafe { (*event).event } {
            bindings::ib_event_type_IB_EVENT_DEVICE_FATAL => DeviceEvent::Failed,
            bindings::ib_event_type_IB_EVENT_PORT_ACTIVE
            | bindings::ib_event_type_IB_EVENT_DEVICE_SPEED_CHANGE => DeviceEvent::PortActive,
            bindings::ib_event_type_IB_EVENT_GID_CHANGE => DeviceEvent::GidChange,
            _ => return,
        };
        // SAFETY: The handler is the first field of an `Attached<T>` (`repr(C)`), which is there
        // until the handler is unregistered.
        let attached = unsafe { &*handler.cast::<Attached<T>>() };
        let client = CLIENT.load(Relaxed) as *mut Registered<T>;
        // SAFETY: As in `remove`, which waits for this call.
        let context = unsafe { &(*client).context };
        T::event(context, &attached.data, event);
    }

    /// # Safety
    ///
    /// Called by the core once for each device whose `add` succeeded, with the data set there.
    unsafe extern "C" fn remove(_ibdev: *mut bindings::ib_device, data: *mut c_void) {
        if data.is_null() {
            return;
        }
        let attached = data.cast::<Attached<T>>();
        // SAFETY: `data` is what `add` set for this device, and its handler is registered. No
        // handler runs when this returns.
        unsafe { bindings::ib_unregister_event_handler(addr_of_mut!((*attached).events)) };
        // SAFETY: It is a `KBox<Attached<T>>`, and the core gives it to us this once.
        let attached = unsafe { KBox::from_raw(attached) };
        let Attached { device, data, .. } = KBox::into_inner(attached);
        let client = CLIENT.load(Relaxed) as *mut Registered<T>;
        // SAFETY: Callbacks run only while the client that `CLIENT` names is there; its context
        // does not change.
        T::remove(unsafe { &(*client).context }, &device, data);
    }
}

impl<T: Client> Drop for ClientRegistration<T> {
    fn drop(&mut self) {
        // SAFETY: By the type invariants it is registered. This is a full fence for the callbacks.
        unsafe { bindings::ib_unregister_client(self.client.as_ptr().cast()) };
        CLIENT.store(0, Relaxed);
        // SAFETY: By the type invariants it comes from `KBox::into_raw`, and the core has forgotten
        // it.
        drop(unsafe { KBox::from_raw(self.client.as_ptr()) });
    }
}
