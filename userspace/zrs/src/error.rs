// SPDX-License-Identifier: GPL-2.0
//! Errors with the failed operation and a hint.

use std::io;

use rustix::io::Errno;
use zrs_sys::abi::{
    ZRS_FEATURE_IPV6, ZRS_FEATURE_RECV_MAP, ZRS_FEATURE_RING_WAIT, ZRS_FEATURE_RX_RING,
};

use crate::{Version, Zrs};

/// An error, its context, and a hint. Found inside the [`io::Error`]s of this crate's constructors;
/// [`os_error`] gets the errno out of either kind.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {}{}", reason(.source), Hint(.hint))]
pub struct Error {
    /// The failed operation: "cannot connect to 10.0.0.2:7000".
    pub what: String,
    /// A hint for the user, may be empty.
    pub hint: String,
    /// The error itself.
    pub source: io::Error,
}

struct Hint<'a>(&'a String);

impl std::fmt::Display for Hint<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0.as_str() {
            "" => Ok(()),
            hint => write!(f, "; {hint}"),
        }
    }
}

/// The module does not know a call.
#[derive(Debug, thiserror::Error)]
#[error("{call}: the zrs module that is loaded is older than this library, and does not know this")]
struct Unknown {
    call: &'static str,
    source: io::Error,
}

/// The errno in an error of this crate or of the system.
pub fn os_error(error: &io::Error) -> Option<i32> {
    error.raw_os_error().or_else(|| {
        let inner = error.get_ref()?;
        let source = match inner.downcast_ref::<Error>() {
            Some(error) => &error.source,
            None => &inner.downcast_ref::<Unknown>()?.source,
        };
        source.raw_os_error()
    })
}

/// An error's reason in a few plain words, without its number.
pub fn reason(error: &io::Error) -> String {
    let mut text = error.to_string();
    if let Some(at) = text.find(" (os error ") {
        text.truncate(at);
        // "Connection refused" inside a sentence; "RDMA ..." as it is.
        let mut chars = text.chars();
        if let (Some(first), Some(second)) = (chars.next(), chars.next()) {
            if second.is_lowercase() {
                text = first.to_lowercase().chain(text.chars().skip(1)).collect();
            }
        }
    }
    text
}

const NOT_LOADED: &str = "the zrs module is not loaded: sudo modprobe zrs";
const DRAINED: &str = "the zrs module is to be unloaded: zrs drain --stop, to use it again";

/// Why there are no ZRS sockets. `drain`: the text of that parameter of the module, if it is loaded.
fn no_sockets(drain: io::Result<String>) -> &'static str {
    match drain {
        Ok(text) if text.trim() != "0" => DRAINED,
        _ => NOT_LOADED,
    }
}

/// Wraps `source`, keeping its kind.
pub(crate) fn context(what: String, hint: impl Into<String>, source: io::Error) -> io::Error {
    io::Error::new(
        source.kind(),
        Error {
            what,
            hint: hint.into(),
            source,
        },
    )
}

/// For a call of `/dev/zrs`: a module that does not know it is older.
pub(crate) fn unknown(call: &'static str) -> impl FnOnce(io::Error) -> io::Error {
    move |source| match errno(&source) {
        Some(Errno::NOTTY) => io::Error::new(source.kind(), Unknown { call, source }),
        _ => source,
    }
}

/// The hint for a call that needs a feature (`ZRS_FEATURE_*`), if `module` has not got it.
fn lacking(module: io::Result<Version>, feature: u64) -> Option<String> {
    let name = module.ok()?.lacks(feature)?;
    Some(format!(
        "the zrs module that is loaded is older than this library, and has no {name}"
    ))
}

fn loaded() -> io::Result<Version> {
    Zrs::open()?.version()
}

pub(crate) fn socket(source: io::Error) -> io::Error {
    let hint = match errno(&source) {
        Some(Errno::PROTONOSUPPORT | Errno::SOCKTNOSUPPORT) => {
            no_sockets(std::fs::read_to_string("/sys/module/zrs/parameters/drain")).into()
        }
        Some(Errno::NOMEM) => "no memory for the receive pool: load zrs with a smaller one".into(),
        Some(Errno::AFNOSUPPORT) => lacking(loaded(), ZRS_FEATURE_IPV6).unwrap_or_default(),
        _ => String::new(),
    };
    context("cannot make a ZRS socket".into(), hint, source)
}

pub(crate) fn connect(addr: impl std::fmt::Display, source: io::Error) -> io::Error {
    let hint = match errno(&source) {
        Some(Errno::CONNREFUSED) => "is a receiver listening there?".into(),
        Some(Errno::NODEV | Errno::NETUNREACH | Errno::HOSTUNREACH) => {
            format!("no RDMA device reaches {addr}: `rdma link` lists the devices")
        }
        Some(Errno::TIMEDOUT) => {
            "the host does not answer: is it up, with the zrs module loaded?".into()
        }
        Some(Errno::PROTO) => "the peer's ZRS and this one have no version in common".into(),
        Some(Errno::NOBUFS | Errno::NOMEM) => "the receive pool is used up: `zrs pool`".into(),
        _ => String::new(),
    };
    context(format!("cannot connect to {addr}"), hint, source)
}

