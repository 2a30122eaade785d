//! A real etcd of one member, on loopback, in a directory of its own.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::cluster::plan::home::PlanPlace;
use crate::etcd::EtcdAccess;

/// A process that a failing test takes down with it.
pub(crate) struct RealEtcd {
    process: Child,
    directory: PathBuf,
    endpoint: String,
}

impl Drop for RealEtcd {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

impl RealEtcd {
    /// `None`, with a line that says so, if none is installed.
    pub(crate) fn start(name: &str) -> Option<RealEtcd> {
        let plain = |endpoint: &str| access(vec![endpoint.into()], "probe");
        RealEtcd::start_with(name, "http", &[], &plain)
    }

    /// The same with TLS, by these flags; `asks` says how it is asked whether it is there.
    pub(crate) fn start_secured(
        name: &str,
        flags: &[String],
        asks: &dyn Fn(&str) -> EtcdAccess,
    ) -> Option<RealEtcd> {
        RealEtcd::start_with(name, "https", flags, asks)
    }

    fn start_with(
        name: &str,
        scheme: &str,
        flags: &[String],
        asks: &dyn Fn(&str) -> EtcdAccess,
    ) -> Option<RealEtcd> {
        let unique = format!("penstock-etcd-{name}-{}", std::process::id());
        let directory = std::env::temp_dir().join(unique);
        let _ = std::fs::remove_dir_all(&directory);
        // Both ports at once, so that they differ.
        let free = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("bound"));
        let [clients, peers] = free.each_ref().map(|it| it.local_addr().expect("bound"));
        let (clients, peers) = (format!("{scheme}://{clients}"), format!("http://{peers}"));
        drop(free);
        let process = Command::new("etcd")
            .args(["--name", "one", "--data-dir"])
            .arg(&directory)
            .args([
                "--listen-client-urls",
                &clients,
                "--advertise-client-urls",
                &clients,
            ])
            .args([
                "--listen-peer-urls",
                &peers,
                "--initial-advertise-peer-urls",
                &peers,
            ])
            .args(["--initial-cluster", &format!("one={peers}")])
            .args(flags)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        match process {
            Ok(process) => {
                let etcd = RealEtcd {
                    process,
                    directory,
                    endpoint: clients,
                };
                etcd.until_it_answers(asks(&etcd.endpoint));
                Some(etcd)
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                println!("skipped: no etcd is installed (apt-get install etcd-server)");
                None
            }
            Err(error) => panic!("etcd: {error}"),
        }
    }

    fn until_it_answers(&self, access: EtcdAccess) {
        let place = PlanPlace::Etcd {
            access,
            secret_file: None,
        };
        let mut home = place.open().expect("sound files");
        let began = Instant::now();
        while let Err(error) = home.load() {
            assert!(began.elapsed() < Duration::from_secs(60), "{error}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The plan under keys of its own.
    pub(crate) fn place(&self, prefix: &str) -> PlanPlace {
        PlanPlace::Etcd {
            access: access(vec![self.endpoint.clone()], prefix),
            secret_file: None,
        }
    }

    pub(crate) fn endpoint(&self) -> &str {
        &self.endpoint
    }
}

pub(crate) fn access(endpoints: Vec<String>, prefix: &str) -> EtcdAccess {
    EtcdAccess {
        endpoints,
        prefix: format!("/{prefix}"),
        user: None,
        secret_file: None,
        ca: None,
        cert: None,
        key: None,
    }
}
