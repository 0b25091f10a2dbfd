//! Tokens, sessions, hosts and origins.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use perennial_server::{Access, Caller, NewToken, Options, Role, TokenFile};
use serde_json::{Value, json};

use crate::world::{Setup, World};

/// Makes a token and adds it to a file.
pub(crate) fn add_token(path: &Path, name: &str, role: Role) -> String {
    let made = NewToken::generate(name, role);
    made.append_to(path).unwrap();
    made.token
}

#[tokio::test(flavor = "multi_thread")]
async fn h7_tokens_are_read_again_when_their_file_changes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tokens");
    let operator = add_token(&path, "ada", Role::Operator);
    let file = TokenFile::open(&path).unwrap();
    let world = World::with(Setup::SqliteServed, Options::default().access(Access::tokens(file))).await;
    world.place.get("instances").refused(401, "PER-0801").await;
    world.place.get("instances").token("per_wrong").refused(401, "PER-0801").await;
    world.place.get("instances").header("authorization", "Basic YTpi").refused(401, "PER-0801").await;
    world.place.get(&format!("instances?token={operator}")).refused(401, "PER-0801").await;
    world.place.get("instances").token(&operator).expect(200).await;
    let reader = add_token(&path, "bob", Role::Reader);
    world.place.get("instances").token(&reader).expect(200).await;
    let start = || world.place.post("instances", json!({"name": "approval", "id": "a"}));
    start().token(&reader).refused(403, "PER-0802").await;
    start().token(&operator).expect(201).await;
    let who = world.place.get("session").token(&reader).expect(200).await.json();
    assert_eq!((&who["name"], &who["role"]), (&json!("bob"), &json!("reader")));
    assert_eq!(world.place.get("session").expect(200).await.json()["role"], Value::Null);

    // Who asked stands beside the reason.
    let cancel = world.place.post("instances/a/cancel", json!({"reason": "out of stock"})).token(&operator);
    cancel.expect(202).await;
    let result = world.place.get("instances/a/result?wait_ms=30000").token(&reader).expect(200).await.json();
    assert_eq!(result["reason"], "by ada: out of stock");

    // A file that others can read has no tokens.
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    add_line(&path, "# changed");
    world.place.get("instances").token(&operator).refused(401, "PER-0801").await;
    assert!(TokenFile::open(&path).unwrap_err().to_string().contains("chmod 600"));
    assert!(NewToken::generate("x", Role::Reader).append_to(&path).is_err());
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    world.place.get("instances").token(&operator).expect(200).await;
    world.end().await;
}

fn add_line(path: &Path, line: &str) {
    let text = fs::read_to_string(path).unwrap();
    fs::write(path, format!("{text}{line}\n")).unwrap();
}

