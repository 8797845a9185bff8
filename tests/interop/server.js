// The echo service on grpc-js: node server.js. Prints its port and serves until its input ends.
'use strict';
const { grpc, testing } = require('./echo');

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const reply = (request) => ({ payload: request.reply_bytes ? Buffer.alloc(request.reply_bytes) : request.payload });
const ordered = (request) => request.status_code && Object.assign(new Error(request.status_message), {
  code: request.status_code,
  details: request.status_message,
});

// Returns "x-echo-initial" in the headers and "x-echo-trailing-bin" in the trailers.
function echoMetadata(call) {
  const initial = new grpc.Metadata();
  const trailing = new grpc.Metadata();
  for (const value of call.metadata.get('x-echo-initial')) initial.add('x-echo-initial', value);
  for (const value of call.metadata.get('x-echo-trailing-bin')) trailing.add('x-echo-trailing-bin', value);
  if (call.metadata.get('x-echo-initial').length > 0) call.sendMetadata(initial);
  return trailing;
}

// Writes the requested replies and returns the requested error.
async function replies(call, request) {
  const count = request.no_reply ? 0 : Math.max(1, request.reply_count);
  for (let i = 0; i < count && !call.cancelled; i++) {
    if (request.delay_ms) await sleep(request.delay_ms);
    if (!call.write(reply(request))) await new Promise((resolve) => call.once('drain', resolve));
  }
  if (request.no_reply && request.delay_ms) await sleep(request.delay_ms);
  if (request.die) setTimeout(() => process.exit(1), 50);
  return ordered(request);
}

const service = {
  async Unary(call, callback) {
    const trailing = echoMetadata(call);
    if (call.request.delay_ms) await sleep(call.request.delay_ms);
    callback(ordered(call.request) || null, reply(call.request), trailing);
  },
  async ServerStream(call) {
    const trailing = echoMetadata(call);
    const error = await replies(call, call.request);
    if (error) call.emit('error', error);
    else if (!call.request.die) call.end(trailing);
  },
  ClientStream(call, callback) {
    const trailing = echoMetadata(call);
    const payloads = [];
    let error = null;
    call.on('data', (request) => {
      payloads.push(request.payload);
      error = error || ordered(request) || null;
    });
    call.on('end', () => callback(error, { payload: Buffer.concat(payloads) }, trailing));
  },
  Duplex(call) {
    const trailing = echoMetadata(call);
    let last = Promise.resolve();
    call.on('data', (request) => {
      last = last.then(() => replies(call, request)).then((error) => error && call.emit('error', error));
    });
    call.on('end', () => last.then(() => call.end(trailing)));
    call.on('error', () => {});
  },
};

const { Missing, ...served } = testing.Echo.service;
const server = new grpc.Server();
server.addService(served, service);
server.bindAsync('127.0.0.1:0', grpc.ServerCredentials.createInsecure(), (error, port) => {
  if (error) throw error;
  console.log(port);
});
process.stdin.on('end', () => process.exit(0)).resume();
