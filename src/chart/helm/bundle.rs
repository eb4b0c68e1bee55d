//! A rendered chart as it is kept, shown and deployed: the very bytes, and what a record of the release needs besides.

use serde_json::Value;

use super::load::Chart;
use super::manifests::{Document, as_hook, head};
use super::record::{self, HookRecord};
use super::render::Output;

/// What stands before each document.
const SOURCE: &str = "---\n# Source: ";

/// A rendered chart.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Bundle {
    /// The chart as records hold it.
    pub chart: Value,
    /// Definitions of `crds/`: path from the chart's name on, and text.
    pub crds: Vec<(String, String)>,
    /// Documents in the order of installation, as records hold them.
    pub manifest: String,
    /// Hooks.
    pub hooks: Vec<HookRecord>,
    /// Notes.
    pub notes: String,
}

impl Bundle {
    /// Of a render.
    pub fn of(chart: &Chart, output: &Output) -> Self {
        Self {
            chart: record::chart(chart),
            crds: output.crds.clone(),
            manifest: record::manifest(&output.documents),
            hooks: output.hooks.iter().map(HookRecord::of).collect(),
            notes: output.notes.clone(),
        }
    }

    /// The chart without its templates and files: what is needed to show a release, and to use its values again.
    #[must_use]
    pub fn chart_head(&self) -> Value {
        let mut out = self.chart.clone();
        for field in ["templates", "files"] {
            out[field] = Value::Array(Vec::new());
        }
        out
    }

    /// The hooks as one text, in their order.
    #[must_use]
    pub fn hooks_text(&self) -> String {
        self.hooks.iter().map(|hook| format!("{SOURCE}{}\n{}\n", hook.path, hook.manifest)).collect()
    }

    /// Whether a record holds the same bytes.
    #[must_use]
    pub fn is_of(&self, record: &record::Record) -> bool {
        let shown = |hook: &HookRecord| (hook.path.clone(), hook.manifest.clone());
        self.manifest == record.manifest
            && self.hooks.iter().map(shown).eq(record.hooks.iter().map(shown))
            && ["name", "version"].iter().all(|field| self.chart["metadata"][field].as_str().unwrap_or_default() == record.chart_text(field))
    }
}

/// Reads hooks from their text.
///
/// # Errors
/// When it is not one that [`Bundle::hooks_text`] made.
pub fn read_hooks(text: &str) -> Result<Vec<HookRecord>, String> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let body = text.strip_prefix(SOURCE).ok_or("it does not begin with a source")?;
    let body = body.strip_suffix('\n').ok_or("its last line does not end")?;
    // No document has a line that begins with `---`: it would have been two.
    body.split(&format!("\n{SOURCE}"))
        .map(|part| {
            let (path, content) = part.split_once('\n').ok_or("a source without a document")?;
            let head = head(content.as_bytes())?;
            let document = Document { path: path.to_owned(), content: content.to_owned(), head };
            as_hook(document).map(|hook| HookRecord::of(&hook)).ok_or_else(|| format!("a document of {path} is no hook"))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hooks_come_back_as_they_were() {
        let files = [
            ("web/templates/a.yaml".to_owned(), b"apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n  annotations:\n    helm.sh/hook: pre-install, post-upgrade\n    helm.sh/hook-weight: \"-5\"\n    helm.sh/hook-delete-policy: hook-succeeded\nspec:\n  x: |+\n    y\n\n\n".to_vec()),
            ("web/templates/b.yaml".to_owned(), b"---\nkind: Pod\napiVersion: v1\nmetadata: {name: b, annotations: {helm.sh/hook: test}}\n---\nkind: Job\napiVersion: v1\nmetadata: {name: c, annotations: {helm.sh/hook: post-delete}}".to_vec()),
        ];
        let (hooks, _) = super::super::manifests::sort(&files.into(), crate::Rules::Helm4, &Default::default()).expect("sorted");
        let bundle = Bundle { hooks: hooks.iter().map(HookRecord::of).collect(), ..Bundle::default() };
        assert_eq!(bundle.hooks.len(), 3);
        assert_eq!(read_hooks(&bundle.hooks_text()).expect("read"), bundle.hooks);
        assert_eq!(read_hooks("").expect("read"), []);
        for text in ["x", "---\n# Source: a\n", "---\n# Source: a\nkind: Pod\n\n"] {
            assert!(read_hooks(text).is_err(), "{text:?}");
        }
    }
}
