//! What etcd's JSON gateway is asked, and what it answers: values in, bytes out, and back. Pure.
//!
//! Keys and values are base64, numbers of 64 bits are strings, and what is zero is left out.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// The body of an answer is no longer than this: a value of etcd's own limit fits.
pub const BODY_BYTES_MAX: usize = 3 << 20;
/// What is shown of a body that is not etcd's.
const SHOWN_CHARS: usize = 60;

/// A key as etcd has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyValue {
    /// The revision of its last change.
    pub mod_revision: u64,
    /// Empty if keys alone were asked for.
    pub value: Vec<u8>,
}

/// The answer about one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// Which etcd answered.
    pub cluster_id: u64,
    /// `None`: there is no such key.
    pub found: Option<KeyValue>,
}

/// The answer to a swap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Swap {
    /// Which etcd answered.
    pub cluster_id: u64,
    /// The revision of the key now, or what is there instead of the expected revision.
    pub outcome: Result<u64, Option<KeyValue>>,
}

/// Why an answer says nothing of the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnswerError {
    /// It is none of etcd's.
    NotEtcd(String),
    /// The token counts no more, or is wanted.
    Login(String),
    /// etcd does not do it, now or ever: nothing was changed.
    Refused(String),
    /// etcd does not know whether it was done.
    Unsure(String),
}

impl fmt::Display for AnswerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AnswerError::NotEtcd(text) => f.write_str(text),
            AnswerError::Login(text) | AnswerError::Refused(text) | AnswerError::Unsure(text) => {
                write!(f, "etcd says {text:?}")
            }
        }
    }
}

/// Asks for one key.
#[must_use]
pub fn range_request(key: &str, keys_only: bool) -> String {
    let key = STANDARD.encode(key);
    match keys_only {
        true => json!({"key": key, "keys_only": true}),
        false => json!({"key": key}),
    }
    .to_string()
}

/// Asks to replace the value of a key whose last change has that revision; 0: there is no such key.
#[must_use]
pub fn swap_request(key: &str, mod_revision: u64, value: &str) -> String {
    let key = STANDARD.encode(key);
    json!({
        "compare": [{
            "key": key,
            "target": "MOD",
            "result": "EQUAL",
            "mod_revision": mod_revision.to_string(),
        }],
        "success": [{"request_put": {"key": key, "value": STANDARD.encode(value)}}],
        "failure": [{"request_range": {"key": key}}],
    })
    .to_string()
}

/// Asks for a token.
#[must_use]
pub fn login_request(user: &str, password: &str) -> String {
    json!({"name": user, "password": password}).to_string()
}

/// Reads the answer about one key.
///
/// # Errors
/// [`AnswerError`].
pub fn read_range(status: u16, body: &[u8]) -> Result<Range, AnswerError> {
    let answer = read(status, body)?;
    Ok(Range {
        cluster_id: cluster_id(&answer, body)?,
        found: found(&answer, body)?,
    })
}

/// Reads the answer to a swap.
///
/// # Errors
/// [`AnswerError`].
pub fn read_swap(status: u16, body: &[u8]) -> Result<Swap, AnswerError> {
    let answer = read(status, body)?;
    let cluster_id = cluster_id(&answer, body)?;
    let outcome = match &answer["succeeded"] {
        Value::Bool(true) => {
            let revision = number(&answer["header"]["revision"]);
            Ok(revision.ok_or_else(|| not_etcd(status, body))?)
        }
        Value::Bool(false) | Value::Null => {
            let range = &answer["responses"][0]["response_range"];
            match range.is_object() {
                true => Err(found(range, body)?),
                false => return Err(not_etcd(status, body)),
            }
        }
        _ => return Err(not_etcd(status, body)),
    };
    Ok(Swap {
        cluster_id,
        outcome,
    })
}

/// Reads the token of a login.
///
/// # Errors
/// [`AnswerError`].
pub fn read_login(status: u16, body: &[u8]) -> Result<String, AnswerError> {
    let answer = read(status, body)?;
    let token = answer["token"].as_str();
    // It becomes a header.
    let token = token.filter(|it| !it.is_empty() && it.bytes().all(|it| it.is_ascii_graphic()));
    let token = token.ok_or_else(|| not_etcd(status, body))?;
    Ok(token.into())
}

/// Whether a login was refused because etcd wants none.
pub(super) fn is_login_off(error: &AnswerError) -> bool {
    matches!(error, AnswerError::Refused(text) if text.contains("authentication is not enabled"))
}

fn read(status: u16, body: &[u8]) -> Result<Value, AnswerError> {
    let answer: Value = serde_json::from_slice(body).map_err(|_| not_etcd(status, body))?;
    if status == 200 && answer["header"].is_object() {
        return Ok(answer);
    }
    let text = [&answer["message"], &answer["error"]];
    let text = text.iter().find_map(|it| it.as_str());
    match (text, answer["code"].as_u64()) {
        (Some(text), Some(code)) => Err(refusal(code, text)),
        _ => Err(not_etcd(status, body)),
    }
}

/// What an error of etcd means; the codes are those of gRPC.
fn refusal(code: u64, text: &str) -> AnswerError {
    let is_old = ["invalid auth token", "revision in header is old"];
    let is_full = ["space exceeded", "too large"];
    let shown = shown(text);
    if code == 16 || is_old.iter().any(|it| text.contains(it)) {
        return AnswerError::Login(shown);
    }
    if is_full.iter().any(|it| text.contains(it)) {
        return AnswerError::Refused(shown);
    }
    match code {
        // InvalidArgument, NotFound, PermissionDenied, FailedPrecondition, Unimplemented
        3 | 5 | 7 | 9 | 12 => AnswerError::Refused(shown),
        _ => AnswerError::Unsure(shown),
    }
}

