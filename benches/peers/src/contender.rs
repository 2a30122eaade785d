//! A server under test: a product, how durable its answers are, and the process that runs it.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::Outcome;
use crate::machine::Usage;
use crate::program::{self, SERVER_CPU, pinned};
use crate::server::Server;

const START_MAX: Duration = Duration::from_secs(10);
const ANSWER_MAX: Duration = Duration::from_secs(60);
/// Debian's, for a Valkey or Redis that was built with the C library's allocator.
const JEMALLOC: &str = "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2";
/// Commands of one write while a server is filled.
const FILL_COMMANDS: u64 = 500;
const MEMCACHED_MEGABYTES: &str = "4096";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Product {
    Penstock,
    Valkey,
    Redis,
    Kevy,
    Memcached,
}

/// What a power cut takes from what was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// V: everything may be lost.
    Volatile,
    /// E: up to a second may be lost.
    Second,
    /// S: nothing is lost; the device had it before the answer.
    Synced,
}

impl Class {
    pub const ALL: [Class; 3] = [Class::Volatile, Class::Second, Class::Synced];

    pub fn letter(self) -> char {
        match self {
            Class::Volatile => 'V',
            Class::Second => 'E',
            Class::Synced => 'S',
        }
    }

    fn appendfsync(self) -> Option<&'static str> {
        match self {
            Class::Volatile => None,
            Class::Second => Some("everysec"),
            Class::Synced => Some("always"),
        }
    }

    fn durability(self) -> &'static str {
        match self {
            Class::Volatile => "none",
            Class::Second => "interval",
            Class::Synced => "disk",
        }
    }
}

impl Product {
    const ALL: [Product; 5] = [
        Product::Penstock,
        Product::Valkey,
        Product::Redis,
        Product::Kevy,
        Product::Memcached,
    ];

    /// The product of that name.
    pub fn of(name: &str) -> Option<Product> {
        Product::ALL.into_iter().find(|it| it.name() == name)
    }

    pub fn name(self) -> &'static str {
        match self {
            Product::Penstock => "Penstock",
            Product::Valkey => "Valkey",
            Product::Redis => "Redis",
            Product::Kevy => "kevy",
            Product::Memcached => "memcached",
        }
    }

    /// The program of a peer, or why there is none.
    pub fn binary(self) -> Result<PathBuf, String> {
        match self {
            Product::Penstock => crate::server::binary().map_err(|error| error.to_string()),
            Product::Valkey => program::find("valkey-server", "VALKEY_SERVER"),
            Product::Redis => program::find("redis-server", "REDIS_SERVER"),
            Product::Kevy => program::find("kevy", "KEVY"),
            Product::Memcached => program::find("memcached", "MEMCACHED"),
        }
    }

    /// What the program tells of itself. A program of another product is refused.
    pub fn version(self) -> Result<String, String> {
        let argument = if self == Product::Kevy {
            "-V"
        } else {
            "--version"
        };
        let line = program::version(&self.binary()?, argument, self.name())?;
        let worth = |word: &&str| !word.starts_with("sha=") && !word.starts_with("build=");
        Ok(line
            .split_whitespace()
            .filter(worth)
            .collect::<Vec<_>>()
            .join(" "))
    }
}

enum Process {
    /// Boxed: a client comes with it.
    Penstock(Box<Server>),
    Peer(Child),
}

/// One running server; killed when dropped.
pub struct Running {
    process: Process,
    pub port: u16,
    /// How it differs from what its package gives, for the notes.
    pub remark: Option<String>,
}

impl Running {
    /// Starts a server that keeps its data in `folder`, on the CPU of servers, and waits for its
    /// first answer.
    pub fn start(product: Product, class: Class, folder: &Path) -> Outcome<Running> {
        Running::start_on(product, class, folder, 1)
    }

