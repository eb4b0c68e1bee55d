//! The cluster's branch: fetched shallow by commit id, read from the object database, taken apart into what each Description wants.

use std::collections::BTreeMap;
use std::str::FromStr as _;
use std::sync::Arc;

use api::apps::{DeployerType, Description};
use api::known::LAYOUT_FILE;
use api::{ObjectMeta, object};
use git::{Access, Filter, Mode, ObjectId, ObjectKind, Remote, Selector};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use plan::rendered::Rendered;
use plan::sync::Claimant;
use plan::tree::{Marker, directory_of, is_object_name, object_file, part};
use serde_json::Value;

use super::{Delivery, Syncer};

/// Largest file that is read; no API server takes a larger object.
const FILE_MAX: u64 = 4 << 20;

/// Why a branch could not be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum BranchError {
    #[error("read the address of the branch")]
    Url(#[source] git::UrlError),
    #[error("read the commit id {0:?}")]
    Commit(String, #[source] git::BadId),
    #[error("read the Secret for the branch")]
    Secret(#[source] Box<kube::Error>),
    #[error("read the Secret {name} for the branch")]
    Credential { name: String, #[source] source: git::AccessError },
    #[error("reach the repository")]
    Reach(#[from] git::TransportError),
    #[error("fetch commit {commit}")]
    Fetch { commit: ObjectId, #[source] source: git::FetchError },
    #[error("list the files of commit {commit}")]
    List { commit: ObjectId, #[source] source: git::ReadError },
    #[error("find the branch")]
    Resolve(#[source] git::ResolveError),
    #[error("commit {0} has no readable {LAYOUT_FILE}: this is not a branch of ours, or one of a newer version")]
    NotOurs(ObjectId),
}

/// A tree that was read.
pub(super) struct Tree {
    /// Text of the commit id, as the annotation spells it.
    pub(super) commit: String,
    id: ObjectId,
    /// Directory -> file name -> blob; only ours.
    pub(super) files: BTreeMap<String, BTreeMap<String, ObjectId>>,
    /// Parsed blobs; shared between trees, so that what did not change keeps its address.
    objects: BTreeMap<ObjectId, Result<Arc<Value>, String>>,
    /// Directory of a rendered release -> its blobs, and what they hold.
    releases: BTreeMap<String, (BTreeMap<String, ObjectId>, Result<Arc<Rendered>, String>)>,
    /// Ours, but unreadable: then nothing may be pruned.
    pub(super) unreadable: Vec<String>,
}

/// The files that a Description should be in the branch.
pub(super) struct Expected {
    uid: String,
    generation: Option<i64>,
    directory: String,
    files: BTreeMap<String, ObjectId>,
    faults: Vec<String>,
}

impl Expected {
    pub(super) fn of(description: &Description) -> Self {
        let part = part(description, object_file);
        Self {
            uid: description.metadata.uid.clone().unwrap_or_default(),
            generation: description.metadata.generation,
            directory: part.directory,
            files: part.files.into_iter().map(|f| (f.name, ObjectId::hash(ObjectKind::Blob, f.text.as_bytes()))).collect(),
            faults: part.faults.into_iter().map(|f| f.message).collect(),
        }
    }

    pub(super) fn is_for(&self, description: &Description) -> bool {
        self.generation == description.metadata.generation && Some(self.uid.as_str()) == description.metadata.uid.as_deref()
    }

    /// `Some` when the tree has exactly these files in the directory: what cannot be a file.
    pub(super) fn met_by(&self, tree: &Tree) -> Option<Vec<String>> {
        let empty = BTreeMap::new();
        // Several Descriptions may share a directory (objects and charts of one Subscription).
        let have = tree.files.get(&self.directory).unwrap_or(&empty);
        self.files.iter().all(|(name, id)| have.get(name) == Some(id)).then(|| self.faults.clone())
    }
}

impl Syncer {
    async fn access(&self, delivery: &Delivery) -> Result<Access, BranchError> {
        let Some(name) = &delivery.secret else { return Ok(Access::anonymous()) };
        let api: Api<Secret> = Api::namespaced(self.session.parent.clone(), &self.session.namespace);
        let secret = api.get(name).await.map_err(|e| BranchError::Secret(Box::new(e)))?;
        let entries = secret.data.unwrap_or_default().into_iter().map(|(k, v)| (k, v.0)).collect();
        let credential = git::Credential::from_entries(&entries).map_err(|source| BranchError::Credential { name: name.clone(), source })?;
        Ok(Access { credential: Some(credential), ..Access::anonymous() })
    }

    async fn remote(&self, delivery: &Delivery) -> Result<Remote, BranchError> {
        let url = git::Url::from_str(&delivery.url).map_err(BranchError::Url)?;
        let access = self.access(delivery).await?;
        Ok(self.session.shared.options.git.remote(&url, &access).await?)
    }

    /// Newest commit of the branch, asked from the repository.
    pub(super) async fn tip(&self, delivery: &Delivery) -> Result<String, BranchError> {
        let remote = self.remote(delivery).await?;
        let found = remote.resolve(&Selector::Branch(delivery.branch.clone())).await.map_err(BranchError::Resolve)?;
        Ok(found.commit.to_string())
    }

    /// Reads a commit. Blobs that `before` has are not read again.
    pub(super) async fn read(&self, delivery: &Delivery, commit: &str, before: Option<Tree>) -> Result<Tree, (BranchError, Option<Tree>)> {
        let id = match ObjectId::from_str(commit) {
            Ok(id) => id,
            Err(e) => return Err((BranchError::Commit(commit.to_owned(), e), before)),
        };
        match self.read_files(delivery, id, before.as_ref()).await {
            Ok((remote, files, marker_blob)) => self.read_blobs(&remote, commit, id, files, marker_blob, before).await,
            Err(e) => Err((e, before)),
        }
    }

    async fn read_files(&self, delivery: &Delivery, id: ObjectId, before: Option<&Tree>) -> Result<(Remote, Vec<git::TreeFile>, ObjectId), BranchError> {
        let remote = self.remote(delivery).await?;
        let haves: Vec<ObjectId> = before.map(|t| t.id).into_iter().collect();
        remote.fetch(&[id], &haves).await.map_err(|source| BranchError::Fetch { commit: id, source })?;
        let listing = remote.list(id, &Filter::everything()).await.map_err(|source| BranchError::List { commit: id, source })?;
        let marker = listing.files.iter().find(|f| f.path == LAYOUT_FILE && matches!(f.mode, Mode::File | Mode::Executable));
        let marker = marker.map(|f| f.id).ok_or(BranchError::NotOurs(id))?;
        Ok((remote, listing.files, marker))
    }

    async fn read_blobs(
        &self,
        remote: &Remote,
        commit: &str,
        id: ObjectId,
        listed: Vec<git::TreeFile>,
        marker: ObjectId,
        before: Option<Tree>,
    ) -> Result<Tree, (BranchError, Option<Tree>)> {
        let known = before.as_ref().map(|t| &t.objects);
        let mut missing: Vec<ObjectId> = vec![marker];
        for file in &listed {
            let named = file.path.rsplit_once('/').is_some_and(|(_, name)| is_object_name(name));
            if named && matches!(file.mode, Mode::File | Mode::Executable) && !known.is_some_and(|k| k.contains_key(&file.id)) && !missing.contains(&file.id) {
                missing.push(file.id);
            }
        }
        let read = match remote.read(&missing, FILE_MAX).await {
            Ok(read) => read,
            Err(e) => return Err((e.into(), before)),
        };
        let mut bytes: BTreeMap<ObjectId, Result<Vec<u8>, String>> =
            missing.into_iter().zip(read).map(|(id, r)| (id, r.map_err(|e| cluster::error::chain(&e)))).collect();
        let Some(layout) = bytes.remove(&marker).and_then(Result::ok).and_then(|b| Marker::read(&b)) else {
            return Err((BranchError::NotOurs(id), before));
        };
        let (mut old, mut releases) = before.map(|t| (t.objects, t.releases)).unwrap_or_default();
        let mut tree = Tree { commit: commit.to_owned(), id, files: BTreeMap::new(), objects: BTreeMap::new(), releases: BTreeMap::new(), unreadable: Vec::new() };
        match rendered(remote, &layout, &listed, &mut releases).await {
            Ok(found) => tree.releases = found,
            Err(e) => {
                let before = Tree { objects: old, releases, ..tree };
                // What is known of the blobs is kept; the commit is read anew.
                return Err((e.into(), Some(Tree { commit: String::new(), ..before })));
            }
        }
        for (directory, (_, found)) in &tree.releases {
            if let Err(why) = found {
                tree.unreadable.push(format!("{directory}: {why}"));
            }
        }
        for file in listed {
            if layout.release_of(&file.path).is_some() {
                continue;
            }
            let Some((directory, name)) = file.path.rsplit_once('/') else { continue };
            if !layout.owns(&file.path) {
                continue;
            }
            if !matches!(file.mode, Mode::File | Mode::Executable) {
                tree.unreadable.push(format!("{} is a link", file.path));
                continue;
            }
            if !tree.objects.contains_key(&file.id) {
                let parsed = match (old.remove(&file.id), bytes.remove(&file.id)) {
                    (Some(parsed), _) => parsed,
                    (None, Some(Ok(bytes))) => parse(&bytes),
                    (None, Some(Err(why))) => Err(why),
                    (None, None) => Err("its content is not here".to_owned()),
                };
                tree.objects.insert(file.id, parsed);
            }
            if let Some(Err(why)) = tree.objects.get(&file.id) {
                tree.unreadable.push(format!("{}: {why}", file.path));
            }
            tree.files.entry(directory.to_owned()).or_default().insert(name.to_owned(), file.id);
        }
        Ok(tree)
    }
}

/// The rendered releases of a tree; those that did not change are taken from `before`.
async fn rendered(
    remote: &Remote,
    layout: &Marker,
    listed: &[git::TreeFile],
    before: &mut BTreeMap<String, (BTreeMap<String, ObjectId>, Result<Arc<Rendered>, String>)>,
) -> Result<BTreeMap<String, (BTreeMap<String, ObjectId>, Result<Arc<Rendered>, String>)>, git::TransportError> {
    let mut blobs: BTreeMap<&str, BTreeMap<String, ObjectId>> = BTreeMap::new();
    for file in listed.iter().filter(|f| matches!(f.mode, Mode::File | Mode::Executable)) {
        if let Some((directory, name)) = layout.release_of(&file.path) {
            blobs.entry(directory).or_default().insert(name.to_owned(), file.id);
        }
    }
    let mut out = BTreeMap::new();
    for (directory, blobs) in blobs {
        if let Some(known) = before.remove(directory).filter(|(of, _)| *of == blobs) {
            out.insert(directory.to_owned(), known);
            continue;
        }
        let ids: Vec<ObjectId> = blobs.values().copied().collect();
        let mut texts: BTreeMap<String, Arc<str>> = BTreeMap::new();
        let mut fault = None;
        for (name, bytes) in blobs.keys().zip(remote.read(&ids, FILE_MAX).await?) {
            match bytes.map_err(|e| cluster::error::chain(&e)).and_then(|b| String::from_utf8(b).map_err(|e| e.to_string())) {
                Ok(text) => {
                    texts.insert(name.clone(), text.into());
                }
                Err(why) => fault = Some(format!("{name}: {why}")),
            }
        }
        let found = fault.map_or_else(|| plan::rendered::read(&texts).map(Arc::new), Err);
        out.insert(directory.to_owned(), (blobs, found));
    }
    Ok(out)
}

fn parse(bytes: &[u8]) -> Result<Arc<Value>, String> {
    let text = manifest::read::text(bytes).map_err(|e| e.to_string())?;
    let value = manifest::parse(text, &manifest::Limits::OBJECT).map_err(|e| e.to_string())?;
    Ok(Arc::new(value))
}

impl Tree {
    /// What it has of each HelmRelease.
    pub(super) fn rendered(&self) -> BTreeMap<String, Arc<Rendered>> {
        self.releases.values().filter_map(|(_, found)| found.as_ref().ok()).map(|found| (found.helm_release.clone(), found.clone())).collect()
    }

    /// What each Description wants, by this tree. Directories that no Description stands for any more belong to the one that
    /// a Subscription of that name would have.
    pub(super) fn claimants(&self, namespace: &str, descriptions: &[Arc<Description>]) -> Vec<Claimant> {
        let mut owners: BTreeMap<String, &Description> = BTreeMap::new();
        for description in descriptions.iter().filter(|d| d.spec.deployer == DeployerType::Generic) {
            let slot = owners.entry(directory_of(description)).or_insert(description);
            // Two Bases of one Subscription for one cluster: the elder stands for both.
            let age = |d: &Description| (d.metadata.creation_timestamp.as_ref().map(|t| t.0), d.metadata.name.clone());
            if age(description) < age(slot) {
                *slot = description;
            }
        }
        let mut out = Vec::new();
        for (directory, files) in &self.files {
            let mut claimant = match owners.get(directory) {
                Some(description) => Claimant {
                    name: description.metadata.name.clone().unwrap_or_default(),
                    created: description.metadata.creation_timestamp.as_ref().map(|t| t.0.as_nanosecond()),
                    ..Claimant::default()
                },
                None => Claimant { name: name_without(directory, namespace), ..Claimant::default() },
            };
            for id in files.values() {
                match self.objects.get(id) {
                    // Charts are installed from the HelmRelease, not applied as objects.
                    Some(Ok(object)) if object::text(object, "kind") == "HelmRelease" && object::text(object, "apiVersion").starts_with("apps.clusternet.io/") => {}
                    Some(Ok(object)) => claimant.objects.push(object.clone()),
                    Some(Err(why)) => claimant.faults.push(why.clone()),
                    None => {}
                }
            }
            out.push(claimant);
        }
        out
    }
}

/// Name of the Description that a directory would be of.
fn name_without(directory: &str, namespace: &str) -> String {
    match directory.split_once('/') {
        Some(("_bases", base)) => plan::descriptions::generic_name(base),
        Some((of, name)) => {
            let meta = ObjectMeta { namespace: Some(of.to_owned()), name: Some(name.to_owned()), ..ObjectMeta::default() };
            plan::descriptions::generic_name(&plan::subscription::base_name(&meta, namespace))
        }
        None => plan::descriptions::generic_name(directory),
    }
}
