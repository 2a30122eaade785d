//! What differs from Valkey on purpose: the one list. Each is a row of RESP.md.

use std::cell::Cell;

use super::commands::Words;

/// A command, and what both servers answered.
pub(crate) struct Replies<'a> {
    /// What the same read had before it.
    pub(crate) before: &'a [Words],
    pub(crate) command: &'a Words,
    pub(crate) ours: &'a [u8],
    pub(crate) theirs: &'a [u8],
}

/// A difference that stays.
pub(crate) struct Difference {
    /// Its row in the table "Compared with Valkey" of RESP.md.
    pub(crate) what: &'static str,
    /// Whether the two servers may have other keys behind it.
    pub(crate) leaves_another_state: bool,
    is_it: fn(&Replies<'_>) -> bool,
}

/// All differences.
pub(crate) const DIFFERENCES: &[Difference] = &[
    Difference {
        what: "what is left of a lifetime",
        leaves_another_state: false,
        is_it: about_as_late,
    },
    Difference {
        what: "the order of KEYS and SCAN",
        leaves_another_state: false,
        is_it: |replies| {
            let name = replies.command[0].to_ascii_lowercase();
            let is_listed = name == b"keys" || name == b"scan";
            replies.ours != replies.theirs
                && is_listed
                && lines(replies.ours) == lines(replies.theirs)
        },
    },
    Difference {
        what: "the order of the fields of a hash",
        leaves_another_state: false,
        is_it: |replies| {
            let names: [&[u8]; 4] = [b"HGETALL", b"HKEYS", b"HVALS", b"HSCAN"];
            let lists = |command: &Words| names.contains(&&command[0].to_ascii_uppercase()[..]);
            replies.ours != replies.theirs
                && ran(replies).any(lists)
                && lines(replies.ours) == lines(replies.theirs)
        },
    },
    Difference {
        what: "the order of the members of a set in a table",
        leaves_another_state: false,
        is_it: |replies| {
            let names: [&[u8]; 7] = [
                b"SMEMBERS",
                b"SUNION",
                b"SINTER",
                b"SDIFF",
                b"SSCAN",
                b"SPOP",
                b"SRANDMEMBER",
            ];
            let lists = |command: &Words| {
                let name = command[0].to_ascii_uppercase();
                // A script of RESP3 has a set in a table of Lua.
                names.contains(&&name[..]) || name.starts_with(b"EVAL") && has(replies.ours, b"~")
            };
            replies.ours != replies.theirs
                && ran(replies).any(lists)
                && lines(replies.ours) == lines(replies.theirs)
        },
    },
    Difference {
        what: "an expiry is at most 2^48 - 1 milliseconds",
        leaves_another_state: true,
        is_it: |replies| {
            let is_late = ran(replies)
                .flat_map(expiries)
                .any(|expiry| expiry > 1 << 40);
            let refused = b"-ERR invalid expire time in";
            let count = |reply: &[u8]| {
                reply
                    .windows(refused.len())
                    .filter(|it| it == refused)
                    .count()
            };
            is_late && count(replies.ours) > count(replies.theirs)
        },
    },
    Difference {
        what: "ENCODING follows from the value",
        leaves_another_state: false,
        is_it: |replies| {
            let is_name = |name: &[u8]| matches!(name, b"raw\r" | b"embstr\r" | b"int\r");
            let is_len = |line: &[u8]| matches!(line, b"$3\r" | b"$6\r");
            differs_in_lines(replies, |ours, theirs| {
                is_name(ours) && is_name(theirs) || is_len(ours) && is_len(theirs)
            })
        },
    },
    Difference {
        what: "when a long list is a listpack again",
        leaves_another_state: false,
        is_it: |replies| {
            let is_name = |name: &[u8]| matches!(name, b"listpack\r" | b"quicklist\r");
            let is_len = |line: &[u8]| matches!(line, b"$8\r" | b"$9\r");
            differs_in_lines(replies, |ours, theirs| {
                is_name(ours) && is_name(theirs) || is_len(ours) && is_len(theirs)
            })
        },
    },
    Difference {
        what: "digits behind the point",
        leaves_another_state: true,
        is_it: |replies| {
            let float = |line: &[u8]| {
                std::str::from_utf8(line)
                    .ok()?
                    .trim_end()
                    .parse::<f64>()
                    .ok()
            };
            differs_in_lines(replies, |ours, theirs| match (float(ours), float(theirs)) {
                (Some(ours), Some(theirs)) => (ours - theirs).abs() <= ours.abs() * 1e-15,
                _ => ours.starts_with(b"$") && theirs.starts_with(b"$"),
            })
        },
    },
    Difference {
        what: "a SET that has expired already is a change",
        leaves_another_state: true,
        is_it: |replies| {
            let is_none = replies.ours == b"_\r\n" || replies.ours == b"*-1\r\n";
            let is_past = |command: &Words| {
                let is_set = command[0].eq_ignore_ascii_case(b"set");
                is_set && expiries(command).any(|expiry| expiry < 1 << 30)
            };
            is_none && replies.theirs.starts_with(b"*") && replies.before.iter().any(is_past)
        },
    },
    Difference {
        what: "a number has at most 21 digits in front of the point",
        leaves_another_state: true,
        is_it: |replies| {
            let refused = b"-ERR value is out of range: a number has at most 21 digits";
            has(replies.ours, refused)
        },
    },
    Difference {
        what: "REFCOUNT is 1",
        leaves_another_state: false,
        is_it: |replies| {
            let ran = ran(replies).any(|command| {
                let subcommand = command.get(1).map_or(&[][..], |word| &word[..]);
                subcommand.eq_ignore_ascii_case(b"refcount")
            });
            ran && differs_in_lines(replies, |ours, theirs| ours == b":1\r" && theirs == b":2\r")
        },
    },
    Difference {
        what: "a bit beyond the longest value",
        leaves_another_state: false,
        is_it: |replies| {
            let refused = b"-ERR bit offset is not an integer or out of range\r";
            let is_read = |ours: &[u8]| ours == b":0\r" || ours.starts_with(b"-WRONGTYPE ");
            differs_in_lines(replies, |ours, theirs| is_read(ours) && theirs == refused)
        },
    },
    Difference {
        what: "a key has 1 to 1024 bytes",
        leaves_another_state: true,
        is_it: |replies| has(replies.ours, b"-ERR a key has 1 to 1024 bytes\r"),
    },
    Difference {
        what: "the reply of a script has at most 128 levels",
        leaves_another_state: true,
        is_it: |replies| {
            let refused = b"-ERR the reply of the script is nested deeper than 128 levels";
            has(replies.ours, refused)
        },
    },
    Difference {
        what: "a script that fails leaves nothing",
        leaves_another_state: true,
        is_it: |replies| replies.ours == replies.theirs && has(replies.ours, b" script:"),
    },
];

/// The difference that it is, if RESP.md names one.
pub(crate) fn explained(replies: &Replies<'_>) -> Option<&'static Difference> {
    DIFFERENCES
        .iter()
        .find(|difference| (difference.is_it)(replies))
}

/// Whether `text` stands in a reply.
fn has(reply: &[u8], text: &[u8]) -> bool {
    reply.windows(text.len()).any(|it| it == text)
}

/// The lines of a reply in order.
fn lines(reply: &[u8]) -> Vec<&[u8]> {
    let mut lines: Vec<&[u8]> = reply.split(|byte| *byte == b'\n').collect();
    lines.sort_unstable();
    lines
}

fn number(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text).ok()?.trim_end().parse().ok()
}

/// Whether the replies have as many lines, and each pair of lines that differ is as `may` says.
fn differs_in_lines(replies: &Replies<'_>, may: impl Fn(&[u8], &[u8]) -> bool) -> bool {
    let lines = |reply: &[u8]| -> Vec<Vec<u8>> {
        reply
            .split(|byte| *byte == b'\n')
            .map(<[u8]>::to_vec)
            .collect()
    };
    let (ours, theirs) = (lines(replies.ours), lines(replies.theirs));
    let mut pairs = ours
        .iter()
        .zip(&theirs)
        .filter(|(ours, theirs)| ours != theirs);
    replies.ours != replies.theirs
        && ours.len() == theirs.len()
        && pairs.all(|(ours, theirs)| may(ours, theirs))
}

/// The commands that a reply may be about: of EXEC those before it.
fn ran<'a>(replies: &Replies<'a>) -> impl Iterator<Item = &'a Words> {
    let is_exec = replies.command[0].eq_ignore_ascii_case(b"exec");
    let before = if is_exec { replies.before } else { &[] };
    before.iter().chain([replies.command])
}

