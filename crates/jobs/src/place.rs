//! The rows of `sql/views/placed.sql`, sorted by request → `placed`: each with its place.
//!
//! [`retrytoll_core::operation`] is the definition; here is its node in a plan: the engine sorts
//! and splits the rows by request, spilling what is too much, and a stream holds one request at a
//! time. Which requests are looked at is known before: [`Requests`].

mod columns;
mod node;
mod request;
mod stream;

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use arrow::datatypes::Schema;
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
pub use request::{Requests, request_hash};

/// The plan of `placed` over the plan of `sql/views/placed.sql`. `mark_us` is the completeness
/// mark; `None` where all is complete.
///
/// # Errors
/// A column of the rows has the name of one of a place's.
pub fn placed(rows: LogicalPlan, mark_us: Option<i64>) -> Result<LogicalPlan> {
    let node = Arc::new(Place::over(rows, mark_us)?);
    Ok(LogicalPlan::Extension(Extension { node }))
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Place {
    rows: LogicalPlan,
    mark_us: Option<i64>,
    schema: DFSchemaRef,
}

impl Place {
    fn over(rows: LogicalPlan, mark_us: Option<i64>) -> Result<Self> {
        let places = Schema::new(columns::place_fields());
        let schema = Arc::new(rows.schema().join(&DFSchema::try_from(places)?)?);
        Ok(Self {
            rows,
            mark_us,
            schema,
        })
    }

    /// The names of the rows' columns, in their order.
    fn row_columns(&self) -> impl Iterator<Item = (usize, &str)> {
        let fields = self.rows.schema().fields().iter();
        fields.map(|it| it.name().as_str()).enumerate()
    }
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
        Self::over(rows.pop().ok_or_else(one_input)?, self.mark_us)
    }

    fn necessary_children_exprs(&self, output: &[usize]) -> Option<Vec<Vec<usize>>> {
        let needed = |(at, name): (usize, &str)| {
            (output.contains(&at) || columns::NEEDED.contains(&name)).then_some(at)
        };
        Some(vec![self.row_columns().filter_map(needed).collect()])
    }

    /// A request is whole or not there at all, so what chooses requests may be asked before.
    fn prevent_predicate_push_down_columns(&self) -> HashSet<String> {
        let names = self.schema.fields().iter().map(|it| it.name());
        let others = names.filter(|name| !node::REQUEST.contains(&name.as_str()));
        others.cloned().collect()
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
        let node = PlaceNode::new(Arc::clone(rows), place.mark_us)?;
        Ok(Some(Arc::new(node)))
    }
}
