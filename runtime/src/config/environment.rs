//! The variables of the environment that are options, and the files that some of them name.
//!
//! `PENSTOCK_SHARDS` is the value of the option `shards`, and `PENSTOCK_SHARDS_FILE` names a file
//! with that value, as those who run containers give it. An option that is the path of a file has
//! no such form: its own variable names the file already.
//!
//! Kubernetes gives each pod variables about every service of its namespace, and those of a service
//! whose name begins with `penstock` have the prefix of the server's own. They are passed over.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::OPTIONS;
use super::option::{ConfigOption, ENVIRONMENT_PREFIX, Kind};
use super::removed::no_such;

/// Variables under the prefix that are no options of the server: where the file is, and the address
/// that clients use, as whom, and whom they trust there.
const OTHER_VARIABLES: [&str; 6] = [
    "CONFIG",
    "ADDR",
    "USER",
    "SECRET_FILE",
    "TLS_CA",
    "TLS_NAME",
];

/// The longest file that holds the value of an option.
const FILE_BYTES_MAX: usize = 4 << 10;

/// A file that a variable names, read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VariableFile {
    /// The variable.
    pub variable: String,
    /// What it holds, without the end of its line.
    pub text: String,
}

/// The value of an option, as a variable or its file gives it.
pub(super) struct GivenValue {
    /// Which option, by its place in the table.
    pub(super) index: usize,
    pub(super) is_of_file: bool,
    pub(super) text: String,
}

/// Why variables are refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VariableError {
    /// No such option: mend the name.
    Unknown {
        /// The variable.
        variable: String,
        /// That there is none, and which one is nearest or what took its place.
        cause: String,
    },
    /// The option is the path of a file: name the file in the option's own variable.
    IsPath {
        /// The variable.
        variable: String,
        /// The option's own one.
        known: String,
    },
    /// Both forms are given: take one of them away.
    Twice {
        /// The option's own variable.
        variable: String,
        /// That of the file.
        file_variable: String,
    },
    /// The file gives no value: mend the file, or its name.
    File {
        /// The variable.
        variable: String,
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        cause: String,
    },
}

impl fmt::Display for VariableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            VariableError::Unknown { variable, cause } => {
                write!(f, "environment {}: {cause}", variable.escape_debug())
            }
            VariableError::IsPath { variable, known } => write!(
                f,
                "environment {variable}: no such option; {known} names the file itself"
            ),
            VariableError::Twice {
                variable,
                file_variable,
            } => write!(
                f,
                "environment {variable} and {file_variable}: both are given; take one of them away"
            ),
            VariableError::File {
                variable,
                path,
                cause,
            } => {
                let path = path.display().to_string();
                write!(
                    f,
                    "environment {variable}: {}: {cause}",
                    path.escape_debug()
                )
            }
        }
    }
}

/// What a variable stands for.
enum Meaning {
    /// Nothing of the server.
    Other,
    /// A service of Kubernetes with this prefix in its name.
    ServiceLink,
    Option(usize),
    FileOf(usize),
}

/// Whether Kubernetes gives such a variable to pods beside a service: `A_SERVICE_HOST`,
/// `A_SERVICE_PORT`, `A_SERVICE_PORT_NAME`, `A_PORT` and `A_PORT_7411_TCP`, the last one also with
/// `_PROTO`, `_PORT` or `_ADDR` behind it. `A_PORT` is one by its value, a URL: otherwise it is
/// rather a misspelt option.
fn is_service_link(variable: &str, value: &str) -> bool {
    const PROTOCOLS: [&str; 3] = ["TCP", "UDP", "SCTP"];
    if variable.ends_with("_SERVICE_HOST") || variable.contains("_SERVICE_PORT") {
        return true;
    }
    if variable.ends_with("_PORT") && value.contains("://") {
        return true;
    }
    let begin = ["_PROTO", "_PORT", "_ADDR"]
        .iter()
        .find_map(|end| variable.strip_suffix(end));
    let Some((begin, protocol)) = begin.unwrap_or(variable).rsplit_once('_') else {
        return false;
    };
    let Some((_, port)) = begin.rsplit_once("_PORT_") else {
        return false;
    };
    PROTOCOLS.contains(&protocol) && port.parse::<u16>().is_ok()
}

