// SPDX-License-Identifier: GPL-2.0
//! Why TCP carries a socket, in words.

/// Why TCP carries a socket, by the numbers of the interface: a name, and what there is to say.
const WHY: [(&str, &str); 15] = [
    ("none", "ZRS carries it"),
    ("asked", "the program has asked for TCP, or has set an option or a device that only TCP has"),
    ("local", "an address of this host"),
    ("drain", "the module is to be unloaded: zrs drain --stop ends that"),
    ("known", "the host or port was found to have no ZRS lately, see the other reasons"),
    ("no-zrs", "the host has no ZRS, or there is no RDMA device on the way: zrs doctor HOST looks"),
    ("slow", "the link was not up within fallback_ms: the host has no ZRS, or UDP port 4791 is closed on the way"),
    ("no-listener", "no program listens at the port with ZRS: the server needs zrs run, too"),
    ("no-resources", "no memory or room for ZRS here or there: zrs pool and zrs stats show it"),
    ("rule", "a rule says so: zrs rules"),
    ("asking", "the user's programs ask asking_per_user hosts for a link already"),
    ("peer", "a list of peers, here or there, does not allow a link: zrs peers"),
    ("off", "ZRS is off in this network namespace, or for the groups of the program: zrs net"),
    ("key", "a key is missing here or there, or differs: zrs key list --counts and the kernel log say which"),
    ("no-new-privs", "the program has no_new_privs, and makes a TCP socket instead: zrs set tcp_no_new_privs=1 allows both"),
];

/// The host or port was found to have no ZRS lately.
pub const KNOWN: u32 = 4;
/// The host has no ZRS, or there is no RDMA device on the way.
pub const NO_ZRS: u32 = 5;
/// The link was not up in time.
pub const SLOW: u32 = 6;
/// No program listens at the port with ZRS.
pub const NO_LISTENER: u32 = 7;
/// No memory or room for ZRS.
pub const NO_RESOURCES: u32 = 8;

/// The name of a reason why TCP carries a socket, by its number.
pub fn name(why: u32) -> &'static str {
    WHY.get(why as usize).map_or("unknown", |(name, _)| name)
}

/// The meaning of a reason, and its remedy.
pub fn text(why: u32) -> &'static str {
    let known = WHY.get(why as usize);
    known.map_or("this command is older than the module", |(_, text)| text)
}

/// Whether there is such a reason.
pub fn is_why(why: u32) -> bool {
    why != 0 && (why as usize) < WHY.len()
}
