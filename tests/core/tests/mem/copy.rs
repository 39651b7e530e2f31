// SPDX-License-Identifier: GPL-2.0

//! The copies of a source with a network that is played here: what is posted completes in order, in its own time.

use std::collections::{BTreeMap, VecDeque};

use zrs_core::mem::copy::{Action, Copies, CopyRequest, Job, Limits, Target, TargetLoad, STOP_MS};
use zrs_core::mem::id::Key;
use zrs_core::mem::rights::{Range, Rights};
use zrs_core::mem::sched::{Flow, QUANTUM};
use zrs_core::mem::slab::Slot;
use zrs_core::mem::status::Status;

use crate::setup::{node, quiet, request, slots, whole, Sizes, TestNode};
use common::{cases, Rng};

type TestCopies = Copies<Vec<Slot<Job>>, Vec<TargetLoad>, Vec<Flow>>;

fn copies(limits: Limits, jobs: usize) -> TestCopies {
    Copies::new(
        limits,
        slots(jobs),
        vec![TargetLoad::default(); 3],
        vec![Flow::default(); 4],
    )
}

const LIMITS: Limits = Limits {
    chunk: 8,
    put: 3,
    part: 20,
    jobs_per_target: 2,
    in_flight_max: 24,
};

fn ask(
    n: &mut TestNode,
    key: Key,
    len: u64,
    requester: u32,
    token: u64,
    to: Option<u32>,
) -> CopyRequest {
    let range = Range { off: 0, len };
    let mut hold = |rights| n.begin(key, rights, whole(1), 0).unwrap();
    CopyRequest {
        requester,
        token,
        source: hold(Rights::READ),
        range,
        target: to.map_or_else(|| Target::Local(hold(Rights::WRITE)), Target::Peer),
    }
}

enum Item {
    Write(u32, u64),
    Put(u32, u64),
    Mark(u32),
}

/// What an onlooker knows of a copy.
#[derive(Default)]
struct Seen {
    requester: u32,
    len: u64,
    landed: u64,
    in_flight: u64,
    marks: u32,
    stopped: bool,
    /// It goes as PUTs.
    puts: bool,
    /// A PUT was refused.
    gap: bool,
}