/// What a command gives as an expiry or a lifetime, in the place of one.
fn expiries(command: &Words) -> impl Iterator<Item = i64> {
    let is_of = |word: &[u8], names: &[&[u8]]| names.contains(&&word.to_ascii_uppercase()[..]);
    let names: [&[u8]; 6] = [
        b"EXPIRE",
        b"PEXPIRE",
        b"EXPIREAT",
        b"PEXPIREAT",
        b"SETEX",
        b"PSETEX",
    ];
    let third = command.get(2).filter(|_| is_of(&command[0], &names));
    let options = command.windows(2).filter_map(move |pair| {
        let is_option = is_of(&pair[0], &[b"EX", b"PX", b"EXAT", b"PXAT"]);
        is_option.then_some(&pair[1])
    });
    let all = third.into_iter().chain(options);
    all.filter_map(|word| number(word))
}

/// Whether a command tells a time, or what is left of a lifetime.
fn replies_with_time(command: &Words) -> bool {
    let names: [&[u8]; 4] = [b"TTL", b"PTTL", b"EXPIRETIME", b"PEXPIRETIME"];
    names.contains(&&command[0].to_ascii_uppercase()[..])
}

/// Whether both tell the same but for numbers that are a time or what is left of one, no more of
/// them than commands that tell one.
fn about_as_late(replies: &Replies<'_>) -> bool {
    const APART_MAX: i64 = 60_000;
    let time = |line: &[u8]| number(line.strip_prefix(b":")?).filter(|number| *number > 100_000);
    let left = Cell::new(
        ran(replies)
            .filter(|command| replies_with_time(command))
            .count(),
    );
    differs_in_lines(replies, |ours, theirs| {
        let Some(fewer) = left.get().checked_sub(1) else {
            return false;
        };
        left.set(fewer);
        let both = time(ours).zip(time(theirs));
        both.is_some_and(|(ours, theirs)| (ours - theirs).abs() <= APART_MAX)
    })
}

