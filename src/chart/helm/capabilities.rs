//! What templates are told about Kubernetes and Helm, and which Helm is imitated.

use crate::value::{Caps, HelmVersion, KubeVersion, ListTy, Val};

/// Which Helm's rules apply: Helm 4's, unless the annotation `gitops.anabranch.io/helm-rules: "3"` of a HelmChart (or `--helm3`)
/// asks for Helm 3's.
///
/// | what | Helm 4 | Helm 3 |
/// |---|---|---|
/// | a rendered file comes apart | at lines that begin with `---` | at such lines, with all blanks around them |
/// | ends of a document | blanks stay | trimmed |
/// | order of webhook configurations | places of their own, last | unknown kinds, by name |
/// | nulls in a chart's defaults | dropped | kept |
/// | chained template faults | one link per paragraph | one line, as Go wrote it |
/// | Kubernetes without a cluster | v1.37.0 | v1.36.0 |
/// | `.Capabilities.HelmVersion` | v4.3.1, with `KubeClientVersion` | v3.22.0 |
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Rules {
    /// Helm 4.3.1.
    #[default]
    Helm4,
    /// Helm 3.22.0.
    Helm3,
}

impl Rules {
    /// Version Kubernetes has without a cluster.
    pub fn kube(self) -> &'static str {
        match self {
            Rules::Helm4 => "v1.37.0",
            Rules::Helm3 => "v1.36.0",
        }
    }

    /// Version that templates see.
    pub fn helm(self) -> HelmVersion {
        match self {
            Rules::Helm4 => HelmVersion { version: "v4.3.1".into(), commit: String::new(), state: "clean".into(), go: "go1.26.8".into(), client: Some("v1.37".into()) },
            Rules::Helm3 => HelmVersion { version: "v3.22.0".into(), commit: String::new(), state: "clean".into(), go: "go1.26.8".into(), client: None },
        }
    }

    /// Null defaults survive coalescing.
    pub fn keeps_nulls(self) -> bool {
        self == Rules::Helm3
    }
}

/// API versions known without a cluster, in Helm's order.
pub const KNOWN_APIS: &[&str] = &[
    "v1",
    "admissionregistration.k8s.io/v1",
    "admissionregistration.k8s.io/v1alpha1",
    "admissionregistration.k8s.io/v1beta1",
    "internal.apiserver.k8s.io/v1alpha1",
    "apps/v1",
    "apps/v1beta1",
    "apps/v1beta2",
    "authentication.k8s.io/v1",
    "authentication.k8s.io/v1alpha1",
    "authentication.k8s.io/v1beta1",
    "authorization.k8s.io/v1",
    "authorization.k8s.io/v1beta1",
    "autoscaling/v1",
    "autoscaling/v2",
    "batch/v1",
    "batch/v1beta1",
    "certificates.k8s.io/v1",
    "certificates.k8s.io/v1beta1",
    "certificates.k8s.io/v1alpha1",
    "coordination.k8s.io/v1alpha2",
    "coordination.k8s.io/v1beta1",
    "coordination.k8s.io/v1",
    "discovery.k8s.io/v1",
    "discovery.k8s.io/v1beta1",
    "events.k8s.io/v1",
    "events.k8s.io/v1beta1",
    "extensions/v1beta1",
    "flowcontrol.apiserver.k8s.io/v1",
    "flowcontrol.apiserver.k8s.io/v1beta1",
    "flowcontrol.apiserver.k8s.io/v1beta2",
    "flowcontrol.apiserver.k8s.io/v1beta3",
    "lifecycle.k8s.io/v1alpha1",
    "networking.k8s.io/v1",
    "networking.k8s.io/v1beta1",
    "node.k8s.io/v1",
    "node.k8s.io/v1alpha1",
    "node.k8s.io/v1beta1",
    "policy/v1",
    "policy/v1beta1",
    "rbac.authorization.k8s.io/v1",
    "rbac.authorization.k8s.io/v1beta1",
    "rbac.authorization.k8s.io/v1alpha1",
    "resource.k8s.io/v1",
    "resource.k8s.io/v1beta2",
    "resource.k8s.io/v1beta1",
    "resource.k8s.io/v1alpha3",
    "scheduling.k8s.io/v1alpha3",
    "scheduling.k8s.io/v1beta1",
    "scheduling.k8s.io/v1",
    "storage.k8s.io/v1beta1",
    "storage.k8s.io/v1",
    "storage.k8s.io/v1alpha1",
    "storagemigration.k8s.io/v1",
    "storagemigration.k8s.io/v1beta1",
    "apiextensions.k8s.io/v1beta1",
    "apiextensions.k8s.io/v1",
];

/// Reads a Kubernetes version as Helm does; the error is Helm's.
pub fn parse_kube(v: &str) -> Result<KubeVersion, String> {
    let bad = || format!("could not parse {} as version", crate::text::quote::quote(v.as_bytes()));
    let t = v.trim().strip_prefix('v').unwrap_or(v.trim());
    let core: String = t.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
    let parts: Vec<&str> = core.trim_end_matches('.').split('.').collect();
    if parts.len() < 2 || parts.iter().any(|p| p.is_empty()) {
        return Err(bad());
    }
    let mut nums = Vec::new();
    for p in &parts {
        if p.len() > 1 && p.starts_with('0') {
            return Err(format!("illegal zero-prefixed version component {} in {}", crate::text::quote::quote(p.as_bytes()), crate::text::quote::quote(v.as_bytes())));
        }
        nums.push(p.parse::<u64>().map_err(|_| bad())?);
    }
    let shown: Vec<String> = nums.iter().map(u64::to_string).collect();
    Ok(KubeVersion { version: if v.starts_with('v') { v.into() } else { format!("v{v}") }, normalized: format!("v{}", shown.join(".")), major: nums[0].to_string(), minor: nums[1].to_string() })
}

/// Capabilities of a request.
pub fn capabilities(rules: Rules, kube: Option<&KubeVersion>, extra: &[String], all: Option<&[String]>) -> Caps {
    let kube = match kube {
        Some(k) => k.clone(),
        None => {
            let v = rules.kube();
            let mut n = v[1..].split('.');
            KubeVersion { version: v.into(), normalized: v.into(), major: n.next().unwrap_or("1").into(), minor: n.next().unwrap_or("0").into() }
        }
    };
    let mut apis: Vec<Val> = match all {
        Some(a) => a.iter().map(|s| Val::str(s.as_str())).collect(),
        None => KNOWN_APIS.iter().map(|s| Val::str(*s)).collect(),
    };
    apis.extend(extra.iter().map(|s| Val::str(s.as_str())));
    Caps { kube, apis: Val::typed_list(ListTy::Versions, apis), helm: rules.helm() }
}
