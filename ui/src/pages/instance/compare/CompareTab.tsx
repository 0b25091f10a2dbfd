// Two instances of one orchestration side by side, operation by operation, with where they first part.
import type { ComponentChildren, JSX } from "preact";
import { useState } from "preact/hooks";

import { get } from "../../../api/client.ts";
import { useLoad } from "../../../api/load.ts";
import type { Instance, InstanceDetails } from "../../../api/types.ts";
import { Button } from "../../../design/Controls.tsx";
import { Dialog } from "../../../design/Dialog.tsx";
import { Id, Text } from "../../../design/Id.tsx";
import { Empty, Part } from "../../../design/Problem.tsx";
import { Status, standingOf } from "../../../design/Status.tsx";
import { Virtual, type VirtualHandle } from "../../../design/Virtual.tsx";
import { Time, durationText } from "../../../design/time.tsx";
import { change, href, param } from "../../../router/router.ts";
import { read, type HistoryPage, type TurnRecord } from "../data.ts";
import { Diff } from "../history/EventSide.tsx";
import { numberParam, type InstanceModel } from "../model.ts";
import { previewOf } from "../parts.tsx";
import { KIND_WORDS } from "../timeline/bars.ts";
import { DIFFERENCES, aligned, detailOf, partings, type Pair, type Side } from "./align.ts";
import "./compare.css";

/** Comparing reads both histories; longer ones are compared to here. */
const MAX_EVENTS = 20_000;

export default function CompareTab({ model, details }: { model: InstanceModel; details: InstanceDetails }): JSX.Element {
  const other = param("with");
  return (
    <div class="cmp">
      {other === null ? <Choose model={model} details={details} /> : <Compared model={model} details={details} other={other} />}
    </div>
  );
}

function Choose({ model, details }: { model: InstanceModel; details: InstanceDetails }): JSX.Element {
  const [text, setText] = useState("");
  const list = useLoad(
    async (signal) =>
      (
        await get("instances", { query: { name: details.name, limit: 20, ...(text === "" ? {} : { id_prefix: text }) }, signal })
      ).rows.filter((row) => row.id !== model.id),
    [text, details.name],
  );
  return (
    <div class="cmp-choose">
      <h2>
        Compare with another instance of{" "}
        <code>
          <Text text={details.name} />
        </code>
      </h2>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (text !== "") change({ with: text });
        }}
      >
        <input
          class="field mono"
          placeholder="id, or its beginning"
          aria-label="Id of the other instance"
          value={text}
          onInput={(event) => setText(event.currentTarget.value)}
          spellcheck={false}
        />
      </form>
      <Part of={list}>
        {(rows) =>
          rows.length === 0 ? (
            <p class="muted">There is no other{text === "" ? "" : " with this beginning"}.</p>
          ) : (
            <ul class="wt-list">
              {rows.map((row) => (
                <li key={row.key} class="cmp-candidate">
                  <Candidate row={row} />
                </li>
              ))}
            </ul>
          )
        }
      </Part>
    </div>
  );
}

function Candidate({ row }: { row: Instance }): JSX.Element {
  return (
    <button type="button" class="menu-item" onClick={() => change({ with: row.id })}>
      <Status is={standingOf(row)} isBare />
      <Id text={row.id} isClipped />
      <span class="push muted">
        <Text text={row.version} /> · <Time ms={row.created_ms} />
      </span>
    </button>
  );
}

interface Story {
  instance: Instance;
  turns: TurnRecord[];
  isWhole: boolean;
}

async function story(id: string, bound: object, execution: number | null, signal: AbortSignal): Promise<Story> {
  const instance = await get("instances/{id}", { path: [id], query: bound, signal });
  const turns: TurnRecord[] = [];
  let [after, count]: [number | null, number] = [0, 0];
  while (after !== null && count < MAX_EVENTS) {
    const page: HistoryPage = await read(
      "instances/{id}/history",
      [id],
      { ...bound, execution: execution ?? instance.execution, after_turn: after, limit: 200, payload_bytes: 2_048 },
      signal,
    );
    turns.push(...page.turns);
    count += page.turns.reduce((sum, turn) => sum + turn.events.length, 0);
    after = page.turns.length === 0 ? null : page.after;
  }
  return { instance, turns, isWhole: after === null };
}

function Compared({ model, details, other }: { model: InstanceModel; details: InstanceDetails; other: string }): JSX.Element {
  const execution = numberParam("execution");
  const loaded = useLoad(
    async (signal) => Promise.all([story(model.id, model.bound, execution, signal), story(other, {}, null, signal)]),
    [other, execution, details.turns],
  );
  return (
    <>
      <div class="tl-tools">
        <span class="row">
          <span class="muted">with</span> <Id text={other} href={href(["instances", other])} />
        </span>
        <Button kind="quiet small" onClick={() => change({ with: null })}>
          Another one
        </Button>
        <a class="button quiet small" href={href(["instances", other], { tab: "compare", with: model.id })}>
          Swap
        </a>
      </div>
      <Part of={loaded}>{([left, right]) => <SideBySide left={left} right={right} />}</Part>
    </>
  );
}

