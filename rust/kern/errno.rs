// SPDX-License-Identifier: GPL-2.0

//! Error numbers that the kernel crate does not declare.
//!
//! C header: [`include/uapi/asm-generic/errno.h`](srctree/include/uapi/asm-generic/errno.h)

use kernel::error::Error;

macro_rules! declare {
    ($($name:ident: $doc:literal,)*) => {
        $(
            #[doc = $doc]
            #[allow(non_snake_case)]
            pub(crate) fn $name() -> Error {
                Error::from_errno(-(crate::bindings::$name as i32))
            }
        )*
    };
}

declare! {
    EPROTO: "Protocol error.",
    ENOPROTOOPT: "Protocol not available.",
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
}
