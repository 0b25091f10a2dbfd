//! The files of the dashboard, on every path that is not of the API.

use perennial_server::{Access, Options, Role, TokenFile};
use serde_json::json;

use crate::access::add_token;
use crate::wire::{Answer, Place};
use crate::world::{Setup, World};

/// The paths of scripts and styles that a page names, relative to it.
fn assets(page: &str) -> Vec<String> {
    let quoted = page.split('"').filter_map(|part| part.strip_prefix("./assets/"));
    quoted.map(|name| format!("/assets/{name}")).collect()
}

async fn page(place: &Place) -> Answer {
    place.get("/index.html").expect(200).await
}

#[tokio::test(flavor = "multi_thread")]
async fn d56_the_binary_serves_its_page_and_assets_mounted_and_served() {
    for setup in [Setup::MemoryMounted, Setup::SqliteServed] {
        let world = World::new(setup).await;
        let index = page(&world.place).await;
        assert_eq!(index.header("content-type"), Some("text/html; charset=utf-8"));
        assert!(index.text().contains("<title>Perennial</title>"), "{}", index.text());
        let found = assets(&index.text());
        assert!(!found.is_empty(), "{}", index.text());
        for path in found {
            let plain = world.place.get(&path).expect(200).await;
            assert_eq!(plain.header("content-encoding"), None);
            assert_eq!(plain.header("cache-control"), Some("public, max-age=31536000, immutable"));
            assert_eq!(plain.header("vary"), Some("accept-encoding"));
            let packed = world.place.get(&path).header("accept-encoding", "br, gzip").expect(200).await;
            assert_eq!(packed.header("content-encoding"), Some("gzip"));
            assert_eq!(packed.header("content-type"), plain.header("content-type"));
            assert_eq!(unpacked(&packed.body), plain.body);
            let head = world.place.ask("HEAD", &path).expect(200).await;
            assert!(head.body.is_empty() && head.header("etag") == plain.header("etag"));
        }
        world.end().await;
    }
}

fn unpacked(bytes: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(bytes), &mut plain).unwrap();
    plain
}

#[tokio::test(flavor = "multi_thread")]
async fn d52_every_file_is_sent_under_the_strict_policy() {
    let world = World::new(Setup::SqliteServed).await;
    let index = page(&world.place).await;
    let mut paths = assets(&index.text());
    paths.push("/index.html".to_owned());
    for path in paths {
        let answer = world.place.get(&path).expect(200).await;
        let policy = answer.header("content-security-policy").unwrap();
        for part in [
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "connect-src 'self'",
            "img-src 'self'",
            "worker-src 'self'",
            "base-uri 'none'",
            "form-action 'self'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
        ] {
            assert!(policy.split("; ").any(|given| given == part), "{part} is not in {policy}");
        }
        assert!(!policy.contains("unsafe"), "{policy}");
        for (name, value) in [
            ("x-content-type-options", "nosniff"),
            ("referrer-policy", "no-referrer"),
            ("cross-origin-opener-policy", "same-origin"),
            ("cross-origin-resource-policy", "same-origin"),
        ] {
            assert_eq!(answer.header(name), Some(value), "{path}");
        }
    }
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d50_the_page_is_asked_for_again_and_answered_by_its_tag() {
    let world = World::new(Setup::SqliteServed).await;
    let index = page(&world.place).await;
    assert_eq!(index.header("cache-control"), Some("no-cache"));
    let tag = index.header("etag").unwrap();
    let same = world.place.get("/index.html").header("if-none-match", tag).expect(304).await;
    assert!(same.body.is_empty() && same.header("etag") == Some(tag));
    world.place.get("/index.html").header("if-none-match", "\"other\"").expect(200).await;
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d58_unknown_paths_lead_a_browser_to_the_page_under_any_prefix() {
    for setup in [Setup::MemoryMounted, Setup::SqliteServed] {
        let world = World::new(setup).await;
        for (path, location) in [
            ("/instances", "./index.html"),
            ("/instances/a%2Fb", "../index.html"),
            ("/a/b/c/", "../../../index.html"),
        ] {
            let asked = world.place.get(path).header("accept", "text/html,*/*;q=0.8");
            let answer = asked.expect(307).await;
            assert_eq!(answer.header("location"), Some(location), "{path}");
            // A program that asks for something else learns that there is nothing.
            world.place.get(path).header("accept", "application/json").refused(404, "PER-0807").await;
        }
        // A script of an older build is not the page.
        let old = world.place.get("/assets/index-gone.js").header("accept", "text/html");
        old.refused(404, "PER-0807").await;
        for path in ["/index.html/../../Cargo.toml", "/assets/..%2f..%2fCargo.toml", "/assets", "/assets/"] {
            world.place.get(path).refused(404, "PER-0807").await;
        }
        for method in ["POST", "PUT", "DELETE", "PATCH"] {
            let refused = world.place.ask(method, "/index.html").refused(405, "PER-0808").await;
            assert_eq!(refused.header("allow"), Some("GET, HEAD"));
        }
        world.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn d58_every_way_to_mount_the_router_leads_to_a_page_that_finds_its_files() {
    let world = World::new(Setup::SqliteServed).await;
    assert_eq!(page(&world.place).await.body, world.place.get("/").expect(200).await.body);
    let options = || Options::default().access(Access::everybody(Role::Operator));
    let router = || perennial_server::router(world.client.clone(), options());
    for (app, asked, location) in [
        (axum::Router::new().nest("/ops", router()), "/ops", Some("ops/index.html")),
        (axum::Router::new().nest("/ops/", router()), "/ops/", None),
        (axum::Router::new().nest_service("/ops", router()), "/ops/", None),
        (axum::Router::new().nest_service("/deep/ops", router()), "/deep/ops", Some("ops/index.html")),
        (router(), "/", None),
    ] {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let place = Place { address: listener.local_addr().unwrap(), prefix: "" };
        tokio::spawn(async move { axum::serve(listener, app).await });
        let answer = place.get(asked).send_unchecked().await;
        let expected = if location.is_some() { 307 } else { 200 };
        assert_eq!((answer.status, answer.header("location")), (expected, location), "{asked}");
        let directory = asked.rsplit_once('/').unwrap().0;
        let found = location.map(|location| format!("{directory}/{location}"));
        let index = place.get(found.as_deref().unwrap_or(asked)).send_unchecked().await;
        assert_eq!(index.status, 200);
        let base = found.as_deref().unwrap_or(asked).rsplit_once('/').unwrap().0.to_owned();
        for asset in assets(&index.text()) {
            assert_eq!(
                place.get(&format!("{base}{asset}")).send_unchecked().await.status,
                200,
                "{base}{asset}"
            );
        }
    }
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h6_files_need_no_login_but_a_router_without_a_choice_shows_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let tokens = directory.path().join("tokens");
    let reader = add_token(&tokens, "bob", Role::Reader);
    let options = Options::default()
        .access(Access::tokens(TokenFile::open(&tokens).unwrap()))
        .link("editor", "vscode://file/{file}:{line}");
    let world = World::with(Setup::SqliteServed, options).await;
    page(&world.place).await;
    world.place.get("instances").refused(401, "PER-0801").await;
    // D29: templates of links are for those who may look.
    assert_eq!(world.place.get("session").expect(200).await.json()["links"], json!({}));
    let session = world.place.get("session").token(&reader).expect(200).await.json();
    assert_eq!(session["links"], json!({"editor": "vscode://file/{file}:{line}"}));
    world.end().await;

    let world = World::with(Setup::MemoryMounted, Options::default()).await;
    world.place.get("/index.html").refused(401, "PER-0801").await;
    world.end().await;
}
