//! What the deploy pipeline knows and whom it wakes: caches of its kinds, indexes between them, one queue per controller.
//!
//! Invariants: nothing here is ever scanned per item; every question a turn asks is an index. Listeners only put keys into
//! queues; no turn believes what an event said.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::apps::{
    Base, DeployerType, Description, FeedInventory, Globalization, HelmChart, HelmRelease, Localization, Manifest, OverridePolicy, Subscription,
};
use api::clusters::ManagedCluster;
use api::gitops::{GitSource, GitTarget};
use api::known::{annotation, label};
use api::object::ObjectRef;
use cluster::Target;
use engine::{Cache, Change, Clock, Key, Queue, Recorder, Registry, Tasks};
use kube::Client;
use parking_lot::Mutex;
use plan::descriptions::Report;
use plan::lost::Reach;
use plan::overrides::{Digest, Override};
use plan::render::{self, ClusterFacts, Memo, Part, feed_index};
use plan::step::label_of;
use plan::subscription::made_for;
use serde_json::json;

use crate::Options;
use crate::parsed::Parsed;
use crate::rendering::Renders;

/// A Manifest or a HelmChart, by kind and key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FeedKind {
    /// A Manifest.
    Manifest,
    /// A HelmChart.
    Chart,
}

/// A Localization or a Globalization.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum OverrideKind {
    /// In one cluster's namespace.
    Local,
    /// For many clusters.
    Global,
}

/// What waits for a child while it is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Leaving {
    /// A Description.
    Description,
    /// A HelmRelease.
    Release,
}

/// The queues, one per controller.
pub(crate) struct Queues {
    /// Subscriptions.
    pub(crate) subscriptions: Queue<Key>,
    /// Bases.
    pub(crate) bases: Queue<Key>,
    /// Feeds.
    pub(crate) feeds: Queue<(FeedKind, Key)>,
    /// Overrides, to be linked to their feeds.
    pub(crate) overrides: Queue<(OverrideKind, Key)>,
    /// Descriptions of charts.
    pub(crate) helm: Queue<Key>,
    /// Descriptions and HelmReleases that are being deleted.
    pub(crate) leaving: Queue<(Leaving, Key)>,
    /// Charts whose existence is to be verified.
    pub(crate) charts: Queue<Key>,
    /// Subscriptions whose status is to be summed up.
    pub(crate) statuses: Queue<Key>,
}

/// What the last turn over a Base left behind.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Told {
    /// For the conditions of the Subscription.
    pub(crate) report: Report,
    /// Trigger of a rendering that had to write nothing.
    pub(crate) trigger: Option<String>,
}

/// Everything that the controllers of the pipeline share.
pub(crate) struct World {
    pub(crate) client: Client,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) metrics: Registry,
    pub(crate) recorder: Recorder,
    pub(crate) subscriptions: Cache<Subscription>,
    pub(crate) bases: Cache<Base>,
    pub(crate) descriptions: Cache<Description>,
    pub(crate) manifests: Cache<Manifest>,
    pub(crate) charts: Cache<HelmChart>,
    pub(crate) releases: Cache<HelmRelease>,
    pub(crate) localizations: Cache<Localization>,
    pub(crate) globalizations: Cache<Globalization>,
    pub(crate) inventories: Cache<FeedInventory>,
    pub(crate) clusters: Cache<ManagedCluster>,
    pub(crate) queues: Queues,
    pub(crate) memo: Mutex<Memo>,
    pub(crate) told: Mutex<BTreeMap<Key, Told>>,
    /// When the status of a Subscription was last written.
    pub(crate) summed: Mutex<BTreeMap<Key, std::time::Duration>>,
    /// Hash of the ApplyNow overrides of a feed for any cluster, until one of them changes.
    now: Mutex<BTreeMap<String, Digest>>,
    locals: Parsed<Override>,
    globals: Parsed<Override>,
    parts: Parsed<Part>,
    chart_parts: Parsed<Part>,
    reserved: String,
    verify_charts: bool,
    /// Chart repositories; without them nothing is rendered for branches.
    pub(crate) pool: Option<registry::Pool>,
    /// The repositories of this process.
    pub(crate) git: Option<git::Git>,
    pub(crate) targets: Cache<GitTarget>,
    pub(crate) sources: Cache<GitSource>,
    /// Charts that lie in repositories beside their manifests, by HelmChart.
    pub(crate) git_charts: Mutex<BTreeMap<Key, Arc<registry::pool::Loaded>>>,
    /// The revision that each GitSource was through with last, by its mark.
    pub(crate) git_revisions: Mutex<BTreeMap<String, String>>,
    pub(crate) renders: Arc<Renders>,
    /// Charts whose spec changed and that were not looked for since: their phase is that of the old spec.
    unverified: Mutex<BTreeSet<Key>>,
}

