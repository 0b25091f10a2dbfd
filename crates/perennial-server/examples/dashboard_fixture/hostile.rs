//! Strings that must change nothing but what is read.

/// Texts: markup, scripts, bidirectional and other controls, and members that mean something to JavaScript.
pub(crate) const TEXTS: &[&str] = &[
    "<script>window.hacked = 1</script>",
    "<img src=x onerror=\"window.hacked = 2\">",
    "\"><svg onload=window.hacked=3>",
    "javascript:window.hacked=4",
    "</textarea></title></style><b>bold</b>",
    "{{constructor.constructor('window.hacked = 5')()}} ${window.hacked = 6}",
    "https://evil.example/?q=1",
    "right \u{202e}to left\u{202c} \u{2066}isolated\u{2069} \u{200b}\u{feff}",
    "tab\tnewline\nescape\u{1b}[31m nul\u{0} bell\u{7}",
    "__proto__",
    "constructor",
    "\u{1f469}\u{200d}\u{1f680} Z\u{0336}a\u{0336}l\u{0336}g\u{0336}o\u{0336}",
];

/// Names without control characters, which the engine refuses.
pub(crate) const NAMES: &[&str] = &[
    "<img src=x onerror=window.hacked=7>",
    "__proto__",
    "constructor",
    "a\u{202e}b",
    "'; DROP TABLE instances; --",
    "../../%2e%2e/?a=b#c",
];

/// Ids of instances.
pub(crate) fn ids() -> Vec<String> {
    let mut ids: Vec<String> = NAMES.iter().map(|name| (*name).to_owned()).collect();
    ids.extend([".", "..", "~", "~tilde", "a/b", "100%", "a?b#c", " blank ", "\u{1f335}"].map(str::to_owned));
    ids.push("wide-".to_owned() + &"W".repeat(195));
    ids.push("\"><script>window.hacked=8</script>".to_owned());
    ids
}

/// The id of an instance whose descendants have ids of up to 1,000 bytes.
pub(crate) fn longest_id() -> String {
    "deep-".to_owned() + &"x".repeat(195)
}
