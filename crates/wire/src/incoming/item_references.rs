//! Items that a request only names, put in their places once their content is known.

use std::{collections::BTreeMap, sync::Arc};

use epitome_core::Event;

use super::{IncomingRequest, piece_properties::PieceProperties, read};
use crate::json::Json;

/// Puts recorded events in the place of items that the request only names, by the ids they were recorded under.
pub(super) fn resolve(seen: &mut IncomingRequest<'_>, events: &BTreeMap<String, Event>) {
    let known = |event: &Event| {
        let json = Json::parse(&event.raw.json, "a recorded item").ok()?;
        Some(Arc::new(PieceProperties::item(seen.format, &json, event)))
    };
    let known: BTreeMap<&str, (Arc<PieceProperties>, &Event)> =
        events.iter().filter_map(|(id, event)| Some((id.as_str(), (known(event)?, event)))).collect();
    for item in &mut seen.items {
        let named = item.known.reference.as_deref().and_then(|id| known.get(id));
        if let Some((known, event)) = named {
            (item.known, item.event) = (Arc::clone(known), Some(Box::new((*event).clone())));
        }
    }
    seen.references.retain(|id| !known.contains_key(id.as_str()));
    (seen.units, seen.spans) = read::units(seen.format, &seen.items, seen.opening);
}
