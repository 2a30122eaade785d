//! The machine that the generator runs on, in words.

use serde_json::{Value, json};

/// Processor, kernel, CPUs that this process may use, and memory. What cannot be read is null.
pub(crate) fn host() -> Value {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").ok();
    let cpus = std::thread::available_parallelism().ok();
    json!({
        "processor": field("/proc/cpuinfo", "model name"),
        "architecture": std::env::consts::ARCH,
        "system": std::env::consts::OS,
        "kernel": kernel.as_deref().map(str::trim),
        "cpus": cpus.map(usize::from),
        "memory": field("/proc/meminfo", "MemTotal"),
    })
}

/// The value behind the first `name:` of a file.
fn field(path: &str, name: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    let fields = text.lines().filter_map(|line| line.split_once(':'));
    let mut named = fields.filter(|(field, _)| field.trim() == name);
    named.next().map(|(_, value)| value.trim().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_is_described_as_far_as_it_shows() {
        let host = host();
        assert!(host["cpus"].as_u64() > Some(0), "{host}");
        assert!(host["kernel"].as_str().is_some_and(|it| !it.is_empty()));
        assert!(host["memory"].as_str().is_some_and(|it| it.ends_with("kB")));
        assert_eq!(field("/proc/meminfo", "no such field"), None);
        assert_eq!(field("/nowhere", "model name"), None);
    }
}
