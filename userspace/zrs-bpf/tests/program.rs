// SPDX-License-Identifier: GPL-2.0
//! The program, run by an interpreter of its instructions on a made-up kernel.
// rows: B15

use std::collections::BTreeMap;

use zrs_bpf::insn::{Code, Reg};
use zrs_bpf::program::{program, Kernel as Known, Tables, LEVELS};

const STACK: u64 = 0x7000_0000;
const CONTEXT: u64 = 0x1000;
const VALUE: u64 = 0x2000;
const INETSW: u64 = 0xffff_ffff_8200_0000;
const INETSW6: u64 = 0xffff_ffff_8300_0000;
const TASK: u64 = 0xffff_8880_0000_0000;
const TASK_FLAGS: u32 = 0x4f8;
const MAP: i32 = 9;

/// The kernel that the program runs in.
struct Kernel {
    /// Words of 8 bytes.
    memory: BTreeMap<u64, [u8; 8]>,
    /// Control groups of the task, from the root on.
    ancestors: Vec<u64>,
    /// Those in the map.
    chosen: Vec<u64>,
}

impl Kernel {
    fn new(protocols: &[u16]) -> Self {
        let mut kernel = Self {
            memory: BTreeMap::new(),
            ancestors: vec![1, 20, 300],
            chosen: vec![20],
        };
        kernel.table(INETSW, protocols);
        kernel.table(INETSW6, protocols);
        kernel
    }

    /// The list of stream sockets, the second of the table.
    fn table(&mut self, table: u64, protocols: &[u16]) {
        let head = table + 16;
        let at = |n: usize| table + 0x1000 * (n as u64 + 1);
        let mut from = head;
        for (n, &protocol) in protocols.iter().enumerate() {
            self.memory.insert(from, at(n).to_le_bytes());
            let mut key = [0; 8];
            key[..2].copy_from_slice(&1_u16.to_le_bytes());
            key[2..4].copy_from_slice(&protocol.to_le_bytes());
            self.memory.insert(at(n) + 16, key);
            from = at(n);
        }
        self.memory.insert(from, head.to_le_bytes());
    }

    fn read(&self, at: u64) -> [u8; 8] {
        self.memory.get(&at).copied().unwrap_or_default()
    }

    /// The program's result for `socket(family, kind, protocol)`.
    fn socket(&self, family: i32, kind: i32, protocol: i32) -> u64 {
        let tables = Tables {
            inet: INETSW,
            inet6: Some(INETSW6),
        };
        let known = Known {
            tables,
            task_flags: TASK_FLAGS,
        };
        let code = program(MAP, known);
        // The upper half of an int's register may have anything.
        let args = [family, kind, protocol].map(|arg| (0xdead_beef << 32) | u64::from(arg as u32));
        let mut reg = [0_u64; 11];
        (reg[1], reg[10]) = (CONTEXT, STACK);
        let mut stack = [0_u8; 512];
        let place = |at: u64| (at + 512 - STACK) as usize;
        let mut pc = 0;
        for _ in 0..2000 {
            let insn = &code[pc * 8..pc * 8 + 8];
            let (dst, src) = (usize::from(insn[1] & 15), usize::from(insn[1] >> 4));
            let off = i16::from_le_bytes([insn[2], insn[3]]);
            let imm = i32::from_le_bytes([insn[4], insn[5], insn[6], insn[7]]);
            let wide = imm as i64 as u64;
            let at = |base: u64| base.wrapping_add(off as i64 as u64);
            pc += 1;
            let jumps = match insn[0] {
                0x05 => true,
                0x15 => reg[dst] == wide,
                0x55 => reg[dst] != wide,
                0x1d => reg[dst] == reg[src],
                _ => false,
            };
            if jumps {
                pc = (pc as i64 + i64::from(off)) as usize;
                continue;
            }
            match insn[0] {
                0x05 | 0x15 | 0x55 | 0x1d => {}
                0x07 => reg[dst] = reg[dst].wrapping_add(wide),
                0x57 => reg[dst] &= wide,
                0xb7 => reg[dst] = wide,
                0xbf => reg[dst] = reg[src],
                0xbc => reg[dst] = reg[src] & 0xffff_ffff,
                0x18 => {
                    let high = i32::from_le_bytes(code[pc * 8 + 4..pc * 8 + 8].try_into().unwrap());
                    reg[dst] = u64::from(imm as u32) | (u64::from(high as u32) << 32);
                    pc += 1;
                }
                0x79 if reg[src] == CONTEXT => reg[dst] = args[off as usize / 8],
                0x79 => {
                    let from = place(at(reg[src]));
                    reg[dst] = u64::from_le_bytes(stack[from..from + 8].try_into().unwrap());
                }
                0x69 => {
                    let from = place(at(reg[src]));
                    reg[dst] = u64::from(u16::from_le_bytes([stack[from], stack[from + 1]]));
                }
                0x7b => {
                    let to = place(at(reg[dst]));
                    stack[to..to + 8].copy_from_slice(&reg[src].to_le_bytes());
                }
                0x85 => {
                    reg[0] = match imm {
                        1 => {
                            assert_eq!(reg[1], MAP as u64);
                            let from = place(reg[2]);
                            let key = u64::from_le_bytes(stack[from..from + 8].try_into().unwrap());
                            if self.chosen.contains(&key) {
                                VALUE
                            } else {
                                0
                            }
                        }
                        35 => TASK,
                        113 => {
                            let (to, len) = (place(reg[1]), reg[2] as usize);
                            for n in (0..len).step_by(8) {
                                let word = self.read(reg[3] + n as u64);
                                stack[to + n..to + n + 8].copy_from_slice(&word);
                            }
                            0
                        }
                        123 => self.ancestors.get(reg[1] as usize).copied().unwrap_or(0),
                        _ => panic!("helper {imm}"),
                    };
                    // A call leaves nothing in them.
                    reg[1..6].fill(0x5555);
                }
                0x95 => return reg[0],
                op => panic!("instruction {op:#x}"),
            }
        }
        panic!("no end");
    }
}

