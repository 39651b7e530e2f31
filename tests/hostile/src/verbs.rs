// SPDX-License-Identifier: GPL-2.0
//! Verbs and the connection manager: safe wrappers of `verbs.c`. All `unsafe` of this program is
//! here.

use std::ffi::{c_char, c_void, CString};
use std::io;
use std::mem::zeroed;
use std::net::SocketAddrV4;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::{self, NonNull};
use std::time::{Duration, Instant};

/// `enum rdma_cm_event_type`.
pub const REJECTED: i32 = 8;
pub const ESTABLISHED: i32 = 9;
pub const DISCONNECTED: i32 = 10;

/// `enum ibv_wr_opcode`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Op {
    Write = 0,
    WriteImm = 1,
    Send = 2,
    SendImm = 3,
    Read = 4,
    CompareSwap = 5,
    FetchAdd = 6,
    SendInv = 9,
}

/// `enum ibv_wc_opcode`: receives have this bit.
const RECEIVE: u32 = 1 << 7;

#[repr(C)]
struct Ep {
    _private: [u8; 0],
}

/// An event of the connection manager's.
#[repr(C)]
pub struct Event {
    pub kind: i32,
    pub status: i32,
    len: u32,
    data: [u8; 256],
}

impl Event {
    /// The peer's private data.
    pub fn data(&self) -> &[u8] {
        &self.data[..(self.len as usize).min(self.data.len())]
    }
}

#[repr(C)]
struct RawSend {
    wr_id: u64,
    offset: u64,
    raddr: u64,
    len: u32,
    rkey: u32,
    imm: u32,
    opcode: u32,
}

#[repr(C)]
struct RawWc {
    wr_id: u64,
    status: u32,
    opcode: u32,
    byte_len: u32,
    reserved: u32,
}

extern "C" {
    fn zh_free(ep: *mut Ep);
    fn zh_listen(ip: u32, port: u16, out: *mut *mut Ep) -> i32;
    fn zh_request(ep: *mut Ep, timeout_ms: i32, event: *mut Event, out: *mut *mut Ep) -> i32;
    fn zh_resolve(from: u32, from_port: u16, to: u32, to_port: u16, out: *mut *mut Ep) -> i32;
    fn zh_queues(ep: *mut Ep, len: usize, depth: u32) -> i32;
    fn zh_buffer(ep: *mut Ep) -> *mut c_void;
    fn zh_rkey(ep: *mut Ep) -> u32;
    fn zh_numbers(ep: *mut Ep, own: *mut u32, theirs: *mut u32) -> i32;
    fn zh_event(ep: *mut Ep, timeout_ms: i32, event: *mut Event) -> i32;
    fn zh_connect(ep: *mut Ep, data: *const u8, len: u8) -> i32;
    fn zh_accept(ep: *mut Ep, data: *const u8, len: u8) -> i32;
    fn zh_reject(ep: *mut Ep, data: *const u8, len: u8) -> i32;
    fn zh_disconnect(ep: *mut Ep) -> i32;
    fn zh_break(ep: *mut Ep) -> i32;
    fn zh_post_recv(ep: *mut Ep, wr_id: u64, offset: u64, len: u32) -> i32;
    fn zh_post_send(ep: *mut Ep, send: *const RawSend) -> i32;
    fn zh_post_cut(ep: *mut Ep, wr_id: u64, offset: u64, sent: u32) -> i32;
    fn zh_poll(ep: *mut Ep, wc: *mut RawWc) -> i32;
    fn zh_mad(node: *const c_char, mad: *mut u8, len: usize) -> i32;
}

fn check(rc: i32) -> io::Result<i32> {
    if rc < 0 {
        return Err(io::Error::from_raw_os_error(-rc));
    }
    Ok(rc)
}

fn millis(timeout: Duration) -> i32 {
    timeout.as_millis().min(1 << 30) as i32
}

/// The fields of a completion.
#[derive(Clone, Copy, Debug)]
pub struct Wc {
    pub wr_id: u64,
    /// `enum ibv_wc_status`; 0 is success, 5 flushed.
    pub status: u32,
    pub is_receive: bool,
    pub len: usize,
}

/// The bytes to send: `len` bytes of the endpoint's buffer from `offset` on.
#[derive(Clone, Copy, Debug)]
pub struct Send {
    pub op: Op,
    pub offset: usize,
    pub len: usize,
    pub raddr: u64,
    pub rkey: u32,
}