function SideBySide({ left, right }: { left: Story; right: Story }): JSX.Element {
  const pairs = aligned(left.turns, right.turns);
  const first = partings(pairs);
  const [opened, setOpened] = useState<Pair | null>(null);
  const handle: { current: VirtualHandle | null } = { current: null };
  if (pairs.length === 0)
    return (
      <Empty title="Nothing to compare">
        <p>Neither has scheduled an operation.</p>
      </Empty>
    );
  const isSame = DIFFERENCES.every((kind) => first[kind] === null);
  return (
    <>
      <p class="cmp-verdict" role="status">
        {isSame ? "All operations have the same names, inputs and outcomes. " : "They first part in "}
        {DIFFERENCES.filter((kind) => first[kind] !== null).map((kind) => (
          <button
            key={kind}
            type="button"
            class={`chip ${kind === "name" || kind === "length" ? "amber" : kind === "outcome" ? "red" : "blue"}`}
            onClick={() => handle.current?.scrollTo(first[kind] ?? 0, "center")}
          >
            {WORDS[kind]} at operation {(first[kind] ?? 0) + 1}
          </button>
        ))}
        {left.instance.version !== right.instance.version && (
          <span class="muted">
            Versions <Text text={left.instance.version} /> and <Text text={right.instance.version} />.
          </span>
        )}
        {(!left.isWhole || !right.isWhole) && <span class="muted">Compared up to {MAX_EVENTS.toLocaleString("en")} events.</span>}
      </p>
      <Virtual
        class="cmp-rows"
        role="table"
        label="Comparison"
        count={pairs.length}
        rowHeight={34}
        handle={handle}
        keyOf={(index) => index}
        head={
          <div role="row" class="cmp-row head">
            <span role="columnheader">#</span>
            <span role="columnheader">
              <Title of={left} />
            </span>
            <span role="columnheader">
              <Title of={right} />
            </span>
          </div>
        }
      >
        {(index) => {
          const pair = pairs[index];
          if (pair === undefined) return null;
          const isFirst = DIFFERENCES.some((kind) => first[kind] === index);
          return (
            <div
              role="row"
              aria-rowindex={index + 2}
              class={`cmp-row ${pair.differs.size > 0 ? "differs" : ""} ${isFirst ? "parts" : ""}`}
            >
              <span role="rowheader">
                <button
                  type="button"
                  class="tr-fold"
                  onClick={() => setOpened(pair)}
                  aria-label={`Compare operation ${index + 1}`}
                >
                  {index + 1}
                </button>
              </span>
              <Cell side={pair.left} pair={pair} other={pair.right} />
              <Cell side={pair.right} pair={pair} other={pair.left} />
            </div>
          );
        }}
      </Virtual>
      {opened !== null && (
        <Dialog title="Operation side by side" isWide class="ev-compare" onClose={() => setOpened(null)}>
          <Diff
            left={detailOf(opened.left)}
            right={detailOf(opened.right)}
            leftName={left.instance.id}
            rightName={right.instance.id}
          />
        </Dialog>
      )}
    </>
  );
}

const WORDS = { name: "names", input: "inputs", outcome: "outcomes", length: "length" } as const;

function Title({ of }: { of: Story }): ComponentChildren {
  return (
    <span class="row">
      <Status is={standingOf(of.instance)} isBare />
      <Id text={of.instance.id} isClipped />
    </span>
  );
}

function Cell({ side, pair, other }: { side: Side | null; pair: Pair; other: Side | null }): JSX.Element {
  if (side === null)
    return (
      <span role="cell" class="cmp-none">
        nothing
      </span>
    );
  const mark = (kind: "name" | "input" | "outcome") => (pair.differs.has(kind) ? "cmp-mark" : "");
  const isSlower = other !== null && side.tookMs > 2 * other.tookMs && side.tookMs - other.tookMs > 100;
  return (
    <span role="cell" class="cmp-cell">
      <strong class={`clip ${mark("name")}`}>
        <Text text={side.name === "" ? KIND_WORDS[side.kind] : side.name} />
      </strong>
      <span class={`mono clip ${mark("input")}`}>
        <Text text={side.input === undefined ? "" : previewOf(side.input, 100)} />
      </span>
      {side.input !== undefined && (
        <span class="muted" aria-hidden="true">
          →
        </span>
      )}
      <span class={`mono clip ${mark("outcome")} ${side.outcome === "failed" ? "red" : ""}`}>
        <Text
          text={
            side.outcome === "completed" && side.result !== undefined
              ? previewOf(side.result, 100)
              : side.outcome === "failed"
                ? `failed: ${previewOf(side.result, 100)}`
                : side.outcome
          }
        />
      </span>
      <span class={`nowrap push ${isSlower ? "amber" : "muted"}`}>
        {side.outcome === "open" ? "" : durationText(side.tookMs)}
      </span>
    </span>
  );
}
