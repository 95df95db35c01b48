//! `profile_of`: which row of the table `profile` tells of an attempt.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, AsArray as _, Date32Array, Decimal128Array, Int32Array, Int64Array, RecordBatch,
    StringArray,
};
use arrow::datatypes::{Date32Type, Decimal128Type};
use deltalake::DeltaTable;
use futures::TryStreamExt as _;

use super::fixture::{Lake, success, the_day};
use crate::{Limits, Session, lake_url};

/// A row of `profile`; its medians are `input` and a half, its other figures tell nothing.
#[derive(Clone)]
struct Row {
    date: &'static str,
    level: i32,
    provider: Option<&'static str>,
    service: Option<String>,
    pow2: Option<i64>,
    input: i128,
}

fn kind(date: &'static str, service: &str, pow2: i64, input: i128) -> Row {
    Row {
        date,
        level: 1,
        provider: Some("p"),
        service: Some(service.into()),
        pow2: Some(pow2),
        input,
    }
}

fn model(date: &'static str, input: i128) -> Row {
    Row {
        level: 2,
        service: None,
        pow2: None,
        ..kind(date, "", 0, input)
    }
}

/// A lake with an attempt of 20 November, and with these profiles, a commit for each.
async fn lake(commits: &[&[Row]]) -> Lake {
    let lake = Lake::of(&[&[success("s", "r", false, "0.01")]]).await;
    let folder = lake.folder.path().join("profile");
    std::fs::create_dir(&folder).unwrap();
    let url = deltalake::ensure_table_uri(folder.to_string_lossy()).unwrap();
    for rows in commits {
        let table = DeltaTable::try_from_url(url.clone()).await.unwrap();
        let write = table.write([batch(rows)]);
        write.with_partition_columns(["date"]).await.unwrap();
    }
    lake
}

fn batch(rows: &[Row]) -> RecordBatch {
    let day = |it: &Row| Date32Type::from_naive_date(it.date.parse().unwrap());
    let decimals = |scale: i8, of: &dyn Fn(&Row) -> i128| -> ArrayRef {
        let values = rows.iter().map(of).map(Some).collect::<Decimal128Array>();
        Arc::new(values.with_precision_and_scale(16, scale).unwrap())
    };
    let tokens = || -> ArrayRef { Arc::new(Int64Array::from(vec![7; rows.len()])) };
    let dates = rows.iter().map(|it| Some(day(it))).collect::<Date32Array>();
    let levels = rows.iter().map(|it| Some(it.level)).collect::<Int32Array>();
    let provider = rows.iter().map(|it| it.provider).collect::<StringArray>();
    let models = rows.iter().map(|_| Some("m")).collect::<StringArray>();
    let services = rows.iter().map(|it| it.service.as_deref());
    let powers = rows.iter().map(|it| it.pow2).collect::<Int64Array>();
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("date", Arc::new(dates)),
        ("level", Arc::new(levels)),
        ("provider", Arc::new(provider)),
        ("model", Arc::new(models)),
        ("service", Arc::new(services.collect::<StringArray>())),
        ("max_tokens_pow2", Arc::new(powers)),
        ("input_median", decimals(1, &|it| it.input * 10 + 5)),
        ("input_p99", tokens()),
        ("output_median", decimals(1, &|_| 70)),
        ("output_p99", tokens()),
        ("rows", tokens()),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, it)| (n, it, true)))
        .unwrap()
}

/// The median of an attempt on `date` by the lake's profiles; the arguments after it are SQL.
async fn told(session: &Session, date: &str, arguments: &str) -> Option<String> {
    let sql = format!(
        "SELECT profile_of('input_median', decision = 'success', CAST({date} AS DATE), {arguments}) \
         FROM attempts WHERE ts >= $since AND ts < $until"
    );
    let stream = session.query(&sql, &the_day()).await.unwrap();
    let batches = stream.try_collect::<Vec<_>>().await.unwrap();
    let batch = batches.iter().find(|it| it.num_rows() > 0).unwrap();
    let medians = batch.column(0).as_primitive::<Decimal128Type>();
    medians.iter().next().unwrap().map(|tenths| {
        let (whole, tenth) = (tenths / 10, tenths % 10);
        format!("{whole}.{tenth}")
    })
}

