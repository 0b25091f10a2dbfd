import type { JSX } from "preact";

import { Empty } from "../../design/Problem.tsx";
import { Page } from "../../frame/Page.tsx";

export default function ActivitiesPage(): JSX.Element {
  return (
    <Page title="Activities">
      <Empty title="No activity is retried">
        <p>Activities that are retried, queued for nobody, or run for long appear here.</p>
      </Empty>
    </Page>
  );
}
