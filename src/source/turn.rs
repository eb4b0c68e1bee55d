//! Reading a revision, and applying it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::gitops::{FileFault, GitSource};
use api::known::{annotation, manager};
use api::reason::Reason;
use cluster::dynamic::{ApplyAs, Precondition, Propagation};
use cluster::{Dynamic, Trouble};
use engine::{Key, Next};
use futures::StreamExt;
use git::{Filter, Mode, ObjectId, Revision, Selector};
use plan::kinds::Kinds;
use plan::source::{Body, ChartDirectories, Decision, Desired, Ignore, MAX_FILE, Place, Report, Settings, assemble, decide, is_wanted, read};

use crate::state::{Files, State};
use crate::worker::{Ended, Worker, request_of, unread};

/// Everything is applied again this often, against changes that people made in the parent by hand.
const APPLY_ALL: Duration = Duration::from_secs(30 * 60);
/// The shortest interval between two polls of a remote.
const SHORTEST: Duration = Duration::from_secs(1);

impl Worker {
    pub(crate) async fn work(&self, key: &Key, source: &GitSource, state: &mut State) -> Ended {
        let spec = &source.spec;
        if spec.suspend {
            state.settled = None;
            return Ended { report: Report::Suspended, next: Next::Done, quiet: false };
        }
        let stalled = |report: Report| Ended { report, next: Next::Done, quiet: false };
        let Some(interval) = api::duration::parse(&spec.interval) else {
            return stalled(Report::Invalid(format!("spec.interval: `{}` is no duration", spec.interval)));
        };
        if spec.verify.is_some() {
            // Applying unverified what shall be verified would be worse than not applying.
            return stalled(unread(Reason::VerificationFailed, "spec.verify: signatures cannot be verified by this version".to_owned(), false));
        }
        let poll = Next::After(jittered(interval.max(SHORTEST), key));
        let failed = |report: Report| {
            let next = if matches!(report, Report::Unread { transient: true, .. }) { Next::Again } else { poll.clone() };
            Ended { report, next, quiet: false }
        };
        let selector = match selector(source) {
            Ok(selector) => selector,
            Err(message) => return stalled(Report::Invalid(message)),
        };
        let remote = match self.remote(source).await {
            Ok(remote) => remote,
            Err(report @ Report::Invalid(_)) => return stalled(report),
            Err(report) => return failed(report),
        };
        state.remote = Some(remote.clone());
        if remote.local_path().is_some()
            && let Ok(points) = remote.watch_points().await
        {
            self.watcher.watch(key, &points);
        }
        let revision = match remote.resolve(&selector).await {
            Ok(revision) => revision,
            Err(error) => {
                let after = match &error {
                    git::ResolveError::Transport(git::TransportError::RateLimited { after, .. }) => Some(after.unwrap_or(Duration::from_secs(60))),
                    _ => None,
                };
                let report = unread(reason_of(error.reason()), cluster::error::chain(&error), error.is_transient());
                return match after {
                    Some(after) => Ended { report, next: Next::After(after), quiet: false },
                    None => failed(report),
                };
            }
        };
        let generation = source.metadata.generation.unwrap_or_default();
        let all_due = state.applied_all.is_none_or(|at| self.options.clock.monotonic().saturating_sub(at) > APPLY_ALL);
        let mark = (generation, revision.commit, approval_of(source));
        let reading = self.read(&remote, &revision, source, state);
        let files = match reading.await {
            Ok(files) => files,
            Err(report) => return failed(report),
        };
        self.inventories.synced(Duration::from_secs(5)).await;
        let desired = self.desired(key, source, files).await;
        let settings = Settings::of(&key.namespace, &key.name, spec);
        let inventory = self.inventories.read();
        let approved = mark.2 == revision.commit.to_string() || mark.2 == revision.to_string();
        let decision = decide(&desired, &inventory, &settings.source, spec.prune, spec.deletion_budget.as_ref(), approved, all_due && state.settled.is_some());
        if all_due {
            state.applied_all = Some(self.options.clock.monotonic());
        }
        let nothing = decision.apply.is_empty() && decision.prune.is_empty();
        if nothing && state.settled.as_ref() == Some(&mark) && source.status.as_ref().map(|s| s.last_handled_request.clone()) == Some(request_of(source)) {
            return Ended { report: Report::Suspended, next: poll, quiet: true };
        }
        // A retry of the same revision is not told again: the failure stands until it is mended.
        if !nothing && source.status.as_ref().is_none_or(|s| s.last_attempted_revision != revision.to_string()) {
            self.tell(source, &Report::Applying { revision: revision.to_string() }).await;
        }
        let (failures, again) = self.perform(source, &desired, &decision, &revision).await;
        let mut faults = desired.faults.clone();
        faults.extend(decision.faults.iter().cloned());
        let failed_count = failures.len();
        // What could not be applied comes first: it is what people look for.
        let mut all = failures;
        all.extend(faults);
        let held: Vec<Place> = self.inventories.read().held.into_iter().filter(|(_, held)| held.source == settings.source && !held.deleting).map(|(place, _)| place).collect();
        state.settled = (failed_count == 0).then_some(mark);
        let report = Report::Done { revision: revision.to_string(), faults: all, failed: failed_count, held_back: decision.held_back.clone(), inventory: held };
        Ended { report, next: if again { Next::Again } else { poll }, quiet: false }
    }

