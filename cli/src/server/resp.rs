//! Reads RESP2 replies from an untrusted server, with limits on their size and nesting depth.

use redis::{RedisResult, Value, parse_redis_value};
use std::io::{self, BufRead, Error, ErrorKind, Read};

/// Maximum size of a reply in bytes: several times the largest one that this program asks for, a 16 MiB chunk.
pub(super) const MAX_REPLY: u64 = 64 << 20;

/// Maximum size in bytes of a reply that contains a filter: twice the longest string that a server allows by default.
pub(super) const MAX_FILTER: u64 = 1 << 30;

/// Minimum memory of an array element, in bytes. It is charged against the reply's size limit, so that a short reply
/// with many elements can't use more memory than a long reply.
const ELEMENT: u64 = size_of::<Value>() as u64;

/// Maximum nesting depth of arrays. The deepest reply that this program expects has 4 levels (CLUSTER SLOTS).
const MAX_DEPTH: u32 = 16;

/// Maximum length in bytes of a line, which holds an error, a status or a number.
const MAX_LINE: u64 = 64 << 10;

/// Maximum length in bytes of a key's name in the replies that a search for filters reads. Clients choose the names, so
/// one of them must not end the search.
pub(super) const MAX_NAME: u64 = 16 << 10;

/// Reads one reply of at most `limits.reply` bytes. An error reply becomes a [`Value::ServerError`].
pub(super) fn read_reply(source: &mut impl BufRead, limits: Limits) -> RedisResult<Value> {
    let mut left = limits.reply;
    value(source, &mut left, limits.nested, MAX_DEPTH)
}

/// Maximum sizes in bytes.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    pub(super) reply: u64,
    /// Of a string in an array. A longer one is read as nil: it isn't kept, and doesn't count towards the reply's size.
    pub(super) nested: u64,
}

fn wrong(what: &str) -> Error {
    Error::new(
        ErrorKind::InvalidData,
        format!("not a reply of Redis or Valkey: {what}. Check the port, and whether it needs --tls"),
    )
}

fn value(source: &mut impl BufRead, left: &mut u64, nested: u64, depth: u32) -> RedisResult<Value> {
    spend(left, ELEMENT)?;
    let head = line(source, left)?;
    let (kind, text) = head.split_first().ok_or_else(|| wrong("an empty line"))?;
    Ok(match kind {
        b'+' if text == b"OK" => Value::Okay,
        b'+' => Value::SimpleString(String::from_utf8_lossy(text).into_owned()),
        // The client library's parser classifies errors by their first word, but accepts only UTF-8.
        b'-' => parse_redis_value(format!("-{}\r\n", String::from_utf8_lossy(text)).as_bytes())?,
        b':' => Value::Int(number(text)?),
        b'$' => match u64::try_from(number(text)?) {
            Err(_) => Value::Nil,
            Ok(length) if length > nested && depth < MAX_DEPTH => {
                if io::copy(&mut source.take(length), &mut io::sink())? < length {
                    return Err(Error::from(ErrorKind::UnexpectedEof).into());
                }
                if !line(source, left)?.is_empty() {
                    return Err(wrong("a string is longer than its length").into());
                }
                Value::Nil
            }
            Ok(length) => {
                spend(left, length)?;
                let mut bytes = Vec::new();
                // Memory is allocated only as the bytes arrive.
                source.take(length + 2).read_to_end(&mut bytes)?;
                if bytes.len() as u64 != length + 2 {
                    return Err(Error::from(ErrorKind::UnexpectedEof).into());
                }
                if !bytes.ends_with(b"\r\n") {
                    return Err(wrong("a string is longer than its length").into());
                }
                bytes.truncate(bytes.len() - 2);
                Value::BulkString(bytes)
            }
        },
        b'*' => match number(text)? {
            ..0 => Value::Nil,
            _ if depth == 0 => return Err(wrong("its arrays are nested too deeply").into()),
            length => {
                let mut elements = Vec::new();
                for _ in 0..length {
                    elements.push(value(source, left, nested, depth - 1)?);
                }
                Value::Array(elements)
            }
        },
        _ => return Err(wrong("an unknown type").into()),
    })
}

