//! Formats of strings that a values.schema.json may ask for; drafts up to 7 check them. A fault is in the words of Helm's validator.
//!
//! Sources: RFC 1123 (hostnames), 3339 (dates, durations), 3986 (URIs), 4122 (UUIDs), 5321 (addresses), 6901 (pointers), semver.org.

use crate::text::quote::{quote, quote_rune};

type Res = Result<(), String>;

/// Checks a text; a format that nobody knows says nothing.
pub(super) fn check(format: &str, text: &str) -> Res {
    match format {
        "regex" => crate::func_regex(text).map(drop),
        "json-pointer" => json_pointer(text),
        "relative-json-pointer" => relative_pointer(text),
        "uuid" => uuid(text),
        "duration" => duration(text),
        "period" => period(text),
        "ipv4" => ipv4(text),
        "ipv6" => ipv6(text),
        "hostname" => hostname(text),
        "email" => email(text),
        "date" => date(text),
        "time" => time(text),
        "date-time" => date_time(text),
        "uri" | "iri" => uri(text),
        "uri-reference" | "iri-reference" if text.contains('\\') => fault("contains \\"),
        "uri-reference" | "iri-reference" | "uri-template" => crate::func::url_scheme(text).map(drop),
        "semver" => semver(text),
        _ => Ok(()),
    }
}

fn fault(text: impl Into<String>) -> Res {
    Err(text.into())
}

fn ensure(holds: bool, text: &str) -> Res {
    if holds { Ok(()) } else { fault(text) }
}

fn number(text: &str) -> Result<i64, String> {
    text.parse().map_err(|_| format!("strconv.Atoi: parsing {}: invalid syntax", quote(text.as_bytes())))
}

fn json_pointer(text: &str) -> Res {
    if text.is_empty() {
        return Ok(());
    }
    ensure(text.starts_with('/'), "not starting with /")?;
    text.split('~').skip(1).try_for_each(|after| ensure(after.starts_with(['0', '1']), "~ must be followed by 0 or 1"))
}

fn relative_pointer(text: &str) -> Res {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    ensure(digits > 0, "must start with non-negative integer")?;
    ensure(digits == 1 || !text.starts_with('0'), "starts with zero")?;
    if &text[digits..] == "#" { Ok(()) } else { json_pointer(&text[digits..]) }
}

fn uuid(text: &str) -> Res {
    let groups: Vec<&str> = text.split('-').collect();
    ensure(groups.len() == 5, "must have 5 elements")?;
    for (i, (group, length)) in groups.iter().zip([8, 4, 4, 4, 12]).enumerate() {
        if group.len() != length {
            return fault(format!("element {} must be {length} characters long", i + 1));
        }
        if let Some(c) = group.chars().find(|c| !c.is_ascii_hexdigit()) {
            return fault(format!("non-hex character {}", quote_rune(c)));
        }
    }
    Ok(())
}

fn duration(text: &str) -> Res {
    let Some(rest) = text.strip_prefix('P') else { return fault("must start with P") };
    ensure(!rest.is_empty(), "nothing after P")?;
    if let Some(weeks) = rest.strip_suffix('W') {
        ensure(!weeks.is_empty(), "no number in week")?;
        return ensure(weeks.bytes().all(|b| b.is_ascii_digit()), "invalid week");
    }
    for (i, mut part) in rest.split('T').enumerate() {
        ensure(i == 0 || !part.is_empty(), "no time elements")?;
        let Some(all) = ["YMD", "HMS"].get(i) else { return fault("more than one T") };
        let mut units = *all;
        while !part.is_empty() {
            let digits = part.bytes().take_while(u8::is_ascii_digit).count();
            ensure(digits > 0, "missing number")?;
            let Some(unit) = part[digits..].chars().next() else { return fault("missing unit") };
            match units.find(unit) {
                Some(at) => units = &units[at + 1..],
                None if all.contains(unit) => return fault(format!("unit {} out of order", quote_rune(unit))),
                None => return fault(format!("invalid unit {}", quote_rune(unit))),
            }
            part = &part[digits + unit.len_utf8()..];
        }
    }
    Ok(())
}

