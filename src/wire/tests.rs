//! Vectors of the wire format, and two ends driven against each other with generated traffic.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;

use crate::{Body, DecodeError, Event, Limits, Message, Session, Target, WriteError};

const T0: Duration = Duration::ZERO;

fn small() -> Limits {
    Limits { pause_above: 100, resume_below: 20, refuse_above: 400, streams: 4, ..Limits::PEER }
}

fn target() -> Target {
    Target { network: "tcp".into(), address: "localhost:6443".into() }
}

#[test]
fn the_header_is_zig_zag_varints_and_a_legacy_deadline() {
    let check = |message: Message, expect: &[u8]| {
        assert_eq!(message.encode().as_ref(), expect);
        assert_eq!(Message::decode(Bytes::copy_from_slice(expect)), Ok(message));
    };
    // 15000 as a signed varint is 0xb0 0xea 0x01.
    check(Message { id: 1, stream: 2, body: Body::Data(Bytes::from_static(b"hi")) }, b"\x02\x04\x02\xb0\xea\x01hi");
    check(
        Message { id: 64, stream: 1, body: Body::Connect { network: "tcp".into(), address: "a:1".into() } },
        b"\x80\x01\x02\x04\xb0\xea\x01tcp/a:1",
    );
    check(Message { id: 3, stream: 1, body: Body::Error("EOF".into()) }, b"\x06\x02\x06EOF");
    check(Message { id: -1, stream: 0, body: Body::AddClient("k/s".into()) }, b"\x01\x00\x08k/s");
    check(Message { id: 0, stream: 1, body: Body::Pause }, b"\x00\x02\x0c");
    check(Message { id: 0, stream: 1, body: Body::Resume }, b"\x00\x02\x0e");
}

#[test]
fn malformed_messages_are_refused() {
    let decode = |bytes: &'static [u8]| Message::decode(Bytes::from_static(bytes));
    assert_eq!(decode(b""), Err(DecodeError::Header));
    assert_eq!(decode(b"\x02\x04"), Err(DecodeError::Header));
    assert_eq!(decode(b"\x02\x04\x12"), Err(DecodeError::UnknownType(9)));
    assert_eq!(decode(b"\x02\x04\x04\x00noslash"), Err(DecodeError::Body("connect")));
    assert_eq!(decode(b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"), Err(DecodeError::Header));
}

/// Moves everything that waits from one end to the other.
fn carry(from: &mut Session, to: &mut Session) {
    while let Some(message) = from.poll_transmit(T0) {
        to.receive(message, T0).expect("our own messages decode");
    }
}

fn events(session: &mut Session) -> Vec<Event> {
    std::iter::from_fn(|| session.poll_event()).collect()
}

#[test]
fn a_full_receiver_pauses_the_sender_and_resumes_it() {
    let (mut a, mut b) = (Session::new(small(), T0), Session::new(small(), T0));
    let id = a.open(&target()).expect("room");
    a.write(id, Bytes::from(vec![7; 120])).expect("open");
    carry(&mut a, &mut b);
    assert_eq!(events(&mut b), [Event::Opened(id, target()), Event::Data(id, Bytes::from(vec![7; 120]))]);
    carry(&mut b, &mut a);
    assert_eq!(a.write(id, Bytes::from_static(b"x")), Err(WriteError::Paused));
    assert_eq!(events(&mut a), [Event::Blocked(id)]);
    b.consumed(id, 99);
    carry(&mut b, &mut a);
    assert_eq!(a.write(id, Bytes::from_static(b"x")), Err(WriteError::Paused));
    b.consumed(id, 10);
    carry(&mut b, &mut a);
    assert_eq!(events(&mut a), [Event::Writable(id)]);
    assert_eq!(a.write(id, Bytes::from_static(b"x")), Ok(()));
}

#[test]
fn a_peer_that_ignores_pause_loses_the_stream_only() {
    let (mut a, mut b) = (Session::new(small(), T0), Session::new(small(), T0));
    let (id, other) = (a.open(&target()).expect("room"), a.open(&target()).expect("room"));
    for _ in 0..5 {
        a.write(id, Bytes::from(vec![0; 99])).expect("it has not heard of the pause");
    }
    carry(&mut a, &mut b);
    assert!(matches!(events(&mut b).last(), Some(Event::Closed(closed, Some(_))) if *closed == id));
    carry(&mut b, &mut a);
    assert_eq!(a.write(id, Bytes::new()), Err(WriteError::Closed));
    assert_eq!(a.write(other, Bytes::new()), Ok(()));
}

#[test]
fn silence_is_noticed_and_pings_keep_the_session_alive() {
    let mut a = Session::new(Limits::PEER, T0);
    assert_eq!(a.next_timeout(), Duration::from_secs(5));
    assert!(!a.ping_due(Duration::from_secs(4)));
    assert!(a.ping_due(Duration::from_secs(5)));
    a.heard(Duration::from_secs(6));
    assert!(!a.is_dead(Duration::from_secs(65)));
    assert!(a.is_dead(Duration::from_secs(66)));
}

#[test]
fn the_number_of_streams_is_bounded_on_both_ends() {
    let (mut a, mut b) = (Session::new(Limits { streams: 6, ..small() }, T0), Session::new(small(), T0));
    for _ in 0..6 {
        a.open(&target()).expect("room");
    }
    assert!(a.open(&target()).is_err());
    carry(&mut a, &mut b);
    carry(&mut b, &mut a);
    assert_eq!((a.streams(), b.streams()), (4, 4));
}

proptest! {
    #[test]
    fn bytes_arrive_whole_and_in_order(steps in prop::collection::vec((0u8..6, 0usize..3, 1usize..90), 1..200)) {
        let (mut a, mut b) = (Session::new(small(), T0), Session::new(small(), T0));
        let ids: Vec<_> = (0..3).map(|_| a.open(&target()).expect("room")).collect();
        let mut sent: BTreeMap<i64, Vec<u8>> = BTreeMap::new();
        let mut got: BTreeMap<i64, Vec<u8>> = BTreeMap::new();
        let mut unread: BTreeMap<i64, usize> = BTreeMap::new();
        let mut serial = 0u8;
        let drain = |b: &mut Session, got: &mut BTreeMap<i64, Vec<u8>>, unread: &mut BTreeMap<i64, usize>| {
            for event in events(b) {
                if let Event::Data(id, data) = event {
                    *unread.entry(id).or_default() += data.len();
                    got.entry(id).or_default().extend_from_slice(&data);
                }
            }
        };
        for (what, which, size) in steps {
            let id = ids[which];
            match what {
                0..=2 => {
                    serial = serial.wrapping_add(1);
                    let data = vec![serial; size];
                    if a.write(id, Bytes::from(data.clone())).is_ok() {
                        sent.entry(id).or_default().extend(data);
                    }
                }
                3 => { carry(&mut a, &mut b); carry(&mut b, &mut a); }
                4 => drain(&mut b, &mut got, &mut unread),
                _ => if let Some(count) = unread.remove(&id) { b.consumed(id, count); },
            }
            // A sender that hears of the pause at once never overruns: at most one step of data is under way.
            carry(&mut a, &mut b);
            carry(&mut b, &mut a);
        }
        drain(&mut b, &mut got, &mut unread);
        for id in ids {
            prop_assert_eq!(sent.get(&id), got.get(&id));
        }
    }

    #[test]
    fn decoding_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let mut session = Session::new(small(), T0);
        let _ = session.receive(Bytes::from(bytes), T0);
    }
}
