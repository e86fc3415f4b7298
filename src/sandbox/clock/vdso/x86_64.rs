//! The vDSO's machine code on x86-64: names of its functions, jumps, and which instructions can be moved.
#![forbid(unsafe_code)]

/// The function that the others can be built on (vdso(7)).
pub(super) const CLOCK_GETTIME: &[u8] = b"__vdso_clock_gettime";
/// `gettimeofday`.
pub(super) const GETTIMEOFDAY: &[u8] = b"__vdso_gettimeofday";
/// `time`.
pub(super) const TIME: &[u8] = b"__vdso_time";
/// `clock_gettime` as a system call and nothing else: mov eax, 228; syscall; ret.
pub(super) const BY_SYSCALL: [u8; 8] = [0xb8, 228, 0, 0, 0, 0x0f, 0x05, 0xc3];

/// Bytes of a jump.
const JUMP: usize = 5;

/// Sends a function elsewhere from its first instruction on.
pub(super) fn divert(code: &mut [u8], at: usize, to: usize) -> Option<()> {
    write_jump(code, at, to)
}

/// jmp rel32.
pub(super) fn write_jump(code: &mut [u8], at: usize, to: usize) -> Option<()> {
    let distance = i32::try_from(i64::try_from(to).ok()? - i64::try_from(at + JUMP).ok()?).ok()?;
    let slot = code.get_mut(at..at + JUMP)?;
    slot[0] = 0xe9;
    slot[1..].copy_from_slice(&distance.to_le_bytes());
    Some(())
}

/// Length of the whole instructions at the head of a function that cover the five bytes of a jump, where all of them
/// mean the same at another place. Only what compilers put at the head of a function is known; anything else is
/// `None`, and the slower route is taken.
pub(super) fn movable_prefix(code: &[u8]) -> Option<usize> {
    let mut length = 0;
    while length < JUMP {
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
}