fn period(text: &str) -> Res {
    let Some((start, end)) = text.split_once('/') else { return fault("missing slash") };
    let part = |which: &str, text: &str| {
        if text.starts_with('P') { duration(text).map_err(|e| format!("invalid {which} duration: {e}")) } else { date_time(text).map_err(|e| format!("invalid {which} date-time: {e}")) }
    };
    part("start", start)?;
    if start.starts_with('P') { date_time(end).map_err(|e| format!("invalid end date-time: {e}")) } else { part("end", end) }
}

fn ipv4(text: &str) -> Res {
    let groups: Vec<&str> = text.split('.').collect();
    ensure(groups.len() == 4, "expected four decimals")?;
    for group in groups {
        ensure(group.len() < 2 || !group.starts_with('0'), "leading zeros")?;
        ensure((0..=255).contains(&number(group)?), "decimal must be between 0 and 255")?;
    }
    Ok(())
}

fn ipv6(text: &str) -> Res {
    ensure(text.contains(':'), "missing colon")?;
    let (address, zone) = text.split_once('%').map_or((text, None), |(a, z)| (a, Some(z)));
    if address.parse::<std::net::Ipv6Addr>().is_err() {
        return fault(format!("ParseAddr({}): unable to parse IP", quote(text.as_bytes())));
    }
    ensure(zone.is_none(), "zone id is not a part of ipv6 address")
}

fn hostname(text: &str) -> Res {
    let text = text.strip_suffix('.').unwrap_or(text);
    ensure(text.len() <= 253, "more than 253 characters long")?;
    for label in text.split('.') {
        ensure((1..=63).contains(&label.len()), "label must be 1 to 63 characters long")?;
        ensure(!label.starts_with('-'), "label starts with hyphen")?;
        ensure(!label.ends_with('-'), "label ends with hyphen")?;
        if let Some(c) = label.chars().find(|c| !c.is_ascii_alphanumeric() && *c != '-') {
            return fault(format!("invalid character {}", quote_rune(c)));
        }
    }
    Ok(())
}

fn email(text: &str) -> Res {
    ensure(text.len() <= 254, "more than 255 characters long")?;
    let Some((local, domain)) = text.rsplit_once('@') else { return fault("missing @") };
    ensure(local.len() <= 64, "local part more than 64 characters long")?;
    if let Some(quoted) = local.strip_prefix('"').and_then(|l| l.strip_suffix('"')) {
        ensure(!quoted.contains(['\\', '"']), "backslash and quote are not allowed within quoted local part")?;
    } else {
        ensure(!local.starts_with('.'), "starts with dot")?;
        ensure(!local.ends_with('.'), "ends with dot")?;
        ensure(!local.contains(".."), "consecutive dots")?;
        if let Some(c) = local.chars().find(|c| !c.is_ascii_alphanumeric() && !".!#$%&'*+-/=?^_`{|}~".contains(*c)) {
            return fault(format!("invalid character {}", quote_rune(c)));
        }
    }
    match domain.strip_prefix('[').and_then(|d| d.strip_suffix(']')) {
        Some(address) => match address.strip_prefix("IPv6:") {
            Some(six) => ipv6(six).map_err(|e| format!("invalid ipv6 address: {e}")),
            None => ipv4(address).map_err(|e| format!("invalid ipv4 address: {e}")),
        },
        None => hostname(domain).map_err(|e| format!("invalid domain: {e}")),
    }
}

fn date(text: &str) -> Res {
    crate::func::date::parse_layout("2006-01-02", text).map(drop)
}

/// Hours, minutes and what follows them of the same form.
fn clock(text: &str) -> Option<Vec<i64>> {
    text.split(':').map(|part| part.parse().ok()).collect()
}

