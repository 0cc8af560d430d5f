//! The binary `epitome`.
fn main() {}
