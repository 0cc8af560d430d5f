//! Sizes at which a policy acts and to which it reduces, as parts of the request's limit.

use std::fmt;

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{
        self, MapAccess, Visitor,
        value::{F64Deserializer, MapAccessDeserializer},
    },
};

use crate::{budget::Budget, profile::Share, tokens::Tokens};

/// Sizes at which a policy acts and to which it reduces. Those it does not set are taken from the model's
/// profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PolicyLimits {
    /// Over this it acts, or, if it counts the money, begins to look for a good moment.
    pub trigger: Option<LimitSize>,
    /// Once it acts it goes down to this.
    pub target: Option<LimitSize>,
    /// Size over which it acts at once, at any cost.
    pub force: Option<LimitSize>,
    /// Size over which it acts when the provider's cache has gone cold, because then a change is free.
    /// Without it, the policy ignores the cache and acts at the trigger.
    pub cold: Option<LimitSize>,
    /// True if it works from where the model's profile says that the model gets worse, and acts at any cost above the
    /// most that is recommended there, if that comes before its own sizes.
    #[serde(skip_serializing_if = "is_false")]
    pub heeds_degradation: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(value: &bool) -> bool {
    !value
}

/// A size, as part of the most that a request may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum LimitSize {
    /// This share of it.
    Share(Share),
    /// All of it but so many tokens, and no less than a share of it.
    Less {
        /// So many.
        less: Tokens,
        /// The share: half by default.
        least: Share,
        /// Least number of tokens, as far as a window allows that must have room for some calls beside them,
        /// and, if the provider's cache is warm, as far as the reset has paid for itself before the next one.
        #[serde(skip_serializing_if = "Option::is_none")]
        enough: Option<Tokens>,
    },
    /// All of the window but so many tokens, among which is the answer, and no less than a share of what a request may
    /// hold.
    Reserve {
        /// So many.
        reserve: Tokens,
        /// The share: half by default.
        least: Share,
    },
}

/// Largest part of a window for [`enough`](LimitSize::Less): the rest is for the calls that follow.
const MOST_OF_SMALL: Share = Share::percent(82);

impl LimitSize {
    /// The size under a budget.
    pub fn within(self, budget: &Budget) -> Tokens {
        self.of(budget.ceiling(), budget.answer())
    }

    /// The size, where a request may hold `ceiling` and `answer` stays free beside it.
    pub fn of(self, ceiling: Tokens, answer: Tokens) -> Tokens {
        match self {
            Self::Reserve { reserve, least } => {
                (ceiling + answer).less(reserve).max(least.of(ceiling)).min(ceiling)
            }
            Self::Share(share) => share.of(ceiling),
            Self::Less { less, least, enough } => {
                let enough = enough.map_or(Tokens(0), |enough| enough.min(MOST_OF_SMALL.of(ceiling)));
                ceiling.less(less).max(least.of(ceiling)).max(enough)
            }
        }
    }

    /// The same, without `enough`.
    pub(super) fn without_enough(self) -> Self {
        match self {
            Self::Share(_) | Self::Reserve { .. } => self,
            Self::Less { less, least, .. } => Self::Less { less, least, enough: None },
        }
    }
}

const fn half() -> Share {
    Share::percent(50)
}

/// Written by hand, because an untagged enum does not explain a wrong number.
impl<'de> Deserialize<'de> for LimitSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(LimitSizeVisitor)
    }
}

struct LimitSizeVisitor;

impl<'de> Visitor<'de> for LimitSizeVisitor {
    type Value = LimitSize;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "a share such as 0.85, or what is to stay free, as `{ less = 20_000 }` of a request or `{ reserve = 20_000 }` of the \
             window",
        )
    }

    fn visit_f64<E: de::Error>(self, share: f64) -> Result<LimitSize, E> {
        Share::deserialize(F64Deserializer::<E>::new(share)).map(LimitSize::Share)
    }

    fn visit_i64<E: de::Error>(self, share: i64) -> Result<LimitSize, E> {
        match share {
            0 => self.visit_f64(0.0),
            1 => self.visit_f64(1.0),
            _ => Err(E::invalid_value(de::Unexpected::Signed(share), &self)),
        }
    }

    fn visit_u64<E: de::Error>(self, share: u64) -> Result<LimitSize, E> {
        match i64::try_from(share) {
            Ok(share) => self.visit_i64(share),
            Err(_) => Err(E::invalid_value(de::Unexpected::Unsigned(share), &self)),
        }
    }

    fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<LimitSize, M::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct FreeRoom {
            #[serde(default)]
            less: Option<Tokens>,
            #[serde(default)]
            reserve: Option<Tokens>,
            #[serde(default = "half")]
            least: Share,
            #[serde(default)]
            enough: Option<Tokens>,
        }
        match FreeRoom::deserialize(MapAccessDeserializer::new(map))? {
            FreeRoom { less: Some(less), reserve: None, least, enough } => {
                Ok(LimitSize::Less { less, least, enough })
            }
            FreeRoom { less: None, reserve: Some(reserve), least, enough: None } => {
                Ok(LimitSize::Reserve { reserve, least })
            }
            FreeRoom { less: None, reserve: None, .. } => Err(de::Error::missing_field("less")),
            FreeRoom { .. } => Err(de::Error::custom(
                "`reserve` stands with `least` alone: `less` is of a request, `reserve` of the window",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stays_free_leaves_no_less_than_its_share() {
        let check = |json: &str, ceiling: u64, expect: u64| {
            let level: LimitSize = serde_json::from_str(json).unwrap();
            assert_eq!(level.of(Tokens(ceiling), Tokens(100)), Tokens(expect), "{json} of {ceiling}");
            let written = serde_json::to_string(&level).unwrap();
            assert_eq!(serde_json::from_str::<LimitSize>(&written).unwrap(), level, "{written}");
        };
        check("0.25", 1_000, 250);
        check(r#"{"less": 300}"#, 1_000, 700);
        // Half by default.
        check(r#"{"less": 700}"#, 1_000, 500);
        check(r#"{"less": 700, "least": 0.46}"#, 1_000, 460);
        check(r#"{"less": 700, "least": 0.2}"#, 1_000, 300);
        check(r#"{"less": 700, "least": 0}"#, 500, 0);
        // Enough is enough in any window, and in a small one as much as there is room for.
        let enough = r#"{"less": 700, "least": 0.46, "enough": 600}"#;
        for (ceiling, expect) in [(500, 410), (800, 600), (1_300, 600), (1_400, 700)] {
            check(enough, ceiling, expect);
        }
        check(r#"{"less": 18446744073709551615, "least": 1}"#, 1_000, 1_000);
        // Of the window, in which the answer has its place.
        check(r#"{"reserve": 300}"#, 1_000, 800);
        check(r#"{"reserve": 50}"#, 1_000, 1_000);
        check(r#"{"reserve": 900}"#, 1_000, 500);
        check(r#"{"reserve": 900, "least": 0.1}"#, 1_000, 200);
        for wrong in [
            r#"{"less": 7, "reserve": 7}"#,
            r#"{"reserve": 7, "enough": 7}"#,
            r#"{"least": 0.5}"#,
            r#"{"less": 7, "least": 1.5}"#,
            r#"{"less": 7, "most": 1}"#,
            "2",
        ] {
            assert!(serde_json::from_str::<LimitSize>(wrong).is_err(), "{wrong}");
        }
    }
}
