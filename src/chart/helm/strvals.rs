//! `--set` and its relatives: `a.b[0]=x,c={1,2}` into a values tree, with Helm's complaints.

use crate::text::quote::quote;
use crate::value::{Str, Tree, Val};

/// How values are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// `--set`: true, false, null and integers are typed.
    Typed,
    /// `--set-string`.
    Text,
    /// `--set-json`.
    Json,
    /// `--set-literal`: all after `=` as it is.
    Literal,
    /// `--set-file`: the value names a file.
    File,
}

/// Reads the file of a name.
pub type FileReader<'f> = &'f dyn Fn(&str) -> Result<Vec<u8>, String>;

const MAX_INDEX: i64 = 65_536;
const MAX_LEVEL: usize = 30;

enum End {
    /// All is read.
    Eof,
    /// A fault.
    Bad(String),
}

type Res<T> = Result<T, End>;

struct Parser<'a> {
    c: Vec<char>,
    i: usize,
    mode: Mode,
    file: FileReader<'a>,
}

/// Parses a line into a tree.
pub fn parse_into(line: &str, mode: Mode, dest: &mut Tree, file: FileReader<'_>) -> Result<(), String> {
    let mut p = Parser { c: line.chars().collect(), i: 0, mode, file };
    loop {
        match p.key(dest, 0) {
            Ok(()) => {}
            Err(End::Eof) => return Ok(()),
            Err(End::Bad(e)) => return Err(e),
        }
    }
}

fn bad<T>(m: impl Into<String>) -> Res<T> {
    Err(End::Bad(m.into()))
}

fn q(s: &str) -> String {
    quote(s.as_bytes())
}

fn set(data: &mut Tree, key: &str, v: Val) {
    if !key.is_empty() {
        data.insert(Str::from(key), v);
    }
}

fn set_index(list: &mut Vec<Val>, i: i64, v: Val) -> Res<()> {
    if i < 0 {
        return bad(format!("negative {i} index not allowed"));
    }
    if i > MAX_INDEX {
        return bad(format!("index of {i} is greater than maximum supported index of {MAX_INDEX}"));
    }
    while list.len() <= i as usize {
        list.push(Val::Nil);
    }
    list[i as usize] = v;
    Ok(())
}

/// The panic text of a wrong type, as Helm recovers it.
fn conversion(v: &Val, want: &str) -> End {
    let got = match v {
        Val::Nil | Val::No => "nil",
        v => v.type_name(),
    };
    End::Bad(format!("unable to parse key: interface conversion: interface {{}} is {got}, not {want}"))
}

fn tree(v: &Val) -> Option<Tree> {
    v.as_map().map(|m| m.lock().clone())
}

