//! Live files → fewer with the same rows, by a writer of its own in the leader's place.
//!
//! Stands for `src/maintenance.rs` of the program and `compact` of the lake, around the real
//! `load_files` and `Writer::replace`: which files are merged is luck here, and a file's rows are
//! known without reading it.

use std::collections::BTreeSet;

use super::RETRY;
use super::mutant::Mutant;
use super::stage::Env;
use crate::replay::{Files, load_files};
use crate::{DataFile, LakeError, Replaced, Replacement, Writer};

/// Works while its process leads, until that ends. What fails is tried again.
pub async fn run(env: Env) {
    let mut writer = None;
    let mut first = None;
    let mut files = 0;
    loop {
        env.turn().await;
        if !env.leading.get() {
            writer = None;
            continue;
        }
        files += 1;
        let path = format!("{}-merged-{files}.parquet", env.name);
        if let Err(error) = compact(&env, &mut writer, &mut first, path).await {
            env.outside
                .enter()
                .tell(|| format!("{} does not compact: {error}", env.name));
            // A hole is none: clean-up may pass one that sleeps while it reads.
            let is_bug = matches!(error, LakeError::BadEntry { .. } | LakeError::NotLeader);
            if is_bug {
                env.outside
                    .enter()
                    .audit
                    .fail(format!("compaction: {error}"));
            }
            writer = None;
        }
    }
}

async fn compact(
    env: &Env,
    writer: &mut Option<Writer>,
    first: &mut Option<Files>,
    path: String,
) -> Result<(), LakeError> {
    let table = env.table().await?;
    let seen = load_files(&table, table.check().await?.version).await?;
    if seen.live.len() < 3 {
        return Ok(());
    }
    if writer.as_ref().is_none_or(|it| !it.is_leader()) {
        let mut fresh = env
            .writer(format!("{}/maintenance", env.name), RETRY)
            .await?;
        fresh.claim_leader().await?;
        *writer = Some(fresh);
    }
    let Some(writer) = writer else {
        return Err(LakeError::NotLeader);
    };
    let version = writer.confirm().await?.version;
    let mut files = load_files(writer.table(), version).await?;
    let first = first.get_or_insert_with(|| files.clone());
    if env.is(Mutant::CompactsOldFiles) {
        files = first.clone();
    }
    let live: Vec<_> = files.live.into_values().collect();
    let (skipped, most) = {
        let luck = &mut env.outside.enter().luck;
        (luck.usize(0..live.len()), luck.usize(2..5))
    };
    let removes: Vec<_> = live.into_iter().skip(skipped).take(most).collect();
    env.turn().await;
    let rows = {
        let mut world = env.outside.enter();
        let mut rows = BTreeSet::new();
        for remove in &removes {
            let Some(of_file) = world.files.get(&remove.path) else {
                let gone = format!("{} was vacuumed", remove.path);
                return Err(LakeError::data(format!("read {}", remove.path), gone));
            };
            rows.extend(of_file);
        }
        world.write_file(&path, rows.iter().copied().collect());
        rows.len() as u64
    };
    let replacement = Replacement {
        operation: "OPTIMIZE",
        began_ms: env.clock.now_ms(),
        planned_at: version,
        removes,
        adds: vec![DataFile {
            path,
            size: 1,
            rows,
            ..DataFile::default()
        }],
        ..Replacement::default()
    };
    let saw = match writer.replace(&replacement).await? {
        Replaced::Committed(_) => "files compacted",
        Replaced::PlanAgain(_) => "a compaction planned again",
    };
    env.outside.enter().saw(saw);
    Ok(())
}
