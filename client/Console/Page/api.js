// Calls to the admin port. The token is kept in this module only, never in a URL or in the browser's storage.
let token = null;

export const isUnlocked = () => token !== null;

export class Failure extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function call(path, options = {}) {
  const headers = { ...options.headers };
  if (token !== null) headers.Authorization = `Bearer ${token}`;
  let answer;
  try {
    answer = await fetch(path, { ...options, headers, cache: 'no-store', signal: AbortSignal.timeout(options.limitMs ?? 15_000) });
  } catch (error) {
    throw new Failure(0, error.name === 'TimeoutError' ? 'No answer in time.' : 'The admin port does not answer.');
  }
  const isJson = answer.headers.get('Content-Type')?.startsWith('application/json');
  const body = isJson ? await answer.json() : { error: await answer.text() };
  if (answer.ok) return body;
  if (answer.status === 401) token = null;
  throw new Failure(answer.status, body.error || `The admin port answered with status ${answer.status}.`);
}

export const get = (path, parameters = {}, limitMs = 15_000) => call(`${path}?${new URLSearchParams(parameters)}`, { limitMs });

export const post = (path, body, limitMs = 15_000) =>
  call(path, { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body), limitMs });

/** Keeps a token if the server accepts it. */
export async function unlock(shown) {
  token = shown;
  try {
    await get('/api/token');
  } catch (failure) {
    token = null;
    throw failure;
  }
}
