// Starts an instance: a form, then what would be sent, and only then the start. "Start like this" fills it from an instance.
import type { JSX } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";

import { RawJson, get, post, randomKey } from "../../api/client.ts";
import { readJson, textOf } from "../../api/json.ts";
import { useLoad } from "../../api/load.ts";
import { Problem as ProblemError } from "../../api/problem.ts";
import { Button } from "../../design/Controls.tsx";
import { SameAs } from "../../design/Copy.tsx";
import { Dialog } from "../../design/Dialog.tsx";
import { Json } from "../../design/Json.tsx";
import { Problem } from "../../design/Problem.tsx";
import { toast } from "../../design/Toast.tsx";
import { go } from "../../router/router.ts";
import { readLength } from "./filter.ts";

const POLICIES = [
  ["reject", "refuse the start"],
  ["use", "use the instance that has it"],
  ["replace_ended", "replace it if it has ended"],
  ["terminate_and_replace", "terminate it and start another"],
] as const;

interface Draft {
  name: string;
  version: string;
  id: string;
  input: string;
  attributes: string;
  delay: string;
  timeout: string;
  onExisting: string;
}
const BLANK: Draft = {
  name: "",
  version: "",
  id: "",
  input: "null",
  attributes: "{}",
  delay: "",
  timeout: "",
  onExisting: "reject",
};

/** What is wrong with the draft, by field. */
function faults(draft: Draft): Partial<Record<keyof Draft, string>> {
  const found: Partial<Record<keyof Draft, string>> = {};
  if (draft.name.trim() === "") found.name = "Choose an orchestration.";
  for (const field of ["input", "attributes"] as const) {
    try {
      const value = readJson(draft[field]);
      const isObject = typeof value === "object" && value !== null && !Array.isArray(value);
      if (field === "attributes" && !isObject) found.attributes = 'Attributes are an object: {"region": "eu"}.';
    } catch (error) {
      found[field] = `This is not JSON: ${error instanceof Error ? error.message : ""}.`;
    }
  }
  for (const field of ["delay", "timeout"] as const) {
    if (draft[field].trim() !== "" && readLength(draft[field]) === null) found[field] = "Write 90s, 15m, 2h or 7d.";
  }
  return found;
}

/** The body, with input and attributes digit for digit as they were typed. */
function bodyOf(draft: Draft): string {
  const members: [string, string][] = [["name", JSON.stringify(draft.name.trim())]];
  const add = (name: string, text: string, value: string) => {
    if (text.trim() !== "") members.push([name, value]);
  };
  add("version", draft.version, JSON.stringify(draft.version.trim()));
  add("id", draft.id, JSON.stringify(draft.id));
  members.push(["input", draft.input.trim()]);
  if (draft.attributes.replace(/\s/g, "") !== "{}") members.push(["attributes", draft.attributes.trim()]);
  add("delay_ms", draft.delay, String(readLength(draft.delay) ?? 0));
  add("timeout_ms", draft.timeout, String(readLength(draft.timeout) ?? 0));
  if (draft.onExisting !== "reject") members.push(["on_existing", JSON.stringify(draft.onExisting)]);
  return `{${members.map(([name, value]) => `${JSON.stringify(name)}:${value}`).join(",")}}`;
}

function cliOf(draft: Draft): string[] | null {
  // The command wants an id, and has another way to write attributes that are not plain.
  if (draft.id === "") return null;
  const words = ["start", draft.name.trim(), draft.id, draft.input.trim()];
  if (draft.version.trim() !== "") words.push("--version", draft.version.trim());
  const attributes = readJson(draft.attributes) as Record<string, unknown>;
  for (const [name, value] of Object.entries(attributes)) words.push("--attribute", `${name}=${textOf(value)}`);
  if (draft.onExisting !== "reject") words.push("--on-existing", draft.onExisting.replaceAll("_", "-"));
  if (draft.delay.trim() !== "") words.push("--delay", draft.delay.trim());
  return draft.timeout.trim() === "" ? words : [...words, "--timeout", draft.timeout.trim()];
}

