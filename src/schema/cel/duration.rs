//! Go durations: `1h30m`, `-1.5s`.

/// Nanoseconds of a duration text.
pub(crate) fn parse(s: &str) -> Option<i128> {
    let (neg, mut rest) = match s.strip_prefix('-') {
        Some(r) => (true, r),
        None => (false, s.strip_prefix('+').unwrap_or(s)),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at(end);
        let unit_end = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, next) = after.split_at(unit_end);
        let scale: i128 = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        let (int, frac) = number.split_once('.').unwrap_or((number, ""));
        if (int.is_empty() && frac.is_empty()) || frac.contains('.') {
            return None;
        }
        let whole: i128 = if int.is_empty() { 0 } else { int.parse().ok()? };
        let mut part = whole.checked_mul(scale)?;
        if !frac.is_empty() {
            let digits = &frac[..frac.len().min(18)];
            let f: i128 = digits.parse().ok()?;
            part += f * scale / 10_i128.pow(u32::try_from(digits.len()).ok()?);
        }
        total = total.checked_add(part)?;
        rest = next;
    }
    if total > i128::from(i64::MAX) {
        return None;
    }
    Some(if neg { -total } else { total })
}

/// A duration as Go prints it.
pub(crate) fn show(nanos: i128) -> String {
    let (sign, n) = if nanos < 0 { ("-", -nanos) } else { ("", nanos) };
    if n == 0 {
        return "0s".to_owned();
    }
    let frac = |n: i128, unit: i128| {
        let mut s = format!("{}", n / unit);
        let rest = n % unit;
        if rest != 0 {
            let width = unit.to_string().len() - 1;
            let f = format!("{rest:0width$}");
            s.push('.');
            s.push_str(f.trim_end_matches('0'));
        }
        s
    };
    if n < 1_000 {
        return format!("{sign}{n}ns");
    }
    if n < 1_000_000 {
        return format!("{sign}{}µs", frac(n, 1_000));
    }
    if n < 1_000_000_000 {
        return format!("{sign}{}ms", frac(n, 1_000_000));
    }
    let (h, m) = (n / 3_600_000_000_000, n / 60_000_000_000 % 60);
    let s = frac(n % 60_000_000_000, 1_000_000_000);
    match (h, m) {
        (0, 0) => format!("{sign}{s}s"),
        (0, m) => format!("{sign}{m}m{s}s"),
        (h, m) => format!("{sign}{h}h{m}m{s}s"),
    }
}
