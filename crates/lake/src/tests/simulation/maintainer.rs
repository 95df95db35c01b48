//! Live files → fewer with the same rows, by a writer of its own in the leader's place.
//!
//! Stands for `src/maintenance.rs` of the program and `compact` of the lake, around the real
//! `load_files` and `Writer::replace`: which files are merged is luck here, and a file's rows are
//! known without reading it.

use std::collections::BTreeSet;

use super::RETRY;
use super::mutant::Mutant;
use super::stage::Env;
use crate::replay::load_files;
use crate::{DataFile, LakeError, Replacement, Writer};

/// Works while its process leads, until that ends. What fails is tried again.
pub async fn run(env: Env) {
    let mut writer = None;
    let mut files = 0;
    loop {
        env.turn().await;
        if !env.leading.get() {
            writer = None;
            continue;
        }
        files += 1;
        let path = format!("{}-merged-{files}.parquet", env.name);
        if let Err(error) = compact(&env, &mut writer, path).await {
            env.outside
                .enter()
                .tell(|| format!("{} does not compact: {error}", env.name));
            let is_bug = matches!(
                error,
                LakeError::LogHole { .. } | LakeError::BadEntry { .. } | LakeError::NotLeader
            );
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

async fn compact(env: &Env, writer: &mut Option<Writer>, path: String) -> Result<(), LakeError> {
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
    let files = match env.is(Mutant::CompactsOldFiles) {
        true => seen,
        false => load_files(writer.table(), version).await?,
    };
    let live: Vec<_> = files.live.into_values().collect();
    let (first, most) = {
        let luck = &mut env.outside.enter().luck;
        (luck.usize(0..live.len()), luck.usize(2..5))
    };
    let removes: Vec<_> = live.into_iter().skip(first).take(most).collect();
    env.turn().await;
    let rows = {
        let mut world = env.outside.enter();
        let rows = removes.iter().flat_map(|it| world.files[&it.path].clone());
        let rows: BTreeSet<_> = rows.collect();
        world.write_file(&path, rows.iter().copied().collect());
        rows.len() as u64
    };
    let replacement = Replacement {
        operation: "OPTIMIZE",
        began_ms: env.clock.now_ms(),
        removes,
        adds: vec![DataFile {
            path,
            size: 1,
            rows,
            ..DataFile::default()
        }],
        ..Replacement::default()
    };
    writer.replace(&replacement).await.map(drop)
}
