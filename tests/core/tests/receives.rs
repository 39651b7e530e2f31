// SPDX-License-Identifier: GPL-2.0

//! Blocks of receive queues that links leave behind.

use zrs_core::receives::{is_worn, spare, Ending, SPARE};

// rows: B17 E2
#[test]
fn only_the_queue_of_new_links_has_spare_blocks() {
    assert_eq!(spare(true, 0), SPARE);
    assert_eq!(spare(false, 0), 0);
    for doubtful in [1, SPARE, u32::MAX] {
        // What may be lost is made up for.
        assert_eq!(spare(false, doubtful), doubtful);
        assert_eq!(spare(true, doubtful), SPARE.saturating_add(doubtful));
    }
}

// rows: B17 E2
#[test]
fn an_end_by_the_book_loses_nothing() {
    assert_eq!(Ending::Unused.doubtful(), 0);
    assert_eq!(Ending::Complete.doubtful(), 0);
    assert_eq!(Ending::InMessage.doubtful(), 1);
    assert!(is_worn(Ending::Silent.doubtful(), 1, true));
}

// rows: B17 E2
#[test]
fn a_queue_is_replaced_before_all_spare_blocks_are_lost() {
    for links in 0..4 {
        assert!(!is_worn(0, links, true), "nothing is lost, {links} links");
        assert!(is_worn(SPARE, links, false));
        assert!(is_worn(SPARE / 2, links, true));
        // A link on a new queue would find no blocks.
        assert_eq!(is_worn(SPARE / 2, links, false), links == 0);
        assert_eq!(is_worn(1, links, true), links == 0);
    }
    // However links end, one after the other: what is lost is less than what there is to spare.
    for ending in [Ending::InMessage, Ending::Silent] {
        let mut doubtful = 0;
        while !is_worn(doubtful, 1, true) {
            doubtful += ending.doubtful();
        }
        assert!(doubtful < SPARE);
    }
}
