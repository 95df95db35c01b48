"""A listening port -> a broker, until it is cut."""

import socket
import threading


class Proxy:
    """Forwards bytes. `cut` closes what is open and answers nobody; `stall` keeps all open and forwards
    nothing, as a lost route does; `heal` ends both."""

    def __init__(self, to):
        self.to, self.lock, self.pairs = to, threading.Lock(), []
        self.flows, self.is_cut = threading.Event(), False
        self.flows.set()
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = self.server.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.server.accept()
            except OSError:
                return
            with self.lock:
                if self.is_cut:
                    client.close()
                    continue
                try:
                    broker = socket.create_connection(("127.0.0.1", self.to()))
                except OSError:
                    client.close()
                    continue
                self.pairs.append((client, broker))
            for source, sink in [(client, broker), (broker, client)]:
                threading.Thread(target=self.pump, args=(source, sink), daemon=True).start()

    def pump(self, source, sink):
        try:
            while data := source.recv(65_536):
                self.flows.wait()
                sink.sendall(data)
        except OSError:
            pass
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def cut(self):
        with self.lock:
            self.is_cut = True
            for pair in self.pairs:
                for end in pair:
                    try:
                        end.shutdown(socket.SHUT_RDWR)
                    except OSError:
                        pass
            self.pairs = []

    def stall(self):
        self.flows.clear()

    def heal(self):
        self.is_cut = False
        self.flows.set()

    def close(self):
        self.server.close()
        self.heal()
        self.cut()
