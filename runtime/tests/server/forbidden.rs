//! The real server where a filter of the kernel forbids system calls, as containers have it.
#![expect(unsafe_code, reason = "a filter of a child process")]

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use penstock_client::Verbs;

use crate::command::command;
use crate::process::Server;
use crate::scratch;

/// Has the command run where these calls are refused with EPERM.
fn forbid(command: &mut Command, calls: &[libc::c_long]) {
    let instruction = |code: u32, jump_if: u8, k: u32| libc::sock_filter {
        code: u16::try_from(code).unwrap(),
        jt: jump_if,
        jf: 0,
        k,
    };
    let number_of_call = instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0);
    let mut program = vec![number_of_call];
    for (at, call) in calls.iter().enumerate() {
        // To the last instruction, past the comparisons that are left and the allowance.
        let jump = u8::try_from(calls.len() - at).unwrap();
        let compare = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
        program.push(instruction(compare, jump, u32::try_from(*call).unwrap()));
    }
    let errno = u32::try_from(libc::EPERM).unwrap();
    let answer = libc::BPF_RET | libc::BPF_K;
    program.push(instruction(answer, 0, libc::SECCOMP_RET_ALLOW));
    program.push(instruction(answer, 0, libc::SECCOMP_RET_ERRNO | errno));
    // SAFETY: between fork and exec the child makes two system calls on numbers and on a structure
    // of its own stack, which points into memory that the closure owns; it takes nothing from the
    // heap.
    unsafe {
        command.pre_exec(move || {
            let filter = libc::sock_fprog {
                len: u16::try_from(program.len()).unwrap_or(0),
                filter: program.as_ptr().cast_mut(),
            };
            let is_set = libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(
                    libc::PR_SET_SECCOMP,
                    libc::SECCOMP_MODE_FILTER,
                    &raw const filter,
                ) == 0;
            match is_set {
                true => Ok(()),
                false => Err(std::io::Error::last_os_error()),
            }
        });
    }
}

/// A start that ends or serves; `None` where the kernel takes no filter.
fn serve(name: &str, options: &[&str], calls: &[libc::c_long]) -> Option<Command> {
    let data = scratch::folder(name);
    let mut serve = command(&["serve", "--listen", "127.0.0.1:0", "--shard-ports", "0"]);
    serve.args([
        "--shards",
        "1",
        "--cache-bytes",
        "16MiB",
        "--resp-listen",
        "off",
    ]);
    serve.args(["--segment-bytes", "4MiB", "--value-bytes-max", "64KiB"]);
    serve.args(options).arg("--data").arg(&data);
    forbid(&mut serve, calls);
    let mut tried = Command::new("true");
    forbid(&mut tried, calls);
    if tried.status().is_err() {
        println!("SKIPPED: the kernel takes no filter of system calls");
        return None;
    }
    Some(serve)
}

/// A server that serves, and what it has said until then.
fn start(serve: &mut Command) -> (Server, String) {
    let mut process = serve.stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let mut lines = lines.map_while(Result::ok);
    let banner: Vec<String> = lines.by_ref().take_while(|line| line != "ready").collect();
    std::thread::spawn(move || lines.for_each(drop));
    let address = banner.iter().find_map(|line| {
        let rest = line.strip_prefix("listening")?;
        rest.split_whitespace().next()?.parse().ok()
    });
    let banner = banner.join("\n");
    let address = address.unwrap_or_else(|| panic!("it does not serve: {banner}"));
    (Server { process, address }, banner)
}

#[test]
fn rings_that_may_be_made_and_not_used_give_way_to_threads_with_the_reason_or_refuse_by_name() {
    let off = ["--admin-listen", "off"];
    for (name, call) in [
        ("forbidden-setup", libc::SYS_io_uring_setup),
        ("forbidden-enter", libc::SYS_io_uring_enter),
    ] {
        let Some(mut auto) = serve(name, &off, &[call]) else {
            return;
        };
        let (server, banner) = start(&mut auto);
        let client = server.client();
        client.set(b"key", b"value").wait().unwrap();
        let info = client.info().wait().unwrap();
        let info: serde_json::Value = serde_json::from_str(&info).unwrap();
        assert_eq!(info["io"], "threads");
        server.stop();
        assert!(
            banner.contains("io_uring is forbidden by a seccomp filter"),
            "{name}: {banner}"
        );
        let demanded = [&off[..], &["--io", "uring"]].concat();
        let refused = serve(name, &demanded, &[call]).unwrap().output().unwrap();
        let printed = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(2), "{printed}");
        assert!(
            printed.contains("--io uring: io_uring is forbidden by a seccomp filter"),
            "{printed}"
        );
    }
}

#[test]
fn a_thread_that_cannot_be_made_is_reported_as_that_and_not_as_what_it_was_for() {
    for options in [
        &["--admin-listen", "127.0.0.1:0"][..],
        &["--admin-listen", "off"],
    ] {
        let Some(mut serve) = serve("forbidden-threads", options, &[libc::SYS_clone3]) else {
            return;
        };
        let refused = serve.output().unwrap();
        let printed = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(2), "{printed}");
        assert!(printed.contains("cannot make a thread: "), "{printed}");
        assert!(printed.contains("seccomp=deploy/seccomp.json"), "{printed}");
        assert!(!printed.contains("listen on"), "{printed}");
    }
}
