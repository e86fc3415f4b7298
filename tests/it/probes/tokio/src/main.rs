//! Sleeps, timeouts and ticks of tokio, on one thread and on several: each must take as long as it says, by the steady clock,
//! and the wall clock must go on with them, or stand still where it is frozen. Prints the wall clock's seconds at the start.

use std::future::pending;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::time::{interval, sleep, sleep_until, timeout};

const STEP: Duration = Duration::from_millis(150);
/// A busy machine is late; nothing is ever early.
const LATE: Duration = Duration::from_secs(50);

async fn waits() {
    let step = |name: &'static str, began: Instant, least: Duration| {
        let took = began.elapsed();
        assert!(took >= least && took < LATE, "{name} took {took:?}");
    };
    let began = Instant::now();
    sleep(STEP).await;
    step("sleep", began, STEP);
    let began = Instant::now();
    sleep_until(tokio::time::Instant::now() + STEP).await;
    step("sleep_until", began, STEP);
    let began = Instant::now();
    assert!(timeout(STEP, pending::<()>()).await.is_err());
    step("timeout", began, STEP);
    assert!(timeout(LATE, sleep(STEP)).await.is_ok());
    let began = Instant::now();
    let mut ticks = interval(STEP);
    for _ in 0..3 {
        ticks.tick().await;
    }
    step("interval", began, STEP * 2);
    let began = Instant::now();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    assert!(timeout(STEP, stream.read_u8()).await.is_err());
    step("a read that times out", began, STEP);
    let began = Instant::now();
    let sleepers: Vec<_> = (0..100).map(|_| tokio::spawn(sleep(STEP))).collect();
    for sleeper in sleepers {
        sleeper.await.unwrap();
    }
    step("a hundred tasks", began, STEP);
}

fn main() {
    let wall = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let (began, steady) = (wall(), Instant::now());
    let run = |runtime: Runtime| runtime.block_on(waits());
    run(Builder::new_current_thread().enable_all().build().unwrap());
    run(Builder::new_multi_thread().worker_threads(3).enable_all().build().unwrap());
    let (took, shown) = (steady.elapsed(), wall() - began);
    match std::env::args().nth(1).as_deref() {
        Some("frozen") => assert!(shown < Duration::from_secs(1), "{shown:?}"),
        _ => assert!(shown.abs_diff(took) < Duration::from_secs(1), "{shown:?} {took:?}"),
    }
    println!("{}", began.as_secs());
}
