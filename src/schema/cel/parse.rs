//! Parser of CEL expressions.

use super::ast::{Expr, Literal, Loop, Node};

/// A syntax error with its place in the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SyntaxError {
    pub(crate) at: usize,
    pub(crate) message: String,
}

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Literal(Literal),
    Ident(String),
    Punct(&'static str),
    End,
}

const MAX_DEPTH: usize = 200;
const RESERVED: [&str; 18] = [
    "as", "break", "const", "continue", "else", "for", "function", "if", "import", "let", "loop", "package", "namespace", "return", "var", "void", "while", "in",
];

/// Parses an expression.
pub(crate) fn parse(source: &str) -> Result<Expr, SyntaxError> {
    let tokens = lex(source)?;
    let mut p = Parser { tokens, at: 0, depth: 0 };
    let e = p.expr()?;
    match p.peek() {
        Token::End => Ok(e),
        _ => p.unexpected(),
    }
}

fn fail<T>(at: usize, message: impl Into<String>) -> Result<T, SyntaxError> {
    Err(SyntaxError { at, message: message.into() })
}

const PUNCTS: [&str; 29] = [
    "==", "!=", "<=", ">=", "&&", "||", "(", ")", "[", "]", "{", "}", ".", ",", "?", ":", "+", "-", "*", "/", "%", "!", "<", ">", "=", "&", "|", ";", "@",
];

fn lex(s: &str) -> Result<Vec<(Token, usize)>, SyntaxError> {
    let b = s.as_bytes();
    let mut out = Vec::new();
    let mut i = 0;
    'next: while i < b.len() {
        let c = b[i];
        if c.is_ascii_whitespace() {
            i += 1;
            continue;
        }
        if s[i..].starts_with("//") {
            i += s[i..].find('\n').unwrap_or(s.len() - i);
            continue;
        }
        if let Some((lit, len)) = string(s, i)? {
            out.push((Token::Literal(lit), i));
            i += len;
            continue;
        }
        if c.is_ascii_digit() || (c == b'.' && b.get(i + 1).is_some_and(u8::is_ascii_digit)) {
            let (lit, len) = number(&s[i..], i)?;
            out.push((Token::Literal(lit), i));
            i += len;
            continue;
        }
        if c.is_ascii_alphabetic() || c == b'_' {
            let end = s[i..].find(|c: char| !c.is_ascii_alphanumeric() && c != '_').map_or(s.len(), |n| i + n);
            let word = &s[i..end];
            out.push((
                match word {
                    "true" => Token::Literal(Literal::Bool(true)),
                    "false" => Token::Literal(Literal::Bool(false)),
                    "null" => Token::Literal(Literal::Null),
                    w => Token::Ident(w.to_owned()),
                },
                i,
            ));
            i = end;
            continue;
        }
        if c == b'`' {
            let end = s[i + 1..].find('`').map(|n| i + 1 + n);
            let Some(end) = end else { return fail(i, "Syntax error: unterminated quoted identifier") };
            out.push((Token::Ident(s[i + 1..end].to_owned()), i));
            i = end + 1;
            continue;
        }
        for p in PUNCTS {
            if s[i..].starts_with(p) {
                out.push((Token::Punct(p), i));
                i += p.len();
                continue 'next;
            }
        }
        let c = s[i..].chars().next().unwrap_or(' ');
        return fail(i, format!("Syntax error: token recognition error at: '{c}'"));
    }
    out.push((Token::End, s.len()));
    Ok(out)
}

