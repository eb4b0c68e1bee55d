//! The session: pumps messages between the WebSocket and the state machine, and hands out streams.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{FuturesUnordered, SplitSink, SplitStream};
use futures::{SinkExt, StreamExt};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_tungstenite::tungstenite::{self, Message};
use tokio_tungstenite::WebSocketStream;
use wire::{Event, Limits, OpenError, Session, StreamId, Target};

use crate::stream::Stream;

/// Messages that may wait for the socket before writers are held back.
const BACKLOG: usize = 128;

/// Answers the peer's wish for a connection: gets the target and the stream, and runs until the stream is done.
pub type Acceptor = Arc<dyn Fn(Target, Stream) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// Why a session ended.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The socket failed.
    #[error("read or write the tunnel's socket")]
    Socket(#[source] tungstenite::Error),
    /// The peer sent something that is no message of the protocol.
    #[error("decode a message of the tunnel's peer")]
    Protocol(#[source] wire::DecodeError),
    /// Nothing was heard for [`Limits::silence`].
    #[error("keep the tunnel alive: the peer is silent")]
    Silent,
}

/// What the session's task and its streams share.
pub(crate) struct Shared {
    pub(crate) state: Mutex<State>,
    /// Something waits to be sent.
    pub(crate) work: Notify,
    ended: Notify,
}

pub(crate) struct State {
    pub(crate) session: Session,
    pub(crate) streams: BTreeMap<StreamId, Half>,
    /// Writers that wait for the backlog to shrink.
    pub(crate) crowd: Vec<Waker>,
    pub(crate) over: bool,
}

/// The receiving side of one stream.
#[derive(Default)]
pub(crate) struct Half {
    pub(crate) inbox: std::collections::VecDeque<Bytes>,
    pub(crate) reader: Option<Waker>,
    pub(crate) writer: Option<Waker>,
    /// `Some(None)` after a clean end.
    pub(crate) closed: Option<Option<String>>,
}

impl State {
    pub(crate) fn crowded(&self) -> bool {
        self.session.backlog() >= BACKLOG
    }
}

/// A handle on a running session; cheap to clone.
#[derive(Clone)]
pub struct Tunnel {
    shared: Arc<Shared>,
}

impl Tunnel {
    /// Opens a stream to a target on the peer's side. Failure to dial shows as an error on the stream.
    ///
    /// # Errors
    /// [`OpenError`] when too many streams are open or the session is over.
    pub fn open(&self, target: &Target) -> Result<Stream, OpenError> {
        let id = {
            let mut state = self.shared.state.lock();
            if state.over {
                return Err(OpenError::TooMany);
            }
            let id = state.session.open(target)?;
            state.streams.insert(id, Half::default());
            id
        };
        self.shared.work.notify_one();
        Ok(Stream::new(id, self.shared.clone()))
    }

    /// Whether the session has ended.
    pub fn is_over(&self) -> bool {
        self.shared.state.lock().over
    }

    /// Completes when the session has ended.
    pub async fn ended(&self) {
        let ended = self.shared.ended.notified();
        tokio::pin!(ended);
        ended.as_mut().enable();
        if !self.is_over() {
            ended.await;
        }
    }

    /// Streams open in this session.
    pub fn streams(&self) -> usize {
        self.shared.state.lock().session.streams()
    }
}

/// Starts a session on an established WebSocket. Returns the handle and the future that must be run for it to live.
pub fn session<S>(
    socket: WebSocketStream<S>,
    limits: Limits,
    acceptor: Acceptor,
) -> (Tunnel, impl Future<Output = Result<(), SessionError>> + Send)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let start = Instant::now();
    let shared = Arc::new(Shared {
        state: Mutex::new(State {
            session: Session::new(limits, Duration::ZERO),
            streams: BTreeMap::new(),
            crowd: Vec::new(),
            over: false,
        }),
        work: Notify::new(),
        ended: Notify::new(),
    });
    let tunnel = Tunnel { shared: shared.clone() };
    let run = async move {
        let (mut sink, mut source) = socket.split();
        let result = tokio::select! {
            result = send(&shared, &mut sink, start) => result,
            result = receive(&shared, &mut source, start, acceptor) => result,
        };
        finish(&shared);
        // Best effort: the peer may be gone already.
        let _ = tokio::time::timeout(Duration::from_secs(1), sink.close()).await;
        result
    };
    (tunnel, run)
}

