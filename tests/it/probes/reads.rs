//! Reads the wall clock before and after waits of the standard library. One line each: name, seconds, nanoseconds.

use std::sync::{Condvar, Mutex, mpsc};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

fn say(name: &str) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    println!("{name} {} {}", now.as_secs(), now.subsec_nanos());
}

fn main() {
    say("main.now");
    let began = Instant::now();
    std::thread::spawn(|| say("thread.now")).join().expect("a thread");
    std::thread::sleep(Duration::from_millis(50));
    std::thread::park_timeout(Duration::from_millis(50));
    let (_sender, receiver) = mpsc::channel::<()>();
    assert!(receiver.recv_timeout(Duration::from_millis(50)).is_err());
    let lock = Mutex::new(());
    let (_guard, result) =
        Condvar::new().wait_timeout(lock.lock().expect("ours"), Duration::from_millis(50)).expect("ours");
    assert!(result.timed_out() && began.elapsed() >= Duration::from_millis(150));
    say("waited.now");
}
