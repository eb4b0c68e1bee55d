//! Replays recorded cases of the original against our parts in this process, and names every difference.

pub mod case;
pub mod compare;
mod known;
mod normal;
mod run;
mod stage;
mod wire;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};

use case::Case;
use compare::Difference;
use stage::Stage;

/// How one case ended.
pub struct Verdict {
    /// Name of the case.
    pub name: String,
    /// What differs; empty when it passed.
    pub differences: Vec<Difference>,
}

/// Nothing changes for this long: the step is over.
const QUIET: Duration = Duration::from_millis(1200);

/// Replays the cases of a folder (all, or those named) and hands each verdict to `tell`.
pub async fn replay(dir: &Path, names: &[String], tell: &mut dyn FnMut(&Verdict)) -> Result<Vec<Verdict>> {
    let mut found: Vec<String> = std::fs::read_dir(dir)
        .with_context(|| dir.display().to_string())?
        .filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()))
        .filter(|name| dir.join(name).join("input").is_dir())
        .filter(|name| names.is_empty() || names.iter().any(|wanted| wanted == name || name.starts_with(&format!("{wanted}-"))))
        .collect();
    found.sort();
    let mut verdicts = Vec::new();
    for name in found {
        let verdict = match one(dir, &name).await {
            Ok(differences) => Verdict { name, differences },
            Err(error) => {
                let text = format!("{error:#}");
                let difference = Difference { file: "case".to_owned(), object: name.clone(), path: String::new(), text };
                Verdict { name, differences: vec![difference] }
            }
        };
        tell(&verdict);
        verdicts.push(verdict);
    }
    Ok(verdicts)
}

async fn one(dir: &Path, name: &str) -> Result<Vec<Difference>> {
    let folder = dir.join(name);
    let stage = Stage::open(&folder, &dir.join("_charts")).await?;
    let case = Case::read(&folder, stage.places())?;
    let got = run::Run::play(&case, &stage, QUIET).await;
    stage.close().await;
    Ok(compare::compare(name, &case.expected, &got?, &case.skips()))
}
