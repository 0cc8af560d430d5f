//! Sweeps: every session at many budgets in every format, or call by call under every policy; each request is checked.

mod budget_sweep;
mod call_sweep;

pub use self::{
    budget_sweep::{SMALLEST_BUDGET, SweepTally, sweep_budgets},
    call_sweep::{CallSweepTallies, CallSweepTally, sweep_calls},
};