fn meaning(variable: &str, value: &str) -> Result<Meaning, VariableError> {
    let Some(rest) = variable.strip_prefix(ENVIRONMENT_PREFIX) else {
        return Ok(Meaning::Other);
    };
    if OTHER_VARIABLES.contains(&rest) {
        return Ok(Meaning::Other);
    }
    let mut options = OPTIONS.iter();
    if let Some(index) = options.position(|option| option.variable() == variable) {
        return Ok(Meaning::Option(index));
    }
    let mut options = OPTIONS.iter();
    match options.position(|option| option.file_variable() == variable) {
        Some(index) if OPTIONS[index].kind == Kind::PathOrOff => Err(VariableError::IsPath {
            variable: variable.into(),
            known: OPTIONS[index].variable(),
        }),
        Some(index) => Ok(Meaning::FileOf(index)),
        None if is_service_link(variable, value) => Ok(Meaning::ServiceLink),
        None => Err(VariableError::Unknown {
            variable: variable.into(),
            cause: no_such(&rest.to_lowercase(), ConfigOption::variable),
        }),
    }
}

/// Reads the files that variables name.
pub(super) fn read_files(
    environment: &[(String, String)],
) -> Result<Vec<VariableFile>, VariableError> {
    let mut files = Vec::new();
    for (variable, path) in environment {
        if let Meaning::FileOf(_) = meaning(variable, path)? {
            let path = Path::new(path);
            let text = read_line(path).map_err(|cause| VariableError::File {
                variable: variable.clone(),
                path: path.into(),
                cause,
            })?;
            files.push(VariableFile {
                variable: variable.clone(),
                text,
            });
        }
    }
    Ok(files)
}

/// The values that variables and their files give.
pub(super) fn given(
    environment: &[(String, String)],
    files: &[VariableFile],
) -> Result<Vec<GivenValue>, VariableError> {
    let mut given = Vec::new();
    for (variable, text) in environment {
        let (index, is_of_file, text) = match meaning(variable, text)? {
            Meaning::Other | Meaning::ServiceLink => continue,
            Meaning::Option(index) => (index, false, text.clone()),
            Meaning::FileOf(index) => {
                let mut files = files.iter();
                let file = files.find(|file| file.variable == *variable);
                let file = file.ok_or_else(|| VariableError::File {
                    variable: variable.clone(),
                    path: text.into(),
                    cause: "it was not read".into(),
                })?;
                let own = OPTIONS[index].variable();
                if environment.iter().any(|(name, _)| *name == own) {
                    return Err(VariableError::Twice {
                        variable: own,
                        file_variable: variable.clone(),
                    });
                }
                (index, true, file.text.clone())
            }
        };
        given.push(GivenValue {
            index,
            is_of_file,
            text,
        });
    }
    Ok(given)
}

/// The variables that tell of services of Kubernetes, in their order.
pub(super) fn service_links(environment: &[(String, String)]) -> Vec<String> {
    let links = environment
        .iter()
        .filter(|(variable, text)| matches!(meaning(variable, text), Ok(Meaning::ServiceLink)));
    let mut names: Vec<String> = links.map(|(variable, _)| variable.clone()).collect();
    names.sort();
    names
}

