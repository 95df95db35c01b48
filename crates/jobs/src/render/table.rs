//! Rows → lines that fit a terminal.
//!
//! Nothing is cut: a long text goes on in the next line, columns that do not fit beside one
//! another stand in a further block under the same first column, and rows of very many columns
//! are shown one column a line.

use std::io::{self, Write};

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, SchemaRef};
use arrow::error::ArrowError;

use super::cell::{self, Shown};
use super::width::{text_width, wrap};

/// How a table is drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Style {
    /// Columns of the terminal; `None`: as wide as it needs.
    pub width: Option<usize>,
    /// Whether colours may be used.
    pub color: bool,
}

/// Fewer than this, and a table is not worth its first column.
const WIDTH_MIN: usize = 20;
/// More blocks than this, and rows are shown one column a line.
const BLOCKS_MAX: usize = 4;
const GAP: usize = 2;

struct Column {
    header: Vec<String>,
    /// One entry a row.
    cells: Vec<String>,
    right: bool,
    width: usize,
}

/// Draws `batches`; with `units`, as reports show them (see the module `cell`). Returns whether
/// each value stands there to its last digit.
///
/// # Errors
/// Writing, and columns of a kind that has no text.
pub(super) fn draw(
    out: &mut dyn Write,
    schema: &SchemaRef,
    batches: &[RecordBatch],
    units: bool,
    style: Style,
) -> Result<bool, super::WriteError> {
    let limit = style.width.map_or(usize::MAX, |it| it.max(WIDTH_MIN));
    let (columns, exact) = columns(schema, batches, units, limit)?;
    if columns.is_empty() {
        return Ok(true);
    }
    let rows = columns[0].cells.len();
    let blocks = blocks(&columns, limit);
    if blocks.len() > BLOCKS_MAX {
        draw_records(out, &columns, rows, limit)?;
        return Ok(exact);
    }
    for (number, block) in blocks.iter().enumerate() {
        if number > 0 {
            writeln!(out)?;
        }
        let shown = block.iter().map(|at| &columns[*at]).collect::<Vec<_>>();
        draw_block(out, &shown, rows, style)?;
    }
    Ok(exact)
}

fn columns(
    schema: &SchemaRef,
    batches: &[RecordBatch],
    units: bool,
    limit: usize,
) -> Result<(Vec<Column>, bool), ArrowError> {
    let mut exact = true;
    let mut columns = Vec::with_capacity(schema.fields().len());
    for (at, field) in schema.fields().iter().enumerate() {
        let mut cells = Vec::new();
        for batch in batches {
            for Shown { text, exact: whole } in cell::column(field, batch.column(at), units)? {
                exact &= whole;
                cells.push(text);
            }
        }
        let right = field.data_type().is_numeric();
        let prose = matches!(field.data_type(), DataType::Utf8 | DataType::Utf8View) && units;
        columns.push(Column::new(field.name(), cells, right, prose, units, limit));
    }
    Ok((columns, exact))
}

/// A text longer than this may go on in the next line, if it is words.
const PROSE_WIDTH: usize = 40;

impl Column {
    fn new(
        name: &str,
        cells: Vec<String>,
        right: bool,
        prose: bool,
        units: bool,
        limit: usize,
    ) -> Self {
        let title = if units {
            name.trim_end_matches("_usd")
                .trim_end_matches("_pct")
                .replace('_', " ")
        } else {
            cell::harmless(name.to_owned())
        };
        let widest = cells.iter().map(|it| text_width(it)).max().unwrap_or(0);
        let word = |text: &str| text.split(' ').map(text_width).max().unwrap_or(0);
        let mut width = widest.max(word(&title));
        if prose && width > PROSE_WIDTH {
            width = cells
                .iter()
                .map(|it| word(it))
                .max()
                .unwrap_or(0)
                .max(PROSE_WIDTH);
        }
        let width = width.min(limit).max(1);
        Self {
            header: wrap(&title, width),
            cells,
            right,
            width,
        }
    }
}

