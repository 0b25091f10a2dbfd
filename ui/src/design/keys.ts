// The keyboard: what each key does on the page that is shown. Keys do nothing while somebody types, and none changes anything
// on the server without a dialog. They can be switched off.
import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";

import { remembered } from "../router/memory.ts";

export interface Key {
  /** As `KeyboardEvent.key` names it, or `Ctrl+k`; several words are pressed one after another: `g i`. */
  keys: string;
  /** What it does, for the list that `?` shows. */
  does: string;
  act: (event: KeyboardEvent) => void;
  /** The heading it stands under in the list. */
  group?: string;
}

export const keysAreOn = remembered<boolean>("keys", true, (value): value is boolean => typeof value === "boolean");
/** All keys that work now, the newest last. */
export const keys = signal<readonly Key[]>([]);

/** Keys that work while a component is shown. `inputs` are what `act` reads. */
export function useKeys(list: readonly Key[], inputs: readonly unknown[]): void {
  useEffect(() => {
    keys.value = [...keys.peek(), ...list];
    return () => {
      keys.value = keys.peek().filter((key) => !list.includes(key));
    };
  }, inputs);
}

/** Something that can be done on the page that is shown, offered by the palette. */
export interface Command {
  name: string;
  run: () => void;
  whyNot?: string | null;
}
export const commands = signal<readonly Command[]>([]);

export function useCommands(list: readonly Command[], inputs: readonly unknown[]): void {
  useEffect(() => {
    commands.value = [...commands.peek(), ...list];
    return () => {
      commands.value = commands.peek().filter((command) => !list.includes(command));
    };
  }, inputs);
}

const TYPED_IN = "input:not([type=checkbox]):not([type=radio]), textarea, select, [contenteditable]";
let before = "";
let beforeAt = 0;

function named(event: KeyboardEvent): string {
  return event.ctrlKey || event.metaKey ? `Ctrl+${event.key.toLowerCase()}` : event.key;
}

addEventListener("keydown", (event) => {
  const name = named(event);
  const target = event.target instanceof Element ? event.target : null;
  const isCtrl = name.startsWith("Ctrl+");
  if (event.altKey || event.isComposing || event.defaultPrevented) return;
  if (!isCtrl && (!keysAreOn.value || target?.closest(TYPED_IN) != null)) return;
  // A dialog or a menu has the keyboard for itself.
  if (document.querySelector("dialog[open]") !== null || target?.closest("[popover]") != null) return;
  // A focused button or link takes its own Enter and space.
  if ((name === "Enter" || name === " ") && target?.closest("button, a, summary") != null) return;
  const pair = Date.now() - beforeAt < 1_200 ? `${before} ${name}` : "";
  const found = keys.value.findLast((key) => key.keys === pair) ?? keys.value.findLast((key) => key.keys === name);
  [before, beforeAt] = [name, Date.now()];
  if (found === undefined) return;
  event.preventDefault();
  found.act(event);
});