fn number(s: &str, at: usize) -> Result<(Literal, usize), SyntaxError> {
    let b = s.as_bytes();
    if s.starts_with("0x") || s.starts_with("0X") {
        let end = s[2..].find(|c: char| !c.is_ascii_hexdigit()).map_or(s.len(), |n| n + 2);
        let unsigned = b.get(end).is_some_and(|c| matches!(c, b'u' | b'U'));
        let bad = |_| SyntaxError { at, message: "invalid int literal".to_owned() };
        return Ok(if unsigned {
            (Literal::Uint(u64::from_str_radix(&s[2..end], 16).map_err(bad)?), end + 1)
        } else {
            (Literal::Int(i64::from_str_radix(&s[2..end], 16).map_err(bad)?), end)
        });
    }
    let digits = |from: usize| s[from..].find(|c: char| !c.is_ascii_digit()).map_or(s.len(), |n| n + from);
    let mut end = digits(0);
    let mut double = false;
    if b.get(end) == Some(&b'.') && b.get(end + 1).is_some_and(u8::is_ascii_digit) {
        double = true;
        end = digits(end + 1);
    }
    if b.get(end).is_some_and(|c| matches!(c, b'e' | b'E')) {
        let sign = usize::from(b.get(end + 1).is_some_and(|c| matches!(c, b'+' | b'-')));
        if b.get(end + 1 + sign).is_some_and(u8::is_ascii_digit) {
            double = true;
            end = digits(end + 1 + sign);
        }
    }
    let bad = |what: &str| SyntaxError { at, message: format!("invalid {what} literal") };
    if double {
        return Ok((Literal::Double(s[..end].parse().map_err(|_| bad("double"))?), end));
    }
    if b.get(end).is_some_and(|c| matches!(c, b'u' | b'U')) {
        return Ok((Literal::Uint(s[..end].parse().map_err(|_| bad("uint"))?), end + 1));
    }
    // The smallest int is written as a negated literal one too large: kept as a double-sized marker by the parser.
    match s[..end].parse::<i64>() {
        Ok(n) => Ok((Literal::Int(n), end)),
        Err(_) if &s[..end] == "9223372036854775808" => Ok((Literal::Uint(u64::MAX / 2 + 1), end)),
        Err(_) => Err(bad("int")),
    }
}

/// A string or bytes literal at `i`: its value and length.
fn string(s: &str, i: usize) -> Result<Option<(Literal, usize)>, SyntaxError> {
    let rest = &s[i..];
    let prefix = rest.find(|c: char| !matches!(c, 'r' | 'R' | 'b' | 'B')).unwrap_or(0);
    if prefix > 2 {
        return Ok(None);
    }
    let body = &rest[prefix..];
    let quote = ["\"\"\"", "'''", "\"", "'"].into_iter().find(|q| body.starts_with(q));
    let Some(q) = quote else { return Ok(None) };
    let raw = rest[..prefix].contains(['r', 'R']);
    let bytes = rest[..prefix].contains(['b', 'B']);
    let text = &body[q.len()..];
    let mut out: Vec<u8> = Vec::new();
    let mut chars = text.char_indices();
    while let Some((n, c)) = chars.next() {
        if text[n..].starts_with(q) {
            let len = prefix + q.len() + n + q.len();
            let lit = if bytes {
                Literal::Bytes(out)
            } else {
                match String::from_utf8(out) {
                    Ok(t) => Literal::String(t),
                    Err(_) => return fail(i, "invalid string literal"),
                }
            };
            return Ok(Some((lit, len)));
        }
        if q.len() == 1 && (c == '\n' || c == '\r') {
            break;
        }
        if c != '\\' || raw {
            out.extend(c.encode_utf8(&mut [0; 4]).as_bytes());
            continue;
        }
        let Some((_, e)) = chars.next() else { break };
        let simple = match e {
            'a' => Some(7),
            'b' => Some(8),
            'f' => Some(12),
            'n' => Some(10),
            'r' => Some(13),
            't' => Some(9),
            'v' => Some(11),
            '\\' | '?' | '"' | '\'' | '`' => Some(e as u8),
            _ => None,
        };
        if let Some(c) = simple {
            out.push(c);
            continue;
        }
        let (radix, count, mut code) = match e {
            'x' | 'X' => (16, 2, 0),
            'u' => (16, 4, 0),
            'U' => (16, 8, 0),
            '0'..='3' => (8, 2, e.to_digit(8).unwrap_or(0)),
            _ => return fail(i + prefix + q.len() + n, "Syntax error: invalid escape sequence"),
        };
        for _ in 0..count {
            let Some(d) = chars.next().and_then(|(_, c)| c.to_digit(radix)) else { return fail(i, "Syntax error: invalid escape sequence") };
            code = code * radix + d;
        }
        if bytes && !matches!(e, 'u' | 'U') {
            out.push(u8::try_from(code).unwrap_or(0));
        } else {
            match char::from_u32(code) {
                Some(c) => out.extend(c.encode_utf8(&mut [0; 4]).as_bytes()),
                None => return fail(i, "invalid unicode code point"),
            }
        }
    }
    fail(i, "Syntax error: token recognition error at: unterminated string")
}

