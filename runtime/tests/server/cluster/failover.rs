//! Three nodes that decide by themselves, over a plan in a real etcd: a node that is lost is
//! replaced without a hand, comes back as a learner, and is waited for again; one that stood still
//! answers nothing of what it has.

use std::thread::sleep;
use std::time::{Duration, Instant};

use penstock_client::{Client, ClientError, Verbs};
use penstock_net::level::AckLevel;

use super::Model;
use super::etcd::{Etcd, metric};
use super::nodes::{Cluster, Server, until, wait_for_primary};
use crate::process::beside_clusters;
use crate::promql::{OF_FAILOVER, missing_from};
use crate::scrape::Numbers;

/// As long as tests beside each other may starve a node without that it is taken for lost.
const LEASE: Duration = Duration::from_secs(4);

/// Three nodes.
struct Nodes<'a> {
    cluster: &'a Cluster,
    etcd: &'a Etcd,
    plan: Vec<String>,
    servers: [Option<Server>; 3],
}

impl<'a> Nodes<'a> {
    /// All of them are in the sync set of the first one.
    fn start(cluster: &'a Cluster, etcd: &'a Etcd) -> Nodes<'a> {
        let secret = cluster.folder.join("etcd.secret").display().to_string();
        let nodes: Vec<String> = (0..3)
            .map(|at| {
                let (links, clients) = (cluster.links[at], cluster.clients[at]);
                format!("{},127.0.0.1:{links},127.0.0.1:{clients}", at + 1)
            })
            .collect();
        let mut init = vec!["init", "--secret-file", &secret];
        for node in &nodes {
            init.extend(["--node", node]);
        }
        let (code, printed) = etcd.command(cluster, &init);
        assert_eq!(code, 0, "{printed}");
        let lease_ms = LEASE.as_millis();
        let head = format!(
            "revision = 2\nreplica_timeout_ms = 60000\nfailover = true\nlease_ms = {lease_ms}\n\
             grace_ms = {}\n",
            lease_ms / 4 * 5
        );
        let text = etcd.text();
        // Other keys than these do not stand there yet.
        let rest = text.lines().filter(|line| {
            let keys = [
                "revision",
                "failover",
                "lease_ms",
                "grace_ms",
                "replica_timeout_ms",
            ];
            !keys.iter().any(|key| line.starts_with(&format!("{key} =")))
        });
        let rest: Vec<&str> = rest.collect();
        etcd.put(&(head + &rest.join("\n") + "\n"));
        let plan = [&etcd.home()[..], &["--cluster-secret-file".into(), secret]].concat();
        let mut nodes = Nodes {
            cluster,
            etcd,
            plan,
            servers: [const { None }; 3],
        };
        for node in [2, 3] {
            nodes.run(node, &[]);
        }
        nodes.run(1, &["--cluster-new"]);
        nodes
    }

    fn run(&mut self, node: u8, more: &[&str]) {
        let server = self.cluster.start_with(&self.plan, node, more);
        self.servers[usize::from(node) - 1] = Some(server);
    }

    fn kill(&mut self, node: u8) {
        self.servers[usize::from(node) - 1] = None;
    }

    fn server(&self, node: u8) -> &Server {
        self.servers[usize::from(node) - 1]
            .as_ref()
            .expect("it runs")
    }

    /// Waits until the plan has each node that runs in the sync set of every partition.
    fn until_whole(&self) {
        until("every node is waited for", || {
            let text = self.etcd.text();
            let is_whole = |line: &str| line.split(',').count() == 2;
            let mut sync = text.lines().filter(|line| line.starts_with("sync = "));
            sync.all(is_whole) && !text.contains("joining = [") && !text.contains("learners = [")
        });
    }

    /// Waits until one of these writes everything.
    fn until_primary(&self, nodes: [u8; 2]) -> u8 {
        let mut found = 0;
        until("another node writes", || {
            let writes = |&node: &u8| self.server(node).stand().0.as_deref() == Some("primary");
            found = nodes.into_iter().find(writes).unwrap_or(0);
            found > 0
        });
        found
    }
}

fn others(node: u8) -> [u8; 2] {
    match node {
        1 => [2, 3],
        2 => [1, 3],
        _ => [1, 2],
    }
}

/// What a node says of a key; `None` if it does not answer as the primary.
fn read(client: &Client) -> Option<Vec<u8>> {
    match client.get(b"key:1").wait() {
        Ok(value) => value.map(|it| it.bytes.to_vec()),
        Err(ClientError::Unknown(_) | ClientError::NotSent(_) | ClientError::No(_)) => None,
        Err(error) => {
            println!("{error}");
            None
        }
    }
}

