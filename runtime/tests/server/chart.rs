//! The chart for Kubernetes, and what must be there before it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use yaml_rust2::{Yaml, YamlLoader};

use crate::cluster::nodes::{free_port, until};
use crate::command::command;
use crate::process::Server;
use crate::scratch;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/helm")
}

fn templates() -> Vec<(String, String)> {
    let files = fs::read_dir(folder().join("penstock/templates")).unwrap();
    let read = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().unwrap();
        (name, fs::read_to_string(entry.path()).unwrap())
    };
    files.map(|entry| read(entry.unwrap())).collect()
}

/// The texts that an operator starts from: values, templates, scripts, units, containers, options.
/// Not the change log, which tells of options that are gone.
fn deployed(folder: &Path) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(deployed(&path));
        } else if let Ok(text) = fs::read_to_string(&path)
            && !path.ends_with("CHANGELOG.md")
        {
            found.push((path.display().to_string(), text));
        }
    }
    found
}

/// What stands behind each `prefix`, as long as it is a name.
fn names<'a>(text: &'a str, prefix: &str, is_part: fn(char) -> bool) -> Vec<&'a str> {
    let rests = text.split(prefix).skip(1);
    let name = |rest: &'a str| rest.split(|it: char| !is_part(it)).next().unwrap();
    rests.map(name).collect()
}

#[test]
fn every_value_that_a_template_asks_for_is_among_the_values_and_each_of_those_is_asked_for() {
    let text = fs::read_to_string(folder().join("penstock/values.yaml")).unwrap();
    let values = YamlLoader::load_from_str(&text).unwrap().remove(0);
    let mut asked = BTreeSet::new();
    for (template, text) in templates() {
        for path in names(&text, ".Values.", |it| it.is_alphanumeric() || it == '.') {
            let parts: Vec<&str> = path.split('.').collect();
            let found = parts.iter().fold(&values, |value, part| &value[*part]);
            assert!(!found.is_badvalue(), "{template}: {path}");
            asked.insert(parts[0].to_string());
        }
    }
    let there = values.as_hash().unwrap().keys();
    let there: BTreeSet<String> = there.map(|it| it.as_str().unwrap().into()).collect();
    assert_eq!(asked, there);
}

#[test]
fn each_variable_of_the_deployed_files_is_an_option_of_the_server_or_of_a_command() {
    let output = command(&["config", "explain"]).output().unwrap();
    let explained = String::from_utf8(output.stdout).unwrap();
    let options = explained.lines().filter_map(|line| line.split(' ').next());
    let mut known: BTreeSet<String> = options.map(str::to_uppercase).collect();
    known.extend(
        [
            "TLS_CA",
            "TLS_NAME",
            "USER",
            "SECRET_FILE",
            "ADDR",
            "CONFIG",
        ]
        .map(String::from),
    );
    let mut used = BTreeSet::new();
    for (file, text) in deployed(&folder().join("..")) {
        let is_part = |it: char| it.is_ascii_uppercase() || it == '_';
        // A name that ends so stands for several, as PENSTOCK_X_FILE does.
        for name in names(&text, "PENSTOCK_", is_part) {
            let is_known = known.contains(name.strip_suffix("_FILE").unwrap_or(name));
            let is_form = name.is_empty() || name == "X_FILE";
            assert!(
                is_known || known.contains(name) || is_form,
                "{file}: PENSTOCK_{name}"
            );
            used.insert(name.to_string());
        }
    }
    assert!(used.len() > 30, "{used:?}");
}

#[test]
fn clients_of_redis_and_programs_find_their_way_in_every_deployment() {
    let text = |path: &str| fs::read_to_string(folder().join("..").join(path)).unwrap();
    let nodes = text("helm/penstock/templates/nodes.yaml");
    assert!(nodes.contains("enableServiceLinks: false"));
    for (path, parts) in [
        (
            "helm/penstock/templates/nodes.yaml",
            ["PENSTOCK_RESP_LISTEN", "PENSTOCK_SCHEMA"],
        ),
        (
            "compose/compose.yaml",
            ["PENSTOCK_RESP_LISTEN", "PENSTOCK_SCHEMA"],
        ),
        (
            "helm/penstock/templates/services.yaml",
            ["name: resp", "port: 7413"],
        ),
        (
            "helm/prepare.sh",
            ["$(name 3):7413", "user grant till run restock buy"],
        ),
        (
            "compose/cluster/init.sh",
            ["user add till", "user grant till run restock buy"],
        ),
        (
            "compose/cluster/cluster.toml",
            ["resp = \"172.31.74.11:7413\"", "resp = \"172.31.74.13:"],
        ),
    ] {
        let file = text(path);
        parts
            .iter()
            .for_each(|part| assert!(file.contains(part), "{path} has no {part}"));
    }
    // The programs that the till may run are those of the file.
    let sale = text("programs/sale.toml");
    for program in ["restock", "buy", "confirm", "cancel"] {
        assert!(sale.contains(&format!("[program.{program}]")), "{program}");
    }
}

