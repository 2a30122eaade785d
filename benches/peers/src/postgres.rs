//! A PostgreSQL server of this run, and `pgbench`, which loads it.

use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::Outcome;
use crate::program::{self, SERVER_CPU, pinned};

const START_MAX: Duration = Duration::from_secs(20);
const STOP_MAX: Duration = Duration::from_secs(10);
/// Users that the server may run as, if this program is root: the server refuses root.
const USERS: [&str; 2] = ["postgres", "nobody"];
const HUNDREDTHS: f64 = 100.0;

pub struct Postgres {
    child: Child,
    port: u16,
    pub version: String,
}

/// What pgbench tells.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Told {
    pub per_second: f64,
    pub average_us: f64,
}

/// The server's program: what POSTGRES names, or the PATH, or the newest of Debian's folders.
fn binary() -> Result<PathBuf, String> {
    let found = program::find("postgres", "POSTGRES").or_else(|why| {
        let folders = std::fs::read_dir("/usr/lib/postgresql").map_err(|_| why.clone())?;
        let programs = folders.flatten().map(|it| it.path().join("bin/postgres"));
        programs.filter(|it| it.is_file()).max().ok_or(why)
    })?;
    // Its sister programs lie beside the file itself.
    found.canonicalize().map_err(|error| error.to_string())
}

/// Ids of user and group, by /etc/passwd.
fn ids(passwd: &str, user: &str) -> Option<(u32, u32)> {
    let line = passwd
        .lines()
        .find(|line| line.split(':').next() == Some(user))?;
    let mut fields = line.split(':').skip(2).map_while(|it| it.parse().ok());
    Some((fields.next()?, fields.next()?))
}

/// Whom the server runs as, if not as this program.
fn user() -> Outcome<Option<(u32, u32)>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let is_root = status.lines().any(|line| line.starts_with("Uid:\t0\t"));
    if !is_root {
        return Ok(None);
    }
    let passwd = std::fs::read_to_string("/etc/passwd")?;
    let found = USERS.into_iter().find_map(|user| ids(&passwd, user));
    found
        .map(Some)
        .ok_or_else(|| "PostgreSQL refuses root, and there is no other user".into())
}

fn run_as(command: &mut Command, user: Option<(u32, u32)>) -> &mut Command {
    match user {
        Some((user, group)) => command.uid(user).gid(group),
        None => command,
    }
}

impl Postgres {
    /// Makes a cluster in `folder` and starts it on the CPU of servers, with `synchronous_commit`.
    pub fn start(folder: &Path) -> Outcome<Postgres> {
        let (binary, user) = (binary()?, user()?);
        let line = program::version(&binary, "--version", "PostgreSQL")?;
        let number = line
            .split_whitespace()
            .find(|it| it.starts_with(|c: char| c.is_ascii_digit()));
        let version = format!("PostgreSQL {}", number.unwrap_or_default());
        std::fs::create_dir_all(folder)?;
        if let Some((user, group)) = user {
            chown(folder, Some(user), Some(group))?;
            let above = folder.parent().ok_or("a folder has a parent")?;
            for open in [above, above.parent().unwrap_or(above)] {
                std::fs::set_permissions(open, std::fs::Permissions::from_mode(0o755))?;
            }
        }
        let data = folder.join("data");
        let mut initdb = Command::new(binary.with_file_name("initdb"));
        initdb.args([
            "-U",
            "postgres",
            "--auth=trust",
            "-E",
            "UTF8",
            "--locale=C",
            "-D",
        ]);
        let made = run_as(initdb.arg(&data).current_dir(folder), user).output()?;
        if !made.status.success() {
            return Err(format!("initdb: {}", String::from_utf8_lossy(&made.stderr).trim()).into());
        }
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let mut command = pinned(SERVER_CPU, &binary);
        command.arg("-D").arg(&data).args(["-p", &port.to_string()]);
        command.args([
            "-c",
            "listen_addresses=127.0.0.1",
            "-c",
            "unix_socket_directories=",
        ]);
        command.args(["-c", "synchronous_commit=on", "-c", "fsync=on"]);
        command
            .current_dir(folder)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child = run_as(&mut command, user).spawn()?;
        let mut postgres = Postgres {
            child,
            port,
            version,
        };
        postgres.wait()?;
        Ok(postgres)
    }

