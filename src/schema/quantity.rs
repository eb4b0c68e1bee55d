//! Resource quantities (`500m`, `1Gi`): parse, canonical text, compare. Exact to a billionth, as Kubernetes is.

use std::cmp::Ordering;

/// How a quantity is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Powers of 1000: m, k, M, …
    DecimalSi,
    /// Powers of 1024: Ki, Mi, …
    BinarySi,
    /// `1e3`.
    DecimalExponent,
}

/// A quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quantity {
    /// Value in billionths.
    nanos: i128,
    /// How it was written.
    format: Format,
}

/// Why a text is no quantity; the words are those of a real server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// Not of the form number + suffix.
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Form,
    /// The suffix is unknown.
    #[error("unable to parse quantity's suffix")]
    Suffix,
    /// Nothing where a number should be.
    #[error("unable to parse numeric part of quantity")]
    Number,
}

const NANO: i128 = 1_000_000_000;
/// Largest magnitude, `2^63-1`; larger ones are capped.
const MAX: i128 = (i64::MAX as i128) * NANO;

impl Quantity {
    /// Reads a quantity.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        let b = text.as_bytes();
        let (neg, rest) = match b.first() {
            None => return Err(QuantityError::Form),
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            _ => (false, text),
        };
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, suffix) = rest.split_at(end);
        let (int, frac) = number.split_once('.').unwrap_or((number, ""));
        if number.is_empty() || frac.contains('.') || (int.is_empty() && frac.is_empty()) {
            return Err(QuantityError::Form);
        }
        if !suffix.chars().all(|c| "eEinumkKMGTP+-0123456789".contains(c)) {
            return Err(QuantityError::Form);
        }
        let (format, binary, exp) = match suffix {
            "n" => (Format::DecimalSi, 0, -9),
            "u" => (Format::DecimalSi, 0, -6),
            "m" => (Format::DecimalSi, 0, -3),
            "" => (Format::DecimalSi, 0, 0),
            "k" => (Format::DecimalSi, 0, 3),
            "M" => (Format::DecimalSi, 0, 6),
            "G" => (Format::DecimalSi, 0, 9),
            "T" => (Format::DecimalSi, 0, 12),
            "P" => (Format::DecimalSi, 0, 15),
            "E" => (Format::DecimalSi, 0, 18),
            "Ki" => (Format::BinarySi, 10, 0),
            "Mi" => (Format::BinarySi, 20, 0),
            "Gi" => (Format::BinarySi, 30, 0),
            "Ti" => (Format::BinarySi, 40, 0),
            "Pi" => (Format::BinarySi, 50, 0),
            "Ei" => (Format::BinarySi, 60, 0),
            s => match s.strip_prefix(['e', 'E']).map(|d| d.parse::<i32>()) {
                Some(Ok(e)) => (Format::DecimalExponent, 0, e),
                _ => return Err(QuantityError::Suffix),
            },
        };
        let digits: String = int.chars().chain(frac.chars()).collect();
        let digits = digits.trim_start_matches('0');
        let scale = exp.saturating_sub(i32::try_from(frac.len()).unwrap_or(i32::MAX)).saturating_add(9);
        let mut nanos = scaled(digits, scale, binary);
        if neg {
            nanos = -nanos;
        }
        Ok(Self { nanos: nanos.clamp(-MAX, MAX), format })
    }

    /// A whole number.
    pub fn from_int(n: i64) -> Self {
        Self { nanos: i128::from(n) * NANO, format: Format::DecimalSi }
    }

    /// Value in billionths.
    pub fn nanos(&self) -> i128 {
        self.nanos
    }
    /// The whole number nearest above (away from zero), as `Value()` gives it.
    pub fn value(&self) -> i64 {
        let up = div_up(self.nanos, NANO);
        i64::try_from(up).unwrap_or(if up < 0 { i64::MIN } else { i64::MAX })
    }
    /// Thousandths, rounded away from zero, as `MilliValue()` gives it.
    pub fn milli_value(&self) -> i64 {
        let up = div_up(self.nanos, NANO / 1000);
        i64::try_from(up).unwrap_or(if up < 0 { i64::MIN } else { i64::MAX })
    }
    /// Whether it is a whole number.
    pub fn is_integer(&self) -> bool {
        self.nanos % NANO == 0
    }
    /// Sign: -1, 0 or 1.
    pub fn sign(&self) -> i32 {
        match self.nanos.cmp(&0) {
            Ordering::Less => -1,
            Ordering::Equal => 0,
            Ordering::Greater => 1,
        }
    }
    /// Sum, in the format of `self`.
    pub fn add(&self, other: &Self) -> Self {
        Self { nanos: (self.nanos + other.nanos).clamp(-MAX, MAX), format: if self.nanos == 0 { other.format } else { self.format } }
    }
    /// Difference, in the format of `self`.
    pub fn sub(&self, other: &Self) -> Self {
        Self { nanos: (self.nanos - other.nanos).clamp(-MAX, MAX), format: if self.nanos == 0 { other.format } else { self.format } }
    }

    /// Canonical text: no precision lost, no fraction, the largest suffix possible.
    pub fn canonical(&self) -> String {
        if self.nanos == 0 {
            return "0".to_owned();
        }
        let small = self.nanos > -1024 * NANO && self.nanos < 1024 * NANO;
        if self.format == Format::BinarySi && !small && self.is_integer() {
            let mut n = self.nanos / NANO;
            let mut i = 0;
            while n % 1024 == 0 && i < 6 {
                n /= 1024;
                i += 1;
            }
            return format!("{n}{}", ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"][i]);
        }
        let mut n = self.nanos;
        let mut exp = -9;
        while n % 1000 == 0 && exp < 18 {
            n /= 1000;
            exp += 3;
        }
        if self.format == Format::DecimalExponent {
            return if exp == 0 { n.to_string() } else { format!("{n}e{exp}") };
        }
        let suffix = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"][usize::try_from((exp + 9) / 3).unwrap_or(3)];
        format!("{n}{suffix}")
    }
}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.nanos.cmp(&other.nanos))
    }
}

