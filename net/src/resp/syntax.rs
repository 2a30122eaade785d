//! The arguments of commands, as COMMAND DOCS tells them and redis-cli shows them as hints.
//!
//! A syntax is words with blanks between: a name in small letters is an argument, one in capitals a
//! word of the command, with the names behind it up to the next word as its arguments. `[ ]` may be
//! left out, `( )` stand together, `|` is one of several, and `...` behind something is any number.

use super::reply::Replies;
use super::table::Name;

/// The arguments of a command; empty if it has none or they differ by subcommand.
pub(super) fn syntax_of(id: Name) -> &'static str {
    match id {
        Name::Append => "key value",
        Name::Auth => "[ username ] password",
        Name::BitCount => "key [ start [ end [ BYTE | BIT ] ] ]",
        Name::Copy => "source destination [ DB destination-db ] [ REPLACE ]",
        Name::DecrBy => "key decrement",
        Name::Del | Name::Exists | Name::MGet | Name::Touch | Name::Unlink | Name::Watch => {
            "key ..."
        }
        Name::DelEx => "key [ IFEQ value | IFNE value ]",
        Name::Echo => "message",
        Name::Expire => "key seconds [ NX | XX | GT | LT ]",
        Name::PExpire => "key milliseconds [ NX | XX | GT | LT ]",
        Name::ExpireAt => "key unix-time-seconds [ NX | XX | GT | LT ]",
        Name::PExpireAt => "key unix-time-milliseconds [ NX | XX | GT | LT ]",
        Name::Decr
        | Name::ExpireTime
        | Name::Get
        | Name::GetDel
        | Name::HGetAll
        | Name::HKeys
        | Name::HLen
        | Name::HVals
        | Name::Incr
        | Name::PExpireTime
        | Name::Persist
        | Name::PTtl
        | Name::SCard
        | Name::SMembers
        | Name::StrLen
        | Name::Ttl
        | Name::Type
        | Name::ZCard => "key",
        Name::FlushAll | Name::FlushDb => "[ ASYNC | SYNC ]",
        Name::GetBit => "key offset",
        Name::GetEx => {
            "key [ EX seconds | PX milliseconds | EXAT unix-time-seconds \
             | PXAT unix-time-milliseconds | PERSIST ]"
        }
        Name::GetRange => "key start end",
        Name::GetSet | Name::SetNx => "key value",
        Name::HDel | Name::HMGet => "key field ...",
        Name::HExists | Name::HGet | Name::HStrLen => "key field",
        Name::HIncrBy => "key field increment",
        Name::HIncrByFloat => "key field number",
        Name::HMSet | Name::HSet => "key ( field value ) ...",
        Name::HRandField => "key [ count [ WITHVALUES ] ]",
        Name::HScan => "key cursor [ MATCH pattern ] [ COUNT count ] [ NOVALUES ]",
        Name::HSetNx => "key field value",
        Name::Hello => "[ protover [ AUTH username password ] [ SETNAME clientname ] ]",
        Name::IncrBy => "key increment",
        Name::IncrByFloat => "key number",
        Name::IncrEx => {
            "key [ BYINT increment ] [ LBOUND lower ] [ UBOUND upper ] [ SATURATE ] \
             [ EX seconds | PX milliseconds | EXAT unix-time-seconds \
             | PXAT unix-time-milliseconds | PERSIST ] [ ENX ]"
        }
        Name::Info => "[ section ... ]",
        Name::Keys => "pattern",
        Name::KvApply => {
            "key [ KEY key ] ... [ TOKEN token ] [ SENT unix-time-milliseconds ] instruction ..."
        }
        Name::KvGet => "key AS layout",
        Name::KvOpts => "[ option ... ]",
        Name::KvRun => {
            "program key [ KEY key ] ... [ TOKEN token ] [ SENT unix-time-milliseconds ] \
             [ argument ... ]"
        }
        Name::MSet | Name::MSetNx => "( key value ) ...",
        Name::Ping => "[ message ]",
        Name::PSetEx => "key milliseconds value",
        Name::PSubscribe => "pattern ...",
        Name::Publish => "channel message",
        Name::PUnsubscribe => "[ pattern ... ]",
        Name::SPublish => "shardchannel message",
        Name::SSubscribe => "shardchannel ...",
        Name::Subscribe => "channel ...",
        Name::SUnsubscribe => "[ shardchannel ... ]",
        Name::Unsubscribe => "[ channel ... ]",
        Name::Rename | Name::RenameNx => "key newkey",
        Name::Scan => "cursor [ MATCH pattern ] [ COUNT count ] [ TYPE type ]",
        Name::Select => "index",
        Name::Set => {
            "key value [ NX | XX | IFEQ comparison-value ] [ GET ] [ EX seconds | PX milliseconds \
             | EXAT unix-time-seconds | PXAT unix-time-milliseconds | KEEPTTL ]"
        }
        Name::SetBit => "key offset value",
        Name::SetEx => "key seconds value",
        Name::SetRange => "key offset value",
        Name::Wait => "numreplicas timeout",
        id => syntax_of_lists(id),
    }
}

