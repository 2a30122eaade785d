//! A new cluster: its plan and its secret; and a plan that moves into etcd.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::time::SystemTime;

use penstock_net::resp::CorePorts;
use toml_edit::{DocumentMut, value};

use crate::cluster::plan::document::{bounds, note_change};
use crate::cluster::plan::file::{
    ClusterFile, ClusterFileError, core_ports, is_address_of_clients, is_host_and_port,
};
use crate::cluster::plan::home::{HomeError, PLAN_BYTES_MAX, PlanPlace, Swapped};
use crate::cluster::plan::placement::{conflict, failed, failed_at};
use crate::cluster::plan::replacing::{beside, write_new};

/// A node of a cluster that is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewNode {
    /// 1 to 255.
    pub number: u8,
    /// Where it takes links.
    pub links: SocketAddr,
    /// Where clients find it.
    pub clients: String,
    /// Where clients of Redis find it, HOST:PORT.
    pub resp: Option<String>,
    /// The ports at which they find its cores there.
    pub resp_ports: Option<CorePorts>,
}

impl NewNode {
    /// Reads `NUMBER,LINKS,CLIENTS[,RESP[,FIRST-LAST]]`.
    ///
    /// # Errors
    /// What is wanted.
    pub fn parse(text: &str) -> Result<NewNode, String> {
        let wanted = "NUMBER,LINKS,CLIENTS or NUMBER,LINKS,CLIENTS,RESP is wanted, for example \
                      2,10.0.0.2:7414,10.0.0.2:7411,10.0.0.2:7413, and behind RESP the ports of \
                      its cores for clients of Redis, if they have any: ,7430-7431";
        let words: Vec<&str> = text.split(',').collect();
        let [number, links, clients, ref of_redis @ ..] = *words.as_slice() else {
            return Err(wanted.into());
        };
        let (resp, ports) = match *of_redis {
            [] => (None, None),
            [resp] => (Some(resp), None),
            [resp, ports] => (Some(resp), Some(ports)),
            _ => return Err(wanted.into()),
        };
        let read = |ports: &str| {
            let (first, last) = ports.split_once('-')?;
            core_ports(first.parse().ok()?, last.parse().ok()?)
        };
        let resp_ports = match ports {
            None => None,
            Some(ports) => Some(
                read(ports)
                    .ok_or_else(|| format!("resp_ports = {ports:?} is not FIRST-LAST; {wanted}"))?,
            ),
        };
        if !is_address_of_clients(clients) {
            return Err(format!("clients = {clients:?} is not HOST:PORT; {wanted}"));
        }
        if let Some(resp) = resp.filter(|resp| !is_host_and_port(resp)) {
            return Err(format!("resp = {resp:?} is not HOST:PORT; {wanted}"));
        }
        let number = number.parse().ok().filter(|number| *number > 0);
        Ok(NewNode {
            number: number.ok_or_else(|| format!("the number is 1 to 255; {wanted}"))?,
            links: links
                .parse()
                .map_err(|_| format!("links = {links:?} is not IP:PORT; {wanted}"))?,
            clients: clients.into(),
            resp: resp.map(str::to_string),
            resp_ports,
        })
    }
}

