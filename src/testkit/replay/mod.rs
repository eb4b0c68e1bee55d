//! Replays recorded cases of the original against our parts, on an embedded parent or on one that is given, and names every difference.

pub mod case;
pub mod compare;
mod known;
mod mended;
mod normal;
mod run;
mod stage;
mod wire;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use futures::StreamExt as _;

use case::Case;
use compare::Difference;
use stage::Stage;

/// How one case ended.
pub struct Verdict {
    /// Name of the case.
    pub name: String,
    /// What differs; empty when it passed.
    pub differences: Vec<Difference>,
    /// How long it took, from the first server to the last answer.
    pub took: Duration,
}

/// A parent from outside: prepared for the product, its hub served and known to it; the other parts run here.
pub struct Given {
    /// Client of its administrator.
    pub admin: kube::Client,
    /// URL of its API server.
    pub url: String,
    /// Its CA, PEM.
    pub ca: String,
    /// A bootstrap token.
    pub token: String,
    /// What ends with it.
    pub keep: Box<dyn std::any::Any + Send + Sync>,
}

/// Makes a parent for each case.
pub type Parents = dyn Fn() -> futures::future::BoxFuture<'static, Result<Given>> + Send + Sync;

/// Nothing changes for this long: the step is over.
const QUIET: Duration = Duration::from_millis(1000);
/// Cases that are played at a time. A case mostly waits for silence, so more of them than processors go together.
const AT_ONCE: usize = 4;

/// Replays the cases of a folder (all, or those named), several at a time, and hands each verdict to `tell` in the order of names.
/// `parents` makes the parent of each; without it each has one in this process.
pub async fn replay(dir: &Path, names: &[String], parents: Option<Arc<Parents>>, tell: &mut dyn FnMut(&Verdict)) -> Result<Vec<Verdict>> {
    let mut found: Vec<String> = std::fs::read_dir(dir)
        .with_context(|| dir.display().to_string())?
        .filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()))
        .filter(|name| dir.join(name).join("input").is_dir())
        .filter(|name| names.is_empty() || names.iter().any(|wanted| wanted == name || name.starts_with(&format!("{wanted}-"))))
        .collect();
    found.sort();
    let mut running = futures::stream::iter(found.into_iter().map(|name| verdict(dir.to_owned(), name, parents.clone()))).buffered(AT_ONCE);
    let mut verdicts = Vec::new();
    while let Some(verdict) = running.next().await {
        tell(&verdict);
        verdicts.push(verdict);
    }
    Ok(verdicts)
}

async fn verdict(dir: PathBuf, name: String, parents: Option<Arc<Parents>>) -> Verdict {
    let start = Instant::now();
    // A parent in other processes has ports that were free a moment before: one that does not come up is made once more. What a case
    // finds different counts at once.
    let mut tries = if parents.is_some() { 2 } else { 1 };
    let differences = loop {
        tries -= 1;
        // A task of its own, so that cases share the processors.
        let played = tokio::spawn({
            let (dir, name, parents) = (dir.clone(), name.clone(), parents.clone());
            async move { one(&dir, &name, parents).await }
        });
        match played.await.map_err(anyhow::Error::from).and_then(|ended| ended) {
            Ok(differences) => break differences,
            Err(_) if tries > 0 => {}
            Err(error) => break vec![Difference { file: "case".to_owned(), object: name.clone(), path: String::new(), text: format!("{error:#}") }],
        }
    };
    Verdict { name, differences, took: start.elapsed() }
}

/// Plays a case and writes down what came of it as its expected answers: the way to make an own case, which a person then reads.
pub async fn record(dir: &Path, name: &str) -> Result<()> {
    let folder = dir.join(name);
    let got = play(&folder, &dir.join("_charts"), None).await?.1;
    let root = folder.join("expected");
    if root.exists() {
        std::fs::remove_dir_all(&root)?;
    }
    for (file, objects) in got {
        if file.rsplit('/').next() == Some(mended::ALIVE) {
            continue;
        }
        let path = root.join(format!("{file}.yaml"));
        std::fs::create_dir_all(path.parent().unwrap_or(&root))?;
        let documents: Vec<String> = objects.iter().map(manifest::emit).collect();
        let text = if file.ends_with("responses") { manifest::emit(&objects.into()) } else { documents.join("---\n") };
        std::fs::write(&path, text).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

async fn play(folder: &Path, charts: &Path, parents: Option<Arc<Parents>>) -> Result<(Case, std::collections::BTreeMap<String, Vec<serde_json::Value>>)> {
    let given = match parents {
        Some(make) => Some(make().await?),
        None => None,
    };
    let stage = Stage::open(folder, charts, given).await?;
    let case = Case::read(folder, stage.places())?;
    // A server in another process is slower than what can be seen of it here.
    let quiet = if stage.is_given() { QUIET * 2 } else { QUIET };
    let got = run::Run::play(&case, &stage, quiet).await;
    stage.close().await;
    Ok((case, got?))
}

async fn one(dir: &Path, name: &str, parents: Option<Arc<Parents>>) -> Result<Vec<Difference>> {
    let (case, got) = play(&dir.join(name), &dir.join("_charts"), parents).await?;
    let about = known::Case { name, settings: &case.settings, steps: &case.steps };
    Ok(compare::compare(&about, &case.expected, &got, &case.skips()))
}

/// Plays one case, then keeps its servers running, with their kubeconfigs in `out`, until the process is interrupted: for looking at
/// the outcome with other programs (kubectl, helm).
pub async fn hold(dir: &Path, name: &str, out: &Path) -> Result<()> {
    let folder = dir.join(name);
    let stage = Stage::open(&folder, &dir.join("_charts"), None).await?;
    let case = Case::read(&folder, stage.places())?;
    run::Run::play(&case, &stage, QUIET).await?;
    std::fs::create_dir_all(out)?;
    for (name, text) in stage.kubeconfigs() {
        std::fs::write(out.join(name), text)?;
    }
    tokio::signal::ctrl_c().await?;
    stage.close().await;
    Ok(())
}
