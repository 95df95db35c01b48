//! The node of a plan: it asks for rows sorted by request, all of a request in one stream.

use std::fmt;
use std::sync::Arc;

use arrow::compute::SortOptions;
use arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::col;
use datafusion::physical_expr::{
    Distribution, EquivalenceProperties, LexRequirement, OrderingRequirements, Partitioning,
    PhysicalExpr, PhysicalSortRequirement,
};
use datafusion::physical_plan::execution_plan::{
    Boundedness, ChildrenPropertiesMode, EmissionType, ReplaceChildrenOptions,
};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties as _,
    InputDistributionRequirements, PlanProperties,
};

use super::columns::with_places;
use super::stream::placed;

/// What a request is known by.
pub const REQUEST: [&str; 2] = ["service", "request_id"];

#[derive(Debug)]
pub struct PlaceNode {
    rows: Arc<dyn ExecutionPlan>,
    mark_us: Option<i64>,
    schema: SchemaRef,
    request: Vec<Arc<dyn PhysicalExpr>>,
    properties: Arc<PlanProperties>,
}

impl PlaceNode {
    pub fn new(rows: Arc<dyn ExecutionPlan>, mark_us: Option<i64>) -> Result<Self> {
        let schema = with_places(&rows.schema());
        let request = REQUEST
            .iter()
            .map(|name| col(name, &rows.schema()))
            .collect::<Result<Vec<_>>>()?;
        let streams = rows.output_partitioning().partition_count();
        let properties = Arc::new(PlanProperties::new(
            EquivalenceProperties::new(Arc::clone(&schema)),
            Partitioning::UnknownPartitioning(streams),
            EmissionType::Incremental,
            Boundedness::Bounded,
        ));
        Ok(Self {
            rows,
            mark_us,
            schema,
            request,
            properties,
        })
    }
}

impl DisplayAs for PlaceNode {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PlaceNode: by=[{}]", REQUEST.join(", "))
    }
}

impl ExecutionPlan for PlaceNode {
    fn name(&self) -> &str {
        "PlaceNode"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.rows]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn required_input_distribution(&self) -> Vec<Distribution> {
        self.input_distribution_requirements().into_per_child()
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        InputDistributionRequirements::new(vec![Distribution::KeyPartitioned(self.request.clone())])
    }

    fn required_input_ordering(&self) -> Vec<Option<OrderingRequirements>> {
        let by = |it: &Arc<dyn PhysicalExpr>| {
            PhysicalSortRequirement::new(Arc::clone(it), Some(SortOptions::default()))
        };
        vec![LexRequirement::new(self.request.iter().map(by)).map(OrderingRequirements::new)]
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let (Some(rows), true) = (children.pop(), children.is_empty()) else {
            return Err(DataFusionError::Internal("PlaceNode has one child".into()));
        };
        Ok(Arc::new(Self::new(rows, self.mark_us)?))
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let anew = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        self.replace_children(children, anew)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let rows = self.rows.execute(partition, context)?;
        let stream = placed(rows, self.mark_us, Arc::clone(&self.schema));
        Ok(Box::pin(RecordBatchStreamAdapter::new(
            self.schema(),
            stream,
        )))
    }
}