/// The same of the commands of lists.
fn syntax_of_lists(id: Name) -> &'static str {
    match id {
        Name::BLMove => "source destination ( LEFT | RIGHT ) ( LEFT | RIGHT ) timeout",
        Name::BLMPop => "timeout numkeys key ... ( LEFT | RIGHT ) [ COUNT count ]",
        Name::BLPop | Name::BRPop => "key ... timeout",
        Name::BRPopLPush => "source destination timeout",
        Name::LIndex => "key index",
        Name::LInsert => "key ( BEFORE | AFTER ) pivot element",
        Name::LLen => "key",
        Name::LMove => "source destination ( LEFT | RIGHT ) ( LEFT | RIGHT )",
        Name::LMPop => "numkeys key ... ( LEFT | RIGHT ) [ COUNT count ]",
        Name::LPop | Name::RPop => "key [ count ]",
        Name::LPos => "key element [ RANK rank ] [ COUNT num-matches ] [ MAXLEN len ]",
        Name::LPush | Name::LPushX | Name::RPush | Name::RPushX => "key element ...",
        Name::LRange | Name::LTrim => "key start stop",
        Name::LRem => "key count element",
        Name::LSet => "key index element",
        Name::RPopLPush => "source destination",
        id => syntax_of_sets(id),
    }
}

/// The same of the commands of sets.
fn syntax_of_sets(id: Name) -> &'static str {
    match id {
        Name::SAdd | Name::SMIsMember | Name::SRem => "key member ...",
        Name::SDiff | Name::SInter | Name::SUnion => "key ...",
        Name::SDiffStore | Name::SInterStore | Name::SUnionStore => "dst key ...",
        Name::SInterCard => "numkeys key ... [ LIMIT limit ]",
        Name::SIsMember => "key member",
        Name::SMove => "source destination member",
        Name::SPop | Name::SRandMember => "key [ count ]",
        Name::SScan => "key cursor [ MATCH pattern ] [ COUNT count ]",
        id => syntax_of_zsets(id),
    }
}

/// The same of the commands of sorted sets.
fn syntax_of_zsets(id: Name) -> &'static str {
    match id {
        Name::BzMPop => "timeout numkeys key ... ( MIN | MAX ) [ COUNT count ]",
        Name::BzPopMax | Name::BzPopMin => "key ... timeout",
        Name::ZAdd => "key [ NX | XX ] [ GT | LT ] [ CH ] [ INCR ] ( score member ) ...",
        Name::ZCount | Name::ZLexCount => "key min max",
        Name::ZRemRangeByLex | Name::ZRemRangeByScore => "key min max",
        Name::ZRemRangeByRank => "key start stop",
        Name::ZDiff => "numkeys key ... [ WITHSCORES ]",
        Name::ZInter | Name::ZUnion => {
            "numkeys key ... [ WEIGHTS weight ... ] [ AGGREGATE aggregate ] [ WITHSCORES ]"
        }
        Name::ZInterCard => "numkeys key ... [ LIMIT limit ]",
        Name::ZDiffStore => "dst numkeys src ...",
        Name::ZInterStore | Name::ZUnionStore => {
            "dst numkeys src ... [ WEIGHTS weight ... ] [ AGGREGATE aggregate ]"
        }
        Name::ZIncrBy => "key number member",
        Name::ZMPop => "numkeys key ... ( MIN | MAX ) [ COUNT count ]",
        Name::ZMScore | Name::ZRem => "key member ...",
        Name::ZPopMax | Name::ZPopMin => "key [ count ]",
        Name::ZRandMember => "key [ count [ WITHSCORES ] ]",
        Name::ZRange => {
            "key start stop [ BYSCORE | BYLEX ] [ REV ] [ LIMIT offset count ] [ WITHSCORES ]"
        }
        Name::ZRangeByLex => "key min max [ LIMIT offset count ]",
        Name::ZRangeByScore => "key min max [ WITHSCORES ] [ LIMIT offset count ]",
        Name::ZRangeStore => "dst src min max [ BYSCORE | BYLEX ] [ REV ] [ LIMIT offset count ]",
        Name::ZRank | Name::ZRevRank => "key member [ WITHSCORE ]",
        Name::ZRevRange => "key start stop [ WITHSCORES ]",
        Name::ZRevRangeByLex => "key max min [ LIMIT offset count ]",
        Name::ZRevRangeByScore => "key max min [ WITHSCORES ] [ LIMIT offset count ]",
        Name::ZScan => "key cursor [ MATCH pattern ] [ COUNT count ] [ NOSCORES ]",
        Name::ZScore => "key member",
        _ => "",
    }
}

