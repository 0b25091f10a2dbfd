// The URL is the whole state of a page.
//
// Places live in the fragment (`#/instances?status=failed`), not in the path: the document then has one address, its relative
// URLs mean the same on every page, and neither the server nor a proxy that strips a prefix needs to know which paths are
// pages. A reader's filter also never reaches a proxy's log.
import { signal, type ReadonlySignal } from "@preact/signals";

export type Params = Readonly<Record<string, string | number | boolean | null | undefined>>;

export interface Place {
  /** The decoded segments: `["instances", "order/7"]`. */
  readonly path: readonly string[];
  readonly params: ReadonlyMap<string, string>;
}

const current = signal<Place>(parse(location.hash));

/** Where the page is. Changes with every navigation, back and forward included. */
export const place: ReadonlySignal<Place> = current;

/** The `href` of a place, for links. */
export function href(path: readonly string[], params: Params = {}): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    if (value !== null && value !== undefined && value !== "" && value !== false) query.set(name, String(value));
  }
  const text = query.toString();
  const where = path.map((part) => encodeURIComponent(part.toWellFormed())).join("/");
  return `#/${where}${text === "" ? "" : `?${text}`}`;
}

export function parse(hash: string): Place {
  const [where = "", query = ""] = split(hash.replace(/^#\/?/, ""));
  const path = where
    .split("/")
    .filter((part) => part !== "")
    .map(decode);
  return { path, params: new Map(new URLSearchParams(query)) };
}

function split(text: string): [string, string] {
  const mark = text.indexOf("?");
  return mark < 0 ? [text, ""] : [text.slice(0, mark), text.slice(mark + 1)];
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    // Somebody typed a lone `%`.
    return part;
  }
}

/** Goes to a place. With `replace` there is no step back to where one was: for what changes while one types or drags. */
export function go(path: readonly string[], params: Params = {}, how: { replace?: boolean } = {}): void {
  const target = href(path, params);
  if (target === location.hash) return;
  if (how.replace === true) history.replaceState(null, "", target);
  else history.pushState(null, "", target);
  current.value = parse(target);
}

/** Changes parameters of the current place. `null` removes one. */
export function change(params: Params, how: { replace?: boolean } = {}): void {
  const { path, params: old } = current.value;
  go(path, { ...Object.fromEntries(old), ...params }, how);
}

/** The value of a parameter, or `null`. Reading it in a component makes the component follow it. */
export function param(name: string): string | null {
  return current.value.params.get(name) ?? null;
}

/** The value of a parameter that is one of `values`, or the first of them. */
export function choice<T extends string>(name: string, values: readonly [T, ...T[]]): T {
  const value = param(name);
  return values.find((known) => known === value) ?? values[0];
}

addEventListener("popstate", () => (current.value = parse(location.hash)));
addEventListener("hashchange", () => {
  const next = parse(location.hash);
  if (href(next.path, Object.fromEntries(next.params)) !== href(current.value.path, Object.fromEntries(current.value.params))) {
    current.value = next;
  }
});