/// Index key of the user's Localizations of a feed in one namespace.
fn local_index(feed: &str, namespace: &str) -> String {
    format!("{feed}@{namespace}")
}

fn override_feed(feed: &api::apps::Feed) -> String {
    feed_index(&feed.api_version, &feed.kind, &feed.name)
}

fn target_index(target: &ObjectRef) -> String {
    feed_index(&target.api_version, &target.kind, &target.name)
}

fn feed_keys(feeds: &[api::apps::Feed]) -> Vec<String> {
    feeds.iter().map(override_feed).collect()
}

fn label_values(meta: &api::ObjectMeta, keys: &[&str]) -> Vec<String> {
    let mut out: Vec<String> = keys.iter().map(|key| label_of(meta, key).to_owned()).filter(|value| !value.is_empty()).collect();
    out.dedup();
    out
}

impl World {
    /// Caches, followed through `client`, that wake the queues.
    pub(crate) fn start(
        client: &Client,
        options: &Options,
        tasks: &Tasks,
    ) -> Arc<Self> {
        let (clock, metrics) = (&options.clock, &options.metrics);
        let queue = || engine::Backoff::default();
        let world = Arc::new(Self {
            client: client.clone(),
            clock: clock.clone(),
            metrics: metrics.clone(),
            recorder: Recorder::start(client.clone(), api::known::component::CONTROLLER_MANAGER, clock.clone(), metrics.clone(), tasks),
            subscriptions: Cache::<Subscription>::builder()
                .index("uid", |s| s.metadata.uid.clone().into_iter().collect())
                .index("feed", |s| feed_keys(&s.spec.feeds))
                .index("binding", |s| s.status.as_ref().map(|status| status.binding_clusters.clone()).unwrap_or_default())
                .build(),
            bases: Cache::<Base>::builder()
                .index("subscription", |b| label_values(&b.metadata, &[label::SUBS_UID, label::CONFIG_UID]))
                .index("feed", |b| feed_keys(&b.spec.feeds))
                .build(),
            descriptions: Cache::<Description>::builder().index("base", |d| label_values(&d.metadata, &[label::CONFIG_UID])).build(),
            manifests: Cache::<Manifest>::builder().index("feed", |m| vec![target_index(&render::manifest_target(m))]).build(),
            charts: Cache::<HelmChart>::builder()
                .index("feed", |c| vec![feed_index("", "HelmChart", c.metadata.name.as_deref().unwrap_or_default())])
                .build(),
            releases: Cache::<HelmRelease>::builder().index("description", |r| label_values(&r.metadata, &[label::CONFIG_UID])).build(),
            localizations: Cache::<Localization>::builder()
                .index("feed", |l| if plan::overrides::is_generated(l) { Vec::new() } else { vec![override_feed(&l.spec.feed)] })
                .index("local", |l| {
                    if plan::overrides::is_generated(l) {
                        return Vec::new();
                    }
                    vec![local_index(&override_feed(&l.spec.feed), l.metadata.namespace.as_deref().unwrap_or_default())]
                })
                .index("subscription", |l| {
                    let generated = plan::overrides::is_generated(l);
                    let labels = l.metadata.labels.iter().flatten().filter(|(_, kind)| generated && *kind == "Subscription");
                    labels.map(|(uid, _)| uid.clone()).collect()
                })
                .index("generated-for", |l| if plan::overrides::is_generated(l) { vec![override_feed(&l.spec.feed)] } else { Vec::new() })
                .build(),
            globalizations: Cache::<Globalization>::builder().index("feed", |g| vec![override_feed(&g.spec.feed)]).build(),
            inventories: Cache::new(),
            clusters: Cache::new(),
            queues: Queues {
                subscriptions: Queue::with(clock.clone(), queue()),
                bases: Queue::with(clock.clone(), queue()),
                feeds: Queue::with(clock.clone(), queue()),
                overrides: Queue::with(clock.clone(), queue()),
                helm: Queue::with(clock.clone(), queue()),
                leaving: Queue::with(clock.clone(), queue()),
                charts: Queue::with(clock.clone(), queue()),
                statuses: Queue::with(clock.clone(), queue()),
            },
            memo: Mutex::default(),
            told: Mutex::default(),
            summed: Mutex::default(),
            now: Mutex::default(),
            locals: Parsed::default(),
            globals: Parsed::default(),
            parts: Parsed::default(),
            chart_parts: Parsed::default(),
            reserved: options.reserved_namespace.clone(),
            verify_charts: options.charts.is_some(),
            pool: options.chart_pool.clone().filter(|_| options.git.is_some()),
            git: options.git.clone(),
            targets: Cache::new(),
            sources: Cache::new(),
            git_charts: Mutex::default(),
            git_revisions: Mutex::default(),
            renders: Arc::default(),
            unverified: Mutex::default(),
        });
        world.listen();
        world.follow(client, tasks);
        world
    }

