//! The trees of clusters, rebuilt from cached Descriptions; what is equal in many clusters is made once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::apps::{DeployerType, Description};
use git::{Content, ObjectId, ObjectKind};
use plan::tree::{ObjectFile, Part, TreeFault, object_file, part};

use crate::rendering::Renders;

/// Objects remembered beyond those of the Descriptions at hand, before everything is forgotten.
const SPARE: usize = 50_000;

/// What is remembered; losing it costs time only.
#[derive(Default)]
pub(crate) struct Trees {
    /// By Description (`namespace/name`): its resource version, and what it adds.
    parts: BTreeMap<(String, String), (String, Arc<Part>)>,
    /// By id of the raw bytes.
    objects: BTreeMap<ObjectId, Result<ObjectFile, String>>,
    /// By address of the text, which is held here so that the address stays its own.
    contents: BTreeMap<usize, (Arc<str>, Content)>,
}

/// The tree of one cluster, ready to be written.
#[derive(Debug, Clone, Default)]
pub(crate) struct ClusterTree {
    /// Path -> content.
    pub(crate) files: BTreeMap<String, Content>,
    /// The marker among the files.
    pub(crate) tree: plan::tree::Tree,
    /// Digest over paths and contents.
    pub(crate) digest: Option<ObjectId>,
    /// What could not be written.
    pub(crate) faults: Vec<TreeFault>,
}

impl Trees {
    /// What a Description adds to its cluster's tree.
    pub(crate) fn part(&mut self, description: &Description) -> Arc<Part> {
        let meta = &description.metadata;
        let key = (meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default());
        let version = format!("{}/{}", meta.uid.as_deref().unwrap_or_default(), meta.resource_version.as_deref().unwrap_or_default());
        if let Some((known, made)) = self.parts.get(&key)
            && *known == version
        {
            return made.clone();
        }
        if self.objects.len() > SPARE + self.parts.len() * 16 {
            self.objects.clear();
            self.contents.clear();
        }
        let objects = &mut self.objects;
        let made = part(description, |raw| objects.entry(ObjectId::hash(ObjectKind::Blob, raw)).or_insert_with(|| object_file(raw)).clone());
        let made = Arc::new(made);
        self.parts.insert(key, (version, made.clone()));
        made
    }

    /// Forgets Descriptions of a namespace that are gone.
    pub(crate) fn forget(&mut self, namespace: &str, present: &[Arc<Description>]) {
        let from = (namespace.to_owned(), String::new());
        let gone: Vec<(String, String)> = self
            .parts
            .range(from..)
            .map(|(key, _)| key)
            .take_while(|key| key.0 == namespace)
            .filter(|key| !present.iter().any(|d| d.metadata.name.as_deref() == Some(&key.1)))
            .cloned()
            .collect();
        for key in gone {
            self.parts.remove(&key);
        }
    }

    fn content(&mut self, text: &Arc<str>) -> Content {
        let at = text.as_ptr() as usize;
        let make = || (text.clone(), Content::new(Arc::<[u8]>::from(text.clone())));
        self.contents.entry(at).or_insert_with(make).1.clone()
    }

    /// The whole tree of a cluster, with the directories that must stay.
    pub(crate) fn build(&mut self, owner: &str, prefix: &str, descriptions: &[Arc<Description>], renders: &Renders) -> ClusterTree {
        let mut rendered: BTreeMap<usize, Content> = BTreeMap::new();
        let mut parts: Vec<Arc<Part>> = Vec::new();
        for description in descriptions.iter().filter(|d| d.metadata.deletion_timestamp.is_none()) {
            let mut part = self.part(description);
            if description.spec.deployer == DeployerType::Helm {
                let shown = renders.of(&engine::Key::of(&**description));
                let whole = Arc::make_mut(&mut part);
                whole.unknown = shown.is_none();
                for (directory, files) in shown.into_iter().flatten() {
                    let files = files.map(|files| {
                        rendered.extend(files.iter().map(|(file, content)| (file.text.as_ptr() as usize, content.clone())));
                        Arc::new(files.iter().map(|(file, _)| file.clone()).collect())
                    });
                    whole.releases.insert(directory, files);
                }
            }
            parts.push(part);
        }
        let tree = plan::tree::assemble(owner, prefix, parts.iter().map(|p| &**p));
        let mut out = ClusterTree { faults: tree.faults.clone(), ..ClusterTree::default() };
        for (path, text) in &tree.files {
            // The marker is made anew each time; remembering its address would only fill the memory.
            let content = match rendered.get(&(text.as_ptr() as usize)) {
                Some(content) => content.clone(),
                None if path == api::known::LAYOUT_FILE => Content::new(text.as_bytes()),
                None => self.content(text),
            };
            out.files.insert(path.clone(), content);
        }
        out.tree = tree;
        out.digest();
        out
    }
}

impl ClusterTree {
    /// Lets directories of the branch stay that nothing fills now.
    pub(crate) fn keep(&mut self, directories: &BTreeSet<String>, releases: &BTreeSet<String>) {
        if let Some(text) = self.tree.hold(directories, releases) {
            self.files.insert(api::known::LAYOUT_FILE.to_owned(), Content::new(text.as_bytes()));
            self.digest();
        }
    }

    fn digest(&mut self) {
        let mut text = Vec::with_capacity(self.files.len() * 64);
        for (path, content) in &self.files {
            text.extend_from_slice(path.as_bytes());
            text.push(0);
            text.extend_from_slice(content.id().as_bytes());
        }
        self.digest = Some(ObjectId::hash(ObjectKind::Blob, &text));
    }
}
