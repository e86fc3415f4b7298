//! What the processes of one sandbox tell each other, as bytes on a socket that keeps message borders. Explicit
//! encodings only; nothing is ever read as a struct.
#![forbid(unsafe_code)]

use std::fmt;
use std::io;

macro_rules! steps {
    ($($variant:ident => $text:literal),+ $(,)?) => {
        /// One step of building a sandbox; its text reads after "failed to".
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Step {
            $(#[doc = $text] $variant),+
        }

        impl Step {
            const ALL: &'static [Step] = &[$(Step::$variant),+];

            /// What the step does, to be read after "failed to".
            #[must_use]
            pub fn text(self) -> &'static str {
                match self { $(Step::$variant => $text),+ }
            }
        }
    };
}

steps! {
    Fork => "start a helper process",
    Channel => "talk between the sandbox's processes",
    Source => "open a host path that is to be shown",
    SwitchUser => "become the sandbox's host user",
    Namespaces => "make namespaces",
    IdMap => "map the sandbox's user",
    TimeOffsets => "set the time namespace's origin",
    Loopback => "bring loopback up",
    Proxy => "open the way to the hosts that the policy names",
    HostName => "set the host name",
    Root => "make the sandbox's root",
    Show => "show a host path",
    Devices => "make /dev",
    Etc => "make /etc",
    Scratch => "make the writable places",
    Tree => "put the tree in its place",
    Proc => "mount /proc",
    Pivot => "enter the sandbox's root",
    CgroupNamespace => "make the cgroup namespace",
    JoinCgroup => "join the control group",
    InnerUser => "make the inner user namespace",
    Session => "start a session",
    Cwd => "enter the command's folder",
    Rlimits => "set resource limits",
    Personality => "switch address randomisation off",
    Affinity => "set the processors",
    Capabilities => "drop capabilities",
    NoNewPrivileges => "forbid new privileges",
    Landlock => "apply the Landlock rules",
    Seccomp => "install the system call filter",
    Listener => "hand over the system call listener",
    Clock => "fix the clock",
    Proof => "prove that the sandbox is tight",
    Descriptors => "place the command's descriptors",
    Execute => "execute the command",
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// A step that failed, with the kernel's reason.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// Which step.
    pub step: Step,
    /// The path or name it was about; empty where there is none.
    pub detail: String,
    /// The errno.
    pub errno: i32,
}

impl Failure {
    /// Makes one from what a call gave.
    pub(super) fn new(step: Step, detail: impl Into<String>, error: &io::Error) -> Self {
        Self { step, detail: detail.into(), errno: error.raw_os_error().unwrap_or(libc_eio()) }
    }
}

/// `EIO`, for errors that carry no errno.
fn libc_eio() -> i32 {
    rustix::io::Errno::IO.raw_os_error()
}

/// Attaches step and detail to a result.
pub(super) trait At<T> {
    /// Names the step that failed and what it was about.
    fn at(self, step: Step, detail: impl Into<String>) -> Result<T, Failure>;
}

impl<T> At<T> for io::Result<T> {
    fn at(self, step: Step, detail: impl Into<String>) -> Result<T, Failure> {
        self.map_err(|error| Failure::new(step, detail, &error))
    }
}

impl<T> At<T> for rustix::io::Result<T> {
    fn at(self, step: Step, detail: impl Into<String>) -> Result<T, Failure> {
        self.map_err(|error| Failure::new(step, detail, &io::Error::from(error)))
    }
}

/// A message to the launcher.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Report {
    /// The init process exists; its pid in the launcher's namespace. Its pidfd comes with the message.
    Init(i32),
    /// Something could not be built.
    Failed(Failure),
    /// The socket that the proxy is to serve comes with the message.
    Listening,
    /// The command was executed.
    Started,
    /// The command could not be executed: the errno of execve(2).
    NotExecuted(i32),
    /// The command's first process ended: status or signal, and processes left over.
    Ended {
        /// Exit status, or the signal it died of.
        ending: Result<i32, i32>,
        /// Processes still there.
        leftovers: u32,
        /// Something looked for the network in vain.
        network: bool,
    },
    /// A program may have seen another clock than the fixed one; why.
    Escaped(String),
    /// What the check looked at; a file with it comes with the message.
    Observed,
    /// The check left files that are of interest; they come with the message.
    Left,
    /// What the check looked at is not known in full; why.
    Unobserved(String),
    /// All is over: the whole run's usage.
    Usage {
        /// User time in microseconds.
        user_us: u64,
        /// System time in microseconds.
        sys_us: u64,
        /// Largest resident set of one process, in KiB.
        max_rss_kib: u64,
        /// Bytes left in the writable places.
        written_bytes: u64,
        /// One of them was full.
        full: bool,
    },
}

/// A message from the launcher to the init process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// The control group is ready; go on.
    Go,
    /// Send this signal to the command's process group.
    Signal(i32),
    /// Enter the control group whose list of members comes along.
    Join,
    /// The tree is as it should be; let the command go.
    Start,
}

/// Largest message; everything but the detail of a failure is far smaller.
pub const MESSAGE_MAX: usize = 4096;

