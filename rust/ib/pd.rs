// SPDX-License-Identifier: GPL-2.0

//! Protection domains.
//!
//! C header: `include/rdma/ib_verbs.h`.

use super::device::Device;
use crate::{bindings, kern::fault::points};
use core::ptr::NonNull;
use kernel::{error::from_err_ptr, prelude::*, sync::Arc};

/// A protection domain: what queue pairs, shared receive queues and memory regions share, and the
/// key for local memory.
///
/// # Invariants
///
/// `ptr` is a domain made on `device`, owned by this object.
pub(crate) struct Pd {
    ptr: NonNull<bindings::ib_pd>,
    device: Device,
}

// SAFETY: The core and the drivers lock what concurrent users of a domain share.
unsafe impl Send for Pd {}
// SAFETY: As above.
unsafe impl Sync for Pd {}

impl Pd {
    /// Makes a domain. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, or the driver's errors.
    pub(crate) fn new(device: &Device) -> Result<Arc<Self>> {
        points::CREATE.check()?;
        // SAFETY: The device is valid and registered; no flags, so no key for all of memory is
        // made for remote use.
        let ptr = from_err_ptr(unsafe {
            bindings::__ib_alloc_pd(device.as_ptr(), 0, c"zrs".as_char_ptr())
        })?;
        // INVARIANT: The domain is ours and on `device`.
        let pd = Self {
            ptr: NonNull::new(ptr).ok_or(ENOMEM)?,
            device: device.clone(),
        };
        Ok(Arc::new(pd, GFP_KERNEL)?)
    }

    /// The raw domain.
    pub(super) fn as_ptr(&self) -> *mut bindings::ib_pd {
        self.ptr.as_ptr()
    }

    /// The device.
    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    /// The local key for DMA addresses: it never leaves this room but inside an [`Sge`].
    ///
    /// [`Sge`]: super::dma::Sge
    pub(super) fn local_dma_lkey(&self) -> u32 {
        // SAFETY: By the type invariants the domain is valid; the key is constant.
        unsafe { (*self.as_ptr()).local_dma_lkey }
    }
}

impl Drop for Pd {
    fn drop(&mut self) {
        // SAFETY: By the type invariants the domain is ours. Everything in it holds an `Arc` of it,
        // so nothing is left in it.
        let ret = unsafe { bindings::ib_dealloc_pd_user(self.as_ptr(), core::ptr::null_mut()) };
        if ret != 0 {
            pr_err!("ib: freeing a protection domain failed: {}\n", ret);
        }
    }
}
