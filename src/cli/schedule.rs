//! `anabranch schedule`: what the scheduler would do with a fleet if something changed, touching nothing.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use api::Kind as _;
use api::apps::{FeedInventory, Subscription};
use api::clusters::ManagedCluster;
use api::object;
use clap::Args as ClapArgs;
use cluster::predictor::{Place, Predictors};
use futures::StreamExt as _;
use kube::{Api, Client};
use plan::placement::Framework;
use plan::placement::what_if::{Change, Effect, Fleet, Free, Outlook, explain, questions, what_if};
use serde_json::Value;
use program::exit::{Hinted, print};

use crate::demo::table;

/// Exit code for "something changes".
const CHANGES: u8 = 2;
/// The longest wait for one predictor.
const PATIENCE: Duration = Duration::from_secs(20);
/// Predictors asked at once.
const AT_ONCE: usize = 32;

/// Arguments.
#[derive(Debug, ClapArgs)]
pub(crate) struct ScheduleArgs {
    /// Changes to try, in order: join=NS/NAME[:KEY=VALUE,...], remove=NS/NAME, drain=NS/NAME, cordon=NS/NAME, lose=NS/NAME,
    /// label=NS/NAME:KEY=VALUE (KEY- removes), replicas=NS/NAME[:FEED]=N
    #[arg(long = "what-if", value_name = "CHANGE")]
    pub(crate) changes: Vec<String>,
    /// Show the decision about one Subscription, `NAMESPACE/NAME`, after the changes
    #[arg(long, value_name = "SUBSCRIPTION")]
    pub(crate) explain: Option<String>,
    /// The fleet as a file (`kubectl get mcls,sub,finv -A -o yaml`); the parent is asked when left out
    #[arg(long, value_name = "FILE")]
    pub(crate) fleet: Option<PathBuf>,
    /// Kubeconfig of the parent; the Pod's ServiceAccount when left out
    #[arg(long, env = "KUBECONFIG", value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Configuration of the scheduler, as it has it itself
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Assumed free replicas: `N` for every cluster, or `NS/NAME=N` for one
    #[arg(long, value_name = "N", value_delimiter = ',')]
    pub(crate) free: Vec<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Runs the command.
pub(crate) async fn run(args: ScheduleArgs) -> Result<ExitCode> {
    let framework = framework(args.config.as_deref())?;
    let changes = args.changes.iter().map(|text| Change::parse(text)).collect::<Result<Vec<_>, _>>()?;
    let mut free = assumptions(&args.free)?;
    let mut fleet = match &args.fleet {
        Some(path) => saved(&std::fs::read_to_string(path).with_context(|| format!("read the fleet {}", path.display()))?)
            .with_context(|| format!("read the fleet {}", path.display()))?,
        None => {
            let client = program::part::child_of(args.kubeconfig.as_deref()).await?.client;
            let fleet = live(&client).await?;
            if args.free.is_empty() {
                free.answered = ask(client, &fleet, args.explain.as_deref()).await;
            }
            fleet
        }
    };
    let now = k8s_openapi::jiff::Timestamp::now();
    if let Some(key) = &args.explain {
        for change in &changes {
            change.apply(&mut fleet, now)?;
        }
        let decision = match explain(&fleet, key, &framework, &free, now) {
            Some(Ok(decision)) => decision,
            Some(Err(name)) => {
                let served: Vec<&str> = framework.profiles.keys().map(String::as_str).collect();
                let message = format!("no scheduler named {name:?} has decided here; this configuration serves {}", served.join(", "));
                bail!(Hinted { message, hint: "correct spec.schedulerName, or give --config with that scheduler's file".to_owned() })
            }
            None => bail!(Hinted { message: format!("there is no Subscription {key}"), hint: "kubectl get subscriptions -A".to_owned() }),
        };
        if args.json {
            print(&format!("{}\n", serde_json::to_string_pretty(&scheduler::records::Record::from(&decision))?));
        } else {
            print(&format!("{}: {}\n{}", decision.reason, decision.message, decision.explain.text()));
        }
        return Ok(ExitCode::SUCCESS);
    }
    let outlook = what_if(&fleet, &changes, &framework, &free, now)?;
    print(&if args.json { format!("{}\n", serde_json::to_string_pretty(&outlook)?) } else { text(&outlook) });
    Ok(if outlook.effects.is_empty() { ExitCode::SUCCESS } else { CHANGES.into() })
}

/// The profiles of a configuration file, or the default ones.
pub(crate) fn framework(path: Option<&std::path::Path>) -> Result<Framework> {
    let Some(path) = path else { return Ok(Framework::standard()) };
    let text = std::fs::read_to_string(path).with_context(|| format!("read the scheduler configuration {}", path.display()))?;
    let value = manifest::read::parse(&text, &manifest::Limits::FILE).with_context(|| format!("read the scheduler configuration {}", path.display()))?;
    let config = plan::placement::Config::read(&value).with_context(|| path.display().to_string())?;
    Framework::build(&config, &[]).with_context(|| path.display().to_string())
}

fn assumptions(words: &[String]) -> Result<Free> {
    let mut free = Free::default();
    for word in words {
        let number = |text: &str| text.parse::<i32>().with_context(|| format!("read the assumption {word:?}: expected N or NAMESPACE/NAME=N"));
        match word.split_once('=') {
            Some((cluster, text)) => _ = free.by_cluster.insert(cluster.to_owned(), number(text)?),
            None => free.otherwise = Some(number(word)?),
        }
    }
    Ok(free)
}

/// A fleet from documents: single objects and lists.
fn saved(text: &str) -> Result<Fleet> {
    let mut fleet = Fleet::default();
    for document in manifest::parse_all(text, &manifest::Limits::FILE)? {
        let items = document.value.get("items").and_then(Value::as_array).cloned();
        for value in items.unwrap_or_else(|| vec![document.value]) {
            let name = object::name(&value).to_owned();
            match object::text(&value, "kind") {
                "ManagedCluster" => fleet.clusters.push(ManagedCluster::from_object(&value).with_context(|| format!("read the cluster {name}"))?),
                "Subscription" => fleet.subscriptions.push(Subscription::from_object(&value).with_context(|| format!("read the Subscription {name}"))?),
                "FeedInventory" => fleet.inventories.push(FeedInventory::from_object(&value).with_context(|| format!("read the FeedInventory {name}"))?),
                _ => {}
            }
        }
    }
    Ok(fleet)
}

async fn live(client: &Client) -> Result<Fleet> {
    let everything = kube::api::ListParams::default();
    let clusters: Api<ManagedCluster> = Api::all(client.clone());
    let subscriptions: Api<Subscription> = Api::all(client.clone());
    let inventories: Api<FeedInventory> = Api::all(client.clone());
    Ok(Fleet {
        clusters: clusters.list(&everything).await.context("list the clusters")?.items,
        subscriptions: subscriptions.list(&everything).await.context("list the Subscriptions")?.items,
        inventories: inventories.list(&everything).await.context("list the FeedInventories")?.items,
    })
}

/// Asks the clusters' predictors, which changes nothing anywhere.
async fn ask(client: Client, fleet: &Fleet, only: Option<&str>) -> BTreeMap<(String, String), Result<i32, String>> {
    let predictors = Predictors::new(client);
    let asks = questions(fleet, only).into_iter().map(|question| {
        let predictors = &predictors;
        async move {
            let place = Place { cluster_id: &question.id, address: &question.predictor.address, direct: question.predictor.direct, tunnel: question.tunnel };
            let answer = predictors.total(place, question.body, PATIENCE).await;
            ((question.cluster, question.feed), answer)
        }
    });
    futures::stream::iter(asks).buffer_unordered(AT_ONCE).collect().await
}

/// The outlook as a table.
fn text(outlook: &Outlook) -> String {
    let mut out = String::new();
    if outlook.effects.is_empty() {
        out.push_str("nothing moves\n");
    } else {
        let row = |effect: &Effect| {
            let words = |number: i32| match (effect.feed.is_empty(), number) {
                (true, 0) => "not bound".to_owned(),
                (true, _) => "bound".to_owned(),
                (false, number) => number.to_string(),
            };
            let feed = if effect.feed.is_empty() { "-" } else { &effect.feed };
            [effect.subscription.clone(), effect.cluster.clone(), feed.to_owned(), words(effect.before), words(effect.after)]
        };
        let mut rows = vec![["SUBSCRIPTION", "CLUSTER", "FEED", "BEFORE", "AFTER"].map(str::to_owned)];
        rows.extend(outlook.effects.iter().map(row));
        out.push_str(&table(&rows));
    }
    for (subscription, remarks) in &outlook.remarks {
        for remark in remarks {
            out.push_str(&format!("{subscription}: {remark}\n"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLEET: &str = "\
apiVersion: v1
kind: List
items:
- apiVersion: clusters.clusternet.io/v1beta1
  kind: ManagedCluster
  metadata: {name: a, namespace: ns, labels: {team: red}}
  spec: {clusterId: a, syncMode: Pull}
- apiVersion: clusters.clusternet.io/v1beta1
  kind: ManagedCluster
  metadata: {name: b, namespace: ns, labels: {team: red}}
  spec: {clusterId: b, syncMode: Pull}
---
apiVersion: apps.clusternet.io/v1alpha1
kind: Subscription
metadata: {name: split, namespace: fleet}
spec:
  schedulingStrategy: Dividing
  dividingScheduling: {type: Static}
  subscribers: [{clusterAffinity: {matchLabels: {team: red}}, weight: 1}]
  feeds: [{apiVersion: apps/v1, kind: Deployment, namespace: web, name: front}]
---
apiVersion: apps.clusternet.io/v1alpha1
kind: FeedInventory
metadata: {name: split, namespace: fleet}
spec:
  feeds: [{apiVersion: apps/v1, kind: Deployment, namespace: web, name: front, desiredReplicas: 6, replicaJsonPath: /spec/replicas}]
";

    fn shown(changes: &[&str]) -> String {
        let changes: Vec<Change> = changes.iter().map(|text| Change::parse(text).expect("a change")).collect();
        let fleet = saved(FLEET).expect("reads");
        text(&what_if(&fleet, &changes, &Framework::standard(), &Free::default(), k8s_openapi::jiff::Timestamp::UNIX_EPOCH).expect("fits"))
    }

    #[test]
    fn changes_are_shown_as_a_table() {
        assert_eq!(shown(&[]), "nothing moves\n");
        let text = shown(&["join=ns/c:team=red"]);
        let words: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(words[0], ["SUBSCRIPTION", "CLUSTER", "FEED", "BEFORE", "AFTER"]);
        assert_eq!(words[1], ["fleet/split", "ns/a", "apps/v1/Deployment/web/front", "3", "2"]);
        assert_eq!(words[3], ["fleet/split", "ns/c", "-", "not", "bound", "bound"]);
        assert!(shown(&["drain=ns/a"]).contains("ns/b"), "replicas move");
    }

    #[test]
    fn assumptions_are_read() {
        let free = assumptions(&["5".to_owned(), "ns/a=2".to_owned()]).expect("reads");
        assert_eq!((free.otherwise, free.by_cluster.get("ns/a")), (Some(5), Some(&2)));
        assert!(assumptions(&["many".to_owned()]).is_err());
    }
}