struct Parser {
    tokens: Vec<(Token, usize)>,
    at: usize,
    depth: usize,
}

impl Parser {
    fn peek(&self) -> &Token {
        self.tokens.get(self.at).map_or(&Token::End, |t| &t.0)
    }
    fn place(&self) -> usize {
        self.tokens.get(self.at).or(self.tokens.last()).map_or(0, |t| t.1)
    }
    fn next(&mut self) -> Token {
        let t = self.peek().clone();
        self.at += 1;
        t
    }
    fn eat(&mut self, p: &str) -> bool {
        let yes = matches!(self.peek(), Token::Punct(x) if *x == p);
        self.at += usize::from(yes);
        yes
    }
    fn unexpected<T>(&self) -> Result<T, SyntaxError> {
        let found = match self.peek() {
            Token::End => "'<EOF>'".to_owned(),
            Token::Punct(p) => format!("'{p}'"),
            Token::Ident(i) => format!("'{i}'"),
            Token::Literal(_) => "literal".to_owned(),
        };
        let wanted = "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}";
        fail(self.place(), format!("Syntax error: mismatched input {found} expecting {wanted}"))
    }
    fn need(&mut self, p: &str) -> Result<(), SyntaxError> {
        if self.eat(p) {
            return Ok(());
        }
        let found = match self.peek() {
            Token::End => "<EOF>".to_owned(),
            Token::Punct(x) => format!("'{x}'"),
            Token::Ident(x) => format!("'{x}'"),
            Token::Literal(_) => "literal".to_owned(),
        };
        fail(self.place(), format!("Syntax error: mismatched input {found} expecting '{p}'"))
    }

