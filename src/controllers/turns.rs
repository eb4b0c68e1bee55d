//! The turns of the deploy pipeline: read the caches, ask `plan`, perform. One function per controller, nothing decided here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api::Time;
use api::apps::{HelmChartPhase, Subscription};
use api::known::label;
use api::reason::Reason;
use engine::{Key, Next, Settled, TurnError};
use plan::aggregate::{self, ClusterSeen};
use plan::descriptions::{self, FeedSeen, MissingFeeds};
use plan::overrides::{Override, order};
use plan::render::{self, feed_index};
use plan::step::{Step, Version, app_ref, base_of, label_of};
use plan::shares::{self, Scalers};
use plan::{feeds, inventory, lost, releases, subscription};

use crate::world::{FeedKind, Leaving, OverrideKind, Told, World, facts};

/// Shortest time between two writes of one Subscription's aggregated status, per thousand bound clusters: a wave over a
/// fleet is summed up a few times, not once per cluster.
const STATUS_PAUSE_PER_1000: Duration = Duration::from_millis(1000);

fn settled(changed: bool) -> Settled {
    Settled { next: Next::Done, changed }
}

impl World {
    /// A turn over a Subscription: its inventory, its Bases, its generated Localizations.
    pub(crate) async fn subscription_turn(&self, key: &Key) -> Result<Settled, TurnError> {
        let Some(object) = self.subscriptions.get_key(key) else { return Ok(Settled::QUIET) };
        let uid = object.metadata.uid.clone().unwrap_or_default();
        let inventory = self.inventories.get_key(key);
        let templates: Vec<_> = object.spec.feeds.iter().map(|feed| self.template(feed)).collect();
        let scales = object.spec.feeds.iter().map(|feed| self.scale(feed)).collect();
        let mut changed = false;
        changed |= self.perform_in_order(&inventory::decide(&inventory::Seen { subscription: object.clone(), templates, scales, inventory: inventory.clone() })).await?;
        let bindings = object.status.as_ref().map_or(&[][..], |status| &status.binding_clusters);
        let mut clusters = BTreeMap::new();
        for bound in bindings {
            let (namespace, name) = api::object::split_key(bound);
            if let Some(cluster) = self.clusters.get(namespace, name) {
                clusters.insert(bound.clone(), facts(&cluster));
            }
        }
        let mut bases = self.bases.by("subscription", &uid);
        bases.retain(|base| subscription::made_for(&base.metadata) == uid);
        let seen = subscription::Seen {
            subscription: object.clone(),
            bases,
            shares: self.localizations.by("subscription", &uid),
            inventory,
            scalers: self.scalers(&object),
            clusters,
        };
        let plan = subscription::decide(&seen);
        changed |= self.perform_in_order(&plan.own).await?;
        changed |= self.perform_all(&plan.steps).await?;
        Ok(settled(changed))
    }

    /// A turn over a Base: its Descriptions.
    pub(crate) async fn base_turn(&self, key: &Key) -> Result<Settled, TurnError> {
        let Some(base) = self.bases.get_key(key) else { return Ok(Settled::QUIET) };
        let meta = &base.metadata;
        let subscription = self.subscription_of(meta);
        let cluster = self.cluster_of(meta);
        let bound = api::object::key(&cluster.namespace, &cluster.name);
        let missing = subscription.as_ref().map_or(MissingFeeds::Wait, |s| MissingFeeds::of(&s.metadata));
        let made = !subscription::made_for(meta).is_empty();
        let unbound = made && subscription.as_ref().is_some_and(|s| s.status.as_ref().is_some_and(|status| !status.binding_clusters.contains(&bound)));
        let feeds = base.spec.feeds.iter().map(|feed| self.feed_seen(feed, subscription.as_deref(), &cluster, &bound)).collect();
        let name = meta.name.as_deref().unwrap_or_default();
        let namespace = meta.namespace.as_deref().unwrap_or_default();
        let seen = descriptions::Seen {
            generic: self.descriptions.get(namespace, &descriptions::generic_name(name)),
            helm: self.descriptions.get(namespace, &descriptions::helm_name(name)),
            orphan: self.is_orphan(meta),
            base: base.clone(),
            cluster,
            feeds,
            missing,
            unbound,
            replaced: self.is_replaced(meta),
        };
        let known = self.told.lock().get(key).and_then(|told| told.trigger.clone());
        let plan = descriptions::decide(&seen, known.as_deref(), |part, overrides| {
            let hash = render::key(part, overrides);
            if let Some(known) = self.memo.lock().get(&hash) {
                return known;
            }
            let rendered = render::part(part, overrides).map(Arc::new);
            self.memo.lock().put(hash, rendered.clone());
            rendered
        });
        let changed = self.perform_in_order(&plan.steps).await?;
        if meta.deletion_timestamp.is_none() {
            let told = Told { report: plan.report, trigger: plan.trigger };
            let before = self.told.lock().insert(key.clone(), told.clone());
            if before.is_none_or(|before| before.report != told.report)
                && let Some(subscription) = subscription
            {
                self.queues.statuses.add(Key::of(&*subscription));
            }
        }
        Ok(settled(changed))
    }