/// Which columns stand beside one another; the first stands in every block where there is room.
fn blocks(columns: &[Column], limit: usize) -> Vec<Vec<usize>> {
    let mut blocks = vec![vec![0]];
    let mut used = columns[0].width;
    for (at, column) in columns.iter().enumerate().skip(1) {
        let needs = column.width.saturating_add(GAP);
        if used.saturating_add(needs) <= limit {
            used += needs;
        } else if columns[0].width.saturating_add(needs) <= limit {
            blocks.push(vec![0]);
            used = columns[0].width + needs;
        } else {
            blocks.push(Vec::new());
            used = column.width;
        }
        if let Some(block) = blocks.last_mut() {
            block.push(at);
        }
    }
    blocks
}

fn draw_block(
    out: &mut dyn Write,
    columns: &[&Column],
    rows: usize,
    style: Style,
) -> io::Result<()> {
    let headers = columns
        .iter()
        .map(|it| it.header.clone())
        .collect::<Vec<_>>();
    let (bold, plain) = if style.color {
        ("\u{1b}[1m", "\u{1b}[0m")
    } else {
        ("", "")
    };
    // A short header stands at the bottom, next to its values.
    let height = headers.iter().map(Vec::len).max().unwrap_or(0);
    let headers = headers.into_iter().map(|mut lines| {
        lines.splice(0..0, vec![String::new(); height - lines.len()]);
        lines
    });
    for line in lines(columns, &headers.collect::<Vec<_>>()) {
        writeln!(out, "{bold}{line}{plain}")?;
    }
    let rules = columns
        .iter()
        .map(|it| vec!["-".repeat(it.width)])
        .collect::<Vec<_>>();
    for line in lines(columns, &rules) {
        writeln!(out, "{line}")?;
    }
    for row in 0..rows {
        let cells = columns
            .iter()
            .map(|it| wrap(&it.cells[row], it.width))
            .collect::<Vec<_>>();
        for line in lines(columns, &cells) {
            writeln!(out, "{}", tinted(line, style))?;
        }
    }
    Ok(())
}

/// The lines of one row, whose cells are of one or more lines.
fn lines(columns: &[&Column], cells: &[Vec<String>]) -> Vec<String> {
    let height = cells.iter().map(Vec::len).max().unwrap_or(0);
    let line = |at: usize| {
        let mut out = String::new();
        for (column, cell) in columns.iter().zip(cells) {
            let text = cell.get(at).map_or("", String::as_str);
            let fill = " ".repeat(column.width.saturating_sub(text_width(text)));
            let gap = if out.is_empty() && std::ptr::eq(*column, columns[0]) {
                0
            } else {
                GAP
            };
            out.push_str(&" ".repeat(gap));
            if column.right {
                out += &fill;
                out += text;
            } else {
                out += text;
                out += &fill;
            }
        }
        out.truncate(out.trim_end().len());
        out
    };
    (0..height).map(line).collect()
}

/// The band of a share, in its colour.
fn tinted(line: String, style: Style) -> String {
    if !style.color {
        return line;
    }
    let colors = [
        ("healthy", 32),
        ("review", 33),
        ("evaluate", 33),
        ("incident", 31),
    ];
    let found = colors
        .iter()
        .find(|(band, _)| line.contains(&format!("  {band}")));
    found.map_or(line.clone(), |(band, color)| {
        line.replacen(
            &format!("  {band}"),
            &format!("  \u{1b}[{color}m{band}\u{1b}[0m"),
            1,
        )
    })
}

