//! One stream through a tunnel, as an asynchronous byte stream.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use wire::{StreamId, WriteError};

use crate::driver::Shared;

/// The most bytes put into one message, so that streams take turns on the socket.
const CHUNK: usize = 32 << 10;

/// A byte stream through the tunnel. There is no half-close: shutting it down ends both directions, as the protocol has it.
pub struct Stream {
    id: StreamId,
    shared: Arc<Shared>,
    rest: Bytes,
}

impl Stream {
    pub(crate) fn new(id: StreamId, shared: Arc<Shared>) -> Stream {
        Stream { id, shared, rest: Bytes::new() }
    }

    /// Ends the stream with a reason that the peer is told (for example why a dial failed).
    pub fn refuse(self, reason: &str) {
        self.close(Some(reason));
    }

    fn close(&self, reason: Option<&str>) {
        let mut state = self.shared.state.lock();
        state.streams.remove(&self.id);
        state.session.close(self.id, reason);
        drop(state);
        self.shared.work.notify_one();
    }
}

impl AsyncRead for Stream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.rest.is_empty() {
            let shared = self.shared.clone();
            let mut state = shared.state.lock();
            let Some(half) = state.streams.get_mut(&self.id) else { return Poll::Ready(Ok(())) };
            if let Some(data) = half.inbox.pop_front() {
                self.rest = data;
            } else if let Some(reason) = &half.closed {
                return Poll::Ready(match reason {
                    None => Ok(()),
                    Some(text) => Err(io::Error::new(io::ErrorKind::ConnectionReset, text.clone())),
                });
            } else {
                half.reader = Some(cx.waker().clone());
                return Poll::Pending;
            }
            let count = self.rest.len();
            state.session.consumed(self.id, count);
            if state.session.backlog() > 0 {
                shared.work.notify_one();
            }
        }
        let count = self.rest.len().min(buf.remaining());
        buf.put_slice(&self.rest[..count]);
        self.rest.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let mut state = self.shared.state.lock();
        let broken = || Poll::Ready(Err(io::Error::from(io::ErrorKind::BrokenPipe)));
        if state.over {
            return broken();
        }
        if state.crowded() {
            state.crowd.push(cx.waker().clone());
            return Poll::Pending;
        }
        let chunk = &buf[..buf.len().min(CHUNK)];
        match state.session.write(self.id, Bytes::copy_from_slice(chunk)) {
            Ok(()) => {
                drop(state);
                self.shared.work.notify_one();
                Poll::Ready(Ok(chunk.len()))
            }
            Err(WriteError::Closed) => broken(),
            Err(WriteError::Paused) => {
                if let Some(half) = state.streams.get_mut(&self.id) {
                    half.writer = Some(cx.waker().clone());
                }
                Poll::Pending
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.close(None);
        Poll::Ready(Ok(()))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.close(None);
    }
}
