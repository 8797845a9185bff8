// The cases of grpc-js against a server of the echo service: node client.js PORT. Prints a line of JSON for each:
// {"name", "failure"}, where failure is null for a case that passed.
'use strict';
const assert = require('assert');
const { grpc, testing } = require('./echo');

const address = `127.0.0.1:${process.argv[2]}`;
const credentials = grpc.credentials.createInsecure();
const options = { 'grpc.max_receive_message_length': 64 << 20, 'grpc.max_send_message_length': 64 << 20, 'grpc.enable_retries': 0 };
const open = (more) => new testing.Echo(address, credentials, { ...options, ...more, 'grpc.use_local_subchannel_pool': 1 });
const client = open();
const absent = new testing.Absent(address, credentials, options);
const status = grpc.status;
// For calls that must succeed, on any machine.
const patiently = () => ({ deadline: new Date(Date.now() + 180_000) });

// Runs a unary or client streaming call to its end: { error, reply, initial, trailing }.
const finish = (start) => new Promise((resolve) => {
  const result = {};
  let open = 2;
  const done = () => --open === 0 && resolve(result);
  const call = start((error, reply) => { Object.assign(result, { error, reply }); done(); });
  call.on('metadata', (initial) => { result.initial = initial; });
  call.on('status', (ended) => { result.status = ended; result.trailing = ended.metadata; done(); });
  result.call = call;
});

// Collects a stream of replies: { replies, status, initial }.
const collect = (call, onReply = () => {}) => new Promise((resolve) => {
  const result = { replies: [] };
  call.on('metadata', (initial) => { result.initial = initial; });
  call.on('data', (reply) => { result.replies.push(reply); onReply(reply); });
  call.on('error', () => {});
  call.on('status', (ended) => { result.status = ended; resolve(result); });
});

const unary = (request, metadata = new grpc.Metadata(), callOptions = patiently(), on = client) =>
  finish((callback) => on.Unary(request, metadata, callOptions, callback));

