//! The local file system, with faults at the put of log entries and checkpoints.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions, Result,
};

/// What becomes of a put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Pass,
    /// Not done, and an error.
    Refuse,
    /// Done, and an error.
    LoseAnswer,
}

type Fault = Box<dyn FnOnce() -> BoxFuture<'static, Verdict> + Send>;

/// Faults for the next puts of entries, one each; then all goes well.
#[derive(Clone, Default)]
pub struct Faults(Arc<Inner>);

#[derive(Default)]
struct Inner {
    entries: Mutex<VecDeque<Fault>>,
    refuse_checkpoints: Mutex<bool>,
    puts: AtomicUsize,
}

impl Faults {
    pub fn store(&self) -> Arc<dyn ObjectStore> {
        Arc::new(FaultyStore {
            inner: LocalFileSystem::new(),
            faults: self.clone(),
        })
    }

    /// The next entry's put that has no fault yet meets `verdict`.
    pub fn then(&self, verdict: Verdict) {
        self.race(move || async move { verdict });
    }

    /// Before the next entry's put that has no fault yet, `first` runs, and says what comes of it.
    pub fn race<F>(&self, first: impl FnOnce() -> F + Send + 'static)
    where
        F: Future<Output = Verdict> + Send + 'static,
    {
        self.0
            .entries
            .lock()
            .unwrap()
            .push_back(Box::new(|| Box::pin(first())));
    }

    pub fn refuse_checkpoints(&self, refuse: bool) {
        *self.0.refuse_checkpoints.lock().unwrap() = refuse;
    }

    /// How many puts of entries there were, whatever came of them.
    pub fn puts(&self) -> usize {
        self.0.puts.load(Ordering::SeqCst)
    }

    /// Whether every fault was met.
    pub fn are_spent(&self) -> bool {
        self.0.entries.lock().unwrap().is_empty()
    }

    async fn verdict(&self, location: &Path) -> Verdict {
        let path = location.as_ref();
        if path.contains("_delta_log/") && path.ends_with(".json") {
            self.0.puts.fetch_add(1, Ordering::SeqCst);
            let fault = self.0.entries.lock().unwrap().pop_front();
            return match fault {
                Some(fault) => fault().await,
                None => Verdict::Pass,
            };
        }
        let refused = path.contains("checkpoint") && *self.0.refuse_checkpoints.lock().unwrap();
        if refused {
            Verdict::Refuse
        } else {
            Verdict::Pass
        }
    }
}

#[derive(Clone)]
struct FaultyStore {
    inner: LocalFileSystem,
    faults: Faults,
}

fn broken() -> object_store::Error {
    object_store::Error::Generic {
        store: "faulty",
        source: "503 service unavailable".into(),
    }
}

impl fmt::Debug for FaultyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FaultyStore")
    }
}

impl fmt::Display for FaultyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FaultyStore")
    }
}

#[async_trait::async_trait]
impl ObjectStore for FaultyStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        opts: PutOptions,
    ) -> Result<PutResult> {
        match self.faults.verdict(location).await {
            Verdict::Pass => self.inner.put_opts(location, payload, opts).await,
            Verdict::Refuse => Err(broken()),
            Verdict::LoseAnswer => {
                self.inner.put_opts(location, payload, opts).await?;
                Err(broken())
            }
        }
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        match self.faults.verdict(location).await {
            Verdict::Pass => self.inner.put_multipart_opts(location, opts).await,
            Verdict::Refuse | Verdict::LoseAnswer => Err(broken()),
        }
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.inner.get_opts(location, options).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        self.inner.rename_opts(from, to, options).await
    }
}