    fn expr(&mut self) -> Result<Expr, SyntaxError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return fail(self.place(), format!("expression recursion limit exceeded: {MAX_DEPTH}"));
        }
        let e = self.or()?;
        let e = if self.eat("?") {
            let yes = self.or()?;
            self.need(":")?;
            let no = self.expr()?;
            Expr { at: e.at, node: Node::If(Box::new(e), Box::new(yes), Box::new(no)) }
        } else {
            e
        };
        self.depth -= 1;
        Ok(e)
    }

    fn or(&mut self) -> Result<Expr, SyntaxError> {
        let mut e = self.and()?;
        while self.eat("||") {
            let r = self.and()?;
            e = Expr { at: e.at, node: Node::Or(Box::new(e), Box::new(r)) };
        }
        Ok(e)
    }

    fn and(&mut self) -> Result<Expr, SyntaxError> {
        let mut e = self.relation()?;
        while self.eat("&&") {
            let r = self.relation()?;
            e = Expr { at: e.at, node: Node::And(Box::new(e), Box::new(r)) };
        }
        Ok(e)
    }

    fn relation(&mut self) -> Result<Expr, SyntaxError> {
        let mut e = self.sum()?;
        loop {
            let at = self.place();
            let op = match self.peek() {
                Token::Punct(p @ ("==" | "!=" | "<" | "<=" | ">" | ">=")) => format!("_{p}_"),
                Token::Ident(i) if i == "in" => "@in".to_owned(),
                _ => return Ok(e),
            };
            self.at += 1;
            let r = self.sum()?;
            e = binary(at, &op, e, r);
        }
    }

    fn sum(&mut self) -> Result<Expr, SyntaxError> {
        let mut e = self.product()?;
        loop {
            let at = self.place();
            let Token::Punct(p @ ("+" | "-")) = *self.peek() else { return Ok(e) };
            self.at += 1;
            let r = self.product()?;
            e = binary(at, &format!("_{p}_"), e, r);
        }
    }

    fn product(&mut self) -> Result<Expr, SyntaxError> {
        let mut e = self.unary()?;
        loop {
            let at = self.place();
            let Token::Punct(p @ ("*" | "/" | "%")) = *self.peek() else { return Ok(e) };
            self.at += 1;
            let r = self.unary()?;
            e = binary(at, &format!("_{p}_"), e, r);
        }
    }

    fn unary(&mut self) -> Result<Expr, SyntaxError> {
        let at = self.place();
        if self.eat("!") {
            let e = self.unary()?;
            return Ok(Expr { at, node: Node::Call { name: "!_".into(), target: None, args: vec![e] } });
        }
        if self.eat("-") {
            match self.peek().clone() {
                Token::Literal(Literal::Int(n)) => {
                    self.at += 1;
                    return self.members(Expr { at, node: Node::Literal(Literal::Int(-n)) });
                }
                Token::Literal(Literal::Uint(n)) if n == u64::MAX / 2 + 1 => {
                    self.at += 1;
                    return Ok(Expr { at, node: Node::Literal(Literal::Int(i64::MIN)) });
                }
                Token::Literal(Literal::Double(d)) => {
                    self.at += 1;
                    return self.members(Expr { at, node: Node::Literal(Literal::Double(-d)) });
                }
                _ => {}
            }
            let e = self.unary()?;
            return Ok(Expr { at, node: Node::Call { name: "-_".into(), target: None, args: vec![e] } });
        }
        let e = self.primary()?;
        self.members(e)
    }

    fn members(&mut self, mut e: Expr) -> Result<Expr, SyntaxError> {
        loop {
            let at = self.place();
            if self.eat(".") {
                let optional = self.eat("?");
                let Token::Ident(field) = self.next() else {
                    self.at -= 1;
                    return self.unexpected();
                };
                if !optional && self.eat("(") {
                    let args = self.args(")")?;
                    e = member_call(at, e, field, args)?;
                } else if matches!(self.peek(), Token::Punct("{")) && type_name(&e).is_some() {
                    let name = format!("{}.{field}", type_name(&e).unwrap_or_default());
                    self.at += 1;
                    e = self.structure(at, name)?;
                } else {
                    e = Expr { at, node: Node::Select { of: Box::new(e), field, optional } };
                }
            } else if self.eat("[") {
                let optional = self.eat("?");
                let key = self.expr()?;
                self.need("]")?;
                e = Expr { at, node: Node::Index { of: Box::new(e), key: Box::new(key), optional } };
            } else {
                return Ok(e);
            }
        }
    }

    fn args(&mut self, close: &str) -> Result<Vec<Expr>, SyntaxError> {
        let mut out = Vec::new();
        if self.eat(close) {
            return Ok(out);
        }
        loop {
            out.push(self.expr()?);
            if !self.eat(",") {
                break;
            }
        }
        self.need(close)?;
        Ok(out)
    }

    fn structure(&mut self, at: usize, name: String) -> Result<Expr, SyntaxError> {
        let mut fields = Vec::new();
        while !self.eat("}") {
            let optional = self.eat("?");
            let Token::Ident(f) = self.next() else {
                self.at -= 1;
                return self.unexpected();
            };
            self.need(":")?;
            let v = self.expr()?;
            fields.push((f, v, optional));
            if !self.eat(",") {
                self.need("}")?;
                break;
            }
        }
        Ok(Expr { at, node: Node::Struct { name, fields } })
    }

    fn primary(&mut self) -> Result<Expr, SyntaxError> {
        let at = self.place();
        match self.next() {
            Token::Literal(Literal::Uint(n)) if n == u64::MAX / 2 + 1 => fail(at, "invalid int literal"),
            Token::Literal(l) => Ok(Expr { at, node: Node::Literal(l) }),
            Token::Punct("(") => {
                let e = self.expr()?;
                self.need(")")?;
                Ok(e)
            }
            Token::Punct("[") => {
                let mut items = Vec::new();
                while !self.eat("]") {
                    let optional = self.eat("?");
                    items.push((self.expr()?, optional));
                    if !self.eat(",") {
                        self.need("]")?;
                        break;
                    }
                }
                Ok(Expr { at, node: Node::List(items) })
            }
            Token::Punct("{") => {
                let mut entries = Vec::new();
                while !self.eat("}") {
                    let optional = self.eat("?");
                    let k = self.expr()?;
                    self.need(":")?;
                    let v = self.expr()?;
                    entries.push((k, v, optional));
                    if !self.eat(",") {
                        self.need("}")?;
                        break;
                    }
                }
                Ok(Expr { at, node: Node::Map(entries) })
            }
            Token::Punct(".") => self.primary(),
            Token::Ident(name) => {
                if RESERVED.contains(&name.as_str()) {
                    return fail(at, format!("reserved identifier: {name}"));
                }
                if self.eat("(") {
                    let args = self.args(")")?;
                    return global_call(at, name, args);
                }
                let capital = name.starts_with(|c: char| c.is_ascii_uppercase());
                if capital && self.eat("{") {
                    return self.structure(at, name);
                }
                Ok(Expr { at, node: Node::Ident(name) })
            }
            _ => {
                self.at -= 1;
                self.unexpected()
            }
        }
    }
}

