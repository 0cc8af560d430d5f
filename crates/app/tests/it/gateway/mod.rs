//! The gateway, between a client and a provider that are both played here, on bare sockets: what passes is compared byte
//! by byte with what passes without it.

mod doors;
mod faults;
mod http;
mod played;
mod stopping;
mod transparency;
