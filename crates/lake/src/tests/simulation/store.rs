//! request → in flight → landed → answered: the object store, each of the three at a moment that
//! the scheduler chooses.
//!
//! A **request** is served at once, or it stays in flight. There it may be refused; land, and its
//! answer come later or be lost; be answered as failed and land long after; and it outlives who
//! sent it.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::task::Poll;

use bytes::Bytes;
use futures::future::{self, poll_fn};
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

use super::plan::Plan;
use super::world::{Outside, World};

#[derive(Clone, Debug)]
enum Ask {
    Put {
        path: Path,
        bytes: Bytes,
        is_new: bool,
    },
    Get(Path),
    List(Option<Path>),
}

#[derive(Clone, Debug)]
enum Answer {
    Done,
    Object(ObjectMeta, Bytes),
    Listed(Vec<ObjectMeta>),
}

#[derive(Clone, Debug)]
enum Refusal {
    Exists(Path),
    Missing(Path),
    Broken,
}

struct Request {
    /// The process that waits for it; `None` when nobody does any more.
    by: Option<usize>,
    ask: Ask,
    /// What came of it, from when it has landed.
    landed: Option<std::result::Result<Answer, Refusal>>,
    answer: Option<std::result::Result<Answer, Refusal>>,
}

pub struct Store {
    objects: BTreeMap<Path, (Bytes, i64)>,
    requests: BTreeMap<u64, Request>,
    sent: u64,
    slow_put: u32,
    slow_read: u32,
    fault: u32,
}

impl Store {
    pub fn new(plan: &Plan) -> Self {
        Self {
            objects: BTreeMap::new(),
            requests: BTreeMap::new(),
            sent: 0,
            slow_put: plan.slow_put,
            slow_read: plan.slow_read,
            fault: plan.fault,
        }
    }

    /// From now on everything is served at once; what is in flight still has to land.
    pub fn heal(&mut self) {
        (self.slow_put, self.slow_read, self.fault) = (0, 0, 0);
    }

    /// An object that is put without a request.
    pub fn insert(&mut self, path: Path, bytes: Bytes, now_ms: i64) {
        self.objects.insert(path, (bytes, now_ms));
    }

    /// Nothing is in flight.
    pub fn is_idle(&self) -> bool {
        self.requests.values().all(|it| it.answer.is_some())
    }

    fn meta(path: &Path, (bytes, ms): &(Bytes, i64)) -> ObjectMeta {
        ObjectMeta {
            location: path.clone(),
            last_modified: chrono::DateTime::from_timestamp_millis(*ms).unwrap(),
            size: bytes.len() as u64,
            e_tag: None,
            version: None,
        }
    }
}

impl World {
    /// A request is sent; it may be served on the spot.
    fn send(&mut self, by: usize, ask: Ask) -> u64 {
        let id = self.store.sent;
        self.store.sent += 1;
        let slow = match ask {
            Ask::Put { .. } => self.store.slow_put,
            Ask::Get(_) | Ask::List(_) => self.store.slow_read,
        };
        let is_slow = self.chance(slow);
        if is_slow {
            self.tell(|| format!("process {by} sends {ask}, #{id}"));
        }
        let answer = (!is_slow).then(|| self.land(&ask));
        let by = Some(by);
        let request = Request {
            by,
            ask,
            landed: None,
            answer,
        };
        self.store.requests.insert(id, request);
        id
    }

    fn answer(&mut self, id: u64) -> Option<std::result::Result<Answer, Refusal>> {
        let answer = self.store.requests.get_mut(&id)?.answer.take()?;
        self.store.requests.remove(&id);
        Some(answer)
    }

