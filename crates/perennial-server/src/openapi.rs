//! The OpenAPI 3.1 document, made from the table of routes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use axum::http::Method;
use perennial::ErrorCode;
use serde_json::{Map, Value, json};

use crate::components;
use crate::problem::status;
use crate::query::{Kind, Parameter};
use crate::route::{Cost, Input, JSON, Needs, Output, ROUTES, Route};
use crate::schema::{COMPONENT, Schema, array, boolean, component, named, payload, reference, string};

pub(crate) const API_VERSION: &str = "1";

/// The OpenAPI 3.1 document of the API, as JSON.
///
/// ```
/// let document: serde_json::Value = serde_json::from_str(&perennial_server::document()).unwrap();
/// assert_eq!(document["openapi"], "3.1.0");
/// assert!(document["paths"]["/api/v1/instances/{id}"]["get"].is_object());
/// ```
pub fn document() -> String {
    DOCUMENT.clone()
}

static DOCUMENT: LazyLock<String> = LazyLock::new(|| {
    let mut text = serde_json::to_string_pretty(&whole()).unwrap_or_default();
    text.push('\n');
    text
});

fn whole() -> Value {
    let mut schemas: Map<String, Value> = Map::new();
    for schema in components::shared() {
        hoisted(schema, &mut schemas);
    }
    let mut paths: Map<String, Value> = Map::new();
    for route in ROUTES.iter() {
        let path: String = route.segments().flat_map(|segment| ["/", segment]).collect();
        let methods = paths.entry(path).or_insert_with(|| json!({}));
        methods[route.method.as_str().to_ascii_lowercase()] = hoisted(operation(route), &mut schemas);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Perennial",
            "version": API_VERSION,
            "description": "Starts, controls and reads durable executions. Within a version, answers only gain members.",
            "license": {"name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0"},
        },
        // Relative to this document, so that any prefix and any proxy works.
        "servers": [{"url": "../.."}],
        "security": [{"token": []}, {"session": []}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "session": {"type": "apiKey", "in": "cookie", "name": crate::access::COOKIE},
            },
        },
    })
}

/// Moves schemas that have names to the components, and refers to them.
fn hoisted(value: Value, schemas: &mut Map<String, Value>) -> Value {
    match value {
        Value::Object(members) => {
            let mut members: Map<String, Value> =
                members.into_iter().map(|(name, value)| (name, hoisted(value, schemas))).collect();
            match members.remove(COMPONENT) {
                Some(Value::String(name)) => {
                    let schema = Value::Object(members);
                    let known = schemas.entry(name.clone()).or_insert_with(|| schema.clone());
                    assert_eq!(*known, schema, "two schemas have the name {name}");
                    reference(&name)
                }
                _ => Value::Object(members),
            }
        }
        Value::Array(items) => items.into_iter().map(|item| hoisted(item, schemas)).collect(),
        value => value,
    }
}

/// The schema of an answer. Every object has a name, for those who generate types: that of the operation if no other.
fn answer_schema(route: &Route, schema: Schema) -> Schema {
    let is_object = schema["type"] == "object" && schema["properties"].is_object();
    match is_object && schema[COMPONENT].is_null() {
        true => {
            let (first, rest) = route.name.split_at(1);
            component(&format!("{}{rest}Answer", first.to_ascii_uppercase()), schema)
        }
        false => schema,
    }
}

fn operation(route: &Route) -> Value {
    let needs = match route.needs {
        Needs::Nobody => "Everybody may use it.",
        Needs::Reader | Needs::PayloadReader => "Readers may use it.",
        Needs::Operator => "Operators may use it.",
    };
    let mut operation = json!({
        "operationId": route.name,
        "summary": route.about,
        "description": needs,
        "parameters": parameters(route),
        "responses": responses(route),
        "x-perennial-codes": codes(route).into_iter().map(ErrorCode::as_str).collect::<Vec<_>>(),
    });
    if route.needs == Needs::Nobody {
        operation["security"] = json!([]);
    }
    match route.input {
        Input::Nothing => {}
        Input::Payload(about) => {
            operation["requestBody"] = json!({
                "description": format!("{about} `null` if there is no body."),
                "content": {JSON: {"schema": payload()}},
            });
        }
        Input::Object(schema) => {
            let schema = schema();
            let required = schema["required"].as_array().is_some_and(|required| !required.is_empty());
            operation["requestBody"] = json!({"required": required, "content": {JSON: {"schema": schema}}});
        }
    }
    operation
}

