//! Summaries in the form of a compaction item: text that only this gateway reads.
//!
//! Clients of Responses keep such an item in place of their history and send it back with every request. It is encrypted and
//! authenticated under a key beside the database, for the principal who asked; what others sealed is not touched.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    path::Path,
};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::Bytes;
use epitome::wire::Format;
use ring::{
    aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
    rand::{SecureRandom, SystemRandom},
};

/// Length of a key in bytes.
const KEY_BYTES: usize = 32;

/// Beginning of every text that is sealed here, with the version of its form.
const MARK: &str = "epitome1.";

/// The key by which summaries are sealed.
pub(crate) struct SummarySeal {
    key: LessSafeKey,
    random: SystemRandom,
}

impl std::fmt::Debug for SummarySeal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SummarySeal")
    }
}

impl SummarySeal {
    /// The key in a file, which is made if it does not exist. Nobody but its owner may read it.
    pub(crate) fn at(path: &Path) -> io::Result<Self> {
        match fs::read(path) {
            Ok(bytes) => Self::of(&bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let mut bytes = [0; KEY_BYTES];
                SystemRandom::new().fill(&mut bytes).map_err(|_| io::Error::other("no random numbers"))?;
                match create(path, &bytes) {
                    Ok(()) => Self::of(&bytes),
                    // Another gateway on the same database was first.
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Self::of(&fs::read(path)?),
                    Err(error) => Err(error),
                }
            }
            Err(error) => Err(error),
        }
    }

    fn of(bytes: &[u8]) -> io::Result<Self> {
        let wrong =
            |_| io::Error::new(io::ErrorKind::InvalidData, "this is no key of 32 bytes: remove the file");
        let key = UnboundKey::new(&CHACHA20_POLY1305, bytes).map_err(wrong)?;
        Ok(Self { key: LessSafeKey::new(key), random: SystemRandom::new() })
    }

    /// Seals a summary for a principal.
    pub(super) fn seal(&self, principal: &str, summary: &str) -> Option<String> {
        let mut nonce = [0; NONCE_LEN];
        self.random.fill(&mut nonce).ok()?;
        let mut sealed = summary.as_bytes().to_vec();
        let unique = Nonce::assume_unique_for_key(nonce);
        self.key.seal_in_place_append_tag(unique, Aad::from(principal), &mut sealed).ok()?;
        Some(format!("{MARK}{}", URL_SAFE_NO_PAD.encode([&nonce[..], &sealed].concat())))
    }

    /// Opens what was sealed here for the same principal; `None` for anything else.
    fn unseal(&self, principal: &str, sealed: &str) -> Option<String> {
        let mut bytes = URL_SAFE_NO_PAD.decode(sealed.strip_prefix(MARK)?).ok()?;
        let (nonce, sealed) = bytes.split_at_mut_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let text = self.key.open_in_place(nonce, Aad::from(principal), sealed).ok()?;
        str::from_utf8(text).ok().map(str::to_owned)
    }

    /// A request with our summaries in place of the items that hold them; `None` if it has none.
    pub(super) fn expanded(&self, principal: &str, format: Format, body: &Bytes) -> Option<Bytes> {
        // Nearly every request has none, and is not parsed.
        let text = str::from_utf8(body).ok().filter(|text| text.contains(MARK))?;
        let mut whole = String::new();
        let mut from = 0;
        for item in format.sealed_items(text) {
            if let Some(summary) = self.unseal(principal, &item.content) {
                whole.push_str(text.get(from..item.range.start)?);
                whole.push_str(&format.user_message(&summary));
                from = item.range.end;
            }
        }
        if from == 0 {
            return None;
        }
        whole.push_str(text.get(from..)?);
        Some(Bytes::from(whole))
    }
}