pub(crate) fn bind(addr: impl std::fmt::Display, source: io::Error) -> io::Error {
    let hint = match errno(&source) {
        Some(Errno::ADDRINUSE) => "another ZRS socket has this port: `zrs ss` lists them",
        Some(Errno::ADDRNOTAVAIL) => "it is not an address of this host",
        Some(Errno::ACCESS) => "ports below 1024 need privilege",
        Some(Errno::NODEV) => "no RDMA device has this address: `rdma link` lists the devices",
        _ => "",
    };
    context(format!("cannot listen on {addr}"), hint, source)
}

pub(crate) fn rx_ring(source: io::Error) -> io::Error {
    let hint = match errno(&source) {
        Some(Errno::NOBUFS) => "the receive pool has no window to lease: `zrs pool`".into(),
        Some(Errno::NOPROTOOPT) => lacking(loaded(), ZRS_FEATURE_RX_RING)
            .unwrap_or_else(|| "this is not a ZRS socket".into()),
        Some(Errno::NOTCONN) => "the socket is not connected".into(),
        _ => String::new(),
    };
    context("cannot make the receive ring".into(), hint, source)
}

/// Of a wait for the ring.
pub(crate) fn ring_wait(source: io::Error) -> io::Error {
    match errno(&source) {
        Some(Errno::NOTTY) => {
            let hint = lacking(loaded(), ZRS_FEATURE_RING_WAIT).unwrap_or_default();
            context("cannot wait for the receive ring".into(), hint, source)
        }
        _ => source,
    }
}

pub(crate) fn area(source: io::Error) -> io::Error {
    let hint = match errno(&source) {
        Some(Errno::NODEV) => lacking(loaded(), ZRS_FEATURE_RECV_MAP)
            .unwrap_or_else(|| "this is not a ZRS socket".into()),
        Some(Errno::INVAL) => "the length has to be a multiple of the page size".into(),
        _ => String::new(),
    };
    context("cannot reserve addresses".into(), hint, source)
}

pub(crate) fn device(source: io::Error) -> io::Error {
    let hint = match errno(&source) {
        Some(Errno::NOENT | Errno::NXIO | Errno::NODEV) => NOT_LOADED,
        _ => "",
    };
    context(
        format!("cannot open {}", zrs_sys::Device::PATH),
        hint,
        source,
    )
}

fn errno(error: &io::Error) -> Option<Errno> {
    error.raw_os_error().map(Errno::from_raw_os_error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(errno: Errno) -> io::Error {
        errno.into()
    }

    #[test]
    fn a_module_that_goes_is_no_missing_one() {
        assert_eq!(no_sockets(Ok("1\n".into())), DRAINED);
        assert_eq!(no_sockets(Ok("0\n".into())), NOT_LOADED);
        assert_eq!(no_sockets(Err(raw(Errno::NOENT))), NOT_LOADED);
    }

    #[test]
    fn says_what_why_and_what_to_do() {
        assert_eq!(
            connect("10.0.0.2:7000", raw(Errno::CONNREFUSED)).to_string(),
            "cannot connect to 10.0.0.2:7000: connection refused; is a receiver listening there?"
        );
        assert_eq!(
            socket(raw(Errno::PROTONOSUPPORT)).to_string(),
            "cannot make a ZRS socket: protocol not supported; \
             the zrs module is not loaded: sudo modprobe zrs"
        );
        assert_eq!(
            device(raw(Errno::ACCESS)).to_string(),
            "cannot open /dev/zrs: permission denied"
        );
    }

    #[test]
    fn says_what_an_older_module_has_not() {
        let module = |features| {
            Ok(Version {
                version: 2,
                features,
            })
        };
        assert_eq!(
            lacking(module(1), ZRS_FEATURE_RX_RING).as_deref(),
            Some(
                "the zrs module that is loaded is older than this library, and has no receive ring"
            )
        );
        assert_eq!(lacking(module(3), ZRS_FEATURE_RX_RING), None);
        assert_eq!(lacking(Err(raw(Errno::NOENT)), ZRS_FEATURE_RX_RING), None);
    }

    #[test]
    fn errno_and_kind_survive() {
        let error = connect("10.0.0.2:7000", raw(Errno::CONNREFUSED));
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        assert_eq!(os_error(&error), Some(Errno::CONNREFUSED.raw_os_error()));
        assert_eq!(
            os_error(&raw(Errno::PIPE)),
            Some(Errno::PIPE.raw_os_error())
        );
        assert_eq!(os_error(&io::ErrorKind::Other.into()), None);
    }
}
