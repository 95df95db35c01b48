//! `power_of_two(max_tokens)`, `profile_of(figure, needed, date, provider, model, service, max_tokens)`.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

use arrow::array::{Array as _, ArrayRef, AsArray as _, Decimal128Array};
use arrow::datatypes::{DataType, Date32Type, Int64Type};
use datafusion::common::{ScalarValue, exec_err};
use datafusion::error::Result;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility, create_udf,
};
use datafusion::prelude::{Expr, lit};
use retrytoll_core::profile::power_of_two;

use super::loaded::{Loaded, integer, text};

/// Tokens, with the half of a median.
pub const TOKENS: DataType = DataType::Decimal128(16, 1);
/// What `profile_of` can be asked for: columns of the table.
pub const FIGURES: [&str; 4] = ["input_median", "input_p99", "output_median", "output_p99"];

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

/// The function `profile_of`: the figure of this name, null where `needed` is not true, and where no
/// profile tells. Without any profile a plan holds the null in its place, and its arguments are not
/// even read.
pub struct ProfileOf {
    signature: Signature,
    loaded: Arc<OnceLock<Arc<Loaded>>>,
}

impl ProfileOf {
    /// Over what is loaded before it is asked.
    pub fn new(loaded: Arc<OnceLock<Arc<Loaded>>>) -> Self {
        let text = || DataType::Utf8;
        let arguments = vec![
            text(),
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
    ScalarValue::try_from(&TOKENS)
}

impl ScalarUDFImpl for ProfileOf {
    fn name(&self) -> &str {
        "profile_of"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(TOKENS)
    }

    fn simplify(&self, arguments: Vec<Expr>, _: &SimplifyContext) -> Result<ExprSimplifyResult> {
        Ok(match self.loaded() {
            Some(_) => ExprSimplifyResult::Original(arguments),
            None => ExprSimplifyResult::Simplified(lit(null()?)),
        })
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let name = match arguments.args.first() {
            Some(ColumnarValue::Scalar(name)) => name.try_as_str().flatten(),
            _ => None,
        };
        let Some(figure) = FIGURES.iter().position(|it| Some(*it) == name) else {
            return exec_err!(
                "profile_of names no figure: give one of {}",
                FIGURES.join(", ")
            );
        };
        let columns = ColumnarValue::values_to_arrays(&arguments.args[1..])?;
        match self.loaded() {
            Some(loaded) if columns[0].as_boolean().true_count() > 0 => {
                let told = told(loaded, figure, &columns);
                Ok(ColumnarValue::Array(Arc::new(told)))
            }
            _ => Ok(ColumnarValue::Scalar(null()?)),
        }
    }
}

/// A figure of each row of the arguments after its name.
fn told(loaded: &Loaded, figure: usize, arguments: &[ArrayRef]) -> Decimal128Array {
    let needed = arguments[0].as_boolean();
    let days = arguments[1].as_primitive::<Date32Type>();
    let told = (0..needed.len()).map(|row| {
        if needed.is_null(row) || !needed.value(row) || days.is_null(row) {
            return None;
        }
        let name = |at: usize| text(&arguments[at], row);
        let max_tokens = integer(&arguments[5], row);
        let figures = loaded.of(days.value(row), name(2), name(3), name(4), max_tokens)?;
        Some(i128::from(figures[figure]))
    });
    let told = told.collect::<Decimal128Array>();
    told.with_data_type(TOKENS)
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
