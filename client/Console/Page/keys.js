// The second view: keys by prefix, and one entry. A change applies only to the value that was read; its etag is sent as the condition.
import { get, isUnlocked, post } from './api.js';
import { $, el, say, show, sure } from './dom.js';
import { asText, fromEscaped, number, timeLeft, toBase64, toBase64Url, toBytes, toEscaped } from './format.js';

const rows = 50;
const rowsMax = 1000;
let prefix = new Uint8Array();
let entries = [];
let listing = 0;
// The entry in the form: its key as base64, null for a new one; the etag read, null if there was none; whether the value is text; whether it is complete.
let opened = null;

export function listen() {
  $('browse').addEventListener('submit', (event) => {
    event.preventDefault();
    const wanted = `#keys/${encodeURIComponent($('prefix').value)}`;
    // The same address again changes nothing that anybody is told of, and the keys may have changed.
    if (location.hash === wanted) browse($('prefix').value);
    else location.hash = wanted;
  });
  $('more').addEventListener('click', () => list(entries.at(-1).key));
  $('entries').addEventListener('click', (event) => {
    const button = event.target.closest('button[data-key]');
    if (button) open(button.dataset.key);
  });
  $('new-key').addEventListener('click', () => fill({ key: null, etag: null, bytes: new Uint8Array(), total: 0 }));
  $('reload').addEventListener('click', () => opened?.key && open(opened.key));
  $('entry').addEventListener('submit', (event) => {
    event.preventDefault();
    save();
  });
  $('remove').addEventListener('click', remove);
}

/** Lists the keys with the prefix in the address. */
export async function browse(line) {
  $('prefix').value = line;
  try {
    prefix = fromEscaped(line);
  } catch (mistake) {
    say(mistake.message);
    return;
  }
  entries = [];
  await list(null);
}

/** Enables what is possible now. */
export function refresh() {
  if (!opened) return;
  const canEdit = isUnlocked() && opened.isWhole;
  $('entry-key').readOnly = opened.key !== null;
  $('entry-value').readOnly = !canEdit;
  $('remove').hidden = opened.key === null || opened.etag === null;
  $('reload').hidden = opened.key === null;
}

async function list(after) {
  const turn = ++listing;
  try {
    const parameters = { prefix: toBase64Url(prefix), limit: rows };
    if (after) parameters.after = toBase64Url(toBytes(after));
    const page = await get('/api/keys', parameters);
    // Another prefix was requested meanwhile.
    if (turn !== listing) return;
    entries.push(...page.entries);
    const isFull = entries.length >= rowsMax;
    $('more').hidden = !page.more || isFull;
    $('entries-note').textContent = entries.length === 0 ? 'No keys were found.'
      : `${number(entries.length)} keys${page.more ? ', and there are more' : ''}.${page.more && isFull ? ' Enter a longer prefix to see them.' : ''}`;
    draw();
  } catch (failure) {
    if (turn !== listing) return;
    entries = [];
    draw();
    $('more').hidden = true;
    $('entries-note').textContent = failure.message;
  }
}

function draw() {
  show($('entries'), entries.map(({ key }) => el('li', {}, el('button', { type: 'button', 'data-key': key, 'aria-pressed': String(opened?.key === key) }, toEscaped(toBytes(key))))));
}

async function open(key) {
  try {
    const read = await get('/api/value', { key: toBase64Url(toBytes(key)) });
    fill({ key, etag: read.found ? read.etag : null, bytes: toBytes(read.value), total: read.bytes, shard: read.shard, life: lifeOf(read) });
    if (!read.found) say('The key no longer exists.');
  } catch (failure) {
    say(failure.message);
  }
}

/** What ends a key besides a delete, as the end of a sentence. Saving a value keeps it. */
function lifeOf({ leftMs, owner }) {
  const parts = [];
  if (leftMs !== undefined) parts.push(leftMs > 0 ? `it expires in ${timeLeft(leftMs)}` : 'it expires now');
  if (owner !== undefined) parts.push(`it ends with the session that was opened at ${owner}`);
  return parts.length === 0 ? '' : `. When the key was read: ${parts.join(', and ')}`;
}

function fill({ key, etag, bytes, total, shard, life }) {
  const text = asText(bytes.length < total ? bytes.subarray(0, whole(bytes)) : bytes);
  opened = { key, etag, isText: text !== null && !text.includes('\r'), isWhole: bytes.length === total };
  $('entry').hidden = false;
  $('entry-key').value = key === null ? $('prefix').value : toEscaped(toBytes(key));
  $('entry-value').value = opened.isText ? text : toEscapedBytes(bytes);
  $('entry-facts').textContent = key === null ? 'A new key. It is saved only if it does not exist yet.'
    : etag === null ? 'There is no value.' : `${number(total)} bytes, shard ${shard}, etag ${etag}${life}`;
  $('entry-form').textContent = (opened.isText ? 'Text in UTF-8.' : 'Bytes that are not plain text are shown and entered as \\xNN.') + (opened.isWhole ? '' : ` Only the first ${number(bytes.length)} bytes are shown, so the value cannot be edited here.`);
  refresh();
  draw();
  $(key === null ? 'entry-key' : 'entry-value').focus();
}

// Removes an incomplete last character from a truncated value.
function whole(bytes) {
  let end = bytes.length;
  while (end > 0 && bytes.length - end < 3 && (bytes[end - 1] & 0xc0) === 0x80) end--;
  return end > 0 && bytes[end - 1] >= 0xc0 ? end - 1 : bytes.length;
}

const toEscapedBytes = (bytes) => Array.from(bytes, (byte) => (byte >= 0x20 && byte < 0x7f && byte !== 0x5c ? String.fromCharCode(byte) : byte === 0x5c ? '\\\\' : `\\x${byte.toString(16).padStart(2, '0')}`)).join('');

async function save() {
  try {
    const key = opened.key ?? toBase64(fromEscaped($('entry-key').value));
    const value = opened.isText ? new TextEncoder().encode($('entry-value').value) : fromEscaped($('entry-value').value);
    await post('/api/put', { key, value: toBase64(value), etag: opened.etag });
    await open(key);
    say('Saved.');
    if (!entries.some((entry) => entry.key === key)) {
      entries = [];
      await list(null);
    }
  } catch (failure) {
    const changed = opened.key === null ? 'the key exists already. Open it to change its value.' : 'the entry has changed since it was read. Read it again.';
    say(`Not saved: ${failure.status === 412 ? changed : failure.message}`);
  }
}

async function remove() {
  const { key, etag } = opened;
  if (!(await sure(`Delete ${toEscaped(toBytes(key))}?`))) return;
  try {
    await post('/api/delete', { key, etag });
    entries = entries.filter((entry) => entry.key !== key);
    opened = null;
    $('entry').hidden = true;
    draw();
    say('Deleted.');
  } catch (failure) {
    say(failure.status === 412 ? 'Not deleted: the entry has changed since it was read. Read it again.' : `Not deleted: ${failure.message}`);
  }
}
