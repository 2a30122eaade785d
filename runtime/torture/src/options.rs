//! The command line.

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use penstock_net::level::AckLevel;

use crate::volume::FileSystem;

/// What `--help` prints.
pub const HELP: &str = "\
cargo torture KIND [OPTIONS]: the real server on the real kernel, under load, made to suffer.

Fifty pipelined writers keep accounts. After every round the server starts again and must show each
acknowledged operation. What was not acknowledged may be there or not, but only whole. Reads during
the load must show the last acknowledged state.

Kinds:
  kill       kill -9, sometimes SIGTERM, sometimes while the server starts
  shutdown   a power cut: what was not flushed is lost. Either the shutdown ioctl takes what the
             server's file system had not flushed. Or the same ioctl hits a file system below, which
             holds the first one as a file on a loop device: then what the device had not flushed
             is lost
  full       a small ext4 file system until FULL: guards and reads go on, room comes back, kill -9,
             restart
  eio        a disk that begins to fail below ext4: it is gone at once; or it refuses each or every
             fifth write until it heals (needs nbdkit and nbdfuse); or it is a thin disk that runs
             out. The server must end loudly and not acknowledge falsely
  tokens     purchases with tokens: sent twice, over connections that are left without their
             answers, killed under way, asked again behind the start. Each is executed once, and
             each answer is the first one. 10 million requests and more than 50 kills:
             cargo torture tokens --rounds 60 --requests 170000
  stop       SIGSTOP and SIGCONT under clients with deadlines
  cluster    three nodes, written to at levels disk and replica: links that are slow, or cut in one
             or both directions, kill -9, SIGSTOP, switches, and forced promotions after which the
             old primary returns. What was acknowledged at level replica must be there. What is
             missing of level disk must be in lostfound, record by record, and nothing else. In the
             end all three nodes show the same. As root, with ip and nft, each node has a network
             namespace; otherwise they are on loopback
  failover   three nodes whose plan is in three members of etcd, each in a network namespace. They
             replace each other by themselves: kill -9, SIGSTOP, one core that stands still, cuts
             between nodes and from etcd, etcd's leader killed, its quorum lost. After each fault
             all three are back without a hand. What was acknowledged at level replica is there, no
             read goes backwards, and each difference of level disk is in lostfound. Needs root,
             ip, nft and etcd. A long run:
             cargo torture failover --rounds 40 --faults 5 --pause-s 30 --home-s 600
  cutoff     as failover, with a sale of a few seconds in each round: the primary is cut off from
             its members, one way, both ways, or one member after the other, while buyers still
             reach it. At level disk the run tells how many units were sold twice. At level all such
             a unit fails the round. The same rounds at each level, by the seed:
             cargo torture cutoff --level disk --rounds 300 --seed 41

Options:
  --rounds N           rounds [8]; they take turns with every --io and every number of shards
  --seed S             of every choice; printed [the clock]
  --io uring|threads|both      [both]
  --shards 1|2|both    [both]; a number above the allowed CPUs is left out, and said
  --fs ext4|xfs        file system of shutdown [ext4]
  --network own|loopback       of cluster [own, where that can be]
  --tls                all ports of cluster, failover and cutoff speak TLS: of clients and of links
  --faults N           faults of a round of failover [3]
  --only FAULT         all faults of failover are of this kind: 'kill primary', switch, ...
  --rules quiet|starved        lease and grace of failover and cutoff: 0.4 s and 0.5 s, or 1.6 s
                       and 2 s [starved]
  --level disk|all|replica     at which cutoff buys and reads [all]
  --rate N             sales a second of cutoff [drawn: 100, 200, 500, 1000 or 2000]
  --way both|out|in|apart      all cuts of cutoff are of this kind: the primary and its members do
                       not reach each other, it is not heard, it hears nobody, or both ways and one
                       member after the other [drawn]
  --exact              a unit that cutoff sells twice fails the round at level disk, too
  --home-s N           longest time of failover without a quorum of etcd, in seconds [15]
  --requests N         answers of tokens before the blow of a round [20000]
  --pause-s N          longest stop of stop and failover, in seconds [8]
  --folder DIR         place of directories and images [a new one in the temporary folder]; a run
                       that passes empties it
  --server FILE        a server that was built elsewhere [built by this command]
  --allow-skip         what this machine cannot do is skipped, and that is not a failure

