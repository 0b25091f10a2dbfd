//! JSON schemas of requests and answers, in the dialect of OpenAPI 3.1.

use serde_json::{Map, Value, json};

/// A schema.
pub(crate) type Schema = Value;

pub(crate) fn string() -> Schema {
    json!({"type": "string"})
}

pub(crate) fn boolean() -> Schema {
    json!({"type": "boolean"})
}

pub(crate) fn integer() -> Schema {
    json!({"type": "integer", "minimum": 0})
}

/// A number that may be negative.
pub(crate) fn signed() -> Schema {
    json!({"type": "integer"})
}

/// A point in time.
pub(crate) fn time() -> Schema {
    json!({"type": "integer", "minimum": 0, "description": "Milliseconds since 1970."})
}

/// Any JSON value.
pub(crate) fn payload() -> Schema {
    json!({"description": "A payload as recorded. Hidden ones are `{\"hidden\":true,\"bytes\":n}`."})
}

pub(crate) fn named(names: &[&str]) -> Schema {
    json!({"type": "string", "enum": names})
}

pub(crate) fn array(items: Schema) -> Schema {
    json!({"type": "array", "items": items})
}

/// An object whose members are not fixed.
pub(crate) fn map(values: Schema) -> Schema {
    json!({"type": "object", "additionalProperties": values})
}

/// The schema, or `null`.
pub(crate) fn nullable(schema: Schema) -> Schema {
    json!({"anyOf": [schema, {"type": "null"}]})
}

/// A schema of the document's components.
pub(crate) fn reference(name: &str) -> Schema {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

/// An object with members that are always there, and members that may be.
pub(crate) fn object(required: &[(&str, Schema)], optional: &[(&str, Schema)]) -> Schema {
    let members = required.iter().chain(optional);
    let properties: Map<String, Value> =
        members.map(|(name, schema)| ((*name).to_owned(), schema.clone())).collect();
    let names: Vec<&str> = required.iter().map(|(name, _)| *name).collect();
    json!({"type": "object", "properties": properties, "required": names})
}

/// A schema that the document has under a name, and refers to wherever it is used.
pub(crate) fn component(name: &str, mut schema: Schema) -> Schema {
    schema[COMPONENT] = json!(name);
    schema
}

/// Marks a schema with its name until the document is made.
pub(crate) const COMPONENT: &str = "x-component";

/// A page of a list.
pub(crate) fn page(name: &str, rows: Schema, optional: &[(&str, Schema)]) -> Schema {
    component(name, object(&[("rows", array(rows)), ("next", nullable(string()))], optional))
}

/// An object with the members of others.
pub(crate) fn all_of(parts: Vec<Schema>) -> Schema {
    json!({"allOf": parts})
}
