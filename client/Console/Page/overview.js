// The first view: nodes, shards by key range, rates, hot prefixes, events. Drawn again every second from the latest answer and the previous one.
import { post, isUnlocked } from './api.js';
import { $, el, say, show, sure, svg } from './dom.js';
import { duration, number, rate, size, time, toBytes, toEscaped } from './format.js';
import { callsBetween, sum } from './rates.js';

const coloursMax = 8;
const historyMax = 120;
const history = [];
let before = null;
let shown = null;
let chosen = null;

export function draw(overview) {
  const seconds = before ? (overview.unixMs - before.unixMs) / 1000 : 0;
  if (before && seconds === 0) return;
  shown = { overview, seconds, before };
  figures();
  drawAll();
  before = overview;
}

/** Draws the same answer again, because another shard was chosen or changes were unlocked. */
export function drawAll() {
  if (!shown) return;
  range();
  detail();
  nodes();
  memory();
  shards();
  hot();
  events();
}

export function listen() {
  $('range').addEventListener('click', (event) => choose(event.target.closest('[data-shard]')));
  $('shards').addEventListener('click', (event) => choose(event.target.closest('button[data-shard]')));
  $('shard').addEventListener('click', (event) => transfer(event.target.closest('button[data-to]')));
  $('nodes').addEventListener('click', (event) => drain(event.target.closest('button[data-node]')));
}

function figures() {
  const { overview, before, seconds } = shown;
  $('health').textContent = overview.health.text;
  $('health').className = overview.health.isGood ? '' : 'bad';
  const reads = callsBetween(before && sum(before.nodes.map((node) => node.reads)), sum(overview.nodes.map((node) => node.reads)), seconds);
  const writes = callsBetween(before && sum(before.nodes.map((node) => node.writes)), sum(overview.nodes.map((node) => node.writes)), seconds);
  history.push({ reads: reads.perSecond ?? 0, writes: writes.perSecond ?? 0, readP99: finite(reads.p99), writeP99: finite(writes.p99) });
  if (history.length > historyMax) history.shift();
  const leaderless = overview.shards.filter((shard) => shard.leader === 0).length;
  const silent = overview.nodes.filter((node) => node.error).length;
  const keys = overview.shards.reduce((all, shard) => all + shard.keys, 0);
  const lag = Math.max(0, ...overview.nodes.map((node) => node.lag));
  show($('figures'), [
    figure('Nodes', `${overview.nodes.length - silent} of ${overview.nodes.length} answer`, null, silent > 0),
    figure('Shards', leaderless === 0 ? `${number(overview.shardsTotal)}, all have a leader` : `${leaderless} of ${overview.shardsTotal} without a leader`, null, leaderless > 0),
    figure('Keys', number(keys)),
    figure('Greatest lag', `${number(lag)} changes`),
    figure('Reads', `${rate(reads.perSecond)} /s`, 'reads'),
    figure('Writes', `${rate(writes.perSecond)} /s`, 'writes'),
    figure('p99 of reads', duration(reads.p99), 'readP99'),
    figure('p99 of writes', duration(writes.p99), 'writeP99'),
  ]);
}

const finite = (value) => (value === null ? 0 : value === Infinity ? 1e7 : value);

function figure(label, value, series = null, isBad = false) {
  return el('li', { class: isBad ? 'bad' : null }, el('span', { class: 'label' }, label), el('strong', {}, value), series && history.length > 1 ? spark(series) : null);
}

// Decorative; the number next to it says the same.
function spark(series) {
  const values = history.map((point) => point[series]);
  const top = Math.max(...values, 1e-9);
  return svg('svg', { viewBox: `0 0 ${historyMax - 1} 20`, preserveAspectRatio: 'none', 'aria-hidden': 'true' },
    svg('polyline', { points: values.map((value, index) => `${historyMax - values.length + index},${(19 - (18 * value) / top).toFixed(1)}`).join(' ') }));
}

const colour = (node) => (node === 0 ? 'none' : `c${(node - 1) % coloursMax}`);
const text = (base64) => toEscaped(toBytes(base64));
const from = (shard) => (shard.start === '' ? 'first key' : text(shard.start));
const to = (shard) => (shard.end === '' ? 'last key' : text(shard.end));
const led = (shard) => (shard.leader === 0 ? 'no leader' : `led by node ${shard.leader}`);

