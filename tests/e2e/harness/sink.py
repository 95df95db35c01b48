"""An HTTP server that takes alerts, answers as it is told, and keeps what came."""

import json
import random
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def free_port():
    """Below the range for outgoing connections: whoever tries a port of that range, on which nobody listens, may
    be given the same as its own and then talks to itself."""
    while True:
        port = random.randrange(20_000, 32_000)
        try:
            with socket.create_server(("127.0.0.1", port)):
                return port
        except OSError:
            continue


class Sink:
    """`plan(body)` gives the status of the next answer and its headers, or None for `fine`."""

    def __init__(self, fine, port=0, plan=lambda body: None):
        self.fine, self.plan = fine, plan
        self.lock, self.came = threading.Lock(), []
        sink = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                raw = self.rfile.read(int(self.headers["Content-Length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                with sink.lock:
                    status, more = sink.plan(json.loads(raw)) or (sink.fine, {})
                    sink.came.append((status, self.path, headers, raw))
                # A 204 has no body: one that came all the same would be read as the next answer.
                answer = b"" if status == 204 else json.dumps({"status": status, "message": f"told {status}"}).encode()
                length = {} if status == 204 else {"Content-Length": len(answer)}
                self.send_response(status)
                for name, value in (length | more).items():
                    self.send_header(name, str(value))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_port
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def url(self, path=""):
        return f"http://127.0.0.1:{self.port}{path}"

    def answered(self, status=None):
        """(path, headers, body as it came) of the requests that were answered so; without a status: accepted.
        Names of headers are in lower case."""
        with self.lock:
            return [(path, headers, raw) for found, path, headers, raw in self.came if found == (status or self.fine)]

    def bodies(self, status=None):
        return [json.loads(raw) for _, _, raw in self.answered(status)]

    def close(self):
        self.server.shutdown()
        self.server.server_close()
