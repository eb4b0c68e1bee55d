//! Cron schedules: five fields, names, steps, lists, and the shorthands, in a time zone.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

/// When something is to happen again and again.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// Day of month and day of week are alternatives unless one of them is `*`.
    any_day: bool,
    zone: TimeZone,
}

const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
/// Further ahead nothing is looked for: a schedule like 30 February never comes.
const HORIZON_DAYS: i64 = 366 * 5;

fn number(text: &str, names: &[&str], base: u32) -> Option<u32> {
    if let Ok(number) = text.parse() {
        return Some(number);
    }
    let lower = text.to_lowercase();
    names.iter().position(|name| *name == lower).and_then(|at| u32::try_from(at).ok()).map(|at| at + base)
}

fn field(text: &str, least: u32, most: u32, names: &[&str]) -> Option<u64> {
    let mut bits = 0u64;
    for part in text.split(',') {
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => (range, Some(step.parse::<u32>().ok().filter(|step| *step > 0)?)),
            None => (part, None),
        };
        let (from, to) = if range == "*" || range == "?" {
            (least, most)
        } else if let Some((from, to)) = range.split_once('-') {
            (number(from, names, least)?, number(to, names, least)?)
        } else {
            let one = number(range, names, least)?;
            (one, if step.is_some() { most } else { one })
        };
        // Sunday may be written as 7.
        if from < least || to > most + u32::from(most == 6) || from > to {
            return None;
        }
        for value in (from..=to).step_by(usize::try_from(step.unwrap_or(1)).ok()?) {
            bits |= 1 << (if most == 6 { value % 7 } else { value });
        }
    }
    Some(bits)
}

impl Schedule {
    /// Reads a schedule; a zone inside the text (`TZ=…`) wins over `zone`. Nothing when either is not understood.
    pub(crate) fn parse(text: &str, zone: Option<&str>) -> Option<Self> {
        let (inner, rest) = match text.strip_prefix("CRON_TZ=").or_else(|| text.strip_prefix("TZ=")) {
            Some(rest) => rest.split_once(' ').map(|(zone, rest)| (Some(zone), rest))?,
            None => (None, text),
        };
        let zone = match inner.or(zone).unwrap_or("UTC") {
            "UTC" | "Etc/UTC" => TimeZone::UTC,
            other => TimeZone::get(other).ok()?,
        };
        let rest = match rest.trim() {
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@monthly" => "0 0 1 * *",
            "@weekly" => "0 0 * * 0",
            "@daily" | "@midnight" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            other => other,
        };
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let [minute, hour, day, month, weekday] = fields.as_slice() else { return None };
        let star = |text: &str| text.starts_with('*') || text.starts_with('?');
        Some(Self {
            minutes: field(minute, 0, 59, &[])?,
            hours: field(hour, 0, 23, &[])?,
            days: field(day, 1, 31, &[])?,
            months: field(month, 1, 12, &MONTHS)?,
            weekdays: field(weekday, 0, 6, &WEEKDAYS)?,
            any_day: !star(day) && !star(weekday),
            zone,
        })
    }

    fn day_fits(&self, at: &DateTime) -> bool {
        let bit = |bits: u64, value: i8| u32::try_from(value).is_ok_and(|value| bits & (1 << value) != 0);
        let day = bit(self.days, at.day());
        let weekday = bit(self.weekdays, at.weekday().to_sunday_zero_offset());
        bit(self.months, at.month()) && if self.any_day { day || weekday } else { day && weekday }
    }

    fn hour_fits(&self, at: &DateTime) -> bool {
        u32::try_from(at.hour()).is_ok_and(|hour| self.hours & (1 << hour) != 0)
    }

    fn minute_fits(&self, at: &DateTime) -> bool {
        u32::try_from(at.minute()).is_ok_and(|minute| self.minutes & (1 << minute) != 0)
    }

