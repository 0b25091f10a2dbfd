// What was done on this page and what followed from it, and what became of an instance that is no longer there.
import type { JSX } from "preact";

import { Icon } from "../../design/icons.tsx";
import { Time } from "../../design/time.tsx";
import { href } from "../../router/router.ts";
import type { Fate, InstanceModel } from "./model.ts";

/** First that it is durable, then its effect. */
export function DeedLine({ model }: { model: InstanceModel }): JSX.Element | null {
  const deed = model.deed.value;
  if (deed === null) return null;
  return (
    <p class={`one-deed ${deed.effect === null ? "" : "followed"}`}>
      <Icon name="check" size={14} />
      <span>
        {deed.text}, durable <Time ms={deed.atMs} form="relative" />.{" "}
        {deed.effect === null ? "Its effect shows here." : `Then: ${deed.effect}.`}
      </span>
      <button type="button" class="button quiet small icon push" aria-label="Dismiss" onClick={() => (model.deed.value = null)}>
        <Icon name="close" size={14} />
      </button>
    </p>
  );
}

export function FateBanner({ model, fate, onNew }: { model: InstanceModel; fate: Fate; onNew: () => void }): JSX.Element {
  return (
    <div class="banner amber" role="alert">
      <Icon name="warning" />
      <span>
        {fate.is === "deleted"
          ? "This instance was deleted."
          : "This instance was deleted, and its id is another instance's now."}{" "}
        What the page had read is still shown; nothing can be done to it.
      </span>
      <span class="push row">
        {fate.is === "replaced" && (
          <button type="button" class="button small" onClick={onNew}>
            Show the new one
          </button>
        )}
        {fate.is === "deleted" && (
          <a class="button small" href={href(["instances"])}>
            All instances
          </a>
        )}
        {fate.is === "deleted" && (
          <button type="button" class="button small" onClick={() => void model.details.reload().then(onNew)}>
            Look again
          </button>
        )}
      </span>
    </div>
  );
}
