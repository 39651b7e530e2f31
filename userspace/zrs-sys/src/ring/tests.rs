// SPDX-License-Identifier: GPL-2.0
// rows: B3

use std::sync::atomic::Ordering;
use std::thread;

use super::*;
use crate::fake::{pair, Bell};

fn held(look: io::Result<Look>) -> Held {
    match look {
        Ok(Look::Held(held)) => held,
        other => panic!("expected a segment, saw {other:?}"),
    }
}

#[test]
fn segment_is_held_then_done() {
    let (mut kernel, ring) = pair(4, 4096, Bell::default()).unwrap();
    assert_eq!(ring.head(), 0);
    assert!(kernel.put(b"hello"));
    assert_eq!(ring.head(), 1);
    let seg = held(ring.look(0));
    assert_eq!(seg.view().to_vec(), b"hello");
    assert_eq!(kernel.state_of(0), ZRS_DESC_HELD);
    assert_eq!(kernel.reclaim(), 0);
    assert!(matches!(ring.look(0), Ok(Look::Taken)));
    drop(seg);
    assert_eq!(kernel.state_of(0), ZRS_DESC_DONE);
    assert_eq!(kernel.reclaim(), 1);
}

#[test]
fn released_in_any_order_freed_in_order() {
    let (mut kernel, ring) = pair(4, 4096, Bell::default()).unwrap();
    for data in [b"a", b"b", b"c", b"d"] {
        assert!(kernel.put(data));
    }
    assert!(!kernel.put(b"e"), "no descriptor is free");
    let mut segs: Vec<_> = (0..4).map(|n| Some(held(ring.look(n)))).collect();
    segs[2] = None;
    segs[1] = None;
    assert_eq!(kernel.reclaim(), 0, "the first is still held");
    assert_eq!(
        segs[3].as_ref().map(|seg| seg.view().to_vec()),
        Some(b"d".to_vec())
    );
    segs[0] = None;
    assert_eq!(kernel.reclaim(), 3);
    segs[3] = None;
    assert_eq!(kernel.reclaim(), 1);
}

#[test]
fn doorbell_only_when_asked_for() {
    let bell = Bell::default();
    let (mut kernel, ring) = pair(4, 4096, bell.clone()).unwrap();
    assert!(kernel.put(b"a") && kernel.put(b"b") && kernel.put(b"c"));
    drop(held(ring.look(0)));
    assert_eq!(bell.0.load(Ordering::SeqCst), 0);
    assert_eq!(
        kernel.want_credit(),
        1,
        "the second look finds what was given back before"
    );
    drop(held(ring.look(1)));
    assert_eq!(bell.0.load(Ordering::SeqCst), 1);
    assert!(!kernel.wants_credit(), "the program clears it");
    drop(held(ring.look(2)));
    assert_eq!(
        bell.0.load(Ordering::SeqCst),
        1,
        "once for each time it is set"
    );
}

#[test]
fn kernel_segments_are_not_held() {
    let (mut kernel, ring) = pair(2, 4096, Bell::default()).unwrap();
    assert!(kernel.put_kernel(77));
    assert!(matches!(ring.look(0), Ok(Look::Kernel(77))));
    kernel.recv(0, true);
    assert!(matches!(ring.look(0), Ok(Look::Taken)));
}

#[test]
fn segment_outside_the_window_is_refused() {
    let (mut kernel, ring) = pair(2, 4096, Bell::default()).unwrap();
    kernel.publish(4000, 97, ZRS_DESC_READY);
    assert_eq!(ring.look(0).unwrap_err().kind(), io::ErrorKind::InvalidData);
}

#[test]
fn escaped_segments_are_read_where_they_went() {
    let (mut kernel, ring) = pair(4, 64, Bell::default()).unwrap();
    assert!(kernel.put(&[1; 40]) && !kernel.put(&[2; 40]), "it is full");
    assert_eq!(kernel.escape(), Some((0, 0)));
    assert_eq!(kernel.state_of(0), ZRS_DESC_ESCAPED);
    assert!(kernel.put(&[2; 40]), "the room is free");
    let first = held(ring.look(0));
    assert_eq!(kernel.state_of(0), ZRS_DESC_HELD);
    assert!(first.has_escaped());
    assert_eq!(first.view().to_vec(), [1; 40]);
    let second = held(ring.look(1));
    assert!(!second.has_escaped());
    assert_eq!(second.view().to_vec(), [2; 40]);
    assert_eq!(kernel.escape(), None, "what is held stays");
    drop((first, second));
    assert_eq!(kernel.reclaim(), 2);
    assert!(matches!(ring.look(0), Ok(Look::Taken)));
}

