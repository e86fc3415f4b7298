//! Reads JSON (RFC 8259) strictly and remembers where every value stands, so that errors can name line and column and
//! a change can leave all else in the file as it was. What the values mean is not asked.
#![forbid(unsafe_code)]

#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::ops::Range;

/// Values within each other. Ledgers have six.
const MAX_DEPTH: usize = 64;

/// A value and where it stands.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Node {
    /// Bytes of the text.
    pub(super) span: Range<usize>,
    pub(super) value: Value,
}

/// What a value is. Numbers stay as they are written.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Number(String),
    Text(String),
    List(Vec<Node>),
    Object(Vec<Member>),
}

/// One member of an object.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Member {
    pub(super) key: String,
    /// Bytes of the key with its quotes.
    pub(super) key_span: Range<usize>,
    pub(super) node: Node,
}

/// What is wrong, and at which byte.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Fault {
    pub(super) at: usize,
    pub(super) problem: String,
}

impl Value {
    /// What it is, for messages.
    pub(super) fn words(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "true or false",
            Self::Number(_) => "a number",
            Self::Text(_) => "a text",
            Self::List(_) => "a list",
            Self::Object(_) => "an object",
        }
    }
}

impl Node {
    /// The member of that name, if this is an object that has it.
    pub(super) fn get(&self, key: &str) -> Option<&Node> {
        match &self.value {
            Value::Object(members) => {
                members.iter().find(|member| member.key == key).map(|member| &member.node)
            }
            _ => None,
        }
    }
}

/// Reads one value that is all of `text`.
pub(super) fn parse(text: &str) -> Result<Node, Fault> {
    let mut reader = Reader { text, bytes: text.as_bytes(), at: 0 };
    reader.blanks();
    let node = reader.value(0)?;
    reader.blanks();
    if reader.at < reader.bytes.len() {
        return Err(reader.fault("something stands after the end of the document"));
    }
    Ok(node)
}

struct Reader<'t> {
    text: &'t str,
    bytes: &'t [u8],
    at: usize,
}

