# The service kvcluster.v1.Kv from Python's grpcio: kv.py PORT FILE..., where each FILE is a serialized FileDescriptorProto in base64, those that others import
# before them, so that no compiler is needed. The port is that of a node with one shard, or of a router. Prints a line of JSON for each case: {"name",
# "failure"}, where failure is null for a case that passed. All keys have a prefix of the case.
import base64
import json
import sys
import threading
import time
import traceback
import uuid

import grpc
from google.protobuf import any_pb2, descriptor_pool, duration_pb2, message_factory

POOL = descriptor_pool.DescriptorPool()
for known in (any_pb2, duration_pb2):
    POOL.AddSerializedFile(known.DESCRIPTOR.serialized_pb)
for file in sys.argv[2:]:
    POOL.AddSerializedFile(base64.b64decode(file))
SECONDS = 180  # for calls that must succeed, on any machine
Code = grpc.StatusCode
CHANNEL = grpc.insecure_channel(f'127.0.0.1:{sys.argv[1]}', options=[
    ('grpc.max_receive_message_length', 32 << 20), ('grpc.max_send_message_length', 32 << 20), ('grpc.enable_retries', 0)])


def message_class(name):
    descriptor = POOL.FindMessageTypeByName(name)
    if hasattr(message_factory, 'GetMessageClass'):
        return message_factory.GetMessageClass(descriptor)
    return message_factory.MessageFactory(POOL).GetPrototype(descriptor)


def message(kind, **fields):
    return message_class('kvcluster.v1.' + kind)(**fields)


def call(name, **fields):
    """A unary call."""
    stub = CHANNEL.unary_unary('/kvcluster.v1.Kv/' + name, message_class(f'kvcluster.v1.{name}Request').SerializeToString, message_class(f'kvcluster.v1.{name}Response').FromString)
    return stub(message(name + 'Request', **fields), timeout=SECONDS)


def stream(name, response, **fields):
    """A call with a stream of responses."""
    stub = CHANNEL.unary_stream('/kvcluster.v1.Kv/' + name, message_class(f'kvcluster.v1.{name}Request').SerializeToString, message_class('kvcluster.v1.' + response).FromString)
    return stub(message(name + 'Request', **fields), timeout=SECONDS)


def load(chunks):
    stub = CHANNEL.stream_stream('/kvcluster.v1.Kv/BulkLoad', message_class('kvcluster.v1.BulkLoadRequest').SerializeToString, message_class('kvcluster.v1.BulkLoadResponse').FromString)
    return stub(iter(chunks), timeout=SECONDS)


def put(key, value):
    return message('Operation', put=message('PutOperation', key=key, value=value))


def same(actual, wanted):
    if actual != wanted:
        raise AssertionError(f'{actual!r} instead of {wanted!r}')


def refused(code, reason, attempt):
    """A call, or reading its responses, ends with a code and a reason, and says that nothing was applied."""
    try:
        attempt()
    except grpc.RpcError as error:
        same(error.code(), code)
        details = message_class('google.rpc.Status')()
        details.ParseFromString(dict(error.trailing_metadata())['grpc-status-details-bin'])
        same(details.code, code.value[0])
        info = message_class('google.rpc.ErrorInfo')()
        info.ParseFromString(details.details[0].value)
        same((info.domain, info.reason, info.metadata['applied']), ('kvcluster.dev', reason, 'no'))
        return
    raise AssertionError(f'no error instead of {reason}')


def order(etag):
    return etag.epoch, etag.change


def prefix():
    return f'py/{uuid.uuid4().hex}/'.encode()


def put_get_delete():
    p = prefix()
    same(call('Get', key=p).found, False)
    first = call('Put', key=p, value=b'1')
    read = call('Get', key=p)
    same((read.found, read.value, read.etag), (True, b'1', first.position.etag))
    second = call('Put', key=p, value=b'2')
    same(order(second.position.etag) > order(first.position.etag), True)
    same((call('Delete', key=p).existed, call('Delete', key=p).existed, call('Get', key=p).found), (True, False, False))


def conditions():
    p = prefix()
    refused(Code.FAILED_PRECONDITION, 'CONDITION_FAILED', lambda: call('Put', key=p, value=b'x', conditions=[message('Condition', exists=True)]))
    etag = call('Put', key=p, value=b'1', conditions=[message('Condition', exists=False)]).position.etag
    call('Put', key=p, value=b'2', conditions=[message('Condition', etag_equals=etag)])
    refused(Code.FAILED_PRECONDITION, 'CONDITION_FAILED', lambda: call('Put', key=p, value=b'3', conditions=[message('Condition', etag_equals=etag)]))
    call('Delete', key=p, conditions=[message('Condition', value_equals=b'2')])


def write_and_transact():
    p = prefix()
    call('Write', operations=[put(p + b'a', b'1'), put(p + b'b', b'2')])
    compare = message('Condition', key=p + b'a', value_equals=b'1')
    done = call('Transact', conditions=[compare], success=[put(p + b'a', b'3'), message('Operation', get=message('KeyOperation', key=p + b'b'))], failure=[put(p + b'c', b'')])
    same((done.succeeded, done.results[1].entries[0].value), (True, b'2'))
    again = call('Transact', conditions=[compare], success=[], failure=[put(p + b'c', b'')])
    same((again.succeeded, again.failed_condition, call('Get', key=p + b'c').found), (False, 0, True))


