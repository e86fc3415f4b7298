//! A check's two streams, cut into lines as they come. What a line says is for the rooms that read it.
#![forbid(unsafe_code)]

/// The unfinished lines of both streams.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Lines {
    open: [Vec<u8>; 2],
}

impl Lines {
    /// Takes what was printed, on stderr or stdout, and hands on each line that it ends, without its newline and cut to
    /// `most` bytes; what is not UTF-8 becomes U+FFFD.
    pub fn push(&mut self, stderr: bool, bytes: &[u8], most: usize, mut each: impl FnMut(&str)) {
        let open = &mut self.open[usize::from(stderr)];
        let mut pieces = bytes.split(|byte| *byte == b'\n').peekable();
        while let Some(piece) = pieces.next() {
            let room = most.saturating_sub(open.len());
            open.extend_from_slice(&piece[..piece.len().min(room)]);
            if pieces.peek().is_some() {
                let line = std::mem::take(open);
                each(&String::from_utf8_lossy(&line));
            }
        }
    }

    /// Hands on what stands at the end of each stream without a newline.
    pub fn finish(&mut self, mut each: impl FnMut(&str)) {
        for line in std::mem::take(&mut self.open).iter().filter(|line| !line.is_empty()) {
            each(&String::from_utf8_lossy(line));
        }
    }
}
