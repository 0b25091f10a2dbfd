//! Holds every answer that a test receives against the OpenAPI document.

use std::sync::LazyLock;

use serde_json::{Map, Value};

use crate::wire::Answer;

pub(crate) static DOCUMENT: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_str(&perennial_server::document()).unwrap());

/// Checks an answer: its status, its media type, its members, and the code of an error stand at its route.
pub(crate) fn check(prefix: &str, method: &str, path: &str, answer: &Answer) {
    let shown = format!(
        "{method} {path} {}: {}",
        answer.status,
        answer.text().chars().take(2_000).collect::<String>()
    );
    let media = answer.header("content-type").unwrap_or_default();
    if answer.status >= 400 {
        assert_eq!(media, "application/problem+json", "{shown}");
    }
    // H3: no absolute URL leaves.
    let address = [answer.text(), answer.header("location").unwrap_or_default().to_owned()].concat();
    // An error may quote what the caller sent.
    assert!(answer.status >= 400 || !address.contains("http://127.0.0.1"), "{shown}");
    let path = path.split('?').next().unwrap().strip_prefix(prefix).unwrap();
    let method = if method == "HEAD" { "GET" } else { method };
    let is_dashboard = !path.starts_with("/api") && answer.status < 400;
    let Some(operation) = operation(method, path).filter(|_| !is_dashboard || path.len() > 1) else {
        if is_dashboard && path != "/livez" && path != "/readyz" {
            assert!(method == "GET" && [200, 304, 307].contains(&answer.status), "{shown}");
            return;
        }
        let code = if answer.status >= 400 { answer.json()["code"].clone() } else { Value::Null };
        let expected = ["PER-0801", "PER-0803", "PER-0807", "PER-0808", "PER-0609"];
        assert!(answer.status == 204 || expected.iter().any(|known| code == *known), "{shown}");
        return;
    };
    if answer.status == 304 {
        return;
    }
    let response = &operation["responses"][answer.status.to_string()];
    assert!(response.is_object(), "the status is not in the document: {shown}");
    if answer.status >= 400 {
        let problem = answer.json();
        let codes = operation["x-perennial-codes"].as_array().unwrap();
        assert!(codes.contains(&problem["code"]), "the code is not in the document: {shown}");
        assert_eq!(problem["status"], answer.status, "{shown}");
        assert_eq!(
            problem["type"],
            format!("urn:perennial:{}", problem["code"].as_str().unwrap()),
            "{shown}"
        );
        validate(&DOCUMENT["components"]["schemas"]["Problem"], &problem, &shown);
        return;
    }
    let content = &response["content"];
    match content.as_object().and_then(|content| content.iter().next()) {
        None => assert!(answer.body.is_empty(), "{shown}"),
        Some((documented, schema)) => {
            assert!(media.starts_with(documented.as_str()), "{media}: {shown}");
            if documented == "application/json" && !answer.body.is_empty() {
                validate(&schema["schema"], &answer.json(), &shown);
            }
        }
    }
}

/// The operation of a path, preferring fixed segments.
fn operation(method: &str, path: &str) -> Option<&'static Value> {
    let given: Vec<&str> = path.split('/').collect();
    let paths = DOCUMENT["paths"].as_object().unwrap();
    let matching = paths.iter().filter(|(template, _)| {
        let segments: Vec<&str> = template.split('/').collect();
        segments.len() == given.len()
            && segments.iter().zip(&given).all(|(segment, given)| {
                if segment.starts_with('{') { !given.is_empty() } else { segment == given }
            })
    });
    let best = matching.min_by_key(|(template, _)| template.matches('{').count())?;
    Some(&best.1[method.to_ascii_lowercase()]).filter(|operation| operation.is_object())
}

/// Validates a value against a schema. Stricter than the schema: a member that it does not name is an error, so that the
/// document is complete.
pub(crate) fn validate(schema: &Value, value: &Value, shown: &str) {
    if let Err(problem) = try_validate(schema, value, "") {
        panic!("{problem}: {shown}");
    }
}

