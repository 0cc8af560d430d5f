//! Addresses of the gateway and of providers.

use std::net::{Ipv4Addr, SocketAddr};

use http::Uri;

use crate::units::printable;

/// The address to listen on: `127.0.0.1:8787`, `[::1]:8787`, `localhost:8787`.
pub(super) fn listen(text: &str) -> Result<SocketAddr, String> {
    if let Some(port) = text.strip_prefix("localhost:").and_then(|port| port.parse().ok()) {
        return Ok((Ipv4Addr::LOCALHOST, port).into());
    }
    text.parse().map_err(|_| {
        format!(
            "`{}` is no address to listen on: write one such as 127.0.0.1:8787, or port 0 for any free one",
            printable(text)
        )
    })
}

/// Returns true if only this machine can reach an address.
pub(super) fn is_local(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

/// Reads a provider's address: scheme, host, port, and the path before `/v1`. With or without `/v1` or a
/// slash at its end.
pub(super) fn base(text: &str) -> Result<Uri, String> {
    // The text before an @ may hold a password, so it is not repeated.
    if text.contains('@') {
        return Err("the address of a provider holds no user and no password: give its key by `key_env`, \
                    or let the client send its own"
            .to_owned());
    }
    let wrong = |why: &str| {
        format!(
            "`{}` is no address of a provider: {why}; write one such as https://api.openai.com",
            printable(text)
        )
    };
    if text.contains(['?', '#']) {
        return Err(wrong("it has a query or a fragment"));
    }
    let short = text.trim_end_matches('/');
    let short = short.strip_suffix("/v1").unwrap_or(short).trim_end_matches('/');
    let uri: Uri = short.parse().map_err(|_| wrong("it is no URL"))?;
    match uri.scheme_str() {
        Some("http" | "https") => {}
        Some(_) => return Err(wrong("only http and https are spoken")),
        None => return Err(wrong("it lacks http:// or https://")),
    }
    if uri.host().is_none_or(str::is_empty) {
        return Err(wrong("it has no host"));
    }
    Ok(uri)
}

/// Returns true if a key sent to this address could be read on the way.
pub(super) fn is_exposed(base: &Uri) -> bool {
    let host = base.host().unwrap_or_default();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let is_local =
        host == "localhost" || host.parse().is_ok_and(|ip: std::net::IpAddr| ip.to_canonical().is_loopback());
    base.scheme_str() == Some("http") && !is_local
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_a_provider_is_the_same_with_or_without_its_end() {
        for text in ["https://api.openai.com", "https://api.openai.com/", "https://api.openai.com/v1/"] {
            assert_eq!(base(text), Ok("https://api.openai.com".parse().expect("an address")), "{text}");
        }
        let behind = base("http://127.0.0.1:8080/openai/v1").expect("an address");
        assert_eq!((behind.path(), behind.port_u16()), ("/openai", Some(8080)));
    }

    #[test]
    fn what_is_no_address_of_a_provider_is_refused_with_the_reason() {
        let said = |text: &str| base(text).expect_err(text);
        assert!(said("api.openai.com").contains("lacks http://"), "{}", said("api.openai.com"));
        assert!(said("ftp://host").contains("only http and https"));
        assert!(said("https://host/?key=1").contains("a query"));
        assert!(said("https://").contains("is no address"));
        let secret = said("https://user:sk-secret@host");
        assert!(secret.contains("no password") && !secret.contains("sk-secret"), "{secret}");
    }

    #[test]
    fn only_loopback_is_local() {
        for (text, expect) in [
            ("127.0.0.1:1", true),
            ("[::1]:1", true),
            ("localhost:0", true),
            ("[::ffff:127.0.0.1]:1", true),
            ("0.0.0.0:1", false),
            ("[::]:1", false),
            ("192.168.1.2:1", false),
        ] {
            assert_eq!(is_local(listen(text).expect(text)), expect, "{text}");
        }
        assert!(listen("8787").is_err() && listen("localhost:http").is_err());
    }

    #[test]
    fn a_key_is_exposed_where_nothing_encrypts_it() {
        for (text, expect) in [
            ("https://api.openai.com", false),
            ("http://127.0.0.1:8080", false),
            ("http://[::1]:8080", false),
            ("http://localhost", false),
            ("http://10.0.0.3:8080", true),
        ] {
            assert_eq!(is_exposed(&base(text).expect(text)), expect, "{text}");
        }
    }
}
