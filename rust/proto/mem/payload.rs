// SPDX-License-Identifier: GPL-2.0

//! Payloads of memory links: the nodes in a hello, and the extents in the answer to OPEN.

use super::super::wire::SMALL_MAX;
use super::super::Violation;
use super::id::NodeId;

/// Most extents of a region: as many as an answer to OPEN has room for.
pub const EXTENTS_MAX: usize = SMALL_MAX as usize / REMOTE_EXTENT_LEN;

/// Most nodes of a host.
pub const NODES_MAX: usize = 16;

/// Size of an encoded [`NodeInfo`].
pub const NODE_INFO_LEN: usize = 48;

/// Size of an encoded [`RemoteExtent`].
pub const REMOTE_EXTENT_LEN: usize = 24;

/// State of a node: it takes no new regions.
pub const NODE_DRAINING: u32 = 1;

/// A node as its host tells of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeInfo {
    /// Its id.
    pub node: NodeId,
    /// Its incarnation.
    pub incarnation: u64,
    /// Its size in bytes.
    pub bytes: u64,
    /// Bytes that are in no region.
    pub free: u64,
    /// 0, or [`NODE_DRAINING`].
    pub state: u32,
    /// Size of its pages as a power of two.
    pub page_shift: u32,
}

impl NodeInfo {
    /// Encodes it; the last 8 bytes are reserved.
    pub fn encode(&self) -> [u8; NODE_INFO_LEN] {
        let mut out = [0; NODE_INFO_LEN];
        let fields = [
            u64::from(self.node.domain) | u64::from(self.node.node).wrapping_shl(32),
            self.incarnation,
            self.bytes,
            self.free,
            u64::from(self.state) | u64::from(self.page_shift).wrapping_shl(32),
        ];
        for (to, from) in out.chunks_exact_mut(8).zip(fields) {
            to.copy_from_slice(&from.to_le_bytes());
        }
        out
    }

    /// Decodes it. Unknown states are those of later hosts.
    pub fn decode(bytes: &[u8; NODE_INFO_LEN]) -> Result<Self, Violation> {
        let mut words = words(bytes);
        let mut next = || words.next().unwrap_or_default();
        let id = next();
        let (incarnation, total, free, state, reserved) = (next(), next(), next(), next(), next());
        if reserved != 0 {
            return Err(Violation::Reserved);
        }
        if free > total || state >> 32 > 63 {
            return Err(Violation::Length);
        }
        Ok(Self {
            node: NodeId {
                domain: id as u32,
                node: (id >> 32) as u32,
            },
            incarnation,
            bytes: total,
            free,
            state: state as u32,
            page_shift: (state >> 32) as u32,
        })
    }
}

/// Contiguous bytes of a region, as the requester's device addresses them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemoteExtent {
    /// RDMA address of the first byte.
    pub iova: u64,
    /// Length in bytes.
    pub len: u64,
    /// Remote key.
    pub rkey: u32,
}

impl RemoteExtent {
    /// Encodes it; the last 4 bytes are reserved.
    pub fn encode(&self) -> [u8; REMOTE_EXTENT_LEN] {
        let mut out = [0; REMOTE_EXTENT_LEN];
        let fields = [self.iova, self.len, u64::from(self.rkey)];
        for (to, from) in out.chunks_exact_mut(8).zip(fields) {
            to.copy_from_slice(&from.to_le_bytes());
        }
        out
    }

    /// Decodes it.
    pub fn decode(bytes: &[u8; REMOTE_EXTENT_LEN]) -> Result<Self, Violation> {
        let mut words = words(bytes);
        let mut next = || words.next().unwrap_or_default();
        let (iova, len, key) = (next(), next(), next());
        if key >> 32 != 0 {
            return Err(Violation::Reserved);
        }
        if len == 0 || iova.checked_add(len).is_none() {
            return Err(Violation::Length);
        }
        Ok(Self {
            iova,
            len,
            rkey: key as u32,
        })
    }
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    let chunks = bytes.chunks_exact(8);
    chunks.map(|c| c.first_chunk().map_or(0, |c| u64::from_le_bytes(*c)))
}

/// Decodes the nodes in a hello.
pub fn nodes(
    payload: &[u8],
) -> Result<impl Iterator<Item = Result<NodeInfo, Violation>> + '_, Violation> {
    let (each, rest) = payload.as_chunks_of::<NODE_INFO_LEN>();
    if !rest.is_empty() || each.len() > NODES_MAX {
        return Err(Violation::Length);
    }
    Ok(each.map(NodeInfo::decode))
}

/// Decodes the extents in an answer to OPEN; together they have to have `bytes` bytes.
pub fn extents(
    payload: &[u8],
    bytes: u64,
) -> Result<impl Iterator<Item = RemoteExtent> + '_, Violation> {
    let (each, rest) = payload.as_chunks_of::<REMOTE_EXTENT_LEN>();
    if !rest.is_empty() || each.len() > EXTENTS_MAX {
        return Err(Violation::Length);
    }
    let mut left = bytes;
    for extent in each.clone().map(RemoteExtent::decode) {
        left = left.checked_sub(extent?.len).ok_or(Violation::Length)?;
    }
    if left != 0 {
        return Err(Violation::Length);
    }
    Ok(each.filter_map(|b| RemoteExtent::decode(b).ok()))
}

/// Chunks of a fixed size, as references to arrays; `slice::as_chunks` is younger than the oldest
/// compiler that builds this.
trait Chunks {
    fn as_chunks_of<const N: usize>(
        &self,
    ) -> (impl ExactSizeIterator<Item = &[u8; N]> + Clone, &[u8]);
}

impl Chunks for [u8] {
    fn as_chunks_of<const N: usize>(
        &self,
    ) -> (impl ExactSizeIterator<Item = &[u8; N]> + Clone, &[u8]) {
        let chunks = self.chunks_exact(N);
        let rest = chunks.remainder();
        // Every chunk has N bytes.
        (chunks.map(|c| c.first_chunk().unwrap_or(&[0; N])), rest)
    }
}
