//! Where the plan of a cluster is, as the commands of `penstock cluster` are told it.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use clap::Args;
use penstock::cluster::plan::home::PlanPlace;
use penstock::cluster::plan::placement::{Draft, text_of};
use penstock::etcd::{EtcdAccess, endpoints_of};

use super::Failure;
use super::output::Output;

/// Characters of the text that says who has changed a plan, at most.
const AUTHOR_CHARS: usize = 200;

/// Examples of `penstock cluster show`.
pub const SHOW_EXAMPLES: &str = "\
Examples:
  penstock cluster show --file /etc/penstock/cluster.toml
  penstock cluster show --etcd-endpoints http://10.0.0.1:2379,http://10.0.0.2:2379";

/// The home of the plan: a file, or a key of etcd.
#[derive(Clone, Args)]
#[command(next_help_heading = "Where the plan is")]
pub struct HomeArgs {
    /// The cluster's file
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    etcd: EtcdArgs,
}

/// An etcd, and who asks it.
#[derive(Clone, Args)]
#[command(next_help_heading = "Where the plan is")]
pub struct EtcdArgs {
    /// Members of the etcd that has the plan, as http:// or https:// URLs with commas between them
    #[arg(
        long,
        value_name = "URLS",
        env = "PENSTOCK_ETCD_ENDPOINTS",
        global = false
    )]
    etcd_endpoints: Option<String>,
    /// What the names of the cluster's keys begin with
    #[arg(
        long,
        value_name = "PREFIX",
        env = "PENSTOCK_ETCD_PREFIX",
        default_value = "/penstock"
    )]
    etcd_prefix: String,
    /// User of etcd
    #[arg(long, value_name = "NAME", env = "PENSTOCK_ETCD_USER")]
    etcd_user: Option<String>,
    /// File with that user's password
    #[arg(long, value_name = "FILE", env = "PENSTOCK_ETCD_SECRET_FILE")]
    etcd_secret_file: Option<PathBuf>,
    /// File with the certificates of those who sign that of etcd
    #[arg(long, value_name = "FILE", env = "PENSTOCK_ETCD_CA")]
    etcd_ca: Option<PathBuf>,
    /// File with the certificate that is shown to etcd
    #[arg(long, value_name = "FILE", env = "PENSTOCK_ETCD_CERT")]
    etcd_cert: Option<PathBuf>,
    /// File with the private key of that certificate
    #[arg(long, value_name = "FILE", env = "PENSTOCK_ETCD_KEY")]
    etcd_key: Option<PathBuf>,
}

impl HomeArgs {
    /// The home; `None` if neither is named. A file that is named wins over an etcd of the
    /// environment.
    pub fn place_if_named(&self) -> Result<Option<PlanPlace>, Failure> {
        let of_environment = std::env::var("PENSTOCK_ETCD_ENDPOINTS").ok();
        if self.file.is_some() && self.etcd.etcd_endpoints != of_environment {
            return Err(Failure::usage(
                "--file and --etcd-endpoints: a plan is in one of both",
            ));
        }
        match &self.file {
            Some(path) => Ok(Some(PlanPlace::File(path.clone()))),
            None => self.etcd.place(),
        }
    }

    /// The home.
    pub fn place(&self) -> Result<PlanPlace, Failure> {
        self.place_if_named()?.ok_or_else(|| {
            Failure::usage("where is the plan? Give --file FILE, or --etcd-endpoints URLS")
        })
    }

    /// The plan, to be changed.
    pub fn draft(&self) -> Result<Draft, Failure> {
        Draft::read(&self.place()?, &author()).map_err(Failure::usage)
    }

    /// As a command to paste is told it.
    pub fn describe(&self) -> String {
        match &self.file {
            Some(path) => format!("--file {}", path.display()),
            None => "--etcd-endpoints URLS".into(),
        }
    }

    /// Prints the document as it stands there.
    pub fn show(&self) -> Result<(), Failure> {
        let text = text_of(&self.place()?).map_err(Failure::usage)?;
        let mut out = Output::stdout();
        out.bytes(text.as_bytes());
        out.finish()
    }
}

impl EtcdArgs {
    /// The key of that etcd; `None` if no etcd is named.
    pub fn place(&self) -> Result<Option<PlanPlace>, Failure> {
        let Some(text) = self.etcd_endpoints.as_deref().filter(|it| *it != "off") else {
            return Ok(None);
        };
        let endpoints = endpoints_of(text).ok_or_else(|| {
            Failure::usage(format!(
                "--etcd-endpoints {text:?}: URLS are wanted, such as http://10.0.0.1:2379 or \
                 https://etcd-1:2379, with commas between them"
            ))
        })?;
        // A variable of the server may say that there is none.
        let path = |it: &Option<PathBuf>| it.clone().filter(|it| it.as_os_str() != "off");
        let access = EtcdAccess {
            endpoints,
            prefix: self.etcd_prefix.clone(),
            user: self.etcd_user.clone().filter(|it| it != "off"),
            secret_file: path(&self.etcd_secret_file),
            ca: path(&self.etcd_ca),
            cert: path(&self.etcd_cert),
            key: path(&self.etcd_key),
        };
        access.check().map_err(|(name, cause)| {
            Failure::usage(format!("--{}: {cause}", name.replace('_', "-")))
        })?;
        Ok(Some(PlanPlace::Etcd {
            access,
            secret_file: None,
        }))
    }
}

/// Who changes a plan, and how: user, machine and command.
pub fn author() -> String {
    let variable = |name| std::env::var(name).ok().filter(|it| !it.is_empty());
    let user = variable("SUDO_USER").or_else(|| variable("USER"));
    let user = user.unwrap_or_else(|| {
        let me = std::fs::metadata("/proc/self").map_or(0, |it| it.uid());
        format!("uid {me}")
    });
    let machine = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let words = std::env::args().skip(1).collect::<Vec<_>>().join(" ");
    let text = format!("{user}@{}: penstock {words}", machine.trim());
    let text = text.chars().filter(|it| !it.is_control());
    text.take(AUTHOR_CHARS).collect()
}
