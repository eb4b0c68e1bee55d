//! The two repositories of the demo: a source made from the examples, an empty delivery.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use git::{Access, Content, Draft, Git, ObjectId, RefOutcome, RefUpdate, Remote, Selector, Signature, Url, Written};
use include_dir::{Dir, include_dir};

/// The examples as they were when the program was built.
static EXAMPLES: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/../../examples-repo");

/// Makes what is missing; true when the source was made.
pub(super) async fn prepare(git: &Git, dir: &Path, examples: Option<&Path>) -> Result<bool> {
    let source = make(git, dir).await?;
    if source.resolve(&Selector::Branch("main".to_owned())).await.is_ok() {
        return Ok(false);
    }
    let files = match examples {
        Some(path) => read(path)?,
        None => embedded(&EXAMPLES),
    };
    commit(&source, None, files, "Begin with the examples").await?;
    Ok(true)
}

/// Makes the two repositories where they are missing, and returns the source.
pub(crate) async fn make(git: &Git, dir: &Path) -> Result<Remote> {
    let mut source = None;
    for name in ["delivery.git", "source.git"] {
        let path = dir.join(name);
        let url: Url = format!("file://{}", path.display()).parse().with_context(|| format!("name the repository {}", path.display()))?;
        if !path.exists() {
            std::fs::create_dir_all(&path).with_context(|| format!("make the folder {}", path.display()))?;
        }
        let remote = git.remote(&url, &Access::anonymous()).await?;
        remote.init().await.with_context(|| format!("make the repository {}", path.display()))?;
        source = Some(remote);
    }
    source.context("there is a source")
}

/// Commits these files, and no others, to the branch `main`, and pushes it.
pub(crate) async fn commit(source: &Remote, parent: Option<ObjectId>, files: BTreeMap<String, Content>, message: &str) -> Result<ObjectId> {
    let seconds = k8s_openapi::jiff::Timestamp::now().as_second();
    let who = Signature { name: "Anabranch demo".to_owned(), email: "demo@anabranch.invalid".to_owned(), seconds, offset: 0 };
    let text = format!("{message}\n");
    let draft = Draft { parent, files, ours: Arc::new(|_| true), message: Arc::new(move |_| text.clone()), author: who.clone(), committer: who };
    let written = source.write(vec![draft]).await?.into_iter().next().context("one draft has one answer")??;
    let Written::Commit { id, objects, .. } = written else { bail!("commit to the source repository: nothing changes") };
    let name = "refs/heads/main".to_owned();
    let update = RefUpdate { name: name.clone(), old: parent.unwrap_or(ObjectId::ZERO), new: id, objects };
    match source.push(vec![update]).await?.remove(&name) {
        Some(RefOutcome::Done) => Ok(id),
        other => bail!("push into the source repository: {other:?}"),
    }
}

fn embedded(dir: &Dir<'_>) -> BTreeMap<String, Content> {
    let mut files = BTreeMap::new();
    let mut folders = vec![dir];
    while let Some(folder) = folders.pop() {
        folders.extend(folder.dirs());
        for file in folder.files() {
            files.insert(file.path().to_string_lossy().into_owned(), Content::new(file.contents().to_vec()));
        }
    }
    files
}

fn read(root: &Path) -> Result<BTreeMap<String, Content>> {
    let mut files = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).with_context(|| format!("read {}", folder.display()))? {
            let path = entry?.path();
            let name = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
            if name == ".git" {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else {
                files.insert(name, Content::new(std::fs::read(&path).with_context(|| format!("read {}", path.display()))?));
            }
        }
    }
    Ok(files)
}
