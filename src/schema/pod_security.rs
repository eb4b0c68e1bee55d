//! The Pod Security Standards: what a Pod does that a level does not allow, in the words of a real server.
//!
//! Levels and checks are those that Kubernetes publishes; a check says from which version on it holds, and in which it was
//! widened, since a namespace may ask for the standards of an older version.

use crate::native::{get, list, map, text};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt;

/// How much a Pod may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Everything.
    Privileged,
    /// Nothing that is known to lead out of the Pod.
    Baseline,
    /// Only what hardened workloads need.
    Restricted,
}

impl Level {
    /// A level by its name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "privileged" => Some(Self::Privileged),
            "baseline" => Some(Self::Baseline),
            "restricted" => Some(Self::Restricted),
            _ => None,
        }
    }
}

/// The standards of a version; none is the latest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version(Option<u32>);

impl Version {
    /// The newest.
    pub const LATEST: Self = Self(None);

    /// `latest`, or `v1.` and a number.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "latest" => Some(Self(None)),
            _ => {
                let minor = text.strip_prefix("v1.")?;
                let plain = minor == "0" || (!minor.starts_with('0') && minor.bytes().all(|b| b.is_ascii_digit()));
                minor.parse().ok().filter(|_| plain).map(|n| Self(Some(n)))
            }
        }
    }

    fn since(self, minor: u32) -> bool {
        self.0.is_none_or(|own| own >= minor)
    }
}

/// A level in a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standard {
    /// How strict.
    pub level: Level,
    /// As of when.
    pub version: Version,
}

impl fmt::Display for Standard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.level {
            Level::Privileged => "privileged:",
            Level::Baseline => "baseline:",
            Level::Restricted => "restricted:",
        })?;
        match self.version.0 {
            None => f.write_str("latest"),
            Some(minor) => write!(f, "v1.{minor}"),
        }
    }
}

/// One thing that is not allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// What, such as `host namespaces`.
    pub what: String,
    /// By whom, and what else should be there.
    pub why: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.what, self.why)
    }
}

/// Everything that a Pod (or a template) does against a standard, in the order in which a server says it.
#[must_use]
pub fn judge(standard: Standard, pod: &Value) -> Vec<Violation> {
    let pod = Pod::read(pod);
    let version = standard.version;
    let mut out = Vec::new();
    if standard.level == Level::Privileged {
        return out;
    }
    let strict = standard.level == Level::Restricted;
    let mut say = |found: Option<(&str, String)>| out.extend(found.map(|(what, why)| Violation { what: what.to_owned(), why }));
    say(pod.app_armor());
    if !(strict && version.since(22)) {
        say(pod.capabilities());
    }
    say(pod.host_namespaces());
    if !strict {
        say(pod.host_paths());
    }
    say(pod.host_ports());
    if version.since(34) {
        say(pod.probe_hosts());
    }
    say(pod.privileged());
    say(pod.proc_mount(!strict && version.since(35)));
    say(pod.se_linux(version));
    if !strict && version.since(19) {
        say(pod.seccomp_unconfined());
    }
    say(pod.sysctls(version));
    say(pod.host_process());
    if !strict {
        return out;
    }
    let windows = version.since(25) && text(pod.spec, "/os/name") == "windows";
    // Root in a user namespace of its own is nobody outside of it.
    let mapped = version.since(35) && pod.spec.get("hostUsers") == Some(&json!(false));
    if version.since(8) && !windows {
        say(pod.escalation());
    }
    if version.since(22) && !windows {
        say(pod.all_dropped());
    }
    say(pod.volume_types());
    if !mapped {
        say(pod.non_root());
        if version.since(23) {
            say(pod.root_user());
        }
    }
    if version.since(19) && !windows {
        say(pod.seccomp_set());
    }
    out
}

type Found = Option<(&'static str, String)>;

struct Pod<'a> {
    metadata: &'a Value,
    spec: &'a Value,
    /// All containers, those that begin first.
    containers: Vec<&'a Value>,
}

fn quoted<T: AsRef<str>>(names: impl IntoIterator<Item = T>) -> String {
    names.into_iter().map(|n| format!("\"{}\"", n.as_ref())).collect::<Vec<_>>().join(", ")
}

/// `one` or `many`.
fn plural(count: usize, one: &'static str, many: &'static str) -> &'static str {
    if count == 1 { one } else { many }
}