impl Report {
    /// The bytes of the message.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        match self {
            Self::Init(pid) => {
                bytes.push(1);
                bytes.extend(pid.to_le_bytes());
            }
            Self::Failed(failure) => {
                bytes.push(2);
                let index = Step::ALL.iter().position(|step| *step == failure.step).unwrap_or(0);
                bytes.push(u8::try_from(index).unwrap_or(0));
                bytes.extend(failure.errno.to_le_bytes());
                let room = MESSAGE_MAX - bytes.len();
                bytes.extend(failure.detail.bytes().take(room));
            }
            Self::Started => bytes.push(3),
            Self::NotExecuted(errno) => {
                bytes.push(4);
                bytes.extend(errno.to_le_bytes());
            }
            Self::Ended { ending, leftovers, network } => {
                bytes.push(if ending.is_ok() { 5 } else { 6 });
                let (Ok(code) | Err(code)) = ending;
                bytes.extend(code.to_le_bytes());
                bytes.extend(leftovers.to_le_bytes());
                bytes.push(u8::from(*network));
            }
            Self::Escaped(why) => {
                bytes.push(8);
                bytes.extend(why.bytes().take(MESSAGE_MAX - 1));
            }
            Self::Observed => bytes.push(9),
            Self::Left => bytes.push(11),
            Self::Listening => bytes.push(12),
            Self::Unobserved(why) => {
                bytes.push(10);
                bytes.extend(why.bytes().take(MESSAGE_MAX - 1));
            }
            Self::Usage { user_us, sys_us, max_rss_kib, written_bytes, full } => {
                bytes.push(7);
                for number in [user_us, sys_us, max_rss_kib, written_bytes] {
                    bytes.extend(number.to_le_bytes());
                }
                bytes.push(u8::from(*full));
            }
        }
        bytes
    }

    /// Reads a message back; `None` where the bytes are none of ours.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        let int =
            |at: usize| rest.get(at..at + 4).and_then(|four| four.try_into().ok()).map(i32::from_le_bytes);
        let long =
            |at: usize| rest.get(at..at + 8).and_then(|eight| eight.try_into().ok()).map(u64::from_le_bytes);
        Some(match kind {
            1 => Self::Init(int(0)?),
            2 => {
                let (index, rest) = rest.split_first()?;
                Self::Failed(Failure {
                    step: *Step::ALL.get(usize::from(*index))?,
                    errno: i32::from_le_bytes(rest.get(..4)?.try_into().ok()?),
                    detail: String::from_utf8_lossy(rest.get(4..)?).into_owned(),
                })
            }
            3 => Self::Started,
            4 => Self::NotExecuted(int(0)?),
            5 | 6 => {
                let code = int(0)?;
                let leftovers = u32::from_le_bytes(rest.get(4..8)?.try_into().ok()?);
                let network = *rest.get(8)? != 0;
                Self::Ended { ending: if *kind == 5 { Ok(code) } else { Err(code) }, leftovers, network }
            }
            7 => Self::Usage {
                user_us: long(0)?,
                sys_us: long(8)?,
                max_rss_kib: long(16)?,
                written_bytes: long(24)?,
                full: *rest.get(32)? == 1,
            },
            9 => Self::Observed,
            11 => Self::Left,
            12 => Self::Listening,
            10 => Self::Unobserved(String::from_utf8_lossy(rest).into_owned()),
            8 => Self::Escaped(String::from_utf8_lossy(rest).into_owned()),
            _ => return None,
        })
    }
}

impl Order {
    /// The bytes of the message.
    #[must_use]
    pub fn encode(self) -> [u8; 5] {
        let (kind, number) = match self {
            Self::Go => (1_u8, 0_i32),
            Self::Signal(signal) => (2, signal),
            Self::Join => (3, 0),
            Self::Start => (4, 0),
        };
        let number = number.to_le_bytes();
        [kind, number[0], number[1], number[2], number[3]]
    }

    /// Reads a message back.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let number = i32::from_le_bytes(bytes.get(1..5)?.try_into().ok()?);
        match bytes.first()? {
            1 => Some(Self::Go),
            2 => Some(Self::Signal(number)),
            3 => Some(Self::Join),
            4 => Some(Self::Start),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_read_back_as_they_were_written() {
        let failure = Failure { step: Step::Landlock, detail: "/x".to_owned(), errno: 13 };
        for report in [
            Report::Init(42),
            Report::Failed(failure),
            Report::Started,
            Report::NotExecuted(2),
            Report::Ended { ending: Ok(7), leftovers: 3, network: true },
            Report::Ended { ending: Err(9), leftovers: 0, network: false },
            Report::Usage { user_us: 1, sys_us: 2, max_rss_kib: 3, written_bytes: 4, full: true },
        ] {
            let bytes = report.encode();
            assert_eq!(Report::decode(&bytes), Some(report.clone()));
            // A cut message is never taken for a whole one, save that a failure's detail may be shorter.
            if !matches!(report, Report::Failed(_) | Report::Started) {
                assert_eq!(Report::decode(&bytes[..bytes.len() - 1]), None, "{report:?}");
            }
        }
        for order in [Order::Go, Order::Signal(15), Order::Join, Order::Start] {
            assert_eq!(Order::decode(&order.encode()), Some(order));
        }
        assert_eq!(Report::decode(&[]), None);
        assert_eq!(Report::decode(&[99, 0, 0]), None);
        assert_eq!(Order::decode(&[9, 0, 0, 0, 0]), None);
    }

    proptest::proptest! {
        /// What another process sends is foreign: no panic, and what is taken reads back as it was.
        #[test]
        fn any_message_is_read_without_a_panic(kind in 0_u8..16, bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..64)) {
            let message = [&[kind], &bytes[..]].concat();
            if let Some(report) = Report::decode(&message) {
                proptest::prop_assert_eq!(Report::decode(&report.encode()), Some(report.clone()));
            }
            if let Some(order) = Order::decode(&message) {
                proptest::prop_assert_eq!(Order::decode(&order.encode()), Some(order));
            }
        }
    }
}
