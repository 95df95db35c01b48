//! The columns of `attempts`, once: names, types and Parquet encodings.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use parquet::schema::types::ColumnPath;
use retrytoll_core::field::{Bool, Hash, Int, Money, Text, Time, Word};

/// The major version of the tables. A reader or writer of an older major refuses the lake;
/// columns are only ever added, and are nullable, so additions leave it as it is.
pub const SCHEMA_MAJOR: u32 = 1;

/// Money on rows: dollars, 12 digits after the point.
pub const MONEY: DataType = DataType::Decimal128(18, 12);
/// `p_billed`: 4 digits after the point.
pub const PROBABILITY: DataType = DataType::Decimal128(5, 4);

/// How a column's values are, and so how Parquet should hold them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    /// Few distinct values: a dictionary.
    Few,
    /// Distinct in nearly every row, and random: no dictionary, no statistics.
    Random,
    /// Rises with the rows or stays near: differences.
    Rising,
}

struct Column {
    name: String,
    data_type: DataType,
    nullable: bool,
    shape: Shape,
}

fn timestamp() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
}

fn lineage() -> Vec<Column> {
    let column = |name: &str, data_type, shape| Column {
        name: name.into(),
        data_type,
        nullable: false,
        shape,
    };
    vec![
        column("source", DataType::Utf8, Shape::Few),
        column("source_partition", DataType::Int32, Shape::Few),
        column("source_offset", DataType::Int64, Shape::Rising),
        column("source_index", DataType::Int32, Shape::Few),
    ]
}

fn event() -> Vec<Column> {
    let mut columns = Vec::new();
    let mut add = |name: &str, data_type, shape| {
        let nullable = !["request_id", "model", "decision"].contains(&name);
        columns.push(Column {
            name: name.into(),
            data_type,
            nullable,
            shape,
        });
    };
    for time in Time::ALL {
        add(time.name(), timestamp(), Shape::Rising);
    }
    add("ts_source", DataType::Utf8, Shape::Few);
    for text in Text::ALL {
        let shape = if *text == Text::Labels {
            Shape::Few
        } else {
            Shape::Random
        };
        add(text.name(), DataType::Utf8, shape);
    }
    for word in Word::ALL {
        add(word.name(), DataType::Utf8, Shape::Few);
    }
    for hash in Hash::ALL {
        add(hash.name(), DataType::Binary, Shape::Random);
        add(&format!("{}_kind", hash.name()), DataType::Utf8, Shape::Few);
    }
    for int in Int::ALL {
        let data_type = if int.is_narrow() {
            DataType::Int32
        } else {
            DataType::Int64
        };
        add(int.name(), data_type, Shape::Few);
    }
    for bool in Bool::ALL {
        add(bool.name(), DataType::Boolean, Shape::Few);
    }
    for money in Money::ALL {
        add(money.name(), MONEY, Shape::Few);
    }
    columns
}

fn derived() -> Vec<Column> {
    let column = |name: &str, data_type| Column {
        name: name.into(),
        data_type,
        nullable: name != "counted",
        shape: Shape::Few,
    };
    vec![
        column("is_retry", DataType::Boolean),
        column("lone", DataType::Boolean),
        column("counted", DataType::Boolean),
        column("error_class", DataType::Utf8),
        column("billing", DataType::Utf8),
        column("p_billed", PROBABILITY),
        column("evidence", DataType::Utf8),
        column("cost_confirmed", MONEY),
        column("cost_ceiling", MONEY),
        column("cost_basis", DataType::Utf8),
        column("input_usd_per_mtok", MONEY),
        column("output_usd_per_mtok", MONEY),
        column("price_version", DataType::Utf8),
        column("policy_version", DataType::Utf8),
        column("flags", DataType::Utf8),
    ]
}

fn columns() -> impl Iterator<Item = Column> {
    lineage().into_iter().chain(event()).chain(derived())
}

/// The schema of the table `attempts`; its last column, `date`, is the partition's.
#[must_use]
pub fn attempts_schema() -> SchemaRef {
    let mut fields: Vec<_> = columns()
        .map(|it| Field::new(it.name, it.data_type, it.nullable))
        .collect();
    fields.push(Field::new("date", DataType::Date32, true));
    Arc::new(Schema::new(fields))
}

/// The schema of the arrays that a file is written from: words are dictionary arrays, and the
/// partition column is not there. It is the same for every batch.
pub(super) fn layout() -> SchemaRef {
    layout_of(columns())
}

/// Of it the columns that the tables and the settings decide.
pub(super) fn derived_layout() -> SchemaRef {
    layout_of(derived().into_iter())
}

fn layout_of(columns: impl Iterator<Item = Column>) -> SchemaRef {
    let fields = columns.map(|it| {
        let data_type = match it.data_type {
            DataType::Utf8 if it.shape == Shape::Few && it.name != "labels" => {
                DataType::Dictionary(Box::new(DataType::UInt32), Box::new(DataType::Utf8))
            }
            other => other,
        };
        Field::new(it.name, data_type, it.nullable)
    });
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// How a file of `attempts` is written.
#[must_use]
pub fn writer_properties() -> WriterProperties {
    let zstd = ZstdLevel::try_new(1).unwrap_or_default();
    let mut properties = WriterProperties::builder()
        .set_writer_version(WriterVersion::PARQUET_1_0)
        .set_compression(Compression::ZSTD(zstd))
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_created_by(concat!("retrytoll ", env!("CARGO_PKG_VERSION")).to_owned());
    for column in columns() {
        let path = ColumnPath::from(column.name);
        properties = match column.shape {
            Shape::Few => properties,
            Shape::Random => properties
                .set_column_dictionary_enabled(path.clone(), false)
                .set_column_statistics_enabled(path.clone(), EnabledStatistics::None)
                .set_column_encoding(path, Encoding::DELTA_LENGTH_BYTE_ARRAY),
            Shape::Rising => properties
                .set_column_dictionary_enabled(path.clone(), false)
                .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED),
        };
    }
    properties.build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_all_of_the_event_is_there() {
        let schema = attempts_schema();
        let mut names: Vec<_> = schema
            .fields()
            .iter()
            .map(|field| field.name().clone())
            .collect();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
        for field in retrytoll_core::field::Field::ALL {
            assert!(
                schema.field_with_name(field.name()).is_ok(),
                "{}",
                field.name()
            );
        }
    }
}
