//! Floats in Go's forms: shortest digits, fixed precision, hexadecimal.

use std::fmt::Write;

/// Decimal digits of the shortest reading-back form, and the exponent of the first digit (`d.ddd * 10^exp`).
fn shortest(f: f64) -> (String, i32) {
    let s = format!("{:e}", f.abs());
    let (m, e) = s.split_once('e').unwrap_or((&s, "0"));
    (m.replace('.', ""), e.parse().unwrap_or(0))
}

fn special(f: f64) -> Option<&'static str> {
    if f.is_nan() {
        Some("NaN")
    } else if f == f64::INFINITY {
        Some("+Inf")
    } else if f == f64::NEG_INFINITY {
        Some("-Inf")
    } else {
        None
    }
}

fn exponent(out: &mut String, e: i32) {
    let _ = write!(out, "e{}{:02}", if e < 0 { '-' } else { '+' }, e.abs());
}

fn from_digits(neg: bool, digits: &str, exp: i32, sci: bool) -> String {
    let mut out = String::new();
    if neg {
        out.push('-');
    }
    if sci {
        out.push_str(&digits[..1]);
        if digits.len() > 1 {
            out.push('.');
            out.push_str(&digits[1..]);
        }
        exponent(&mut out, exp);
    } else if exp < 0 {
        out.push_str("0.");
        out.extend(std::iter::repeat_n('0', (-exp - 1) as usize));
        out.push_str(digits);
    } else {
        let point = exp as usize + 1;
        if digits.len() <= point {
            out.push_str(digits);
            out.extend(std::iter::repeat_n('0', point - digits.len()));
        } else {
            out.push_str(&digits[..point]);
            out.push('.');
            out.push_str(&digits[point..]);
        }
    }
    out
}

/// `strconv.FormatFloat(f, 'g', -1, 64)`; `large` is the exponent from which the scientific form is used.
pub fn float_g(f: f64, large: i32) -> String {
    if let Some(s) = special(f) {
        return s.into();
    }
    let (digits, exp) = shortest(f);
    from_digits(f.is_sign_negative(), &digits, exp, exp < -4 || exp >= large)
}

/// The default form of a float64.
pub fn float_v(f: f64) -> String {
    float_g(f, 6)
}

/// `strconv.FormatFloat(f, 'g', -1, 32)`.
pub fn float_g32(f: f64) -> String {
    if let Some(s) = special(f) {
        return s.into();
    }
    let s = format!("{:e}", (f as f32).abs());
    if s.starts_with("inf") {
        return if f < 0.0 { "-Inf".into() } else { "+Inf".into() };
    }
    let (m, e) = s.split_once('e').unwrap_or((&s, "0"));
    let exp = e.parse().unwrap_or(0);
    from_digits(f.is_sign_negative(), &m.replace('.', ""), exp, !(-4..6).contains(&exp))
}

/// A float with a precision: verbs e, f, g.
pub fn float_prec(f: f64, verb: u8, prec: usize) -> String {
    if let Some(s) = special(f) {
        return s.into();
    }
    let prec = prec.min(2000);
    match verb {
        b'f' => format!("{f:.prec$}"),
        b'e' => {
            let s = format!("{f:.prec$e}");
            let (m, e) = s.split_once('e').unwrap_or((&s, "0"));
            let mut out = m.to_string();
            exponent(&mut out, e.parse().unwrap_or(0));
            out
        }
        _ => {
            let p = prec.max(1);
            let s = format!("{:.*e}", p - 1, f.abs());
            let (m, e) = s.split_once('e').unwrap_or((&s, "0"));
            let exp: i32 = e.parse().unwrap_or(0);
            let mut digits = m.replace('.', "");
            while digits.len() > 1 && digits.ends_with('0') {
                digits.pop();
            }
            let mut eprec = p as i32;
            if eprec > digits.len() as i32 && digits.len() as i32 > exp {
                eprec = digits.len() as i32;
            }
            from_digits(f.is_sign_negative(), &digits, exp, exp < -4 || exp >= eprec)
        }
    }
}

/// `%#`: the decimal point always, and zeros after it.
pub(super) fn sharpen(s: &str, verb: u8, prec: Option<usize>) -> String {
    let mut digits: i64 = if matches!(verb, b'v' | b'g' | b'G' | b'x') { prec.map_or(6, |p| p as i64) } else { 0 };
    let (sign, body) = match s.strip_prefix('-') {
        Some(b) => ("-", b),
        None => ("", s),
    };
    let hex = matches!(verb, b'x' | b'X');
    let cut = body.find(['p', 'P']).or_else(|| if hex { None } else { body.find(['e', 'E']) }).unwrap_or(body.len());
    let (num, tail) = body.split_at(cut);
    let mut seen = false;
    for c in num.chars().filter(|c| *c != '.') {
        seen |= c != '0';
        digits -= i64::from(seen);
    }
    let mut out = format!("{sign}{num}");
    if !num.contains('.') {
        if num == "0" {
            digits -= 1;
        }
        out.push('.');
    }
    out.extend(std::iter::repeat_n('0', digits.max(0) as usize));
    out.push_str(tail);
    out
}

pub(super) fn hex_float(v: f64) -> String {
    if let Some(s) = special(v) {
        return s.into();
    }
    let sign = if v.is_sign_negative() { "-" } else { "" };
    if v == 0.0 {
        return format!("{sign}0x0p+00");
    }
    let bits = v.abs().to_bits();
    let mut exp = (bits >> 52) as i32 - 1023;
    let mut mant = bits & ((1 << 52) - 1);
    if exp == -1023 {
        let shift = mant.leading_zeros() - 11;
        mant = (mant << shift) & ((1 << 52) - 1);
        exp = -1022 - shift as i32;
    }
    let frac = format!("{mant:013x}");
    let frac = frac.trim_end_matches('0');
    let dot = if frac.is_empty() { String::new() } else { format!(".{frac}") };
    format!("{sign}0x1{dot}p{}{:02}", if exp < 0 { '-' } else { '+' }, exp.abs())
}
