// The filter of a list of instances. Its form is the API's: names and texts of query parameters, which also stand in the URL.
import { durationText, exactText } from "../../design/time.tsx";
import type { Place } from "../../router/router.ts";

export type Filter = ReadonlyMap<string, string>;

interface Field {
  name: string;
  /** What a chip and the menu call it. */
  label: string;
  /** How the values are offered: fixed ones, counted by the server, or typed. */
  values: "status" | "groups" | "yes" | "time" | "length" | "text" | "waits";
  /** Several values by commas. */
  isList?: boolean;
  hint?: string;
}

/** Every filter of the API but those by attribute, which are `attr.NAME`. */
export const FIELDS: readonly Field[] = [
  { name: "status", label: "Status", values: "status", isList: true },
  { name: "name", label: "Orchestration", values: "groups", isList: true },
  { name: "version", label: "Version", values: "groups", isList: true },
  { name: "blocked", label: "Blocked", values: "yes" },
  { name: "blocked_code", label: "Blocked by code", values: "groups" },
  { name: "blocked_cause", label: "Blocked by cause", values: "text" },
  { name: "paused", label: "Paused", values: "yes" },
  { name: "retrying", label: "Retrying", values: "yes" },
  { name: "waits_for", label: "Waits for", values: "waits", hint: "activity:charge, event:approved, child:shipping, timer" },
  { name: "created_from_ms", label: "Started since", values: "time" },
  { name: "created_before_ms", label: "Started before", values: "time" },
  { name: "ended_from_ms", label: "Ended since", values: "time" },
  { name: "ended_before_ms", label: "Ended before", values: "time" },
  { name: "min_age_ms", label: "Older than", values: "length" },
  { name: "min_duration_ms", label: "Took at least", values: "length" },
  { name: "id", label: "Id is", values: "text" },
  { name: "id_prefix", label: "Id begins with", values: "text" },
  { name: "id_contains", label: "Id contains", values: "text" },
  { name: "parent", label: "Child of", values: "text", hint: "the key of the parent" },
  { name: "root", label: "Roots only", values: "yes" },
];
const BY_NAME = new Map(FIELDS.map((field) => [field.name, field]));
/** Words that a person may type for a field. */
const TYPED: Record<string, string> = {
  orchestration: "name",
  code: "blocked_code",
  cause: "blocked_cause",
  waits: "waits_for",
  prefix: "id_prefix",
  contains: "id_contains",
  older: "min_age_ms",
  took: "min_duration_ms",
};

export function fieldOf(name: string): Field {
  if (name.startsWith("attr.")) return { name, label: name.slice(5), values: "groups" };
  return BY_NAME.get(name) ?? { name, label: name, values: "text" };
}

function isFilter(name: string): boolean {
  return BY_NAME.has(name) || name.startsWith("attr.");
}

/** The filter that the URL names. Parameters that are not filters belong to the page. */
export function filterOf({ params }: Place): Filter {
  return new Map([...params].filter(([name]) => isFilter(name)));
}

/** As the API takes it, with the order: `status=failed&order=oldest`. The same filter always gives the same text. */
export function queryOf(filter: Filter, order: string): string {
  const query = new URLSearchParams([...filter].sort(([a], [b]) => (a < b ? -1 : 1)));
  if (order !== "newest") query.set("order", order);
  return query.toString();
}

export function fromQuery(text: string): { filter: Filter; order: string } {
  const all = new URLSearchParams(text);
  return { filter: new Map([...all].filter(([name]) => isFilter(name))), order: all.get("order") ?? "newest" };
}

/** The filter with a value added: to the values of a list, or in place of another. */
export function adding(filter: Filter, name: string, value: string): Filter {
  const old = filter.get(name);
  const isList = BY_NAME.get(name)?.isList === true;
  // A comma would separate two values.
  if (!isList || old === undefined || value.includes(",")) return new Map(filter).set(name, value);
  const values = old.split(",");
  return new Map(filter).set(name, values.includes(value) ? old : [...values, value].join(","));
}

export function without(filter: Filter, name: string): Filter {
  const next = new Map(filter);
  next.delete(name);
  return next;
}

/** The value of a chip, for people. */
export function valueText(name: string, value: string): string {
  const { values } = fieldOf(name);
  // Somebody wrote the link by hand; the server says what is wrong with it.
  if ((values === "time" || values === "length") && !/^\d{1,15}$/.test(value)) return value;
  if (values === "time") return exactText(Number(value)).slice(0, 19);
  if (values === "length") return durationText(Number(value));
  if (values === "yes") return value === "true" ? "yes" : "no";
  return values === "status" || values === "groups" ? value.replaceAll(",", ", ") : value;
}

/** The chip as one text: `Status failed`, `Blocked`. */
export function chipText(name: string, value: string): string {
  const { label, values } = fieldOf(name);
  return values === "yes" && value === "true" ? label : `${label}: ${valueText(name, value)}`;
}

const UNITS: Record<string, number> = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/** `90s`, `2 h`, `1d` or milliseconds; `null` if it is none. */
export function readLength(text: string): number | null {
  const found = /^\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?\s*$/.exec(text);
  if (found === null) return null;
  return Math.round(Number(found[1]) * (UNITS[found[2] ?? "ms"] ?? 1));
}

/** `2h` (ago), a date, or milliseconds since 1970; `null` if it is none. */
export function readTime(text: string, now: number): number | null {
  if (/^\d{12,}$/.test(text.trim())) return Number(text);
  const ago = readLength(text);
  if (ago !== null) return now - ago;
  const parsed = Date.parse(text);
  return Number.isNaN(parsed) ? null : parsed;
}

/** Reads a value that a person typed for a field; `null` if the field does not take it. */
export function readValue(name: string, text: string, now: number): string | null {
  const value = text.trim();
  switch (fieldOf(name).values) {
    case "yes":
      return /^(no|false)$/i.test(value) ? "false" : "true";
    case "time":
      return readTime(value, now)?.toString() ?? null;
    case "length":
      return readLength(value)?.toString() ?? null;
    case "status":
      return value.toLowerCase();
    default:
      return value === "" ? null : value;
  }
}

/** Reads `status:failed`, `name:order`, `attr.region="eu"`; other words are the beginning of an id. */
export function readTyped(text: string, now: number): [name: string, value: string] | null {
  const typed = text.trim();
  if (typed === "") return null;
  const attribute = /^(attr\.[^=:]+)[=:](.*)$/s.exec(typed);
  if (attribute !== null) return [attribute[1] ?? "", asJson(attribute[2] ?? "")];
  const pair = /^([a-z_]+)\s*[:=]\s*(.*)$/s.exec(typed);
  const name = pair === null ? "" : (TYPED[pair[1] ?? ""] ?? pair[1] ?? "");
  if (pair !== null && BY_NAME.has(name)) {
    const value = readValue(name, pair[2] ?? "", now);
    return value === null ? null : [name, value];
  }
  const word = BY_NAME.get(typed.toLowerCase());
  if (word?.values === "yes") return [word.name, "true"];
  return ["id_prefix", typed];
}

/** A value of an attribute is JSON; bare words are taken as strings. */
export function asJson(text: string): string {
  try {
    JSON.parse(text);
    return text;
  } catch {
    return JSON.stringify(text);
  }
}
