// Element: the only place where DOM is made. Text becomes text nodes, shown as `visible` shows it; nothing is markup.

import { visible } from "./format.js";

const REFUSED = /^(on|style$|srcdoc$|src$|href$|action$|formaction$)/i;

/**
 * A new element.
 * props: attributes by name (false, null and undefined leave one out, true gives it empty); `on` are listeners by
 * event; `to` is a place of this page, "/…". Children are elements, strings, or null for nothing.
 */
export function element(tag, props = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) {
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) made.addEventListener(event, listener);
    } else if (name === "to") {
      setPlace(made, value);
    } else {
      setAttribute(made, name, value);
    }
  }
  made.append(...nodes(children));
  return made;
}

/** Set or, with false, null or undefined, remove an attribute that cannot run or load anything. */
export function setAttribute(made, name, value) {
  if (REFUSED.test(name)) throw new TypeError(`${name} is not for element()`);
  if (value === false || value === null || value === undefined) made.removeAttribute(name);
  else made.setAttribute(name, value === true ? "" : visible(String(value)));
}

/** Let a link lead to a place of this page, "/…". */
export function setPlace(link, place) {
  link.setAttribute("href", "#" + place);
}

/** A text node. */
export function text(content) {
  return document.createTextNode(visible(content));
}

/** Put these children in place of what is there. */
export function fill(parent, ...children) {
  parent.replaceChildren(...nodes(children));
}

/** Change the element's text when it is another one. */
export function setText(made, content) {
  const shown = visible(content);
  if (made.textContent !== shown) made.textContent = shown;
}

/** A link to elsewhere, for an address of http or https only; for any other the address as text. */
export function outsideLink(address) {
  const shown = element("span", { class: "address" }, address);
  let url;
  try {
    url = new URL(address);
  } catch {
    return shown;
  }
  if (url.protocol !== "https:" && url.protocol !== "http:") return shown;
  const link = element("a", { rel: "noopener noreferrer", target: "_blank", class: "address" }, address);
  link.href = url.href;
  return link;
}

/** A button. */
export function button(label, listener, props = {}) {
  return element("button", { type: "button", ...props, on: { click: listener } }, label);
}

/** A time that says when on hover, and how long ago in its text. */
export function time(ms, shown) {
  const made = element("time", { datetime: new Date(ms).toISOString() }, shown);
  made.title = new Date(ms).toLocaleString();
  return made;
}

function nodes(children) {
  return children
    .flat()
    .filter((child) => child !== null && child !== undefined && child !== false)
    .map((child) => (child instanceof Node ? child : text(String(child))));
}
