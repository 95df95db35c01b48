//! Bytes → lines of bounded length, with a running digest.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use retrytoll_core::decode::PAYLOAD_BYTES_MAX;
use xxhash_rust::xxh3::Xxh3;

/// Bytes read at a time.
const BUFFER_BYTES: usize = 256 << 10;
const GZIP: &[u8] = &[0x1f, 0x8b];
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];

/// One line of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// Its number, from 0; blank lines count.
    pub number: i64,
    /// Without its end; of an overlong line, the beginning.
    pub bytes: &'a [u8],
    /// Over this line and all before it, 63 bits.
    pub digest: i64,
    /// A line feed ended it. Only the last line of a file may lack it.
    pub is_ended: bool,
}

impl Line<'_> {
    /// It holds white space at most.
    #[must_use]
    pub fn is_blank(&self) -> bool {
        self.bytes.trim_ascii().is_empty()
    }

    /// A last line that is still being written: without its end, and no whole JSON text.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        let is_json = || serde_json::from_slice::<serde::de::IgnoredAny>(self.bytes).is_ok();
        !self.is_ended && !self.is_blank() && !is_json()
    }
}

/// The lines of a file, each hashed as it is read.
pub struct Lines {
    reader: Box<dyn BufRead + Send>,
    buffer: Vec<u8>,
    next: i64,
    hash: Xxh3,
}

/// Opens a file, or stdin for `-`, whatever its compression.
pub fn open(path: &Path) -> io::Result<Lines> {
    if path.as_os_str() == "-" {
        return Lines::new(Box::new(io::stdin()));
    }
    Lines::new(Box::new(File::open(path)?))
}

impl Lines {
    pub fn new(raw: Box<dyn Read + Send>) -> io::Result<Self> {
        let mut raw = BufReader::with_capacity(BUFFER_BYTES, raw);
        let head = raw.fill_buf()?;
        let reader: Box<dyn BufRead + Send> = if head.starts_with(GZIP) {
            let decoder = flate2::bufread::MultiGzDecoder::new(raw);
            Box::new(BufReader::with_capacity(BUFFER_BYTES, decoder))
        } else if head.starts_with(ZSTD) {
            let decoder = zstd::Decoder::with_buffer(raw)?;
            Box::new(BufReader::with_capacity(BUFFER_BYTES, decoder))
        } else {
            Box::new(raw)
        };
        Ok(Self {
            reader,
            buffer: Vec::new(),
            next: 0,
            hash: Xxh3::new(),
        })
    }

    /// The next line. Memory is bounded: of a line above the payload's bound only as much is
    /// kept as shows that it is too large.
    pub fn next_line(&mut self) -> io::Result<Option<Line<'_>>> {
        self.buffer.clear();
        let mut is_ended = false;
        let mut any = false;
        while !is_ended {
            let chunk = self.reader.fill_buf()?;
            if chunk.is_empty() {
                break;
            }
            any = true;
            let end = chunk.iter().position(|byte| *byte == b'\n');
            let taken = end.map_or(chunk.len(), |at| at + 1);
            let text = &chunk[..end.unwrap_or(chunk.len())];
            let room = (PAYLOAD_BYTES_MAX + 1).saturating_sub(self.buffer.len());
            self.buffer.extend_from_slice(&text[..text.len().min(room)]);
            self.hash.update(text);
            is_ended = end.is_some();
            self.reader.consume(taken);
        }
        if !any {
            return Ok(None);
        }
        // The end of a line is not hashed as read: a last line may get its end later.
        self.hash.update(b"\n");
        let number = self.next;
        self.next += 1;
        let bytes = self.buffer.strip_suffix(b"\r").unwrap_or(&self.buffer);
        let digest = (self.hash.digest() >> 1) as i64;
        Ok(Some(Line {
            number,
            bytes,
            digest,
            is_ended,
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn lines(bytes: Vec<u8>) -> (Vec<(i64, Vec<u8>, bool)>, i64) {
        let mut lines = Lines::new(Box::new(io::Cursor::new(bytes))).unwrap();
        let (mut out, mut digest) = (Vec::new(), 0);
        while let Some(line) = lines.next_line().unwrap() {
            out.push((line.number, line.bytes.to_vec(), line.is_ended));
            digest = line.digest;
        }
        (out, digest)
    }

    #[test]
    fn lines_are_numbered_and_the_last_may_lack_its_end() {
        let (found, _) = lines(b"a\r\n\nb".to_vec());
        let expected = [(0, &b"a"[..], true), (1, b"", true), (2, b"b", false)];
        assert_eq!(
            found,
            expected.map(|(number, text, end)| (number, text.to_vec(), end))
        );
        assert_eq!(lines(Vec::new()).0, []);
    }

    #[test]
    fn compression_changes_neither_lines_nor_digest() {
        let text = b"{\"a\":1}\n".repeat(100_000);
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&text).unwrap();
        let plain = lines(text.clone());
        assert_eq!(lines(gzip.finish().unwrap()), plain);
        assert_eq!(lines(zstd::encode_all(&text[..], 1).unwrap()), plain);
        // Files that were compressed apart and put together are one file.
        let half = text.len() / 2;
        let part = |bytes: &[u8]| {
            let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            gzip.write_all(bytes).unwrap();
            gzip.finish().unwrap()
        };
        assert_eq!(
            lines([part(&text[..half]), part(&text[half..])].concat()),
            plain
        );
    }

    #[test]
    fn an_end_that_comes_later_leaves_the_digest() {
        assert_eq!(lines(b"a\nb".to_vec()).1, lines(b"a\nb\n".to_vec()).1);
        assert_ne!(lines(b"a\nb".to_vec()).1, lines(b"ab\n".to_vec()).1);
    }

    #[test]
    fn an_overlong_line_is_kept_to_its_bound() {
        let mut text = vec![b'x'; 8 << 20];
        text.extend_from_slice(b"\nnext\n");
        let (found, _) = lines(text);
        assert_eq!(found[0].1.len(), PAYLOAD_BYTES_MAX + 1);
        assert_eq!(found[1].1, b"next");
    }
}
