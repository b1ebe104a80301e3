//! How long a request may be, and how much of an answer is read.

use axum::http::{Request, Response};
use http_body_util::Limited;
use kube::client::{Body, DynBody};
use tower::BoxError;

/// How long a path may be. Names of any text are in it, also such as somebody else wrote, and the library ends the process
/// where path and server together make no address.
const PATH: usize = 8 * 1024;

/// Bytes that a server which somebody else runs may answer. A page of what we list there has a few hundred KB.
const OF_A_STRANGER: usize = 8 << 20;

/// Refuses a request whose path is too long.
pub(crate) fn path(request: Request<Body>) -> Result<Request<Body>, BoxError> {
    if request.uri().path().len() > PATH {
        return Err("a name in the request's path is longer than a name can be".into());
    }
    Ok(request)
}

/// Reads no more of an answer than a stranger may say. A watch is one answer.
pub(crate) fn answer(answer: Response<Box<DynBody>>) -> Response<Limited<Box<DynBody>>> {
    answer.map(|body| Limited::new(body, OF_A_STRANGER))
}

#[cfg(test)]
mod tests {
    use axum::body::Bytes;
    use http_body_util::{BodyExt as _, Full, LengthLimitError};
    use k8s_openapi::api::core::v1::Node;
    use kube::Api;
    use tower::util::MapResponseLayer;
    use tower::{Layer as _, Service as _, service_fn};

    use super::*;
    use crate::{api_error, connection};

    /// How much is read of an answer of that many bytes.
    async fn read(bytes: usize) -> Result<usize, BoxError> {
        let answer = service_fn(move |_: Request<Body>| async move {
            let body = Full::new(Bytes::from(vec![b'x'; bytes])).map_err(BoxError::from);
            Ok::<_, BoxError>(Response::new(Box::new(body) as Box<DynBody>))
        });
        let mut client = MapResponseLayer::new(super::answer).layer(answer);
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
        let client = connection::builder(config, "sample").unwrap().build();
        let nodes = Api::<Node>::all(client);
        let told = async |name: String| api_error::explain(&nodes.get(&name).await.unwrap_err());
        assert!(told("n".repeat(65_000)).await.contains("longer than a name"));
        assert!(!told("n".repeat(253)).await.contains("longer than a name"), "nobody is there");
    }
}
