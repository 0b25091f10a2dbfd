//! The router on a listener of its own, with limits on connections, TLS, and a stop that answers what is under way.

mod connection;
mod tls;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use perennial::Client;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use connection::{Connection, Connections, Watched};
pub use tls::TlsFiles;

use crate::gate;
use crate::options::Options;
use crate::server::Server;
use crate::stop::Stop;

/// The longest head of a request.
const MAX_HEAD: usize = 16 << 10;
/// How many bytes of answers the system keeps for a caller that takes them slowly; Linux takes twice as many.
const SENT_BYTES: usize = 64 << 10;
/// How long requests may go on after a stop.
const GRACE: Duration = Duration::from_secs(10);
/// How long to wait after the listener failed, for example because too many files are open.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves the API on a listener until [`Options::stop`] is stopped: then waiting requests are answered, and running ones
/// get 10 s.
///
/// The host of requests is checked unless [`Options::check_host`] says otherwise. HTTP/1.1 is spoken, over TLS if a
/// certificate is given.
pub async fn serve(
    listener: TcpListener,
    client: Client,
    options: Options,
    tls: Option<TlsFiles>,
) -> io::Result<()> {
    let acceptor = tls.map(|files| files.acceptor()).transpose()?;
    let checks_host = options.checks_host.unwrap_or(true);
    let options = options.check_host(checks_host).secure_cookies(acceptor.is_some());
    let (stop, times) = (options.stop.clone(), options.times);
    let server = Server::new(client, options);
    let connections = Arc::new(Connections::default());
    let mut tasks = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.stopped() => break,
            accepted = listener.accept() => accepted,
            Some(_) = tasks.join_next() => continue,
        };
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(target: crate::LOG, %error, "no connection can be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        // Small answers must not wait for more.
        let _ = stream.set_nodelay(true);
        let _ = rustix::net::sockopt::set_socket_send_buffer_size(&stream, SENT_BYTES);
        let (server, stop, acceptor) = (Arc::clone(&server), stop.clone(), acceptor.clone());
        // All connections are busy: the caller may come back.
        let Some(connection) = connections.add(times) else { continue };
        tasks.spawn(async move {
            match acceptor {
                None => converse(stream, address, server, connection, &stop).await,
                Some(acceptor) => {
                    let Ok(Ok(stream)) = tokio::time::timeout(times.head, acceptor.accept(stream)).await
                    else {
                        return;
                    };
                    converse(stream, address, server, connection, &stop).await;
                }
            }
        });
    }
    drop(listener);
    let ended = async { while tasks.join_next().await.is_some() {} };
    if tokio::time::timeout(GRACE, ended).await.is_err() {
        tracing::warn!(target: crate::LOG, "requests were cut off: they did not end in time");
        tasks.shutdown().await;
    }
    Ok(())
}

/// Answers the requests of one connection.
async fn converse(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    address: SocketAddr,
    server: Arc<Server>,
    connection: Connection,
    stop: &Stop,
) {
    let state = connection.state();
    let service = service_fn(|request: Request<Incoming>| {
        let (server, state) = (Arc::clone(&server), Arc::clone(&state));
        async move {
            let busy = state.begin_request();
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(ConnectInfo(address));
            let mut response = gate::handle(server, request).await;
            // The request lasts until the last byte of its answer is taken.
            let body = std::mem::take(response.body_mut());
            *response.body_mut() = busy.until_end_of(body);
            Ok::<_, std::convert::Infallible>(response)
        }
    });
    let watched = TokioIo::new(Watched::new(stream, Arc::clone(&state)));
    let mut http = hyper::server::conn::http1::Builder::new();
    http.max_buf_size(MAX_HEAD);
    let mut conversation = std::pin::pin!(http.serve_connection(watched, service));
    tokio::select! {
        // An error ends the connection: its other end is gone, or does not speak HTTP.
        _ = conversation.as_mut() => return,
        () = connection.expired() => return,
        () = stop.stopped() => conversation.as_mut().graceful_shutdown(),
    }
    tokio::select! {
        _ = conversation => {}
        () = connection.expired() => {}
    }
}
