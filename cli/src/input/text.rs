//! What an input is, by its first bytes: text, compressed text, or neither.

use super::zstd::Frames;
use flate2::bufread::MultiGzDecoder;
use std::io::{self, BufReader, Cursor, Error, ErrorKind, Read};

/// Bytes that are examined for NUL bytes. UTF-16 and compressed data of this length practically always have some.
const HEAD: usize = 4096;

/// UTF-8 files of some programs begin with this mark. It isn't part of the first item.
const UTF8_MARK: &[u8] = b"\xef\xbb\xbf";

/// Formats that aren't text: their first bytes, their names, and what to do. A prefix of another comes after it.
const OTHERS: [(&[u8], &str, &str); 10] = [
    (b"\xfd7zXZ\0", "xz data", "Decompress it first, for example with xz -dc"),
    (b"BZh", "bzip2 data", "Decompress it first, for example with bzip2 -dc"),
    (b"PK\x03\x04", "a zip archive", "Extract it first, for example with unzip -p"),
    (b"PK\x05\x06", "an empty zip archive", "Read the file that should be in it"),
    (b"\xff\xfe\0\0", "UTF-32 text", "Convert it first, for example with iconv -f UTF-32 -t UTF-8"),
    (b"\0\0\xfe\xff", "UTF-32 text", "Convert it first, for example with iconv -f UTF-32 -t UTF-8"),
    (b"\xff\xfe", "UTF-16 text", "Convert it first, for example with iconv -f UTF-16 -t UTF-8"),
    (b"\xfe\xff", "UTF-16 text", "Convert it first, for example with iconv -f UTF-16 -t UTF-8"),
    (GZIP, "gzip data inside compressed data", "Decompress it once more"),
    (ZSTD, "zstd data inside compressed data", "Decompress it once more"),
];

const GZIP: &[u8] = b"\x1f\x8b";
const ZSTD: &[u8] = b"\x28\xb5\x2f\xfd";

/// The first four bytes of a zstd frame without content are 0x50 to 0x5f and these.
const ZSTD_SKIPPABLE: &[u8] = b"\x2a\x4d\x18";

/// bzip2 data begin with `BZh`, a digit, and the mark of a block or of the end. A text may begin with `BZh` alone.
const BZIP2_MARKS: [&[u8]; 2] = [b"1AY&SY", b"\x17\x72\x45\x38\x50\x90"];

/// Whether the bytes of the input are its items as they are, or text that may be compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// The input is read as it is.
    Binary,
    /// Text whose items contain no NUL bytes.
    Text,
    /// Text whose items end with NUL bytes.
    NulSeparated,
}

/// An input whose first bytes have been read.
pub(super) struct Recognised {
    pub(super) text: Box<dyn Read + Send>,
    pub(super) is_compressed: bool,
}

/// Reads the first bytes. Returns the text, decompressed and without a byte order mark; an error if it isn't text.
pub(super) fn recognise(input: Box<dyn Read + Send>, form: Form) -> io::Result<Recognised> {
    if form == Form::Binary {
        return Ok(Recognised { text: input, is_compressed: false });
    }
    let (head, input) = peek(input)?;
    let (format, decoded): (_, Box<dyn Read + Send>) = if head.starts_with(GZIP) {
        ("gzip", Box::new(MultiGzDecoder::new(BufReader::new(input))))
    } else if head.starts_with(ZSTD) || head.get(1..4) == Some(ZSTD_SKIPPABLE) && head[0] >> 4 == 5 {
        ("zstd", Box::new(Frames::new(BufReader::new(input))))
    } else {
        return Ok(Recognised { text: text(head, input, form)?, is_compressed: false });
    };
    let (head, decoded) = peek(Decoded { format, decoded })?;
    Ok(Recognised { text: text(head, decoded, form)?, is_compressed: true })
}

/// Reads the head of the input. Returns it, and the input with the head.
fn peek(mut input: impl Read + Send + 'static) -> io::Result<(Vec<u8>, impl Read + Send + 'static)> {
    let mut head = Vec::new();
    input.by_ref().take(HEAD as u64).read_to_end(&mut head)?;
    // A terminal that has ended would wait for more lines if it were read again.
    let has_ended = head.len() < HEAD;
    let rest: Box<dyn Read + Send> = if has_ended { Box::new(io::empty()) } else { Box::new(input) };
    Ok((head.clone(), Cursor::new(head).chain(rest)))
}

/// Returns the input without its byte order mark. Fails if the head isn't that of a text.
fn text(
    head: Vec<u8>,
    mut input: impl Read + Send + 'static,
    form: Form,
) -> io::Result<Box<dyn Read + Send>> {
    let is_bzip2 = |head: &[u8]| {
        head.get(3).is_some_and(u8::is_ascii_digit)
            && BZIP2_MARKS.iter().any(|mark| head[4..].starts_with(mark))
    };
    let other = OTHERS
        .iter()
        .find(|(magic, ..)| head.starts_with(magic) && (*magic != b"BZh" || is_bzip2(&head)))
        .map(|(_, what, way_out)| (*what, *way_out));
    let has_nul = form == Form::Text && head.contains(&0);
    let nul = ("data with NUL bytes", "If items end with NUL bytes, use -0");
    if let Some((what, way_out)) = other.or(has_nul.then_some(nul)) {
        let text = format!("it is {what}, not text. {way_out}; to read its bytes as items, use --binary");
        return Err(Error::new(ErrorKind::InvalidData, text));
    }
    if head.starts_with(UTF8_MARK) {
        input.read_exact(&mut [0; UTF8_MARK.len()])?;
    }
    Ok(Box::new(input))
}

/// Decompressed data, whose errors name the format.
struct Decoded {
    format: &'static str,
    decoded: Box<dyn Read + Send>,
}

impl Read for Decoded {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.decoded.read(buffer).map_err(|error| match error.kind() {
            ErrorKind::Interrupted => error,
            kind => Error::new(kind, format!("its {} data is damaged, or ends early: {error}", self.format)),
        })
    }
}
