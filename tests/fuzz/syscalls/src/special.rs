// SPDX-License-Identifier: GPL-2.0
//! Calls of programs that are several system calls: sequences that lead to deeper states quickly,
//! and actions that one system call cannot say.

use crate::sys;
use crate::worker::Worker;

/// Which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    /// Opens one of `PATHS`.
    Open,
    /// Two connected sockets.
    Pair,
    /// A socket that listens.
    Listener,
    /// ZRS_RX_RING, asked for, made and mapped: ring and window.
    MapRing,
    /// The same with all flags: ring and escape area.
    MapEscape,
    /// A program's turn in the ring at that address.
    Ring,
    /// Writes to memory by way of the kernel: a fault is an error, not a signal.
    Store,
    /// Reads memory in the same way.
    Load,
    Sleep,
    /// SIGALRM comes after this number of milliseconds.
    Alarm,
    /// A child with all the descriptors.
    Fork,
    SendFd,
    RecvFd,
    /// A file in memory.
    Memfd,
    /// One operation by io_uring.
    Uring,
    /// One operation by libaio.
    Aio,
    /// A node in a host, and two regions of it.
    Regions,
}

/// The result of it.
pub struct Ran {
    pub result: i64,
    pub outs: [i64; 2],
}

const PATHS: &[&str] = &[
    "/dev/zrs",
    "/sys/kernel/debug/zrs/links",
    "/sys/module/zrs/parameters/pool_mib",
    "/sys/module/zrs/parameters/connect_timeout_ms",
];

const STREAM: u64 = libc::SOCK_STREAM as u64;
const SOL_ZRS: u64 = zrs_sys::abi::SOL_ZRS as u64;
const RX_RING: u64 = zrs_sys::abi::ZRS_RX_RING as u64;
const RX_RING_FLAGS: u32 = zrs_sys::abi::ZRS_RX_RING_ESCAPE | zrs_sys::abi::ZRS_RX_RING_SMALL;

/// Carries it out.
pub fn run(special: Special, w: &mut Worker, words: &[u64]) -> Ran {
    let word = |i: usize| words.get(i).copied().unwrap_or(0);
    let (a, b, c) = (word(0), word(1), word(2));
    let one = |result: i64| Ran {
        result,
        outs: [result, -1],
    };
    match special {
        Special::Open => one(open(w, a as usize, b)),
        Special::Pair => pair(w, a as usize, b),
        Special::Listener => one(listener(w, a, b)),
        Special::MapRing => map_ring(w, a, 0),
        Special::MapEscape => map_ring(w, a, RX_RING_FLAGS),
        Special::Ring => one(ring(w, a, b, c)),
        Special::Store => {
            let bytes = c.to_le_bytes();
            one(w.poke(a, &bytes[..(b as usize).clamp(1, 8)]))
        }
        Special::Load => {
            let len = b.min(4096) as usize;
            one(w
                .peek(a, len)
                .map_or(-i64::from(libc::EFAULT), |b| b.len() as i64))
        }
        Special::Sleep => one(sleep(w, a.min(50))),
        Special::Alarm => {
            let at = w.put_words(&[0, 0, 0, a.clamp(1, 50) * 1000]);
            one(sys::call(libc::SYS_setitimer, &[0, at, 0]))
        }
        Special::Fork => one(fork(w, a, b)),
        Special::SendFd => one(send_fd(w, a, b)),
        Special::RecvFd => one(recv_fd(w, a)),
        Special::Memfd => {
            let name = w.put(b"fuzz\0");
            let fd = sys::call(libc::SYS_memfd_create, &[name, 0]);
            sys::call(libc::SYS_ftruncate, &[fd as u64, a.min(1 << 20)]);
            one(fd)
        }
        Special::Uring => one(uring(w, words)),
        Special::Aio => one(aio(w, words)),
        Special::Regions => regions(w, a as usize, b),
    }
}

fn open(w: &mut Worker, path: usize, flags: u64) -> i64 {
    let path = PATHS.get(path).copied().unwrap_or("/dev/zrs");
    let at = w.put(path.as_bytes());
    sys::call(libc::SYS_openat, &[libc::AT_FDCWD as u64, at, flags, 0])
}

/// A `sockaddr_in` of host A (0) or B.
fn address(ns: usize, port: u16) -> [u8; 16] {
    let mut addr = [0; 16];
    addr[0] = libc::AF_INET as u8;
    addr[2..4].copy_from_slice(&port.to_be_bytes());
    addr[4..8].copy_from_slice(&[10, 77, 0, if ns == 0 { 1 } else { 2 }]);
    addr
}

fn socket() -> i64 {
    let zrs = u64::from(zrs_sys::abi::IPPROTO_ZRS);
    sys::call(libc::SYS_socket, &[libc::AF_INET as u64, STREAM, zrs])
}

