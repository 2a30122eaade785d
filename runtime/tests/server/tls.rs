//! Ports that speak TLS: what passes through them, and what is turned away.

mod admin;
mod canary;
mod files;
mod logins;
mod memory;
mod peers;
mod reach;
mod refused;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use penstock_client::tls::{ClientTls, TlsSession, TlsStream};
use penstock_client::{
    AckLevel, Action, Apply, Client, ClientError, ClientOptions, Condition, Expiry, Field, Verbs,
};
use penstock_net::keyspace::Settings;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};

use super::scrape::{Numbers, ask};
use crate::scratch;

/// Longer than a busy machine takes for any of it.
const LONG: Duration = Duration::from_secs(60);

/// A certificate authority of a test.
pub struct Authority {
    pub pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key, in PEM.
pub struct Pair {
    pub certificate: String,
    pub key: String,
}

impl Authority {
    pub fn new(name: &str) -> Authority {
        Authority::made(name, None)
    }

    pub fn made(name: &str, by: Option<&Authority>) -> Authority {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let certificate = match by {
            Some(by) => params.signed_by(&key, &by.issuer),
            None => params.self_signed(&key),
        };
        Authority {
            pem: certificate.expect("signed").pem(),
            issuer: Issuer::new(params, key),
        }
    }

    fn signs(&self, name: &str) -> Pair {
        self.signs_with(name, |_| ())
    }

    pub fn signs_with(&self, name: &str, change: impl FnOnce(&mut CertificateParams)) -> Pair {
        let names = vec!["localhost".to_string(), "127.0.0.1".to_string()];
        let mut params = CertificateParams::new(names).expect("names");
        params.distinguished_name.push(DnType::CommonName, name);
        change(&mut params);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("signed");
        Pair {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        }
    }

    fn trusted(&self) -> ClientTls {
        ClientTls::trusting(self.pem.as_bytes()).expect("a CA")
    }
}

/// A folder of a test, with the files of a server.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = scratch::folder(format!("tls-{name}"));
        fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    /// Puts a file in the place of another one at once.
    fn put(&self, name: &str, text: &str, mode: u32) -> String {
        let (path, new) = (self.0.join(name), self.0.join("new"));
        fs::write(&new, text).expect("written");
        fs::set_permissions(&new, fs::Permissions::from_mode(mode)).expect("mine");
        fs::rename(&new, &path).expect("in place");
        self.path(name)
    }

    fn put_pair(&self, pair: &Pair) -> [String; 2] {
        [
            self.put("cert.pem", &pair.certificate, 0o644),
            self.put("key.pem", &pair.key, 0o600),
        ]
    }
}

/// A server with a certificate.
struct Server {
    process: Child,
    address: SocketAddr,
    /// That of the first shard alone.
    shard: SocketAddr,
    resp: Option<SocketAddr>,
    admin: SocketAddr,
    banner: String,
    errors: PathBuf,
}

fn command(folder: &Folder, flags: &[&str]) -> Command {
    let mut command = crate::command::program(env!("CARGO_BIN_EXE_penstock"));
    command
        .args(["serve", "--data", &folder.path("data")])
        .env("PENSTOCK_LISTEN", "127.0.0.1:0")
        .env("PENSTOCK_SHARD_PORTS", "0")
        .env("PENSTOCK_SHARDS", "1")
        .env("PENSTOCK_SEGMENT_BYTES", "16MiB")
        .env("PENSTOCK_CACHE_BYTES", "64MiB")
        .args(flags);
    command
}

impl Server {
    fn start(folder: &Folder, pair: &Pair, flags: &[&str]) -> Server {
        let [certificate, key] = folder.put_pair(pair);
        let tls = ["--tls-cert", &certificate, "--tls-key", &key];
        Server::run(folder, &[&tls, flags].concat())
    }

    fn run(folder: &Folder, flags: &[&str]) -> Server {
        let errors = folder.0.join("errors");
        let mut command = command(folder, flags);
        command.stdout(Stdio::piped());
        command.stderr(fs::File::create(&errors).expect("a file"));
        let mut process = command.spawn().expect("the server");
        let mut lines = BufReader::new(process.stdout.take().expect("piped")).lines();
        let mut banner = String::new();
        for line in lines.by_ref().map_while(Result::ok) {
            banner += &format!("{line}\n");
            if line == "ready" {
                break;
            }
        }
        std::thread::spawn(move || lines.for_each(drop));
        let word = |begin: &str, number: usize| {
            let line = banner.lines().find(|line| line.starts_with(begin))?;
            line.split_whitespace().nth(number).map(str::to_string)
        };
        let address = word("listening", 1).unwrap_or_else(|| {
            panic!(
                "{banner}{}",
                fs::read_to_string(&errors).unwrap_or_default()
            )
        });
        let address: SocketAddr = address.parse().expect("an address");
        let port = word("listening", 5).expect("a port of the shard");
        let admin = word("admin", 1).expect("an admin port");
        Server {
            process,
            address,
            shard: SocketAddr::new(address.ip(), port.parse().expect("a port")),
            resp: word("resp", 1).map(|it| it.parse().expect("an address")),
            admin: admin
                .trim_start_matches("https://")
                .trim_start_matches("http://")
                .parse()
                .expect("an address"),
            banner,
            errors,
        }
    }

    fn connect(&self, tls: Option<ClientTls>) -> Result<Client, ClientError> {
        Client::connect(self.address, options(tls))
    }

