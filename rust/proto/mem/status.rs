// SPDX-License-Identifier: GPL-2.0

//! The results of operations on memory nodes, as answers carry them, and the errno of each.

/// Result of an operation. The numbers are those on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum Status {
    /// Success.
    Ok = 0,
    /// Wrong secret or admission key, a right is missing, or the range is outside the key's.
    Denied = 1,
    /// The region or key is gone: freed, revoked, expired, used up, or of a former incarnation of
    /// the node.
    Stale = 2,
    /// A write to a sealed region.
    Sealed = 3,
    /// The range is outside the region.
    Range = 4,
    /// No directory entry for the node, or the host does not serve it.
    NoNode = 5,
    /// The node's host cannot be reached.
    Unreachable = 6,
    /// The node's host refuses memory links.
    Refused = 7,
    /// The node has no room for the region, or a table of the node is full.
    NoSpace = 8,
    /// The share of the host or user is used up.
    Quota = 9,
    /// A queue is full; try again.
    Again = 10,
    /// The link was lost while the operation was under way.
    Lost = 11,
    /// Out of memory before anything moved.
    NoMemory = 12,
    /// Memory could not be read or written, or a status that this host does not know.
    Io = 13,
    /// The request contradicts itself.
    Invalid = 14,
    /// The node is being drained and takes no new regions.
    Draining = 15,
    /// Canceled by the requester.
    Canceled = 16,
    /// The node's RDMA device is gone.
    NoDevice = 17,
    /// The node's device cannot do this.
    Unsupported = 18,
    /// There is no such operation to cancel.
    NotFound = 19,
}

impl Status {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 20] = [
        Self::Ok,
        Self::Denied,
        Self::Stale,
        Self::Sealed,
        Self::Range,
        Self::NoNode,
        Self::Unreachable,
        Self::Refused,
        Self::NoSpace,
        Self::Quota,
        Self::Again,
        Self::Lost,
        Self::NoMemory,
        Self::Io,
        Self::Invalid,
        Self::Draining,
        Self::Canceled,
        Self::NoDevice,
        Self::Unsupported,
        Self::NotFound,
    ];

    /// Reads a status from the wire; an unknown one counts as [`Status::Io`].
    pub fn from_u16(v: u16) -> Self {
        Self::ALL.get(usize::from(v)).copied().unwrap_or(Self::Io)
    }

    /// Whether the node was not reached, or has no room just now: asked again later it may answer
    /// otherwise.
    pub fn is_temporary(self) -> bool {
        matches!(
            self,
            Self::Lost | Self::Unreachable | Self::Refused | Self::Again | Self::NoMemory
        )
    }

    /// The positive errno, in Linux's generic numbering; 0 for success.
    pub const fn errno(self) -> i32 {
        match self {
            Self::Ok => 0,
            Self::NotFound => 2,      // ENOENT
            Self::Io => 5,            // EIO
            Self::NoNode => 6,        // ENXIO
            Self::Again => 11,        // EAGAIN
            Self::NoMemory => 12,     // ENOMEM
            Self::Denied => 13,       // EACCES
            Self::NoDevice => 19,     // ENODEV
            Self::Invalid => 22,      // EINVAL
            Self::NoSpace => 28,      // ENOSPC
            Self::Sealed => 30,       // EROFS
            Self::Range => 34,        // ERANGE
            Self::Unsupported => 95,  // EOPNOTSUPP
            Self::Lost => 104,        // ECONNRESET
            Self::Draining => 108,    // ESHUTDOWN
            Self::Refused => 111,     // ECONNREFUSED
            Self::Unreachable => 113, // EHOSTUNREACH
            Self::Stale => 116,       // ESTALE
            Self::Quota => 122,       // EDQUOT
            Self::Canceled => 125,    // ECANCELED
        }
    }
}
