# A caller that requests much and reads nothing: greedy.py KIND PORT COUNT, with Python's grpcio, or with plain sockets where a gRPC client would be
# too well-behaved. Prints "ready" when its load is established, then waits for the end of standard input, reads everything, and prints a line of
# JSON.
#   exchange  one stream, one message with COUNT Gets of the key "big"
#   unary     COUNT Gets of "big", each on its own connection, of which nothing is read
#   scan      COUNT scans of everything, of which one page is read
#   half      COUNT requests of 8 MiB, each on its own connection, of which 60,000 bytes are sent
#   idle      COUNT connections on which nothing is sent
#   watch     COUNT watchers of the key "big", each on its own connection, of which nothing is read. When it is ready, "big" is put, four times
#   intersect COUNT intersections at a time, counted in the facets of one prefix, of a set of a million members that is made first
import json
import socket
import sys
import threading
import time

import grpc

from frames import PREFACE, field, frame, headers_of, message

KIND, PORT, COUNT = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
SERVICE = '/kvcluster.v1.Kv/'


def fields(message):
    """The fields of an encoded message that are numbers or bytes."""
    at = 0

    def read():
        nonlocal at
        value = shift = 0
        while True:
            octet = message[at]
            at += 1
            value |= (octet & 0x7f) << shift
            shift += 7
            if octet < 0x80:
                return value

    while at < len(message):
        tag = read()
        if tag & 7 == 0:
            yield tag >> 3, read()
        else:
            length = read()
            yield tag >> 3, message[at:at + length]
            at += length


def opening(method, settings=b''):
    """What a connection begins with, and the headers of one call on it."""
    return PREFACE + frame(4, 0, 0, settings) + frame(1, 4, 1, headers_of(SERVICE + method))


def connect():
    connection = socket.create_connection(('127.0.0.1', PORT))
    connection.settimeout(10)
    return connection


def wait():
    print('ready', flush=True)
    sys.stdin.read()


def tell(**what):
    print(json.dumps(what), flush=True)


def exchange():
    channel = grpc.insecure_channel(f'127.0.0.1:{PORT}', options=[('grpc.max_receive_message_length', 64 << 20), ('grpc.max_send_message_length', 64 << 20)])
    ended = threading.Event()

    def requests():
        get = field(1, b'big')
        yield b''.join(field(1, field(1, number + 1) + field(2, 1) + field(3, get) + field(4, 600_000)) for number in range(COUNT))
        ended.wait()

    # Below the test's own limit, so that it learns how many replies have come.
    called = time.monotonic()
    call = channel.stream_stream(SERVICE + 'Exchange')(requests(), timeout=480)
    time.sleep(2)
    wait()
    unread = time.monotonic() - called
    answered, refused, largest = 0, 0, 0
    try:
        for response in call:
            largest = max(largest, len(response))
            for _, reply in fields(response):
                if any(number == 2 and code for number, code in fields(reply)):
                    refused += 1
                else:
                    answered += 1
            if answered + refused == COUNT:
                ended.set()
    except grpc.RpcError as error:
        tell(answered=answered, refused=refused, largest=largest, unread=unread, error=error.details())
        return
    tell(answered=answered, refused=refused, largest=largest, unread=unread, error=None)


def sockets(first):
    held = []
    for _ in range(COUNT):
        try:
            connection = connect()
            if first:
                connection.sendall(first)
            held.append(connection)
        except OSError:
            # The server may have closed it already.
            continue
    wait()
    tell(held=len(held))


def scan():
    options = [('grpc.use_local_subchannel_pool', 1), ('grpc.max_receive_message_length', 64 << 20)]
    channels = [grpc.insecure_channel(f'127.0.0.1:{PORT}', options=options) for _ in range(COUNT)]
    calls = [channel.unary_stream(SERVICE + 'Scan')(b'', timeout=600) for channel in channels]
    began, refused = 0, None
    for call in calls:
        try:
            next(call)
            began += 1
        except grpc.RpcError as error:
            # Refused as busy, because the maximum number of replies is waiting.
            refused = error.details()
            continue
    wait()
    tell(began=began, refused=refused)


def call(method, request, tries=200):
    """A unary call, which is made again while the server is busy."""
    channel = grpc.insecure_channel(f'127.0.0.1:{PORT}', options=[('grpc.use_local_subchannel_pool', 1), ('grpc.max_send_message_length', 64 << 20)])
    busy = 0
    with channel:
        for _ in range(tries):
            try:
                return channel.unary_unary(SERVICE + method)(request, timeout=300), busy
            except grpc.RpcError as error:
                # Everything that is called here may be repeated.
                if error.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNKNOWN):
                    raise
                busy += 1
                time.sleep(0.1)
    raise TimeoutError(f'{method} is refused as busy for ever')


def watch():
    payload = message(field(3, b'big') + field(4, 1))
    held = []
    for _ in range(COUNT):
        connection = connect()
        # A window smaller than any event.
        connection.sendall(opening('Watch', b'\x00\x04\x00\x00\x00\x00') + frame(0, 1, 1, payload))
        held.append(connection)
    time.sleep(2)
    # The most memory is taken while the value is put, so that is watched too.
    print('ready', flush=True)
    value = bytes(8 << 20)
    for _ in range(4):
        call('Put', field(1, b'big') + field(2, value))
    time.sleep(2)
    sys.stdin.read()
    tell(held=len(held))


def intersect():
    for first in range(0, 1_000_000, 10_000):
        call('SetAdd', field(1, b'many') + b''.join(field(2, b'%06d' % number) for number in range(first, first + 10_000)))
    call('SetAdd', field(1, b'facet/1') + field(2, b'000001'))
    request = field(1, b'many') + field(4, b'facet/')
    told, errors = [], []

    def ask():
        try:
            answer, busy = call('SetIntersect', request)
            told.append((dict(fields(answer)).get(4), busy))
        except Exception as error:  # noqa: BLE001, whatever it is, the test tells
            errors.append(str(error))

    callers = [threading.Thread(target=ask) for _ in range(COUNT)]
    for caller in callers:
        caller.start()
    print('ready', flush=True)
    sys.stdin.read()
    for caller in callers:
        caller.join()
    tell(answered=len(told), counts=sorted({count for count, _ in told}), busy=sum(busy for _, busy in told), errors=errors[:3])


if KIND == 'exchange':
    exchange()
elif KIND == 'watch':
    watch()
elif KIND == 'intersect':
    intersect()
elif KIND == 'scan':
    scan()
elif KIND == 'idle':
    sockets(b'')
elif KIND == 'half':
    payload = message(bytes(59_995), 8 << 20)
    sockets(opening('Put') + b''.join(frame(0, 0, 1, payload[at:at + 16_384]) for at in range(0, len(payload), 16_384)))
elif KIND == 'unary':
    # A window smaller than any response.
    sockets(opening('Get', b'\x00\x04\x00\x00\x00\x00') + frame(0, 1, 1, message(field(1, b'big'))))
