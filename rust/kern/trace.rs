// SPDX-License-Identifier: GPL-2.0

//! Tracepoints: those of `rust/helpers/zrs_trace.h`, which says what their fields are.
//!
//! Each is a function that takes a closure, which makes the values. While the event is disabled,
//! all of it is an instruction that does nothing, and the closure, out of line, is never called.
//!
//! The kernel crate's `declare_trace!` finds only tracepoints of the kernel's own bindings; this is
//! the same for a module's.
//!
//! C header: [`include/linux/tracepoint.h`](srctree/include/linux/tracepoint.h)

use crate::bindings;
use core::net::SocketAddr;

/// The connection that an event is about.
pub struct Ends {
    /// The number of the channel and its generation, 0: none.
    pub chan: (u32, u32),
    /// Our address.
    pub local: SocketAddr,
    /// The peer's.
    pub remote: SocketAddr,
}

const ADDR: usize = size_of::<bindings::sockaddr_in6>();

/// `addr` as `struct sockaddr_in` or `sockaddr_in6`.
fn raw(addr: &SocketAddr) -> [u8; ADDR] {
    let mut raw = [0; ADDR];
    let mut put = |at: usize, bytes: &[u8]| {
        for (to, from) in raw.iter_mut().skip(at).zip(bytes) {
            *to = *from;
        }
    };
    put(2, &addr.port().to_be_bytes());
    match addr {
        SocketAddr::V4(v4) => {
            put(0, &(bindings::AF_INET as u16).to_ne_bytes());
            put(4, &v4.ip().octets());
        }
        SocketAddr::V6(v6) => {
            put(0, &(bindings::AF_INET6 as u16).to_ne_bytes());
            put(4, &v6.flowinfo().to_ne_bytes());
            put(8, &v6.ip().octets());
            put(24, &v6.scope_id().to_ne_bytes());
        }
    }
    raw
}

/// How data leaves a program, or reaches it.
#[derive(Clone, Copy)]
pub enum DataPath {
    /// The CPU copies it.
    Copy,
    /// From the program's pages.
    Pin,
    /// By pages that it maps.
    Map,
    /// By pages in a pipe.
    Splice,
    /// By its ring.
    Ring,
}

/// The resource that a sender waits for.
#[derive(Clone, Copy)]
pub enum Stall {
    /// Room that the peer gives the channel.
    Channel,
    /// Room on the link, or the turn on it.
    Link,
    /// Room in the socket's send buffer: SO_SNDBUF.
    Buffer,
}

/// The memory that unread data was moved out of.
#[derive(Clone, Copy)]
pub enum EscapedFrom {
    /// A window.
    Window,
    /// A window that a ring shows, which shows it elsewhere from then on.
    Ring,
    /// A block of the shared receive queue.
    Block,
}

/// An argument of a tracepoint.
trait Arg {
    /// As C has it,
    type Raw;
    /// and as it is passed.
    type Passed;
    fn raw(&self) -> Self::Raw;
    fn pass(raw: &Self::Raw) -> Self::Passed;
}

impl Arg for Ends {
    type Raw = bindings::zrs_trace_ends;
    type Passed = *const bindings::zrs_trace_ends;

    fn raw(&self) -> Self::Raw {
        bindings::zrs_trace_ends {
            chan: self.chan.0,
            gen: self.chan.1,
            lport: self.local.port(),
            rport: self.remote.port(),
            local: raw(&self.local),
            remote: raw(&self.remote),
        }
    }

    fn pass(raw: &Self::Raw) -> Self::Passed {
        raw
    }
}

macro_rules! plain {
    ($($ty:ty),*) => {
        $(
            impl Arg for $ty {
                type Raw = $ty;
                type Passed = $ty;

                fn raw(&self) -> $ty {
                    *self
                }

                fn pass(raw: &$ty) -> $ty {
                    *raw
                }
            }
        )*
    };
}

plain!(i32, u32, i64, u64);

macro_rules! numbered {
    ($($ty:ty { $($variant:ident = $number:ident),* })*) => {
        $(
            impl Arg for $ty {
                type Raw = u32;
                type Passed = u32;

                fn raw(&self) -> u32 {
                    match self {
                        $(Self::$variant => bindings::$number,)*
                    }
                }

                fn pass(raw: &u32) -> u32 {
                    *raw
                }
            }
        )*
    };
}

