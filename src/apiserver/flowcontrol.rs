//! Priority and fairness: the FlowSchemas and priority levels a server starts with, and which of them a request belongs to.
//!
//! The table of flows is rebuilt when one of these objects is written, and read without a lock. Requests are told their flow in
//! the headers that clients know, and take seats of its priority level (see `fairness`).

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use http::{HeaderMap, HeaderName, HeaderValue};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::auth::{Identity, at, split_service_account, strings, text};
use crate::core::Core;
use crate::fairness::{Fairness, Limits, Permit, Queuing, Refusal, Standing};
use crate::object;
use crate::path::Info;
use crate::query::Query;

/// Group of these kinds.
pub(crate) const GROUP: &str = "flowcontrol.apiserver.k8s.io";
/// Requests that a real server carries at a time: what the shares of priority levels are shares of.
const SEATS: f64 = 600.0;

static SCHEMA_HEADER: HeaderName = HeaderName::from_static("x-kubernetes-pf-flowschema-uid");
static LEVEL_HEADER: HeaderName = HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid");

/// One FlowSchema, ready to be compared with requests.
#[derive(Debug)]
pub(crate) struct Flow {
    schema: HeaderValue,
    level: HeaderValue,
    precedence: i64,
    name: String,
    level_name: String,
    distinguish: Option<Distinguish>,
    rules: Vec<Rule>,
}

/// How the requests of a FlowSchema are told apart.
#[derive(Debug, Clone, Copy)]
enum Distinguish {
    User,
    Namespace,
}

impl Flow {
    /// Tells a client the flow.
    pub(crate) fn tell(&self, headers: &mut HeaderMap) {
        headers.insert(&SCHEMA_HEADER, self.schema.clone());
        headers.insert(&LEVEL_HEADER, self.level.clone());
    }

    /// Stands for the flow within its priority level.
    fn hash(&self, who: &Identity, info: &Info) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.name.hash(&mut hasher);
        match self.distinguish {
            Some(Distinguish::User) => who.user.hash(&mut hasher),
            Some(Distinguish::Namespace) => info.namespace.hash(&mut hasher),
            None => {}
        }
        hasher.finish()
    }
}

#[derive(Debug)]
enum Subject {
    User(String),
    Group(String),
    Account { namespace: String, name: String },
}

#[derive(Debug)]
struct Rule {
    subjects: Vec<Subject>,
    resources: Vec<ResourceRule>,
    paths: Vec<PathRule>,
}

#[derive(Debug)]
struct ResourceRule {
    verbs: Vec<String>,
    groups: Vec<String>,
    resources: Vec<String>,
    namespaces: Vec<String>,
    cluster: bool,
}

#[derive(Debug)]
struct PathRule {
    verbs: Vec<String>,
    paths: Vec<String>,
}

fn has(list: &[String], wanted: &str) -> bool {
    list.iter().any(|item| item == "*" || item == wanted)
}

impl Subject {
    fn read(subject: &Value) -> Option<Self> {
        match text(subject, &["kind"]) {
            "User" => Some(Self::User(text(subject, &["user", "name"]).to_owned())),
            "Group" => Some(Self::Group(text(subject, &["group", "name"]).to_owned())),
            "ServiceAccount" => {
                let part = |name| text(subject, &["serviceAccount", name]).to_owned();
                Some(Self::Account { namespace: part("namespace"), name: part("name") })
            }
            _ => None,
        }
    }

    fn is(&self, who: &Identity) -> bool {
        match self {
            Self::User(name) => name == "*" || *name == who.user,
            Self::Group(name) => name == "*" || who.groups.contains(name),
            Self::Account { namespace, name } => split_service_account(&who.user).is_some_and(|(ns, n)| ns == namespace && (name == "*" || n == name)),
        }
    }
}

impl Rule {
    fn read(rule: &Value) -> Self {
        let each = |field: &str| at(rule, &[field]).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default().iter();
        Self {
            subjects: each("subjects").filter_map(Subject::read).collect(),
            resources: each("resourceRules")
                .map(|r| ResourceRule {
                    verbs: strings(r, &["verbs"]),
                    groups: strings(r, &["apiGroups"]),
                    resources: strings(r, &["resources"]),
                    namespaces: strings(r, &["namespaces"]),
                    cluster: at(r, &["clusterScope"]) == Some(&Value::Bool(true)),
                })
                .collect(),
            paths: each("nonResourceRules").map(|r| PathRule { verbs: strings(r, &["verbs"]), paths: strings(r, &["nonResourceURLs"]) }).collect(),
        }
    }

