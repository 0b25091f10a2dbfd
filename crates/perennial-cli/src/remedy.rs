//! What to do about a blocked instance.

use perennial::{Blocked, Skippable};

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
    match (blocked.code.as_str(), blocked.skippable()) {
        (_, Some(Skippable::Event(event))) => format!(
            "let the type read what was sent, and start the program again; or go on without that event: `perennial skip \
             {} {event}`; or `perennial cancel` the instance, which ends it 30 s later",
            quoted(id)
        ),
        ("PER-0308", Some(Skippable::Message(number))) => format!(
            "check that the program is as new as those who send to it; if nobody can read the message, go on without it: \
             `perennial skip {} --message {number}`, or `perennial terminate` the instance",
            quoted(id)
        ),
        ("PER-0103", Some(Skippable::Message(number))) => format!(
            "let the type read the result that came with a token, and start the program again; or go on waiting for another: \
             `perennial skip {} --message {number}`",
            quoted(id)
        ),
        ("PER-0103", None) => {
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

fn by_code(code: &str) -> &'static str {
    match code {
        "PER-0101" => {
            "its history cannot be read; keep a copy of the store, then `perennial terminate` it, or `perennial delete \
             --force` it"
        }
        "PER-0508" => {
            "rows of it are damaged, and `perennial verify` names them; keep a copy of the store, then `perennial delete \
             --force` it, by its key if its id is damaged"
        }
        "PER-0102" => "check that this store is served by the newest program that wrote to it",
        "PER-0104" => {
            "give the program the codec, key or blob that the reason names, and start it again, or `perennial retry` it; if \
             that is lost, `perennial terminate` it"
        }
        "PER-0310" => {
            "see to what the codec needs; it is tried again by itself, or at once with `perennial retry`"
        }
        "PER-0201" => "fix the panic, start the program again, and `perennial retry` it",
        "PER-0202" => "await only what the context gives; move other waiting into an activity",
        "PER-0203" => "`perennial show` tells where code and record differ; gate the change with patched()",
        "PER-0204" => "continue as new earlier, or keep payloads elsewhere and pass references",
        "PER-0205" => "move the long computation into an activity",
        "PER-0301" => "register that orchestration and version, and start the program again",
        "PER-0302" => "fix what ends the process, then `perennial retry` it",
        _ => "`perennial show` has the whole report; when it is fixed, `perennial retry` it",
    }
}

#[cfg(test)]
mod tests {
    use super::by_code;

    #[test]
    fn s11_what_cannot_be_encoded_and_what_cannot_be_decoded_have_remedies_of_their_own() {
        assert!(by_code("PER-0310").contains("what the codec needs"));
        assert!(by_code("PER-0104").contains("codec, key or blob"));
        assert!(!by_code("PER-0309").contains("codec"), "that is the code of a pause");
    }
}
