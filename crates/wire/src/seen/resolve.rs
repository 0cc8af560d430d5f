//! Items that a request only names, put in their places once somebody knows what they are.

use std::sync::Arc;

use epitome_core::Event;

use super::{Seen, known::Known, read};
use crate::json::Json;

/// Puts `event`, which was recorded under `id`, where the request only names it.
pub(super) fn resolve(seen: &mut Seen<'_>, id: &str, event: &Event) {
    let Ok(json) = Json::parse(&event.raw.json, "a recorded item") else { return };
    let known = Arc::new(Known::item(seen.format, &json, event));
    for item in &mut seen.items {
        if item.known.reference.as_deref() == Some(id) {
            item.known = Arc::clone(&known);
            item.event = Some(Box::new(event.clone()));
        }
    }
    seen.references.retain(|other| other != id);
    (seen.units, seen.spans) = read::units(seen.format, &seen.items, seen.opening);
}
