// SPDX-License-Identifier: GPL-2.0
//! Lock acquisitions of a message, by lock class, from the event `lock_acquire` of a kernel with
//! lockdep.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use zrs_bench::Table;

use crate::baseline::Baseline;

/// Whose a lock is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Owner {
    /// ZRS's own.
    Zrs,
    /// The device driver's.
    Driver,
    /// The rest of the kernel's.
    Kernel,
}

/// How much there is one lock for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Scope {
    Machine,
    Device,
    /// A link, a socket, a processor, a task...
    Less,
}

type Class = (Owner, Scope);

/// ZRS's locks, by the beginnings of their names.
const ZRS: [(&str, Scope); 28] = [
    ("zrs_transport::", Scope::Machine),
    ("zrs_sockets::", Scope::Machine),
    ("zrs_net_table::", Scope::Machine),
    ("zrs_net_counts::", Scope::Machine),
    ("zrs_quotas::", Scope::Machine),
    ("zrs_pools::", Scope::Machine),
    // A NUMA node's.
    ("zrs_cache::", Scope::Machine),
    ("zrs_dgrams::", Scope::Machine),
    ("zrs_memory::", Scope::Machine),
    // A network namespace's, for all that its memory node does.
    ("zrs_mem_host", Scope::Machine),
    // The search for contiguous memory (`rust/kern/contig.rs`).
    ("SEARCH", Scope::Machine),
    ("zrs_device", Scope::Device),
    ("zrs_pool::", Scope::Device),
    ("zrs_mr_pool::", Scope::Device),
    ("zrs_extent::", Scope::Device),
    ("zrs_link::", Scope::Less),
    ("zrs_link_id", Scope::Less),
    ("zrs_opening::", Scope::Less),
    ("zrs_cm_id", Scope::Less),
    ("zrs_window::", Scope::Less),
    ("zrs_area::", Scope::Less),
    ("zrs_sock::", Scope::Less),
    ("zrs_decision::", Scope::Less),
    ("zrs_chan::", Scope::Less),
    ("zrs_dgram::", Scope::Less),
    ("zrs_mem_link::", Scope::Less),
    ("zrs_mem_queue::", Scope::Less),
    ("zrs_mem_call", Scope::Less),
];

/// Those names of ZRS that are of work items, and of their timers with "_timer" behind it: they are
/// acquired when the work begins and when the timer expires, and nothing is written.
const WORK: [&str; 25] = [
    "zrs_transport::timers_work",
    "zrs_transport::idle",
    "zrs_pools::window_waiters",
    "zrs_pools::reclaim",
    "zrs_pools::make_pools",
    "zrs_transport::keepalive",
    "zrs_transport::sweep",
    "zrs_pool::work",
    "zrs_cache::work",
    "zrs_opening::work",
    "zrs_decision::work",
    "zrs_device_use::work",
    "zrs_link::backstop",
    "zrs_link::reschedule",
    "zrs_link::dgram_stall",
    "zrs_link::work",
    "zrs_link::start",
    "zrs_link::down",
    "zrs_link::accept",
    "zrs_mem_host::tick",
    "zrs_mem_host::zero",
    "zrs_mem_host::step",
    "zrs_mem_link::poll",
    "zrs_mem_link::connect",
    "zrs_mem_link::down",
];

/// Soft-RoCE's, by the beginnings of their names. The shared receive queue is the pool's, so the
/// device's.
const DRIVER: [(&str, Scope); 6] = [
    ("&rxe->", Scope::Device),
    ("&port->port_lock", Scope::Device),
    ("&srq->", Scope::Device),
    ("&qp->", Scope::Less),
    ("&cq->cq_lock", Scope::Less),
    ("&task->lock", Scope::Less),
];

/// Annotations for lockdep that are no locks, as nothing is written when they are "acquired"; by
/// the beginnings of their names. `mmap_lock` is acquired for the eyes of lockdep at each copy to
/// or from a program.
const NO_LOCKS: [&str; 12] = [
    "rcu_read_lock",
    "rcu_callback",
    "srcu",
    "(wq_completion)",
    "(work_completion)",
    "(timer)",
    "fs_reclaim",
    "fill_pool_map",
    "&mm->mmap_lock",
    "&____s->seqcount",
    "&syncp->seq",
    "tk_core.seq",
];

/// Locks of the kernel's debugging, by the beginnings of their names.
const DEBUGGING: [&str; 7] = [
    "quarantine_lock",
    "kmemleak_lock",
    "&object->lock",
    "&obj_hash[i].lock",
    "pool_lock",
    "kcov_remote_lock",
    "&kcov->lock",
];

/// Names without "&" of locks that each processor or socket has.
const MANY: [&str; 6] = [
    "hrtimer_bases.lock",
    "batched_entropy",
    "lock",
    "slock-",
    "sk_lock-",
    "_xmit_",
];

