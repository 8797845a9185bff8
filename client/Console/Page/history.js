// The last fifteen minutes of each node, from the samples that the nodes keep themselves: small charts on one time axis, with the node's events on it.
import { get } from './api.js';
import { $, el, show, svg } from './dom.js';
import { duration, number, rate, size, time } from './format.js';

const spanMs = 15 * 60_000;
const intervalMs = 5000;
// Samples further apart than this are not joined.
const gapMs = 4 * intervalMs;
const [width, height] = [300, 60];

// Each chart has lines, areas on top of one another, or bars. A series is its field and what it is called.
const charts = [
  { title: 'Operations/s', format: rate, lines: [['readsPerSecond', 'reads'], ['writesPerSecond', 'writes']] },
  { title: 'Duration of reads', format: duration, lines: [['readP50Us', 'p50'], ['readP99Us', 'p99']] },
  { title: 'Duration of writes', format: duration, lines: [['writeP50Us', 'p50'], ['writeP99Us', 'p99']] },
  { title: 'Lag of its followers', format: (changes) => `${number(changes)} changes`, lines: [['lagChanges', 'slowest']] },
  {
    title: 'Memory of stores',
    format: size,
    areas: [
      ['changedPagesBytes', 'changed pages'], ['readerPagesBytes', 'held by readers'], ['freePagesBytes', 'free pages'],
      ['journalBytes', 'journal'], ['journalIndexBytes', 'journal index'], ['requestsBytes', 'waiting requests'],
    ],
  },
  { title: 'Disk', format: size, lines: [['diskUsedBytes', 'used'], ['diskFreeBytes', 'free']] },
  { title: 'Checkpoints', format: size, bars: [['checkpointBytes', 'written']], count: 'checkpoints' },
];

let readAt = -Infinity;

/** Reads the samples if nodes may have new ones, and draws them with these events. */
export async function refresh(events) {
  if (performance.now() - readAt < intervalMs) return;
  readAt = performance.now();
  const { nodes, unixMs } = await get('/api/history');
  $('history-none').hidden = nodes.length > 0;
  show($('history'), nodes.map((node) => {
    const own = events.filter((event) => event.node === node.node);
    return el('section', { 'aria-label': `The last fifteen minutes of node ${node.node}` },
      el('h4', {}, `Node ${node.node}`),
      el('div', { class: 'charts' }, ...charts.map((chart) => draw(chart, node, unixMs, own))));
  }));
}

function draw(chart, node, now, events) {
  const times = node['unixMs'];
  const from = times.findIndex((at) => at > now - spanMs);
  const kept = (values) => (from < 0 ? [] : values.slice(from));
  const at = kept(times);
  const series = (chart.lines ?? chart.areas ?? chart.bars).map(([field, name], index) => ({ name, index, values: kept(node[field]) }));
  const stacked = chart.areas ? stack(series, at.length) : series.map(({ values }) => values);
  const top = Math.max(0, ...stacked.flat().filter((value) => value !== null));
  const x = (ms) => ((ms - now + spanMs) / spanMs) * width;
  const y = (value) => height - 1 - (value / Math.max(top, 1e-9)) * (height - 2);
  const shapes = series.map(({ index, values }) =>
    chart.lines ? svg('path', { class: `line l${index}`, d: line(at, values, x, y) })
      : chart.areas ? svg('path', { class: `a${index}`, d: area(at, index === 0 ? null : stacked[index - 1], stacked[index], x, y) })
        : svg('path', { class: `line l${index}`, d: bars(at, values, x, y) }));
  const marks = events.filter((event) => event.unixMs > now - spanMs && event.unixMs <= now).map((event) => {
    const place = x(event.unixMs).toFixed(1);
    return svg('line', { class: event.alarm ? 'mark alarm' : 'mark', x1: place, x2: place, y1: 0, y2: height }, svg('title', {}, `${time(event.unixMs)} shard ${event.shard}: ${event.text}`));
  });
  const told = (value) => (value === null || value === undefined ? '–' : chart.format(value));
  const newest = series.map(({ name, values }) => `${name} ${told(values.at(-1))}`);
  if (chart.count) newest[0] = `${told(series[0].values.reduce((all, value) => all + value, 0))} by ${number(kept(node[chart.count]).reduce((all, count) => all + count, 0))}`;
  return el('figure', { class: 'chart' },
    el('figcaption', {}, el('span', { class: 'label' }, `${chart.title}, up to ${told(top)}`),
      ...newest.map((text, index) => el('span', { class: 'series' }, el('span', { class: `dot c${index}`, 'aria-hidden': 'true' }), text))),
    svg('svg', { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: 'none', role: 'img', 'aria-label': `${chart.title} of node ${node.node} in the last 15 minutes: ${newest.join(', ')}; events: ${marks.length}` }, ...shapes, ...marks),
    el('div', { class: 'axis', 'aria-hidden': 'true' }, el('span', {}, '15 min ago'), el('span', {}, '10'), el('span', {}, '5'), el('span', {}, 'now')));
}

/** The sums of each series and those below it. */
function stack(series, length) {
  const sums = new Array(length).fill(0);
  return series.map(({ values }) => values.map((value, index) => (sums[index] += value)));
}

const point = (x, y) => `${x.toFixed(1)} ${y.toFixed(1)}`;

// A sample without neighbours is a dot: a line without length, which has round ends.
function line(times, values, x, y) {
  let path = '';
  let last = null;
  times.forEach((at, index) => {
    if (values[index] === null) {
      last = null;
      return;
    }
    path += last !== null && at - last < gapMs ? `L${point(x(at), y(values[index]))}` : `M${point(x(at), y(values[index]))}h0`;
    last = at;
  });
  return path;
}

function area(times, lower, upper, x, y) {
  if (times.length === 0) return '';
  const along = (values) => times.map((at, index) => point(x(at), y(values ? values[index] : 0)));
  return `M${along(upper).join('L')}L${along(lower).reverse().join('L')}Z`;
}

function bars(times, values, x, y) {
  return times.map((at, index) => (values[index] > 0 ? `M${point(x(at), y(0))}V${y(values[index]).toFixed(1)}` : '')).join('');
}