fn draw_records(
    out: &mut dyn Write,
    columns: &[Column],
    rows: usize,
    limit: usize,
) -> io::Result<()> {
    let titles = columns
        .iter()
        .map(|it| it.header.join(" "))
        .collect::<Vec<_>>();
    let title_width = titles
        .iter()
        .map(|it| text_width(it))
        .max()
        .unwrap_or(0)
        .min(limit / 2);
    for row in 0..rows {
        writeln!(out, "-- row {}", row + 1)?;
        for (column, title) in columns.iter().zip(&titles) {
            let room = limit.saturating_sub(title_width + GAP).max(1);
            let title = wrap(title, title_width);
            let cell = wrap(&column.cells[row], room);
            for at in 0..title.len().max(cell.len()) {
                let title = title.get(at).map_or("", String::as_str);
                let text = cell.get(at).map_or("", String::as_str);
                let fill = " ".repeat(title_width - text_width(title) + GAP);
                writeln!(out, "{}", format!("{title}{fill}{text}").trim_end())?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{ArrayRef, Decimal128Array, Int64Array, StringArray};
    use std::sync::Arc;

    fn drawn(columns: &[(&str, ArrayRef)], units: bool, width: usize) -> String {
        let batch = RecordBatch::try_from_iter(columns.iter().cloned()).unwrap();
        let mut out = Vec::new();
        let style = Style {
            width: Some(width),
            color: false,
        };
        draw(&mut out, &batch.schema(), &[batch], units, style).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn money(values: &[i128]) -> ArrayRef {
        let values = Decimal128Array::from(values.to_vec());
        Arc::new(values.with_precision_and_scale(38, 12).unwrap())
    }

    fn report() -> Vec<(&'static str, ArrayRef)> {
        let keys: ArrayRef = Arc::new(StringArray::from(vec![Some("checkout"), None]));
        let counts: ArrayRef = Arc::new(Int64Array::from(vec![1_200_000, 7]));
        let note: ArrayRef = Arc::new(StringArray::from(vec![
            None,
            Some("not computable: usage is logged for 7 of 10 answers, under 80 %"),
        ]));
        vec![
            ("key", keys),
            ("retry_expected_usd", money(&[12_345_678_900_000, 100_000])),
            ("attempts", counts),
            ("note", note),
        ]
    }

    #[test]
    fn a_report_that_fits() {
        assert_eq!(
            drawn(&report(), true, 80),
            "\
             \x20              retry\n\
             key         expected   attempts  note\n\
             --------  ----------  ---------  ----------------------------------------\n\
             checkout      $12.35  1,200,000  -\n\
             -         $0.0000001          7  not computable: usage is logged for 7 of\n\
             \x20                                10 answers, under 80 %\n"
        );
    }

    #[test]
    fn what_does_not_fit_stands_in_a_further_block() {
        let text = drawn(&report(), true, 52);
        assert_eq!(
            text,
            "\
             \x20              retry\n\
             key         expected   attempts\n\
             --------  ----------  ---------\n\
             checkout      $12.35  1,200,000\n\
             -         $0.0000001          7\n\
             \n\
             key       note\n\
             --------  ----------------------------------------\n\
             checkout  -\n\
             -         not computable: usage is logged for 7 of\n\
             \x20         10 answers, under 80 %\n"
        );
    }

    #[test]
    fn an_id_is_never_cut() {
        let id = "req_0123456789abcdefghijklmnopqrstuvwxyz";
        let ids: ArrayRef = Arc::new(StringArray::from(vec![id]));
        let ones: ArrayRef = Arc::new(Int64Array::from(vec![1]));
        let text = drawn(&[("request_id", ids), ("n", ones)], false, 20);
        let joined = text.lines().take(4).skip(2).collect::<String>();
        assert_eq!(joined, id, "{text}");
        assert!(text.lines().all(|it| it.len() <= 20), "{text}");
        assert!(text.contains("\nn\n-\n1\n"), "{text}");
    }

    #[test]
    fn very_many_columns_stand_one_a_line() {
        let one =
            |at: usize| -> ArrayRef { Arc::new(StringArray::from(vec![format!("value {at}")])) };
        let names = (0..40).map(|at| format!("column_{at}")).collect::<Vec<_>>();
        let columns = names
            .iter()
            .enumerate()
            .map(|(at, name)| (name.as_str(), one(at)))
            .collect::<Vec<_>>();
        let text = drawn(&columns, false, 40);
        assert!(
            text.starts_with("-- row 1\ncolumn_0   value 0\ncolumn_1   value 1\n"),
            "{text}"
        );
        assert!(text.ends_with("column_39  value 39\n"), "{text}");
    }

    #[test]
    fn colours_only_where_asked() {
        let line = "checkout   6.4 %  review".to_owned();
        let style = Style {
            width: None,
            color: true,
        };
        assert_eq!(
            tinted(line.clone(), style),
            "checkout   6.4 %  \u{1b}[33mreview\u{1b}[0m"
        );
        assert_eq!(tinted(line.clone(), Style::default()), line);
    }
}
