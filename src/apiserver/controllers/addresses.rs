//! Addresses of Services as objects: an IPAddress for each one given out, and the state of the ranges they are taken from.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::kinds::{IP_ADDRESS, SERVICE, SERVICE_RANGE};
use super::{Call, Change, Controller, Delete, Key, Turn, World};
use crate::auth::{strings, text};
use crate::object;

/// Who makes the IPAddresses, as their label says it.
const MANAGER: &str = "ipallocator.k8s.io";
/// Holds a range while addresses of it are in use.
const FINALIZER: &str = "networking.k8s.io/service-cidr-finalizer";

/// Keeps IPAddresses and ServiceCIDRs true.
#[derive(Debug, Default)]
pub struct Addresses;

fn wanted(service: &Value) -> Vec<String> {
    let mut all = strings(service, &["spec", "clusterIPs"]);
    all.retain(|text| text.parse::<IpAddr>().is_ok());
    all
}

fn address_key(name: &str) -> Key {
    Key::new(IP_ADDRESS.group, IP_ADDRESS.plural, "", name)
}

/// Whether an address lies in a range such as `10.0.0.0/16`.
fn within(range: &str, address: &str) -> bool {
    let Some((network, prefix)) = range.split_once('/') else { return false };
    let bits = |text: &str| match text.parse::<IpAddr>() {
        Ok(IpAddr::V4(v4)) => Some((u128::from(v4.to_bits()) << 96, 32u32)),
        Ok(IpAddr::V6(v6)) => Some((v6.to_bits(), 128)),
        Err(_) => None,
    };
    let (Some((a, width)), Some((b, other)), Ok(prefix)) = (bits(network), bits(address), prefix.parse::<u32>()) else { return false };
    width == other && prefix <= width && (prefix == 0 || (a ^ b) >> (128 - prefix) == 0)
}

impl Controller for Addresses {
    fn name(&self) -> &'static str {
        "service-addresses"
    }

    fn concerns(&self, change: &Change, world: &World<'_>, wake: &mut Vec<Key>) {
        if change.key.is(&SERVICE) {
            if change.deleted || world.at(&change.key).is_none_or(|service| wanted(&service).is_empty()) {
                // Its addresses are known by whom they belong to.
                let mine = world.all(&IP_ADDRESS).into_iter().filter(|address| {
                    let parent = |field| text(address, &["spec", "parentRef", field]);
                    parent("resource") == "services" && parent("namespace") == &*change.key.namespace && parent("name") == &*change.key.name
                });
                wake.extend(mine.map(|address| address_key(object::name(&address))));
            }
            wake.push(change.key.clone());
        } else if change.key.is(&SERVICE_RANGE) {
            wake.push(change.key.clone());
        } else if change.key.is(&IP_ADDRESS) {
            wake.push(change.key.clone());
            if change.deleted {
                let leaving = world.all(&SERVICE_RANGE).into_iter().filter(|range| object::deleting(range));
                wake.extend(leaving.map(|range| Key::new(SERVICE_RANGE.group, SERVICE_RANGE.plural, "", object::name(&range))));
            }
        }
    }

    fn decide(&self, key: &Key, world: &World<'_>) -> Turn {
        let mut turn = Turn::default();
        if key.is(&SERVICE) {
            let Some(service) = world.at(key) else { return turn };
            for address in wanted(&service) {
                if world.get(&IP_ADDRESS, "", &address).is_none() {
                    turn.call(Call::create(&IP_ADDRESS, "", for_service(&address, key)));
                }
            }
        } else if key.is(&IP_ADDRESS) {
            self.address(key, world, &mut turn);
        } else if let Some(range) = world.at(key) {
            self.range(&range, world, &mut turn);
        }
        turn
    }
}

fn for_service(address: &str, key: &Key) -> Value {
    let family = if address.contains(':') { "IPv6" } else { "IPv4" };
    json!({
        "metadata": {"name": address, "labels": {"ipaddress.kubernetes.io/ip-family": family, "ipaddress.kubernetes.io/managed-by": MANAGER}},
        "spec": {"parentRef": {"group": "", "resource": "services", "namespace": &*key.namespace, "name": &*key.name}},
    })
}