/// Writes a file that only its owner may read, unless it exists.
fn create(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    // Another process must never read half a key.
    let draft = path.with_extension(format!("new-{}", std::process::id()));
    let mut file = options.open(&draft)?;
    let written =
        file.write_all(bytes).and_then(|()| file.sync_all()).and_then(|()| fs::hard_link(&draft, path));
    fs::remove_file(&draft)?;
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seal() -> SummarySeal {
        SummarySeal::of(&[7; KEY_BYTES]).expect("a key")
    }

    fn request(content: &str) -> Bytes {
        Bytes::from(format!(
            r#"{{"model":"m","input":[{{"role":"user","content":"a"}}, {{"type":"compaction","id":"c","encrypted_content":"{content}"}} ,{{"role":"user","content":"b"}}],"x":1.0}}"#
        ))
    }

    #[test]
    fn what_was_sealed_is_read_by_the_same_principal_and_nobody_else() {
        let sealed = seal().seal("anna", "what was \"said\"").expect("sealed");
        assert!(!sealed.contains("said"));
        assert_ne!(sealed, seal().seal("anna", "what was \"said\"").expect("sealed"));
        let body = request(&sealed);
        let expect = format!(
            r#"{{"model":"m","input":[{{"role":"user","content":"a"}}, {} ,{{"role":"user","content":"b"}}],"x":1.0}}"#,
            Format::OpenaiResponses.user_message("what was \"said\"")
        );
        let expanded = seal().expanded("anna", Format::OpenaiResponses, &body);
        assert_eq!(expanded.as_deref(), Some(expect.as_bytes()));
        assert_eq!(seal().expanded("bob", Format::OpenaiResponses, &body), None);
        assert_eq!(seal().expanded("anna", Format::Anthropic, &body), None);
        let other = SummarySeal::of(&[8; KEY_BYTES]).expect("a key");
        assert_eq!(other.expanded("anna", Format::OpenaiResponses, &body), None);
    }

    #[test]
    fn what_is_foreign_or_forged_stays_as_it_came() {
        let sealed = seal().seal("anna", "what was said").expect("sealed");
        for end in 0..sealed.len() {
            let body = request(&sealed[..end]);
            assert_eq!(seal().expanded("anna", Format::OpenaiResponses, &body), None, "{end}");
        }
        for at in MARK.len()..sealed.len() {
            let mut forged = sealed.clone().into_bytes();
            forged[at] = if forged[at] == b'A' { b'B' } else { b'A' };
            let forged = String::from_utf8(forged).expect("ASCII");
            // The last letter has bits that mean nothing.
            let expanded = seal().expanded("anna", Format::OpenaiResponses, &request(&forged));
            assert!(expanded.is_none() || at == sealed.len() - 1, "{at}");
        }
        for content in ["gAAAAAB_foreign", "epitome1.", "epitome1.%%%", "epitome1.AAAA", "epitome2.AAAA"] {
            let body = request(content);
            assert_eq!(seal().expanded("anna", Format::OpenaiResponses, &body), None, "{content}");
        }
        for body in
            ["epitome1.", "[\"epitome1.\"]", "{\"input\":\"epitome1.\"}", "{\"input\":[{\"epitome1.\":1"]
        {
            let body = Bytes::from_static(body.as_bytes());
            assert_eq!(seal().expanded("anna", Format::OpenaiResponses, &body), None);
        }
    }

    #[test]
    fn a_key_is_made_once_and_only_its_owner_reads_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log.seal");
        let sealed = SummarySeal::at(&path).expect("a key").seal("anna", "what was said").expect("sealed");
        let again = SummarySeal::at(&path).expect("a key");
        assert_eq!(again.unseal("anna", &sealed).as_deref(), Some("what was said"));
        assert_eq!(fs::read_dir(folder.path()).expect("readable").count(), 1);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(fs::metadata(&path).expect("a file").permissions().mode() & 0o777, 0o600);
        }
        fs::write(&path, "short").expect("writable");
        let error = SummarySeal::at(&path).expect_err("no key");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}
