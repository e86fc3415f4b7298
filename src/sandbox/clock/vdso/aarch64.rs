//! The vDSO's machine code on aarch64: names of its functions, branches, and which instructions can be moved. All are
//! four bytes long ("Arm Architecture Reference Manual", C4.1, has the classes named here).
#![forbid(unsafe_code)]

/// The function that the others can be built on (vdso(7)).
pub(super) const CLOCK_GETTIME: &[u8] = b"__kernel_clock_gettime";
/// `gettimeofday`.
pub(super) const GETTIMEOFDAY: &[u8] = b"__kernel_gettimeofday";
/// `time`, which is not there: C libraries build it on the first.
pub(super) const TIME: &[u8] = b"__kernel_time";
/// `clock_gettime` as a system call and nothing else: mov x8, #113; svc #0; ret.
pub(super) const BY_SYSCALL: [u8; 12] =
    [0x28, 0x0e, 0x80, 0xd2, 0x01, 0x00, 0x00, 0xd4, 0xc0, 0x03, 0x5f, 0xd6];

/// A place that an indirect call may lead to, on processors that mind; elsewhere nothing (`bti c`).
const LANDING: u32 = 0xd503_245f;
/// What else may stand at such a place: `bti jc`, `paciasp`, `pacibsp`.
const LANDINGS: [u32; 4] = [LANDING, 0xd503_24df, 0xd503_233f, 0xd503_237f];
const NOP: u32 = 0xd503_201f;

fn word(code: &[u8], at: usize) -> Option<u32> {
    code.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes)
}

fn write(code: &mut [u8], at: usize, word: u32) -> Option<()> {
    code.get_mut(at..at + 4)?.copy_from_slice(&word.to_le_bytes());
    Some(())
}

/// Sends a function elsewhere from its first instruction on; one that calls may lead to by a register stays such.
pub(super) fn divert(code: &mut [u8], at: usize, to: usize) -> Option<()> {
    if !LANDINGS.contains(&word(code, at)?) {
        return write_jump(code, at, to);
    }
    write(code, at, LANDING)?;
    write_jump(code, at + 4, to)
}

/// b, to within 128 MiB.
pub(super) fn write_jump(code: &mut [u8], at: usize, to: usize) -> Option<()> {
    let words = (i64::try_from(to).ok()? - i64::try_from(at).ok()?).div_euclid(4);
    if !at.is_multiple_of(4) || !to.is_multiple_of(4) || !(-(1 << 25)..1 << 25).contains(&words) {
        return None;
    }
    write(code, at, 0x1400_0000 | u32::try_from(words & 0x03ff_ffff).ok()?)
}

/// Length of the instructions at the head of a function in whose place [`divert`] writes, where all of them mean the same
/// at another place; else `None`, and the slower route is taken.
pub(super) fn movable_prefix(code: &[u8]) -> Option<usize> {
    let count = if LANDINGS.contains(&word(code, 0)?) { 2 } else { 1 };
    (0..count).all(|index| word(code, index * 4).is_some_and(is_movable)).then_some(count * 4)
}

/// Whether an instruction means the same wherever it stands. Those that name a place by its distance are branches, loads
/// of literals, adr and adrp; no other class has any. Hints are the only ones of the branches' class that are moved.
fn is_movable(word: u32) -> bool {
    match word >> 25 & 0xf {
        // Immediate operands: all but adr and adrp.
        0b1000 | 0b1001 => word & 0x1f00_0000 != 0x1000_0000,
        // Loads and stores: all but those of literals.
        0b0100 | 0b0110 | 0b1100 | 0b1110 => word & 0x3b00_0000 != 0x1800_0000,
        // Registers only: whole numbers, floating point.
        0b0101 | 0b1101 | 0b0111 | 0b1111 => true,
        // Branches, and what belongs to the system.
        0b1010 | 0b1011 => word == NOP || LANDINGS.contains(&word),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn only_instructions_that_mean_the_same_elsewhere_are_moved() {
        // cmp w0, #15; mov w2, #1; stp x29, x30, [sp, #-32]!; ldr w7, [x3]; lsl w2, w2, w0; madd x0, x0, x5, x9; str q0, [x1]
        for word in
            [0x7100_3c1f, 0x5280_0022, 0xa9be_7bfd, 0xb940_0067, 0x1ac0_2042, 0x9b05_2400, 0x3d80_0020, NOP]
        {
            assert!(is_movable(word), "{word:#010x}");
        }
        // adr x3, .; adrp x0, .; ldr x0, .; ldr w0, .; ldrsw x0, .; prfm .; ldr q0, .; b .; bl .; b.hi .; cbz x0, .;
        // tbnz w7, #0, .; br x16; svc #0; a word that is no instruction.
        for word in [
            0x1000_0003,
            0x9000_0000,
            0x5800_0000,
            0x1800_0000,
            0x9800_0000,
            0xd800_0000,
            0x9c00_0000,
            0x1400_0000,
            0x9400_0000,
            0x5400_0008,
            0xb400_0000,
            0x3700_0007,
            0xd61f_0200,
            0xd400_0001,
            0,
        ] {
            assert!(!is_movable(word), "{word:#010x}");
        }
        assert_eq!(movable_prefix(&code(&[0x7100_3c1f, 0x5400_05a8])), Some(4), "the second stays");
        assert_eq!(movable_prefix(&code(&[LANDING, 0x7100_3c1f])), Some(8));
        assert_eq!(movable_prefix(&code(&[LANDING, 0x5400_05a8])), None);
        assert_eq!(movable_prefix(&code(&[LANDING])), None);
        assert_eq!(movable_prefix(&[]), None);
    }

    #[test]
    fn branches_lead_there_and_back_and_indirect_calls_may_still_come() {
        let mut plain = code(&[0x7100_3c1f, NOP, NOP, NOP]);
        divert(&mut plain, 0, 12).expect("near");
        assert_eq!(plain, code(&[0x1400_0003, NOP, NOP, NOP]));
        write_jump(&mut plain, 12, 4).expect("near");
        assert_eq!(plain, code(&[0x1400_0003, NOP, NOP, 0x17ff_fffe]));
        let mut signs = code(&[0xd503_233f, 0xa9b8_7bfd, NOP, NOP]);
        divert(&mut signs, 0, 12).expect("near");
        assert_eq!(signs, code(&[LANDING, 0x1400_0002, NOP, NOP]));
        assert_eq!(write_jump(&mut signs, 0, 2), None);
        assert_eq!(write_jump(&mut signs, 0, 1 << 28), None);
        assert_eq!(write_jump(&mut signs, 16, 0), None, "outside");
    }
}
