//! What a real server refuses, with its words.

use crate::{Kind, catalog};
use serde_json::{Value, json};

fn kind(group: &str, version: &str, kind: &str) -> Kind {
    catalog::by_kind(group, version, kind).and_then(Kind::native).expect("kind")
}

fn read(kind: &Kind, mut spec: Value, base: &Value) -> Value {
    for (k, v) in base.as_object().into_iter().flatten() {
        if spec.get(k).is_none() {
            spec[k] = v.clone();
        }
    }
    let mut o = kind.decode(json!({"metadata": {"name": "x", "namespace": "n", "uid": "u", "resourceVersion": "1"}, "spec": spec})).expect("reads").object;
    kind.default(&mut o);
    o
}

fn shown(faults: &[crate::Fault]) -> String {
    faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// Faults of new objects: each specification is laid over the base.
fn check(kind: &Kind, base: &Value, cases: &[(Value, &str)]) {
    let namespaced = base != &json!({});
    for (spec, expected) in cases {
        let mut o = read(kind, spec.clone(), base);
        if !namespaced {
            o["metadata"].as_object_mut().map(|m| m.remove("namespace"));
        }
        kind.prepare_create(&mut o);
        assert_eq!(shown(&kind.validate_create(&o)), *expected, "{spec}");
    }
}

/// Faults of a change from one specification to another.
fn change(kind: &Kind, base: &Value, subresource: Option<&str>, cases: &[(Value, Value, &str)]) {
    for (old, new, expected) in cases {
        let mut old = read(kind, old.clone(), base);
        kind.prepare_create(&mut old);
        let mut new = read(kind, new.clone(), base);
        kind.prepare_update(&mut new, &old, subresource);
        let said = shown(&kind.validate_update(&new, &old, subresource));
        assert!(if expected.is_empty() { said.is_empty() } else { said.starts_with(expected) }, "{} -> {}: {said}", old["spec"], new["spec"]);
    }
}

fn pods() -> (Kind, Value) {
    (kind("", "v1", "Pod"), json!({"containers": [{"name": "a", "image": "i"}]}))
}

fn a(more: Value) -> Value {
    let mut c = json!({"name": "a", "image": "i"});
    c.as_object_mut().into_iter().for_each(|c| c.extend(more.as_object().cloned().unwrap_or_default()));
    json!({"containers": [c]})
}

#[test]
fn settings_of_pods() {
    let (pod, base) = pods();
    check(
        &pod,
        &base,
        &[
            (json!({"dnsPolicy": "None"}), "spec.dnsConfig: Required value: must provide `dnsConfig` when `dnsPolicy` is None"),
            (json!({"dnsPolicy": "None", "dnsConfig": {}}), "spec.dnsConfig.nameservers: Required value: must provide at least one DNS nameserver when `dnsPolicy` is None"),
            (json!({"dnsPolicy": "None", "dnsConfig": {"nameservers": ["1.1.1.1"], "searches": ["a_b.c", "."]}}), ""),
            (json!({"dnsConfig": {"nameservers": ["x"]}}), "spec.dnsConfig.nameservers[0]: Invalid value: \"x\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"),
            (json!({"dnsConfig": {"options": [{"value": "x"}]}}), "spec.dnsConfig.options[0]: Required value: must not be empty"),
            (json!({"schedulingGates": [{"name": "a"}], "nodeName": "n"}), "spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared"),
            (json!({"schedulingGates": [{"name": "a"}, {"name": "a"}]}), "spec.schedulingGates[1]: Duplicate value: \"a\""),
            (json!({"hostPID": true, "shareProcessNamespace": true}), "spec.shareProcessNamespace: Invalid value: true: ShareProcessNamespace and HostPID cannot both be enabled"),
            (json!({"hostUsers": false, "hostNetwork": true}), "spec.hostNetwork: Forbidden: when `hostUsers` is false"),
            (json!({"securityContext": {"windowsOptions": {"hostProcess": true}}}), "spec.hostNetwork: Invalid value: false: hostNetwork must be true if pod contains any hostProcess containers"),
            (a(json!({"securityContext": {"procMount": "Unmasked"}})), "spec.containers[0].securityContext.procMount: Invalid value: \"Unmasked\": `hostUsers` must be false to use `Unmasked`"),
            (json!({"os": {"name": "x"}}), "spec.os: Unsupported value: \"x\": supported values: \"linux\", \"windows\""),
            (json!({"securityContext": {"fsGroupChangePolicy": "x"}}), "spec.securityContext.fsGroupChangePolicy: Unsupported value: \"x\": supported values: \"Always\", \"OnRootMismatch\""),
            (json!({"securityContext": {"seccompProfile": {"type": "Localhost"}}}), "spec.securityContext.seccompProfile.localhostProfile: Required value: must be set when seccomp type is Localhost"),
            (a(json!({"securityContext": {"appArmorProfile": {"type": "Localhost"}}})), "spec.containers[0].securityContext.appArmorProfile.localhostProfile: Required value: must be set when AppArmor type is Localhost"),
            (json!({"securityContext": {"sysctls": [{"name": "a", "value": "1"}, {"name": "a", "value": "1"}]}}), "spec.securityContext.sysctls[1].name: Duplicate value: \"a\""),
            (a(json!({"resources": {"claims": [{"name": "x"}]}})), "spec.containers[0].resources.claims[0]: Not found: \"x\": must be one of the names in pod.spec.resourceClaims which is empty"),
            (a(json!({"volumeDevices": [{"name": "x", "devicePath": "/x"}]})), "spec.containers[0].volumeDevices[0].name: Not found: \"x\""),
            (
                json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "a", "whenUnsatisfiable": "DoNotSchedule"}, {"maxSkew": 1, "topologyKey": "a", "whenUnsatisfiable": "DoNotSchedule"}]}),
                "spec.topologySpreadConstraints[0].{topologyKey, whenUnsatisfiable}: Duplicate value: \"{a, DoNotSchedule}\"",
            ),
        ],
    );
}

