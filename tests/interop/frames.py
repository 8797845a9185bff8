# What the plain callers of this folder send: fields of protocol buffers, messages of gRPC and frames of HTTP/2, without compression of headers.
PREFACE = b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'


def varint(number):
    encoded = b''
    while number >= 0x80:
        encoded += bytes([number & 0x7f | 0x80])
        number >>= 7
    return encoded + bytes([number])


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def message(payload, announced=None):
    return b'\x00' + (len(payload) if announced is None else announced).to_bytes(4, 'big') + payload


def frame(kind, flags, stream, payload):
    return len(payload).to_bytes(3, 'big') + bytes([kind, flags]) + stream.to_bytes(4, 'big') + payload


def literal(name, value):
    return b'\x00' + bytes([len(name)]) + name + bytes([len(value)]) + value


def headers_of(path):
    """The block of headers that begins a call."""
    headers = b'\x83\x86' + literal(b':path', path.encode()) + literal(b':authority', b'localhost')
    return headers + literal(b'content-type', b'application/grpc') + literal(b'te', b'trailers')
