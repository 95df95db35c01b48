//! A kind of entity and an instant → what is told of each beside a job's answer.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::RecordBatch;
use chrono::{DateTime, Utc};
use futures::StreamExt as _;
use retrytoll_jobs::{Job, Meta, Place, Session, Window};

use super::cell;
use super::watch::span;
use crate::config::table::DIMENSIONS;

const TOP: &str = include_str!("../../sql/alerts/top.sql");
const HOUR: &str = include_str!("../../sql/alerts/hour.sql");

/// Rows with a column `entity`.
pub struct Beside {
    batches: Vec<RecordBatch>,
}

impl Beside {
    /// Where the cost of each entity's retries in `window` comes from; nothing for a kind that is
    /// no dimension.
    pub async fn top(session: &Session, kind: &str, window: &Window) -> anyhow::Result<Self> {
        Self::ask(session, "top", TOP, kind, window).await
    }

    /// What is redundant in the hour up to `until`.
    pub async fn hour(session: &Session, kind: &str, until: DateTime<Utc>) -> anyhow::Result<Self> {
        Self::ask(session, "hour", HOUR, kind, &span("1h", until)?).await
    }

    async fn ask(
        session: &Session,
        name: &str,
        sql: &str,
        kind: &str,
        window: &Window,
    ) -> anyhow::Result<Self> {
        let columns = kind.split('/').collect::<Vec<_>>();
        if !columns.iter().all(|it| DIMENSIONS.contains(it)) {
            let batches = Vec::new();
            return Ok(Self { batches });
        }
        let entity = match &columns[..] {
            [column] => (*column).to_owned(),
            _ => format!("concat_ws('/', {})", columns.join(", ")),
        };
        let job = Arc::new(Job {
            name: name.to_owned(),
            file: format!("sql/alerts/{name}.sql"),
            sql: sql.replace("{entity}", &entity),
            meta: Meta::default(),
        });
        let result = session.run_job(&job, window, &BTreeMap::new()).await?;
        Ok(Self {
            batches: result.batches,
        })
    }

    /// The rows of an entity, in their order.
    pub fn of(&self, entity: Option<&str>) -> impl Iterator<Item = (&RecordBatch, usize)> {
        let rows = self
            .batches
            .iter()
            .flat_map(|batch| (0..batch.num_rows()).map(move |row| (batch, row)));
        rows.filter(move |(batch, row)| cell::text(batch, "entity", *row).as_deref() == entity)
    }

    /// A figure of an entity's row; 0 where it has none: nothing happened.
    pub fn figure(&self, entity: Option<&str>, column: &str) -> Option<i128> {
        match self.of(entity).next() {
            Some((batch, row)) => cell::figure(batch, column, row),
            None => Some(0),
        }
    }
}

/// The rows of a query of ours.
pub async fn ask(
    session: &Session,
    sql: &str,
    window: &Window,
) -> anyhow::Result<Vec<RecordBatch>> {
    let mut stream = session.query(sql, window).await?;
    let mut batches = Vec::new();
    while let Some(batch) = stream.next().await {
        batches.push(batch.map_err(|error| session.failed(&Place::file("alerts"), error))?);
    }
    Ok(batches)
}
