//! Resource quantities, as far as decisions need them: read, add, compare, write back in the canonical form.

use std::cmp::Ordering;

/// An amount in billionths, with the family of suffixes it was written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quantity {
    nanos: i128,
    binary: bool,
}

const NANO: i128 = 1_000_000_000;
/// Kubernetes caps amounts at the largest 64-bit number.
const MAX: i128 = i64::MAX as i128 * NANO;
const DECIMAL: [(&str, i32); 10] = [("E", 18), ("P", 15), ("T", 12), ("G", 9), ("M", 6), ("k", 3), ("", 0), ("m", -3), ("u", -6), ("n", -9)];
const BINARY: [(&str, u32); 6] = [("Ei", 60), ("Pi", 50), ("Ti", 40), ("Gi", 30), ("Mi", 20), ("Ki", 10)];

impl Quantity {
    /// Reads a quantity; `None` when the text is none. More than nine decimals are rounded up, as Kubernetes does.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (negative, rest) = match text.as_bytes().first()? {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, suffix) = rest.split_at(end);
        let (whole, part) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && part.is_empty()) || part.contains('.') {
            return None;
        }
        let digits: i128 = format!("{whole}{part}").trim_start_matches('0').parse::<i128>().or_else(|e| if whole.chars().chain(part.chars()).all(|c| c == '0') { Ok(0) } else { Err(e) }).ok()?;
        let places = i32::try_from(part.len()).ok()?;
        let (nanos, binary) = if let Some((_, shift)) = BINARY.iter().find(|(s, _)| *s == suffix) {
            (scale(digits.checked_mul(1_i128.checked_shl(*shift)?)?, 9 - places)?, true)
        } else if let Some((_, exponent)) = DECIMAL.iter().find(|(s, _)| *s == suffix) {
            (scale(digits, exponent + 9 - places)?, false)
        } else {
            let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            (scale(digits, exponent.checked_add(9)?.checked_sub(places)?)?, false)
        };
        let nanos = nanos.min(MAX);
        Some(Self { nanos: if negative { -nanos } else { nanos }, binary })
    }

    /// The sum, in the family of suffixes of the first that is not zero.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self { nanos: (self.nanos + other.nanos).clamp(-MAX, MAX), binary: if self.nanos == 0 { other.binary } else { self.binary } }
    }

    /// Value in billionths.
    #[must_use]
    pub fn nanos(self) -> i128 {
        self.nanos
    }

    /// Canonical text: the largest suffix that leaves a whole number.
    #[must_use]
    pub fn text(self) -> String {
        if self.nanos == 0 {
            return "0".to_owned();
        }
        let whole = self.nanos % NANO == 0;
        if self.binary && whole && self.nanos.abs() >= 1024 * NANO {
            let value = self.nanos / NANO;
            for (suffix, shift) in BINARY {
                if value % (1_i128 << shift) == 0 {
                    return format!("{}{suffix}", value >> shift);
                }
            }
            return value.to_string();
        }
        for (suffix, exponent) in DECIMAL {
            let unit = 10_i128.pow(u32::try_from(exponent + 9).unwrap_or(0));
            if self.nanos % unit == 0 {
                return format!("{}{suffix}", self.nanos / unit);
            }
        }
        format!("{}n", self.nanos)
    }
}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos).then(self.binary.cmp(&other.binary))
    }
}

/// `digits` times ten to `exponent`, rounded up; `None` when it is too large to hold.
fn scale(digits: i128, exponent: i32) -> Option<i128> {
    if digits == 0 {
        return Some(0);
    }
    if exponent >= 0 {
        return 10_i128.checked_pow(exponent.unsigned_abs()).and_then(|unit| digits.checked_mul(unit)).or(Some(MAX));
    }
    match 10_i128.checked_pow(exponent.unsigned_abs()) {
        Some(unit) => Some((digits + unit - 1) / unit),
        None => Some(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_and_written_as_kubernetes_does() {
        for (text, want) in [
            ("0", "0"), ("1", "1"), ("250m", "250m"), ("1000m", "1"), ("1500m", "1500m"), ("0.5", "500m"), ("1e3", "1k"), ("1024", "1024"), ("1Ki", "1Ki"), ("2048Ki", "2Mi"),
            ("1.5Gi", "1536Mi"), ("64Mi", "64Mi"), ("1000", "1k"), ("100M", "100M"), ("-5", "-5"), ("512", "512"), ("0.1Ki", "102400m"), (".5", "500m"), ("00", "0"),
        ] {
            assert_eq!(Quantity::parse(text).map(Quantity::text).as_deref(), Some(want), "{text}");
        }
        for text in ["", "x", "1x", "1..2", ".", "1Kib", "-"] {
            assert_eq!(Quantity::parse(text), None, "{text}");
        }
    }
}
