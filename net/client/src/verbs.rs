//! [`Verbs`]: what every store can be asked, written once.

use penstock_net::apply::Apply;
use penstock_net::instruction::Instruction;
use penstock_net::keyspace::{Action, At, History, Keyspace};
use penstock_net::program::Run;
use penstock_net::reply::KeyExpiry;
use penstock_net::request::{Ask, Condition, Expiry, Token, Wanted, When};
use penstock_net::scan::ScanRequest;
#[cfg(doc)]
use penstock_net::status::Status;

use crate::answers::{Changed, Past, Value};
use crate::operation::FromAnswer;
#[cfg(doc)]
use crate::operation::{Answer, ClientError};
use crate::scan::Page;

/// What every store can be asked, whether it is a server, a cluster or inside this process.
///
/// The trait is implemented for references, so a shared handle stays shared:
///
/// | store | [`Answer<T>`](Verbs::Answer) | when |
/// |---|---|---|
/// | `&`[`Client`](crate::Client) | [`Pending<T>`](crate::Pending) | after `.wait()` or `.await` |
/// | `&Penstock`, embedded | the same, of its own | after `.wait()` or `.await` |
/// | `&mut Local`, embedded | `Result<T, ClientError>` | when the call returns |
/// | `&mut Batch`, embedded | nothing | with the answers of the batch |
///
/// A function that asks can leave open which store it asks:
///
/// ```no_run
/// use penstock_client::{Changed, Client, ClientOptions, Verbs};
///
/// fn put_on_sale<S: Verbs>(store: S, units: u32) -> S::Answer<Changed> {
///     store.set(b"stock:42", &units.to_le_bytes())
/// }
///
/// let client = Client::connect("127.0.0.1:7411".parse()?, ClientOptions::default())?;
/// put_on_sale(&client, 100).wait()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// An answer is an error if the store did not do what was asked: [`ClientError`] has one variant
/// for each thing that the caller can do about it.
pub trait Verbs: Sized {
    /// What an operation returns whose answer is a `T`.
    type Answer<T>;