def ranges():
    p = prefix()
    call('Write', operations=[put(p + b'%03d' % number, b'%d' % number) for number in range(500)])
    entries = [entry for page in stream('Scan', 'ScanPage', prefix=p) for entry in page.entries]
    same([entry.key for entry in entries], [p + b'%03d' % number for number in range(500)])
    entries = [entry for page in stream('Scan', 'ScanPage', start=p + b'100', end=p + b'200', reverse=True, limit=3, keys_only=True) for entry in page.entries]
    same([(entry.key, entry.value) for entry in entries], [(p + b'199', b''), (p + b'198', b''), (p + b'197', b'')])
    listed, token = [], b''
    while True:
        page = call('List', prefix=p, limit=150, page_token=token)
        listed += [entry.key for entry in page.entries]
        token = page.next_page_token
        if not token:
            break
    same(len(listed), 500)
    same(call('Count', prefix=p).count, 500)
    same([entry.found for entry in call('GetMany', keys=[p + b'007', p + b'x']).entries], [True, False])
    same(call('DeleteRange', start=p + b'100', end=p + b'200').deleted, 100)
    same(call('Count', prefix=p).count, 400)


def numbers_and_sequences():
    p = prefix()
    same([call('Increment', key=p, by=by).number for by in (5, -7, 0)], [5, -2, -2])
    call('Put', key=p, value=b'text')
    refused(Code.FAILED_PRECONDITION, 'NOT_A_NUMBER', lambda: call('Increment', key=p, by=1))
    same([call('Put', key=p + b'q/', sequence=True).key[-2:] for _ in range(3)], [b'01', b'02', b'03'])


def time_to_live():
    p = prefix()
    began = time.monotonic()
    call('Put', key=p, value=b'v', ttl_ms=1500)
    while call('Get', key=p).found:
        same(time.monotonic() - began < SECONDS, True)
        time.sleep(0.02)
    same(time.monotonic() - began > 1.4, True)


def sessions():
    p = prefix()
    session = call('OpenSession', key=p, lifetime_ms=60000).session
    call('Put', key=p + b'owned', owner=session)
    same(len(call('KeepAlive', key=p, sessions=[session]).left_ms), 1)
    same(call('EndSession', key=p, session=session).deleted, 1)
    same(call('Get', key=p + b'owned').found, False)
    refused(Code.FAILED_PRECONDITION, 'NO_OWNER', lambda: call('Put', key=p + b'owned', owner=session))


def sets():
    p = prefix()
    same(call('SetAdd', key=p + b'a', members=[b'x', b'y', b'z']).added, 3)
    same(call('SetAdd', key=p + b'a', members=[b'x']).added, 0)
    call('SetAdd', key=p + b'b', members=[b'y', b'z', b'w'])
    common = call('SetIntersect', keys=[p + b'a', p + b'b'], limit=10, facet_prefixes=[p])
    same((list(common.members), common.count, [facet.count for facet in common.facets[0].sets]), ([b'y', b'z'], 2, [2, 2]))
    same(list(call('SetScan', key=p + b'a').members), [b'x', b'y', b'z'])
    same((call('SetRemove', key=p + b'a', members=[b'x']).removed, call('SetCount', key=p + b'a').count), (1, 2))


def watch():
    p = prefix()
    seen, begun = [], threading.Event()
    responses = stream('Watch', 'WatchResponse', prefix=p, with_previous=True)

    def follow():
        try:
            for response in responses:
                begun.set()
                seen.extend(response.events)
                if len(seen) == 3:
                    return
        except grpc.RpcError:
            pass  # The case fails because events are missing.

    thread = threading.Thread(target=follow)
    thread.start()
    same(begun.wait(SECONDS), True)
    first = call('Put', key=p + b'k', value=b'1').position
    call('Put', key=p + b'k', value=b'2')
    call('Delete', key=p + b'k')
    thread.join(SECONDS)
    responses.cancel()
    same([(event.kind, event.value) for event in seen], [(1, b'1'), (1, b'2'), (2, b'')])
    same(seen[1].previous_etag, first.etag)
    later = stream('Watch', 'WatchResponse', prefix=p, after=[first])
    same(next(event for response in later for event in response.events).value, b'2')
    later.cancel()


def bulk_load():
    p = prefix()
    chunks = [message('BulkLoadRequest', chunk=chunk, entries=[message('Entry', key=p + b'%d/%d' % (chunk, number), value=b'v') for number in range(100)]) for chunk in range(1, 21)]
    same([response.chunk for response in load(chunks)], list(range(1, 21)))
    same(call('Count', prefix=p).count, 2000)
    refused(Code.INVALID_ARGUMENT, 'BAD_REQUEST', lambda: list(load(chunks[1:2])))


def limits():
    p = prefix()
    refused(Code.INVALID_ARGUMENT, 'KEY_EMPTY', lambda: call('Put', value=b'v'))
    refused(Code.INVALID_ARGUMENT, 'KEY_TOO_LONG', lambda: call('Put', key=b'k' * 2049))
    value = bytes(range(256)) * (8 << 12)
    call('Put', key=p, value=value)
    same(call('Get', key=p).value == value, True)
    refused(Code.INVALID_ARGUMENT, 'VALUE_TOO_LARGE', lambda: call('Put', key=p, value=value + b'x'))
    refused(Code.INVALID_ARGUMENT, 'TOO_MANY_OPERATIONS', lambda: call('Write', operations=[put(p + b'%d' % number, b'') for number in range(10001)]))
    same(call('Count', prefix=p).count, 1)


for case in [put_get_delete, conditions, write_and_transact, ranges, numbers_and_sequences, time_to_live, sessions, sets, watch, bulk_load, limits]:
    failure = None
    try:
        case()
    except Exception:
        failure = traceback.format_exc()
    print(json.dumps({'name': case.__name__, 'failure': failure}), flush=True)
