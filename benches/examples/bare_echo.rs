//! A bare echo server on monoio: bytes in, bytes out, no frames, no store. The limit that the
//! workload echo is compared with.
//!
//! `cargo run --release -p penstock-benches --example bare_echo -- PORT CPU`, then `penstock bench
//! echo --raw --addr 127.0.0.1:PORT`. It ends when it is killed, or after ten minutes.

use std::time::Duration;

use monoio::io::{AsyncReadRent, AsyncWriteRentExt};
use monoio::net::TcpListener;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let port: u16 = arguments
        .next()
        .and_then(|port| port.parse().ok())
        .unwrap_or(7499);
    let cpu: usize = arguments
        .next()
        .and_then(|cpu| cpu.parse().ok())
        .unwrap_or(0);
    core_affinity::set_for_current(core_affinity::CoreId { id: cpu });
    let mut ring = io_uring06::IoUring::builder();
    ring.setup_single_issuer()
        .setup_coop_taskrun()
        .setup_submit_all()
        .setup_cqsize(16_384);
    let built = monoio::RuntimeBuilder::<monoio::IoUringDriver>::new()
        .uring_builder(ring)
        .with_entries(4096)
        .enable_timer()
        .build();
    let mut runtime = built.expect("io_uring is needed for this comparison");
    runtime.block_on(async move {
        let listener = TcpListener::bind(("127.0.0.1", port)).expect("the port is free");
        println!("echoing on 127.0.0.1:{port}, CPU {cpu}");
        monoio::spawn(async {
            monoio::time::sleep(Duration::from_secs(600)).await;
            std::process::exit(0);
        });
        loop {
            let Ok((mut stream, _)) = listener.accept().await else {
                continue;
            };
            let _ = stream.set_nodelay(true);
            monoio::spawn(async move {
                let mut buffer = Vec::with_capacity(64 << 10);
                loop {
                    let (read, filled) = stream.read(buffer).await;
                    let Ok(1..) = read else { return };
                    let (written, sent) = stream.write_all(filled).await;
                    if written.is_err() {
                        return;
                    }
                    buffer = sent;
                    buffer.clear();
                }
            });
        }
    });
}