/** `like` is the id of an instance to fill the form from. */
export function Start({ like, onClose }: { like: string | null; onClose: () => void }): JSX.Element {
  const [draft, setDraft] = useState<Draft>(BLANK);
  const [isReviewed, setReviewed] = useState(false);
  const [problem, setProblem] = useState<ProblemError | null>(null);
  const [isShown, setShown] = useState(false);
  // One key for one form: sent twice after a lost answer, it starts one instance.
  const key = useMemo(randomKey, []);
  useEffect(() => {
    if (like === null) return;
    get("instances/{id}", { path: [like] }).then(
      (found) =>
        setDraft({
          ...BLANK,
          name: found.name,
          version: found.version,
          input: textOf(found.input ?? null),
          attributes: textOf(found.attributes),
        }),
      (error: unknown) => setProblem(ProblemError.from(error)),
    );
  }, [like]);
  const wrong = faults(draft);
  const isWrong = Object.keys(wrong).length > 0;
  const next = () => {
    setShown(true);
    if (!isWrong) setReviewed(true);
  };
  const start = async () => {
    setProblem(null);
    try {
      const options = draft.id === "" ? { idempotencyKey: key } : {};
      const started = await post("instances", new RawJson(bodyOf(draft)), options);
      toast(started.is_new ? `Started ${started.id}` : `${started.id} existed; nothing was started`);
      go(["instances", started.id]);
    } catch (error) {
      setProblem(ProblemError.from(error));
    }
  };
  const footer = isReviewed ? (
    <>
      <Button kind="quiet" onClick={() => setReviewed(false)}>
        Back
      </Button>
      <Button kind="primary" onClick={() => void start()}>
        Start
      </Button>
    </>
  ) : (
    <>
      <Button kind="quiet" onClick={onClose}>
        Cancel
      </Button>
      <Button kind="primary" onClick={next}>
        Review
      </Button>
    </>
  );
  return (
    <Dialog
      title={like === null ? "Start an instance" : "Start like this"}
      isWide
      onClose={onClose}
      footer={footer}
      onSubmit={isReviewed ? () => void start() : next}
    >
      {isReviewed ? (
        <>
          <p>This will be sent. Nothing has been started yet.</p>
          <Json text={bodyOf(draft)} name="start" />
          <SameAs of={{ cli: cliOf(draft), method: "POST", path: "instances", body: bodyOf(draft) }} />
        </>
      ) : (
        <Form draft={draft} onChange={(change) => setDraft({ ...draft, ...change })} wrong={isShown ? wrong : {}} />
      )}
      {problem !== null && <Problem problem={problem} />}
    </Dialog>
  );
}

function Form({
  draft,
  onChange,
  wrong,
}: {
  draft: Draft;
  onChange: (change: Partial<Draft>) => void;
  wrong: Partial<Record<keyof Draft, string>>;
}): JSX.Element {
  const registered = useLoad(async (signal) => (await get("orchestrations", { signal })).orchestrations, []);
  const known = registered.value.value ?? [];
  const names = [...new Set(known.map((each) => each.name))];
  const versions = known.filter((each) => each.name === draft.name).map((each) => each.version);
  const line = (field: keyof Draft, label: string, hint: string, more: Record<string, unknown> = {}) => (
    <Field id={`start-${field}`} label={label} hint={hint} wrong={wrong[field]}>
      <input
        id={`start-${field}`}
        class="field"
        autocomplete="off"
        spellcheck={false}
        value={draft[field]}
        aria-invalid={wrong[field] !== undefined}
        onInput={(event) => onChange({ [field]: event.currentTarget.value })}
        {...more}
      />
    </Field>
  );
  const area = (field: "input" | "attributes", label: string, rows: number) => (
    <Field id={`start-${field}`} label={label} hint="JSON" wrong={wrong[field]}>
      <textarea
        id={`start-${field}`}
        class="field"
        rows={rows}
        spellcheck={false}
        value={draft[field]}
        aria-invalid={wrong[field] !== undefined}
        onInput={(event) => onChange({ [field]: event.currentTarget.value })}
      />
    </Field>
  );
  return (
    <div class="start-form">
      {line("name", "Orchestration", "", { list: "start-names", autofocus: true })}
      <datalist id="start-names">
        {names.map((name) => (
          <option key={name} value={name} />
        ))}
      </datalist>
      {line("version", "Version", "the latest that is registered", { list: "start-versions" })}
      <datalist id="start-versions">
        {versions.map((version) => (
          <option key={version} value={version} />
        ))}
      </datalist>
      {line("id", "Id", "made by the server if empty")}
      <Field id="start-existing" label="If the id exists" hint="">
        <select
          id="start-existing"
          class="field"
          value={draft.onExisting}
          onChange={(event) => onChange({ onExisting: event.currentTarget.value })}
        >
          {POLICIES.map(([value, text]) => (
            <option key={value} value={value}>
              {text}
            </option>
          ))}
        </select>
      </Field>
      <div class="whole">{area("input", "Input", 6)}</div>
      <div class="whole">{area("attributes", "Attributes", 2)}</div>
      {line("delay", "Delay", "90s, 15m, 2h, 7d")}
      {line("timeout", "Timeout", "none")}
    </div>
  );
}

function Field(props: {
  id: string;
  label: string;
  hint: string;
  wrong?: string | undefined;
  children: JSX.Element;
}): JSX.Element {
  return (
    <div class="labelled">
      <label for={props.id}>{props.label}</label>
      {props.children}
      {props.wrong !== undefined ? (
        <span class="hint bad" role="alert">
          {props.wrong}
        </span>
      ) : (
        props.hint !== "" && <span class="hint">{props.hint}</span>
      )}
    </div>
  );
}
