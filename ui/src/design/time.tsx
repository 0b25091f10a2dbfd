// Times and durations. Times are shown in local time, UTC or relative to now by one switch, with the exact time on hover.
import { computed, signal } from "@preact/signals";
import type { JSX } from "preact";

import { oneOf, remembered } from "../router/memory.ts";

export const timeForm = remembered<"local" | "utc" | "relative">("times", "relative", oneOf("local", "utc", "relative"));

/** How far the server's clock is ahead of this machine's. A difference that one answer can explain is none. */
const ahead = signal(0);
const SAME_MS = 1_500;

/** Notes the server's time, as an answer told it: ages are right where this machine's clock is not. */
export function noteServerTime(atMs: number): void {
  const offset = atMs - Date.now();
  if (Math.abs(offset - ahead.peek()) < SAME_MS) return;
  ahead.value = Math.abs(offset) < SAME_MS ? 0 : offset;
  clock.value = serverTime();
}

export function serverTime(): number {
  return Date.now() + ahead.peek();
}

/** The server's time, once a second while the page is seen. */
export const clock = signal(Date.now());
/** When the page was frozen: what it shows is as of then. The frame sets it. */
export const heldAt = signal<number | null>(null);
/** The time that ages and countdowns are relative to. */
export const now = computed(() => heldAt.value ?? clock.value);
setInterval(() => {
  if (document.visibilityState === "visible") clock.value = serverTime();
}, 1_000);
addEventListener("visibilitychange", () => (clock.value = serverTime()));
/** The day, by which texts like "14:02" and "3 Nov 14:02" are told apart. */
const today = computed(() => new Date(now.value).toDateString());

const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
/** The API's last time: what never comes. */
const NEVER_MS = 253_402_300_799_999;

/** A duration in the unit that reads best: `340 ms`, `2.4 s`, `3 m 20 s`, `5 h 12 m`, `3 d 4 h`. */
export function durationText(ms: number): string {
  const length = Math.max(0, Math.round(ms));
  if (length < SECOND) return `${length} ms`;
  if (length < 10 * SECOND) return `${(length / SECOND).toFixed(1)} s`;
  if (length < MINUTE) return `${Math.floor(length / SECOND)} s`;
  const two = (big: number, bigUnit: string, small: number, smallUnit: string) => {
    const rest = Math.floor((length % big) / small);
    return `${Math.floor(length / big)} ${bigUnit}${rest === 0 ? "" : ` ${rest} ${smallUnit}`}`;
  };
  if (length < HOUR) return two(MINUTE, "m", SECOND, "s");
  if (length < DAY) return two(HOUR, "h", MINUTE, "m");
  return Math.floor(length / DAY) >= 100 ? `${Math.floor(length / DAY)} d` : two(DAY, "d", HOUR, "h");
}

/** A duration in whole seconds at least, for what moves: `0 s`, `7 s`, `3 m 20 s`. */
export function wholeText(ms: number): string {
  const seconds = Math.max(0, Math.floor(ms / SECOND));
  return seconds < 60 ? `${seconds} s` : durationText(seconds * SECOND);
}

/** In one unit, for lists: `12 s ago`, `3 h ago`, `in 40 s`. */
export function relativeText(ms: number, from: number): string {
  const distance = from - ms;
  const length = Math.abs(distance);
  if (length < SECOND) return "now";
  const [size, unit] =
    length < MINUTE ? [SECOND, "s"] : length < HOUR ? [MINUTE, "m"] : length < 2 * DAY ? [HOUR, "h"] : [DAY, "d"];
  const text = `${Math.floor(length / (size as number))} ${unit}`;
  return distance > 0 ? `${text} ago` : `in ${text}`;
}

function two(value: number): string {
  return String(value).padStart(2, "0");
}

const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

function clockText(ms: number, isUtc: boolean, from: number): string {
  const date = new Date(ms);
  const base = new Date(from);
  const part = isUtc
    ? {
        y: date.getUTCFullYear(),
        o: date.getUTCMonth(),
        d: date.getUTCDate(),
        h: date.getUTCHours(),
        m: date.getUTCMinutes(),
        s: date.getUTCSeconds(),
      }
    : {
        y: date.getFullYear(),
        o: date.getMonth(),
        d: date.getDate(),
        h: date.getHours(),
        m: date.getMinutes(),
        s: date.getSeconds(),
      };
  const time = `${two(part.h)}:${two(part.m)}:${two(part.s)}`;
  const sameDay = isUtc
    ? date.toISOString().slice(0, 10) === base.toISOString().slice(0, 10)
    : date.toDateString() === base.toDateString();
  if (sameDay) return time;
  const day = `${part.d} ${MONTHS[part.o] ?? ""}`;
  return part.y === base.getFullYear() ? `${day} ${time}` : `${day} ${part.y} ${time}`;
}

/** The exact time in both forms, for hovering. */
export function exactText(ms: number): string {
  if (ms >= NEVER_MS) return "never";
  const date = new Date(ms);
  const offset = -date.getTimezoneOffset();
  const zone = `${offset < 0 ? "-" : "+"}${two(Math.floor(Math.abs(offset) / 60))}:${two(Math.abs(offset) % 60)}`;
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  const time = `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
  const local = `${day} ${time}.${String(date.getMilliseconds()).padStart(3, "0")}`;
  return `${local} ${zone}\n${date.toISOString()}`;
}

/** The time as the switch says. Reads signals: components that call it follow the clock. */
export function timeText(ms: number): string {
  if (ms >= NEVER_MS) return "never";
  if (timeForm.value === "relative") return relativeText(ms, now.value);
  // Follows the day and not every second.
  void today.value;
  return clockText(ms, timeForm.value === "utc", now.peek());
}

/** `form` overrides the switch, for places where only one form makes sense. */
export function Time({ ms, form }: { ms: number; form?: "relative" | "clock" }): JSX.Element {
  const text =
    form === "relative"
      ? relativeText(ms, now.value)
      : form === "clock"
        ? clockText(ms, timeForm.value === "utc", now.peek())
        : timeText(ms);
  const exact = exactText(ms);
  return (
    <time class="nowrap" dateTime={ms >= NEVER_MS ? undefined : new Date(ms).toISOString()} title={exact}>
      {text}
    </time>
  );
}

/** `since` makes it grow with the clock. */
export function Duration(props: { ms: number } | { since: number }): JSX.Element {
  const ms = "ms" in props ? props.ms : now.value - props.since;
  return (
    <span class="nowrap" title={`${Math.max(0, Math.round(ms)).toLocaleString("en")} ms`}>
      {"since" in props ? wholeText(ms) : durationText(ms)}
    </span>
  );
}

/** Since when something is so, as the switch says: `for 7 s`, `since 14:02:10`. `at` is the time of a past that is looked at. */
export function Since({ ms, at }: { ms: number; at?: number | undefined }): JSX.Element {
  if (timeForm.value !== "relative")
    return (
      <>
        since <Time ms={ms} />
      </>
    );
  return (
    <span class="nowrap" title={exactText(ms)}>
      for{" "}
      {at === undefined
        ? relativeText(Math.min(ms, now.value - SECOND), now.value).slice(0, -" ago".length)
        : durationText(at - ms)}
    </span>
  );
}
