//! Admission: decides which clients may use the gateway, and whose sessions they see.
//!
//! If tokens are configured, every request has to show one or is refused; there is no anonymous access.
//! Without tokens the gateway listens to this machine only. What it has to fear then is a page in a browser,
//! which can send requests to any address it likes, so a request that names a page (`Origin`), or a host that
//! is not this one, is refused.

use std::{
    borrow::Cow,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use http::{
    HeaderMap, HeaderName,
    header::{self, HeaderValue},
    uri::Authority,
};

use super::headers::KEY_HEADERS;
use crate::config::{AccessRights, AccessToken, RequestRules, allowed_routes::RouteList};

/// Header in which clients show a token. It is never forwarded.
pub(super) const TOKEN_HEADER: HeaderName = HeaderName::from_static("x-epitome-token");

/// Decides which clients are let in.
#[derive(Debug)]
pub(super) struct ClientAdmission {
    holders: Vec<TokenHolder>,
    nobody: Arc<str>,
    /// Rights of requests that show no token.
    access: Arc<AccessRights>,
    listening: IpAddr,
}

#[derive(Debug)]
struct TokenHolder {
    principal: Arc<str>,
    hash: blake3::Hash,
    rules: Arc<RequestRules>,
    access: Arc<AccessRights>,
}

/// A client that was let in.
#[derive(Clone, Debug)]
pub(super) struct AdmittedClient {
    /// Principal whose sessions the client sees.
    pub(super) principal: Arc<str>,
    /// Rules by which its requests are treated.
    pub(super) rules: Arc<RequestRules>,
    /// Rights of the client.
    access: Arc<AccessRights>,
    /// Kind of key that the client shows.
    pub(super) key: ClientKeyKind,
}

/// Kind of key that a client shows where providers look for theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClientKeyKind {
    /// The provider's key, or none.
    Theirs,
    /// A token of the gateway's: no provider may see it.
    Ours,
}

/// Owner of the key that a provider is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProviderKeyOwner {
    /// The client's own key, or none.
    Clients,
    /// The gateway's key.
    Gateways,
}

/// Reason for refusing a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AdmissionError {
    /// The request shows no known token.
    NoToken,
    /// A web page sent the request.
    Page,
    /// The request was meant for another host.
    Host,
}

impl AdmittedClient {
    /// Returns true if request headers may lower what the operator set.
    pub(super) fn may_lower(&self) -> bool {
        self.access.allow_override.unwrap_or(false)
    }

    /// Routes that the client may use with a key of its own or with the gateway's; `None` for all.
    pub(super) fn routes(&self, key: ProviderKeyOwner) -> Option<Cow<'_, RouteList>> {
        match (&self.access.allow, key) {
            (Some(allow), _) => Some(Cow::Borrowed(allow)),
            (None, ProviderKeyOwner::Gateways) => Some(Cow::Owned(RouteList::default())),
            (None, ProviderKeyOwner::Clients) => None,
        }
        .filter(|list| !list.is_everything())
    }
}

impl ClientAdmission {
    /// Lets the holders of `tokens` in; everybody on this machine if there are none. Rights that a token does
    /// not set are those of `access`.
    pub(super) fn new(tokens: Vec<AccessToken>, access: AccessRights, listening: SocketAddr) -> Self {
        let holder = |token: AccessToken| {
            let (rules, access) = (Arc::new(token.rules), Arc::new(token.access.or(&access)));
            TokenHolder { principal: token.principal.into(), hash: token.hash, rules, access }
        };
        let holders = tokens.into_iter().map(holder).collect();
        Self { holders, nobody: Arc::from(""), access: Arc::new(access), listening: listening.ip() }
    }

    /// Admits or refuses a request with these headers.
    pub(super) fn admit(&self, headers: &HeaderMap) -> Result<AdmittedClient, AdmissionError> {
        if self.holders.is_empty() { self.neighbour(headers) } else { self.holder(headers) }
    }

    /// Admits or refuses a visitor of a page that needs no token. A page in a browser learns nothing here,
    /// not even that the gateway is running.
    pub(super) fn admit_visitor(&self, headers: &HeaderMap) -> Result<(), AdmissionError> {
        if self.holders.is_empty() { self.neighbour(headers).map(drop) } else { Ok(()) }
    }

    fn neighbour(&self, headers: &HeaderMap) -> Result<AdmittedClient, AdmissionError> {
        if headers.contains_key(header::ORIGIN) {
            return Err(AdmissionError::Page);
        }
        if !headers.get_all(header::HOST).iter().all(|host| self.is_here(host)) {
            return Err(AdmissionError::Host);
        }
        let (principal, access) = (Arc::clone(&self.nobody), Arc::clone(&self.access));
        Ok(AdmittedClient { principal, rules: Arc::default(), access, key: ClientKeyKind::Theirs })
    }

    fn holder(&self, headers: &HeaderMap) -> Result<AdmittedClient, AdmissionError> {
        let keys: Vec<&TokenHolder> = shown_keys(headers).filter_map(|key| self.known(key)).collect();
        let mut tokens = headers.get_all(TOKEN_HEADER).iter();
        let holder = match (tokens.next(), tokens.next()) {
            (Some(only), None) => self.known(only.as_bytes()),
            (Some(_), Some(_)) => None,
            (None, _) => keys.first().copied(),
        };
        let holder = holder.ok_or(AdmissionError::NoToken)?;
        let key = if keys.is_empty() { ClientKeyKind::Theirs } else { ClientKeyKind::Ours };
        let TokenHolder { principal, rules, access, .. } = holder;
        let (rules, access) = (Arc::clone(rules), Arc::clone(access));
        Ok(AdmittedClient { principal: Arc::clone(principal), rules, access, key })
    }

