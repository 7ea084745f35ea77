//! A client that costs little: requests are encoded in advance, and replies are skipped, except for the number of yes
//! answers and the first error.

use std::io::{self, BufRead, BufReader, Write};
use std::net::TcpStream;

/// Requests, ready to be sent.
#[derive(Clone, Default)]
pub struct Batch {
    bytes: Vec<u8>,
    /// Number of commands in the batch.
    pub commands: u64,
    /// Number of items in all commands together.
    pub items: u64,
}

impl Batch {
    /// Appends a command about `items` items.
    pub fn push<A: AsRef<[u8]>>(&mut self, arguments: &[A], items: u64) {
        self.begin(arguments.len(), items);
        arguments.iter().for_each(|argument| self.argument(argument.as_ref()));
    }

    /// Appends the beginning of a command. [`argument`](Batch::argument) must then be called `arguments` times.
    pub fn begin(&mut self, arguments: usize, items: u64) {
        self.bytes.extend_from_slice(format!("*{arguments}\r\n").as_bytes());
        self.commands += 1;
        self.items += items;
    }

    /// Appends an argument.
    pub fn argument(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(format!("${}\r\n", bytes.len()).as_bytes());
        self.bytes.extend_from_slice(bytes);
        self.bytes.extend_from_slice(b"\r\n");
    }
}

/// A summary of the replies to a batch.
#[derive(Default, Debug, Clone, PartialEq, Eq)]
pub struct Tally {
    /// The number of yes answers: the sum of integers, booleans and set bits in bulk strings.
    pub yes: u64,
    /// The first error, if there was one.
    pub error: Option<String>,
}

/// One pipelined connection.
pub struct Connection {
    reader: BufReader<TcpStream>,
    scratch: Vec<u8>,
}

impl Connection {
    /// Connects.
    pub fn open(port: u16) -> io::Result<Connection> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        Ok(Connection { reader: BufReader::with_capacity(1 << 16, stream), scratch: Vec::new() })
    }

    /// Sends a batch and reads its replies while it is being sent, as a pipelining client does.
    pub fn run(&mut self, batch: &Batch) -> io::Result<Tally> {
        let mut writer = self.reader.get_ref().try_clone()?;
        std::thread::scope(|scope| {
            let sent = scope.spawn(move || writer.write_all(&batch.bytes));
            let mut tally = Tally::default();
            for _ in 0..batch.commands {
                self.skip_reply(&mut tally)?;
            }
            sent.join().expect("writing does not panic")?;
            Ok(tally)
        })
    }

    /// Sends a batch, then reads its replies. This is for batches that fit into a socket's buffer.
    pub fn round_trip(&mut self, batch: &Batch) -> io::Result<Tally> {
        self.reader.get_mut().write_all(&batch.bytes)?;
        let mut tally = Tally::default();
        (0..batch.commands).try_for_each(|_| self.skip_reply(&mut tally))?;
        Ok(tally)
    }

    fn skip_reply(&mut self, tally: &mut Tally) -> io::Result<()> {
        let mut open = 1u64; // replies that are still to come, including those inside arrays
        while open > 0 {
            open -= 1;
            self.scratch.clear();
            self.reader.read_until(b'\n', &mut self.scratch)?;
            let Some((kind, rest)) = self.scratch.split_first() else {
                return Err(io::ErrorKind::UnexpectedEof.into());
            };
            let text = || String::from_utf8_lossy(rest).trim().to_owned();
            let number = || text().parse::<i64>().map_err(io::Error::other);
            match kind {
                b':' => match rest {
                    b"0\r\n" => {}
                    b"1\r\n" => tally.yes += 1,
                    _ => tally.yes += number()?.max(0) as u64,
                },
                b'#' => tally.yes += u64::from(rest.first() == Some(&b't')),
                b'*' => open += number()?.max(0) as u64,
                b'$' => {
                    let length = number()?;
                    if length >= 0 {
                        tally.yes += self.take_bulk(length as usize)?;
                    }
                }
                b'-' => tally.error = tally.error.take().or_else(|| Some(text())),
                _ => {}
            }
        }
        Ok(())
    }

    /// Reads a bulk string and its line end, and returns the number of its set bits.
    fn take_bulk(&mut self, length: usize) -> io::Result<u64> {
        let mut left = length;
        let mut ones = 0;
        while left > 0 {
            let buffer = self.reader.fill_buf()?;
            if buffer.is_empty() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let taken = left.min(buffer.len());
            ones += buffer[..taken].iter().map(|byte| u64::from(byte.count_ones())).sum::<u64>();
            self.reader.consume(taken);
            left -= taken;
        }
        io::copy(&mut io::Read::take(&mut self.reader, 2), &mut io::sink())?;
        Ok(ones)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// The result of a connection that receives these bytes as the replies to `commands` commands.
    fn tally(commands: usize, replies: &'static [u8]) -> Tally {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let mut connection =
            Connection::open(listener.local_addr().expect("an address").port()).expect("listening");
        listener.accept().expect("a connection").0.write_all(replies).expect("a buffer");
        let mut batch = Batch::default();
        (0..commands).for_each(|_| batch.push(&["PING"], 1));
        connection.run(&batch).expect("complete replies")
    }

    #[test]
    fn answers_of_every_form_are_counted() {
        assert_eq!(tally(3, b":1\r\n:0\r\n:40\r\n").yes, 41);
        assert_eq!(tally(2, b"*3\r\n:1\r\n*2\r\n#t\r\n#f\r\n:1\r\n:1\r\n").yes, 4);
        assert_eq!(tally(2, b"$2\r\n\x81\xff\r\n$-1\r\n").yes, 10);
    }

    #[test]
    fn the_first_error_is_kept() {
        let said = tally(3, b"*2\r\n:1\r\n-ERR one\r\n-ERR two\r\n+OK\r\n");
        assert_eq!(said, Tally { yes: 1, error: Some("ERR one".to_owned()) });
    }

    #[test]
    fn requests_are_arrays_of_bulk_strings() {
        let mut batch = Batch::default();
        batch.push(&["GET", "ada"], 1);
        assert_eq!(batch.bytes, b"*2\r\n$3\r\nGET\r\n$3\r\nada\r\n");
    }
}