    fn covers(&self, who: &Identity, info: &Info, path: &str) -> bool {
        if !self.subjects.iter().any(|subject| subject.is(who)) {
            return false;
        }
        if info.resource.is_empty() {
            let fits = |wanted: &String| match wanted.strip_suffix('*') {
                Some(prefix) => path.starts_with(prefix),
                None => path == wanted,
            };
            return self.paths.iter().any(|rule| has(&rule.verbs, info.verb) && rule.paths.iter().any(fits));
        }
        let full = || if info.subresource.is_empty() { info.resource.clone() } else { format!("{}/{}", info.resource, info.subresource) };
        self.resources.iter().any(|rule| {
            has(&rule.verbs, info.verb)
                && has(&rule.groups, &info.group)
                && (rule.resources.iter().any(|r| r == "*") || has(&rule.resources, &full()))
                && if info.namespace.is_empty() { rule.cluster } else { has(&rule.namespaces, &info.namespace) }
        })
    }
}

/// The flows of one server; none until the first object is written.
#[derive(Debug, Default)]
pub(crate) struct Flows {
    table: ArcSwapOption<Vec<Arc<Flow>>>,
    building: Mutex<()>,
    fairness: Fairness,
    refused: Mutex<BTreeMap<(String, String, Refusal), u64>>,
}

/// Longest time that a request without a time of its own takes; a quarter of it may be spent waiting for a seat.
const REQUEST_TIME: Duration = Duration::from_secs(60);
/// Objects of a list that count as one seat, and most seats of a list.
const PER_SEAT: usize = 100;
const WIDEST: usize = 10;

impl Flows {
    /// The flow of a request.
    pub(crate) fn of(&self, who: &Identity, info: &Info, path: &str) -> Option<Arc<Flow>> {
        let table = self.table.load();
        table.as_ref()?.iter().find(|flow| flow.rules.iter().any(|rule| rule.covers(who, info, path))).cloned()
    }

    /// The limited priority levels as they stand.
    pub(crate) fn standing(&self) -> Vec<Standing> {
        self.fairness.standing()
    }

    /// How many requests were refused, by FlowSchema, priority level and reason.
    pub(crate) fn refused(&self) -> Vec<((String, String, Refusal), u64)> {
        self.refused.lock().iter().map(|(key, count)| (key.clone(), *count)).collect()
    }
}

/// Requests that stay open by their nature; of these only watches take a seat, while they begin.
fn stays(info: &Info) -> bool {
    info.verb == "proxy" || matches!(info.subresource.as_str(), "attach" | "exec" | "proxy" | "log" | "portforward")
}

/// Seats that a request takes: a long list takes several.
fn width(core: &Core, info: &Info, query: &Query) -> u64 {
    if info.verb != "list" || query.get("fieldSelector").is_some_and(|f| f.contains("metadata.name=")) {
        return 1;
    }
    let routes = core.routes.load();
    let stored = routes.find(&info.group, &info.version, &info.resource).map_or(0, |resource| core.store.count(&resource.table));
    let limit = query.number("limit").ok().flatten().and_then(|n| usize::try_from(n).ok()).filter(|n| *n > 0);
    stored.min(limit.unwrap_or(stored)).div_ceil(PER_SEAT).clamp(1, WIDEST) as u64
}

/// Takes seats for a request, waiting for them if need be; refused, it is to come again later.
pub(crate) async fn enter(core: &Core, flow: &Flow, who: &Identity, info: &Info, query: &Query) -> Result<Option<Permit>, Refusal> {
    if stays(info) {
        return Ok(None);
    }
    let own = query.text("timeout").filter(|_| info.verb != "watch").and_then(crate::protobuf::parse_duration);
    let within = own.and_then(|nanoseconds| u64::try_from(nanoseconds).ok()).map_or(REQUEST_TIME, Duration::from_nanos) / 4;
    let entered = core.flows.fairness.enter(&flow.level_name, flow.hash(who, info), width(core, info, query), within).await;
    if let Err(why) = &entered {
        *core.flows.refused.lock().entry((flow.name.clone(), flow.level_name.clone(), *why)).or_default() += 1;
    }
    entered
}

