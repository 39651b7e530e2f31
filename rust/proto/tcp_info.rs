// SPDX-License-Identifier: GPL-2.0

//! `struct tcp_info`, with the available fields: for programs that ask a socket for its state, or a
//! listening one for the length of its queue.

/// States as `<netinet/tcp.h>` numbers them.
pub const ESTABLISHED: u8 = 1;
/// connect() is in progress.
pub const SYN_SENT: u8 = 2;
/// This side has shut its direction.
pub const FIN_WAIT2: u8 = 5;
/// No connection, or not any more.
pub const CLOSE: u8 = 7;
/// The peer has shut its direction.
pub const CLOSE_WAIT: u8 = 8;
/// Both sides have shut their directions.
pub const LAST_ACK: u8 = 9;
/// Listening.
pub const LISTEN: u8 = 10;

/// The length of the filled part: up to and with `tcpi_bytes_retrans`.
pub const LEN: usize = 216;

/// The filled fields. All other fields of the structure are 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TcpInfo {
    /// One of the states above.
    pub state: u8,
    /// TCP_MAXSEG, in bytes.
    pub mss: u32,
    /// Connections of a listening socket that wait for accept().
    pub waiting: u32,
    /// The most connections that may wait for accept().
    pub backlog: u32,
    /// Corked bytes of the stream.
    pub notsent: u32,
    /// Bytes of the stream that were posted.
    pub bytes_sent: u64,
    /// Posted bytes that the peer's device has acknowledged.
    pub bytes_acked: u64,
    /// Bytes that have arrived.
    pub bytes_received: u64,
}

impl TcpInfo {
    /// The structure as it is in memory.
    pub fn bytes(&self) -> [u8; LEN] {
        let mut out = [0; LEN];
        let mut put = |at: usize, value: &[u8]| {
            let end = at.saturating_add(value.len());
            if let Some(place) = out.get_mut(at..end) {
                place.copy_from_slice(value);
            }
        };
        put(0, &[self.state]);
        put(16, &self.mss.to_ne_bytes());
        put(20, &self.mss.to_ne_bytes());
        put(24, &self.waiting.to_ne_bytes());
        put(28, &self.backlog.to_ne_bytes());
        put(120, &self.bytes_acked.to_ne_bytes());
        put(128, &self.bytes_received.to_ne_bytes());
        put(144, &self.notsent.to_ne_bytes());
        put(200, &self.bytes_sent.to_ne_bytes());
        out
    }
}