#[test]
fn what_an_update_of_a_pod_may_change() {
    let (pod, base) = pods();
    let fixed = "spec: Forbidden: pod updates may not change fields other than ";
    let deadline = |n: i64| json!({"activeDeadlineSeconds": n});
    let gated = |more: Value| {
        let mut spec = json!({"schedulingGates": [{"name": "g"}]});
        spec.as_object_mut().into_iter().for_each(|s| s.extend(more.as_object().cloned().unwrap_or_default()));
        spec
    };
    change(
        &pod,
        &base,
        None,
        &[
            (json!({}), json!({"nodeName": "n"}), fixed),
            (json!({"terminationGracePeriodSeconds": 30}), json!({"terminationGracePeriodSeconds": 1}), fixed),
            (json!({}), json!({"nodeSelector": {"x": "y"}}), fixed),
            (json!({}), a(json!({"image": "other"})), ""),
            (json!({}), a(json!({"resources": {"requests": {"cpu": "1"}}})), fixed),
            (json!({}), deadline(5), ""),
            (deadline(5), deadline(4), ""),
            (deadline(5), deadline(6), "spec.activeDeadlineSeconds: Invalid value: 6: must be less than or equal to previous value"),
            (deadline(5), json!({}), "spec.activeDeadlineSeconds: Invalid value: null: must not update from a positive integer to nil value"),
            (json!({"tolerations": [{"key": "a", "operator": "Exists"}]}), json!({}), "spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds"),
            (json!({"tolerations": [{"key": "a", "operator": "Exists"}]}), json!({"tolerations": [{"key": "b", "operator": "Exists"}, {"key": "a", "operator": "Exists"}]}), ""),
            (gated(json!({})), json!({}), ""),
            (json!({}), gated(json!({})), "spec.schedulingGates[0].name: Forbidden: only deletion is allowed, but found new scheduling gate 'g'"),
            (gated(json!({})), gated(json!({"nodeSelector": {"x": "y"}})), ""),
            (gated(json!({"nodeSelector": {"x": "y"}})), gated(json!({"nodeSelector": {"x": "z"}})), "spec.nodeSelector: Invalid value: {\"x\":\"z\"}: only additions to spec.nodeSelector are allowed (no mutations or deletions)"),
            (gated(json!({})), gated(json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]}}}})), ""),
            (gated(json!({})), gated(json!({"nodeName": "n"})), fixed),
        ],
    );
}

