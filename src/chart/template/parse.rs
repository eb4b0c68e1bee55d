//! Parser of Go templates: a text becomes one tree per template it defines; faults carry Go's own words.

use super::ast::{Branch, Cmd, Expr, File, List, Node, Pipe, Pos, Tree, Var};
use super::lex::{Item, Kind, Lexer};
use super::number::number;
use crate::text::quote::{quote, unquote};
use crate::value::Str;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Nested parentheses: Go allows 10,000; fewer keep every later walk over the tree within the stack.
const MAX_PARENS: usize = 1_000;
/// Nested or chained blocks (`if`, `with`, `range`): Go has no bound.
const MAX_BLOCKS: usize = 2_000;

/// Templates of one text: the file itself and every `define` in it.
pub type Trees = Vec<Arc<Tree>>;

enum Step {
    Node(Node),
    End,
    Else(Option<Item>),
}

struct Parser<'a> {
    lex: Lexer<'a>,
    file: Arc<File>,
    function: &'a dyn Fn(&str) -> Option<u16>,
    token: [Item; 3],
    peeked: usize,
    vars: Vec<Str>,
    symbols: BTreeMap<Str, u32>,
    action_line: usize,
    ranges: usize,
    parens: usize,
    blocks: usize,
    set: Vec<Tree>,
}

/// Parses a text under a name; `function` gives the number of a known function.
pub fn parse(name: &str, text: &Str, function: &dyn Fn(&str) -> Option<u16>) -> Result<Trees, String> {
    let file = Arc::new(File { name: Str::from(name), text: text.clone() });
    let eof = Item { kind: Kind::Eof, pos: 0, line: 1, span: (0, 0) };
    let mut p = Parser {
        lex: Lexer::new(text.as_bytes()),
        file,
        function,
        token: [eof; 3],
        peeked: 0,
        vars: vec![Str::from("$")],
        symbols: BTreeMap::from([(Str::from("$"), 0)]),
        action_line: 0,
        ranges: 0,
        parens: 0,
        blocks: 0,
        set: Vec::new(),
    };
    let root = p.top()?;
    p.add(Str::from(name), root)?;
    Ok(p.set.into_iter().map(Arc::new).collect())
}

type Res<T> = Result<T, String>;

impl<'a> Parser<'a> {
    fn next(&mut self) -> Item {
        if self.peeked > 0 {
            self.peeked -= 1;
        } else {
            self.token[0] = self.lex.next_item();
        }
        self.token[self.peeked]
    }

    fn backup(&mut self) {
        self.peeked += 1;
    }

    fn backup2(&mut self, t1: Item) {
        self.token[1] = t1;
        self.peeked = 2;
    }

    fn backup3(&mut self, t2: Item, t1: Item) {
        self.token[1] = t1;
        self.token[2] = t2;
        self.peeked = 3;
    }

    fn peek(&mut self) -> Item {
        if self.peeked == 0 {
            self.peeked = 1;
            self.token[0] = self.lex.next_item();
        }
        self.token[self.peeked - 1]
    }

    fn next_solid(&mut self) -> Item {
        loop {
            let t = self.next();
            if t.kind != Kind::Space {
                return t;
            }
        }
    }

    fn peek_solid(&mut self) -> Item {
        let t = self.next_solid();
        self.backup();
        t
    }

    fn fail<T>(&self, text: impl std::fmt::Display) -> Res<T> {
        Err(format!("template: {}:{}: {text}", self.file.name, self.token[0].line))
    }

    fn unexpected<T>(&self, t: &Item, context: &str) -> Res<T> {
        if t.kind == Kind::Error {
            let mut extra = String::new();
            if self.action_line != 0 && self.action_line != t.line {
                extra = format!(" in action started at {}:{}", self.file.name, self.action_line);
                if self.lex.message.ends_with(" action") {
                    extra = extra[" in action".len()..].into();
                }
            }
            return self.fail(format!("{}{extra}", self.lex.message));
        }
        self.fail(format!("unexpected {} in {context}", self.lex.show(t)))
    }

    fn expect(&mut self, kind: Kind, context: &str) -> Res<Item> {
        let t = self.next_solid();
        if t.kind != kind { self.unexpected(&t, context) } else { Ok(t) }
    }

    fn add(&mut self, name: Str, root: List) -> Res<()> {
        let (file, root) = (self.file.clone(), Arc::new(root));
        match self.set.iter_mut().find(|t| t.name == name) {
            None => self.set.push(Tree { name, file, root }),
            Some(t) if t.root.is_empty() => t.root = root,
            Some(_) if root.is_empty() => {}
            Some(_) => return self.fail(format!("template: multiple definition of template {}", quote(name.as_bytes()))),
        }
        Ok(())
    }