fn begins<T: Copy>(list: &[(&str, T)], name: &str) -> Option<T> {
    let found = list.iter().find(|(start, _)| name.starts_with(start));
    found.map(|&(_, what)| what)
}

/// The owner and the scope of a lock class; `None` for annotations and for locks of the debugging.
fn class(name: &str) -> Result<Option<Class>, String> {
    let work = name.strip_suffix("_timer").unwrap_or(name);
    if WORK.contains(&work) {
        return Ok(None);
    }
    if let Some(scope) = begins(&ZRS, name) {
        return Ok(Some((Owner::Zrs, scope)));
    }
    if name.starts_with("zrs_") {
        return Err(format!(
            "{name}: say in locks.rs what there is one of it for"
        ));
    }
    let any = |list: &[&str]| list.iter().any(|start| name.starts_with(start));
    if any(&NO_LOCKS) || any(&DEBUGGING) {
        return Ok(None);
    }
    if let Some(scope) = begins(&DRIVER, name) {
        return Ok(Some((Owner::Driver, scope)));
    }
    // A lock's name is the expression that initialised it: a static lock's has no "&".
    let scope = match name.starts_with('&') || any(&MANY) {
        true => Scope::Less,
        false => Scope::Machine,
    };
    Ok(Some((Owner::Kernel, scope)))
}

/// Acquisitions by the name of the lock, from the file `trace` of tracefs.
fn parse(trace: &str) -> Result<BTreeMap<&str, f64>, String> {
    let mut counts = BTreeMap::new();
    for line in trace.lines() {
        if let Some(entries) = line.strip_prefix("# entries-in-buffer/entries-written: ") {
            let entries = entries.split_whitespace().next().unwrap_or_default();
            match entries.split_once('/') {
                Some((here, written)) if here == written => {}
                _ => return Err(format!("the trace is not whole: {entries} events")),
            }
        }
        let Some((_, event)) = line.split_once(" lock_acquire: ") else {
            continue;
        };
        let name = event.split_once(' ').map_or("", |(_, name)| name);
        let name = name.strip_prefix("try ").unwrap_or(name);
        let name = name.strip_prefix("read ").unwrap_or(name);
        *counts.entry(name).or_insert(0.0) += 1.0;
    }
    match counts.is_empty() {
        true => Err("the trace has no lock_acquire".into()),
        false => Ok(counts),
    }
}