#[test]
fn resizing_a_pod() {
    let (pod, base) = pods();
    let sized = |requests: Value, limits: Value| a(json!({"resources": {"requests": requests, "limits": limits}}));
    change(
        &pod,
        &base,
        Some("resize"),
        &[
            (json!({}), sized(json!({"cpu": "1"}), json!({})), "spec: Invalid value: \"BestEffort\": Pod QOS Class may not change as a result of resizing"),
            (sized(json!({"cpu": "1"}), json!({})), sized(json!({"cpu": "2"}), json!({})), ""),
            (sized(json!({"cpu": "1", "memory": "1Gi"}), json!({"cpu": "1", "memory": "1Gi"})), sized(json!({"cpu": "500m", "memory": "1Gi"}), json!({"cpu": "1", "memory": "1Gi"})), "spec: Invalid value: \"Guaranteed\": Pod QOS Class may not change as a result of resizing"),
            (sized(json!({"cpu": "1"}), json!({"cpu": "2"})), sized(json!({"cpu": "1"}), json!({})), "spec.containers[0].resources.limits: Forbidden: resource limits cannot be removed"),
            (sized(json!({"cpu": "1"}), json!({})), sized(json!({"cpu": "1", "ephemeral-storage": "1Gi"}), json!({})), "spec: Forbidden: only cpu and memory resources are mutable"),
            (sized(json!({"cpu": "1"}), json!({"cpu": "2"})), sized(json!({"cpu": "5"}), json!({"cpu": "2"})), "spec.containers[0].resources.requests: Invalid value: \"5\": must be less than or equal to cpu limit of 2"),
        ],
    );
    let (mut old, mut new) = (read(&pod, json!({}), &base), read(&pod, json!({"nodeName": "n", "ephemeralContainers": [{"name": "d", "image": "x"}]}), &base));
    pod.prepare_create(&mut old);
    new["metadata"]["labels"] = json!({"a": "b"});
    pod.prepare_update(&mut new, &old, Some("ephemeralcontainers"));
    assert_eq!((new["spec"].get("nodeName"), new["metadata"].get("labels"), new["spec"]["ephemeralContainers"][0]["name"].as_str()), (None, None, Some("d")));
    assert_eq!(new["metadata"]["generation"], 2);
    change(
        &pod,
        &base,
        Some("ephemeralcontainers"),
        &[
            (json!({}), json!({"ephemeralContainers": [{"name": "d", "image": "x"}]}), ""),
            (json!({}), json!({"ephemeralContainers": [{"name": "a", "image": "x"}]}), "spec.ephemeralContainers[0].name: Duplicate value: \"a\""),
            (json!({}), json!({"ephemeralContainers": [{"name": "d", "image": "x", "ports": [{"containerPort": 8}]}]}), "spec.ephemeralContainers[0].ports: Forbidden: cannot be set for an Ephemeral Container"),
        ],
    );
}

