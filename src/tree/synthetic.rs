//! A repository made up for a check: one commit, by a fixed author at a given date, whose tree is the snapshot's, and an
//! index that agrees with the files as they are laid out. It tells nothing of the repository that the tree came from: no
//! other commit, no name, no remote. Only its bytes are made here (gitformat-pack(5), gitformat-index(5)); where they go is
//! the caller's business.
#![forbid(unsafe_code)]

use crate::tree::error::TreeError;
use crate::tree::listing::{self, Leaf};
use crate::tree::{BlobReader, Content, Entry, EntryKind, Snapshot, git_id, objects};
use gix::objs::Kind;
use std::collections::{HashMap, HashSet};
use std::io::{self, Write};

/// Who made the commit.
const AUTHOR: &str = "checkrun <checkrun@localhost>";

/// The branch that HEAD is on.
const BRANCH: &str = "refs/heads/main";

/// A file of the `.git` folder.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RepositoryFile {
    /// Path below `.git`.
    pub path: String,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

impl Snapshot {
    /// Writes all objects of a repository with one commit of this tree, made at `date` in seconds since 1970, as one pack to
    /// `pack`; gives the other files, the pack's own index as `objects/pack/NAME.idx` among them. The index holds for files
    /// whose time is `date`, if its own time is later.
    ///
    /// # Errors
    /// An object cannot be read, or the pack not be written.
    pub fn synthetic_repository(
        &self,
        date: i64,
        name: &str,
        pack: &mut dyn Write,
    ) -> Result<Vec<RepositoryFile>, TreeError> {
        let root = git_id(&self.identity.tree)?;
        let hash = root.kind();
        let entries = self.entries()?;
        let commit = format!(
            "tree {root}\nauthor {AUTHOR} {date} +0000\ncommitter {AUTHOR} {date} +0000\n\nThe tree under check\n"
        );
        let mut wanted: HashSet<&[u8]> = HashSet::new();
        let files: Vec<&Entry> = entries
            .iter()
            .filter(|entry| !matches!(entry.kind, EntryKind::Folder | EntryKind::Submodule))
            .filter(|entry| wanted.insert(entry.id.as_bytes()))
            .collect();
        let trees = self.trees(&entries, root)?;
        let count = files.len() + trees.len() + 1;
        let mut packing = Packing::start(pack, hash, count).map_err(unwritten)?;
        let head = packing.add(Kind::Commit, commit.as_bytes(), None)?;
        for (id, bytes) in &trees {
            packing.add(Kind::Tree, bytes, Some(*id))?;
        }
        let mut sizes = HashMap::with_capacity(files.len());
        let mut reader: BlobReader = self.reader();
        let mut bytes = Vec::new();
        for entry in files {
            reader.read(&entry.id, &mut bytes)?;
            sizes.insert(entry.id.as_bytes(), bytes.len());
            packing.add(Kind::Blob, &bytes, Some(git_id(&entry.id)?))?;
        }
        let pack_index = packing.finish()?;
        let file = |path: &str, bytes: Vec<u8>| RepositoryFile { path: path.to_owned(), bytes };
        Ok(vec![
            file("HEAD", format!("ref: {BRANCH}\n").into_bytes()),
            file(BRANCH, format!("{head}\n").into_bytes()),
            file("config", config(hash).into_bytes()),
            file("index", index(&entries, &sizes, date, hash)?),
            file(&format!("objects/pack/{name}.idx"), pack_index),
        ])
    }

    /// All tree objects, the root's among them, by id and without doubles.
    fn trees(
        &self,
        entries: &[Entry],
        root: gix::ObjectId,
    ) -> Result<HashMap<gix::ObjectId, Vec<u8>>, TreeError> {
        let mut trees = HashMap::new();
        if let (Content::Objects(_), Some(repository)) = (&self.content, &self.repository) {
            let folders = entries.iter().filter(|entry| entry.kind == EntryKind::Folder);
            let ids = folders.map(|entry| git_id(&entry.id)).chain([Ok(root)]);
            for id in ids {
                let id = id?;
                let mut bytes = Vec::new();
                objects::load(repository, &id, &mut bytes, &|| "a folder".to_owned())?;
                trees.insert(id, bytes);
            }
            return Ok(trees);
        }
        let leaves = entries
            .iter()
            .filter(|entry| entry.kind != EntryKind::Folder)
            .map(|entry| Ok(Leaf { path: entry.path.clone(), kind: entry.kind, id: git_id(&entry.id)? }));
        let leaves = leaves.collect::<Result<_, TreeError>>()?;
        listing::build_into(leaves, root.kind(), &mut |id, bytes| drop(trees.insert(id, bytes.to_vec())))?;
        Ok(trees)
    }
}

