//! Whether the keyspace of some keys is marked with the layout that a program was compiled with.

use std::fmt;

use penstock_net::keyspace::{Action, Keyspace, Settings};

use crate::client::Client;
use crate::layout::{Description, Layout};
use crate::operation::ClientError;
use crate::verbs::Verbs;

/// Why keys with a prefix may hold another layout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LayoutMismatch {
    /// The keyspace has no mark: it is not known what its values are.
    Unmarked {
        /// What the keys begin with.
        prefix: Vec<u8>,
        /// The layout of this program.
        layout: &'static str,
        /// Its mark.
        mark: u16,
    },
    /// The keyspace has the mark of another layout.
    Other {
        /// What the keys begin with.
        prefix: Vec<u8>,
        /// The layout of this program.
        layout: &'static str,
        /// Its mark.
        mark: u16,
        /// The mark of the keyspace.
        found: u16,
    },
    /// The keyspaces could not be asked.
    Store(ClientError),
}

impl fmt::Display for LayoutMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LayoutMismatch::Unmarked {
                prefix,
                layout,
                mark,
            } => {
                let prefix = prefix.escape_ascii();
                write!(
                    f,
                    "the keys {prefix:?} have no layout: if they hold a {layout}, say so once by \
                     mark_layout, or by penstock keyspace set '{prefix}' --layout {mark}",
                    prefix = prefix.to_string(),
                )
            }
            LayoutMismatch::Other {
                prefix,
                layout,
                mark,
                found,
            } => write!(
                f,
                "the keys {:?} have the layout {found}; {layout} of this program is {mark}: its \
                 fields differ in name, type or offset",
                prefix.escape_ascii().to_string()
            ),
            LayoutMismatch::Store(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for LayoutMismatch {}

impl From<ClientError> for LayoutMismatch {
    fn from(error: ClientError) -> Self {
        LayoutMismatch::Store(error)
    }
}

impl Description {
    /// Checks that keys with this prefix belong to a keyspace with the mark of this layout.
    ///
    /// # Errors
    /// [`LayoutMismatch::Unmarked`] and [`LayoutMismatch::Other`].
    pub fn check(&self, prefix: &[u8], keyspaces: &[Keyspace]) -> Result<(), LayoutMismatch> {
        let (layout, mark) = (self.name(), self.mark());
        let found = settings_of(prefix, keyspaces).layout;
        let prefix = prefix.to_vec();
        match found {
            0 => Err(LayoutMismatch::Unmarked {
                prefix,
                layout,
                mark,
            }),
            _ if found == mark => Ok(()),
            _ => Err(LayoutMismatch::Other {
                prefix,
                layout,
                mark,
                found,
            }),
        }
    }
}

/// The settings of the keyspace that keys with this prefix belong to: the longest that fits.
fn settings_of(prefix: &[u8], keyspaces: &[Keyspace]) -> Settings {
    keyspaces
        .iter()
        .filter(|keyspace| prefix.starts_with(&keyspace.prefix))
        .max_by_key(|keyspace| keyspace.prefix.len())
        .map_or_else(Settings::default, |keyspace| keyspace.settings)
}

impl Client {
    /// This client, if the keys with this prefix hold the layout `L`. To be called behind
    /// [`Client::connect`]; it asks for the keyspaces once, and blocks.
    ///
    /// ```no_run
    /// # use penstock_client::{Client, ClientOptions, Layout};
    /// # fn open<Product: Layout>() -> Result<(), Box<dyn std::error::Error>> {
    /// let client = Client::connect("127.0.0.1:7411".parse()?, ClientOptions::default())?
    ///     .expects::<Product>(b"product:")?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`LayoutMismatch`].
    pub fn expects<L: Layout>(self, prefix: &[u8]) -> Result<Client, LayoutMismatch> {
        let keyspaces = self.keyspace(b"", Action::List).wait()?;
        L::DESCRIPTION.check(prefix, &keyspaces)?;
        Ok(self)
    }

    /// Marks the keyspace of exactly this prefix with the layout `L`. It is made if it is missing.
    /// Its other settings stay, those of a missing one are those of the keyspace around it. Blocks.
    ///
    /// # Errors
    /// [`LayoutMismatch::Other`] if it has another mark already: nothing was changed. Somebody who
    /// changes the same keyspace at the same time may lose that change.
    pub fn mark_layout<L: Layout>(&self, prefix: &[u8]) -> Result<(), LayoutMismatch> {
        let keyspaces = self.keyspace(b"", Action::List).wait()?;
        let own = keyspaces.iter().find(|it| it.prefix == prefix);
        if own.is_some_and(|it| it.settings.layout != 0) {
            return L::DESCRIPTION.check(prefix, &keyspaces);
        }
        let settings = Settings {
            layout: L::DESCRIPTION.mark(),
            ..settings_of(prefix, &keyspaces)
        };
        self.keyspace(prefix, Action::Set(settings)).wait()?;
        Ok(())
    }
}
