// SPDX-License-Identifier: GPL-2.0

//! Which messages may arrive at which end of a memory link, and when. The host that made the link
//! is its requester; the other host is the node's.

use super::super::Violation;
use super::wire::{MemHeader, Type};

/// An end of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// Sends Ask and Revoked.
    Requester,
    /// Sends Answer and Revoke.
    Node,
}

/// The limits in the peer's hello.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Most open asks that it takes.
    pub asks: u32,
    /// Most open grants.
    pub grants: u32,
}

/// An end of a memory link, from when its queue pair is up.
#[derive(Debug)]
pub struct Link {
    end: End,
    peer: Option<Limits>,
}

impl Link {
    /// This host's end; the peer's hello has not arrived.
    pub fn new(end: End) -> Self {
        Self { end, peer: None }
    }

    /// The limits of the peer; `None`: its hello has not arrived, so no ask may be sent yet.
    pub fn peer(&self) -> Option<Limits> {
        self.peer
    }

    /// A message has arrived. It is a violation if it is not the hello and the hello has not
    /// arrived, if it is the second hello, and if the peer's end of a link does not send it.
    pub fn arrived(&mut self, h: &MemHeader) -> Result<(), Violation> {
        let from = match h.kind {
            Type::Hello => {
                let said = Limits {
                    asks: h.arg,
                    grants: h.grant,
                };
                return match self.peer.replace(said) {
                    None => Ok(()),
                    Some(_) => Err(Violation::State),
                };
            }
            Type::Ask | Type::Revoked => End::Requester,
            Type::Answer | Type::Revoke => End::Node,
        };
        let expected = self.peer.is_some() && from != self.end;
        expected.then_some(()).ok_or(Violation::State)
    }
}
