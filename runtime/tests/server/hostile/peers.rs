//! Peers that ask for much, stall, vanish or are many, beside peers that behave.

use super::*;

#[test]
fn a_client_is_answered_beside_twenty_connections_that_ask_for_much_and_read_nothing() {
    let folder = Folder::new("hogs");
    // Nobody is ended in time to make room.
    let flags = ["--memory-max", "512MiB", "--write-stall-timeout-ms", "10m"];
    let server = Server::start(&folder.0, &flags);
    let client = server.client();
    let keys: Vec<Vec<u8>> = (0..16u8).map(|number| vec![b'k', number]).collect();
    for key in &keys {
        client.set(key, &[7; 64 << 10]).wait().expect("set");
    }
    let mut hogs = Vec::new();
    for _ in 0..20 {
        let mut hog = Raw::greeted(server.address);
        let patience = Some(Duration::from_millis(200));
        hog.stream.set_write_timeout(patience).expect("a socket");
        for id in 0..2_000 {
            let mut frame = Vec::new();
            let mut batch = BatchRequest::begin(&mut frame, id, AckLevel::None, 0, 1);
            batch.get(
                &mut frame,
                &keys[usize::try_from(id).expect("small") % keys.len()],
            );
            batch.finish(&mut frame);
            if hog.stream.write_all(&frame).is_err() {
                break;
            }
        }
        hogs.push(hog);
    }
    for round in 0..50 {
        for key in &keys {
            let found = client.get(key).wait();
            let value = found.unwrap_or_else(|error| panic!("round {round}: {error}"));
            assert_eq!(value.expect("present").bytes.len(), 64 << 10);
        }
    }
}

#[test]
fn a_steady_reader_of_200_kb_a_second_gets_all_its_replies() {
    const RATE: usize = 200_000;
    const GETS: u64 = 64;
    for io in ["auto", "threads"] {
        let folder = Folder::new(&format!("steady-{io}"));
        let flags = [
            "--shards",
            "1",
            "--io",
            io,
            "--write-stall-timeout-ms",
            "3s",
        ];
        let server = Server::start(&folder.0, &flags);
        let client = server.client();
        client.set(b"k", &[7; 64 << 10]).wait().expect("set");
        let mut slow = Raw::greeted(server.address);
        for id in 0..GETS {
            let mut frame = Vec::new();
            let mut batch = BatchRequest::begin(&mut frame, id, AckLevel::None, 0, 1);
            batch.get(&mut frame, b"k");
            batch.finish(&mut frame);
            slow.say(&frame);
        }
        // Long enough for a kernel that takes more only when a third of its buffer is free.
        let mut chunk = [0; RATE / 20];
        for _ in 0..20 * 7 {
            slow.stream
                .read_exact(&mut chunk)
                .expect("more of the replies");
            slow.bytes.extend_from_slice(&chunk);
            std::thread::sleep(Duration::from_millis(50));
        }
        for id in 0..GETS {
            let (header, _) = slow.receive().expect("a reply");
            assert_eq!(header.request_id, id);
        }
    }
}

#[test]
fn a_connection_too_many_is_answered_with_the_limit_and_closed() {
    let folder = Folder::new("too-many");
    // Whichever cores they come to.
    let server = Server::start(&folder.0, &["--shards", "2", "--connections-max", "5"]);
    let mut open = [(); 5].map(|()| Raw::greeted(server.address));
    for says_hello in [true, false] {
        let mut refused = Raw::new(server.address);
        if says_hello {
            refused.say(&hello());
        }
        refused.gets_refusal(Status::Busy, &["at most 5", "connections_max"]);
        assert!(refused.receive().is_none());
    }
    open.iter_mut().for_each(Raw::still_works);
}

