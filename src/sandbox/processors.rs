//! Which processors the sandbox's own processes run on while they build, so that two of them that were just forked work
//! side by side. What the check may use is the plan's business and is not touched.
#![forbid(unsafe_code)]

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

/// Where there are more, the kernel is left to find an idle one: a processor that is forced on a process may be busy.
const FEW: u32 = 4;

/// The processors that the caller gave us, where there are several and few.
///
/// A new process often waits on its parent's processor for the parent to sleep, though another is idle: half a
/// millisecond of a run that takes six (measured with two processors, Linux 6.18).
#[derive(Clone, Copy, Debug)]
pub(super) struct Processors(Option<CpuSet>);

impl Processors {
    /// Those of this process.
    pub(super) fn own() -> Self {
        let own = sched_getaffinity(None).ok();
        Self(own.filter(|own| (2..=FEW).contains(&own.count())))
    }

    /// Moves a process that this one has just forked to another processor than this one's. It may use all of them again at
    /// once, yet what it forks at the very moment may not, so it calls [`Self::restore`] where that matters.
    pub(super) fn part_from(self, child: i32) {
        let Some(all) = self.0 else { return };
        let mut others = all;
        others.unset(sched_getcpu());
        let child = Pid::from_raw(child);
        // A gain in speed and nothing else.
        if child.is_some() && sched_setaffinity(child, &others).is_ok() {
            let _ = sched_setaffinity(child, &all);
        }
    }

    /// Lets this process, and what it forks from here on, use all of them, whatever its parent was doing when it was forked.
    /// Nobody may still be moving it.
    pub(super) fn restore(self) -> rustix::io::Result<()> {
        match self.0 {
            Some(all) if sched_getaffinity(None)? != all => sched_setaffinity(None, &all),
            _ => Ok(()),
        }
    }
}
