// SPDX-License-Identifier: GPL-2.0
//! The filter: instructions of classic BPF, run at each system call on `struct seccomp_data`.

use libc::sock_filter;

/// The protocols of socket(2) that stand for TCP: 0 and its own, and MPTCP's, which Go's listeners
/// ask for.
pub const REPLACED: [u32; 3] = [0, 6, 262];

/// UDP's protocol of socket(2); 0 stands for it too.
pub const UDP: u32 = 17;

/// `AUDIT_ARCH_*` of this architecture.
#[cfg(target_arch = "x86_64")]
const ARCH: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCH: u32 = 0xc000_00b7;
#[cfg(target_arch = "riscv64")]
const ARCH: u32 = 0xc000_00f3;

/// The call goes on.
pub const ALLOW: u32 = 0x7fff_0000;
/// The supervisor is asked.
pub const NOTIFY: u32 = 0x7fc0_0000;

const LOAD: u16 = 0x20;
const AND: u16 = 0x54;
const EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;

// Offsets in struct seccomp_data.
const NR: u32 = 0;
const ARCHITECTURE: u32 = 4;

/// The low half of an argument: these are ints, whose other half has no meaning.
fn arg(n: u32) -> u32 {
    16 + 8 * n
}

/// [`NOTIFY`] for each socket(2) for a stream socket that would be TCP's, and with `udp` for a datagram
/// socket that would be UDP's.
pub fn socket(udp: bool) -> Vec<sock_filter> {
    let step = |code, k, jt, jf| sock_filter { code, jt, jf, k };
    let flags = (libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) as u32;
    let [any, tcp, mptcp] = REPLACED;
    vec![
        step(LOAD, ARCHITECTURE, 0, 0),
        step(EQUAL, ARCH, 0, 16),
        step(LOAD, NR, 0, 0),
        step(EQUAL, libc::SYS_socket as u32, 0, 14),
        step(LOAD, arg(0), 0, 0),
        step(EQUAL, libc::AF_INET as u32, 1, 0),
        step(EQUAL, libc::AF_INET6 as u32, 0, 11),
        step(LOAD, arg(1), 0, 0),
        step(AND, !flags, 0, 0),
        step(EQUAL, libc::SOCK_STREAM as u32, 4, 0),
        // Without UDP, no type is the second one.
        step(
            EQUAL,
            if udp { libc::SOCK_DGRAM as u32 } else { flags },
            0,
            7,
        ),
        step(LOAD, arg(2), 0, 0),
        step(EQUAL, any, 6, 0),
        step(EQUAL, UDP, 5, 4),
        step(LOAD, arg(2), 0, 0),
        step(EQUAL, any, 3, 0),
        step(EQUAL, tcp, 2, 0),
        step(EQUAL, mptcp, 1, 0),
        step(RETURN, ALLOW, 0, 0),
        step(RETURN, NOTIFY, 0, 0),
    ]
}