    /// A client that is served, and works.
    fn serves(&self, tls: &ClientTls) -> Client {
        let client = self.connect(Some(tls.clone())).expect("connected");
        client.set(b"alive", b"yes").wait().expect("set");
        client
    }

    fn stream(&self, tls: &ClientTls, address: SocketAddr) -> TlsStream {
        let stream = TcpStream::connect(address).expect("it listens");
        let until = Instant::now() + LONG;
        let stream = TlsStream::connect(tls, &address.to_string(), stream, until);
        let stream = stream.expect("a handshake");
        stream.stream().set_read_timeout(Some(LONG)).expect("set");
        stream
    }

    fn number(&self, name: &str) -> f64 {
        let (status, page) = ask(self.admin, b"GET /metrics HTTP/1.1\r\n\r\n");
        assert_eq!(status, 200);
        let samples = Numbers::read(&page).samples.into_iter();
        samples.filter(|it| it.0 == name).map(|it| it.2).sum()
    }

    /// Waits until a number is what it is to be.
    fn until(&self, name: &str, expected: f64) {
        let until = Instant::now() + LONG;
        loop {
            let found = self.number(name);
            if found == expected {
                return;
            }
            assert!(Instant::now() < until, "{name} is {found}, not {expected}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn errors(&self) -> String {
        fs::read_to_string(&self.errors).expect("text")
    }

    /// Waits for a line of the log.
    fn until_logged(&self, words: &[&str]) {
        let until = Instant::now() + LONG;
        let is_logged = |text: &str| {
            let mut lines = text.lines();
            lines.any(|line| words.iter().all(|word| line.contains(word)))
        };
        while !is_logged(&self.errors()) {
            assert!(Instant::now() < until, "{words:?} in {}", self.errors());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn hang_up(&self) {
        crate::process::signal(self.process.id(), "-HUP");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn options(tls: Option<ClientTls>) -> ClientOptions {
    ClientOptions {
        deadline: LONG,
        tls,
        ..ClientOptions::default()
    }
}

/// What one run of all verbs is told. Versions and times differ from run to run.
fn answers_of(client: &Client) -> Vec<String> {
    let stock = Field::u32(0);
    let mut answers = Vec::new();
    let mut note = |what: &str, answer: String| answers.push(format!("{what}: {answer}"));
    let value = |key: &[u8]| {
        let value = client.get(key).wait().expect("get");
        format!("{:?}", value.map(|it| it.bytes))
    };
    client
        .set(b"stock:{a}", &9u32.to_le_bytes())
        .wait()
        .expect("set");
    note("get", value(b"stock:{a}"));
    let when = Condition::Absent;
    let no = client.set_if(b"stock:{a}", b"other", when).wait();
    note(
        "set_if",
        format!("{}", matches!(no, Err(ClientError::No(_)))),
    );
    let sold = [stock.at_least(1), stock.decrease(2)];
    let sold = client.update_if(b"stock:{a}", &sold).wait().expect("sold");
    note("update_if", format!("{:?}", sold.fields));
    let over = [stock.at_least(100), stock.decrease(100)];
    let over = client.update_if(b"stock:{a}", &over).wait();
    note(
        "update_if",
        format!("{}", matches!(over, Err(ClientError::No(_)))),
    );
    let mut buy = Apply::new();
    let (from, to) = (buy.key(b"stock:{a}"), buy.key(b"hold:{a}"));
    buy.then(from.u32(0).at_least(1u64)).then(to.is_absent());
    buy.then(from.u32(0).decrease(1u64)).put(to, b"ann");
    note("apply", format!("{}", client.apply(&buy).wait().is_ok()));
    note(
        "apply",
        format!(
            "{}",
            matches!(client.apply(&buy).wait(), Err(ClientError::No(_)))
        ),
    );
    let action = Action::Set(Settings {
        level_min: AckLevel::None,
        level_default: None,
        versions: 3,
        layout: 0,
        value_bytes_max: 0,
        retention_ms: 0,
        ttl_ms: 0,
    });
    let kept = client.keyspace(b"kept:", action).wait().expect("keyspace");
    note("keyspace", format!("{}", kept.len()));
    client.set(b"kept:1", b"first").wait().expect("set");
    client.set(b"kept:1", b"second").wait().expect("set");
    let history = client
        .history(b"kept:1", u64::MAX, 10)
        .wait()
        .expect("history");
    note("history", format!("{}", history.versions.len()));
    note("scan", {
        let entries = client.scan(b"stock", true).map(|it| it.expect("an entry"));
        let entries: Vec<_> = entries.map(|it| (it.key, it.value)).collect();
        format!("{entries:?}")
    });
    let hour = Expiry::In(3_600_000);
    client
        .set_expiry(b"stock:{a}", hour)
        .wait()
        .expect("set_expiry");
    let expiry = client.expiry(b"stock:{a}").wait().expect("expiry");
    note("expiry", format!("{}", expiry.is_some()));
    note(
        "del",
        format!("{:?}", client.del(b"stock:{a}").wait().expect("del")),
    );
    note("get", value(b"stock:{a}"));
    client.ping().wait().expect("ping");
    let info = client.info().wait().expect("info");
    let info: serde_json::Value = serde_json::from_str(&info).expect("JSON");
    note("info", info["shard_count"].to_string());
    answers
}
