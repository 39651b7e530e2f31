// SPDX-License-Identifier: GPL-2.0

//! The shares of the link table against maps.

use std::collections::BTreeMap;

use proptest::prelude::*;
use zrs_core::quota::{Holder, Quota, QuotaCount, QuotaError, Shares};

fn holder(user: impl Into<Option<u32>>, net: impl Into<Option<u32>>) -> Holder {
    Holder {
        user: user.into(),
        net: net.into(),
    }
}

/// So many for one user if there is no other, so many for a namespace.
fn shares(most: u32, user_percent: u32, net_most: u32) -> Shares {
    Shares {
        most,
        user_percent,
        net_most,
    }
}

/// As the module does it: more storage when it is asked for.
fn take(quota: &mut Quota<Vec<QuotaCount>>, holder: Holder) -> Result<(), QuotaError> {
    let may = quota.may_take(holder);
    let taken = take_now(quota, holder);
    assert_eq!(may, taken, "what was asked is what happens");
    taken
}

fn take_now(quota: &mut Quota<Vec<QuotaCount>>, holder: Holder) -> Result<(), QuotaError> {
    match quota.take(holder) {
        Err(QuotaError::Crowded) => {
            let more = vec![QuotaCount::NONE; quota.wanted()];
            quota.move_to(more);
            let again = quota.take(holder);
            assert_ne!(again, Err(QuotaError::Crowded), "what was wanted is enough");
            again
        }
        other => other,
    }
}

// rows: B11
#[test]
fn each_to_its_share() {
    let mut quota = Quota::new(Vec::new(), shares(10, 20, 3));
    let (ann, bob) = (holder(1000, None), holder(1001, None));
    assert_eq!(quota.take(ann), Err(QuotaError::Crowded), "no storage");
    assert_eq!(
        (take(&mut quota, ann), take(&mut quota, ann)),
        (Ok(()), Ok(()))
    );
    assert_eq!(take(&mut quota, ann), Err(QuotaError::User));
    assert_eq!(take(&mut quota, bob), Ok(()));
    // A user with the same number as a namespace is another holder.
    for _ in 0..3 {
        assert_eq!(take(&mut quota, holder(None, 1000)), Ok(()));
    }
    assert_eq!(take(&mut quota, holder(None, 1000)), Err(QuotaError::Net));
    // A channel refused for the namespace is not counted for the user.
    assert_eq!(take(&mut quota, holder(1001, 1000)), Err(QuotaError::Net));
    assert_eq!(quota.has(holder(1001, 1000)), (1, 3));
    // A holder without shares has no limit, and is not recorded.
    let before = quota.len();
    assert!((0..100).all(|_| take(&mut quota, holder(None, None)) == Ok(())));
    assert_eq!(quota.len(), before);
    quota.give(ann);
    assert_eq!(take(&mut quota, ann), Ok(()));
}

// rows: B19
#[test]
fn users_leave_something_to_further_ones() {
    let mut quota = Quota::new(Vec::new(), shares(1000, 80, 1));
    let mut takes = |user: u32| {
        let one = holder(user, None);
        let got = (0..).take_while(|_| take(&mut quota, one) == Ok(()));
        got.count()
    };
    // Each gets so much of what the ones before it have left.
    assert_eq!([1, 2, 3, 4].map(&mut takes), [800, 160, 32, 7]);

    let mut quota = Quota::new(Vec::new(), shares(1000, 80, 1));
    let mut alike = [0; 3];
    for _ in 0..1000 {
        for (user, n) in alike.iter_mut().enumerate() {
            *n += u32::from(take(&mut quota, holder(user as u32, None)) == Ok(()));
        }
    }
    assert_eq!(alike, [308; 3]);
}

// rows: B11
#[test]
fn giving_what_was_not_taken() {
    let mut quota = Quota::new(vec![QuotaCount::NONE; 4], shares(1, 100, 1));
    quota.give(holder(0, 0));
    assert_eq!(quota.take(holder(7, 0)), Ok(()));
    quota.give(holder(6, 8));
    assert_eq!((quota.has(holder(7, 0)), quota.len()), ((1, 1), 2));
}

