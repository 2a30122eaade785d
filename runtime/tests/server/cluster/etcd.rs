//! Three nodes whose plan is in a real etcd: they serve without it, take what changed when it is
//! back, and refuse by name what is no plan of theirs.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use penstock_net::level::AckLevel;
use serde_json::{Value, json};

use super::Model;
use super::nodes::{Cluster, Server, free_port, until, wait_for_follower, wait_for_primary};
use crate::process::{beside_clusters, signal};
use crate::scrape::ask;

/// An etcd of one member, which a failing test takes down with it.
pub struct Etcd {
    process: Option<Child>,
    directory: PathBuf,
    clients: u16,
    peers: u16,
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Etcd {
    /// `None`, with a line that says so, if none is installed.
    pub fn start(cluster: &Cluster) -> Option<Etcd> {
        let mut etcd = Etcd {
            process: None,
            directory: cluster.folder.join("etcd"),
            clients: free_port(),
            peers: free_port(),
        };
        match etcd.run() {
            Ok(()) => Some(etcd),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                println!("skipped: no etcd is installed (apt-get install etcd-server)");
                None
            }
            Err(error) => panic!("etcd: {error}"),
        }
    }

    /// Starts it, again with what it had.
    pub fn run(&mut self) -> std::io::Result<()> {
        let url = |port| format!("http://127.0.0.1:{port}");
        let (clients, peers) = (url(self.clients), url(self.peers));
        let process = Command::new("etcd")
            .args(["--name", "one", "--data-dir"])
            .arg(&self.directory)
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
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        self.process = Some(process);
        let listens = || std::net::TcpStream::connect(("127.0.0.1", self.clients)).is_ok();
        until("etcd listens", listens);
        until("etcd answers", || {
            self.ask("kv/range", &json!({"key": key()})).is_some()
        });
        Ok(())
    }

    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    pub fn signal(&self, name: &str) {
        let process = self.process.as_ref().expect("it runs");
        signal(process.id(), name);
    }

    fn ask(&self, call: &str, body: &Value) -> Option<Value> {
        let body = body.to_string();
        let request = format!(
            "POST /v3/{call} HTTP/1.1\r\nHost: etcd\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let address = SocketAddr::from(([127, 0, 0, 1], self.clients));
        let (status, answer) = ask(address, request.as_bytes());
        (status == 200).then(|| serde_json::from_str(&answer).expect("JSON"))
    }

    pub fn text(&self) -> String {
        let answer = self
            .ask("kv/range", &json!({"key": key()}))
            .expect("it answers");
        let value = answer["kvs"][0]["value"].as_str().expect("a value");
        String::from_utf8(STANDARD.decode(value).expect("base64")).expect("text")
    }

    /// As somebody does who knows nothing of revisions.
    pub fn put(&self, text: &str) {
        let put = json!({"key": key(), "value": STANDARD.encode(text)});
        self.ask("kv/put", &put).expect("it answers");
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.clients)
    }

    /// How a command is told of it.
    pub fn home(&self) -> [String; 4] {
        // Nobody is at the first endpoint.
        let urls = format!("http://127.0.0.1:1,{}", self.url());
        [
            "--etcd-endpoints".into(),
            urls,
            "--etcd-prefix".into(),
            "/sale".into(),
        ]
    }

    /// Runs a command on the plan: its exit code and what it said.
    pub fn command(&self, cluster: &Cluster, words: &[&str]) -> (i32, String) {
        let home = self.home();
        let home: Vec<&str> = home.iter().map(String::as_str).collect();
        cluster.run_without_file(&[words, &home].concat())
    }
}

fn key() -> String {
    STANDARD.encode("/sale/plan")
}

pub fn metric(server: &Server, line: &str) -> bool {
    let (_, page) = server.page("/metrics");
    page.lines().any(|it| it == line)
}

/// The number of the plan that a node acts by.
fn revision(server: &Server) -> u64 {
    let text = server.client(AckLevel::Disk).info().wait().expect("told");
    let info: Value = serde_json::from_str(&text).expect("JSON");
    info["replication"]["plan"]["revision"]
        .as_u64()
        .expect("a number")
}

