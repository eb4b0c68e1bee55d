//! Priority and fairness: says of each FlowSchema whether its priority level exists, and brings back what may not be missing.

use serde_json::{Value, json};

use super::kinds::{FLOW_SCHEMA, PRIORITY_LEVEL};
use super::{Call, Change, Controller, Key, Turn, World};
use crate::auth::text;
use crate::flowcontrol;
use crate::object;

/// Keeps the conditions of FlowSchemas.
#[derive(Debug, Default)]
pub struct Flows;

impl Controller for Flows {
    fn name(&self) -> &'static str {
        "priority-and-fairness"
    }

    fn concerns(&self, change: &Change, world: &World<'_>, wake: &mut Vec<Key>) {
        if change.key.is(&FLOW_SCHEMA) {
            wake.push(change.key.clone());
        } else if change.key.is(&PRIORITY_LEVEL) {
            let schemas = world.all(&FLOW_SCHEMA).into_iter().filter(|schema| text(schema, &["spec", "priorityLevelConfiguration", "name"]) == &*change.key.name);
            wake.extend(schemas.map(|schema| Key::new(FLOW_SCHEMA.group, FLOW_SCHEMA.plural, "", object::name(&schema))));
            wake.push(change.key.clone());
        }
    }

    fn decide(&self, key: &Key, world: &World<'_>) -> Turn {
        let mut turn = Turn::default();
        let Some(found) = world.at(key) else {
            if flowcontrol::mandatory(&key.name) {
                let kind = if key.is(&FLOW_SCHEMA) { &FLOW_SCHEMA } else { &PRIORITY_LEVEL };
                let default = flowcontrol::defaults().into_iter().find(|(plural, object)| *plural == kind.plural && object::name(object) == &*key.name);
                if let Some((_, object)) = default {
                    turn.call(Call::create(kind, "", object));
                }
            }
            return turn;
        };
        if !key.is(&FLOW_SCHEMA) {
            return turn;
        }
        let level = text(&found, &["spec", "priorityLevelConfiguration", "name"]);
        let (status, reason, message) = if world.get(&PRIORITY_LEVEL, "", level).is_some() {
            ("False", "Found", format!("This FlowSchema references the PriorityLevelConfiguration object named \"{level}\" and it exists"))
        } else {
            ("True", "NotFound", format!("This FlowSchema references the PriorityLevelConfiguration object named \"{level}\" but there is no such object"))
        };
        let mut conditions = object::at(&found, &["status", "conditions"]).and_then(Value::as_array).cloned().unwrap_or_default();
        let before = conditions.iter().position(|condition| text(condition, &["type"]) == "Dangling");
        let since = match before.map(|n| &conditions[n]) {
            Some(old) if text(old, &["status"]) == status && text(old, &["message"]) == message => return turn,
            Some(old) if text(old, &["status"]) == status => text(old, &["lastTransitionTime"]).to_owned(),
            _ => object::instant(world.now),
        };
        let condition = json!({"type": "Dangling", "status": status, "reason": reason, "message": message, "lastTransitionTime": since});
        match before {
            Some(n) => conditions[n] = condition,
            None => conditions.push(condition),
        }
        turn.call(Call::status(&FLOW_SCHEMA, &found, json!({"conditions": conditions})));
        turn
    }
}
