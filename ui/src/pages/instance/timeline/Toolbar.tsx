// The tools above the timeline.
import type { JSX } from "preact";

import { Button, Segments } from "../../../design/Controls.tsx";
import { Icon } from "../../../design/icons.tsx";
import { change, param } from "../../../router/router.ts";
import type { Order, Stepping } from "./rows.ts";
import type { ViewState } from "./useView.ts";

export function Toolbar(props: {
  shown: ViewState;
  isLive: boolean;
  failing: number;
  retried: number;
  order: Order;
  isFolding: boolean;
  hasPath: boolean;
  onZoom: (factor: number) => void;
  onStep: (by: Stepping) => void;
}): JSX.Element {
  const { shown } = props;
  const isPathLit = param("path") === "lit";
  const areSumsShown = param("sums") === "1";
  return (
    <div class="tl-tools" role="group" aria-label="Tools of the timeline">
      <div class="row">
        <Button kind="small icon" label="Zoom in" onClick={() => props.onZoom(0.6)}>
          <Icon name="plus" size={14} />
        </Button>
        <Button
          kind="small icon"
          label="Zoom out"
          whyNot={shown.isWhole ? "All of it is shown." : null}
          onClick={() => props.onZoom(1 / 0.6)}
        >
          <span class="tl-minus" />
        </Button>
        <Button kind="small" onClick={shown.fit} pressed={shown.isWhole}>
          Fit
        </Button>
        <Button kind="small" onClick={shown.lastMinute}>
          Last minute
        </Button>
        <Button
          kind="small"
          pressed={shown.isFollowing}
          whyNot={props.isLive ? null : "It does not run."}
          onClick={() => shown.follow(!shown.isFollowing)}
        >
          Follow now
        </Button>
      </div>
      <div class="row">
        <Button
          kind="quiet small"
          pressed={props.isFolding}
          onClick={() => change({ idle: props.isFolding ? "shown" : null }, { replace: true })}
        >
          <Icon name="fold" size={14} /> Fold idle
        </Button>
        <Button
          kind="quiet small"
          pressed={isPathLit}
          whyNot={props.hasPath ? null : "There is none yet."}
          onClick={() => change({ path: isPathLit ? null : "lit" }, { replace: true })}
        >
          Critical path
        </Button>
        <Button
          kind="quiet small"
          pressed={areSumsShown}
          onClick={() => change({ sums: areSumsShown ? null : 1, event: null, of: null }, { replace: true })}
        >
          Sums
        </Button>
      </div>
      <div class="row">
        <Button kind="quiet small" onClick={() => props.onStep("slowest")}>
          Slowest
        </Button>
        <Button kind="quiet small" whyNot={props.failing === 0 ? "None failed." : null} onClick={() => props.onStep("failed")}>
          Failed {props.failing > 0 && <span class="count">{props.failing}</span>}
        </Button>
        <Button
          kind="quiet small"
          whyNot={props.retried === 0 ? "None was retried." : null}
          onClick={() => props.onStep("retried")}
        >
          Retried {props.retried > 0 && <span class="count">{props.retried}</span>}
        </Button>
      </div>
      <div class="row push">
        <label class="row tl-order">
          <span class="hint">Order</span>
          <select
            class="field"
            value={props.order}
            onChange={(event) => change({ order: event.currentTarget.value === "scheduled" ? null : event.currentTarget.value })}
          >
            <option value="scheduled">scheduled</option>
            <option value="name">name</option>
            <option value="start">start</option>
            <option value="length">length</option>
          </select>
        </label>
        <Segments
          label="Form"
          options={[
            ["bars", "Bars"],
            ["table", "Table"],
          ]}
          value={param("as") === "table" ? "table" : "bars"}
          onChange={(as) => change({ as: as === "bars" ? null : as })}
        />
      </div>
    </div>
  );
}
