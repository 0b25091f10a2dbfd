// What ends, deletes or reaches many is confirmed here: one sentence that says what will happen to what and to how many, a
// reason, a button that names the verb, and the same action for a terminal.
// What cannot be undone wants the id or the number typed.
import { signal } from "@preact/signals";
import type { ComponentChildren, JSX } from "preact";
import { useState } from "preact/hooks";

import { Problem as ProblemError } from "../api/problem.ts";
import { Button } from "./Controls.tsx";
import { SameAs, type Equivalent } from "./Copy.tsx";
import { Dialog } from "./Dialog.tsx";
import { Problem } from "./Problem.tsx";

export interface Question {
  title: string;
  /** What will happen to what, and to how many. */
  sentence: ComponentChildren;
  /** The verb on the button. */
  verb: string;
  isDanger?: boolean;
  /** Must be typed before the button works. */
  typed?: string;
  /** Asks for a reason, which is recorded. */
  hasReason?: boolean;
  /** More fields, whose values the caller keeps. */
  fields?: ComponentChildren;
  /** The same in a terminal, with the reason as it stands. */
  sameAs?: (reason: string) => Equivalent;
  /** Does it. A problem that it throws is shown in the dialog, which stays open. */
  act: (reason: string) => Promise<void>;
}

const asked = signal<Question | null>(null);

/** Asks in a dialog. One at a time. */
export function confirm(question: Question): void {
  asked.value = question;
}

/** Stands once in the frame. */
export function Confirmation(): JSX.Element | null {
  const question = asked.value;
  return question === null ? null : <Ask question={question} onClose={() => (asked.value = null)} />;
}

function Ask({ question, onClose }: { question: Question; onClose: () => void }): JSX.Element {
  const [reason, setReason] = useState("");
  const [typed, setTyped] = useState("");
  const [isBusy, setBusy] = useState(false);
  const [problem, setProblem] = useState<ProblemError | null>(null);
  const isTyped = question.typed === undefined || typed.trim() === question.typed.trim();
  const whyNot = isBusy ? "It is being sent." : isTyped ? null : `Type ${question.typed ?? ""} first.`;
  const submit = async () => {
    if (whyNot !== null) return;
    setBusy(true);
    setProblem(null);
    try {
      await question.act(reason.trim());
      onClose();
    } catch (error) {
      setProblem(ProblemError.from(error));
      setBusy(false);
    }
  };
  const footer = (
    <>
      <Button kind="quiet" onClick={onClose}>
        Cancel
      </Button>
      <Button kind={question.isDanger === true ? "danger" : "primary"} whyNot={whyNot} onClick={() => void submit()}>
        {question.verb}
      </Button>
    </>
  );
  return (
    <Dialog title={question.title} onClose={onClose} footer={footer} onSubmit={() => void submit()}>
      <p>{question.sentence}</p>
      {question.fields}
      {question.hasReason === true && (
        <div class="labelled">
          <label for="confirm-reason">Reason (recorded with your name)</label>
          <input
            id="confirm-reason"
            class="field"
            value={reason}
            maxLength={1000}
            autocomplete="off"
            onInput={(event) => setReason(event.currentTarget.value)}
          />
        </div>
      )}
      {question.typed !== undefined && (
        <div class="labelled">
          <label for="confirm-typed">
            Type <code>{question.typed}</code> to confirm
          </label>
          <input
            id="confirm-typed"
            class="field mono"
            value={typed}
            autocomplete="off"
            spellcheck={false}
            onInput={(event) => setTyped(event.currentTarget.value)}
          />
        </div>
      )}
      {problem !== null && <Problem problem={problem} />}
      {question.sameAs !== undefined && <SameAs of={question.sameAs(reason.trim())} />}
    </Dialog>
  );
}