    fn top(&mut self) -> Res<List> {
        let (pos, mut nodes) = (self.peek().pos as Pos, Vec::new());
        while self.peek().kind != Kind::Eof {
            if self.peek().kind == Kind::LeftDelim {
                let delim = self.next();
                if self.next_solid().kind == Kind::Define {
                    self.definition()?;
                    continue;
                }
                self.backup2(delim);
            }
            match self.text_or_action()? {
                Step::Node(n) => nodes.push(n),
                Step::End => return self.fail("unexpected {{end}}"),
                Step::Else(_) => return self.fail("unexpected {{else}}"),
            }
        }
        Ok(List::new(pos, nodes))
    }

    /// Runs a body with its own variables, as `define` and `block` have them.
    fn separate<T>(&mut self, run: impl FnOnce(&mut Self) -> Res<T>) -> Res<T> {
        let vars = std::mem::replace(&mut self.vars, vec![Str::from("$")]);
        let (ranges, parens, line) = (self.ranges, self.parens, self.action_line);
        (self.ranges, self.parens, self.action_line) = (0, 0, 0);
        // Tokens already peeked stay with the parser that peeked them, as in Go's new Tree: none are pending here.
        let r = run(self)?;
        self.vars = vars;
        (self.ranges, self.parens, self.action_line) = (ranges, parens, line);
        Ok(r)
    }

    fn definition(&mut self) -> Res<()> {
        const CONTEXT: &str = "define clause";
        self.separate(|p| {
            let t = p.next_solid();
            if !matches!(t.kind, Kind::String | Kind::RawString) {
                return p.unexpected(&t, CONTEXT);
            }
            let name = p.unquote(&t)?;
            p.expect(Kind::RightDelim, CONTEXT)?;
            let (list, end) = p.item_list()?;
            if !matches!(end, Step::End) {
                return p.fail(format!("unexpected {{{{else}}}} in {CONTEXT}"));
            }
            p.add(name, list)
        })
    }

    fn unquote(&self, t: &Item) -> Res<Str> {
        match unquote(self.lex.text(t)) {
            Some(v) => Ok(Str::from(v)),
            None => self.fail("invalid syntax"),
        }
    }

    fn item_list(&mut self) -> Res<(List, Step)> {
        let (pos, mut nodes) = (self.peek_solid().pos as Pos, Vec::new());
        while self.peek_solid().kind != Kind::Eof {
            match self.text_or_action()? {
                Step::Node(n) => nodes.push(n),
                end => return Ok((List::new(pos, nodes), end)),
            }
        }
        self.fail("unexpected EOF")
    }

    fn text_or_action(&mut self) -> Res<Step> {
        let t = self.next_solid();
        match t.kind {
            Kind::Text => Ok(Step::Node(Node::Text(t.pos as Pos, Str::from(self.lex.text(&t))))),
            Kind::LeftDelim => {
                self.action_line = t.line;
                let r = stacker::maybe_grow(64 << 10, 1 << 20, || self.action());
                self.action_line = 0;
                r
            }
            _ => self.unexpected(&t, "input"),
        }
    }

    fn action(&mut self) -> Res<Step> {
        let t = self.next_solid();
        let pos = t.pos as Pos;
        Ok(Step::Node(match t.kind {
            Kind::Block => self.block()?,
            Kind::Break | Kind::Continue => {
                let word = if t.kind == Kind::Break { "{{break}}" } else { "{{continue}}" };
                let n = self.next_solid();
                if n.kind != Kind::RightDelim {
                    return self.unexpected(&n, word);
                }
                if self.ranges == 0 {
                    return self.fail(format!("{word} outside {{{{range}}}}"));
                }
                if t.kind == Kind::Break { Node::Break(pos) } else { Node::Continue(pos) }
            }
            Kind::Else => {
                let p = self.peek_solid();
                if matches!(p.kind, Kind::If | Kind::With) {
                    return Ok(Step::Else(Some(p)));
                }
                self.expect(Kind::RightDelim, "else")?;
                return Ok(Step::Else(None));
            }
            Kind::End => {
                self.expect(Kind::RightDelim, "end")?;
                return Ok(Step::End);
            }
            Kind::If => Node::If(self.control("if")?),
            Kind::Range => Node::Range(self.control("range")?),
            Kind::With => Node::With(self.control("with")?),
            Kind::Template => {
                let t = self.next_solid();
                let name = self.template_name(&t, "template clause")?;
                let mut pipe = None;
                if self.next_solid().kind != Kind::RightDelim {
                    self.backup();
                    pipe = Some(self.pipeline("template clause", Kind::RightDelim)?);
                }
                Node::Template(t.pos as Pos, name, pipe)
            }
            _ => {
                self.backup();
                let p = self.peek();
                Node::Action(p.pos as Pos, self.pipeline("command", Kind::RightDelim)?)
            }
        }))
    }

