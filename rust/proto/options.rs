// SPDX-License-Identifier: GPL-2.0

//! The integer options of level IPPROTO_TCP: the valid values of each, the default, and when it may
//! be set. Programs written for TCP set them; the effect of an option, if it has any, is not
//! decided in this file.

/// The level of these options.
pub const SOL_TCP: i32 = 6;

/// Corked data is sent. No other data ever waits.
pub const TCP_NODELAY: i32 = 1;
/// The largest segment.
pub const TCP_MAXSEG: i32 = 2;
/// Small messages that are not full wait for more.
pub const TCP_CORK: i32 = 3;
/// Seconds without a message of the peer after which it is probed.
pub const TCP_KEEPIDLE: i32 = 4;
/// Seconds between two probes.
pub const TCP_KEEPINTVL: i32 = 5;
/// Number of probes.
pub const TCP_KEEPCNT: i32 = 6;
/// Number of further tries of a connect.
pub const TCP_SYNCNT: i32 = 7;
/// How long a closed socket waits for the peer's end, in seconds.
pub const TCP_LINGER2: i32 = 8;
/// Connections are accepted when they have brought data, or after this number of seconds.
pub const TCP_DEFER_ACCEPT: i32 = 9;
/// Acknowledgements are sent at once.
pub const TCP_QUICKACK: i32 = 12;
/// How many milliseconds sent data may stay unacknowledged.
pub const TCP_USER_TIMEOUT: i32 = 18;
/// Most connections with early data that may wait.
pub const TCP_FASTOPEN: i32 = 23;
/// The socket is not writable with more unsent bytes than this.
pub const TCP_NOTSENT_LOWAT: i32 = 25;

/// The levels of options of IP.
pub const SOL_IP: i32 = 0;
/// As above, of IPv6.
pub const SOL_IPV6: i32 = 41;

/// Options of TCP that change what is sent, or what the socket is, and have no counterpart here:
/// TCP_MD5SIG, TCP_REPAIR, TCP_FASTOPEN_CONNECT, TCP_ULP, TCP_MD5SIG_EXT, TCP_FASTOPEN_KEY,
/// TCP_AO_ADD_KEY, TCP_AO_DEL_KEY, TCP_AO_INFO, TCP_AO_REPAIR.
const TCP_ONLY: [i32; 10] = [14, 19, 30, 31, 32, 33, 38, 39, 40, 42];

/// The same of level SOL_IP: IP_OPTIONS, IP_FREEBIND, IP_IPSEC_POLICY, IP_XFRM_POLICY,
/// IP_TRANSPARENT, IP_MINTTL, IP_UNICAST_IF.
const IP_ONLY: [i32; 7] = [4, 15, 16, 17, 19, 21, 50];

/// The same of level SOL_IPV6: IPV6_IPSEC_POLICY, IPV6_XFRM_POLICY, IPV6_PKTINFO, IPV6_HOPOPTS,
/// IPV6_RTHDRDSTOPTS, IPV6_RTHDR, IPV6_DSTOPTS, IPV6_MINHOPCOUNT, IPV6_TRANSPARENT,
/// IPV6_UNICAST_IF, IPV6_FREEBIND.
const IPV6_ONLY: [i32; 11] = [34, 35, 50, 54, 55, 57, 59, 73, 75, 76, 78];

/// Whether a connection of a socket with option `name` has to be one of TCP.
pub fn is_tcp_only(level: i32, name: i32) -> bool {
    match level {
        SOL_TCP => TCP_ONLY.contains(&name),
        SOL_IP => IP_ONLY.contains(&name),
        SOL_IPV6 => IPV6_ONLY.contains(&name),
        _ => false,
    }
}

/// The longest try of a connect, in milliseconds.
const TRY_MOST_MS: u32 = 120_000;

/// The values that an option takes.
#[derive(Clone, Copy)]
enum Rule {
    /// Within these; another one is refused.
    Range(i32, i32),
    /// 0, or within these.
    ZeroOr(i32, i32),
    /// Any; all values but 0 count as 1.
    Flag,
    /// Any; values outside count as the nearest one inside.
    Nearest(i32, i32),
    /// The same, and 0 means the default.
    NearestOrFirst(i32, i32),
    /// Within these, and only before the socket is connected.
    Early(i32, i32),
    /// The value set is ignored.
    Fixed,
}

