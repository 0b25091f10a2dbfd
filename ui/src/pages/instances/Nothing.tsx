// What the page says when there is nothing to list: how to start a first instance, or which chip hides the most.
import type { JSX } from "preact";

import example from "../../../../crates/perennial-server/examples/first_program.rs?raw";
import { get } from "../../api/client.ts";
import { useLoad } from "../../api/load.ts";
import { Button, countText } from "../../design/Controls.tsx";
import { CopyButton } from "../../design/Copy.tsx";
import { Empty } from "../../design/Problem.tsx";
import { session } from "../../frame/state.ts";
import { chipText, without, type Filter } from "./filter.ts";

/** The program of an example, which a test runs, with the store that is looked at. */
export function firstProgram(store: string): string {
  return example.replace(/^\/\/!.*\n+/, "").replace(`"sqlite:shop.db"`, JSON.stringify(store));
}

export function EmptyStore(): JSX.Element {
  const program = firstProgram(session.value.value?.store_url ?? "sqlite:shop.db");
  return (
    <Empty title="No instance has been started on this store">
      <p>
        This program starts the first one, which appears here by itself. Its project needs <code>perennial</code>, and{" "}
        <code>tokio</code> with the features <code>macros</code> and <code>rt-multi-thread</code>.
      </p>
      <div class="code-line first-program">
        <code>{program}</code>
        <CopyButton text={program} label="Copy the program" />
      </div>
    </Empty>
  );
}

/** Says which part of the filter hides the most. */
export function EmptyFilter({ filter, onChange }: { filter: Filter; onChange: (filter: Filter) => void }): JSX.Element {
  const names = [...filter.keys()];
  const shown = useLoad(
    async (signal) => {
      const counts = [];
      for (const name of names) {
        const answer = await get("count", { query: Object.fromEntries(without(filter, name)), signal });
        counts.push({ name, answer });
      }
      return counts.sort((a, b) => b.answer.rows - a.answer.rows);
    },
    [JSON.stringify([...filter])],
  );
  const most = shown.value.value?.[0];
  return (
    <Empty title="No instance fits this filter">
      {most !== undefined && most.answer.rows > 0 ? (
        <>
          <p>
            <b>{chipText(most.name, filter.get(most.name) ?? "")}</b> hides the most: without it there{" "}
            {most.answer.rows === 1 ? "is" : "are"} {countText(most.answer)}.
          </p>
          <Button onClick={() => onChange(without(filter, most.name))}>Remove it</Button>
        </>
      ) : (
        shown.value.value !== undefined && <p>No part of it alone is the reason: remove several, or all.</p>
      )}
    </Empty>
  );
}
