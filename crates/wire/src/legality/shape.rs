//! The shape of a single message or item: its role, its content, the members of its calls.
//!
//! Each check needs one message alone, so that a caller with a growing history checks a message when it is new and
//! never again. Only faults that a provider certainly refuses are found: members, blocks and items of unknown kinds
//! are legal, and are carried as they came.

use super::ViolationKind;
use crate::{format::Format, json::Json};

/// Finds everything about a message that its provider would refuse in any context, each fault with its place in the
/// message as a JSON pointer.
pub(crate) fn check(format: Format, message: &Json<'_>) -> Vec<(String, ViolationKind)> {
    let mut shape = ShapeFaults::default();
    if !message.is_object() {
        shape.add("", ViolationKind::NotAnObject(message.kind()));
        return shape.0;
    }
    format.provider().check_shape(message, &mut shape);
    shape.0
}

/// Faults in the shape of a message.
#[derive(Default)]
pub(crate) struct ShapeFaults(Vec<(String, ViolationKind)>);

impl ShapeFaults {
    pub(crate) fn add(&mut self, place: &str, breach: ViolationKind) {
        self.0.push((place.to_owned(), breach));
    }

    /// Finds a role that the provider does not know.
    pub(crate) fn role<'j>(&mut self, message: &'j Json<'_>, known: &[&str]) -> Option<&'j str> {
        match message.get("role").map(|role| (role, role.as_text())) {
            None => self.add("", ViolationKind::RoleMissing),
            Some((_, Some(role))) if known.contains(&role) => return Some(role),
            Some((_, Some(role))) => self.add("/role", ViolationKind::RoleUnknown(role.to_owned())),
            Some((role, None)) => self.add("/role", ViolationKind::RoleUnknown(role.raw.to_owned())),
        }
        None
    }

    /// Checks content: a text, or parts that each have a type.
    pub(crate) fn content(&mut self, place: &str, content: &Json<'_>, texts: &[&str]) {
        if content.as_text().is_some() {
            return;
        }
        let Some(parts) = content.as_array() else {
            return self.add(place, ViolationKind::ContentType(content.kind()));
        };
        for (index, part) in parts.iter().enumerate() {
            let place = format!("{place}/{index}");
            if !part.is_object() {
                self.add(&place, ViolationKind::NotAnObject(part.kind()));
                continue;
            }
            match part.text_at("type") {
                None => self.add(&place, ViolationKind::PartWithoutType),
                Some(kind) if texts.contains(&kind) && part.text_at("text").is_none() => {
                    self.add(&format!("{place}/text"), ViolationKind::TextMissing);
                }
                Some(_) => {}
            }
        }
    }
}
