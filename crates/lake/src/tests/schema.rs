//! Columns are added, majors refused.

use super::*;
use crate::error::LakeError;
use crate::replay::LogState;

fn with_column(name: &str, data_type: DataType) -> TableSpec {
    let mut fields = spec().columns.fields().to_vec();
    fields.push(Arc::new(Field::new(name, data_type, false)));
    TableSpec {
        columns: Arc::new(Schema::new(fields)),
        ..spec()
    }
}

async fn open(world: &World, spec: TableSpec) -> Result<Writer, LakeError> {
    let table = Table::open(&world.url(), spec, &world.clock(), RETRY).await?;
    let member = Member {
        group: "g".into(),
        name: "x".into(),
    };
    let limits = WriterLimits {
        retry: RETRY,
        ..WriterLimits::default()
    };
    Writer::open(table, member, world.clock(), limits).await
}

fn columns(state: &LogState) -> Vec<String> {
    let schema = state.metadata.parse_schema().unwrap();
    schema
        .fields()
        .map(|f| format!("{}{}", f.name(), if f.nullable { "?" } else { "" }))
        .collect()
}

#[tokio::test]
async fn a_table_is_created_as_stated() {
    let world = World::new();
    let state = world.table().await.check().await.unwrap();
    let expected = [
        "source",
        "source_partition",
        "source_offset",
        "request_id",
        "ts?",
        "cost?",
        "date?",
    ];
    assert_eq!(columns(&state), expected);
    assert_eq!(state.metadata.partition_columns(), ["date"]);
    let properties = state.metadata.configuration();
    assert_eq!(properties["retrytoll.schema.major"], "1");
    assert_eq!(properties["delta.logRetentionDuration"], "interval 7 days");
    assert_eq!(properties["delta.checkpointInterval"], "100");
    assert!(!properties.contains_key("delta.setTransactionRetentionDuration"));
}

#[tokio::test]
async fn a_newer_major_is_refused_and_an_older_one_is_not() {
    let world = World::new();
    let newer = TableSpec {
        schema_major: 2,
        ..spec()
    };
    open(&world, newer.clone()).await.unwrap();
    let refused = open(&world, spec()).await.unwrap_err();
    assert!(
        matches!(
            refused,
            LakeError::NewerMajor {
                found: 2,
                known: 1,
                ..
            }
        ),
        "{refused}"
    );

    let world = World::new();
    world.table().await;
    open(&world, newer).await.unwrap();
}

/// A newer release migrates the table while an older writer holds a base.
#[tokio::test]
async fn a_major_that_rises_meanwhile_stops_the_writer() {
    let world = World::new();
    let mut a = world.owner("a", &[0]).await;
    let mut state = a.table().check().await.unwrap();
    state.metadata = {
        use deltalake::kernel::MetadataExt;
        state
            .metadata
            .add_config_key("retrytoll.schema.major".into(), "2".into())
            .unwrap()
    };
    let entry = serde_json::to_string(&deltalake::kernel::Action::Metadata(state.metadata));
    fs::write(world.log_path("00000000000000000002.json"), entry.unwrap()).unwrap();
    let stopped = a.flush(&world.flush(&run(0, 0, 5))).await.unwrap_err();
    assert!(
        matches!(
            stopped,
            LakeError::NewerMajor {
                found: 2,
                known: 1,
                ..
            }
        ),
        "{stopped}"
    );
    assert!(a.owned().is_empty());
    assert!(!world.log_path("00000000000000000003.json").exists());
}

#[tokio::test]
async fn a_foreign_table_is_refused() {
    let world = World::new();
    let mut entry = Vec::new();
    {
        let other = World::new();
        other.table().await;
        let text = fs::read_to_string(other.log_path("00000000000000000000.json")).unwrap();
        entry.extend(
            text.replace("retrytoll.schema.major", "someone.else")
                .bytes(),
        );
    }
    fs::create_dir(world.log_path("")).unwrap();
    fs::write(world.log_path("00000000000000000000.json"), entry).unwrap();
    let refused = open(&world, spec()).await.unwrap_err();
    assert!(
        matches!(refused, LakeError::NotOurTable { .. }),
        "{refused}"
    );
}

#[tokio::test]
async fn a_changed_type_is_refused() {
    let world = World::new();
    open(&world, with_column("tenant", DataType::Utf8))
        .await
        .unwrap();
    let refused = open(&world, with_column("tenant", DataType::Int64))
        .await
        .unwrap_err();
    let text = refused.to_string();
    assert!(matches!(refused, LakeError::ColumnChanged { .. }), "{text}");
    assert!(
        text.contains("tenant is string in the table and long here"),
        "{text}"
    );
}

/// A column is added while another writer holds a base: it reloads, and goes on.
#[tokio::test]
async fn a_column_is_added_beside_a_running_writer() {
    let world = World::new();
    let mut a = world.owner("a", &[0]).await;
    a.flush(&world.flush(&run(0, 0, 3))).await.unwrap();
    let mut b = open(&world, with_column("tenant", DataType::Utf8))
        .await
        .unwrap();
    assert!(!columns(a.state()).contains(&"tenant?".to_owned()));
    // Nullable, whatever was asked for: the rows before it have no value.
    assert!(columns(b.state()).contains(&"tenant?".to_owned()));
    a.flush(&world.flush(&run(0, 3, 5))).await.unwrap();
    assert!(columns(a.state()).contains(&"tenant?".to_owned()));
    b.claim(&starts(&[1])).await.unwrap();
    b.flush(&world.flush(&run(1, 0, 2))).await.unwrap();
    assert_eq!(world.rows().await, sorted(&[run(0, 0, 5), run(1, 0, 2)]));
    // Opened by the older release, the column stays.
    let older = open(&world, spec()).await.unwrap();
    assert!(columns(older.state()).contains(&"tenant?".to_owned()));
}

/// Two releases add a column each at the same time: both columns are there.
#[tokio::test]
async fn two_added_columns_do_not_overwrite_each_other() {
    let world = Arc::new(World::new());
    world.table().await;
    let faults = Faults::default();
    let other = world.clone();
    faults.race(move || async move {
        open(&other, with_column("team", DataType::Utf8))
            .await
            .unwrap();
        store::Verdict::Pass
    });
    let spec = with_column("tenant", DataType::Int64);
    let table = Table::open_on(faults.store(), &world.url(), spec, &world.clock(), RETRY).await;
    let writer = world.writer_on(table.unwrap(), "a").await;
    let found = columns(writer.state());
    assert_eq!(found[7..], ["team?", "tenant?"]);
}
