// SPDX-License-Identifier: GPL-2.0
//! The state and counters of a socket.

use std::fmt;
use std::net::SocketAddr;

use zrs_sys::abi;

use crate::addr;

/// A socket's state and counters (ZRS_INFO). All sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    /// Its state.
    pub state: State,
    /// The host-wide number of its channel, 0: none.
    pub channel: u32,
    /// Its own address; 0.0.0.0:0 or `[::]:0` when it has none. A socket of AF_INET6 has IPv4
    /// addresses v4-mapped.
    pub local: SocketAddr,
    /// The peer's; the same when it has none.
    pub remote: SocketAddr,
    /// The user it belongs to.
    pub uid: u32,
    /// The inode number of the socket.
    pub inode: u64,
    /// Payload accepted from the program.
    pub tx_bytes: u64,
    /// Payload delivered to the program.
    pub rx_bytes: u64,
    /// Of `tx_bytes`: copied by the CPU.
    pub tx_copied: u64,
    /// Of `rx_bytes`: copied by the CPU.
    pub rx_copied: u64,
    /// Sent and not yet acknowledged by the device.
    pub tx_queued: u64,
    /// Arrived and not yet taken by the program.
    pub rx_queued: u64,
    /// Our window that the peer writes into, 0: none.
    pub window: u64,
    /// The peer's window that we write into, 0: none.
    pub peer_window: u64,
    /// Listening: connections waiting for accept().
    pub backlog: u32,
    /// The pending error, an errno; 0: none.
    pub error: u32,
    /// The number of its link, [`crate::Link::id`]; 0: none.
    pub link: u32,
    /// Listening: the limit of waiting connections.
    pub backlog_max: u32,
    /// Whether TCP carries it; listening: whether clients of TCP are accepted as well.
    pub tcp: bool,
    /// Why TCP carries it, `ZRS_WHY_*`; 0: it does not.
    pub why: u32,
}

/// The state of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Fresh, or at its end.
    Closed,
    /// Has an address.
    Bound,
    /// Accepts connections.
    Listen,
    /// Waits for the peer's answer.
    Connecting,
    /// Both directions are open.
    Established,
    /// One direction or both are shut down.
    Closing,
    /// A state this library does not know.
    Other(u32),
}

impl From<u32> for State {
    fn from(state: u32) -> Self {
        match state {
            abi::ZRS_STATE_CLOSED => Self::Closed,
            abi::ZRS_STATE_BOUND => Self::Bound,
            abi::ZRS_STATE_LISTEN => Self::Listen,
            abi::ZRS_STATE_CONNECTING => Self::Connecting,
            abi::ZRS_STATE_ESTABLISHED => Self::Established,
            abi::ZRS_STATE_CLOSING => Self::Closing,
            other => Self::Other(other),
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Closed => "CLOSED",
            Self::Bound => "BOUND",
            Self::Listen => "LISTEN",
            Self::Connecting => "CONNECTING",
            Self::Established => "ESTAB",
            Self::Closing => "CLOSING",
            Self::Other(_) => "?",
        })
    }
}

/// State and counters of a datagram socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DgramInfo {
    /// Its own address.
    pub local: SocketAddr,
    /// That of connect(); 0.0.0.0:0 or `[::]:0` when it has none.
    pub remote: SocketAddr,
    /// The user it belongs to.
    pub uid: u32,
    /// The inode number of the socket.
    pub inode: u64,
    /// Payload accepted from the program.
    pub tx_bytes: u64,
    /// Payload delivered to the program.
    pub rx_bytes: u64,
    /// Datagrams accepted from the program.
    pub tx_datagrams: u64,
    /// Datagrams delivered to the program.
    pub rx_datagrams: u64,
    /// Bytes that count against SO_SNDBUF.
    pub tx_queued: u64,
    /// Bytes that count against SO_RCVBUF.
    pub rx_queued: u64,
    /// Datagrams not yet taken by the program.
    pub rx_waiting: u32,
    /// Datagrams dropped because SO_RCVBUF was used up.
    pub rx_drops: u32,
    /// Datagrams dropped because a link had no room.
    pub tx_drops: u32,
    /// The pending error, an errno; 0: none.
    pub error: u32,
    /// SO_SNDBUF.
    pub sndbuf: u32,
    /// SO_RCVBUF.
    pub rcvbuf: u32,
}

impl From<abi::zrs_dgram_info> for DgramInfo {
    fn from(i: abi::zrs_dgram_info) -> Self {
        let v6 = i.family == AF_INET6;
        let (local, remote) = (i.local_scope_id, i.remote_scope_id);
        Self {
            local: addr::socket_addr(v6, i.local_addr6, i.local_port, local),
            remote: addr::socket_addr(v6, i.remote_addr6, i.remote_port, remote),
            uid: i.uid,
            inode: i.inode,
            tx_bytes: i.tx_bytes,
            rx_bytes: i.rx_bytes,
            tx_datagrams: i.tx_datagrams,
            rx_datagrams: i.rx_datagrams,
            tx_queued: i.tx_queued,
            rx_queued: i.rx_queued,
            rx_waiting: i.rx_waiting,
            rx_drops: i.rx_drops,
            tx_drops: i.tx_drops,
            error: i.error,
            sndbuf: i.sndbuf,
            rcvbuf: i.rcvbuf,
        }
    }
}

/// As <sys/socket.h> has it.
const AF_INET6: u32 = 10;

impl From<abi::zrs_info> for Info {
    fn from(i: abi::zrs_info) -> Self {
        let v6 = i.family == AF_INET6;
        let (local, remote) = (i.local_scope_id, i.remote_scope_id);
        Self {
            state: i.state.into(),
            channel: i.channel,
            local: addr::socket_addr(v6, i.local_addr6, i.local_port, local),
            remote: addr::socket_addr(v6, i.remote_addr6, i.remote_port, remote),
            uid: i.uid,
            inode: i.inode,
            tx_bytes: i.tx_bytes,
            rx_bytes: i.rx_bytes,
            tx_copied: i.tx_copied,
            rx_copied: i.rx_copied,
            tx_queued: i.tx_queued,
            rx_queued: i.rx_queued,
            window: i.window,
            peer_window: i.peer_window,
            backlog: i.backlog,
            error: i.error,
            link: i.link,
            backlog_max: i.backlog_max,
            tcp: i.carriers & abi::ZRS_CARRIER_TCP != 0,
            why: i.why,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_byte_order() {
        let raw = abi::zrs_info {
            state: abi::ZRS_STATE_LISTEN,
            local_addr6: std::net::Ipv4Addr::new(10, 0, 0, 2)
                .to_ipv6_mapped()
                .octets(),
            local_port: u16::from_ne_bytes([0x1b, 0x58]),
            ..Default::default()
        };
        let info = Info::from(raw);
        assert_eq!(info.local.to_string(), "10.0.0.2:7000");
        assert_eq!(info.state, State::Listen);
        assert_eq!(format!("{:>8}|", State::Established), "   ESTAB|");
        assert_eq!(State::from(99), State::Other(99));
    }
}
