//! Connections to an API server.

use axum::http::{Request, Response};
use http_body_util::BodyExt as _;
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::Config;
use kube::client::{Body, ClientBuilder, ConfigExt as _, DynBody};
use tower::util::BoxService;
use tower::{BoxError, ServiceBuilder, ServiceExt};

/// What requests go to.
pub type Connections = BoxService<Request<Body>, Response<Box<DynBody>>, BoxError>;

/// The library's own client without its retries, and with connections on which everything goes out at once. On its own ones
/// the kernel keeps the first request back until the server has acknowledged the end of the handshake, which has no hurry:
/// 40 ms, and many requests that begin together are as many new connections.
///
/// # Errors
/// When the configuration makes no client.
pub fn builder(config: Config) -> kube::Result<ClientBuilder<Connections>> {
    if let Some(proxy) = config.proxy_url {
        return Err(kube::Error::ProxyProtocolUnsupported { proxy_url: Box::new(proxy) });
    }
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    let mut connector = TimeoutConnector::new(config.rustls_https_connector_with_connector(tcp)?);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    let connections: Client<_, Body> = Client::builder(TokioExecutor::new()).build(connector);
    let service = ServiceBuilder::new()
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