// rows: M2 M4
#[test]
fn a_first_put_whose_key_is_gone_asks_for_one_with_more_uses() {
    let answers = [
        (Status::Stale, Status::Unsupported),
        (Status::Denied, Status::Unsupported),
        (Status::Io, Status::Io),
    ];
    for (answer, told) in answers {
        let mut n = node(&Sizes::default());
        let key = n.alloc(&request(100, 1)).unwrap();
        let mut c = copies(LIMITS, 6);
        let job = c.add(ask(&mut n, key, 20, 1, 1, Some(0))).unwrap();
        let mut puts = 0;
        loop {
            match c.next_action() {
                Some(Action::Open { job }) => c.opened_for_puts(job, 4),
                Some(Action::Put { job, len, .. }) => {
                    puts += 1;
                    c.put_answered(job, len, answer);
                }
                Some(Action::Finish { status, done, .. }) => {
                    assert_eq!((status, done, puts), (told, 0, 1), "{answer:?} for {job}");
                    break;
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

// rows: M2 M4 M5
#[test]
fn a_copy_is_finished_when_nothing_of_it_can_land() {
    let mut partial = 0;
    for seed in 0..u64::from(cases(2000)) {
        let mut rng = Rng::new(seed);
        let mut n = node(&Sizes::default());
        let key = n.alloc(&request(100, 1)).unwrap();
        let mut c = copies(LIMITS, 6);
        let mut links: Vec<VecDeque<Item>> = (0..3).map(|_| VecDeque::new()).collect();
        let (mut opening, mut seen) = (Vec::new(), BTreeMap::<u32, Seen>::new());
        let (mut asked, mut finished) = (0, 0);
        for step in 0..400_u64 {
            let quiet = step > 300;
            match rng.below(9) {
                0 | 1 if !quiet => {
                    let to = rng.pick(&[None, Some(0), Some(1), Some(2)]);
                    let req = ask(&mut n, key, rng.below(100), rng.below(4) as u32, step, to);
                    let (len, requester) = (req.range.len, req.requester);
                    match c.add(req) {
                        Ok(job) => {
                            asked += 1;
                            assert_eq!(c.find(requester, step), Some(job));
                            let new = Seen {
                                requester,
                                len,
                                ..Seen::default()
                            };
                            assert!(seen.insert(job, new).is_none());
                        }
                        Err(back) => {
                            let theirs = seen.values().filter(|s| s.requester == requester);
                            let left = 6 - c.len();
                            assert!(left == 0 || theirs.count() > left, "there is room");
                            n.end(back.source);
                            if let Target::Local(hold) = back.target {
                                n.end(hold);
                            }
                        }
                    }
                }
                2 if !quiet => {
                    if let Some((job, s)) = seen.iter_mut().nth(rng.below(4) as usize) {
                        s.stopped = true;
                        c.cancel(*job, Status::Canceled, step);
                    }
                }
                3 if rng.chance(10) && !quiet => {
                    let link = rng.below(3) as usize;
                    for item in links[link].drain(..) {
                        let (Item::Write(job, _) | Item::Put(job, _) | Item::Mark(job)) = item;
                        let s = seen.get_mut(&job).unwrap();
                        (s.in_flight, s.marks, s.stopped) = (0, 0, true);
                    }
                    opening.retain(|(_, to)| *to != link);
                    c.target_lost(link as u32);
                }
                4 if !opening.is_empty() => {
                    let (job, _) = opening.swap_remove(rng.below(opening.len() as u64) as usize);
                    match rng.below(10) {
                        0 | 1 => c.opened(job, Err(Status::Denied)),
                        2..=4 => {
                            c.opened_for_puts(job, 2);
                            seen.get_mut(&job).unwrap().puts = true;
                        }
                        _ => c.opened(job, Ok(())),
                    }
                }
                _ => {
                    let link = rng.below(3) as usize;
                    match links[link].pop_front() {
                        Some(Item::Write(job, len)) => {
                            let s = seen.get_mut(&job).unwrap();
                            s.in_flight -= len;
                            s.landed += len;
                            c.completed(job, len);
                        }
                        Some(Item::Put(job, len)) => {
                            let s = seen.get_mut(&job).unwrap();
                            let status = match rng.below(20) {
                                0 => Status::Denied,
                                1 => Status::Stale,
                                _ => Status::Ok,
                            };
                            s.in_flight -= len;
                            s.gap |= status != Status::Ok;
                            s.stopped |= s.gap;
                            // What lands behind a gap is not of the beginning.
                            s.landed += if s.gap { 0 } else { len };
                            c.put_answered(job, len, status);
                        }
                        Some(Item::Mark(job)) => {
                            seen.get_mut(&job).unwrap().marks -= 1;
                            let fails = rng.chance(10);
                            c.answered(job, if fails { Status::Stale } else { Status::Ok });
                        }
                        None => {}
                    }
                }
            }
            while let Some(action) = c.next_action() {
                match action {
                    Action::Open { job } => {
                        let Some(Target::Peer(to)) = c.get(job).map(|r| &r.target) else {
                            panic!("local copies need no grant");
                        };
                        opening.push((job, *to as usize));
                    }
                    Action::GiveUp { job } => {
                        let of = opening.len();
                        opening.retain(|o| o.0 != job);
                        assert_eq!(opening.len() + 1, of, "seed {seed}: it waited for a grant");
                    }
                    Action::Write { job, off, len } => {
                        let Some(&Target::Peer(to)) = c.get(job).map(|r| &r.target) else {
                            panic!("not local");
                        };
                        let s = seen.get_mut(&job).unwrap();
                        assert!(!s.stopped, "seed {seed}: a chunk after the cancel");
                        assert!(off == s.landed + s.in_flight && off + len <= s.len && len <= 8);
                        s.in_flight += len;
                        assert!(!s.puts);
                        links[to as usize].push_back(Item::Write(job, len));
                        let under = links[to as usize].iter().map(|i| match i {
                            Item::Write(_, len) => *len,
                            Item::Put(..) | Item::Mark(_) => 0,
                        });
                        assert!(under.sum::<u64>() <= 24, "seed {seed}: too much in flight");
                    }
                    Action::Put { job, off, len } => {
                        let Some(&Target::Peer(to)) = c.get(job).map(|r| &r.target) else {
                            panic!("not local");
                        };
                        let s = seen.get_mut(&job).unwrap();
                        assert!(s.puts && !s.stopped, "seed {seed}: a PUT after the end");
                        assert!(off == s.landed + s.in_flight && off + len <= s.len && len <= 3);
                        assert!(s.landed != 0 || s.in_flight == 0, "the first one is alone");
                        s.in_flight += len;
                        links[to as usize].push_back(Item::Put(job, len));
                        let puts = links[to as usize].iter();
                        let puts = puts.filter(|i| matches!(i, Item::Put(..))).count();
                        assert!(puts <= 2, "seed {seed}: too many PUTs");
                    }
                    Action::Mark { job, off, len } => {
                        let s = seen.get_mut(&job).unwrap();
                        s.marks += 1;
                        assert!(s.marks == 1 && len <= 20 && off + len == s.landed + s.in_flight);
                        let Some(&Target::Peer(to)) = c.get(job).map(|r| &r.target) else {
                            panic!("not local");
                        };
                        links[to as usize].push_back(Item::Mark(job));
                    }
                    Action::CopyLocal { job, off, len } => {
                        let s = seen.get_mut(&job).unwrap();
                        assert_eq!(off, s.landed);
                        s.landed += len;
                        c.completed(job, len);
                    }
                    Action::Finish {
                        job,
                        req,
                        status,
                        done,
                    } => {
                        let s = seen.remove(&job).unwrap();
                        assert_eq!(
                            (s.in_flight, s.marks),
                            (0, 0),
                            "seed {seed}: something may land"
                        );
                        assert!(done <= s.landed, "seed {seed}: done is a lower bound");
                        assert!(status != Status::Ok || (done == s.len && s.landed == s.len));
                        // A key without a further use is told by the first answer.
                        assert!(!s.puts || status != Status::Stale || done != 0);
                        partial += u32::from(done > 0 && done < s.len);
                        finished += 1;
                        n.end(req.source);
                        if let Target::Local(hold) = req.target {
                            n.end(hold);
                        }
                    }
                }
            }
            // What is under way for each target is limited.
            for link in 0..3 {
                let busy = opening.iter().filter(|o| o.1 == link).count();
                assert!(busy <= 2, "seed {seed}");
            }
            if quiet {
                opening.drain(..).for_each(|(job, _)| c.opened(job, Ok(())));
            }
        }
        for _ in 0..2000 {
            for link in &mut links {
                match link.pop_front() {
                    Some(Item::Write(job, len)) => c.completed(job, len),
                    Some(Item::Put(job, len)) => c.put_answered(job, len, Status::Ok),
                    Some(Item::Mark(job)) => c.answered(job, Status::Ok),
                    None => {}
                }
            }
            match c.next_action() {
                Some(Action::Open { job }) => c.opened(job, Ok(())),
                Some(Action::GiveUp { .. }) => panic!("no job waits for a grant"),
                Some(Action::CopyLocal { job, len, .. }) => c.completed(job, len),
                Some(Action::Write { job, len, .. }) => {
                    let Some(&Target::Peer(to)) = c.get(job).map(|r| &r.target) else {
                        panic!("not local");
                    };
                    links[to as usize].push_back(Item::Write(job, len));
                }
                Some(Action::Put { job, len, .. }) => {
                    let Some(&Target::Peer(to)) = c.get(job).map(|r| &r.target) else {
                        panic!("not local");
                    };
                    links[to as usize].push_back(Item::Put(job, len));
                }
                Some(Action::Mark { job, .. }) => {
                    let Some(&Target::Peer(to)) = c.get(job).map(|r| &r.target) else {
                        panic!("not local");
                    };
                    links[to as usize].push_back(Item::Mark(job));
                }
                Some(Action::Finish { req, .. }) => {
                    finished += 1;
                    n.end(req.source);
                    if let Target::Local(hold) = req.target {
                        n.end(hold);
                    }
                }
                None => {}
            }
        }
        assert_eq!(
            (c.len(), finished),
            (0, asked),
            "seed {seed}: each finishes once"
        );
        assert_eq!(n.info(key, 0).unwrap().holds, 0);
    }
    assert!(partial > 50 || cfg!(miri));
}

/// Bytes of each requester's copies in the first `total` bytes that are posted.
fn shares(jobs: &[(u32, u32)], total: u64) -> [u64; 4] {
    let mut n = node(&Sizes::default());
    let key = n.alloc(&request(100, 1)).unwrap();
    let big = Limits {
        chunk: 256 << 10,
        put: 4096,
        part: 16 << 20,
        jobs_per_target: u32::MAX,
        in_flight_max: u64::MAX,
    };
    let mut c = copies(big, 128);
    for (requester, count) in jobs {
        for token in 0..u64::from(*count) {
            c.add(ask(&mut n, key, 1 << 30, *requester, token, Some(0)))
                .unwrap();
        }
    }
    let mut sent = [0; 4];
    while sent.iter().sum::<u64>() < total {
        match c.next_action().unwrap() {
            Action::Open { job } => c.opened(job, Ok(())),
            Action::Write { job, len, .. } => {
                sent[c.get(job).unwrap().requester as usize] += len;
                c.completed(job, len);
            }
            Action::Mark { job, .. } => c.answered(job, Status::Ok),
            other => panic!("{other:?}"),
        }
    }
    sent
}

// rows: M4
#[test]
fn a_requester_leaves_places_to_the_others() {
    let mut n = node(&Sizes::default());
    let key = n.alloc(&request(100, 1)).unwrap();
    let mut c = copies(LIMITS, 16);
    let mut fill = |c: &mut TestCopies, requester| {
        let mut added = 0;
        while c.has_room(requester) {
            c.add(ask(&mut n, key, 50, requester, added, Some(0)))
                .unwrap();
            added += 1;
        }
        let back = c.add(ask(&mut n, key, 50, requester, added, Some(0)));
        n.end(back.unwrap_err().source);
        added
    };
    let most: Vec<_> = (0..4).map(|who| fill(&mut c, who)).collect();
    assert_eq!(most, [9, 4, 2, 1]);
}

// rows: M4
#[test]
fn hosts_share_by_bytes_not_by_copies() {
    let sent = shares(&[(0, 50), (1, 1), (3, 5)], 300 << 20);
    for who in [0, 1, 3] {
        let off = sent[who].abs_diff(100 << 20);
        assert!(off <= 2 * u64::from(QUANTUM), "{sent:?}");
    }
    assert_eq!(sent[2], 0);
    assert_eq!(
        shares(&[(2, 1)], 100 << 20)[2],
        100 << 20,
        "alone it has all"
    );
}

// rows: M4 M5
#[test]
fn a_requester_that_is_gone_and_a_region_that_closes() {
    let mut n = node(&Sizes::default());
    let key = n.alloc(&request(100, 1)).unwrap();
    let other = n.alloc(&request(100, 2)).unwrap();
    let mut c = copies(LIMITS, 6);
    let gone = c.add(ask(&mut n, key, 50, 1, 7, Some(0))).unwrap();
    c.add(ask(&mut n, other, 50, 2, 7, Some(1))).unwrap();
    c.requester_lost(1, 0);
    let first = c.next_action();
    assert!(
        matches!(first, Some(Action::Finish { job, status: Status::Canceled, done: 0, .. }) if job == gone),
        "{first:?}"
    );
    n.free(other, 1, 0).unwrap();
    c.cancel_if(Status::Stale, 0, |h| n.must_stop(h, 0));
    assert!(matches!(
        c.next_action(),
        Some(Action::Finish {
            status: Status::Stale,
            ..
        })
    ));
    assert!(c.is_empty() && c.next_action().is_none());
}

// rows: M2
#[test]
fn a_chunk_that_could_not_be_posted() {
    let mut n = node(&Sizes::default());
    let key = n.alloc(&request(100, 1)).unwrap();
    let mut c = copies(LIMITS, 6);
    let job = c.add(ask(&mut n, key, 50, 1, 7, Some(0))).unwrap();
    assert!(matches!(c.next_action(), Some(Action::Open { .. })));
    c.opened(job, Ok(()));
    assert!(matches!(
        c.next_action(),
        Some(Action::Write { off: 0, len: 8, .. })
    ));
    assert!(matches!(
        c.next_action(),
        Some(Action::Write { off: 8, len: 8, .. })
    ));
    c.not_posted(job, 8, Status::Stale);
    assert!(matches!(
        c.next_action(),
        Some(Action::Mark { off: 0, len: 8, .. })
    ));
    c.answered(job, Status::Ok);
    assert!(c.next_action().is_none(), "the chunk has not completed");
    c.completed(job, 8);
    assert!(matches!(
        c.next_action(),
        Some(Action::Finish {
            status: Status::Stale,
            done: 8,
            ..
        })
    ));
}

/// A copy of 20 bytes to the host 2, until it has been at work so long that `stage` of what the target has to do is left: the
/// answer to OPEN, a WRITE, the answer to WROTE.
fn at_stage(n: &mut TestNode, key: Key, stage: u32) -> (TestCopies, u32) {
    let mut c = copies(LIMITS, 6);
    let job = c.add(ask(n, key, 20, 1, 7, Some(2))).unwrap();
    assert!(matches!(c.next_action(), Some(Action::Open { .. })));
    if stage > 0 {
        c.opened(job, Ok(()));
        let posted = std::iter::from_fn(|| match c.next_action() {
            Some(Action::Write { len, .. }) => Some(len),
            Some(Action::Mark { .. }) => None,
            other => panic!("{other:?}"),
        });
        assert_eq!(posted.collect::<Vec<_>>(), [8, 8, 4]);
    }
    if stage > 1 {
        c.completed(job, 20);
    }
    (c, job)
}

// rows: M5
#[test]
fn a_target_that_does_not_answer_keeps_no_copy_for_ever() {
    for stage in 0..3 {
        for end in 0..3 {
            let mut n = node(&Sizes::default());
            let key = n.alloc(&request(100, 1)).unwrap();
            let (mut c, job) = at_stage(&mut n, key, stage);
            assert!(c.next_action().is_none());
            assert_eq!(c.overdue(STOP_MS), None, "nobody waits for its end");
            match end {
                0 => c.cancel(job, Status::Canceled, 50),
                1 => c.requester_lost(1, 50),
                _ => {
                    n.free(key, 1, 50).unwrap();
                    c.cancel_if(Status::Stale, 50, |h| n.must_stop(h, 50));
                    c.cancel_if(Status::Stale, 90, |h| n.must_stop(h, 90));
                }
            }
            if stage == 0 {
                // The link to the target serves others, and stays.
                let step = c.next_action();
                assert!(
                    matches!(step, Some(Action::GiveUp { job: j }) if j == job),
                    "{step:?}"
                );
            } else {
                let due = Some((50 + STOP_MS, 2));
                assert_eq!(c.overdue(STOP_MS), due, "stage {stage} end {end}");
                assert!(
                    c.next_action().is_none(),
                    "not before the target has answered"
                );
                assert!(quiet(&mut n).is_empty());
                c.target_lost(2);
            }
            assert_eq!(c.overdue(STOP_MS), None);
            let Some(Action::Finish {
                req, status, done, ..
            }) = c.next_action()
            else {
                panic!("stage {stage} end {end}");
            };
            // Without a WRITE nothing can have landed.
            let want = match (stage, end) {
                (0, 2) => Status::Stale,
                (0, _) => Status::Canceled,
                _ => Status::Lost,
            };
            assert_eq!((status, done), (want, 0), "stage {stage} end {end}");
            n.end(req.source);
            assert_eq!(quiet(&mut n).len(), usize::from(end == 2));
        }
    }
    // One that answers in time is not taken down.
    let mut n = node(&Sizes::default());
    let key = n.alloc(&request(100, 1)).unwrap();
    let (mut c, job) = at_stage(&mut n, key, 2);
    c.cancel(job, Status::Canceled, 50);
    c.answered(job, Status::Ok);
    assert_eq!(c.overdue(STOP_MS), None);
    // All was posted, so nothing was canceled.
    assert!(matches!(
        c.next_action(),
        Some(Action::Finish {
            status: Status::Ok,
            done: 20,
            ..
        })
    ));
    // A local copy and one that waits for its turn have no target to wait for.
    c.add(ask(&mut n, key, 20, 1, 8, None)).unwrap();
    let queued = c.add(ask(&mut n, key, 20, 1, 9, Some(0))).unwrap();
    c.requester_lost(1, 60);
    assert_eq!((c.overdue(STOP_MS), c.len()), (None, 2));
    assert!(c.get(queued).is_some());
}
