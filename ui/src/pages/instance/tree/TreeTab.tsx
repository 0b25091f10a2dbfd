// The family from its root: as a list that unfolds, or drawn as a graph.
import type { JSX } from "preact";
import { useEffect, useMemo } from "preact/hooks";

import type { InstanceDetails } from "../../../api/types.ts";
import { Button, Segments, countText } from "../../../design/Controls.tsx";
import { Id, Text } from "../../../design/Id.tsx";
import { Part } from "../../../design/Problem.tsx";
import { Status, standingOf } from "../../../design/Status.tsx";
import { Virtual } from "../../../design/Virtual.tsx";
import { Icon } from "../../../design/icons.tsx";
import { Duration, Time } from "../../../design/time.tsx";
import { change, choice, href, param } from "../../../router/router.ts";
import type { InstanceModel } from "../model.ts";
import { Graph } from "./Graph.tsx";
import { Family, familyRows, type FamilyRow, type Member, type Only } from "./family.ts";
import "./tree.css";

const ROW_PX = 30;
const POLLED_MS = 5_000;
const ONLY: readonly [Only, ...Only[]] = ["all", "failed", "running", "blocked"];

export default function TreeTab({ model }: { model: InstanceModel; details: InstanceDetails }): JSX.Element {
  const only = choice("only", ONLY);
  const family = useMemo(() => new Family(model.id, model.bound, only), [only]);
  useEffect(() => {
    void family.loaded.reload().then(() => {
      const root = family.loaded.value.peek();
      if (root !== undefined && only !== "all") void family.loadMore(root);
    });
    const leave = model.listen({ turn: () => void family.loaded.reload(), changed: () => void family.loaded.reload() });
    // Children change without a turn of their parent. Large families are read again by hand.
    const timer = setInterval(() => {
      const root = family.loaded.value.peek();
      if (root !== undefined && document.visibilityState === "visible" && familyRows(root).length < 400)
        void family.loaded.reload();
    }, POLLED_MS);
    return () => {
      leave();
      clearInterval(timer);
      family.loaded.stop();
    };
  }, [family]);
  return (
    <div class="tr">
      <Part of={family.loaded}>{(root) => <Shown family={family} root={root} id={model.id} only={only} />}</Part>
    </div>
  );
}

function Shown({ family, root, id, only }: { family: Family; root: Member; id: string; only: Only }): JSX.Element {
  const rows = familyRows(root);
  const isGraph = param("as") === "graph";
  const counts = root.counts.value;
  useEffect(() => family.count(root), [root, root.instance.value]);
  const onRange = (first: number, last: number) => {
    for (const row of rows.slice(first, last + 1)) {
      if (row.is === "more") {
        if (row.of.problem.peek() === null && !row.of.isLoading.peek()) void family.loadMore(row.of);
      } else if (!row.member.isUnfolded.peek() && row.member.hasChildren) family.count(row.member);
    }
  };
  const label = (which: Only) => {
    const count = counts === null || which === "all" ? null : counts[which];
    return `${which}${count === null ? "" : ` ${countText(count)}`}`;
  };
  return (
    <>
      <div class="tl-tools">
        <Segments
          label="Form"
          options={[
            ["list", "List"],
            ["graph", "Graph"],
          ]}
          value={isGraph ? "graph" : "list"}
          onChange={(as) => change({ as: as === "list" ? null : as })}
        />
        <Segments
          label="Which children"
          options={ONLY.map((which) => [which, label(which)] as const)}
          value={only}
          onChange={(next) => change({ only: next === "all" ? null : next })}
        />
        {counts !== null && <span class="muted">{countText(counts.total)} children of the root</span>}
        <Button kind="quiet small push" onClick={() => void family.loaded.reload()}>
          Read again
        </Button>
      </div>
      {isGraph ? (
        <Graph family={family} root={root} id={id} />
      ) : (
        <Virtual
          class="tr-rows"
          role="table"
          label="Family"
          count={rows.length}
          rowHeight={ROW_PX}
          onRange={onRange}
          keyOf={(index) => rowKey(rows[index])}
        >
          {(index) => {
            const row = rows[index];
            if (row === undefined) return null;
            return row.is === "member" ? (
              <MemberRow family={family} member={row.member} isHere={row.member.id === id} index={index} />
            ) : (
              <MoreRow family={family} of={row.of} index={index} />
            );
          }}
        </Virtual>
      )}
    </>
  );
}

