//! Providers that cannot be trusted to be who they should be: the log and the client are told why.
//!
//! The certificates are beside this file, made once with openssl: `good`, `expired` and `other` (of another name) by
//! `issuer`, all with the one `key`, for 127.0.0.1 and for a hundred years.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener},
    sync::Arc,
    thread,
};

use rustls::{
    ServerConfig, ServerConnection, StreamOwned,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};

use super::{
    super::harness::{Bench, text, workspace},
    played::{Gateway, Setup, ok, post},
};

fn file(name: &str) -> std::path::PathBuf {
    workspace().join("crates/app/tests/it/gateway/certificates").join(name)
}

/// A provider that shows a certificate, and answers whoever takes it.
fn provider(certificate: &str) -> SocketAddr {
    let certificate = CertificateDer::from_pem_file(file(certificate)).expect("a certificate");
    let key = PrivateKeyDer::from_pem_file(file("key.pem")).expect("a key");
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .expect("a key that fits");
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.expect("a connection");
            let session = ServerConnection::new(Arc::clone(&config)).expect("a session");
            thread::spawn(move || {
                let mut stream = StreamOwned::new(session, stream);
                // Whoever does not trust it hangs up here.
                let mut some = [0; 4096];
                if stream.read(&mut some).is_ok_and(|count| count > 0) {
                    let _ = stream.write_all(ok("", "{}").as_bytes());
                }
            });
        }
    });
    address
}

/// Somebody who does not speak TLS, and says so to whoever tries.
fn plain() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let mut some = [0; 4096];
            let _ = stream.read(&mut some);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
        }
    });
    address
}

/// What becomes of a request to whoever is at `address`, and what is logged: trusted is who `trusted` is by.
fn asked(address: SocketAddr, trusted: &str) -> (u16, String, String) {
    let url = format!("https://{address}");
    let bench = Arc::new(Bench::new());
    let trusted = file(trusted);
    let gateway = Gateway::start(&Setup {
        bench: &bench,
        log: "json",
        flags: &["--openai-upstream", &url, "--anthropic-upstream", &url],
        file: "",
        environment: &[("SSL_CERT_FILE", text(&trusted))],
    });
    let answer = gateway.ask(&post("/v1/messages", "", "{\"model\":\"m\",\"messages\":[]}"));
    (answer.status(), answer.text(), gateway.log())
}

#[test]
fn why_a_certificate_is_not_trusted_is_told_to_the_client_and_in_the_log() {
    for (certificate, trusted, says) in [
        ("good.pem", "other.pem", "its certificate is by an unknown issuer"),
        ("expired.pem", "issuer.pem", "its certificate has expired"),
        ("other.pem", "issuer.pem", "its certificate is for another name"),
    ] {
        let (status, text, log) = asked(provider(certificate), trusted);
        assert_eq!(status, 502, "{certificate}: {text}");
        assert!(text.contains(says) && text.contains("\"api_error\""), "{text}");
        let line = log.lines().find(|line| line.contains("a request got no answer")).expect("a line of log");
        assert!(line.contains("\"error\":\"tls\"") && line.contains(says), "{line}");
    }
    let (status, text, log) = asked(plain(), "issuer.pem");
    assert_eq!(status, 502, "{text}");
    assert!(text.contains("does not speak TLS") && text.contains("http://"), "{text}");
    assert!(log.contains("does not speak TLS"), "{log}");
    assert_eq!(asked(provider("good.pem"), "issuer.pem").0, 200);
}
