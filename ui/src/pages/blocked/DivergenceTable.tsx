// Record and code side by side, with the event where they part, and what differs in it.
import type { JSX } from "preact";

import type { Divergence } from "../../api/ops.ts";
import { Id, visible } from "../../design/Id.tsx";
import { href } from "../../router/router.ts";
import { wordDiff } from "./cause.ts";

export function DivergenceTable({ divergence, sample }: { divergence: Divergence; sample: string | undefined }): JSX.Element {
  return (
    <div class="divergence-box" tabIndex={0} role="region" aria-label="Record and code">
      <table>
        <caption>
          Record and code part at event {divergence.event}
          <span class="muted">
            {" "}
            · turn {divergence.turn}, execution {divergence.execution}
          </span>
          {sample !== undefined && (
            <span class="muted">
              {" "}
              · of <Id text={sample} href={href(["instances", sample], { tab: "history", event: divergence.event })} />
            </span>
          )}
        </caption>
        <thead>
          <tr>
            <th scope="col">Event</th>
            <th scope="col">Recorded in the history</th>
            <th scope="col">Decided by the code</th>
          </tr>
        </thead>
        <tbody>
          {divergence.neighbourhood.map((row) => {
            const isParting = row.parts === true;
            const { before, left, right, after } = wordDiff(row.recorded, row.code);
            return (
              <tr key={row.event} class={isParting ? "parts" : ""}>
                <th scope="row">
                  {row.event}
                  {isParting && <span class="sr-only"> (they part here)</span>}
                </th>
                <td data-side="Recorded">
                  {isParting ? (
                    <Line before={before} own={left} after={after} kind="recorded" />
                  ) : (
                    <code>{visible(row.recorded)}</code>
                  )}
                </td>
                <td data-side="Code">
                  {isParting ? (
                    <Line before={before} own={right} after={after} kind="decided" />
                  ) : (
                    <code>{visible(row.code)}</code>
                  )}
                </td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}

function Line({
  before,
  own,
  after,
  kind,
}: {
  before: string;
  own: string;
  after: string;
  kind: "recorded" | "decided";
}): JSX.Element {
  if (before + own + after === "") return <span class="muted">nothing</span>;
  return (
    <code>
      {visible(before)}
      {own !== "" && <mark class={kind}>{visible(own)}</mark>}
      {visible(after)}
    </code>
  );
}