/// What the deployed rules and queries ask of failover, a node that decides tells.
fn check_deployed_names(node: &Server) {
    let samples = Numbers::read(&node.page("/metrics").1).samples;
    let missing = missing_from(&samples, &OF_FAILOVER);
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn a_lost_primary_is_replaced_without_a_hand_and_is_waited_for_again_when_it_is_back() {
    let _clusters = beside_clusters();
    let cluster = Cluster::new("cluster-failover");
    let Some(mut etcd) = Etcd::start(&cluster) else {
        return;
    };
    let mut model = Model::default();
    {
        let mut nodes = Nodes::start(&cluster, &etcd);
        nodes.until_whole();
        let first = nodes.until_primary([1, 2]);
        model.change(&nodes.server(first).client(AckLevel::Replica), 1);
        nodes.kill(first);
        let lost = Instant::now();
        let second = nodes.until_primary(others(first));
        println!("{:?} until another node writes", lost.elapsed());
        model.check(&nodes.server(second).client(AckLevel::Disk));
        model.change(&nodes.server(second).client(AckLevel::Replica), 2);
        let text = etcd.text();
        assert!(text.contains(&format!("learners = [{first}]")), "{text}");
        assert!(metric(nodes.server(second), "penstock_takeovers_total 1"));

        nodes.run(first, &[]);
        nodes.until_whole();
        model.change(&nodes.server(second).client(AckLevel::Replica), 3);
        check_deployed_names(nodes.server(second));
        cluster.has_lost_nothing();
        drop(nodes);
    }
    etcd.kill();
}

#[test]
fn nodes_that_lend_to_each_other_serve_on_without_etcd() {
    let _clusters = beside_clusters();
    let cluster = Cluster::new("cluster-failover-etcd");
    let Some(etcd) = Etcd::start(&cluster) else {
        return;
    };
    let mut model = Model::default();
    let nodes = Nodes::start(&cluster, &etcd);
    nodes.until_whole();
    let first = nodes.until_primary([1, 2]);
    etcd.signal("-STOP");
    let until = Instant::now() + 3 * LEASE;
    let mut round = 1;
    while Instant::now() < until {
        model.change(&nodes.server(first).client(AckLevel::Replica), round);
        round += 1;
        sleep(Duration::from_millis(200));
    }
    model.check(&nodes.server(first).client(AckLevel::Disk));
    assert!(metric(nodes.server(first), "penstock_plan_home_up 0"));
    etcd.signal("-CONT");
}

#[test]
fn a_primary_that_stood_still_answers_nothing_of_what_it_has() {
    let _clusters = beside_clusters();
    let cluster = Cluster::new("cluster-failover-stop");
    let Some(etcd) = Etcd::start(&cluster) else {
        return;
    };
    let nodes = Nodes::start(&cluster, &etcd);
    nodes.until_whole();
    let first = nodes.until_primary([1, 2]);
    let mut model = Model::default();
    model.change(&nodes.server(first).client(AckLevel::Replica), 1);
    let client = nodes.server(first).client(AckLevel::Disk);
    assert!(read(&client).is_some(), "key:1 is there");
    nodes.server(first).freeze();
    // It waits in the socket until the node goes on.
    let asked = client.get(b"key:1");
    let second = nodes.until_primary(others(first));
    let client = nodes.server(second).client(AckLevel::Disk);
    client.set(b"key:1", b"new").wait().expect("acknowledged");
    nodes.server(first).signal("-CONT");
    let is_stale = |value: &[u8]| value != b"new";
    if let Ok(Some(value)) = asked.wait() {
        assert!(!is_stale(&value.bytes), "a stale read");
    }
    let until = Instant::now() + LEASE;
    while Instant::now() < until {
        let client = nodes.server(first).client(AckLevel::Disk);
        if let Some(value) = read(&client) {
            assert!(!is_stale(&value), "a stale read");
        }
        sleep(Duration::from_millis(20));
    }
    nodes.until_whole();
    wait_for_primary(nodes.server(second));
}

#[test]
fn by_min_sync_nothing_is_acknowledged_behind_the_death_of_all_members() {
    let _clusters = beside_clusters();
    let cluster = Cluster::new("cluster-min-sync");
    let Some(mut etcd) = Etcd::start(&cluster) else {
        return;
    };
    let mut nodes = Nodes::start(&cluster, &etcd);
    nodes.until_whole();
    let first = nodes.until_primary([1, 2]);
    let (code, printed) = etcd.command(&cluster, &["failover", "on", "--min-sync", "1"]);
    assert_eq!(code, 0, "{printed}");
    // The command ends when nodes act by the plan.
    let (_, status) = etcd.command(&cluster, &["status"]);
    assert!(status.contains("failover: on, lease 4000 ms"), "{status}");
    assert!(status.contains("min_sync 1\n"), "{status}");
    let client = nodes.server(first).client(AckLevel::Disk);
    client.set(b"before", b"1").wait().expect("a member has it");
    for member in others(first) {
        nodes.kill(member);
    }
    let behind = (0..200).map(|number| client.set(format!("{number}").as_bytes(), b"1"));
    let behind: Vec<_> = behind.collect();
    let read = client.get(b"before").wait();
    assert!(
        read.is_ok(),
        "it has its lease, and a read waits for nobody: {read:?}"
    );
    // What waits is answered when the node stops.
    let primary = nodes.servers[usize::from(first) - 1].take();
    primary.expect("it runs").stop();
    let ends: Vec<_> = behind.into_iter().map(|it| it.wait()).collect();
    let acknowledged = ends.iter().filter(|end| end.is_ok()).count();
    assert_eq!(acknowledged, 0, "no other node has any of it");
    let executed = |end: &&Result<_, ClientError>| match end {
        Err(error) => error.to_string().contains("executed here"),
        Ok(_) => false,
    };
    assert!(ends.iter().any(|end| executed(&end)), "{:?}", ends.last());
    drop(nodes);
    etcd.kill();
}
