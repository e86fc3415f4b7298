//! x
use checkrun::model::{event::*, layer::*, policy::*, runner::Bind, units::Bytes};
use checkrun::sandbox::{plan::*, probe, run, Interrupts};
use std::{collections::BTreeMap, ffi::CString, path::PathBuf, time::Duration};
struct S;
impl Sink for S { fn event(&mut self, e: Event<'_>) { if let Event::Output(_, b) = e { use std::io::Write; std::io::stdout().write_all(b).ok(); } } }
fn main() {
    let t = std::time::Instant::now();
    let ab = probe::probe();
    #[allow(clippy::print_stderr)]
    { eprintln!("{:?} {ab:?}", t.elapsed()); }
    let ab = ab.unwrap();
    let argv: Vec<CString> = std::env::args().skip(2).map(|a| CString::new(a).unwrap()).collect();
    let tree = PathBuf::from(std::env::args().nth(1).unwrap());
    let b = |p: &str| Bind { host: p.into(), inside: p.into() };
    let plan = Plan { level: Level::Full, layers: Layer::ALL.into_iter().map(|l| (l, if l==Layer::Clock {LayerState::Off} else {LayerState::Enforced})).collect::<BTreeMap<_,_>>(), network: Network::Loopback, tree, style: TreeStyle::Overlay,
      binds: vec![b("/bin"), b("/etc/alternatives"), b("/lib"), b("/lib64"), b("/sbin"), b("/usr")], argv, env: vec![CString::new("PATH=/usr/bin:/bin").unwrap(), CString::new("HOME=/home/check").unwrap()], path: vec!["/usr/local/bin".into(),"/usr/bin".into()], cwd: "".into(),
      limits: Limits { timeout: Duration::from_secs(20), memory: Some(Bytes(1<<30)), pids: Some(500), cpus_milli: None, disk: Bytes(1<<30), output: Bytes(1<<30) }, aslr: Aslr::On, clock: Clock::Host, git: GitView::None, user: ab.user, cgroup: ab.cgroup.clone(), scratch: "/tmp/scr".into() };
    let i = Interrupts::take_over().unwrap();
    let n: u32 = std::env::var("N").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    for _ in 0..n {
    let t = std::time::Instant::now();
    let o = run(&plan, &i, &mut S);
    #[allow(clippy::print_stderr)]
    { eprintln!("{:?} {o:?}", t.elapsed()); }
    }
}
