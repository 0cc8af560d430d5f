//! Tool definitions, from one format to another.
//!
//! Functions and free-text tools exist everywhere in some form; a grammar for the text does not, and is left out. So
//! are tools that a provider runs itself.

use crate::{
    format::Format,
    json::{Json, quote},
};

/// Schema of a free-text tool in formats in which every tool takes an object.
pub(crate) const FREE_TEXT: &str =
    r#"{"type":"object","properties":{"input":{"type":"string"}},"required":["input"]}"#;

/// Schema of a function without parameters.
pub(crate) const EMPTY_SCHEMA: &str = r#"{"type":"object","properties":{}}"#;

/// One definition in `format`; several if it is a namespace, none if it has no counterpart.
pub(crate) fn translated(definition: &str, format: Format) -> Vec<String> {
    let Ok(tool) = Json::parse(definition, "a tool definition") else { return Vec::new() };
    let inner = match tool.text_at("type") {
        Some("namespace") => tool.array_at("tools"),
        None if tool.get("functionDeclarations").is_some() => tool.array_at("functionDeclarations"),
        _ => std::slice::from_ref(&tool),
    };
    let definitions = inner.iter().filter_map(ToolDefinition::read);
    definitions.map(|tool| format.provider().write_tool(&tool)).collect()
}

/// A definition in terms of its parts' raw JSON.
pub(crate) struct ToolDefinition<'t> {
    pub(crate) name: &'t str,
    /// The literal, quotes and all.
    pub(crate) description: Option<&'t str>,
    pub(crate) takes: ToolParameters<'t>,
}

/// Parameters of a tool.
pub(crate) enum ToolParameters<'t> {
    /// An object of this schema.
    Object(&'t str),
    /// Text.
    Text,
}

impl<'t> ToolDefinition<'t> {
    pub(crate) fn read(tool: &'t Json<'_>) -> Option<Self> {
        // Chat puts the definition in a member named after the type.
        let body = tool.get("function").or_else(|| tool.get("custom")).unwrap_or(tool);
        let schema =
            ["input_schema", "parameters", "parametersJsonSchema"].into_iter().find_map(|key| body.get(key));
        let takes = match (schema, tool.text_at("type")) {
            (Some(schema), _) => ToolParameters::Object(schema.raw),
            (None, Some("custom")) => ToolParameters::Text,
            (None, Some("function")) => ToolParameters::Object(EMPTY_SCHEMA),
            _ => return None,
        };
        let description = body.get("description").filter(|text| !text.is_null()).map(|text| text.raw);
        Some(Self { name: body.text_at("name")?, description, takes })
    }

    /// Its name and description as members.
    pub(crate) fn head(&self) -> String {
        let name = quote(self.name);
        let description =
            self.description.map_or_else(String::new, |text| format!(r#","description":{text}"#));
        format!(r#""name":{name}{description}"#)
    }
}
