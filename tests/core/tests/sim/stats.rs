// SPDX-License-Identifier: GPL-2.0

//! Counts of a simulation's events: proof that all cases were reached.

use std::fmt;

use zrs_core::Violation;

macro_rules! stats {
    ($($name:ident,)*) => {
        /// Counters of things that happened.
        #[derive(Default, PartialEq, Eq, Debug, Clone)]
        pub struct Stats {
            $(pub $name: u64,)*
        }

        impl Stats {
            pub fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)*
            }

            /// Fails if anything has not happened at all.
            pub fn assert_all_seen(&self) {
                $(assert_ne!(self.$name, 0, "never happened: {}", stringify!($name));)*
            }
        }

        impl fmt::Display for Stats {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                $(write!(f, "{}={} ", stringify!($name), self.$name)?;)*
                Ok(())
            }
        }
    };
}

stats! {
    events,
    small_bytes,
    bulk_bytes,
    unwanted_bytes,
    channels,
    opened,
    refused,
    backlog_full,
    tried_again,
    opened_in_the_end,
    table_full,
    table_hits,
    table_near_hits,
    table_faults,
    table_evicted,
    table_swept,
    timed_out,
    accepted_late,
    resets,
    link_failures,
    control_leaves_room,
    channels_lost,
    connects_lost,
    window_requests,
    window_grants,
    window_offers,
    window_denials,
    asked_again,
    revocations,
    revoked_unread,
    bulk_writer_moved_on,
    windows_wrapped,
    writer_waits,
    held_back,
    joined,
    flushed_shut,
    late_again,
    link_starved,
    plans_outdated,
    room_with_other_news,
    polls_not_writable,
    lone_link_credits,
    last_credit_used,
    spilled_blocks,
    escapes_held,
    escapes_to_area,
    escapes_of_blocks,
    escapes_too_late,
    escapes_without_memory,
    areas_full,
    ring_escaped,
    small_to_ring,
    small_areas_full,
    small_by_recv,
    policy_switches,
    given_before_read,
    escape_limits_met,
    windows_back_unread,
    windows_back_from_stopped,
    windows_asked_back,
    no_lease_for_moved,
    wishes_wait,
    wishes_served,
    stays_for_the_program,
    readers_stopped,
    readers_resumed,
    finished_beside_stopped,
    ring_segments,
    ring_released_out_of_order,
    ring_made_in_mid_stream,
    ring_scribbles,
    recv_beside_ring,
    peeks,
    shut_reads,
    closes_with_unread,
    orphans_dropped,
    unknown_channels,
    listeners_closed,
    events_late,
    links_made,
    links_to_nobody,
    crashes,
    socks_died,
    pauses,
    stalls,
    shortages,
    allocations_failed,
    connects_without_memory,
    connects_again,
    opened_after_all,
    opened_before_old_end,
    hostile_messages,
    hostile_changes,
    hostile_writes,
    hostile_writes_refused,
    hostile_overruns,
    answered_already,
    answers_dropped,
    violations_version,
    violations_type,
    violations_reserved,
    violations_length,
    violations_position,
    violations_credit,
    violations_state,
    violations_channel,
}

impl Stats {
    pub fn count_violation(&mut self, what: Violation) {
        *match what {
            Violation::Version => &mut self.violations_version,
            Violation::Type => &mut self.violations_type,
            Violation::Reserved => &mut self.violations_reserved,
            Violation::Length => &mut self.violations_length,
            Violation::Position => &mut self.violations_position,
            Violation::Credit => &mut self.violations_credit,
            Violation::State => &mut self.violations_state,
            Violation::Channel => &mut self.violations_channel,
        } += 1;
    }
}