#[tokio::test]
async fn the_nearest_kind_tells_and_what_is_null_is_one_of_its_own() {
    let day = "2026-11-20";
    let nobody = Row {
        provider: None,
        ..model(day, 9)
    };
    let no_limit = Row {
        pow2: None,
        ..kind(day, "s", 0, 4)
    };
    let no_service = Row {
        service: None,
        ..kind(day, "", 512, 5)
    };
    let rows = [
        kind(day, "s", 512, 1),
        kind(day, "s", 1024, 2),
        no_limit,
        no_service,
        model(day, 3),
        nobody,
    ];
    let lake = lake(&[&rows]).await;
    let session = lake.open(None).await.unwrap();
    for (arguments, expected) in [
        ("'p', 'm', 's', 512", Some("1.5")),
        ("'p', 'm', 's', 1023", Some("1.5")),
        ("'p', 'm', 's', 1024", Some("2.5")),
        ("'p', 'm', 's', 2048", Some("3.5")),
        ("'p', 'm', 's', NULL", Some("4.5")),
        ("'p', 'm', 's', 0", Some("4.5")),
        ("'p', 'm', NULL, 512", Some("5.5")),
        ("'p', 'm', 'other', 512", Some("3.5")),
        ("NULL, 'm', 's', 512", Some("9.5")),
        ("'q', 'm', 's', 512", None),
        ("'p', 'n', 's', 512", None),
    ] {
        let found = told(&session, "'2026-11-20'", arguments).await;
        assert_eq!(found.as_deref(), expected, "{arguments}");
    }
    let unasked = "SELECT profile_of('input_p99', FALSE, date, 'p', 'm', 's', 512) IS NULL \
                 FROM attempts";
    let stream = session.query(unasked, &the_day()).await.unwrap();
    let batches = stream.try_collect::<Vec<_>>().await.unwrap();
    assert!(batches[0].column(0).as_boolean().value(0));
}

#[tokio::test]
async fn the_newest_profile_not_after_the_day_tells_even_that_nothing_is_known() {
    let empty = Row {
        level: 0,
        ..model("2026-11-19", 0)
    };
    let later = [kind("2026-11-18", "s", 512, 18), model("2026-11-18", 28)];
    let earlier = [model("2026-11-15", 15)];
    // As they are made on a first start, and a day that was missing.
    let session = lake(&[&later, &[empty], &earlier]).await;
    let session = session.open(None).await.unwrap();
    for (date, expected) in [
        ("'2026-11-14'", None),
        ("'2026-11-15'", Some("15.5")),
        ("'2026-11-17'", Some("15.5")),
        ("'2026-11-18'", Some("18.5")),
        ("'2026-11-19'", None),
        ("'2026-11-20'", None),
    ] {
        let found = told(&session, date, "'p', 'm', 's', 600").await;
        assert_eq!(found.as_deref(), expected, "{date}");
    }
}

#[tokio::test]
async fn a_profile_tells_for_thirty_five_days() {
    // 34 and 35 days before the attempt.
    for (date, expected) in [("2026-10-17", Some("1.5")), ("2026-10-16", None)] {
        let lake = lake(&[&[model(date, 1)]]).await;
        let session = lake.open(None).await.unwrap();
        let found = told(&session, "date", "'p', 'm', 's', 600").await;
        assert_eq!(found.as_deref(), expected, "{date}");
    }
}

#[tokio::test]
async fn what_is_too_much_to_hold_is_looked_at_by_model() {
    let day = "2026-11-20";
    let mut rows = vec![model(day, 1)];
    rows.extend((0..600).map(|n| kind(day, &format!("s{n}"), 512, 2)));
    let lake = lake(&[&rows]).await;
    let open = async |memory_bytes| {
        let limits = Limits {
            memory_bytes,
            ..Limits::default()
        };
        let url = lake_url(&lake.folder.path().to_string_lossy()).unwrap();
        Session::open(&url, None, limits).await.unwrap()
    };
    // A quarter of it holds 585 rows of 128 bytes.
    let small = open(300_000).await;
    let roomy = open(48 << 20).await;
    let arguments = "'p', 'm', 's599', 600";
    for (session, expected) in [(small, "1.5"), (roomy, "2.5")] {
        // Asked again, it answers the same.
        for _ in 0..2 {
            let found = told(&session, "date", arguments).await;
            assert_eq!(found.as_deref(), Some(expected));
        }
    }
}

#[tokio::test]
async fn the_table_can_be_queried() {
    let session = lake(&[&[model("2026-11-20", 1)]]).await;
    let session = session.open(None).await.unwrap();
    let sql = "SELECT model, input_median FROM profile WHERE level = 2";
    let stream = session.query(sql, &the_day()).await.unwrap();
    let batches = stream.try_collect::<Vec<_>>().await.unwrap();
    assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 1);
}