#[test]
fn h7_a_token_file_holds_hashes_and_is_strict() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tokens");
    let token = add_token(&path, "ada", Role::Operator);
    assert_eq!(token.len(), "per_".len() + 64);
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.starts_with("operator ada ") && !text.contains(&token), "{text}");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    for line in ["admin ada 00", "operator ada", "operator ada zz", &format!("{} more", text.trim())] {
        fs::write(&path, line).unwrap();
        assert!(TokenFile::open(&path).unwrap_err().to_string().contains("line 1"), "{line}");
    }
    fs::write(&path, "# nothing\n\n").unwrap();
    assert!(TokenFile::open(&path).unwrap().is_empty());
    assert!(TokenFile::open(directory.path().join("missing")).is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn h8_a_browser_exchanges_a_token_for_a_session() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tokens");
    let token = add_token(&path, "ada", Role::Operator);
    let options = Options::default().access(Access::tokens(TokenFile::open(&path).unwrap()));
    let world = World::with(Setup::MemoryMounted, options).await;
    world.place.post("session", json!({"token": "wrong"})).refused(401, "PER-0801").await;
    let answer = world.place.post("session", json!({"token": token})).expect(200).await;
    assert_eq!(answer.json()["role"], "operator");
    let cookie = answer.header("set-cookie").unwrap();
    for attribute in ["HttpOnly", "SameSite=Strict", "Max-Age=43200"] {
        assert!(cookie.contains(attribute), "{cookie}");
    }
    assert!(!cookie.contains("Secure") && !cookie.contains(&token), "{cookie}");
    let cookie = cookie.split(';').next().unwrap();
    world.place.get("instances").header("cookie", &format!("a=b; {cookie}")).expect(200).await;
    // A session is not a token: a page of another site can send it, so the origin counts.
    let start = || world.place.post("instances", json!({"name": "approval"})).header("cookie", cookie);
    start().header("origin", "https://evil.example").refused(403, "PER-0804").await;
    start().header("sec-fetch-site", "cross-site").refused(403, "PER-0804").await;
    start().header("origin", &format!("http://{}", world.place.address)).expect(201).await;
    start().header("sec-fetch-site", "same-origin").expect(201).await;
    // A session gives nothing once its token is removed.
    let kept = fs::read_to_string(&path).unwrap();
    fs::write(&path, "# removed\n").unwrap();
    world.place.get("instances").header("cookie", cookie).refused(401, "PER-0801").await;
    fs::write(&path, kept).unwrap();
    world.place.get("instances").header("cookie", cookie).expect(200).await;
    let end = world.place.delete("session").header("cookie", cookie).expect(204).await;
    assert!(end.header("set-cookie").unwrap().contains("Max-Age=0"));
    world.place.get("instances").header("cookie", cookie).refused(401, "PER-0801").await;
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h6_an_application_decides_with_its_own_login() {
    let access = Access::login(|request| {
        let user = request.headers.get("x-user")?.to_str().ok()?;
        let role = if user == "root" { Role::Operator } else { Role::Reader };
        Some(Caller { name: user.to_owned(), role })
    });
    let world = World::with(Setup::MemoryMounted, Options::default().access(access.clone())).await;
    world.place.get("instances").refused(401, "PER-0801").await;
    world.place.get("instances").header("x-user", "bob").header("host", "any.example").expect(200).await;
    let start = || world.place.post("instances", json!({"name": "approval"}));
    start().header("x-user", "bob").refused(403, "PER-0802").await;
    start().header("x-user", "root").expect(201).await;
    world.end().await;
    let world = World::with(Setup::MemoryMounted, Options::default().access(access).read_only(true)).await;
    world
        .place
        .post("instances", json!({"name": "approval"}))
        .header("x-user", "root")
        .refused(403, "PER-0802")
        .await;
    world.end().await;
    let world = World::with(Setup::MemoryMounted, Options::default()).await;
    world.place.get("instances").refused(401, "PER-0801").await;
    world.place.get("nothing").refused(401, "PER-0801").await;
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h9_only_known_hosts_are_served() {
    let options = Options::default().access(Access::everybody(Role::Operator)).allow_host("ops.example");
    for setup in [Setup::MemoryMounted, Setup::SqliteServed] {
        let world = World::with(setup, options.clone()).await;
        for host in ["localhost", "LocalHost:1", "127.0.0.1:9", "[::1]:80", "ops.example", "ops.example:443"]
        {
            world.place.get("instances").header("host", host).expect(200).await;
        }
        for host in
            ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "", "0.0.0.0", "evil:80:80"]
        {
            for path in ["instances", "nothing", "/livez", "openapi.json", "session", "/index.html"] {
                world.place.get(path).header("host", host).refused(421, "PER-0803").await;
            }
        }
        world.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn h10_a_change_has_to_be_declared_as_json() {
    let world = World::new(Setup::MemoryMounted).await;
    let start = || world.place.post("instances", json!({"name": "approval"}));
    for media in
        ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/jsonx", ""]
    {
        start().header("content-type", media).refused(415, "PER-0806").await;
    }
    start().without("content-type").refused(415, "PER-0806").await;
    start().header("content-type", "Application/JSON; charset=utf-8").expect(201).await;
    world.place.ask("DELETE", "instances/a").without("content-type").refused(415, "PER-0806").await;
    for origin in ["null", "https://evil.example", "http://localhost:1", "http://127.0.0.1"] {
        start().header("origin", origin).refused(403, "PER-0804").await;
    }
    start().header("sec-fetch-site", "same-site").refused(403, "PER-0804").await;
    start().header("sec-fetch-site", "none").expect(201).await;
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h11_no_cors_header_leaves_unless_the_origin_is_listed() {
    let options =
        Options::default().access(Access::everybody(Role::Operator)).allow_origin("https://ops.example");
    let world = World::with(Setup::MemoryMounted, options).await;
    let cors = |answer: &crate::wire::Answer| {
        answer.headers.iter().filter(|(name, _)| name.starts_with("access-control")).count()
    };
    let plain = world.place.get("instances").expect(200).await;
    let foreign = world.place.get("instances").header("origin", "https://evil.example").expect(200).await;
    assert_eq!((cors(&plain), cors(&foreign)), (0, 0));
    let listed = world.place.get("instances").header("origin", "https://ops.example").expect(200).await;
    assert_eq!(listed.header("access-control-allow-origin"), Some("https://ops.example"));
    assert_eq!(listed.header("access-control-allow-credentials"), None);
    let start = world.place.post("instances", json!({"name": "approval"}));
    start.header("origin", "https://ops.example").header("sec-fetch-site", "cross-site").expect(201).await;
    let preflight = world.place.ask("OPTIONS", "instances").header("origin", "https://ops.example");
    let preflight = preflight.send().await;
    assert_eq!(
        (preflight.status, preflight.header("access-control-allow-methods")),
        (204, Some("GET, POST"))
    );
    let refused = world.place.ask("OPTIONS", "instances").header("origin", "https://evil.example");
    assert_eq!(cors(&refused.refused(405, "PER-0808").await), 0);
    world.end().await;
}
