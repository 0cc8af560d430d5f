//! The units of a profile: shares of a window, multiples of a price, money, days.
//!
//! They are written as people write them (`0.55`, `$5`) and kept as whole numbers, so that two machines agree on every
//! threshold and every bill.

use std::{fmt, iter::Sum, ops::Add};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::tokens::Tokens;

/// A part of a whole, in ten-thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Share(u32);

impl Share {
    const WHOLE: u32 = 10_000;

    /// So many hundredths; more than the whole is the whole.
    pub const fn percent(percent: u32) -> Self {
        let parts = percent.saturating_mul(100);
        Self(if parts > Self::WHOLE { Self::WHOLE } else { parts })
    }

    /// The part that `some` is of `whole`; all of it, if it is no less.
    pub fn ratio(some: Tokens, whole: Tokens) -> Self {
        let parts = u128::from(some.0.min(whole.0)) * u128::from(Self::WHOLE) / u128::from(whole.0.max(1));
        Self(u32::try_from(parts).unwrap_or(Self::WHOLE))
    }

    /// This part of `tokens`, rounded down.
    pub fn of(self, tokens: Tokens) -> Tokens {
        let part = u128::from(tokens.0) * u128::from(self.0) / u128::from(Self::WHOLE);
        Tokens(u64::try_from(part).expect("a part is no more than the whole"))
    }

    /// In ten-thousandths.
    pub const fn parts(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0 / 100, self.0 % 100) {
            (whole, 0) => write!(f, "{whole} %"),
            (whole, rest) if rest % 10 == 0 => write!(f, "{whole}.{} %", rest / 10),
            (whole, rest) => write!(f, "{whole}.{rest:02} %"),
        }
    }
}

/// A multiple of the input price, in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PriceMultiple(u32);

impl PriceMultiple {
    /// The price itself.
    pub const ONE: Self = Self(1_000_000);

    /// In millionths.
    pub const fn parts(self) -> u32 {
        self.0
    }
}

/// A price: micro-dollars for a million tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Price(u64);

impl Price {
    /// In micro-dollars for a million tokens.
    pub const fn micro_dollars(self) -> u64 {
        self.0
    }
}

/// An amount of money, in billionths of a dollar.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Money(pub u64);

impl Money {
    /// In dollars, for people to read.
    #[expect(clippy::cast_precision_loss, reason = "what a person reads needs no more digits")]
    pub fn dollars(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl Add for Money {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Sum for Money {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self(0), Add::add)
    }
}

/// Written to the cent, or to the first two digits that say anything.
impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dollars = self.dollars();
        match self.0 {
            0 | 995_000_000.. => write!(f, "${dollars:.2}"),
            9_950_000.. => write!(f, "${dollars:.3}"),
            _ => write!(f, "${dollars:.6}"),
        }
    }
}

/// A day, written `2026-11-15`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CalendarDate(toml::value::Date);

impl fmt::Display for CalendarDate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for CalendarDate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for CalendarDate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match toml::value::Datetime::deserialize(deserializer)? {
            toml::value::Datetime { date: Some(date), time: None, offset: None } => Ok(Self(date)),
            other => Err(de::Error::custom(format!("expected a day such as 2026-11-15, found {other}"))),
        }
    }
}

/// A decimal number between 0 and `most`, scaled to a whole number.
struct ScaledDecimal {
    scale: f64,
    most: f64,
}

impl ScaledDecimal {
    fn whole<E: de::Error>(&self, value: f64) -> Result<u64, E> {
        if !(0.0..=self.most).contains(&value) {
            return Err(E::custom(format!("expected a number from 0 to {}, found {value}", self.most)));
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "checked to be small and positive"
        )]
        let whole = (value * self.scale).round() as u64;
        Ok(whole)
    }
}

impl de::Visitor<'_> for ScaledDecimal {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a number from 0 to {}", self.most)
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<u64, E> {
        self.whole(value)
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<u64, E> {
        let small =
            i32::try_from(value).map_err(|_| E::invalid_value(de::Unexpected::Signed(value), &self))?;
        self.whole(f64::from(small))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<u64, E> {
        let small =
            u32::try_from(value).map_err(|_| E::invalid_value(de::Unexpected::Unsigned(value), &self))?;
        self.whole(f64::from(small))
    }
}

#[expect(clippy::cast_precision_loss, reason = "the number was read from fewer digits than this keeps")]
fn decimal(whole: u64) -> f64 {
    whole as f64
}

macro_rules! decimal {
    ($name:ident($inner:ty), scale $scale:literal, most $most:literal) => {
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let whole = deserializer.deserialize_any(ScaledDecimal { scale: $scale, most: $most })?;
                Ok(Self(<$inner>::try_from(whole).map_err(de::Error::custom)?))
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_f64(decimal(self.0.into()) / $scale)
            }
        }
    };
}

decimal!(Share(u32), scale 10_000.0, most 1.0);
decimal!(PriceMultiple(u32), scale 1_000_000.0, most 100.0);
decimal!(Price(u64), scale 1_000_000.0, most 1_000_000.0);

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Deserialize, Serialize)]
    struct All {
        share: Share,
        multiple: PriceMultiple,
        price: Price,
        day: CalendarDate,
    }

    #[test]
    fn decimals_are_kept_to_the_last_digit_and_written_back_as_they_were() {
        let text = "share = 0.55\nmultiple = 0.025\nprice = 0.028\nday = 2026-11-15\n";
        let all: All = toml::from_str(text).unwrap();
        let expected = All {
            share: Share::percent(55),
            multiple: PriceMultiple(25_000),
            price: Price(28_000),
            day: CalendarDate(toml::value::Date { year: 2026, month: 11, day: 15 }),
        };
        assert_eq!(all, expected);
        let json = serde_json::to_string(&all).unwrap();
        assert_eq!(json, r#"{"share":0.55,"multiple":0.025,"price":0.028,"day":"2026-11-15"}"#);
    }

    #[test]
    fn numbers_that_make_no_sense_are_refused() {
        let share = |text: &str| toml::from_str::<std::collections::BTreeMap<String, Share>>(text);
        for wrong in
            ["x = 55", "x = -0.1", "x = nan", "x = inf", "x = \"0.5\"", "x = 9223372036854775807", "x = true"]
        {
            assert!(share(wrong).is_err(), "{wrong}");
        }
        assert!(
            toml::from_str::<std::collections::BTreeMap<String, CalendarDate>>("x = 2026-11-15T01:02:03Z")
                .is_err()
        );
    }

    #[test]
    fn a_share_of_everything_does_not_overflow() {
        assert_eq!(Share::percent(100).of(Tokens::MAX), Tokens::MAX);
        assert_eq!(Share::percent(55).of(Tokens(184_000)), Tokens(101_200));
        assert_eq!(
            (Share::percent(55).to_string(), Share(5_550).to_string()),
            ("55 %".into(), "55.5 %".into())
        );
    }

    #[test]
    fn money_is_written_for_people() {
        let shown = |nano| Money(nano).to_string();
        assert_eq!(shown(12_345_678_900), "$12.35");
        assert_eq!(shown(12_300_000), "$0.012");
        assert_eq!(shown(1_230), "$0.000001");
        assert_eq!(shown(0), "$0.00");
    }
}
