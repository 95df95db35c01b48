//! the demo's lake → what its retries cost, a section a question.
//!
//! A *section* is a title, a line that says what it means, a few rows, and the command that shows
//! more.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use arrow::array::RecordBatch;
use retrytoll_jobs::render::{columns, dollars_text, harmless};
use retrytoll_jobs::{Catalog, Job, JobResult, Limits, Meta, Session, Style, Toll, Window};
use tokio::runtime::Runtime;

use crate::alerts::cell;
use crate::lake;
use crate::report::headline::toll_line;

/// Repeated billings that are shown, the costliest.
const REPEATED: usize = 3;

/// The operations of one prompt, in their order. It takes the prompt's hash.
const CHAIN: &str = "
SELECT
  arrow_cast(started_at, 'Timestamp(Second, Some(\"UTC\"))') AS starts,
  request_id,
  attempts,
  last_class AS ended_by,
  outcome,
  expected_usd
FROM operations
WHERE prompt_hash = '{hash}' AND ended_at >= $since AND ended_at < $until
ORDER BY started_at, operation_id";

/// The lake at the end of the demo.
pub struct Shown<'a> {
    session: Session,
    runtime: &'a Runtime,
    window: Window,
    catalog: Catalog,
    style: Style,
    /// What a command needs to ask about the same: `--lake demo-lake --since 2026-11-30`.
    flags: String,
}

impl<'a> Shown<'a> {
    /// Opens the lake at `root`, to be asked about `window`.
    ///
    /// # Errors
    /// The lake's.
    pub fn open(
        root: &Path,
        window: Window,
        runtime: &'a Runtime,
        limits: Limits,
        style: Style,
    ) -> anyhow::Result<Self> {
        let url = lake::url_of(&root.canonicalize()?)?;
        let since = window.since.format("%Y-%m-%d");
        Ok(Self {
            session: runtime.block_on(Session::open(&url, None, limits))?,
            runtime,
            flags: format!("--lake {} --since {since}", root.display()),
            window,
            catalog: Catalog::embedded(),
            style,
        })
    }

    /// What a command needs to ask about the same.
    pub fn flags(&self) -> &str {
        &self.flags
    }

    fn answer(&self, name: &str, given: &[(&str, &str)]) -> anyhow::Result<JobResult> {
        let job = self.catalog.get(name)?;
        self.ask(&job, given)
    }

    fn ask(&self, job: &Arc<Job>, given: &[(&str, &str)]) -> anyhow::Result<JobResult> {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let given = given.iter().map(owned).collect::<BTreeMap<_, _>>();
        let answer = self.session.run_job(job, &self.window, &given);
        Ok(self.runtime.block_on(answer)?)
    }

    /// Title, meaning and a blank line.
    fn head(&self, out: &mut dyn Write, title: &str, meaning: &str) -> anyhow::Result<()> {
        writeln!(out, "\n{title}\n{meaning}\n")?;
        Ok(())
    }

    fn more(&self, out: &mut dyn Write, command: &str) -> anyhow::Result<()> {
        writeln!(out, "  more: retrytoll {command} {}", self.flags)?;
        Ok(())
    }

    /// The toll in a sentence.
    ///
    /// # Errors
    /// Of the query, of writing.
    pub fn headline(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        if let Some(toll) = Toll::of(&self.answer("toll", &[])?.batches) {
            writeln!(out, "\n{}", toll_line(toll))?;
        }
        Ok(())
    }

    /// Columns of a job's rows, by what the job is asked by.
    fn table(
        &self,
        out: &mut dyn Write,
        (title, meaning): (&str, &str),
        (job, by): (&str, &str),
        names: &[&str],
    ) -> anyhow::Result<()> {
        self.head(out, title, meaning)?;
        let result = self.answer(job, &[("by", by)])?;
        columns(out, &result, names, self.style)?;
        self.more(out, &format!("report {job}"))
    }

    /// Each service's share.
    ///
    /// # Errors
    /// As [`Shown::headline`].
    pub fn shares(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        self.table(
            out,
            (
                "Who retries, and what it costs",
                "Retries' share of what each service spends; over 5 % its policy wants a look.",
            ),
            ("retry_cost_share", "service"),
            &[
                "key",
                "share_pct",
                "band",
                "retry_expected_usd",
                "redundant_expected_usd",
                "note",
            ],
        )
    }

