//! `serve` and `token`, the guide's page about HTTP, and the client in Python.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use perennial::{Client, Payload};

use crate::support::{PATIENCE, Shop, run};

/// A server as a process of its own, killed when it is dropped.
pub(crate) struct Served {
    child: Child,
    pub(crate) url: String,
}

impl Served {
    pub(crate) fn start(store: &str, arguments: &[&str]) -> Served {
        let mut child = Command::new(env!("CARGO_BIN_EXE_perennial"))
            .args(["--store", store, "serve"])
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        if line.is_empty() {
            let mut errors = String::new();
            child.stderr.as_mut().unwrap().read_to_string(&mut errors).unwrap();
            panic!("{errors}");
        }
        Served { child, url: line.trim().to_owned() }
    }

    /// Asks it to stop and returns its exit code.
    pub(crate) fn stop(mut self) -> Option<i32> {
        signal(&self.child, "TERM");
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("it does not stop");
    }

    fn port(&self) -> String {
        self.url.trim_end_matches('/').rsplit(':').next().unwrap().to_owned()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

/// Runs `curl` and returns what it prints.
pub(crate) fn curl(arguments: &[&str]) -> String {
    let output = Command::new("curl").arg("-s").args(arguments).output().expect("curl is installed");
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn d29_serve_shows_the_dashboard_and_tells_it_the_templates_of_links() {
    let shop = Shop::stocked().await;
    let link = "editor=vscode://file/{file}:{line}";
    let served = Served::start(&shop.url(), &["--listen", "127.0.0.1:0", "--link", link]);
    let page = curl(&[&served.url]);
    assert!(page.contains("<title>Perennial</title>"), "{page}");
    let session = curl(&[&format!("{}api/v1/session", served.url)]);
    assert!(session.contains(r#""links":{"editor":"vscode://file/{file}:{line}"}"#), "{session}");
    assert_eq!(served.stop(), Some(0));
    for wrong in ["editor", "nothing=https://a", "logs=relative", "trace=JavaScript:alert(1)"] {
        let refused = run(&["--store", &shop.url(), "serve", "--link", wrong], &[]);
        assert_eq!(refused.code, 2, "{wrong}: {refused:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn h2_serve_prints_its_url_and_serves_with_and_without_a_runtime() {
    let mut shop = Shop::stocked().await;
    let served = Served::start(&shop.url(), &["--listen", "127.0.0.1:0"]);
    assert!(served.url.starts_with("http://127.0.0.1:"), "{}", served.url);
    let list = curl(&[&format!("{}api/v1/instances?order=oldest", served.url)]);
    assert!(list.contains("\"order-1\"") && list.contains("\"counter-1\""), "{list}");
    assert_eq!(curl(&[&format!("{}readyz", served.url)]), r#"{"status":"ok"}"#);
    // Without a runtime a request waits in the store, and what needs code says that nobody answers.
    let json = ["-H", "Content-Type: application/json"];
    let counter = format!("{}api/v1/instances/counter-1", served.url);
    let query = curl(&[json[0], json[1], "-d", "null", &format!("{counter}/queries/count?wait_ms=100")]);
    assert!(query.contains("PER-0624"), "{query}");
    let raised = curl(&[json[0], json[1], "-d", "\"\"", &format!("{counter}/events/stop")]);
    assert!(raised.contains("counter-1"), "{raised}");
    shop.reopen().await;
    let result = curl(&[&format!("{counter}/result?wait_ms=30000")]);
    assert!(result.contains("\"output\":7"), "{result}");
    tokio::task::spawn_blocking(move || assert_eq!(served.stop(), Some(0))).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn h36_a_second_signal_ends_serve_at_once() {
    let shop = Shop::stocked().await;
    let mut served = Served::start(&shop.url(), &["--listen", "127.0.0.1:0"]);
    let address = format!("127.0.0.1:{}", served.port());
    // A request that goes on: its body never comes.
    let mut request = TcpStream::connect(&address).unwrap();
    let head = format!(
        "POST /api/v1/instances HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n\
         expect: 100-continue\r\ncontent-length: 10\r\n\r\n"
    );
    request.write_all(head.as_bytes()).unwrap();
    // The server reads the body.
    let mut interim = [0; 12];
    request.read_exact(&mut interim).unwrap();
    assert_eq!(&interim, b"HTTP/1.1 100");
    signal(&served.child, "TERM");
    while TcpStream::connect(&address).is_ok() {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(served.child.try_wait().unwrap(), None, "the request gets its time");
    signal(&served.child, "INT");
    assert_eq!(served.child.wait().unwrap().code(), Some(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn h6_serve_does_not_start_for_others_without_tokens() {
    let shop = Shop::stocked().await;
    let store = shop.url();
    let refused = |arguments: &[&str]| {
        let mut all = vec!["--store", &store, "serve"];
        all.extend(arguments);
        let result = run(&all, &[]);
        assert_eq!((result.code, result.stdout.as_str()), (2, ""), "{result:?}");
        result.stderr
    };
    assert!(refused(&["--listen", "0.0.0.0:0"]).contains("perennial token"));
    assert!(refused(&["--allow-host", "ops.example"]).contains("perennial token"));
    let file = shop.path().with_file_name("tokens");
    let tokens = file.to_str().unwrap();
    assert!(refused(&["--tokens", tokens]).contains("tokens"));
    std::fs::write(&file, "").unwrap();
    make_private(&file);
    assert!(refused(&["--tokens", tokens]).contains("has no tokens"));
    assert!(refused(&["--tls-cert", "cert.pem"]).contains("--tls-key"));

    let made = run(&["token", "--file", tokens, "--name", "ada", "--role", "operator"], &[]);
    assert_eq!(made.code, 0, "{made:?}");
    let token = made.stdout.trim().to_owned();
    assert!(!std::fs::read_to_string(&file).unwrap().contains(&token), "only its hash is kept");
    assert_eq!(run(&["token", "--file", tokens, "--name", "a b"], &[]).code, 2);
    let mut served = Served::start(&store, &["--listen", "0.0.0.0:0", "--tokens", tokens]);
    let url = format!("http://127.0.0.1:{}/api/v1/instances", served.port());
    assert!(curl(&[&url]).contains("PER-0801"));
    assert!(curl(&["-H", &format!("Authorization: Bearer {token}"), &url]).contains("order-1"));
    served.child.kill().unwrap();
    let mut warning = String::new();
    served.child.stderr.take().unwrap().read_to_string(&mut warning).unwrap();
    assert!(warning.contains("unencrypted"), "{warning}");
}

#[cfg(unix)]
fn make_private(path: &Path) {
    use std::os::unix::fs::PermissionsExt;

    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn h2_serve_makes_no_store_and_refuses_what_is_none() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("missing.db");
    let url = format!("sqlite:{}", path.display());
    let result = run(&["--store", &url, "serve", "--listen", "127.0.0.1:0"], &[]);
    assert_eq!(result.code, 5, "{result:?}");
    assert!(!path.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn h6_serve_speaks_tls_with_a_certificate() {
    let shop = Shop::stocked().await;
    let (certificate, key) = (shop.path().with_file_name("cert.pem"), shop.path().with_file_name("key.pem"));
    let (cert, key) = (certificate.to_str().unwrap(), key.to_str().unwrap());
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"])
        .args(["-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", cert])
        .output()
        .expect("openssl is installed");
    assert!(made.status.success(), "{made:?}");
    let served =
        Served::start(&shop.url(), &["--listen", "127.0.0.1:0", "--tls-cert", cert, "--tls-key", key]);
    assert!(served.url.starts_with("https://"), "{}", served.url);
    let url = format!("https://localhost:{}/api/v1/version", served.port());
    assert!(curl(&["--cacert", cert, &url]).contains("\"api\":\"1\""));
    assert_eq!(curl(&[&url]), "", "the certificate is not known to others");
}

#[cfg(feature = "prometheus")]
#[tokio::test(flavor = "multi_thread")]
async fn o1_serve_gives_metrics_at_its_own_path_and_on_another_port() {
    let shop = Shop::stocked().await;
    let arguments = ["--listen", "127.0.0.1:0", "--metrics", "--metrics-listen", "127.0.0.1:0", "--json"];
    let served = Served::start(&shop.url(), &arguments);
    let urls: serde_json::Value = serde_json::from_str(&served.url).unwrap();
    let (api, metrics) = (urls["url"].as_str().unwrap(), urls["metrics"].as_str().unwrap());
    assert!(curl(&[&format!("{api}api/v1/instances")]).contains("order-1"));
    for url in [metrics, &format!("{api}metrics")] {
        let text = curl(&[url]);
        assert!(text.contains("perennial_store_instances{status=\"running\"}"), "{text}");
        assert!(
            text.contains("http_server_request_duration_seconds_count{method=\"GET\",route=\"instances\"")
        );
        assert!(!text.contains("order-1"), "{text}");
    }
    assert!(curl(&[&metrics.replace("/metrics", "/api/v1/instances")]).contains("PER-0807"));
    let refused = run(&["--store", &shop.url(), "serve", "--metrics-listen", "0.0.0.0:0"], &[]);
    assert!(refused.code == 2 && refused.stderr.contains("perennial token"), "{refused:?}");
}

/// The blocks of the guide's page that are run.
fn blocks() -> Vec<String> {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/src/http.md");
    let page = std::fs::read_to_string(page).unwrap();
    let blocks = page.split("```sh,run\n").skip(1).map(|block| block.split("```").next().unwrap().to_owned());
    blocks.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_curl_lines_of_the_guide_print_what_it_says() {
    let shop = Shop::open().await;
    let served = Served::start(&shop.url(), &["--listen", "127.0.0.1:0"]);
    let api = format!("{}api/v1", served.url);
    let mut count = 0;
    for block in blocks() {
        for command in block.split("\ncurl").enumerate().map(|(place, part)| match place {
            0 => part.to_owned(),
            _ => format!("curl{part}"),
        }) {
            let (lines, expected) = command.split_once("\n# prints ").unwrap_or_else(|| panic!("{command}"));
            let (lines, expected) = (lines.to_owned(), expected.trim().to_owned());
            let api = api.clone();
            let output = tokio::task::spawn_blocking(move || {
                let shell = Command::new("bash").args(["-ec", &lines]).env("API", api).output().unwrap();
                String::from_utf8(shell.stdout).unwrap()
            });
            let output = output.await.unwrap();
            assert!(output.contains(&expected), "{command}\nprinted {output}");
            count += 1;
        }
    }
    assert!(count >= 20, "only {count} lines were run");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_python_client_follows_a_stream_through_restarts_of_the_server() {
    let shop = Shop::open().await;
    let mut served = Served::start(&shop.url(), &["--listen", "127.0.0.1:0"]);
    let (url, port) = (served.url.clone(), served.port());
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../perennial-server/examples/client.py");
    let mut python = Command::new("python3")
        .args([script, &url, "adder", "sum-1", "null", "begin", "\"\""])
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 is installed");
    let mut lines = BufReader::new(python.stdout.take().unwrap()).lines().map(Result::unwrap);
    let (send, receive) = std::sync::mpsc::channel();
    std::thread::spawn(move || lines.by_ref().try_for_each(|line| send.send(line)));
    let client = shop.client();
    let mut seen = Vec::new();
    let next = |seen: &mut Vec<String>| {
        let line = receive.recv_timeout(PATIENCE).expect("the client goes on");
        seen.push(line.clone());
        line
    };
    while next(&mut seen) != "turn 1 2" {}
    for number in [40_u64, 2] {
        // Killed without a chance to end its streams, and started again at the same address.
        served.child.kill().unwrap();
        served.child.wait().unwrap();
        client.raise_event("sum-1", "n", Payload::encode(&number).unwrap()).await.unwrap();
        served = Served::start(&shop.url(), &["--listen", &format!("127.0.0.1:{port}")]);
    }
    while !next(&mut seen).starts_with("listed") {}
    assert!(python.wait().unwrap().success());
    let turns = turns(&client, "sum-1").await;
    let told: Vec<&str> = seen.iter().map(String::as_str).filter(|line| line.starts_with("turn")).collect();
    assert_eq!(told, turns, "{seen:?}");
    assert!(seen.contains(&"result completed 42".to_owned()), "{seen:?}");
    assert!(seen.contains(&"listed 1".to_owned()), "{seen:?}");
}

async fn turns(client: &Client, id: &str) -> Vec<String> {
    let history = client.history(id).await.unwrap();
    history.turns.iter().map(|turn| format!("turn 1 {}", turn.number)).collect()
}
