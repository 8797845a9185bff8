// What doctor finds: below the sentence about the cluster's health, the problems first.
import { get } from './api.js';
import { $, el, show } from './dom.js';
import { number, time } from './format.js';

const intervalMs = 30_000;
let readAt = -Infinity;

/** Has the nodes examined if that was not done for half a minute, and draws what was found. It may take long, because it waits for silent nodes. */
export async function refresh() {
  if (performance.now() - readAt < intervalMs) return;
  readAt = performance.now();
  try {
    draw(await get('/api/findings'));
  } catch (failure) {
    $('examined').textContent = `Doctor gives no answer: ${failure.message}`;
  }
}

function draw({ unixMs, checks, findings, notExamined }) {
  show($('findings'), findings.map(({ isProblem, subject, text, advice }) => el('li', { class: isProblem ? 'bad' : null },
    el('strong', {}, `${isProblem ? 'Problem' : 'Warning'}: ${subject} `), el('span', {}, `${text}. `), el('span', {}, advice))));
  $('examined').textContent = [
    `At ${time(unixMs)} doctor made ${number(checks)} checks and found ${findings.length === 0 ? 'nothing wrong' : number(findings.length)}.`,
    ...notExamined.map(({ node, error }) => `Node ${node} could not be examined from here: ${error}.`),
  ].join(' ');
}
