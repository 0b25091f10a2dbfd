// Changes of what is registered, as far as the store tells: each start of a node, and what was blocked from then on.
import type { JSX } from "preact";

import type { Cause, FullNode } from "../../api/ops.ts";
import { Id, Text } from "../../design/Id.tsx";
import { Time } from "../../design/time.tsx";
import { href } from "../../router/router.ts";

const SHOWN = 20;

export function Changes({ nodes, causes }: { nodes: readonly FullNode[]; causes: readonly Cause[] }): JSX.Element | null {
  const starts = [...nodes].sort((a, b) => b.since - a.since).slice(0, SHOWN);
  if (starts.length === 0) return null;
  return (
    <section class="stack">
      <div class="section-head">
        <h2>Since each start</h2>
        <p>A node that starts brings code. What was blocked from then on is likely to come from it.</p>
      </div>
      <div class="card table-scroll" tabIndex={0} role="region" aria-label="Starts of nodes and what was blocked since">
        <table class="table cards">
          <thead>
            <tr>
              <th scope="col">Started</th>
              <th scope="col">Node</th>
              <th scope="col">Brought, unlike the nodes before</th>
              <th scope="col" class="num">
                Blocked since
              </th>
              <th scope="col">Causes</th>
            </tr>
          </thead>
          <tbody>
            {starts.map((node, index) => {
              const until = starts[index - 1]?.since ?? Number.MAX_SAFE_INTEGER;
              const own = causes.filter((cause) => cause.first_ms >= node.since && cause.first_ms < until);
              const count = own.reduce((sum, cause) => sum + cause.count, 0);
              return (
                <tr key={node.id}>
                  <td data-label="Started">
                    <Time ms={node.since} />
                  </td>
                  <td class="nowrap" data-label="Node">
                    <Id text={node.name} />
                    {!node.is_live && <span class="muted"> (gone)</span>}
                  </td>
                  <td class="deploy-brought whole" data-label="Brought">
                    <Brought node={node} before={starts.slice(index + 1)} />
                  </td>
                  <td class="num" data-label="Blocked since">
                    {count === 0 ? (
                      <span class="muted">0</span>
                    ) : (
                      <a class="deploy-amber" href={href(["blocked"])}>
                        {count.toLocaleString("en")}
                      </a>
                    )}
                  </td>
                  <td class="deploy-causes whole">
                    {own.slice(0, 3).map((cause) => (
                      <span key={cause.cause + cause.name}>
                        <Id text={cause.name} /> <Text text={cause.version} />
                      </span>
                    ))}
                  </td>
                </tr>
              );
            })}
          </tbody>
        </table>
      </div>
    </section>
  );
}

function Brought({ node, before }: { node: FullNode; before: readonly FullNode[] }): JSX.Element {
  const nameOf = ([name, version]: readonly string[]) => `${name ?? ""} ${version ?? ""}`;
  const known = new Set(before.flatMap((other) => other.orchestrations.map(nameOf)));
  const brought = node.orchestrations.map(nameOf).filter((name) => !known.has(name));
  if (before.length === 0)
    return <span class="muted">{node.orchestrations.length} orchestrations; no earlier node is known</span>;
  if (brought.length === 0) return <span class="muted">nothing new</span>;
  return (
    <>
      {brought.slice(0, 4).map((name, index) => (
        <>
          {index > 0 && ", "}
          <Id text={name} />
        </>
      ))}
      {brought.length > 4 && ` and ${brought.length - 4} more`}
    </>
  );
}