    fn follow(&self, client: &Client, tasks: &Tasks) {
        let all = || client.clone();
        if self.git.is_some() {
            self.targets.follow("follow-gittargets", all(), Target::of::<GitTarget>(""), tasks);
            self.sources.follow("follow-gitsources", all(), Target::of::<GitSource>(""), tasks);
        }
        self.clusters.follow("follow-clusters", all(), Target::of::<ManagedCluster>(""), tasks);
        self.manifests.follow("follow-manifests", all(), Target::of::<Manifest>(&self.reserved), tasks);
        self.charts.follow("follow-charts", all(), Target::of::<HelmChart>(""), tasks);
        self.globalizations.follow("follow-globalizations", all(), Target::of::<Globalization>(""), tasks);
        self.localizations.follow("follow-localizations", all(), Target::of::<Localization>(""), tasks);
        self.inventories.follow("follow-inventories", all(), Target::of::<FeedInventory>(""), tasks);
        self.descriptions.follow("follow-descriptions", all(), Target::of::<Description>(""), tasks);
        self.releases.follow("follow-releases", all(), Target::of::<HelmRelease>(""), tasks);
        self.bases.follow("follow-bases", all(), Target::of::<Base>(""), tasks);
        self.subscriptions.follow("follow-subscriptions", all(), Target::of::<Subscription>(""), tasks);
    }

    /// Completes when every cache holds a full list: before that, absence proves nothing and no turn may be taken.
    pub(crate) async fn synced(&self) {
        if self.git.is_some() {
            self.targets.synced().await;
            self.sources.synced().await;
        }
        self.clusters.synced().await;
        self.manifests.synced().await;
        self.charts.synced().await;
        self.globalizations.synced().await;
        self.localizations.synced().await;
        self.inventories.synced().await;
        self.descriptions.synced().await;
        self.releases.synced().await;
        self.bases.synced().await;
        self.subscriptions.synced().await;
    }

    // ---- questions ----------------------------------------------------------------------------------------------------

    /// The Subscription that a Base was made for.
    pub(crate) fn subscription_of(&self, base: &api::ObjectMeta) -> Option<Arc<Subscription>> {
        let uid = label_of(base, label::SUBS_UID);
        if uid.is_empty() { None } else { self.subscriptions.by("uid", uid).into_iter().next() }
    }

    /// Bases that list this object.
    pub(crate) fn bases_of(&self, target: &ObjectRef) -> Vec<Arc<Base>> {
        let found = self.bases.by("feed", &target_index(target));
        found.into_iter().filter(|base| base.spec.feeds.iter().any(|feed| render::feed_names(feed, target))).collect()
    }

