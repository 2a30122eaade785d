//! The two text formats of numbers that a scraper may ask for, and which one it is given. Pure.

use std::fmt::Write;

/// How numbers are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exposition {
    /// OpenMetrics 1.0.0.
    OpenMetrics,
    /// The text format of Prometheus, version 0.0.4: what every scraper reads.
    Text,
}

impl Exposition {
    /// The header of a reply in this format.
    pub(super) fn content_type(self) -> &'static str {
        match self {
            Exposition::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Exposition::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    fn media_type(self) -> (&'static str, &'static str) {
        match self {
            Exposition::OpenMetrics => ("application", "openmetrics-text"),
            Exposition::Text => ("text", "plain"),
        }
    }

    fn has_version(self, version: &str) -> bool {
        match self {
            Exposition::OpenMetrics => ["1.0.0", "0.0.1"].contains(&version),
            Exposition::Text => version == "0.0.4",
        }
    }

    /// The format for a request with this `Accept` header (RFC 9110, 12.5.1): the one with the
    /// higher quality. OpenMetrics is only for a request that names it; one that names neither
    /// gets text.
    pub(super) fn accepted(accept: &str) -> Exposition {
        let named = |format: Exposition| {
            let ranges = accept.split(',').filter_map(MediaRange::read);
            let ranges = ranges.filter(|range| range.rank(format).is_some());
            let best = ranges.max_by_key(|range| (range.rank(format), range.per_mille));
            best.map_or((0, 0), |range| {
                (range.per_mille, range.rank(format).unwrap_or(0))
            })
        };
        let (open, rank) = named(Exposition::OpenMetrics);
        let (text, _) = named(Exposition::Text);
        match rank == EXACT && open > 0 && open >= text {
            true => Exposition::OpenMetrics,
            false => Exposition::Text,
        }
    }

    /// The numbers in this format; `text` has them as OpenMetrics.
    pub(super) fn write(self, text: String) -> String {
        match self {
            Exposition::OpenMetrics => text,
            Exposition::Text => plain(&text),
        }
    }
}

/// The rank of a range that names a format, over one that takes it in.
const EXACT: u8 = 3;

/// One of the media types that a client takes.
struct MediaRange<'a> {
    kind: &'a str,
    subtype: &'a str,
    version: Option<&'a str>,
    /// Its quality, 0 to 1000.
    per_mille: u16,
}

impl<'a> MediaRange<'a> {
    fn read(text: &'a str) -> Option<MediaRange<'a>> {
        let mut fields = text.split(';').map(str::trim);
        let (kind, subtype) = fields.next()?.split_once('/')?;
        let mut range = MediaRange {
            kind,
            subtype,
            version: None,
            per_mille: 1000,
        };
        for (name, value) in fields.filter_map(|field| field.split_once('=')) {
            let value = value.trim().trim_matches('"');
            match name.trim() {
                "version" => range.version = Some(value),
                "q" | "Q" => range.per_mille = per_mille(value)?,
                _ => {}
            }
        }
        Some(range)
    }

    /// How closely this names a format; `None` if not at all.
    fn rank(&self, format: Exposition) -> Option<u8> {
        let (kind, subtype) = format.media_type();
        let is_kind = self.kind.eq_ignore_ascii_case(kind);
        if is_kind && self.subtype.eq_ignore_ascii_case(subtype) {
            let is_version = self.version.is_none_or(|it| format.has_version(it));
            return is_version.then_some(EXACT);
        }
        match (is_kind, self.kind, self.subtype) {
            (true, _, "*") => Some(2),
            (_, "*", "*") => Some(1),
            _ => None,
        }
    }
}

/// A quality such as `0.75`, with at most three digits behind the point.
fn per_mille(text: &str) -> Option<u16> {
    let (whole, rest) = text.split_once('.').unwrap_or((text, ""));
    if rest.len() > 3 || !rest.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let whole = ["0", "1"].iter().position(|it| *it == whole)?;
    let thousandths: u16 = format!("{rest:0<3}").parse().ok()?;
    Some(u16::try_from(whole).ok()? * 1000 + thousandths).filter(|it| *it <= 1000)
}

/// OpenMetrics as the text format: there the type of a counter names it with its ending, an info is
/// a gauge, and units and the end are not told.
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut help = None;
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ');
        } else if let Some((name, kind)) = line
            .strip_prefix("# TYPE ")
            .and_then(|rest| rest.split_once(' '))
        {
            let (ending, kind) = match kind {
                "counter" => ("_total", "counter"),
                "info" => ("_info", "gauge"),
                "unknown" => ("", "untyped"),
                kind => ("", kind),
            };
            if let Some((_, help)) = help.take().filter(|(of, _)| *of == name) {
                writeln!(plain, "# HELP {name}{ending} {help}").expect(NO_FAILURE);
            }
            writeln!(plain, "# TYPE {name}{ending} {kind}").expect(NO_FAILURE);
        } else if !line.starts_with('#') {
            plain.push_str(line);
            plain.push('\n');
        }
    }
    plain
}

