//! The vDSO, the page of kernel code by which programs read clocks without a system call: where its functions are
//! in this kernel's, and the bytes that make them show another wall clock. Nothing here touches a process.
#![forbid(unsafe_code)]

use crate::sandbox::sys;
use std::os::unix::fs::FileExt;

/// Which way the three wall clock functions go in a patched vDSO.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Route {
    /// The original code's reading of the boot clock, plus a constant number of nanoseconds.
    Offset {
        /// Whole seconds, floored.
        seconds: i64,
        /// The rest, 0 to 999,999,999.
        nanoseconds: u32,
    },
    /// A system call each time, which the supervisor answers.
    Syscall,
}

/// A patched vDSO, ready to be written over the one of a process.
#[derive(Debug)]
pub(super) struct Patch {
    /// Distance of the first changed byte from the vDSO's start.
    pub(super) at: u64,
    /// All bytes from there to the last changed one.
    pub(super) bytes: Vec<u8>,
}

/// Makes the patch from this process's own vDSO, which is the same in every process of the machine (vdso(7)).
/// `None` where there is none, or no room in it.
pub(super) fn patch(route: Route) -> Option<Patch> {
    let image = own_image()?;
    let stub = sys::clock_stub()?;
    let clock_gettime = symbol(&image, b"__vdso_clock_gettime")?;
    let used = image.len() - image.iter().rev().take_while(|byte| **byte == 0).count();
    // A little distance, since a table may well end in a zero that counts.
    let place = (used + 64).next_multiple_of(16);
    if place + stub.code.len() > image.len() {
        return None;
    }
    let mut new = image.clone();
    new[place..place + stub.code.len()].copy_from_slice(stub.code);
    let moved = movable_prefix(image.get(clock_gettime..)?);
    // Where the kernel's own code cannot be moved, each reading is a system call: slower, and as right.
    let route = if moved.is_some() { route } else { Route::Syscall };
    let original = place + stub.original;
    match moved {
        Some(length) => {
            let (from, to) = (clock_gettime, original);
            new.copy_within(from..from + length, to);
            write_jump(&mut new, original + 16, clock_gettime + length)?;
        }
        None => {
            // mov eax, 228; syscall; ret: slower, and right for every clock.
            new[original..original + 8].copy_from_slice(&[0xb8, 228, 0, 0, 0, 0x0f, 0x05, 0xc3]);
        }
    }
    let (seconds, nanoseconds, by_syscall) = match route {
        Route::Offset { seconds, nanoseconds } => (seconds, i64::from(nanoseconds), 0_i64),
        Route::Syscall => (0, 0, 1),
    };
    for (at, word) in
        [(stub.seconds, seconds), (stub.nanoseconds, nanoseconds), (stub.by_syscall, by_syscall)]
    {
        new[place + at..place + at + 8].copy_from_slice(&word.to_le_bytes());
    }
    write_jump(&mut new, clock_gettime, place)?;
    for (name, at) in [(&b"__vdso_gettimeofday"[..], stub.gettimeofday), (&b"__vdso_time"[..], stub.time)] {
        if let Some(function) = symbol(&image, name) {
            write_jump(&mut new, function, place + at)?;
        }
    }
    let first = new.iter().zip(&image).position(|(a, b)| a != b)?;
    let last = new.iter().zip(&image).rposition(|(a, b)| a != b)?;
    Some(Patch { at: u64::try_from(first).ok()?, bytes: new[first..=last].to_vec() })
}

/// jmp rel32.
fn write_jump(code: &mut [u8], at: usize, to: usize) -> Option<()> {
    let distance = i32::try_from(i64::try_from(to).ok()? - i64::try_from(at + 5).ok()?).ok()?;
    let slot = code.get_mut(at..at + 5)?;
    slot[0] = 0xe9;
    slot[1..].copy_from_slice(&distance.to_le_bytes());
    Some(())
}

