// SPDX-License-Identifier: GPL-2.0
//! The functions of `librdmacm.so.1`, with the prototypes of `<rdma/rsocket.h>`.

use std::io;
use std::sync::OnceLock;

use libc::{c_int, c_void, nfds_t, pollfd, size_t, sockaddr, socklen_t, ssize_t};
use libloading::Library;

const LIBRARY: &str = "librdmacm.so.1";

macro_rules! api {
    ($($name:ident: fn($($arg:ty),*) -> $ret:ty,)*) => {
        pub(crate) struct Api {
            $(pub(crate) $name: unsafe extern "C" fn($($arg),*) -> $ret,)*
        }

        impl Api {
            fn load() -> Result<Self, libloading::Error> {
                // SAFETY: librdmacm's initialisers have no requirements.
                let library = unsafe { Library::new(LIBRARY)? };
                let api = Self {
                    // SAFETY: the types are those of <rdma/rsocket.h>.
                    $($name: unsafe { *library.get(concat!(stringify!($name), "\0").as_bytes())? },)*
                };
                // The functions must stay, and librdmacm does not survive its unloading.
                std::mem::forget(library);
                Ok(api)
            }
        }
    };
}

api! {
    rsocket: fn(c_int, c_int, c_int) -> c_int,
    rbind: fn(c_int, *const sockaddr, socklen_t) -> c_int,
    rlisten: fn(c_int, c_int) -> c_int,
    raccept: fn(c_int, *mut sockaddr, *mut socklen_t) -> c_int,
    rconnect: fn(c_int, *const sockaddr, socklen_t) -> c_int,
    rshutdown: fn(c_int, c_int) -> c_int,
    rclose: fn(c_int) -> c_int,
    rrecv: fn(c_int, *mut c_void, size_t, c_int) -> ssize_t,
    rgetsockname: fn(c_int, *mut sockaddr, *mut socklen_t) -> c_int,
    rsend: fn(c_int, *const c_void, size_t, c_int) -> ssize_t,
    rpoll: fn(*mut pollfd, nfds_t, c_int) -> c_int,
}

/// The library, loaded by the first caller.
pub(crate) fn api() -> io::Result<&'static Api> {
    static API: OnceLock<Result<Api, String>> = OnceLock::new();
    API.get_or_init(|| Api::load().map_err(|e| e.to_string()))
        .as_ref()
        .map_err(|e| {
            let text = format!("cannot load {LIBRARY}: {e}; install the package librdmacm1");
            io::Error::new(io::ErrorKind::NotFound, text)
        })
}