/// Writes the file and the secret of a new cluster, whose first node is to write everything and the
/// others to be its sync set.
///
/// # Errors
/// Why not; a file that is there already is not replaced.
pub fn make_cluster(path: &Path, nodes: &[NewNode]) -> Result<(), ClusterFileError> {
    let fail = |error: io::Error| failed_at(path, &error.to_string());
    let random = random().map_err(fail)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let secret_name = format!("{name}.secret");
    let head = format!(
        "# All nodes of the cluster have the same file, and the secret beside it. `penstock \
         cluster` changes it.\nversion = 1\ncluster_id = \"{}\"\nsecret_file = \"{secret_name}\"\n",
        hex(&random[..16])
    );
    let text = head + &placed(nodes);
    let secret_path = path.with_file_name(secret_name);
    let secret = hex(&random[16..]) + "\n";
    let made = write_new(&secret_path, secret.as_bytes(), 0o600)
        .map_err(|error| failed_at(&secret_path, &format!("cannot be made: {error}")));
    made?;
    let temporary = beside(path);
    let written = write_new(&temporary, text.as_bytes(), 0o644)
        .map_err(|error| failed_at(&temporary, &format!("cannot be made: {error}")))
        .and_then(|()| ClusterFile::read(&temporary).map(drop))
        // A link is made where nothing is, and only there.
        .and_then(|()| fs::hard_link(&temporary, path).map_err(fail));
    drop(fs::remove_file(&temporary));
    if written.is_err() {
        drop(fs::remove_file(&secret_path));
    }
    written
}

/// Writes the first plan of a new cluster into etcd, and its secret into a new file, with nodes as
/// [`make_cluster`].
///
/// # Errors
/// Why not; a plan or a secret that is there already is not replaced.
pub fn make_in_etcd(
    place: &PlanPlace,
    secret_path: &Path,
    nodes: &[NewNode],
    author: &str,
) -> Result<(), ClusterFileError> {
    let random = random().map_err(|error| failed(place, &error.to_string()))?;
    let mut home = place.open().map_err(|cause| failed(place, &cause))?;
    // Before a secret is written: it may not answer, or have a plan.
    let there = home
        .load()
        .map_err(|error| failed(place, &error.to_string()))?;
    if there.is_some() {
        return Err(failed(place, "there is one already; nothing was changed"));
    }
    let mut document: DocumentMut = format!(
        "# `penstock cluster` changes this.\nversion = 1\ncluster_id = \"{}\"\nrevision = 1\n{}",
        hex(&random[..16]),
        placed(nodes)
    )
    .parse()
    .expect("TOML");
    note_change(&mut document, 0, author, SystemTime::now());
    let text = document.to_string();
    ClusterFile::of(place, text.clone())?;
    let secret = hex(&random[16..]) + "\n";
    write_new(secret_path, secret.as_bytes(), 0o600)
        .map_err(|error| failed_at(secret_path, &format!("cannot be made: {error}")))?;
    let cause = match home.compare_and_swap(None, &text) {
        Ok(Swapped::Done(_)) => return Ok(()),
        Ok(Swapped::Conflict(Some(_))) => "there is one already; nothing was changed".into(),
        Ok(Swapped::Conflict(None)) => conflict(place, None),
        // The plan may be there, and this is the secret of its nodes.
        Err(error @ HomeError::Unknown(_)) => return Err(failed(place, &error.to_string())),
        Err(error) => error.to_string(),
    };
    drop(fs::remove_file(secret_path));
    Err(failed(place, &cause))
}

