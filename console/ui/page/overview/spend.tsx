// What was spent since midnight UTC.
import { type Resource, useResource } from "../../api/resource";
import type { Page as PageOf, Quota, Usage, UsageLine } from "../../api/types";
import { href, setParams } from "../../app/router";
import { Loaded } from "../../part/feedback";
import { count, short, UNKNOWN } from "../../part/format";
import { kindOf, shareOf } from "../../part/limits";
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

export function SpendCard({ usage, by }: { usage: Resource<Usage>; by: Group }) {
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
        {({ data: lines, totals }) => <Spenders of={folded(lines, by)} by={by} total={totals?.cost_micro_usd ?? 0} />}
      </Loaded>
    </Card>
  );
}

type SpendersProps = { of: SpendLine[]; by: Group; total: number };

function Spenders({ of, by, total }: SpendersProps) {
  const shown = of.slice(0, SHOWN_MAX);
  if (of.length === 0) return <p class="card-body muted">Nothing was used since 00:00 UTC.</p>;
  return (
    <>
      <Rows
        rows={shown}
        label="Spend today"
        rowKey={({ id }) => id ?? ""}
        columns={[
          { head: TITLES[by], width: "2fr", least: 110, cell: (line) => <Spender of={line} by={by} /> },
          { head: "Requests", width: 88, number: true, fold: 3, cell: ({ requests }) => count(requests) },
          { head: "Tokens", width: 88, number: true, fold: 2, cell: ({ tokens }) => short(tokens) },
          { head: "Cost", width: 140, number: true, cell: (line) => <Spend figures={line} /> },
          { head: "Share", width: 116, fold: 1, cell: (line) => <Meter share={total ? line.cost_micro_usd / total : 0} /> },
          { head: "This month, of its limit", width: 184, fold: 4, cell: ({ id }) => <OfLimit of={id} by={by} all={shown} /> },
        ]}
      />
      {of.length > SHOWN_MAX && (
        <div class="table-foot">
          <a href={href("/usage", { by, period: "24h" })}>All {count(of.length)}</a>
        </div>
      )}
    </>
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

/**
 * How much of its limit on cost a project or key has used in this month. The limits of all projects are read at once; those of
 * keys one by one, because a rotated key shares the limit of the key before it, whose ID the limit has.
 */
function OfLimit({ of, by, all }: { of: string | null; by: Group; all: SpendLine[] }) {
  const ids = by === "key" ? [of] : all.map(({ id }) => id);
  const wanted = ids.filter((id) => id !== null).join();
  const path = of === null || by === "model" ? null : `quotas?${new URLSearchParams({ [by]: wanted, limit: String(LIMITS_READ) })}`;
  const read = useResource<PageOf<Quota>>(path).data.value;
  const limit = read?.data.find((quota) => isOfCostInMonth(quota) && (by === "key" || quota.subject.id === of));
  if (!limit) return <span class="faint">{path && !read ? UNKNOWN : "no limit"}</span>;
  const share = shareOf(limit);
  return (
    <span class="meter-cell">
      <Meter share={share} kind={kindOf(share)} />
      {count(Math.round(share * 100))} %
    </span>
  );
}

const isOfCostInMonth = ({ metric, window, model, endpoint }: Quota): boolean =>
  metric === "cost_micro_usd" && window === "month" && !model && !endpoint;

/** More than the lines have: a key or project has a few. */
const LIMITS_READ = 500;
