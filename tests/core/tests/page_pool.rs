// SPDX-License-Identifier: GPL-2.0

//! The pool's allocator against a list of booleans.

use proptest::prelude::*;
use zrs_core::page_pool::PagePool;

fn pool(pages: usize) -> PagePool<Vec<u64>> {
    // Storage comes with whatever was in it.
    PagePool::new(vec![u64::MAX; PagePool::<Vec<u64>>::words(pages)], pages)
}

// rows: Z2
#[test]
fn storage() {
    for (pages, words) in [(0, 0), (1, 1), (64, 1), (65, 2), (128, 2)] {
        assert_eq!(PagePool::<Vec<u64>>::words(pages), words);
    }
    assert_eq!(pool(65).pages(), 65);
    // No page beyond the storage.
    assert_eq!(PagePool::new(vec![0_u64; 2], 1000).pages(), 128);
    assert_eq!(PagePool::new(vec![0_u64; 2], 100).pages(), 100);
    let mut array = [7_u64; 3];
    assert_eq!(PagePool::new(&mut array[..], 150).alloc(150), Some(0));
}

// rows: Z2
#[test]
fn none_and_all() {
    let mut p = pool(0);
    assert_eq!((p.alloc(0), p.alloc(1)), (None, None));
    assert!(!p.free(0, 0) && !p.free(0, 1));

    let mut p = pool(130);
    assert_eq!(p.alloc(0), None);
    assert_eq!(p.alloc(131), None);
    assert_eq!(p.alloc(usize::MAX), None);
    assert_eq!(p.alloc(130), Some(0));
    assert_eq!((p.used(), p.alloc(1)), (130, None));
    assert!(!p.free(0, 131) && !p.free(130, 1) && !p.free(usize::MAX, 2) && !p.free(1, usize::MAX));
    assert_eq!(p.used(), 130);
    assert!(p.free(0, 130));
    assert!(!p.free(0, 130), "twice");
    assert_eq!((p.used(), p.alloc(130)), (0, Some(0)));
}

/// A run may lie across words, and a gap that is one page too small is passed over.
// rows: Z2
#[test]
fn first_fit() {
    let mut p = pool(200);
    assert_eq!(p.alloc(60), Some(0));
    assert_eq!(p.alloc(10), Some(60));
    assert_eq!(p.alloc(100), Some(70));
    assert!(p.free(60, 10));
    assert_eq!(p.alloc(11), Some(170));
    assert_eq!(p.alloc(10), Some(60));
    assert!(
        p.free(55, 10),
        "a part of what was leased, over the end of a word"
    );
    assert_eq!(p.alloc(11), Some(181));
    assert_eq!(p.alloc(10), Some(55));
}

fn model_alloc(model: &mut [bool], count: usize) -> Option<usize> {
    let start = (0..=model.len().checked_sub(count)?)
        .find(|s| count > 0 && !model[*s..s + count].contains(&true))?;
    model[start..start + count].fill(true);
    Some(start)
}

fn model_free(model: &mut [bool], start: usize, count: usize) -> bool {
    let all = match model.get(start..start.saturating_add(count)) {
        Some(run) => count > 0 && !run.contains(&false),
        None => false,
    };
    if all {
        model[start..start + count].fill(false);
    }
    all
}

proptest! {
    // rows: Z2
    #[test]
    fn as_the_model(
        pages in 0_usize..300,
        ops in prop::collection::vec((any::<bool>(), any::<prop::sample::Index>(), 0_usize..70), 0..200),
    ) {
        let mut p = pool(pages);
        let mut model = vec![false; pages];
        let mut leases: Vec<(usize, usize)> = Vec::new();
        for (alloc, which, count) in ops {
            if alloc {
                let got = p.alloc(count);
                prop_assert_eq!(got, model_alloc(&mut model, count));
                leases.extend(got.map(|start| (start, count)));
            } else if !leases.is_empty() && count % 4 != 0 {
                let (start, count) = leases.swap_remove(which.index(leases.len()));
                prop_assert!(p.free(start, count));
                prop_assert!(model_free(&mut model, start, count));
            } else {
                // Not necessarily a lease.
                let start = which.index(pages + 10);
                let freed = p.free(start, count);
                prop_assert_eq!(freed, model_free(&mut model, start, count));
                if freed {
                    leases.clear(); // No telling any more whose they are.
                }
            }
            prop_assert_eq!(p.used(), model.iter().filter(|u| **u).count());
        }
    }
}