    /// The same with so many shards, each on a CPU, for Penstock.
    pub fn start_on(
        product: Product,
        class: Class,
        folder: &Path,
        shards: u64,
    ) -> Outcome<Running> {
        std::fs::create_dir_all(folder)?;
        // Free a moment ago; if somebody took it, the start fails and says so.
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        if product == Product::Penstock {
            return Running::penstock(class, folder, port, shards);
        }
        product.version()?;
        let (mut command, remark) = peer(product, class, folder, port)?;
        let mut child = command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        if let Err(error) = first_answer(product, port, &mut child) {
            let _ = child.kill();
            let _ = child.wait();
            return Err(error);
        }
        let running = Running {
            process: Process::Peer(child),
            port,
            remark,
        };
        running.check_class(product, class)?;
        Ok(running)
    }

    fn penstock(class: Class, folder: &Path, port: u16, shards: u64) -> Outcome<Running> {
        let options = [
            "--admin-listen".into(),
            "off".into(),
            "--resp-listen".into(),
            format!("127.0.0.1:{port}"),
            "--durability".into(),
            class.durability().into(),
            "--interval-ms".into(),
            "1s".into(),
            "--log-level".into(),
            "warn".into(),
        ];
        let cpus = match shards {
            1 => SERVER_CPU.to_string(),
            shards => format!("0-{}", shards - 1),
        };
        let server = Server::start_pinned(&folder.join("data"), shards, &cpus, &options)?;
        Ok(Running {
            process: Process::Penstock(Box::new(server)),
            port,
            remark: None,
        })
    }

    /// A server that says that it has another class than was asked for would spoil a row.
    fn check_class(&self, product: Product, class: Class) -> Outcome<()> {
        if !matches!(product, Product::Valkey | Product::Redis) {
            return Ok(());
        }
        for (name, expected) in [
            (
                "appendonly",
                if class == Class::Volatile {
                    "no"
                } else {
                    "yes"
                },
            ),
            ("appendfsync", class.appendfsync().unwrap_or("everysec")),
        ] {
            let told = self.config(name)?;
            if told != expected {
                let product = product.name();
                return Err(format!("{product} has {name} {told:?}, not {expected:?}").into());
            }
        }
        Ok(())
    }

    fn config(&self, name: &str) -> Outcome<String> {
        let mut stream = connect(self.port)?;
        write!(
            stream,
            "*3\r\n$6\r\nCONFIG\r\n$3\r\nGET\r\n${}\r\n{name}\r\n",
            name.len()
        )?;
        let mut told = [0; 256];
        let length = stream.read(&mut told)?;
        let text = String::from_utf8_lossy(&told[..length]).into_owned();
        let value = text.trim_end().rsplit("\r\n").next().unwrap_or_default();
        Ok(value.to_string())
    }

    pub fn usage(&self) -> Outcome<Usage> {
        Usage::of(Some(match &self.process {
            Process::Penstock(server) => server.id(),
            Process::Peer(child) => child.id(),
        }))
    }

    /// Penstock's own port, for its own tools.
    pub fn server(&self) -> Option<&Server> {
        match &self.process {
            Process::Penstock(server) => Some(server),
            Process::Peer(_) => None,
        }
    }