#[test]
fn small_segments_are_read_where_they_were_copied() {
    let (mut kernel, ring) = pair(8, 64, Bell::default()).unwrap();
    assert!(kernel.put_small(b"small") && kernel.put(b"window") && kernel.put_small(b"again"));
    let segs: Vec<_> = (0..3).map(|n| held(ring.look(n))).collect();
    let seen: Vec<_> = segs
        .iter()
        .map(|seg| (seg.view().to_vec(), seg.has_escaped()))
        .collect();
    let all = [
        (b"small".to_vec(), true),
        (b"window".to_vec(), false),
        (b"again".to_vec(), true),
    ];
    assert_eq!(seen, all);
    assert_eq!(kernel.reclaim(), 0);
    drop(segs);
    assert_eq!(kernel.reclaim(), 3);
}

#[test]
fn nothing_is_escaped_before_what_is_older() {
    let (mut kernel, ring) = pair(4, 64, Bell::default()).unwrap();
    assert!(kernel.put(b"held") && kernel.put(b"behind it"));
    let first = held(ring.look(0));
    assert_eq!(kernel.escape(), None);
    assert_eq!(kernel.state_of(1), ZRS_DESC_READY);
    drop(first);
    assert_eq!(kernel.reclaim(), 1);
    assert_eq!(kernel.escape(), Some((1, 0)));
    assert_eq!(held(ring.look(1)).view().to_vec(), b"behind it");
}