    /// Subscriptions that list this object.
    pub(crate) fn subscriptions_of(&self, target: &ObjectRef) -> Vec<Arc<Subscription>> {
        let found = self.subscriptions.by("feed", &target_index(target));
        found.into_iter().filter(|one| one.spec.feeds.iter().any(|feed| render::feed_names(feed, target))).collect()
    }

    /// Manifests that a feed names, in order of their names; ones that are being deleted count as long as they are there.
    pub(crate) fn manifests_of(&self, feed: &api::apps::Feed) -> Vec<Arc<Manifest>> {
        let found = self.manifests.by("feed", &override_feed(feed));
        found.into_iter().filter(|manifest| render::feed_names(feed, &render::manifest_target(manifest))).collect()
    }

    /// Charts that a feed names.
    pub(crate) fn charts_of(&self, feed: &api::apps::Feed) -> Vec<Arc<HelmChart>> {
        let found = self.charts.by("feed", &feed_index("", "HelmChart", &feed.name));
        found.into_iter().filter(|chart| feed.namespace.is_empty() || chart.metadata.namespace.as_deref() == Some(&feed.namespace)).collect()
    }

    /// A Manifest, ready to be rendered.
    pub(crate) fn part(&self, manifest: &Manifest) -> Arc<Part> {
        self.parts.get(manifest, || Part::of_manifest(manifest))
    }

    /// A chart, ready to be rendered.
    pub(crate) fn chart_part(&self, chart: &HelmChart) -> Arc<Part> {
        self.chart_parts.get(chart, || Part::of_chart(chart))
    }

    /// A Localization, parsed.
    pub(crate) fn local(&self, object: &Localization) -> Arc<Override> {
        self.locals.get(object, || Override::local(object))
    }

    /// A Globalization, parsed.
    pub(crate) fn global(&self, object: &Globalization) -> Arc<Override> {
        self.globals.get(object, || Override::global(object))
    }

    /// The overrides of people for an object in a cluster, in no order.
    pub(crate) fn overrides_for(&self, target: &ObjectRef, cluster: &ClusterFacts) -> Vec<Arc<Override>> {
        let feed = target_index(target);
        let mut out = Vec::new();
        for object in self.globalizations.by("feed", &feed) {
            if object.metadata.deletion_timestamp.is_none() {
                out.push(self.global(&object));
            }
        }
        for object in self.localizations.by("local", &local_index(&feed, &cluster.namespace)) {
            if object.metadata.deletion_timestamp.is_none() {
                out.push(self.local(&object));
            }
        }
        out.retain(|one| one.is_for(target) && one.matches_cluster(&cluster.namespace, &cluster.labels));
        out
    }

    /// Hash of the ApplyNow overrides of people for a feed, whatever their cluster.
    pub(crate) fn now_digest(&self, feed: &str) -> Digest {
        if let Some(known) = self.now.lock().get(feed) {
            return *known;
        }
        let mut digests: BTreeSet<Digest> = BTreeSet::new();
        for object in self.globalizations.by("feed", feed) {
            if object.metadata.deletion_timestamp.is_none() && object.spec.override_policy == OverridePolicy::ApplyNow {
                digests.insert(self.global(&object).digest);
            }
        }
        for object in self.localizations.by("feed", feed) {
            if object.metadata.deletion_timestamp.is_none() && object.spec.override_policy == OverridePolicy::ApplyNow {
                digests.insert(self.local(&object).digest);
            }
        }
        let sum = plan::overrides::combine(&digests);
        self.now.lock().insert(feed.to_owned(), sum);
        sum
    }

    /// Whether the cluster that an object in a dedicated namespace is for can still do its part.
    pub(crate) fn reach(&self, meta: &api::ObjectMeta) -> Reach {
        let id = label_of(meta, label::CLUSTER_ID);
        let found = self.clusters.in_namespace(meta.namespace.as_deref().unwrap_or_default());
        Reach::of(found.iter().find(|cluster| id.is_empty() || cluster.spec.cluster_id == id).map(|cluster| &**cluster))
    }