    /// Sends what `request` appends for each number, and awaits `reply` for each. A server that
    /// answers something else is an error.
    pub fn fill(
        &self,
        numbers: u64,
        mut request: impl FnMut(&mut Vec<u8>, u64),
        reply: &[u8],
    ) -> Outcome<()> {
        let mut stream = connect(self.port)?;
        let mut requests = Vec::new();
        for first in (0..numbers).step_by(usize::try_from(FILL_COMMANDS)?) {
            requests.clear();
            let count = FILL_COMMANDS.min(numbers - first);
            (first..first + count).for_each(|number| request(&mut requests, number));
            stream.write_all(&requests)?;
            let mut replies = vec![0; usize::try_from(count)? * reply.len()];
            stream.read_exact(&mut replies)?;
            if let Some(other) = replies.chunks(reply.len()).find(|it| *it != reply) {
                let told = String::from_utf8_lossy(other);
                return Err(format!("a write while filling was answered {told:?}").into());
            }
        }
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Process::Peer(child) = &mut self.process {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

pub fn connect(port: u16) -> Outcome<TcpStream> {
    let stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    Ok(stream)
}

/// The command line of a peer, and the note that the table has about its start.
fn peer(
    product: Product,
    class: Class,
    folder: &Path,
    port: u16,
) -> Outcome<(Command, Option<String>)> {
    let mut command = pinned(SERVER_CPU, &product.binary()?);
    let mut remark = None;
    let port = port.to_string();
    match product {
        Product::Penstock => unreachable!("it is no peer"),
        Product::Valkey | Product::Redis => {
            command.args(["--port", &port, "--bind", "127.0.0.1", "--save", ""]);
            command.args(["--auto-aof-rewrite-percentage", "0"]);
            match class.appendfsync() {
                None => command.args(["--appendonly", "no"]),
                Some(when) => command.args(["--appendonly", "yes", "--appendfsync", when]),
            };
            command.arg("--dir").arg(folder);
            if product.version()?.contains("malloc=libc") && Path::new(JEMALLOC).exists() {
                command.env("LD_PRELOAD", JEMALLOC);
                let name = product.name();
                remark = Some(format!(
                    "{name} was built with libc's allocator; it runs here with \
                                       jemalloc, which is usual for it"
                ));
            }
        }
        Product::Kevy => {
            let config = folder.join("kevy.toml");
            let aof = class.appendfsync();
            std::fs::write(
                &config,
                format!(
                    "[server]\nbind = \"127.0.0.1\"\nport = {port}\nthreads = 1\ndata_dir = {:?}\n\
                     [persistence]\naof = {}\nappendfsync = \"{}\"\n\
                     auto_aof_rewrite_percentage = 0\n",
                    folder.display().to_string(),
                    aof.is_some(),
                    aof.unwrap_or("no"),
                ),
            )?;
            command.arg("--config").arg(config);
        }
        Product::Memcached => {
            command.args(["-p", &port, "-U", "0", "-l", "127.0.0.1", "-t", "1"]);
            command.args(["-m", MEMCACHED_MEGABYTES, "-u", "nobody"]);
        }
    }
    Ok((command, remark))
}

/// Waits until a server answers in its protocol. One that ends before is not waited for.
fn first_answer(product: Product, port: u16, child: &mut Child) -> Outcome<()> {
    let (ask, answer): (&[u8], &[u8]) = match product {
        Product::Memcached => (b"version\r\n", b"VERSION "),
        _ => (b"*1\r\n$4\r\nPING\r\n", b"+PONG\r\n"),
    };
    let name = product.name();
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Err(format!("{name} ended at its start: {status}").into());
        }
        if let Ok(mut stream) = connect(port) {
            stream.set_read_timeout(Some(START_MAX))?;
            stream.write_all(ask)?;
            let mut told = vec![0; answer.len()];
            // A server that is still loading may end the connection.
            if stream.read_exact(&mut told).is_ok() && told == answer {
                return Ok(());
            }
        }
        if began.elapsed() > START_MAX {
            return Err(format!("{name} did not answer within {START_MAX:?}").into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_ends_at_its_start_is_told_without_waiting() {
        let mut child = Command::new("false").spawn().unwrap();
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let why = first_answer(Product::Valkey, port, &mut child)
            .unwrap_err()
            .to_string();
        assert!(why.contains("Valkey ended at its start"), "{why}");
    }

    #[test]
    fn classes_have_one_letter_each_and_their_own_setting() {
        let letters: String = Class::ALL.iter().map(|class| class.letter()).collect();
        assert_eq!(letters, "VES");
        assert_eq!(Class::Synced.appendfsync(), Some("always"));
        assert_eq!(Class::Synced.durability(), "disk");
        assert_eq!(Class::Second.appendfsync(), Some("everysec"));
        assert_eq!(Class::Second.durability(), "interval");
        assert_eq!(Class::Volatile.durability(), "none");
    }
}
