//! A query's stream → the same, until its time is over.
//!
//! A query ends by two things together. It runs as a task of its own and its time is told by a
//! thread, so that the answer comes in time whatever the engine's threads are at. And its joins
//! give way now and then ([`Yielding`]), so that the task stops working when nobody waits for it.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode as _};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::stream::{RecordBatchReceiverStream, RecordBatchStreamAdapter};
use datafusion::physical_plan::unnest::UnnestExec;
use futures::future::{Either, select};
use futures::{FutureExt as _, StreamExt as _, stream};
use tokio::sync::oneshot;

/// Batches that a query may be ahead of who reads them.
const BATCHES_AHEAD: usize = 2;

/// The time of a query is over.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the query's time is over")]
pub struct TimeIsOver;

impl TimeIsOver {
    fn error() -> DataFusionError {
        DataFusionError::External(Box::new(Self))
    }

    /// Whether that is what went wrong.
    pub fn is(error: &DataFusionError) -> bool {
        matches!(error.find_root(), DataFusionError::External(it) if it.is::<Self>())
    }
}

/// Rings once, a while after it was set, also where every thread of the runtime is busy.
pub struct Alarm {
    rings: oneshot::Receiver<()>,
    /// Gone with the alarm, by which its thread ends.
    _is_wanted: SyncSender<()>,
}

impl Alarm {
    /// # Errors
    /// The system gives no thread.
    pub fn after(time: Duration) -> Result<Self> {
        let (is_wanted, wanted) = sync_channel::<()>(1);
        let (ring, rings) = oneshot::channel();
        let wait = move || {
            if wanted.recv_timeout(time) == Err(RecvTimeoutError::Timeout) {
                // Nobody may be there to hear it.
                let _ = ring.send(());
            }
        };
        thread::Builder::new()
            .name("query-time".into())
            .spawn(wait)?;
        Ok(Self {
            rings,
            _is_wanted: is_wanted,
        })
    }

    /// What `work` gives, if it is done before the alarm rings.
    pub async fn before<T>(&mut self, work: impl Future<Output = T>) -> Result<T> {
        let work = std::pin::pin!(work);
        match select(&mut self.rings, work).await {
            Either::Left(_) => Err(TimeIsOver::error()),
            Either::Right((done, _)) => Ok(done),
        }
    }

    /// A closure that asks by this keeps all of the alarm; by its field alone, it would lose the rest.
    fn has_rung(&mut self, context: &mut Context<'_>) -> bool {
        self.rings.poll_unpin(context).is_ready()
    }

    /// The stream's batches that come before the alarm rings, then an error.
    pub fn bound(mut self, mut rows: SendableRecordBatchStream) -> SendableRecordBatchStream {
        let schema = rows.schema();
        let mut task = RecordBatchReceiverStream::builder(Arc::clone(&schema), BATCHES_AHEAD);
        let sender = task.tx();
        task.spawn(async move {
            while let Some(batch) = rows.next().await {
                if sender.send(batch).await.is_err() {
                    break;
                }
            }
            Ok(())
        });
        // The task ends with its stream, which is dropped when the alarm rings.
        let mut task: Option<Pin<Box<_>>> = Some(Box::pin(task.build()));
        let bounded = stream::poll_fn(move |context| {
            let Some(rows) = &mut task else {
                return Poll::Ready(None);
            };
            if self.has_rung(context) {
                task = None;
                return Poll::Ready(Some(Err(TimeIsOver::error())));
            }
            rows.as_mut().poll_next_unpin(context)
        });
        Box::pin(RecordBatchStreamAdapter::new(schema, bounded))
    }
}

/// Puts a place to give way behind every node that can make many rows of few. The engine has them
/// at what it reads from alone, which such a node does not come back to for hours.
#[derive(Debug)]
pub struct Yielding;

impl PhysicalOptimizerRule for Yielding {
    fn name(&self) -> &str {
        "Yielding"
    }

    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let give_way = |node: Arc<dyn ExecutionPlan>| {
            // Joins of every kind, unions, and steps that repeat.
            if node.children().len() > 1 || node.downcast_ref::<UnnestExec>().is_some() {
                let node: Arc<dyn ExecutionPlan> = Arc::new(CooperativeExec::new(node));
                return Ok(Transformed::yes(node));
            }
            Ok(Transformed::no(node))
        };
        plan.transform_up(give_way).map(|it| it.data)
    }

    fn schema_check(&self) -> bool {
        true
    }
}
