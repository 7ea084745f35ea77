//! Decompresses zstd data.

use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use std::io::{self, BufRead, Error, ErrorKind, Read};

/// The content of all frames of an input. The decoder refuses a window of more than 128 MiB and a block of more than
/// 128 KiB, so its memory doesn't depend on the length of the content.
pub(super) struct Frames<R> {
    source: R,
    decoder: FrameDecoder,
    is_in_frame: bool,
}

impl<R: BufRead> Frames<R> {
    pub(super) fn new(source: R) -> Frames<R> {
        Frames { source, decoder: FrameDecoder::new(), is_in_frame: false }
    }

    /// Reads the header of the next frame. Returns false at the end of the input.
    fn begin(&mut self) -> io::Result<bool> {
        while !self.source.fill_buf()?.is_empty() {
            match self.decoder.init(&mut self.source) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let length = u64::from(length);
                    if io::copy(&mut self.source.by_ref().take(length), &mut io::sink())? < length {
                        return Err(ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(error) => return Err(Error::new(ErrorKind::InvalidData, error.to_string())),
            }
        }
        Ok(false)
    }

    /// Compares the checksum after a frame with that of its content.
    fn end(&mut self) -> io::Result<()> {
        self.is_in_frame = false;
        let declared = self.decoder.get_checksum_from_data();
        if declared.is_some() && declared != self.decoder.get_calculated_checksum() {
            return Err(Error::new(ErrorKind::InvalidData, "its checksum is wrong"));
        }
        Ok(())
    }
}

impl<R: BufRead> Read for Frames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            if !self.is_in_frame {
                if !self.begin()? {
                    return Ok(0);
                }
                self.is_in_frame = true;
            }
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                self.decoder
                    .decode_blocks(&mut self.source, BlockDecodingStrategy::UptoBlocks(1))
                    .map_err(|error| Error::new(ErrorKind::InvalidData, error.to_string()))?;
            }
            let read = self.decoder.read(buffer)?;
            if read > 0 {
                return Ok(read);
            }
            self.end()?;
        }
    }
}