/// A listener of the connection manager's.
pub struct Listener(NonNull<Ep>);

impl Listener {
    pub fn bind(addr: SocketAddrV4) -> io::Result<Self> {
        let mut out = ptr::null_mut();
        // SAFETY: `out` has room for a pointer.
        check(unsafe { zh_listen(addr.ip().to_bits(), addr.port(), &raw mut out) })?;
        NonNull::new(out)
            .map(Self)
            .ok_or(io::ErrorKind::Other.into())
    }

    /// The next connection, not accepted yet and without queues, and its private data.
    pub fn request(&self, timeout: Duration) -> io::Result<(Endpoint, Vec<u8>)> {
        let end = Instant::now() + timeout;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let mut out = ptr::null_mut();
            // SAFETY: zeroes are an event without data.
            let mut event: Event = unsafe { zeroed() };
            // SAFETY: the listener is alive; both outputs have room for the results.
            let n = check(unsafe {
                zh_request(self.0.as_ptr(), millis(left), &raw mut event, &raw mut out)
            })?;
            match NonNull::new(out) {
                Some(ep) if n == 1 => {
                    let endpoint = Endpoint { ep, len: 0 };
                    return Ok((endpoint, event.data().to_vec()));
                }
                _ if left.is_zero() => return Err(io::ErrorKind::TimedOut.into()),
                _ => {}
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // SAFETY: it has no other user any more.
        unsafe { zh_free(self.0.as_ptr()) };
    }
}

/// A connection: an id, a separate queue pair, and registered memory.
pub struct Endpoint {
    ep: NonNull<Ep>,
    len: usize,
}

// SAFETY: the libraries may be used from any thread, and only one at a time has the endpoint.
unsafe impl core::marker::Send for Endpoint {}

impl Endpoint {
    /// An endpoint that knows its way to `to`.
    pub fn resolve(from: SocketAddrV4, to: SocketAddrV4) -> io::Result<Self> {
        let mut out = ptr::null_mut();
        // SAFETY: `out` has room for a pointer.
        check(unsafe {
            zh_resolve(
                from.ip().to_bits(),
                from.port(),
                to.ip().to_bits(),
                to.port(),
                &raw mut out,
            )
        })?;
        let ep = NonNull::new(out).ok_or(io::Error::from(io::ErrorKind::Other))?;
        Ok(Self { ep, len: 0 })
    }

    /// Gives it a queue pair with room for `depth` requests each way, and `len` bytes of memory.
    pub fn make_queues(&mut self, len: usize, depth: u32) -> io::Result<()> {
        assert_eq!(self.len, 0);
        // SAFETY: the endpoint is alive.
        check(unsafe { zh_queues(self.ep.as_ptr(), len, depth) })?;
        self.len = len;
        Ok(())
    }

    /// The key of its memory, for the peer.
    pub fn rkey(&self) -> u32 {
        assert_ne!(self.len, 0);
        // SAFETY: it has queues.
        unsafe { zh_rkey(self.ep.as_ptr()) }
    }

    /// The numbers of its queue pair, and of the one that it is connected with.
    pub fn numbers(&self) -> io::Result<(u32, u32)> {
        assert_ne!(self.len, 0);
        let (mut own, mut theirs) = (0, 0);
        // SAFETY: the endpoint has queues; both outputs have room for a number.
        check(unsafe { zh_numbers(self.ep.as_ptr(), &raw mut own, &raw mut theirs) })?;
        Ok((own, theirs))
    }

    /// The address of its memory, for the peer.
    pub fn address(&self) -> u64 {
        // SAFETY: the endpoint is alive.
        unsafe { zh_buffer(self.ep.as_ptr()) as u64 }
    }

