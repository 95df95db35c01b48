//! Any text is jobs with their meaning, or errors that name their place.

use super::*;
use crate::window::duration;

const META: &str = "jobs.toml";
const QUERY: &str = "j.sql";

/// Checks a `jobs.toml` and, behind ASCII's record separator, the query of its first job; says
/// whether that is a job.
///
/// # Panics
/// A promise of [`Catalog`] or of [`Meta`] is broken.
pub fn check(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return false;
    };
    let (text, sql) = text.split_once('\u{1e}').unwrap_or((text, ""));
    let (metas, wrong) = meta::parse(META, text);
    for error in &wrong {
        is_told(error, META);
    }
    match text.parse::<toml::Table>() {
        // Each entry is a meaning or an error.
        Ok(entries) => assert_eq!(metas.len() + wrong.len(), entries.len(), "{wrong:?}"),
        Err(_) => assert!(metas.is_empty() && wrong.len() == 1, "{wrong:?}"),
    }
    metas.values().for_each(means);

    let mut catalog = Catalog::default();
    let meta = metas.into_values().next();
    match catalog.add("j", QUERY.into(), sql.into(), meta.clone()) {
        Ok(()) => {
            let job = catalog.get("j");
            let is_it = job.is_ok_and(|job| job.sql == sql && meta.is_none_or(|it| it == job.meta));
            assert!(is_it);
            true
        }
        Err(error) => {
            is_told(&error, QUERY);
            assert!(catalog.get("j").is_err());
            false
        }
    }
}

fn is_told(error: &JobError, file: &str) {
    let told = error.to_string();
    let rest = told.strip_prefix(file).unwrap_or_default();
    assert!(rest.starts_with(':') && rest.len() > 3, "{told:?}");
}

/// A parameter takes its own default; no length of time is too much to count.
fn means(meta: &Meta) {
    for (name, parameter) in &meta.parameters {
        let default = parameter.default.to_string();
        let taken = parameter.value("j", name, &default);
        let is_free = parameter.one_of.is_empty() || parameter.one_of.contains(&default);
        assert_eq!(
            taken.ok(),
            is_free.then(|| parameter.default.clone()),
            "{name}"
        );
    }
    let alert = meta.alert.as_ref();
    let windows = alert.map(|it| &it.window).into_iter();
    for text in windows.chain(&meta.schedule).chain(&meta.lookback) {
        let length = duration(text);
        assert!(
            length.is_none_or(|it| it >= chrono::Duration::zero()),
            "{text}"
        );
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_corpus() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/job");
        let mut good = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            println!("{}", path.display());
            good += usize::from(super::check(&std::fs::read(path).unwrap()));
        }
        assert!(good >= 5, "{good} good");
    }
}
