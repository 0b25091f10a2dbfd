// State: attributes, published status, and the queries and updates that the code takes, each with a form and its last answer.
import { signal, useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";

import { RawJson, post } from "../../../api/client.ts";
import { useLoad } from "../../../api/load.ts";
import { Problem as ProblemError } from "../../../api/problem.ts";
import type { InstanceDetails } from "../../../api/types.ts";
import { Button } from "../../../design/Controls.tsx";
import { SameAs } from "../../../design/Copy.tsx";
import { Text } from "../../../design/Id.tsx";
import { Payload } from "../../../design/Json.tsx";
import { Empty, Part, Problem } from "../../../design/Problem.tsx";
import { Time, serverTime } from "../../../design/time.tsx";
import { session, whyReadOnly } from "../../../frame/state.ts";
import { raise, update } from "../acting.tsx";
import { address, read, type Handlers, type WaitsData } from "../data.ts";
import { pastOf, type InstanceModel } from "../model.ts";
import { JsonField, jsonProblem, previewOf } from "../parts.tsx";
import "./state.css";

interface About {
  model: InstanceModel;
  details: InstanceDetails;
}

export default function StateTab({ model, details }: About): JSX.Element {
  const past = pastOf(details.execution);
  return (
    <div class="st">
      {past === null ? (
        <Values attributes={details.attributes} published={details.published} />
      ) : (
        <PastValues model={model} execution={past.execution} turn={past.turn} />
      )}
      {past === null &&
        (model.isOver ? (
          <Empty title="It has ended">
            <p>Queries and updates run in the code of a running instance.</p>
          </Empty>
        ) : (
          <Calls model={model} details={details} />
        ))}
    </div>
  );
}

function PastValues({ model, execution, turn }: { model: InstanceModel; execution: number; turn: number }): JSX.Element {
  const loaded = useLoad(
    (signal) => read<WaitsData>("instances/{id}/waits", [model.id], { ...model.bound, execution, turn }, signal),
    [execution, turn],
  );
  return <Part of={loaded}>{(then) => <Values attributes={then.attributes ?? {}} published={then.published ?? null} />}</Part>;
}

function Values({ attributes, published }: { attributes: Record<string, unknown>; published: unknown }): JSX.Element {
  const entries = Object.entries(attributes);
  return (
    <div class="st-values">
      <section class="card">
        <header>
          <h2>Published status</h2>
        </header>
        <div class="body">
          {published === null || published === undefined ? (
            <p class="muted">
              The code has published none. It does so with <code>ctx.set_status</code>.
            </p>
          ) : (
            <Payload value={published} name="status" />
          )}
        </div>
      </section>
      <section class="card">
        <header>
          <h2>Attributes</h2>
          <span class="count">{entries.length}</span>
        </header>
        {entries.length === 0 ? (
          <div class="body">
            <p class="muted">
              None. They are set at the start or by <code>ctx.set_attribute</code>, and instances are found by them.
            </p>
          </div>
        ) : (
          <div class="table-scroll">
            <table class="table">
              <thead>
                <tr>
                  <th>Name</th>
                  <th>Value</th>
                </tr>
              </thead>
              <tbody>
                {entries.slice(0, 200).map(([name, value]) => (
                  <tr key={name}>
                    <td>
                      <Text text={name} />
                    </td>
                    <td class="mono one-wrap">
                      <Text text={previewOf(value, 500)} />
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        )}
      </section>
    </div>
  );
}

function Calls({ model, details }: About): JSX.Element {
  const loaded = useLoad(
    (signal) => read<Handlers>("instances/{id}/handlers", [model.id], { ...model.bound }, signal),
    [details.execution, details.blocked === null],
  );
  return (
    <Part of={loaded}>
      {(handlers) => (
        <>
          {!handlers.known && (
            <p class="hint">
              What its code takes is not known now: {handlers.because ?? "no runtime that runs it has answered"}. Calls by name
              still work.
            </p>
          )}
          <div class="st-calls">
            {handlers.queries.map((name) => (
              <QueryCard key={`q ${name}`} model={model} name={name} />
            ))}
            {handlers.updates.map((name) => (
              <UpdateCard key={`u ${name}`} about={{ model, details }} name={name} offered={handlers.updates} />
            ))}
            {handlers.events.length > 0 && (
              <section class="card">
                <header>
                  <h2>Events it takes</h2>
                </header>
                <ul class="body row wrap">
                  {handlers.events.map((name) => (
                    <li key={name}>
                      <Button
                        kind="small"
                        whyNot={whyReadOnly.value}
                        onClick={() => raise({ model, details }, name, handlers.events)}
                      >
                        Raise{" "}
                        <span>
                          <Text text={name} />…
                        </span>
                      </Button>
                    </li>
                  ))}
                </ul>
              </section>
            )}
            {(!handlers.known || handlers.queries.length + handlers.updates.length === 0) && (
              <ByName about={{ model, details }} isKnown={handlers.known} />
            )}
          </div>
        </>
      )}
    </Part>
  );
}

interface Answer {
  value: unknown;
  atMs: number;
  turn: number;
}

function QueryCard({ model, name }: { model: InstanceModel; name: string }): JSX.Element {
  const input = useSignal("");
  const [answer, setAnswer] = useState<Answer | null>(null);
  const [problem, setProblem] = useState<ProblemError | null>(null);
  const [isBusy, setBusy] = useState(false);
  const [isRepeated, setRepeated] = useState(false);
  const text = () => (input.value.trim() === "" ? "null" : input.value.trim());
  const ask = useMemo(
    () => async () => {
      setBusy(true);
      try {
        const turn = model.lastTurn.peek()?.number ?? 0;
        const value = await post("instances/{id}/queries/{name}", new RawJson(text()), {
          path: [model.id, name],
          query: { ...model.bound, wait_ms: 10_000 },
        });
        setAnswer({ value: value ?? null, atMs: serverTime(), turn });
        setProblem(null);
      } catch (error) {
        setProblem(ProblemError.from(error));
      } finally {
        setBusy(false);
      }
    },
    [name],
  );
  useEffect(() => (isRepeated ? model.listen({ turn: () => void ask() }) : undefined), [isRepeated]);
  const invalid = jsonProblem(input.value);
  const whyNot =
    invalid !== null
      ? "The input is not JSON."
      : session.value.value?.payloads_hidden === true
        ? "Payloads are hidden from you."
        : null;
  return (
    <section class="card st-call" aria-label={`Query ${name}`}>
      <header>
        <span class="label">query</span>
        <h2>
          <Text text={name} />
        </h2>
        <label class="row push st-repeat">
          <input type="checkbox" checked={isRepeated} onChange={(event) => setRepeated(event.currentTarget.checked)} /> after each
          turn
        </label>
      </header>
      <form
        class="body stack"
        onSubmit={(event) => {
          event.preventDefault();
          if (whyNot === null) void ask();
        }}
      >
        <JsonField label="Input" value={input} />
        <div class="row">
          <Button kind="small primary" type="submit" whyNot={whyNot}>
            {isBusy ? "Asking…" : "Ask"}
          </Button>
          {answer !== null && (
            <span class="hint" role="status">
              answered <Time ms={answer.atMs} form="relative" />, after turn {answer.turn}
            </span>
          )}
        </div>
        {problem !== null && <Problem problem={problem} />}
        {answer !== null && <Payload value={answer.value} name={`${name} answer`} />}
        <SameAs
          of={{
            cli: ["query", model.id, name, text()],
            method: "POST",
            path: address("instances/{id}/queries/{name}", [model.id, name]),
            body: text(),
          }}
        />
      </form>
    </section>
  );
}

function UpdateCard({ about, name, offered }: { about: About; name: string; offered: readonly string[] }): JSX.Element {
  const [result, setResult] = useState<{ value: unknown; atMs: number } | null>(null);
  return (
    <section class="card st-call" aria-label={`Update ${name}`}>
      <header>
        <span class="label">update</span>
        <h2>
          <Text text={name} />
        </h2>
      </header>
      <div class="body stack">
        <div class="row">
          <Button
            kind="small"
            whyNot={whyReadOnly.value}
            onClick={() => update(about, name, offered, "", (value) => setResult({ value: value ?? null, atMs: serverTime() }))}
          >
            Update…
          </Button>
          {result !== null && (
            <span class="hint">
              answered <Time ms={result.atMs} form="relative" />
            </span>
          )}
        </div>
        {result !== null && <Payload value={result.value} name={`${name} result`} />}
      </div>
    </section>
  );
}

/** For code that is not running here: whoever knows the name can still call. */
function ByName({ about, isKnown }: { about: About; isKnown: boolean }): JSX.Element {
  const name = useMemo(() => signal(""), []);
  const [asked, setAsked] = useState("");
  return (
    <section class="card st-call">
      <header>
        <h2>{isKnown ? "Its code takes no queries or updates" : "Call by name"}</h2>
      </header>
      <div class="body stack">
        {isKnown ? (
          <p class="muted">
            Code takes them with <code>ctx.on_query</code> and <code>ctx.on_update</code>.
          </p>
        ) : (
          <>
            <form
              class="row"
              onSubmit={(event) => {
                event.preventDefault();
                setAsked(name.value);
              }}
            >
              <input
                class="field mono"
                aria-label="Name of the query or update"
                placeholder="name"
                value={name.value}
                onInput={(event) => (name.value = event.currentTarget.value)}
              />
              <Button kind="small" type="submit">
                Query
              </Button>
              <Button kind="small" whyNot={whyReadOnly.value} onClick={() => update(about, name.value, [])}>
                Update…
              </Button>
            </form>
            {asked !== "" && <QueryCard key={asked} model={about.model} name={asked} />}
          </>
        )}
      </div>
    </section>
  );
}
