// SPDX-License-Identifier: GPL-2.0
//! ZRS, zero-copy RDMA sockets, in the image of [`std::net`].
//!
//! [`Stream`] and [`Listener`] are used as `TcpStream` and `TcpListener` are; the module `zrs` has
//! to be loaded. Plain reads copy once. Without copies:
//!
//! - sends of more than 64 KiB go out from the caller's pages, but for their last 64 KiB (the
//!   module's parameter `copy_tail_kib`); [`PageBuf`] makes such buffers of few, long physical runs;
//! - [`Stream::send_zero_copy`] does the same for any size above 4 KiB, whole, does not wait for the
//!   device, and says by a [`Completion`] when it is done; an [`Outgoing`] owns its buffer until
//!   then;
//! - [`Stream::rx_ring`] gives the bytes where the device put them, as [`Segment`]s; dropping a
//!   segment gives its room back to the peer. A hostile peer can still change such bytes, so they
//!   are a [`View`], not a slice;
//! - [`Stream::area`] reserves addresses at which received data is mapped: for programs that want
//!   it at a place of their choice, write it to files by `O_DIRECT`, or send it on.
//!
//! [`mem`] is for memory nodes.
//!
//! [`Zrs`] is `/dev/zrs`: versions, counters, pools, links and sockets.
//!
//! ```no_run
//! # fn main() -> std::io::Result<()> {
//! let listener = zrs::Listener::bind("10.0.0.2:7000")?;
//! let (stream, _peer) = listener.accept()?;
//! let ring = stream.rx_ring()?;
//! while let Some(segment) = ring.recv()? {
//!     println!("{} bytes", segment.len());
//! }
//! # Ok(())
//! # }
//! ```
#![deny(unsafe_code)]

mod addr;
mod area;
mod cache;
mod calls;
mod device;
mod error;
mod info;
pub mod keys;
mod listener;
pub mod mem;
mod outgoing;
pub mod peers;
mod ring;
pub mod rules;
mod socket;
mod stream;

pub use area::{Area, Mapped};
pub use cache::{Cache, Escape};
pub use device::{Link, LinkState, LinkTable, MemStats, Pool, Stats, Unfit, Version, Zrs};
pub use error::{os_error, reason, Error};
pub use info::{DgramInfo, Info, State};
pub use listener::{Incoming, Listener};
pub use outgoing::Outgoing;
pub use ring::{RxRing, Segment};
pub use stream::Stream;
pub use zrs_sys::sock::Completion;
pub use zrs_sys::{PageBuf, Received, View};

/// The protocol number of ZRS sockets, for `socket(AF_INET, SOCK_STREAM, IPPROTO_ZRS)`.
pub const IPPROTO_ZRS: u32 = zrs_sys::abi::IPPROTO_ZRS;

/// A blocking send of more bytes than this goes out without a copy by the CPU, but for its last so
/// many: the default of the module's parameter `copy_tail_kib`.
pub const ZERO_COPY_SEND: usize = 64 * 1024;
