//! The port for clients of Redis: commands in, items of a batch out; answers in, replies out.
//!
//! [`Conversation`] is one connection, between the bytes of its peer and a session in memory. It
//! knows neither sockets nor time; what it must ask stands in [`Host`]. `RESP.md` describes it.

mod answer;
mod apply_text;
mod bits;
mod blocked_pop;
mod bound;
mod broker;
mod calls;
mod channels;
mod clients;
mod cluster;
mod commands;
mod config;
mod conversation;
mod cores;
mod early;
mod fault;
mod fields_read;
mod fraction;
mod glob;
mod host;
mod info;
mod items;
mod key_state;
mod keys_of;
mod local;
mod login;
mod members;
mod message;
mod model;
mod named_keys;
mod notifications;
mod number;
mod options;
mod parser;
mod pattern;
mod pause;
mod paused_commands;
mod pubsub;
mod pushes;
mod queued;
mod reply;
mod reply_mode;
mod request;
mod rights;
mod ring;
mod run_text;
mod scan;
mod scripts;
mod shapes;
mod sink;
mod slow;
mod staged;
mod subscriptions;
mod syntax;
mod table;
mod timeout;
mod token_text;
mod tracked;
mod tracking;
mod transaction_keys;
mod under_way;
mod value_read;
mod wait;
mod waited_keys;
mod waiting;
mod walk;
mod watch;
mod words;

pub use bound::ReplyBound;
pub use broker::{Broker, BrokerFull};
pub use channels::{Channels, subscription_bytes};
pub use conversation::{Conversation, PushBytes, Received, TrackedBy, WaitsFor};
pub use cores::{CorePorts, OwnCore};
pub use glob::Steps;
pub use host::{
    Client, ClusterNode, ClusterView, Counts, Facts, Host, ProcessUse, ScriptLibrary, SlotRange,
    SlowCommand, Switches,
};
pub use key_state::{ExpiryLeft, KeyLeft};
pub use message::{Kind, Message, MessageBytes};
pub use notifications::{ExpiringKeys, NotificationFigures, Notifications};
pub use parser::{ARGUMENTS_MAX, Arguments, Broken, LINE_BYTES_MAX, Parsed, Parser};
pub use pause::{Pause, PauseControl, PausedCommands, UNTIL_US_MAX};
pub use pushes::Push;
pub use queued::{
    Evals, QueuedEnd, for_each_missing_key, for_each_named_key, judge_script, protocol_of,
    run_queued,
};
pub use reply::{Protocol, Replies};
pub use scripts::{Eval, NO_SCRIPT};
pub use slow::SLOW_COMMANDS_MAX;
pub use staged::{
    KeyRead, KeySeen, KeySource, MustWait, SCRIPT_KEYS_MAX, SCRIPT_MESSAGES_BYTES_MAX,
    SCRIPT_MESSAGES_MAX, SCRIPT_VALUES_BYTES_MAX, Staged, StagedMessage, Unread,
};
pub use subscriptions::{CHANNEL_BYTES_MAX, SUBSCRIPTIONS_MAX};
pub use table::{COMMANDS, Command, Name};
pub use tracked::{TRACKED_KEYS_MAX, TrackedKeys, TrackedPrefixes};
pub use tracking::{
    ClientTracking, KeyTracker, OwnChanges, PREFIXES_MAX, TrackingFigures, TrackingOptions,
    TrackingRefused, TrackingWay,
};
pub use waited_keys::{KeyHas, KeyWaiter, MayTry, WaitedKeys};
pub use waiting::{KeyWaiters, WAITED_KEYS_MAX, WaitersFull, WaitingFigures};
