//! String formats that a server checks.

/// Whether `s` is of a format; unknown formats accept everything.
pub(crate) fn fits(format: &str, s: &str) -> bool {
    match format {
        "date-time" | "datetime" => date_time(s),
        "date" => s.len() == 10 && s.parse::<jiff::civil::Date>().is_ok(),
        "duration" => crate::cel::duration::parse(s).is_some() || humane_duration(s),
        "ipv4" => s.parse::<std::net::Ipv4Addr>().is_ok(),
        "ipv6" => s.parse::<std::net::Ipv6Addr>().is_ok(),
        "cidr" => cidr(s),
        "mac" => mac(s),
        "uuid" | "uuid3" | "uuid4" | "uuid5" => uuid(s, format.as_bytes().get(4).copied()),
        "byte" => base64_text(s),
        "email" => email(s),
        "hostname" => hostname(s),
        "uri" => s.contains(':') && !s.contains(char::is_whitespace) && s.split(':').next().is_some_and(|p| !p.is_empty()),
        "bsonobjectid" => s.len() == 24 && s.bytes().all(|b| b.is_ascii_hexdigit()),
        "hexcolor" => s.strip_prefix('#').is_some_and(|h| matches!(h.len(), 3 | 6) && h.bytes().all(|b| b.is_ascii_hexdigit())),
        "creditcard" => luhn(s),
        "isbn" => isbn10(s) || isbn13(s),
        "isbn10" => isbn10(s),
        "isbn13" => isbn13(s),
        "ssn" => ssn(s),
        "rgbcolor" => rgb(s),
        "k8s-short-name" => crate::text::dns1123_label(s).is_empty(),
        "k8s-long-name" => crate::text::dns1123_subdomain(s).is_empty(),
        _ => true,
    }
}

/// The formats of the list above; a server ignores all others.
pub(crate) fn known(format: &str) -> bool {
    const ALL: [&str; 25] = [
        "date-time", "datetime", "date", "duration", "ipv4", "ipv6", "cidr", "mac", "uuid", "uuid3", "uuid4", "uuid5", "byte", "email", "hostname", "uri",
        "bsonobjectid", "hexcolor", "creditcard", "isbn", "isbn10", "isbn13", "ssn", "rgbcolor", "password",
    ];
    ALL.contains(&format) || matches!(format, "k8s-short-name" | "k8s-long-name")
}

fn date_time(s: &str) -> bool {
    s.len() >= 20 && s.as_bytes().get(10).is_some_and(|b| matches!(b, b'T' | b't' | b' ')) && s.replacen(' ', "T", 1).parse::<jiff::Timestamp>().is_ok()
}

/// `3 days`, `10 minutes`: the other durations the format knows.
fn humane_duration(s: &str) -> bool {
    let t = s.trim();
    let end = t.find(|c: char| !c.is_ascii_digit()).unwrap_or(t.len());
    let (n, unit) = t.split_at(end);
    !n.is_empty()
        && matches!(
            unit.trim().to_ascii_lowercase().as_str(),
            "ns" | "nano" | "nanos" | "us" | "µs" | "micro" | "micros" | "ms" | "milli" | "millis" | "s" | "sec" | "secs" | "second" | "seconds" | "m" | "min" | "mins" | "minute" | "minutes"
                | "h" | "hr" | "hour" | "hours" | "d" | "day" | "days" | "w" | "wk" | "week" | "weeks"
        )
}

fn cidr(s: &str) -> bool {
    match s.split_once('/').map(|(a, p)| (a.parse::<std::net::IpAddr>(), p.parse::<u8>())) {
        Some((Ok(std::net::IpAddr::V4(_)), Ok(p))) => p <= 32,
        Some((Ok(std::net::IpAddr::V6(_)), Ok(p))) => p <= 128,
        _ => false,
    }
}

fn mac(s: &str) -> bool {
    let sep = if s.contains(':') { ':' } else if s.contains('-') { '-' } else { '.' };
    let parts: Vec<&str> = s.split(sep).collect();
    let width = if sep == '.' { 4 } else { 2 };
    let counts: &[usize] = if sep == '.' { &[3, 4, 10] } else { &[6, 8, 20] };
    counts.contains(&parts.len()) && parts.iter().all(|p| p.len() == width && p.bytes().all(|b| b.is_ascii_hexdigit()))
}

fn uuid(s: &str, version: Option<u8>) -> bool {
    let hex: String = s.chars().filter(|c| *c != '-').collect();
    let v = hex.as_bytes().get(12).copied();
    let variant = hex.as_bytes().get(16).is_some_and(|b| matches!(b.to_ascii_lowercase(), b'8' | b'9' | b'a' | b'b'));
    hex.len() == 32
        && hex.bytes().all(|b| b.is_ascii_hexdigit())
        && version.is_none_or(|want| v == Some(want) && (want == b'3' || variant))
}

fn base64_text(s: &str) -> bool {
    use base64::Engine;
    !s.is_empty() && base64::engine::general_purpose::STANDARD.decode(s).is_ok()
}

fn email(s: &str) -> bool {
    s.rsplit_once('@').is_some_and(|(user, host)| !user.is_empty() && !host.is_empty() && !user.contains(char::is_whitespace) && hostname(host))
}

fn hostname(s: &str) -> bool {
    s.len() <= 255
        && !s.is_empty()
        && s.trim_end_matches('.').split('.').all(|l| {
            !l.is_empty() && l.len() <= 63 && !l.starts_with('-') && !l.ends_with('-') && l.chars().all(|c| c.is_alphanumeric() || c == '-' || c == '_')
        })
}

fn digits(s: &str) -> Vec<u32> {
    s.chars().filter_map(|c| c.to_digit(10)).collect()
}

fn luhn(s: &str) -> bool {
    let d = digits(s);
    let sum: u32 = d.iter().rev().enumerate().map(|(i, n)| if i % 2 == 1 { let x = n * 2; if x > 9 { x - 9 } else { x } } else { *n }).sum();
    (12..=19).contains(&d.len()) && sum % 10 == 0
}

fn isbn10(s: &str) -> bool {
    let t: Vec<char> = s.chars().filter(|c| *c != '-' && *c != ' ').collect();
    if t.len() != 10 {
        return false;
    }
    let mut sum = 0;
    for (i, c) in t.iter().enumerate() {
        let n = match (c.to_digit(10), i) {
            (Some(n), _) => n,
            (None, 9) if matches!(c, 'X' | 'x') => 10,
            _ => return false,
        };
        sum += n * (10 - u32::try_from(i).unwrap_or(0));
    }
    sum % 11 == 0
}

fn isbn13(s: &str) -> bool {
    let d = digits(s);
    d.len() == 13 && d.iter().enumerate().map(|(i, n)| if i % 2 == 0 { *n } else { n * 3 }).sum::<u32>() % 10 == 0
}

fn ssn(s: &str) -> bool {
    let p: Vec<&str> = s.split(['-', ' ']).collect();
    matches!(p.as_slice(), [a, b, c] if (a.len(), b.len(), c.len()) == (3, 2, 4) && [a, b, c].iter().all(|x| x.bytes().all(|d| d.is_ascii_digit())))
}

fn rgb(s: &str) -> bool {
    s.strip_prefix("rgb(").and_then(|r| r.strip_suffix(')')).is_some_and(|r| {
        let p: Vec<&str> = r.split(',').map(str::trim).collect();
        p.len() == 3 && p.iter().all(|n| n.parse::<u8>().is_ok())
    })
}