    /// Brings the revision here and parses what is new of it.
    async fn read(&self, remote: &git::Remote, revision: &Revision, source: &GitSource, state: &mut State) -> Result<BTreeMap<String, Arc<plan::source::Parsed>>, Report> {
        let have: Vec<ObjectId> = state.commit.into_iter().collect();
        remote.fetch(&[revision.commit], &have).await.map_err(|error| match &error {
            git::FetchError::Gone(_) => unread(Reason::RevisionNotFound, cluster::error::chain(&error), true),
            git::FetchError::Transport(inner) => unread(reason_of(inner.reason()), cluster::error::chain(&error), inner.is_transient()),
        })?;
        let unreadable = |error: &git::ReadError| unread(Reason::FetchFailed, cluster::error::chain(error), matches!(error, git::ReadError::Transport(_)));
        let filter = Filter::under(source.spec.paths.iter().map(String::as_str));
        let listing = remote.list(revision.commit, &filter).await.map_err(|error| unreadable(&error))?;
        let ignore = Ignore::new(source.spec.ignore.iter().map(String::as_str));
        let charts = ChartDirectories::among(listing.files.iter().map(|f| f.path.as_str()));
        let mut kept = Files::new();
        let mut missing: Vec<(String, ObjectId, Mode)> = Vec::new();
        let mut out: BTreeMap<String, Arc<plan::source::Parsed>> = BTreeMap::new();
        for file in listing.files {
            let wanted = is_wanted(&file.path) || file.mode == Mode::Submodule;
            if !wanted || ignore.matches(&file.path) || charts.has(&file.path) {
                continue;
            }
            let key = (file.path, file.id);
            match state.files.get(&key) {
                Some(parsed) => {
                    out.insert(key.0.clone(), parsed.clone());
                    kept.insert(key, parsed.clone());
                }
                None => missing.push((key.0, key.1, file.mode)),
            }
        }
        let ids: Vec<ObjectId> = missing.iter().filter(|(_, _, mode)| *mode != Mode::Submodule).map(|(_, id, _)| *id).collect();
        let mut contents = remote.read(&ids, MAX_FILE).await.map_err(|error| unread(reason_of(error.reason()), cluster::error::chain(&error), error.is_transient()))?.into_iter();
        let work: Vec<(String, ObjectId, Mode, Option<Result<Vec<u8>, git::ReadError>>)> =
            missing.into_iter().map(|(path, id, mode)| { let content = (mode != Mode::Submodule).then(|| contents.next()).flatten(); (path, id, mode, content) }).collect();
        // Megabytes of YAML take a while; other turns go on meanwhile.
        let parsed = tokio::task::spawn_blocking(move || {
            work.into_iter().map(|(path, id, mode, content)| { let parsed = parse(&path, mode, content.as_ref()); ((path, id), Arc::new(parsed)) }).collect::<Vec<_>>()
        })
        .await
        .map_err(|_| unread(Reason::InternalError, "reading the files was given up".to_owned(), true))?;
        for (key, parsed) in parsed {
            out.insert(key.0.clone(), parsed.clone());
            kept.insert(key, parsed);
        }
        for path in listing.missing {
            out.insert(path.clone(), Arc::new(about_path(&path, "PathNotFound", "the repository has no such path; mend spec.paths")));
        }
        for path in listing.unreadable {
            out.insert(path.clone(), Arc::new(about_path(&path, "InvalidName", "the name of the file is no UTF-8")));
        }
        state.files = kept;
        state.commit = Some(revision.commit);
        Ok(out)
    }

