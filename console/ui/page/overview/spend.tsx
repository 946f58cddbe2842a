// What was spent since midnight UTC.
import type { Resource } from "../../api/resource";
import type { Quota, Usage, UsageLine } from "../../api/types";
import { href, setParams } from "../../app/router";
import { Loaded } from "../../part/feedback";
import { count, short } from "../../part/format";
import { shareOf } from "../../part/limits";
import { Ref } from "../../part/links";
import { Card, Meter } from "../../part/page";
import { Spend } from "../keys";

export const GROUPS = ["project", "model", "key"] as const;
export type Group = (typeof GROUPS)[number];

export const groupOf = (name: string): Group => GROUPS.find((group) => group === name) ?? "project";

const TITLES: Record<Group, string> = { project: "Project", model: "Model", key: "Key" };
const SHOWN_MAX = 8;

/** What one project, model or key has used. */
type SpendLine = Pick<UsageLine, "requests" | "requests_unpriced" | "cost_micro_usd"> & {
  id: string | null;
  name: string | null;
  tokens: number;
};

export function SpendCard({ usage, by, quotas }: { usage: Resource<Usage>; by: Group; quotas: Quota[] }) {
  return (
    <Card
      title={`Spend today by ${TITLES[by].toLowerCase()}`}
      aside={
        <span class="seg" role="group" aria-label="Group by">
          {GROUPS.map((group) => (
            <button
              key={group}
              type="button"
              aria-pressed={group === by}
              onClick={() => setParams({ by: group === "project" ? null : group }, "replace")}
            >
              {TITLES[group]}
            </button>
          ))}
        </span>
      }
      bare
    >
      <Loaded resource={usage} rows={3}>
        {({ data: lines, totals }) => {
          const data = folded(lines, by);
          return data.length === 0 ? (
            <p class="card-body muted">Nothing was used since 00:00 UTC.</p>
          ) : (
            <>
              <div class="table-wrap" role="group" aria-label="Spend today" tabIndex={0}>
                <table class="table">
                  <thead>
                    <tr>
                      <th scope="col">{TITLES[by]}</th>
                      <th scope="col" class="num">
                        Requests
                      </th>
                      <th scope="col" class="num">
                        Tokens
                      </th>
                      <th scope="col" class="num">
                        Cost
                      </th>
                      <th scope="col" class="wide-only share-cell">
                        Share
                      </th>
                      <th scope="col">This month, of its limit</th>
                    </tr>
                  </thead>
                  <tbody>
                    {data.slice(0, SHOWN_MAX).map((line) => (
                      <Line key={line.id} of={line} by={by} total={totals?.cost_micro_usd ?? 0} quotas={quotas} />
                    ))}
                  </tbody>
                </table>
              </div>
              {data.length > SHOWN_MAX && (
                <div class="table-foot">
                  <a href={href("/usage", { by, period: "24h" })}>All {count(data.length)}</a>
                </div>
              )}
            </>
          );
        }}
      </Loaded>
    </Card>
  );
}

/** The lines of one group as one, the dearest first. */
export function folded(lines: UsageLine[], by: Group): SpendLine[] {
  const found = new Map<string | null, SpendLine>();
  for (const { group, names, requests, requests_unpriced, cost_micro_usd, tokens } of lines) {
    const id = group[by] ?? null;
    const line = found.get(id) ?? { id, name: names?.[by] ?? null, requests: 0, requests_unpriced: 0, cost_micro_usd: 0, tokens: 0 };
    line.requests += requests;
    line.requests_unpriced += requests_unpriced;
    line.cost_micro_usd += cost_micro_usd;
    line.tokens += tokens.total;
    found.set(id, line);
  }
  return [...found.values()].sort((a, b) => b.cost_micro_usd - a.cost_micro_usd || b.requests - a.requests);
}

function Line({ of, by, total, quotas }: { of: SpendLine; by: Group; total: number; quotas: Quota[] }) {
  const { id } = of;
  const limit = quotas.find(
    ({ subject, metric, window, model, endpoint }) =>
      subject.kind === by && subject.id === id && metric === "cost_micro_usd" && window === "month" && !model && !endpoint,
  );
  return (
    <tr>
      <td>{by === "model" || !id ? <span class="mono clip">{id ?? "none"}</span> : <Ref kind={by} id={id} name={of.name} />}</td>
      <td class="num">{count(of.requests)}</td>
      <td class="num">{short(of.tokens)}</td>
      <td class="num">
        <Spend figures={of} />
      </td>
      <td class="wide-only share-cell">
        <Meter share={total ? of.cost_micro_usd / total : 0} />
      </td>
      <td>
        {limit ? (
          <span class="meter-cell">
            <Meter share={shareOf(limit)} kind={shareOf(limit) >= 1 ? "bad" : shareOf(limit) >= 0.8 ? "warn" : ""} />
            {Math.round(shareOf(limit) * 100)} %
          </span>
        ) : (
          <span class="faint">no limit</span>
        )}
      </td>
    </tr>
  );
}
