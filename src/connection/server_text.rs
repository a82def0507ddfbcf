//! Sanitizes text from servers for errors, logs and addresses. A hostile or careless server may repeat a password, end a line, or
//! send terminal escapes.
//!
//! ARCHITECTURE invariant 9: no other file takes text out of an error of the redis crate.

use redis::{RedisError, ServerError};

/// After this phrase, a server repeats the arguments of an unknown command. The arguments of `AUTH` and `HELLO` contain a
/// password.
const REPEATED: &str = ", with args beginning with";
/// The number of bytes of a text that are shown.
const SHOWN: usize = 1000;

/// The maximum length of a host in bytes: a DNS name has up to 253, and the zone of an IPv6 address may need a few more.
const LONGEST_HOST: usize = 255;

/// Makes a server's text safe for errors and logs: on one line, non-printable characters escaped, without repeated arguments, and
/// of limited length.
pub(crate) fn sanitized(text: &str) -> String {
    let text = text.split(REPEATED).next().unwrap_or_default();
    let mut sanitized = String::with_capacity(text.len().min(SHOWN));
    for sign in text.chars() {
        if sanitized.len() >= SHOWN {
            sanitized.push_str(" ..");
            break;
        }
        match sign {
            '\'' | '"' | '\\' => sanitized.push(sign),
            _ => sanitized.extend(sign.escape_debug()),
        }
    }
    sanitized
}

/// The whole error message.
pub(super) fn of_error(error: &RedisError) -> String {
    sanitized(&error.to_string())
}

/// The server's error code.
pub(super) fn code(error: &RedisError) -> Option<String> {
    error.code().map(sanitized)
}

/// The message after the code.
pub(super) fn detail(error: &RedisError) -> Option<String> {
    error.detail().map(sanitized)
}

/// The message of an error that came as a value.
pub(super) fn details(error: &ServerError) -> String {
    error.details().map(sanitized).unwrap_or_default()
}

/// Validates a host that a server named, because the client resolves it and shows it. A name or an IP address has no spaces,
/// control characters or quotes, and a limited length. Empty if the server named no host.
pub(super) fn host(text: &str) -> Option<String> {
    let is_plain = |sign: char| !sign.is_whitespace() && sign.escape_debug().len() == 1;
    (text.len() <= LONGEST_HOST && text.chars().all(is_plain)).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_on_one_line_and_repeats_no_argument() {
        for (said, shown) in [
            ("unknown command 'x'", "unknown command 'x'"),
            (
                "unknown command 'HELLO', with args beginning with: '3' 'AUTH' 'canary'",
                "unknown command 'HELLO'",
            ),
            ("unknown command `HELLO`, with args beginning with: `3`, `canary`, ", "unknown command `HELLO`"),
            ("one\ntwo\u{1b}[31m\u{202e}", "one\\ntwo\\u{1b}[31m\\u{202e}"),
        ] {
            assert_eq!(sanitized(said), shown);
        }
        assert!(sanitized(&"x".repeat(1 << 20)).len() < SHOWN + 10);
    }

    #[test]
    fn a_host_is_a_name_or_an_address() {
        for good in ["redis-1.example.org", "10.0.0.1", "2001:db8::1", "fe80::1%eth0", "a_b", ""] {
            assert_eq!(host(good).as_deref(), Some(good));
        }
        for bad in ["a b", "a\nb", "a\u{1b}[31m", "a\u{0}", "\"a\"", "a\u{a0}b", "a\u{202e}b"] {
            assert_eq!(host(bad), None, "{bad:?}");
        }
        assert!(host(&"a".repeat(LONGEST_HOST)).is_some());
        assert_eq!(host(&"a".repeat(LONGEST_HOST + 1)), None);
    }
}