    /// Whether a Base goes whose Subscription has another one in the same cluster.
    fn is_replaced(&self, base: &api::ObjectMeta) -> bool {
        base.deletion_timestamp.is_some() && subscription::is_replaced(base, &self.bases.by("subscription", subscription::made_for(base)))
    }

    fn feed_seen(&self, feed: &api::apps::Feed, subscription: Option<&Subscription>, cluster: &render::ClusterFacts, bound: &str) -> FeedSeen {
        let mut parts = Vec::new();
        let mut held = None;
        if feed.is_helm_chart() {
            for chart in self.charts_of(feed) {
                let status = chart.status.clone().unwrap_or_default();
                let name = api::object::key(&feed.namespace, &feed.name);
                match status.phase.filter(|_| !self.is_unverified(&chart)) {
                    Some(HelmChartPhase::Found) => {}
                    Some(HelmChartPhase::NotFound) => held = Some((Reason::HelmChartNotFound, format!("chart {name} is not found: {}", status.reason))),
                    None if self.verifies_charts() => held = Some((Reason::VerifyingHelmChart, format!("chart {name} is being looked for"))),
                    None => {}
                }
                parts.push(self.chart_part(&chart));
            }
        } else {
            parts.extend(self.manifests_of(feed).iter().map(|manifest| self.part(manifest)));
        }
        // The share comes from the decision itself, not from the Localization that publishes it: the first write is the share.
        let share = subscription.filter(|s| subscription::divides(s)).and_then(|s| {
            let inventory = self.inventories.get(s.metadata.namespace.as_deref().unwrap_or_default(), s.metadata.name.as_deref().unwrap_or_default());
            shares::share(s, inventory.as_deref(), &self.scalers(s), bound, feed)
        });
        let parts = parts
            .into_iter()
            .map(|part| {
                let mut overrides = self.overrides_for(&part.target, cluster);
                if let Some(changes) = &share {
                    let created = self.share_created(subscription, cluster, feed);
                    overrides.push(Arc::new(Override::share(&cluster.namespace, "", &part.target, changes, created)));
                }
                order(&mut overrides);
                (part, overrides)
            })
            .collect();
        FeedSeen { feed: feed.clone(), parts, held, now: self.now_digest(&feed_index(&feed.api_version, &feed.kind, &feed.name)) }
    }

    /// The object that a feed names.
    fn template(&self, feed: &api::apps::Feed) -> Option<Arc<serde_json::Value>> {
        self.manifests_of(feed).first().map(|manifest| self.part(manifest).template.clone())
    }

    /// Where the kind of a feed keeps its replicas, when its definition is among the Manifests.
    fn scale(&self, feed: &api::apps::Feed) -> Option<String> {
        let group = feed.api_version.split_once('/')?.0;
        let manifest = self.manifests_of(feed).into_iter().next()?;
        let plural = manifest.metadata.name.as_deref()?.split('.').next()?;
        let definition = api::apps::Feed {
            api_version: "apiextensions.k8s.io/v1".to_owned(),
            kind: "CustomResourceDefinition".to_owned(),
            namespace: String::new(),
            name: format!("{plural}.{group}"),
        };
        inventory::scale_of(&*self.template(&definition)?, &feed.api_version)
    }

