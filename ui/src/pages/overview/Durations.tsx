// How long the instances took that ended last, by orchestration. The marks stand on one logarithmic scale.
import type { JSX } from "preact";

import type { DurationRow } from "../../api/ops.ts";
import { Holding, useHeld } from "../../design/hold.tsx";
import { Id } from "../../design/Id.tsx";
import { Duration, Time, durationText } from "../../design/time.tsx";
import { href } from "../../router/router.ts";

const SHOWN = 12;

export function Durations({ rows, from }: { rows: readonly DurationRow[]; from: number }): JSX.Element {
  const held = useHeld(rows, (row) => row.name);
  const total = rows.reduce((sum, row) => sum + row.ended, 0);
  const most = Math.max(1_000, ...rows.map((row) => row.p99_ms));
  const shown = held.rows.slice(0, SHOWN);
  return (
    <div class="card">
      <header>
        <h2>Durations</h2>
        {total > 0 && (
          <span class="muted clip">
            of the last {total.toLocaleString("en")} that ended, since <Time ms={from} />
          </span>
        )}
      </header>
      {rows.length === 0 ? (
        <p class="body muted">No instance has ended yet. Percentiles of the last 1,000 that ended would be here.</p>
      ) : (
        <Holding of={held}>
          <div class="table-scroll" tabIndex={0} role="region" aria-label="Durations">
            <table class="table cards durations">
              <thead>
                <tr>
                  <th scope="col">Orchestration</th>
                  <th scope="col" class="num">
                    Ended
                  </th>
                  <th scope="col" class="num">
                    Failed
                  </th>
                  <th scope="col" class="num">
                    p50
                  </th>
                  <th scope="col" class="num">
                    p95
                  </th>
                  <th scope="col" class="num">
                    p99
                  </th>
                  <th scope="col" class="durations-scale">
                    <span class="row">
                      <span>1 ms</span>
                      <span class="push">{durationText(most)}</span>
                    </span>
                  </th>
                </tr>
              </thead>
              <tbody>
                {shown.map((row) => (
                  <tr key={row.name}>
                    <td class="durations-name whole">
                      <Id
                        text={row.name}
                        href={href(["instances"], { name: row.name, status: "completed,failed,cancelled,terminated" })}
                        isClipped
                      />
                    </td>
                    <td class="num" data-label="Ended">
                      {row.ended.toLocaleString("en")}
                    </td>
                    <td class="num" data-label="Failed">
                      {row.failed === 0 ? (
                        <span class="muted">–</span>
                      ) : (
                        <a class="bad" href={href(["instances"], { name: row.name, status: "failed", ended_from_ms: from })}>
                          {row.failed.toLocaleString("en")}
                        </a>
                      )}
                    </td>
                    <td class="num" data-label="p50">
                      <Duration ms={row.p50_ms} />
                    </td>
                    <td class="num" data-label="p95">
                      <Duration ms={row.p95_ms} />
                    </td>
                    <td class="num" data-label="p99">
                      <a
                        href={href(["instances"], {
                          name: row.name,
                          min_duration_ms: row.p99_ms,
                          status: "completed,failed,cancelled,terminated",
                        })}
                        title="Those that took at least so long"
                      >
                        <Duration ms={row.p99_ms} />
                      </a>
                    </td>
                    <td class="durations-scale whole">
                      <Marks row={row} most={most} />
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        </Holding>
      )}
      {rows.length > SHOWN && <p class="findings-more muted">{rows.length - SHOWN} more orchestrations ended less often.</p>}
    </div>
  );
}

function Marks({ row, most }: { row: DurationRow; most: number }): JSX.Element {
  const place = (ms: number) => `${(Math.log(Math.max(1, ms)) / Math.log(most)) * 100}%`;
  return (
    <span class="marks" aria-hidden="true">
      <span class="range" style={{ left: place(row.p50_ms), right: `calc(100% - ${place(row.p99_ms)})` }} />
      <span class="p99" style={{ left: place(row.p99_ms) }} />
      <span class="p95" style={{ left: place(row.p95_ms) }} />
      <span class="p50" style={{ left: place(row.p50_ms) }} />
    </span>
  );
}