async fn send<S>(
    shared: &Shared,
    sink: &mut SplitSink<WebSocketStream<S>, Message>,
    start: Instant,
) -> Result<(), SessionError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    loop {
        loop {
            let (message, crowd) = {
                let mut state = shared.state.lock();
                let message = state.session.poll_transmit(start.elapsed());
                let crowd = if state.crowded() { Vec::new() } else { std::mem::take(&mut state.crowd) };
                (message, crowd)
            };
            crowd.into_iter().for_each(Waker::wake);
            let Some(message) = message else { break };
            sink.feed(Message::Binary(message)).await.map_err(SessionError::Socket)?;
        }
        sink.flush().await.map_err(SessionError::Socket)?;
        let next = start + shared.state.lock().session.next_timeout();
        tokio::select! {
            () = shared.work.notified() => {}
            () = tokio::time::sleep_until(next) => {
                let (dead, ping) = {
                    let mut state = shared.state.lock();
                    let now = start.elapsed();
                    (state.session.is_dead(now), state.session.ping_due(now))
                };
                if dead {
                    return Err(SessionError::Silent);
                }
                if ping {
                    sink.send(Message::Ping(Bytes::new())).await.map_err(SessionError::Socket)?;
                }
            }
        }
    }
}

async fn receive<S>(
    shared: &Arc<Shared>,
    source: &mut SplitStream<WebSocketStream<S>>,
    start: Instant,
    acceptor: Acceptor,
) -> Result<(), SessionError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut accepted = FuturesUnordered::new();
    loop {
        let message = tokio::select! {
            message = source.next() => message,
            Some(()) = accepted.next(), if !accepted.is_empty() => continue,
        };
        let now = start.elapsed();
        match message {
            None | Some(Ok(Message::Close(_))) => return Ok(()),
            Some(Err(error)) => return Err(SessionError::Socket(error)),
            Some(Ok(Message::Binary(bytes))) => {
                let opened = {
                    let mut state = shared.state.lock();
                    state.session.receive(bytes, now).map_err(SessionError::Protocol)?;
                    let opened = dispatch(&mut state);
                    if state.session.backlog() > 0 {
                        shared.work.notify_one();
                    }
                    opened
                };
                for (id, target) in opened {
                    accepted.push(acceptor(target, Stream::new(id, shared.clone())));
                }
            }
            Some(Ok(_)) => {
                shared.state.lock().session.heard(now);
                // tungstenite has queued a pong for a ping; the sender's flush carries it.
                shared.work.notify_one();
            }
        }
    }
}

/// Moves the session's events to the streams they belong to; returns the streams the peer opened.
fn dispatch(state: &mut State) -> Vec<(StreamId, Target)> {
    let mut opened = Vec::new();
    while let Some(event) = state.session.poll_event() {
        match event {
            Event::Opened(id, target) => {
                state.streams.insert(id, Half::default());
                opened.push((id, target));
            }
            Event::Data(id, data) => {
                if let Some(half) = state.streams.get_mut(&id) {
                    half.inbox.push_back(data);
                    wake(&mut half.reader);
                }
            }
            Event::Closed(id, reason) => {
                if let Some(half) = state.streams.get_mut(&id) {
                    half.closed = Some(reason);
                    wake(&mut half.reader);
                    wake(&mut half.writer);
                }
            }
            Event::Writable(id) => {
                if let Some(half) = state.streams.get_mut(&id) {
                    wake(&mut half.writer);
                }
            }
            Event::Blocked(_) | Event::ClientAdded(_) | Event::ClientRemoved(_) => {}
        }
    }
    opened
}

fn finish(shared: &Shared) {
    let mut state = shared.state.lock();
    state.over = true;
    for half in state.streams.values_mut() {
        half.closed.get_or_insert(Some("the tunnel has ended".to_owned()));
        wake(&mut half.reader);
        wake(&mut half.writer);
    }
    std::mem::take(&mut state.crowd).into_iter().for_each(Waker::wake);
    drop(state);
    shared.ended.notify_waiters();
}

fn wake(slot: &mut Option<Waker>) {
    if let Some(waker) = slot.take() {
        waker.wake();
    }
}
