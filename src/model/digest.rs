//! The names that things are known by: BLAKE3 digests, git object ids, keys. Printing and parsing only; what goes
//! into a key is decided in `key`.
#![forbid(unsafe_code)]

use std::fmt;

/// A BLAKE3 digest, printed as `b3:` and 64 hex digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// Hashes `bytes` in one go.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }

    /// Hashes several values, each behind its length, so that no two lists of them come to the same bytes.
    #[must_use]
    pub fn of_fields<'f>(fields: impl IntoIterator<Item = &'f [u8]>) -> Self {
        let mut hasher = blake3::Hasher::new();
        for field in fields {
            hasher.update(&u64::try_from(field.len()).unwrap_or(u64::MAX).to_le_bytes());
            hasher.update(field);
        }
        Self(*hasher.finalize().as_bytes())
    }

    /// The 64 hex digits without the `b3:` in front.
    #[must_use]
    pub fn hex(&self) -> String {
        hex(&self.0)
    }

    /// Reads `b3:…` or 64 bare hex digits.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = unhex(text.strip_prefix("b3:").unwrap_or(text))?;
        bytes.try_into().ok().map(Self)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b3:{}", self.hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What a check is known by: the digest of its canonical encoding (see `key`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ActionKey(pub Digest);

impl fmt::Display for ActionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for ActionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// How a repository names its objects.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ObjectFormat {
    /// 20-byte ids.
    Sha1,
    /// 32-byte ids.
    Sha256,
}

impl ObjectFormat {
    /// The word git uses for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Sha1 => "sha1",
            Self::Sha256 => "sha256",
        }
    }
}

/// The id of a git object (a tree, a commit or a blob), in full.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectId(Vec<u8>);

impl ObjectId {
    /// Takes the raw id: 20 bytes for SHA-1, 32 for SHA-256.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Self {
        Self(bytes.to_vec())
    }

    /// The raw bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Which hash it was made with, by its length.
    #[must_use]
    pub fn format(&self) -> ObjectFormat {
        if self.0.len() == 32 { ObjectFormat::Sha256 } else { ObjectFormat::Sha1 }
    }

    /// The full id in hex, as git prints it.
    #[must_use]
    pub fn hex(&self) -> String {
        hex(&self.0)
    }

    /// The first twelve hex digits, for people.
    #[must_use]
    pub fn short(&self) -> String {
        self.hex().chars().take(12).collect()
    }

    /// Reads a full id of 40 or 64 hex digits.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = unhex(text)?;
        matches!(bytes.len(), 20 | 32).then_some(Self(bytes))
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.hex())
    }
}

impl fmt::Debug for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|value| u8::try_from(value).ok());
    let bytes = text.as_bytes();
    if !bytes.len().is_multiple_of(2) {
        return None;
    }
    bytes.chunks_exact(2).map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_and_ids_read_back_what_they_print() {
        let digest = Digest::of(b"x");
        assert_eq!(Digest::parse(&digest.to_string()), Some(digest));
        assert_eq!(Digest::parse(&digest.hex()), Some(digest));
        assert_eq!(Digest::parse("b3:12"), None);
        let id = "4b825dc642cb6eb9a060e54bf8d69288fbee4904";
        assert_eq!(ObjectId::parse(id).map(|id| id.hex()).as_deref(), Some(id));
        assert_eq!(ObjectId::parse("4b82"), None);
        assert_eq!(ObjectId::parse("zz825dc642cb6eb9a060e54bf8d69288fbee4904"), None);
    }
}