function range() {
  const { shards, nodes } = shown.overview;
  const keys = shards.reduce((all, shard) => all + shard.keys, 0);
  show($('range'), shards.map((shard) => el('button', {
    type: 'button',
    class: colour(shard.leader),
    'data-shard': shard.shard,
    'aria-pressed': String(shard.shard === chosen),
    'aria-label': `Shard ${shard.shard}, from ${from(shard)} to ${to(shard)}, ${led(shard)}, ${number(shard.keys)} keys`,
    title: `Shard ${shard.shard}: ${from(shard)} to ${to(shard)}, ${led(shard)}, ${number(shard.keys)} keys`,
  }, el('span', { 'aria-hidden': 'true' }, String(shard.shard)))));
  // As wide as its share of the keys, but never too narrow to touch.
  shards.forEach((shard, index) => { $('range').children[index].style.flexGrow = String(0.02 + (keys === 0 ? 1 : shard.keys / keys)); });
  show($('legend'), [
    ...nodes.map((node) => el('li', {}, el('span', { class: `dot ${colour(node.node)}`, 'aria-hidden': 'true' }), `node ${node.node}`)),
    el('li', {}, el('span', { class: 'dot none', 'aria-hidden': 'true' }), 'no leader'),
  ]);
}

function choose(button) {
  if (!button) return;
  const shard = Number(button.dataset.shard);
  chosen = chosen === shard ? null : shard;
  drawAll();
}

function detail() {
  const shard = shown.overview.shards.find((shard) => shard.shard === chosen);
  show($('shard'), !shard ? [] : [
    el('h4', {}, `Shard ${shard.shard}`),
    el('p', {}, `From ${from(shard)} to ${to(shard)}; ${led(shard)} in epoch ${shard.epoch}; change ${number(shard.change)}; ${number(shard.keys)} keys, ${size(shard.dataAllocatedBytes)} on the disk in a file of ${size(shard.dataBytes)}.`),
    el('ul', {}, ...shard.replicas.map((replica) => el('li', {},
      el('span', {}, `node ${replica.node}: ${replica.role}${replica.failure ? `: ${replica.failure}` : ''}, lag ${number(replica.lag)} `),
      shown.overview.canChange && isUnlocked() && replica.role === 'follower' ? el('button', { type: 'button', 'data-to': replica.node }, `Transfer to node ${replica.node}`) : null))),
  ]);
}

function nodes() {
  const { overview, before, seconds } = shown;
  show($('nodes'), overview.nodes.map((node) => {
    const old = before?.nodes.find((other) => other.node === node.node);
    const reads = callsBetween(old?.reads, node.reads, seconds);
    const writes = callsBetween(old?.writes, node.writes, seconds);
    const state = node.error ? `no answer: ${node.error}` : node.failed > 0 ? `${node.failed} replicas failed` : node.draining ? 'draining' : 'serving';
    return el('tr', { class: node.error || node.failed > 0 ? 'bad' : null },
      el('th', { scope: 'row', title: `${node.address}, version ${node.version}` }, el('span', { class: `dot ${colour(node.node)}`, 'aria-hidden': 'true' }), `node ${node.node}`),
      cell('State', state),
      cell('Leads', `${number(node.leads)} of ${number(node.replicas)}`, 'number'),
      cell('Keys', number(node.keys), 'number'),
      cell('Lag', number(node.lag), 'number'),
      cell('Reads/s', rate(reads.perSecond), 'number'),
      cell('Writes/s', rate(writes.perSecond), 'number'),
      cell('p99 read', duration(reads.p99), 'number'),
      cell('p99 write', duration(writes.p99), 'number'),
      cell('On disk', size(node.dataAllocatedBytes + node.journalBytes), 'number'),
      el('td', { class: 'change' }, el('button', { type: 'button', 'data-node': node.node, 'data-drain': String(!node.draining) }, node.draining ? `Allow node ${node.node} to lead` : `Drain node ${node.node}`)));
  }));
}

// Writers are slowed from half of the budget on.
function memory() {
  const told = shown.overview.nodes.filter((node) => node.memory);
  show($('memory'), told.map(({ node, memory }) => {
    const uses = [
      ['Changed pages', memory.changedPagesBytes], ['Held by readers', memory.readerPagesBytes], ['Free pages', memory.freePagesBytes],
      ['Journal', memory.journalBytes], ['Journal index', memory.journalIndexBytes], ['Waiting requests', memory.requestsBytes],
    ];
    const used = uses.reduce((all, [, bytes]) => all + bytes, 0);
    return el('tr', { class: used > memory.budgetBytes / 2 ? 'bad' : null },
      el('th', { scope: 'row' }, `node ${node}`),
      cell('Used', `${size(used)} of ${size(memory.budgetBytes)}`, 'number'),
      ...uses.map(([label, bytes]) => cell(label, size(bytes), 'number')),
      cell('Held back', duration(memory.heldBackUs), 'number'));
  }));
}

