"""Starts a receiver of OTLP, an upstream and the gateway, streams an answer with a failover, and verifies the exports with the
official definitions: those that the gateway sends to the receiver, and those that a collector (rotel) passes on to it."""

import argparse
import gzip
import http.server
import json
import os
import pathlib
import queue
import socket
import sys
import tempfile
import threading
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "sdk"))

from checks import Checks  # noqa: E402
from google.protobuf.unknown_fields import UnknownFieldSet  # noqa: E402
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (  # noqa: E402
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (  # noqa: E402
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality  # noqa: E402
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status  # noqa: E402
from process import Process, ended_well, start_gateway, wait_until_answers  # noqa: E402

KEY = "administrator-key-of-the-otlp-suite"
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
EVENTS = [
    {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]},
    {"choices": [{"index": 0, "delta": {"content": "Hello"}}]},
    {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
    {"choices": [], "usage": {"prompt_tokens": 11, "completion_tokens": 3, "total_tokens": 14}},
]


class Server(http.server.BaseHTTPRequestHandler):
    """The receiver at /v1/traces and /v1/metrics, an upstream that fails at /bad, and one that streams at /good."""

    exports = {"/v1/traces": queue.Queue(), "/v1/metrics": queue.Queue()}
    answers = {"/v1/traces": ExportTraceServiceResponse(), "/v1/metrics": ExportMetricsServiceResponse()}

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.path in self.exports:
            # The collector compresses what it passes on.
            body = gzip.decompress(body) if self.headers["content-encoding"] == "gzip" else body
            self.exports[self.path].put((self.headers["content-type"], body))
            self.answer(200, "application/x-protobuf", self.answers[self.path].SerializeToString())
        elif self.path.startswith("/bad/"):
            self.answer(503, "application/json", b'{"error":{"message":"overloaded"}}')
        else:
            texts = [json.dumps({"id": "c", "object": "chat.completion.chunk", "model": "m", **event}) for event in EVENTS]
            stream = "".join(f"data: {text}\n\n" for text in [*texts, "[DONE]"])
            self.answer(200, "text/event-stream", stream.encode())

    def answer(self, status, content_type, body):
        self.send_response(status)
        self.send_header("content-type", content_type)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def unknown_fields(message):
    """Counts the fields, at any depth, that the definitions do not have."""
    count = len(UnknownFieldSet(message))
    for field, value in message.ListFields():
        if field.message_type:
            count += sum(map(unknown_fields, value if field.is_repeated else [value]))
    return count


def value(any_value):
    kind = any_value.WhichOneof("value")
    return [value(item) for item in any_value.array_value.values] if kind == "array_value" else getattr(any_value, kind)


def attributes(message):
    return {pair.key: value(pair.value) for pair in message.attributes}


def decode(checks, kind, content_type, body):
    checks.check("the content type", content_type == "application/x-protobuf")
    request = kind.FromString(body)
    checks.check("every field is known", unknown_fields(request) == 0)
    checks.check("the same bytes are encoded again", request.SerializeToString(deterministic=True) == body)
    return request


def verify_metrics(checks, content_type, body):
    request = decode(checks, ExportMetricsServiceRequest, content_type, body)
    metrics = {metric.name: metric for metric in request.resource_metrics[0].scope_metrics[0].metrics}
    duration = metrics["gen_ai.server.request.duration"]
    checks.check(f"the unit: {duration.unit}", duration.unit == "s")
    for metric in metrics.values():
        data = getattr(metric, metric.WhichOneof("data"))
        cumulative = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
        checks.check(f"{metric.name} is cumulative", data.aggregation_temporality == cumulative)
        for point in data.data_points:
            checks.check(f"{metric.name}: the times", 0 < point.start_time_unix_nano <= point.time_unix_nano)
            if metric.WhichOneof("data") == "histogram":
                good = len(point.bucket_counts) == len(point.explicit_bounds) + 1 and sum(point.bucket_counts) == point.count
                checks.check(f"{metric.name}: the buckets", good and list(point.explicit_bounds) == sorted(point.explicit_bounds))
    tokens = {attributes(point)["gen_ai.token.type"]: point.sum for point in metrics["gen_ai.client.token.usage"].histogram.data_points}
    checks.check(f"the tokens: {tokens}", tokens == {"input": 11, "output": 3})


def verify_traces(checks, content_type, body):
    request = decode(checks, ExportTraceServiceRequest, content_type, body)
    resource_spans = request.resource_spans[0]
    resource = attributes(resource_spans.resource)
    checks.check(f"the resource: {resource}", resource["service.name"] == "llmgw" and resource["service.instance.id"])
    scope_spans = resource_spans.scope_spans[0]
    checks.check("the scope", scope_spans.scope.name == "llmgw" and scope_spans.scope.version)
    spans = sorted(scope_spans.spans, key=lambda span: (span.start_time_unix_nano, span.kind))
    kinds = [Span.SPAN_KIND_SERVER, Span.SPAN_KIND_CLIENT, Span.SPAN_KIND_CLIENT]
    checks.check("one request and two attempts", [span.kind for span in spans] == kinds)
    request, failed, served = spans
    checks.check("one trace", {span.trace_id.hex() for span in spans} == {TRACE})
    checks.check("the client's span is the parent", request.parent_span_id.hex() == PARENT)
    checks.check("the attempts are children", {failed.parent_span_id, served.parent_span_id} == {request.span_id})
    checks.check("different spans", len({span.span_id for span in spans}) == 3)
    codes = [span.status.code for span in spans]
    checks.check(f"the status: {codes}", codes == [Status.STATUS_CODE_UNSET, Status.STATUS_CODE_ERROR, Status.STATUS_CODE_UNSET])
    checks.check("the order", all(span.start_time_unix_nano <= span.end_time_unix_nano for span in spans))
    want = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "m",
        "gen_ai.request.stream": True,
        "gen_ai.response.finish_reasons": ["stop"],
        "gen_ai.usage.input_tokens": 11,
        "gen_ai.usage.output_tokens": 3,
        "http.response.status_code": 200,
        "server.address": "127.0.0.1",
    }
    found = attributes(served)
    for key, expected in want.items():
        checks.check(f"{key}: {found.get(key)!r}", found.get(key) == expected)
    checks.check("the failure", attributes(failed)["error.type"] == "503")


def start_collector(program, receiver):
    """Starts a collector that passes everything on to the receiver; returns it and the address for exports."""
    with socket.socket() as first, socket.socket() as second:
        first.bind(("127.0.0.1", 0))
        second.bind(("127.0.0.1", 0))
        address, unused = (f"127.0.0.1:{bound.getsockname()[1]}" for bound in (first, second))
    command = [program, "start", "--otlp-http-endpoint", address, "--otlp-grpc-endpoint", unused]
    command += ["--exporter", "otlp", "--otlp-exporter-endpoint", receiver,]
    command += ["--otlp-exporter-protocol", "http", "--batch-timeout", "50ms"]
    collector = Process("the collector", command)
    # It answers nothing but exports; this one is empty.
    empty = urllib.request.Request(f"http://{address}/v1/traces", b"", {"content-type": "application/x-protobuf"})
    wait_until_answers(empty, collector, 30)
    return collector, f"http://{address}"


def export(checks, binary, config, endpoint):
    """Runs the gateway for one answer, and verifies what the receiver gets of it. Returns true if the gateway ended well."""
    os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = endpoint
    with tempfile.TemporaryDirectory() as directory:
        gateway, origin = start_gateway(binary, config, KEY, directory)
        chat = {"model": "line", "stream": True, "stream_options": {"include_usage": True}, "messages": [{"role": "user", "content": "hi"}]}
        headers = {"authorization": f"Bearer {KEY}", "content-type": "application/json", "traceparent": f"00-{TRACE}-{PARENT}-01"}
        asked = urllib.request.Request(f"{origin}/v1/chat/completions", json.dumps(chat).encode(), headers)
        with urllib.request.urlopen(asked, timeout=30) as answer:
            checks.check("the stream", b"Hello" in answer.read())
        verify_traces(checks, *Server.exports["/v1/traces"].get(timeout=30))
        verify_metrics(checks, *Server.exports["/v1/metrics"].get(timeout=30))
        return ended_well(gateway, checks.failed)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gateway", required=True)
    parser.add_argument("--collector", required=True)
    options = parser.parse_args()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    base = f"http://127.0.0.1:{server.server_address[1]}"
    providers = {name: {"type": "compatible", "base_url": f"{base}/{name}/v1", "api_key": "k", "models": ["m"]} for name in ["bad", "good"]}
    targets = [{"provider": name, "model": "m"} for name in providers]
    config = json.dumps({"providers": providers, "endpoints": {"line": {"failover": targets}}, "policies": {"defaults": {"retry_max_attempts": 1}}})
    os.environ |= {"OTEL_BSP_SCHEDULE_DELAY": "200", "OTEL_METRIC_EXPORT_INTERVAL": "1000"}
    checks = Checks()
    well = export(checks, options.gateway, config, base)
    for waiting in Server.exports.values():
        waiting.queue.clear()
    collector, endpoint = start_collector(options.collector, base)
    try:
        well = export(checks, options.gateway, config, endpoint) and well
    finally:
        code = collector.stop()
    checks.check("the collector ends", code == 0)
    print(f"otlp: {checks.passed} passed, {checks.failed} failed")
    return 0 if well and checks.failed == 0 and checks.passed > 0 else 1


sys.exit(main())