    /// The autoscalers among the feeds of a divided Subscription.
    fn scalers(&self, subscription: &Subscription) -> Scalers {
        let feeds = &subscription.spec.feeds;
        if !subscription::divides(subscription) || !feeds.iter().any(shares::is_scaler) {
            return Scalers::new();
        }
        let templates: Vec<_> = feeds.iter().map(|feed| self.template(feed)).collect();
        shares::scalers(feeds, |feed| templates.get(feeds.iter().position(|other| other == feed)?)?.as_deref())
    }

    /// When the generated Localization of a share was made: it competes by age with people's own of priority 1000.
    fn share_created(&self, subscription: Option<&Subscription>, cluster: &render::ClusterFacts, feed: &api::apps::Feed) -> Option<i128> {
        let base = subscription::base_name(&subscription?.metadata, &cluster.namespace);
        let one = self.localizations.get(&cluster.namespace, &subscription::share_name(&base, feed))?;
        one.metadata.creation_timestamp.as_ref().map(|time| time.0.as_nanosecond())
    }

    /// A turn over a Manifest or HelmChart: labels of its users, protection.
    pub(crate) async fn feed_turn(&self, key: &(FeedKind, Key)) -> Result<Settled, TurnError> {
        let (kind, target, meta) = match key.0 {
            FeedKind::Manifest => match self.manifests.get_key(&key.1) {
                Some(manifest) => ("Manifest", render::manifest_target(&manifest), manifest.metadata.clone()),
                None => return Ok(Settled::QUIET),
            },
            FeedKind::Chart => match self.charts.get_key(&key.1) {
                Some(chart) => ("HelmChart", app_ref("HelmChart", &chart.metadata), chart.metadata.clone()),
                None => return Ok(Settled::QUIET),
            },
        };
        let bases = self.bases_of(&target);
        let users = self.subscriptions_of(&target);
        let live: Vec<_> = users.iter().filter(|s| s.metadata.deletion_timestamp.is_none()).collect();
        let mut subscriptions: BTreeSet<String> = bases.iter().map(|b| label_of(&b.metadata, label::SUBS_UID).to_owned()).filter(|uid| render::is_uid(uid)).collect();
        subscriptions.retain(|uid| !users.iter().any(|s| s.metadata.deletion_timestamp.is_some() && s.metadata.uid.as_ref() == Some(uid)));
        let seen = feeds::Seen {
            kind,
            meta,
            target,
            bases: bases.iter().filter(|b| b.metadata.deletion_timestamp.is_none()).filter_map(|b| b.metadata.uid.clone()).collect(),
            subscriptions,
            in_use_by: live.iter().map(|s| Key::of(&***s).to_string()).collect(),
        };
        Ok(settled(self.perform_in_order(&feeds::decide(&seen)).await?))
    }

    /// A turn over an override: its link to the feeds it is for.
    pub(crate) async fn override_turn(&self, key: &(OverrideKind, Key)) -> Result<Settled, TurnError> {
        let (kind, meta, feed, parsed) = match key.0 {
            OverrideKind::Local => match self.localizations.get_key(&key.1) {
                Some(one) => ("Localization", one.metadata.clone(), one.spec.feed.clone(), self.local(&one)),
                None => return Ok(Settled::QUIET),
            },
            OverrideKind::Global => match self.globalizations.get_key(&key.1) {
                Some(one) => ("Globalization", one.metadata.clone(), one.spec.feed.clone(), self.global(&one)),
                None => return Ok(Settled::QUIET),
            },
        };
        let targets: BTreeSet<String> = if feed.is_helm_chart() {
            self.charts_of(&feed).iter().filter_map(|c| c.metadata.uid.clone()).collect()
        } else {
            self.manifests_of(&feed).iter().filter_map(|m| m.metadata.uid.clone()).collect()
        };
        Ok(settled(self.perform_in_order(&feeds::link(kind, &meta, &feed.kind, &targets, &parsed.faults())).await?))
    }

