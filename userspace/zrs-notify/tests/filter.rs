// SPDX-License-Identifier: GPL-2.0
//! The filter, run by an interpreter; and a program under it, on this machine's own kernel.
// rows: B15

use std::process::Command;

use zrs_notify::filter::{self, ALLOW, NOTIFY};
use zrs_notify::{start, Signals};

/// The filter's result for a call of this architecture.
fn verdict(nr: i64, args: [u64; 3]) -> u32 {
    run(filter::socket(false), ARCH, nr, args)
}

const ARCH: Option<u32> = None;

/// `arch`: the architecture of the call; `None`: of this machine.
fn run(code: Vec<libc::sock_filter>, arch: Option<u32>, nr: i64, args: [u64; 3]) -> u32 {
    let arch = arch.unwrap_or(code[1].k);
    let mut data = [0_u8; 64];
    data[..4].copy_from_slice(&(nr as u32).to_le_bytes());
    data[4..8].copy_from_slice(&arch.to_le_bytes());
    for (n, arg) in args.iter().enumerate() {
        data[16 + 8 * n..24 + 8 * n].copy_from_slice(&arg.to_le_bytes());
    }
    let (mut acc, mut pc) = (0, 0);
    loop {
        let insn = code[pc];
        pc += 1;
        match insn.code {
            0x20 => {
                let at = insn.k as usize;
                acc = u32::from_le_bytes(data[at..at + 4].try_into().unwrap());
            }
            0x54 => acc &= insn.k,
            0x15 => pc += usize::from(if acc == insn.k { insn.jt } else { insn.jf }),
            0x06 => return insn.k,
            other => panic!("instruction {other:#x}"),
        }
    }
}

const INET: u64 = libc::AF_INET as u64;
const STREAM: u64 = libc::SOCK_STREAM as u64;

#[test]
fn sockets_of_tcp_alone() {
    for family in [INET, libc::AF_INET6 as u64] {
        for protocol in [0, 6, 262] {
            for flags in [
                0,
                libc::SOCK_CLOEXEC,
                libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC,
            ] {
                let kind = STREAM | flags as u64;
                assert_eq!(verdict(libc::SYS_socket, [family, kind, protocol]), NOTIFY);
            }
        }
    }
    // The upper halves of ints.
    let high = 0xdead_beef << 32;
    assert_eq!(
        verdict(libc::SYS_socket, [high | INET, high | STREAM, high]),
        NOTIFY
    );
    for (family, kind, protocol) in [
        (libc::AF_UNIX as u64, STREAM, 0),
        (INET, libc::SOCK_DGRAM as u64, 0),
        (INET, STREAM, 253),
        (INET, STREAM, 132),
        (INET, libc::SOCK_RAW as u64, 6),
    ] {
        assert_eq!(verdict(libc::SYS_socket, [family, kind, protocol]), ALLOW);
    }
    assert_eq!(verdict(libc::SYS_connect, [INET, STREAM, 0]), ALLOW);
    // Another architecture has other numbers.
    let code = filter::socket(false);
    let other = Some(0x4000_0003);
    assert_eq!(run(code, other, libc::SYS_socket, [INET, STREAM, 0]), ALLOW);
}

#[test]
fn sockets_of_udp_if_asked_for() {
    let dgram = libc::SOCK_DGRAM as u64;
    let kinds = [
        (dgram, 0, NOTIFY),
        (dgram, 17, NOTIFY),
        (dgram | libc::SOCK_CLOEXEC as u64, 17, NOTIFY),
        (dgram, 6, ALLOW),
        (dgram, 253, ALLOW),
        (STREAM, 17, ALLOW),
        (STREAM, 0, NOTIFY),
        (STREAM, 262, NOTIFY),
        (libc::SOCK_RAW as u64, 17, ALLOW),
        (0, 0, ALLOW),
    ];
    for (kind, protocol, verdict) in kinds {
        for family in [INET, libc::AF_INET6 as u64] {
            let args = [family, kind, protocol];
            let code = filter::socket(true);
            assert_eq!(run(code, ARCH, libc::SYS_socket, args), verdict, "{args:?}");
        }
    }
    let none = filter::socket(false);
    assert_eq!(run(none, ARCH, libc::SYS_socket, [INET, 0, 0]), ALLOW);
}

/// Without the module, a program gets the sockets that it asks for; the supervisor ends after the
/// last process.
#[test]
fn a_program_under_it() {
    let signals = Signals::hold().unwrap();
    let code = "import os, socket, sys\n\
                s = socket.socket()\n\
                s.bind(('127.0.0.1', 0))\n\
                if os.fork(): sys.exit(7)\n\
                socket.socket(socket.AF_INET6)\n";
    let mut command = Command::new("python3");
    command.args(["-c", code]);
    let (mut child, supervisor) = match start(&mut command, 0, false, &signals) {
        Ok(started) => started,
        Err(e) => {
            eprintln!("skipped: this machine allows no filter, or has no python3: {e}");
            return;
        }
    };
    supervisor.run().unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(7));
}