impl Parser<'_> {
    /// Characters up to one of the stops; the stop is taken.
    fn until(&mut self, stops: &[char]) -> (String, Option<char>) {
        let mut out = String::new();
        while let Some(&c) = self.c.get(self.i) {
            self.i += 1;
            if stops.contains(&c) {
                return (out, Some(c));
            }
            if c == '\\' && self.mode != Mode::Literal {
                match self.c.get(self.i) {
                    Some(n) => {
                        out.push(*n);
                        self.i += 1;
                    }
                    None => return (out, None),
                }
            } else {
                out.push(c);
            }
        }
        (out, None)
    }

    fn key(&mut self, data: &mut Tree, level: usize) -> Res<()> {
        let stops: &[char] = if self.mode == Mode::Literal { &['=', '[', '.'] } else { &['=', '[', ',', '.'] };
        let (k, last) = self.until(stops);
        match last {
            None if k.is_empty() => Err(End::Eof),
            None => bad(format!("key {} has no value", q(&k))),
            Some('[') => {
                let i = self.index()?;
                let mut list = match data.get(k.as_bytes()) {
                    None => Vec::new(),
                    Some(Val::List(l)) => l.v.clone(),
                    Some(v) => return Err(conversion(v, "[]interface {}")),
                };
                let r = self.item(&mut list, i, level);
                set(data, &k, Val::list(list));
                r
            }
            Some('=') => {
                if self.mode == Mode::Json {
                    let v = self.json()?;
                    set(data, &k, v);
                    return Ok(());
                }
                let (v, end) = self.value()?;
                set(data, &k, v);
                if end { Err(End::Eof) } else { Ok(()) }
            }
            Some(',') => {
                set(data, &k, Val::str(""));
                bad(format!("key {} has no value (cannot end with ,)", q(&k)))
            }
            Some(_) => {
                if level + 1 > MAX_LEVEL {
                    return bad(format!("value name nested level is greater than maximum supported nested level of {MAX_LEVEL}"));
                }
                let mut inner = match data.get(k.as_bytes()) {
                    None => Tree::new(),
                    Some(v) => match tree(v) {
                        Some(t) => t,
                        None => return Err(conversion(v, "map[string]interface {}")),
                    },
                };
                let r = self.key(&mut inner, level + 1);
                if r.is_ok() && inner.is_empty() {
                    return bad(format!("key map {} has no value", q(&k)));
                }
                if !inner.is_empty() {
                    set(data, &k, Val::map(inner));
                }
                r
            }
        }
    }

    fn index(&mut self) -> Res<i64> {
        let (t, last) = self.until(&[']']);
        // Helm 4 takes it as the end of all that is given.
        if last.is_none() {
            return Err(End::Eof);
        }
        match t.parse::<i64>() {
            Ok(i) if !t.starts_with('+') || !t.is_empty() => Ok(i),
            _ => bad(format!("error parsing index: strconv.Atoi: parsing {}: invalid syntax", q(&t))),
        }
    }

    fn item(&mut self, list: &mut Vec<Val>, i: i64, level: usize) -> Res<()> {
        if i < 0 {
            return bad(format!("negative {i} index not allowed"));
        }
        let (k, last) = self.until(&['[', '.', '=']);
        if !k.is_empty() {
            return bad(format!("unexpected data at end of array index: {}", q(&k)));
        }
        match last {
            None => Err(End::Eof),
            Some('=') => {
                let (v, _) = if self.mode == Mode::Json { (self.json()?, false) } else { self.value()? };
                set_index(list, i, v)
            }
            Some('[') => {
                let next = self.index()?;
                let mut inner = match list.get(i as usize) {
                    None | Some(Val::Nil) => Vec::new(),
                    Some(Val::List(l)) => l.v.clone(),
                    Some(v) => return Err(conversion(v, "[]interface {}")),
                };
                self.item(&mut inner, next, level)?;
                set_index(list, i, Val::list(inner))
            }
            Some(_) => {
                let mut inner = list.get(i as usize).and_then(tree).unwrap_or_default();
                self.key(&mut inner, level)?;
                set_index(list, i, Val::map(inner))
            }
        }
    }

    /// A value, and whether the text ended before one began.
    fn value(&mut self) -> Res<(Val, bool)> {
        if self.mode == Mode::Literal {
            let t: String = self.c[self.i..].iter().collect();
            self.i = self.c.len();
            return Ok((Val::str(t), false));
        }
        match self.c.get(self.i) {
            None => Ok((Val::str(""), true)),
            Some('{') => {
                self.i += 1;
                let mut list = Vec::new();
                loop {
                    let (t, last) = self.until(&[',', '}']);
                    match last {
                        None => return bad("list must terminate with '}'"),
                        Some(',') => list.push(self.typed(&t)?),
                        Some(_) => {
                            if self.c.get(self.i) == Some(&',') {
                                self.i += 1;
                            }
                            list.push(self.typed(&t)?);
                            return Ok((Val::list(list), false));
                        }
                    }
                }
            }
            Some(_) => {
                let (t, _) = self.until(&[',']);
                Ok((self.typed(&t)?, false))
            }
        }
    }

    fn typed(&self, t: &str) -> Res<Val> {
        Ok(match self.mode {
            Mode::File => match (self.file)(t) {
                Ok(b) => Val::str(b),
                Err(e) => return bad(e),
            },
            Mode::Typed => {
                if t.eq_ignore_ascii_case("true") {
                    Val::Bool(true)
                } else if t.eq_ignore_ascii_case("false") {
                    Val::Bool(false)
                } else if t.eq_ignore_ascii_case("null") {
                    Val::Nil
                } else if t == "0" {
                    Val::Int64(0)
                } else {
                    match crate::template::number::parse_int(t, 10) {
                        Ok(i) if !t.starts_with('0') => Val::Int64(i),
                        _ => Val::str(t),
                    }
                }
            }
            _ => Val::str(t),
        })
    }

    /// Blanks up to a comma or the end; true if nothing else comes.
    fn blank(&mut self) -> bool {
        while let Some(&c) = self.c.get(self.i) {
            if c == ',' {
                self.i += 1;
                return true;
            }
            if !crate::text::is_space(c) {
                return false;
            }
            self.i += 1;
        }
        true
    }

    fn json(&mut self) -> Res<Val> {
        if self.blank() {
            return Ok(Val::Nil);
        }
        let rest: String = self.c[self.i..].iter().collect();
        match crate::json::decode_first(rest.as_bytes()) {
            Ok((v, used)) => {
                self.i += rest[..used].chars().count();
                self.blank();
                Ok(v)
            }
            Err(e) => bad(e),
        }
    }
}

/// What a user gave on the command line, in Helm's order of precedence.
#[derive(Clone, Debug, Default)]
pub struct Given {
    /// Contents of `-f` files with their names.
    pub files: Vec<(String, Vec<u8>)>,
    /// `--set-json`.
    pub json: Vec<String>,
    /// `--set`.
    pub set: Vec<String>,
    /// `--set-string`.
    pub text: Vec<String>,
    /// `--set-file`.
    pub file: Vec<String>,
    /// `--set-literal`.
    pub literal: Vec<String>,
}

impl Given {
    /// The merged values; the error is Helm's.
    pub fn merge(&self, file: FileReader<'_>) -> Result<Val, String> {
        let mut base = Tree::new();
        for (name, data) in &self.files {
            let m = super::load::read_values(data).map_err(|e| format!("failed to parse {name}: {e}"))?;
            base = super::load::merge_maps(&base, &m);
        }
        for v in &self.json {
            if v.trim().starts_with('{') {
                let m = crate::json::decode_map(v.trim().as_bytes()).map_err(|_| format!("failed parsing --set-json data JSON: {v}"))?;
                base = super::load::merge_maps(&base, &m);
            } else {
                parse_into(v, Mode::Json, &mut base, file).map_err(|_| format!("failed parsing --set-json data {v}"))?;
            }
        }
        for (all, mode, name) in [(&self.set, Mode::Typed, "--set"), (&self.text, Mode::Text, "--set-string"), (&self.file, Mode::File, "--set-file"), (&self.literal, Mode::Literal, "--set-literal")] {
            for v in all {
                parse_into(v, mode, &mut base, file).map_err(|e| format!("failed parsing {name} data: {e}"))?;
            }
        }
        Ok(Val::map(base))
    }
}
