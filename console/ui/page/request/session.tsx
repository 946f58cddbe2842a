// The other requests of a request's session, over time.

import { useResource } from "../../api/resource";
import type { FullRecord, Points, SeriesAnswer } from "../../api/shapes";
import { href } from "../../app/router";
import { Bars } from "../../part/chart";
import { clock, count, dollars, plural } from "../../part/format";
import { Card } from "../../part/page";
import { outcomesOf, timesOf } from "../overview/figures";
import { ALL_TIME } from "../requests";

/** A session is looked for in this time before and after the request. */
const SPAN_MS = 12 * 3_600_000;

/** The series of a request's session; it stays empty without a session. */
export function useSession(of: FullRecord) {
  const search = new URLSearchParams({
    session: of.session ?? "",
    from: String(of.started_at_ms - SPAN_MS),
    to: String(of.started_at_ms + SPAN_MS),
  });
  return useResource<SeriesAnswer>(of.session ? `series?${search}` : null);
}

const sum = (values: number[] | undefined): number => values?.reduce((total, value) => total + value, 0) ?? 0;

/** `37 requests, $0.61 + 2 unpriced`. */
export function sessionWords(points: Points | undefined): string {
  const unpriced = sum(points?.requests_unpriced);
  return `${plural(sum(points?.requests), "request")}, ${dollars(sum(points?.cost_micro_usd))}${unpriced ? ` + ${count(unpriced)} unpriced` : ""}`;
}

export function SessionCard({ of, series }: { of: FullRecord; series: SeriesAnswer }) {
  const points = series.groups[0]?.points;
  return (
    <Card title="Its session" aside={<a href={href("/requests", { session: of.session, period: ALL_TIME })}>{sessionWords(points)}</a>}>
      <Bars
        times={timesOf(series)}
        series={outcomesOf(points)}
        unit={count}
        timeText={(at) => clock(at)}
        summary="Requests of the session, twelve hours before and after this one."
        marks={[{ at: of.started_at_ms, text: "this request" }]}
        height={132}
      />
    </Card>
  );
}
