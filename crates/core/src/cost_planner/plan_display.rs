//! A plan in one sentence, for people.

use std::fmt;

use super::{BudgetThreshold, CallCount, CallPlan, PlanAction, PlanFigures, PlanReason};

impl fmt::Display for CallPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PlanFigures { size, removed, suffix, .. } = &self.numbers;
        write!(f, "{}: ", self.action)?;
        match self.reason {
            PlanReason::Cold => write!(f, "the cache is cold, so {removed} of {size} tokens go for nothing")?,
            PlanReason::Pays | PlanReason::DoesNotPay | PlanReason::CheaperNow | PlanReason::CheaperLater => {
                write!(f, "removing {removed} of {size} tokens writes {suffix} again")?;
                self.fmt_break_even(f)?;
            }
            PlanReason::Uncertain => write!(
                f,
                "removing {removed} of {size} tokens writes {suffix} again, which pays only if all {} expected calls come",
                self.numbers.expected
            )?,
            PlanReason::Demanded(threshold) => {
                write!(
                    f,
                    "{size} tokens are over the {threshold}; {removed} go, {suffix} are written again"
                )?;
            }
            PlanReason::TargetMissed => {
                write!(
                    f,
                    "{size} tokens are near the trigger, and the free reducers, with {removed}, miss the target"
                )?;
            }
            PlanReason::AwaitsSummary => {
                write!(f, "{size} tokens are over the trigger, and a summary is being made")?;
            }
            PlanReason::NothingToRemove => {
                write!(f, "of {size} tokens too few can go ({removed}) to change what was sent")?;
            }
            PlanReason::BelowThresholds => write!(f, "{size} tokens are over no threshold")?,
        }
        self.numbers.fmt_money(f)
    }
}

impl CallPlan {
    fn fmt_break_even(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let expected = self.numbers.expected;
        match (self.reason, self.numbers.break_even) {
            (PlanReason::CheaperNow, _) => write!(f, ", which costs less now than later"),
            (PlanReason::CheaperLater, _) => write!(f, ", which costs less later than now"),
            (_, Some(calls)) => write!(f, " and pays after {calls} calls; {expected} are expected"),
            (_, None) => write!(f, " and makes no later call cheaper"),
        }
    }
}

impl PlanFigures {
    fn fmt_money(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(unknown) = &self.unknown {
            return write!(f, " (decided without money: {unknown})");
        }
        let costs = [
            ("kept", self.keep),
            ("edited", self.edit),
            ("with a summary", self.reset),
            ("to make it", self.summary),
        ];
        let costs: Vec<String> =
            costs.into_iter().filter_map(|(what, money)| Some(format!("{} {what}", money?))).collect();
        if costs.is_empty() { Ok(()) } else { write!(f, " ({})", costs.join(", ")) }
    }
}

impl fmt::Display for PlanAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Keep => "keep",
            Self::Edit => "edit",
            Self::Adopt => "adopt the summary",
            Self::Summarise => "begin a summary",
            Self::SummariseNow => "summarise now",
        })
    }
}

impl fmt::Display for BudgetThreshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Trigger => "trigger",
            Self::Force => "limit that forces a reduction",
        })
    }
}

impl fmt::Display for CallCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0 / 100, self.0 % 100) {
            (whole, 0) => whole.fmt(f),
            (whole, rest) if rest % 10 == 0 => write!(f, "{whole}.{}", rest / 10),
            (whole, rest) => write!(f, "{whole}.{rest:02}"),
        }
    }
}
