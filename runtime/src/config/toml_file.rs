//! The TOML file of options: what it gives, and what is said of a line that is refused.

use std::path::Path;

use super::OPTIONS;
use super::removed::no_such;
use super::source::{ConfigError, Origin, position, source_text};
use super::toml_line::line_of_error;

/// Option index, origin and text, as the sources give them.
pub(super) type Given = Vec<(usize, Origin, String)>;

/// Adds what the text of the file at `path` gives.
pub(super) fn read_file(path: &Path, text: &str, given: &mut Given) -> Result<(), ConfigError> {
    use toml::de::{DeTable, DeValue};
    let line_of = |offset: usize| 1 + text[..offset].matches('\n').count();
    let table = DeTable::parse(text).map_err(|error| {
        let line = line_of_error(text, &error);
        let meant = quoted(text.lines().nth(line - 1).unwrap_or_default());
        ConfigError::NotToml {
            path: path.to_path_buf(),
            line,
            cause: error.message().replace('\n', ", ") + &meant,
        }
    })?;
    let mut entries: Vec<_> = table.get_ref().iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    for (key, value) in entries {
        let line = line_of(key.span().start);
        let name = key.get_ref().as_ref();
        let Some(index) = position(name) else {
            return Err(ConfigError::Unknown {
                source: format!("{}:{line}: {}", path.display(), name.escape_debug()),
                cause: no_such(name, |option| option.name.into()),
            });
        };
        let option = &OPTIONS[index];
        let raw = text[value.span()].trim();
        if !option.takes(value.get_ref()) {
            let meant = match value.get_ref() {
                DeValue::String(bare) if option.parse(bare).is_some() => {
                    format!("; write {name} = {bare}, without quotes")
                }
                _ => String::new(),
            };
            return Err(ConfigError::BadValue {
                source: source_text(option, Origin::File { line }, Some(path)),
                value: raw.lines().next().unwrap_or_default().to_string(),
                allowed: option.allowed() + &meant,
            });
        }
        let written = match value.get_ref() {
            DeValue::String(written) => written.to_string(),
            _ => raw.to_string(),
        };
        given.push((index, Origin::File { line }, written));
    }
    Ok(())
}

/// What to write in place of a line whose value lacks its quotes; nothing if that is not its fault.
fn quoted(line: &str) -> String {
    let meant = line.split_once('=').and_then(|(key, value)| {
        let option = &OPTIONS[position(key.trim())?];
        let value = value.split('#').next().unwrap_or_default().trim();
        let is_bare = !value.is_empty() && !value.contains(['"', '\'', '\\']);
        is_bare.then(|| match option.toml_quoted(value) {
            Some(meant) => format!("; write {meant}"),
            None => format!("; {} takes {}", option.name, option.allowed()),
        })
    });
    meant.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use crate::config::settings::{Settings, Sources};

    fn refusal(flags: &[(&'static str, &str)], file: &str) -> String {
        let refused = Settings::resolve(&Sources {
            flags: flags.iter().map(|(n, t)| (*n, t.to_string())).collect(),
            file: Some(("p.toml".into(), file.to_string())),
            ..Sources::default()
        });
        refused.expect_err("it is wrong").to_string()
    }

    #[test]
    fn a_value_without_its_quotes_and_a_size_with_a_wrong_unit_are_refused_with_the_right_form() {
        for (written, right) in [
            ("memory_max = 512MiB", "; write memory_max = \"512MiB\""),
            (
                "data = /var/lib/penstock # here",
                "; write data = \"/var/lib/penstock\"",
            ),
            (
                "listen = 127.0.0.1:7411",
                "; write listen = \"127.0.0.1:7411\"",
            ),
            ("resp_listen = off", "; write resp_listen = \"off\""),
            ("io = threads", "; write io = \"threads\""),
            ("insecure = yes", "; insecure takes true or false"),
            ("shards = two", "; shards takes a whole number, 0..256"),
            ("shards = \"2\"", "; write shards = 2, without quotes"),
            (
                "insecure = \"true\"",
                "; write insecure = true, without quotes",
            ),
            ("memory_max = \"512M\"", "; write 512MiB"),
            ("idle_timeout_s = \"5min\"", "; write 5m"),
        ] {
            let line = refusal(&[], written);
            assert!(
                line.starts_with("p.toml:1: ") && line.ends_with(right),
                "{line}"
            );
        }
        for (flag, text, right) in [
            ("memory_max", "512M", "; write 512MiB"),
            ("cache_bytes", "1gb", "; write 1GiB"),
            ("interval_ms", "50msec", "; write 50ms"),
        ] {
            let line = refusal(&[(flag, text)], "");
            assert!(line.ends_with(right), "{line}");
        }
        // What would not be allowed either is not advised.
        assert!(!refusal(&[("memory_max", "9999999G")], "").contains("; write"));
        assert!(!refusal(&[], "data = \"/var").contains("; write"));
    }
}
