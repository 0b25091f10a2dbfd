//! What to do about a blocked instance.

use perennial::ErrorCode;
use perennial::client::{Blocked, Skippable};

/// What to do about the instance with an id and an orchestration, by what blocks it.
pub(crate) fn remedy(id: &str, orchestration: &str, blocked: &Blocked) -> String {
    match blocked.pause.as_deref() {
        Some(pause) if pause.orchestration => {
            return format!(
                "it is paused with its orchestration; `perennial resume --orchestration {}` lets all instances go on",
                quoted(orchestration)
            );
        }
        Some(_) => return format!("it is paused; `perennial resume {}` lets it go on", quoted(id)),
        None => {}
    }
    match (blocked.code.parse().ok(), blocked.skippable()) {
        (_, Some(Skippable::Event(event))) => format!(
            "let the type read what was sent, and start the program again; or go on without that event: `perennial skip \
             {} {event}`; or `perennial cancel` the instance, which ends it 30 s later",
            quoted(id)
        ),
        (Some(ErrorCode::UnreadableMessage), Some(Skippable::Message(number))) => format!(
            "check that the program is as new as those who send to it; if nobody can read the message, go on without it: \
             `perennial skip {} --message {number}`, or `perennial terminate` the instance",
            quoted(id)
        ),
        (Some(ErrorCode::PayloadMismatch), Some(Skippable::Message(number))) => format!(
            "let the type read the result that came with a token, and start the program again; or go on waiting for another: \
             `perennial skip {} --message {number}`",
            quoted(id)
        ),
        (Some(ErrorCode::PayloadMismatch), None) => {
            "let the type read what is recorded, and start the program again; or `perennial terminate` the instance"
                .to_owned()
        }
        (code, None | Some(Skippable::Message(_))) => by_code(code).to_owned(),
    }
}

/// An id as a shell takes it.
pub(crate) fn quoted(id: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.:/@".contains(c);
    if id.chars().all(is_plain) { id.to_owned() } else { format!("'{}'", id.replace('\'', r"'\''")) }
}

/// The advice for codes that this version of the command has no better one for.
const UNKNOWN: &str = "`perennial show` has the whole report; when it is fixed, `perennial retry` it";

fn by_code(code: Option<ErrorCode>) -> &'static str {
    let Some(code) = code else {
        return UNKNOWN;
    };
    match code {
        ErrorCode::CorruptHistory => {
            "its history cannot be read; keep a copy of the store, then `perennial terminate` it, or `perennial delete \
             --force` it"
        }
        ErrorCode::CorruptRow => {
            "rows of it are damaged, and `perennial verify` names them; keep a copy of the store, then `perennial delete \
             --force` it, by its key if its id is damaged"
        }
        ErrorCode::NewerEngine => "check that this store is served by the newest program that wrote to it",
        ErrorCode::PayloadUndecodable => {
            "give the program the codec, key or blob that the reason names, and start it again, or `perennial retry` it; if \
             that is lost, `perennial terminate` it"
        }
        ErrorCode::PayloadUnencodable => {
            "see to what the codec needs; it is tried again by itself, or at once with `perennial retry`"
        }
        ErrorCode::Panic => "fix the panic, start the program again, and `perennial retry` it",
        ErrorCode::NonDurableAwait => {
            "await only what the context gives; move other waiting into an activity"
        }
        ErrorCode::Nondeterminism => {
            "`perennial show` tells where code and record differ; gate the change with patched()"
        }
        ErrorCode::Limit => "continue as new earlier, or keep payloads elsewhere and pass references",
        ErrorCode::Deadline => "move the long computation into an activity",
        ErrorCode::MissingCode => "register that orchestration and version, and start the program again",
        ErrorCode::TakesProcessDown => "fix what ends the process, then `perennial retry` it",
        _ => UNKNOWN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s11_what_cannot_be_encoded_and_what_cannot_be_decoded_have_remedies_of_their_own() {
        assert!(by_code(Some(ErrorCode::PayloadUnencodable)).contains("what the codec needs"));
        assert!(by_code(Some(ErrorCode::PayloadUndecodable)).contains("codec, key or blob"));
        assert!(!by_code(Some(ErrorCode::Paused)).contains("codec"), "that is the code of a pause");
    }
}
