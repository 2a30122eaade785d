//! The token of a command that writes: `--token UUID` and `--token new`.

use std::str::FromStr;

use clap::Args;
use penstock_client::{Answer, new_token_at};
use penstock_net::hello::FEATURE_TOKENS;
use penstock_net::level::AckLevel;
use penstock_net::request::{Ask, Token};

use super::Failure;
use super::output::Output;
use super::server::Connection;

/// The name that a write gets.
#[derive(Args)]
pub(super) struct TokenArgs {
    /// Name the write by a UUID of version 7, or by a new one that is printed first. The same
    /// write with the same token is executed once, however often it is asked
    #[arg(long, value_name = "UUID|new")]
    token: Option<Wanted>,
}

#[derive(Clone, Copy)]
enum Wanted {
    New,
    Given(Token),
}

impl FromStr for Wanted {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "new" => Ok(Wanted::New),
            text => match text.parse() {
                Ok(token) => Ok(Wanted::Given(token)),
                Err(error) => Err(format!("{error}; or new")),
            },
        }
    }
}

impl TokenArgs {
    /// Asks a write with its token, if it has one. A new token is printed before the write is
    /// sent, so that it is known whatever comes.
    pub(super) fn call(
        &self,
        connection: &Connection,
        level: AckLevel,
        ask: Ask<'_>,
    ) -> Result<Answer, Failure> {
        let Some(wanted) = self.token else {
            return connection.call(level, ask);
        };
        if connection.hello().features & FEATURE_TOKENS == 0 {
            return Err(Failure::usage(
                "the server is older than --token; update it first",
            ));
        }
        let token = match wanted {
            Wanted::Given(token) => token,
            Wanted::New => {
                let token = match connection.hello().time_ms {
                    0 => connection.client().new_token(),
                    // The connection is new, so what HELLO has told is the time of now.
                    time_ms => new_token_at(time_ms),
                };
                let token = token.map_err(|error| {
                    Failure::usage(format_args!("--token new: no random numbers: {error}"))
                })?;
                let mut out = Output::stdout();
                out.line(format_args!("token {token}"));
                let printed = out.finish();
                printed.map_err(|failure| failure.followed_by("; nothing was executed"))?;
                token
            }
        };
        connection.call_named(level, ask, token)
    }
}
