//! S1: what the engine notes under a live session.

use perennial_core::store::{SessionId, StoreError};

use super::instances::bytes;
use super::subject::{Make, Subject};

pub fn s1_a_note_is_kept_until_it_is_replaced_or_removed(make: Make<'_>) {
    let subject = Subject::new(make);
    let session = subject.open_session(60_000);
    assert_eq!(subject.note("suspects"), None);
    assert_eq!(subject.write_note(session, "suspects", Some("\0first")), Ok(()));
    assert_eq!(subject.write_note(session, "Suspects", Some("another name's")), Ok(()));
    assert_eq!(subject.note("suspects"), Some(bytes("\0first")));
    // It outlives who wrote it.
    subject.end(session).unwrap();
    assert_eq!(subject.note("suspects"), Some(bytes("\0first")));
    let heir = subject.open_session(60_000);
    assert_eq!(subject.write_note(heir, "suspects", Some("second")), Ok(()));
    assert_eq!(subject.note("suspects"), Some(bytes("second")));
    assert_eq!(subject.write_note(heir, "suspects", Some("")), Ok(()));
    assert_eq!(subject.note("suspects"), Some(bytes("")), "an empty note is one");
    assert_eq!(subject.write_note(heir, "suspects", None), Ok(()));
    assert_eq!(subject.write_note(heir, "never noted", None), Ok(()));
    assert_eq!((subject.note("suspects"), subject.note("never noted")), (None, None));
    assert_eq!(subject.note("Suspects"), Some(bytes("another name's")));
}

pub fn s1_a_session_that_is_gone_notes_nothing(make: Make<'_>) {
    let subject = Subject::new(make);
    let (dead, expired) = (subject.open_session(60_000), subject.open_session(1_000));
    subject.write_note(dead, "suspects", Some("first")).unwrap();
    subject.end(dead).unwrap();
    subject.clock.advance(1_001);
    let alive = subject.own_all();
    for session in [dead, expired, SessionId(u128::MAX)] {
        for note in [Some("late"), None] {
            assert_eq!(subject.write_note(session, "suspects", note), Err(StoreError::SessionGone));
        }
        assert_eq!(subject.write_note(session, "other", Some("late")), Err(StoreError::SessionGone));
    }
    assert_eq!((subject.note("suspects"), subject.note("other")), (Some(bytes("first")), None));
    assert_eq!(subject.write_note(alive, "other", Some("now")), Ok(()));
}