    /// The first moment after `after`.
    pub(crate) fn next(&self, after: Timestamp) -> Option<Timestamp> {
        self.walk(after, true)
    }

    /// The last moment not after `until`.
    pub(crate) fn latest(&self, until: Timestamp) -> Option<Timestamp> {
        self.walk(until, false)
    }

    fn walk(&self, from: Timestamp, forward: bool) -> Option<Timestamp> {
        let minute = from.as_second().div_euclid(60) + i64::from(forward);
        let mut at = Timestamp::from_second(minute.checked_mul(60)?).ok()?;
        let limit = HORIZON_DAYS * 86_400;
        loop {
            if at.duration_since(from).as_secs().abs() > limit {
                return None;
            }
            let civil = at.to_zoned(self.zone.clone()).datetime();
            // Seconds to the edge of a day or an hour, in the direction of the walk.
            let (hour, minute) = (i64::from(civil.hour()), i64::from(civil.minute()));
            let step = if !self.day_fits(&civil) {
                if forward { (24 - hour) * 60 - minute } else { hour * 60 + minute + 1 }
            } else if !self.hour_fits(&civil) {
                if forward { 60 - minute } else { minute + 1 }
            } else if !self.minute_fits(&civil) {
                1
            } else {
                return Some(at);
            };
            // A day with a change of clocks is walked hour by hour, lest an hour be jumped over.
            let step = if self.zone != TimeZone::UTC { step.min(60 - if forward { minute } else { 59 - minute }) } else { step };
            let step = SignedDuration::from_mins(step.max(1));
            at = if forward { at + step } else { at - step };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments() {
        let cases = [
            ("*/5 * * * *", None, "2026-11-29T12:01:30Z", "2026-11-29T12:05:00Z", "2026-11-29T12:00:00Z"),
            ("0 0 * * *", None, "2026-11-29T00:00:00Z", "2026-11-30T00:00:00Z", "2026-11-29T00:00:00Z"),
            ("@hourly", None, "2026-12-31T23:59:59Z", "2027-01-01T00:00:00Z", "2026-12-31T23:00:00Z"),
            ("30 8 * * mon-fri", None, "2026-11-28T09:00:00Z", "2026-11-30T08:30:00Z", "2026-11-27T08:30:00Z"),
            ("0 12 13 * 5", None, "2026-11-29T12:00:00Z", "2026-12-04T12:00:00Z", "2026-11-27T12:00:00Z"),
            ("15 10 29 feb *", None, "2026-11-29T12:00:00Z", "2028-02-29T10:15:00Z", "2024-02-29T10:15:00Z"),
            ("0 9 * * *", Some("America/New_York"), "2026-11-29T15:00:00Z", "2026-11-30T14:00:00Z", "2026-11-29T14:00:00Z"),
            ("TZ=Asia/Tokyo 0 9 * * 7", None, "2026-11-29T15:00:00Z", "2026-12-06T00:00:00Z", "2026-11-29T00:00:00Z"),
        ];
        for (text, zone, at, next, latest) in cases {
            let schedule = Schedule::parse(text, zone).expect(text);
            let at: Timestamp = at.parse().expect("a time");
            assert_eq!(schedule.next(at).map(|at| at.to_string()).as_deref(), Some(next), "{text} next");
            assert_eq!(schedule.latest(at).map(|at| at.to_string()).as_deref(), Some(latest), "{text} latest");
        }
        let never = Schedule::parse("0 0 30 2 *", None).expect("readable");
        assert_eq!(never.next("2026-11-29T12:00:00Z".parse().expect("a time")), None);
        for text in ["", "* * * *", "60 * * * *", "* * 0 * *", "*/0 * * * *", "5-1 * * * *", "x * * * *", "* * * * 8"] {
            assert!(Schedule::parse(text, None).is_none(), "{text}");
        }
        assert!(Schedule::parse("* * * * *", Some("Moon/Base")).is_none());
    }
}