#[test]
fn services() {
    let service = kind("", "v1", "Service");
    let only = "may only be used when `type` is 'LoadBalancer'";
    let ranges = "spec.LoadBalancerSourceRanges";
    check(
        &service,
        &json!({"ports": [{"port": 80}], "type": "ClusterIP"}),
        &[
            (json!({"ipFamilyPolicy": "x"}), "spec.ipFamilyPolicy: Unsupported value: \"x\": supported values: \"PreferDualStack\", \"RequireDualStack\", \"SingleStack\""),
            (json!({"ipFamilies": ["x"]}), "spec.ipFamilies[0]: Unsupported value: \"x\": supported values: \"IPv4\", \"IPv6\""),
            (json!({"ipFamilies": ["IPv4", "IPv4"]}), "spec.ipFamilies[1]: Duplicate value: \"IPv4\""),
            (json!({"ipFamilies": ["IPv4", "IPv6"]}), "spec.ipFamilyPolicy: Invalid value: \"SingleStack\": must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are specified"),
            (json!({"type": "ExternalName", "externalName": "a.b", "ipFamilies": ["IPv4"]}), "spec.ipFamilies: Forbidden: may not be set for ExternalName services"),
            (json!({"type": "LoadBalancer", "loadBalancerSourceRanges": ["x"]}), &format!("{ranges}[0]: Invalid value: \"x\": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)")),
            (json!({"type": "LoadBalancer", "loadBalancerSourceRanges": ["10.0.0.0/8", " 10.0.0.1/8 "]}), ""),
            (json!({"loadBalancerSourceRanges": ["10.0.0.0/8"]}), &format!("{ranges}: Forbidden: {only}")),
            (json!({"loadBalancerClass": "a/b"}), &format!("spec.loadBalancerClass: Forbidden: {only}")),
            (json!({"allocateLoadBalancerNodePorts": true}), &format!("spec.allocateLoadBalancerNodePorts: Forbidden: {only}")),
            (json!({"healthCheckNodePort": 30000}), "spec.healthCheckNodePort: Invalid value: 30000: may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"),
            (json!({"externalIPs": ["127.0.0.1"]}), "spec.externalIPs[0]: Invalid value: \"127.0.0.1\": may not be in the loopback range (127.0.0.0/8, ::1/128)"),
            (json!({"externalIPs": ["0.0.0.0"]}), "spec.externalIPs[0]: Invalid value: \"0.0.0.0\": may not be unspecified (0.0.0.0)"),
            (json!({"externalIPs": ["fe80::1"]}), "spec.externalIPs[0]: Invalid value: \"fe80::1\": may not be in the link-local range (169.254.0.0/16, fe80::/10)"),
            (json!({"externalIPs": ["224.0.0.1"]}), "spec.externalIPs[0]: Invalid value: \"224.0.0.1\": may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"),
            (json!({"externalIPs": ["10.0.0.01"]}), "spec.externalIPs[0]: Invalid value: \"10.0.0.01\": must not have leading 0s"),
        ],
    );
}

#[test]
fn warnings_of_services() {
    let service = kind("", "v1", "Service");
    for (spec, said) in [
        (json!({"type": "ClusterIP", "externalName": "a.b"}), vec!["spec.externalName is ignored when spec.type is not \"ExternalName\""]),
        (json!({"type": "ExternalName", "externalName": "a.b"}), vec![]),
    ] {
        assert_eq!(service.warnings(&json!({"metadata": {"name": "s"}, "spec": spec})), said);
    }
}