    /// What the files ask for; the parent is asked about kinds only when the built-in ones and the files' own do not suffice.
    async fn desired(&self, key: &Key, source: &GitSource, files: BTreeMap<String, Arc<plan::source::Parsed>>) -> Desired {
        let settings = Settings::of(&key.namespace, &key.name, &source.spec);
        let mut kinds = Kinds::built_in();
        let first = assemble(&files, &kinds, &settings);
        if !first.faults.iter().any(|fault| fault.reason == "UnknownKind") {
            return first;
        }
        let discovery = cluster::Discovery::new(self.client.clone());
        let Ok(catalogue) = discovery.catalogue().await else { return first };
        for resource in catalogue.resources() {
            if kinds.get(&resource.api_version(), &resource.kind).is_none() {
                kinds.insert(&resource.api_version(), &resource.kind, &resource.plural, resource.namespaced);
            }
        }
        assemble(&files, &kinds, &settings)
    }

    /// Applies wave by wave, then deletes if all was applied. The failures, and whether trying again may help.
    async fn perform(&self, source: &GitSource, desired: &Desired, decision: &Decision, revision: &Revision) -> (Vec<FileFault>, bool) {
        let client = self.acting_as(source);
        let dynamic = Dynamic::new(client);
        let revision = revision.to_string();
        let mut failures = Vec::new();
        let mut again = false;
        for wave in &decision.apply {
            let mut work = Vec::with_capacity(wave.len());
            for place in wave {
                if let Some(wanted) = desired.objects.get(place) {
                    work.push((place.clone(), self.inventories.resource(place).cloned(), wanted.annotated(&revision)));
                }
            }
            let calls = work.into_iter().map(|(place, resource, object)| {
                let dynamic = dynamic.clone();
                async move {
                    let Some(resource) = resource else { return (place, Err(None)) };
                    let how = ApplyAs { manager: manager::SOURCE, force: true, dry_run: false };
                    let answer = dynamic.apply(&resource, &object, how).await.map_err(Some);
                    (place, answer)
                }
            });
            let mut answers = futures::stream::iter(calls).buffer_unordered(self.options.parallel.max(1));
            while let Some((place, answer)) = answers.next().await {
                match answer {
                    Ok(object) => self.inventories.assume(&place, object),
                    Err(error) => {
                        let Some(wanted) = desired.objects.get(&place) else { continue };
                        let (message, transient) = match &error {
                            None => (format!("a source may not make {} objects", place.kind), false),
                            // A right may come, and a server that has just started knows none yet: nothing would tell of either.
                            Some(error) => (cluster::error::message(error), cluster::trouble(error) != Trouble::Invalid),
                        };
                        again |= transient;
                        failures.push(FileFault { path: wanted.path.clone(), line: wanted.line, column: 1, reason: "ApplyFailed".to_owned(), message, object: place.to_string() });
                    }
                }
            }
        }
        failures.sort();
        if failures.is_empty() {
            for (place, uid) in &decision.prune {
                let Some(resource) = self.inventories.resource(place) else { continue };
                let only_if = Precondition { uid: Some(uid.clone()), resource_version: None };
                match dynamic.delete(resource, &place.namespace, &place.name, &only_if, Propagation::Background).await {
                    Ok(()) => tracing::info!(object = %place, source = %Key::of(source), "deleted what disappeared from Git"),
                    Err(error) => {
                        // Not found is done; a conflict means another object of that name: not ours.
                        if !matches!(cluster::trouble(&error), Trouble::NotFound | Trouble::Conflict) {
                            again = true;
                            failures.push(FileFault { reason: "DeleteFailed".to_owned(), message: cluster::error::message(&error), object: place.to_string(), ..FileFault::default() });
                        }
                    }
                }
            }
        }
        (failures, again)
    }

