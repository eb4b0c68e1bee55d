//! Helm values: one table over another, as Helm's own merging does it.

use serde_json::{Map, Value};

/// Lays `over` on `base` as Helm coalesces tables when the upper one wins: nested tables merge, a `null` over something takes
/// it away, and a `null` over nothing stays, so that it can still take away the chart's own default later. A plain value
/// never replaces a table and a table never a plain value: then the upper one stands, as it is.
pub fn values(base: &mut Map<String, Value>, over: &Map<String, Value>) {
    for (key, value) in over {
        match (base.get_mut(key), value) {
            (Some(Value::Null) | None, _) => {
                base.insert(key.clone(), value.clone());
            }
            (Some(_), Value::Null) => {
                base.remove(key);
            }
            (Some(Value::Object(existing)), Value::Object(table)) => values(existing, table),
            (Some(slot), other) => *slot = other.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn upper_values_win_and_null_takes_away() {
        let mut base = json!({"a": 1, "b": {"c": 1, "d": 2}, "l": [1, 2], "t": {"x": 1}});
        let over = json!({"a": null, "b": {"c": null, "e": 3}, "l": [9], "t": 5, "n": {"m": null, "k": 1}, "gone": null});
        if let (Value::Object(base), Value::Object(over)) = (&mut base, &over) {
            values(base, over);
        }
        assert_eq!(base, json!({"b": {"d": 2, "e": 3}, "l": [9], "t": 5, "n": {"m": null, "k": 1}, "gone": null}));
    }
}