    /// A turn over a Description of charts: its HelmReleases.
    pub(crate) async fn helm_turn(&self, key: &Key) -> Result<Settled, TurnError> {
        let Some(description) = self.descriptions.get_key(key) else {
            self.renders.forget(key);
            return Ok(Settled::QUIET);
        };
        if description.spec.deployer != api::apps::DeployerType::Helm {
            return Ok(Settled::QUIET);
        }
        // Until each chart in Git was read, nothing is known of what is wanted; of one that goes nothing is.
        let leaves = description.metadata.deletion_timestamp.is_some();
        let digests = match self.chart_digests(&description) {
            Some(digests) => digests,
            None if leaves => BTreeMap::new(),
            None => return Ok(Settled::QUIET),
        };
        let uid = description.metadata.uid.clone().unwrap_or_default();
        let mut taken = BTreeMap::new();
        for release in self.releases.in_namespace(&key.namespace) {
            if label_of(&release.metadata, label::CONFIG_UID) != uid {
                let name = release.spec.release_name.clone().unwrap_or_else(|| release.metadata.name.clone().unwrap_or_default());
                taken.insert((release.spec.target_namespace.clone(), name), format!("HelmRelease {}", Key::of(&*release)));
            }
        }
        let next = if leaves { Next::Done } else { self.share_pull_secrets(&description).await? };
        let mut seen = releases::Seen {
            releases: self.releases.by("description", &uid),
            replaced: base_of(&description.metadata).and_then(|base| self.bases.get(&key.namespace, base)).is_some_and(|base| self.is_replaced(&base.metadata)),
            description,
            taken,
            facts: self.render_facts(&key.namespace),
            digests,
            found: self.found_renders(key),
        };
        let mut changed = self.perform_in_order(&releases::decide(&seen)).await?;
        if leaves {
            return Ok(Settled { next, changed });
        }
        let (news, again) = self.render_releases(key, &seen.description).await?;
        if news {
            (seen.releases, seen.found) = (self.releases.by("description", &uid), self.found_renders(key));
            changed |= self.perform_in_order(&releases::decide(&seen)).await?;
        }
        let next = if let (Next::After(a), Next::After(b)) = (&next, &again) { Next::After(*a.min(b)) } else if matches!(next, Next::Done) { again } else { next };
        Ok(Settled { next, changed })
    }

    /// A turn over something that is being deleted: it does not wait for a cluster that cannot answer.
    pub(crate) async fn leaving_turn(&self, key: &(Leaving, Key)) -> Result<Settled, TurnError> {
        let steps = match key.0 {
            Leaving::Description => self.descriptions.get_key(&key.1).map(|d| lost::decide("Description", &d.metadata, self.reach(&d.metadata), false)),
            Leaving::Release => self.releases.get_key(&key.1).map(|r| {
                let untouched = r.status.as_ref().is_none_or(|status| status.phase.is_empty());
                lost::decide("HelmRelease", &r.metadata, self.reach(&r.metadata), untouched)
            }),
        };
        Ok(settled(self.perform_in_order(&steps.unwrap_or_default()).await?))
    }

