//! One end of a tunnel: its streams, their flow control, and its keep-alive deadlines.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;

use crate::message::{Body, DecodeError, Message, StreamId};

/// Bounds of a session. The defaults are the figures Clusternet's peers work with.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes of one stream received and not yet consumed at which `Pause` is sent.
    pub pause_above: usize,
    /// Bytes at which `Resume` follows.
    pub resume_below: usize,
    /// Bytes at which a peer that ignores `Pause` loses the stream.
    pub refuse_above: usize,
    /// Streams open at once; a further one is refused.
    pub streams: usize,
    /// A ping goes out after this much time without anything sent.
    pub ping_every: Duration,
    /// A session that heard nothing for this long is over.
    pub silence: Duration,
}

impl Limits {
    /// The figures of Clusternet's peers: pause at 2 MiB, resume at 256 KiB, ping every 5 s, give up after 60 s.
    pub const PEER: Limits = Limits {
        pause_above: 2 << 20,
        resume_below: 256 << 10,
        refuse_above: 16 << 20,
        streams: 10_000,
        ping_every: Duration::from_secs(5),
        silence: Duration::from_secs(60),
    };
}

/// Where a stream shall be joined on the peer's side.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    /// `tcp` or `unix`.
    pub network: String,
    /// `host:port`.
    pub address: String,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The peer asks for a connection to a target; data may follow at once.
    Opened(StreamId, Target),
    /// Bytes arrived. Tell [`Session::consumed`] when they have been passed on.
    Data(StreamId, Bytes),
    /// The stream is over; `None` is the clean end.
    Closed(StreamId, Option<String>),
    /// The peer has room again: writing may go on.
    Writable(StreamId),
    /// The peer asks to stop sending on this stream.
    Blocked(StreamId),
    /// Another client became reachable (between hub replicas).
    ClientAdded(String),
    /// Another client is gone.
    ClientRemoved(String),
}

/// Why no stream was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// [`Limits::streams`] are open.
    #[error("open stream: too many streams are open in this session")]
    TooMany,
}

/// Why bytes were not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// No such stream, or it is closed.
    #[error("write to stream: it is closed")]
    Closed,
    /// The peer said `Pause`; wait for [`Event::Writable`].
    #[error("write to stream: the peer has asked to wait")]
    Paused,
}

#[derive(Debug, Default)]
struct Stream {
    /// Received and not yet consumed, in bytes.
    unread: usize,
    /// We told the peer to pause.
    pausing: bool,
    /// The peer told us to pause.
    paused: bool,
}

/// The state of one end. Times are durations since any fixed instant of the caller's choice.
#[derive(Debug)]
pub struct Session {
    limits: Limits,
    streams: BTreeMap<StreamId, Stream>,
    next_stream: StreamId,
    next_message: i64,
    outgoing: VecDeque<Bytes>,
    events: VecDeque<Event>,
    last_heard: Duration,
    last_sent: Duration,
}

impl Session {
    /// Starts a session at `now`.
    pub fn new(limits: Limits, now: Duration) -> Session {
        Session {
            limits,
            streams: BTreeMap::new(),
            next_stream: 0,
            next_message: 0,
            outgoing: VecDeque::new(),
            events: VecDeque::new(),
            last_heard: now,
            last_sent: now,
        }
    }

    /// Takes one message of the peer.
    ///
    /// # Errors
    /// [`DecodeError`]: the peer does not speak the protocol; end the session.
    pub fn receive(&mut self, bytes: Bytes, now: Duration) -> Result<(), DecodeError> {
        self.last_heard = now;
        let message = Message::decode(bytes)?;
        let id = message.stream;
        match message.body {
            Body::Connect { network, address } => self.accept(id, Target { network, address }),
            Body::Data(data) => self.take_data(id, data),
            Body::Error(text) => {
                if self.streams.remove(&id).is_some() {
                    self.events.push_back(Event::Closed(id, (text != "EOF").then_some(text)));
                }
            }
            Body::Pause => {
                if let Some(stream) = self.streams.get_mut(&id) {
                    stream.paused = true;
                    self.events.push_back(Event::Blocked(id));
                }
            }
            Body::Resume => {
                if let Some(stream) = self.streams.get_mut(&id) {
                    stream.paused = false;
                    self.events.push_back(Event::Writable(id));
                }
            }
            Body::AddClient(name) => self.events.push_back(Event::ClientAdded(name)),
            Body::RemoveClient(name) => self.events.push_back(Event::ClientRemoved(name)),
        }
        Ok(())
    }

    /// Notes a sign of life that is no message (a WebSocket ping or pong).
    pub fn heard(&mut self, now: Duration) {
        self.last_heard = now;
    }

