// Small parts of the page. Everything from the cluster is inserted as text, never as markup.

export const $ = (id) => document.getElementById(id);

/** Creates an element with attributes and children. Attributes that are null or false are omitted. */
export const el = (name, attributes = {}, ...children) => filled(document.createElement(name), attributes, children);

/** Creates an element of a drawing. */
export const svg = (name, attributes = {}, ...children) => filled(document.createElementNS('http://www.w3.org/2000/svg', name), attributes, children);

function filled(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) element.setAttribute(key, value === true ? '' : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/**
 * Makes a parent's children equal to these and keeps every element that can be kept, so that focus, selection and scroll positions survive the update
 * every second. Listeners are attached to parents that are kept, and find by attributes what was pressed.
 */
export function show(parent, children) {
  while (parent.childNodes.length > children.length) parent.lastChild.remove();
  children.forEach((child, index) => {
    const old = parent.childNodes[index];
    if (!old) parent.append(child);
    else morph(old, child);
  });
}

function morph(old, made) {
  if (old.nodeName !== made.nodeName) {
    old.replaceWith(made);
  } else if (old.nodeType === Node.TEXT_NODE) {
    if (old.nodeValue !== made.nodeValue) old.nodeValue = made.nodeValue;
  } else {
    for (const { name } of [...old.attributes]) if (!made.hasAttribute(name)) old.removeAttribute(name);
    for (const { name, value } of made.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    show(old, [...made.childNodes]);
  }
}

/** Announces a message to screen readers and shows it below the header. */
export function say(text) {
  $('said').textContent = text;
}

/** Asks for confirmation before a change. */
export function sure(text) {
  const dialog = $('sure');
  $('sure-text').textContent = text;
  dialog.returnValue = 'no';
  dialog.showModal();
  return new Promise((done) => dialog.addEventListener('close', () => done(dialog.returnValue === 'yes'), { once: true }));
}
