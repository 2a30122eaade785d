//! The flags of `serve`, made from the table of options.

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use penstock::config::{ConfigOption, Group, Kind, OPTIONS, REMOVED, RemovedOption};

/// The options that were given as flags, as written; the configuration reads and checks them with
/// the other sources.
#[derive(Debug, Default)]
pub struct OptionFlags {
    /// Name in the table and text.
    pub given: Vec<(&'static str, String)>,
}

impl FromArgMatches for OptionFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut flags = OptionFlags::default();
        flags.update_from_arg_matches(matches)?;
        Ok(flags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        let names = OPTIONS.iter().map(|option| option.name);
        for name in names.chain(REMOVED.iter().map(|removed| removed.name)) {
            if let Some(text) = matches.get_one::<String>(name) {
                self.given.push((name, text.clone()));
            }
        }
        Ok(())
    }
}

impl Args for OptionFlags {
    fn augment_args(command: Command) -> Command {
        let flags = OPTIONS.iter().map(flag).chain(REMOVED.iter().map(gone));
        flags.fold(command, Command::arg)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

/// The flag of an option that is gone: the configuration refuses it with what took its place.
fn gone(removed: &'static RemovedOption) -> Arg {
    Arg::new(removed.name)
        .long(removed.name.replace('_', "-"))
        // Some were switches, which stand without a value.
        .num_args(0..=1)
        .default_missing_value("true")
        .hide(true)
}

fn flag(option: &'static ConfigOption) -> Arg {
    let heading = match option.group {
        Group::Main => None,
        Group::Limits => Some("Limits"),
        Group::Tuning => Some("Tuning"),
    };
    let short = format!("{} [default: {}]", option.meaning(), option.default);
    let long = format!(
        "{}\n\nAllowed: {}. Default: {}. Also {} and {} in the file.",
        option.meaning(),
        option.allowed(),
        option.default,
        option.variable(),
        option.name
    );
    let arg = Arg::new(option.name)
        .long(option.name.replace('_', "-"))
        .value_name(value_name(option))
        .help(short)
        .long_help(long)
        .help_heading(heading);
    match option.kind {
        Kind::Switch => arg
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true"),
        _ => arg,
    }
}

fn value_name(option: &ConfigOption) -> String {
    match option.kind {
        Kind::Path => "DIR".into(),
        Kind::PathOrOff => "FILE".into(),
        Kind::Address | Kind::AddressOrOff => "IP:PORT".into(),
        Kind::Choice(words) => words.join("|"),
        Kind::Word | Kind::WordOrOff => "WORD".into(),
        Kind::UrlsOrOff => "URLS".into(),
        Kind::Switch => "BOOL".into(),
        Kind::Count(..) => "N".into(),
        Kind::Size(..) => "SIZE".into(),
        Kind::Duration(..) => "TIME".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(words: &[&str]) -> Vec<(&'static str, String)> {
        let command = OptionFlags::augment_args(Command::new("serve"));
        let matches = command.try_get_matches_from([&["serve"], words].concat());
        OptionFlags::from_arg_matches(&matches.unwrap())
            .unwrap()
            .given
    }

    #[test]
    fn only_flags_that_were_given_speak() {
        assert_eq!(given(&[]), []);
        assert_eq!(
            given(&["--spin-us", "0", "--data", "x"]),
            [("data", "x".to_string()), ("spin_us", "0".to_string())]
        );
    }

    #[test]
    fn switch_needs_no_value_and_takes_one() {
        let name = "insecure";
        assert_eq!(given(&["--insecure"]), [(name, "true".to_string())]);
        assert_eq!(given(&["--insecure=false"]), [(name, "false".to_string())]);
    }

    #[test]
    fn every_option_is_a_flag_whose_help_names_its_other_spellings() {
        let mut command = OptionFlags::augment_args(Command::new("serve"));
        let help = command.render_long_help().to_string();
        for option in OPTIONS {
            for text in [&option.flag(), &option.variable(), option.default] {
                assert!(help.contains(text), "{text}");
            }
        }
    }
}