    /// Facts of a cluster by its namespace: labels of the Base first, since one cluster may share a namespace.
    pub(crate) fn cluster_of(&self, base: &api::ObjectMeta) -> ClusterFacts {
        let namespace = base.namespace.as_deref().unwrap_or_default();
        let name = label_of(base, label::CLUSTER_NAME);
        let found = self.clusters.in_namespace(namespace);
        let found = found.iter().find(|c| c.metadata.name.as_deref() == Some(name)).or(if name.is_empty() { found.first() } else { None });
        match found {
            Some(cluster) => facts(cluster),
            None => ClusterFacts {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                id: label_of(base, label::CLUSTER_ID).to_owned(),
                labels: BTreeMap::new(),
            },
        }
    }

    // ---- listeners ----------------------------------------------------------------------------------------------------

    fn listen(self: &Arc<Self>) {
        macro_rules! on {
            ($cache:ident, $handler:ident) => {
                let world = Arc::downgrade(self);
                self.$cache.on_change(move |change| {
                    if let Some(world) = world.upgrade() {
                        world.$handler(change);
                    }
                });
            };
        }
        on!(subscriptions, on_subscription);
        on!(bases, on_base);
        on!(descriptions, on_description);
        on!(manifests, on_manifest);
        on!(charts, on_chart);
        on!(releases, on_release);
        on!(localizations, on_localization);
        on!(globalizations, on_globalization);
        on!(inventories, on_inventory);
        on!(clusters, on_cluster);
        on!(targets, on_target);
        on!(sources, on_source);
    }

    fn on_subscription(&self, change: &Change<'_, Subscription>) {
        let decided = |s: &Subscription| s.status.as_ref().map(|status| (status.binding_clusters.clone(), status.replicas.clone()));
        let made = change.old.is_none() || change.new.is_none();
        let meta = made || change.touches(|s| (s.metadata.labels.clone(), s.metadata.annotations.clone(), s.metadata.finalizers.clone(), s.metadata.deletion_timestamp.clone()));
        let spec = made || change.touches(|s| s.spec.clone());
        let status = made || change.touches(decided);
        if meta || spec || status {
            self.queues.subscriptions.add(change.key.clone());
            self.queues.statuses.add(change.key.clone());
        }
        if spec {
            self.wake_feeds(change.old.iter().chain(change.new.iter()).flat_map(|s| &s.spec.feeds));
        }
        // Bases render from what the scheduler decided, and go when their Subscription is gone.
        if (made || status || meta)
            && let Some(uid) = change.any().and_then(|s| s.metadata.uid.clone())
        {
            self.queues.bases.add_all(self.bases.by("subscription", &uid).iter().map(|base| Key::of(&**base)));
        }
    }

    fn on_base(&self, change: &Change<'_, Base>) {
        let made = change.old.is_none() || change.new.is_none();
        let feeds = made || change.touches(|b| b.spec.clone());
        let meta = made || change.touches(|b| (b.metadata.labels.clone(), b.metadata.finalizers.clone(), b.metadata.deletion_timestamp.clone()));
        if feeds || meta {
            self.queues.bases.add(change.key.clone());
            for meta in change.old.iter().chain(change.new.iter()).map(|b| &b.metadata) {
                if let Some(subscription) = self.subscription_of(meta) {
                    self.queues.subscriptions.add(Key::of(&*subscription));
                    self.queues.statuses.add(Key::of(&*subscription));
                }
            }
        }
        if change.any().is_some_and(|base| base.metadata.deletion_timestamp.is_some()) {
            self.queues.helm.add(Key::new(&change.key.namespace, &plan::descriptions::helm_name(&change.key.name)));
        }
        if feeds {
            self.wake_feeds(change.old.iter().chain(change.new.iter()).flat_map(|b| &b.spec.feeds));
        }
        if change.new.is_none() {
            self.told.lock().remove(change.key);
        }
    }

