// SPDX-License-Identifier: GPL-2.0
//! seccomp(2) and its notifications, passing a descriptor, and signals.

use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixDatagram;
use std::sync::{Mutex, PoisonError};

use libc::{c_int, pid_t};

const SET_MODE_FILTER: libc::c_uint = 1;
const NEW_LISTENER: libc::c_ulong = 1 << 3;
/// A program that gets a signal is not made to call again once the supervisor has its call.
const WAIT_KILLABLE_RECV: libc::c_ulong = 1 << 5;

const NOTIF_RECV: libc::c_ulong = 0xc050_2100;
const NOTIF_SEND: libc::c_ulong = 0xc018_2101;
const NOTIF_ID_VALID: libc::c_ulong = 0x4008_2102;
const NOTIF_ADDFD: libc::c_ulong = 0x4018_2103;
const CONTINUE: u32 = 1;
const ADDFD_SEND: u32 = 1 << 1;

/// `struct seccomp_notif`
#[repr(C)]
#[derive(Default)]
pub struct Call {
    /// The call's number.
    pub id: u64,
    /// The thread that makes it; 0 if this process cannot see it.
    pub pid: u32,
    flags: u32,
    nr: i32,
    arch: u32,
    ip: u64,
    /// Its arguments.
    pub args: [u64; 6],
}

#[repr(C)]
struct Response {
    id: u64,
    val: i64,
    error: i32,
    flags: u32,
}

#[repr(C)]
struct AddFd {
    id: u64,
    flags: u32,
    srcfd: u32,
    newfd: u32,
    newfd_flags: u32,
}

const _: () =
    assert!(size_of::<Call>() == 80 && size_of::<Response>() == 24 && size_of::<AddFd>() == 24);

fn check(returned: c_int) -> io::Result<c_int> {
    if returned < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(returned)
    }
}

/// Puts the filter on this thread and its children; the listener. Allocates nothing.
pub fn install(filter: &[libc::sock_filter]) -> io::Result<OwnedFd> {
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_ptr().cast_mut(),
    };
    let attempt = || {
        // SAFETY: the kernel reads the filter in the call.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_seccomp,
                SET_MODE_FILTER,
                NEW_LISTENER | WAIT_KILLABLE_RECV,
                &raw const program,
            )
        };
        check(fd as c_int)
    };
    let fd = match attempt() {
        Err(e) if e.raw_os_error() == Some(libc::EACCES) => {
            // Others than the administrator cannot filter what a set-user-ID program would do.
            // SAFETY: takes numbers alone.
            check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) })?;
            attempt()?
        }
        other => other?,
    };
    // SAFETY: it is new, and belongs to this process alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Room for a message with one descriptor.
#[repr(C, align(8))]
struct Control([u8; 24]);

fn message(byte: &mut libc::iovec, control: &mut Control) -> libc::msghdr {
    // SAFETY: zeroed numbers and null pointers are a value of it.
    let mut msg: libc::msghdr = unsafe { zeroed() };
    msg.msg_iov = byte;
    msg.msg_iovlen = 1;
    msg.msg_control = control.0.as_mut_ptr().cast();
    // SAFETY: computes a number.
    msg.msg_controllen = unsafe { libc::CMSG_SPACE(size_of::<c_int>() as u32) } as _;
    msg
}

/// Sends a descriptor to the other end of `socket`. Allocates nothing.
pub fn send_fd(socket: RawFd, fd: &OwnedFd) -> io::Result<()> {
    let (mut data, mut control) = ([0_u8], Control([0; 24]));
    let mut byte = libc::iovec {
        iov_base: data.as_mut_ptr().cast(),
        iov_len: 1,
    };
    let msg = message(&mut byte, &mut control);
    // SAFETY: the control block has room for a header and one descriptor, and is aligned.
    unsafe {
        let header = libc::CMSG_FIRSTHDR(&raw const msg);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(size_of::<c_int>() as u32) as _;
        libc::CMSG_DATA(header)
            .cast::<c_int>()
            .write_unaligned(fd.as_raw_fd());
    }
    // SAFETY: the message, its data and its control block are valid in the call.
    check(unsafe { libc::sendmsg(socket, &raw const msg, libc::MSG_NOSIGNAL) } as c_int).map(drop)
}

