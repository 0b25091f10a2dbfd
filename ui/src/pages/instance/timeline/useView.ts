// Which part of the axis is shown. It is part of the URL, in milliseconds since 1970, so that a link shows the same part.
import { signal, type Signal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";

import { change, param } from "../../../router/router.ts";
import { clampView, type Scale, type View } from "./scale.ts";

/** `null` is the whole. Times and not places are kept: places change while time passes. */
interface Window {
  fromMs: number;
  toMs: number;
}

const WRITTEN_MS = 250;

function parse(text: string | null): Window | null {
  const found = /^(\d+(?:\.\d+)?)-(\d+(?:\.\d+)?)$/.exec(text ?? "");
  return found === null ? null : { fromMs: Number(found[1]), toMs: Number(found[2]) };
}

export interface ViewState {
  view: View;
  isWhole: boolean;
  isFollowing: boolean;
  set(view: View): void;
  fit(): void;
  lastMinute(): void;
  follow(isOn: boolean): void;
}

export function useView(scale: Scale, nowMs: number, isLive: boolean): ViewState {
  const shown: Signal<Window | null> = useMemo(() => signal(parse(param("zoom"))), []);
  const written = useMemo(() => ({ text: param("zoom"), timer: 0 as unknown as ReturnType<typeof setTimeout> }), []);
  const isFollowing = isLive && param("follow") === "1";
  const inUrl = param("zoom");
  useEffect(() => {
    // Back, forward or a link: the URL says something that this page did not write.
    if (inUrl === written.text) return;
    written.text = inUrl;
    shown.value = parse(inUrl);
  }, [inUrl]);
  const write = (window: Window | null) => {
    shown.value = window;
    clearTimeout(written.timer);
    written.timer = setTimeout(() => {
      written.text = window === null ? null : `${round(window.fromMs)}-${round(window.toMs)}`;
      change({ zoom: written.text }, { replace: true });
    }, WRITTEN_MS);
  };
  useEffect(() => () => clearTimeout(written.timer), []);
  const window = shown.value;
  const whole = { from: 0, to: scale.length };
  let view = whole;
  if (window !== null) {
    const width = scale.place(window.toMs) - scale.place(window.fromMs);
    const to = isFollowing ? scale.place(nowMs) + width * 0.04 : scale.place(window.toMs);
    view = isFollowing
      ? { from: Math.max(0, to - width), to }
      : clampView({ from: scale.place(window.fromMs), to }, scale.length);
  }
  const set = (next: View) => {
    const isWhole = next.from <= scale.length * 0.0005 && next.to >= scale.length * 0.9995;
    write(isWhole ? null : { fromMs: scale.time(next.from), toMs: scale.time(next.to) });
    if (isFollowing && next.to < scale.place(nowMs)) change({ follow: null }, { replace: true });
  };
  return {
    view,
    isWhole: window === null,
    isFollowing,
    set,
    fit: () => {
      write(null);
      if (isFollowing) change({ follow: null }, { replace: true });
    },
    lastMinute: () => {
      write({ fromMs: Math.max(scale.startMs, nowMs - 60_000), toMs: nowMs });
      if (isLive) change({ follow: 1 }, { replace: true });
    },
    follow: (isOn) => {
      if (isOn && window === null) write({ fromMs: Math.max(scale.startMs, nowMs - 60_000), toMs: nowMs });
      change({ follow: isOn ? 1 : null }, { replace: true });
    },
  };
}

function round(ms: number): number {
  return Math.round(ms * 100) / 100;
}
