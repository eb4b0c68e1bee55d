//! Single steps of the evaluator, for an engine that walks the bodies itself: variables, dots and open ranges are kept here between
//! steps, and every step says how deep it stands, so that nothing has to be told when a body ends.

use super::ast::{At, List, Node, Tree};
use super::eval::{Cell, State, Walk};
use crate::func::GoErr;
use crate::run::Runtime;
use crate::value::Val;

/// How many blocks, subjects of `with` and `range`, and ranges are open around a step.
#[derive(Clone, Copy, Debug, Default)]
pub struct Place {
    /// `if`, `with` and `range`.
    pub blocks: usize,
    /// Dots below the current one.
    pub dots: usize,
    /// Ranges.
    pub walks: usize,
}

/// What a step answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// Nothing; what it printed is in the output.
    Done,
    /// Whether the body of an `if` or `with` follows, or its `else`.
    Truth(bool),
    /// How often the body of a `range` follows.
    Times(usize),
}

/// A template that is being executed.
pub struct Frame {
    vars: Vec<(u32, Cell)>,
    dots: Vec<Cell>,
    /// Number of variables at the start of each open block.
    marks: Vec<usize>,
    walks: Vec<Walk>,
}

/// Executes a template by the evaluator alone.
///
/// # Errors
///
/// As [`Frame::step`].
pub fn execute(rt: &mut Runtime, tree: &Tree, data: Val, out: &mut Vec<u8>) -> Result<(), GoErr> {
    Frame::new(data).body(rt, tree, &tree.root, Place::default(), out)
}

impl Frame {
    /// Starts a template with its data.
    pub fn new(data: Val) -> Self {
        let dot = Cell::plain(if matches!(data, Val::Nil) { Val::No } else { data });
        Self { vars: vec![(0, dot.clone())], dots: vec![dot], marks: Vec::new(), walks: Vec::new() }
    }

    /// Leaves the bodies that ended since the last step.
    fn leave(&mut self, place: Place) {
        if let Some(mark) = self.marks.get(place.blocks) {
            self.vars.truncate(*mark);
            self.marks.truncate(place.blocks);
        }
        self.dots.truncate(place.dots + 1);
        self.walks.truncate(place.walks);
    }

    /// Prints an action or a template, or decides a block.
    ///
    /// # Errors
    ///
    /// What the template does wrong, in Go's words.
    pub fn step(&mut self, rt: &mut Runtime, tree: &Tree, node: &Node, place: Place, out: &mut Vec<u8>) -> Result<Answer, GoErr> {
        self.leave(place);
        let Self { vars, dots, marks, walks } = self;
        let (dot, mark) = (&dots[place.dots], vars.len());
        let mut state = State { rt, name: &tree.name, file: &tree.file, node: At::Node(node), vars, out };
        Ok(match node {
            Node::If(b) => {
                state.rt.burn(1)?;
                marks.push(mark);
                Answer::Truth(state.pipeline(dot, &b.pipe)?.truth())
            }
            Node::With(b) => {
                state.rt.burn(1)?;
                marks.push(mark);
                let v = state.pipeline(dot, &b.pipe)?;
                let truth = v.truth();
                if truth {
                    dots.push(Cell::plain(v));
                }
                Answer::Truth(truth)
            }
            Node::Range(b) => {
                state.rt.burn(1)?;
                marks.push(mark);
                let walk = state.walk_over(dot, b)?;
                let times = walk.len();
                walks.push(walk);
                Answer::Times(times)
            }
            _ => {
                state.walk(dot, node)?;
                Answer::Done
            }
        })
    }

    /// Sets variables and dot for the next round of a range, at the place of its body.
    ///
    /// # Errors
    ///
    /// Too many steps.
    pub fn round(&mut self, rt: &mut Runtime, tree: &Tree, node: &Node, place: Place, out: &mut Vec<u8>) -> Result<(), GoErr> {
        self.leave(Place { dots: place.dots - 1, ..place });
        let (Node::Range(b), Some(walk)) = (node, self.walks.last_mut()) else { return Err(GoErr::new("a round without a range")) };
        let mark = walk.mark();
        let Some((index, element)) = walk.next() else { return Err(GoErr::new("a range has no more rounds")) };
        self.vars.truncate(mark);
        let mut state = State { rt, name: &tree.name, file: &tree.file, node: At::Node(node), vars: &mut self.vars, out };
        state.bind(b, mark, index, &element)?;
        self.dots.push(element);
        Ok(())
    }

    /// Executes a whole body.
    ///
    /// # Errors
    ///
    /// As [`Frame::step`].
    pub fn body(&mut self, rt: &mut Runtime, tree: &Tree, list: &List, place: Place, out: &mut Vec<u8>) -> Result<(), GoErr> {
        self.leave(place);
        let mut state = State { rt, name: &tree.name, file: &tree.file, node: At::None, vars: &mut self.vars, out };
        state.list(&self.dots[place.dots], list).map(|_| ())
    }
}
