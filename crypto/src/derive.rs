//! Secrets out of secrets: HKDF-SHA-256 (RFC 5869), one label for each use.

use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Prk, Salt};
use erd_rd::keys::Secret;

/// A length that HKDF is asked for.
struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

/// Bytes for the use that `label` names, in the `context`.
pub(crate) fn expand<const N: usize>(secret: &Secret, label: &str, context: &[&[u8]]) -> [u8; N] {
    expand_from(&Prk::new_less_safe(HKDF_SHA256, &secret.0), label, context)
}

/// A secret for the use that `label` names, bound to `context` by extraction.
pub(crate) fn derive(secret: &Secret, label: &str, context: &[&[u8]]) -> Secret {
    let salt = Salt::new(HKDF_SHA256, &context.concat());
    Secret(expand_from(&salt.extract(&secret.0), label, &[]))
}

fn expand_from<const N: usize>(secret: &Prk, label: &str, context: &[&[u8]]) -> [u8; N] {
    // The length before the label, so that no label and context can be read in two ways.
    let head = [label.len() as u8];
    let mut info = vec![&head[..], label.as_bytes()];
    info.extend(context);
    let mut out = [0; N];
    let made = secret.expand(&info, Length(N)).and_then(|okm| okm.fill(&mut out));
    made.expect("HKDF-SHA-256 gives up to 8,160 bytes");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_contexts_and_secrets_tell_uses_apart() {
        let secret = Secret([7; 32]);
        let of = |label, context: &[&[u8]]| expand::<32>(&secret, label, context);
        let one = of("one", &[b"x"]);
        assert_eq!(one, of("one", &[b"x"]));
        assert_ne!(one, of("two", &[b"x"]));
        assert_ne!(one, of("one", &[b"y"]));
        assert_ne!(of("onex", &[]), of("one", &[b"x"]), "where the label ends counts");
        assert_ne!(one, expand(&Secret([8; 32]), "one", &[b"x"]));
        assert_ne!(derive(&secret, "one", &[b"x"]), derive(&secret, "one", &[b"y"]));
    }

    #[test]
    fn a_secret_is_not_shown() {
        assert_eq!(format!("{:?}", Secret([7; 32])), "Secret");
    }
}
