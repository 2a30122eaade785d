//! What makes a file of PEM unreadable although its text looks right, in words.

/// Why a text cannot be read as PEM, by its encoding; `None` if nothing is known.
///
/// To be asked before the text is parsed: behind a byte order mark the first certificate would be
/// passed over, and the next one taken for it.
#[must_use]
pub fn encoding_fault(text: &[u8]) -> Option<&'static str> {
    if text.starts_with(b"\xEF\xBB\xBF") {
        return Some("it begins with a byte order mark (BOM): save it as UTF-8 without one");
    }
    if text.starts_with(b"\xFF\xFE") || text.starts_with(b"\xFE\xFF") {
        return Some("it is UTF-16: save it as UTF-8 without a byte order mark");
    }
    // A SEQUENCE of more than 255 bytes.
    if text.starts_with(b"\x30\x82") {
        return Some("it is DER or PKCS#12 and no PEM: openssl x509, pkey or pkcs12 converts it");
    }
    None
}

/// Why no private key was found in a text; `None` if nothing is known.
#[must_use]
pub fn key_fault(text: &[u8]) -> Option<&'static str> {
    let has = |part: &[u8]| text.windows(part.len()).any(|it| it == part);
    let is_encrypted = has(b"BEGIN ENCRYPTED PRIVATE KEY") || has(b"Proc-Type: 4,ENCRYPTED");
    is_encrypted.then_some(
        "the private key is encrypted, and nobody is there to type its passphrase: take that away \
         with openssl pkey -in KEY -out PLAIN, and protect the file by its mode",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_of_encodings_and_encrypted_keys_are_named_and_plain_text_is_not() {
        let pem = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert_eq!(encoding_fault(pem), None);
        for (begin, word) in [
            (&b"\xEF\xBB\xBF"[..], "BOM"),
            (b"\xFF\xFE-\0", "UTF-16"),
            (b"\xFE\xFF\0-", "UTF-16"),
            (b"\x30\x82\x01\x02", "DER"),
        ] {
            let text = [begin, pem].concat();
            assert!(encoding_fault(&text).is_some_and(|it| it.contains(word)));
        }
        for (text, is_encrypted) in [
            (&b"-----BEGIN ENCRYPTED PRIVATE KEY-----\nAA"[..], true),
            (
                b"-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n",
                true,
            ),
            (b"-----BEGIN PRIVATE KEY-----\nAA", false),
            (b"", false),
        ] {
            assert_eq!(key_fault(text).is_some(), is_encrypted);
        }
    }
}