function rowKey(row: FamilyRow | undefined): string {
  return row === undefined ? "" : row.is === "member" ? row.member.instance.value.key : `more ${row.of.instance.value.key}`;
}

function MemberRow({
  family,
  member,
  isHere,
  index,
}: {
  family: Family;
  member: Member;
  isHere: boolean;
  index: number;
}): JSX.Element {
  const instance = member.instance.value;
  const standing = standingOf(instance);
  const counts = member.counts.value;
  const isUnfolded = member.isUnfolded.value;
  return (
    <div
      role="row"
      aria-rowindex={index + 2}
      class={`tr-row ${isHere ? "here" : ""} ${standing}`}
      aria-current={isHere ? "page" : undefined}
    >
      <span role="rowheader" class="tr-id" style={{ paddingInlineStart: `${Math.min(member.depth, 14) * 1.1}rem` }}>
        {member.hasChildren ? (
          <button
            type="button"
            class="tl-chevron"
            aria-expanded={isUnfolded}
            aria-label={`Children of ${instance.id}`}
            onClick={() => void family.toggle(member)}
          >
            <Icon name={isUnfolded ? "chevronDown" : "chevronRight"} size={12} />
          </button>
        ) : (
          <span class="tl-chevron" />
        )}
        <span class="sr-only">level {member.depth + 1}</span>
        <Status is={standing} isBare />
        <MemberId id={instance.id} parent={member.depth === 0 ? null : (instance.parent?.instance ?? null)} />
        {isHere && <span class="chip blue">this one</span>}
        {!isUnfolded && counts !== null && counts.total > 0 && <span class="count">{countText(counts.total)}</span>}
        {!isUnfolded && counts !== null && counts.failed > 0 && <span class="chip red">{countText(counts.failed)} failed</span>}
        {!isUnfolded && counts !== null && counts.blocked > 0 && (
          <span class="chip amber">{countText(counts.blocked)} blocked</span>
        )}
      </span>
      <span role="cell" class="clip tr-name">
        <Text text={instance.name} />
      </span>
      <span role="cell" class="muted tr-time">
        <Time ms={instance.created_ms} />
      </span>
      <span role="cell" class="tr-took">
        {instance.ended_ms === null ? (
          <Duration since={instance.created_ms} />
        ) : (
          <Duration ms={instance.ended_ms - instance.created_ms} />
        )}
      </span>
    </div>
  );
}

/** A child's id mostly begins with its parent's. That part is left out where there is little room: the indent tells it. */
function MemberId({ id, parent }: { id: string; parent: string | null }): JSX.Element {
  const link = href(["instances", id], { tab: "tree" });
  if (parent === null || !id.startsWith(parent) || id.length === parent.length) return <Id text={id} href={link} isClipped />;
  return (
    <a class="id clip" href={link} title={id}>
      <span class="tr-parent">
        <Text text={parent} />
      </span>
      <Text text={id.slice(parent.length)} />
    </a>
  );
}

function MoreRow({ family, of, index }: { family: Family; of: Member; index: number }): JSX.Element {
  const problem = of.problem.value;
  return (
    <div role="row" aria-rowindex={index + 2} class="tr-row">
      <span role="cell" class="tr-id muted" style={{ paddingInlineStart: `${(of.depth + 1) * 1.1 + 2}rem` }}>
        {problem !== null ? (
          <>
            <span class="red clip">{problem.detail}</span>{" "}
            <Button kind="small" onClick={() => void family.loadMore(of)}>
              Try again
            </Button>
          </>
        ) : (
          "Reading more…"
        )}
      </span>
    </div>
  );
}