/// An argument.
#[derive(Debug, PartialEq, Eq)]
struct Argument {
    name: String,
    kind: &'static str,
    token: Option<&'static str>,
    is_optional: bool,
    is_multiple: bool,
    parts: Vec<Argument>,
}

impl Argument {
    fn named(name: &str) -> Self {
        Argument {
            name: name.to_ascii_lowercase(),
            kind: kind_of(name),
            token: None,
            is_optional: false,
            is_multiple: false,
            parts: Vec::new(),
        }
    }

    /// Several in a row, or one of several.
    fn of_parts(kind: &'static str, mut parts: Vec<Argument>) -> Self {
        if parts.len() == 1 {
            return parts.remove(0);
        }
        let names: Vec<&str> = parts.iter().map(|part| part.name.as_str()).collect();
        let name = names.join("-");
        Argument {
            kind,
            parts,
            ..Argument::named(&name)
        }
    }

    fn write(&self, replies: &mut Replies<'_>) {
        let is_leaf = self.parts.is_empty();
        let flags = [
            (self.is_optional, "optional"),
            (self.is_multiple, "multiple"),
        ];
        let flags = flags.iter().filter(|(is_so, _)| *is_so);
        let rows = 2
            + usize::from(is_leaf)
            + usize::from(self.kind == "key")
            + usize::from(self.token.is_some())
            + usize::from(flags.clone().count() > 0)
            + usize::from(!is_leaf);
        replies.map(rows);
        let mut row = |name: &str, text: &str| {
            replies.bulk(name.as_bytes());
            replies.bulk(text.as_bytes());
        };
        row("name", &self.name);
        row("type", self.kind);
        if is_leaf {
            row("display_text", &self.name);
        }
        if let Some(token) = self.token {
            row("token", token);
        }
        if self.kind == "key" {
            replies.bulk(b"key_spec_index");
            replies.integer(i64::from(matches!(
                &self.name[..],
                "destination" | "newkey"
            )));
        }
        if flags.clone().count() > 0 {
            replies.bulk(b"flags");
            replies.set(flags.clone().count());
            flags.for_each(|(_, flag)| replies.simple(flag));
        }
        if !is_leaf {
            replies.bulk(b"arguments");
            write_all(&self.parts, replies);
        }
    }
}

fn write_all(arguments: &[Argument], replies: &mut Replies<'_>) {
    replies.array(arguments.len());
    arguments
        .iter()
        .for_each(|argument| argument.write(replies));
}

fn kind_of(name: &str) -> &'static str {
    match name {
        "key" | "source" | "destination" | "newkey" => "key",
        "pattern" => "pattern",
        "number" => "double",
        "unix-time-seconds" | "unix-time-milliseconds" => "unix-time",
        "seconds" | "milliseconds" | "decrement" | "offset" | "start" | "end" | "count"
        | "cursor" | "numreplicas" | "timeout" | "destination-db" | "index" | "protover"
        | "lower" | "upper" | "increment" | "numkeys" | "rank" | "num-matches" | "len" => "integer",
        _ => "string",
    }
}

