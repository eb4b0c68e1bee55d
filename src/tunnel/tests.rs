//! Two ends over an in-memory socket: echo, back pressure, refusal, loss of the socket.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_tungstenite::tungstenite::protocol::Role;
use tokio_tungstenite::WebSocketStream;
use wire::{Limits, Target};

use crate::{session, Acceptor, Stream, Tunnel};

fn target(address: &str) -> Target {
    Target { network: "tcp".into(), address: address.into() }
}

fn nobody() -> Acceptor {
    Arc::new(|_, stream: Stream| Box::pin(async move { stream.refuse("nothing is served here") }))
}

fn echo() -> Acceptor {
    Arc::new(|target, stream| {
        Box::pin(async move {
            if target.address == "closed:1" {
                stream.refuse("dial closed:1: refused");
                return;
            }
            let (mut read, mut write) = tokio::io::split(stream);
            // The peer ends the stream.
            let _ = tokio::io::copy(&mut read, &mut write).await;
        })
    })
}

/// A hub's end and an agent's end that echoes, both running.
async fn pair() -> (Tunnel, Tunnel) {
    let (near, far) = tokio::io::duplex(1 << 16);
    let near = WebSocketStream::from_raw_socket(near, Role::Server, None).await;
    let far = WebSocketStream::from_raw_socket(far, Role::Client, None).await;
    let (hub, run_hub) = session(near, Limits::PEER, nobody());
    let (agent, run_agent) = session(far, Limits::PEER, echo());
    tokio::spawn(async move { drop(run_hub.await) });
    tokio::spawn(async move { drop(run_agent.await) });
    (hub, agent)
}

#[tokio::test]
async fn streams_carry_bytes_both_ways_at_once() {
    let (hub, _agent) = pair().await;
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..20u8 {
        let stream = hub.open(&target("localhost:1")).expect("room");
        tasks.spawn(async move {
            let data = vec![number; 300_000];
            let expect = data.clone();
            let (mut read, mut write) = tokio::io::split(stream);
            let send = async { write.write_all(&data).await };
            let mut back = vec![0; expect.len()];
            let (sent, got) = tokio::join!(send, read.read_exact(&mut back));
            sent.expect("the stream is open");
            got.expect("the stream is open");
            assert!(back == expect);
        });
    }
    tasks.join_all().await;
    assert_eq!(hub.streams(), 0);
}

#[tokio::test]
async fn a_slow_reader_holds_its_writer_back_and_nobody_else() {
    let (hub, _agent) = pair().await;
    let mut slow = hub.open(&target("localhost:1")).expect("room");
    let flood = vec![1u8; 64 << 10];
    let mut written = 0usize;
    // Nobody reads the echo: the writer must come to a stop within the bounds of both buffers.
    while let Ok(done) = tokio::time::timeout(Duration::from_millis(300), slow.write(&flood)).await {
        written += done.expect("the stream is open");
        assert!(written < 64 << 20, "the writer is never held back");
    }
    let mut other = hub.open(&target("localhost:1")).expect("room");
    other.write_all(b"ping").await.expect("the stream is open");
    let mut back = [0; 4];
    other.read_exact(&mut back).await.expect("the stream is open");
    assert_eq!(&back, b"ping");
}

#[tokio::test]
async fn a_refused_dial_is_an_error_with_its_reason() {
    let (hub, _agent) = pair().await;
    let mut stream = hub.open(&target("closed:1")).expect("room");
    let error = stream.read_u8().await.expect_err("nothing listens there");
    assert!(error.to_string().contains("dial closed:1"), "{error}");
}

#[tokio::test]
async fn the_end_of_the_session_ends_its_streams() {
    let (near, far) = tokio::io::duplex(1 << 16);
    let near = WebSocketStream::from_raw_socket(near, Role::Server, None).await;
    let (hub, run) = session(near, Limits::PEER, nobody());
    let running = tokio::spawn(run);
    let mut stream = hub.open(&target("localhost:1")).expect("room");
    drop(far);
    assert!(running.await.expect("no panic").is_err());
    hub.ended().await;
    assert!(stream.read_u8().await.is_err());
    assert!(stream.write_all(b"x").await.is_err());
    assert!(hub.open(&target("localhost:1")).is_err());
}