shutdown, full and eio need root, loop devices and mkfs. This process has a mount namespace of its
own: mounts and servers end with it, however it ends.

Exit codes:
  0  every round passed; with --allow-skip also when a line `skipped: KIND: reason` says that
     nothing ran
  1  a round failed: the command that repeats it is printed, and the folder is kept
  2  the command line is wrong
  3  this machine cannot run the kind, or a part of it; with --allow-skip that part is skipped
  130  interrupted: SIGINT or SIGTERM, once everything is cleaned up";

/// What is done to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KindName {
    /// `kill -9`.
    Kill,
    /// Power cuts.
    Shutdown,
    /// A full disk.
    Full,
    /// A failing disk.
    Eio,
    /// Writes that are sent again.
    Tokens,
    /// Pauses.
    Stop,
    /// Several nodes.
    Cluster,
    /// Several nodes that replace each other.
    Failover,
    /// A sale at a primary that is cut off.
    Cutoff,
}

/// The rules by which nodes lend each other the right to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rules {
    /// For cores of their own.
    Quiet,
    /// For a machine with few cores and much to do.
    Starved,
}

impl Rules {
    pub fn name(self) -> &'static str {
        match self {
            Rules::Quiet => "quiet",
            Rules::Starved => "starved",
        }
    }

    /// How long a lease lasts.
    pub fn lease(self) -> Duration {
        match self {
            Rules::Quiet => Duration::from_millis(400),
            Rules::Starved => Duration::from_millis(1600),
        }
    }

    /// Their lines of the plan.
    pub fn plan(self) -> String {
        let lease = self.lease().as_millis();
        format!(
            "failover = true\nlease_ms = {lease}\ngrace_ms = {}\nmin_sync = 0\n",
            lease * 5 / 4
        )
    }
}

impl KindName {
    const ALL: [KindName; 9] = [
        KindName::Kill,
        KindName::Shutdown,
        KindName::Full,
        KindName::Eio,
        KindName::Tokens,
        KindName::Stop,
        KindName::Cluster,
        KindName::Failover,
        KindName::Cutoff,
    ];

    /// As the command line says it.
    pub fn name(self) -> &'static str {
        match self {
            KindName::Kill => "kill",
            KindName::Shutdown => "shutdown",
            KindName::Full => "full",
            KindName::Eio => "eio",
            KindName::Tokens => "tokens",
            KindName::Stop => "stop",
            KindName::Cluster => "cluster",
            KindName::Failover => "failover",
            KindName::Cutoff => "cutoff",
        }
    }

    /// Whether it mounts file systems of its own.
    pub fn needs_mounts(self) -> bool {
        matches!(self, KindName::Shutdown | KindName::Full | KindName::Eio)
    }
}

/// One way to run the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// `--shards`.
    pub shards: u16,
    /// `--io`.
    pub io: &'static str,
}

/// The command line, read.
pub struct Options {
    pub kind: KindName,
    pub rounds: u64,
    pub seed: u64,
    shards: Vec<u16>,
    io: Vec<&'static str>,
    pub file_system: FileSystem,
    pub pause_max: Duration,
    /// Answers of a round of tokens before the blow.
    pub requests: u64,
    pub folder: PathBuf,
    pub server: Option<PathBuf>,
    pub allow_skip: bool,
    /// Nodes of a cluster are to be on loopback, also where they could have namespaces.
    pub is_loopback: bool,
    /// All ports of a cluster are to speak TLS.
    pub has_tls: bool,
    /// Faults of a round of failover.
    pub faults: u64,
    /// The name of the only kind of them.
    pub only: Option<String>,
    pub rules: Rules,
    /// The longest time of failover without a quorum of etcd.
    pub home_max: Duration,
    /// At which cutoff buys and reads.
    pub level: AckLevel,
    /// Its sales a second.
    pub rate: Option<u64>,
    /// The name of the only way of its cuts.
    pub way: Option<String>,
    /// What it sells twice fails a round at each level.
    pub is_exact: bool,
    /// Those that a repetition must give again.
    given: Vec<String>,
}

