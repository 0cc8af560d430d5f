//! A bill: charges added up.

use std::collections::BTreeMap;

use super::CallCharge;
use crate::{
    event::Usage,
    profile::{Money, UnknownPriceError},
};

/// Usage and cost of a sequence of calls. The totals are the sums of the calls', rounding included.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bill {
    /// Number of calls.
    pub calls: u64,
    /// Their usage.
    pub usage: Usage,
    /// Number of calls that missed part of the cache, by the name of the reason.
    pub misses: BTreeMap<&'static str, u64>,
    money: Money,
    unknown: Option<UnknownPriceError>,
}

impl Bill {
    /// Adds a call.
    pub fn add(&mut self, charge: &CallCharge) {
        self.calls += 1;
        let Usage { uncached, cache_read, cache_write, cache_write_hour, output } = charge.usage;
        self.usage.uncached += uncached;
        self.usage.cache_read += cache_read;
        self.usage.cache_write += cache_write;
        self.usage.cache_write_hour += cache_write_hour;
        self.usage.output += output;
        if let Some(miss) = charge.missed {
            *self.misses.entry(miss.name()).or_default() += 1;
        }
        match &charge.money {
            Ok(money) => self.money = self.money + *money,
            Err(unknown) => {
                self.unknown.get_or_insert_with(|| unknown.clone());
            }
        }
    }

    /// Total cost, unless the price of any call is unknown.
    pub fn money(&self) -> Result<Money, UnknownPriceError> {
        self.unknown.clone().map_or(Ok(self.money), Err)
    }
}

impl<'a> FromIterator<&'a CallCharge> for Bill {
    fn from_iter<I: IntoIterator<Item = &'a CallCharge>>(charges: I) -> Self {
        let mut bill = Self::default();
        charges.into_iter().for_each(|charge| bill.add(charge));
        bill
    }
}
