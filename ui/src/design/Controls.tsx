// Small controls: chips, tabs, segmented switches, counts, buttons that say why they are disabled.
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";

import type { Count } from "../api/types.ts";
import { Icon } from "./icons.tsx";

/** `1,204`, or `10,000+` if there are more than were counted. */
export function countText(count: Count | number): string {
  if (typeof count === "number") return count.toLocaleString("en");
  return `${count.rows.toLocaleString("en")}${count.more ? "+" : ""}`;
}

type Tone = "amber" | "red" | "green" | "blue" | "plain";

export function Chip(props: {
  children: ComponentChildren;
  tone?: Tone;
  isOn?: boolean;
  onRemove?: () => void;
  removeLabel?: string;
}): JSX.Element {
  return (
    <span class={`chip ${props.tone ?? ""} ${props.isOn === true ? "on" : ""}`}>
      {props.children}
      {props.onRemove !== undefined && (
        <button type="button" class="remove" aria-label={props.removeLabel ?? "Remove"} onClick={props.onRemove}>
          <Icon name="close" size={12} />
        </button>
      )}
    </span>
  );
}

/** A button. `whyNot` disables it and is shown on hover and to screen readers: the reason is never a riddle. */
export function Button(props: {
  children: ComponentChildren;
  onClick?: ((event: MouseEvent) => void) | undefined;
  kind?: string;
  whyNot?: string | null | undefined;
  label?: string;
  type?: "button" | "submit";
  pressed?: boolean;
}): JSX.Element {
  const isOff = props.whyNot !== null && props.whyNot !== undefined;
  const label = props.label !== undefined && isOff ? `${props.label}: ${props.whyNot ?? ""}` : props.label;
  return (
    <button
      type={props.type ?? "button"}
      class={`button ${props.kind ?? ""}`}
      aria-disabled={isOff ? "true" : undefined}
      aria-label={label}
      aria-pressed={props.pressed}
      title={props.whyNot ?? props.label}
      onClick={(event) => {
        if (isOff) event.preventDefault();
        else props.onClick?.(event);
      }}
    >
      {props.children}
      {isOff && props.label === undefined && <span class="sr-only">({props.whyNot})</span>}
    </button>
  );
}

export interface Tab<T extends string> {
  id: T;
  label: ComponentChildren;
  count?: number | undefined;
}

/** Tabs whose selection is part of the URL: `onSelect` changes a parameter. The panels have the ids `panel-ID`. */
export function Tabs<T extends string>(props: {
  label: string;
  tabs: readonly Tab<T>[];
  selected: T;
  onSelect: (id: T) => void;
}): JSX.Element {
  const step = (event: KeyboardEvent, by: number) => {
    const at = props.tabs.findIndex((tab) => tab.id === props.selected);
    const next = props.tabs[(at + by + props.tabs.length) % props.tabs.length];
    if (next === undefined) return;
    event.preventDefault();
    props.onSelect(next.id);
    document.getElementById(`tab-${next.id}`)?.focus();
  };
  // On a small screen the selected one may be out of sight.
  const list = useRef<HTMLDivElement>(null);
  useEffect(() => {
    list.current?.querySelector("[aria-selected=true]")?.scrollIntoView({ block: "nearest", inline: "center" });
  }, [props.selected]);
  return (
    <div
      ref={list}
      class="tabs"
      role="tablist"
      aria-label={props.label}
      onKeyDown={(event) => {
        if (event.key === "ArrowRight") step(event, 1);
        if (event.key === "ArrowLeft") step(event, -1);
      }}
    >
      {props.tabs.map((tab) => (
        <button
          key={tab.id}
          type="button"
          role="tab"
          id={`tab-${tab.id}`}
          aria-selected={tab.id === props.selected}
          aria-controls={`panel-${tab.id}`}
          tabIndex={tab.id === props.selected ? 0 : -1}
          onClick={() => props.onSelect(tab.id)}
        >
          {tab.label}
          {tab.count !== undefined && tab.count > 0 && <span class="count">{countText(tab.count)}</span>}
        </button>
      ))}
    </div>
  );
}

/** One of a few values. */
export function Segments<T extends string>(props: {
  label: string;
  options: readonly (readonly [T, string])[];
  value: T;
  onChange: (value: T) => void;
}): JSX.Element {
  return (
    <div class="segments" role="group" aria-label={props.label}>
      {props.options.map(([value, text]) => (
        <button key={value} type="button" aria-pressed={value === props.value} onClick={() => props.onChange(value)}>
          {text}
        </button>
      ))}
    </div>
  );
}
