//! `penstock cluster certs`: the certificates of a cluster.

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use penstock::cluster::certificates::{CertificateOrder, make_certificates};

use super::Failure;
use super::output::Output;
use super::plan_home::HomeArgs;

pub const CERTS_EXAMPLES: &str = "\
Without --node and --client every node of the file gets a new key and a new certificate; given again
this renews them. The CA is made once: keep ca.key away from the nodes. A node needs ca.pem, its own
node-N.pem and its own node-N.key. It shows them to the other nodes (cluster_tls_cert,
cluster_tls_key, cluster_tls_ca), and may show them to clients, too (tls_cert, tls_key), which
trust ca.pem. A certificate names the hosts of `clients`, `resp` and `links` of its node, localhost,
and those of --name. A running node takes new files by itself.

Examples:
  penstock cluster certs --file /etc/penstock/cluster.toml
  penstock cluster certs --file /etc/penstock/cluster.toml --node 3 --name 3=kv3.shop.example
  penstock cluster certs --file /etc/penstock/cluster.toml --client till-7 --days 90
  penstock serve --cluster /etc/penstock/cluster.toml --cluster-node 1 \\
    --cluster-tls-ca /etc/penstock/certs/ca.pem \\
    --cluster-tls-cert /etc/penstock/certs/node-1.pem \\
    --cluster-tls-key /etc/penstock/certs/node-1.key";

/// Arguments of `penstock cluster certs`.
#[derive(Args)]
pub struct CertsArgs {
    #[command(flatten)]
    home: HomeArgs,
    /// Where the certificates are written; if it is not given the folder certs, beside the file of
    /// the plan if it is in one
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// How long certificates of nodes and clients hold
    #[arg(
        long,
        value_name = "N",
        default_value_t = 365,
        value_parser = clap::value_parser!(u32).range(1..=3650)
    )]
    days: u32,
    /// This node alone; may be repeated
    #[arg(long, value_name = "NODE", value_parser = clap::value_parser!(u8).range(1..))]
    node: Vec<u8>,
    /// One more host or address under which clients find a node; may be repeated
    #[arg(long, value_name = "NODE=HOST", value_parser = named)]
    name: Vec<(u8, String)>,
    /// A certificate for a client of this name, the name that `penstock user certificate` takes;
    /// may be repeated
    #[arg(long, value_name = "NAME")]
    client: Vec<String>,
}

fn named(text: &str) -> Result<(u8, String), String> {
    let read = text.split_once('=').and_then(|(node, host)| {
        let node = node.parse().ok().filter(|node| *node > 0)?;
        Some((node, host.to_string()))
    });
    read.ok_or_else(|| "NODE=HOST is wanted, for example 3=kv3.shop.example".into())
}

impl CertsArgs {
    /// Writes the files and prints what they are.
    pub fn run(self) -> Result<(), Failure> {
        let place = self.home.place()?;
        let folder = self.out.unwrap_or_else(|| match place.file() {
            Some(path) => path.with_file_name("certs"),
            None => "certs".into(),
        });
        let order = CertificateOrder {
            folder,
            nodes: self.node,
            hosts: self.name,
            clients: self.client,
            days: self.days,
        };
        let made = make_certificates(&place, &order).map_err(Failure::usage)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now_unix_s = now.map_or(0, |it| it.as_secs());
        let mut out = Output::stdout();
        out.done("the certificates were made");
        for it in made {
            let ends = UNIX_EPOCH + Duration::from_secs(it.expires_unix_s);
            // To the nearest day: time has passed since they were made.
            let left_s = it.expires_unix_s.saturating_sub(now_unix_s);
            let days_left = (left_s + 43_200) / 86_400;
            let day = humantime::format_rfc3339_seconds(ends).to_string();
            out.line(format_args!(
                "{}: {} and {} are written, and hold until {}, {days_left} days",
                it.whose,
                it.certificate.display(),
                it.key.display(),
                day.split('T').next().unwrap_or(&day)
            ));
        }
        out.finish()
    }
}