fn parameters(route: &Route) -> Vec<Value> {
    let segments = route.segments().filter_map(|segment| segment.strip_prefix('{')?.strip_suffix('}'));
    let in_path = segments.map(|name| {
        let about = "One segment, percent-encoded; or `~` and its bytes in base64url.";
        json!({"name": name, "in": "path", "required": true, "description": about, "schema": string()})
    });
    let in_query = route.parameters.iter().map(query_parameter);
    let key = route.keyed.then(|| {
        let about = "A repeated request with the same key gets what the first one got.";
        let schema = json!({"type": "string", "minLength": 1, "maxLength": 200});
        json!({"name": "Idempotency-Key", "in": "header", "description": about, "schema": schema})
    });
    in_path.chain(in_query).chain(key).collect()
}

fn query_parameter(parameter: &Parameter) -> Value {
    let schema = match parameter.kind {
        Kind::Text | Kind::Key | Kind::Json => string(),
        Kind::Flag => boolean(),
        Kind::Number(low, high) => {
            json!({"type": "integer", "minimum": low, "maximum": high.min((1 << 53) - 1)})
        }
        Kind::OneOf(names) => named(names),
        Kind::SomeOf(names) => array(named(names)),
    };
    let (name, about) = (parameter.name, parameter.about);
    match parameter.kind {
        // Any number of parameters whose names begin like this.
        Kind::Json => json!({
            "name": name, "in": "query", "description": about, "style": "form", "explode": true,
            "schema": {"type": "object", "additionalProperties": schema},
        }),
        Kind::SomeOf(_) => json!({
            "name": name, "in": "query", "description": about, "style": "form", "explode": false, "schema": schema,
        }),
        _ if parameter.many => json!({
            "name": name, "in": "query", "description": about, "style": "form", "explode": true, "schema": array(schema),
        }),
        _ => json!({"name": name, "in": "query", "description": about, "schema": schema}),
    }
}

fn responses(route: &Route) -> Value {
    let mut responses: BTreeMap<String, Value> = BTreeMap::new();
    for Output { status, about, media, schema } in &route.outputs {
        let mut response = json!({"description": about});
        if let Some(schema) = schema {
            response["content"] = json!({*media: {"schema": answer_schema(route, schema())}});
        } else if !media.is_empty() {
            response["content"] = json!({*media: {"schema": string()}});
        }
        responses.insert(status.to_string(), response);
    }
    let mut failures: BTreeMap<u16, Vec<ErrorCode>> = BTreeMap::new();
    for code in codes(route) {
        failures.entry(status(code).as_u16()).or_default().push(code);
    }
    for (status, codes) in failures {
        let names: Vec<String> = codes.iter().map(|code| code.prefix().to_owned()).collect();
        let problem = json!({
            "description": names.join(", "),
            "content": {"application/problem+json": {"schema": reference("Problem")}},
        });
        responses.insert(status.to_string(), problem);
    }
    json!(responses)
}

/// All codes that a route can answer with: its own, and those of the way to it.
fn codes(route: &Route) -> BTreeSet<ErrorCode> {
    use ErrorCode as C;
    let mut codes: BTreeSet<ErrorCode> = route.codes.iter().copied().collect();
    codes.extend([C::HostNotAllowed, C::BadRequest, C::TooLarge, C::OutcomeUnknown]);
    if route.needs != Needs::Nobody {
        codes.extend([C::NotAuthenticated, C::Stopping, C::Stopped]);
        // Any of these may come from the store.
        codes.extend([
            C::StoreUnavailable,
            C::StoreFailed,
            C::StoreClosed,
            C::StoreOutcomeUnknown,
            C::CorruptRow,
        ]);
        codes.extend([C::CannotOpenStore, C::TooSlow]);
    }
    match route.needs {
        Needs::Operator | Needs::PayloadReader => codes.extend([C::ForOperators]),
        // Searching texts of payloads is for those who may see them.
        Needs::Reader if route.parameters.iter().any(|parameter| parameter.name == "text") => {
            codes.extend([C::ForOperators]);
        }
        Needs::Reader | Needs::Nobody => {}
    }
    if route.method != Method::GET {
        codes.extend([C::OriginNotAllowed, C::MediaType, C::TooSlow]);
    }
    if route.cost != Cost::Small {
        codes.insert(C::Busy);
    }
    codes
}