/// A socket of the worker's host that listens on `port`.
fn listener(w: &mut Worker, port: u64, backlog: u64) -> i64 {
    let fd = socket();
    if fd < 0 {
        return fd;
    }
    let addr = w.put(&address(w.ns(), port as u16));
    let bound = sys::call(libc::SYS_bind, &[fd as u64, addr, 16]);
    let listens = sys::call(libc::SYS_listen, &[fd as u64, backlog]);
    if bound < 0 || listens < 0 {
        sys::call(libc::SYS_close, &[fd as u64]);
        return bound.min(listens);
    }
    fd
}

/// A socket of the worker's host and one of host `ns`, connected.
fn pair(w: &mut Worker, ns: usize, flags: u64) -> Ran {
    let (here, there) = (w.ns(), ns & 1);
    let failed = |result: i64, fds: &[i64]| {
        for fd in fds {
            sys::call(libc::SYS_close, &[*fd as u64]);
        }
        Ran {
            result,
            outs: [result; 2],
        }
    };
    w.enter(there);
    let l = listener(w, 0, 1);
    if l < 0 {
        w.enter(here);
        return failed(l, &[]);
    }
    let (name, len) = (w.put(&[0; 16]), w.put(&16_u32.to_le_bytes()));
    sys::call(libc::SYS_getsockname, &[l as u64, name, len]);
    w.enter(here);
    let c = socket();
    let connected = sys::call(libc::SYS_connect, &[c as u64, name, 16]);
    if connected < 0 {
        return failed(connected, &[l, c]);
    }
    let s = sys::call(
        libc::SYS_accept4,
        &[l as u64, 0, 0, flags & libc::SOCK_CLOEXEC as u64],
    );
    if s < 0 {
        return failed(s, &[l, c]);
    }
    sys::call(libc::SYS_close, &[l as u64]);
    if flags & libc::SOCK_NONBLOCK as u64 != 0 {
        for fd in [c, s] {
            sys::call(
                libc::SYS_fcntl,
                &[fd as u64, libc::F_SETFL as u64, libc::O_NONBLOCK as u64],
            );
        }
    }
    Ran {
        result: 0,
        outs: [c, s],
    }
}

/// Node 1:1 in host A or 1:2 in host B, as `ns` says, if it is not served yet, and two regions of it for the worker's
/// host. The descriptor that serves the node is not closed before the program ends.
fn regions(w: &mut Worker, ns: usize, len: u64) -> Ran {
    use zrs_sys::abi::{ZRS_IOC_MEM_ALLOC, ZRS_IOC_MEM_NODES, ZRS_IOC_MEM_SERVE};
    let (here, there) = (w.ns(), ns & 1);
    let node = [1, there as u32 + 1].map(u32::to_le_bytes).concat();
    let device = open(w, 0, libc::O_RDWR as u64);
    let ioctl = |w: &mut Worker, request: u32, arg: &[&[u8]]| {
        let at = w.put(&arg.concat());
        sys::call(libc::SYS_ioctl, &[device as u64, u64::from(request), at])
    };
    let (name, bytes) = (w.put(b"node\0"), 4_u64 << 20);
    let memfd = sys::call(libc::SYS_memfd_create, &[name, 0]);
    sys::call(libc::SYS_ftruncate, &[memfd as u64, bytes]);
    w.enter(there);
    let (file, open) = ((memfd as i32).to_le_bytes(), 1_u32.to_le_bytes());
    let (zero, percent) = ([0; 16], 100_u32.to_le_bytes());
    ioctl(
        w,
        ZRS_IOC_MEM_SERVE,
        &[
            &node,
            &file,
            &open,
            &zero[..8],
            &bytes.to_le_bytes(),
            &zero,
            &percent,
            &zero,
            &zero[..4],
        ],
    );
    sys::call(libc::SYS_close, &[memfd as u64]);
    w.enter(here);
    let (mapped, set) = ([0, 0, 0xff, 0xff], 1_u32.to_le_bytes());
    let host = &address(there, 0)[4..8];
    ioctl(
        w,
        ZRS_IOC_MEM_NODES,
        &[
            &zero[..8],
            &node,
            &zero[..8],
            &mapped,
            host,
            &zero[..4],
            &set,
            &zero[..8],
            &zero,
        ],
    );
    let len = len.min(1 << 20).to_le_bytes();
    let alloc: [&[u8]; 8] = [
        &node,
        &len,
        &zero[..8],
        &zero[..8],
        &zero,
        &zero,
        &zero,
        &zero,
    ];
    let outs = [(); 2].map(|()| ioctl(w, ZRS_IOC_MEM_ALLOC, &alloc));
    sys::call(libc::SYS_close, &[device as u64]);
    Ran {
        result: outs[0].min(outs[1]).min(0),
        outs,
    }
}

