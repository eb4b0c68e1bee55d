//! Tests of the work queue: dedupe, serialisation per key, delays, back-off, panics, throughput.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use super::*;
use crate::clock::FakeClock;

#[test]
fn a_key_is_there_once_and_runs_once_at_a_time() {
    let queue = Queue::new();
    queue.add_all(["a", "b", "a"]);
    assert_eq!(queue.take(10), ["a", "b"]);
    queue.add("a");
    assert!(queue.take(10).is_empty(), "a runs: it must wait");
    queue.done(&"a");
    assert_eq!(queue.take(10), ["a"]);
    queue.done(&"a");
    queue.done(&"b");
    assert!(queue.is_idle());
}

#[test]
fn the_earlier_delay_counts() {
    let clock = FakeClock::at(jiff::Timestamp::UNIX_EPOCH);
    let queue = Queue::with(Arc::new(clock.clone()), Backoff::default());
    queue.add_after("a", Duration::from_secs(5));
    queue.add_after("a", Duration::from_secs(2));
    queue.add_after("a", Duration::from_secs(9));
    clock.advance(Duration::from_secs(1));
    assert!(queue.take(1).is_empty());
    clock.advance(Duration::from_secs(1));
    assert_eq!(queue.take(1), ["a"]);
    queue.done(&"a");
    assert!(queue.is_idle());
}

#[test]
fn back_off_doubles_and_is_bounded() {
    let backoff = Backoff { first: Duration::from_millis(100), longest: Duration::from_secs(1) };
    for (failures, middle) in [(1, 100), (2, 200), (3, 400), (4, 800), (5, 1000), (40, 1000)] {
        let wait = backoff.wait(failures);
        assert!(wait >= Duration::from_millis(middle * 8 / 10) && wait <= Duration::from_millis(middle * 12 / 10));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_stops_only_its_own_turn() {
    let queue: Queue<u32> = Queue::new();
    let stop = CancellationToken::new();
    let calls = Arc::new(AtomicUsize::new(0));
    let (tx, mut rx) = tokio::sync::mpsc::channel(10);
    let seen = calls.clone();
    let worker = tokio::spawn(work(queue.clone(), 2, stop.clone(), move |key| {
        let (seen, tx) = (seen.clone(), tx.clone());
        async move {
            if key == 1 && seen.fetch_add(1, Ordering::SeqCst) == 0 {
                panic!("first turn");
            }
            let _ = tx.send(key).await;
            Next::Done
        }
    }));
    queue.add_all([1, 2]);
    assert_eq!(rx.recv().await, Some(2));
    assert_eq!(rx.recv().await, Some(1));
    stop.cancel();
    worker.await.expect("ends");
    assert_eq!(queue.failures(&1), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_key_runs_twice_at_once_and_no_wish_is_lost() {
    let queue: Queue<usize> = Queue::new();
    let stop = CancellationToken::new();
    let state: Arc<Vec<(AtomicUsize, AtomicUsize, AtomicUsize)>> = Arc::new((0..20).map(|_| Default::default()).collect());
    let inner = state.clone();
    let worker = tokio::spawn(work(queue.clone(), 8, stop.clone(), move |key| {
        let state = inner.clone();
        async move {
            let (running, seen, wanted) = &state[key];
            assert_eq!(running.fetch_add(1, Ordering::SeqCst), 0);
            let now = wanted.load(Ordering::SeqCst);
            tokio::task::yield_now().await;
            seen.store(now, Ordering::SeqCst);
            running.fetch_sub(1, Ordering::SeqCst);
            Next::Done
        }
    }));
    for round in 0..200 {
        state[round % 20].2.fetch_add(1, Ordering::SeqCst);
        queue.add(round % 20);
        if round % 7 == 0 {
            tokio::task::yield_now().await;
        }
    }
    let started = Instant::now();
    while !queue.is_idle() {
        assert!(started.elapsed() < Duration::from_secs(10), "queue never idle");
        tokio::task::yield_now().await;
    }
    stop.cancel();
    worker.await.expect("ends");
    for (_, seen, wanted) in state.iter() {
        assert_eq!(seen.load(Ordering::SeqCst), wanted.load(Ordering::SeqCst));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_keys_cost_little() {
    let queue: Queue<usize> = Queue::new();
    let stop = CancellationToken::new();
    let (tx, mut rx) = tokio::sync::mpsc::channel(1000);
    let worker = tokio::spawn(work(queue.clone(), 16, stop.clone(), move |key| {
        let tx = tx.clone();
        async move {
            let _ = tx.send(key).await;
            Next::Done
        }
    }));
    let started = Instant::now();
    queue.add_all(0..1000);
    for _ in 0..1000 {
        rx.recv().await.expect("a key");
    }
    let took = started.elapsed();
    assert!(took < Duration::from_millis(500), "{took:?} for 1,000 turns (unoptimised build)");
    stop.cancel();
    worker.await.expect("ends");
}