    /// The costliest operations that were billed more than once, attempt by attempt.
    ///
    /// # Errors
    /// As [`Shown::headline`].
    pub fn repeated(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        self.head(
            out,
            "Billed more than once",
            "The costliest, each attempt with its evidence, its cost, and the id to reclaim it by.",
        )?;
        let result = self.answer("repeated_billing", &[("by", "operation")])?;
        for (batch, row) in rows(&result).take(REPEATED) {
            write!(out, "{}", repeated(batch, row))?;
        }
        self.more(out, "report repeated_billing --by operation")
    }

    /// What the first, second … retry rescued.
    ///
    /// # Errors
    /// As [`Shown::headline`].
    pub fn rescue(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        self.table(
            out,
            (
                "What each retry rescues",
                "Of operations whose first attempt failed, those that retry N delivered: under 3 %, stop there.",
            ),
            ("retry_rescue", "all"),
            &[
                "retry",
                "first_failures",
                "tried",
                "rescued",
                "rescue_share_pct",
                "mark",
                "retry_expected_usd",
            ],
        )
    }

    /// The longest chain of resends.
    ///
    /// # Errors
    /// As [`Shown::headline`].
    pub fn chain(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        self.head(
            out,
            "One prompt, sent again and again",
            "Each line is an operation of its own: a user pressed the button again, or a job did.",
        )?;
        let result = self.answer("resends", &[("by", "chain")])?;
        let length = |(batch, row): &(&RecordBatch, usize)| cell::figure(batch, "operations", *row);
        // The first of the longest: the costliest.
        let longest = rows(&result).reduce(|best, next| match length(&next) > length(&best) {
            true => next,
            false => best,
        });
        let Some((batch, row)) = longest else {
            writeln!(out, "  nobody sent a prompt again")?;
            return self.more(out, "report resends");
        };
        writeln!(out, "  {}\n", chain(batch, row))?;
        let hash = text(batch, "prompt_hash", row);
        let job = Arc::new(Job {
            name: "chain".to_owned(),
            file: "the demo's chain".to_owned(),
            sql: CHAIN.replace("{hash}", &hash.replace('\'', "''")),
            meta: Meta::default(),
        });
        columns(out, &self.ask(&job, &[])?, &[], self.style)?;
        self.more(out, "report resends")
    }
}

fn rows(result: &JobResult) -> impl Iterator<Item = (&RecordBatch, usize)> {
    let batches = result.batches.iter();
    batches.flat_map(|batch| (0..batch.num_rows()).map(move |row| (batch, row)))
}

fn text(batch: &RecordBatch, name: &str, row: usize) -> String {
    harmless(cell::text(batch, name, row).unwrap_or("-".to_owned()))
}

fn dollars(batch: &RecordBatch, name: &str, row: usize) -> String {
    cell::figure(batch, name, row).map_or("an unknown sum".to_owned(), dollars_text)
}

/// One operation: what was redundant in it, then a line an attempt.
fn repeated(batch: &RecordBatch, row: usize) -> String {
    let mut out = format!(
        "  {} of {}: {} redundant\n",
        text(batch, "request_id", row),
        text(batch, "service", row),
        dollars(batch, "confirmed_redundant_usd", row),
    );
    let (evidence, ids) = (text(batch, "evidence", row), text(batch, "ids", row));
    let attempts = evidence.split("; ").collect::<Vec<_>>();
    let width = attempts.iter().map(|it| it.len()).max().unwrap_or(0);
    for (attempt, id) in attempts.into_iter().zip(ids.split("; ")) {
        // An id comes with its attempt's number, which stands there already.
        let id = id.split_once(' ').map_or(id, |(_, id)| id);
        out.push_str(&format!("    {attempt:width$}  {id}\n"));
    }
    out
}

/// What a chain cost, in a sentence.
fn chain(batch: &RecordBatch, row: usize) -> String {
    let seconds = cell::figure(batch, "span_ms", row)
        .map_or(0, |ms| ms / retrytoll_core::money::DOLLAR / 1_000);
    format!(
        "{}, {}: {} operations in {seconds} s, {}; without the first {}",
        text(batch, "key", row),
        text(batch, "sender", row),
        text(batch, "operations", row),
        dollars(batch, "expected_usd", row),
        dollars(batch, "again_expected_usd", row),
    )
}
