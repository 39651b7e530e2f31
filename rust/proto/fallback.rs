// SPDX-License-Identifier: GPL-2.0

//! When a connect uses TCP instead of ZRS: which failures are a reason for it, and for how long a
//! host or a port that was found to have no ZRS is not asked again.
//!
//! A host or port is remembered only after a TCP connection to it has succeeded: otherwise it may
//! simply be down. The number of entries is fixed; a new one replaces the least recently used of
//! its set. All times are in nanoseconds of one clock, but where they are said to be in
//! milliseconds.

use core::ops::DerefMut;

use super::addr::Ip;
use super::channel::Failure;
use super::wire::Refusal;

/// For how long a host without ZRS is not asked again, at first and at most, in milliseconds.
pub const HOST_MS: (u32, u32) = (60_000, 3_600_000);

/// The same for a port without a ZRS listener.
pub const PORT_MS: (u32, u32) = (1_000, 5_000);

/// The entries of a set.
pub const WAYS: usize = 4;

/// Why a connection is one of TCP. The numbers are those of `ZRS_WHY_*`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Why {
    /// The mode of the socket, an option that only TCP has, or a device that only TCP uses.
    Asked = 1,
    /// An address of this host.
    Local = 2,
    /// New connections must not use ZRS: the module will be unloaded.
    Drain = 3,
    /// The host or the port was found to have no ZRS lately.
    Known = 4,
    /// The host answered that it has no ZRS, or none of a common version, or there is no RDMA
    /// device on the way to it.
    NoZrs = 5,
    /// The link to the host was not up in time.
    Slow = 6,
    /// No program listens on the port with ZRS.
    NoListener = 7,
    /// ZRS lacks memory or room, here or there, or the link was lost.
    NoResources = 8,
    /// A rule of the network namespace.
    Rule = 9,
    /// The user's connects already ask the maximum number of hosts for a link.
    Asking = 10,
    /// A list of peers, here or there, does not allow the link.
    Peer = 11,
    /// ZRS is off in the network namespace, or for the groups of the program.
    Off = 12,
    /// A key, here or there, demands a proof, which has failed.
    Key = 13,
    /// The task has no_new_privs, and may not have both: it makes a TCP socket itself.
    NoNewPrivs = 14,
}

impl Why {
    /// The number.
    pub fn number(self) -> u32 {
        self as u32
    }

    /// The reason of this number.
    pub fn from_number(number: u32) -> Option<Self> {
        let all = [
            Self::Asked,
            Self::Local,
            Self::Drain,
            Self::Known,
            Self::NoZrs,
            Self::Slow,
            Self::NoListener,
            Self::NoResources,
            Self::Rule,
            Self::Asking,
            Self::Peer,
            Self::Off,
            Self::Key,
            Self::NoNewPrivs,
        ];
        all.into_iter().find(|why| why.number() == number)
    }

    /// The conclusion from a TCP connection that succeeds: that the host has no ZRS, or that
    /// the port has none.
    fn tells(self) -> Option<Scope> {
        match self {
            Self::NoZrs | Self::Slow | Self::Peer | Self::Key => Some(Scope::Host),
            Self::NoListener => Some(Scope::Port),
            Self::Known => Some(Scope::Asked),
            Self::Asked
            | Self::Local
            | Self::Drain
            | Self::NoResources
            | Self::Rule
            | Self::Asking
            | Self::Off
            | Self::NoNewPrivs => None,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    Host,
    Port,
    /// The host, if it is being asked again.
    Asked,
}

/// The cause of the end of an attempt to connect with ZRS.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum EndedBy {
    /// The peer's answer on a link that works, or its absence.
    #[default]
    Peer,
    /// The link: it could not be made, or was lost.
    Link,
    /// The time for making the link.
    Timer,
}

/// Whether TCP is tried after an attempt to connect with ZRS has failed; `None`: the failure is the
/// program's.
pub fn after_failure(failure: Failure, by: EndedBy) -> Option<Why> {
    match (by, failure) {
        (EndedBy::Timer, _) => Some(Why::Slow),
        // It would double the load of a server that has too much.
        (_, Failure::Refused(Refusal::BacklogFull)) => None,
        (_, Failure::NoResources | Failure::Quota | Failure::Refused(Refusal::NoResources)) => {
            Some(Why::NoResources)
        }
        (EndedBy::Peer, Failure::Refused(Refusal::NoListener)) => Some(Why::NoListener),
        // A link that works: the peer may have taken the connection.
        (EndedBy::Peer, _) => None,
        (EndedBy::Link, Failure::Denied) => Some(Why::Peer),
        (EndedBy::Link, Failure::Unproved) => Some(Why::Key),
        (EndedBy::Link, Failure::LinkLost | Failure::Reset) => Some(Why::NoResources),
        (
            EndedBy::Link,
            Failure::Refused(Refusal::NoListener)
            | Failure::TimedOut
            | Failure::Unreachable
            | Failure::NoRoute
            | Failure::NoDevice
            | Failure::Protocol,
        ) => Some(Why::NoZrs),
    }
}

/// A host, or a port of a host, and the local address of the sockets that connect to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peer {
    /// The network namespace.
    pub net: u64,
    /// The local address that the socket is bound to, which decides about the device;
    /// [`Ip::ANY`]: it is not bound.
    pub from: Ip,
    /// The host.
    pub ip: Ip,
    /// The port; 0: the host.
    pub port: u16,
}

