//! Rights at the real server with two shards: what `penstock user` writes holds on every core, over
//! both ports, and on connections that are open.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use penstock_client::{Client, ClientError, ClientOptions, Identity, Secret, Verbs};
use penstock_net::status::Status;

use crate::cluster::nodes::free_address;
use crate::command::command;
use crate::process::Server;
use crate::scratch;

/// Longer than any answer and any change of the file takes.
const PATIENCE: Duration = Duration::from_secs(60);
/// Keys of both shards.
const KEYS: usize = 40;

fn user(file: &Path, words: &[&str]) -> String {
    let mut user = command(&[&["user"], words].concat());
    let output = user.env("PENSTOCK_USERS", file).output().expect("it runs");
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout)
        .expect("text")
        .trim_end()
        .to_string()
}

fn connect(server: &Server, name: &str, secret: &str) -> Client {
    let secret = Secret::new(secret.as_bytes().to_vec()).expect("a secret");
    let options = ClientOptions {
        deadline: PATIENCE,
        identity: Some(Identity::new(name, secret).expect("a login")),
        ..ClientOptions::default()
    };
    Client::connect(server.address, options).expect("it lets the user in")
}

/// The status of a GET; OK for a value or for none.
fn status_of(client: &Client, key: &str) -> Status {
    match client.get(key.as_bytes()).wait() {
        Ok(_) => Status::Ok,
        Err(ClientError::Refused(answer)) => answer.status,
        Err(error) => panic!("{key}: {error}"),
    }
}

fn say(stream: &mut TcpStream, text: &str) -> String {
    stream.write_all(text.as_bytes()).expect("sent");
    let mut bytes = [0; 4096];
    let len = stream.read(&mut bytes).expect("an answer");
    String::from_utf8_lossy(&bytes[..len]).into_owned()
}

#[test]
fn rights_hold_on_every_shard_over_both_ports_and_a_change_reaches_open_connections() {
    let folder = scratch::folder("user-rights");
    fs::create_dir_all(&folder).expect("a folder");
    let file = folder.join("users");
    let till = user(&file, &["add", "till", "--key", "one"]);
    let ann = user(&file, &["add", "ann"]);
    user(&file, &["grant", "ann", "read", ""]);
    user(&file, &["grant", "till", "write", "order:"]);
    user(&file, &["grant", "till", "read", "stock:"]);
    let resp = free_address();
    let mut serve = command(&["serve", "--listen", "127.0.0.1:0", "--shard-ports", "0"]);
    serve.args(["--admin-listen", "off", "--resp-listen", &resp.to_string()]);
    serve.args(["--shards", "2"]);
    serve
        .arg("--users")
        .arg(&file)
        .arg("--data")
        .arg(folder.join("data"));
    let server = Server::start(&mut serve);

    let client = connect(&server, "till/one", &till);
    let reader = connect(&server, "ann", &ann);
    for number in 0..KEYS {
        let (order, stock) = (format!("order:{number}"), format!("stock:{number}"));
        client
            .set(order.as_bytes(), b"1")
            .wait()
            .expect("it may write");
        let refused = client
            .set(stock.as_bytes(), b"1")
            .wait()
            .expect_err("it may not");
        let reply = refused.to_string();
        assert!(
            reply.contains("user till has no right to write at"),
            "{reply}"
        );
        assert_eq!(status_of(&client, &order), Status::Denied);
        assert_eq!(status_of(&client, &stock), Status::Ok);
        assert_eq!(status_of(&reader, &order), Status::Ok);
        reader
            .set(order.as_bytes(), b"2")
            .wait()
            .expect_err("she may not write");
    }

    let mut stream = TcpStream::connect(resp).expect("the port of RESP");
    stream.set_read_timeout(Some(PATIENCE)).expect("set");
    let reply = say(&mut stream, &format!("AUTH till/one {till}\r\n"));
    assert_eq!(reply, "+OK\r\n");
    let denied = "-NOPERM No permissions to access a key\r\n";
    for number in 0..KEYS {
        assert_eq!(say(&mut stream, &format!("GET order:{number}\r\n")), denied);
        assert_eq!(
            say(&mut stream, &format!("GET stock:{number}\r\n")),
            "$-1\r\n"
        );
        assert_eq!(
            say(&mut stream, &format!("SET order:{number} 1\r\n")),
            "+OK\r\n"
        );
    }
    let reply = say(&mut stream, "INFO\r\n");
    assert!(
        reply.starts_with("-NOPERM User till has no permissions"),
        "{reply}"
    );

    user(&file, &["revoke", "till", "read", "stock:"]);
    let until = Instant::now() + PATIENCE;
    while status_of(&client, "stock:1") != Status::Denied {
        assert!(Instant::now() < until, "the right is still there");
        std::thread::sleep(Duration::from_millis(20));
    }
    while say(&mut stream, "GET stock:1\r\n") != denied {
        assert!(Instant::now() < until, "the right is still there over RESP");
        std::thread::sleep(Duration::from_millis(20));
    }
    user(&file, &["grant", "till", "admin", ""]);
    while say(&mut stream, "DBSIZE\r\n").starts_with("-NOPERM") {
        // DBSIZE needs to read all keys.
        user(&file, &["grant", "till", "read", ""]);
        assert!(Instant::now() < until, "the right is not there");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(say(&mut stream, "CONFIG GET maxmemory\r\n").starts_with('*'));
    server.stop();
}