/// The descriptor that [`send_fd`] has sent.
pub fn receive_fd(socket: &UnixDatagram) -> io::Result<OwnedFd> {
    let (mut data, mut control) = ([0_u8], Control([0; 24]));
    let mut byte = libc::iovec {
        iov_base: data.as_mut_ptr().cast(),
        iov_len: 1,
    };
    let mut msg = message(&mut byte, &mut control);
    // SAFETY: the message, its data and its control block are valid in the call, for writing.
    let n = unsafe {
        libc::recvmsg(
            socket.as_raw_fd(),
            &raw mut msg,
            libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT,
        )
    };
    check(n as c_int)?;
    // SAFETY: the kernel has filled the control block; a header there is whole.
    unsafe {
        let header = libc::CMSG_FIRSTHDR(&raw const msg);
        if header.is_null() || (*header).cmsg_type != libc::SCM_RIGHTS {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let fd = libc::CMSG_DATA(header).cast::<c_int>().read_unaligned();
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// The next call that the filter has stopped. `None`: no process has the filter any more.
pub fn next_call(listener: &OwnedFd) -> io::Result<Option<Call>> {
    loop {
        let mut poll = libc::pollfd {
            fd: listener.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: there is one entry.
        match check(unsafe { libc::poll(&raw mut poll, 1, -1) }) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            other => other?,
        };
        if poll.revents & libc::POLLIN == 0 {
            return Ok(None);
        }
        let mut call = Call::default();
        // SAFETY: the request writes a structure of this size, which has to be zeros before.
        match check(unsafe { libc::ioctl(listener.as_raw_fd(), NOTIF_RECV, &raw mut call) }) {
            Ok(_) => return Ok(Some(call)),
            // A signal, or the program's end, came first.
            Err(e) if matches!(e.raw_os_error(), Some(libc::EINTR | libc::ENOENT)) => {}
            Err(e) => return Err(e),
        }
    }
}

/// Whether the program still waits in the call.
pub fn is_valid(listener: &OwnedFd, id: u64) -> bool {
    // SAFETY: the request reads a number of this size.
    unsafe { libc::ioctl(listener.as_raw_fd(), NOTIF_ID_VALID, &raw const id) == 0 }
}

fn respond(listener: &OwnedFd, response: &Response) {
    // It fails only if the program has ended.
    // SAFETY: the request reads a structure of this size.
    unsafe { libc::ioctl(listener.as_raw_fd(), NOTIF_SEND, response) };
}

/// The call goes on as the program made it.
pub fn proceed(listener: &OwnedFd, id: u64) {
    respond(
        listener,
        &Response {
            id,
            val: 0,
            error: 0,
            flags: CONTINUE,
        },
    );
}

/// The call fails with this errno.
pub fn fail(listener: &OwnedFd, id: u64, errno: i32) {
    respond(
        listener,
        &Response {
            id,
            val: 0,
            error: -errno,
            flags: 0,
        },
    );
}

/// Puts `fd` into the program, as the call's result. Error: the errno, which the program does not
/// have yet.
pub fn give(listener: &OwnedFd, id: u64, fd: &OwnedFd, cloexec: bool) -> Result<(), i32> {
    let add = AddFd {
        id,
        flags: ADDFD_SEND,
        srcfd: fd.as_raw_fd() as u32,
        newfd: 0,
        newfd_flags: if cloexec { libc::O_CLOEXEC as u32 } else { 0 },
    };
    // SAFETY: the request reads a structure of this size.
    let done = check(unsafe { libc::ioctl(listener.as_raw_fd(), NOTIF_ADDFD, &raw const add) });
    done.map(drop)
        .map_err(|e| e.raw_os_error().unwrap_or(libc::EINVAL))
}

/// socket(2); else its errno.
pub fn socket(family: c_int, kind: c_int, protocol: c_int) -> Result<OwnedFd, i32> {
    // SAFETY: takes numbers alone.
    let fd = check(unsafe { libc::socket(family, kind, protocol) });
    let fd = fd.map_err(|e| e.raw_os_error().unwrap_or(libc::EINVAL))?;
    // SAFETY: it is new, and belongs to this process alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Signals for the program, which this process hands on.
#[derive(Clone, Copy)]
pub struct Signals {
    handed_on: libc::sigset_t,
    before: libc::sigset_t,
}

const HANDED_ON: [c_int; 6] = [
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGUSR1,
    libc::SIGUSR2,
];

impl Signals {
    /// Holds them, for [`Self::hand_on`]. To be called before there is another thread.
    pub fn hold() -> io::Result<Self> {
        // SAFETY: zeroed sets are values of it, and are filled next.
        let mut signals: Self = unsafe { zeroed() };
        // SAFETY: both sets are valid for writing.
        unsafe {
            libc::sigemptyset(&raw mut signals.handed_on);
            for signal in HANDED_ON {
                libc::sigaddset(&raw mut signals.handed_on, signal);
            }
            check(libc::sigprocmask(
                libc::SIG_BLOCK,
                &raw const signals.handed_on,
                &raw mut signals.before,
            ))?;
        }
        Ok(signals)
    }

    /// For the program.
    pub(crate) fn before(&self) -> Self {
        *self
    }

    /// In the program before it is run: its signals are as they were.
    pub(crate) fn restore(&self) -> io::Result<()> {
        // SAFETY: reads a set.
        let done = unsafe {
            libc::sigprocmask(
                libc::SIG_SETMASK,
                &raw const self.before,
                std::ptr::null_mut(),
            )
        };
        check(done).map(drop)
    }

    /// Hands them on to the process `to`, and does not return. The terminal signals it itself. Without
    /// a process, such a signal ends this one.
    pub fn hand_on(&self, to: &Mutex<Option<u32>>) {
        loop {
            // SAFETY: zeroed numbers are a value of it.
            let mut info: libc::siginfo_t = unsafe { zeroed() };
            // SAFETY: reads a set, and writes what has come.
            let signal = unsafe { libc::sigwaitinfo(&raw const self.handed_on, &raw mut info) };
            // From a process, not from the kernel.
            if signal <= 0 || info.si_code > 0 {
                continue;
            }
            match *to.lock().unwrap_or_else(PoisonError::into_inner) {
                // SAFETY: takes numbers alone. The process is not reaped while the lock is held.
                Some(pid) => unsafe {
                    libc::kill(pid as pid_t, signal);
                },
                None => std::process::exit(128 + signal),
            }
        }
    }
}
