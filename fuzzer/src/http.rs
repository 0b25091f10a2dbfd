//! Bytes as an HTTP request: a line with method and target, headers, an empty line, and the body. It goes through the router
//! without a socket.

use std::cell::RefCell;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, Request, StatusCode};
use perennial::prelude::*;
use perennial_server::{Access, Options, Role, router};
use tower::ServiceExt;

/// Requests may wait for results; nobody waits that long here.
const PATIENCE: Duration = Duration::from_millis(20);

struct World {
    tokio: tokio::runtime::Runtime,
    router: Router,
    _runtime: perennial::Runtime,
}

thread_local!(static WORLD: RefCell<Option<World>> = const { RefCell::new(None) });

async fn waits(ctx: OrchestrationContext, _: Payload) -> Result<Payload, Payload> {
    Ok(ctx.schedule_wait("go").typed::<Payload>().await)
}

fn world() -> World {
    let tokio =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime of tokio");
    let (router, runtime) = tokio.block_on(async {
        let runtime = Runtime::open("memory:")
            .orchestration("waits", "1.0.0", waits)
            .start()
            .await
            .expect("a store in memory");
        for id in ["a", "b", "c"] {
            runtime.client().start("waits", id, Payload::null()).await.expect("a start");
        }
        let options = Options::default().access(Access::everybody(Role::Operator));
        (router(runtime.client(), options), runtime)
    });
    World { tokio, router, _runtime: runtime }
}

/// Sends the request. Whatever it is, the answer is never that the server is at fault.
pub(crate) fn run(input: &[u8]) -> bool {
    let Some(request) = parse(input) else { return false };
    WORLD.with_borrow_mut(|world| {
        let World { tokio, router, .. } = world.get_or_insert_with(self::world);
        let answered =
            tokio.block_on(async { tokio::time::timeout(PATIENCE, router.clone().oneshot(request)).await });
        let Ok(Ok(answer)) = answered else { return true };
        assert_ne!(answer.status(), StatusCode::INTERNAL_SERVER_ERROR, "{}", String::from_utf8_lossy(input));
        answer.status().is_success()
    })
}

fn parse(input: &[u8]) -> Option<Request<Body>> {
    let end = input.windows(2).position(|window| window == b"\n\n");
    let (head, body) = end.map_or((input, &[][..]), |end| (&input[..end], &input[end + 2..]));
    let mut lines = head.split(|byte| *byte == b'\n');
    let mut words = lines.next()?.splitn(2, |byte| *byte == b' ');
    let (method, target) = (words.next()?, words.next()?);
    let mut request = Request::builder().method(method).uri(target);
    let headers = request.headers_mut()?;
    headers.insert("host", HeaderValue::from_static("localhost"));
    for line in lines {
        let mut parts = line.splitn(2, |byte| *byte == b':');
        let (name, value) = (parts.next()?, parts.next()?);
        let name = HeaderName::from_bytes(name).ok()?;
        headers.append(name, HeaderValue::from_bytes(value.trim_ascii()).ok()?);
    }
    request.body(Body::from(body.to_vec())).ok()
}
