//! What is to be done to a release, by its revisions in the child and by what is wanted.

use std::time::Duration;

use chart::helm::record::status;
use chart::{Bundle, Record, Val};
use jiff::Timestamp;
use serde_json::Value;

/// What is wanted.
pub(super) struct Wanted<'a> {
    /// Name of the chart.
    pub(super) chart: &'a str,
    /// Its version, a range, or nothing for any.
    pub(super) version: &'a str,
    /// Values of the user.
    pub(super) config: &'a Value,
    /// What it renders to, when the branch has that.
    pub(super) bundle: Option<&'a Bundle>,
    /// Whether a failed installation is removed before the next one.
    pub(super) atomic: bool,
    /// How long an action may take.
    pub(super) timeout: Duration,
    /// A revision that this agent itself began, by the status that it wrote before.
    pub(super) ours: Option<i64>,
    /// A failed revision of the same chart and values is tried once more.
    pub(super) retry: bool,
    /// A failed installation is installed over, as Helm does with `--replace`.
    pub(super) replace: bool,
}

/// What is to be done.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Nothing: the last revision is what is wanted, or failed in being that.
    Nothing,
    /// There is no revision that counts.
    Install,
    /// What a failed installation left goes first.
    Reinstall,
    /// From the revision with this index.
    Upgrade(usize),
    /// Somebody else is at work; look again after this long.
    Wait(Duration),
}

/// Decides. `history` has the oldest revision first.
pub(super) fn decide(history: &[Record], wanted: &Wanted<'_>, now: Timestamp) -> Action {
    let Some(last) = history.last() else { return Action::Install };
    let goes = last.info.status == status::UNINSTALLING;
    // What we take away ourselves we do for the sake of the next revision.
    let began = if goes { last.version + 1 } else { last.version };
    if (last.is_pending() || goes) && wanted.ours != Some(began) {
        let at = if goes { &last.info.deleted } else { &last.info.last_deployed };
        let since = at.parse::<Timestamp>().ok().map(|at| now.duration_since(at));
        let left = since.and_then(|since| wanted.timeout.checked_sub(Duration::try_from(since).unwrap_or_default()));
        // Whoever began it has had their time, or left no date.
        if let Some(left) = left.filter(|left| !left.is_zero()) {
            return Action::Wait(left);
        }
    }
    if matches!(last.info.status.as_str(), status::UNINSTALLED) {
        return Action::Install;
    }
    let as_wanted = is(last, wanted);
    match last.info.status.as_str() {
        status::DEPLOYED if as_wanted => return Action::Nothing,
        status::FAILED if as_wanted && !wanted.retry => return Action::Nothing,
        _ => {}
    }
    let deployed = history.iter().rposition(|r| r.info.status == status::DEPLOYED);
    match deployed {
        Some(at) => Action::Upgrade(at),
        None if wanted.atomic || goes => Action::Reinstall,
        None if wanted.replace && last.info.status == status::FAILED => Action::Install,
        // What failed may have left objects: an upgrade from it takes them over or away.
        None => Action::Upgrade(history.len() - 1),
    }
}

