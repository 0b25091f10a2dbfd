// What has run longest, and what has been silent longest.
import type { JSX } from "preact";

import type { Task } from "../../api/ops.ts";
import { Segments } from "../../design/Controls.tsx";
import { Holding, useHeld } from "../../design/hold.tsx";
import { Id } from "../../design/Id.tsx";
import { Duration } from "../../design/time.tsx";
import { change, choice, href } from "../../router/router.ts";

const SHOWN = 20;
const keyOf = (task: Task) => `${task.key} ${task.execution} ${task.event}`;

export function Longest({ tasks, isPartial }: { tasks: readonly Task[]; isPartial: boolean }): JSX.Element {
  const by = choice("longest", ["running", "silent"]);
  const isRunning = by === "running";
  const at = (task: Task) => (isRunning ? task.since_ms : (task.heard_ms ?? task.since_ms)) ?? Number.MAX_SAFE_INTEGER;
  const sorted = [...tasks].sort((a, b) => at(a) - at(b)).slice(0, SHOWN);
  const held = useHeld(sorted, keyOf);
  return (
    <section class="stack">
      <div class="section-head activity-longest">
        <h2>{isRunning ? "Longest running" : "Longest silent"}</h2>
        <p>
          {isRunning
            ? "Attempts that workers have taken, the oldest first."
            : "Attempts whose last heartbeat, or start, is longest ago."}
        </p>
        <span class="push" />
        <Segments
          label="Order"
          value={by}
          onChange={(next) => change({ longest: next === "running" ? null : next })}
          options={[
            ["running", "Running"],
            ["silent", "Silent"],
          ]}
        />
      </div>
      {sorted.length === 0 ? (
        <p class="card activity-none muted">
          No attempt is with a worker now. Attempts that run inside of the node that owns their instance are not listed; they show
          on the page of the instance.
        </p>
      ) : (
        <Holding of={held}>
          <div class="card table-scroll" tabIndex={0} role="region" aria-label="Longest running activities">
            <table class="table cards">
              <thead>
                <tr>
                  <th scope="col">Activity</th>
                  <th scope="col">Instance</th>
                  <th scope="col" class="num">
                    Attempt
                  </th>
                  <th scope="col" class="num">
                    Running for
                  </th>
                  <th scope="col" class="num">
                    Silent for
                  </th>
                  <th scope="col">Node</th>
                </tr>
              </thead>
              <tbody>
                {held.rows.map((task) => (
                  <tr key={keyOf(task)}>
                    <td class="whole">
                      <b class="activity-name">
                        <Id text={task.name} />
                      </b>
                    </td>
                    <td class="activity-instance whole">
                      {task.id === null ? (
                        <span class="muted">deleted</span>
                      ) : (
                        <a
                          class="id clip"
                          data-row
                          title={task.id}
                          href={href(["instances", task.id], { tab: "waits", event: task.event })}
                        >
                          <Id text={task.id} />
                        </a>
                      )}
                    </td>
                    <td class="num" data-label="Attempt">
                      {task.attempt}
                    </td>
                    <td class="num" data-label="Running for">
                      {task.since_ms === undefined ? "–" : <Duration since={task.since_ms} />}
                    </td>
                    <td class="num" data-label="Silent for">
                      {task.heard_ms === undefined ? <span class="muted">no heartbeat</span> : <Duration since={task.heard_ms} />}
                    </td>
                    <td data-label="Node">{task.node === undefined ? <span class="muted">–</span> : <Id text={task.node} />}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        </Holding>
      )}
      {isPartial && <p class="hint">Of the first {tasks.length.toLocaleString("en")} attempts; there are more.</p>}
    </section>
  );
}
