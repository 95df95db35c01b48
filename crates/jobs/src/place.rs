//! The rows of `sql/views/placed.sql`, sorted by request → `placed`: each attempt's place.
//!
//! [`retrytoll_core::operation`] is the definition; here is its node in a plan: the engine sorts
//! and splits the rows by request, and a stream holds one request at a time.

mod columns;
mod node;
mod request;
mod stream;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::{DFSchema, DFSchemaRef};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::context::QueryPlanner;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{
    Expr, Extension, LogicalPlan, UserDefinedLogicalNode, UserDefinedLogicalNodeCore,
};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_planner::{DefaultPhysicalPlanner, ExtensionPlanner, PhysicalPlanner};

use node::PlaceNode;
pub use request::request_hash;

/// The plan of `placed` over the plan of `sql/views/placed.sql`. `mark_us` is the completeness
/// mark; `None` where all is complete.
///
/// # Errors
/// Never: the columns have names of their own.
pub fn placed(rows: LogicalPlan, mark_us: Option<i64>) -> Result<LogicalPlan> {
    let schema = Arc::new(DFSchema::try_from(columns::schema())?);
    let node = Arc::new(Place {
        rows,
        mark_us,
        schema,
    });
    Ok(LogicalPlan::Extension(Extension { node }))
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Place {
    rows: LogicalPlan,
    mark_us: Option<i64>,
    schema: DFSchemaRef,
}

impl PartialOrd for Place {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        self.rows.partial_cmp(&other.rows)
    }
}

impl UserDefinedLogicalNodeCore for Place {
    fn name(&self) -> &str {
        "Place"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.rows]
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        Vec::new()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Place")
    }

    fn with_exprs_and_inputs(&self, _: Vec<Expr>, mut rows: Vec<LogicalPlan>) -> Result<Self> {
        let rows = rows.pop().ok_or_else(one_input)?;
        Ok(Self {
            rows,
            ..self.clone()
        })
    }
}

fn one_input() -> DataFusionError {
    DataFusionError::Internal("Place has one input".into())
}

/// DataFusion's own planner, which also knows the node.
#[derive(Debug)]
pub struct Planner;

#[async_trait]
impl QueryPlanner for Planner {
    async fn create_physical_plan(
        &self,
        plan: &LogicalPlan,
        session: &dyn Session,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        DefaultPhysicalPlanner::with_extension_planners(vec![Arc::new(PlacePlanner)])
            .create_physical_plan(plan, session)
            .await
    }
}

struct PlacePlanner;

#[async_trait]
impl ExtensionPlanner for PlacePlanner {
    async fn plan_extension(
        &self,
        _: &dyn PhysicalPlanner,
        node: &dyn UserDefinedLogicalNode,
        _: &[&LogicalPlan],
        inputs: &[Arc<dyn ExecutionPlan>],
        _: &dyn Session,
        _: &PhysicalPlanningContext,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let Some(place) = node.as_any().downcast_ref::<Place>() else {
            return Ok(None);
        };
        let rows = inputs.first().ok_or_else(one_input)?;
        let node = PlaceNode::new(Arc::clone(rows), place.mark_us, columns::schema())?;
        Ok(Some(Arc::new(node)))
    }
}
