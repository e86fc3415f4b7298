//! Random choices that can be repeated.

use super::say;

/// A generator of moments (xorshift64); `CHECKRUN_CRASH_SEED` says which.
pub struct Moments(u64);

impl Moments {
    /// Another one for each process, told so that it can be repeated.
    pub fn new() -> Self {
        let seed = std::env::var("CHECKRUN_CRASH_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = seed.unwrap_or_else(|| u64::from(std::process::id()) | 1 << 40);
        say(&format!("CHECKRUN_CRASH_SEED={seed}"));
        Self(seed)
    }

    /// One of the numbers from 0 to below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}
