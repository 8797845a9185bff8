# A caller that gives up many calls: cancelling.py KIND PORT COUNT, with Python's grpcio, or with plain frames where a gRPC client would be too well-behaved.
# The connections with plain frames come from 127.0.0.2, so that the places that they leave behind are told from others.
# Prints "ready" when its load is established, then goes on until the end of standard input, and prints a line of JSON.
# short    COUNT callers with deadlines of 5 to 10 ms on one channel, beside four callers with 20 s and a watch. Reports what of the latter failed without an
#   answer of the server.
# streams  COUNT callers on one channel that give up scans, watches, loads and exchanges after 5 to 10 ms, or after their first message, beside the same others.
#   Reports the same, and how many of each kind were given up.
# resets   COUNT connections, 8 at a time, on which nothing is read. A large response fills each, then 8,000 calls are answered and reset, whose responses wait
#   for it. It is ready when all are closed.
# watches  COUNT watches over channels of 200, and then a scan. Reports how many watches have begun and what the scan has returned.
import collections
import json
import random
import socket
import sys
import threading
import time

import grpc

from frames import PREFACE, field, frame, headers_of, message

KIND, PORT, COUNT = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
SERVICE = '/kvcluster.v1.Kv/'
DETAILS = 'grpc-status-details-bin'


def ready():
    print('ready', flush=True)


def tell(**what):
    print(json.dumps(what), flush=True)


def end_of_input():
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    return ended


def answered(error):
    """Whether the server has answered the call with an error of its own, or its deadline has passed. Otherwise its connection broke."""
    return error.code() == grpc.StatusCode.DEADLINE_EXCEEDED or any(key == DETAILS for key, _ in error.trailing_metadata() or ())


class Others:
    """Four callers with 20 s and a watch, on the channel of those that give up."""

    def __init__(self, channel, ended):
        self.ended, self.counts, self.broken = ended, collections.Counter(), []
        self.put, self.watch = channel.unary_unary(SERVICE + 'Put'), channel.unary_stream(SERVICE + 'Watch')

    def threads(self):
        return [threading.Thread(target=self.wait, daemon=True) for _ in range(4)] + [threading.Thread(target=self.follow, daemon=True)]

    def wait(self):
        while not self.ended.is_set():
            try:
                self.put(field(1, b'waiting') + field(2, b'v'), timeout=20)
                self.counts['waited'] += 1
            except grpc.RpcError as error:
                if not answered(error):
                    self.broken.append('put: ' + error.details())
                time.sleep(0.01)

    def follow(self):
        while not self.ended.is_set():
            try:
                for _ in self.watch(b''):
                    self.counts['messages'] += 1
                    if self.ended.is_set():
                        return
            except grpc.RpcError as error:
                if not answered(error):
                    self.broken.append('watch: ' + error.details())
                time.sleep(0.01)


def run_beside_others(channel, give_up, is_established):
    """Calls give_up(number, chance, counts) in COUNT threads, again and again, until the end of standard input, and reports what failed of the others' calls."""
    ended, counts = end_of_input(), collections.Counter()
    others = Others(channel, ended)

    def give_up_all(number):
        chance = random.Random(number)
        while not ended.is_set():
            give_up(number, chance, counts)

    threads = [threading.Thread(target=give_up_all, args=(number,), daemon=True) for number in range(COUNT)] + others.threads()
    for thread in threads:
        thread.start()
    while not is_established(counts) or not others.counts['messages'] or not others.counts['waited']:
        time.sleep(0.05)
    ready()
    ended.wait()
    tell(broken=others.broken, given_up=counts, waited=others.counts['waited'], messages=others.counts['messages'])


def short():
    channel = grpc.insecure_channel(f'127.0.0.1:{PORT}')
    put = channel.unary_unary(SERVICE + 'Put')
    put(field(1, b'k') + field(2, b'v'), timeout=60, wait_for_ready=True)

    def give_up(number, chance, counts):
        try:
            put(field(1, b'k%d' % number) + field(2, b'x' * 100), timeout=chance.uniform(5, 10) / 1000)
        except grpc.RpcError:
            counts['put'] += 1

    run_beside_others(channel, give_up, lambda counts: counts['put'] >= 10 * COUNT)


