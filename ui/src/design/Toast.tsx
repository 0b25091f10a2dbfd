// Short notes in the corner, and a voice for screen readers that speaks at most every five seconds.
import { signal } from "@preact/signals";
import type { ComponentChildren, JSX } from "preact";

import { Icon } from "./icons.tsx";

const EVERY_MS = 5_000;
const spoken = signal("");
let waiting: string | null = null;
let lastAt = 0;
let timer: ReturnType<typeof setTimeout> | undefined;

/** Tells screen readers something, politely. Of several within five seconds the last is told. */
export function announce(text: string): void {
  waiting = text;
  clearTimeout(timer);
  timer = setTimeout(
    () => {
      lastAt = Date.now();
      spoken.value = spoken.value === waiting ? `${waiting} ` : (waiting ?? "");
      waiting = null;
    },
    Math.max(0, lastAt + EVERY_MS - Date.now()),
  );
}

interface ToastNote {
  number: number;
  text: ComponentChildren;
}
const notes = signal<readonly ToastNote[]>([]);
let number = 0;

/** Shows a note for a while. Problems are not toasts: they stay where they happened. */
export function toast(text: ComponentChildren, spokenText?: string): void {
  const note = { number: ++number, text };
  notes.value = [...notes.value.slice(-3), note];
  if (spokenText !== undefined || typeof text === "string") announce(spokenText ?? String(text));
  setTimeout(() => dismiss(note.number), 8_000);
}

function dismiss(gone: number): void {
  notes.value = notes.value.filter((note) => note.number !== gone);
}

/** Stands once in the frame. */
export function Toasts(): JSX.Element {
  return (
    <>
      <div class="sr-only" role="status" aria-live="polite" data-announcer>
        {spoken.value}
      </div>
      <div class="toasts">
        {notes.value.map((note) => (
          <div key={note.number} class="toast">
            <div class="clip">{note.text}</div>
            <button type="button" class="button quiet small icon push" aria-label="Dismiss" onClick={() => dismiss(note.number)}>
              <Icon name="close" size={14} />
            </button>
          </div>
        ))}
      </div>
    </>
  );
}
