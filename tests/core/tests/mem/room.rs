// SPDX-License-Identifier: GPL-2.0

//! The room of a link for programs' WRITEs and READs.

use zrs_core::mem::room::{CallRoom, Load};

const MOST: Load = Load {
    bytes: 100,
    wrs: 20,
};

fn load(bytes: u64, wrs: u32) -> Load {
    Load { bytes, wrs }
}

// rows: M4
#[test]
fn queued_operations_leave_half_of_the_room_to_threads_that_wait() {
    let mut room = CallRoom::new(MOST);
    let chunk = load(10, 1);
    for _ in 0..10 {
        assert!(room.fits(true, chunk));
        room.begin(true, chunk);
    }
    assert!(!room.fits(true, chunk) && !room.fits(false, chunk));
    room.wait();
    for left in (0..10).rev() {
        room.end(true, chunk);
        assert_eq!(room.fits(true, chunk), left < 5, "{left} are under way");
        assert!(room.fits(false, chunk), "the thread's");
    }
    // The bound of threads is that of all.
    for n in 0..10 {
        assert!(room.fits(false, chunk));
        assert!(room.fits(true, chunk), "its share is not used");
        room.begin(false, chunk);
        assert_eq!(room.fits(true, chunk), n < 9);
    }
    for _ in 0..10 {
        room.end(false, chunk);
    }
    // All of it is theirs when no thread waits.
    room.wait();
    room.wait_over();
    for _ in 0..5 {
        room.begin(true, chunk);
    }
    assert!(!room.fits(true, chunk), "one waits still");
    room.wait_over();
    assert!(room.fits(true, chunk));
}

// rows: M4
#[test]
fn work_requests_are_bounded_too_and_one_chunk_always_has_room() {
    let mut room = CallRoom::new(MOST);
    let large = load(1000, 3);
    assert!(room.fits(true, large) && room.fits(false, large));
    room.begin(true, large);
    assert!(!room.fits(true, load(1, 1)));
    room.end(true, large);
    room.wait();
    room.begin(true, load(1, 10));
    assert!(!room.fits(true, load(1, 1)) && room.fits(false, load(1, 10)));
    assert!(!room.fits(false, load(1, 11)));
}