numbered! {
    DataPath {
        Copy = ZRS_BY_COPY,
        Pin = ZRS_BY_PINNING,
        Map = ZRS_BY_MAPPING,
        Splice = ZRS_BY_SPLICE,
        Ring = ZRS_BY_RING
    }
    Stall {
        Channel = ZRS_STALL_CHANNEL,
        Link = ZRS_STALL_LINK,
        Buffer = ZRS_STALL_BUFFER
    }
    EscapedFrom { Window = ZRS_MOVED_WINDOW, Ring = ZRS_MOVED_RING, Block = ZRS_MOVED_BLOCK }
}

macro_rules! events {
    ($(
        $(#[doc = $doc:literal])*
        $name:ident, $on:ident($($arg:ident: $ty:ty),*);
    )*) => {
        $(
            #[doc = concat!("Whether somebody wants to know of [`", stringify!($name), "()`]. Any context.")]
            #[inline(always)]
            pub fn $on() -> bool {
                kernel::macros::paste! {
                    // SAFETY: The key is that of a tracepoint, which C has made.
                    unsafe {
                        kernel::jump_label::static_branch_unlikely!(
                            bindings::[<__tracepoint_zrs_ $name>],
                            bindings::tracepoint,
                            key
                        )
                    }
                }
            }

            $(#[doc = $doc])*
            ///
            /// Context: any in which `values` may be called.
            #[inline(always)]
            pub fn $name(values: impl FnOnce() -> ($($ty,)*)) {
                #[cold]
                #[inline(never)]
                fn tell(values: impl FnOnce() -> ($($ty,)*)) {
                    let ($($arg,)*) = values();
                    $(let $arg = $arg.raw();)*
                    kernel::macros::paste! {
                        // SAFETY: The pointers are to our stack, and their targets are copied.
                        unsafe {
                            bindings::[<rust_do_trace_zrs_ $name>]($(<$ty as Arg>::pass(&$arg)),*)
                        };
                    }
                }
                if $on() {
                    tell(values);
                }
            }
        )*
    };
}

events! {
    /// An attempt to connect has ended: 0, or a negative errno.
    connect, connect_on(ends: Ends, err: i32);
    /// TCP carries a socket from now on: `ZRS_WHY_*`.
    fallback, fallback_on(ends: Ends, why: u32);
    /// accept() has taken a connection; the backlog that still waits.
    accept, accept_on(ends: Ends, backlog: u32);
    /// The last descriptor of a socket is closed: bytes sent, received, and never read.
    close, close_on(ends: Ends, tx_bytes: u64, rx_bytes: u64, unread: u64);
    /// The state has changed: two of `ZRS_STATE_*`.
    state, state_on(ends: Ends, old: u32, new: u32);
    /// A send is over: bytes asked for, bytes sent or a negative errno, [`DataPath`].
    send, send_on(ends: Ends, want: u64, ret: i64, way: DataPath);
    /// A receive is over, as [`send()`]; or a program has given back bytes that it read in its
    /// ring.
    recv, recv_on(ends: Ends, want: u64, ret: i64, way: DataPath);
    /// A sender finds no room for `want` bytes.
    stall, stall_on(ends: Ends, want: u32, what: Stall);
    /// A message of `len` bytes was moved out of the pool, `age_us` microseconds after it came.
    escape, escape_on(ends: Ends, len: u32, of: EscapedFrom, age_us: u64);
    /// A link can carry channels: its number, addresses without ports, and whether the peer has
    /// made it (0, 1).
    link_up, link_up_on(link: u32, ends: Ends, accepted: u32);
    /// A link has ended: as [`link_up()`]; whether it was up (0, 1), its channels, a negative
    /// errno.
    link_down, link_down_on(link: u32, ends: Ends, accepted: u32, was_up: u32, channels: u32, err: i32);
    /// A memory node's host is asked: the requester's address, domain and number of the node, the
    /// operation's number, and its bytes.
    mem_ask, mem_ask_on(ends: Ends, domain: u32, node: u32, op: u32, bytes: u64);
    /// It answers: 0, or a negative errno.
    mem_answer, mem_answer_on(ends: Ends, op: u32, err: i32);
}