#[test]
fn peers_that_stall_are_cut_off_and_nobody_waits_for_them() {
    let folder = Folder::new("stall");
    let flags = [
        "--shards",
        "1",
        "--partial-frame-timeout-ms",
        "300ms",
        "--write-stall-timeout-ms",
        "500ms",
        "--output-bytes-max",
        "2MiB",
    ];
    let server = Server::start(&folder.0, &flags);
    // A byte now and then: the frame is not whole in time.
    let mut slow = Raw::greeted(server.address);
    let frame = ping(b"12345678");
    let began = Instant::now();
    for byte in frame.chunks(1) {
        slow.say(byte);
        std::thread::sleep(Duration::from_millis(60));
    }
    assert!(
        slow.receive().is_none(),
        "still open after {:?}",
        began.elapsed()
    );

    // A frame that is only skipped gets the same time.
    let mut slow = Raw::greeted(server.address);
    slow.say(&ping(&vec![0; 3 << 20])[..4096]);
    slow.gets_refusal(Status::TooLarge, &["3145760"]);
    let began = Instant::now();
    assert!(slow.receive().is_none(), "still open");
    assert!(
        began.elapsed() < Duration::from_secs(10),
        "it ended by itself"
    );

    // Never reads: asks for far more than it may have waiting.
    let client = server.client();
    client.set(b"page", &vec![7; 60_000]).wait().expect("set");
    let before = server.resident_kib();
    let mut deaf = Raw::greeted(server.address);
    deaf.stream
        .set_write_timeout(Some(Duration::from_millis(200)))
        .expect("a socket");
    let mut frame = Vec::new();
    let mut batch = BatchRequest::begin(&mut frame, 9, AckLevel::Disk, 0, 16);
    (0..16).for_each(|_| batch.get(&mut frame, b"page"));
    batch.finish(&mut frame);
    for _ in 0..400 {
        if deaf.stream.write_all(&frame).is_err() {
            break;
        }
        server.serves_on();
    }
    let grown = server.resident_kib().saturating_sub(before);
    assert!(
        grown < 64 << 10,
        "the server took {grown} KiB for a peer that never reads"
    );
    // It is cut off before it reads a byte, however late a busy machine comes to that.
    let until = Instant::now() + Duration::from_secs(60);
    while server.connections(&client) > 1 {
        assert!(Instant::now() < until, "the deaf peer was never cut off");
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut chunk = vec![0; 1 << 20];
    // What the kernel held is still there to be read; behind it is the end.
    while let Ok(1..) = deaf.stream.read(&mut chunk) {}
    server.serves_on();
}

#[test]
fn a_client_that_vanishes_mid_batch_leaves_whole_operations_only() {
    let folder = Folder::new("vanish");
    let server = Server::start(&folder.0, &["--shards", "1"]);
    let client = server.client();
    let pair = [&b"{p}a"[..], &b"{p}b"[..]];
    pair.iter()
        .for_each(|key| drop(client.set(key, &0u64.to_le_bytes()).wait().expect("set")));
    for round in 1..40u64 {
        let mut raw = Raw::greeted(server.address);
        let mut frame = Vec::new();
        let mut batch = BatchRequest::begin(&mut frame, round, AckLevel::Disk, 0, 64);
        let both = [
            Field::u64(0).set(round),
            Field::u64(0).of_second_key().set(round),
        ];
        (0..64).for_each(|_| batch.update_if(&mut frame, pair[0], Some(pair[1]), &both, None));
        batch.finish(&mut frame);
        raw.say(&frame);
    }
    let read = |key| client.get(key).wait().expect("get").expect("present");
    // Operations that were sent may still run. Between two equal reads of the first key there was
    // none.
    let mut reads = 0;
    let (first, second) = loop {
        let (first, second, again) = (read(pair[0]), read(pair[1]), read(pair[0]));
        if first == again {
            break (first, second);
        }
        reads += 1;
        assert!(reads < 10_000, "nothing is sent any more");
    };
    let bytes = [first.bytes, second.bytes];
    assert_eq!(bytes[0], bytes[1], "two keys of one operation agree");
}

#[test]
fn thousands_of_idle_connections_cost_little_and_disturb_nobody() {
    crate::process::raise_open_files();
    let folder = Folder::new("idle");
    let server = Server::start(&folder.0, &["--shards", "1"]);
    let before = server.resident_kib();
    let mut idle = Vec::new();
    for _ in 0..5_000 {
        match TcpStream::connect(server.address) {
            Ok(stream) => idle.push(stream),
            Err(error) => {
                println!("only {} idle connections: {error}", idle.len());
                break;
            }
        }
    }
    if idle.len() < 500 {
        println!("skipped: the limit of open files leaves this test too few of them");
        return;
    }
    for stream in &mut idle {
        stream.write_all(&hello()).expect("sent");
    }
    server.serves_on();
    let grown = server.resident_kib().saturating_sub(before);
    println!("{} idle connections: {grown} KiB more", idle.len());
    assert!(
        grown / idle.len() as u64 <= 32,
        "{grown} KiB for {} connections",
        idle.len()
    );
}