impl Options {
    /// Reads what stands behind the program's name.
    ///
    /// # Errors
    /// One line that names the word that is wrong.
    pub fn parse(arguments: impl Iterator<Item = String>) -> Result<Options, String> {
        let mut arguments = arguments;
        let word = arguments.next().unwrap_or_else(|| "nothing".into());
        let kind = KindName::ALL
            .into_iter()
            .find(|kind| kind.name() == word)
            .ok_or_else(|| format!("{word} is not a kind"))?;
        let clock = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(1, |since| since.as_secs());
        let own_folder = format!("penstock-torture-{}", std::process::id());
        let mut options = Options {
            kind,
            rounds: 8,
            seed: clock,
            shards: vec![1, 2],
            io: vec!["uring", "threads"],
            file_system: FileSystem::Ext4,
            pause_max: Duration::from_secs(8),
            requests: 20_000,
            folder: std::env::temp_dir().join(own_folder),
            server: None,
            allow_skip: false,
            is_loopback: false,
            has_tls: false,
            faults: 3,
            only: None,
            rules: Rules::Starved,
            home_max: Duration::from_secs(15),
            level: AckLevel::All,
            rate: None,
            way: None,
            is_exact: false,
            given: Vec::new(),
        };
        while let Some(name) = arguments.next() {
            if name == "--allow-skip" {
                options.allow_skip = true;
                continue;
            }
            if matches!(name.as_str(), "--tls" | "--exact") {
                match name.as_str() {
                    "--tls" => options.has_tls = true,
                    _ => options.is_exact = true,
                }
                options.given.push(name);
                continue;
            }
            let value = arguments.next().ok_or(format!("{name} needs a value"))?;
            let number = || {
                value
                    .parse::<u64>()
                    .map_err(|_| format!("{name} takes a number, not {value}"))
            };
            match (name.as_str(), value.as_str()) {
                ("--rounds", _) => options.rounds = number()?,
                ("--seed", _) => options.seed = number()?,
                ("--requests", _) => options.requests = number()?,
                ("--pause-s", _) => options.pause_max = Duration::from_secs(number()?.max(1)),
                ("--faults", _) => options.faults = number()?.max(1),
                ("--only", fault) => options.only = Some(fault.into()),
                ("--home-s", _) => options.home_max = Duration::from_secs(number()?.max(1)),
                ("--level", "disk") => options.level = AckLevel::Disk,
                ("--level", "all") => options.level = AckLevel::All,
                ("--level", "replica") => options.level = AckLevel::Replica,
                ("--rate", _) => options.rate = Some(number()?.clamp(1, 1_000_000)),
                ("--way", way) => options.way = Some(way.into()),
                ("--rules", "quiet") => options.rules = Rules::Quiet,
                ("--rules", "starved") => options.rules = Rules::Starved,
                ("--folder", path) => options.folder = path.into(),
                ("--server", path) => options.server = Some(path.into()),
                ("--shards" | "--io", "both") => {}
                ("--shards", "1") => options.shards = vec![1],
                ("--shards", "2") => options.shards = vec![2],
                ("--io", "uring") => options.io = vec!["uring"],
                ("--io", "threads") => options.io = vec!["threads"],
                ("--network", "own") => options.is_loopback = false,
                ("--network", "loopback") => options.is_loopback = true,
                ("--fs", "ext4") => options.file_system = FileSystem::Ext4,
                ("--fs", "xfs") => options.file_system = FileSystem::Xfs,
                _ => return Err(format!("{name} {value} is not known")),
            }
            if !matches!(name.as_str(), "--rounds" | "--seed" | "--folder") {
                options.given.extend([name, value]);
            }
        }
        Ok(options)
    }

    /// The settings that take turns, on a machine that allows so many CPUs.
    pub fn settings(&self, cpus: usize) -> Vec<Setting> {
        let mut settings = Vec::new();
        for &shards in &self.shards {
            if usize::from(shards) > cpus {
                println!(
                    "skipped: --shards {shards}, because this process may use {cpus} CPU(s) only"
                );
                continue;
            }
            settings.extend(self.io.iter().map(|&io| Setting { shards, io }));
        }
        settings
    }

    /// The command that makes the same choices up to and with this round.
    pub fn repetition(&self, round: u64) -> String {
        let shown = |word: &String| match word.contains(' ') {
            true => format!(" {word:?}"),
            false => format!(" {word}"),
        };
        let given: String = self.given.iter().map(shown).collect();
        format!(
            "cargo torture {}{given} --seed {} --rounds {}",
            self.kind.name(),
            self.seed,
            round + 1
        )
    }
}