#[test]
fn segment_outside_the_escape_area_is_refused() {
    let (mut kernel, ring) = pair(4, 64, Bell::default()).unwrap();
    for (n, off) in [(0, 61), (1, u32::MAX)] {
        assert!(kernel.put(b"data"));
        assert!(kernel.escape().is_some());
        kernel.set_escape_off(n, off);
        assert_eq!(ring.look(n).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert_eq!(kernel.state_of(n), ZRS_DESC_DONE, "given back at once");
    }
}

#[test]
fn a_ring_without_escape_area_has_no_escaped_segments() {
    let entries = 4_u32;
    let head = zrs_ring {
        version: ZRS_RING_VERSION,
        entries,
        desc_offset: size_of::<zrs_ring>() as u32,
        ..Default::default()
    };
    let ring = crate::fake::from_head(head, 4096, 4096).unwrap();
    for (len, refused) in [(1, true), (0, false)] {
        let desc = ring.desc(0).as_ptr();
        // SAFETY: there is no other side.
        unsafe {
            (&raw mut (*desc).len).write_volatile(len);
            (&raw mut (*desc).state).write_volatile(ZRS_DESC_ESCAPED);
        }
        assert_eq!(ring.look(0).is_err(), refused);
    }
}

#[test]
fn malformed_rings_are_refused() {
    const V: u32 = ZRS_RING_VERSION;
    let make = |version, entries, desc_offset: u32| {
        let map = Map::anonymous(4096).unwrap();
        let head = zrs_ring {
            version,
            entries,
            desc_offset,
            ..Default::default()
        };
        // SAFETY: the mapping is our page.
        unsafe {
            map.base().cast::<zrs_ring>().write(head);
            Ring::new(
                map,
                Map::anonymous(4096).unwrap(),
                None,
                Box::new(Bell::default()),
            )
        }
    };
    assert!(make(V, 64, 192).is_ok());
    assert!(make(V + 1, 64, 192).is_err(), "another version");
    assert!(make(V, 63, 192).is_err(), "no power of two");
    assert!(make(V, 0, 192).is_err(), "no entries");
    assert!(make(V, 64, 193).is_err(), "unaligned");
    assert!(make(V, 128, 192).is_err(), "larger than the mapping");
    assert!(make(V, 1 << 31, !7).is_err(), "far too large");
}

/// Each segment lies where the one before it lay: all that orders the reader's last look and the
/// kernel's next write is the state word. Miri reports a race if that is not enough.
#[test]
fn same_place_again_and_again() {
    const SEGMENTS: u64 = if cfg!(miri) { 30 } else { 2_000 };
    let (mut kernel, ring) = pair(2, 64, Bell::default()).unwrap();
    thread::scope(|s| {
        s.spawn(move || {
            for n in 0..SEGMENTS {
                while !kernel.put(&[n as u8; 40]) {
                    if kernel.reclaim() == 0 {
                        thread::yield_now();
                    }
                }
            }
        });
        for n in 0..SEGMENTS {
            while ring.head() <= n {
                thread::yield_now();
            }
            assert_eq!(held(ring.look(n)).view().to_vec(), [n as u8; 40]);
        }
    });
}

/// The kernel moves segments while the program takes them: the first one gets the segment, and the
/// bytes are right either way.
#[test]
fn escapes_while_it_is_read() {
    const SEGMENTS: u64 = if cfg!(miri) { 60 } else { 20_000 };
    let (mut kernel, ring) = pair(4, 200, Bell::default()).unwrap();
    assert!(kernel.put(&[0; 60]) && kernel.escape().is_some());
    thread::scope(|s| {
        let escaped = s.spawn(move || {
            let mut escaped = 1;
            for n in 1..SEGMENTS {
                while !kernel.put(&[n as u8; 60]) {
                    escaped += u64::from(kernel.escape().is_some());
                    if kernel.reclaim() == 0 {
                        thread::yield_now();
                    }
                }
                if n % 3 == 0 {
                    escaped += u64::from(kernel.escape().is_some());
                }
            }
            escaped
        });
        let mut seen = 0;
        for n in 0..SEGMENTS {
            while ring.head() <= n {
                thread::yield_now();
            }
            let seg = held(ring.look(n));
            assert_eq!(seg.view().to_vec(), [n as u8; 60], "segment {n}");
            seen += u64::from(seg.has_escaped());
        }
        assert_eq!(escaped.join().unwrap(), seen);
    });
}

#[test]
fn wraps_many_times_with_two_threads() {
    // Ring and window are small, so both wrap; the reader keeps some segments for a while.
    let bell = Bell::default();
    let (mut kernel, ring) = pair(8, 3000, bell.clone()).unwrap();
    let byte = |pos: u64| (pos.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
    const SEGMENTS: u64 = if cfg!(miri) { 100 } else { 20_000 };

    let total = thread::scope(|s| {
        let writer = s.spawn(move || {
            let mut pos = 0;
            for n in 0..SEGMENTS {
                let len = 1 + (n * 7919) % 700;
                let data: Vec<u8> = (pos..pos + len).map(byte).collect();
                let mut rung = bell.0.load(Ordering::SeqCst);
                while !kernel.put(&data) {
                    if kernel.want_credit() == 0 {
                        // A lost doorbell would hang here.
                        while bell.0.load(Ordering::SeqCst) == rung {
                            thread::yield_now();
                        }
                        rung = bell.0.load(Ordering::SeqCst);
                        kernel.reclaim();
                    }
                }
                pos += len;
            }
            pos
        });
        let mut pos = 0;
        let mut kept = Vec::new();
        for n in 0..SEGMENTS {
            while ring.head() <= n {
                thread::yield_now();
            }
            let seg = held(ring.look(n));
            for b in seg.view().to_vec() {
                assert_eq!(b, byte(pos), "byte {pos} in segment {n}");
                pos += 1;
            }
            kept.push(seg);
            if kept.len() == 3 {
                kept.swap_remove((n % 3) as usize);
                kept.pop();
            }
            if n % 5 == 0 {
                kept.clear();
            }
            // At most two are kept, of 700 bytes each: the window of 3000 always has room.
        }
        assert_eq!(writer.join().unwrap(), pos);
        pos
    });
    assert!(total > 300 * SEGMENTS);
}
