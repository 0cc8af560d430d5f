//! Charts of a replay: the calls of one session under each policy, as a picture or in letters.

mod plot;
#[cfg(test)]
mod sample_session;
mod series;
mod svg;

pub use self::{
    plot::plot,
    series::{PictureTitle, PolicySeries},
    svg::svg,
};
