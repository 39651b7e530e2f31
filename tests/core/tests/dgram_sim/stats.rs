// SPDX-License-Identifier: GPL-2.0

//! Counts of the events of a run.

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
    sent,
    received,
    received_empty,
    received_longest,
    dropped_full,
    full_at_last,
    dropped_stalled,
    dropped_backlog,
    lost_with_link,
    lost_in_part,
    closed_with_queue,
    closed_in_part,
    nobody,
    refused,
    waited,
    would_block,
    copied,
    blocks_lent,
    blocks_short,
    asked,
    stream_messages,
    beside_stream,
    links_lost,
    hostile_fragments,
    hostile_valid,
    hostile_in_part,
    hostile_violations,
    hostile_answers,
}
