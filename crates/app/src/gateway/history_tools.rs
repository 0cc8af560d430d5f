//! `/mcp`: the tools of `epitome mcp` for clients of the gateway, over the protocol's HTTP.
//!
//! Each request stands alone and is answered as one JSON value: nothing is kept between two, so there is nothing that a client
//! could take over from another. Who asks is decided as for every other route, and sees its own principal's sessions only.

use std::{convert::Infallible, sync::Arc};

use epitome::queries::SessionAccess;
use http::{Request, Response, request::Parts};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use rmcp::transport::streamable_http_server::{
    StreamableHttpServerConfig, StreamableHttpService, session::never::NeverSessionManager,
};

use super::{Gateway, admission::ProviderKeyOwner, errors::GatewayError, response_body::ResponseBody};
use crate::mcp::HistoryServer;

/// Largest request: arguments are a few kilobytes.
const MAX_REQUEST_BYTES: usize = 256 * 1024;

/// Answers a request, if the gateway has a database.
pub(super) async fn answer(
    gateway: &Gateway,
    head: Parts,
    body: Incoming,
) -> Result<Response<ResponseBody>, GatewayError> {
    let admitted = gateway.admission.admit(&head.headers)?;
    // No provider is asked, so only a list that was written down counts.
    if let Some(routes) = admitted.routes(ProviderKeyOwner::Clients)
        && !routes.permits(&head.method, head.uri.path())
    {
        return Err(GatewayError::route_not_allowed(&head.method, head.uri.path(), &routes));
    }
    let Some(shelf) = &gateway.shelf else { return Err(GatewayError::unknown_path()) };
    let _place = Arc::clone(&gateway.places).try_acquire_owned().map_err(|_| GatewayError::busy())?;
    let store = Arc::clone(shelf.current().store());
    let access = SessionAccess { principal: Some(admitted.principal.to_string()), project: None };
    let server = HistoryServer::new(Arc::new(move || Ok(Arc::clone(&store))), access);
    // Hosts and pages were checked when the client was admitted.
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        .with_sse_keep_alive(None)
        .with_max_request_body_bytes(MAX_REQUEST_BYTES)
        .disable_allowed_hosts();
    let service = StreamableHttpService::new(
        move || Ok(server.clone()),
        Arc::new(NeverSessionManager::default()),
        config,
    );
    let (head, body) = service.handle(Request::from_parts(head, body)).await.into_parts();
    let whole = match body.collect().await {
        Ok(whole) => whole.to_bytes(),
        Err(never) => {
            let never: Infallible = never;
            match never {}
        }
    };
    Ok(Response::from_parts(head, ResponseBody::Own(Full::new(whole))))
}
