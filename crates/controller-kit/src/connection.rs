//! Connections to an API server.

use std::time::Duration;

use axum::http::header::USER_AGENT;
use axum::http::{HeaderValue, Request, Response};
use http_body_util::BodyExt as _;
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::Config;
use kube::client::{Body, ClientBuilder, ConfigExt as _, DynBody};
use tower::util::BoxService;
use tower::{BoxError, ServiceBuilder, ServiceExt};

use crate::bounded;

/// A connection on which nothing came for so long is asked whether the other side is still there, and given up when that is not
/// answered either: after 35 seconds.
const SILENCE: Duration = Duration::from_secs(20);

/// What requests go to.
pub type Connections = BoxService<Request<Body>, Response<Box<DynBody>>, BoxError>;

/// The library's own client without its retries, and with connections on which everything goes out at once. On its own ones
/// the kernel keeps the first request back until the server has acknowledged the end of the handshake, which has no hurry:
/// 40 ms, and many requests that begin together are as many new connections.
///
/// Each request names the controller, for the audit log. The API server also takes that name, up to the slash, for the field
/// manager of a write that gives none.
///
/// # Errors
/// When the configuration makes no client.
pub fn builder(mut config: Config, controller: &str) -> kube::Result<ClientBuilder<Connections>> {
    let agent = format!("ferrite-{controller}/{}", env!("CARGO_PKG_VERSION"));
    let agent =
        HeaderValue::try_from(agent).map_err(|error| kube::Error::HttpError(error.into()))?;
    config.headers.push((USER_AGENT, agent));
    if let Some(proxy) = config.proxy_url {
        return Err(kube::Error::ProxyProtocolUnsupported { proxy_url: Box::new(proxy) });
    }
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    // Of a server that lost its power nobody says that the connection has ended, and who watches sends nothing that could
    // fail: without these it would hear nothing for five minutes, and believe that nothing happens.
    tcp.set_keepalive(Some(SILENCE));
    tcp.set_keepalive_interval(Some(SILENCE / 4));
    tcp.set_keepalive_retries(Some(3));
    #[cfg(target_os = "linux")]
    tcp.set_tcp_user_timeout(Some(SILENCE * 7 / 4));
    let mut connector = TimeoutConnector::new(config.rustls_https_connector_with_connector(tcp)?);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    let connections: Client<_, Body> = Client::builder(TokioExecutor::new()).build(connector);
    let service = ServiceBuilder::new()
        .filter(bounded::path)
        .map_request(as_of_now)
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(connections);
    let service = ServiceExt::<Request<Body>>::map_response(service, |answer| {
        answer.map(|body| Box::new(body.map_err(BoxError::from)) as Box<DynBody>)
    });
    Ok(ClientBuilder::new(BoxService::new(service), config.default_namespace))
}

/// The library begins a watch with all objects from whatever version the API server has at hand. One of several may be far
/// behind, and what it does not show yet would be taken for gone. Without a version it gives the newest.
fn as_of_now<B>(mut request: Request<B>) -> Request<B> {
    let asked = request.uri().to_string();
    if asked.contains("sendInitialEvents=true")
        && let Ok(newest) = asked.replace("&resourceVersion=0", "").parse()
    {
        *request.uri_mut() = newest;
    }
    request
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::time::Instant;

    use kube::api::WatchParams;

    use super::*;

    /// When the kernel will ask for a sign of life on a connection to this port, in hundredths of a second.
    fn next_sign(port: u16) -> Option<u64> {
        let all = std::fs::read_to_string("/proc/net/tcp").unwrap();
        let mut rows = all.lines().map(|row| row.split_whitespace().collect::<Vec<_>>());
        let row = rows.find(|row| row[2].ends_with(&format!(":{port:04X}")))?;
        u64::from_str_radix(row[5].strip_prefix("02:")?, 16).ok()
    }

    #[tokio::test]
    async fn who_only_listens_asks_for_signs_of_life() {
        let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = server.local_addr().unwrap();
        let config = Config::new(format!("http://{address}").parse().unwrap());
        let client = builder(config, "sample").unwrap().build();
        let request = Request::get("/a-watch").body(Vec::new()).unwrap();
        let asking = tokio::spawn(async move { client.request_text(request).await });
        let (_connection, _) = server.accept().await.unwrap();
        let began = Instant::now();
        while next_sign(address.port()).is_none_or(|then| then > 100 * SILENCE.as_secs()) {
            let found = next_sign(address.port());
            assert!(began.elapsed() < Duration::from_secs(5), "{found:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        asking.abort();
    }

    /// What a server reads of a request.
    async fn head_of(path: &str) -> String {
        let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = server.local_addr().unwrap();
        let config = Config::new(format!("http://{address}").parse().unwrap());
        let client = builder(config, "sample").unwrap().build();
        let head = tokio::task::spawn_blocking(move || {
            let mut head = [0; 4096];
            let length = server.accept().unwrap().0.read(&mut head).unwrap();
            String::from_utf8_lossy(&head[..length]).into_owned()
        });
        let request = Request::get(path).body(Vec::new()).unwrap();
        let (head, answer) = tokio::join!(head, client.request_text(request));
        assert!(answer.is_err(), "the connection ends without an answer");
        head.unwrap()
    }

    #[tokio::test]
    async fn a_request_names_the_controller_and_its_version() {
        let (head, version) = (head_of("/").await, env!("CARGO_PKG_VERSION"));
        let agent = format!("\r\nuser-agent: ferrite-sample/{version}\r\n");
        assert!(head.contains(&agent), "{head}");
    }

    #[tokio::test]
    async fn a_watch_begins_with_all_objects_as_they_are_now() {
        let of = |params: &WatchParams| {
            let request = kube::core::Request::new("/api/v1/pods").watch(params, "0").unwrap();
            request.uri().to_string()
        };
        let first = head_of(&of(&WatchParams::default().initial_events())).await;
        assert!(
            first.contains("sendInitialEvents=true&resourceVersionMatch=NotOlderThan HTTP"),
            "{first}"
        );
        let resumed = head_of(&of(&WatchParams::default())).await;
        assert!(resumed.contains("resourceVersion=0 HTTP"), "{resumed}");
    }
}
