//! The machine in words, and what the kernel counts for a process.

use std::fs;

use crate::Outcome;

/// CPUs, memory, kernel and load, in one line.
pub fn in_words() -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, name: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(name))
            .map(|rest| rest.trim_start_matches([':', '\t', ' ']).trim().to_string())
            .unwrap_or_else(|| "unknown".into())
    };
    let cpus = std::thread::available_parallelism().map_or(1, |cpus| cpus.get());
    let memory_kib: u64 = field(&read("/proc/meminfo"), "MemTotal")
        .trim_end_matches(" kB")
        .parse()
        .unwrap_or(0);
    format!(
        "{cpus} CPUs ({}), {:.0} GiB of memory, Linux {}, load {}",
        field(&read("/proc/cpuinfo"), "model name"),
        memory_kib as f64 / f64::from(1 << 20),
        read("/proc/sys/kernel/osrelease").trim(),
        read("/proc/loadavg").split(' ').next().unwrap_or("unknown"),
    )
}

/// Memory that programs may take without pushing others out, in bytes.
pub fn memory_available_bytes() -> Outcome<u64> {
    let text = fs::read_to_string("/proc/meminfo")?;
    let line = text.lines().find_map(|it| it.strip_prefix("MemAvailable:"));
    let kib: u64 = line
        .and_then(|rest| rest.split_whitespace().next()?.parse().ok())
        .ok_or("/proc/meminfo tells no MemAvailable")?;
    Ok(kib * 1024)
}

/// What the kernel counted for a process so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// Read from the device.
    pub read_bytes: u64,
    /// Written to the device, or dirtied in the page cache.
    pub write_bytes: u64,
    pub cpu_seconds: f64,
    pub resident_bytes: u64,
}

impl Usage {
    /// Of the process with that id, or of this one.
    pub fn of(process: Option<u32>) -> Outcome<Usage> {
        let folder = process.map_or("/proc/self".into(), |id| format!("/proc/{id}"));
        let number = |text: &str, name: &str| -> u64 {
            text.lines()
                .find_map(|line| line.strip_prefix(name))
                .and_then(|rest| rest.split_whitespace().next()?.parse().ok())
                .unwrap_or(0)
        };
        let io = fs::read_to_string(format!("{folder}/io"))?;
        let status = fs::read_to_string(format!("{folder}/status"))?;
        let stat = fs::read_to_string(format!("{folder}/stat"))?;
        // After the name in brackets: utime and stime are the 12th and 13th, in hundredths of a
        // second.
        let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        let ticks: u64 = after_name
            .split_whitespace()
            .skip(11)
            .take(2)
            .filter_map(|field| field.parse::<u64>().ok())
            .sum();
        Ok(Usage {
            read_bytes: number(&io, "read_bytes:"),
            write_bytes: number(&io, "write_bytes:"),
            cpu_seconds: ticks as f64 / 100.0,
            resident_bytes: number(&status, "VmRSS:") * 1024,
        })
    }

    /// What came since `earlier`; the resident memory as it is now.
    pub fn since(&self, earlier: &Usage) -> Usage {
        Usage {
            read_bytes: self.read_bytes.saturating_sub(earlier.read_bytes),
            write_bytes: self.write_bytes.saturating_sub(earlier.write_bytes),
            cpu_seconds: (self.cpu_seconds - earlier.cpu_seconds).max(0.0),
            resident_bytes: self.resident_bytes,
        }
    }
}
