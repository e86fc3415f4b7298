//! The vDSO, the page of kernel code by which programs read clocks without a system call: where its functions are
//! in this kernel's, and the bytes that make them show another wall clock. Nothing here touches a process. What differs
//! between architectures is in a file for each, the new code beside it.
#![forbid(unsafe_code)]

#[cfg(any(target_arch = "aarch64", test))]
#[cfg_attr(not(target_arch = "aarch64"), expect(dead_code, reason = "elsewhere only its tests run"))]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
use aarch64 as native;
#[cfg(target_arch = "x86_64")]
use x86_64 as native;

use crate::sandbox::sys;

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
    /// What the kernel has there.
    pub(super) original: Vec<u8>,
}

/// Makes the patch from this process's own vDSO, which is the same in every process of the machine (vdso(7)).
/// `None` where there is none, or no room in it.
pub(super) fn patch(route: Route) -> Option<Patch> {
    let image = own_image()?;
    let stub = sys::clock_stub()?;
    let (clock_gettime, _) = symbol(&image, native::CLOCK_GETTIME)?;
    let place = room(&image, stub.code.len())?;
    let mut new = image.clone();
    new[place..place + stub.code.len()].copy_from_slice(stub.code);
    let moved = native::movable_prefix(image.get(clock_gettime..)?);
    // Where the kernel's own code cannot be moved, each reading is a system call: slower, and as right.
    let route = if moved.is_some() { route } else { Route::Syscall };
    let original = place + stub.original;
    match moved {
        Some(length) => {
            let (from, to) = (clock_gettime, original);
            new.copy_within(from..from + length, to);
            native::write_jump(&mut new, original + 16, clock_gettime + length)?;
        }
        None => {
            // Slower, and right for every clock.
            new[original..original + native::BY_SYSCALL.len()].copy_from_slice(&native::BY_SYSCALL);
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
    native::divert(&mut new, clock_gettime, place)?;
    for (name, at) in [(native::GETTIMEOFDAY, Some(stub.gettimeofday)), (native::TIME, stub.time)] {
        if let (Some((function, _)), Some(at)) = (symbol(&image, name), at) {
            native::divert(&mut new, function, place + at)?;
        }
    }
    let first = new.iter().zip(&image).position(|(a, b)| a != b)?;
    let last = new.iter().zip(&image).rposition(|(a, b)| a != b)?;
    let part = |image: &[u8]| image[first..=last].to_vec();
    Some(Patch { at: u64::try_from(first).ok()?, bytes: part(&new), original: part(&image) })
}

/// Where new code of so many bytes can lie. Best over the rest of `gettimeofday`, which has no way into its middle and is
/// diverted at its head: it is near the other functions, and each page that is written is one that every process has to
/// have for itself. Else behind everything that is there.
fn room(image: &[u8], length: usize) -> Option<usize> {
    if let Some((function, size)) = symbol(image, native::GETTIMEOFDAY) {
        let place = (function + 16).next_multiple_of(16);
        if place + length <= function + size {
            return Some(place);
        }
    }
    let used = image.len() - image.iter().rev().take_while(|byte| **byte == 0).count();
    // A little distance, since a table may well end in a zero that counts.
    let place = (used + 64).next_multiple_of(16);
    (place + length <= image.len()).then_some(place)
}

fn own_image() -> Option<Vec<u8>> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let line = maps.lines().find(|line| line.ends_with("[vdso]"))?;
    let (start, end) = line.split(' ').next()?.split_once('-')?;
    let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
    let mut image = vec![0; usize::try_from(end.checked_sub(start)?).ok()?];
    // Unlike /proc/self/mem, this is open to a process that nobody else may look into (ptrace(2), access modes).
    let read = sys::read_memory(std::process::id(), start, &mut image).ok()?;
    (read == image.len()).then_some(image)
}

/// Offset and length of a function, from the dynamic symbol table (elf(5); all of the vDSO's sections are in its one segment at
/// their file offsets).
fn symbol(image: &[u8], name: &[u8]) -> Option<(usize, usize)> {
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
        if found { Some((word(at + 8, 8)?, word(at + 16, 8)?)) } else { None }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_kernels_vdso_can_be_patched_at_full_speed() {
        let image = own_image().expect("a vDSO");
        let (entry, _) = symbol(&image, native::CLOCK_GETTIME).expect("its function");
        assert!(native::movable_prefix(&image[entry..]).is_some(), "{:x?}", &image[entry..entry + 16]);
        let patch = patch(Route::Offset { seconds: -10, nanoseconds: 5 }).expect("room in it");
        let mut new = image.clone();
        let at = usize::try_from(patch.at).unwrap();
        new[at..at + patch.bytes.len()].copy_from_slice(&patch.bytes);
        assert_ne!(new[entry..entry + 8], image[entry..entry + 8]);
    }
}
