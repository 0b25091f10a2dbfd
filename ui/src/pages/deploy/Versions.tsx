// Orchestrations by version: who has the code, and who needs it.
import type { JSX } from "preact";

import type { FullNode, Version } from "../../api/ops.ts";
import type { Count } from "../../api/types.ts";
import { countText } from "../../design/Controls.tsx";
import { Changing, Holding, useHeld } from "../../design/hold.tsx";
import { Id, Text } from "../../design/Id.tsx";
import { Empty } from "../../design/Problem.tsx";
import { Time } from "../../design/time.tsx";
import { Icon } from "../../design/icons.tsx";
import { useKeys } from "../../design/keys.ts";
import { change, href, param } from "../../router/router.ts";
import { compareVersions, verdictOf, type Verdict } from "./verdict.ts";

const SHOWN = 150;

export function Versions({ rows, live }: { rows: readonly Version[]; live: readonly FullNode[] }): JSX.Element {
  const words = (param("name") ?? "").toLowerCase();
  const held = useHeld(rows, (row) => `${row.name}\u0000${row.version}`);
  useKeys(
    [
      {
        keys: "/",
        does: "Filter orchestrations",
        act: () => document.getElementById("deploy-filter")?.focus(),
        group: "This page",
      },
    ],
    [],
  );
  if (rows.length === 0) {
    return (
      <Empty title="Nothing is registered">
        <p>
          Orchestrations and their versions appear here, with the nodes that have their code and the open instances that need it,
          so that you know which code may be removed.
        </p>
      </Empty>
    );
  }
  const byName = new Map<string, Version[]>();
  for (const row of held.rows)
    if (row.name.toLowerCase().includes(words)) byName.set(row.name, [...(byName.get(row.name) ?? []), row]);
  const removable = rows.filter(
    (row) =>
      verdictOf(
        row,
        rows.filter((other) => other.name === row.name),
        live,
      ).kind === "removable",
  ).length;
  const missing = live.length === 0 ? 0 : rows.filter((row) => row.nodes.length === 0 && row.version !== "").length;
  const shown = [...byName].slice(0, SHOWN);
  return (
    <section class="stack">
      <div class="section-head deploy-head">
        <h2>Versions</h2>
        {missing > 0 && <span class="chip red">{missing} missing</span>}
        {removable > 0 && <span class="chip green">{removable} may be removed</span>}
        <span class="push" />
        <input
          id="deploy-filter"
          class="field deploy-filter"
          type="search"
          placeholder="Filter orchestrations"
          aria-label="Filter orchestrations"
          value={param("name") ?? ""}
          onInput={(event) =>
            change({ name: event.currentTarget.value === "" ? null : event.currentTarget.value }, { replace: true })
          }
        />
      </div>
      <Holding of={held}>
        <div class="card table-scroll" tabIndex={0} role="region" aria-label="Orchestrations by version">
          <table class="table cards deploy-table">
            <thead>
              <tr>
                <th scope="col">Orchestration</th>
                <th scope="col">Version</th>
                <th scope="col">Nodes</th>
                <th scope="col" class="num">
                  Open
                </th>
                <th scope="col" class="num">
                  Blocked
                </th>
                <th scope="col">Oldest open</th>
                <th scope="col" class="num">
                  Started today
                </th>
                <th scope="col">Code</th>
              </tr>
            </thead>
            {shown.map(([name, versions]) => (
              <tbody key={name}>
                {[...versions]
                  .sort((a, b) => compareVersions(b.version, a.version))
                  .map((row, index) => (
                    <Row
                      key={row.version}
                      row={row}
                      isFirst={index === 0}
                      span={versions.length}
                      verdict={verdictOf(row, versions, live)}
                      live={live}
                    />
                  ))}
              </tbody>
            ))}
          </table>
        </div>
      </Holding>
      {byName.size === 0 && (
        <p class="muted">
          No orchestration's name contains “<Text text={words} />
          ”.
        </p>
      )}
      {byName.size > SHOWN && <p class="hint">{byName.size - SHOWN} more; filter by name to see them.</p>}
    </section>
  );
}

function Row({
  row,
  isFirst,
  span,
  verdict,
  live,
}: {
  row: Version;
  isFirst: boolean;
  span: number;
  verdict: Verdict;
  live: readonly FullNode[];
}): JSX.Element {
  const of = { name: row.name, ...(row.version === "" ? {} : { version: row.version }) };
  const names = row.nodes.map((id) => live.find((node) => node.id === id)?.name ?? id.slice(0, 8));
  return (
    <tr class={verdict.kind}>
      {isFirst && (
        <th scope="rowgroup" rowSpan={span} class="deploy-name whole">
          <Id text={row.name} href={href(["instances"], { name: row.name })} />
        </th>
      )}
      <td class="nowrap" data-label="Version">
        {row.version === "" ? <span class="muted">any</span> : <Id text={row.version} href={href(["instances"], of)} />}
      </td>
      <td class="deploy-nodes" data-label="Nodes">
        {names.length === 0 ? (
          <span class="muted">none</span>
        ) : (
          <span title={names.join(", ")}>
            {names.length <= 2
              ? names.map((name, index) => (
                  <>
                    {index > 0 && ", "}
                    <Id text={name} />
                  </>
                ))
              : `${names.length} of ${live.length}`}
          </span>
        )}
      </td>
      <td class="num" data-label="Open">
        <Number of={row.open} to={href(["instances"], { ...of, status: "running,pending" })} />
      </td>
      <td class="num" data-label="Blocked">
        <Number of={row.blocked} to={href(["instances"], { ...of, blocked: true })} tone="amber" />
      </td>
      <td data-label="Oldest open">
        {row.oldest_ms === undefined ? (
          <span class="muted">–</span>
        ) : (
          <a href={href(["instances"], { ...of, status: "running,pending", order: "oldest" })}>
            <Time ms={row.oldest_ms} />
          </a>
        )}
      </td>
      <td class="num" data-label="Started today">
        <Number of={row.started} to={href(["instances"], { ...of, created_from_ms: new Date().setHours(0, 0, 0, 0) })} />
      </td>
      <td class="whole">
        <span class={`verdict ${verdict.kind}`}>
          <Sign verdict={verdict} />
          <Text text={verdict.text} />
        </span>
      </td>
    </tr>
  );
}

function Sign({ verdict }: { verdict: Verdict }): JSX.Element | null {
  switch (verdict.kind) {
    case "missing":
    case "partial":
      return <Icon name="warning" size={14} />;
    case "removable":
      return <Icon name="check" size={14} />;
    default:
      return null;
  }
}

function Number({ of, to, tone }: { of: Count; to: string; tone?: "amber" }): JSX.Element {
  if (of.rows === 0) return <span class="muted">0</span>;
  return (
    <a class={tone === undefined ? "" : `deploy-${tone}`} href={to}>
      <Changing text={countText(of)} />
    </a>
  );
}