/// Reads the objects again. Called when one of them was written.
pub(crate) fn changed(core: &Core) {
    // One at a time, so that the last to finish has read what was written last.
    let _building = core.flows.building.lock();
    let read = |plural: &str| {
        let mut all = Vec::new();
        core.store.scan(&format!("{GROUP}/{plural}"), "", &mut |entry| all.push(object::decode(&entry.value)));
        all
    };
    let levels = read("prioritylevelconfigurations");
    let mut flows: Vec<Arc<Flow>> = read("flowschemas").iter().filter_map(|schema| flow(schema, &levels)).map(Arc::new).collect();
    flows.sort_by(|a, b| (a.precedence, &a.name).cmp(&(b.precedence, &b.name)));
    core.flows.fairness.set(limits(&levels));
    core.flows.table.store(Some(Arc::new(flows)));
}

/// A FlowSchema whose priority level is missing takes no requests.
fn flow(schema: &Value, levels: &[Value]) -> Option<Flow> {
    let wanted = text(schema, &["spec", "priorityLevelConfiguration", "name"]);
    let level = levels.iter().find(|level| object::name(level) == wanted)?;
    let header = |object: &Value| HeaderValue::from_str(object::uid(object)).ok();
    Some(Flow {
        schema: header(schema)?,
        level: header(level)?,
        precedence: at(schema, &["spec", "matchingPrecedence"]).and_then(Value::as_i64).unwrap_or(1000),
        name: object::name(schema).to_owned(),
        level_name: wanted.to_owned(),
        distinguish: match text(schema, &["spec", "distinguisherMethod", "type"]) {
            "ByUser" => Some(Distinguish::User),
            "ByNamespace" => Some(Distinguish::Namespace),
            _ => None,
        },
        rules: at(schema, &["spec", "rules"]).and_then(Value::as_array).map(|rules| rules.iter().map(Rule::read).collect()).unwrap_or_default(),
    })
}

fn shares(level: &Value) -> f64 {
    ["limited", "exempt"].iter().find_map(|side| at(level, &["spec", side, "nominalConcurrencyShares"])).and_then(Value::as_f64).unwrap_or(0.0)
}

/// What each limited priority level may carry.
fn limits(levels: &[Value]) -> BTreeMap<String, Limits> {
    let total: f64 = levels.iter().map(shares).sum();
    let number = |level: &Value, path: &[&str]| at(level, path).and_then(Value::as_u64);
    let one = |level: &Value| {
        let seats = if total > 0.0 { (SEATS * shares(level) / total).ceil() } else { 0.0 };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between zero and all seats")]
        let seats = seats as u64;
        let part = |percent: u64| (seats * percent + 50) / 100;
        let size = |name: &str, usual: u64| usize::try_from(number(level, &["spec", "limited", "limitResponse", "queuing", name]).unwrap_or(usual)).unwrap_or(usize::MAX).clamp(1, 10_000_000);
        let queued = text(level, &["spec", "limited", "limitResponse", "type"]) == "Queue";
        let queues = queued.then(|| Queuing { queues: size("queues", 64), hand: size("handSize", 8), length: size("queueLengthLimit", 50) });
        let lendable = part(number(level, &["spec", "limited", "lendablePercent"]).unwrap_or(0)).min(seats);
        Limits { seats, lendable, borrow: number(level, &["spec", "limited", "borrowingLimitPercent"]).map(part), queues }
    };
    let limited = levels.iter().filter(|level| text(level, &["spec", "type"]) == "Limited");
    limited.map(|level| (object::name(level).to_owned(), one(level))).collect()
}

