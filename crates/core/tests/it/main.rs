//! The integration tests of the core.

#[cfg(test)]
mod notation;
#[cfg(test)]
mod specs;
