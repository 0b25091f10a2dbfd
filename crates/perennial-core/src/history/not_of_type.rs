//! Payloads that are not of the type that was wanted, described without quoting them.

use crate::code::ErrorCode;

/// A payload is not of the type that was wanted.
#[derive(Debug, thiserror::Error)]
#[error("{prefix}: the payload cannot be read as {type_name}: {}", self.reason(), prefix = self.code().prefix())]
pub struct NotOfType {
    /// The type that was wanted.
    pub type_name: &'static str,
    /// What the decoder says. It may quote the payload.
    #[source]
    pub error: serde_json::Error,
}

impl NotOfType {
    /// What the decoder says, without the parts that quote the payload, so that it can be logged and shown.
    ///
    /// ```
    /// use perennial_core::Payload;
    ///
    /// #[derive(Debug, serde::Deserialize)]
    /// struct Order {
    ///     region: String,
    /// }
    ///
    /// let reason = |json: &str| Payload::from_json(json).unwrap().decode_as::<Order>().unwrap_err().reason();
    /// assert_eq!(reason("{}"), "missing field `region` at line 1 column 2");
    /// assert_eq!(reason(r#"{"region": 4111}"#), "invalid type: integer, expected a string at line 1 column 15");
    /// ```
    pub fn reason(&self) -> String {
        let text = self.error.to_string();
        let place = format!(" at line {} column {}", self.error.line(), self.error.column());
        let words = text.strip_suffix(&place).unwrap_or(&text);
        let place = if self.error.line() == 0 { "" } else { &place };
        format!("{}{place}", self.without_values(words))
    }

    fn without_values(&self, words: &str) -> String {
        // serde writes "<problem>: <kind> <value>, expected <what the type wants>". The value may itself hold any text,
        // so everything up to the last "expected" is cut, except for the kind.
        let expected = || words.rfind(", expected ").map_or("", |at| &words[at..]);
        for problem in ["invalid type: ", "invalid value: "] {
            if let Some(rest) = words.strip_prefix(problem) {
                let kind = rest.split(['`', '"', ',']).next().unwrap_or_default().trim_end();
                return format!("{problem}{kind}{}", expected());
            }
        }
        for problem in ["unknown variant", "unknown field"] {
            if words.starts_with(problem) {
                return format!("{problem}{}", expected());
            }
        }
        if let Some(rest) = words.strip_prefix("invalid length ") {
            let length: String = rest.chars().take_while(char::is_ascii_digit).collect();
            return format!("invalid length {length}{}", expected());
        }
        let names_a_field = |problem| words.strip_prefix(problem).is_some_and(|rest| rest.ends_with('`'));
        if ["missing field `", "duplicate field `"].into_iter().any(names_a_field) || !self.error.is_data() {
            return words.to_owned();
        }
        // The words of a type's own check may quote anything.
        "refused by the type's own check".to_owned()
    }
}

impl NotOfType {
    /// The stable code of this failure.
    pub fn code(&self) -> ErrorCode {
        ErrorCode::PayloadMismatch
    }
}

crate::error_model!(NotOfType);