    fn wait(&mut self) -> Outcome<()> {
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Err(format!("PostgreSQL ended at its start: {status}").into());
            }
            match self.query("SELECT 1") {
                Ok(_) => return Ok(()),
                Err(error) if began.elapsed() > START_MAX => return Err(error),
                Err(_) => std::thread::sleep(Duration::from_millis(100)),
            }
        }
    }

    fn ask(&self, program: &str, seconds: f64) -> Outcome<Command> {
        let path = program::find(program, &program.to_uppercase())?;
        let mut command = program::bounded(seconds, &path);
        let port = self.port.to_string();
        command.args(["-h", "127.0.0.1", "-p", &port, "-U", "postgres"]);
        Ok(command)
    }

    /// Runs a statement by `psql`; gives what it returns.
    pub fn query(&self, sql: &str) -> Outcome<String> {
        let mut psql = self.ask("psql", START_MAX.as_secs_f64())?;
        let output = psql
            .args(["-X", "-A", "-t", "-q", "-c", sql, "postgres"])
            .output()?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_string()),
            false => {
                let told = String::from_utf8_lossy(&output.stderr).into_owned();
                Err(format!("psql: {}", told.trim()).into())
            }
        }
    }

    /// So many clients repeat the statement of a file for so long.
    pub fn bench(&self, script: &Path, clients: u64, seconds: f64) -> Outcome<Told> {
        let seconds = seconds.ceil().max(1.0);
        let mut pgbench = self.ask("pgbench", seconds + 30.0)?;
        pgbench.args([
            "-n",
            "-M",
            "prepared",
            "-j",
            "1",
            "-c",
            &clients.to_string(),
        ]);
        pgbench
            .args(["-T", &format!("{seconds:.0}"), "-f"])
            .arg(script)
            .arg("postgres");
        let output = pgbench.output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() {
            let told = String::from_utf8_lossy(&output.stderr);
            return Err(format!("pgbench: {}", told.trim()).into());
        }
        read(&text).ok_or_else(|| format!("pgbench told no figures: {text}").into())
    }

    /// CPU of the server and of those of its processes that have ended, in seconds.
    pub fn cpu_seconds(&self) -> Outcome<f64> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        let (_, rest) = stat.rsplit_once(')').ok_or("no name in /proc/PID/stat")?;
        let fields = rest.split_whitespace().skip(11).take(4);
        let hundredths: f64 = fields.filter_map(|it| it.parse::<f64>().ok()).sum();
        Ok(hundredths / HUNDREDTHS)
    }
}

/// The rate and the average in what pgbench prints.
fn read(text: &str) -> Option<Told> {
    let behind = |name: &str| -> Option<f64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse().ok()
    };
    Some(Told {
        per_second: behind("tps = ")?,
        average_us: behind("latency average = ")? * 1000.0,
    })
}

impl Drop for Postgres {
    /// Asks it to end, for its processes end with it; kills it if it does not.
    fn drop(&mut self) {
        let id = self.child.id().to_string();
        let _ = Command::new("kill").args(["-INT", &id]).status();
        let began = Instant::now();
        while began.elapsed() < STOP_MAX {
            if let Ok(Some(_)) = self.child.try_wait() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_pgbench_are_read_and_others_are_not() {
        let text = "transaction type: hot.sql\nnumber of clients: 64\nlatency average = 31.964 ms\n\
                    initial connection time = 55.1 ms\n\
                    tps = 2002.250000 (without initial connection time)\n";
        let expected = Told {
            per_second: 2002.25,
            average_us: 31_964.0,
        };
        assert_eq!(read(text), Some(expected));
        assert_eq!(read("pgbench: error: connection failed"), None);
    }

    #[test]
    fn ids_of_a_user_are_those_of_its_own_line() {
        let passwd = "root:x:0:0::/root:/bin/sh\npostgres:x:101:104:,,,:/var:/bin/bash\n";
        assert_eq!(ids(passwd, "postgres"), Some((101, 104)));
        assert_eq!(ids(passwd, "post"), None);
    }
}