    /// One request in flight goes on, if there is any.
    pub fn serve(&mut self) {
        let requests = self.store.requests.iter();
        let open: Vec<u64> = requests
            .filter(|(_, it)| it.answer.is_none())
            .map(|(id, _)| *id)
            .collect();
        if open.is_empty() {
            return;
        }
        let id = open[self.luck.usize(0..open.len())];
        let Some(mut request) = self.store.requests.remove(&id) else {
            return;
        };
        if let Some(landed) = request.landed.take() {
            self.tell(|| format!("#{id} is answered"));
            request.answer = Some(landed);
        } else if request.by.is_some() {
            self.meet_fate(id, &mut request);
        } else {
            let is_lost = self.store.fault > 0 && self.chance(40);
            if is_lost {
                self.tell(|| format!("#{id} is lost"));
            } else {
                self.tell(|| format!("#{id} lands, nobody waits for it"));
                if self.land(&request.ask).is_ok() {
                    self.saw("a put that landed after its sender was gone or gave up on it");
                }
            }
            return;
        }
        self.store.requests.insert(id, request);
    }

    /// Time passes in which every request meets its fate: none is on its way for days.
    pub fn settle_all(&mut self) {
        while !self.store.is_idle() {
            self.serve();
        }
    }

    fn meet_fate(&mut self, id: u64, request: &mut Request) {
        let fault = self.store.fault;
        let goes_wrong = self.chance(fault);
        match (goes_wrong, self.luck.u32(0..3)) {
            (true, 0) => {
                self.tell(|| format!("#{id} is refused"));
                request.answer = Some(Err(Refusal::Broken));
            }
            (true, 1) => {
                self.tell(|| format!("#{id} lands, its answer is lost"));
                if self.land(&request.ask).is_ok() && matches!(request.ask, Ask::Put { .. }) {
                    self.saw("a commit whose answer was lost");
                }
                request.answer = Some(Err(Refusal::Broken));
            }
            (true, _) => {
                let later = self.store.sent;
                self.tell(|| format!("#{id} is answered as failed, and on its way as #{later}"));
                request.answer = Some(Err(Refusal::Broken));
                let late = Request {
                    by: None,
                    ask: request.ask.clone(),
                    landed: None,
                    answer: None,
                };
                self.store.sent += 1;
                self.store.requests.insert(later, late);
            }
            (false, 0) => {
                self.tell(|| format!("#{id} lands, its answer takes longer"));
                request.landed = Some(self.land(&request.ask));
            }
            (false, _) => {
                self.tell(|| format!("#{id} lands"));
                request.answer = Some(self.land(&request.ask));
            }
        }
    }

    /// The process is gone; what it has sent is not.
    pub fn orphan(&mut self, process: usize) {
        for request in self
            .store
            .requests
            .values_mut()
            .filter(|it| it.by == Some(process))
        {
            request.by = None;
        }
        // What has landed was waited for by nobody else; reads change nothing.
        self.store.requests.retain(|_, it| {
            let is_over =
                it.landed.is_some() || it.answer.is_some() || !matches!(it.ask, Ask::Put { .. });
            it.by.is_some() || !is_over
        });
    }

    fn land(&mut self, ask: &Ask) -> std::result::Result<Answer, Refusal> {
        match ask {
            Ask::Put {
                path, is_new: true, ..
            } if self.store.objects.contains_key(path) => Err(Refusal::Exists(path.clone())),
            Ask::Put { path, bytes, .. } => {
                let now_ms = self.now_ms();
                self.store
                    .objects
                    .insert(path.clone(), (bytes.clone(), now_ms));
                let entry = path
                    .as_ref()
                    .strip_prefix("_delta_log/")
                    .and_then(|it| it.strip_suffix(".json"));
                if let Some(version) = entry.and_then(|it| it.parse().ok()) {
                    let told = self.audit.landed(version, bytes, &self.files, &self.logs);
                    self.tell(|| told);
                }
                Ok(Answer::Done)
            }
            Ask::Get(path) => match self.store.objects.get(path) {
                Some(object) => Ok(Answer::Object(Store::meta(path, object), object.0.clone())),
                None => Err(Refusal::Missing(path.clone())),
            },
            Ask::List(prefix) => {
                let objects = self.store.objects.iter();
                let within = |path: &Path| prefix.as_ref().is_none_or(|it| path.prefix_matches(it));
                let found = objects.filter(|(path, _)| within(path));
                Ok(Answer::Listed(
                    found
                        .map(|(path, object)| Store::meta(path, object))
                        .collect(),
                ))
            }
        }
    }
}