    /// Asks the peer to dial a target; data may be written at once.
    ///
    /// # Errors
    /// [`OpenError::TooMany`] at the limit of open streams.
    pub fn open(&mut self, target: &Target) -> Result<StreamId, OpenError> {
        if self.streams.len() >= self.limits.streams {
            return Err(OpenError::TooMany);
        }
        self.next_stream += 1;
        let id = self.next_stream;
        self.streams.insert(id, Stream::default());
        self.send(id, Body::Connect { network: target.network.clone(), address: target.address.clone() });
        Ok(id)
    }

    /// Sends bytes on a stream.
    ///
    /// # Errors
    /// [`WriteError::Paused`] while the peer has no room, [`WriteError::Closed`] after the end.
    pub fn write(&mut self, id: StreamId, data: Bytes) -> Result<(), WriteError> {
        match self.streams.get(&id) {
            None => Err(WriteError::Closed),
            Some(stream) if stream.paused => Err(WriteError::Paused),
            Some(_) => {
                self.send(id, Body::Data(data));
                Ok(())
            }
        }
    }

    /// Says that `count` received bytes of a stream have been passed on, which may let the peer go on.
    pub fn consumed(&mut self, id: StreamId, count: usize) {
        let resume_below = self.limits.resume_below;
        let Some(stream) = self.streams.get_mut(&id) else { return };
        stream.unread = stream.unread.saturating_sub(count);
        if stream.pausing && stream.unread < resume_below {
            stream.pausing = false;
            self.send(id, Body::Resume);
        }
    }

    /// Ends a stream, cleanly or with a reason for the peer.
    pub fn close(&mut self, id: StreamId, reason: Option<&str>) {
        if self.streams.remove(&id).is_some() {
            // 100 bytes is what the oldest peers accept of an error text.
            let text: String = reason.unwrap_or("EOF").chars().take(96).collect();
            self.send(id, Body::Error(text));
        }
    }

    /// Tells the peer that a client session is reachable through this end (between hub replicas).
    pub fn announce(&mut self, client: &str, present: bool) {
        let name = client.to_owned();
        self.send(0, if present { Body::AddClient(name) } else { Body::RemoveClient(name) });
    }

    /// The next message to send, if any.
    pub fn poll_transmit(&mut self, now: Duration) -> Option<Bytes> {
        let message = self.outgoing.pop_front();
        if message.is_some() {
            self.last_sent = now;
        }
        message
    }

    /// The next thing that happened, if any.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Messages waiting to be sent.
    pub fn backlog(&self) -> usize {
        self.outgoing.len()
    }

    /// Open streams.
    pub fn streams(&self) -> usize {
        self.streams.len()
    }

    /// When the session must next be looked at even if nothing happens.
    pub fn next_timeout(&self) -> Duration {
        (self.last_sent + self.limits.ping_every).min(self.last_heard + self.limits.silence)
    }

    /// Whether a ping is due at `now`; it then counts as sent.
    pub fn ping_due(&mut self, now: Duration) -> bool {
        let due = now >= self.last_sent + self.limits.ping_every;
        if due {
            self.last_sent = now;
        }
        due
    }

    /// Whether the peer has been silent for too long.
    pub fn is_dead(&self, now: Duration) -> bool {
        now >= self.last_heard + self.limits.silence
    }

    fn accept(&mut self, id: StreamId, target: Target) {
        if self.streams.len() >= self.limits.streams || self.streams.contains_key(&id) {
            self.send(id, Body::Error("too many streams, or the number is in use".to_owned()));
            return;
        }
        self.streams.insert(id, Stream::default());
        self.events.push_back(Event::Opened(id, target));
    }

    fn take_data(&mut self, id: StreamId, data: Bytes) {
        let limits = self.limits;
        let Some(stream) = self.streams.get_mut(&id) else {
            // A stream that we closed while data was under way: tell the peer once more.
            self.send(id, Body::Error("EOF".to_owned()));
            return;
        };
        stream.unread += data.len();
        let unread = stream.unread;
        let pause = unread > limits.pause_above && !stream.pausing;
        stream.pausing |= pause;
        self.events.push_back(Event::Data(id, data));
        if unread > limits.refuse_above {
            self.close(id, Some("the receiver's buffer is full and Pause was ignored"));
            self.events.push_back(Event::Closed(id, Some("the peer ignored Pause".to_owned())));
        } else if pause {
            self.send(id, Body::Pause);
        }
    }

    fn send(&mut self, stream: StreamId, body: Body) {
        self.next_message += 1;
        self.outgoing.push_back(Message { id: self.next_message, stream, body }.encode());
    }
}