/// Each of these is put in the place of the plan. The node says why it does not take it, and serves
/// on.
fn what_is_no_plan_of_theirs_is_refused_by_name(etcd: &Etcd, server: &Server, old: &str) {
    let now = etcd.text();
    let id = now.split('"').nth(1).expect("an id");
    let other = now.replace(id, "c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1");
    let renewed = |text: &str| text.replacen("revision = 2", "revision = 9", 1);
    for (text, reason, named) in [
        (
            old.to_string(),
            "went_back",
            "its revision goes back from 2 to 1",
        ),
        (
            "<html><body>502</body></html>".into(),
            "malformed",
            "is not TOML",
        ),
        (
            renewed(&now.replace("number = 3", "number = 2")),
            "malformed",
            "number = 2: another node has that number",
        ),
        (
            renewed(&now.replace("primary = 2", "primary = 7")),
            "malformed",
            "names node 7",
        ),
        (
            renewed(&now.replace("generation = 2", "generation = 1")),
            "went_back",
            "the generation of partition 0 goes back from 2 to 1",
        ),
        (
            renewed(&other),
            "other_cluster",
            "cluster_id is that of another cluster",
        ),
        (
            format!("{now}{}", "#\n".repeat(300_000)),
            "too_long",
            "more than 524288 bytes",
        ),
    ] {
        etcd.put(&text);
        until(&format!("it refuses what is {reason}: {named}"), || {
            let line = format!("penstock_plan_refused{{reason=\"{reason}\"}} 1");
            metric(server, &line) && server.has_said(named)
        });
        assert_eq!(revision(server), 2);
    }
    etcd.ask("kv/deleterange", &json!({"key": key()}))
        .expect("it answers");
    until("it says that the plan is gone", || {
        metric(server, "penstock_plan_refused{reason=\"gone\"} 1")
    });
    until("the good one is taken back", || {
        etcd.put(&now);
        metric(server, "penstock_plan_refused{reason=\"gone\"} 0")
    });
}

/// An etcd that was restored from a backup: a start tells what mends it, and then succeeds.
fn a_restored_etcd_is_mended_by_an_import(
    etcd: &Etcd,
    cluster: &Cluster,
    plan: &[String],
    (first, second): (Server, &Server),
    old: &str,
) -> Server {
    etcd.put(old);
    let (code, text) = etcd.command(cluster, &["status"]);
    assert!(
        code == 3 && text.contains("has revision 1, and nodes act by 2"),
        "{text}"
    );
    let (code, text) = etcd.command(cluster, &["switch", "--to", "1"]);
    assert!(
        code == 1 && text.contains("acts by revision 2 of the plan, and revision 1 stands there"),
        "{text}"
    );
    assert_eq!(etcd.text(), old, "nothing was changed");
    drop(first);
    let (code, text) = cluster.start_with_to_its_end(plan, 1);
    assert!(
        code != Some(0) && text.contains("`penstock cluster import` puts it"),
        "{text}"
    );
    let kept = cluster.data(2).join("PLAN").display().to_string();
    let (code, text) = etcd.command(cluster, &["import", &kept]);
    assert!(code == 0 && text.contains("as revision 3"), "{text}");
    until("they take it", || {
        metric(second, "penstock_plan_refused{reason=\"went_back\"} 0") && revision(second) == 3
    });
    let first = cluster.start_with(plan, 1, &[]);
    wait_for_follower(second, &first);
    first
}