/// Reads a line and strips its line ending.
fn line(source: &mut impl BufRead, left: &mut u64) -> RedisResult<Vec<u8>> {
    let mut line = Vec::new();
    source.take(MAX_LINE).read_until(b'\n', &mut line)?;
    spend(left, line.len() as u64)?;
    match line.strip_suffix(b"\r\n") {
        Some(text) => Ok(text.to_vec()),
        None if line.len() as u64 == MAX_LINE => Err(wrong("a line is too long").into()),
        None if line.ends_with(b"\n") => Err(wrong("a line does not end in CR LF").into()),
        None => Err(Error::from(ErrorKind::UnexpectedEof).into()),
    }
}

fn number(text: &[u8]) -> RedisResult<i64> {
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    Ok(number.ok_or_else(|| wrong("a number has other characters than digits"))?)
}

fn spend(left: &mut u64, bytes: u64) -> RedisResult<()> {
    let too_long = || wrong("it is too long");
    *left = left.checked_sub(bytes).ok_or_else(too_long)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(mut bytes: &[u8]) -> RedisResult<Value> {
        read_reply(&mut bytes, Limits { reply: MAX_REPLY, nested: u64::MAX })
    }

    #[test]
    fn long_strings_in_arrays_are_left_out() {
        let short = Limits { reply: 200 + 10 * ELEMENT, nested: 4 };
        let read = |text: &str| read_reply(&mut text.as_bytes(), short);
        let long = "$1000\r\n".to_owned() + &"x".repeat(1000) + "\r\n";
        let name = |text: &str| Value::BulkString(text.into());
        let reply = read(&format!("*2\r\n$1\r\n0\r\n*4\r\n{long}$4\r\nabcd\r\n{long}$1\r\nz\r\n")).unwrap();
        let names = Value::Array(vec![Value::Nil, name("abcd"), Value::Nil, name("z")]);
        assert_eq!(reply, Value::Array(vec![name("0"), names]));
        // The only string of a reply isn't left out, but refused.
        assert!(read(&long).unwrap_err().to_string().contains("too long"));
        assert!(read("*1\r\n$1000\r\nabc").is_err());
        assert!(read("*1\r\n$5\r\nabcdef\r\n").is_err());
    }

    /// Whatever a server sends, memory use stays bounded, and anything that isn't RESP2 is a connection error.
    #[test]
    fn hostile_replies_are_refused() {
        for reply in [
            b"*4294967296\r\n".as_slice(),
            b"*9223372036854775807\r\n:1\r\n",
            b"$9223372036854775807\r\nabc",
            b"$67108865\r\n",
            b"$3\r\nabcd\r\n",
            b"$3\r\nab",
            b":x\r\n",
            b"%1\r\n+a\r\n+b\r\n",
            b"HTTP/1.1 400 Bad Request\r\n",
            b"+no end",
            b"+only a newline\n",
            b"\r\n",
            b"",
        ] {
            let error = read(reply).unwrap_err();
            assert!(error.is_io_error(), "{} {error}", reply.escape_ascii());
        }
        assert!(read("*1\r\n".repeat(17).as_bytes()).unwrap_err().to_string().contains("nested"));
        assert!(
            read(&[b"+".as_slice(), &b"x".repeat(1 << 20)].concat())
                .unwrap_err()
                .to_string()
                .contains("too long")
        );
        let many = [b"*100000000\r\n".as_slice(), &b":1\r\n".repeat(2_000_000)].concat();
        assert!(read(&many).unwrap_err().to_string().contains("too long"));
        assert_eq!(
            read(b"-\xff\x1b[31m\r\n").unwrap().extract_error().unwrap_err().code(),
            Some("\u{fffd}\u{1b}[31m")
        );
    }
}