// rows: B11
#[test]
fn storage_comes_back() {
    let mut quota = Quota::new(vec![QuotaCount::NONE; 4], shares(9, 100, 9));
    assert_eq!(quota.take(holder(1, 2)), Ok(()));
    assert_eq!(
        quota.move_to(vec![QuotaCount::NONE; 3]).len(),
        3,
        "not smaller"
    );
    assert_eq!(quota.move_to(vec![QuotaCount::NONE; 9]).len(), 4);
    assert_eq!(quota.has(holder(1, 2)), (1, 1));
}

proptest! {
    // rows: B11
    #[test]
    fn as_maps_have_it(
        most in (1u32..20, 1u32..9),
        percent in 1u32..=100,
        steps in prop::collection::vec(
            (any::<bool>(), prop::option::of(0u32..12), prop::option::of(0u32..5)), 1..400),
    ) {
        let mut quota = Quota::new(Vec::new(), shares(most.0, percent, most.1));
        let mut held: Vec<Holder> = Vec::new();
        let mut largest = 0;
        for (more, user, net) in steps {
            if more {
                let of = |f: fn(&Holder) -> Option<u32>| {
                    let mut n = BTreeMap::new();
                    for id in held.iter().filter_map(f) {
                        *n.entry(id).or_insert(0) += 1;
                    }
                    n
                };
                let (users, nets) = (of(|h| h.user), of(|h| h.net));
                let all = users.values().sum::<u32>();
                // The exact part of what is left, as a fraction.
                let over = |n: u32| f64::from(n) * f64::from(100 - percent)
                    >= f64::from(most.0 - all) * f64::from(percent);
                let full = user.is_some_and(|id| {
                    all == most.0 || users.get(&id).is_some_and(|&n| over(n))
                });
                let expected = if full {
                    Err(QuotaError::User)
                } else if net.is_some_and(|id| nets.get(&id).is_some_and(|&n| n >= most.1)) {
                    Err(QuotaError::Net)
                } else {
                    Ok(())
                };
                let holder = Holder { user, net };
                prop_assert_eq!(take(&mut quota, holder), expected);
                if expected.is_ok() {
                    held.push(holder);
                }
            } else if !held.is_empty() {
                let at = (user.unwrap_or(0) as usize * 7 + net.unwrap_or(0) as usize) % held.len();
                quota.give(held.swap_remove(at));
            }
            let count = |is: &dyn Fn(&Holder) -> bool| held.iter().filter(|h| is(h)).count() as u32;
            let mut kept = 0;
            for id in 0..12 {
                let n = (count(&|h| h.user == Some(id)), count(&|h| h.net == Some(id)));
                prop_assert_eq!(quota.has(holder(id, id)), n);
                kept += usize::from(n.0 > 0) + usize::from(n.1 > 0);
            }
            prop_assert_eq!(quota.len(), kept, "who has none is not remembered");
            largest = largest.max(kept);
        }
        prop_assert!(quota.wanted() <= (2 * largest).max(8));
        for holder in held {
            quota.give(holder);
        }
        prop_assert!(quota.is_empty());
    }
}

// rows: B11 B19
#[test]
fn units_of_a_pot_that_others_use_as_well() {
    let mut quota = Quota::new(Vec::new(), shares(100, 80, u32::MAX));
    let (ann, bob, root) = (holder(1, None), holder(2, None), holder(None, None));
    let _ = quota.move_to(vec![QuotaCount::NONE; 8]);
    // Sixty are used by those without a count: of forty Ann gets what is four times what is left.
    let mut used = 60;
    let mut take = |who, units| {
        let taken = quota.take_units(who, units, used);
        used += if taken.is_ok() { units } else { 0 };
        taken
    };
    let mut last = Ok(());
    let tens = (0..10).take_while(|_| {
        last = take(ann, 10);
        last.is_ok()
    });
    assert_eq!(tens.count(), 4, "the last ten exceed the share");
    assert_eq!(last, Err(QuotaError::User));
    assert_eq!(take(bob, 1), Err(QuotaError::User), "nothing is left");
    assert_eq!(take(root, 5), Ok(()), "who has no share has no limit here");
    quota.give_units(ann, 30);
    assert_eq!(quota.has(ann), (10, 0));
    assert_eq!(quota.take_units(bob, 3, 75), Ok(()), "a quarter is left");
    quota.give_units(ann, 10);
    quota.give_units(bob, 3);
    assert!(quota.is_empty());
    assert_eq!(quota.take(ann), Ok(()));
    assert_eq!(quota.has(ann), (1, 0), "units of all users are counted");
}
