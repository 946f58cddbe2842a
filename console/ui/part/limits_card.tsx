// Limits as bars.
import type { Quota } from "../api/types";
import { moment, zoneName } from "./format";
import { amount, kindOf, limitName, shareOf } from "./limits";
import { Card, Meter } from "./page";

/** The limits of a key, a project or a human, with what is used of them. */
export function Limits({ quotas, none, aside }: { quotas: Quota[] | undefined; none: string; aside?: string }) {
  return (
    <Card title="Limits" aside={aside && <span class="faint">{aside}</span>}>
      {quotas?.length === 0 && <p class="muted">{none}</p>}
      <div class="stack-list">
        {quotas?.map((quota) => (
          <div key={quota.id} class="meter-line">
            <span>
              {limitName(quota)} {quota.enforcement === "warn" && <span class="tag">warns only</span>}
            </span>
            <span class="num">
              {amount(quota.metric, quota.used)} of {amount(quota.metric, quota.limit)}
            </span>
            <Meter share={shareOf(quota)} kind={kindOf(shareOf(quota))} />
            <span class="help">{quota.resets_at_ms ? `resets ${moment(quota.resets_at_ms)} ${zoneName()}` : "does not reset"}</span>
          </div>
        ))}
      </div>
    </Card>
  );
}