#[test]
fn a_number_is_excused_as_a_time_only_where_a_command_shows_one() {
    let words = |line: &str| -> Words { line.split(' ').map(|it| it.into()).collect() };
    let excused = |before: &[&str], line: &str, ours: &str, theirs: &str| {
        let before: Vec<Words> = before.iter().map(|line| words(line)).collect();
        let replies = Replies {
            before: &before,
            command: &words(line),
            ours: ours.as_bytes(),
            theirs: theirs.as_bytes(),
        };
        explained(&replies).map(|it| it.what)
    };
    let late = Some("what is left of a lifetime");
    let pair = (":200001\r\n", ":200000\r\n");
    assert_eq!(excused(&[], "pttl k", pair.0, pair.1), late);
    assert_eq!(excused(&["PTTL k"], "INCRBY k 1", pair.0, pair.1), None);
    let exec = ("*2\r\n:1\r\n:200001\r\n", "*2\r\n:1\r\n:200000\r\n");
    assert_eq!(excused(&["PTTL k"], "EXEC", exec.0, exec.1), late);
    assert_eq!(excused(&["INCR k"], "EXEC", exec.0, exec.1), None);
    let both = (
        "*2\r\n:200001\r\n:200001\r\n",
        "*2\r\n:200000\r\n:200000\r\n",
    );
    assert_eq!(excused(&["PTTL k"], "EXEC", both.0, both.1), None);
    let refused = "-ERR invalid expire time in 'set' command\r\n";
    let long = "9999999999999999";
    for (line, is_it) in [
        (format!("SET k v PX {long}"), true),
        (format!("EXPIRE k {long}"), true),
        (format!("SET k {long} PX 7"), false),
        (format!("INCRBY k {long}"), false),
    ] {
        let what = Some("an expiry is at most 2^48 - 1 milliseconds");
        assert_eq!(
            excused(&[], &line, refused, "+OK\r\n") == what,
            is_it,
            "{line}"
        );
    }
    let beside = [format!("GETEX other EX {long}")];
    assert_eq!(
        excused(&[&beside[0]], "SET k v PX 7", refused, "+OK\r\n"),
        None
    );
}

#[test]
fn each_difference_is_a_row_of_resp_md_and_each_row_is_one() {
    let page = include_str!("../../../../../net/RESP.md");
    let section = page.split("## Compared with Valkey").nth(1).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| "));
    let rows: Vec<&str> = rows
        .filter_map(|row| row.split(" | ").next())
        .skip(1)
        .collect();
    let named: Vec<&str> = DIFFERENCES.iter().map(|it| it.what).collect();
    assert_eq!(rows, named);
}
