//! Who may reach a server: the one rule, at each of its listeners.

use super::*;

fn refusal(folder: &Folder, flags: &[&str]) -> String {
    let output = command(folder, flags).output().expect("the server");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{text}");
    text
}

#[test]
fn each_listener_that_others_can_reach_is_refused_by_name_without_insecure() {
    let folder = Folder::new("reach");
    for option in ["--listen", "--resp-listen", "--admin-listen"] {
        for address in ["0.0.0.0:0", "[::]:0"] {
            let printed = refusal(&folder, &[option, address]);
            assert!(
                printed.contains(option) && printed.contains(address),
                "{printed}"
            );
            assert!(printed.contains("--insecure"), "{printed}");
        }
    }
    let authority = Authority::new("ca");
    let [certificate, key] = folder.put_pair(&authority.signs("server"));
    let tls = ["--tls-cert", &certificate, "--tls-key", &key];
    let printed = refusal(&folder, &[&tls[..], &["--listen", "0.0.0.0:0"]].concat());
    assert!(
        printed.contains("it lacks users") && !printed.contains("TLS ("),
        "{printed}"
    );
}

#[test]
fn what_insecure_opens_is_reported_by_banner_log_and_metric() {
    let folder = Folder::new("insecure");
    let server = Server::run(&folder, &["--insecure"]);
    let is_reported = server
        .banner
        .lines()
        .any(|line| line.starts_with("insecure"));
    assert!(!is_reported, "{}", server.banner);
    assert_eq!(server.number("penstock_insecure_listeners"), 0.0);
    drop(server);
    let flags = [
        "--insecure",
        "--listen",
        "0.0.0.0:0",
        "--resp-listen",
        "0.0.0.0:0",
    ];
    let server = Server::run(&folder, &flags);
    let printed = server
        .banner
        .lines()
        .find(|line| line.starts_with("insecure"));
    let printed = printed.expect("a line of the banner");
    for word in ["listen 0.0.0.0:", "resp_listen 0.0.0.0:"] {
        assert!(printed.contains(word), "{printed}");
    }
    assert_eq!(server.number("penstock_insecure_listeners"), 2.0);
    server.until_logged(&["WARN", "insecure", "resp_listen"]);
}

#[test]
fn links_that_other_machines_can_reach_need_insecure() {
    let folder = Folder::new("links");
    let file = folder.path("cluster.toml");
    let made = crate::command::program(env!("CARGO_BIN_EXE_penstock"))
        .args(["cluster", "init", "--file", &file])
        .args(["--node", "1,10.255.255.1:7991,127.0.0.1:7992"])
        .output()
        .expect("the command");
    assert!(made.status.success(), "{made:?}");
    let flags = ["--cluster", &file, "--cluster-node", "1", "--cluster-new"];
    let printed = refusal(&folder, &flags);
    assert!(
        printed.contains("links 10.255.255.1:7991") && printed.contains("--insecure"),
        "{printed}"
    );
}
