// Goes to any id, page, view or action by typing.
import type { JSX } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";

import { get } from "../api/client.ts";
import { Dialog } from "../design/Dialog.tsx";
import { Id } from "../design/Id.tsx";
import { commands } from "../design/keys.ts";
import { PAGES } from "../pages/pages.ts";
import { allViews, readShared } from "../pages/instances/views.ts";
import { go } from "../router/router.ts";
import { closeOverlay } from "./overlays.ts";

interface Entry {
  kind: string;
  name: string;
  run: () => void;
  whyNot?: string | null | undefined;
}

function fixedEntries(): Entry[] {
  const views = allViews().map((view) => ({
    kind: view.kind === "shared" ? "Shared view" : "View",
    name: view.name,
    run: () => go(["instances"], Object.fromEntries(new URLSearchParams(view.filter))),
  }));
  const pages = PAGES.map((page) => ({ kind: "Page", name: page.title, run: () => go([page.path]) }));
  // What the page that is shown adds comes before what every page has.
  const actions = commands.value
    .toReversed()
    .map((command) => ({ kind: "Action", name: command.name, run: command.run, whyNot: command.whyNot }));
  return [...pages, ...actions, ...views];
}

/** What the server finds for the words; empty while it has not answered. */
function usePlaces(words: string): Entry[] {
  const [found, setFound] = useState<Entry[]>([]);
  useEffect(() => {
    const controller = new AbortController();
    if (words.trim() === "") {
      setFound([]);
      return;
    }
    const timer = setTimeout(() => {
      get("search", { query: { q: words.trim() }, signal: controller.signal })
        .then(({ places }) =>
          setFound(
            places.map((found) => ({
              kind: found.kind === "instance" ? "Instance" : "Orchestration",
              name: found.name,
              run: () => (found.kind === "instance" ? go(["instances", found.name]) : go(["instances"], { name: found.name })),
            })),
          ),
        )
        .catch(() => setFound([]));
    }, 120);
    return () => {
      clearTimeout(timer);
      controller.abort();
    };
  }, [words]);
  return found;
}

export function Palette(): JSX.Element {
  const [words, setWords] = useState("");
  const [at, setAt] = useState(0);
  const list = useRef<HTMLUListElement>(null);
  const known = allViews().length;
  const fixed = useMemo(fixedEntries, [known]);
  useEffect(() => {
    // Without the shared views the others can still be gone to.
    readShared().catch(() => {});
  }, []);
  const places = usePlaces(words);
  const wanted = words.trim().toLowerCase();
  const entries = [...fixed.filter((entry) => entry.name.toLowerCase().includes(wanted)), ...places].slice(0, 40);
  const chosen = Math.min(at, entries.length - 1);
  useEffect(() => list.current?.children[chosen]?.scrollIntoView({ block: "nearest" }), [chosen]);
  const run = (entry: Entry | undefined) => {
    if (entry === undefined || (entry.whyNot ?? null) !== null) return;
    closeOverlay();
    // After the dialog has given the focus back.
    setTimeout(entry.run);
  };
  const keyed = (event: KeyboardEvent) => {
    const by = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (by !== 0) {
      event.preventDefault();
      setAt((chosen + by + entries.length) % Math.max(1, entries.length));
    }
  };
  return (
    <Dialog title="Go to" class="palette" onClose={closeOverlay} onSubmit={() => run(entries[chosen])}>
      <input
        class="field"
        type="text"
        role="combobox"
        aria-expanded="true"
        aria-controls="palette-list"
        aria-label="Id, page, view or action"
        aria-activedescendant={entries.length > 0 ? `palette-${chosen}` : undefined}
        placeholder="Id, page, view or action"
        autofocus
        autocomplete="off"
        spellcheck={false}
        value={words}
        onKeyDown={keyed}
        onInput={(event) => {
          setWords(event.currentTarget.value);
          setAt(0);
        }}
      />
      <ul ref={list} id="palette-list" role="listbox" aria-label="Found">
        {entries.map((entry, index) => (
          <li
            key={`${entry.kind} ${entry.name}`}
            id={`palette-${index}`}
            role="option"
            aria-selected={index === chosen}
            aria-disabled={(entry.whyNot ?? null) !== null ? "true" : undefined}
            class="menu-item"
            onMouseMove={() => setAt(index)}
            onClick={() => run(entry)}
          >
            {entry.kind === "Instance" ? <Id text={entry.name} isClipped /> : <span class="clip">{entry.name}</span>}
            <span class="push">{entry.whyNot ?? entry.kind}</span>
          </li>
        ))}
      </ul>
      {entries.length === 0 && <p class="hint">Nothing has this name. Ids are found by their beginning.</p>}
    </Dialog>
  );
}