def streams():
    channel = grpc.insecure_channel(f'127.0.0.1:{PORT}')
    put = channel.unary_unary(SERVICE + 'Put')
    for number in range(16):
        put(field(1, b'large%02d' % number) + field(2, bytes(256 << 10)), timeout=60, wait_for_ready=True)

    # Their senders wait for nothing, so that they end with their call.
    def chunks(number):
        for chunk in range(1, 1001):
            yield field(1, chunk) + field(2, field(1, b'load%d/%d' % (number, chunk)) + field(2, b'x' * 100))

    def gets(number):
        for call in range(1, 1001):
            yield field(1, field(1, call) + field(2, 1) + field(3, field(1, b'large%02d' % (number % 16))))

    kinds = {
        'scan': lambda number, timeout: channel.unary_stream(SERVICE + 'Scan')(b'', timeout=timeout),
        'watch': lambda number, timeout: channel.unary_stream(SERVICE + 'Watch')(field(6, 1), timeout=timeout),
        'load': lambda number, timeout: channel.stream_stream(SERVICE + 'BulkLoad')(chunks(number), timeout=timeout),
        'exchange': lambda number, timeout: channel.stream_stream(SERVICE + 'Exchange')(gets(number), timeout=timeout),
    }

    def give_up(number, chance, counts):
        kind = list(kinds)[number % len(kinds)]
        by_deadline = chance.random() < 0.5
        try:
            call = kinds[kind](number, chance.uniform(5, 10) / 1000 if by_deadline else 20)
            next(call)
            call.cancel()
            counts[kind] += 1
        except StopIteration:
            pass
        except grpc.RpcError:
            counts[kind] += 1

    run_beside_others(channel, give_up, lambda counts: all(counts[kind] >= 5 * COUNT // len(kinds) for kind in kinds))


def resets():
    headers = headers_of(SERVICE + 'Get')
    body = message(field(1, b'abc'))
    large = message(field(1, b'large'))
    cancel = (8).to_bytes(4, 'big')
    window = (1 << 30).to_bytes(4, 'big')
    channel = grpc.insecure_channel(f'127.0.0.1:{PORT}')
    channel.unary_unary(SERVICE + 'Put')(field(1, b'large') + field(2, bytes(4 << 20)), timeout=60, wait_for_ready=True)
    ended = []

    def reset():
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.bind(('127.0.0.2', 0))
        connection.connect(('127.0.0.1', PORT))
        connection.settimeout(2)
        try:
            connection.sendall(PREFACE + frame(4, 0, 0, b'\x00\x04' + window) + frame(8, 0, 0, window))
            connection.sendall(frame(1, 4, 1, headers) + frame(0, 1, 1, large))
            time.sleep(0.2)
            for first in range(3, 16003, 1000):
                calls = range(first, first + 1000, 2)
                connection.sendall(b''.join(frame(1, 4, call, headers) + frame(0, 1, call, body) for call in calls))
                time.sleep(0.1)
                connection.sendall(b''.join(frame(3, 0, call, cancel) for call in calls))
        except OSError:
            # The server may close it.
            ended.append(connection)
        connection.close()

    for first in range(0, COUNT, 8):
        threads = [threading.Thread(target=reset) for _ in range(first, min(first + 8, COUNT))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    ready()
    sys.stdin.read()
    tell(connections=COUNT, ended=len(ended))


def watches():
    options = [('grpc.use_local_subchannel_pool', 1)]
    channels = [grpc.insecure_channel(f'127.0.0.1:{PORT}', options=options) for _ in range(0, COUNT, 200)]
    calls = [channels[number // 200].unary_stream(SERVICE + 'Watch')(b'', timeout=600) for number in range(COUNT)]
    begun = 0
    for call in calls:
        next(call)
        begun += 1
    scanner = grpc.insecure_channel(f'127.0.0.1:{PORT}', options=options)
    error, pages = None, 0
    try:
        pages = sum(1 for _ in scanner.unary_stream(SERVICE + 'Scan')(b'', timeout=60))
    except grpc.RpcError as failure:
        error = failure.details()
    ready()
    sys.stdin.read()
    tell(begun=begun, pages=pages, error=error)


{'short': short, 'streams': streams, 'resets': resets, 'watches': watches}[KIND]()