/// What a Service of one type had goes when it becomes one of another, and stays when it does not.
#[test]
fn a_service_changes_its_type() {
    let service = kind("", "v1", "Service");
    let ports = |port: Value| json!([{"port": 80, "nodePort": port}]);
    let given = |kind: &str, port: Value| {
        let mut spec = json!({"type": kind, "ports": ports(port), "clusterIP": "10.0.0.9", "clusterIPs": ["10.0.0.9"], "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack"});
        if kind == "LoadBalancer" {
            spec["externalTrafficPolicy"] = json!("Local");
            spec["healthCheckNodePort"] = json!(30099);
            spec["loadBalancerClass"] = json!("e.io/x");
        }
        spec
    };
    let fields = ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy", "externalTrafficPolicy", "healthCheckNodePort", "loadBalancerClass", "allocateLoadBalancerNodePorts"];
    let balanced = "clusterIP clusterIPs ipFamilies ipFamilyPolicy internalTrafficPolicy externalTrafficPolicy healthCheckNodePort loadBalancerClass allocateLoadBalancerNodePorts";
    for (from, to, kept, has_port) in [
        ("NodePort", "ClusterIP", "clusterIP clusterIPs ipFamilies ipFamilyPolicy internalTrafficPolicy", false),
        ("LoadBalancer", "ClusterIP", "clusterIP clusterIPs ipFamilies ipFamilyPolicy internalTrafficPolicy", false),
        ("LoadBalancer", "NodePort", "clusterIP clusterIPs ipFamilies ipFamilyPolicy internalTrafficPolicy externalTrafficPolicy", true),
        ("NodePort", "ExternalName", "", false),
        ("LoadBalancer", "ExternalName", "", false),
        ("LoadBalancer", "LoadBalancer", balanced, true),
    ] {
        let old = read(&service, given(from, json!(30080)), &json!({}));
        let mut new = old.clone();
        new["spec"]["type"] = json!(to);
        new["spec"]["externalName"] = json!("a.b");
        service.prepare_update(&mut new, &old, None);
        let left: Vec<&str> = fields.into_iter().filter(|k| new["spec"].get(*k).is_some()).collect();
        assert_eq!((left.join(" "), new["spec"]["ports"][0].get("nodePort").is_some()), (kept.to_owned(), has_port), "{from} -> {to}");
        assert_eq!(shown(&service.validate_update(&new, &old, None)), "", "{from} -> {to}");
    }
    // Whoever says something new means it.
    let old = read(&service, given("NodePort", json!(30080)), &json!({}));
    let mut new = old.clone();
    new["spec"]["type"] = json!("ClusterIP");
    new["spec"]["ports"][0]["nodePort"] = json!(30081);
    service.prepare_update(&mut new, &old, None);
    assert_eq!(shown(&service.validate_update(&new, &old, None)), "spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'");
    // What was allocated is not lost by a client that does not know it.
    let old = read(&service, given("LoadBalancer", json!(30080)), &json!({}));
    let mut new = read(&service, json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "loadBalancerClass": "e.io/x", "ports": [{"port": 80}]}), &json!({}));
    service.prepare_update(&mut new, &old, None);
    assert_eq!((&new["spec"]["healthCheckNodePort"], &new["spec"]["clusterIP"]), (&json!(30099), &json!("10.0.0.9")));
    new["spec"]["loadBalancerClass"] = Value::Null;
    assert_eq!(shown(&service.validate_update(&new, &old, None)), "spec.loadBalancerClass: Invalid value: null: may not change once set");
}

#[test]
fn nodes() {
    let node = kind("", "v1", "Node");
    check(
        &node,
        &json!({}),
        &[
            (json!({"podCIDRs": ["x"]}), "spec.podCIDRs[0]: Invalid value: \"x\": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"),
            (json!({"podCIDRs": ["10.0.0.0/8"]}), ""),
            (json!({"podCIDRs": ["10.0.0.1/8"]}), "spec.podCIDRs[0]: Invalid value: \"10.0.0.1/8\": must not have bits set beyond the prefix length"),
            (json!({"podCIDRs": ["10.0.0.0/8", "10.1.0.0/16"]}), "spec.podCIDRs: Invalid value: [\"10.0.0.0/8\",\"10.1.0.0/16\"]: may specify no more than one CIDR for each IP family"),
        ],
    );
}

