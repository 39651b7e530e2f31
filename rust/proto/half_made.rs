// SPDX-License-Identifier: GPL-2.0

//! Half-made links: links that peers have asked for, and that have not come up. Whoever can send
//! packets can ask for a link from any address, so half-made links have a budget: half of the links
//! that a device has blocks for. A link that ends without having come up counts until it is gone.
//!
//! Where the budget is used up, a request is granted if others have more: if its network has fewer
//! half-made links than another one, or its address fewer than another one of the network. Then the
//! oldest link of the address with most of them ends for it. An honest peer's link is up within
//! milliseconds, so that a flood ends its own, or is refused.
//!
//! A single address may have only few of them to an address here. For a request beyond that its own
//! oldest link ends; the request is granted only if the budget has room.

use super::addr::Ip;
use super::prefix::Prefix;

/// The bits of an IPv4 address that hosts of one network share.
const V4_BITS: u8 = 24;
/// The same of an IPv6 address. A host may have all addresses of such a network.
const V6_BITS: u8 = 64;

/// How many links may be half made.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Of all peers together, those that are ending included.
    pub most: usize,
    /// Of an address to an address here.
    pub one: usize,
}

impl Bounds {
    /// The bounds where there are blocks for `links`, and where `one` is what an address may have
    /// in any case.
    pub fn new(links: u32, one: usize) -> Self {
        let most = one.max((links >> 1) as usize);
        Self { most, one }
    }
}

/// A network: that of an address, and the interface of link-local ones.
pub type Network = (Option<Prefix>, u32);

/// The network of `ip`.
pub fn network_of(ip: Ip) -> Network {
    let bits = if ip.is_v4() { V4_BITS } else { V6_BITS };
    (Prefix::new(ip, bits), ip.scope())
}

/// A half-made link, or a request for one.
#[derive(Clone, Copy, Debug)]
pub struct HalfMade<N> {
    /// Where the peer is: its network namespace here, if there are several, and its network.
    pub net: N,
    /// The peer.
    pub ip: Ip,
    /// The address here that it has asked.
    pub to: Ip,
    /// The link is ending already.
    pub ends: bool,
}

/// The answer to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The request is granted; the half-made link with this number ends for it, if there is one.
    Granted(Option<usize>),
    /// The request is refused; the half-made link with this number may end if it is not quite new.
    Refused(Option<usize>),
}

/// Judges the request `new`. `links`: the half-made ones, the oldest first.
pub fn judge<N: PartialEq>(links: &[HalfMade<N>], new: &HalfMade<N>, bounds: Bounds) -> Verdict {
    let is_own = |l: &HalfMade<N>| l.net == new.net && l.ip == new.ip && l.to == new.to;
    let mut own = links.iter().zip(0..).filter(|(l, _)| is_own(l) && !l.ends);
    let has_room = links.len() < bounds.most;
    if own.clone().count() >= bounds.one {
        let oldest = own.next().map(|(_, i)| i);
        return match has_room {
            true => Verdict::Granted(oldest),
            false => Verdict::Refused(oldest),
        };
    }
    if has_room {
        return Verdict::Granted(None);
    }
    let of_net = |net: &N| links.iter().filter(|l| l.net == *net).count();
    // Of several networks with as many links, the one whose first link is the oldest.
    let mut fullest = (&new.net, of_net(&new.net).saturating_add(1));
    for link in links {
        let n = of_net(&link.net).saturating_add(usize::from(link.net == new.net));
        if n > fullest.1 {
            fullest = (&link.net, n);
        }
    }
    let net = fullest.0;
    let theirs = || links.iter().filter(|l| l.net == *net);
    let of_ip = |ip: Ip| theirs().filter(|l| l.ip == ip).count();
    let mut most_of_one = 0;
    for link in theirs() {
        most_of_one = most_of_one.max(of_ip(link.ip));
    }
    let mut oldest = links
        .iter()
        .zip(0..)
        .filter(|(l, _)| l.net == *net && !l.ends);
    let end = oldest.find(|(l, _)| of_ip(l.ip) == most_of_one);
    let end = end.map(|(_, i)| i);
    let others_have_more = *net != new.net || of_ip(new.ip).saturating_add(1) < most_of_one;
    match others_have_more {
        true => Verdict::Granted(end),
        false => Verdict::Refused(end),
    }
}