fn try_validate(schema: &Value, value: &Value, at: &str) -> Result<(), String> {
    let schema = &resolved(schema);
    if let Some(choices) = schema["anyOf"].as_array() {
        let tried: Vec<_> = choices.iter().map(|choice| try_validate(choice, value, at)).collect();
        return match tried.iter().any(Result::is_ok) {
            true => Ok(()),
            false => Err(format!("{at}: none of the schemas fits: {tried:?}")),
        };
    }
    if let Some(names) = schema["enum"].as_array() {
        return if names.contains(value) {
            Ok(())
        } else {
            Err(format!("{at}: {value} is not one of {names:?}"))
        };
    }
    match schema["type"].as_str() {
        None => Ok(()),
        Some("string") if value.is_string() => Ok(()),
        Some("boolean") if value.is_boolean() => Ok(()),
        Some("null") if value.is_null() => Ok(()),
        Some("integer") if value.is_i64() && schema.get("minimum").is_none() => Ok(()),
        Some("integer") if value.is_u64() => match value.as_u64() {
            Some(number) if number < 1 << 53 => Ok(()),
            _ => Err(format!("{at}: {value} is not a safe integer")),
        },
        Some("array") if value.is_array() => {
            let items = value.as_array().unwrap().iter().enumerate();
            let at = |place: usize| format!("{at}/{place}");
            items.into_iter().try_for_each(|(place, item)| try_validate(&schema["items"], item, &at(place)))
        }
        Some("object") if value.is_object() => members(schema, value.as_object().unwrap(), at),
        Some(kind) => Err(format!("{at}: {value} is not a {kind}")),
    }
}

fn members(schema: &Value, members: &Map<String, Value>, at: &str) -> Result<(), String> {
    let known = schema["properties"].as_object();
    for name in schema["required"].as_array().into_iter().flatten() {
        if !members.contains_key(name.as_str().unwrap()) {
            return Err(format!("{at}: the member {name} is missing"));
        }
    }
    for (name, value) in members {
        let others = &schema["additionalProperties"];
        match known.and_then(|known| known.get(name)) {
            Some(schema) => try_validate(schema, value, &format!("{at}/{name}"))?,
            None if others.is_object() => try_validate(others, value, &format!("{at}/{name}"))?,
            None if *others == true || known.is_none() => {}
            None => return Err(format!("{at}: the member {name:?} is not in the document")),
        }
    }
    Ok(())
}

/// A schema with its reference followed and its parts joined.
fn resolved(schema: &Value) -> Value {
    if let Some(reference) = schema["$ref"].as_str() {
        let name = reference.strip_prefix("#/components/schemas/").unwrap();
        let found = &DOCUMENT["components"]["schemas"][name];
        assert!(found.is_object(), "{reference} leads nowhere");
        return resolved(found);
    }
    let Some(parts) = schema["allOf"].as_array() else { return schema.clone() };
    let mut joined = serde_json::json!({"type": "object", "properties": {}, "required": []});
    for part in parts {
        let part = resolved(part);
        for (name, member) in part["properties"].as_object().unwrap() {
            joined["properties"][name] = member.clone();
        }
        joined["required"].as_array_mut().unwrap().extend(part["required"].as_array().unwrap().clone());
    }
    joined
}

#[test]
fn h38_the_document_equals_the_committed_copy() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/openapi.json");
    let document = perennial_server::document();
    if std::env::var_os("PERENNIAL_UPDATE").is_some() {
        std::fs::write(path, &document).unwrap();
    }
    let committed = std::fs::read_to_string(path).unwrap();
    assert!(
        committed == document,
        "the contract has changed; run the test with PERENNIAL_UPDATE=1 and review the diff"
    );
}

#[test]
fn h38_every_reference_of_the_document_leads_somewhere() {
    fn visit(value: &Value) {
        match value {
            Value::Object(members) => {
                if let Some(Value::String(reference)) = members.get("$ref") {
                    let place = reference.strip_prefix('#').unwrap();
                    assert!(DOCUMENT.pointer(place).is_some(), "{reference}");
                }
                members.values().for_each(visit);
            }
            Value::Array(items) => items.iter().for_each(visit),
            _ => {}
        }
    }
    visit(&DOCUMENT);
    let names = DOCUMENT["paths"].as_object().unwrap().values();
    let operations = names.flat_map(|methods| methods.as_object().unwrap().values());
    let mut names: Vec<&str> =
        operations.map(|operation| operation["operationId"].as_str().unwrap()).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count, "two operations have the same name");
}