    fn place(&self, offset: usize, len: usize) -> *mut u8 {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.len));
        // SAFETY: within the buffer.
        unsafe { zh_buffer(self.ep.as_ptr()).cast::<u8>().add(offset) }
    }

    /// Puts bytes into its memory.
    pub fn put(&mut self, offset: usize, bytes: &[u8]) {
        let to = self.place(offset, bytes.len());
        // SAFETY: `place` has checked the range. The device may access it at the same time: these
        // are bytes, and code that needs them whole waits for a completion.
        unsafe { ptr::copy(bytes.as_ptr(), to, bytes.len()) };
    }

    /// A copy of bytes of its memory.
    pub fn get(&self, offset: usize, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        let from = self.place(offset, len);
        // SAFETY: as for `put`.
        unsafe { ptr::copy(from, out.as_mut_ptr(), len) };
        out
    }

    /// Waits for an event.
    pub fn event(&self, timeout: Duration) -> io::Result<Option<Event>> {
        // SAFETY: zeroes are an event without data.
        let mut event: Event = unsafe { zeroed() };
        // SAFETY: the endpoint is alive; there is room for an event.
        let n = check(unsafe { zh_event(self.ep.as_ptr(), millis(timeout), &raw mut event) })?;
        Ok((n == 1).then_some(event))
    }

    /// Requests the connection; the result is an event.
    pub fn connect(&self, data: &[u8]) -> io::Result<()> {
        assert_ne!(self.len, 0);
        // SAFETY: the endpoint has queues; the data is of its length.
        check(unsafe { zh_connect(self.ep.as_ptr(), data.as_ptr(), data.len() as u8) }).map(drop)
    }

    /// Accepts the connection.
    pub fn accept(&self, data: &[u8]) -> io::Result<()> {
        assert_ne!(self.len, 0);
        // SAFETY: the endpoint has queues; the data is of its length.
        check(unsafe { zh_accept(self.ep.as_ptr(), data.as_ptr(), data.len() as u8) }).map(drop)
    }

    /// Refuses the connection.
    pub fn reject(&self, data: &[u8]) -> io::Result<()> {
        // SAFETY: the data is of its length.
        check(unsafe { zh_reject(self.ep.as_ptr(), data.as_ptr(), data.len() as u8) }).map(drop)
    }

    /// Ends the connection in order.
    pub fn disconnect(&self) -> io::Result<()> {
        // SAFETY: the endpoint is alive.
        check(unsafe { zh_disconnect(self.ep.as_ptr()) }).map(drop)
    }

    /// Breaks the queue pair, without telling the peer.
    pub fn break_off(&self) -> io::Result<()> {
        assert_ne!(self.len, 0);
        // SAFETY: the endpoint has queues.
        check(unsafe { zh_break(self.ep.as_ptr()) }).map(drop)
    }

    /// Takes a message of up to `len` bytes at `offset`.
    pub fn post_recv(&mut self, wr_id: u64, offset: usize, len: usize) -> io::Result<()> {
        self.place(offset, len);
        // SAFETY: the endpoint has queues, and the range is within its memory.
        check(unsafe { zh_post_recv(self.ep.as_ptr(), wr_id, offset as u64, len as u32) }).map(drop)
    }

    /// Puts the bytes at `offset` of the memory, and posts a request of them; `remote` is an address and a
    /// key.
    pub fn send_bytes(
        &mut self,
        wr_id: u64,
        op: Op,
        offset: usize,
        bytes: &[u8],
        (raddr, rkey): (u64, u32),
    ) -> io::Result<()> {
        self.put(offset, bytes);
        let len = bytes.len();
        self.post_send(
            wr_id,
            Send {
                op,
                offset,
                len,
                raddr,
                rkey,
            },
        )
    }

    /// Posts a request.
    pub fn post_send(&mut self, wr_id: u64, send: Send) -> io::Result<()> {
        self.place(send.offset, send.len);
        let raw = RawSend {
            wr_id,
            offset: send.offset as u64,
            raddr: send.raddr,
            len: send.len as u32,
            rkey: send.rkey,
            imm: 0x1234_5678,
            opcode: send.op as u32,
        };
        // SAFETY: the endpoint has queues, and the range is within its memory.
        check(unsafe { zh_post_send(self.ep.as_ptr(), &raw const raw) }).map(drop)
    }

    /// Sends the first `sent` bytes at `offset`, a multiple of the packet size, as the first half
    /// of a message. The queue pair breaks before the second half.
    pub fn post_cut(&mut self, wr_id: u64, offset: usize, sent: usize) -> io::Result<()> {
        self.place(offset, sent);
        // SAFETY: the endpoint has queues, and the range is within its memory.
        let rc = unsafe { zh_post_cut(self.ep.as_ptr(), wr_id, offset as u64, sent as u32) };
        check(rc).map(drop)
    }

    /// The next completion.
    pub fn poll(&mut self) -> io::Result<Option<Wc>> {
        assert_ne!(self.len, 0);
        // SAFETY: zeroes are a completion.
        let mut wc: RawWc = unsafe { zeroed() };
        // SAFETY: the endpoint has queues; there is room for a completion.
        let n = check(unsafe { zh_poll(self.ep.as_ptr(), &raw mut wc) })?;
        Ok((n == 1).then_some(Wc {
            wr_id: wc.wr_id,
            status: wc.status,
            is_receive: wc.opcode & RECEIVE != 0,
            len: wc.byte_len as usize,
        }))
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        // SAFETY: it has no other user any more.
        unsafe { zh_free(self.ep.as_ptr()) };
    }
}