#[test]
fn the_keyspaces_of_the_sale_have_level_all_in_every_deployment() {
    let text = |path: &str| fs::read_to_string(folder().join("..").join(path)).unwrap();
    let compose = text("compose/compose.yaml");
    assert!(compose.contains("\"/etc/penstock/programs/levels.sh\", \"all\""));
    assert!(text("helm/penstock/values.yaml").contains("\nsaleLevel: all\n"));
    let job = text("helm/penstock/templates/levels.yaml");
    assert!(job.contains("exec sh /schema/levels.sh {{ .Values.saleLevel }}"));

    let data = scratch::folder("levels-of-the-sale");
    let schema = folder().join("../programs");
    let mut serve = command(&["serve", "--shard-ports", "0", "--listen", "127.0.0.1:0"]);
    serve.args(["--admin-listen", "off", "--resp-listen", "off"]);
    let server = Server::start(serve.arg("--schema").arg(&schema).arg("--data").arg(&data));
    let program = Path::new(env!("CARGO_BIN_EXE_penstock")).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
    // It may run again.
    for _ in 0..2 {
        let output = crate::command::program("sh")
            .arg(schema.join("levels.sh"))
            .env("PATH", &path)
            .env("PENSTOCK_ADDR", server.address.to_string())
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let printed = String::from_utf8(output.stdout).unwrap();
        for prefix in ["stock:", "order:", "buyer:"] {
            let line = format!("\"{prefix}\" level-min all ");
            assert_eq!(printed.matches(&line).count(), 1, "{printed}");
        }
    }
    // Each program that the till may run has a key in one of them.
    let sale = text("programs/sale.toml");
    let programs = sale.split("\n[program.").skip(1);
    for program in programs {
        assert!(program.contains("keys = [\"stock:Stock\""), "{program}");
    }
    server.stop();
    fs::remove_dir_all(&data).unwrap();
}

#[test]
fn the_rendered_chart_has_three_nodes_a_budget_and_a_service() {
    let rendered = Command::new("helm")
        .args(["template", "shop"])
        .arg(folder().join("penstock"))
        .args(["--set", "etcd.endpoints=http://etcd:2379"])
        // A helm that is built from its source takes an older one for granted.
        .args(["--kube-version", "1.25.0"])
        .output();
    let Ok(rendered) = rendered else {
        println!("skipped: no helm is installed");
        return;
    };
    assert!(rendered.status.success(), "{rendered:?}");
    let documents = String::from_utf8(rendered.stdout).unwrap();
    let documents = YamlLoader::load_from_str(&documents).unwrap();
    let kind = |it: &Yaml| it["kind"].as_str().map(String::from);
    let kinds: BTreeSet<String> = documents.iter().filter_map(kind).collect();
    let expected = ["PodDisruptionBudget", "Service", "StatefulSet"];
    assert_eq!(kinds.iter().collect::<Vec<_>>(), expected);
    let nodes = documents
        .iter()
        .find(|it| it["kind"].as_str() == Some("StatefulSet"));
    let nodes = &nodes.unwrap()["spec"];
    assert_eq!(nodes["replicas"].as_i64(), Some(3));
    let pod = &nodes["template"]["spec"];
    let stop = &pod["containers"][0]["lifecycle"]["preStop"]["exec"]["command"][2];
    assert!(
        stop.as_str()
            .unwrap()
            .starts_with("penstock cluster switch --from ")
    );
    let args = pod["initContainers"][0]["args"][0].as_str().unwrap();
    assert!(args.contains("penstock cluster address --node"));
}

