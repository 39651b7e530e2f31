// SPDX-License-Identifier: GPL-2.0
//! The program.

use crate::insn::{Code, Label, Reg};

/// The function that it is attached to.
pub const FUNCTION: &str = "update_socket_protocol";
/// The number for ZRS sockets that also use TCP. It is not registered while the module is drained.
pub const ZRS: i32 = 254;
/// The protocols that it replaces: 0 and TCP's own, and MPTCP's, which Go's listeners ask for.
pub const REPLACED: [i32; 3] = [0, 6, 262];
/// How many levels below the root it looks for control groups.
pub const LEVELS: i32 = 24;
/// How many protocols of stream sockets the kernel may have.
const PROTOCOLS: usize = 8;

const R0: Reg = Reg(0);
const R1: Reg = Reg(1);
const R2: Reg = Reg(2);
const R3: Reg = Reg(3);
/// Kept in calls.
const CONTEXT: Reg = Reg(6);
const TABLE: Reg = Reg(7);
const ENTRY: Reg = Reg(8);
const FRAME: Reg = Reg(10);

const MAP_LOOKUP_ELEM: i32 = 1;
const GET_CURRENT_TASK: i32 = 35;
const PROBE_READ_KERNEL: i32 = 113;
const ANCESTOR_CGROUP_ID: i32 = 123;

/// Offsets in `struct inet_protosw`.
const NEXT: i16 = 0;
const PROTOCOL: i16 = 18;
/// As much of one as is read.
const ENTRY_BYTES: i16 = 24;
/// The list of stream sockets, in tables of lists by type.
const STREAMS: u64 = 16;

/// The kernel's tables of the protocols of IPv4 and IPv6, `inetsw` and `inetsw6`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tables {
    /// `inetsw`.
    pub inet: u64,
    /// `inetsw6`; `None`: the kernel has no IPv6.
    pub inet6: Option<u64>,
}

impl Tables {
    /// From the text of `/proc/kallsyms`. `None`: the addresses are hidden from this process, or
    /// are not there.
    pub fn from_kallsyms(text: &str) -> Option<Self> {
        let address = |name: &str| {
            let line = text.lines().find(|line| {
                let mut words = line.split_ascii_whitespace().skip(2);
                words.next() == Some(name) && words.next().is_none()
            })?;
            let word = line.split_ascii_whitespace().next()?;
            u64::from_str_radix(word, 16).ok().filter(|&at| at != 0)
        };
        Some(Self {
            inet: address("inetsw")?,
            inet6: address("inetsw6"),
        })
    }
}

/// The properties of the running kernel that the program depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Where its protocols are.
    pub tables: Tables,
    /// Where `struct task_struct` has `atomic_flags`, in bytes.
    pub task_flags: u32,
}

/// `PFA_NO_NEW_PRIVS` in `atomic_flags`.
const NO_NEW_PRIVS: i32 = 1;

/// The instructions, with the map that is open as `cgroups`: from the number of a control group to
/// a word that is not looked at.
///
/// The module may not be there, and then a socket of its protocol cannot be made. So the program
/// looks in the kernel's table whether the protocol is registered. Tasks with no_new_privs may have
/// restricted the ports that they bind by TCP, which the module cannot see: they keep TCP.
pub fn program(cgroups: i32, kernel: Kernel) -> Vec<u8> {
    let tables = kernel.tables;
    let mut code = Code::new();
    let (tcp, zrs) = (code.label(), code.label());
    code.copy(CONTEXT, R1);
    // int family, int type, int protocol
    code.load(R1, CONTEXT, 8);
    code.and(R1, 0xf);
    code.if_ne(R1, libc::SOCK_STREAM, tcp);
    code.load(R1, CONTEXT, 16);
    code.low_half(R1);
    let stream = code.label();
    for protocol in REPLACED {
        code.if_eq(R1, protocol, stream);
    }
    code.go(tcp);
    code.here(stream);
    code.load(R1, CONTEXT, 0);
    code.low_half(R1);
    let (v6, registered) = (code.label(), code.label());
    code.if_eq(R1, libc::AF_INET6, v6);
    code.if_ne(R1, libc::AF_INET, tcp);
    find_protocol(&mut code, tables.inet, registered);
    code.go(tcp);
    code.here(v6);
    if let Some(inet6) = tables.inet6 {
        find_protocol(&mut code, inet6, registered);
    }
    code.go(tcp);
    code.here(registered);
    code.call(GET_CURRENT_TASK);
    code.copy(R3, R0);
    code.add(R3, kernel.task_flags as i32);
    code.copy(R1, FRAME);
    code.add(R1, -8);
    code.mov(R2, 8);
    code.call(PROBE_READ_KERNEL);
    code.if_ne(R0, 0, tcp);
    code.load(R1, FRAME, -8);
    code.and(R1, NO_NEW_PRIVS);
    code.if_ne(R1, 0, tcp);
    for level in 0..LEVELS {
        code.mov(R1, level);
        code.call(ANCESTOR_CGROUP_ID);
        // The task's own control group was the last.
        code.if_eq(R0, 0, tcp);
        code.store(FRAME, -8, R0);
        code.map(R1, cgroups);
        code.copy(R2, FRAME);
        code.add(R2, -8);
        code.call(MAP_LOOKUP_ELEM);
        code.if_ne(R0, 0, zrs);
    }
    // The kernel's own result.
    code.here(tcp);
    code.mov(R0, 0);
    code.exit();
    code.here(zrs);
    code.mov(R0, ZRS);
    code.exit();
    code.finish()
}

/// Jumps to `found` if the protocol is in the list of stream sockets of the table.
fn find_protocol(code: &mut Code, table: u64, found: Label) {
    let end = code.label();
    code.mov64(TABLE, table + STREAMS * libc::SOCK_STREAM as u64);
    code.copy(ENTRY, TABLE);
    for _ in 0..=PROTOCOLS {
        code.copy(R1, FRAME);
        code.add(R1, -32);
        code.mov(R2, i32::from(ENTRY_BYTES));
        code.copy(R3, ENTRY);
        code.call(PROBE_READ_KERNEL);
        code.if_ne(R0, 0, end);
        // The head of the list is no entry; what follows it is another head.
        let head = code.label();
        code.if_same(ENTRY, TABLE, head);
        code.load16(R1, FRAME, PROTOCOL - 32);
        code.if_eq(R1, ZRS, found);
        code.here(head);
        code.load(ENTRY, FRAME, NEXT - 32);
        code.if_same(ENTRY, TABLE, end);
    }
    code.here(end);
}
