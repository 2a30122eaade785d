//! Patterns and formats against those of the C library, by chance.

use crate::store::Client;

/// Numbers from a seed.
pub struct Chance(pub u64);

impl Chance {
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).expect("31 bits") % bound
    }

    pub fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len())]
    }
}

const ITEMS: [&str; 46] = [
    "a", "b", "ab", ".", "%a", "%d", "%s", "%w", "%x", "%p", "%u", "%l", "%c", "%z", "%A", "%W",
    "[ab]", "[^a]", "[a-c]", "[%d_]", "[^%s]", "[]]", "[]-a]", "[a-]", "*", "+", "-", "?", "(",
    ")", "()", "%1", "%2", "%bab", "%b()", "%f[a]", "%f[%w]", "^", "$", "%", "%%", "[", "]", "%.",
    "x*", "1",
];
const PARTS: [&str; 16] = [
    "a", "b", "c", "ab", "aab", " ", "1", "22", "(", ")", "(a)", "A", "_", ".", "%", "-",
];

fn text(chance: &mut Chance, parts: &[&str], len_max: usize) -> String {
    let len = chance.below(len_max);
    (0..len).map(|_| chance.pick(parts)).collect()
}

fn quoted(text: &str) -> String {
    text.bytes()
        .fold(String::from("'"), |all, byte| format!("{all}\\{byte:03}"))
        + "'"
}

/// The values of a script of plain Lua, as text.
const SHOW: &str = "local function show(...) local t = {} for i = 1, select('#', ...) do \
                    t[i] = tostring((select(i, ...))) end return table.concat(t, '|') end ";

fn compare(count: usize, seed: u64, make: impl Fn(&mut Chance) -> String) {
    let plain = mlua::Lua::new();
    let mut client = Client::new();
    let mut chance = Chance(seed);
    let mut different = 0;
    for _ in 0..count {
        let call = make(&mut chance);
        let script = format!(
            "{SHOW} return show(pcall(function() \
             local a, b, c, d = {call} return a, b, c, d end))"
        );
        let expected: String = plain
            .load(&script)
            .set_name("@user_script")
            .eval::<mlua::LuaString>()
            .expect("errors are caught")
            .to_string_lossy();
        let reply = client.value(&script);
        let reply = reply.split_once("\r\n").map_or("", |(_, text)| text);
        let reply = reply.strip_suffix("\r\n").unwrap_or(reply);
        different += usize::from(expected.starts_with("true"));
        assert_eq!(reply, expected, "{call}");
    }
    assert!(different > count / 10, "most calls must not fail");
}

#[test]
fn patterns_match_what_those_of_the_c_library_match() {
    compare(20_000, 0x9d1c_3b77, |chance| {
        let subject = quoted(&text(chance, &PARTS, 12));
        let pattern = quoted(&text(chance, &ITEMS, 6));
        match chance.below(4) {
            0 => format!("string.find({subject}, {pattern}, {})", chance.below(8)),
            1 => format!("string.match({subject}, {pattern})"),
            2 => {
                let by = quoted(chance.pick(&["x", "%0", "<%1>", "%2", "%%", "", "%"]));
                format!("string.gsub({subject}, {pattern}, {by})")
            }
            _ => format!(
                "(function() local t = {{}} for a, b in string.gmatch({subject}, {pattern}) do \
                 t[#t+1] = tostring(a) .. tostring(b) end return table.concat(t, ';') end)()"
            ),
        }
    });
}

#[test]
fn replacements_by_functions_and_tables_are_those_of_the_c_library() {
    compare(4_000, 0x51f3_0ab5, |chance| {
        let subject = quoted(&text(chance, &PARTS, 12));
        let pattern = quoted(&text(chance, &ITEMS, 4));
        let by = chance.pick(&[
            "function(a, b) return tostring(a) .. tostring(b) end",
            "function() end",
            "function() return false end",
            "{a = 'x', b = 2, ab = false}",
            "function() return 5 end",
        ]);
        let count = chance.pick(&["", ", 1", ", 0", ", 2"]);
        format!("string.gsub({subject}, {pattern}, {by}{count})")
    });
}

#[test]
fn formats_and_parts_of_strings_are_those_of_the_c_library() {
    let numbers = [
        "0",
        "1",
        "-1",
        "2.5",
        "1e15",
        "-1e-7",
        "1/0",
        "255",
        "123456789",
        "0.1",
        "1e100",
        "3.999",
    ];
    compare(10_000, 0x7731_9e01, |chance| {
        let number = chance.pick(&numbers);
        let (first, last) = (chance.below(12), chance.below(12));
        let subject = quoted(&text(chance, &PARTS, 8));
        let flags = chance.pick(&["", "-", "+", " ", "0", "#", "-+", "0+"]);
        let width = chance.pick(&["", "5", "12", "1"]);
        let precision = chance.pick(&["", ".0", ".3", ".10", "."]);
        match chance.below(6) {
            0 => {
                let option = chance.pick(&["d", "i"]);
                format!("string.format('%{flags}{width}{precision}{option}', {number})")
            }
            1 => {
                let option = chance.pick(&["e", "f", "g", "E", "G"]);
                format!("string.format('%{flags}{width}{precision}{option}', {number})")
            }
            2 => format!("string.format('%{width}{precision}s|%q', {subject}, {subject})"),
            3 => format!(
                "string.sub({subject}, {}, {})",
                first as isize - 6,
                last as isize - 6
            ),
            4 => format!(
                "string.byte({subject}, {}, {})",
                first as isize - 6,
                last as isize - 6
            ),
            _ => format!("tostring({number}), {number} .. '', ({subject}):rep({first} - 3)"),
        }
    });
}
