// SPDX-License-Identifier: GPL-2.0

//! What happened in a run.

use std::fmt;

macro_rules! stats {
    ($($name:ident),* $(,)?) => {
        #[derive(Clone, Default, PartialEq, Debug)]
        pub struct Stats {
            $(pub $name: u64,)*
        }

        impl Stats {
            pub fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)*
            }

            /// Everything has to happen somewhere.
            pub fn assert_all_seen(&self) {
                $(assert!(self.$name != 0, "no {}", stringify!($name));)*
            }
        }

        impl fmt::Display for Stats {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                $(write!(f, "{} {}  ", stringify!($name), self.$name)?;)*
                Ok(())
            }
        }
    };
}

stats! {
    events,
    bytes_landed,
    landed_late,
    copies_whole,
    copies_in_part,
    copies_local,
    copies_refused,
    copies_canceled,
    copies_lost,
    puts,
    gets,
    big_puts,
    big_gets,
    freed,
    freed_busy,
    sealed,
    revoked_keys,
    grants,
    grants_revoked,
    grants_closed,
    grants_raced,
    grants_fenced,
    denied,
    stale,
    sealed_refused,
    range,
    no_node,
    no_room,
    links_failed,
    crashes,
    overdue,
    asks_lost,
    contents_checked,
    orphans,
    expired,
    hostile_steps,
    hostile_writes_landed,
    hostile_refused_by_device,
    hostile_violations,
    hostile_stalls,
    hostile_late_stalls,
    hostile_replays,
    hostile_nodes_asked,
    hostile_nodes_stall,
    hostile_nodes_cut,
    stalled_targets,
    via_given,
    via_refused,
    via_given_back,
    not_admitted,
    drains,
}