    /// A turn over the status of a Subscription: what its clusters say, in sum.
    pub(crate) async fn status_turn(&self, key: &Key) -> Result<Settled, TurnError> {
        let Some(object) = self.subscriptions.get_key(key) else {
            self.summed.lock().remove(key);
            return Ok(Settled::QUIET);
        };
        let status = object.status.clone().unwrap_or_default();
        // Nothing to say before the scheduler has spoken, or while it goes.
        if object.metadata.deletion_timestamp.is_some() || (object.status.is_none() || (status.binding_clusters.is_empty() && status.spec_hash == 0)) {
            return Ok(Settled::QUIET);
        }
        let bound = u32::try_from(status.binding_clusters.len()).unwrap_or(u32::MAX);
        let pause = STATUS_PAUSE_PER_1000 * bound / 1000;
        let now = self.clock.monotonic();
        let last = self.summed.lock().get(key).copied();
        if let Some(wait) = last.and_then(|last| (last + pause).checked_sub(now)).filter(|wait| !wait.is_zero()) {
            return Ok(Settled { next: Next::After(wait), changed: false });
        }
        let patch = {
            let told = self.told.lock();
            let uid = object.metadata.uid.clone().unwrap_or_default();
            let bases = self.bases.by("subscription", &uid);
            let by_namespace: BTreeMap<&str, &Arc<api::apps::Base>> = bases
                .iter()
                .filter(|base| subscription::made_for(&base.metadata) == uid)
                .map(|base| (base.metadata.namespace.as_deref().unwrap_or_default(), base))
                .collect();
            let mut held = Vec::new();
            let mut absent = Vec::new();
            for bound in &status.binding_clusters {
                let (namespace, name) = api::object::split_key(bound);
                let Some(cluster) = self.clusters.get(namespace, name) else {
                    absent.push(bound.clone());
                    continue;
                };
                let base = by_namespace.get(namespace).copied();
                let base_name = base.and_then(|base| base.metadata.name.clone()).unwrap_or_default();
                let generic = base.and_then(|_| self.descriptions.get(namespace, &descriptions::generic_name(&base_name)));
                let helm = base.and_then(|_| self.descriptions.get(namespace, &descriptions::helm_name(&base_name)));
                let releases = helm.as_ref().and_then(|d| d.metadata.uid.as_deref()).map(|uid| self.releases.by("description", uid)).unwrap_or_default();
                held.push((cluster, base, generic, helm, releases));
            }
            let clusters: Vec<ClusterSeen<'_>> = held
                .iter()
                .map(|(cluster, base, generic, helm, releases)| {
                    let failed = |d: &Option<Arc<api::apps::Description>>| {
                        d.as_ref().and_then(|d| d.status.as_ref()).is_some_and(|s| s.phase == Some(api::apps::DescriptionPhase::Failure))
                    };
                    let why = [generic, helm].into_iter().find(|d| failed(d)).and_then(|d| d.as_ref()).and_then(|d| d.status.as_ref());
                    ClusterSeen {
                        id: &cluster.spec.cluster_id,
                        name: cluster.metadata.name.as_deref().unwrap_or_default(),
                        objects: generic.as_ref().and_then(|d| d.status.as_ref()).map_or(&[], |s| &s.manifest_statuses),
                        releases: helm
                            .iter()
                            .flat_map(|helm| helm.spec.charts.iter().map(move |chart| (helm, chart)))
                            .filter_map(|(helm, chart)| {
                                let name = releases::release_name(helm.metadata.name.as_deref().unwrap_or_default(), &chart.namespace, &chart.name);
                                let release = releases.iter().find(|r| r.metadata.name.as_deref() == Some(&name))?;
                                Some(((chart.namespace.as_str(), chart.name.as_str()), release.status.as_ref()?.phase.as_str()))
                            })
                            .collect(),
                        failed: why.map(|s| s.reason.as_str()),
                        report: base.and_then(|base| told.get(&Key::of(&**base))).map(|told| &told.report),
                        unrendered: releases.iter().find_map(|release| plan::rendered::fault(release).map(|why| (release.spec.options.chart.clone(), why))),
                    }
                })
                .collect();
            let (statuses, completed) = aggregate::statuses(&object.spec.feeds, &clusters);
            let mut conditions = status.conditions.clone();
            let now = Time(whole_seconds(self.clock.now()));
            aggregate::set_conditions(&mut conditions, &object, &statuses, &clusters, &absent, &now);
            aggregate::patch(&object, &statuses, completed, &conditions)
        };
        let Some(patch) = patch else { return Ok(Settled::QUIET) };
        let step = Step::PatchStatus { at: app_ref("Subscription", &object.metadata), patch, only_if: Version::exactly(&object.metadata) };
        let changed = self.perform_in_order(&[step]).await?;
        self.summed.lock().insert(key.clone(), self.clock.monotonic());
        Ok(settled(changed))
    }
}

/// Times in the API have whole seconds.
fn whole_seconds(now: jiff::Timestamp) -> jiff::Timestamp {
    jiff::Timestamp::from_second(now.as_second()).unwrap_or(now)
}
