// SPDX-License-Identifier: GPL-2.0

//! Error numbers of sockets.
//!
//! C header: [`include/uapi/asm-generic/errno.h`](srctree/include/uapi/asm-generic/errno.h). The
//! kernel crate declares all error numbers from Linux 7.3 on.

#[cfg(zrs_linux_7_3)]
pub(crate) use kernel::error::code::{
    EADDRINUSE, EADDRNOTAVAIL, EAFNOSUPPORT, EALREADY, ECONNREFUSED, ECONNRESET, EDESTADDRREQ,
    EDQUOT, EHOSTUNREACH, EHWPOISON, EINPROGRESS, EISCONN, EMSGSIZE, ENETUNREACH, ENOBUFS,
    ENOPROTOOPT, ENOTCONN, EOPNOTSUPP, EPROTO, EPROTONOSUPPORT, ESOCKTNOSUPPORT, ESTALE,
};

#[cfg(not(zrs_linux_7_3))]
pub(crate) use before_7_3::*;

/// The constants for Linux 7.2, whose kernel crate neither declares them nor has a constant
/// constructor.
#[cfg(not(zrs_linux_7_3))]
mod before_7_3 {
    use core::mem::{align_of, size_of, transmute};
    use kernel::error::Error;

    const _: () =
        assert!(size_of::<Error>() == size_of::<i32>() && align_of::<Error>() == align_of::<i32>());

    macro_rules! declare {
        ($($name:ident: $doc:literal,)*) => {
            $(
                #[doc = $doc]
                // SAFETY: Linux 7.2's `Error` has one field, a `NonZeroI32`, and no other bytes
                // (asserted above); the number is negative and not below `-MAX_ERRNO`, which is the
                // type's invariant.
                pub(crate) const $name: Error =
                    unsafe { transmute::<i32, Error>(-(crate::bindings::$name as i32)) };
            )*
        };
    }

    declare! {
        EDESTADDRREQ: "Destination address required.",
        EMSGSIZE: "Message too long.",
        EPROTO: "Protocol error.",
        ENOPROTOOPT: "Protocol not available.",
        EPROTONOSUPPORT: "Protocol not supported.",
        ESOCKTNOSUPPORT: "Socket type not supported.",
        EOPNOTSUPP: "Operation not supported on transport endpoint.",
        EAFNOSUPPORT: "Address family not supported by protocol.",
        EADDRINUSE: "Address already in use.",
        EADDRNOTAVAIL: "Cannot assign requested address.",
        ENETUNREACH: "Network is unreachable.",
        ECONNRESET: "Connection reset by peer.",
        ENOBUFS: "No buffer space available.",
        EISCONN: "Transport endpoint is already connected.",
        ENOTCONN: "Transport endpoint is not connected.",
        ECONNREFUSED: "Connection refused.",
        EHOSTUNREACH: "No route to host.",
        EALREADY: "Operation already in progress.",
        EINPROGRESS: "Operation now in progress.",
        EDQUOT: "Quota exceeded.",
        EHWPOISON: "Memory page has hardware error.",
        ESTALE: "Stale file handle.",
    }
}
