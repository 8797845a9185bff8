# The cases of Python's grpcio against a server of the echo service: client.py PORT DESCRIPTOR, where DESCRIPTOR is echo.proto as a serialized
# FileDescriptorProto in base64, so that no compiler is needed. Prints a line of JSON for each case: {"name", "failure"}, where failure is null for a
# case that passed.
import base64
import json
import sys
import threading
import traceback

import grpc
from google.protobuf import descriptor_pool, message_factory

POOL = descriptor_pool.DescriptorPool()
POOL.AddSerializedFile(base64.b64decode(sys.argv[2]))
SECONDS = 180  # for calls that must succeed, on any machine


def message_class(name):
    descriptor = POOL.FindMessageTypeByName('kvcluster.testing.' + name)
    if hasattr(message_factory, 'GetMessageClass'):
        return message_factory.GetMessageClass(descriptor)
    return message_factory.MessageFactory(POOL).GetPrototype(descriptor)


Request = message_class('EchoRequest')
Reply = message_class('EchoReply')


class Echo:
    """The stubs of one service on a channel of its own."""

    def __init__(self, service='Echo', compression=None, **options):
        options = {'max_receive_message_length': 64 << 20, 'max_send_message_length': 64 << 20, 'enable_retries': 0, **options}
        channel = grpc.insecure_channel(
            f'127.0.0.1:{sys.argv[1]}',
            options=[('grpc.' + name, value) for name, value in options.items()] + [('grpc.use_local_subchannel_pool', 1)],
            compression=compression)
        kinds = {'unary': channel.unary_unary, 'missing': channel.unary_unary, 'server_stream': channel.unary_stream,
                 'client_stream': channel.stream_unary, 'duplex': channel.stream_stream}
        for name, kind in kinds.items():
            path = ''.join(part.capitalize() for part in name.split('_'))
            setattr(self, name, kind(f'/kvcluster.testing.{service}/{path}', Request.SerializeToString, Reply.FromString))


def same(actual, wanted):
    if actual != wanted:
        raise AssertionError(f'{actual!r} instead of {wanted!r}')


def ends_with(code, call):
    """The error that a call, or reading its replies, ends with."""
    try:
        call()
    except grpc.RpcError as error:
        same(error.code(), code)
        return error
    raise AssertionError(f'no error instead of {code}')


echo = Echo()
Code = grpc.StatusCode


def empty_unary():
    same(echo.unary(Request(), timeout=SECONDS).payload, b'')


def large_unary():
    payload = b'\x07' * 271828
    same(len(echo.unary(Request(payload=payload, reply_bytes=3141592), timeout=SECONDS).payload), 3141592)
    same(echo.unary(Request(payload=payload), timeout=SECONDS).payload, payload)


def client_streaming():
    payloads = [bytes([size % 256]) * size for size in (27182, 8, 1828, 45904)]
    same(echo.client_stream((Request(payload=payload) for payload in payloads), timeout=SECONDS).payload, b''.join(payloads))


def server_streaming():
    replies = list(echo.server_stream(Request(reply_bytes=31415, reply_count=100), timeout=SECONDS))
    same([len(reply.payload) for reply in replies], [31415] * 100)


def duplex_streaming():
    answered = threading.Semaphore(1)

    def requests():
        for number in range(200):
            if not answered.acquire(timeout=SECONDS):
                return
            yield Request(payload=bytes([number]))

    numbers = []
    for reply in echo.duplex(requests(), timeout=SECONDS):
        numbers.append(reply.payload[0])
        answered.release()
    same(numbers, list(range(200)))


def empty_stream():
    same(list(echo.duplex(iter(()), timeout=SECONDS)), [])
    same(echo.client_stream(iter(()), timeout=SECONDS).payload, b'')


def held_open(first, ended):
    yield from first
    ended.wait(SECONDS)


def cancel_before_first_message():
    ended = threading.Event()
    call = echo.duplex(held_open([], ended), timeout=SECONDS)
    call.cancel()
    same(ends_with(Code.CANCELLED, lambda: next(call)).code(), call.code())
    ended.set()


