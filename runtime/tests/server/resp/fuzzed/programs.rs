//! Programs of Lua by chance, of the kind that public scripts are made of: locals, loops, string
//! functions, JSON, calls, errors that are caught, tables as replies.

use super::chance::Chance;

/// A key of sets alone, in the same slot.
pub(crate) const SET_KEY: &str = "{s}t";
/// A key of sorted sets alone, in the slot of the keys of programs.
pub(crate) const ZSET_KEY: &str = "{s}z";
/// The same of lists.
pub(crate) const LIST_KEY: &str = "{s}l";

/// What a variable holds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Number,
    Text,
    List,
    Map,
    Any,
}

const NUMBERS: [&str; 26] = [
    "0",
    "1",
    "2",
    "3",
    "-1",
    "7",
    "10",
    "100",
    "2.5",
    "-0.5",
    "1e3",
    "1e15",
    "1e16",
    "0x10",
    "0.1",
    "2^31",
    "2^53",
    "-2^63",
    "1/3",
    "3.99",
    "12345678901234",
    "1e100",
    "1/0",
    "-1/0",
    "0/0",
    "255",
];
const TEXTS: [&str; 24] = [
    "''",
    "'a'",
    "'abc'",
    "'hello world'",
    "'12'",
    "'0x1F'",
    "' 5 '",
    "'1e2'",
    "'key:12:ab'",
    "'a,b,,c'",
    "'{\"a\":[1,2,{\"b\":null}]}'",
    "'[1,2.5,-3]'",
    "'\\0\\255x'",
    "'%d'",
    "'x=1;y=2'",
    "\"it's\"",
    "'ABC'",
    "'a.b.c'",
    "'[[x]]'",
    "'%'",
    "'null'",
    "'tab\\tnew\\nline'",
    "'true'",
    "'\\195\\169'",
];
const PATTERNS: [&str; 24] = [
    "'%d+'",
    "'(%a+):(%d+)'",
    "'[^,]+'",
    "'^a'",
    "'c$'",
    "'.'",
    "'%s*'",
    "'(.-),'",
    "'%w+'",
    "'[a-c]'",
    "'[^a-c]+'",
    "'%b[]'",
    "'()'",
    "'(a)(b)?'",
    "'%f[%w]%w+'",
    "'x*'",
    "'%'",
    "'[a'",
    "'(a'",
    "'%1'",
    "'(.)%1'",
    "'a-b'",
    "'\\0'",
    "'%.'",
];
const FORMATS: [&str; 18] = [
    "%d", "%5d", "%-5d|", "%05d", "%x", "%X", "%o", "%c", "%s", "%10s|", "%-10s|", "%.2f", "%g",
    "%e", "%q", "%i", "%.3s", "%%",
];

/// A program that is being written.
struct Writer<'c> {
    chance: &'c mut Chance,
    text: String,
    names: Vec<(String, Kind)>,
    made: usize,
    /// Statements that it may have yet.
    room: usize,
}

