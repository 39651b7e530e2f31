// SPDX-License-Identifier: GPL-2.0

//! The fate of each datagram; it has exactly one.

use std::collections::BTreeMap;

use common::{fill_stream, mix};

/// The number of a datagram, in the order of sending.
pub type Tag = u64;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Fate {
    /// Not decided yet.
    Open,
    Received,
    /// At a full receive queue.
    DroppedFull,
    /// At a link without room.
    DroppedStalled,
    /// It waited for its link, and newer ones came.
    DroppedBacklog,
    /// With its link.
    Lost,
    /// It was in the queue of a socket that was closed, or on its way into it.
    Closed,
    /// The port had no socket.
    Nobody,
}

#[derive(Clone, Copy, Debug)]
pub struct Sent {
    pub client: usize,
    pub sock: usize,
    pub port: u16,
    pub len: u32,
    pub fate: Fate,
}

#[derive(Default)]
pub struct Oracle {
    pub sent: BTreeMap<Tag, Sent>,
    counts: BTreeMap<Fate, u64>,
    /// The last one that was received, by client, its socket and port.
    last: BTreeMap<(usize, usize, u16), Tag>,
}

impl Oracle {
    pub fn sent(&mut self, client: usize, sock: usize, port: u16, len: u32) -> Tag {
        let tag = self.sent.len() as Tag + 1;
        let sent = Sent {
            client,
            sock,
            port,
            len,
            fate: Fate::Open,
        };
        self.sent.insert(tag, sent);
        tag
    }

    /// The last one was not sent after all.
    pub fn unsend(&mut self, tag: Tag) {
        assert_eq!(self.sent.len() as Tag, tag);
        self.sent.remove(&tag);
    }

    pub fn bytes(tag: Tag, len: u32) -> Vec<u8> {
        let mut bytes = vec![0; len as usize];
        fill_stream(mix(tag), 0, &mut bytes);
        bytes
    }

    pub fn decided(&mut self, tag: Tag, fate: Fate) {
        let sent = self.sent.get_mut(&tag).expect("it was sent");
        assert_eq!(sent.fate, Fate::Open, "datagram {tag} is also {fate:?}");
        sent.fate = fate;
        *self.counts.entry(fate).or_default() += 1;
    }

    /// A program has received these bytes.
    pub fn received(&mut self, tag: Tag, from: (usize, usize), port: u16, bytes: &[u8]) {
        self.decided(tag, Fate::Received);
        let sent = self.sent[&tag];
        assert_eq!((sent.client, sent.sock), from, "the sender");
        assert_eq!(sent.port, port, "the port");
        assert!(bytes == Self::bytes(tag, sent.len), "the bytes of {tag}");
        let last = self.last.insert((sent.client, sent.sock, port), tag);
        assert!(last < Some(tag), "{tag} after {last:?}");
    }

    pub fn count(&self, fate: Fate) -> u64 {
        self.counts.get(&fate).copied().unwrap_or(0)
    }

    /// The datagrams that nothing has become of yet.
    pub fn open(&self) -> usize {
        let open = self.sent.values().filter(|s| s.fate == Fate::Open);
        open.count()
    }
}
