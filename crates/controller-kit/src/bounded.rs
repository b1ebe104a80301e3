//! How long a request may be, and how much of an answer is read.

use std::task::{Context, Poll};

use axum::http::{Request, Response};
use futures_util::future::{BoxFuture, FutureExt as _, TryFutureExt as _};
use http_body_util::Limited;
use kube::client::{Body, DynBody};
use tower::{BoxError, Layer, Service};

/// How long a path may be. Names of any text are in it, also such as somebody else wrote, and the library ends the process
/// where path and server together make no address.
const PATH: usize = 8 * 1024;

/// What a server that somebody else runs may answer. A page of what we list there has a few hundred KB.
pub(crate) const OF_A_STRANGER: usize = 8 << 20;

/// What a client sends and reads at most.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Bytes of an answer. A watch is one answer.
    pub(crate) answer: usize,
}

impl<S> Layer<S> for Bounds {
    type Service = Bounded<S>;

    fn layer(&self, inner: S) -> Bounded<S> {
        Bounded { bounds: *self, inner }
    }
}

/// A client within its bounds.
#[derive(Debug)]
pub(crate) struct Bounded<S> {
    bounds: Bounds,
    inner: S,
}

impl<S> Service<Request<Body>> for Bounded<S>
where
    S: Service<Request<Body>, Response = Response<Box<DynBody>>, Error = BoxError>,
    S::Future: Send + 'static,
{
    type Response = Response<Limited<Box<DynBody>>>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        if request.uri().path().len() > PATH {
            let why = "a name in the request's path is longer than a name can be";
            return std::future::ready(Err(why.into())).boxed();
        }
        let most = self.bounds.answer;
        self.inner
            .call(request)
            .map_ok(move |answer| answer.map(|body| Limited::new(body, most)))
            .boxed()
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Bytes;
    use http_body_util::{BodyExt as _, Full, LengthLimitError};
    use k8s_openapi::api::core::v1::Node;
    use kube::Api;
    use kube::client::ClientBuilder;
    use tower::service_fn;

    use super::*;
    use crate::api_error;

    /// How much is read of an answer of that many bytes.
    async fn read(bytes: usize) -> Result<usize, BoxError> {
        let answer = service_fn(move |_: Request<Body>| async move {
            let body = Full::new(Bytes::from(vec![b'x'; bytes])).map_err(BoxError::from);
            Ok::<_, BoxError>(Response::new(Box::new(body) as Box<DynBody>))
        });
        let mut client = Bounds { answer: OF_A_STRANGER }.layer(answer);
        let answer = client.call(Request::new(Body::empty())).await?;
        Ok(answer.into_body().collect().await?.to_bytes().len())
    }

    #[tokio::test]
    async fn of_an_answer_without_end_a_beginning_is_read() {
        assert_eq!(read(OF_A_STRANGER).await.unwrap(), OF_A_STRANGER);
        let error = read(OF_A_STRANGER + 1).await.unwrap_err();
        assert!(error.is::<LengthLimitError>());
        let why = api_error::explain(&kube::Error::Service(error));
        assert_eq!(why, "the API server's answer is longer than any that was asked for");
    }

    #[tokio::test]
    async fn a_name_that_makes_no_address_is_an_error_and_ends_nothing() {
        let server = format!("http://127.0.0.1:1/{}", "p".repeat(1000));
        let config = kube::Config::new(server.parse().unwrap());
        let builder = ClientBuilder::try_from(config).unwrap();
        let client = builder.with_layer(&Bounds { answer: OF_A_STRANGER }).build();
        let nodes = Api::<Node>::all(client);
        let told = async |name: String| api_error::explain(&nodes.get(&name).await.unwrap_err());
        assert!(told("n".repeat(65_000)).await.contains("longer than a name"));
        assert!(!told("n".repeat(253)).await.contains("longer than a name"), "nobody is there");
    }
}