/// Writes the arguments of a syntax.
pub(super) fn write_arguments(syntax: &'static str, replies: &mut Replies<'_>) {
    write_all(&read(syntax), replies);
}

fn read(syntax: &'static str) -> Vec<Argument> {
    let mut words = syntax.split_ascii_whitespace().peekable();
    choices(&mut words).remove(0)
}

type Words<'a> = std::iter::Peekable<std::str::SplitAsciiWhitespace<'a>>;

/// What stands up to a closing bracket, as rows of arguments with `|` between.
fn choices(words: &mut Words<'static>) -> Vec<Vec<Argument>> {
    let mut all = vec![Vec::new()];
    while let Some(word) = words.next() {
        let row: &mut Vec<Argument> = all.last_mut().expect("one at least");
        match word {
            "]" | ")" => break,
            "|" => all.push(Vec::new()),
            "..." => row.last_mut().expect("something is repeated").is_multiple = true,
            "[" | "(" => {
                let mut inner = choices(words);
                let mut argument = match inner.len() {
                    1 => Argument::of_parts("block", inner.remove(0)),
                    _ => {
                        let rows = inner.into_iter();
                        let rows = rows.map(|row| Argument::of_parts("block", row));
                        Argument::of_parts("oneof", rows.collect())
                    }
                };
                argument.is_optional |= word == "[";
                row.push(argument);
            }
            token if token.starts_with(|it: char| it.is_ascii_uppercase()) => {
                row.push(with_token(token, words));
            }
            name => row.push(Argument::named(name)),
        }
    }
    all
}

/// A word of the command with the arguments behind it.
fn with_token(token: &'static str, words: &mut Words<'static>) -> Argument {
    let mut parts = Vec::new();
    let is_name = |word: &&str| word.starts_with(|it: char| it.is_ascii_lowercase());
    while let Some(name) = words.next_if(is_name) {
        parts.push(Argument::named(name));
    }
    let mut argument = match parts.is_empty() {
        true => Argument {
            kind: "pure-token",
            ..Argument::named(token)
        },
        false => Argument::of_parts("block", parts),
    };
    argument.token = Some(token);
    argument
}

#[cfg(test)]
mod tests {
    use super::super::table::COMMANDS;
    use super::*;

    /// The syntax again, as redis-cli would show it.
    fn shown(argument: &Argument) -> String {
        let parts: Vec<String> = argument.parts.iter().map(shown).collect();
        let separator = if argument.kind == "oneof" { " | " } else { " " };
        let inner = match (argument.token, argument.kind) {
            (Some(token), "pure-token") => token.to_string(),
            (Some(token), "block") => format!("{token} {}", parts.join(separator)),
            (Some(token), _) => format!("{token} {}", argument.name),
            (None, "block" | "oneof") => parts.join(separator),
            (None, _) => argument.name.clone(),
        };
        let text = match (argument.is_optional, argument.is_multiple) {
            (true, _) => format!("[ {inner} ]"),
            (false, true) if argument.kind == "block" => format!("( {inner} )"),
            (false, _) if argument.kind == "oneof" => format!("( {inner} )"),
            (false, _) => inner,
        };
        if argument.is_multiple {
            format!("{text} ...")
        } else {
            text
        }
    }

    #[test]
    fn what_is_described_of_arguments_says_the_same_as_the_syntax() {
        for command in COMMANDS {
            let syntax = syntax_of(command.id);
            let all: Vec<String> = read(syntax).iter().map(shown).collect();
            // An optional argument that may come again is one of both.
            let described = all.join(" ").replace(" ] ...", " ... ]");
            let said = syntax.replace(" ] ...", " ... ]");
            let said = said.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
            assert_eq!(described, said, "{}", command.name);
            // As many as the command takes at the least; a word in front of one is one, too.
            let all = read(syntax);
            let needed = all.iter().filter(|it| !it.is_optional);
            let words = |it: &Argument| match it.kind {
                "block" => it.parts.len(),
                _ => 1,
            };
            let least: usize = needed
                .map(|it| words(it) + usize::from(it.token.is_some()))
                .sum();
            let needs = usize::from(command.arity.unsigned_abs()) - 1;
            let is_container = syntax.is_empty();
            let has_block = syntax.contains('(');
            assert!(
                is_container || has_block || least == needs,
                "{}",
                command.name
            );
        }
    }
}
