//! The wire format of protobuf: fields read and written one by one.

/// Why bytes are no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum WireError {
    /// They end too soon, or a number is too long.
    #[error("the bytes are damaged")]
    Damaged,
    /// A field has another form than its kind says.
    #[error("a field has an unexpected wire type")]
    Form,
    /// Messages within messages without end.
    #[error("the message is nested too deeply")]
    TooDeep,
}

/// A field's value as it lies on the wire.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Field<'a> {
    Varint(u64),
    Fixed64(u64),
    Fixed32(u32),
    Bytes(&'a [u8]),
}

impl<'a> Field<'a> {
    pub(crate) fn bytes(&self) -> Result<&'a [u8], WireError> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            _ => Err(WireError::Form),
        }
    }

    pub(crate) fn packed(&self) -> Option<&'a [u8]> {
        self.bytes().ok()
    }

    pub(crate) fn text(&self) -> Result<String, WireError> {
        Ok(String::from_utf8_lossy(self.bytes()?).into_owned())
    }

    pub(crate) fn number(&self) -> Result<u64, WireError> {
        match self {
            Self::Varint(n) | Self::Fixed64(n) => Ok(*n),
            Self::Fixed32(n) => Ok(u64::from(*n)),
            Self::Bytes(_) => Err(WireError::Form),
        }
    }

    pub(crate) fn double(&self) -> Result<f64, WireError> {
        match self {
            Self::Fixed64(n) => Ok(f64::from_bits(*n)),
            Self::Fixed32(n) => Ok(f64::from(f32::from_bits(*n))),
            _ => Err(WireError::Form),
        }
    }
}

/// Reads fields.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], WireError> {
        let (head, rest) = self.bytes.split_at_checked(count).ok_or(WireError::Damaged)?;
        self.bytes = rest;
        Ok(head)
    }

    /// The next bare number; none at the end.
    pub(crate) fn varint(&mut self) -> Result<Option<u64>, WireError> {
        if self.bytes.is_empty() {
            return Ok(None);
        }
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = *self.take(1)?.first().ok_or(WireError::Damaged)?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(Some(value));
            }
        }
        Err(WireError::Damaged)
    }

    /// The next field; none at the end.
    pub(crate) fn field(&mut self) -> Result<Option<(u32, Field<'a>)>, WireError> {
        let Some(key) = self.varint()? else { return Ok(None) };
        let number = u32::try_from(key >> 3).map_err(|_| WireError::Damaged)?;
        let value = match key & 7 {
            0 => Field::Varint(self.varint()?.ok_or(WireError::Damaged)?),
            1 => Field::Fixed64(u64::from_le_bytes(self.take(8)?.try_into().map_err(|_| WireError::Damaged)?)),
            2 => {
                let length = usize::try_from(self.varint()?.ok_or(WireError::Damaged)?).map_err(|_| WireError::Damaged)?;
                Field::Bytes(self.take(length)?)
            }
            5 => Field::Fixed32(u32::from_le_bytes(self.take(4)?.try_into().map_err(|_| WireError::Damaged)?)),
            _ => return Err(WireError::Form),
        };
        Ok(Some((number, value)))
    }
}

/// Writes fields.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    fn raw(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(u8::try_from(value & 0x7f).unwrap_or(0) | 0x80);
            value >>= 7;
        }
        self.bytes.push(u8::try_from(value).unwrap_or(0));
    }

    pub(crate) fn varint(&mut self, number: u32, value: u64) {
        self.raw(u64::from(number) << 3);
        self.raw(value);
    }

    pub(crate) fn double(&mut self, number: u32, value: f64) {
        self.raw(u64::from(number) << 3 | 1);
        self.bytes.extend(value.to_bits().to_le_bytes());
    }

    pub(crate) fn bytes(&mut self, number: u32, bytes: &[u8]) {
        self.open(number, bytes.len());
        self.bytes.extend_from_slice(bytes);
    }

    /// The beginning of bytes that follow: their number and length.
    pub(crate) fn open(&mut self, number: u32, length: usize) {
        self.raw(u64::from(number) << 3 | 2);
        self.raw(length as u64);
    }

    /// A message within, written by `fill`.
    pub(crate) fn message(&mut self, number: u32, fill: impl FnOnce(&mut Self)) {
        let mut inner = Self::default();
        fill(&mut inner);
        self.bytes(number, &inner.finish());
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        self.bytes
    }
}