fn unwritten(error: io::Error) -> TreeError {
    TreeError::io("write", "the pack of the synthetic repository", error)
}

/// Size and time are all that is compared of a file: inode numbers and the time of the last change of an inode are those of
/// the machine, and another in each run.
fn config(hash: gix::hash::Kind) -> String {
    let core = "\tbare = false\n\tfilemode = true\n\ttrustctime = false\n\tcheckStat = minimal\n";
    if hash == gix::hash::Kind::Sha1 {
        format!("[core]\n\trepositoryformatversion = 0\n{core}")
    } else {
        format!("[core]\n\trepositoryformatversion = 1\n{core}[extensions]\n\tobjectFormat = {hash}\n")
    }
}

/// An index of version 2 of all files, links and submodules.
fn index(
    entries: &[Entry],
    sizes: &HashMap<&[u8], usize>,
    date: i64,
    hash: gix::hash::Kind,
) -> Result<Vec<u8>, TreeError> {
    let mut files: Vec<&Entry> = entries.iter().filter(|entry| entry.kind != EntryKind::Folder).collect();
    files.sort_unstable_by(|a, b| a.path.cmp(&b.path));
    let mut bytes = b"DIRC\0\0\0\x02".to_vec();
    bytes.extend(number(files.len()).to_be_bytes());
    let time = u32::try_from(date & 0xffff_ffff).unwrap_or(0);
    for entry in files {
        let start = bytes.len();
        let mode: u32 = match entry.kind {
            EntryKind::Executable => 0o100_755,
            EntryKind::Symlink => 0o120_000,
            EntryKind::Submodule => 0o160_000,
            EntryKind::File | EntryKind::Folder => 0o100_644,
        };
        let size = sizes.get(entry.id.as_bytes()).map_or(0, |size| number(*size));
        // Times of inode and content, device, inode, mode, user, group, size.
        for field in [time, 0, time, 0, 0, 0, mode, 0, 0, size] {
            bytes.extend(field.to_be_bytes());
        }
        bytes.extend(entry.id.as_bytes());
        bytes.extend(u16::try_from(entry.path.len().min(0xfff)).unwrap_or(0xfff).to_be_bytes());
        bytes.extend(&entry.path);
        // At least one NUL, up to a multiple of eight.
        let length = bytes.len() - start;
        bytes.resize(start + length / 8 * 8 + 8, 0);
    }
    let sum = sum_of(hash, &bytes)?;
    bytes.extend(sum.as_bytes());
    Ok(bytes)
}

/// The low 32 bits.
fn number(value: usize) -> u32 {
    u32::try_from(value & 0xffff_ffff).unwrap_or(0)
}

fn sum_of(hash: gix::hash::Kind, bytes: &[u8]) -> Result<gix::ObjectId, TreeError> {
    let mut hasher = gix::hash::hasher(hash);
    hasher.update(bytes);
    finished(hasher)
}

fn finished(hasher: gix::hash::Hasher) -> Result<gix::ObjectId, TreeError> {
    hasher.try_finalize().map_err(|_| TreeError::Collision { path: ".git".to_owned() })
}

/// A pack in the making.
struct Packing<'a> {
    out: &'a mut dyn Write,
    hash: gix::hash::Kind,
    hasher: gix::hash::Hasher,
    written: u64,
    /// Id, checksum and place of each object.
    objects: Vec<(gix::ObjectId, u32, u64)>,
    buffer: Vec<u8>,
}

impl<'a> Packing<'a> {
    fn start(out: &'a mut dyn Write, hash: gix::hash::Kind, count: usize) -> io::Result<Self> {
        let mut packing = Self {
            out,
            hash,
            hasher: gix::hash::hasher(hash),
            written: 0,
            objects: Vec::with_capacity(count),
            buffer: Vec::new(),
        };
        let count = u32::try_from(count).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
        packing.put(b"PACK\0\0\0\x02")?;
        packing.put(&count.to_be_bytes())?;
        Ok(packing)
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.hasher.update(bytes);
        self.written += u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        self.out.write_all(bytes)
    }

