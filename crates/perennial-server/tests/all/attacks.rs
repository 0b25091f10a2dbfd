//! Requests that are made to mislead the server, or a proxy before it.

use std::net::SocketAddr;
use std::time::Duration;

use perennial_server::{Access, Caller, Options, Role, TokenFile};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::access::add_token;
use crate::world::{Setup, World};

/// Sends bytes, and reads what comes until the server closes or is silent.
async fn raw(address: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let _ = stream.write_all(bytes).await;
    let mut answer = Vec::new();
    loop {
        let mut part = [0; 16 << 10];
        match tokio::time::timeout(Duration::from_secs(2), stream.read(&mut part)).await {
            Ok(Ok(read)) if read > 0 => answer.extend_from_slice(&part[..read]),
            _ => return String::from_utf8_lossy(&answer).into_owned(),
        }
    }
}

fn answers(text: &str) -> usize {
    text.matches("HTTP/1.1 ").count()
}

#[tokio::test(flavor = "multi_thread")]
async fn h34_a_request_cannot_hide_another_one() {
    for setup in [Setup::SqliteServed, Setup::MemoryMounted] {
        let world = World::new(setup).await;
        world.start("approval", "victim", Value::Null).await;
        let (address, prefix) = (world.place.address, world.place.prefix);
        let hidden = format!(
            "POST {prefix}/api/v1/instances/victim/terminate HTTP/1.1\r\nhost: {address}\r\n\
             content-type: application/json\r\ncontent-length: 2\r\n\r\n{{}}"
        );
        let length = hidden.len();
        let get = |headers: &str, body: &str| {
            format!("GET {prefix}/livez HTTP/1.1\r\nhost: {address}\r\n{headers}\r\n{body}")
        };
        // The body of a request is not the next one.
        let with_body = raw(address, get(&format!("content-length: {length}\r\n"), &hidden).as_bytes()).await;
        assert_eq!(answers(&with_body), 1, "{with_body}");
        // Lengths that two readers could understand differently are refused, or understood as chunks alone.
        for headers in [
            format!("content-length: 0\r\ncontent-length: {length}\r\n"),
            format!("content-length: 0, {length}\r\n"),
            format!("content-length: +{length}\r\n"),
            format!("content-length: 0x{length:x}\r\n"),
            "content-length: -1\r\n".to_owned(),
            "transfer-encoding: gzip\r\n".to_owned(),
            "transfer-encoding: chunked, identity\r\n".to_owned(),
            "transfer-encoding : chunked\r\n".to_owned(),
            " transfer-encoding: chunked\r\n".to_owned(),
            "transfer-encoding:\u{b}chunked\r\n".to_owned(),
        ] {
            let answer = raw(address, get(&headers, &hidden).as_bytes()).await;
            assert!(answers(&answer) <= 1, "{headers:?}: {answer}");
            assert!(!answer.contains("202 Accepted"), "{headers:?}: {answer}");
        }
        // With both, the connection is not used for what follows, whichever of them a proxy went by.
        let lengths = ["content-length: 5\r\n", "transfer-encoding: chunked\r\n"];
        for headers in [lengths.concat(), [lengths[1], lengths[0]].concat(), lengths[1].to_owned()] {
            let answer = raw(address, get(&headers, &format!("0\r\n\r\n{hidden}")).as_bytes()).await;
            assert_eq!(answers(&answer), 1, "{headers:?}: {answer}");
            assert!(answer.contains("connection: close"), "{headers:?}: {answer}");
        }
        // Chunks whose size is not a number.
        for size in ["zz", "-1", "ffffffffffffffffff", "1;x=\r", " 5"] {
            let body = format!("{size}\r\n{hidden}\r\n0\r\n\r\n");
            let answer = raw(address, get("transfer-encoding: chunked\r\n", &body).as_bytes()).await;
            assert!(answers(&answer) <= 1, "{size}: {answer}");
        }
        // None of them reached the instance.
        world.running("victim").await;
        let status = world.place.get("instances/victim").expect(200).await.json()["status"].clone();
        assert_eq!(status, "running");
        world.place.get("/livez").expect(200).await;
        world.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn h9_a_host_that_two_readers_understand_differently_is_refused() {
    let options = Options::default().access(Access::everybody(Role::Operator)).check_host(true);
    for setup in [Setup::SqliteServed, Setup::MemoryMounted] {
        let world = World::with(setup, options.clone()).await;
        let (address, prefix) = (world.place.address, world.place.prefix);
        let path = format!("{prefix}/api/v1/instances");
        for (target, hosts) in [
            (path.clone(), "host: localhost\r\nhost: evil.example\r\n"),
            (path.clone(), "host: evil.example\r\nhost: localhost\r\n"),
            (path.clone(), "host: localhost.evil.example\r\n"),
            (path.clone(), "host: localhost@evil.example\r\n"),
            (path.clone(), "host: evil.example:localhost\r\n"),
            (path.clone(), "host: 127.0.0.1.evil.example\r\n"),
            (path.clone(), "host: localhost#.evil.example\r\n"),
            (path.clone(), "host: \r\n"),
            (path.clone(), "x-forwarded-host: localhost\r\n"),
            (format!("http://evil.example{path}"), "host: localhost\r\n"),
        ] {
            let request = format!("GET {target} HTTP/1.1\r\n{hosts}connection: close\r\n\r\n");
            let answer = raw(address, request.as_bytes()).await;
            let is_refused = answer.contains("PER-0803") || answer.starts_with("HTTP/1.1 400");
            assert!(is_refused, "{setup:?} {target} {hosts:?}: {answer}");
        }
        for host in ["localhost", "LOCALHOST:1", "127.0.0.1:65535", "[::1]:7370"] {
            world.place.get("instances").header("host", host).expect(200).await;
        }
        world.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn h10_a_page_cannot_pass_the_check_of_its_origin() {
    let login = Access::login(|parts| {
        let is_known = parts.headers.get("cookie").is_some_and(|cookie| cookie == "app=1");
        is_known.then(|| Caller { name: "ada".to_owned(), role: Role::Operator })
    });
    for access in [Access::everybody(Role::Operator), login] {
        let world = World::with(Setup::MemoryMounted, Options::default().access(access)).await;
        let own = format!("http://{}", world.place.address);
        let start = || world.place.post("instances", json!({"name": "approval"})).header("cookie", "app=1");
        start().expect(201).await;
        start().header("origin", &own).expect(201).await;
        // A made-up token is no token where there are none.
        start().header("origin", "https://evil.example").token("x").refused(403, "PER-0804").await;
        for origin in ["null", "https://evil.example", "http://localhost.evil.example", "", "http://", "*"] {
            start().header("origin", origin).refused(403, "PER-0804").await;
        }
        start().header("sec-fetch-site", "cross-site").refused(403, "PER-0804").await;
        start().header("sec-fetch-site", "same-site").refused(403, "PER-0804").await;
        for media in
            ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/jsonx"]
        {
            start().header("content-type", media).refused(415, "PER-0806").await;
        }
        start().without("content-type").refused(415, "PER-0806").await;
        // Two origins, of which one is the server's own.
        let two = format!(
            "POST {}/api/v1/instances HTTP/1.1\r\nhost: {}\r\ncookie: app=1\r\norigin: {own}\r\n\
             origin: https://evil.example\r\ncontent-type: application/json\r\nconnection: close\r\n\
             content-length: 19\r\n\r\n{{\"name\":\"approval\"}}",
            world.place.prefix, world.place.address
        );
        let answer = raw(world.place.address, two.as_bytes()).await;
        assert!(answer.contains("PER-0804"), "{answer}");
        world.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn h8_a_session_cannot_be_fixed_or_shared() {
    let directory = tempfile::tempdir().unwrap();
    let tokens = directory.path().join("tokens");
    let operator = add_token(&tokens, "ada", Role::Operator);
    let access = Access::tokens(TokenFile::open(&tokens).unwrap());
    let world = World::with(Setup::MemoryMounted, Options::default().access(access)).await;
    let chosen = "perennial_session=chosen-by-somebody-else";
    let log_in = |cookie: &str| {
        let own = format!("http://{}", world.place.address);
        let asked = world.place.post("session", json!({"token": operator})).header("origin", &own);
        asked.header("cookie", cookie)
    };
    let cookie = |answer: &crate::wire::Answer| {
        let cookie = answer.header("set-cookie").unwrap();
        assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
        cookie.split(';').next().unwrap().to_owned()
    };
    // The server chooses the secret, whatever the browser had.
    let first = cookie(&log_in(chosen).expect(200).await);
    assert_ne!(first, chosen);
    world.place.get("instances").header("cookie", chosen).refused(401, "PER-0801").await;
    world.place.get("instances").header("cookie", &first).expect(200).await;
    // Logging in again ends the session from before.
    let second = cookie(&log_in(&first).expect(200).await);
    assert_ne!(first, second);
    world.place.get("instances").header("cookie", &first).refused(401, "PER-0801").await;
    world.place.get("instances").header("cookie", &second).expect(200).await;
    // Neither a token as a cookie nor a secret as a token is of use.
    let secret = second.split('=').nth(1).unwrap();
    world.place.get("instances").token(secret).refused(401, "PER-0801").await;
    let token_cookie = format!("perennial_session={operator}");
    world.place.get("instances").header("cookie", &token_cookie).refused(401, "PER-0801").await;
    // A token that is removed takes its sessions with it.
    std::fs::write(&tokens, "").unwrap();
    world.place.get("instances").header("cookie", &second).refused(401, "PER-0801").await;
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h7_a_token_file_that_becomes_readable_for_others_is_refused_at_once() {
    use std::os::unix::fs::PermissionsExt;

    let directory = tempfile::tempdir().unwrap();
    let tokens = directory.path().join("tokens");
    let operator = add_token(&tokens, "ada", Role::Operator);
    let access = Access::tokens(TokenFile::open(&tokens).unwrap());
    let world = World::with(Setup::MemoryMounted, Options::default().access(access)).await;
    world.place.get("instances").token(&operator).expect(200).await;
    std::fs::set_permissions(&tokens, std::fs::Permissions::from_mode(0o604)).unwrap();
    world.place.get("instances").token(&operator).refused(401, "PER-0801").await;
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h17_no_path_reaches_another_route_than_it_names() {
    for setup in [Setup::SqliteServed, Setup::MemoryMounted] {
        let world = World::new(setup).await;
        world.start("approval", "a", Value::Null).await;
        let missing =
            ["instances/%2e%2e", "instances/%2E", "instances/~Li4", "instances/~Lg", "instances/a%2Fcancel"];
        for path in missing {
            world.place.get(path).refused(404, "PER-0605").await;
        }
        for path in [
            "../livez",
            "instances/../stats",
            "instances/a/../../stats",
            "instances//a",
            "instances/a/",
            "./instances",
            "instances%2Fa",
            "instances/a%2Fresult/x",
            "instances/a;x=1/nothing",
        ] {
            world.place.get(path).refused(404, "PER-0807").await;
        }
        for path in
            ["instances/~", "instances/~%", "instances/~!!", "instances/%", "instances/%zz", "instances/%ff"]
        {
            let answer = world.place.get(path).send().await;
            assert!([400, 404].contains(&answer.status), "{path}: {}", answer.text());
        }
        let nul = world.place.get("instances/%00").send().await;
        assert!([400, 404].contains(&nul.status), "{}", nul.text());
        // A change does not take a path for another instance's.
        world.place.post("instances/a%2F..%2Fb/terminate", json!({})).refused(404, "PER-0605").await;
        world.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn h33_deep_and_odd_json_is_refused_wherever_it_is_given() {
    let world = World::new(Setup::SqliteServed).await;
    let deep = format!("{}{}", "[".repeat(3_000), "]".repeat(3_000));
    world.place.get(&format!("instances?attr.a={deep}")).send().await;
    let filter = format!("attr.a={}{}", "[".repeat(200_000), "]".repeat(200_000));
    let body = json!({"action": "cancel", "filter": filter, "dry_run": true});
    let answer = world.place.post("operations", body).send().await;
    assert!([200, 400].contains(&answer.status), "{}", answer.text());
    let body = json!({"filter": filter});
    let answer = world.place.ask("PUT", "views/v").body(&body.to_string()).send().await;
    assert_eq!(answer.status, 400, "{}", answer.text());
    for body in
        [r#"{"name":"approval","name":"hello"}"#, r#"{"name":"approval","__proto__":1}"#, "\u{feff}{}"]
    {
        world.place.ask("POST", "instances").body(body).refused(400, "PER-0805").await;
    }
    let many = format!("{{\"name\":\"approval\",\"input\":[{}1]}}", "1,".repeat(1_000_000));
    world.place.ask("POST", "instances").body(&many).expect(201).await;
    world.place.get("/livez").expect(200).await;
    world.end().await;
}
