//! Whether two results differ: their seconds against each other.
//!
//! The test is that of Mann and Whitney, two-sided, with the normal approximation, midranks for
//! ties and a correction for continuity. It asks whether a second of one run tends to be better
//! than a second of the other, and assumes no distribution. It takes seconds of one run as
//! independent. Neighbours are not quite, so a p just below the limit is a reason to run again.
//! Beside it stands the effect: the share of pairs of seconds in which B is greater.

use std::fmt::Write;
use std::path::Path;

use serde_json::Value;

use crate::BenchError;

/// Below it a difference is called one.
const P_MAX: f64 = 0.01;
/// With fewer seconds of either run nothing is said.
const SECONDS_MIN: usize = 8;

/// A figure that both results have, and whether more of it is better.
const FIGURES: [(&str, &[&str], bool); 3] = [
    ("operations/s", &["operations_per_second"], true),
    ("p50 us", &["latency_us", "p50"], false),
    ("p99 us", &["latency_us", "p99"], false),
];

/// What the comparison of two samples says.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Test {
    /// How likely samples of one source differ at least so much.
    p: f64,
    /// The share of pairs in which the second is greater; ties count half.
    greater: f64,
}

/// Compares two files of `--json`; the table as text.
///
/// # Errors
/// A file that is no result, or results without enough seconds.
pub(crate) fn compare(a: &Path, b: &Path) -> Result<String, BenchError> {
    let (of_a, of_b) = (read(a)?, read(b)?);
    let mut text = String::new();
    for (name, result) in [("A", &of_a), ("B", &of_b)] {
        let _ = writeln!(
            text,
            "{name}  {} of {}, {} seconds",
            result["workload"].as_str().unwrap_or("?"),
            result["date"].as_str().unwrap_or("?"),
            seconds(result).len()
        );
    }
    if of_a["workload"] != of_b["workload"] {
        return Err(BenchError::Arguments(format!(
            "{text}A and B have other workloads: nothing is compared"
        )));
    }
    let _ = writeln!(
        text,
        "{:<14}{:>12}{:>12}{:>10}{:>9}{:>10}  Mann-Whitney",
        "median of", "A", "B", "B / A", "B > A", "p"
    );
    for (name, path, more_is_better) in FIGURES {
        let (a_sample, b_sample) = (sample(&of_a, path), sample(&of_b, path));
        for (file, sample) in [(a, &a_sample), (b, &b_sample)] {
            if sample.len() < SECONDS_MIN {
                return Err(BenchError::Arguments(format!(
                    "{}: {} seconds with {name}; at least {SECONDS_MIN} are compared: run it with \
                     --duration {}",
                    file.display(),
                    sample.len(),
                    SECONDS_MIN + 2
                )));
            }
        }
        let test = mann_whitney(&a_sample, &b_sample);
        let (of_a, of_b) = (median(&a_sample), median(&b_sample));
        let verdict = match (test.p < P_MAX, (test.greater > 0.5) == more_is_better) {
            (false, _) => "no difference shown",
            (true, true) => "B is better",
            (true, false) => "B is worse",
        };
        let _ = writeln!(
            text,
            "{name:<14}{of_a:>12.1}{of_b:>12.1}{:>10.3}{:>8.0}%{:>10.2e}  {verdict}",
            of_b / of_a,
            100.0 * test.greater,
            test.p
        );
    }
    Ok(text)
}

