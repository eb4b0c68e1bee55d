//! `anabranch plan`: what a change of the repository would change in which clusters, before it is merged.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use api::Kind;
use api::apps::{Description, HelmRelease, Subscription};
use api::clusters::ManagedCluster;
use api::known::{annotation, label, namespace, secret};
use api::object;
use base64::Engine as _;
use clap::{Args as ClapArgs, ValueEnum};
use git::{Filter, Mode, ObjectId, Remote, Selector};
use plan::preview::{Fleet, State, Target, compare, compute, desired, markdown, text};
use plan::source::{Body, ChartDirectories, Ignore, MAX_FILE, Parsed, Settings, is_wanted, read};
use serde_json::Value;

use program::exit;
use crate::review_charts::{Missing, Store};

/// Exit code for "something changes".
const CHANGES: u8 = 2;

#[derive(Debug, ClapArgs)]
pub(crate) struct PlanArgs {
    /// The repository: a directory or a URL
    #[arg(long, default_value = ".", value_name = "PATH")]
    pub(crate) repo: String,
    /// Revision before the change: branch, tag or commit
    #[arg(long, default_value = "main", value_name = "REV")]
    pub(crate) base: String,
    /// Revision with the change
    #[arg(long, default_value = "HEAD", value_name = "REV")]
    pub(crate) head: String,
    /// The fleet as a file: ManagedClusters, Subscriptions with their status, and what is deployed (`kubectl get mcls,sub,hr,desc -A -o yaml`)
    #[arg(long, value_name = "FILE", conflicts_with = "parent")]
    pub(crate) fleet: Option<PathBuf>,
    /// Ask the parent for the fleet
    #[arg(long)]
    pub(crate) parent: bool,
    /// Kubeconfig of the parent
    #[arg(long, env = "KUBECONFIG", value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Directories of the repository that are read; all when left out
    #[arg(long = "path", value_name = "DIR")]
    pub(crate) paths: Vec<String>,
    /// Patterns of files that are left out, as in `.gitignore`
    #[arg(long, value_name = "PATTERN")]
    pub(crate) ignore: Vec<String>,
    /// How to print
    #[arg(long, short, default_value = "text", value_name = "FORMAT")]
    pub(crate) output: Output,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Output {
    /// For a terminal
    Text,
    /// For programs
    Json,
    /// For a pull request
    Markdown,
}

/// Runs the command.
pub(crate) async fn run(args: PlanArgs) -> Result<ExitCode> {
    let mirrors = std::env::temp_dir().join(format!("anabranch-plan-{}", std::process::id()));
    let git = git::Git::new(git::Options { directory: mirrors.clone(), local_threads: 2, network_threads: 2 });
    let out = preview(&args, &git).await;
    // Only remote repositories leave a mirror behind.
    let _ = std::fs::remove_dir_all(&mirrors);
    let (base, head) = out?;
    let report = compare(&base, &head);
    exit::print(&match args.output {
        Output::Text => text(&report),
        Output::Markdown => markdown(&report),
        Output::Json => format!("{}\n", serde_json::to_string_pretty(&report)?),
    });
    // What was broken before may be merged on top of; what this change breaks may not.
    let broken = |state: &State| -> BTreeSet<String> { state.subscriptions.values().flat_map(|bound| &bound.faults).cloned().collect() };
    let breaks = head.faults.iter().any(|fault| !base.faults.contains(fault)) || !broken(&head).is_subset(&broken(&base));
    if breaks {
        return Ok(ExitCode::FAILURE);
    }
    Ok(if report.is_empty() { ExitCode::SUCCESS } else { CHANGES.into() })
}

async fn preview(args: &PlanArgs, git: &git::Git) -> Result<(State, State)> {
    let url: git::Url = args.repo.parse().with_context(|| format!("read --repo {}", args.repo))?;
    let remote = git.remote(&url, &git::Access::anonymous()).await?;
    let base = resolve(&remote, &args.base).await.with_context(|| format!("resolve --base {}", args.base))?;
    let head = resolve(&remote, &args.head).await.with_context(|| format!("resolve --head {}", args.head))?;
    remote.fetch(&[base, head], &[]).await?;
    for path in &args.paths {
        let filter = Filter::under([path.as_str()]);
        if remote.list(base, &filter).await?.files.is_empty() && remote.list(head, &filter).await?.files.is_empty() {
            bail!("read --path {path}: neither {} nor {} has a file under it", args.base, args.head);
        }
    }
    let (fleet, deployed, source, salt) = fleet(args).await?;
    let mut charts = Store::new(remote.clone(), salt);
    let settings = Settings { source, target_namespaces: Default::default() };
    let created = |place: &plan::source::Place| fleet_created(&fleet, place);
    let now = jiff::Timestamp::now();
    let target = Target { owner: "preview".to_owned(), prefix: String::new() };
    let before = desired(&files(&remote, base, args).await?, &settings);
    // What is in the repository comes from there, not from the parent.
    let known: Vec<Value> = fleet.others.clone();
    let after = desired(&files(&remote, head, args).await?, &settings);
    // What the change adds is younger than what is there: of equal priority it comes later.
    let younger = |place: &plan::source::Place| created(place).or_else(|| (!before.objects.contains_key(place)).then_some(now));
    let begin = without(&fleet, &before);
    let mut next = begin.clone();
    next.others = known.into_iter().filter(|o| !after.objects.contains_key(&plan::source::Place::of(o)) && !before.objects.contains_key(&plan::source::Place::of(o))).collect();
    let bindings = next.bindings.clone();
    loop {
        let views = [charts.at(base), charts.at(head)];
        let first = compute(&before, Some(&deployed), &begin, &target, &created, now, &views[0]);
        next.bindings.clone_from(&bindings);
        next.bindings.extend(first.bindings());
        let second = compute(&after, Some(&first), &next, &target, &younger, now, &views[1]);
        match Missing::of(views) {
            Some(missing) => charts.fetch(missing).await,
            None => return Ok((first, second)),
        }
    }
}

/// The fleet without the objects that the repository itself brings.
fn without(fleet: &Fleet, desired: &plan::source::Desired) -> Fleet {
    let mut out = fleet.clone();
    out.others.retain(|o| !desired.objects.contains_key(&plan::source::Place::of(o)));
    out
}

fn fleet_created(fleet: &Fleet, place: &plan::source::Place) -> Option<jiff::Timestamp> {
    let found = fleet.others.iter().find(|o| plan::source::Place::of(o) == *place)?;
    object::meta_text(found, "creationTimestamp").parse().ok()
}

async fn resolve(remote: &Remote, name: &str) -> Result<ObjectId> {
    if let Some(found) = remote.parse(name).await? {
        return Ok(found);
    }
    let candidates = match name.parse::<ObjectId>() {
        Ok(id) => vec![Selector::Commit(id)],
        Err(_) if name == "HEAD" => vec![Selector::Default],
        Err(_) => vec![Selector::Branch(name.to_owned()), Selector::Tag(name.to_owned()), Selector::Name(name.to_owned())],
    };
    let mut last = None;
    for selector in candidates {
        match remote.resolve(&selector).await {
            Ok(revision) => return Ok(revision.commit),
            Err(error) => last = last.or(Some(error)),
        }
    }
    match last {
        Some(error) => Err(error.into()),
        None => bail!("there is no such revision"),
    }
}

async fn files(remote: &Remote, commit: ObjectId, args: &PlanArgs) -> Result<BTreeMap<String, Arc<Parsed>>> {
    let listing = remote.list(commit, &Filter::under(args.paths.iter().map(String::as_str))).await?;
    let ignore = Ignore::new(args.ignore.iter().map(String::as_str));
    let charts = ChartDirectories::among(listing.files.iter().map(|f| f.path.as_str()));
    let wanted: Vec<git::TreeFile> = listing.files.into_iter().filter(|f| is_wanted(&f.path) && !charts.has(&f.path) && f.mode != Mode::Submodule && !ignore.matches(&f.path)).collect();
    let ids: Vec<ObjectId> = wanted.iter().map(|f| f.id).collect();
    let contents = remote.read(&ids, MAX_FILE).await?;
    let parse = |file: &git::TreeFile, content: &Result<Vec<u8>, git::ReadError>| match (file.mode, content) {
        (Mode::Symlink, Ok(bytes)) => read(&file.path, Body::Symlink { target: &String::from_utf8_lossy(bytes) }),
        (_, Ok(bytes)) => read(&file.path, Body::Bytes(bytes)),
        (_, Err(git::ReadError::TooLarge { size, .. })) => read(&file.path, Body::TooLarge(*size)),
        (_, Err(error)) => read(&file.path, Body::Unreadable(&error.to_string())),
    };
    Ok(wanted.iter().zip(&contents).map(|(file, content)| (file.path.clone(), Arc::new(parse(file, content)))).collect())
}

/// Kinds that a parent is asked for.
const KINDS: [(&str, &str); 8] = [
    ("clusters.clusternet.io/v1beta1", "ManagedCluster"),
    ("apps.clusternet.io/v1alpha1", "Subscription"),
    ("apps.clusternet.io/v1alpha1", "Manifest"),
    ("apps.clusternet.io/v1alpha1", "HelmChart"),
    ("apps.clusternet.io/v1alpha1", "HelmRelease"),
    ("apps.clusternet.io/v1alpha1", "Description"),
    ("apps.clusternet.io/v1alpha1", "Globalization"),
    ("apps.clusternet.io/v1alpha1", "Localization"),
];

/// The fleet, what is deployed in it, the label of the source that most of its objects come from, and the salt of its renders.
async fn fleet(args: &PlanArgs) -> Result<(Fleet, State, String, Vec<u8>)> {
    let mut objects = Vec::new();
    if let Some(path) = &args.fleet {
        let text = std::fs::read_to_string(path).with_context(|| format!("read the fleet {}", path.display()))?;
        for document in manifest::parse_all(&text, &manifest::Limits::FILE).with_context(|| format!("read the fleet {}", path.display()))? {
            match document.value.get("items").and_then(Value::as_array) {
                Some(items) => objects.extend(items.iter().cloned()),
                None => objects.push(document.value),
            }
        }
    } else if args.parent {
        let reached = program::part::child_of(args.kubeconfig.as_deref()).await?;
        let dynamic = cluster::Dynamic::new(reached.client);
        let known = plan::kinds::Kinds::built_in();
        for (api_version, kind) in KINDS {
            let info = known.get(api_version, kind).with_context(|| format!("{kind} is a kind of ours"))?;
            let (group, version) = object::split_api_version(api_version);
            let resource = cluster::Resource { group: group.to_owned(), version: version.to_owned(), kind: kind.to_owned(), plural: info.plural.clone(), namespaced: info.namespaced };
            objects.extend(dynamic.list(&resource, "", None).await.with_context(|| format!("list {}", info.plural))?.items);
        }
        objects.extend(secrets(&dynamic, &objects).await?);
    } else {
        bail!(exit::Hinted { message: "the fleet is not known".to_owned(), hint: "kubectl get managedclusters,subscriptions,helmreleases,descriptions -A -o yaml > fleet.yaml, then --fleet fleet.yaml; or --parent".to_owned() });
    }
    let mut out = Fleet::default();
    let mut descriptions = Vec::new();
    let mut sources: BTreeMap<String, usize> = BTreeMap::new();
    let mut salt = Vec::new();
    for value in objects {
        if let Some(source) = object::label(&value, label::SOURCE) {
            *sources.entry(source.to_owned()).or_default() += 1;
        }
        match object::text(&value, "kind") {
            "ManagedCluster" => out.clusters.push(ManagedCluster::from_object(&value).with_context(|| format!("read the cluster {}", object::name(&value)))?),
            "Subscription" => {
                let one = Subscription::from_object(&value).with_context(|| format!("read the Subscription {}", object::name(&value)))?;
                if let Some(status) = one.status {
                    out.bindings.insert(object::key(object::namespace(&value), object::name(&value)), status);
                }
                out.others.push(value);
            }
            "Description" => descriptions.push(Description::from_object(&value).with_context(|| format!("read the Description {}", object::name(&value)))?),
            "HelmRelease" => out.known.releases.push(HelmRelease::from_object(&value).with_context(|| format!("read the HelmRelease {}", object::name(&value)))?),
            "Secret" => {
                let data = |key: &str| value["data"][key].as_str().and_then(|text| base64::engine::general_purpose::STANDARD.decode(text).ok());
                if object::name(&value) == secret::RENDER_SALT {
                    salt = data("salt").unwrap_or_default();
                } else if let (Some(of), Some(answers)) = (data("of"), data("answers")) {
                    let owner = value["metadata"]["ownerReferences"][0]["name"].as_str().unwrap_or_default();
                    let answers = (String::from_utf8_lossy(&of).into_owned(), plan::rendered::read_answers(&answers));
                    out.known.answers.insert(object::key(object::namespace(&value), owner), answers);
                }
            }
            "" => {}
            _ => out.others.push(value),
        }
    }
    if let Some(path) = args.fleet.as_ref().filter(|_| out.clusters.is_empty()) {
        bail!("read the fleet {}: there is no ManagedCluster in it", path.display());
    }
    let source = sources.into_iter().max_by_key(|(_, n)| *n).map_or_else(|| "preview".to_owned(), |(source, _)| source);
    Ok((out, State::deployed(descriptions), source, salt))
}

/// The Secrets that renders depend on: the salt of random values, and what agents told of their clusters. Who may not read them sees
/// other random values, and nothing of what is looked up.
async fn secrets(dynamic: &cluster::Dynamic, objects: &[Value]) -> Result<Vec<Value>> {
    let Some(kind) = cluster::resource::built_in("v1", "Secret") else { return Ok(Vec::new()) };
    let pinned = objects.iter().filter(|o| object::text(o, "kind") == "HelmRelease" && object::annotation(o, annotation::ANSWERED).is_some());
    let names = pinned.map(|o| (object::namespace(o).to_owned(), plan::rendered::answers_name(object::name(o))));
    let mut out = Vec::new();
    for (namespace, name) in names.chain([(namespace::RESERVED.to_owned(), secret::RENDER_SALT.to_owned())]) {
        match dynamic.get_opt(&kind, &namespace, &name).await {
            Ok(found) => out.extend(found.map(|mut secret| {
                secret["kind"] = "Secret".into();
                secret
            })),
            Err(error) => program::exit::say(&format!("cannot read the Secret {namespace}/{name}: {}", cluster::error::message(&error))),
        }
    }
    Ok(out)
}