fn cluster_id(answer: &Value, body: &[u8]) -> Result<u64, AnswerError> {
    number(&answer["header"]["cluster_id"]).ok_or_else(|| not_etcd(200, body))
}

fn found(answer: &Value, body: &[u8]) -> Result<Option<KeyValue>, AnswerError> {
    let wrong = || not_etcd(200, body);
    let first = match &answer["kvs"] {
        Value::Null => return Ok(None),
        Value::Array(all) if all.is_empty() => return Ok(None),
        Value::Array(all) => &all[0],
        _ => return Err(wrong()),
    };
    let value = match &first["value"] {
        Value::Null => Vec::new(),
        Value::String(text) => STANDARD.decode(text).map_err(|_| wrong())?,
        _ => return Err(wrong()),
    };
    // No key has revision 0: that is how a swap says that there is none.
    let mod_revision = number(&first["mod_revision"]).filter(|it| *it > 0);
    Ok(Some(KeyValue {
        mod_revision: mod_revision.ok_or_else(wrong)?,
        value,
    }))
}

fn number(value: &Value) -> Option<u64> {
    match value {
        Value::String(text) => text.parse().ok(),
        Value::Number(number) => number.as_u64(),
        _ => None,
    }
}

fn not_etcd(status: u16, body: &[u8]) -> AnswerError {
    let text = shown(&String::from_utf8_lossy(
        &body[..body.len().min(4 * SHOWN_CHARS)],
    ));
    AnswerError::NotEtcd(format!(
        "what answers (status {status}) is not etcd's JSON gateway: {text:?}"
    ))
}

/// The beginning, on one line.
fn shown(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let chars = line.chars().filter(|it| !it.is_control());
    let mut short: String = chars.take(SHOWN_CHARS).collect();
    if short.len() < line.len() {
        short.push_str("...");
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_three_versions_are_read() {
        // 3.4.23 leaves out what is zero, and tells an error twice.
        let none = r#"{"header":{"cluster_id":"14841639068965178418","revision":"1"}}"#;
        let range = read_range(200, none.as_bytes()).expect("read");
        assert_eq!(range.cluster_id, 14_841_639_068_965_178_418);
        assert_eq!(range.found, None);
        let some = r#"{"header":{"cluster_id":"7"},"kvs":[{"key":"L3A=","create_revision":"4",
            "mod_revision":"5","version":"2","value":"YWJj"}],"count":"1"}"#;
        let found = read_range(200, some.as_bytes()).expect("read").found;
        let expected = KeyValue {
            mod_revision: 5,
            value: b"abc".to_vec(),
        };
        assert_eq!(found, Some(expected.clone()));
        let done = r#"{"header":{"cluster_id":"7","revision":"9"},"succeeded":true,
            "responses":[{"response_put":{"header":{"revision":"9"}}}]}"#;
        let swap = read_swap(200, done.as_bytes()).expect("read");
        assert_eq!(swap.outcome, Ok(9));
        let other = r#"{"header":{"cluster_id":"7","revision":"9"},"responses":[{"response_range":
            {"header":{},"kvs":[{"mod_revision":"5","value":"YWJj"}],"count":"1"}}]}"#;
        let swap = read_swap(200, other.as_bytes()).expect("read");
        assert_eq!(swap.outcome, Err(Some(expected)));
        for old in [
            r#"{"error":"etcdserver: invalid auth token","message":"etcdserver: invalid auth token",
                "code":16}"#,
            r#"{"code":3, "message":"etcdserver: revision in header is old", "details":[]}"#,
        ] {
            let error = read_range(401, old.as_bytes()).expect_err("an error");
            assert!(matches!(error, AnswerError::Login(_)), "{error:?}");
        }
        let denied = r#"{"code":7, "message":"etcdserver: permission denied"}"#;
        let error = read_swap(403, denied.as_bytes()).expect_err("an error");
        assert!(matches!(error, AnswerError::Refused(_)), "{error:?}");
        let timed_out = r#"{"error":"etcdserver: request timed out","code":14}"#;
        let error = read_swap(503, timed_out.as_bytes()).expect_err("an error");
        assert!(matches!(error, AnswerError::Unsure(_)), "{error:?}");
    }

    #[test]
    fn what_is_not_etcds_is_shown_with_its_first_words() {
        let page = b"<html>\n<head><title>502 Bad Gateway</title></head>\n<body>nginx</body>";
        let message = read_range(502, page).expect_err("a page").to_string();
        let expected = "what answers (status 502) is not etcd's JSON gateway: \
            \"<html> <head><title>502 Bad Gateway</title></head> <body>ngi...\"";
        assert_eq!(message, expected);
        for body in [
            &b""[..],
            b"{}",
            b"[]",
            b"\"header\"",
            br#"{"header":{}}"#,
            br#"{"header":{"cluster_id":"x"}}"#,
            br#"{"header":{"cluster_id":"1"},"kvs":{}}"#,
            br#"{"header":{"cluster_id":"1"},"kvs":[{"mod_revision":"0"}]}"#,
            br#"{"header":{"cluster_id":"1"},"kvs":[{"mod_revision":"1","value":"*"}]}"#,
            br#"{"header":{"cluster_id":"1"},"kvs":[{"mod_rev"#,
        ] {
            let read = read_range(200, body);
            assert!(matches!(read, Err(AnswerError::NotEtcd(_))), "{read:?}");
            let read = read_swap(200, body);
            assert!(matches!(read, Err(AnswerError::NotEtcd(_))), "{read:?}");
        }
    }
}