impl Addresses {
    /// An address that we made goes when its Service does not have it any more, and comes back while it does.
    fn address(&self, key: &Key, world: &World<'_>, turn: &mut Turn) {
        let Some(address) = world.at(key) else {
            // Somebody deleted it: whoever has it gets it back.
            let owner = world.all(&SERVICE).into_iter().find(|service| wanted(service).iter().any(|ip| *ip == *key.name));
            if let Some(service) = owner {
                let owner = Key::new("", "services", object::namespace(&service), object::name(&service));
                turn.call(Call::create(&IP_ADDRESS, "", for_service(&key.name, &owner)));
            }
            return;
        };
        let parent = |field| text(&address, &["spec", "parentRef", field]);
        if text(&address, &["metadata", "labels", "ipaddress.kubernetes.io/managed-by"]) != MANAGER || parent("resource") != "services" {
            return;
        }
        let used = world.get(&SERVICE, parent("namespace"), parent("name")).is_some_and(|service| wanted(&service).iter().any(|ip| *ip == *key.name));
        if !used {
            turn.call(Call::delete(&IP_ADDRESS, &address, Delete::Background));
        }
    }

    /// A range is ready at once, and held while it is the last that holds an address in use.
    fn range(&self, range: &Value, world: &World<'_>, turn: &mut Turn) {
        let cidrs = strings(range, &["spec", "cidrs"]);
        let mut finalizers = strings(range, &["metadata", "finalizers"]);
        let held = finalizers.iter().any(|f| f == FINALIZER);
        if object::deleting(range) {
            let others: Vec<String> = world
                .all(&SERVICE_RANGE)
                .iter()
                .filter(|other| object::uid(other) != object::uid(range) && !object::deleting(other))
                .flat_map(|other| strings(other, &["spec", "cidrs"]))
                .collect();
            let needed = world.all(&IP_ADDRESS).iter().any(|address| {
                let name = object::name(address);
                cidrs.iter().any(|cidr| within(cidr, name)) && !others.iter().any(|cidr| within(cidr, name))
            });
            if needed {
                let text = "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR";
                self.ready(range, "False", "Terminating", text, world, turn);
            } else if held {
                finalizers.retain(|f| f != FINALIZER);
                let patch = json!({"metadata": {"resourceVersion": object::revision_of(range), "finalizers": finalizers}});
                turn.call(Call::merge(&SERVICE_RANGE, "", object::name(range), "", patch));
            }
            return;
        }
        if !held {
            finalizers.push(FINALIZER.to_owned());
            let patch = json!({"metadata": {"resourceVersion": object::revision_of(range), "finalizers": finalizers}});
            turn.call(Call::merge(&SERVICE_RANGE, "", object::name(range), "", patch));
            return;
        }
        self.ready(range, "True", "", "Kubernetes Service CIDR is ready", world, turn);
    }

    fn ready(&self, range: &Value, status: &str, reason: &str, message: &str, world: &World<'_>, turn: &mut Turn) {
        let mut conditions = object::at(range, &["status", "conditions"]).and_then(Value::as_array).cloned().unwrap_or_default();
        let before = conditions.iter().position(|condition| text(condition, &["type"]) == "Ready");
        if before.is_some_and(|n| text(&conditions[n], &["status"]) == status && text(&conditions[n], &["reason"]) == reason) {
            return;
        }
        let condition = json!({"type": "Ready", "status": status, "reason": reason, "message": message, "lastTransitionTime": object::instant(world.now)});
        match before {
            Some(n) => conditions[n] = condition,
            None => conditions.push(condition),
        }
        turn.call(Call::status(&SERVICE_RANGE, range, json!({"conditions": conditions})));
    }
}

#[cfg(test)]
mod tests {
    use super::within;

    #[test]
    fn addresses_lie_in_ranges() {
        for (range, address, expected) in [
            ("10.96.0.0/16", "10.96.3.4", true),
            ("10.96.0.0/16", "10.97.0.1", false),
            ("0.0.0.0/0", "1.2.3.4", true),
            ("fd00::/108", "fd00::1", true),
            ("fd00::/108", "fd01::1", false),
            ("10.96.0.0/16", "fd00::1", false),
            ("10.96.0.0/99", "10.96.0.1", false),
            ("nonsense", "10.96.0.1", false),
        ] {
            assert_eq!(within(range, address), expected, "{range} {address}");
        }
    }
}
