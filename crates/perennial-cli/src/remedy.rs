//! Advice for blocked instances.

use perennial::ErrorCode;
use perennial::client::{Blocked, Skippable};

/// The advice for an instance, by the reason why it is blocked.
pub(crate) fn remedy(id: &str, orchestration: &str, blocked: &Blocked) -> String {
    match blocked.pause.as_deref() {
        Some(pause) if pause.orchestration => {
            return format!(
                "its orchestration is paused; resume all its instances with `perennial resume --orchestration {}`",
                quoted(orchestration)
            );
        }
        Some(_) => return format!("it is paused; resume it with `perennial resume {}`", quoted(id)),
        None => {}
    }
    match (blocked.code.parse().ok(), blocked.skippable()) {
        (_, Some(Skippable::Event(event))) => format!(
            "make the type accept the event, and restart the program; or continue without the event: `perennial skip \
             {} {event}`; or `perennial cancel` the instance, which ends after 30 s",
            quoted(id)
        ),
        (Some(ErrorCode::UnreadableMessage), Some(Skippable::Message(number))) => format!(
            "check that the program is at least as new as the senders; if no program can read the message, continue without it: \
             `perennial skip {} --message {number}`, or `perennial terminate` the instance",
            quoted(id)
        ),
        (Some(ErrorCode::PayloadMismatch), Some(Skippable::Message(number))) => format!(
            "make the type accept the result that was sent with a token, and restart the program; or wait for another result: \
             `perennial skip {} --message {number}`",
            quoted(id)
        ),
        (Some(ErrorCode::PayloadMismatch), None) => {
            "make the type accept the recorded value, and restart the program; or `perennial terminate` the instance"
                .to_owned()
        }
        (code, None | Some(Skippable::Message(_))) => by_code(code).to_owned(),
    }
}

/// Quotes an id for a shell.
pub(crate) fn quoted(id: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.:/@".contains(c);
    if id.chars().all(is_plain) { id.to_owned() } else { format!("'{}'", id.replace('\'', r"'\''")) }
}

/// The advice for codes that this version does not know.
const UNKNOWN: &str =
    "`perennial show` has the full report; once the cause is fixed, `perennial retry` the instance";

/// The advice for an instance of which only the code of its problem is known.
pub(crate) fn by_code(code: Option<ErrorCode>) -> &'static str {
    let Some(code) = code else {
        return UNKNOWN;
    };
    match code {
        ErrorCode::CorruptHistory => {
            "its history cannot be read; keep a copy of the store, then `perennial terminate` it, or `perennial delete \
             --force` it"
        }
        ErrorCode::CorruptRow => {
            "some of its rows are damaged, see `perennial verify`; keep a copy of the store, then `perennial delete \
             --force` it, by its key if its id is damaged"
        }
        ErrorCode::NewerEngine => "check that this store is served by the newest program that wrote to it",
        ErrorCode::PayloadUndecodable => {
            "give the program the codec, key or blob that the reason names, and restart it, or `perennial retry` it; if \
             it is lost, `perennial terminate` the instance"
        }
        ErrorCode::PayloadUnencodable => {
            "provide what the codec needs; the instance is retried automatically, or at once with `perennial retry`"
        }
        ErrorCode::Panic => "fix the panic, restart the program, and `perennial retry` the instance",
        ErrorCode::NonDurableAwait => "await only futures of the context; move other waits into an activity",
        ErrorCode::Nondeterminism => {
            "`perennial show` names the difference between code and history; gate the change with patched()"
        }
        ErrorCode::Deadline => "move the long computation into an activity",
        ErrorCode::MissingCode => "register that orchestration and version, and restart the program",
        ErrorCode::TakesProcessDown => "fix the cause of the crash, then `perennial retry` the instance",
        code => code.remedy(),
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
