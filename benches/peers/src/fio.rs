//! What the disk itself gives, by fio.

use std::path::Path;
use std::process::Command;

/// 4 KiB random reads a second at a depth, past the page cache, from a file of so many bytes.
pub fn random_reads(file: &Path, bytes: u64, depth: usize, seconds: f64) -> Result<f64, String> {
    let job = [
        "--rw=randread".into(),
        "--bs=4k".into(),
        format!("--iodepth={depth}"),
    ];
    Ok(run(file, bytes, seconds, &job)?["iops"]
        .as_f64()
        .unwrap_or(0.0))
}

/// Sequential bytes a second, 1 MiB at a time, four of them under way.
pub fn sequential_bytes(file: &Path, bytes: u64, seconds: f64) -> Result<f64, String> {
    let job = ["--rw=read".into(), "--bs=1m".into(), "--iodepth=4".into()];
    Ok(run(file, bytes, seconds, &job)?["bw_bytes"]
        .as_f64()
        .unwrap_or(0.0))
}

fn run(file: &Path, bytes: u64, seconds: f64, job: &[String]) -> Result<serde_json::Value, String> {
    let output = Command::new("fio")
        .args([
            "--name=peers",
            "--ioengine=io_uring",
            "--direct=1",
            "--time_based",
            "--output-format=json",
        ])
        .arg(format!("--filename={}", file.display()))
        .arg(format!("--size={bytes}"))
        .arg(format!("--runtime={seconds}"))
        .args(job)
        .output()
        .map_err(|error| format!("fio: {error} (Debian's package `fio` has it)"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let json = text.find('{').map_or("", |start| &text[start..]);
    let found: serde_json::Value = serde_json::from_str(json).map_err(|_| {
        format!(
            "fio failed: {}",
            String::from_utf8_lossy(&output.stderr)
                .lines()
                .next()
                .unwrap_or("")
        )
    })?;
    Ok(found["jobs"][0]["read"].clone())
}
