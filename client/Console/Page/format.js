// Formats bytes and numbers for people, and parses them. Keys and values are sent as base64.
const strict = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

export const toBytes = (base64) => Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));

export function toBase64(bytes) {
  let text = '';
  for (let at = 0; at < bytes.length; at += 8192) text += String.fromCharCode(...bytes.subarray(at, at + 8192));
  return btoa(text);
}

export const toBase64Url = (bytes) => toBase64(bytes).replaceAll('+', '-').replaceAll('/', '_').replaceAll('=', '');

/** Bytes as UTF-8 text; null if they are not valid UTF-8. */
export function asText(bytes) {
  try {
    return strict.decode(bytes);
  } catch {
    return null;
  }
}

const hex = (byte) => `\\x${byte.toString(16).padStart(2, '0')}`;

/** A key as one line that fromEscaped parses: text unchanged, backslashes doubled, control characters and invalid UTF-8 as \xNN. */
export function toEscaped(bytes) {
  const text = asText(bytes);
  if (text === null) return Array.from(bytes, (byte) => (byte > 0x20 && byte < 0x7f && byte !== 0x5c ? String.fromCharCode(byte) : hex(byte))).join('');
  return text.replaceAll('\\', '\\\\').replace(/[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/gu, (character) => Array.from(new TextEncoder().encode(character), hex).join(''));
}

export function fromEscaped(line) {
  const parts = [];
  const pattern = /\\x([0-9a-fA-F]{2})|\\(\\)|([^\\]+)|\\/gy;
  for (const [, byte, backslash, text] of line.matchAll(pattern)) {
    if (byte) parts.push(Uint8Array.of(parseInt(byte, 16)));
    else if (backslash) parts.push(Uint8Array.of(0x5c));
    else if (text) parts.push(new TextEncoder().encode(text));
    else throw new Error('A backslash must be followed by xNN or by a second backslash.');
  }
  const bytes = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  parts.reduce((at, part) => (bytes.set(part, at), at + part.length), 0);
  return bytes;
}

const whole = new Intl.NumberFormat('en-US', { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat('en-US', { maximumSignificantDigits: 3 });

export const number = (value) => whole.format(value);

export const rate = (value) => (value === null ? '–' : value > 0 && value < 10 ? short.format(value) : whole.format(value));

export function size(bytes) {
  const units = ['B', 'kB', 'MB', 'GB', 'TB'];
  let unit = 0;
  for (; bytes >= 1000 && unit < units.length - 1; unit++) bytes /= 1000;
  return `${unit === 0 ? bytes : bytes.toFixed(1)} ${units[unit]}`;
}

export function duration(microseconds) {
  if (microseconds === null) return '–';
  if (microseconds === Infinity) return '> 10 s';
  if (microseconds < 1000) return `${short.format(microseconds)} µs`;
  return microseconds < 1e6 ? `${short.format(microseconds / 1e3)} ms` : `${short.format(microseconds / 1e6)} s`;
}

/** A time that is left, by its two largest units. */
export function timeLeft(milliseconds) {
  let left = Math.floor(milliseconds / 1000);
  if (left < 1) return 'less than a second';
  const parts = [];
  for (const [unit, seconds] of [['day', 86_400], ['hour', 3600], ['minute', 60], ['second', 1]]) {
    const count = Math.floor(left / seconds);
    left -= count * seconds;
    if (count > 0) parts.push(`${whole.format(count)} ${unit}${count === 1 ? '' : 's'}`);
  }
  return parts.slice(0, 2).join(' ');
}

export const time = (unixMs) => new Date(unixMs).toLocaleTimeString('en-GB', { hour12: false });
