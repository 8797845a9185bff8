// Switches between the views, refreshes them every second, and handles the token.
import { get, isUnlocked, unlock } from './api.js';
import { $, say } from './dom.js';
import * as findings from './findings.js';
import * as history from './history.js';
import * as keys from './keys.js';
import * as overview from './overview.js';

const intervalMs = 1000;

function route() {
  const [view, ...rest] = location.hash.slice(1).split('/');
  const isKeys = view === 'keys';
  $('keys').hidden = !isKeys;
  $('overview').hidden = isKeys;
  $('to-keys').setAttribute('aria-current', isKeys ? 'page' : 'false');
  $('to-overview').setAttribute('aria-current', isKeys ? 'false' : 'page');
  if (isKeys) keys.browse(decoded(rest.join('/')));
}

// The address may have been typed by hand.
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch (mistake) {
    if (!(mistake instanceof URIError)) throw mistake;
    return part;
  }
}

function drawLock(canChange) {
  document.body.classList.toggle('unlocked', isUnlocked());
  $('unlock').hidden = !canChange || isUnlocked();
  keys.refresh();
}

async function poll() {
  if (document.visibilityState === 'visible') {
    try {
      const news = await get('/api/overview');
      $('banner').hidden = true;
      $('cluster').textContent = news.cluster;
      $('program').textContent = `seen from ${news.program}${news.canChange ? '' : ', read-only'}`;
      document.title = `KvCluster ${news.cluster}`;
      overview.draw(news);
      drawLock(news.canChange);
      await history.refresh(news.events);
      void findings.refresh();
    } catch (failure) {
      $('banner').hidden = false;
      const line = `No update: ${failure.message}`;
      // Shown once, not every second.
      if ($('banner').textContent !== line) $('banner').textContent = line;
    }
  }
  setTimeout(poll, intervalMs);
}

$('unlock').addEventListener('click', () => {
  $('token').value = '';
  $('token-error').textContent = '';
  $('token-dialog').showModal();
});
$('token-cancel').addEventListener('click', () => $('token-dialog').close());
$('token-form').addEventListener('submit', async (event) => {
  event.preventDefault();
  try {
    await unlock($('token').value);
    $('token-dialog').close();
    drawLock(true);
    overview.drawAll();
    if (!$('keys').hidden) route();
    say('Changes are unlocked until this page is closed.');
  } catch (failure) {
    $('token-error').textContent = failure.status === 401 ? 'The token is wrong.' : failure.message;
    $('token').select();
  }
});

overview.listen();
keys.listen();
addEventListener('hashchange', route);
document.querySelector('.skip').addEventListener('click', (event) => {
  event.preventDefault();
  $('main').focus();
});
route();
poll();