/// An option, its default, and its rule. Ranges and defaults are TCP's.
const TABLE: [(i32, i32, Rule); COUNT] = [
    (TCP_NODELAY, 1, Rule::Fixed),
    (TCP_MAXSEG, 536, Rule::ZeroOr(88, 32767)),
    (TCP_CORK, 0, Rule::Flag),
    (TCP_KEEPIDLE, 7200, Rule::Range(1, 32767)),
    (TCP_KEEPINTVL, 75, Rule::Range(1, 32767)),
    (TCP_KEEPCNT, 9, Rule::Range(1, 127)),
    (TCP_SYNCNT, 6, Rule::Range(1, 127)),
    (TCP_LINGER2, 60, Rule::NearestOrFirst(-1, 120)),
    (TCP_DEFER_ACCEPT, 0, Rule::Nearest(0, i32::MAX)),
    (TCP_QUICKACK, 1, Rule::Flag),
    (TCP_USER_TIMEOUT, 0, Rule::Range(0, i32::MAX)),
    (TCP_FASTOPEN, 0, Rule::Early(0, i32::MAX)),
    (TCP_NOTSENT_LOWAT, 0, Rule::Nearest(i32::MIN, i32::MAX)),
];

const COUNT: usize = 13;

/// Why an option was not set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OptionError {
    /// No option has that number.
    Unknown,
    /// The value is invalid, or invalid in this state.
    Value,
}

/// The options of one socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options([i32; COUNT]);

impl Default for Options {
    fn default() -> Self {
        Self(TABLE.map(|(_, first, _)| first))
    }
}

impl Options {
    /// Sets option `name`. `early`: the socket is not connected, nor about to be.
    pub fn set(&mut self, name: i32, value: i32, early: bool) -> Result<(), OptionError> {
        let entry = TABLE.iter().zip(&mut self.0).find(|(e, _)| e.0 == name);
        let Some((&(_, first, rule), slot)) = entry else {
            return Err(OptionError::Unknown);
        };
        *slot = match rule {
            Rule::Range(low, high) if (low..=high).contains(&value) => value,
            Rule::ZeroOr(..) if value == 0 => first,
            Rule::ZeroOr(low, high) if (low..=high).contains(&value) => value,
            Rule::Early(low, high) if early && (low..=high).contains(&value) => value,
            Rule::Range(..) | Rule::ZeroOr(..) | Rule::Early(..) => return Err(OptionError::Value),
            Rule::Flag => i32::from(value != 0),
            Rule::NearestOrFirst(..) if value == 0 => first,
            Rule::Nearest(low, high) | Rule::NearestOrFirst(low, high) => value.clamp(low, high),
            Rule::Fixed => first,
        };
        Ok(())
    }

    /// For SO_KEEPALIVE: after how many milliseconds without a message the peer is probed, and for
    /// how many more it may leave the probe without an answer. As with TCP, TCP_USER_TIMEOUT counts
    /// for both together, if it is set, but one interval at least is waited.
    pub fn keep_alive_ms(&self) -> (u32, u32) {
        let value = |name| self.get(name).unwrap_or(0).unsigned_abs();
        let idle = value(TCP_KEEPIDLE).saturating_mul(1000);
        let interval = value(TCP_KEEPINTVL).saturating_mul(1000);
        let patience = match value(TCP_USER_TIMEOUT) {
            0 => interval.saturating_mul(value(TCP_KEEPCNT)),
            limit => limit.saturating_sub(idle).max(interval),
        };
        (idle, patience)
    }

    /// The longest that connect() takes, in milliseconds, as TCP reckons it: a second for the first
    /// try and twice as long for each of TCP_SYNCNT further ones, but no more than two minutes
    /// each; TCP_USER_TIMEOUT if that is less.
    pub fn connect_ms(&self) -> u32 {
        let value = |name| self.get(name).unwrap_or(0).unsigned_abs();
        let tries = 0..=value(TCP_SYNCNT);
        let ms = tries
            .map(|n| 1000_u32.saturating_mul(2_u32.saturating_pow(n)))
            .fold(0_u32, |sum, ms| sum.saturating_add(ms.min(TRY_MOST_MS)));
        match value(TCP_USER_TIMEOUT) {
            0 => ms,
            limit => limit.min(ms),
        }
    }

    /// The options that were set to something else than their default, with their values.
    pub fn changed(&self) -> impl Iterator<Item = (i32, i32)> {
        let all = TABLE.into_iter().zip(self.0);
        all.filter_map(|((name, first, _), value)| (value != first).then_some((name, value)))
    }

    /// Option `name`; `None`: no option has that number.
    pub fn get(&self, name: i32) -> Option<i32> {
        let entry = TABLE.iter().zip(&self.0).find(|(e, _)| e.0 == name);
        entry.map(|(_, &value)| value)
    }
}
