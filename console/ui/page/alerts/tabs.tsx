// The tabs of the pages about alerts and their events.
import { href, path } from "../../app/router";

const PAGES: [path: string, title: string][] = [
  ["/alerts", "Alerts"],
  ["/alerts/rules", "Rules"],
  ["/webhooks", "Webhooks"],
  ["/outbox", "Outbox"],
];

export function AlertTabs() {
  return (
    <nav class="tabs" aria-label="Alerts">
      {PAGES.map(([to, title]) => (
        <a key={to} href={href(to)} aria-current={path.value === to ? "page" : undefined}>
          {title}
        </a>
      ))}
    </nav>
  );
}