impl Reader<'_> {
    fn fault(&self, problem: impl Into<String>) -> Fault {
        Fault { at: self.at, problem: problem.into() }
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// Says what was wanted where something else, or nothing, stands.
    fn expected(&self, wanted: &str) -> Fault {
        match self.text.get(self.at..).and_then(|rest| rest.chars().next()) {
            None => self.fault(format!("the document ends where {wanted} is expected; it is cut short")),
            Some(found) => {
                self.fault(format!("`{}` stands where {wanted} is expected", found.escape_debug()))
            }
        }
    }

    fn value(&mut self, depth: usize) -> Result<Node, Fault> {
        if depth > MAX_DEPTH {
            return Err(self.fault(format!("more than {MAX_DEPTH} values within each other")));
        }
        let start = self.at;
        let value = match self.peek() {
            Some(b'{') => self.object(depth)?,
            Some(b'[') => self.list(depth)?,
            Some(b'"') => Value::Text(self.text()?),
            Some(b'-' | b'0'..=b'9') => self.number()?,
            Some(b't') => self.word("true", Value::Bool(true))?,
            Some(b'f') => self.word("false", Value::Bool(false))?,
            Some(b'n') => self.word("null", Value::Null)?,
            _ => return Err(self.expected("a value")),
        };
        Ok(Node { span: start..self.at, value })
    }

    fn word(&mut self, word: &str, value: Value) -> Result<Value, Fault> {
        if self.bytes[self.at..].starts_with(word.as_bytes()) {
            self.at += word.len();
            return Ok(value);
        }
        Err(self.expected("a value"))
    }

    fn object(&mut self, depth: usize) -> Result<Value, Fault> {
        self.at += 1;
        let mut members: Vec<Member> = Vec::new();
        let mut names: HashSet<String> = HashSet::new();
        self.blanks();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(Value::Object(members));
        }
        loop {
            self.blanks();
            if self.peek() != Some(b'"') {
                return Err(self.expected("a key in quotes"));
            }
            let start = self.at;
            let key = self.text()?;
            let key_span = start..self.at;
            if !names.insert(key.clone()) {
                let problem = format!("key `{}` is there twice", key.escape_debug());
                return Err(Fault { at: start, problem });
            }
            self.blanks();
            if self.peek() != Some(b':') {
                return Err(self.expected("`:`"));
            }
            self.at += 1;
            self.blanks();
            let node = self.value(depth + 1)?;
            members.push(Member { key, key_span, node });
            if !self.another(b'}')? {
                return Ok(Value::Object(members));
            }
        }
    }

    fn list(&mut self, depth: usize) -> Result<Value, Fault> {
        self.at += 1;
        let mut items = Vec::new();
        self.blanks();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(Value::List(items));
        }
        loop {
            self.blanks();
            items.push(self.value(depth + 1)?);
            if !self.another(b']')? {
                return Ok(Value::List(items));
            }
        }
    }

    /// Takes a comma, or the end of what is open.
    fn another(&mut self, end: u8) -> Result<bool, Fault> {
        self.blanks();
        match self.peek() {
            Some(b',') => {
                self.at += 1;
                Ok(true)
            }
            Some(byte) if byte == end => {
                self.at += 1;
                Ok(false)
            }
            _ => Err(self.expected(&format!("`,` or `{}`", char::from(end)))),
        }
    }

    fn number(&mut self) -> Result<Value, Fault> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        match self.peek() {
            Some(b'0') => self.at += 1,
            Some(b'1'..=b'9') => self.digits()?,
            _ => return Err(self.expected("a digit")),
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(Value::Number(self.text[start..self.at].to_owned()))
    }

    fn digits(&mut self) -> Result<(), Fault> {
        if !matches!(self.peek(), Some(b'0'..=b'9')) {
            return Err(self.expected("a digit"));
        }
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        Ok(())
    }

    fn text(&mut self) -> Result<String, Fault> {
        self.at += 1;
        let mut text = String::new();
        loop {
            let start = self.at;
            while self.peek().is_some_and(|byte| byte >= 0x20 && byte != b'"' && byte != b'\\') {
                self.at += 1;
            }
            text.push_str(&self.text[start..self.at]);
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(text);
                }
                Some(b'\\') => self.escape(&mut text)?,
                Some(_) => {
                    return Err(self.fault("a control character stands in a text; it is written `\\u00…`"));
                }
                None => return Err(self.expected("the end of a text")),
            }
        }
    }

    fn escape(&mut self, text: &mut String) -> Result<(), Fault> {
        let start = self.at;
        self.at += 1;
        let plain = match self.peek() {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                let letter = self.unicode()?;
                let lone = Fault { at: start, problem: "half of a surrogate pair stands alone".to_owned() };
                text.push(char::from_u32(letter).ok_or(lone)?);
                return Ok(());
            }
            _ => return Err(self.expected("the rest of an escape")),
        };
        self.at += 1;
        text.push(plain);
        Ok(())
    }

    /// The code point after `\`, at its `u`; a pair of surrogates is one.
    fn unicode(&mut self) -> Result<u32, Fault> {
        self.at += 1;
        let first = self.four_digits()?;
        let is_high = (0xd800..0xdc00).contains(&first);
        if !is_high || !self.bytes[self.at..].starts_with(b"\\u") {
            return Ok(first);
        }
        self.at += 2;
        let second = self.four_digits()?;
        if !(0xdc00..0xe000).contains(&second) {
            return Ok(first);
        }
        Ok(0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00))
    }

    fn four_digits(&mut self) -> Result<u32, Fault> {
        let mut value = 0;
        for _ in 0..4 {
            let digit = self.peek().and_then(|byte| char::from(byte).to_digit(16));
            value = value * 16 + digit.ok_or_else(|| self.expected("one of four hex digits"))?;
            self.at += 1;
        }
        Ok(value)
    }
}

/// Line and column of a byte, from 1, the column in characters.
pub(super) fn place(text: &str, at: usize) -> (usize, usize) {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    let before = &text[..at];
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    (line, column)
}