fn div_up(n: i128, by: i128) -> i128 {
    let q = n / by;
    if n % by == 0 { q } else { q + n.signum() }
}

/// `digits * 10^scale * 2^binary`, fractions rounded up, capped far above the largest quantity.
fn scaled(digits: &str, scale: i32, binary: u32) -> i128 {
    const CAP: i128 = MAX * 2;
    let mut n: i128 = 0;
    let mut left = scale;
    let mut lost = false;
    // Digits below a billionth are dropped first; they only matter for rounding up.
    let keep = if binary == 0 && scale < 0 { digits.len().saturating_sub(scale.unsigned_abs() as usize) } else { digits.len() };
    for (i, d) in digits.bytes().enumerate() {
        if i >= keep {
            lost |= d != b'0';
            continue;
        }
        n = (n * 10 + i128::from(d - b'0')).min(CAP);
    }
    if binary == 0 && scale < 0 {
        left = 0;
    }
    n = n.checked_shl(binary).filter(|_| n <= CAP >> binary).unwrap_or(CAP);
    while left > 0 && n < CAP && n != 0 {
        n *= 10;
        left -= 1;
    }
    while left < 0 {
        lost |= n % 10 != 0;
        n /= 10;
        left += 1;
        if n == 0 {
            break;
        }
    }
    n.min(CAP) + i128::from(lost)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canonical_texts() {
        for (text, want) in [
            ("1000m", "1"),
            ("0.5", "500m"),
            ("1.5Gi", "1536Mi"),
            ("1024Mi", "1Gi"),
            ("100", "100"),
            ("1000", "1k"),
            ("1000Ki", "1000Ki"),
            ("0", "0"),
            ("0Mi", "0"),
            ("1e3", "1e3"),
            ("12e6", "12e6"),
            ("1500e3", "1500e3"),
            ("0.1m", "100u"),
            ("0.0000000001", "1n"),
            ("-1.5", "-1500m"),
            ("1Ki", "1Ki"),
            ("0.5Ki", "512"),
            ("1E", "1E"),
            ("9223372036854775807", "9223372036854775807"),
            ("99999999999999999999", "9223372036854775807"),
            ("128974848", "128974848"),
            ("123Mi", "123Mi"),
            ("+5", "5"),
            ("1.", "1"),
            (".5", "500m"),
        ] {
            assert_eq!(Quantity::parse(text).map(|q| q.canonical()), Ok(want.to_owned()), "{text}");
        }
    }

    #[test]
    fn bad_texts() {
        for (text, want) in [
            ("", QuantityError::Form),
            ("abc", QuantityError::Form),
            ("1.2.3", QuantityError::Form),
            ("1Q", QuantityError::Form),
            ("1mi", QuantityError::Suffix),
            ("1 Gi", QuantityError::Form),
        ] {
            assert_eq!(Quantity::parse(text), Err(want), "{text}");
        }
    }
}