/// ZRS_RX_RING with these flags: the ring, and the window or escape area by the flags.
fn map_ring(w: &mut Worker, fd: u64, flags: u32) -> Ran {
    let mut asked = [0; 56];
    asked[..4].copy_from_slice(&flags.to_le_bytes());
    let (ring, len) = (w.put(&asked), w.put(&56_u32.to_le_bytes()));
    let set = sys::call(libc::SYS_setsockopt, &[fd, SOL_ZRS, RX_RING, ring, 56]);
    let got = sys::call(libc::SYS_getsockopt, &[fd, SOL_ZRS, RX_RING, ring, len]);
    if set < 0 || got < 0 {
        let result = set.min(got);
        return Ran {
            result,
            outs: [result; 2],
        };
    }
    let layout = w.get(ring, 56);
    let at = |i: usize| u64_at(&layout, i);
    let map = |prot: i32, len: u64, off: u64| {
        sys::call(
            libc::SYS_mmap,
            &[0, len, prot as u64, libc::MAP_SHARED as u64, fd, off],
        )
    };
    let (offset, bytes) = match flags {
        0 => (at(24), at(32)),
        _ => (at(40), at(48)),
    };
    Ran {
        result: 0,
        outs: [
            map(libc::PROT_READ | libc::PROT_WRITE, at(16), at(8)),
            map(libc::PROT_READ, bytes, offset),
        ],
    }
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    for (to, from) in word.iter_mut().zip(bytes.iter().skip(at)) {
        *to = *from;
    }
    u64::from_le_bytes(word)
}

/// Changes the states of up to `most` descriptors as `op` says; how many.
fn ring(w: &mut Worker, base: u64, op: u64, most: u64) -> i64 {
    let fault = -i64::from(libc::EFAULT);
    let Some(head) = w.peek(base, 192) else {
        return fault;
    };
    let entries = u64_at(&head, 4) & 0xffff_ffff;
    let descs = u64_at(&head, 8) & 0xffff_ffff;
    let (first, end) = (u64_at(&head, 16), u64_at(&head, 64));
    if !(1..=4096).contains(&entries) {
        return -i64::from(libc::EINVAL);
    }
    let mut done = 0;
    for n in first.max(end.saturating_sub(entries))..end {
        if done == most {
            break;
        }
        let state_at = base.wrapping_add(descs + n % entries * 32 + 16);
        let Some(state) = w.peek(state_at, 4) else {
            return fault;
        };
        let (ready, held) = (matches!(state[0], 1 | 5), state[0] == 2);
        let states: &[u32] = match op {
            0 if ready => &[2, 3],
            1 if ready => &[2],
            2 if held => &[3],
            0..=2 => continue,
            3 => &[4],
            4 => &[0],
            5 => &[1],
            7 => &[5],
            _ => &[0xffff_fffe],
        };
        for state in states {
            w.poke(state_at, &state.to_le_bytes());
        }
        done += 1;
    }
    done as i64
}

fn sleep(w: &mut Worker, ms: u64) -> i64 {
    let at = w.put_words(&[0, ms * 1_000_000]);
    sys::call(libc::SYS_nanosleep, &[at, 0])
}

/// The child makes one call and ends. It is a copy of one thread of several: raw calls only.
fn fork(w: &mut Worker, op: u64, fd: u64) -> i64 {
    let buf = w.buf();
    let time = w.put_words(&[0, 30_000_000]);
    let pid = sys::call(libc::SYS_clone, &[libc::SIGCHLD as u64, 0, 0, 0, 0]);
    if pid != 0 {
        return pid;
    }
    let quiet = (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) as u64;
    match op {
        1 => sys::call(libc::SYS_nanosleep, &[time, 0]),
        2 => sys::call(libc::SYS_close, &[fd]),
        3 => sys::call(libc::SYS_shutdown, &[fd, 2]),
        4 => sys::call(libc::SYS_sendto, &[fd, buf, 5000, quiet, 0, 0]),
        5 => sys::call(libc::SYS_recvfrom, &[fd, buf, 5000, quiet, 0, 0]),
        6 => sys::call(libc::SYS_accept4, &[fd, 0, 0, libc::SOCK_NONBLOCK as u64]),
        7 => sys::call(libc::SYS_recvfrom, &[fd, buf, 5000, 0, 0, 0]),
        _ => 0,
    };
    sys::call(libc::SYS_exit_group, &[0]);
    0
}

/// A `msghdr` of one byte with room for a descriptor; the address of it and of its control bytes.
fn fd_message(w: &mut Worker, fd: u64) -> (u64, u64) {
    let rights = (libc::SOL_SOCKET as u64) | ((libc::SCM_RIGHTS as u64) << 32);
    let control = w.put_words(&[20, rights, fd & 0xffff_ffff]);
    let byte = w.put(&[0]);
    let iov = w.put_words(&[byte, 1]);
    (w.put_words(&[0, 0, iov, 1, control, 24, 0]), control)
}