fn time(text: &str) -> Res {
    ensure(text.len() >= 9, "less than 9 characters long")?;
    ensure(text.as_bytes()[2] == b':' && text.as_bytes()[5] == b':', "missing colon in correct place")?;
    let Some(&[mut hour, mut minute, second]) = text.get(..8).and_then(clock).as_deref() else { return fault("invalid hour/min/sec") };
    ensure(hour >= 0 && minute >= 0 && second >= 0, "non-positive hour/min/sec")?;
    ensure(hour <= 23 && minute <= 59 && second <= 60, "hour/min/sec out of range")?;
    let mut rest = &text[8..];
    if let Some(fraction) = rest.strip_prefix('.') {
        let digits = fraction.bytes().take_while(u8::is_ascii_digit).count();
        ensure(digits > 0, "no digits in second fraction")?;
        rest = &fraction[digits..];
    }
    if !matches!(rest, "z" | "Z") {
        ensure(rest.len() == 6, "offset must be 6 characters long")?;
        let sign = match rest.as_bytes()[0] {
            b'+' => -1,
            b'-' => 1,
            _ => return fault("offset must begin with plus/minus"),
        };
        ensure(rest.as_bytes()[3] == b':', "missing colon in offset in correct place")?;
        let Some(&[hours, minutes]) = rest.get(1..).and_then(clock).as_deref() else { return fault("invalid hour/min in offset") };
        ensure(hours >= 0 && minutes >= 0, "non-positive hour/min in offset")?;
        ensure(hours <= 23 && minutes <= 59, "hour/min in offset out of range")?;
        let utc = (hour * 60 + minute + sign * (hours * 60 + minutes)).rem_euclid(24 * 60);
        (hour, minute) = (utc / 60, utc % 60);
    }
    ensure(second < 60 || hour == 23 && minute == 59, "invalid leap second")
}

fn date_time(text: &str) -> Res {
    ensure(text.len() >= 20, "less than 20 characters long")?;
    ensure(matches!(text.as_bytes()[10], b't' | b'T'), "11th character must be t or T")?;
    date(&text[..10]).map_err(|e| format!("invalid date element: {e}"))?;
    time(&text[11..]).map_err(|e| format!("invalid time element: {e}"))
}

fn uri(text: &str) -> Res {
    ensure(!crate::func::url_scheme(text)?.is_empty(), "relative url")
}

fn semver(text: &str) -> Res {
    let identifiers = |what: &str, text: &str, zeros: bool| -> Res {
        for id in text.split('.') {
            if id.is_empty() {
                return fault(format!("{what} identifier is empty"));
            }
            if let Some(c) = id.chars().find(|c| !c.is_ascii_alphanumeric() && *c != '-') {
                return fault(format!("invalid character {} in {what} identifier", quote_rune(c)));
            }
            if !zeros && id.len() > 1 && id.starts_with('0') && id.bytes().all(|b| b.is_ascii_digit()) {
                return fault(format!("{what} numeric identifier starts with zero"));
            }
        }
        Ok(())
    };
    let (text, build) = text.split_once('+').map_or((text, None), |(t, b)| (t, Some(b)));
    if let Some(build) = build {
        ensure(!build.is_empty(), "build is empty")?;
        identifiers("build", build, true)?;
    }
    let (core, before) = text.split_once('-').map_or((text, None), |(t, b)| (t, Some(b)));
    if let Some(before) = before {
        identifiers("pre-release", before, false)?;
    }
    let numbers: Vec<&str> = core.split('.').collect();
    ensure(numbers.len() == 3, "versionCore must have 3 numbers separated by dot")?;
    for (number, name) in numbers.into_iter().zip(["major", "minor", "patch"]) {
        ensure(!number.is_empty(), &format!("{name} is empty"))?;
        ensure(number.len() < 2 || !number.starts_with('0'), &format!("{name} starts with zero"))?;
        ensure(number.bytes().all(|b| b.is_ascii_digit()), &format!("{name} contains non-digit"))?;
    }
    Ok(())
}
