//! Settings, which every session can read and write.

use super::instances::bytes;
use super::subject::{Make, Subject};

pub fn s7_a_setting_is_kept_until_it_is_replaced_or_deleted(make: Make<'_>) {
    let subject = Subject::new(make);
    assert_eq!(subject.setting("retention"), None);
    subject.write_setting("retention", Some("\0first"));
    subject.write_setting("Retention", Some("another name's"));
    assert_eq!(subject.setting("retention"), Some(bytes("\0first")));
    // A setting needs no session, and is independent of sessions.
    let session = subject.own_all();
    subject.end(session).unwrap();
    assert_eq!(subject.setting("retention"), Some(bytes("\0first")));
    subject.write_setting("retention", Some("second"));
    assert_eq!(subject.setting("retention"), Some(bytes("second")));
    subject.write_setting("retention", Some(""));
    assert_eq!(subject.setting("retention"), Some(bytes("")), "an empty setting is one");
    subject.write_setting("retention", None);
    subject.write_setting("never written", None);
    assert_eq!((subject.setting("retention"), subject.setting("never written")), (None, None));
    assert_eq!(subject.setting("Retention"), Some(bytes("another name's")));
}

pub fn s7_of_two_concurrent_changes_of_a_setting_one_is_refused(make: Make<'_>) {
    let subject = Subject::new(make);
    assert!(subject.replace_setting("paused", None, Some("a")));
    assert!(!subject.replace_setting("paused", None, Some("b")), "it exists by now");
    assert!(!subject.replace_setting("paused", Some(bytes("")), None));
    assert_eq!(subject.setting("paused"), Some(bytes("a")));
    assert!(subject.replace_setting("paused", Some(bytes("a")), Some("a, b")));
    assert!(!subject.replace_setting("paused", Some(bytes("a")), None), "it has another value by now");
    assert!(subject.replace_setting("paused", Some(bytes("a, b")), None));
    assert!(!subject.replace_setting("paused", Some(bytes("a, b")), Some("c")), "it is gone");
    assert_eq!(subject.setting("paused"), None);
}