    fn add(
        &mut self,
        kind: Kind,
        bytes: &[u8],
        id: Option<gix::ObjectId>,
    ) -> Result<gix::ObjectId, TreeError> {
        let id = match id {
            Some(id) => id,
            None => gix::objs::compute_hash(self.hash, kind, bytes)
                .map_err(|_| TreeError::Collision { path: ".git".to_owned() })?,
        };
        let mut packed = std::mem::take(&mut self.buffer);
        packed.clear();
        header(kind, bytes.len(), &mut packed);
        let mut deflate = gix::zlib::stream::deflate::Write::new(packed, gix::zlib::Compression::BEST_SPEED);
        deflate.write_all(bytes).and_then(|()| deflate.flush()).map_err(unwritten)?;
        let packed = deflate.into_inner();
        self.objects.push((id, crc32(&packed), self.written));
        self.put(&packed).map_err(unwritten)?;
        self.buffer = packed;
        Ok(id)
    }

    /// Ends the pack and gives its index, of version 2.
    fn finish(mut self) -> Result<Vec<u8>, TreeError> {
        let sum = finished(self.hasher)?;
        self.out.write_all(sum.as_bytes()).and_then(|()| self.out.flush()).map_err(unwritten)?;
        self.objects.sort_unstable();
        let mut bytes = b"\xfftOc\0\0\0\x02".to_vec();
        for first in 0..=u8::MAX {
            let up_to = self.objects.partition_point(|(id, ..)| id.as_bytes().first() <= Some(&first));
            bytes.extend(number(up_to).to_be_bytes());
        }
        self.objects.iter().for_each(|(id, ..)| bytes.extend(id.as_bytes()));
        self.objects.iter().for_each(|(_, crc, _)| bytes.extend(crc.to_be_bytes()));
        // Places past 31 bits are in a table of their own, which the highest bit points to.
        let mut far: Vec<u64> = Vec::new();
        for (.., place) in &self.objects {
            let near = u32::try_from(*place).ok().filter(|place| *place < 1 << 31);
            let field = near.unwrap_or_else(|| {
                far.push(*place);
                (1 << 31) | number(far.len() - 1)
            });
            bytes.extend(field.to_be_bytes());
        }
        far.iter().for_each(|place| bytes.extend(place.to_be_bytes()));
        bytes.extend(sum.as_bytes());
        let own = sum_of(self.hash, &bytes)?;
        bytes.extend(own.as_bytes());
        Ok(bytes)
    }
}

/// Kind and length of an object, four bits of the length first, then seven at a time.
fn header(kind: Kind, length: usize, out: &mut Vec<u8>) {
    let kind: u8 = match kind {
        Kind::Commit => 1,
        Kind::Tree => 2,
        Kind::Blob => 3,
        Kind::Tag => 4,
    };
    let low = |value: usize, bits: usize| u8::try_from(value & ((1 << bits) - 1)).unwrap_or(0);
    let mut rest = length >> 4;
    let more = |rest: usize| if rest > 0 { 0x80 } else { 0 };
    out.push(more(rest) | kind << 4 | low(length, 4));
    while rest > 0 {
        let byte = low(rest, 7);
        rest >>= 7;
        out.push(more(rest) | byte);
    }
}

/// CRC-32 as zlib has it, by the byte.
fn crc32(bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = table();
    let step = |crc: u32, byte: &u8| {
        let [low, ..] = crc.to_le_bytes();
        TABLE[usize::from(low ^ byte)] ^ (crc >> 8)
    };
    !bytes.iter().fold(u32::MAX, step)
}

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut at = 0_u32;
    let mut slot = 0;
    while slot < 256 {
        let mut crc = at;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { 0xedb8_8320 ^ (crc >> 1) } else { crc >> 1 };
            bit += 1;
        }
        table[slot] = crc;
        slot += 1;
        at += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_zlib() {
        assert_eq!((crc32(b""), crc32(b"123456789")), (0, 0xcbf4_3926));
    }

    #[test]
    fn lengths_are_written_as_git_reads_them() {
        let of = |length| {
            let mut bytes = Vec::new();
            header(Kind::Blob, length, &mut bytes);
            bytes
        };
        assert_eq!((of(0), of(15)), (vec![0x30], vec![0x3f]));
        assert_eq!((of(16), of(0x7ff)), (vec![0xb0, 1], vec![0xbf, 0x7f]));
        assert_eq!(of(0x800), vec![0xb0, 0x80, 1]);
    }
}
