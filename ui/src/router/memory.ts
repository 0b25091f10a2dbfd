// What a person chose in this browser: theme, form of times, columns, own views. Not part of a link.
import { effect, signal, type Signal } from "@preact/signals";

/** A signal that is kept in the browser, and follows the other tabs. Without storage it lives as long as the page. */
export function remembered<T>(name: string, initial: T, isValid: (value: unknown) => value is T): Signal<T> {
  const key = `perennial.${name}`;
  const read = (text: string | null): T => {
    try {
      const value: unknown = text === null ? initial : JSON.parse(text);
      return isValid(value) ? value : initial;
    } catch {
      return initial;
    }
  };
  const kept = signal(initial);
  try {
    kept.value = read(localStorage.getItem(key));
  } catch {
    // Storage is switched off.
  }
  let isFirst = true;
  effect(() => {
    const text = JSON.stringify(kept.value);
    if (isFirst) {
      isFirst = false;
      return;
    }
    try {
      localStorage.setItem(key, text);
    } catch {
      // Full or switched off: the choice holds for this page.
    }
  });
  addEventListener("storage", (event) => {
    if (event.key === key && event.newValue !== JSON.stringify(kept.peek())) kept.value = read(event.newValue);
  });
  return kept;
}

export function oneOf<T extends string>(...values: T[]): (value: unknown) => value is T {
  return (value): value is T => values.some((known) => known === value);
}
