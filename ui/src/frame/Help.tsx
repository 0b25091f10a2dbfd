// The list of keys.
import type { JSX } from "preact";

import { Dialog } from "../design/Dialog.tsx";
import { keys, keysAreOn, type Key } from "../design/keys.ts";
import { closeOverlay } from "./overlays.ts";

export function Help(): JSX.Element {
  const groups = new Map<string, Key[]>();
  for (const key of keys.value) {
    const group = key.group ?? "This page";
    groups.set(group, [...(groups.get(group) ?? []), key]);
  }
  return (
    <Dialog title="Keys" onClose={closeOverlay}>
      {!keysAreOn.value && <p class="hint">Single keys are switched off in the settings.</p>}
      {[...groups].map(([group, list]) => (
        <section key={group} class="stack">
          <h3>{group}</h3>
          <dl class="key-list">
            {list.map((key) => (
              <div key={key.keys}>
                <dt>
                  {key.keys.split(" ").map((part) => (
                    <kbd key={part}>{part.replace("Ctrl+k", "Ctrl K")}</kbd>
                  ))}
                </dt>
                <dd>{key.does}</dd>
              </div>
            ))}
          </dl>
        </section>
      ))}
    </Dialog>
  );
}
