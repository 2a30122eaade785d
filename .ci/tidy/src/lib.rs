//! `cargo tidy`: limits on the size and the structure of code and documents.
//!
//! `.ci/tidy.allow` lists what breaks a limit today, with its figure. A figure may only shrink.

#![forbid(unsafe_code)]

mod allowed;
mod cycles;
mod functions;
mod lines;
mod modules;
mod paths;
mod tree;
mod types;

pub use allowed::{Allowed, verdict};
pub use tree::Tree;

/// Lines of a file.
pub const FILE_LINES_MAX: usize = 900;
/// Lines of a function, from `fn` to the closing brace.
pub const FUNCTION_LINES_MAX: usize = 100;
/// Characters of a line.
pub const LINE_CHARS_MAX: usize = 100;
/// A line with a longer word than this is not counted: nobody can break the name of a test.
pub const WORD_CHARS_MAX: usize = 80;

/// Methods of a type, without those of its traits.
pub const METHODS_MAX: usize = 120;
/// Fields of a type.
pub const FIELDS_MAX: usize = 20;

/// What is limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// Modules of one crate that import each other in a circle.
    Cycle,
    /// The fields of a type.
    Fields,
    /// The length of a file.
    File,
    /// The length of a function.
    Function,
    /// The length of lines.
    Line,
    /// The methods of a type.
    Methods,
    /// A file that a document names and that does not exist.
    Path,
}

impl Rule {
    /// All rules.
    pub const ALL: [Rule; 7] = [
        Rule::Cycle,
        Rule::Fields,
        Rule::File,
        Rule::Function,
        Rule::Line,
        Rule::Methods,
        Rule::Path,
    ];

    /// As the list names the rule.
    pub fn name(self) -> &'static str {
        match self {
            Rule::Cycle => "cycle",
            Rule::Fields => "fields",
            Rule::File => "file",
            Rule::Function => "function",
            Rule::Line => "line",
            Rule::Methods => "methods",
            Rule::Path => "path",
        }
    }

    /// The largest figure that needs no entry in the list.
    pub fn limit(self) -> usize {
        match self {
            Rule::Fields => FIELDS_MAX,
            Rule::File => FILE_LINES_MAX,
            Rule::Function => FUNCTION_LINES_MAX,
            Rule::Methods => METHODS_MAX,
            Rule::Cycle | Rule::Line | Rule::Path => 0,
        }
    }

    /// What the figure counts.
    pub fn unit(self) -> &'static str {
        match self {
            Rule::Cycle => "modules in an import cycle",
            Rule::Fields => "fields",
            Rule::File | Rule::Function => "lines",
            Rule::Methods => "methods",
            Rule::Line => "lines of more than 100 characters",
            Rule::Path => "paths that do not exist",
        }
    }
}

/// One subject above the limit of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The rule.
    pub rule: Rule,
    /// A path from the root of the repository; of a function `path::Type::name`, of a type
    /// `crate/src::Type`.
    pub subject: String,
    /// The figure that the rule limits.
    pub figure: usize,
    /// Where: `path:line: what`.
    pub places: Vec<String>,
}

/// Everything in the tree that is above a limit, by subject and rule.
///
/// # Errors
/// A file that cannot be read or parsed: its path and the reason.
pub fn findings(tree: &Tree) -> Result<Vec<Finding>, String> {
    let mut found = lines::findings(tree);
    found.extend(functions::findings(tree)?);
    found.extend(types::findings(tree)?);
    found.extend(paths::findings(tree));
    found.extend(cycles::findings(tree)?);
    found.sort_by(|a, b| (&a.subject, a.rule).cmp(&(&b.subject, b.rule)));
    Ok(found)
}
