//! Why the writing stage ends before its time.

use retrytoll_lake::LakeError;

use super::FENCES_MAX;

/// Why the writing stage ended before its time.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    #[error("the lake refused a commit")]
    Lake(#[from] LakeError),
    #[error("rows could not be written to a file of the lake; is the disk full?")]
    Parquet(#[from] parquet::errors::ParquetError),
    #[error("a batch could not be laid out as Arrow: this is a bug, please report it")]
    Arrow(#[from] arrow::error::ArrowError),
    #[error("dead letters could not be delivered, so nothing may pass them")]
    DeadLetters(#[source] anyhow::Error),
    #[error("a partition's start could not be found")]
    Start(#[source] anyhow::Error),
    #[error(
        "another process took our partitions {FENCES_MAX} times within a minute ({by}); \
         stop one of the two, or give them different groups"
    )]
    Fenced { by: String },
}