/// The objects that a server starts with, as plural and object.
pub(crate) fn defaults() -> Vec<(&'static str, Value)> {
    let metadata = |name: &str| json!({"name": name, "annotations": {"apf.kubernetes.io/autoupdate-spec": "true"}});
    let mut all = vec![(
        "prioritylevelconfigurations",
        json!({"apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "PriorityLevelConfiguration", "metadata": metadata("exempt"),
            "spec": {"type": "Exempt", "exempt": {"nominalConcurrencyShares": 0, "lendablePercent": 0}}}),
    )];
    // Name, shares, per cent lent, queues and hand size (none: requests beyond the limit are refused).
    for (name, shares, lendable, queues) in [
        ("catch-all", 5, 0, None),
        ("global-default", 20, 50, Some((128, 6))),
        ("leader-election", 10, 0, Some((16, 4))),
        ("node-high", 40, 25, Some((64, 6))),
        ("system", 30, 33, Some((64, 6))),
        ("workload-high", 40, 50, Some((128, 6))),
        ("workload-low", 100, 90, Some((128, 6))),
    ] {
        let response = match queues {
            None => json!({"type": "Reject"}),
            Some((queues, hand)) => json!({"type": "Queue", "queuing": {"queues": queues, "handSize": hand, "queueLengthLimit": 50}}),
        };
        all.push((
            "prioritylevelconfigurations",
            json!({"apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "PriorityLevelConfiguration", "metadata": metadata(name),
                "spec": {"type": "Limited", "limited": {"nominalConcurrencyShares": shares, "lendablePercent": lendable, "limitResponse": response}}}),
        ));
    }
    let group = |name: &str| json!({"kind": "Group", "group": {"name": name}});
    let user = |name: &str| json!({"kind": "User", "user": {"name": name}});
    let account = |namespace: &str| json!({"kind": "ServiceAccount", "serviceAccount": {"namespace": namespace, "name": "*"}});
    let everybody = || vec![group("system:unauthenticated"), group("system:authenticated")];
    let resources = |groups: &[&str], resources: &[&str], verbs: &[&str], cluster: bool| {
        let mut rule = json!({"apiGroups": groups, "resources": resources, "verbs": verbs, "namespaces": ["*"]});
        if cluster {
            rule["clusterScope"] = json!(true);
        }
        rule
    };
    let anything = || resources(&["*"], &["*"], &["*"], true);
    let leases = |verbs: &[&str]| resources(&["coordination.k8s.io"], &["leases"], verbs, false);
    let paths = |paths: &[&str], verbs: &[&str]| vec![json!({"nonResourceURLs": paths, "verbs": verbs})];
    let all_paths = || paths(&["*"], &["*"]);
    // Name, precedence, priority level, how requests of one flow are told apart, subjects, resource rules, path rules.
    let schemas = [
        ("exempt", 1, "exempt", "", vec![group("system:masters")], vec![anything()], all_paths()),
        ("probes", 2, "exempt", "", everybody(), Vec::new(), paths(&["/healthz", "/readyz", "/livez"], &["get"])),
        (
            "system-leader-election",
            100,
            "leader-election",
            "ByUser",
            vec![user("system:kube-controller-manager"), user("system:kube-scheduler"), account("kube-system")],
            vec![leases(&["get", "create", "update"])],
            Vec::new(),
        ),
        (
            "system-node-high",
            400,
            "node-high",
            "ByUser",
            vec![group("system:nodes")],
            vec![resources(&[""], &["nodes", "nodes/status"], &["*"], true), leases(&["*"])],
            Vec::new(),
        ),
        ("system-nodes", 500, "system", "ByUser", vec![group("system:nodes")], vec![anything()], all_paths()),
        ("kube-controller-manager", 800, "workload-high", "ByNamespace", vec![user("system:kube-controller-manager")], vec![anything()], all_paths()),
        ("kube-scheduler", 800, "workload-high", "ByNamespace", vec![user("system:kube-scheduler")], vec![anything()], all_paths()),
        ("kube-system-service-accounts", 900, "workload-high", "ByNamespace", vec![account("kube-system")], vec![anything()], all_paths()),
        ("service-accounts", 9000, "workload-low", "ByUser", vec![group("system:serviceaccounts")], vec![anything()], all_paths()),
        ("global-default", 9900, "global-default", "ByUser", everybody(), vec![anything()], all_paths()),
        ("catch-all", 10_000, "catch-all", "ByUser", everybody(), vec![anything()], all_paths()),
    ];
    for (name, precedence, level, method, subjects, resources, paths) in schemas {
        let mut rule = json!({"subjects": subjects});
        if !resources.is_empty() {
            rule["resourceRules"] = json!(resources);
        }
        if !paths.is_empty() {
            rule["nonResourceRules"] = json!(paths);
        }
        let mut spec = json!({"priorityLevelConfiguration": {"name": level}, "matchingPrecedence": precedence, "rules": [rule]});
        if !method.is_empty() {
            spec["distinguisherMethod"] = json!({"type": method});
        }
        all.push(("flowschemas", json!({"apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema", "metadata": metadata(name), "spec": spec})));
    }
    all
}

/// Whether a server may not be without the object.
pub(crate) fn mandatory(name: &str) -> bool {
    matches!(name, "exempt" | "catch-all")
}
