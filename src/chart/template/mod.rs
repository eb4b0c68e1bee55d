//! Go's text/template language: lexer, parser, syntax tree and the direct evaluator.

pub mod ast;
pub mod eval;
pub mod lex;
pub mod method;
pub mod number;
pub mod parse;
pub mod step;