/// Puts the plan that stands in a file into etcd, under a number above that of both: the plan of a
/// cluster that had a file, or one that a node has kept for an etcd that has lost it. The plan in
/// etcd with another text may also be put back: other bounds or addresses, which no command sets.
///
/// # Errors
/// Why not. A plan of another cluster, or one that has come further, is not replaced. Who holds
/// what and how nodes decide is not changed here: a node that enters a sync set must have all
/// first.
pub fn import(place: &PlanPlace, from: &Path, author: &str) -> Result<u64, ClusterFileError> {
    let fail = |cause: &str| failed_at(from, cause);
    let text =
        fs::read_to_string(from).map_err(|error| fail(&format!("cannot be read: {error}")))?;
    if text.len() > PLAN_BYTES_MAX {
        let bytes = text.len();
        return Err(fail(&format!(
            "it has {bytes} bytes, and {PLAN_BYTES_MAX} is the limit"
        )));
    }
    let document = text.parse::<DocumentMut>();
    let mut document = document.map_err(|error| fail(&error.to_string().replace('\n', ", ")))?;
    document.remove("secret_file");
    if !document.contains_key("revision") {
        document.insert("revision", value(1));
    }
    let file = ClusterFile::without_secret(document.to_string()).map_err(|cause| fail(&cause))?;
    let mut home = place.open().map_err(|cause| failed(place, &cause))?;
    let there = home
        .load()
        .map_err(|error| failed(place, &error.to_string()))?;
    let mut before = file.revision;
    // What is no plan at all is replaced.
    let known = there
        .as_ref()
        .and_then(|it| ClusterFile::of(place, it.text.clone()).ok());
    if let Some(known) = known {
        file.is_of_cluster(&known)
            .and_then(|()| may_replace(&file, &known))
            .map_err(|cause| fail(&format!("{cause}; nothing was changed")))?;
        before = before.max(known.revision);
    }
    note_change(&mut document, before, author, SystemTime::now());
    let expected = there.map(|it| it.revision);
    match home.compare_and_swap(expected.as_ref(), &document.to_string()) {
        Ok(Swapped::Done(_)) => Ok(before + 1),
        Ok(Swapped::Conflict(there)) => Err(failed(place, &conflict(place, there))),
        Err(error) => Err(failed(place, &error.to_string())),
    }
}

/// Whether the plan of a file may take the place of the one in etcd.
fn may_replace(file: &ClusterFile, there: &ClusterFile) -> Result<(), String> {
    let mut both = there.assignments.iter().zip(&file.assignments);
    if let Some(at) = both.position(|(there, new)| new.generation < there.generation) {
        let (there, new) = (&there.assignments[at], &file.assignments[at]);
        return Err(format!(
            "it is older than the plan in etcd: generation {} of partition {at}, and {} there",
            new.generation, there.generation
        ));
    }
    if file.revision < there.revision {
        return Err(format!(
            "it is older than the plan in etcd: revision {} (1 if the file has none), and {} there",
            file.revision, there.revision
        ));
    }
    if file.revision > there.revision {
        return Ok(());
    }
    let mut both = there.placings().into_iter().zip(file.placings());
    if let Some(at) = both.position(|(there, new)| there != new) {
        return Err(format!(
            "it places partition {at} otherwise than the plan in etcd, which has the same revision \
             {}: switch, sync, learner and the other commands of `penstock cluster` do that",
            there.revision
        ));
    }
    match file.failover == there.failover {
        true => Ok(()),
        false => Err(format!(
            "failover, lease_ms, grace_ms or min_sync are not those of the plan in etcd, which has \
             the same revision {}: `penstock cluster failover` and `pause` change them",
            there.revision
        )),
    }
}

/// 16 bytes of an id and 32 of a secret.
fn random() -> io::Result<[u8; 48]> {
    let mut random = [0; 48];
    crate::system::fill_random(&mut random)?;
    Ok(random)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|it| format!("{it:02x}")).collect()
}

