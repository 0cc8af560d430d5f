//! TLS errors of providers, in words that say what to do.

use std::{error::Error, fmt, io};

use rustls::{CertificateError, InvalidMessage};

/// Error in the TLS connection between the gateway and a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TlsError {
    /// The certificate is not signed by an authority that this machine trusts.
    UnknownIssuer,
    /// The certificate is no longer valid.
    Expired,
    /// The certificate is not valid yet.
    NotYetValid,
    /// The certificate belongs to another name.
    OtherName(String),
    /// The certificate was revoked.
    Revoked,
    /// The server does not speak TLS.
    NotTls,
    /// Any other error.
    Other(String),
}

impl TlsError {
    /// Finds the TLS error behind an error of a connection, if there is one.
    pub(super) fn of(error: &(dyn Error + 'static)) -> Option<Self> {
        // Connection errors are wrapped in one another, and some show the inner error only in their text.
        if let Some(inner) = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            return Self::of(inner);
        }
        let error = error.downcast_ref::<rustls::Error>()?;
        Some(match error {
            rustls::Error::InvalidCertificate(error) => Self::of_certificate(error),
            rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) => Self::NotTls,
            error => Self::Other(error.to_string()),
        })
    }

    fn of_certificate(error: &CertificateError) -> Self {
        match error {
            CertificateError::UnknownIssuer => Self::UnknownIssuer,
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => Self::Expired,
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => Self::NotYetValid,
            CertificateError::Revoked => Self::Revoked,
            CertificateError::NotValidForName => Self::OtherName(String::new()),
            CertificateError::NotValidForNameContext { presented, .. } => {
                Self::OtherName(presented.join(", "))
            }
            error => Self::Other(error.to_string()),
        }
    }

    /// Advice on how to fix it.
    pub(super) fn advice(&self) -> &'static str {
        match self {
            Self::UnknownIssuer => {
                "add the issuer's certificate to those of the gateway's machine (or name it in SSL_CERT_FILE)"
            }
            Self::Expired | Self::Revoked => "its operator has to renew it",
            Self::NotYetValid => "check the clock of the gateway's machine",
            Self::OtherName(_) => "check the address in the gateway's configuration",
            Self::NotTls => "check whether its address begins with http:// rather than https://",
            Self::Other(_) => "see what it says of itself",
        }
    }
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownIssuer => f.write_str("its certificate is by an unknown issuer"),
            Self::Expired => f.write_str("its certificate has expired"),
            Self::NotYetValid => f.write_str("its certificate is not valid yet"),
            Self::OtherName(names) if names.is_empty() => f.write_str("its certificate is for another name"),
            Self::OtherName(names) => write!(f, "its certificate is for another name ({names})"),
            Self::Revoked => f.write_str("its certificate was revoked"),
            Self::NotTls => f.write_str("it does not speak TLS"),
            Self::Other(why) => write!(f, "TLS failed ({why})"),
        }
    }
}
