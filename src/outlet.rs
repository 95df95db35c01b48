//! dead letters → a topic or a file, acknowledged.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;

use anyhow::Context as _;

use crate::dead_letter::DeadLetter;
use crate::kafka::DeadLetterTopic;

/// Where dead letters go. What [`DeadLetterOutlet::deliver`] took without an error is safe.
pub enum DeadLetterOutlet {
    File(File),
    Topic(DeadLetterTopic),
}

impl DeadLetterOutlet {
    /// JSON lines are appended to the file; it is created with the first letter's run.
    pub fn file(path: &Path) -> anyhow::Result<Self> {
        let open = OpenOptions::new().create(true).append(true).open(path);
        let file = open.with_context(|| {
            format!(
                "cannot open {} for dead letters; name another with --dead-letters",
                path.display()
            )
        })?;
        Ok(Self::File(file))
    }

    /// Returns when every letter is acknowledged.
    pub fn deliver(&mut self, letters: &[DeadLetter]) -> anyhow::Result<()> {
        match self {
            Self::File(file) => {
                let mut lines = String::new();
                for letter in letters {
                    lines.push_str(&letter.json());
                    lines.push('\n');
                }
                file.write_all(lines.as_bytes())?;
                file.sync_data()?;
                Ok(())
            }
            Self::Topic(topic) => topic.deliver(letters),
        }
    }
}