/// `container "a"` or `containers "a", "b"`.
fn named(names: &[&str]) -> String {
    format!("{} {}", plural(names.len(), "container", "containers"), quoted(names))
}

/// The Pod and these of its containers, if any.
fn setters(pod: bool, names: &[&str]) -> Option<String> {
    match (pod, names) {
        (true, []) => Some("pod".to_owned()),
        (true, names) => Some(format!("pod and {}", named(names))),
        (false, []) => None,
        (false, names) => Some(named(names)),
    }
}

impl<'a> Pod<'a> {
    fn read(pod: &'a Value) -> Self {
        let spec = &pod["spec"];
        let containers = ["/initContainers", "/containers", "/ephemeralContainers"].iter().flat_map(|k| list(spec, k)).collect();
        Self { metadata: &pod["metadata"], spec, containers }
    }

    /// Names of the containers of which something holds.
    fn of(&self, holds: impl Fn(&Value) -> bool) -> Vec<&'a str> {
        self.containers.iter().filter(|c| holds(c)).map(|c| text(c, "/name")).collect()
    }

    fn app_armor(&self) -> Found {
        const PREFIX: &str = "container.apparmor.security.beta.kubernetes.io/";
        let unconfined = |v: &Value| text(v, "/securityContext/appArmorProfile/type") == "Unconfined";
        let noted: Vec<(&str, &str)> = map(self.metadata, "/annotations")
            .iter()
            .filter_map(|(k, v)| Some((k.as_str(), v.as_str()?)))
            .filter(|(k, v)| k.starts_with(PREFIX) && !(v.is_empty() || *v == "runtime/default" || v.starts_with("localhost/")))
            .collect();
        // An annotation speaks for a container that says nothing itself.
        let spoken = |c: &Value| get(&c["securityContext"], "appArmorProfile").is_none() && noted.iter().any(|(k, v)| *v == "unconfined" && k.strip_prefix(PREFIX) == Some(text(c, "/name")));
        let (pod, names) = (unconfined(self.spec), self.of(|c| unconfined(c) || spoken(c)));
        let mut who: Vec<String> = setters(pod, &names).into_iter().collect();
        let mut values: Vec<String> = who.iter().map(|_| "\"Unconfined\"".to_owned()).collect();
        if !noted.is_empty() {
            who.push(plural(noted.len(), "annotation", "annotations").to_owned());
            values.extend(noted.iter().map(|(k, v)| format!("\"{k}=\"{v}\"\"")));
        }
        let what = plural(values.len(), "forbidden AppArmor profile", "forbidden AppArmor profiles");
        (!who.is_empty()).then(|| (what, format!("{} must not set AppArmor profile type to {}", who.join(" and "), values.join(", "))))
    }

    /// Containers that add capabilities beyond these, and which.
    fn added(&self, allowed: &[&str]) -> Option<String> {
        let mut bad = BTreeSet::new();
        let names = self.of(|c| list(c, "/securityContext/capabilities/add").iter().filter_map(Value::as_str).any(|k| !allowed.contains(&k)));
        for c in &self.containers {
            bad.extend(list(c, "/securityContext/capabilities/add").iter().filter_map(Value::as_str).filter(|k| !allowed.contains(k)));
        }
        (!names.is_empty()).then(|| format!("{} must not include {} in securityContext.capabilities.add", named(&names), quoted(bad)))
    }

    fn capabilities(&self) -> Found {
        let allowed =
            ["AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"];
        Some(("non-default capabilities", self.added(&allowed)?))
    }

    fn all_dropped(&self) -> Found {
        let keeping = self.of(|c| !list(c, "/securityContext/capabilities/drop").contains(&json!("ALL")));
        let mut why = Vec::new();
        if !keeping.is_empty() {
            why.push(format!("{} must set securityContext.capabilities.drop=[\"ALL\"]", named(&keeping)));
        }
        why.extend(self.added(&["NET_BIND_SERVICE"]));
        (!why.is_empty()).then(|| ("unrestricted capabilities", why.join("; ")))
    }

    fn host_namespaces(&self) -> Found {
        let shared: Vec<String> = ["hostNetwork", "hostPID", "hostIPC"].iter().filter(|k| self.spec.get(**k) == Some(&json!(true))).map(|k| format!("{k}=true")).collect();
        (!shared.is_empty()).then(|| ("host namespaces", shared.join(", ")))
    }

    fn host_paths(&self) -> Found {
        let names: Vec<&str> = list(self.spec, "/volumes").iter().filter(|v| get(v, "hostPath").is_some()).map(|v| text(v, "/name")).collect();
        (!names.is_empty()).then(|| ("hostPath volumes", format!("{} {}", plural(names.len(), "volume", "volumes"), quoted(names))))
    }

    fn volume_types(&self) -> Found {
        const ALLOWED: [&str; 9] = ["configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim", "projected", "secret"];
        let mut types = BTreeSet::new();
        let mut names = Vec::new();
        for volume in list(self.spec, "/volumes") {
            let kind = volume.as_object().into_iter().flatten().find(|(k, v)| *k != "name" && !v.is_null()).map_or("unknown", |(k, _)| k.as_str());
            if !ALLOWED.contains(&kind) {
                types.insert(kind);
                names.push(text(volume, "/name"));
            }
        }
        let (volumes, what) = (plural(names.len(), "volume", "volumes"), plural(types.len(), "type", "types"));
        let uses = plural(names.len(), "uses", "use");
        (!names.is_empty()).then(|| ("restricted volume types", format!("{volumes} {} {uses} restricted volume {what} {}", quoted(&names), quoted(types))))
    }

    fn host_ports(&self) -> Found {
        let ports = |c: &Value| -> Vec<String> { list(c, "/ports").iter().filter_map(|p| p.get("hostPort").and_then(Value::as_i64)).filter(|n| *n != 0).map(|n| n.to_string()).collect() };
        let names = self.of(|c| !ports(c).is_empty());
        let all: BTreeSet<String> = self.containers.iter().flat_map(|c| ports(c)).collect();
        let (uses, what) = (plural(names.len(), "uses", "use"), plural(all.len(), "hostPort", "hostPorts"));
        (!names.is_empty()).then(|| ("hostPort", format!("{} {uses} {what} {}", named(&names), all.into_iter().collect::<Vec<_>>().join(", "))))
    }

    fn probe_hosts(&self) -> Found {
        let hosts = |c: &Value| -> Vec<String> {
            let handlers = ["/livenessProbe", "/readinessProbe", "/startupProbe", "/lifecycle/postStart", "/lifecycle/preStop"];
            let given = handlers.iter().flat_map(|h| ["httpGet", "tcpSocket"].map(|k| text(c, &format!("{h}/{k}/host")).to_owned()));
            given.filter(|h| !h.is_empty()).collect()
        };
        let names = self.of(|c| !hosts(c).is_empty());
        let all: BTreeSet<String> = self.containers.iter().flat_map(|c| hosts(c)).collect();
        let (uses, what) = (plural(names.len(), "uses", "use"), plural(all.len(), "host", "hosts"));
        (!names.is_empty()).then(|| ("probe or lifecycle host", format!("{} {uses} probe or lifecycle {what} {}", named(&names), quoted(all))))
    }

    fn privileged(&self) -> Found {
        let names = self.of(|c| c.pointer("/securityContext/privileged") == Some(&json!(true)));
        (!names.is_empty()).then(|| ("privileged", format!("{} must not set securityContext.privileged=true", named(&names))))
    }

    fn proc_mount(&self, mapped_may: bool) -> Found {
        if mapped_may && self.spec.get("hostUsers") == Some(&json!(false)) {
            return None;
        }
        let mount = |c: &Value| text(c, "/securityContext/procMount").to_owned();
        let bad = |c: &Value| !matches!(mount(c).as_str(), "" | "Default");
        let names = self.of(bad);
        let all: BTreeSet<String> = self.containers.iter().filter(|c| bad(c)).map(|c| mount(c)).collect();
        (!names.is_empty()).then(|| ("procMount", format!("{} must not set securityContext.procMount to {}", named(&names), quoted(all))))
    }

    fn se_linux(&self, version: Version) -> Found {
        let allowed = |t: &str| matches!(t, "" | "container_t" | "container_init_t" | "container_kvm_t") || (t == "container_engine_t" && version.since(31));
        let field = |v: &Value, k: &str| text(v, &format!("/securityContext/seLinuxOptions/{k}")).to_owned();
        let bad = |v: &Value| !allowed(&field(v, "type")) || !field(v, "user").is_empty() || !field(v, "role").is_empty();
        let everyone: Vec<&Value> = std::iter::once(self.spec).chain(self.containers.iter().copied()).collect();
        let types: BTreeSet<String> = everyone.iter().map(|v| field(v, "type")).filter(|t| !allowed(t)).collect();
        let mut why = Vec::new();
        if !types.is_empty() {
            why.push(format!("{} {}", plural(types.len(), "type", "types"), quoted(types)));
        }
        for k in ["user", "role"] {
            if everyone.iter().any(|v| !field(v, k).is_empty()) {
                why.push(format!("{k} may not be set"));
            }
        }
        let who = setters(bad(self.spec), &self.of(bad))?;
        Some(("seLinuxOptions", format!("{who} set forbidden securityContext.seLinuxOptions: {}", why.join("; "))))
    }

    /// Who sets a profile of system calls that is none.
    fn seccomp_unconfined(&self) -> Found {
        let bad = |v: &Value| !matches!(text(v, "/securityContext/seccompProfile/type"), "" | "RuntimeDefault" | "Localhost");
        let who = setters(bad(self.spec), &self.of(bad))?;
        let values: BTreeSet<&str> =
            std::iter::once(self.spec).chain(self.containers.iter().copied()).filter(|v| bad(v)).map(|v| text(v, "/securityContext/seccompProfile/type")).collect();
        Some(("seccompProfile", format!("{who} must not set securityContext.seccompProfile.type to {}", quoted(values))))
    }

    fn seccomp_set(&self) -> Found {
        if let Some(found) = self.seccomp_unconfined() {
            return Some(found);
        }
        let set = |v: &Value| !text(v, "/securityContext/seccompProfile/type").is_empty();
        let names = self.of(|c| !set(c));
        (!set(self.spec) && !names.is_empty())
            .then(|| ("seccompProfile", format!("pod or {} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\"", named(&names))))
    }

    fn sysctls(&self, version: Version) -> Found {
        let allowed = |name: &str| match name {
            "kernel.shm_rmid_forced" | "net.ipv4.ip_local_port_range" | "net.ipv4.tcp_syncookies" | "net.ipv4.ping_group_range" | "net.ipv4.ip_unprivileged_port_start" => true,
            "net.ipv4.ip_local_reserved_ports" => version.since(27),
            "net.ipv4.tcp_keepalive_time" | "net.ipv4.tcp_fin_timeout" | "net.ipv4.tcp_keepalive_intvl" | "net.ipv4.tcp_keepalive_probes" => version.since(29),
            "net.ipv4.tcp_rmem" | "net.ipv4.tcp_wmem" => version.since(32),
            _ => false,
        };
        let names: Vec<&str> = list(self.spec, "/securityContext/sysctls").iter().map(|s| text(s, "/name")).filter(|n| !allowed(n)).collect();
        (!names.is_empty()).then(|| ("forbidden sysctls", names.join(", ")))
    }

    fn host_process(&self) -> Found {
        let bad = |v: &Value| v.pointer("/securityContext/windowsOptions/hostProcess") == Some(&json!(true));
        let who = setters(bad(self.spec), &self.of(bad))?;
        Some(("hostProcess", format!("{who} must not set securityContext.windowsOptions.hostProcess=true")))
    }

    fn escalation(&self) -> Found {
        let names = self.of(|c| c.pointer("/securityContext/allowPrivilegeEscalation") != Some(&json!(false)));
        (!names.is_empty()).then(|| ("allowPrivilegeEscalation != false", format!("{} must set securityContext.allowPrivilegeEscalation=false", named(&names))))
    }

    fn non_root(&self) -> Found {
        const WHAT: &str = "runAsNonRoot != true";
        let said = |v: &Value| v.pointer("/securityContext/runAsNonRoot").and_then(Value::as_bool);
        let no = |v: &Value| said(v) == Some(false);
        if let Some(who) = setters(no(self.spec), &self.of(no)) {
            return Some((WHAT, format!("{who} must not set securityContext.runAsNonRoot=false")));
        }
        let names = self.of(|c| said(c).is_none());
        (said(self.spec).is_none() && !names.is_empty()).then(|| (WHAT, format!("pod or {} must set securityContext.runAsNonRoot=true", named(&names))))
    }

    fn root_user(&self) -> Found {
        let root = |v: &Value| v.pointer("/securityContext/runAsUser").and_then(Value::as_i64) == Some(0);
        let who = setters(root(self.spec), &self.of(root))?;
        Some(("runAsUser=0", format!("{who} must not set runAsUser=0")))
    }
}

#[cfg(test)]
mod tests;