const INET: i32 = libc::AF_INET;
const STREAM: i32 = libc::SOCK_STREAM;
const THERE: [u16; 3] = [6, 262, 254];

#[test]
fn stream_sockets_of_a_chosen_group() {
    let kernel = Kernel::new(&THERE);
    for family in [INET, libc::AF_INET6] {
        for protocol in [0, 6, 262] {
            for flags in [
                0,
                libc::SOCK_CLOEXEC,
                libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC,
            ] {
                assert_eq!(kernel.socket(family, STREAM | flags, protocol), 254);
            }
        }
    }
}

#[test]
fn other_sockets_stay() {
    let kernel = Kernel::new(&THERE);
    assert_eq!(kernel.socket(libc::AF_UNIX, STREAM, 0), 0);
    assert_eq!(kernel.socket(INET, libc::SOCK_DGRAM, 0), 0);
    for protocol in [1, 132, 253, 254, 256, -1] {
        assert_eq!(kernel.socket(INET, STREAM, protocol), 0);
    }
}

#[test]
fn other_groups_stay() {
    let mut kernel = Kernel::new(&THERE);
    kernel.chosen = vec![301, 21];
    assert_eq!(kernel.socket(INET, STREAM, 0), 0);
    kernel.chosen = vec![300];
    assert_eq!(kernel.socket(INET, STREAM, 0), 254);
    // As deep as it looks, and deeper.
    kernel.ancestors = (1..=LEVELS as u64 + 1).collect();
    kernel.chosen = vec![LEVELS as u64];
    assert_eq!(kernel.socket(INET, STREAM, 0), 254);
    kernel.chosen = vec![LEVELS as u64 + 1];
    assert_eq!(kernel.socket(INET, STREAM, 0), 0);
}

#[test]
fn tasks_with_no_new_privs_stay() {
    let mut kernel = Kernel::new(&THERE);
    let at = TASK + u64::from(TASK_FLAGS);
    for (flags, protocol) in [(0_u64, 254), (1, 0), (2, 254), (0xff, 0)] {
        kernel.memory.insert(at, flags.to_le_bytes());
        assert_eq!(kernel.socket(INET, STREAM, 0), protocol, "{flags:#x}");
        assert_eq!(kernel.socket(libc::AF_INET6, STREAM, 6), protocol);
    }
}

#[test]
fn without_the_module_or_while_it_drains_it_is_tcp() {
    for protocols in [&[][..], &[6], &[6, 262, 256], &[6, 262, 253]] {
        let kernel = Kernel::new(protocols);
        assert_eq!(kernel.socket(INET, STREAM, 0), 0, "{protocols:?}");
        assert_eq!(kernel.socket(libc::AF_INET6, STREAM, 6), 0, "{protocols:?}");
    }
    let mut kernel = Kernel::new(&THERE);
    kernel.table(INETSW6, &[6]);
    assert_eq!(kernel.socket(INET, STREAM, 0), 254);
    assert_eq!(kernel.socket(libc::AF_INET6, STREAM, 0), 0);
}

#[test]
fn a_kernel_without_ipv6() {
    let len = |inet6| {
        let tables = Tables {
            inet: INETSW,
            inet6,
        };
        let known = Known {
            tables,
            task_flags: TASK_FLAGS,
        };
        program(MAP, known).len()
    };
    assert!(len(None) < len(Some(INETSW6)));
}

#[test]
fn symbols() {
    let text = "ffffffff81000000 T _text\nffffffff82000010 b inetsw_lock\n\
                ffffffff82000000 b inetsw\nffffffff83000000 b inetsw6\n\
                ffffffffc0000000 d inetsw\t[other]\n";
    let found = Tables::from_kallsyms(text).unwrap();
    assert_eq!((found.inet, found.inet6), (INETSW, Some(INETSW6)));
    // As the kernel shows them to others than root.
    assert_eq!(Tables::from_kallsyms("0000000000000000 b inetsw\n"), None);
    assert_eq!(Tables::from_kallsyms(""), None);
}

#[test]
fn instructions() {
    let mut code = Code::new();
    let end = code.label();
    code.if_eq(Reg(1), -1, end);
    code.mov64(Reg(2), 0x1122_3344_5566_7788);
    code.store(Reg(10), -8, Reg(2));
    code.here(end);
    code.exit();
    let want: [[u8; 8]; 5] = [
        // The label is behind three instructions: one of them takes two places.
        [0x15, 1, 3, 0, 0xff, 0xff, 0xff, 0xff],
        [0x18, 2, 0, 0, 0x88, 0x77, 0x66, 0x55],
        [0, 0, 0, 0, 0x44, 0x33, 0x22, 0x11],
        [0x7b, 0x2a, 0xf8, 0xff, 0, 0, 0, 0],
        [0x95, 0, 0, 0, 0, 0, 0, 0],
    ];
    assert_eq!(code.finish(), want.concat());
}