/// The one line of a file.
fn read_line(path: &Path) -> Result<String, String> {
    let unreadable = |error| format!("cannot be read: {error}");
    // A pipe would make the opening wait.
    let is_file = std::fs::metadata(path).map_err(unreadable)?.is_file();
    if !is_file {
        return Err("it is no file".into());
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(unreadable)?;
    let mut file = file.take(FILE_BYTES_MAX as u64 + 1);
    file.read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() > FILE_BYTES_MAX {
        return Err(format!("it has more than {FILE_BYTES_MAX} bytes"));
    }
    let text = String::from_utf8(bytes).map_err(|_| "it is no text".to_string())?;
    let line = text.strip_suffix('\n').unwrap_or(&text);
    let line = line.strip_suffix('\r').unwrap_or(line);
    match line.contains(char::is_control) {
        true => Err("it has more than one line".into()),
        false => Ok(line.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn pairs(variables: &[(&str, &str)]) -> Vec<(String, String)> {
        let own = |&(name, text): &(&str, &str)| (name.to_string(), text.to_string());
        variables.iter().map(own).collect()
    }

    fn read(variables: &[(&str, &str)]) -> Result<Vec<GivenValue>, String> {
        let environment = pairs(variables);
        let files = read_files(&environment).map_err(|it| it.to_string())?;
        given(&environment, &files).map_err(|it| it.to_string())
    }

    #[test]
    fn a_file_gives_the_value_of_an_option_and_both_forms_are_refused_by_name() {
        let folder = std::env::temp_dir().join(format!("penstock-env-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let path = folder.join("shards");
        let name = path.to_str().expect("text");
        let file = ("PENSTOCK_SHARDS_FILE", name);
        for text in ["2", "2\n", "2\r\n"] {
            fs::write(&path, text).expect("written");
            let given = read(&[file, ("HOME", "/")]).expect("a value");
            let [value] = &given[..] else {
                panic!("{} values", given.len());
            };
            assert_eq!(OPTIONS[value.index].name, "shards");
            assert!(value.is_of_file && value.text == "2");
        }
        let refusal_of =
            |variables: &[(&str, &str)]| read(variables).map(drop).expect_err("refused");
        assert_eq!(
            refusal_of(&[file, ("PENSTOCK_SHARDS", "2")]),
            "environment PENSTOCK_SHARDS and PENSTOCK_SHARDS_FILE: both are given; take one of \
             them away"
        );
        for (bytes, cause) in [
            (b"2\n3\n".to_vec(), "it has more than one line"),
            (vec![b'2'; 4097], "it has more than 4096 bytes"),
            (vec![0xff], "it is no text"),
        ] {
            fs::write(&path, bytes).expect("written");
            let expected = format!("environment PENSTOCK_SHARDS_FILE: {name}: {cause}");
            assert_eq!(refusal_of(&[file]), expected);
        }
        fs::remove_dir_all(&folder).expect("removed");
        assert!(refusal_of(&[file]).contains(&format!("{name}: cannot be read: ")));
        assert!(refusal_of(&[("PENSTOCK_SHARDS_FILE", "/")]).ends_with("/: it is no file"));
    }

    #[test]
    fn variables_of_services_of_kubernetes_are_passed_over_and_misspelt_options_are_not() {
        let links = [
            ("PENSTOCK_SERVICE_HOST", "10.0.0.1"),
            ("PENSTOCK_SERVICE_PORT", "7411"),
            ("PENSTOCK_SERVICE_PORT_RESP", "7413"),
            ("PENSTOCK_PORT", "tcp://10.0.0.1:7411"),
            ("PENSTOCK_PORT_7411_TCP", "tcp://10.0.0.1:7411"),
            ("PENSTOCK_PORT_7411_TCP_PROTO", "tcp"),
            ("PENSTOCK_PORT_7411_TCP_PORT", "7411"),
            ("PENSTOCK_PORT_7411_TCP_ADDR", "10.0.0.1"),
            ("PENSTOCK_METRICS_SERVICE_HOST", "10.0.0.2"),
            ("PENSTOCK_METRICS_PORT", "udp://10.0.0.2:7412"),
            ("PENSTOCK_METRICS_PORT_7412_UDP_PROTO", "udp"),
            ("PENSTOCK_DATA_SERVICE_PORT", "1"),
        ];
        let given = read(&[&links[..], &[("PENSTOCK_SHARDS", "2")]].concat()).expect("passed over");
        assert_eq!(given.len(), 1);
        assert_eq!(service_links(&pairs(&links)).len(), links.len());
        for (name, text) in [
            ("PENSTOCK_PORT", "7411"),
            ("PENSTOCK_SHARD_PORT", "7420"),
            ("PENSTOCK_PORT_7411", "tcp"),
            ("PENSTOCK_PORT_X_TCP", "tcp"),
            ("PENSTOCK_TCP", "x"),
            ("PENSTOCK_LISTEN_ADDR", "x"),
        ] {
            let message = read(&[(name, text)]).map(drop).expect_err("refused");
            assert!(message.contains("no such option"), "{message}");
            assert!(service_links(&pairs(&[(name, text)])).is_empty());
        }
        for option in OPTIONS {
            for name in [option.variable(), option.file_variable()] {
                assert!(!is_service_link(&name, "tcp://10.0.0.1:1"), "{name}");
            }
        }
    }

    #[test]
    fn an_option_that_is_a_path_has_no_second_form_and_no_two_variables_are_one() {
        let refusal_of = |name| read(&[(name, "/x")]).map(drop).expect_err("refused");
        assert_eq!(
            refusal_of("PENSTOCK_TLS_KEY_FILE"),
            "environment PENSTOCK_TLS_KEY_FILE: no such option; PENSTOCK_TLS_KEY names the file \
             itself"
        );
        assert!(refusal_of("PENSTOCK_USERS_FILE").contains("PENSTOCK_USERS names"));
        for name in ["PENSTOCK_LOG_FILE", "PENSTOCK_ADMIN_TOKEN_FILE"] {
            let given = read(&[(name, "/x")]).expect("an option of its own");
            assert!(given[0].text == "/x" && !given[0].is_of_file, "{name}");
        }
        for option in OPTIONS {
            let is_taken = OPTIONS
                .iter()
                .any(|it| it.variable() == option.file_variable());
            assert!(!is_taken, "{}", option.name);
        }
    }

    #[test]
    fn a_variable_that_the_build_hands_to_the_server_is_no_option() {
        let variables = include_str!("../../build.rs")
            .lines()
            .filter_map(|line| line.split_once("cargo::rustc-env="))
            .filter_map(|(_, rest)| rest.split_once('='))
            .map(|(name, _)| (name, "text"));
        let variables: Vec<(&str, &str)> = variables.collect();
        assert!(!variables.is_empty(), "the build hands over no variable");
        assert_eq!(read(&variables).map(|it| it.len()), Ok(0));
    }
}
