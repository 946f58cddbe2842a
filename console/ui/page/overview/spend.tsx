// What was spent since midnight UTC.
import type { Resource } from "../../api/resource";
import type { Quota, Usage, UsageLine } from "../../api/types";
import { href, setParams } from "../../app/router";
import { Loaded } from "../../part/feedback";
import { count, short } from "../../part/format";
import { shareOf } from "../../part/limits";
import { Ref } from "../../part/links";
import { Card, Meter } from "../../part/page";
import { Rows } from "../../part/table";
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
              <Rows
                rows={data.slice(0, SHOWN_MAX)}
                label="Spend today"
                rowKey={({ id }) => id ?? ""}
                columns={[
                  { head: TITLES[by], width: "2fr", least: 110, cell: (line) => <Spender of={line} by={by} /> },
                  { head: "Requests", width: 88, number: true, fold: 3, cell: ({ requests }) => count(requests) },
                  { head: "Tokens", width: 88, number: true, fold: 2, cell: ({ tokens }) => short(tokens) },
                  { head: "Cost", width: 140, number: true, cell: (line) => <Spend figures={line} /> },
                  {
                    head: "Share",
                    width: 116,
                    fold: 1,
                    cell: (line) => <Meter share={totals?.cost_micro_usd ? line.cost_micro_usd / totals.cost_micro_usd : 0} />,
                  },
                  { head: "This month, of its limit", width: 184, fold: 4, cell: (line) => <OfLimit limit={limitOf(line, by, quotas)} /> },
                ]}
              />
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

function Spender({ of: { id, name }, by }: { of: SpendLine; by: Group }) {
  return by === "model" || !id ? <span class="mono clip">{id ?? "none"}</span> : <Ref kind={by} id={id} name={name} />;
}

/** The limit on what a project, model or key may cost in a month. */
const limitOf = ({ id }: SpendLine, by: Group, quotas: Quota[]): Quota | undefined =>
  quotas.find(
    ({ subject, metric, window, model, endpoint }) =>
      subject.kind === by && subject.id === id && metric === "cost_micro_usd" && window === "month" && !model && !endpoint,
  );

function OfLimit({ limit }: { limit: Quota | undefined }) {
  if (!limit) return <span class="faint">no limit</span>;
  const share = shareOf(limit);
  return (
    <span class="meter-cell">
      <Meter share={share} kind={share >= 1 ? "bad" : share >= 0.8 ? "warn" : ""} />
      {count(Math.round(share * 100))} %
    </span>
  );
}