    fn template_name(&mut self, t: &Item, context: &str) -> Res<Str> {
        match t.kind {
            Kind::String | Kind::RawString => self.unquote(t),
            _ => self.unexpected(t, context),
        }
    }

    fn block(&mut self) -> Res<Node> {
        const CONTEXT: &str = "block clause";
        let t = self.next_solid();
        let name = self.template_name(&t, CONTEXT)?;
        let pipe = self.pipeline(CONTEXT, Kind::RightDelim)?;
        let n = name.clone();
        self.separate(|p| {
            let (list, end) = p.item_list()?;
            if !matches!(end, Step::End) {
                return p.fail(format!("unexpected {{{{else}}}} in {CONTEXT}"));
            }
            p.add(n, list)
        })?;
        Ok(Node::Template(t.pos as Pos, name, Some(pipe)))
    }

    fn control(&mut self, context: &str) -> Res<Branch> {
        self.blocks += 1;
        if self.blocks > MAX_BLOCKS {
            return self.fail("max block depth exceeded");
        }
        let r = stacker::maybe_grow(64 << 10, 1 << 20, || self.control_body(context));
        self.blocks -= 1;
        r
    }

    fn control_body(&mut self, context: &str) -> Res<Branch> {
        let depth = self.vars.len();
        let pipe = self.pipeline(context, Kind::RightDelim)?;
        if context == "range" {
            self.ranges += 1;
        }
        let (list, next) = self.item_list()?;
        if context == "range" {
            self.ranges -= 1;
        }
        let otherwise = match next {
            Step::Else(word) => {
                let kind = self.peek().kind;
                match word {
                    Some(w) if context == "if" && kind == Kind::If => {
                        self.next();
                        Some(Arc::new(List::new(w.pos as Pos, vec![Node::If(self.control("if")?)])))
                    }
                    Some(w) if context == "with" && kind == Kind::With => {
                        self.next();
                        Some(Arc::new(List::new(w.pos as Pos, vec![Node::With(self.control("with")?)])))
                    }
                    _ => {
                        let (list, next) = self.item_list()?;
                        match next {
                            Step::End => Some(Arc::new(list)),
                            _ => return self.fail("expected end; found {{else}}"),
                        }
                    }
                }
            }
            _ => None,
        };
        self.vars.truncate(depth);
        Ok(Branch { pos: pipe.pos, pipe, list: Arc::new(list), otherwise })
    }

    fn variable(&mut self, pos: usize, text: &[u8]) -> Var {
        let idents: Vec<Str> = text.split(|b| *b == b'.').map(Str::from).collect();
        let n = self.symbols.len() as u32;
        let sym = *self.symbols.entry(idents[0].clone()).or_insert(n);
        Var { pos: pos as Pos, sym, idents }
    }

    fn pipeline(&mut self, context: &str, end: Kind) -> Res<Pipe> {
        let t = self.peek_solid();
        let mut pipe = Pipe { pos: t.pos as Pos, decl: Vec::new(), assign: false, cmds: Vec::new() };
        loop {
            let v = self.peek_solid();
            if v.kind != Kind::Variable {
                break;
            }
            self.next();
            let after = self.peek();
            let next = self.peek_solid();
            let text = self.lex.text(&v);
            if matches!(next.kind, Kind::Assign | Kind::Declare) {
                pipe.assign = next.kind == Kind::Assign;
                self.next_solid();
                let var = self.variable(v.pos, text);
                pipe.decl.push(var);
                self.vars.push(Str::from(text));
            } else if next.kind == Kind::Char && self.lex.text(&next) == b"," {
                self.next_solid();
                let var = self.variable(v.pos, text);
                pipe.decl.push(var);
                self.vars.push(Str::from(text));
                if context == "range" && pipe.decl.len() < 2 {
                    match self.peek_solid().kind {
                        Kind::Variable | Kind::RightDelim | Kind::RightParen => continue,
                        _ => return self.fail("range can only initialize variables"),
                    }
                }
                return self.fail(format!("too many declarations in {context}"));
            } else if after.kind == Kind::Space {
                self.backup3(v, after);
            } else {
                self.backup2(v);
            }
            break;
        }
        loop {
            let t = self.next_solid();
            match t.kind {
                k if k == end => {
                    if pipe.cmds.is_empty() {
                        return self.fail(format!("missing value for {context}"));
                    }
                    for (i, c) in pipe.cmds.iter().enumerate().skip(1) {
                        if matches!(c.args[0], Expr::Bool(..) | Expr::Dot(_) | Expr::Nil(_) | Expr::Num(..) | Expr::Str(..)) {
                            return self.fail(format!("non executable command in pipeline stage {}", i + 1));
                        }
                    }
                    return Ok(pipe);
                }
                Kind::Bool | Kind::CharConstant | Kind::Complex | Kind::Dot | Kind::Field | Kind::Identifier | Kind::Number | Kind::Nil | Kind::RawString | Kind::String | Kind::Variable | Kind::LeftParen => {
                    self.backup();
                    let c = self.command()?;
                    pipe.cmds.push(c);
                }
                _ => return self.unexpected(&t, context),
            }
        }
    }