    /// Wakes the Manifests and charts that feeds name, so that their labels and protection follow.
    fn wake_feeds<'a>(&self, feeds: impl Iterator<Item = &'a api::apps::Feed>) {
        let mut seen = BTreeSet::new();
        for feed in feeds {
            if !seen.insert(feed) {
                continue;
            }
            if feed.is_helm_chart() {
                self.queues.feeds.add_all(self.charts_of(feed).iter().map(|chart| (FeedKind::Chart, Key::of(&**chart))));
            } else {
                self.queues.feeds.add_all(self.manifests_of(feed).iter().map(|manifest| (FeedKind::Manifest, Key::of(&**manifest))));
            }
        }
    }

    fn on_description(&self, change: &Change<'_, Description>) {
        let made = change.old.is_none() || change.new.is_none();
        let wanted = made || change.touches(|d| (d.spec.clone(), d.metadata.labels.clone(), d.metadata.finalizers.clone(), d.metadata.deletion_timestamp.clone()));
        let Some(any) = change.any() else { return };
        if wanted {
            if let Some(base) = plan::step::base_of(&any.metadata) {
                self.queues.bases.add(Key::new(&change.key.namespace, base));
            }
            self.queues.helm.add(change.key.clone());
        }
        if any.metadata.deletion_timestamp.is_some() {
            self.queues.leaving.add((Leaving::Description, change.key.clone()));
        }
        if wanted || change.touches(|d| d.status.clone()) {
            self.wake_status(&any.metadata);
        }
    }

    fn wake_status(&self, meta: &api::ObjectMeta) {
        if let Some(subscription) = self.subscription_of(meta) {
            self.queues.statuses.add(Key::of(&*subscription));
        }
    }

    /// Wakes everything that a changed template concerns.
    fn wake_users(&self, target: &ObjectRef) {
        self.queues.bases.add_all(self.bases_of(target).iter().map(|base| Key::of(&**base)));
        for subscription in self.subscriptions_of(target) {
            if plan::subscription::divides(&subscription) {
                self.queues.subscriptions.add(Key::of(&*subscription));
            }
        }
    }

    fn on_manifest(&self, change: &Change<'_, Manifest>) {
        let made = change.old.is_none() || change.new.is_none();
        let template = made || matches!((change.old, change.new), (Some(old), Some(new)) if old.template != new.template);
        let targets: BTreeSet<ObjectRef> = change.old.iter().chain(change.new.iter()).map(|m| render::manifest_target(m)).collect();
        for target in &targets {
            if template || targets.len() > 1 {
                self.wake_users(target);
            }
            if made {
                self.wake_links(target);
            }
        }
        self.queues.feeds.add((FeedKind::Manifest, change.key.clone()));
        if let (Some(old), None) = (change.old, change.new) {
            self.parts.forget(&**old);
        }
    }

    fn on_chart(&self, change: &Change<'_, HelmChart>) {
        let Some(any) = change.any() else { return };
        let target = plan::step::app_ref("HelmChart", &any.metadata);
        let made = change.old.is_none() || change.new.is_none();
        let found = |c: &HelmChart| c.status.as_ref().and_then(|status| status.phase);
        let spec = made || change.touches(|c| c.spec.clone());
        if made || change.touches(|c| c.status.clone()) {
            self.unverified.lock().remove(change.key);
        } else if spec && self.verify_charts {
            self.unverified.lock().insert(change.key.clone());
        }
        if spec || change.touches(|c| (found(c), c.metadata.labels.clone(), c.metadata.annotations.clone())) {
            self.wake_users(&target);
        }
        if made {
            self.wake_links(&target);
        }
        if spec || change.touches(|c| crate::gitcharts::path_of(c).map(str::to_owned)) {
            self.queues.charts.add(change.key.clone());
        }
        if change.new.is_none() {
            self.git_charts.lock().remove(change.key);
        }
        self.queues.feeds.add((FeedKind::Chart, change.key.clone()));
        if let (Some(old), None) = (change.old, change.new) {
            self.chart_parts.forget(&**old);
        }
    }

    /// Wakes the overrides of an object that came or went, so that their labels follow.
    fn wake_links(&self, target: &ObjectRef) {
        let feed = target_index(target);
        self.queues.overrides.add_all(self.globalizations.by("feed", &feed).iter().map(|g| (OverrideKind::Global, Key::of(&**g))));
        for index in ["feed", "generated-for"] {
            self.queues.overrides.add_all(self.localizations.by(index, &feed).iter().map(|l| (OverrideKind::Local, Key::of(&**l))));
        }
    }

    fn on_release(&self, change: &Change<'_, HelmRelease>) {
        let Some(any) = change.any() else { return };
        let answered = |r: &HelmRelease| r.metadata.annotations.as_ref().and_then(|a| a.get(annotation::ANSWERED)).cloned();
        // What its agent found in the cluster before it deployed anything makes the revision that is rendered.
        let there = |r: &HelmRelease| r.status.as_ref().filter(|_| !plan::rendered::is_deployed(r)).map(|s| s.version);
        if change.touches(|r| (r.spec.clone(), r.metadata.labels.clone(), r.metadata.deletion_timestamp.clone(), r.metadata.finalizers.clone(), answered(r), there(r)))
            && let Some(owner) = any.metadata.owner_references.iter().flatten().find(|owner| owner.kind == "Description")
        {
            self.queues.helm.add(Key::new(&change.key.namespace, &owner.name));
        }
        if any.metadata.deletion_timestamp.is_some() {
            self.queues.leaving.add((Leaving::Release, change.key.clone()));
        }
        self.wake_status(&any.metadata);
    }

    fn on_localization(&self, change: &Change<'_, Localization>) {
        let Some(any) = change.any() else { return };
        self.queues.overrides.add((OverrideKind::Local, change.key.clone()));
        let effect = change.touches(|l| (l.spec.clone(), l.metadata.deletion_timestamp.is_some()));
        if plan::overrides::is_generated(any) {
            if effect {
                for (uid, _) in any.metadata.labels.iter().flatten().filter(|(_, kind)| *kind == "Subscription") {
                    self.queues.subscriptions.add_all(self.subscriptions.by("uid", uid).iter().map(|s| Key::of(&**s)));
                }
            }
        } else if effect {
            let specs: Vec<_> = change.old.iter().chain(change.new.iter()).map(|l| (l.spec.feed.clone(), l.spec.override_policy)).collect();
            self.wake_overridden(&specs);
        }
        if let (Some(old), None) = (change.old, change.new) {
            self.locals.forget(&**old);
        }
    }

    fn on_globalization(&self, change: &Change<'_, Globalization>) {
        self.queues.overrides.add((OverrideKind::Global, change.key.clone()));
        if change.touches(|g| (g.spec.clone(), g.metadata.deletion_timestamp.is_some())) {
            let specs: Vec<_> = change.old.iter().chain(change.new.iter()).map(|g| (g.spec.feed.clone(), g.spec.override_policy)).collect();
            self.wake_overridden(&specs);
        }
        if let (Some(old), None) = (change.old, change.new) {
            self.globals.forget(&**old);
        }
    }

    /// Wakes the Bases of feeds whose ApplyNow overrides changed. ApplyLater ones wait for another reason to render.
    fn wake_overridden(&self, specs: &[(api::apps::Feed, OverridePolicy)]) {
        let now = specs.iter().any(|(_, policy)| *policy == OverridePolicy::ApplyNow);
        for (feed, _) in specs {
            let index = override_feed(feed);
            self.now.lock().remove(&index);
            if now {
                self.queues.bases.add_all(self.bases.by("feed", &index).iter().map(|base| Key::of(&**base)));
            }
        }
    }

    fn on_inventory(&self, change: &Change<'_, FeedInventory>) {
        self.queues.subscriptions.add(change.key.clone());
        if let Some(subscription) = self.subscriptions.get_key(change.key) {
            let uid = subscription.metadata.uid.clone().unwrap_or_default();
            self.queues.bases.add_all(self.bases.by("subscription", &uid).iter().map(|base| Key::of(&**base)));
        }
    }

    fn on_cluster(&self, change: &Change<'_, ManagedCluster>) {
        let made = change.old.is_none() || change.new.is_none();
        if made || change.touches(|c| Reach::of(Some(c))) {
            for description in self.descriptions.in_namespace(&change.key.namespace) {
                if description.metadata.deletion_timestamp.is_some() {
                    self.queues.leaving.add((Leaving::Description, Key::of(&*description)));
                }
            }
            for release in self.releases.in_namespace(&change.key.namespace) {
                if release.metadata.deletion_timestamp.is_some() {
                    self.queues.leaving.add((Leaving::Release, Key::of(&*release)));
                }
            }
        }
        let facts = |c: &ManagedCluster| (c.metadata.labels.clone(), c.status.as_ref().is_none_or(|s| s.k8s_version.is_empty()), c.metadata.annotations.as_ref().is_some_and(|a| a.contains_key(annotation::API_VERSIONS)));
        if made || change.touches(facts) {
            self.queues.helm.add_all(self.descriptions.in_namespace(&change.key.namespace).iter().filter(|d| d.spec.deployer == DeployerType::Helm).map(|d| Key::of(&**d)));
        }
        if !made && !change.touches(|c| (c.metadata.labels.clone(), c.spec.cluster_id.clone())) {
            return;
        }
        self.queues.bases.add_all(self.bases.in_namespace(&change.key.namespace).iter().map(|base| Key::of(&**base)));
        for subscription in self.subscriptions.by("binding", &change.key.to_string()) {
            self.queues.subscriptions.add(Key::of(&*subscription));
            self.queues.statuses.add(Key::of(&*subscription));
        }
    }

    /// Another branch writer: other clusters may have branches.
    fn on_target(&self, change: &Change<'_, GitTarget>) {
        if change.old.is_none() || change.new.is_none() || change.touches(|t| (t.spec.suspend, json!(t.spec.cluster_selector), t.metadata.deletion_timestamp.is_some())) {
            self.queues.helm.add_all(self.descriptions.list().iter().filter(|d| d.spec.deployer == DeployerType::Helm).map(|d| Key::of(&**d)));
        }
    }

    /// A new revision: charts that lie in the repository may have changed.
    fn on_source(&self, change: &Change<'_, GitSource>) {
        let Some(source) = change.new.filter(|_| change.old.is_none() || change.touches(crate::gitcharts::settled_revision)) else { return };
        let mark = crate::gitcharts::mark_of(source);
        let of = |c: &HelmChart| crate::gitcharts::path_of(c).is_some() && label_of(&c.metadata, label::SOURCE) == mark;
        self.queues.charts.add_all(self.charts.list().iter().filter(|c| of(c)).map(|c| Key::of(&**c)));
    }

    /// Namespace of what belongs to no cluster.
    pub(crate) fn reserved(&self) -> &str {
        &self.reserved
    }

    /// Whether a chart's phase is not that of its spec yet.
    pub(crate) fn is_unverified(&self, chart: &HelmChart) -> bool {
        self.unverified.lock().contains(&Key::of(chart))
    }

    /// Notes that the answer about a chart is the phase that it has already; whoever waited for it goes on. A new phase comes as a change.
    pub(crate) fn verified(&self, chart: &HelmChart) {
        let key = Key::of(chart);
        if self.charts.get_key(&key).is_some_and(|now| now.spec == chart.spec) && self.unverified.lock().remove(&key) {
            self.wake_users(&plan::step::app_ref("HelmChart", &chart.metadata));
        }
    }

    /// Whether charts are verified before they are deployed.
    pub(crate) fn verifies_charts(&self) -> bool {
        self.verify_charts
    }

    /// Whether the Base was made for a Subscription that is no more.
    pub(crate) fn is_orphan(&self, base: &api::ObjectMeta) -> bool {
        let uid = made_for(base);
        !uid.is_empty() && self.subscriptions.by("uid", uid).is_empty()
    }
}

/// What rendering needs to know of a cluster.
pub(crate) fn facts(cluster: &ManagedCluster) -> ClusterFacts {
    let meta = &cluster.metadata;
    ClusterFacts {
        namespace: meta.namespace.clone().unwrap_or_default(),
        name: meta.name.clone().unwrap_or_default(),
        id: cluster.spec.cluster_id.clone(),
        labels: meta.labels.clone().unwrap_or_default(),
    }
}