/// A table by class and a line for each bound of the baseline, and whether all bounds are kept.
/// `trace` has `messages` messages with an acknowledgment each, `idle` twice that number of
/// acknowledgments alone.
pub fn compare(
    trace: &str,
    idle: &str,
    messages: f64,
    baseline: &Baseline,
) -> Result<(String, bool), String> {
    let (mut counts, idle) = (parse(trace)?, parse(idle)?);
    for (name, n) in idle {
        *counts.entry(name).or_insert(0.0) -= n / 2.0;
    }
    let mut rows = Vec::new();
    let mut others = Vec::new();
    for (name, n) in counts {
        let each = n / messages;
        match class(name)? {
            Some(class) => rows.push((class, name, each)),
            None => others.push((name, each)),
        }
    }
    rows.sort_by(|a, b| a.0 .0.cmp(&b.0 .0).then(b.2.total_cmp(&a.2)));
    let mut table = Table::new(["class", "whose", "one for", "a message"]);
    for ((owner, scope), name, each) in &rows {
        let cells = [
            format!("{owner:?}"),
            format!("{scope:?}"),
            format!("{each:.2}"),
        ];
        if each.abs() >= 0.005 {
            let cells = cells.map(|cell| cell.to_lowercase());
            table.row(std::iter::once((*name).to_string()).chain(cells));
        }
    }
    for (name, each) in &others {
        if each.abs() >= 0.005 {
            table.row([*name, "", "no lock", &format!("{each:.2}")]);
        }
    }
    let sum = |owner: Option<Owner>, shared: bool| -> f64 {
        let of = |class: &Class| {
            owner.is_none_or(|owner| owner == class.0) && (!shared || class.1 != Scope::Less)
        };
        rows.iter()
            .filter(|(class, ..)| of(class))
            .map(|row| row.2)
            .sum()
    };
    let mut text = baseline.about();
    for line in table.text().lines() {
        let _ = writeln!(text, "# {line}");
    }
    let mut good = true;
    for (kind, shared) in [("locks_64", false), ("shared_locks_64", true)] {
        let owners = [
            ("all", None),
            ("zrs", Some(Owner::Zrs)),
            ("driver", Some(Owner::Driver)),
            ("kernel", Some(Owner::Kernel)),
        ];
        for (value, owner) in owners {
            good &= baseline.judge(kind, value, &[sum(owner, shared)], &mut text);
        }
    }
    baseline.end(&mut text);
    Ok((text, good))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const TRACE: &str = "# tracer: nop\n#\n# entries-in-buffer/entries-written: 5/5   #P:2\n\
        \u{20}  a-1  [000] d..1.  1.5: lock_acquire: 00000000f1 zrs_transport::table\n\
        \u{20}  a-1  [000] d..1.  1.5: lock_acquire: 00000000f1 zrs_transport::table\n\
        \u{20}  a-1  [000] d..1.  1.6: lock_acquire: 00000000f2 try zrs_link::drain\n\
        \u{20}  a-1  [000] d..1.  1.7: lock_acquire: 00000000f3 read &srq->rq.consumer_lock\n\
        \u{20}  a-1  [000] d..1.  1.7: lock_acquire: 00000000f4 zrs_link::work\n";

    #[test]
    fn by_class() {
        let counts = parse(TRACE).unwrap();
        assert_eq!(counts["zrs_transport::table"], 2.0);
        assert_eq!(counts["zrs_link::drain"], 1.0);
        let bounds = json!({ "default": {
            "locks_64": { "all": [3, 3], "zrs": [2, 2], "driver": [1, 1], "kernel": [0, 0] },
            "shared_locks_64": { "all": [2, 2], "zrs": [1, 1], "driver": [1, 1], "kernel": [0, 0] },
        } });
        let baseline = Baseline::new(&bounds, "x").unwrap();
        // Twice a half of one acquisition.
        let idle = "x: lock_acquire: 00000000f1 zrs_transport::table\n".repeat(2);
        let (text, good) = compare(TRACE, &idle, 1.0, &baseline).unwrap();
        assert!(good, "{text}");
        assert!(
            text.contains("zrs_transport::table") && text.contains("no lock"),
            "{text}"
        );
        assert!(!compare(TRACE, &idle, 2.0, &baseline).unwrap().1);
    }

    /// The sources below `dir` whose names end with one of `ends`.
    fn sources(dir: &std::path::Path, ends: &[&str], found: &mut Vec<(String, String)>) {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let name = path.to_str().unwrap().to_string();
            if path.is_dir() {
                sources(&path, ends, found);
            } else if ends.iter().any(|end| name.ends_with(end)) {
                found.push((name, std::fs::read_to_string(&path).unwrap()));
            }
        }
    }

    /// The name that `rest`, what stands behind the parenthesis of a macro, gives to its class: the
    /// last argument, a string.
    fn named(rest: &str) -> Option<&str> {
        let (mut depth, mut end) = (1, None);
        let mut text = false;
        for (at, c) in rest.char_indices() {
            match c {
                '"' => text = !text,
                '(' if !text => depth += 1,
                ')' if !text => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                end = Some(at);
                break;
            }
        }
        let arguments = rest[..end?].trim_end().trim_end_matches(',').trim_end();
        arguments
            .strip_suffix('"')?
            .rsplit_once('"')
            .map(|(_, name)| name)
    }

    /// A new lock of the module fails here, not only in `bench/locks` on the debug kernel.
    #[test]
    fn every_class_of_the_module_is_known() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../rust");
        let mut files = Vec::new();
        sources(root.as_ref(), &[".rs", ".c"], &mut files);
        let makers = [
            ("new_spinlock!(", false),
            ("new_mutex!(", false),
            ("new_wait_queue!(", false),
            ("STATIC_LOCKDEP_MAP_INIT(", false),
            ("unsafe(uninit) static ", false),
            ("new_work!(", true),
            ("new_delayed_work!(", true),
        ];
        let mut seen = 0;
        for (file, text) in &files {
            for (maker, work) in makers {
                for (at, _) in text.match_indices(maker) {
                    let rest = &text[at + maker.len()..];
                    let name = match maker {
                        "STATIC_LOCKDEP_MAP_INIT(" => rest.split('"').nth(1),
                        // A global lock is named as its static is.
                        "unsafe(uninit) static " => rest.split(':').next(),
                        _ => named(rest),
                    };
                    let place = format!("{file}: {maker}{:.60}", rest);
                    let name = name.unwrap_or_else(|| panic!("{place}: a class has a name"));
                    seen += 1;
                    let class = class(name).unwrap_or_else(|e| panic!("{file}: {e}"));
                    match (work, class) {
                        (true, None) | (false, Some((Owner::Zrs, _))) => {}
                        _ => panic!("{place}: {class:?}"),
                    }
                    if maker == "new_delayed_work!(" {
                        let timer = super::class(&format!("{name}_timer"));
                        assert_eq!(timer, Ok(None), "{name}: the timer is no lock");
                    }
                }
            }
        }
        assert!(
            seen > 60,
            "{seen} classes: what makes them has another name"
        );
    }

    #[test]
    fn what_it_does_not_take() {
        assert!(parse("# entries-in-buffer/entries-written: 5/6   #P:2\n").is_err());
        assert!(parse("").is_err());
        assert!(class("zrs_new::lock").is_err());
    }
}