/// Whether a revision is of the chart and the values that are wanted.
fn is(record: &Record, wanted: &Wanted<'_>) -> bool {
    let plain = |v: &Value| if v.is_null() { Value::Object(serde_json::Map::new()) } else { v.clone() };
    wanted.bundle.map_or_else(|| record.chart_text("name") == wanted.chart && registry::pool::allows(wanted.version, record.chart_text("version")), |bundle| bundle.is_of(record))
        // Numbers without a fraction are written in two ways.
        && Val::from_json(&plain(&record.config)).deep_equal(&Val::from_json(&plain(wanted.config)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn record(version: i64, status: &str, chart: &str, config: Value) -> Record {
        let mut record = Record { version, config, chart: json!({"metadata": {"name": "web", "version": chart}}), ..Record::default() };
        record.info.status = status.to_owned();
        record.info.last_deployed = "2026-01-01T00:00:00Z".to_owned();
        record
    }

    fn check(history: &[Record], version: &str, config: Value, change: impl Fn(&mut Wanted<'_>), want: Action) {
        let mut wanted = Wanted { chart: "web", version, config: &config, bundle: None, atomic: false, timeout: Duration::from_secs(300), ours: None, retry: false, replace: false };
        change(&mut wanted);
        let now = "2026-01-01T00:01:00Z".parse().expect("a time");
        let states: Vec<_> = history.iter().map(|r| (r.version, &r.info.status)).collect();
        assert_eq!(decide(history, &wanted, now), want, "{states:?} {version} {config}");
    }

    #[test]
    fn table() {
        let as_is = |_: &mut Wanted<'_>| {};
        let one = |status: &str| vec![record(1, status, "1.2.0", json!({"a": 1}))];
        check(&[], "1.2.0", json!({}), as_is, Action::Install);
        check(&one("deployed"), "1.2.0", json!({"a": 1.0}), as_is, Action::Nothing);
        check(&one("deployed"), "", json!({"a": 1}), as_is, Action::Nothing);
        check(&one("deployed"), "^1.1", json!({"a": 1}), as_is, Action::Nothing);
        check(&one("deployed"), "1.3.0", json!({"a": 1}), as_is, Action::Upgrade(0));
        check(&one("deployed"), "2.x", json!({"a": 1}), as_is, Action::Upgrade(0));
        check(&one("deployed"), "1.2.0", json!({"a": null}), as_is, Action::Upgrade(0));
        check(&one("deployed"), "1.2.0", json!({"a": 1}), |w| w.chart = "other", Action::Upgrade(0));
        check(&[record(1, "deployed", "1.2.0", Value::Null)], "1.2.0", json!({}), as_is, Action::Nothing);
        check(&one("uninstalled"), "1.2.0", json!({"a": 1}), as_is, Action::Install);
        check(&one("uninstalling"), "1.2.0", json!({"a": 1}), as_is, Action::Reinstall);
        check(&one("failed"), "1.2.0", json!({"a": 1}), as_is, Action::Nothing);
        check(&one("failed"), "1.2.0", json!({"a": 1}), |w| w.retry = true, Action::Upgrade(0));
        check(&one("failed"), "1.2.0", json!({"a": 2}), as_is, Action::Upgrade(0));
        check(&one("failed"), "1.2.0", json!({"a": 2}), |w| w.atomic = true, Action::Reinstall);
        check(&one("failed"), "1.2.0", json!({"a": 2}), |w| w.replace = true, Action::Install);
        check(&one("failed"), "1.2.0", json!({"a": 1}), |w| w.replace = true, Action::Nothing);
        let two = [record(1, "deployed", "1.2.0", json!({"a": 1})), record(2, "failed", "1.3.0", json!({"a": 1}))];
        check(&two, "1.4.0", json!({"a": 1}), |w| w.atomic = true, Action::Upgrade(0));
        check(&two, "1.3.0", json!({"a": 1}), as_is, Action::Nothing);
        check(&two, "1.2.0", json!({"a": 1}), as_is, Action::Upgrade(0));
    }

    #[test]
    fn the_bytes_of_the_branch_count() {
        let mut one = record(1, "deployed", "1.2.0", json!({}));
        one.manifest = "a".into();
        let bundle = |manifest: &str| Bundle { chart: one.chart.clone(), manifest: manifest.into(), ..Bundle::default() };
        for (manifest, want) in [("a", Action::Nothing), ("b", Action::Upgrade(0))] {
            let wanted = Wanted { chart: "web", version: "", config: &json!({}), bundle: Some(&bundle(manifest)), atomic: false, timeout: Duration::from_secs(9), ours: None, retry: false, replace: false };
            assert_eq!(decide(std::slice::from_ref(&one), &wanted, Timestamp::UNIX_EPOCH), want, "{manifest}");
        }
    }

    #[test]
    fn what_is_under_way_is_waited_for_unless_it_was_ours() {
        let pending = [record(1, "pending-install", "1.2.0", json!({}))];
        check(&pending, "1.2.0", json!({}), |_| {}, Action::Wait(Duration::from_secs(240)));
        check(&pending, "1.2.0", json!({}), |w| w.ours = Some(1), Action::Upgrade(0));
        check(&pending, "1.2.0", json!({}), |w| w.timeout = Duration::from_secs(30), Action::Upgrade(0));
        let mut going = [record(3, "uninstalling", "1.2.0", json!({}))];
        going[0].info.deleted = "2026-01-01T00:00:50Z".to_owned();
        check(&going, "1.2.0", json!({}), |_| {}, Action::Wait(Duration::from_secs(290)));
        check(&going, "1.2.0", json!({}), |w| w.ours = Some(3), Action::Wait(Duration::from_secs(290)));
        check(&going, "1.2.0", json!({}), |w| w.ours = Some(4), Action::Reinstall);
        check(&going, "1.2.0", json!({}), |w| w.timeout = Duration::from_secs(5), Action::Reinstall);
    }
}