const cases = {
  async empty_unary() {
    const { error, reply } = await unary({});
    assert.ifError(error);
    assert.strictEqual(reply.payload.length, 0);
  },
  async large_unary() {
    const payload = Buffer.alloc(271828, 7);
    const { error, reply } = await unary({ payload, reply_bytes: 3141592 });
    assert.ifError(error);
    assert.strictEqual(reply.payload.length, 3141592);
    assert.deepStrictEqual((await unary({ payload })).reply.payload, payload);
  },
  async client_streaming() {
    const { error, reply } = await finish((callback) => {
      const call = client.ClientStream(new grpc.Metadata(), patiently(), callback);
      for (const size of [27182, 8, 1828, 45904]) call.write({ payload: Buffer.alloc(size, size) });
      call.end();
      return call;
    });
    assert.ifError(error);
    assert.strictEqual(reply.payload.length, 74922);
  },
  async server_streaming() {
    const { replies, status: ended } = await collect(client.ServerStream({ reply_bytes: 31415, reply_count: 100 }, patiently()));
    assert.strictEqual(ended.code, status.OK);
    assert.strictEqual(replies.length, 100);
    assert.ok(replies.every((reply) => reply.payload.length === 31415));
  },
  async duplex_streaming() {
    const call = client.Duplex(patiently());
    let next = 0;
    const send = () => (next < 200 ? call.write({ payload: Buffer.from([next++]) }) : call.end());
    const collected = collect(call, send);
    send();
    const { replies, status: ended } = await collected;
    assert.strictEqual(ended.code, status.OK);
    assert.deepStrictEqual(replies.map((reply) => reply.payload[0]), [...Array(200).keys()]);
  },
  async empty_stream() {
    const call = client.Duplex(patiently());
    call.end();
    const { replies, status: ended } = await collect(call);
    assert.strictEqual(ended.code, status.OK);
    assert.strictEqual(replies.length, 0);
    const client_stream = await finish((callback) => {
      const empty = client.ClientStream(patiently(), callback);
      empty.end();
      return empty;
    });
    assert.ifError(client_stream.error);
  },
  async cancel_before_first_message() {
    const call = client.Duplex(patiently());
    const collected = collect(call);
    setTimeout(() => call.cancel(), 20);
    const { replies, status: ended } = await collected;
    assert.strictEqual(ended.code, status.CANCELLED);
    assert.strictEqual(replies.length, 0);
  },
  async cancel_after_first_message() {
    const call = client.Duplex(patiently());
    const collected = collect(call, () => call.cancel());
    call.write({ payload: Buffer.from('first') });
    const { replies, status: ended } = await collected;
    assert.strictEqual(ended.code, status.CANCELLED);
    assert.strictEqual(replies.length, 1);
  },
  async deadline_exceeded_on_sleeping_server() {
    const { error } = await unary({ delay_ms: 20000 }, new grpc.Metadata(), { deadline: new Date(Date.now() + 100) });
    assert.strictEqual(error.code, status.DEADLINE_EXCEEDED);
    const streamed = await collect(client.Duplex({ deadline: new Date(Date.now() + 100) }));
    assert.strictEqual(streamed.status.code, status.DEADLINE_EXCEEDED);
  },
  async status_code_and_message() {
    const { error } = await unary({ status_code: status.FAILED_PRECONDITION, status_message: 'test status message' });
    assert.strictEqual(error.code, status.FAILED_PRECONDITION);
    assert.strictEqual(error.details, 'test status message');
    const call = client.Duplex(patiently());
    call.write({ status_code: status.ABORTED, status_message: 'after a reply' });
    const { replies, status: ended } = await collect(call);
    assert.strictEqual(replies.length, 1);
    assert.strictEqual(ended.code, status.ABORTED);
    assert.strictEqual(ended.details, 'after a reply');
  },
  async special_status_message() {
    const message = '\t\ntest with whitespace\r\nand Unicode BMP ☺ and non-BMP 😈 and 100 %25\t\n';
    const { error } = await unary({ status_code: status.UNKNOWN, status_message: message });
    assert.strictEqual(error.code, status.UNKNOWN);
    assert.strictEqual(error.details, message);
  },
  async unimplemented_method() {
    const { error } = await finish((callback) => client.Missing({}, patiently(), callback));
    assert.strictEqual(error.code, status.UNIMPLEMENTED);
  },
  async unimplemented_service() {
    const { error } = await finish((callback) => absent.Unary({}, patiently(), callback));
    assert.strictEqual(error.code, status.UNIMPLEMENTED);
  },
  async custom_metadata() {
    const metadata = new grpc.Metadata();
    metadata.set('x-echo-initial', 'test_initial_metadata_value');
    metadata.set('x-echo-trailing-bin', Buffer.from('ababab', 'hex'));
    const single = await unary({}, metadata);
    assert.ifError(single.error);
    assert.deepStrictEqual(single.initial.get('x-echo-initial'), ['test_initial_metadata_value']);
    assert.deepStrictEqual(single.trailing.get('x-echo-trailing-bin'), [Buffer.from('ababab', 'hex')]);
    const call = client.Duplex(metadata, patiently());
    call.write({});
    call.end();
    const streamed = await collect(call);
    assert.deepStrictEqual(streamed.initial.get('x-echo-initial'), ['test_initial_metadata_value']);
    assert.deepStrictEqual(streamed.status.metadata.get('x-echo-trailing-bin'), [Buffer.from('ababab', 'hex')]);
  },
  async request_too_large() {
    const { error } = await unary({ payload: Buffer.alloc(5 << 20) });
    assert.strictEqual(error.code, status.RESOURCE_EXHAUSTED);
  },
  async response_too_large() {
    const { error } = await unary({ reply_bytes: 1 << 20 }, new grpc.Metadata(), patiently(), open({ 'grpc.max_receive_message_length': 1000 }));
    assert.strictEqual(error.code, status.RESOURCE_EXHAUSTED);
  },
  async compressed_request() {
    const compressing = open({ 'grpc.default_compression_algorithm': 2 });
    const payload = Buffer.alloc(100000, 5);
    const { error, reply } = await unary({ payload }, new grpc.Metadata(), patiently(), compressing);
    assert.ifError(error);
    assert.deepStrictEqual(reply.payload, payload);
  },
  async server_dies_mid_stream() {
    const { replies, status: ended } = await collect(open().ServerStream({ reply_count: 3, reply_bytes: 10, die: true }, patiently()));
    assert.ok(replies.length <= 3);
    assert.strictEqual(ended.code, status.UNAVAILABLE);
  },
};

(async () => {
  for (const [name, run] of Object.entries(cases)) {
    let failure = null;
    try {
      await run();
    } catch (error) {
      failure = error.stack;
    }
    console.log(JSON.stringify({ name, failure }));
  }
  process.exit(0);
})();