fn send_fd(w: &mut Worker, unix: u64, fd: u64) -> i64 {
    let (message, _) = fd_message(w, fd);
    let flags = (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) as u64;
    sys::call(libc::SYS_sendmsg, &[unix, message, flags])
}

fn recv_fd(w: &mut Worker, unix: u64) -> i64 {
    let (message, control) = fd_message(w, u64::MAX);
    let n = sys::call(
        libc::SYS_recvmsg,
        &[unix, message, libc::MSG_DONTWAIT as u64],
    );
    if n < 0 {
        return n;
    }
    i64::from(u64_at(&w.get(control, 24), 16) as i32)
}

const SQES: u64 = 0x1000_0000;

/// Submits one operation: waits for its completion with MSG_DONTWAIT, else leaves it to its fate.
fn uring(w: &mut Worker, words: &[u64]) -> i64 {
    let &[op, fd, buf, len, flags] = words else {
        return -i64::from(libc::EINVAL);
    };
    let params = w.put(&[0; 120]);
    let ring = sys::call(libc::SYS_io_uring_setup, &[4, params]);
    if ring < 0 {
        return ring;
    }
    let got = w.get(params, 120);
    let off = |at: usize| u64_at(&got, at) & 0xffff_ffff;
    let (tail, array) = (off(44), off(64));
    let map = |len: u64, off: u64| {
        let flags = (libc::MAP_SHARED | libc::MAP_POPULATE) as u64;
        sys::call(libc::SYS_mmap, &[0, len, 3, flags, ring as u64, off]) as u64
    };
    let (sq, sqes) = (map(array + 16, 0), map(4 * 64, SQES));
    // CONNECT has its length where others have an offset.
    let (addr, offset) = match op {
        16 => (w.put(&address(1, 7000)), 16),
        13 => (0, 0),
        _ => (buf, 0),
    };
    // POLL_ADD and SHUTDOWN have their events, or the direction, in these fields.
    let (len, op_flags) = match op {
        6 => (0, 5),
        34 => (len % 3, 0),
        13 | 16 | 19 => (0, 0),
        22 | 23 => (len, 0),
        _ => (len, flags),
    };
    let mut sqe = Vec::new();
    sqe.extend_from_slice(&(op as u32 & 0xff).to_le_bytes());
    sqe.extend_from_slice(&(fd as u32).to_le_bytes());
    let len_and_flags = (len & 0xffff_ffff) | (op_flags << 32);
    for word in [offset, addr, len_and_flags, 0, 0, 0, 0] {
        sqe.extend_from_slice(&word.to_le_bytes());
    }
    w.poke(sqes, &sqe);
    w.poke(sq.wrapping_add(array), &0_u32.to_le_bytes());
    w.poke(sq.wrapping_add(tail), &1_u32.to_le_bytes());
    let wait = u64::from(flags & libc::MSG_DONTWAIT as u64 != 0);
    sys::call(
        libc::SYS_io_uring_enter,
        &[ring as u64, 1, wait, wait, 0, 0],
    )
}

/// Submits one operation: its result, or what `how` makes of it while it may be under way.
fn aio(w: &mut Worker, words: &[u64]) -> i64 {
    let &[op, fd, buf, len, pos, how] = words else {
        return -i64::from(libc::EINVAL);
    };
    let context_at = w.put_words(&[0]);
    let made = sys::call(libc::SYS_io_setup, &[4, context_at]);
    if made < 0 {
        return made;
    }
    let context = u64_at(&w.get(context_at, 8), 0);
    // Vectors have the memory in two pieces.
    let (buf, len) = match op {
        7 | 8 => (w.put_words(&[buf, len / 3, buf, len - len / 3]), 2),
        _ => (buf, len),
    };
    // struct iocb: data, key and flags of the operation, operation and file, memory, position, no eventfd.
    let file = (op & 0xffff) | (fd << 32);
    let block = w.put_words(&[7, 0, file, buf, len, pos, 0, 0]);
    let list = w.put_words(&[block]);
    let taken = sys::call(libc::SYS_io_submit, &[context, 1, list]);
    let event = w.put_words(&[0; 4]);
    let result = match how {
        _ if taken < 1 => taken,
        // With the process.
        0 => return taken,
        1 => {
            let limit = w.put_words(&[0, 10_000_000]);
            match sys::call(libc::SYS_io_getevents, &[context, 1, 1, event, limit]) {
                1 => u64_at(&w.get(event, 32), 16) as i64,
                none => none,
            }
        }
        2 => sys::call(libc::SYS_io_cancel, &[context, block, event]),
        _ => taken,
    };
    sys::call(libc::SYS_io_destroy, &[context]);
    result
}