/// The nodes, of which the first writes everything and the others are the sync set.
fn placed(nodes: &[NewNode]) -> String {
    let mut text = String::new();
    for NewNode {
        number,
        links,
        clients,
        resp,
        resp_ports,
    } in nodes
    {
        let clients = value(clients.clone()).to_string();
        text +=
            &format!("\n[[node]]\nnumber = {number}\nlinks = \"{links}\"\nclients = {clients}\n");
        if let Some(resp) = resp {
            text += &format!("resp = {}\n", value(resp.clone()));
        }
        if let Some(ports) = resp_ports {
            text += &format!("resp_ports = {:?}\n", bounds(*ports));
        }
    }
    let numbers: Vec<String> = nodes.iter().map(|it| it.number.to_string()).collect();
    let (first, others) = numbers.split_first().expect("a cluster has a node");
    text + &format!(
        "\n[[placement]]\npartitions = [0, 255]\ngeneration = 1\nprimary = {first}\nsync = [{}]\n",
        others.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::plan::placement::Draft;

    #[test]
    fn a_file_replaces_the_plan_in_etcd_only_if_it_is_newer_or_says_the_same_of_who_holds_what() {
        let plan = |revision: u64, generation: u32, sync: &str, more: &str| {
            let text = format!(
                "version = 1\ncluster_id = \"000102030405060708090a0b0c0d0e0f\"\n\
                 revision = {revision}\n{more}\n\
                 [[node]]\nnumber = 1\nlinks = \"127.0.0.1:1\"\nclients = \"a:1\"\n\
                 [[node]]\nnumber = 2\nlinks = \"127.0.0.1:2\"\nclients = \"b:1\"\n\
                 [[placement]]\npartitions = [0, 255]\ngeneration = {generation}\nprimary = 1\n\
                 {sync}\n"
            );
            ClusterFile::without_secret(text).expect("a plan")
        };
        let on = "failover = true";
        let there = plan(7, 3, "learners = [2]", on);
        for (file, named) in [
            (
                plan(6, 3, "sync = [2]", on),
                Some("revision 6 (1 if the file has none), and 7 there"),
            ),
            (
                plan(8, 2, "sync = [2]", on),
                Some("generation 2 of partition 0, and 3 there"),
            ),
            (
                plan(7, 3, "sync = [2]", on),
                Some("it places partition 0 otherwise"),
            ),
            (
                plan(7, 3, "learners = [2]", ""),
                Some("failover, lease_ms, grace_ms or min_sync"),
            ),
            (
                plan(7, 3, "learners = [2]", "failover = true\ngrace_ms = 4000"),
                Some("failover, lease_ms, grace_ms or min_sync"),
            ),
            (
                plan(
                    7,
                    3,
                    "learners = [2]",
                    "failover = true\nbacklog_bytes_max = 1",
                ),
                None,
            ),
            // As an etcd that was restored has it.
            (plan(8, 3, "sync = [2]", ""), None),
        ] {
            match (may_replace(&file, &there), named) {
                (Ok(()), None) => {}
                (Err(cause), Some(named)) if cause.contains(named) => {}
                (other, named) => panic!("{other:?}, and not {named:?}"),
            }
        }
    }

    #[test]
    fn a_new_cluster_is_written_once() {
        use std::os::unix::fs::PermissionsExt;
        let unique = format!("penstock-new-cluster-{}", std::process::id());
        let folder = std::env::temp_dir().join(unique);
        fs::create_dir_all(&folder).expect("made");
        let path = folder.join("new.toml");
        let node = |number: u8| {
            let links = SocketAddr::from(([127, 0, 0, 1], 7000 + u16::from(number)));
            let resp = (number == 2).then(|| "host-2:7413".to_string());
            NewNode {
                number,
                links,
                clients: format!("host-{number}:7411"),
                resp,
                resp_ports: None,
            }
        };
        let nodes = [node(1), node(2), node(5)];
        make_cluster(&path, &nodes).expect("made");
        let draft = Draft::read(&PlanPlace::File(path.clone()), "a test").expect("good");
        assert_eq!(draft.nodes(), [1, 2, 5]);
        assert_eq!(draft.waited_for(&[0, 255]), (vec![2, 5], false));
        assert!(
            fs::read_to_string(&path)
                .expect("there")
                .contains("resp = \"host-2:7413\"")
        );
        let secret = path.with_file_name("new.toml.secret");
        let before = fs::read(&secret).expect("there");
        assert!(before.len() > 64);
        let mode = fs::metadata(&secret).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(make_cluster(&path, &nodes).is_err());
        fs::remove_file(&secret).expect("removed");
        assert!(make_cluster(&path, &nodes).is_err(), "the file is there");
        assert!(!secret.exists(), "and nothing else is left");
        let twice = make_cluster(&path.with_file_name("other.toml"), &[node(1), node(1)]);
        assert!(twice.is_err());
        assert!(!path.with_file_name("other.toml").exists());
        fs::remove_dir_all(&folder).expect("removed");
    }
}