/// Length of the whole instructions at the head of a function that cover the five bytes of a jump, where all of them
/// mean the same at another place. Only what compilers put at the head of a function is known; anything else is
/// `None`, and the slower route is taken.
fn movable_prefix(code: &[u8]) -> Option<usize> {
    let mut length = 0;
    while length < 5 {
        length += match code.get(length..)? {
            [0xf3, 0x0f, 0x1e, 0xfa, ..] | [0x48, 0x83, 0xec, _, ..] => 4, // endbr64; sub rsp, imm8
            [0x48, 0x89, 0xe5, ..] | [0x48 | 0x49 | 0x4c | 0x4d, 0x89, 0xc0..=0xff, ..] => 3, // mov r64, r64
            [0x41, 0x50..=0x57, ..] | [0x89 | 0x31 | 0x85, 0xc0..=0xff, ..] => 2, // push r8-r15; mov/xor/test r32
            [0x50..=0x57, ..] => 1,                                               // push
            [0x83, 0xff, _, ..] => 3,                                             // cmp edi, imm8
            _ => return None,
        };
    }
    (length <= 16).then_some(length)
}

fn own_image() -> Option<Vec<u8>> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let line = maps.lines().find(|line| line.ends_with("[vdso]"))?;
    let (start, end) = line.split(' ').next()?.split_once('-')?;
    let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
    let mut image = vec![0; usize::try_from(end.checked_sub(start)?).ok()?];
    std::fs::File::open("/proc/self/mem").ok()?.read_exact_at(&mut image, start).ok()?;
    Some(image)
}

/// Offset of a function, from the dynamic symbol table (elf(5); all of the vDSO's sections are in its one segment at
/// their file offsets).
fn symbol(image: &[u8], name: &[u8]) -> Option<usize> {
    let word = |at: usize, size: usize| -> Option<usize> {
        let mut bytes = [0_u8; 8];
        bytes[..size].copy_from_slice(image.get(at..at + size)?);
        usize::try_from(u64::from_le_bytes(bytes)).ok()
    };
    let (table, size, count) = (word(0x28, 8)?, word(0x3a, 2)?, word(0x3c, 2)?);
    let section =
        |kind: usize| (0..count).map(|index| table + index * size).find(|at| word(at + 4, 4) == Some(kind));
    // SHT_DYNSYM is 11; its sh_link names the string table.
    let symbols = section(11)?;
    let strings = table + word(symbols + 0x28, 4)? * size;
    let (symbols_at, symbols_size, strings_at) =
        (word(symbols + 0x18, 8)?, word(symbols + 0x20, 8)?, word(strings + 0x18, 8)?);
    (0..symbols_size / 24).map(|index| symbols_at + index * 24).find_map(|at| {
        let text = image.get(strings_at + word(at, 4)?..)?;
        let found = text.starts_with(name) && text.get(name.len()) == Some(&0);
        found.then(|| word(at + 8, 8))?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_instructions_are_moved() {
        assert_eq!(movable_prefix(&[0x55, 0x48, 0x89, 0xe5, 0x41, 0x56, 0]), Some(6));
        assert_eq!(movable_prefix(&[0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0x48]), Some(5));
        // A relative jump means something else elsewhere.
        assert_eq!(movable_prefix(&[0xe9, 0, 0, 0, 0, 0]), None);
        assert_eq!(movable_prefix(&[0x55]), None);
    }

    #[test]
    fn this_kernels_vdso_can_be_patched_at_full_speed() {
        let image = own_image().expect("a vDSO");
        let entry = symbol(&image, b"__vdso_clock_gettime").expect("its function");
        assert!(movable_prefix(&image[entry..]).is_some(), "{:x?}", &image[entry..entry + 16]);
        let patch = patch(Route::Offset { seconds: -10, nanoseconds: 5 }).expect("room in it");
        let jump = usize::try_from(u64::try_from(entry).unwrap() - patch.at).unwrap();
        assert_eq!(patch.bytes.get(jump), Some(&0xe9));
    }
}