    /// The client, as the ServiceAccount that the source names.
    fn acting_as(&self, source: &GitSource) -> kube::Client {
        let account = &source.spec.service_account_name;
        if account.is_empty() {
            return self.client.clone();
        }
        let namespace = source.metadata.namespace.as_deref().unwrap_or_default();
        let user = format!("system:serviceaccount:{namespace}:{account}");
        // The server adds the account's groups itself: whoever may name groups could name any.
        cluster::client::impersonating(&self.client, &user, &[])
    }
}

fn parse(path: &str, mode: Mode, content: Option<&Result<Vec<u8>, git::ReadError>>) -> plan::source::Parsed {
    match (mode, content) {
        (Mode::Submodule, _) | (_, None) => read(path, Body::Submodule),
        (Mode::Symlink, Some(Ok(target))) => read(path, Body::Symlink { target: &String::from_utf8_lossy(target) }),
        (_, Some(Ok(bytes))) => read(path, Body::Bytes(bytes)),
        (_, Some(Err(git::ReadError::TooLarge { size, .. }))) => read(path, Body::TooLarge(*size)),
        (_, Some(Err(error))) => read(path, Body::Unreadable(&cluster::error::chain(error))),
    }
}

fn about_path(path: &str, reason: &str, message: &str) -> plan::source::Parsed {
    let fault = FileFault { path: path.to_owned(), reason: reason.to_owned(), message: message.to_owned(), ..FileFault::default() };
    plan::source::Parsed { objects: Vec::new(), faults: vec![fault] }
}

fn selector(source: &GitSource) -> Result<Selector, String> {
    let Some(reference) = &source.spec.reference else { return Ok(Selector::Default) };
    if !reference.commit.is_empty() {
        return reference.commit.parse().map(Selector::Commit).map_err(|_| format!("spec.ref.commit: `{}` is not forty hexadecimal digits", reference.commit));
    }
    let text = |t: &String| t.clone();
    Ok(if !reference.tag.is_empty() {
        Selector::Tag(text(&reference.tag))
    } else if !reference.semver.is_empty() {
        Selector::Range(text(&reference.semver))
    } else if !reference.branch.is_empty() {
        Selector::Branch(text(&reference.branch))
    } else {
        Selector::Default
    })
}

fn approval_of(source: &GitSource) -> String {
    source.metadata.annotations.as_ref().and_then(|a| a.get(annotation::APPROVED)).cloned().unwrap_or_default()
}

/// The word of the closed list for what the git room says.
fn reason_of(word: &str) -> Reason {
    match word {
        "AuthenticationFailed" => Reason::AuthenticationFailed,
        "RevisionNotFound" | "EmptyRepository" => Reason::RevisionNotFound,
        "RateLimited" => Reason::RateLimited,
        "InvalidRevision" | "InvalidAccess" => Reason::InvalidSpec,
        _ => Reason::FetchFailed,
    }
}

/// The interval, up to a tenth shorter or longer, by the name of the source: many of them do not ask at once.
fn jittered(interval: Duration, key: &Key) -> Duration {
    let share = api::names::stable_hash(&[&key.namespace, &key.name]) % 200;
    interval.mul_f64(0.9 + f64::from(u32::try_from(share).unwrap_or(100)) / 1000.0)
}
