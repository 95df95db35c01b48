//! `power_of_two(max_tokens)` and `profile_of(needed, date, provider, model, service, max_tokens)`.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

use arrow::array::{Array as _, ArrayRef, AsArray as _, Decimal128Array, StructArray};
use arrow::datatypes::{DataType, Date32Type, Field, Fields, Int64Type};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility, create_udf,
};
use datafusion::prelude::{Expr, lit};
use retrytoll_core::profile::power_of_two;

use super::loaded::{Loaded, integer, text};

const MEDIAN: DataType = DataType::Decimal128(16, 1);
const P99: DataType = DataType::Decimal128(15, 0);

/// What `profile_of` tells, tokens.
pub fn figures() -> Fields {
    let field = |name, data_type| Field::new(name, data_type, true);
    Fields::from(vec![
        field("input_median", MEDIAN),
        field("input_p99", P99),
        field("output_median", MEDIAN),
        field("output_p99", P99),
    ])
}

/// The function `power_of_two`.
pub fn power_of_two_function() -> ScalarUDF {
    let of = |values: &[ColumnarValue]| {
        let columns = ColumnarValue::values_to_arrays(values)?;
        let powers = columns[0].as_primitive::<Int64Type>();
        let powers = powers.unary_opt::<_, Int64Type>(power_of_two);
        Ok(ColumnarValue::Array(Arc::new(powers)))
    };
    create_udf(
        "power_of_two",
        vec![DataType::Int64],
        DataType::Int64,
        Volatility::Immutable,
        Arc::new(of),
    )
}

/// The function `profile_of`: null where `needed` is not true, and where no profile tells. Without
/// any profile a plan holds the null in its place, and its arguments are not even read.
pub struct ProfileOf {
    signature: Signature,
    loaded: Arc<OnceLock<Arc<Loaded>>>,
}

impl ProfileOf {
    /// Over what is loaded before it is asked.
    pub fn new(loaded: Arc<OnceLock<Arc<Loaded>>>) -> Self {
        let text = || DataType::Utf8;
        let arguments = vec![
            DataType::Boolean,
            DataType::Date32,
            text(),
            text(),
            text(),
            DataType::Int64,
        ];
        Self {
            signature: Signature::exact(arguments, Volatility::Immutable),
            loaded,
        }
    }

    /// What is loaded, if it tells of anything.
    fn loaded(&self) -> Option<&Loaded> {
        self.loaded
            .get()
            .map(Arc::as_ref)
            .filter(|it| !it.is_empty())
    }
}

fn null() -> Result<ScalarValue> {
    ScalarValue::try_from(&DataType::Struct(figures()))
}

impl ScalarUDFImpl for ProfileOf {
    fn name(&self) -> &str {
        "profile_of"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Struct(figures()))
    }

    fn simplify(&self, arguments: Vec<Expr>, _: &SimplifyContext) -> Result<ExprSimplifyResult> {
        Ok(match self.loaded() {
            Some(_) => ExprSimplifyResult::Original(arguments),
            None => ExprSimplifyResult::Simplified(lit(null()?)),
        })
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let columns = ColumnarValue::values_to_arrays(&arguments.args)?;
        match self.loaded() {
            Some(loaded) if columns[0].as_boolean().has_true() => {
                let told = told(loaded, &columns)?;
                Ok(ColumnarValue::Array(Arc::new(told)))
            }
            _ => Ok(ColumnarValue::Scalar(null()?)),
        }
    }
}

/// What is told of each row of the arguments.
fn told(loaded: &Loaded, arguments: &[ArrayRef]) -> Result<StructArray> {
    let needed = arguments[0].as_boolean();
    let days = arguments[1].as_primitive::<Date32Type>();
    let told = (0..needed.len()).map(|row| {
        if needed.is_null(row) || !needed.value(row) || days.is_null(row) {
            return None;
        }
        let name = |at: usize| text(&arguments[at], row);
        let max_tokens = integer(&arguments[5], row);
        loaded.of(days.value(row), name(2), name(3), name(4), max_tokens)
    });
    let told = told.collect::<Vec<_>>();
    let mut columns: Vec<ArrayRef> = Vec::new();
    for (at, field) in figures().iter().enumerate() {
        let values = told.iter().map(|it| it.map(|it| i128::from(it[at])));
        let values = values.collect::<Decimal128Array>();
        columns.push(Arc::new(values.with_data_type(field.data_type().clone())));
    }
    let is_told = told.iter().map(Option::is_some).collect::<Vec<_>>();
    Ok(StructArray::try_new(
        figures(),
        columns,
        Some(is_told.into()),
    )?)
}

impl fmt::Debug for ProfileOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("profile_of")
    }
}

impl PartialEq for ProfileOf {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.loaded, &other.loaded)
    }
}

impl Eq for ProfileOf {}

impl Hash for ProfileOf {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name().hash(state);
    }
}
