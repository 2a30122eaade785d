//! What a start tells people: the machine, each problem with its cause and its mend.

use std::fmt;

use super::checks::{self, Demand};
use crate::VERSION;
use crate::config::Config;
use crate::directory::Directory;
use crate::disk::RingPlan;
use crate::system::advice::Problem;

/// Takes a line for people.
pub(crate) type Say = fn(fmt::Arguments<'_>);

pub(super) fn report_problem(problem: &Problem, say: Say) {
    say(format_args!("  problem    {}", problem.cause));
    say(format_args!("  mend       {}", problem.mend));
}

/// What rings all shards get.
pub(super) fn report_rings(rings: &RingPlan, say: Say) {
    match rings.setup {
        Some(setup) => say(format_args!("rings        {setup}, for each shard")),
        None => say(format_args!("rings        none: threads and epoll")),
    }
    if let Some(problem) = &rings.problem {
        report_problem(problem, say);
    }
}

/// What the machine is like, each problem with its cause and its mend.
pub(super) fn banner(config: &Config, directory: &Directory, shards: u16, say: Say) {
    say(format_args!("penstock {VERSION}"));
    let identity = directory.identity();
    say(format_args!(
        "data         {} ({}, start {}, {shards} shards)",
        directory.path().display(),
        if directory.is_new() {
            "new"
        } else {
            "existing"
        },
        identity.incarnation
    ));
    for problem in directory.problems() {
        report_problem(&problem, say);
    }
    let strangers = directory.segments().strangers().unwrap_or_default();
    if !strangers.is_empty() {
        let more = match strangers.len().saturating_sub(STRANGERS_SHOWN_MAX) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let shown = &strangers[..strangers.len().min(STRANGERS_SHOWN_MAX)];
        say(format_args!(
            "segments     passed over, because no segment is named so: {}{more}",
            shown.join(", ")
        ));
    }
    let demand = Demand {
        segments: directory.segments(),
        shards: u32::from(shards),
        segment_bytes: config.segment_bytes,
        connections_max: u64::from(config.connections_max),
    };
    for check in checks::check_all(&demand) {
        say(format_args!("{:<12} {}", check.name, check.value));
        check
            .problem
            .iter()
            .for_each(|problem| report_problem(problem, say));
    }
}

/// Names of files that are not ours that a start tells.
const STRANGERS_SHOWN_MAX: usize = 3;