fn read(path: &Path) -> Result<Value, BenchError> {
    let wrong = |text: String| BenchError::Arguments(format!("{}: {text}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    let result: Value = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    match result["series"].is_array() {
        true => Ok(result),
        false => Err(wrong("no result of `penstock bench ... --json`".into())),
    }
}

fn seconds(result: &Value) -> &[Value] {
    let all = result["series"].as_array().map_or(&[][..], Vec::as_slice);
    // The last interval ends with the run, somewhere.
    &all[..all.len().saturating_sub(1)]
}

/// A figure of each second in which something was answered.
fn sample(result: &Value, path: &[&str]) -> Vec<f64> {
    let seconds = seconds(result).iter();
    let busy = seconds.filter(|it| it["operations"].as_u64() > Some(0));
    busy.filter_map(|it| path.iter().fold(it, |at, name| &at[*name]).as_f64())
        .collect()
}

fn median(sample: &[f64]) -> f64 {
    let mut sorted = sample.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() % 2 {
        0 => (sorted[middle - 1] + sorted[middle]) / 2.0,
        _ => sorted[middle],
    }
}

/// Neither sample is empty.
fn mann_whitney(a: &[f64], b: &[f64]) -> Test {
    let of_a = a.iter().map(|it| (*it, false));
    let mut all: Vec<(f64, bool)> = of_a.chain(b.iter().map(|it| (*it, true))).collect();
    all.sort_by(|left, right| left.0.total_cmp(&right.0));
    let count = all.len() as f64;
    let (mut ranks_of_b, mut ties, mut from) = (0.0, 0.0, 0);
    while from < all.len() {
        let equal = all[from..]
            .iter()
            .take_while(|it| it.0 == all[from].0)
            .count();
        let rank = from as f64 + (equal as f64 + 1.0) / 2.0;
        let here = all[from..from + equal].iter().filter(|it| it.1).count();
        ranks_of_b += rank * here as f64;
        ties += (equal as f64).powi(3) - equal as f64;
        from += equal;
    }
    let (a_count, b_count) = (a.len() as f64, b.len() as f64);
    let u = ranks_of_b - b_count * (b_count + 1.0) / 2.0;
    let variance =
        a_count * b_count / 12.0 * (count + 1.0 - ties / (count * (count - 1.0)).max(1.0));
    let away = ((u - a_count * b_count / 2.0).abs() - 0.5).max(0.0);
    let p = match variance > 0.0 {
        true => two_sided(away / variance.sqrt()),
        false => 1.0,
    };
    Test {
        p,
        greater: u / (a_count * b_count),
    }
}

/// How likely a normal deviate is at least so far from 0. Abramowitz and Stegun, 7.1.26: the error
/// is below 1.5e-7.
fn two_sided(z: f64) -> f64 {
    let x = z / std::f64::consts::SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * x);
    let poly = t
        * (0.254_829_592
            + t * (-0.284_496_736
                + t * (1.421_413_741 + t * (-1.453_152_027 + t * 1.061_405_429))));
    (poly * (-x * x).exp()).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::BenchArgs;

    #[derive(clap::Parser)]
    struct Cli {
        #[command(flatten)]
        args: BenchArgs,
    }

    #[test]
    fn a_run_with_its_defaults_has_the_seconds_that_a_comparison_wants() {
        let cli = <Cli as clap::Parser>::try_parse_from(["bench", "decr", "--addr", "127.0.0.1:1"]);
        let Ok(Cli { args }) = cli else {
            panic!("arguments")
        };
        // The last interval is not compared, and one may go to a late begin.
        let compared = args.duration / args.interval - 2.0;
        assert!(compared >= SECONDS_MIN as f64, "{compared}");
    }

    #[test]
    fn ranks_give_the_probability_that_tables_have() {
        // The ranks of b are 143, so U = 88 of 100 pairs; z = (88 - 50 - 0.5) / sqrt(175).
        let a = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 15.0, 16.0];
        let b = [9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 17.0, 18.0, 19.0, 20.0];
        let test = mann_whitney(&a, &b);
        assert!((test.greater - 0.88).abs() < 1e-9, "{test:?}");
        let z = (88.0_f64 - 50.0 - 0.5) / 175.0_f64.sqrt();
        assert!(
            (z - 2.8347).abs() < 1e-3 && (test.p - 0.004_587).abs() < 1e-5,
            "{test:?}"
        );
        assert!((two_sided(1.959_964) - 0.05).abs() < 1e-6);
        assert!((two_sided(0.0) - 1.0).abs() < 1e-6);
    }

    #[test]
    fn equal_samples_do_not_differ_and_ties_count_half() {
        let test = mann_whitney(&[5.0; 9], &[5.0; 12]);
        assert_eq!((test.p, test.greater), (1.0, 0.5));
        let one = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0];
        let test = mann_whitney(&one, &one);
        assert!(
            test.p > 0.99 && (test.greater - 0.5).abs() < 1e-9,
            "{test:?}"
        );
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), 2.5);
    }
}
