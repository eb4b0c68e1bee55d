//! Go's duration text (`1h30m`, `500ms`), in which all intervals and timeouts of our kinds are written.

use std::time::Duration;

/// Pattern of the field schemas.
pub const PATTERN: &str = r"^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$";

/// Parses Go's duration text with the units ns, us, ms, s, m, h; negative ones are refused.
pub fn parse(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let mut total = 0f64;
    let mut rest = text;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, tail) = rest.split_at(digits);
        let number: f64 = number.parse().ok()?;
        let end = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, next) = tail.split_at(end);
        let seconds = match unit {
            "ns" => 1e-9,
            "us" | "µs" | "μs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        total += number * seconds;
        rest = next;
    }
    Duration::try_from_secs_f64(total).ok()
}

/// Writes a duration as Go's text, whole milliseconds.
pub fn format(duration: Duration) -> String {
    let millis = duration.as_millis();
    let (hours, minutes, seconds, millis) = (millis / 3_600_000, millis / 60_000 % 60, millis / 1000 % 60, millis % 1000);
    let mut out = String::new();
    for (number, unit) in [(hours, "h"), (minutes, "m"), (seconds, "s"), (millis, "ms")] {
        if number > 0 {
            out.push_str(&format!("{number}{unit}"));
        }
    }
    if out.is_empty() { "0s".to_owned() } else { out }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_back() {
        for (text, millis) in [("1h30m", 5_400_000), ("500ms", 500), ("1.5s", 1500), ("0", 0), ("2m", 120_000)] {
            assert_eq!(parse(text), Some(Duration::from_millis(millis)), "{text}");
        }
        for bad in ["", "5", "-5s", "s", "5d", "1..5s"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
        assert_eq!(format(Duration::from_millis(5_400_500)), "1h30m500ms");
        assert_eq!(format(Duration::ZERO), "0s");
    }
}
