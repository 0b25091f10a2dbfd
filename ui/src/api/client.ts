// Requests to the server that served this page. URLs are relative to the document, so any prefix works.
import { readJson } from "./json.ts";
import { Problem } from "./problem.ts";
import type { Answer, Body, Method, Query, Route, RouteOf } from "./types.ts";

/** The directory of the API. Absolute, because a worker resolves relative URLs against its own script. */
export const API = new URL("api/v1/", document.baseURI).href;

export interface Options<R extends Route, M extends Method> {
  /** Values of the `{…}` of the route, in their order. */
  path?: (string | number)[];
  query?: Partial<Query<R, M>> | Record<string, QueryValue>;
  signal?: AbortSignal;
  /** Makes a repeated request find what the first one did. */
  idempotencyKey?: string;
}
export type QueryValue = string | number | boolean | readonly string[] | null | undefined;

/** A segment of a path. URLs swallow `.` and `..` even when they are encoded, so those go as base64url. */
export function segment(value: string | number): string {
  const text = String(value);
  if (text !== "." && text !== ".." && !text.startsWith("~") && text !== "") return encodeURIComponent(text.toWellFormed());
  const bytes = new TextEncoder().encode(text);
  const base64 = btoa(String.fromCharCode(...bytes));
  return "~" + base64.replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

/** The URL of a route, relative to the API's directory: `instances/order-7/history?limit=50`. */
export function urlOf(route: string, path: (string | number)[] = [], query: Record<string, QueryValue> = {}): string {
  let next = 0;
  const filled = route.replace(/\{[^}]*\}/g, () => segment(path[next++] ?? ""));
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value === undefined || value === null || value === "") continue;
    parameters.set(name, Array.isArray(value) ? value.join(",") : String(value));
  }
  const text = parameters.toString();
  return text === "" ? filled : `${filled}?${text}`;
}

/** A name for a request, so that sending it twice does it once. Browsers give `randomUUID` to pages over HTTPS only. */
export function randomKey(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Called when the server no longer knows who asks. The frame shows the login. */
export const onUnauthenticated: { call: () => void } = { call: () => {} };

/** Called with the server's time of each answer, to half a second. The frame sets its clock by it. */
export const onServerTime: { call: (atMs: number) => void } = { call: () => {} };

/** Sends a request and returns the text of the answer. `path` is relative to the API's directory. */
export async function request(method: Method, path: string, body?: string, init: RequestInit = {}): Promise<Response> {
  const headers = new Headers(init.headers);
  if (method !== "get") headers.set("Content-Type", "application/json");
  let response: Response;
  try {
    response = await fetch(API + path, { ...init, method: method.toUpperCase(), headers, body: body ?? null });
  } catch (error) {
    if (init.signal?.aborted === true) throw error;
    throw Problem.away(method !== "get");
  }
  // A header of whole seconds, and of this moment only if no cache kept the answer.
  const atMs = Date.parse(response.headers.get("Date") ?? "");
  if (!Number.isNaN(atMs) && response.headers.get("Age") === null) onServerTime.call(atMs + 500);
  if (response.ok) return response;
  throw await problemOf(response);
}

async function problemOf(response: Response): Promise<Problem> {
  const isOurs = response.headers.get("Content-Type")?.startsWith("application/problem+json") === true;
  if (!isOurs) return Problem.foreign(response.status);
  const problem = new Problem(readJson(await response.text()) as ConstructorParameters<typeof Problem>[0]);
  if (problem.code === "PER-0801") onUnauthenticated.call();
  return problem;
}

async function call(method: Method, route: string, body: string | undefined, options: Options<Route, Method>): Promise<unknown> {
  const init: RequestInit = {};
  if (options.signal !== undefined) init.signal = options.signal;
  if (options.idempotencyKey !== undefined) init.headers = { "Idempotency-Key": options.idempotencyKey };
  const path = urlOf(route, options.path, options.query as Record<string, QueryValue>);
  const response = await request(method, path, body, init);
  const text = await response.text();
  return text === "" ? undefined : readJson(text);
}

export function get<R extends RouteOf<"get">>(route: R, options: Options<R, "get"> = {}): Promise<Answer<R, "get">> {
  return call("get", route, undefined, options as Options<Route, Method>) as Promise<Answer<R, "get">>;
}

/** `body` is JSON text if it is a payload that a person wrote (a `RawJson`), so that its digits arrive as they were typed. */
export class RawJson {
  readonly text: string;
  constructor(text: string) {
    this.text = text;
  }
}
type Sent<B> = B | RawJson;

function bodyText(body: unknown): string | undefined {
  if (body === undefined) return undefined;
  return body instanceof RawJson ? body.text : JSON.stringify(body);
}

export function post<R extends RouteOf<"post">>(
  route: R,
  body?: Sent<Body<R, "post">>,
  options: Options<R, "post"> = {},
): Promise<Answer<R, "post">> {
  return call("post", route, bodyText(body), options as Options<Route, Method>) as Promise<Answer<R, "post">>;
}

export function put<R extends RouteOf<"put">>(
  route: R,
  body: Sent<Body<R, "put">>,
  options: Options<R, "put"> = {},
): Promise<void> {
  return call("put", route, bodyText(body), options as Options<Route, Method>) as Promise<void>;
}

export function remove<R extends RouteOf<"delete">>(route: R, options: Options<R, "delete"> = {}): Promise<Answer<R, "delete">> {
  return call("delete", route, undefined, options as Options<Route, Method>) as Promise<Answer<R, "delete">>;
}
