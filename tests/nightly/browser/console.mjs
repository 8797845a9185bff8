// Run by ../console with a cluster under load: uses the console in a real browser as a person would. Ends with one line and exit code 1 at the first mistake.
import { execFile } from 'node:child_process';
import { strict as assert } from 'node:assert';
import path from 'node:path';
import { promisify } from 'node:util';
import { chromium } from 'playwright-core';

const { KV_CONSOLE: address, KV_TOKEN: token, KV_PROGRAM: kv, KV_STOP: pidToStop, KV_STEPS: steps, KV_SCREENSHOTS: screenshots, CHROMIUM: executablePath } = process.env;
const limit = 120_000;
const command = promisify(execFile);
const say = (line) => console.log(`console: ${line}`);
const browser = await chromium.launch({ executablePath, args: process.getuid() === 0 ? ['--no-sandbox'] : [] });

/** Opens a page in its own window and collects the errors that the browser reports. */
async function open(width, colorScheme) {
  const context = await browser.newContext({ viewport: { width, height: 900 }, colorScheme });
  const page = await context.newPage();
  page.setDefaultTimeout(limit);
  page.complaints = [];
  page.on('pageerror', (error) => page.complaints.push(error.message));
  page.on('console', (message) => message.type() === 'error' && page.complaints.push(message.text()));
  page.on('request', (request) => request.url().includes(token) && page.complaints.push(`the token is in ${request.url()}`));
  await page.goto(address);
  await page.waitForFunction(() => document.querySelectorAll('#nodes tr').length === 3 && document.querySelectorAll('#range button').length === 4);
  return page;
}

async function close(page) {
  assert.deepEqual(page.complaints, []);
  await page.context().close();
}

async function picture(page, name) {
  const wide = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
  assert.ok(wide[0] <= wide[1], `${name} is ${wide[0]} pixels wide in a window of ${wide[1]}`);
  const nameless = await page.evaluate(() => [...document.querySelectorAll('button, a, input, textarea')]
    .filter((one) => one.checkVisibility() && !(one.ariaLabel || one.labels?.length || one.textContent.trim())).map((one) => one.outerHTML));
  assert.deepEqual(nameless, [], `${name}: everything that takes input has a name`);
  const faint = await page.evaluate(leastContrast);
  assert.ok(faint.ratio >= 4.5, `${name}: the contrast of "${faint.text}" is ${faint.ratio.toFixed(2)}`);
  await page.screenshot({ path: path.join(screenshots, `${name}.png`), fullPage: true });
}

