//! pkt-lines and side bands: the framing of every smart Git conversation.

use std::io::{self, Read, Write};

/// The longest payload of one packet.
pub(crate) const MAX: usize = 65516;

/// One packet.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Packet {
    Data(Vec<u8>),
    Flush,
    Delim,
    ResponseEnd,
}

/// Reads one packet.
pub(crate) fn read(from: &mut dyn Read) -> io::Result<Packet> {
    let mut head = [0; 4];
    from.read_exact(&mut head)?;
    let text = std::str::from_utf8(&head).map_err(|_| bad("length of a packet"))?;
    let length = usize::from_str_radix(text, 16).map_err(|_| bad("length of a packet"))?;
    match length {
        0 => Ok(Packet::Flush),
        1 => Ok(Packet::Delim),
        2 => Ok(Packet::ResponseEnd),
        3 => Err(bad("length of a packet")),
        n if n - 4 > MAX => Err(bad("length of a packet")),
        n => {
            let mut data = vec![0; n - 4];
            from.read_exact(&mut data)?;
            Ok(Packet::Data(data))
        }
    }
}

/// Reads a packet of text without its line end; `None` at a flush, delimiter or end packet.
pub(crate) fn read_line(from: &mut dyn Read) -> io::Result<Option<String>> {
    match read(from)? {
        Packet::Data(mut data) => {
            if data.last() == Some(&b'\n') {
                data.pop();
            }
            Ok(Some(String::from_utf8_lossy(&data).into_owned()))
        }
        Packet::Flush | Packet::Delim | Packet::ResponseEnd => Ok(None),
    }
}

/// Appends a packet with this text.
pub(crate) fn line(out: &mut Vec<u8>, text: &str) {
    data(out, text.as_bytes());
}

/// Appends a packet with these bytes, which must be at most [`MAX`].
pub(crate) fn data(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(format!("{:04x}", bytes.len() + 4).as_bytes());
    out.extend_from_slice(bytes);
}

/// Appends a flush packet.
pub(crate) fn flush(out: &mut Vec<u8>) {
    out.extend_from_slice(b"0000");
}

/// Appends a delimiter packet.
pub(crate) fn delim(out: &mut Vec<u8>) {
    out.extend_from_slice(b"0001");
}

fn bad(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("malformed {what}"))
}

/// Reads a side-band stream until its flush packet: band 1 goes to `into`, band 2 is returned as text (bounded), band 3 is an error.
pub(crate) fn demultiplex(from: &mut dyn Read, into: &mut dyn Write) -> io::Result<String> {
    const KEEP: usize = 16 * 1024;
    let mut talk = Vec::new();
    loop {
        match read(from)? {
            Packet::Data(data) => match data.split_first() {
                Some((1, rest)) => into.write_all(rest)?,
                Some((2, rest)) => {
                    let room = KEEP.saturating_sub(talk.len());
                    talk.extend_from_slice(&rest[..rest.len().min(room)]);
                }
                Some((3, rest)) => {
                    return Err(io::Error::other(String::from_utf8_lossy(rest).trim().to_owned()));
                }
                _ => return Err(bad("side band")),
            },
            Packet::Flush | Packet::ResponseEnd => return Ok(String::from_utf8_lossy(&talk).into_owned()),
            Packet::Delim => return Err(bad("side band")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip() {
        let mut out = Vec::new();
        line(&mut out, "hello\n");
        delim(&mut out);
        flush(&mut out);
        let mut from = out.as_slice();
        assert_eq!(read(&mut from).expect("data"), Packet::Data(b"hello\n".to_vec()));
        assert_eq!(read(&mut from).expect("delim"), Packet::Delim);
        assert_eq!(read(&mut from).expect("flush"), Packet::Flush);
        assert!(read(&mut from).is_err());
        assert!(read(&mut b"zzzz".as_slice()).is_err());
        assert!(read(&mut b"0003".as_slice()).is_err());
    }

    #[test]
    fn bands() {
        let mut out = Vec::new();
        data(&mut out, b"\x02counting");
        data(&mut out, b"\x01PACK");
        flush(&mut out);
        let mut pack = Vec::new();
        assert_eq!(demultiplex(&mut out.as_slice(), &mut pack).expect("fine"), "counting");
        assert_eq!(pack, b"PACK");
        let mut out = Vec::new();
        data(&mut out, b"\x03no such thing\n");
        assert_eq!(demultiplex(&mut out.as_slice(), &mut Vec::new()).expect_err("fails").to_string(), "no such thing");
    }
}