#[test]
fn metrics_of_autoscalers() {
    let scaler = kind("autoscaling", "v2", "HorizontalPodAutoscaler");
    let cpu = |target: Value| json!({"metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]});
    let at = "spec.metrics[0].resource.target";
    check(
        &scaler,
        &json!({"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}}),
        &[
            (cpu(json!({"type": "Utilization", "averageUtilization": 80})), ""),
            (cpu(json!({"type": "Utilization", "averageUtilization": 0})), &format!("{at}.averageUtilization: Invalid value: 0: must be greater than 0")),
            (cpu(json!({"type": "Utilization"})), &format!("{at}.averageUtilization: Required value: must set either a target raw value or a target utilization")),
            (cpu(json!({"type": "AverageValue", "averageValue": "0"})), &format!("{at}.averageValue: Invalid value: \"0\": must be positive")),
            (cpu(json!({"type": "Utilization", "averageUtilization": 1, "averageValue": "1"})), &format!("{at}.averageValue: Forbidden: may not set both a target raw value and a target utilization")),
            (cpu(json!({"averageUtilization": 1})), &format!("{at}.type: Required value: must specify a metric target type; {at}.type: Invalid value: \"\": must be either Utilization, Value, or AverageValue")),
            (json!({"metrics": [{"type": "External", "external": {"metric": {"name": "a"}, "target": {"type": "Value"}}}]}), "spec.metrics[0].external.target.averageValue: Required value: must set either a target value for metric or a per-pod target"),
        ],
    );
}

#[test]
fn policies_of_jobs() {
    let job = kind("batch", "v1", "Job");
    let rule = |rule: Value| json!({"podFailurePolicy": {"rules": [rule]}});
    let codes = |operator: &str, values: Value| rule(json!({"action": "FailJob", "onExitCodes": {"operator": operator, "values": values}}));
    let at = "spec.podFailurePolicy.rules[0]";
    let success = |rules: Value| json!({"completionMode": "Indexed", "completions": 2, "successPolicy": {"rules": rules}});
    check(
        &job,
        &json!({"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "i"}]}}}),
        &[
            (codes("In", json!([1, 2])), ""),
            (codes("In", json!([0])), &format!("{at}.onExitCodes.values[0]: Invalid value: 0: must not be 0 for the In operator")),
            (codes("NotIn", json!([0])), ""),
            (codes("In", json!([])), &format!("{at}.onExitCodes.values: Invalid value: []: at least one value is required")),
            (codes("In", json!([1, 1])), &format!("{at}.onExitCodes.values[1]: Duplicate value: 1")),
            (codes("In", json!([2, 1])), &format!("{at}.onExitCodes.values: Invalid value: [2,1]: must be ordered")),
            (rule(json!({"action": "FailJob"})), &format!("{at}: Invalid value: specifying one of OnExitCodes and OnPodConditions is required")),
            (rule(json!({"onExitCodes": {"operator": "In", "values": [1]}})), &format!("{at}.action: Required value: valid values: [\"Count\" \"FailIndex\" \"FailJob\" \"Ignore\"]")),
            (rule(json!({"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [1]}})), &format!("{at}.action: Invalid value: \"FailIndex\": requires the backoffLimitPerIndex to be set")),
            (json!({"maxFailedIndexes": 1}), "spec.backoffLimitPerIndex: Required value: when maxFailedIndexes is specified; spec.maxFailedIndexes: Invalid value: 1: requires indexed completion mode"),
            (json!({"podReplacementPolicy": "x"}), "spec.podReplacementPolicy: Unsupported value: \"x\": supported values: \"Failed\", \"TerminatingOrFailed\""),
            (json!({"managedBy": "x"}), "spec.managedBy: Invalid value: \"x\": must be a domain-prefixed path (such as \"acme.io/foo\")"),
            (json!({"successPolicy": {"rules": []}}), "spec.successPolicy: Invalid value: {\"Rules\":[]}: requires indexed completion mode"),
            (success(json!([{}])), "spec.successPolicy.rules[0]: Required value: at least one of succeededCount or succeededIndexes must be specified"),
            (success(json!([{"succeededCount": 5}])), "spec.successPolicy.rules[0].succeededCount: Invalid value: 5: must be less than or equal to 2 (the number of specified completions)"),
            (success(json!([{"succeededIndexes": "5"}])), "spec.successPolicy.rules[0].succeededIndexes: Invalid value: \"5\": error parsing succeededIndexes: too large index: \"5\""),
            (success(json!([{"succeededIndexes": "0-1", "succeededCount": 2}])), ""),
        ],
    );
}
