// The sums of each group. Each number leads to the requests behind it.
import type { ComponentChildren } from "preact";
import { may } from "../../api/client";
import type { ChargedFigures as Figures, Usage, UsageLine } from "../../api/types";
import { href, setParams } from "../../app/router";
import { count, dollars, duration, plural, short, UNKNOWN } from "../../part/format";
import { Icon } from "../../part/icon";
import type { Order } from "../../part/order";
import { Card } from "../../part/page";
import { type Column, Rows } from "../../part/table";
import { Spend } from "../keys";
import { BY, changeWords, filtersOf, nameOf } from "./groups";
import type { Span } from "./span";

type Props = {
  of: Usage;
  /** The same groups in the time before; null without a comparison. */
  before: Usage | null;
  by: string;
  span: Span;
  filters: Record<string, string>;
  order: Order;
};

const titleOf = (by: string): string =>
  by
    .split(",")
    .map((name, i) => {
      const title = BY.find(([id]) => id === name)?.[1] ?? name;
      return i ? title.toLowerCase() : title;
    })
    .join(" and ");

/** The sums of a group; those of all groups have no line. */
type SumRow = { line: UsageLine | null; figures: Figures; before: Figures | null; to: string | null };

/** The columns by which the gateway sorts groups. */
export const SORTED = ["requests", "cost"];
export const BY_COST = { sort: "cost", order: "desc" } as const;

export function Lines({ of, before, by, span, filters, order }: Props) {
  const was = (line: UsageLine): UsageLine | undefined => before?.data.find((other) => nameOf(other, by) === nameOf(line, by));
  const unpriced = of.totals?.requests_unpriced ?? 0;
  if (of.data.length === 0) return null;
  const rows = of.data.map((line): SumRow => {
    const own = filtersOf(line, by);
    const to = own && href("/requests", requestsOf({ ...filters, ...own }, span));
    return { line, figures: line, before: was(line) ?? null, to };
  });
  if (of.totals) {
    const to = href("/requests", requestsOf(filters, span));
    rows.push({ line: null, figures: of.totals, before: before?.totals ?? null, to });
  }
  return (
    <Card title={`By ${titleOf(by).toLowerCase()}`} bare>
      <Rows
        rows={rows}
        label="Sums"
        rowKey={({ line }) => (line ? nameOf(line, by) : " total")}
        order={order}
        usual={BY_COST}
        columns={columnsOf(by, before !== null)}
      />
      {unpriced > 0 && (
        <div class="table-foot">
          <span>{plural(unpriced, "attempt")} without a known price: in no sum of costs</span>
          {may("administer") && (
            <button type="button" class="btn small" onClick={() => setParams({ reprice: "1" })}>
              Set a price and reprice
            </button>
          )}
        </div>
      )}
    </Card>
  );
}

const requestsOf = (filters: Record<string, string>, { from, to }: Span): Record<string, string> => ({
  ...filters,
  from: String(from),
  to: String(to),
});

const INPUT = ["input", "cache_read", "cache_write", "cache_write_1h", "audio_input", "image_input"];

/** The tokens that clients have sent. */
export const inputOf = (of: Figures): number => INPUT.reduce((sum, kind) => sum + (of.tokens[kind] ?? 0), 0);

function columnsOf(by: string, isCompared: boolean): Column<SumRow>[] {
  const figure = (text: (figures: Figures) => ComponentChildren) => (row: SumRow) => <Linked to={row.to}>{text(row.figures)}</Linked>;
  return [
    { head: titleOf(by), width: "1fr", least: 180, cell: (row) => <Name of={row.line} by={by} /> },
    { head: "Requests", width: 112, number: true, sort: "requests", fold: 4, cell: figure(({ requests }) => count(requests)) },
    { head: "Cost", width: 168, number: true, sort: "cost", cell: figure((figures) => <Spend figures={figures} />) },
    { head: "Input", width: 88, number: true, fold: 2, cell: figure((figures) => short(inputOf(figures))) },
    { head: "Output", width: 88, number: true, fold: 3, cell: figure((figures) => short(figures.tokens.total - inputOf(figures))) },
    { head: "First token", width: 100, number: true, fold: 0, cell: figure((figures) => duration(figures.first_content_us_avg)) },
    { head: "Total time", width: 100, number: true, fold: 1, cell: figure((figures) => duration(figures.duration_us_avg)) },
    ...(isCompared
      ? [
          {
            head: "Before",
            width: 168,
            number: true,
            fold: 5,
            cell: (row: SumRow) => <Before now={row.figures} before={row.before} />,
          } as const,
        ]
      : []),
  ];
}

function Linked({ to, children }: { to: string | null; children: ComponentChildren }) {
  if (!to) return <>{children}</>;
  return (
    <a class="plain" href={to}>
      {children}
    </a>
  );
}

function Name({ of, by }: { of: UsageLine | null; by: string }) {
  if (!of) return <b>Total</b>;
  const own = filtersOf(of, by);
  const name = nameOf(of, by) || UNKNOWN;
  return (
    <span class="with-act">
      {own ? (
        <button type="button" class="link clip" title={name} onClick={() => setParams(own)}>
          {name}
        </button>
      ) : (
        <span class="clip" title={name}>
          {name}
        </span>
      )}
      {may("administer") && of.requests_unpriced > 0 && of.group.model && (
        <button
          type="button"
          class="btn plain square small"
          aria-label={`Set a price of ${of.group.model} and reprice`}
          onClick={() => setParams({ reprice: of.group.provider ? `${of.group.provider}/${of.group.model}` : `/${of.group.model}` })}
        >
          <Icon name="pencil" small />
        </button>
      )}
    </span>
  );
}

/** The cost of the time before and how it has changed; the requests where nothing has a price. */
function Before({ now, before }: { now: Figures; before: Figures | null }) {
  const hasCost = now.cost_micro_usd > 0 || (before?.cost_micro_usd ?? 0) > 0;
  const [text, words] = hasCost
    ? [dollars(before?.cost_micro_usd ?? 0), changeWords(now.cost_micro_usd, before?.cost_micro_usd ?? 0)]
    : [plural(before?.requests ?? 0, "request"), changeWords(now.requests, before?.requests ?? 0)];
  return (
    <>
      {text} <span class="faint">{words}</span>
    </>
  );
}