    /// Finds the holder of a token. Every token is compared, whole and in constant time, so that the time
    /// taken reveals nothing.
    fn known(&self, shown: &[u8]) -> Option<&TokenHolder> {
        let hash = blake3::hash(shown);
        self.holders.iter().fold(None, |found, holder| if holder.hash == hash { Some(holder) } else { found })
    }

    fn is_here(&self, host: &HeaderValue) -> bool {
        let Ok(authority) = Authority::try_from(host.as_bytes()) else { return false };
        let name = authority.host();
        let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
        match address.parse::<IpAddr>() {
            Ok(address) => address.is_loopback() || address == self.listening,
            Err(_) => name.eq_ignore_ascii_case("localhost"),
        }
    }
}

/// Keys that a client shows where providers look for theirs.
fn shown_keys(headers: &HeaderMap) -> impl Iterator<Item = &[u8]> {
    let bearers = headers.get_all(header::AUTHORIZATION).iter().filter_map(|value| {
        let (scheme, key) = value.as_bytes().split_at_checked(7)?;
        scheme.eq_ignore_ascii_case(b"bearer ").then(|| key.trim_ascii())
    });
    let named = KEY_HEADERS.iter().flat_map(|name| headers.get_all(*name).iter().map(HeaderValue::as_bytes));
    bearers.chain(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admission(tokens: &[(&str, &str)]) -> ClientAdmission {
        let token = |(principal, token): &(&str, &str)| AccessToken {
            principal: (*principal).to_owned(),
            hash: blake3::hash(token.as_bytes()),
            rules: RequestRules::default(),
            access: AccessRights::default(),
        };
        let listening = "192.168.7.7:8787".parse().expect("an address");
        ClientAdmission::new(tokens.iter().map(token).collect(), AccessRights::default(), listening)
    }

    #[track_caller]
    fn check(
        admission: &ClientAdmission,
        headers: &[(&str, &str)],
        expect: Result<(&str, ClientKeyKind), AdmissionError>,
    ) {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name: HeaderName = name.parse().expect("a name");
            map.append(name, value.parse().expect("a value"));
        }
        let admitted = admission.admit(&map);
        let admitted = admitted
            .as_ref()
            .map(|admitted| (&*admitted.principal, admitted.key))
            .map_err(|refusal| *refusal);
        assert_eq!(admitted, expect, "{headers:?}");
    }

    #[test]
    fn without_tokens_everybody_on_this_machine_is_let_in_and_no_page() {
        let open = admission(&[]);
        for host in
            ["127.0.0.1:8787", "localhost", "LOCALHOST:1", "[::1]:8787", "127.9.9.9", "192.168.7.7:8787"]
        {
            check(&open, &[("host", host)], Ok(("", ClientKeyKind::Theirs)));
        }
        for host in [
            "evil.example",
            "localhost.evil.example",
            "192.168.7.8",
            "127.0.0.1.evil.example",
            "user@127.0.0.1 x",
            "",
        ] {
            check(&open, &[("host", host)], Err(AdmissionError::Host));
        }
        check(&open, &[("host", "localhost"), ("host", "evil.example")], Err(AdmissionError::Host));
        check(&open, &[("host", "localhost"), ("origin", "null")], Err(AdmissionError::Page));
        check(&open, &[], Ok(("", ClientKeyKind::Theirs)));
    }

    #[test]
    fn with_tokens_nobody_is_let_in_without_one() {
        let shut = admission(&[("ann", "t-ann"), ("bob", "t-bob")]);
        for headers in [
            &[][..],
            &[("authorization", "Bearer sk-provider")],
            &[("authorization", "Basic t-ann")],
            &[("authorization", "Bearer t-an")],
            &[("authorization", "Bearer t-annn")],
            &[("authorization", "Bearer")],
            &[("x-api-key", "")],
            &[("x-epitome-token", "t-nobody"), ("authorization", "Bearer t-ann")],
            &[("x-epitome-token", "t-ann"), ("x-epitome-token", "t-bob")],
            &[("x-epitome-token", "")],
        ] {
            check(&shut, headers, Err(AdmissionError::NoToken));
        }
    }

    #[test]
    fn a_token_is_taken_wherever_a_client_can_put_it() {
        let shut = admission(&[("ann", "t-ann"), ("bob", "t-bob")]);
        check(&shut, &[("x-epitome-token", "t-bob")], Ok(("bob", ClientKeyKind::Theirs)));
        check(&shut, &[("authorization", "bearer t-ann")], Ok(("ann", ClientKeyKind::Ours)));
        check(&shut, &[("x-api-key", "t-bob")], Ok(("bob", ClientKeyKind::Ours)));
        let both = [("authorization", "Bearer sk-provider"), ("x-api-key", "t-bob")];
        check(&shut, &both, Ok(("bob", ClientKeyKind::Ours)));
        let named = [("x-epitome-token", "t-ann"), ("x-api-key", "sk-ant")];
        check(&shut, &named, Ok(("ann", ClientKeyKind::Theirs)));
    }
}
