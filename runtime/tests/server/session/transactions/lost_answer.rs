//! A commit whose answer never comes: its token tells what became of it, also behind a kill.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use penstock_client::{Changed, ClientError, new_token};

use super::*;

/// A way to the server that can lose all answers.
#[derive(Clone)]
struct Way {
    to: Arc<Mutex<SocketAddr>>,
    loses: Arc<AtomicBool>,
    address: SocketAddr,
}

impl Way {
    fn to(server: &Server) -> Way {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let to = server.address.parse().expect("an address");
        let way = Way {
            to: Arc::new(Mutex::new(to)),
            loses: Arc::default(),
            address: listener.local_addr().expect("bound"),
        };
        let served = way.clone();
        std::thread::spawn(move || {
            for near in listener.incoming().flatten() {
                let to = *served.to.lock().expect("no panic");
                let Ok(far) = TcpStream::connect(to) else {
                    continue;
                };
                let back = (far.try_clone().expect("fd"), near.try_clone().expect("fd"));
                let loses = Arc::clone(&served.loses);
                std::thread::spawn(move || pass(near, far, None));
                std::thread::spawn(move || pass(back.0, back.1, Some(loses)));
            }
        });
        way
    }
}

/// Passes bytes on until one side ends.
fn pass(mut from: TcpStream, mut to: TcpStream, loses: Option<Arc<AtomicBool>>) {
    let mut chunk = [0; 4096];
    while let Ok(read @ 1..) = from.read(&mut chunk) {
        let is_lost = loses.as_ref().is_some_and(|it| it.load(Ordering::SeqCst));
        if !is_lost && to.write_all(&chunk[..read]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Both);
    let _ = from.shutdown(std::net::Shutdown::Both);
}

#[test]
fn a_commit_with_a_token_is_resolved_behind_a_kill_and_one_without_says_unknown() {
    let directory = folder("session-transactions-lost");
    let flags = ["--shards", "1"];
    let server = Server::start(&directory, &flags);
    let direct = client(&server);
    let way = Way::to(&server);
    let short = ClientOptions {
        deadline: Duration::from_secs(3),
        ..options()
    };
    let client = Client::connect(way.address, short).expect("it is ready");
    write(&direct, b"{x}a", 1);
    let add_one = |token| {
        let mut own = client.begin(Isolation::Serializable);
        if let Some(token) = token {
            own = own.named(token);
        }
        let a = own.get(b"{x}a").wait().expect("read").expect("present");
        let more = number(&a.bytes) + 1;
        own.set(b"{x}a", &more.to_le_bytes()).expect("set");
        way.loses.store(true, Ordering::SeqCst);
        let outcome = own.commit().wait();
        way.loses.store(false, Ordering::SeqCst);
        match outcome {
            Err(TransactionError::Store(ClientError::Unknown(unknown))) => unknown,
            other => panic!("{other:?}"),
        }
    };
    let becomes = |value| {
        let is_there = |_: &usize| {
            std::thread::sleep(Duration::from_millis(10));
            read(&direct, b"{x}a") == value
        };
        assert!((0..6_000).any(|it| is_there(&it)), "it was executed");
    };
    let unknown = add_one(None);
    assert_eq!((unknown.token(), unknown.write()), (None, None));
    becomes(2);

    let token = new_token().expect("random");
    let unknown = add_one(Some(token));
    assert_eq!(unknown.token(), Some(token));
    becomes(3);
    drop(direct);
    // Dropping it is a SIGKILL.
    drop(server);
    let server = Server::start(&directory, &flags);
    *way.to.lock().expect("no panic") = server.address.parse().expect("an address");
    let write = unknown.write().expect("it had a token");
    let mut resolved = client.resolve::<Changed>(write).wait();
    for _ in 0..20 {
        if resolved.is_ok() {
            break;
        }
        // The connection is made anew.
        std::thread::sleep(Duration::from_millis(100));
        resolved = client.resolve::<Changed>(write).wait();
    }
    assert!(resolved.expect("resolved").is_replayed);
    assert_eq!(read(&client, b"{x}a"), 3);
    drop(client);
    assert_eq!(server.stop(), Some(0));
    std::fs::remove_dir_all(&directory).unwrap();
}
