//! The commands that ask a running server about itself: `ping` and `info`.

use std::time::Instant;

use clap::Args;

use super::output::Output;
use super::server::ServerAddress;
use super::status::{is_alone, read_info};
use super::{EXIT_CODES, Failure};

const PING_EXAMPLES: &str = "\
Examples:
  penstock ping
  penstock ping --count 10 --addr 127.0.0.1:7420";

const INFO_EXAMPLES: &str = "\
Examples:
  penstock info
  penstock info replication
  penstock info | jq .counters";

/// Arguments of `penstock ping`.
#[derive(Args)]
#[command(after_help = format!("{PING_EXAMPLES}\n\n{EXIT_CODES}"))]
pub struct PingArgs {
    /// How many times
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=100_000)
    )]
    count: u32,
    #[command(flatten)]
    server: ServerAddress,
}

/// Arguments of `penstock info`.
#[derive(Args)]
#[command(after_help = format!("{INFO_EXAMPLES}\n\n{EXIT_CODES}"))]
pub struct InfoArgs {
    /// One part of it, as replication, counters or histograms; all without
    #[arg(value_name = "PART")]
    part: Option<String>,
    #[command(flatten)]
    server: ServerAddress,
}

impl PingArgs {
    /// Prints how long each round took.
    pub fn run(self) -> Result<(), Failure> {
        let connection = self.server.connect_node()?;
        let mut out = Output::stdout();
        for round in 1..=self.count {
            let begun = Instant::now();
            let pong = connection.client().ping().wait();
            pong.map_err(|error| connection.failed_read(&error))?;
            out.line(format_args!(
                "pong {round}: {} us",
                begun.elapsed().as_micros()
            ));
        }
        out.finish()
    }
}

impl InfoArgs {
    /// Prints the server's own account.
    pub fn run(self) -> Result<(), Failure> {
        let mut info = self.server.connect_node()?.info()?;
        if let Some(part) = &self.part {
            info = part_of(&info, part, &self.server)?;
        }
        let mut out = Output::stdout();
        out.line(format_args!("{}", indented(info.trim())));
        out.finish()
    }
}

fn part_of(info: &str, part: &str, server: &ServerAddress) -> Result<String, Failure> {
    let info = read_info(info, server)?;
    match info.get(part) {
        Some(part) => Ok(part.to_string()),
        None if part == "replication" => Err(is_alone(server)),
        None => {
            let parts = info.as_object().into_iter().flatten();
            let parts: Vec<&str> = parts.map(|(name, _)| name.as_str()).collect();
            Err(Failure::usage(format_args!(
                "INFO has no {part:?}; it has {}",
                parts.join(", ")
            )))
        }
    }
}

/// JSON with a line for each member. Only what stands outside strings is touched.
fn indented(json: &str) -> String {
    let mut text = String::new();
    let mut depth = 0_usize;
    let (mut in_string, mut escaped) = (false, false);
    let mut previous = ' ';
    for c in json.chars() {
        if in_string {
            text.push(c);
            in_string = escaped || c != '"';
            escaped = !escaped && c == '\\';
            previous = c;
            continue;
        }
        let breaks = match c {
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                !matches!(previous, '{' | '[')
            }
            c if c.is_whitespace() => continue,
            _ => matches!(previous, '{' | '[' | ','),
        };
        if breaks {
            text.push('\n');
            text.extend(std::iter::repeat_n("  ", depth));
        }
        text.push(c);
        match c {
            '{' | '[' => depth += 1,
            ':' => text.push(' '),
            '"' => in_string = true,
            _ => {}
        }
        previous = c;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_gets_a_line_per_member_and_strings_stay_as_they_are() {
        let json = r#"{"a":1, "b":{"c":"x\"{,}:[]\\","d":[1,2]},"e":{},"f":[]}"#;
        let expected = r#"{
  "a": 1,
  "b": {
    "c": "x\"{,}:[]\\",
    "d": [
      1,
      2
    ]
  },
  "e": {},
  "f": []
}"#;
        assert_eq!(indented(json), expected);
        assert_eq!(indented(&indented(json)), expected);
    }

    #[test]
    fn json_that_is_broken_is_shown_and_no_reason_to_fail() {
        for json in ["", "}", "]]", "{\"a", "{\"a\\"] {
            indented(json);
        }
    }
}