impl fmt::Display for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Put { path, .. } => write!(f, "put {path}"),
            Self::Get(path) => write!(f, "get {path}"),
            Self::List(prefix) => write!(f, "list {}", prefix.clone().unwrap_or_default()),
        }
    }
}

impl From<Refusal> for object_store::Error {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Exists(path) => Self::AlreadyExists {
                path: path.to_string(),
                source: "it is there".into(),
            },
            Refusal::Missing(path) => Self::NotFound {
                path: path.to_string(),
                source: "it is not there".into(),
            },
            Refusal::Broken => Self::Generic {
                store: "simulated",
                source: "503 service unavailable".into(),
            },
        }
    }
}

/// The way of one process to the store; without a process, everything is served at once.
#[derive(Clone)]
pub struct Gate {
    pub outside: Outside,
    pub process: Option<usize>,
}

impl Gate {
    async fn ask(&self, ask: Ask) -> Result<Answer> {
        let Some(process) = self.process else {
            return Ok(self.outside.enter().land(&ask)?);
        };
        let id = self.outside.enter().send(process, ask);
        let answer = poll_fn(|_| match self.outside.enter().answer(id) {
            Some(answer) => Poll::Ready(answer),
            None => Poll::Pending,
        });
        Ok(answer.await?)
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Gate")
    }
}

impl fmt::Display for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Gate")
    }
}

#[async_trait::async_trait]
impl ObjectStore for Gate {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        opts: PutOptions,
    ) -> Result<PutResult> {
        let put = Ask::Put {
            path: location.clone(),
            bytes: payload.into(),
            is_new: opts.mode == PutMode::Create,
        };
        self.ask(put).await?;
        Ok(PutResult {
            e_tag: None,
            version: None,
        })
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let Answer::Object(meta, bytes) = self.ask(Ask::Get(location.clone())).await? else {
            unreachable!("a get is answered by an object");
        };
        let range: Range<u64> = match &options.range {
            Some(range) => range.as_range(meta.size).unwrap(),
            None => 0..meta.size,
        };
        let part = bytes.slice(range.start as usize..range.end as usize);
        Ok(GetResult {
            payload: GetResultPayload::Stream(stream::once(future::ready(Ok(part))).boxed()),
            meta,
            range,
            attributes: Default::default(),
        })
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (gate, ask) = (self.clone(), Ask::List(prefix.cloned()));
        let listed = async move {
            let Answer::Listed(found) = gate.ask(ask).await? else {
                unreachable!("a list is answered by a list");
            };
            Result::<_>::Ok(stream::iter(found.into_iter().map(Ok)))
        };
        stream::once(listed).try_flatten().boxed()
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let outside = self.outside.clone();
        let remove = move |path: Path| {
            let mut world = outside.enter();
            world.store.objects.remove(&path);
            world.files.remove(path.as_ref());
            drop(world);
            path
        };
        locations.map_ok(remove).boxed()
    }

    async fn put_multipart_opts(
        &self,
        _: &Path,
        _: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        Err(not_here("put in parts"))
    }

    async fn list_with_delimiter(&self, _: Option<&Path>) -> Result<ListResult> {
        Err(not_here("list a folder alone"))
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        Err(not_here("copy"))
    }
}

fn not_here(operation: &str) -> object_store::Error {
    object_store::Error::NotImplemented {
        operation: operation.to_owned(),
        implementer: "the simulated store".to_owned(),
    }
}
