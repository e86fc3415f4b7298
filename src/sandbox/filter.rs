//! Puts rules on system calls together into a program for the kernel. Which rules there are is `seccomp`'s.
#![forbid(unsafe_code)]

use crate::sandbox::sys::Instruction;
use std::collections::BTreeMap;

// Classic BPF operations (linux/bpf_common.h) and return values (seccomp(2)).
pub(super) const LOAD_WORD: u16 = 0x20;
pub(super) const JUMP_EQUAL: u16 = 0x15;
pub(super) const JUMP_AT_LEAST: u16 = 0x35;
pub(super) const JUMP_ALWAYS: u16 = 0x05;
pub(super) const AND: u16 = 0x54;
pub(super) const RETURN: u16 = 0x06;
pub(super) const ALLOW: u32 = 0x7fff_0000;
const ERRNO: u32 = 0x0005_0000;
pub(super) const NOTIFY: u32 = 0x7fc0_0000;

// Offsets in struct seccomp_data (linux/seccomp.h): the low halves of the arguments on a little-endian machine.
pub(super) const NUMBER: u32 = 0;
pub(super) const ARCHITECTURE: u32 = 4;
const fn argument_low(index: u32) -> u32 {
    16 + 8 * index
}

#[cfg(target_arch = "x86_64")]
pub(super) const NATIVE: u32 = 0xc000_003e; // AUDIT_ARCH_X86_64
#[cfg(target_arch = "aarch64")]
pub(super) const NATIVE: u32 = 0xc000_00b7; // AUDIT_ARCH_AARCH64

/// A test of one argument's low half.
#[derive(Clone, Copy)]
pub(super) struct Test {
    /// Which argument, from 0.
    pub(super) argument: u32,
    /// The bits that are looked at.
    pub(super) mask: u32,
    /// What they are to be.
    pub(super) value: u32,
}

/// The rules of each call, in order; the first that fits decides. They are put into one program at the end, as a search
/// tree by number: the kernel tries a filter on every call there is when it is installed, and runs it on each call that
/// does not always end the same way.
#[derive(Default)]
pub(super) struct Rules {
    blocks: BTreeMap<u32, Vec<Instruction>>,
}

const fn instruction(code: u16, operand: u32, jump_true: u8, jump_false: u8) -> Instruction {
    Instruction { code, jump_true, jump_false, operand }
}

impl Rules {
    fn of(&mut self, call: libc::c_long) -> &mut Vec<Instruction> {
        self.blocks.entry(number(call)).or_default()
    }

    /// Whatever the arguments are.
    pub(super) fn rule(&mut self, call: libc::c_long, action: u32) {
        self.of(call).push(instruction(RETURN, action, 0, 0));
    }

    /// Where every test holds. The high halves of the arguments are not looked at: all arguments tested here are
    /// 32-bit in the kernel, which ignores the rest (a filter that compared all 64 bits could be walked around).
    pub(super) fn rule_if(&mut self, call: libc::c_long, tests: &[Test], action: u32) {
        let block = self.of(call);
        let mut left = u8::try_from(tests.len() * 3).unwrap_or(u8::MAX);
        for test in tests {
            left -= 3;
            block.extend([
                instruction(LOAD_WORD, argument_low(test.argument), 0, 0),
                instruction(AND, test.mask, 0, 0),
                // On a mismatch skip the tests that are left and the answer.
                instruction(JUMP_EQUAL, test.value, 0, left + 1),
            ]);
        }
        block.push(instruction(RETURN, action, 0, 0));
    }

    /// Where a pointer, all 64 bits of it, is null.
    pub(super) fn rule_if_null(&mut self, call: libc::c_long, argument: u32, action: u32) {
        self.of(call).extend([
            instruction(LOAD_WORD, argument_low(argument), 0, 0),
            instruction(JUMP_EQUAL, 0, 0, 3),
            instruction(LOAD_WORD, argument_low(argument) + 4, 0, 0),
            instruction(JUMP_EQUAL, 0, 0, 1),
            instruction(RETURN, action, 0, 0),
        ]);
    }

    /// Where the argument is none of `values`.
    pub(super) fn rule_unless(&mut self, call: libc::c_long, argument: u32, values: &[u32], action: u32) {
        let count = u8::try_from(values.len()).unwrap_or(u8::MAX);
        let block = self.of(call);
        block.push(instruction(LOAD_WORD, argument_low(argument), 0, 0));
        for (index, value) in values.iter().enumerate() {
            let skip = count - u8::try_from(index).unwrap_or(0);
            block.push(instruction(JUMP_EQUAL, *value, skip, 0));
        }
        block.push(instruction(RETURN, action, 0, 0));
    }

    /// The program; `known` is the first number of a call that is newer than this file, if those are to be refused.
    pub(super) fn assemble(self, known: Option<u32>) -> Vec<Instruction> {
        let mut code = vec![
            // A call by another architecture's table would be judged by the wrong numbers.
            instruction(LOAD_WORD, ARCHITECTURE, 0, 0),
            instruction(JUMP_EQUAL, NATIVE, 1, 0),
            instruction(RETURN, errno(libc::ENOSYS), 0, 0),
            instruction(LOAD_WORD, NUMBER, 0, 0),
            // The x32 table of x86-64 sets bit 30; no native call has a number that large.
            instruction(JUMP_AT_LEAST, known.unwrap_or(0x4000_0000), 0, 1),
            instruction(RETURN, errno(libc::ENOSYS), 0, 0),
        ];
        let blocks: Vec<(u32, Vec<Instruction>)> = self.blocks.into_iter().collect();
        code.extend(search(&blocks));
        code
    }
}

/// Finds the block of a number among these, which are sorted, and goes through it; what no rule fits is allowed. Short,
/// since the kernel takes a fifth of a microsecond for each instruction when it installs them, at every start of a check.
fn search(blocks: &[(u32, Vec<Instruction>)]) -> Vec<Instruction> {
    let allow = instruction(RETURN, ALLOW, 0, 0);
    match blocks {
        [] => vec![allow],
        [(number, block)] => {
            // A block tells a few values apart; a longer one is passed by a jump of its own.
            let mut code = match u8::try_from(block.len()) {
                Ok(length) => vec![instruction(JUMP_EQUAL, *number, 0, length)],
                Err(_) => vec![instruction(JUMP_EQUAL, *number, 1, 0), allow],
            };
            code.extend(block);
            code.push(allow);
            code
        }
        _ => {
            let (low, high) = blocks.split_at(blocks.len() / 2);
            let (low, first) = (search(low), high[0].0);
            // A conditional jump reaches 255 steps only, so what is further away is reached by a jump of its own.
            let mut code = match u8::try_from(low.len()) {
                Ok(length) => vec![instruction(JUMP_AT_LEAST, first, length, 0)],
                Err(_) => {
                    let length = u32::try_from(low.len()).unwrap_or(u32::MAX);
                    vec![instruction(JUMP_AT_LEAST, first, 0, 1), instruction(JUMP_ALWAYS, length, 0, 0)]
                }
            };
            code.extend(low);
            code.extend(search(high));
            code
        }
    }
}

/// System call numbers are small and positive on every architecture.
fn number(call: libc::c_long) -> u32 {
    u32::try_from(call).unwrap_or(u32::MAX)
}

pub(super) const fn errno(number: i32) -> u32 {
    ERRNO | number.unsigned_abs()
}
