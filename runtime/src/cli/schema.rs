//! `penstock schema check`, and the schema that other commands read names from.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use penstock::schema::{Schema, Written};
use penstock_net::hello::FEATURE_RUN;

use super::layout_value::{Cell, read_field};
use super::output::Output;
use super::server::{Connection, ServerAddress};
use super::{EXIT_CODES, Failure};
use penstock_net::expression::ValueLayout;

pub const SCHEMA_EXAMPLES: &str = "\
Examples:
  penstock schema check /etc/penstock/schema
  penstock serve --schema /etc/penstock/schema
  penstock run buy 'stock:{42}' 'order:{42}:7' 'buyer:{42}:ann' quantity=2 hold_ms=600000";

const CHECK_EXAMPLES: &str = "\
Each defect is told with file, line, column and value, and the exit code is 1. Of files without one
each layout is printed with its bytes and fields, each program with its id, keys and arguments. A
server refuses the same files for the same reasons; SIGHUP also refuses layouts that shrink or move.

Examples:
  penstock schema check deploy/programs";

/// `penstock schema`.
#[derive(Subcommand)]
pub enum SchemaCommand {
    /// Read the files of a directory, name each defect, and print the ids of the programs
    Check(CheckArgs),
}

/// Arguments of `penstock schema check`.
#[derive(Args)]
#[command(after_help = format!("{CHECK_EXAMPLES}\n\n{EXIT_CODES}"))]
pub struct CheckArgs {
    /// The directory; its files whose names end in .toml are read
    directory: PathBuf,
}

/// Where names of layouts and programs come from.
#[derive(Args)]
pub(super) struct SchemaArgs {
    /// Directory of the layouts and programs. Without it the server tells those that it has
    #[arg(long, value_name = "DIR")]
    schema: Option<PathBuf>,
}

impl SchemaCommand {
    /// Runs the command.
    pub fn run(self) -> Result<(), Failure> {
        match self {
            SchemaCommand::Check(args) => args.run(),
        }
    }
}

impl CheckArgs {
    fn run(self) -> Result<(), Failure> {
        let schema = Schema::read(&self.directory).map_err(Failure::no)?;
        let mut out = Output::stdout();
        for named in schema.layouts() {
            let bytes = named.layout.bytes();
            let fields = named.layout.fields().iter().map(|it| it.name.as_str());
            let fields: Vec<&str> = fields.collect();
            let (name, fields) = (&named.name, fields.join(" "));
            out.line(format_args!("layout {name}, {bytes} bytes: {fields}"));
        }
        for named in schema.programs() {
            let texts = |all: &[Written]| -> Vec<String> {
                all.iter().map(|it| it.text().to_string()).collect()
            };
            let keys = texts(&named.declaration.keys).join(" ");
            let arguments = texts(&named.declaration.arguments).join(", ");
            let arguments = match arguments.as_str() {
                "" => String::new(),
                arguments => format!("; {arguments}"),
            };
            let (name, id) = (named.program.name(), named.program.id());
            out.line(format_args!("program {name} {id}: {keys}{arguments}"));
        }
        out.finish()
    }
}

impl SchemaArgs {
    /// Reads the schema of the directory, or that of the server.
    pub(super) fn read(&self, connection: &Connection) -> Result<Schema, Failure> {
        if let Some(directory) = &self.schema {
            return Schema::read(directory).map_err(Failure::usage);
        }
        if connection.hello().features & FEATURE_RUN == 0 {
            return Err(Failure::usage(
                "the server is older than schemas: update it, or give --schema DIR for names of \
                 layouts",
            ));
        }
        let text = connection.client().schema().wait();
        let text = text.map_err(|error| connection.failed_read(&error))?;
        Schema::of_json(&text).map_err(Failure::server)
    }

    /// The layout with this name.
    pub(super) fn layout(
        &self,
        connection: &Connection,
        name: &str,
    ) -> Result<ValueLayout, Failure> {
        find_layout(&self.read(connection)?, name)
    }

    /// The same, where the server need not be asked for anything else.
    pub(super) fn layout_at(
        &self,
        server: &ServerAddress,
        name: &str,
    ) -> Result<ValueLayout, Failure> {
        match &self.schema {
            Some(directory) => find_layout(&Schema::read(directory).map_err(Failure::usage)?, name),
            None => self.layout(&server.connect()?, name),
        }
    }
}

fn find_layout(schema: &Schema, name: &str) -> Result<ValueLayout, Failure> {
    schema.layout(name).cloned().ok_or_else(|| {
        let names: Vec<&str> = schema.layouts().iter().map(|it| it.name.as_str()).collect();
        let known = match names.as_slice() {
            [] => "the schema has no layouts".to_string(),
            names => format!("there are {}", names.join(", ")),
        };
        Failure::usage(format_args!("no layout {name:?}; {known}"))
    })
}

/// The fields of a value that it has: one that was written before its layout grew has not all.
///
/// # Errors
/// The field that cannot be read.
pub(super) fn fields_of(layout: &ValueLayout, value: &[u8]) -> Result<Vec<(String, Cell)>, String> {
    let mut fields = Vec::new();
    for field in layout.fields() {
        if field.offset >= value.len() {
            continue;
        }
        let cell = read_field(field, layout.bytes(), value).ok_or_else(|| {
            format!(
                "{} cannot be read from a value of {} bytes",
                field.name,
                value.len()
            )
        })?;
        fields.push((field.name.clone(), cell));
    }
    Ok(fields)
}
