// The strip of saved views, each with its count.
import { signal, useSignalEffect } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";

import { get } from "../../api/client.ts";
import { Problem as ProblemError } from "../../api/problem.ts";
import type { Count } from "../../api/types.ts";
import { confirm } from "../../design/Confirm.tsx";
import { Button, countText } from "../../design/Controls.tsx";
import { Icon } from "../../design/icons.tsx";
import { Menu } from "../../design/Menu.tsx";
import { Problem } from "../../design/Problem.tsx";
import { announce } from "../../design/Toast.tsx";
import { stats, whyReadOnly } from "../../frame/state.ts";
import { href } from "../../router/router.ts";
import { allViews, forget, readShared, save, type View } from "./views.ts";

/** Counts by filter. They are read again when the store's counts change, at most every five seconds. */
const counts = signal<ReadonlyMap<string, Count>>(new Map());
const COUNTS_MS = 5_000;
let countedAt = 0;
let timer: ReturnType<typeof setTimeout> | undefined;

function countSoon(): void {
  clearTimeout(timer);
  timer = setTimeout(() => void count(), Math.max(50, countedAt + COUNTS_MS - Date.now()));
}

async function count(): Promise<void> {
  countedAt = Date.now();
  for (const view of allViews()) {
    const query = Object.fromEntries(new URLSearchParams(view.filter));
    delete query["order"];
    try {
      const answer = await get("count", { query });
      counts.value = new Map(counts.value).set(view.filter, answer);
    } catch {
      // A view without a count is still a view; its list tells what is wrong.
    }
  }
}

/** Views that show nothing else than the current filter are lit. */
export function Views({ current, count: shown }: { current: string; count: Count | undefined }): JSX.Element {
  useEffect(() => {
    readShared().then(countSoon, countSoon);
    return () => clearTimeout(timer);
  }, []);
  useSignalEffect(() => {
    void stats.value;
    countSoon();
  });
  const views = allViews();
  const isKnown = views.some((view) => view.filter === current);
  return (
    <nav class="views" aria-label="Views">
      <ul>
        {views.map((view) => (
          <ViewTab
            key={`${view.kind} ${view.name}`}
            view={view}
            isCurrent={view.filter === current}
            // The page counts what it lists; beside that number an older one would look wrong.
            known={(view.filter === current ? shown : undefined) ?? counts.value.get(view.filter)}
          />
        ))}
      </ul>
      {!isKnown && <SaveMenu filter={current} />}
    </nav>
  );
}

function ViewTab({ view, isCurrent, known }: { view: View; isCurrent: boolean; known: Count | undefined }): JSX.Element {
  return (
    <li class={isCurrent ? "current" : ""}>
      <a
        href={href(["instances"], Object.fromEntries(new URLSearchParams(view.filter)))}
        aria-current={isCurrent ? "true" : undefined}
      >
        {view.name}
        {known !== undefined && <span class="count">{countText(known)}</span>}
      </a>
      {isCurrent && view.kind !== "built-in" && (
        <Button
          kind="quiet small icon"
          label={`Delete the view ${view.name}`}
          whyNot={view.kind === "shared" ? whyReadOnly.value : null}
          onClick={() => askToForget(view)}
        >
          <Icon name="close" size={12} />
        </Button>
      )}
    </li>
  );
}

function askToForget(view: View): void {
  confirm({
    title: "Delete a view",
    sentence:
      view.kind === "own" ? (
        <>
          The view <b>{view.name}</b> is deleted from this browser.
        </>
      ) : (
        <>
          The view <b>{view.name}</b> is deleted for everybody who uses this store.
        </>
      ),
    verb: "Delete the view",
    isDanger: true,
    act: () => forget(view),
  });
}

function SaveMenu({ filter }: { filter: string }): JSX.Element {
  return (
    <Menu
      hasWords
      buttonClass="button quiet small"
      button={
        <>
          <Icon name="plus" size={14} /> Save view
        </>
      }
      label="Save this filter as a view"
      role="dialog"
      class="save-view"
    >
      {(close) => <SaveForm filter={filter} close={close} />}
    </Menu>
  );
}

function SaveForm({ filter, close }: { filter: string; close: () => void }): JSX.Element {
  const [name, setName] = useState("");
  const [isShared, setShared] = useState(false);
  const [problem, setProblem] = useState<ProblemError | null>(null);
  const submit = async () => {
    try {
      await save(name.trim(), filter, isShared);
      announce(`Saved the view ${name.trim()}`);
      countSoon();
      close();
    } catch (error) {
      setProblem(ProblemError.from(error));
    }
  };
  return (
    <form
      class="stack"
      onSubmit={(event) => {
        event.preventDefault();
        void submit();
      }}
    >
      <div class="labelled">
        <label for="view-name">Name</label>
        <input
          id="view-name"
          class="field"
          required
          maxLength={80}
          autofocus
          autocomplete="off"
          value={name}
          onInput={(event) => setName(event.currentTarget.value)}
        />
      </div>
      <label class="row">
        <input
          type="checkbox"
          checked={isShared}
          disabled={whyReadOnly.value !== null}
          onChange={(event) => setShared(event.currentTarget.checked)}
        />
        For everybody who uses this store
      </label>
      {whyReadOnly.value !== null && <span class="hint">{whyReadOnly.value}</span>}
      {problem !== null && <Problem problem={problem} />}
      <Button kind="primary" type="submit">
        Save
      </Button>
    </form>
  );
}