def cancel_after_first_message():
    ended = threading.Event()
    call = echo.duplex(held_open([Request(payload=b'first')], ended), timeout=SECONDS)
    same(next(call).payload, b'first')
    call.cancel()
    ends_with(Code.CANCELLED, lambda: next(call))
    ended.set()


def deadline_exceeded_on_sleeping_server():
    ends_with(Code.DEADLINE_EXCEEDED, lambda: echo.unary(Request(delay_ms=20000), timeout=0.1))
    ended = threading.Event()
    ends_with(Code.DEADLINE_EXCEEDED, lambda: next(echo.duplex(held_open([], ended), timeout=0.1)))
    ended.set()


def status_code_and_message():
    order = Request(status_code=Code.FAILED_PRECONDITION.value[0], status_message='test status message')
    same(ends_with(Code.FAILED_PRECONDITION, lambda: echo.unary(order, timeout=SECONDS)).details(), 'test status message')
    call = echo.duplex(iter([Request(status_code=Code.ABORTED.value[0], status_message='after a reply')]), timeout=SECONDS)
    next(call)
    same(ends_with(Code.ABORTED, lambda: next(call)).details(), 'after a reply')


def special_status_message():
    message = '\t\ntest with whitespace\r\nand Unicode BMP \u263a and non-BMP \U0001f608 and 100 %25\t\n'
    order = Request(status_code=Code.UNKNOWN.value[0], status_message=message)
    same(ends_with(Code.UNKNOWN, lambda: echo.unary(order, timeout=SECONDS)).details(), message)


def unimplemented_method():
    ends_with(Code.UNIMPLEMENTED, lambda: echo.missing(Request(), timeout=SECONDS))


def unimplemented_service():
    ends_with(Code.UNIMPLEMENTED, lambda: Echo('Absent').unary(Request(), timeout=SECONDS))


def custom_metadata():
    metadata = (('x-echo-initial', 'test_initial_metadata_value'), ('x-echo-trailing-bin', b'\xab\xab\xab'))
    _, call = echo.unary.with_call(Request(), timeout=SECONDS, metadata=metadata)
    stream = echo.duplex(iter([Request()]), timeout=SECONDS, metadata=metadata)
    same(len(list(stream)), 1)
    for ended in (call, stream):
        same(dict(ended.initial_metadata())['x-echo-initial'], 'test_initial_metadata_value')
        same(dict(ended.trailing_metadata())['x-echo-trailing-bin'], b'\xab\xab\xab')


def request_too_large():
    ends_with(Code.RESOURCE_EXHAUSTED, lambda: echo.unary(Request(payload=bytes(5 << 20)), timeout=SECONDS))


def response_too_large():
    ends_with(Code.RESOURCE_EXHAUSTED, lambda: Echo(max_receive_message_length=1000).unary(Request(reply_bytes=1 << 20), timeout=SECONDS))


def compressed_request():
    payload = b'\x05' * 100000
    same(Echo(compression=grpc.Compression.Gzip).unary(Request(payload=payload), timeout=SECONDS).payload, payload)


def server_dies_mid_stream():
    ends_with(Code.UNAVAILABLE, lambda: list(Echo().server_stream(Request(reply_count=3, reply_bytes=10, die=True), timeout=SECONDS)))


CASES = [empty_unary, large_unary, client_streaming, server_streaming, duplex_streaming, empty_stream, cancel_before_first_message,
         cancel_after_first_message, deadline_exceeded_on_sleeping_server, status_code_and_message, special_status_message,
         unimplemented_method, unimplemented_service, custom_metadata, request_too_large, response_too_large, compressed_request,
         server_dies_mid_stream]

for case in CASES:
    failure = None
    try:
        case()
    except Exception:
        failure = traceback.format_exc()
    print(json.dumps({'name': case.__name__, 'failure': failure}), flush=True)
