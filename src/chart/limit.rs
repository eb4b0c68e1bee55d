//! Bounds that keep a user-written template from hanging, overflowing the stack or exhausting memory.

/// Longest text a single function or render may produce, in bytes.
pub const MAX_TEXT: usize = 64 << 20;
/// Longest list a function may produce.
pub const MAX_ITEMS: usize = 10_000_000;

/// What one render may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Evaluation steps (nodes and calls).
    pub fuel: u64,
    /// Bytes of text made by all templates together, includes counted each time.
    pub text: usize,
    /// Nested `template`, `include` and `tpl` calls.
    pub depth: usize,
}

impl Default for Limits {
    /// Far beyond what public charts use: the largest take about two million steps and 40 MB.
    fn default() -> Self {
        Self { fuel: 50_000_000, text: 1 << 30, depth: 20_000 }
    }
}
