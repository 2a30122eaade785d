//! Pictures of what the loads found.

use super::field::{Entrant, Sample};
use crate::chart::{Axis, Chart, Series};
use crate::contender::Class;

const DEPTHS: [(&str, f64); 3] = [("DECR P1", 1.0), ("DECR P16", 16.0), ("DECR P128", 128.0)];
const DECR: &str = "DECR of one hot key, 50 connections";

/// All charts of the closed loops.
pub fn of(entrants: &[Entrant]) -> Vec<Chart> {
    let is_durable = |entrant: &&Entrant| entrant.class == Class::Synced;
    let synced: Vec<&Entrant> = entrants.iter().filter(is_durable).collect();
    let all: Vec<&Entrant> = entrants.iter().collect();
    vec![
        Chart {
            title: format!("{DECR}: throughput by depth"),
            below: "commands under way on each connection".into(),
            beside: "op/s".into(),
            axis: Axis::Powers,
            is_by_powers: true,
            series: by_depth(&all, |it| it.told.per_second),
        },
        by_group(
            format!("{DECR}: CPU of the server"),
            "us/op",
            &all,
            true,
            |it| it.cpu_us,
        ),
        Chart {
            title: "64 B over many keys, 50 connections, P128".into(),
            below: String::new(),
            beside: "op/s".into(),
            axis: Axis::Groups(vec!["SET".into(), "GET".into()]),
            is_by_powers: false,
            series: series(&all, &["SET P128", "GET P128"], |it| it.told.per_second),
        },
        by_group(
            format!("{DECR}, S: bytes that the process wrote"),
            "B/op",
            &synced,
            true,
            |it| it.written_bytes,
        ),
        by_group(
            format!("{DECR}, S: flushes of the device"),
            "flushes/op",
            &synced,
            true,
            |it| it.flushes.unwrap_or(f64::NAN),
        ),
    ]
}

fn by_depth(entrants: &[&Entrant], of: impl Fn(&Sample) -> f64 + Copy) -> Vec<Series> {
    let points = |entrant: &Entrant| {
        let figures = DEPTHS.iter();
        let found =
            figures.filter_map(|&(work, depth)| Some((depth, entrant.middle(work, of).ok()?)));
        found.collect()
    };
    measured(entrants, points)
}

fn by_group(
    title: String,
    beside: &str,
    entrants: &[&Entrant],
    is_by_powers: bool,
    of: impl Fn(&Sample) -> f64 + Copy,
) -> Chart {
    Chart {
        title,
        below: "commands under way on each connection".into(),
        beside: beside.into(),
        axis: Axis::Groups(["P1", "P16", "P128"].map(String::from).into()),
        is_by_powers,
        series: series(entrants, &DEPTHS.map(|it| it.0), of),
    }
}

/// Bars: one group for each load.
fn series(
    entrants: &[&Entrant],
    works: &[&str],
    of: impl Fn(&Sample) -> f64 + Copy,
) -> Vec<Series> {
    let points = |entrant: &Entrant| {
        let works = works.iter().enumerate();
        let found =
            works.filter_map(|(at, work)| Some((at as f64, entrant.middle(work, of).ok()?)));
        found.filter(|(_, figure)| figure.is_finite()).collect()
    };
    measured(entrants, points)
}

/// Of those that have any point.
fn measured(entrants: &[&Entrant], points: impl Fn(&Entrant) -> Vec<(f64, f64)>) -> Vec<Series> {
    let all = entrants.iter().map(|entrant| Series {
        name: entrant.name(),
        points: points(entrant),
    });
    all.filter(|series| !series.points.is_empty()).collect()
}
