// SPDX-License-Identifier: GPL-2.0

use proptest::prelude::*;
use zrs_core::dgram::lend::{begin, place, whole_blocks, Lending, Place, COPY_MAX};
use zrs_core::dgram::wire::{fragments, Fragment, Ports, FRAGMENT, LEN_MAX, LEN_MAX_V4};

// rows: Z7
#[test]
fn whole_fragments_of_long_datagrams_stay() {
    for total in [0, 1, 4096, 8192, 16_383, 16_384] {
        assert_eq!(whole_blocks(total), 0, "{total}");
    }
    for (total, blocks) in [
        (16_385, 4),
        (20_000, 4),
        (20_480, 5),
        (20_481, 5),
        (LEN_MAX_V4, 15),
        (LEN_MAX, 15),
    ] {
        assert_eq!(whole_blocks(total), blocks, "{total}");
    }
}

// rows: Z7
#[test]
fn a_fragment_that_does_not_fill_its_block_has_no_place_there() {
    let f = Fragment {
        ports: Ports::default(),
        id: 1,
        total: 17_000,
        offset: 16_384,
    };
    assert_eq!(place(&f, 4), Some(Place::Rest(0..616)));
    assert_eq!(place(&f, 5), None);
}

// rows: Z7
#[test]
fn the_budget_of_a_pool() {
    let pool = Lending {
        blocks: 512,
        percent: 25,
        link: 64,
    };
    assert_eq!(pool.most(), 128);
    assert_eq!(pool.more(0, 64), 128);
    assert_eq!(pool.more(127, 64), 1);
    assert_eq!(pool.more(128, 64), 0);
    // The blocks of one more link are left.
    assert_eq!(pool.more(0, 384), 64);
    assert_eq!(pool.more(60, 384), 4);
    assert_eq!(pool.more(64, 384), 0);
    assert_eq!(pool.more(0, 512), 0);
    let none = Lending { percent: 0, ..pool };
    assert_eq!(none.more(0, 0), 0);
    let few = Lending { percent: 1, ..pool };
    assert_eq!(few.most(), 5);
    let small = Lending {
        blocks: 128,
        ..pool
    };
    assert_eq!(small.more(0, 64), 0);
}

// rows: Z7
#[test]
fn where_a_datagram_begins() {
    assert_eq!(begin(8192, 100, 100, true), Some(0));
    assert_eq!(begin(8192, 99, 100, true), None);
    assert_eq!(begin(8193, 5000, 905, true), Some(4095));
    // Too little room to begin at a page.
    assert_eq!(begin(8193, 5000, 906, true), Some(0));
    assert_eq!(begin(8193, 5000, 906, false), Some(0));
    assert_eq!(begin(8193, 905, 906, false), None);
    assert_eq!(begin(usize::MAX, usize::MAX, usize::MAX, true), Some(0));
    assert_eq!(begin(0, 0, 0, true), Some(0));
}

proptest! {
    // rows: Z7
    #[test]
    fn each_byte_has_one_place(total in 0..=LEN_MAX, kept in 0..16_usize) {
        let kept = kept.min(whole_blocks(total) as usize);
        let mut blocks = vec![0; kept];
        let mut rest = vec![0; total as usize - kept * FRAGMENT as usize];
        for f in fragments(Ports::default(), 1, total) {
            match place(&f, kept) {
                Some(Place::Block(n)) => {
                    prop_assert!(total > COPY_MAX);
                    prop_assert_eq!((f.len(), n as u32 * FRAGMENT), (FRAGMENT, f.offset));
                    blocks[n] += 1;
                }
                Some(Place::Rest(range)) => {
                    prop_assert_eq!(range.len(), f.len() as usize);
                    prop_assert_eq!(range.start + kept * FRAGMENT as usize, f.offset as usize);
                    rest[range].iter_mut().for_each(|n| *n += 1);
                }
                None => prop_assert!(false, "{f:?}"),
            }
        }
        prop_assert!(blocks.iter().chain(&rest).all(|n| *n == 1));
    }

    // rows: Z7
    #[test]
    fn a_block_that_stays_is_full(offset in 0..16_u32, total in 0..=LEN_MAX, kept in 0..20_usize) {
        let f = Fragment { ports: Ports::default(), id: 1, total, offset: offset * FRAGMENT };
        if let Some(Place::Block(_)) = place(&f, kept) {
            prop_assert_eq!(f.len(), FRAGMENT);
        }
    }

    // rows: Z7
    #[test]
    fn never_more_than_the_budget(
        blocks in 0..40_000_u32,
        percent in 0..=100_u32,
        link in 0..500_u32,
        steps in proptest::collection::vec((0..4_u8, 0..16_u32), 0..200),
    ) {
        let pool = Lending { blocks, percent, link };
        let (mut lent, mut links) = (0, 0);
        for (step, n) in steps {
            match step {
                0 | 1 => lent += n.min(pool.more(lent, links * link)),
                2 => lent -= n.min(lent),
                // A link is made if there are blocks for it.
                _ if n == 0 => links = links.max(1) - 1,
                _ if (links + 1) * link + lent <= blocks => links += 1,
                _ => {}
            }
            prop_assert!(u64::from(lent) * 100 <= u64::from(blocks) * u64::from(percent));
            prop_assert!(lent + links * link <= blocks);
            // Just after a loan there is room for a link.
            if step < 2 && pool.more(lent, links * link) > 0 {
                prop_assert!(lent + (links + 1) * link < blocks);
            }
        }
    }

    // rows: Z7
    #[test]
    fn it_begins_inside(addr in 0..1_usize << 48, room in 0..200_000_usize, len in 0..70_000_usize, page: bool) {
        match begin(addr, room, len, page) {
            Some(by) => {
                prop_assert!(by + len <= room && by < FRAGMENT as usize);
                prop_assert!(by == 0 || (page && (addr + by) % FRAGMENT as usize == 0));
            }
            None => prop_assert!(len > room),
        }
    }
}
