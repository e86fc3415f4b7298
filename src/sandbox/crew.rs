//! Several runs at one time: copies of this process, forked while it has one thread, each of which starts sandboxes one
//! after the other and answers in lines of text. What they are told and what they say is the caller's business.
//!
//! Threads would not do: a sandbox is forked, and a child of a process with several threads may do next to nothing before
//! it executes (fork(2)). A copy has one thread, like the process that it was forked from.
#![forbid(unsafe_code)]

use crate::sandbox::wire::{At, Step};
use crate::sandbox::{Interrupts, SandboxError, sys};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::AsFd;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// The longest answer that is taken, in bytes; a longer one is as good as none.
const ANSWER_MAX: u64 = 64 << 20;

/// Workers and the sockets to them. When this is dropped they are told to end what they run, and waited for.
#[derive(Debug)]
pub struct Crew {
    workers: Vec<Worker>,
}

#[derive(Debug)]
struct Worker {
    pid: i32,
    socket: BufReader<UnixStream>,
    gone: bool,
}

/// What was heard.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Heard {
    /// The worker of that number answered with this line, without its end.
    Answer(usize, String),
    /// The worker of that number is no more.
    Lost(usize),
    /// This signal came for us.
    Signal(i32),
    /// Nothing in the time given.
    Nothing,
}

impl Crew {
    /// Forks that many workers. Each does `work` with its end of a socket, and is gone when that returns. They share this
    /// process's memory as it is now, blocked signals and their descriptor included.
    ///
    /// # Errors
    /// There is no room for another process or descriptor, or this process has several threads.
    pub fn hire(count: usize, work: &dyn Fn(UnixStream)) -> Result<Self, SandboxError> {
        let mut crew = Self { workers: Vec::with_capacity(count) };
        let own = std::process::id();
        for _ in 0..count {
            let (ours, theirs) = UnixStream::pair().at(Step::Channel, "worker")?;
            match sys::fork().at(Step::Fork, "worker")? {
                sys::Forked::Child => {
                    // Only the sockets: the processes behind them are the parent's to wait for.
                    for worker in std::mem::take(&mut crew.workers) {
                        drop(worker.socket);
                    }
                    drop(ours);
                    // Ctrl-C reaches the parent alone, which passes it on: twice would mean that there is no time for an ending.
                    let _ = rustix::process::setpgid(None, None);
                    let status = if lives_with(own) { serve(theirs, work) } else { 1 };
                    sys::exit_now(status)
                }
                sys::Forked::Parent(pid) => {
                    crew.workers.push(Worker { pid, socket: BufReader::new(ours), gone: false });
                }
            }
        }
        Ok(crew)
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.workers.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.workers.is_empty()
    }

    /// Sends a worker one line.
    ///
    /// # Errors
    /// It is no more.
    pub fn tell(&mut self, worker: usize, line: &str) -> io::Result<()> {
        let text = format!("{line}\n");
        self.workers[worker].socket.get_mut().write_all(text.as_bytes())
    }

    /// Passes a signal on to all.
    pub fn signal(&self, number: i32) {
        for worker in self.workers.iter().filter(|worker| !worker.gone) {
            drop(sys::kill(worker.pid, number));
        }
    }

    /// Waits for an answer, a death or a signal, for that long at most.
    ///
    /// # Errors
    /// What poll(2) says.
    pub fn hear(&mut self, interrupts: &Interrupts, within: Duration) -> io::Result<Heard> {
        let here: Vec<usize> = (0..self.workers.len()).filter(|worker| !self.workers[*worker].gone).collect();
        let mut fds = vec![PollFd::from_borrowed_fd(interrupts.descriptor(), PollFlags::IN)];
        fds.extend(here.iter().map(|worker| {
            PollFd::from_borrowed_fd(self.workers[*worker].socket.get_ref().as_fd(), PollFlags::IN)
        }));
        let timeout = Timespec {
            tv_sec: i64::try_from(within.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(within.subsec_nanos()),
        };
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(fds);
        if ready[0]
            && let Some(signal) = interrupts.pending()
        {
            return Ok(Heard::Signal(signal));
        }
        let Some(at) = ready[1..].iter().position(|ready| *ready) else { return Ok(Heard::Nothing) };
        let number = here[at];
        let worker = &mut self.workers[number];
        let mut line = String::new();
        let read = io::Read::take(&mut worker.socket, ANSWER_MAX).read_line(&mut line);
        if read.is_ok() && line.ends_with('\n') {
            line.pop();
            return Ok(Heard::Answer(number, line));
        }
        worker.gone = true;
        drop(sys::wait(worker.pid, true));
        Ok(Heard::Lost(number))
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        // Blocked in them like here, it ends a run in progress and does nothing to one that waits for work.
        self.signal(libc::SIGTERM);
        for worker in std::mem::take(&mut self.workers) {
            drop(worker.socket);
            if !worker.gone {
                drop(sys::wait(worker.pid, true));
            }
        }
    }
}

/// Makes this process end with its parent, and says whether that one is still there.
fn lives_with(parent: u32) -> bool {
    let signal = libc::c_ulong::from(libc::SIGKILL.unsigned_abs());
    let set = sys::prctl(libc::PR_SET_PDEATHSIG, signal).is_ok();
    // It may have died before that was set (prctl(2)).
    set && std::os::unix::process::parent_id() == parent
}

fn serve(socket: UnixStream, work: &dyn Fn(UnixStream)) -> i32 {
    // A panic must not go on into what only the parent has to do.
    i32::from(catch_unwind(AssertUnwindSafe(|| work(socket))).is_err())
}