impl Writer<'_> {
    fn indent(&mut self, depth: usize, line: &str) {
        self.text.push_str(&"  ".repeat(depth));
        self.text.push_str(line);
        self.text.push('\n');
    }

    fn name(&mut self, kind: Kind) -> String {
        self.made += 1;
        let name = format!("v{}", self.made);
        self.names.push((name.clone(), kind));
        name
    }

    fn known(&mut self, kind: Kind) -> Option<String> {
        let fitting = self.names.iter().filter(|(_, its)| *its == kind);
        let fitting: Vec<&String> = fitting.map(|(name, _)| name).collect();
        match fitting.is_empty() {
            true => None,
            false => Some(fitting[self.chance.below(fitting.len())].clone()),
        }
    }

    fn kind(&mut self) -> Kind {
        [
            Kind::Number,
            Kind::Text,
            Kind::List,
            Kind::Map,
            Kind::Any,
            Kind::Text,
        ][self.chance.below(6)]
    }

    fn of(&mut self, kind: Kind, depth: usize) -> String {
        // Now and then something of another kind: what its error says is compared, too.
        let kind = if self.chance.once_in(40) {
            self.kind()
        } else {
            kind
        };
        if self.chance.once_in(3)
            && let Some(name) = self.known(kind)
        {
            return name;
        }
        match kind {
            Kind::Number => self.number(depth),
            Kind::Text => self.string(depth),
            Kind::List => self.list(depth),
            Kind::Map => self.map(depth),
            Kind::Any => self.any(depth),
        }
    }

    fn number(&mut self, depth: usize) -> String {
        if depth == 0 {
            return self.chance.pick(&NUMBERS).to_string();
        }
        let next = depth - 1;
        match self.chance.below(16) {
            0..=2 => self.chance.pick(&NUMBERS).to_string(),
            3 | 4 => {
                let operator = self.chance.pick(&["+", "-", "*", "/", "%", "^"]);
                let (left, right) = (self.of(Kind::Number, next), self.of(Kind::Number, next));
                format!("({left} {operator} {right})")
            }
            5 => format!("#{}", self.of(Kind::Text, 0)),
            6 => format!("#{}", self.of(Kind::List, 0)),
            7 => format!("(tonumber({}) or 0)", self.of(Kind::Text, next)),
            8 => {
                let name = self.chance.pick(&["floor", "ceil", "abs", "sqrt"]);
                format!("math.{name}({})", self.of(Kind::Number, next))
            }
            9 => {
                let name = self.chance.pick(&["max", "min", "fmod", "pow"]);
                let (left, right) = (self.of(Kind::Number, next), self.of(Kind::Number, next));
                format!("math.{name}({left}, {right})")
            }
            10 => {
                let name = self
                    .chance
                    .pick(&["band", "bor", "bxor", "lshift", "rshift", "arshift"]);
                let (left, right) = (self.of(Kind::Number, next), self.of(Kind::Number, next));
                format!("bit.{name}({left}, {right})")
            }
            11 => format!(
                "(string.byte({}, {}) or -1)",
                self.of(Kind::Text, next),
                self.small()
            ),
            12 => format!(
                "tonumber(redis.call('INCRBY', {}, {}))",
                self.key(),
                self.small()
            ),
            13 => format!("redis.call('STRLEN', {})", self.key()),
            14 => format!(
                "(tonumber({}, {}) or 0)",
                self.of(Kind::Text, next),
                self.small()
            ),
            _ => format!(
                "(string.find({}, {}) or 0)",
                self.of(Kind::Text, next),
                self.pattern()
            ),
        }
    }

    fn small(&mut self) -> String {
        const ALL: [&str; 14] = [
            "-3", "-2", "-1", "0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10",
        ];
        self.chance.pick(&ALL).to_string()
    }

    fn pattern(&mut self) -> String {
        self.chance.pick(&PATTERNS).to_string()
    }

    fn key(&mut self) -> String {
        match self.chance.below(8) {
            0..=4 => format!("KEYS[{}]", 1 + self.chance.below(3)),
            5 => "KEYS[4]".into(),
            6 => "'{s}' .. ARGV[1]".into(),
            _ => "'{s}made'".into(),
        }
    }

    fn string(&mut self, depth: usize) -> String {
        if depth == 0 {
            return self.chance.pick(&TEXTS).to_string();
        }
        let next = depth - 1;
        let text = self.of(Kind::Text, next);
        match self.chance.below(22) {
            0..=2 => self.chance.pick(&TEXTS).to_string(),
            3 | 4 => format!("({text} .. {})", self.of(Kind::Text, next)),
            5 => format!("({text} .. {})", self.of(Kind::Number, next)),
            6 => format!("string.sub({text}, {}, {})", self.small(), self.small()),
            7 => {
                let name = self.chance.pick(&["upper", "lower", "reverse"]);
                format!("string.{name}({text})")
            }
            8 => format!("string.rep({text}, {})", self.small()),
            9 => {
                let format = self.chance.pick(&FORMATS);
                let number = "dxXoicfge"
                    .chars()
                    .any(|it| format.ends_with(it) || format.contains('d'));
                let kind = if number { Kind::Number } else { Kind::Text };
                format!("string.format('{format}', {})", self.of(kind, next))
            }
            10 => {
                let replacement = self
                    .chance
                    .pick(&["'<%0>'", "'%1'", "''", "'%%'", "'x'", "'%2'"]);
                format!("(string.gsub({text}, {}, {replacement}))", self.pattern())
            }
            11 => {
                let with = self.chance.pick(&[
                    "function(x) return x .. '!' end",
                    "function(x) if #x > 1 then return '-' end end",
                    "{a = 'A', b = false, hello = 1}",
                    "function(x, y) return y end",
                ]);
                format!(
                    "(string.gsub({text}, {}, {with}, {}))",
                    self.pattern(),
                    self.small()
                )
            }
            12 => format!("tostring(string.match({text}, {}))", self.pattern()),
            // Never of a table: its text is an address.
            13 => format!("tostring({})", self.number(next)),
            14 => {
                let separator = self.chance.pick(&["','", "''", "', '"]);
                format!("table.concat({}, {separator})", self.of(Kind::List, next))
            }
            15 => format!("cjson.encode({})", self.of(Kind::List, next)),
            16 => format!("cjson.encode({})", self.of(Kind::Map, next)),
            17 => format!("redis.sha1hex({text})"),
            18 => format!("ARGV[{}]", 1 + self.chance.below(3)),
            19 => format!("tostring(redis.call('GET', {}))", self.key()),
            20 => format!("cmsgpack.pack({})", self.of(Kind::Text, next)),
            _ => format!("type({})", self.of(Kind::Any, next)),
        }
    }

    fn list(&mut self, depth: usize) -> String {
        let next = depth.saturating_sub(1);
        match self.chance.below(if depth == 0 { 2 } else { 7 }) {
            0 => "{}".into(),
            1 => "{1, 2, 3}".into(),
            2 | 3 => {
                let kind = if self.chance.once_in(2) {
                    Kind::Number
                } else {
                    Kind::Text
                };
                let count = self.chance.below(5);
                let all: Vec<String> = (0..count).map(|_| self.of(kind, next)).collect();
                format!("{{{}}}", all.join(", "))
            }
            4 => format!("{{string.byte({}, 1, 5)}}", self.of(Kind::Text, next)),
            5 => format!(
                "{{string.match({}, {})}}",
                self.of(Kind::Text, next),
                self.pattern()
            ),
            _ => format!("redis.call('MGET', {}, {})", self.key(), self.key()),
        }
    }

    fn map(&mut self, depth: usize) -> String {
        let next = depth.saturating_sub(1);
        // One name: the order of several follows from the hashes of the interpreter.
        let name = self.chance.pick(&["a", "ok", "id", "stock", "n"]);
        let kind = if depth == 0 {
            Kind::Number
        } else {
            self.kind()
        };
        match name {
            // A reply of status is a text.
            "ok" => "{ok = 'fine'}".into(),
            name => format!("{{{name} = {}}}", self.of(kind, next)),
        }
    }

    fn any(&mut self, depth: usize) -> String {
        let next = depth.saturating_sub(1);
        if depth == 0 {
            return self
                .chance
                .pick(&["nil", "true", "false", "1", "'a'", "cjson.null"])
                .into();
        }
        match self.chance.below(15) {
            0 => "nil".into(),
            1 => "true".into(),
            2 => "false".into(),
            3 => format!(
                "({} and {})",
                self.condition(next),
                self.of(Kind::Text, next)
            ),
            4 => format!(
                "({} or {})",
                self.condition(next),
                self.of(Kind::Number, next)
            ),
            5 => format!("cjson.decode({})", self.of(Kind::Text, next)),
            6 => format!("cjson.decode(cjson.encode({}))", self.of(Kind::List, next)),
            7 => format!(
                "cmsgpack.unpack(cmsgpack.pack({}))",
                self.of(Kind::List, next)
            ),
            8 => format!("({})[{}]", self.of(Kind::List, next), self.small()),
            9 if self.chance.once_in(3) => {
                format!("redis.call('ZRANGE', '{ZSET_KEY}', 0, -1, 'WITHSCORES')")
            }
            9 if self.chance.once_in(3) => format!("redis.call('SMEMBERS', '{SET_KEY}')"),
            9 => format!("redis.call('GET', {})", self.key()),
            10 => format!("redis.pcall('INCR', {})", self.key()),
            11 => format!(
                "redis.call('SET', {}, {}, 'NX')",
                self.key(),
                self.of(Kind::Text, next)
            ),
            12 => format!("tonumber({})", self.of(Kind::Text, next)),
            13 => format!(
                "({}).{}",
                self.of(Kind::Map, next),
                self.chance.pick(&["a", "id", "err"])
            ),
            _ => self.number(next),
        }
    }

    fn condition(&mut self, depth: usize) -> String {
        let next = depth.saturating_sub(1);
        match self.chance.below(8) {
            0 => format!(
                "{} == {}",
                self.of(Kind::Any, next),
                self.of(Kind::Any, next)
            ),
            1 => format!(
                "{} ~= {}",
                self.of(Kind::Text, next),
                self.of(Kind::Text, next)
            ),
            2 => format!(
                "{} < {}",
                self.of(Kind::Number, next),
                self.of(Kind::Number, next)
            ),
            3 => format!(
                "{} >= {}",
                self.of(Kind::Number, next),
                self.of(Kind::Number, next)
            ),
            4 => format!(
                "{} <= {}",
                self.of(Kind::Text, next),
                self.of(Kind::Text, next)
            ),
            5 => format!("redis.call('EXISTS', {}) == 1", self.key()),
            6 => format!("not {}", self.of(Kind::Any, next)),
            _ => format!("type({}) == 'string'", self.of(Kind::Any, next)),
        }
    }

    /// The words of a call about a sorted set, whose key is not declared.
    fn of_zset(&mut self) -> String {
        let member = self.chance.pick(&["'a'", "'b'", "ARGV[1]"]);
        match self.chance.below(6) {
            0 | 1 => format!(
                "'ZADD', '{ZSET_KEY}', {}, {member}",
                self.of(Kind::Number, 0)
            ),
            2 => format!(
                "'ZINCRBY', '{ZSET_KEY}', {}, {member}",
                self.of(Kind::Number, 0)
            ),
            3 => format!("'ZREM', '{ZSET_KEY}', {member}"),
            4 => format!("'ZPOPMIN', '{ZSET_KEY}'"),
            _ => format!("'ZUNIONSTORE', '{ZSET_KEY}', 1, '{ZSET_KEY}', 'WEIGHTS', 0.5"),
        }
    }

    /// The words of a call about a list, whose key is not declared.
    fn of_list(&mut self) -> String {
        let element = self.chance.pick(&["'a'", "'b'", "ARGV[1]"]);
        match self.chance.below(8) {
            0 | 1 => format!(
                "'RPUSH', '{LIST_KEY}', {}, {element}",
                self.of(Kind::Text, 0)
            ),
            2 => format!("'LPUSH', '{LIST_KEY}', {element}"),
            3 => format!("'LPOP', '{LIST_KEY}', {}", self.small()),
            4 => format!("'RPOPLPUSH', '{LIST_KEY}', '{LIST_KEY}'"),
            5 => format!("'LRANGE', '{LIST_KEY}', {}, -1", self.small()),
            6 => format!("'LREM', '{LIST_KEY}', {}, {element}", self.small()),
            _ => format!("'LTRIM', '{LIST_KEY}', 0, 8"),
        }
    }

    /// The words of a call about a set, whose key is not declared.
    fn of_set(&mut self) -> String {
        let member = self
            .chance
            .pick(&["'a'", "'b'", "ARGV[1]", "7", "-3", "12"]);
        match self.chance.below(6) {
            0 | 1 => format!("'SADD', '{SET_KEY}', {member}"),
            2 => format!("'SADD', '{SET_KEY}', {}", self.of(Kind::Number, 0)),
            3 => format!("'SREM', '{SET_KEY}', {member}"),
            4 => format!("'SISMEMBER', '{SET_KEY}', {member}"),
            _ => format!("'ZUNIONSTORE', '{ZSET_KEY}', 2, '{ZSET_KEY}', '{SET_KEY}'"),
        }
    }

    /// A call that changes something.
    fn change(&mut self) -> String {
        let call = if self.chance.once_in(4) {
            "redis.pcall"
        } else {
            "redis.call"
        };
        let key = self.key();
        let words = match self.chance.below(20) {
            13..=15 => self.of_zset(),
            16..=17 => self.of_list(),
            18..=19 => self.of_set(),
            0 | 1 => format!("'SET', {key}, {}", self.of(Kind::Text, 2)),
            2 => format!("'SET', {key}, {}", self.of(Kind::Number, 1)),
            3 => format!("'INCR', {key}"),
            4 => format!("'DECRBY', {key}, {}", self.of(Kind::Number, 0)),
            5 => format!("'DEL', {key}"),
            6 => format!("'APPEND', {key}, {}", self.of(Kind::Text, 1)),
            7 => format!("'EXPIRE', {key}, 1000000"),
            8 => format!("'SETEX', {key}, 1000000, {}", self.of(Kind::Text, 1)),
            9 => format!("'SETRANGE', {key}, {}, 'zz'", self.small()),
            10 => format!(
                "'MSET', {key}, 1, {}, {}",
                self.key(),
                self.of(Kind::Text, 1)
            ),
            11 => format!("'GETSET', {key}, {}", self.of(Kind::Text, 1)),
            _ => {
                let wrong = [
                    "'NOSUCH'",
                    "'GET'",
                    "'SET', 'x'",
                    "",
                    "{}",
                    "'get', nil",
                    "'SUBSCRIBE', 'x'",
                ];
                self.chance.pick(&wrong).to_string()
            }
        };
        format!("{call}({words})")
    }

    fn block(&mut self, depth: usize) {
        let known = self.names.len();
        for _ in 0..1 + self.chance.below(3) {
            self.statement(depth);
        }
        self.names.truncate(known);
    }

    fn statement(&mut self, depth: usize) {
        if self.room == 0 {
            return;
        }
        self.room -= 1;
        let top = if depth > 3 { 9 } else { 17 };
        match self.chance.below(top) {
            0..=2 => {
                let kind = self.kind();
                let value = self.of(kind, 3);
                let name = self.name(kind);
                self.indent(depth, &format!("local {name} = {value}"));
            }
            3 | 4 => {
                let call = self.change();
                match self.chance.once_in(2) {
                    true => self.indent(depth, &call),
                    false => {
                        let name = self.name(Kind::Any);
                        self.indent(depth, &format!("local {name} = {call}"));
                    }
                }
            }
            5 => {
                let kind = self.kind();
                if let Some(name) = self.known(kind) {
                    let value = self.of(kind, 3);
                    self.indent(depth, &format!("{name} = {value}"));
                }
            }
            6 => {
                let value = self.of(Kind::Number, 2);
                match self.known(Kind::List) {
                    Some(list) if self.chance.once_in(2) => {
                        self.indent(depth, &format!("table.insert({list}, {value})"));
                    }
                    Some(list) => self.indent(depth, &format!("{list}[#{list} + 1] = {value}")),
                    None => {}
                }
            }
            7 => {
                if let Some(list) = self.known(Kind::List) {
                    let line = match self.chance.below(3) {
                        0 => format!("table.remove({list})"),
                        1 => format!("table.remove({list}, 1)"),
                        _ => format!("{list}[{}] = {}", self.small(), self.of(Kind::Any, 1)),
                    };
                    self.indent(depth, &line);
                }
            }
            8 => {
                if let Some(map) = self.known(Kind::Map) {
                    let value = self.of(Kind::Any, 2);
                    self.indent(depth, &format!("{map}.a = {value}"));
                }
            }
            _ => self.compound(depth),
        }
    }

    fn compound(&mut self, depth: usize) {
        match self.chance.below(8) {
            0 | 1 => {
                let condition = self.condition(2);
                self.indent(depth, &format!("if {condition} then"));
                self.block(depth + 1);
                if self.chance.once_in(2) {
                    self.indent(depth, "else");
                    self.block(depth + 1);
                }
                self.indent(depth, "end");
            }
            2 => {
                let name = self.name(Kind::Number);
                let last = self.chance.below(5);
                self.indent(depth, &format!("for {name} = 1, {last} do"));
                self.block(depth + 1);
                self.indent(depth, "end");
                self.names.pop();
            }
            3 => {
                let list = self.of(Kind::List, 2);
                let name = self.name(Kind::Any);
                let ways = self.chance.pick(&["ipairs", "pairs"]);
                self.indent(depth, &format!("for _, {name} in {ways}({list}) do"));
                // A list that grows while it is walked has no end.
                let all = self.names.clone();
                self.names.retain(|(name, _)| *name != list);
                self.block(depth + 1);
                self.indent(depth, "end");
                self.names = all;
                self.names.pop();
            }
            4 => {
                let text = self.of(Kind::Text, 2);
                let pattern = self.pattern();
                let name = self.name(Kind::Any);
                self.indent(
                    depth,
                    &format!("for {name} in string.gmatch({text}, {pattern}) do"),
                );
                self.block(depth + 1);
                self.indent(depth, "end");
                self.names.pop();
            }
            5 => {
                self.made += 1;
                let (ok, why) = (format!("ok{}", self.made), self.name(Kind::Any));
                self.indent(depth, &format!("local {ok}, {why} = pcall(function()"));
                self.block(depth + 1);
                let end = match self.chance.below(5) {
                    0 => format!("error({})", self.of(Kind::Text, 1)),
                    1 => "error({err = 'MINE it failed'})".into(),
                    2 => format!("return {}", self.change()),
                    _ => format!("return {}", self.of(Kind::Any, 2)),
                };
                self.indent(depth + 1, &end);
                self.indent(depth, "end)");
            }
            6 => {
                let name = self.name(Kind::List);
                let numbers = self.chance.once_in(3);
                let kind = if numbers { Kind::Number } else { Kind::Text };
                // Numbers that are none have no order.
                let all: Vec<String> = (0..self.chance.below(5))
                    .map(|_| match kind {
                        Kind::Number => self.small(),
                        _ => self.of(kind, 0),
                    })
                    .collect();
                self.indent(depth, &format!("local {name} = {{{}}}", all.join(", ")));
                self.indent(depth, &format!("table.sort({name})"));
            }
            _ => {
                let counter = self.name(Kind::Number);
                self.indent(depth, &format!("local {counter} = 0"));
                let times = self.chance.below(4);
                self.indent(depth, &format!("while {counter} < {times} do"));
                self.indent(depth + 1, &format!("{counter} = {counter} + 1"));
                let known = self.names.len();
                self.names.retain(|(name, _)| *name != counter);
                self.block(depth + 1);
                self.names.truncate(known);
                self.names.push((counter, Kind::Number));
                self.indent(depth, "end");
            }
        }
    }

    fn result(&mut self, depth: usize) -> String {
        match self.chance.below(if depth == 0 { 4 } else { 9 }) {
            0 => self.of(Kind::Number, 2),
            1 => self.of(Kind::Text, 2),
            2 => self.of(Kind::Any, 2),
            3 => self.of(Kind::List, 2),
            4..=6 => {
                let count = self.chance.below(4);
                let all: Vec<String> = (0..count).map(|_| self.result(depth - 1)).collect();
                format!("{{{}}}", all.join(", "))
            }
            7 => {
                let (name, text) = (
                    self.chance.pick(&["error_reply", "status_reply"]),
                    self.chance
                        .pick(&["'FINE'", "'MY error'", "'-X y'", "''", "'two words'"]),
                );
                format!("redis.{name}({text})")
            }
            _ => self.of(Kind::Map, 2),
        }
    }
}

/// A program of Lua.
pub(crate) fn program(chance: &mut Chance) -> String {
    let room = 1 + chance.below(9);
    let mut writer = Writer {
        chance,
        text: String::new(),
        names: Vec::new(),
        made: 0,
        room,
    };
    if writer.chance.once_in(12) {
        writer.text += "redis.setresp(3)\n";
    }
    // What is not caught ends the script: that is asked of a third.
    let is_caught = !writer.chance.once_in(3);
    if is_caught {
        writer.text += "local done, why = pcall(function()\n";
    }
    while writer.room > 0 {
        writer.statement(usize::from(is_caught));
    }
    let result = writer.result(2);
    writer.indent(usize::from(is_caught), &format!("return {result}"));
    if is_caught {
        writer.text += "end)\nif done then return why end\nreturn {'failed', why}\n";
    }
    writer.text
}
