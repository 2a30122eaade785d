//! What answers as etcd's gateway does, but for the faults of a script: one for each request.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// What goes wrong with one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing.
    None,
    /// It is not done, and the connection ends.
    NotDone,
    /// It is done, and the connection ends.
    AnswerLost,
    /// It is done, and the answer comes too late.
    AnswerLate,
    /// It is done, and half of the answer comes.
    AnswerCut,
    /// A proxy answers.
    Page,
    /// etcd has no quorum: it is not done.
    NoQuorum,
    /// It is done, and another one changes the key behind it before the connection ends.
    AnswerLostAndChanged,
    /// The token counts no more.
    TokenExpired,
    /// The proxy sends elsewhere.
    Redirect,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) value: Option<Vec<u8>>,
    pub(crate) mod_revision: u64,
    pub(crate) revision: u64,
    pub(crate) faults: VecDeque<Fault>,
    /// The fault of each request behind the script.
    pub(crate) then: Option<Fault>,
    /// User, password and the number of the token that counts.
    pub(crate) login: Option<(String, String, u64)>,
    pub(crate) logins: u64,
    pub(crate) requests: u64,
}

/// A listener whose thread ends with the process.
pub(crate) struct ScriptedEtcd {
    pub(crate) endpoint: String,
    pub(crate) state: Arc<Mutex<State>>,
}

impl ScriptedEtcd {
    pub(crate) fn start() -> ScriptedEtcd {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let endpoint = format!("http://{}", listener.local_addr().expect("bound"));
        let state = Arc::new(Mutex::new(State::default()));
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = Arc::clone(&shared);
                std::thread::spawn(move || serve(&stream, &state));
            }
        });
        ScriptedEtcd { endpoint, state }
    }

    pub(crate) fn script(&self, faults: &[Fault], then: Option<Fault>) {
        let mut state = self.state.lock().expect("no thread panics");
        state.faults = faults.iter().copied().collect();
        state.then = then;
    }

    pub(crate) fn put(&self, value: &[u8], mod_revision: u64) {
        let mut state = self.state.lock().expect("no thread panics");
        state.value = Some(value.to_vec());
        state.mod_revision = mod_revision;
        state.revision = mod_revision;
    }
}

fn serve(stream: &TcpStream, state: &Mutex<State>) {
    let mut reader = BufReader::new(stream);
    while let Some((path, token, body)) = request(&mut reader) {
        let mut state = state.lock().expect("no thread panics");
        state.requests += 1;
        let then = state.then.unwrap_or(Fault::None);
        let fault = state.faults.pop_front().unwrap_or(then);
        if fault == Fault::TokenExpired
            && let Some((_, _, number)) = &mut state.login
        {
            *number += 1;
        }
        let (status, answer) = match fault {
            Fault::NotDone => break,
            Fault::Page => (502, "<html><title>502 Bad Gateway</title></html>".into()),
            Fault::NoQuorum => (
                503,
                r#"{"error":"etcdserver: request timed out","code":14}"#.into(),
            ),
            Fault::Redirect => (302, String::new()),
            _ => state.answer(&path, token.as_deref(), &body),
        };
        if fault == Fault::AnswerLostAndChanged {
            state.revision += 1;
            state.mod_revision = state.revision;
            state.value = Some(b"another".to_vec());
        }
        drop(state);
        let head = format!(
            "HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
             Location: http://127.0.0.1:1/\r\n\r\n",
            answer.len()
        );
        let whole = [head.as_bytes(), answer.as_bytes()].concat();
        let (sent, ends) = match fault {
            Fault::AnswerLost | Fault::AnswerLostAndChanged => (0, true),
            Fault::AnswerCut => (head.len() + answer.len() / 2, true),
            Fault::AnswerLate => {
                std::thread::sleep(Duration::from_millis(450));
                (whole.len(), true)
            }
            _ => (whole.len(), false),
        };
        if (&*stream).write_all(&whole[..sent]).is_err() || ends {
            break;
        }
    }
    let _ = stream.shutdown(Shutdown::Both);
}

/// Path, token and body of the next request.
fn request(reader: &mut BufReader<&TcpStream>) -> Option<(String, Option<String>, Value)> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|it| *it > 0)?;
    let path = line.split(' ').nth(1)?.to_string();
    let (mut length, mut token) = (0, None);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|it| *it > 0)?;
        let Some((name, value)) = line.trim_end().split_once(": ") else {
            break;
        };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.parse().ok()?,
            "authorization" => token = Some(value.to_string()),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some((path, token, serde_json::from_slice(&body).ok()?))
}

impl State {
    fn answer(&mut self, path: &str, token: Option<&str>, body: &Value) -> (u16, String) {
        if let Some((user, password, number)) = &self.login {
            let counts = format!("token.{number}");
            if path == "/v3/auth/authenticate" {
                self.logins += 1;
                return match body["name"] == **user && body["password"] == **password {
                    true => (200, json!({"header": {"cluster_id": "7"}, "token": counts})),
                    false => {
                        let text = "etcdserver: authentication failed, invalid user ID or password";
                        (400, json!({"error": text, "code": 3}))
                    }
                }
                .map_text();
            }
            if token != Some(&counts) {
                let text = "etcdserver: invalid auth token";
                return (401, json!({"error": text, "code": 16})).map_text();
            }
        }
        match path {
            "/v3/kv/range" => {
                let is_short = body["keys_only"] == true;
                (200, self.range(is_short)).map_text()
            }
            "/v3/kv/txn" => {
                let expected = body["compare"][0]["mod_revision"].as_str();
                let expected: u64 = expected.expect("a text").parse().expect("a number");
                let there = self.value.as_ref().map_or(0, |_| self.mod_revision);
                if expected != there {
                    let range = self.range(false);
                    let responses = json!([{"response_range": range}]);
                    let header = self.header();
                    return (200, json!({"header": header, "responses": responses})).map_text();
                }
                let value = body["success"][0]["request_put"]["value"].as_str();
                self.value = Some(STANDARD.decode(value.expect("a text")).expect("base64"));
                self.revision += 1;
                self.mod_revision = self.revision;
                (200, json!({"header": self.header(), "succeeded": true})).map_text()
            }
            _ => (404, "Not Found".into()),
        }
    }

    fn header(&self) -> Value {
        json!({"cluster_id": "7", "revision": self.revision.to_string()})
    }

    fn range(&self, is_short: bool) -> Value {
        let Some(value) = &self.value else {
            return json!({"header": self.header()});
        };
        let value = if is_short {
            String::new()
        } else {
            STANDARD.encode(value)
        };
        let found = json!({"mod_revision": self.mod_revision.to_string(), "value": value});
        json!({"header": self.header(), "kvs": [found], "count": "1"})
    }
}

trait MapText {
    fn map_text(self) -> (u16, String);
}

impl MapText for (u16, Value) {
    fn map_text(self) -> (u16, String) {
        (self.0, self.1.to_string())
    }
}
