//! What nodes show, what they could not keep, and the keys that were acknowledged.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use penstock_client::Client;
use penstock_net::level::AckLevel;
use penstock_net::request::Version;

use crate::sales::Account;

/// What a node shows of all keys.
pub type Shown = BTreeMap<Vec<u8>, (Version, Vec<u8>)>;

/// What nodes could not keep, by key and version; no value is a deletion.
pub type Lost = BTreeMap<(Vec<u8>, Version), Option<Vec<u8>>>;

/// All keys, as a node shows them that writes them.
///
/// # Errors
/// It does not show all of them.
pub fn shown(client: &Client) -> Result<Shown, String> {
    let mut shown = Shown::new();
    for entry in client.scan(b"", true) {
        let entry = entry.map_err(|error| format!("SCAN: {error}"))?;
        let value = entry.value.ok_or("a value was left out")?;
        shown.insert(entry.key.to_vec(), (entry.version, value.to_vec()));
    }
    Ok(shown)
}

/// What nodes with these data directories could not keep.
///
/// # Errors
/// The command that tells it fails.
pub fn lostfound(binary: &Path, folders: &[PathBuf]) -> Result<Lost, String> {
    let mut lost = BTreeMap::new();
    for folder in folders {
        let output = Command::new(binary)
            .args(["cluster", "lostfound", "--all"])
            .arg(folder)
            .output()
            .map_err(|error| error.to_string())?;
        if !output.status.success() {
            let printed = String::from_utf8_lossy(&output.stderr);
            return Err(format!("lostfound of {}: {printed}", folder.display()));
        }
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            if let Some((key, version, value)) = change(line) {
                lost.insert((key, version), value);
            }
        }
    }
    Ok(lost)
}

/// The keys of one level: each that was acknowledged is there or, at level disk, in lostfound; and
/// none is both.
pub fn check_keys(
    level: AckLevel,
    account: &Account,
    shown: &Shown,
    lost: &Lost,
) -> Result<u64, String> {
    let mut acked_and_lost = 0;
    for (key, (version, value)) in &account.set {
        let name = key.escape_ascii();
        let kept = lost.get(&(key.clone(), *version));
        match (shown.get(key), kept) {
            (Some((_, there)), None) if there == value => {}
            (None, Some(Some(kept))) if kept == value && !level.waits_for_members() => {
                acked_and_lost += 1;
            }
            (there, kept) => {
                return Err(format!(
                    "{name} was acknowledged as {version:?}; there is {there:?}, and in lostfound \
                     {kept:?}"
                ));
            }
        }
    }
    let seen: BTreeSet<&Vec<u8>> = lost
        .keys()
        .map(|(key, _)| key)
        .chain(shown.keys())
        .collect();
    if let Some(key) = account.not_set.iter().find(|key| seen.contains(key)) {
        return Err(format!(
            "{} was told to be not executed, and was",
            key.escape_ascii()
        ));
    }
    Ok(acked_and_lost)
}

/// A line of `penstock cluster lostfound --all`: partition, version, time, key, value in
/// hexadecimal or a dash.
fn change(line: &str) -> Option<(Vec<u8>, Version, Option<Vec<u8>>)> {
    let words: Vec<&str> = line.split(' ').collect();
    let &[partition, version, _, key, value] = words.as_slice() else {
        return None;
    };
    partition.parse::<u16>().ok()?;
    let (epoch, sequence) = version.split_once(':')?;
    let version = Version {
        epoch: epoch.parse().ok()?,
        sequence: sequence.parse().ok()?,
    };
    let byte = |at| u8::from_str_radix(value.get(at..at + 2)?, 16).ok();
    let value = match value {
        "-" => None,
        _ => Some(
            (0..value.len())
                .step_by(2)
                .map(byte)
                .collect::<Option<_>>()?,
        ),
    };
    Some((key.as_bytes().to_vec(), version, value))
}
