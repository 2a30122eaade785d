//! The vector files. They are promises: a released vector never changes, new ones are added.
//!
//! `PENSTOCK_WRITE_VECTORS=1 cargo test -p penstock-net vectors` writes them again.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::cases;
use crate::decoded::judge;
use crate::{hex, unhex};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("vectors")
}

fn written(case: &cases::Case) -> Value {
    let (must, key, what) = match judge(case.kind, &case.bytes) {
        Ok(decoded) => ("accept", "decoded", decoded),
        Err((status, message)) => (
            "reject",
            "error",
            json!({"status": status, "message": message}),
        ),
    };
    json!({
        "id": case.id,
        "kind": case.kind,
        "description": case.description,
        "hex": hex(&case.bytes),
        "must": must,
        key: what,
    })
}

#[test]
fn every_vector_is_judged_as_its_file_says() {
    let mut files: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    for case in cases::all() {
        files.entry(case.kind).or_default().push(written(&case));
    }
    let (mut accepted, mut rejected) = (0, 0);
    for (kind, built) in files {
        let path = folder().join(format!("{kind}.json"));
        if std::env::var_os("PENSTOCK_WRITE_VECTORS").is_some() {
            std::fs::write(
                &path,
                serde_json::to_string_pretty(&built).expect("values") + "\n",
            )
            .expect("the folder can be written");
        }
        let text = std::fs::read_to_string(&path)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let stored: Vec<Value> = serde_json::from_str(&text).expect("a list of vectors");
        for vector in &stored {
            let bytes = unhex(vector["hex"].as_str().expect("hex"));
            let id = &vector["id"];
            match judge(kind, &bytes) {
                Ok(decoded) => {
                    accepted += 1;
                    assert_eq!(
                        (vector["must"].as_str(), &vector["decoded"]),
                        (Some("accept"), &decoded),
                        "{id}"
                    );
                }
                Err((status, _)) => {
                    rejected += 1;
                    assert_eq!(
                        (vector["must"].as_str(), vector["error"]["status"].as_str()),
                        (Some("reject"), Some(status.as_str())),
                        "{id}"
                    );
                }
            }
        }
        assert_eq!(stored, built, "{kind}: the file and the cases have drifted");
    }
    assert!(
        accepted + rejected >= 100 && rejected >= accepted,
        "{accepted} accepted, {rejected} rejected"
    );
}