impl Peer {
    /// Whether both are the same host or port, whatever the local addresses.
    fn is_at(self, other: Self) -> bool {
        (self.net, self.ip, self.port) == (other.net, other.ip, other.port)
    }

    fn host(self) -> Self {
        Self { port: 0, ..self }
    }

    fn limits(self) -> (u32, u32) {
        if self.port == 0 {
            HOST_MS
        } else {
            PORT_MS
        }
    }
}

/// A peer without ZRS.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    peer: Peer,
    /// Until when it is not asked again.
    until: u64,
    /// For how long it was not to be asked, in milliseconds.
    ms: u32,
    /// It is being asked again.
    asked: bool,
    /// When it was last used, in the order of uses.
    used: u64,
}

/// The knowledge about a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// Nothing.
    Unknown,
    /// It has no ZRS.
    NoZrs,
    /// It had no ZRS some time ago: the connection uses TCP, and a link is tried behind it.
    AskAgain,
}

/// The peers without ZRS, in sets of [`WAYS`] slots of `S`.
pub struct Cache<S> {
    slots: S,
    seed: u64,
    uses: u64,
}

fn after(now: u64, ms: u32) -> u64 {
    now.saturating_add(u64::from(ms).saturating_mul(1_000_000))
}

impl<S: DerefMut<Target = [Option<Entry>]>> Cache<S> {
    /// An empty cache in `slots`, whose number is a multiple of [`WAYS`]. `seed`: a random number.
    pub fn new(slots: S, seed: u64) -> Self {
        Self {
            slots,
            seed,
            uses: 0,
        }
    }

    /// The set of a peer, whatever the local address.
    fn set(&mut self, peer: Peer) -> &mut [Option<Entry>] {
        let mut hash =
            self.seed ^ peer.net ^ u64::from(peer.port) ^ (u64::from(peer.ip.scope()) << 32);
        for part in peer.ip.octets().chunks_exact(8) {
            let mut word = [0; 8];
            word.copy_from_slice(part);
            hash = (hash ^ u64::from_le_bytes(word)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            hash ^= hash >> 29;
        }
        let sets = self.slots.len() / WAYS;
        let at = hash.checked_rem(sets as u64).unwrap_or(0) as usize;
        let mut all = self.slots.chunks_exact_mut(WAYS);
        all.nth(at).unwrap_or_default()
    }

    fn find(&mut self, peer: Peer) -> Option<&mut Entry> {
        self.uses = self.uses.saturating_add(1);
        let uses = self.uses;
        let entry = self
            .set(peer)
            .iter_mut()
            .flatten()
            .find(|e| e.peer == peer)?;
        entry.used = uses;
        Some(entry)
    }

    /// Looks up a port of a host at `now`. Returns [`Answer::AskAgain`] once in each period during
    /// which the host is not asked. `link`: a link to the host is up.
    pub fn look(&mut self, peer: Peer, now: u64, link: bool) -> Answer {
        if self.find(peer).is_some_and(|port| now < port.until) {
            return Answer::NoZrs;
        }
        match self.find(peer.host()) {
            _ if link => Answer::Unknown,
            None => Answer::Unknown,
            Some(host) if now < host.until => Answer::NoZrs,
            Some(host) => {
                host.until = after(now, host.ms);
                host.asked = true;
                Answer::AskAgain
            }
        }
    }

    /// A connection to `peer` that uses TCP for the reason `why` has succeeded.
    pub fn confirm(&mut self, peer: Peer, why: Why, now: u64) {
        let (peer, asked) = match why.tells() {
            None => return,
            Some(Scope::Port) => (peer, false),
            Some(Scope::Host) => (peer.host(), false),
            Some(Scope::Asked) => (peer.host(), true),
        };
        let (first, most) = peer.limits();
        if let Some(entry) = self.find(peer) {
            let again = now >= entry.until || core::mem::take(&mut entry.asked);
            if again {
                entry.ms = entry.ms.saturating_mul(2).min(most);
            }
            if again || !asked {
                entry.until = after(now, entry.ms);
            }
            return;
        }
        if asked {
            return;
        }
        let used = self.uses;
        let set = self.set(peer);
        // An empty slot is older than all others.
        if let Some(slot) = set.iter_mut().min_by_key(|slot| slot.map_or(0, |e| e.used)) {
            *slot = Some(Entry {
                peer,
                until: after(now, first),
                ms: first,
                asked: false,
                used,
            });
        }
    }

    /// The ways to other hosts have changed: forgets all.
    pub fn clear(&mut self) {
        self.slots.fill(None);
    }

    /// How many hosts and ports are remembered; with `net`, by that namespace.
    pub fn remembered(&self, net: Option<u64>) -> usize {
        let of_net = |e: &&Entry| net.is_none_or(|net| e.peer.net == net);
        self.slots.iter().flatten().filter(of_net).count()
    }

    /// A connection to or from the port of `peer` uses ZRS: the host has it, and so has the port,
    /// whatever the local address.
    pub fn forget(&mut self, peer: Peer) {
        for peer in [peer, peer.host()] {
            for slot in self.set(peer) {
                if slot.is_some_and(|e| e.peer.is_at(peer)) {
                    *slot = None;
                }
            }
        }
    }
}