    /// Asks for anything and reads the answer as a `T`: each verb below is one call of this.
    fn ask_for<T: FromAnswer>(self, ask: Ask<'_>) -> Self::Answer<T>;

    /// The same for a write with this token.
    fn ask_named<T: FromAnswer>(self, ask: Ask<'_>, token: Token) -> Self::Answer<T>;

    /// This store, for one write with this token: SET, DEL, UPDATE_IF, APPLY or RUN. The same write
    /// with the same token is executed once, however often it is asked, and each time answered as
    /// the first time: [`Changed::is_replayed`] tells the difference. Another write with the token
    /// is [`ClientError::Refused`] with [`Status::TokenReused`]. So is anything but a write, and
    /// any use of a token at a server that knows none, with [`Status::Unsupported`].
    ///
    /// What is not OK is not kept: the next request with the token is executed anew. An error that
    /// says *not executed* speaks of its own request, and not of an earlier one with the token.
    ///
    /// ```no_run
    /// # use penstock_client::{Client, ClientError, ClientOptions, Field, Verbs, new_token};
    /// # let client = Client::connect("127.0.0.1:7411".parse()?, ClientOptions::default())?;
    /// let token = new_token()?;
    /// // Store the token with the order, and then ask. After a crash ask again with it.
    /// let stock = Field::u32(0);
    /// let sale = [stock.at_least(1), stock.decrease(1)];
    /// let sold = client.named(token).update_if(b"stock:42", &sale).wait()?;
    /// println!("yours{}", if sold.is_replayed { ", as said before" } else { "" });
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    fn named(self, token: Token) -> Named<Self> {
        Named::new(self, token)
    }

    /// Reads a value; `None` if the key is missing.
    fn get(self, key: &[u8]) -> Self::Answer<Option<Value>> {
        self.ask_for(Ask::get(key))
    }

    /// Tells when a key expires, without its value; `None` if the key is missing.
    fn expiry(self, key: &[u8]) -> Self::Answer<Option<KeyExpiry>> {
        let wanted = Wanted::Expiry;
        self.ask_for(Ask::Get { key, wanted })
    }

    /// Reads a value as it was at a time or version; `None` if the key was missing then. The
    /// keyspace of the key must keep versions. A version that is not kept any more is
    /// [`ClientError::No`] with [`Status::NotKept`] and the oldest version that is kept.
    fn get_at(self, key: &[u8], at: At) -> Self::Answer<Option<Past>> {
        self.ask_for(Ask::GetAt { key, at })
    }

    /// Tells the versions of a key that are kept, the newest first: at most `limit` (1 to 1024),
    /// those with a sequence below `before`, or all of them if `before` is 0.
    fn history(self, key: &[u8], before: u64, limit: u32) -> Self::Answer<History> {
        self.ask_for(Ask::History { key, before, limit })
    }

    /// Writes a value that never expires.
    fn set(self, key: &[u8], value: &[u8]) -> Self::Answer<Changed> {
        self.set_if(key, value, Condition::Always)
    }

    /// Writes a value under a condition. If the condition does not hold, the answer is
    /// [`ClientError::No`]. With [`Condition::showing`], the [`Answer`] in that error shows the
    /// value that is there ([`Answer::shown`]), so the next try needs no read.
    fn set_if(self, key: &[u8], value: &[u8], when: impl Into<When>) -> Self::Answer<Changed> {
        self.set_with(key, value, when, Expiry::Never)
    }

    /// Writes a value under a condition, and says when it expires.
    fn set_with(
        self,
        key: &[u8],
        value: &[u8],
        when: impl Into<When>,
        expiry: Expiry,
    ) -> Self::Answer<Changed> {
        self.ask_for(Ask::Set {
            key,
            value,
            when: when.into(),
            expiry,
        })
    }

    /// Says when a key expires and leaves its value. A missing key is [`ClientError::No`].
    fn set_expiry(self, key: &[u8], expiry: Expiry) -> Self::Answer<Changed> {
        self.update_if_with(key, None, &[], None, expiry)
    }

    /// Deletes a key; `false` if it was missing.
    fn del(self, key: &[u8]) -> Self::Answer<bool> {
        self.ask_for(Ask::Del {
            key,
            when: When::default(),
        })
    }

    /// Deletes a key under a condition. If the condition does not hold, or if the key is missing,
    /// the answer is [`ClientError::No`]. With [`Condition::showing`], the [`Answer`] in that error
    /// shows the value that is there ([`Answer::shown`]).
    fn del_if(self, key: &[u8], when: impl Into<When>) -> Self::Answer<Changed> {
        self.ask_for(Ask::Del {
            key,
            when: when.into(),
        })
    }

    /// Runs instructions on the fields of one key, all or nothing. A guard that does not hold is
    /// [`ClientError::No`] with the actual value ([`Answer::actual`]).
    fn update_if(self, key: &[u8], instructions: &[Instruction]) -> Self::Answer<Changed> {
        self.update_if_with(key, None, instructions, None, Expiry::Keep)
    }

    /// Runs instructions on the fields of one or two keys of one slot, all or nothing. A missing
    /// first key starts from the value `start`, if there is one. `expiry` is about the first key.
    fn update_if_with(
        self,
        key: &[u8],
        second_key: Option<&[u8]>,
        instructions: &[Instruction],
        start: Option<&[u8]>,
        expiry: Expiry,
    ) -> Self::Answer<Changed> {
        self.ask_for(Ask::UpdateIf {
            key,
            second_key,
            instructions,
            start,
            expiry,
        })
    }

    /// Runs guards and effects on up to 255 keys of one slot: all of them take effect, or none.
    /// What does not hold is [`ClientError::No`] with the instruction and its reason
    /// ([`Answer::failed`]). A server that is older than APPLY is [`ClientError::Refused`] with
    /// [`Status::Unsupported`].
    ///
    /// ```no_run
    /// # use penstock_client::{Apply, Client, ClientError, ClientOptions, Verbs};
    /// # let client = Client::connect("127.0.0.1:7411".parse()?, ClientOptions::default())?;
    /// let mut order = Apply::new();
    /// let stock = order.key(b"stock:{tee}");
    /// let hold = order.key(b"hold:{tee}:7");
    /// order
    ///     .then(stock.u32(0).at_least(2u64).or_else(1))
    ///     .then(hold.is_absent().or_else(2))
    ///     .then(stock.u32(0).decrease(2u64))
    ///     .put(hold, &2u32.to_le_bytes())
    ///     .then(hold.expire_in(600_000));
    /// match client.apply(&order).wait() {
    ///     Ok(held) => println!("held; {} left", held.fields[0]),
    ///     Err(ClientError::No(answer)) if answer.reason == 1 => println!("sold out"),
    ///     Err(other) => return Err(other.into()),
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    fn apply(self, apply: &Apply) -> Self::Answer<Changed> {
        self.ask_for(Ask::Apply(apply))
    }

    /// Runs a program of the server's schema: an APPLY whose guards and effects the server has.
    /// Keys and arguments stand in the order of the program's declaration. `penstock schema check`
    /// prints its id, and `Client::programs` asks the server for it. What does not hold is
    /// [`ClientError::No`], as of an APPLY. A server with other files is [`ClientError::Refused`]
    /// with [`Status::UnknownProgram`].
    ///
    /// ```no_run
    /// # use penstock_client::{Client, ClientError, ClientOptions, ProgramId, Run, Verbs};
    /// # let client = Client::connect("127.0.0.1:7411".parse()?, ClientOptions::default())?;
    /// const BUY: ProgramId = ProgramId(0xd6f9_94ad_cc52_b7a7);
    /// let buy = Run::new(BUY)
    ///     .key(b"stock:{42}")
    ///     .key(b"order:{42}:7")
    ///     .key(b"buyer:{42}:ann")
    ///     .argument(2u32)
    ///     .argument(600_000u64);
    /// match client.run(&buy).wait() {
    ///     Ok(held) => println!("held; the buyer has {} now", held.fields[0]),
    ///     Err(ClientError::No(answer)) if answer.reason == 1 => println!("sold out"),
    ///     Err(other) => return Err(other.into()),
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    fn run(self, run: &Run) -> Self::Answer<Changed> {
        self.ask_for(Ask::Run(run))
    }

    /// Sets, makes, drops or tells keyspaces. A keyspace is all keys that begin with `prefix`, but
    /// for those with a longer prefix that is a keyspace too. A change is durable in every shard
    /// when it is answered. What is there already, or missing, is [`ClientError::No`].
    fn keyspace(self, prefix: &[u8], action: Action) -> Self::Answer<Vec<Keyspace>> {
        self.ask_for(Ask::Keyspace { prefix, action })
    }

    /// Some keys in the order of slots and hashes, from a cursor on: 0, or [`Page::next`].
    ///
    /// Page and cursor are the caller's own and hold nothing of the store. A scan may stop between
    /// two pages for as long as it likes, and go on in another process, with another number of
    /// shards, or over the network. A key that is there from the first page to the last is told at
    /// least once, whatever is written, cleaned or opened anew meanwhile. A page shows what was
    /// answered before the page was asked for; a pipelined change may come before or behind the
    /// page. Sixteen pages of one shard may be under way; more are [`ClientError::Busy`].
    fn scan_page(self, request: &ScanRequest<'_>) -> Self::Answer<Page> {
        self.ask_for(Ask::Scan(*request))
    }
}

/// A store whose next write has this token: [`Verbs::named`] makes it.
#[derive(Clone, Copy, Debug)]
#[must_use = "nothing is asked yet"]
pub struct Named<S> {
    store: S,
    token: Token,
}

impl<S> Named<S> {
    pub(crate) fn new(store: S, token: Token) -> Self {
        Named { store, token }
    }
}

impl<S: Verbs> Verbs for Named<S> {
    type Answer<T> = S::Answer<T>;

    fn ask_for<T: FromAnswer>(self, ask: Ask<'_>) -> S::Answer<T> {
        self.store.ask_named(ask, self.token)
    }

    fn ask_named<T: FromAnswer>(self, ask: Ask<'_>, token: Token) -> S::Answer<T> {
        self.store.ask_named(ask, token)
    }
}
