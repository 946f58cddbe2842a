// Limits as bars.
import { may } from "../api/client";
import type { Quota, QuotaSubject } from "../api/types";
import { href } from "../app/router";
import { moment, zoneName } from "./format";
import { amount, kindOf, limitName, shareOf } from "./limits";
import { Card, Meter } from "./page";

/** The address of the form of a new limit of an object. */
export const newLimit = (kind: QuotaSubject["kind"], id: string): string => href("/quotas", { new: "1", kind, of: id });

type Props = {
  quotas: Quota[] | undefined;
  none: string;
  aside?: string;
  /** The address of the form of a new one. */
  add: string;
};

/** The limits of a key, a project or a human, with what is used of them. */
export function Limits({ quotas, none, aside, add }: Props) {
  return (
    <Card
      title="Limits"
      aside={
        <>
          {aside && <span class="faint">{aside}</span>}{" "}
          {may("administer") && (
            <a class="btn small" href={add}>
              New limit
            </a>
          )}
        </>
      }
    >
      {quotas?.length === 0 && <p class="muted">{none}</p>}
      <div class="stack-list">
        {quotas?.map((quota) => (
          <div key={quota.id} class="meter-line">
            <span>
              {limitName(quota)} {quota.enforcement === "warn" && <span class="tag">warns only</span>}
            </span>
            <span class="num">
              {amount(quota.metric, quota.used)} of {amount(quota.metric, quota.limit)}, {Math.floor(shareOf(quota) * 100)} %
            </span>
            <Meter share={shareOf(quota)} kind={kindOf(shareOf(quota))} />
            <span class="help">{quota.resets_at_ms ? `resets ${moment(quota.resets_at_ms)} ${zoneName()}` : "does not reset"}</span>
          </div>
        ))}
      </div>
    </Card>
  );
}