/// An etcd of one member, which a failing test takes down with it.
struct Etcd {
    process: Child,
    /// Where its clients find it.
    url: String,
    scratch: PathBuf,
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Etcd {
    /// In a folder that is empty now. `None` if no etcd is installed.
    fn start(scratch: PathBuf) -> Option<Etcd> {
        let _ = fs::remove_dir_all(&scratch);
        fs::create_dir_all(&scratch).unwrap();
        let url = |port| format!("http://127.0.0.1:{port}");
        let (clients, peers) = (url(free_port()), url(free_port()));
        let process = Command::new("etcd")
            .args(["--name", "one", "--data-dir"])
            .arg(scratch.join("etcd"))
            .args(["--listen-client-urls", &clients])
            .args(["--advertise-client-urls", &clients])
            .args(["--listen-peer-urls", &peers])
            .args(["--initial-advertise-peer-urls", &peers])
            .args(["--initial-cluster", &format!("one={peers}")])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let Ok(process) = process else {
            println!("skipped: no etcd is installed (apt-get install etcd-server)");
            return None;
        };
        let etcd = Etcd {
            process,
            url: clients,
            scratch,
        };
        until("etcd answers", || {
            let output = etcd.cluster(&["show"]);
            String::from_utf8_lossy(&output.stderr).contains("there is none")
        });
        Some(etcd)
    }

    /// What a command says of the plan.
    fn cluster(&self, words: &[&str]) -> Output {
        let mut command = command(&[&["cluster"], words].concat());
        command
            .args(["--etcd-endpoints", &self.url])
            .output()
            .unwrap()
    }

    /// Whether a command succeeds, and what it tells.
    fn plan(&self, words: &[&str]) -> (bool, String) {
        let output = self.cluster(words);
        let printed = String::from_utf8(output.stdout).unwrap();
        (output.status.success(), printed)
    }

    /// The files and the plan that are there behind a run of `prepare.sh`.
    fn prepare(&self) -> (Vec<(String, Vec<u8>)>, String) {
        let program = Path::new(env!("CARGO_BIN_EXE_penstock")).parent().unwrap();
        let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
        let secrets = self.scratch.join("secrets");
        let output = crate::command::program("sh")
            .arg(folder().join("prepare.sh"))
            .arg(&secrets)
            .args(["shop", "default"])
            .env("PATH", &path)
            .env("PENSTOCK_ETCD_ENDPOINTS", &self.url)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let read = |it: fs::DirEntry| {
            let name = it.file_name().into_string().unwrap();
            (name, fs::read(it.path()).unwrap())
        };
        let files = fs::read_dir(secrets).unwrap();
        let mut files: Vec<_> = files.map(|it| read(it.unwrap())).collect();
        files.sort();
        (files, self.plan(&["show"]).1)
    }
}

#[test]
fn what_must_be_there_before_the_chart_is_made_once_and_nodes_change_their_addresses() {
    let scratch = scratch::folder("chart");
    let Some(etcd) = Etcd::start(scratch.clone()) else {
        return;
    };
    let plan = |words: &[&str]| etcd.plan(words);
    let first = etcd.prepare();
    let names: Vec<&str> = first.0.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        names,
        [
            "admin-token",
            "ca.pem",
            "cluster-secret",
            "node-1.key",
            "node-1.pem",
            "node-2.key",
            "node-2.pem",
            "node-3.key",
            "node-3.pem",
            "node.secret",
            "users"
        ]
    );
    assert!(first.1.contains("failover = true\n"), "{}", first.1);
    assert!(
        first.1.contains("resp = \"shop-2.shop.default.svc:7413\""),
        "{}",
        first.1
    );
    assert!(
        first
            .1
            .contains("clients = \"shop-2.shop.default.svc:7411\"")
    );
    assert_eq!(etcd.prepare(), first, "nothing is made twice");
    let moved = plan(&["address", "--node", "2", "--links", "10.1.2.3:7414"]);
    assert!(moved.0 && plan(&["show"]).1.contains("links = \"10.1.2.3:7414\""));
    for (words, key) in [
        (&["pause"][..], "failover_paused = true\n"),
        (&["failover", "on", "--min-sync", "1"], "min_sync = 1\n"),
    ] {
        assert!(
            plan(words).0 && plan(&["show"]).1.contains(key),
            "{words:?}"
        );
    }
    assert!(plan(&["resume"]).0 && !plan(&["show"]).1.contains("failover_paused"));
    // Nobody has read the plan, so nobody goes by another lease.
    let quiet = [
        "failover",
        "on",
        "--lease-ms",
        "400",
        "--grace-ms",
        "500",
        "--wait-ms",
        "1",
    ];
    assert!(!plan(&quiet).0 && !plan(&["show"]).1.contains("lease_ms"));
    let step = plan(&[&quiet[..6], &["--no-wait"]].concat()).1;
    assert!(
        step.contains("first step: lease_ms = 400, grace_ms = 2000"),
        "{step}"
    );
    plan(&[&quiet[..6], &["--no-wait"]].concat());
    let text = plan(&["show"]).1;
    assert!(
        text.contains("lease_ms = 400\n") && text.contains("grace_ms = 500\n"),
        "{text}"
    );
    drop(etcd);
    fs::remove_dir_all(&scratch).unwrap();
}
