//! Conditions: set, find, compare. The instant is always given by the caller.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// The three values of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// It holds.
    True,
    /// It does not.
    False,
    /// Nobody knows.
    Unknown,
}

impl Verdict {
    /// The word in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl From<bool> for Verdict {
    fn from(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }
}

/// Longest message that the API takes, bytes.
const MESSAGE_MAX: usize = 32_768;

/// The condition of a type.
pub fn find<'a>(conditions: &'a [Condition], kind: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == kind)
}

/// True when the condition of a type is True.
pub fn is_true(conditions: &[Condition], kind: &str) -> bool {
    find(conditions, kind).is_some_and(|condition| condition.status == "True")
}

/// Sets a condition and says whether anything changed.
///
/// The transition time moves only when the status does, and nothing at all is written when only time has passed.
pub fn set(
    conditions: &mut Vec<Condition>,
    kind: &str,
    verdict: Verdict,
    reason: &str,
    message: &str,
    generation: Option<i64>,
    now: &Time,
) -> bool {
    let message = clip(message);
    match conditions.iter_mut().find(|condition| condition.type_ == kind) {
        Some(have) => {
            let same = have.status == verdict.as_str()
                && have.reason == reason
                && have.message == message
                && have.observed_generation == generation;
            if same {
                return false;
            }
            if have.status != verdict.as_str() {
                have.last_transition_time = now.clone();
                verdict.as_str().clone_into(&mut have.status);
            }
            reason.clone_into(&mut have.reason);
            message.clone_into(&mut have.message);
            have.observed_generation = generation;
        }
        None => conditions.push(Condition {
            type_: kind.to_owned(),
            status: verdict.as_str().to_owned(),
            reason: reason.to_owned(),
            message: message.to_owned(),
            observed_generation: generation,
            last_transition_time: now.clone(),
        }),
    }
    true
}

/// Removes the condition of a type and says whether it was there.
pub fn remove(conditions: &mut Vec<Condition>, kind: &str) -> bool {
    let before = conditions.len();
    conditions.retain(|condition| condition.type_ != kind);
    conditions.len() != before
}

fn clip(message: &str) -> &str {
    if message.len() <= MESSAGE_MAX {
        return message;
    }
    let mut end = MESSAGE_MAX;
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    &message[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_transition_time_moves_with_the_status_only() {
        let at = |second: i64| Time(jiff::Timestamp::from_second(second).unwrap_or_default());
        let mut list = Vec::new();
        assert!(set(&mut list, "Ready", Verdict::True, "Fine", "all well", Some(1), &at(1)));
        assert!(!set(&mut list, "Ready", Verdict::True, "Fine", "all well", Some(1), &at(2)));
        assert!(set(&mut list, "Ready", Verdict::True, "Fine", "still well", Some(1), &at(3)));
        assert_eq!(list[0].last_transition_time, at(1));
        assert!(set(&mut list, "Ready", Verdict::False, "Broken", "no", Some(2), &at(4)));
        assert_eq!(list[0].last_transition_time, at(4));
        assert!(!is_true(&list, "Ready"));
        assert!(remove(&mut list, "Ready") && list.is_empty());
    }
}
