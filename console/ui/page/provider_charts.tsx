// The attempts at one provider over the last day, and how fast it answered.
import { useResource } from "../api/resource";
import type { SeriesAnswer } from "../api/shapes";
import { href } from "../app/router";
import { Bars, Lines } from "../part/chart";
import { ErrorBox } from "../part/feedback";
import { clock, count, duration } from "../part/format";
import { Card } from "../part/page";
import { timesOf } from "./overview/figures";
import { usePeriod } from "./requests";

export function ProviderCharts({ id }: { id: string }) {
  const from = usePeriod("24h");
  const search = new URLSearchParams({ provider: id, group_by: "provider", from });
  const series = useResource<SeriesAnswer>(`series?${search}`);
  const data = series.data.value;
  if (series.error.value) return <ErrorBox error={series.error.value} retry={() => series.load()} />;
  if (!data) return <div class="card chart-place" aria-hidden="true" />;
  const points = data.groups.find(({ group }) => group.provider === id)?.points;
  const all = <a href={href("/requests", { attempted: id, period: "24h" })}>Its requests</a>;
  if (!points) return <Quiet />;
  const times = timesOf(data);
  const [attempts, failures] = [points.attempts ?? [], points.attempt_failures ?? []];
  return (
    <div class="cols pair">
      <Card title="Attempts in 24 h" aside={all}>
        <Bars
          times={times}
          series={[
            { name: "Answered", values: attempts.map((all, i) => all - (failures[i] ?? 0)), className: "series-1" },
            { name: "Failed", values: failures, className: "bad" },
          ]}
          unit={count}
          timeText={(at) => clock(at)}
          summary={`Attempts at ${id} in 24 hours.`}
          height={148}
        />
      </Card>
      <Card title="Time to first token">
        <Lines
          times={times}
          series={[
            { name: "p50", values: points.first_content_us_p50 ?? [], className: "series-1" },
            { name: "p99", values: points.first_content_us_p99 ?? [], className: "series-3 dashed" },
          ]}
          unit={(us) => (us === 0 ? "0" : duration(us))}
          timeText={(at) => clock(at)}
          summary={`Time to the first token of ${id} in 24 hours: median and slowest hundredth.`}
          height={148}
        />
      </Card>
    </div>
  );
}

function Quiet() {
  return (
    <Card title="Attempts in 24 h">
      <p class="muted">No request was sent to it in this time.</p>
    </Card>
  );
}
