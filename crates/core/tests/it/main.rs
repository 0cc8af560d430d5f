//! The integration tests of the core.

#[cfg(test)]
mod after_summary;
#[cfg(test)]
mod blocks;
mod conversations;
#[cfg(test)]
mod floors;
#[cfg(test)]
mod focus;
#[cfg(test)]
mod histories;
#[cfg(test)]
mod inject;
mod injection;
#[cfg(test)]
mod notation;
#[cfg(test)]
mod planted;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod specs;
#[cfg(test)]
mod specs_policies;
#[cfg(test)]
mod stage;
#[cfg(test)]
mod standing;
#[cfg(test)]
mod state;
#[cfg(test)]
mod summaries;
#[cfg(test)]
mod told;
#[cfg(test)]
mod verify;
#[cfg(test)]
mod views;