// The lowest contrast of all visible text with its background, by WCAG's formula.
function leastContrast() {
  const light = (colour) => {
    const [red, green, blue] = colour.map((part) => (part / 255 <= 0.03928 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const parse = (colour) => colour.match(/[\d.]+/g).map(Number);
  const ground = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const style = getComputedStyle(at);
      if (style.backgroundImage !== 'none') return null;
      const colour = parse(style.backgroundColor);
      if (colour.length === 3 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  let least = { ratio: 21, text: '' };
  for (const element of document.querySelectorAll('body *')) {
    if (!element.checkVisibility() || ![...element.childNodes].some((node) => node.nodeType === 3 && node.nodeValue.trim())) continue;
    const behind = ground(element);
    if (!behind) continue;
    const [one, other] = [light(parse(getComputedStyle(element).color).slice(0, 3)), light(behind.slice(0, 3))];
    const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    if (ratio < least.ratio) least = { ratio, text: element.textContent.trim().slice(0, 40) };
  }
  return least;
}

const contains = (page, selector, text) => page.waitForFunction(([selector, text]) => document.querySelector(selector)?.textContent.includes(text), [selector, text]);

async function reading() {
  const origin = new URL(address).port;
  for (const [width, scheme] of [[1280, 'light'], [1280, 'dark'], [390, 'light'], [390, 'dark']]) {
    const page = await open(width, scheme);
    // Under load. Rates are shown after the second overview.
    await page.waitForFunction(() => [...document.querySelectorAll('#figures li')].some((figure) => figure.textContent.startsWith('Writes') && /[1-9]/.test(figure.querySelector('strong').textContent)));
    await page.waitForFunction(() => document.querySelectorAll('#hot a').length > 0 && document.querySelectorAll('#events time').length > 0);
    await contains(page, '#health', '3 of 3 nodes answer, and every shard has a leader and 3 replicas.');
    await contains(page, '#examined', 'doctor made');
    // Three nodes with seven charts each, and at least one sample.
    await page.waitForFunction(() => document.querySelectorAll('#history figure').length === 21 && [...document.querySelectorAll('#history .l0')].some((line) => line.getAttribute('d')));
    await picture(page, `overview-${origin}-${width}-${scheme}`);
    await page.goto(`${address}/#keys/files%2F`);
    await page.locator('#entries button').first().click();
    await page.waitForFunction(() => document.querySelector('#entry-value').value.startsWith('value '));
    assert.equal(await page.locator('#entries button').count(), 50);
    await page.locator('#more').click();
    await page.waitForFunction(() => document.querySelectorAll('#entries button').length === 60);
    assert.ok(await page.locator('#save').isHidden(), 'nothing can be saved without the token');
    await picture(page, `keys-${origin}-${width}-${scheme}`);
    await close(page);
  }
  say(`${address}: overview and keys at 1280 and 390 pixels, light and dark: nothing too wide, nameless or faint, and no complaint of the browser`);
}

async function byKeyboard() {
  const page = await open(1280, 'light');
  await page.keyboard.press('Tab');
  assert.equal(await page.evaluate(() => document.activeElement.className), 'skip');
  await page.keyboard.press('Enter');
  await page.keyboard.press('Tab');
  assert.equal(await page.evaluate(() => document.activeElement.dataset.shard), await page.locator('#range button').first().getAttribute('data-shard'));
  await page.keyboard.press('Enter');
  await contains(page, '#shard', 'led by node');
  // Updates every few seconds must not move the focus.
  await page.evaluate(() => { globalThis.held = document.activeElement; });
  for (let news = 0; news < 3; news++) await page.waitForResponse((answer) => answer.url().includes('/api/overview'));
  assert.ok(await page.evaluate(() => globalThis.held === document.activeElement && document.activeElement !== document.body));
  await close(page);
  say('by keyboard: past the header, to a shard, and the focus stays while the page is drawn anew');
}

async function unlocked() {
  const page = await open(1280, 'light');
  await page.getByRole('button', { name: 'Unlock changes' }).click();
  await page.getByLabel('Token').fill('not-the-token-at-all');
  await page.keyboard.press('Enter');
  await contains(page, '#token-error', 'The token is wrong');
  // The browser itself logs the refusal.
  assert.ok(page.complaints.every((complaint) => complaint.includes('401')), page.complaints.join());
  page.complaints.length = 0;
  await picture(page, 'token');
  await page.getByLabel('Token').fill(token);
  await page.keyboard.press('Enter');
  await contains(page, '#said', 'unlocked');
  return page;
}

async function editing(page) {
  await command(kv, ['put', 'notes/one', 'first', '--ttl', '36000']);
  await page.goto(`${address}/#keys/notes%2F`);
  await page.locator('#entries button').first().click();
  await page.waitForFunction(() => document.querySelector('#entry-value').value === 'first');
  await contains(page, '#entry-facts', 'it expires in 9 hours 59 minutes');
  await page.locator('#entry-value').fill('second, by the console: žluťoučký 漢字');
  await page.locator('#save').click();
  await contains(page, '#said', 'Saved.');
  assert.equal((await command(kv, ['get', 'notes/one'])).stdout.trim(), 'second, by the console: žluťoučký 漢字');
  assert.match((await command(kv, ['get', 'notes/one', '--meta'])).stdout, /^ttl\t35\d\d\d/m, 'the key expires as before');
  // The same prefix again shows what has changed.
  await command(kv, ['put', 'notes/two', 'new']);
  await page.getByRole('button', { name: 'Show' }).click();
  await page.waitForFunction(() => document.querySelectorAll('#entries button').length === 2);
  await command(kv, ['delete', 'notes/two']);
  await page.getByRole('button', { name: 'Show' }).click();
  await page.waitForFunction(() => document.querySelectorAll('#entries button').length === 1);
  await page.locator('#entries button').first().click();
  await page.waitForFunction(() => document.querySelector('#entry-value').value.startsWith('second'));
  await command(kv, ['put', 'notes/one', 'somebody else']);
  await page.locator('#entry-value').fill('third');
  await page.locator('#save').click();
  await contains(page, '#said', 'the entry has changed');
  assert.equal((await command(kv, ['get', 'notes/one'])).stdout.trim(), 'somebody else');
  await page.locator('#new-key').click();
  await page.locator('#entry-key').fill('notes/one');
  await page.locator('#entry-value').fill('fourth');
  await page.locator('#save').click();
  await contains(page, '#said', 'Not saved: the key exists already.');
  assert.ok(page.complaints.every((complaint) => complaint.includes('412')), page.complaints.join());
  page.complaints.length = 0;
  await page.locator('#new-key').click();
  await page.locator('#entry-key').fill('notes/\\xff\\x00');
  await page.locator('#entry-value').fill('of a key that is no text');
  await page.locator('#save').click();
  await contains(page, '#said', 'Saved.');
  await page.waitForFunction(() => [...document.querySelectorAll('#entries button')].some((button) => button.textContent === 'notes/\\xff\\x00'));
  await picture(page, 'edited');
  await page.locator('#remove').click();
  await page.locator('#sure-yes').click();
  await contains(page, '#said', 'Deleted.');
  assert.equal(await page.locator('#entries button').count(), 1);
  say('a value is edited under its etag and keeps its expiry, refused when somebody was faster or the key exists, made and deleted under a key that is no text');
}

const overview = (page) => page.evaluate(async () => (await fetch('/api/overview')).json());

async function until(page, holds) {
  const given = Date.now() + limit;
  for (let seen = await overview(page); !holds(seen); seen = await overview(page)) {
    assert.ok(Date.now() < given, `within ${limit} ms: ${holds}`);
    await page.waitForResponse((answer) => answer.url().includes('/api/overview'));
  }
}

async function operating(page) {
  await page.getByRole('link', { name: 'Overview' }).click();
  const shard = (await overview(page)).shards.find((one) => one.leader !== 0);
  await page.locator(`#range button[data-shard="${shard.shard}"]`).click();
  const button = page.locator('#shard button').first();
  const to = Number(await button.getAttribute('data-to'));
  await picture(page, 'shard');
  await button.click();
  await page.locator('#sure-yes').click();
  await contains(page, '#said', `transferred to node ${to}`);
  await until(page, (seen) => seen.shards.find((one) => one.shard === shard.shard).leader === to);
  say(`shard ${shard.shard} went from node ${shard.leader} to node ${to}`);

  await page.locator('#nodes button[data-node="1"]').click();
  await page.locator('#sure-yes').click();
  await contains(page, '#said', 'Node 1 transferred');
  await contains(page, '#nodes tr:first-child', 'draining');
  assert.equal((await overview(page)).nodes[0].leads, 0);
  await picture(page, 'drained');
  await page.locator('#nodes button[data-node="1"]').click();
  await page.locator('#sure-yes').click();
  await contains(page, '#said', 'may lead again');
  await contains(page, '#nodes tr:first-child', 'serving');
  say('node 1 was drained and leads again when it is let');

  process.kill(Number(pidToStop), 'SIGKILL');
  await page.waitForFunction(() => document.querySelector('#nodes tr:last-child').classList.contains('bad'));
  await contains(page, '#nodes tr:last-child', 'no answer');
  await picture(page, 'node-dead');
  await until(page, (seen) => seen.shards.every((one) => one.leader !== 0));
  say('a node that was killed is shown so, and its shards have new leaders');
}

try {
  await reading();
  if (steps === 'all') {
    await byKeyboard();
    const page = await unlocked();
    await editing(page);
    await operating(page);
    await close(page);
  }
} catch (failure) {
  console.error(failure.message);
  console.error(failure.stack?.split('\n').find((line) => line.includes('console.mjs')) ?? '');
  process.exitCode = 1;
} finally {
  await browser.close();
}