    fn command(&mut self) -> Res<Cmd> {
        let mut cmd = Cmd { pos: self.peek_solid().pos as Pos, args: Vec::new() };
        loop {
            self.peek_solid();
            if let Some(o) = self.operand()? {
                cmd.args.push(o);
            }
            let t = self.next();
            match t.kind {
                Kind::Space => continue,
                Kind::RightDelim | Kind::RightParen => self.backup(),
                Kind::Pipe => {}
                _ => return self.unexpected(&t, "operand"),
            }
            break;
        }
        if cmd.args.is_empty() {
            return self.fail("empty command");
        }
        Ok(cmd)
    }

    fn operand(&mut self) -> Res<Option<Expr>> {
        let Some(node) = self.term()? else { return Ok(None) };
        if self.peek().kind != Kind::Field {
            return Ok(Some(node));
        }
        let pos = self.peek().pos as Pos;
        let mut fields = Vec::new();
        while self.peek().kind == Kind::Field {
            let t = self.next();
            fields.push(Str::from(&self.lex.text(&t)[1..]));
        }
        Ok(Some(match node {
            Expr::Field(_, mut names) => {
                names.append(&mut fields);
                Expr::Field(pos, names)
            }
            Expr::Var(mut v) => {
                v.idents.append(&mut fields);
                v.pos = pos;
                Expr::Var(v)
            }
            Expr::Bool(..) | Expr::Str(..) | Expr::Num(..) | Expr::Nil(_) | Expr::Dot(_) => {
                return self.fail(format!("unexpected . after term {}", quote(node.to_string().as_bytes())));
            }
            node => Expr::Chain(pos, Box::new(node), fields),
        }))
    }

    fn term(&mut self) -> Res<Option<Expr>> {
        let t = self.next_solid();
        let pos = t.pos as Pos;
        let text = self.lex.text(&t);
        Ok(Some(match t.kind {
            Kind::Identifier => {
                let name = crate::text::lossy(text);
                let Some(f) = (self.function)(&name) else {
                    return self.fail(format!("function {} not defined", quote(text)));
                };
                Expr::Ident(pos, Str::from(text), f)
            }
            Kind::Dot => Expr::Dot(pos),
            Kind::Nil => Expr::Nil(pos),
            Kind::Variable => {
                let v = self.variable(t.pos, text);
                if !self.vars.contains(&v.idents[0]) {
                    return self.fail(format!("undefined variable {}", quote(v.idents[0].as_bytes())));
                }
                Expr::Var(v)
            }
            Kind::Field => Expr::Field(pos, vec![Str::from(&text[1..])]),
            Kind::Bool => Expr::Bool(pos, text == b"true"),
            Kind::CharConstant | Kind::Complex | Kind::Number => match number(text, t.kind == Kind::CharConstant, t.kind == Kind::Complex) {
                Ok(n) => Expr::Num(pos, Box::new(n)),
                Err(e) => return self.fail(e),
            },
            Kind::LeftParen => {
                if self.parens >= MAX_PARENS {
                    return self.fail("max expression depth exceeded");
                }
                self.parens += 1;
                let p = stacker::maybe_grow(64 << 10, 1 << 20, || self.pipeline("parenthesized pipeline", Kind::RightParen))?;
                self.parens -= 1;
                Expr::Pipe(Box::new(p))
            }
            Kind::String | Kind::RawString => Expr::Str(pos, Str::from(text), self.unquote(&t)?),
            _ => {
                self.backup();
                return Ok(None);
            }
        }))
    }
}
