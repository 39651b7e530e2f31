// SPDX-License-Identifier: GPL-2.0
//! Receiving, from a ring with a simulated kernel; calls without a ring are in `tests/calls.c`.
// rows: B3 B13

use std::net::Shutdown;
use std::os::unix::net::UnixStream;

use zrs_sys::fake::{pair, Bell, Kernel};

use super::*;

/// The objects of the C side, and the two simulated sides.
struct Fake {
    rx: *mut zrs_rx,
    kernel: Kernel,
    peer: UnixStream,
}

fn fake() -> Fake {
    let (kernel, ring) = pair(4, 4096, Bell::default()).unwrap();
    let (peer, ours) = UnixStream::pair().unwrap();
    let rx = RxRing::fake(ring, ours.into());
    Fake {
        rx: Box::into_raw(Box::new(zrs_rx(rx))),
        kernel,
        peer,
    }
}

impl Fake {
    /// The result of zrs_rx_recv(), and errno if that is -1; and the segment.
    fn recv(&self, timeout_ms: c_int) -> (c_int, c_int, zrs_segment) {
        let mut segment = zrs_segment {
            len: 99,
            ..zrs_segment::NONE
        };
        // SAFETY: the ring is open, and the segment can be written.
        let got = unsafe { zrs_rx_recv(self.rx, &raw mut segment, timeout_ms) };
        let errno = match got {
            -1 => io::Error::last_os_error().raw_os_error().unwrap(),
            _ => 0,
        };
        (got, errno, segment)
    }

    fn segment(&self) -> zrs_segment {
        let (got, _, segment) = self.recv(-1);
        assert_eq!(got, 1);
        segment
    }

    fn close(self) -> Kernel {
        // SAFETY: it is open, and has no other user.
        unsafe { zrs_rx_close(self.rx) };
        self.kernel
    }
}

fn bytes(segment: &zrs_segment) -> &[u8] {
    // SAFETY: it has been received, and is held.
    unsafe { slice::from_raw_parts(segment.data.cast(), segment.len) }
}

fn release(segment: &mut zrs_segment) {
    // SAFETY: it has been received, or released.
    unsafe { zrs_segment_release(segment) };
}

fn is_none(segment: &zrs_segment) -> bool {
    segment.data.is_null() && segment.len == 0 && segment.held.is_null() && segment.copied == 0
}

#[test]
fn segments_are_held_and_released_in_any_order() {
    let mut f = fake();
    assert!(f.kernel.put(b"one") && f.kernel.put(b"two"));
    let (mut one, mut two) = (f.segment(), f.segment());
    assert_eq!((bytes(&one), bytes(&two)), (&b"one"[..], &b"two"[..]));
    assert_eq!((one.copied, two.copied), (0, 0));
    release(&mut two);
    assert_eq!(f.kernel.reclaim(), 0, "the first one is still held");
    release(&mut one);
    assert_eq!(f.kernel.reclaim(), 2);
    assert!(is_none(&one));
    release(&mut one);
    f.close();
}

#[test]
fn segments_outlive_the_ring() {
    let mut f = fake();
    assert!(f.kernel.put(b"kept"));
    let mut kept = f.segment();
    let mut kernel = f.close();
    assert_eq!(bytes(&kept), b"kept");
    release(&mut kept);
    assert_eq!(kernel.reclaim(), 1);
}

#[test]
fn what_the_kernel_has_is_copied() {
    use std::io::Write;
    let mut f = fake();
    f.peer.write_all(b"small").unwrap();
    assert!(f.kernel.put_kernel(5));
    let mut small = f.segment();
    assert_eq!((bytes(&small), small.copied), (&b"small"[..], 1));
    release(&mut small);
    f.close();
}

#[test]
fn nothing_and_the_end() {
    let f = fake();
    for (ms, expected) in [(0, libc::EAGAIN), (10, libc::ETIMEDOUT)] {
        let (got, errno, segment) = f.recv(ms);
        assert_eq!((got, errno), (-1, expected));
        assert!(is_none(&segment));
    }
    f.peer.shutdown(Shutdown::Write).unwrap();
    for ms in [0, 10, -1] {
        let (got, _, segment) = f.recv(ms);
        assert_eq!(got, 0);
        assert!(is_none(&segment));
    }
    f.close();
}

#[test]
fn the_window_and_null() {
    let f = fake();
    // SAFETY: it is open.
    assert_eq!(unsafe { zrs_rx_window(f.rx) }, 4096);
    // SAFETY: the ring is open, and NULL is allowed.
    assert_eq!(unsafe { zrs_rx_recv(f.rx, ptr::null_mut(), 0) }, -1);
    let errno = io::Error::last_os_error().raw_os_error();
    assert_eq!(errno, Some(libc::EFAULT));
    f.close();
}