const NO_FAILURE: &str = "writing to memory does not fail";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scraper_gets_the_format_that_it_asks_for() {
        let open = Exposition::OpenMetrics;
        let text = Exposition::Text;
        for (accept, format) in [
            ("", text),
            ("*/*", text),
            ("text/plain;version=0.0.4", text),
            ("text/plain", text),
            ("text/*", text),
            ("application/*", text),
            ("text/html, */*;q=0.8", text),
            ("application/openmetrics-text", open),
            (
                "application/openmetrics-text; version=1.0.0; charset=utf-8",
                open,
            ),
            ("APPLICATION/OpenMetrics-Text; version=\"1.0.0\"", open),
            // A version that is not made here.
            (
                "application/openmetrics-text;version=2.0.0,text/plain;q=0.1",
                text,
            ),
            (
                "application/openmetrics-text;q=0.5,text/plain;version=0.0.4",
                text,
            ),
            ("application/openmetrics-text;q=0,*/*", text),
            ("application/openmetrics-text;q=0.6,text/plain;q=0.6", open),
            (
                "application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
                open,
            ),
            // Prometheus 2 and 3.
            (
                "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
                open,
            ),
            (
                "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,text/plain;version=0.0.4;q=0.2,*/*;q=0.1",
                open,
            ),
            // What cannot be read is passed over.
            (
                "nonsense, application/openmetrics-text;q=2, text/plain;q=0.2",
                text,
            ),
            ("application/openmetrics-text;q=0.7777", text),
        ] {
            assert_eq!(Exposition::accepted(accept), format, "{accept}");
        }
    }

    #[test]
    fn text_names_counters_with_their_ending_and_has_neither_units_nor_an_end() {
        let open = "# HELP ops Of \\ all.\n# TYPE ops counter\n# UNIT ops ops\n\
            ops_total{a=\"# b\"} 1\n# HELP build What.\n\
                    # TYPE build info\nbuild_info{version=\"1\"} 1\n# HELP s T.\n\
                    # TYPE s histogram\ns_sum 0.5\ns_count 1\n\
                    s_bucket{le=\"+Inf\"} 1\n# EOF\n";
        let plain = "# HELP ops_total Of \\ all.\n# TYPE ops_total counter\n\
            ops_total{a=\"# b\"} 1\n# HELP build_info What.\n\
                     # TYPE build_info gauge\nbuild_info{version=\"1\"} 1\n# HELP s T.\n\
                     # TYPE s histogram\ns_sum 0.5\ns_count 1\n\
                     s_bucket{le=\"+Inf\"} 1\n";
        assert_eq!(Exposition::Text.write(open.into()), plain);
        assert_eq!(Exposition::OpenMetrics.write(open.into()), open);
    }
}