/// Sends a management datagram, with the header of `struct ib_user_mad`, by the node of a device.
pub fn send_mad(node: &str, mut mad: Vec<u8>) -> io::Result<()> {
    let node = CString::new(node)?;
    // SAFETY: a string with its end, and memory of this length that the C function may write to.
    check(unsafe { zh_mad(node.as_ptr(), mad.as_mut_ptr(), mad.len()) })?;
    Ok(())
}

/// Runs `work` in a new thread in the network namespace `name`: sockets and ids made by it belong
/// there.
pub fn in_net<T: core::marker::Send>(
    name: &str,
    work: impl FnOnce() -> io::Result<T> + core::marker::Send,
) -> io::Result<T> {
    let file = std::fs::File::open(format!("/run/netns/{name}"))?;
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            // SAFETY: no pointers; it moves this thread alone.
            check_errno(unsafe { libc::setns(file.as_raw_fd(), libc::CLONE_NEWNET) })?;
            work()
        });
        thread
            .join()
            .unwrap_or_else(|e| std::panic::resume_unwind(e))
    })
}

fn check_errno(rc: i32) -> io::Result<()> {
    if rc < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Sets SO_RCVBUF of a socket.
pub fn set_rcvbuf(socket: impl AsFd, bytes: u32) -> io::Result<()> {
    let (fd, len) = (socket.as_fd().as_raw_fd(), size_of_val(&bytes) as u32);
    let value = (&raw const bytes).cast();
    // SAFETY: the value is there, and that long, for the call.
    check_errno(unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, value, len) })
}

/// SIGALRM after `seconds` ends the process.
pub fn alarm(seconds: u32) {
    // SAFETY: no pointers.
    unsafe { libc::alarm(seconds) };
}

/// An asynchronous call of libaio.
pub struct Aio {
    context: libc::c_ulong,
    block: Box<[u64; 8]>,
    memory: Vec<u8>,
}

impl Aio {
    pub fn new() -> io::Result<Self> {
        let mut context: libc::c_ulong = 0;
        // SAFETY: the context is written to while the call runs.
        let done = unsafe { libc::syscall(libc::SYS_io_setup, 1, &raw mut context) };
        match done {
            0 => Ok(Self {
                context,
                block: Box::default(),
                memory: Vec::new(),
            }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Begins to write the first `len` bytes of `file`, or to read them. Once.
    pub fn begin(&mut self, file: impl AsFd, write: bool, len: usize) -> io::Result<()> {
        self.memory = vec![1; len];
        // struct iocb: the operation is in the upper half of the third word, beside the file.
        let fd = file.as_fd().as_raw_fd() as u64;
        let at = self.memory.as_mut_ptr().expose_provenance() as u64;
        *self.block = [0, 0, u64::from(write) | (fd << 32), at, len as u64, 0, 0, 0];
        let blocks = [self.block.as_mut_ptr()];
        // SAFETY: block and memory stay until the context is destroyed, in `drop`.
        let done = unsafe { libc::syscall(libc::SYS_io_submit, self.context, 1, blocks.as_ptr()) };
        match done {
            1 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// The result of the call, if it has ended.
    pub fn ended(&mut self) -> io::Result<Option<i64>> {
        let mut event = [0_i64; 4];
        let none = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: there is room for one event.
        let got = unsafe {
            libc::syscall(
                libc::SYS_io_getevents,
                self.context,
                0,
                1,
                event.as_mut_ptr(),
                &raw const none,
            )
        };
        match got {
            0 => Ok(None),
            1 => Ok(Some(event[2])),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Aio {
    /// Waits for the end of the call.
    fn drop(&mut self) {
        // SAFETY: the context is ours.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.context) };
    }
}