const cell = (label, value, kind = null) => el('td', { 'data-label': label, class: kind }, value);

function shards() {
  const { overview, before, seconds } = shown;
  const older = new Map(before?.shards.map((shard) => [shard.shard, shard]));
  $('shards-more').hidden = overview.shardsTotal === overview.shards.length;
  $('shards-more').textContent = `The first ${number(overview.shards.length)} of ${number(overview.shardsTotal)} shards are shown.`;
  show($('shards'), overview.shards.map((shard) => {
    const old = older.get(shard.shard);
    const changes = old && seconds > 0 ? Math.max(0, shard.change - old.change) / seconds : null;
    return el('tr', { class: shard.leader === 0 ? 'bad' : null },
      el('th', { scope: 'row' }, el('button', { type: 'button', 'data-shard': shard.shard, 'aria-pressed': String(shard.shard === chosen) }, `shard ${shard.shard}`)),
      cell('From', from(shard), 'key'),
      cell('To', to(shard), 'key'),
      cell('Leader', shard.leader === 0 ? 'none' : `node ${shard.leader}`),
      cell('Replicas', shard.replicas.map((replica) => `${replica.node} ${replica.role}${replica.lag > 0 ? ` −${number(replica.lag)}` : ''}`).join(', ')),
      cell('Keys', number(shard.keys), 'number'),
      cell('Changes/s', rate(changes), 'number'),
      cell('On disk', size(shard.dataAllocatedBytes), 'number'));
  }));
}

function hot() {
  const { hotPrefixes, showsKeys } = shown.overview;
  const rows = hotPrefixes.map(({ prefix, share }) => el('tr', {},
    el('td', { class: 'key', 'data-label': 'Prefix' }, el('a', { href: `#keys/${encodeURIComponent(text(prefix))}` }, text(prefix))),
    el('td', { class: 'number', 'data-label': 'Share' }, `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`)));
  const none = showsKeys ? 'No calls were sampled.' : 'Prefixes are shown only with the token.';
  show($('hot'), rows.length > 0 ? rows : [el('tr', {}, el('td', { colspan: 2 }, none))]);
}

function events() {
  const rows = shown.overview.events.map((event) => el('li', { class: event.alarm ? 'bad' : null },
    el('time', { datetime: new Date(event.unixMs).toISOString() }, time(event.unixMs)),
    el('span', {}, ` ${event.alarm ? 'ALARM ' : ''}node ${event.node}, shard ${event.shard}: ${event.text}`)));
  show($('events'), rows.length > 0 ? rows : [el('li', {}, 'None.')]);
}

async function transfer(button) {
  if (!button) return;
  const [shard, node] = [chosen, Number(button.dataset.to)];
  if (!(await sure(`Transfer the leadership of shard ${shard} to node ${node}? Writes pause for a few milliseconds.`))) return;
  await attempt(`Transferring shard ${shard} to node ${node}…`, async () => `Shard ${shard} was transferred to node ${(await post('/api/transfer', { shard, node })).leader}.`);
}

async function drain(button) {
  if (!button) return;
  const [node, draining] = [Number(button.dataset.node), button.dataset.drain === 'true'];
  if (!(await sure(draining ? `Drain node ${node}? It transfers all its leaderships and takes none until it is allowed to lead again or is restarted.` : `Allow node ${node} to lead again?`))) return;
  await attempt(draining ? `Node ${node} is draining…` : `Allowing node ${node} to lead again…`, async () => {
    const outcome = await post('/api/drain', { node, draining }, 70_000);
    if (!draining) return `Node ${node} may lead again.`;
    return `Node ${node} transferred ${outcome.transferred} leaderships${outcome.kept.length > 0 ? ` and kept ${outcome.kept.length} (shard ${outcome.kept[0].shard}: ${outcome.kept[0].reason})` : ''}.`;
  });
}

async function attempt(doing, act) {
  say(doing);
  try {
    say(await act());
  } catch (failure) {
    say(`Error: ${failure.message}`);
  }
}
