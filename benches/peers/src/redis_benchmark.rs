//! Load by `redis-benchmark`, Redis's own tool.

use std::path::PathBuf;

use crate::Outcome;
use crate::program;

/// A run that takes so long beyond its expected time has lost its server.
const SECONDS_BEYOND: f64 = 15.0;
/// A run must take so long to tell a rate: the tool counts milliseconds.
const CALIBRATION_SECONDS: f64 = 0.1;
/// More requests in each step, and so many steps, until a run takes that long.
const CALIBRATION_GROWTH: u64 = 8;
const CALIBRATION_STEPS: usize = 9;

/// What to ask for.
#[derive(Clone, Debug)]
pub struct Ask {
    pub connections: u64,
    /// Commands that each connection has under way.
    pub depth: u64,
    /// The command, or the tool's options for one of its tests.
    pub words: Vec<String>,
}

/// What the tool tells.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Told {
    pub per_second: f64,
    pub average_us: f64,
    pub p50_us: f64,
    pub p95_us: f64,
    pub p99_us: f64,
}

pub fn binary() -> Result<PathBuf, String> {
    program::find("redis-benchmark", "REDIS_BENCHMARK")
        .map_err(|why| format!("{why} (Debian's package `redis-tools` has it)"))
}

impl Ask {
    pub fn new(connections: u64, depth: u64, words: &[&str]) -> Ask {
        Ask {
            connections,
            depth,
            words: words.iter().map(|word| (*word).to_string()).collect(),
        }
    }

    /// So many requests as take about `seconds` at that rate: whole rounds of all connections, ten
    /// at least.
    fn requests(&self, per_second: f64, seconds: f64) -> u64 {
        let round = self.connections * self.depth;
        let rounds = (per_second * seconds / round as f64).round();
        (rounds.clamp(10.0, 1e9) as u64).saturating_mul(round)
    }

    /// The same for a server, at the rate of a short run. These runs are its warm-up.
    pub fn calibrate(&self, port: u16, seconds: f64) -> Outcome<u64> {
        let mut requests = self.requests(0.0, 0.0);
        for _ in 0..CALIBRATION_STEPS {
            let told = self.run(port, requests, 1.0)?;
            if is_telling(told.per_second, requests) {
                return Ok(self.requests(told.per_second, seconds));
            }
            requests *= CALIBRATION_GROWTH;
        }
        Err(format!("redis-benchmark: {requests} requests take no time").into())
    }

    /// Runs the tool; `seconds` is about what it needs.
    pub fn run(&self, port: u16, requests: u64, seconds: f64) -> Outcome<Told> {
        let seconds_max = SECONDS_BEYOND + seconds * 5.0;
        let output = program::bounded(seconds_max, &binary()?)
            .args(["-h", "127.0.0.1", "-p", &port.to_string(), "--csv"])
            .args(["-c", &self.connections.to_string()])
            .args(["-P", &self.depth.to_string()])
            .args(["-n", &requests.to_string()])
            .args(&self.words)
            .output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let error = String::from_utf8_lossy(&output.stderr);
        if output.status.code() == Some(program::TOO_LONG) {
            return Err(format!("redis-benchmark took more than {seconds_max:.0} s").into());
        }
        if !output.status.success() || error.contains("Error from server") {
            return Err(format!("redis-benchmark: {}", error.trim()).into());
        }
        read(&text)
    }
}

/// Whether a rate comes from a run that took long enough. One within a millisecond is told as
/// infinite.
fn is_telling(per_second: f64, requests: u64) -> bool {
    per_second.is_finite() && requests as f64 / per_second >= CALIBRATION_SECONDS
}

/// The figures of one test in the tool's CSV, by the names of its columns.
fn read(csv: &str) -> Outcome<Told> {
    let mut lines = csv.lines().filter(|line| line.starts_with('"')).map(fields);
    let (Some(names), Some(row)) = (lines.next(), lines.next()) else {
        return Err(format!("redis-benchmark told no figures: {csv:?}").into());
    };
    let figure = |name: &str| -> Outcome<f64> {
        let at = names.iter().position(|it| it == name);
        let at = at.ok_or_else(|| format!("redis-benchmark told no {name}"))?;
        // A comma in the name of the test must not shift the figures: count from the end.
        let from_end = names.len() - at;
        let text = row.len().checked_sub(from_end).map(|at| &row[at]);
        Ok(text
            .ok_or("redis-benchmark told too few figures")?
            .parse()?)
    };
    Ok(Told {
        per_second: figure("rps")?,
        average_us: figure("avg_latency_ms")? * 1000.0,
        p50_us: figure("p50_latency_ms")? * 1000.0,
        p95_us: figure("p95_latency_ms")? * 1000.0,
        p99_us: figure("p99_latency_ms")? * 1000.0,
    })
}

fn fields(line: &str) -> Vec<String> {
    line.split(',')
        .map(|field| field.trim().trim_matches('"').to_string())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: &str = "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\
        \"p50_latency_ms\",\"p95_latency_ms\",\"p99_latency_ms\",\"max_latency_ms\"";

    #[test]
    fn csv_of_the_tool_becomes_figures() {
        let csv = format!(
            "{NAMES}\n\"DECR stock\",\"123456.79\",\"0.214\",\"0.048\",\"0.207\",\"0.303\",\
             \"0.455\",\"1.023\"\n"
        );
        let told = read(&csv).unwrap();
        assert_eq!(told.per_second, 123_456.79);
        assert_eq!((told.p50_us, told.p95_us), (207.0, 303.0));
        assert_eq!((told.average_us, told.p99_us), (214.0, 455.0));
        let comma = csv.replace("DECR stock", "SET a,b");
        assert_eq!(read(&comma).unwrap(), told);
    }

    #[test]
    fn what_is_no_csv_is_an_error_and_no_figure() {
        assert!(read("").is_err());
        assert!(read(NAMES).is_err());
        assert!(read("Could not connect to Redis at 127.0.0.1:1").is_err());
        assert!(read(&format!("{NAMES}\n\"DECR\",\"x\"\n")).is_err());
    }

    #[test]
    fn requests_are_whole_rounds_and_ten_at_least() {
        let ask = Ask::new(50, 16, &["DECR", "stock"]);
        assert_eq!(ask.requests(1_000_000.0, 1.0), 1_000_000);
        assert_eq!(ask.requests(10.0, 1.0), 8000);
        assert_eq!(ask.requests(1_000_000.0, 0.5) % 800, 0);
    }

    #[test]
    fn a_rate_of_a_run_that_took_no_time_tells_nothing() {
        assert!(!is_telling(f64::INFINITY, 10));
        assert!(!is_telling(1_000_000.0, 10_000));
        assert!(is_telling(1_000_000.0, 100_000));
    }
}
