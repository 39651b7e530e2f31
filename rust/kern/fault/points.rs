// SPDX-License-Identifier: GPL-2.0

//! The fault injection points of this module's wrappers, with their errno.

use super::Point;
use crate::bindings::{EIO, ENOMEM};

macro_rules! points {
    ($($(#[doc = $doc:literal])* $static:ident = $name:literal, $errno:expr;)*) => {
        $(
            $(#[doc = $doc])*
            pub static $static: Point = Point::new($name, $errno);
        )*

        /// All of them.
        #[cfg(CONFIG_FAULT_INJECTION_DEBUG_FS)]
        pub(super) static ALL: &[&Point] = &[$(&$static),*];
    };
}

points! {
    /// Posting to a send queue: nothing of the chain is taken.
    POST = c"fail_post", ENOMEM;
    /// Posting to a send queue: the first half of the chain is taken.
    POST_HALF = c"fail_post_half", ENOMEM;
    /// Posting to a shared receive queue: nothing is taken.
    POST_RECV = c"fail_post_recv", ENOMEM;
    /// Making a protection domain, completion queue, shared receive queue or queue pair.
    CREATE = c"fail_create", ENOMEM;
    /// Making or describing a memory region.
    REGISTER = c"fail_register", ENOMEM;
    /// Deregistering a memory region that the peer may have used.
    DEREGISTER = c"fail_deregister", EIO;
    /// Mapping memory for a device.
    MAP = c"fail_map", ENOMEM;
    /// Pinning a program's pages.
    PIN = c"fail_pin", ENOMEM;
    /// Making a page for a copy of sent data.
    PAGES = c"fail_pages", ENOMEM;
    /// Making memory that is shared with programs.
    SHARE = c"fail_share", ENOMEM;
    /// Arming a completion queue.
    ARM = c"fail_arm", EIO;
    /// A completion says error, and all that follow in its queue say that they were flushed.
    COMPLETION = c"fail_completion", EIO;
    /// Setting a queue pair to error.
    MODIFY = c"fail_modify", EIO;
    /// A call of the connection manager.
    CM = c"fail_cm", ENOMEM;
}
