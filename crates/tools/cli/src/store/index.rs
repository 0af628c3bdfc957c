//! `index`: makes, drops and lists the secondary indexes of a table.

use crate::connect::{Connect, connect};
use crate::output::{print_json, print_line};
use anyhow::{Context as _, Result, bail};
use clap::{Args, Subcommand, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use sprat_client::{
    Client, FieldSource, Index, IndexDefinition, OrderStats, Table, TableStats, ValueType,
};
use std::process::ExitCode;
use std::thread::sleep;
use std::time::Duration;

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat index create users by_age --field age --type integer
  sprat scan users --index by_age --from 30 --to 40
  sprat index list users
  sprat index drop users by_age

Exit codes:
  3  the table or the index does not exist
  5  no answer in time, or no server at the address
  8  the identity does not permit it")]
pub(crate) struct IndexArgs {
    #[command(flatten)]
    connect: Connect,
    #[command(subcommand)]
    command: IndexCommand,
    /// Print JSON.
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum IndexCommand {
    /// Create an index of a table, unless it exists.
    #[command(override_usage = "sprat index create [OPTIONS] TABLE NAME \
                                <--field PATH|--offset BYTES|--front N>")]
    #[command(after_help = "Examples:
  sprat index create users by_age --field age --type integer
  sprat index create users by_city --field address.city
  sprat index create events by_time --offset 8 --type integer
  sprat index create pictures by_owner --front 0
  sprat put pictures cat.jpg -i cat.jpg --front ada

An object whose value has no such field, or one of another type, is not in the index; `sprat index
list` counts these objects. The servers put the objects that are there in order while they serve
others; the command waits until that is done. Ctrl-C stops the waiting, not the index.")]
    Create {
        /// Name of the table.
        table: String,
        /// Name of the index, 1 to 255 bytes.
        name: String,
        #[command(flatten)]
        source: SourceArgs,
        /// Type of the fields. Numbers in bytes are 8 bytes long and little-endian.
        #[arg(long = "type", value_enum, default_value = "bytes", value_name = "TYPE")]
        field_type: FieldTypeName,
        /// Return at once, without waiting until the index can be scanned.
        #[arg(long)]
        detach: bool,
    },
    /// Drop an index. The objects stay.
    Drop {
        /// Name of the table.
        table: String,
        /// Name of the index.
        name: String,
    },
    /// List the indexes of a table, and how many objects each has.
    List {
        /// Name of the table.
        table: String,
    },
}

#[derive(Args, Debug)]
#[group(required = true, multiple = true)]
pub(crate) struct SourceArgs {
    /// The field is this member of a value that is JSON, such as age or address.city.
    #[arg(long, value_name = "PATH", conflicts_with_all = ["offset", "length", "front"])]
    field: Option<String>,
    /// The field is the bytes of the value from this offset on.
    #[arg(long, value_name = "BYTES", conflicts_with = "front")]
    offset: Option<u32>,
    /// Length of a field at an offset [default: 8 for numbers].
    #[arg(long, value_name = "BYTES", requires = "offset")]
    length: Option<u16>,
    /// The field is the Nth key, from 0 on, that `sprat put --front` puts in front of the value.
    #[arg(long, value_name = "N")]
    front: Option<u8>,
}

/// The names of [`ValueType`] as the type of a field.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum FieldTypeName {
    Bytes,
    Integer,
    Double,
}

impl From<FieldTypeName> for ValueType {
    fn from(name: FieldTypeName) -> Self {
        match name {
            FieldTypeName::Bytes => Self::Bytes,
            FieldTypeName::Integer => Self::Integer,
            FieldTypeName::Double => Self::Double,
        }
    }
}

/// Interval at which to look how far a new index is.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

pub(crate) fn index(args: &IndexArgs) -> Result<ExitCode> {
    let mut client = connect(&args.connect)?;
    let (json, text) = match &args.command {
        IndexCommand::Create { table, name, source, field_type, detach } => {
            let definition = definition(source, (*field_type).into())?;
            let index = client.create_index(table, name, &definition)?;
            let table = client.table(table)?;
            let stats = match detach {
                true => size(&mut client, table, &index)?,
                false => wait(&mut client, table, &index, args.json)?,
            };
            (json_of(&index, &stats), format!("index {}", line_of(&index, &stats)))
        }
        IndexCommand::Drop { table, name } => {
            client.drop_index(table, name).with_context(|| format!("index {name:?}"))?;
            (json!({ "table": table, "dropped": name }), format!("dropped index {name:?}"))
        }
        IndexCommand::List { table } => {
            let indexes = client.indexes(table)?;
            let id = client.table(table)?;
            let TableStats { orders, .. } = client.table_stats(id)?;
            let (mut list, mut lines) = (Vec::new(), Vec::new());
            for index in &indexes {
                let stats = of(&orders, index)?;
                list.push(json_of(index, &stats));
                lines.push(line_of(index, &stats));
            }
            (list.into(), lines.join("\n"))
        }
    };
    if args.json {
        print_json(&json)?;
    } else if !text.is_empty() {
        print_line(&text)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns what the flags define.
fn definition(args: &SourceArgs, field_type: ValueType) -> Result<IndexDefinition> {
    let is_number = field_type != ValueType::Bytes;
    let source = match args {
        SourceArgs { field: Some(path), .. } => FieldSource::Json { path: path.clone() },
        SourceArgs { front: Some(number), .. } => FieldSource::Front { number: *number },
        SourceArgs { offset: Some(at), length, .. } => match length {
            Some(length) => FieldSource::Offset { at: *at, length: *length },
            None if is_number => FieldSource::Offset { at: *at, length: 8 },
            None => bail!("--offset of a field of bytes needs its --length"),
        },
        _ => bail!("name the field by --field, --offset or --front"),
    };
    let definition = IndexDefinition { source, field_type };
    definition.check()?;
    Ok(definition)
}

/// Returns the size of an index among those of all orders of its table.
fn of(orders: &[OrderStats], index: &Index) -> Result<OrderStats> {
    let found = orders.iter().find(|stats| stats.index == index.id()).copied();
    found.with_context(|| format!("index {:?} was dropped meanwhile", index.name()))
}

fn size(client: &mut Client, table: Table, index: &Index) -> Result<OrderStats> {
    of(&client.table_stats(table)?.orders, index)
}

/// Waits until an index is complete.
#[allow(clippy::disallowed_methods, reason = "nothing else goes on in this process")]
fn wait(client: &mut Client, table: Table, index: &Index, quiet: bool) -> Result<OrderStats> {
    let mut stats = size(client, table, index)?;
    let style = ProgressStyle::with_template("{bar:32} {pos}/{len} objects  {elapsed}")?;
    let bar = if quiet { ProgressBar::hidden() } else { ProgressBar::new(0).with_style(style) };
    while stats.left > 0 {
        let done = stats.objects + stats.without_key;
        bar.set_length(done + stats.left);
        bar.set_position(done);
        sleep(POLL_INTERVAL);
        stats = size(client, table, index)?;
    }
    bar.finish_and_clear();
    Ok(stats)
}

fn json_of(index: &Index, stats: &OrderStats) -> Value {
    let IndexDefinition { source, field_type } = index.definition();
    let source = match source {
        FieldSource::Json { path } => json!({ "json": path }),
        FieldSource::Offset { at, length } => json!({ "offset": at, "length": length }),
        FieldSource::Front { number } => json!({ "front": number }),
    };
    let OrderStats { objects, without_key, bytes, left, .. } = stats;
    json!({
        "name": index.name(), "field": source, "type": field_type.to_string(),
        "objects": objects, "without_field": without_key, "bytes": bytes, "left": left,
    })
}

/// Renders an index in one line.
fn line_of(index: &Index, stats: &OrderStats) -> String {
    let IndexDefinition { source, field_type } = index.definition();
    let source = match source {
        FieldSource::Json { path } => format!("JSON {path}"),
        FieldSource::Offset { at, length } => format!("bytes {at}..{}", at + u32::from(*length)),
        FieldSource::Front { number } => format!("key {number} in front"),
    };
    let OrderStats { objects, without_key, bytes, left, .. } = stats;
    let name = index.name();
    let mut line = format!("{name}: {source}, {field_type}; {objects} objects, {bytes} bytes");
    if *without_key > 0 {
        line = format!("{line}; {without_key} objects without such a field");
    }
    if *left > 0 {
        line = format!("{line}; {left} objects still to be put in order");
    }
    line
}