/// The dotted name of a type such as `Object.spec`, when the expression can be one.
fn type_name(e: &Expr) -> Option<String> {
    match &e.node {
        Node::Ident(n) if n.starts_with(|c: char| c.is_ascii_uppercase()) => Some(n.clone()),
        Node::Select { of, field, optional: false } => type_name(of).map(|n| format!("{n}.{field}")),
        _ => None,
    }
}

fn binary(at: usize, name: &str, l: Expr, r: Expr) -> Expr {
    Expr { at, node: Node::Call { name: name.to_owned(), target: None, args: vec![l, r] } }
}

fn global_call(at: usize, name: String, mut args: Vec<Expr>) -> Result<Expr, SyntaxError> {
    if name == "has" {
        let one = args.len() == 1;
        return match args.pop().map(|a| a.node) {
            Some(Node::Select { of, field, optional: false }) if one => Ok(Expr { at, node: Node::Has { of, field } }),
            _ => fail(at, "invalid argument to has() macro"),
        };
    }
    Ok(Expr { at, node: Node::Call { name, target: None, args } })
}

fn variable(e: &Expr) -> Option<String> {
    match &e.node {
        Node::Ident(n) => Some(n.clone()),
        _ => None,
    }
}

fn member_call(at: usize, target: Expr, name: String, args: Vec<Expr>) -> Result<Expr, SyntaxError> {
    let kind = match (name.as_str(), args.len()) {
        ("all", 2 | 3) => Some(Loop::All),
        ("exists", 2 | 3) => Some(Loop::Exists),
        ("exists_one", 2) | ("existsOne", 2 | 3) => Some(Loop::ExistsOne),
        ("map", 2 | 3) => Some(Loop::Map),
        ("filter", 2) => Some(Loop::Filter),
        ("transformList", 3 | 4) => Some(Loop::TransformList),
        ("transformMap", 3 | 4) => Some(Loop::TransformMap),
        ("transformMapEntry", 3 | 4) => Some(Loop::TransformMapEntry),
        ("optMap", 2) => Some(Loop::OptMap),
        ("optFlatMap", 2) => Some(Loop::OptFlatMap),
        ("sortBy", 2) => Some(Loop::SortBy),
        _ => None,
    };
    let Some(kind) = kind else {
        return Ok(Expr { at, node: Node::Call { name, target: Some(Box::new(target)), args } });
    };
    let mut args = args.into_iter();
    let two = matches!(kind, Loop::TransformList | Loop::TransformMap | Loop::TransformMapEntry) || (matches!(kind, Loop::All | Loop::Exists | Loop::ExistsOne) && args.len() == 3);
    let mut name_of = || args.next().as_ref().and_then(variable);
    let Some(var) = name_of() else { return fail(at, "argument must be a simple name") };
    let var2 = if two {
        match name_of() {
            Some(v) => Some(v),
            None => return fail(at, "argument must be a simple name"),
        }
    } else {
        None
    };
    let (first, second) = (args.next(), args.next());
    let (filter, body) = match (first, second) {
        (Some(f), Some(b)) => (Some(Box::new(f)), b),
        (Some(b), None) => (None, b),
        _ => return fail(at, "missing argument of macro"),
    };
    Ok(Expr { at, node: Node::Loop { kind, range: Box::new(target), var, var2, filter, body: Box::new(body) } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_what_rules_use() {
        for s in [
            "self.minReplicas <= self.replicas",
            "has(self.a) && self.items.all(x, x.startsWith('p') || x in ['a', \"b\"])",
            "self.a ? -1 : 2u + 0x1F",
            "r'\\d+' + b'x' == \"\"\"a\nb\"\"\"",
            "a.?b.orValue('c')[?0]",
            "Object{spec: Object.spec{replicas: 3}}",
            "{'a': 1, ?'b': optional.none()}",
            "self.__namespace__ == -9223372036854775808",
            "[1, 2].map(x, x > 1, x * 2)",
        ] {
            assert!(parse(s).is_ok(), "{s}: {:?}", parse(s));
        }
        for s in ["self.a = 1", "self = 42", "(", "a b", "'x", "has(a)", "1 +"] {
            assert!(parse(s).is_err(), "{s}");
        }
    }
}