#[test]
fn nodes_serve_without_etcd_and_take_a_switch_when_it_is_back() {
    let _clusters = beside_clusters();
    let cluster = Cluster::new("cluster-etcd");
    let Some(mut etcd) = Etcd::start(&cluster) else {
        return;
    };
    let secret = cluster.folder.join("etcd.secret").display().to_string();
    let nodes: Vec<String> = (0..3)
        .map(|at| {
            let (links, clients) = (cluster.links[at], cluster.clients[at]);
            format!("{},127.0.0.1:{links},127.0.0.1:{clients}", at + 1)
        })
        .collect();
    let init = [
        "init",
        "--secret-file",
        &secret,
        "--node",
        &nodes[0],
        "--node",
        &nodes[1],
    ];
    let (code, text) = etcd.command(&cluster, &[&init[..], &["--node", &nodes[2]]].concat());
    assert_eq!(code, 0, "{text}");
    let (code, text) = etcd.command(&cluster, &init);
    assert!(code != 0 && text.contains("there is one already"), "{text}");
    // A node that has just started is waited for, however long its link takes.
    let patient = "revision = 1\nreplica_timeout_ms = 60000\n";
    etcd.put(&etcd.text().replacen("revision = 1\n", patient, 1));
    let old = etcd.text();
    assert!(
        old.contains("revision = 1\n") && old.contains("penstock cluster init"),
        "{old}"
    );

    let plan = [&etcd.home()[..], &["--cluster-secret-file".into(), secret]].concat();
    let first = cluster.start_with(&plan, 1, &["--cluster-new"]);
    wait_for_primary(&first);
    let [second, third] = [2, 3].map(|node| cluster.start_with(&plan, node, &[]));
    wait_for_follower(&first, &second);
    wait_for_follower(&first, &third);
    let mut model = Model::default();
    model.change(&first.client(AckLevel::Replica), 1);

    // Nobody needs it to serve, and nobody can be changed or started without it.
    etcd.kill();
    model.change(&first.client(AckLevel::Replica), 2);
    until("they say that it is silent", || {
        [&first, &second, &third]
            .iter()
            .all(|it| metric(it, "penstock_plan_home_up 0"))
    });
    let (code, text) = etcd.command(&cluster, &["switch", "--to", "2"]);
    assert!(code != 0 && text.contains(&etcd.url()), "{text}");
    let address = first.address.to_string();
    let (code, text) = etcd.command(&cluster, &["status", "--addr", &address]);
    assert!(
        code == 3 && text.contains("following (sync)") && text.contains(&etcd.url()),
        "{text}"
    );
    drop(third);
    let (code, text) = cluster.start_with_to_its_end(&plan, 3);
    assert!(
        code != Some(0) && text.contains("needs the plan of now"),
        "{text}"
    );
    model.check(&first.client(AckLevel::Disk));

    etcd.run().expect("it is installed");
    let third = cluster.start_with(&plan, 3, &[]);
    wait_for_follower(&first, &third);
    let (code, text) = etcd.command(&cluster, &["switch", "--from", "9"]);
    assert!(code == 2 && text.contains("no node 9: it has 1, 2, 3"));
    let (code, text) = etcd.command(&cluster, &["switch", "--to", "2", "--wait-ms", "120000"]);
    assert!(code == 0 && text.contains("node 2 at"), "{text}");
    until("all act by it", || {
        [&first, &second, &third].iter().all(|it| revision(it) == 2)
    });
    wait_for_follower(&second, &first);
    wait_for_follower(&second, &third);
    model.check(&second.client(AckLevel::Disk));
    model.change(&second.client(AckLevel::Replica), 3);
    let (code, text) = etcd.command(&cluster, &["status"]);
    assert!(
        code == 0 && text.contains("plan: revision 2, changed at 20"),
        "{text}"
    );
    assert!(text.contains("penstock cluster switch --to 2"), "{text}");
    assert!(first.has_said("revision 2, changed at"));

    what_is_no_plan_of_theirs_is_refused_by_name(&etcd, &second, &old);
    model.check(&second.client(AckLevel::Disk));

    let _first =
        a_restored_etcd_is_mended_by_an_import(&etcd, &cluster, &plan, (first, &second), &old);
    model.change(&second.client(AckLevel::Replica), 4);
    cluster.has_lost_nothing();
}

#[test]
fn every_command_changes_a_plan_in_etcd_as_it_changes_a_file() {
    let _clusters = beside_clusters();
    let cluster = Cluster::new("cluster-etcd-commands");
    let Some(etcd) = Etcd::start(&cluster) else {
        return;
    };
    // That of a file moves there.
    let file = cluster.folder.join("cluster.toml").display().to_string();
    let does = |words: &[&str]| {
        let (code, text) = etcd.command(&cluster, words);
        assert_eq!(code, 0, "{text}");
        text
    };
    let (code, text) = etcd.command(&cluster, &["show"]);
    assert!(code != 0 && text.contains("there is none"), "{text}");
    assert!(does(&["import", &file]).contains("as revision 2"));
    assert!(!etcd.text().contains("secret_file"));
    does(&["add", "--node", &cluster.third()]);
    assert!(etcd.text().contains("learners = [3]"), "{}", etcd.text());
    does(&["sync", "--node", "3", "--no-wait"]);
    assert!(etcd.text().contains("joining = [3]"), "{}", etcd.text());
    does(&["learner", "--node", "3", "--no-wait"]);
    does(&["switch", "--to", "2", "--no-wait"]);
    assert!(etcd.text().contains("handover = true"), "{}", etcd.text());
    does(&["promote", "--to", "1", "--force", "--no-wait"]);
    does(&["drop", "--node", "3", "--no-wait"]);
    let shown = does(&["show"]);
    assert!(
        shown.contains("revision = 8\n") && shown.contains("primary = 1"),
        "{shown}"
    );
    assert!(
        shown.contains("penstock cluster drop --node 3 --no-wait"),
        "{shown}"
    );
    // The file is behind by now.
    let (code, text) = etcd.command(&cluster, &["import", &file]);
    assert!(
        code != 0 && text.contains("older than the plan in etcd"),
        "{text}"
    );
    assert_eq!(does(&["show"]), shown);
}
