"""A rack of virtual Redfish BMCs: the sushy-tools emulator with machines whose behaviour a test can set.

The emulator's own fake machines need a random 1 to 11 seconds for every power change, never fail and forget what they
were asked. These take the time they are told, can be deaf to or refuse any kind of request, and remember everything.

    bmcs.py PORT COUNT

The server is also the HTTP proxy to these BMCs. There, machine K has the address 198.18.0.0 + K, and is Systems/1.

Beside Redfish the server answers:
    GET  /machines/<id>            state, and every power request and state change so far
    PUT  /machines/<id>/behaviour  replaces the behaviour, fields left out take their default
    PUT  /machines/<id>/power      {"state": "On"}: somebody presses the button; with "PoweringOff" the operating
                                   system shuts down, which takes as long as any change
"""

import ipaddress
import re
import sys
import threading
import time
import uuid

import flask
import werkzeug.serving
from sushy_tools import error
from sushy_tools.emulator import main as emulator
from sushy_tools.emulator.resources.systems import fakedriver

CALM = {
    "delay": 0.2,  # seconds from an accepted request to the new state
    "answer_after": 0.0,  # seconds that a power request takes to be answered
    "ignores": [],  # reset types that are accepted and then not done
    "refuses": [],  # reset types that are answered with an error
    "unwell": False,  # every request is answered with an error
}

GOAL = {
    "On": "On",
    "ForceOn": "On",
    "ForceOff": "Off",
    "GracefulShutdown": "Off",
    "ForceRestart": "On",
    "GracefulRestart": "On",
}

# The network for benchmarks: it is nobody's, and no loopback address, which no machine could name.
FIRST = ipaddress.ip_address("198.18.0.0")


class Rack(fakedriver.FakeDriver):
    """The machines. All state is in memory: it ends with the process."""

    def __init__(self, count):
        # The parent's constructor is left out on purpose: it keeps its machines in a file shared by all emulators.
        self._lock = threading.RLock()
        self._systems = {}
        self._by_name = {}
        self.at = {}
        self.behaviour = {}
        self.history = {}
        for index in range(count):
            identity = str(uuid.uuid4())
            high, low = divmod(index, 256)
            self._systems[identity] = {
                "uuid": identity,
                "name": f"machine-{index}",
                "power_state": "Off",
                "nics": [{"mac": f"52:54:00:bb:{high:02x}:{low:02x}"}],
            }
            self._by_name[f"machine-{index}"] = identity
            self.at[str(FIRST + index)] = identity
            self.behaviour[identity] = dict(CALM)
            self.history[identity] = []

    def note(self, identity, kind, what, outcome=None):
        entry = {"at": time.time(), kind: what}
        if outcome:
            entry["outcome"] = outcome
        self.history[identity].append(entry)

    def _update_if_needed(self, system):
        with self._lock:
            pending = system.get("pending")
            if pending and time.time() >= pending["at"]:
                system["pending"] = None
                self.change(system, pending["state"], pending["at"])
        return system

    def change(self, system, state, at=None):
        with self._lock:
            if system["power_state"] != state:
                system["power_state"] = state
                self.note(system["uuid"], "state", state)
                if at:
                    self.history[system["uuid"]][-1]["at"] = at

    def set_power_state(self, identity, state):
        system = self._get(identity)
        identity = system["uuid"]
        behaviour = self.behaviour[identity]
        if state in behaviour["refuses"] or state not in GOAL:
            with self._lock:
                self.note(identity, "request", state, "refused")
            time.sleep(behaviour["answer_after"])
            raise error.FishyError(f"the machine refuses {state}", 500)
        with self._lock:
            if state in behaviour["ignores"]:
                self.note(identity, "request", state, "ignored")
            else:
                self.note(identity, "request", state, "accepted")
                if "Restart" in state:
                    self.change(system, "Off")
                system["pending"] = {
                    "state": GOAL[state],
                    "at": time.time() + behaviour["delay"],
                }
        time.sleep(behaviour["answer_after"])


def serve(port, count):
    app = emulator.app
    rack = Rack(count)
    # The application builds its driver on first use and keeps it; ours takes that place for the whole class.
    type(app).systems = property(lambda _: rack)

    def known(identity):
        if identity not in rack.history:
            flask.abort(404)

    by_identity = app.wsgi_app

    def by_address(environ, respond):
        # A request through the proxy has the address in its first line, from where it comes to be the host.
        if identity := rack.at.get(environ.get("HTTP_HOST")):
            path = environ["PATH_INFO"]
            environ["PATH_INFO"] = re.sub("(?<=/Systems/)1(?=/|$)", identity, path)
        return by_identity(environ, respond)

    app.wsgi_app = by_address

    @app.before_request
    def fail_if_unwell():
        parts = flask.request.path.strip("/").split("/")
        if parts[:2] == ["redfish", "v1"] and len(parts) > 3:
            if rack.behaviour.get(parts[3], CALM)["unwell"]:
                raise error.FishyError("the BMC is not well", 503)

    @app.get("/machines")
    def machines():
        return {"machines": rack.systems}

    @app.get("/machines/<identity>")
    def machine(identity):
        known(identity)
        state = rack.get_power_state(identity)
        return {"state": state, "history": rack.history[identity]}

    @app.put("/machines/<identity>/behaviour")
    def behave(identity):
        known(identity)
        rack.behaviour[identity] = CALM | flask.request.get_json()
        return "", 204

    @app.put("/machines/<identity>/power")
    def press(identity):
        known(identity)
        system = rack._get(identity)
        state = flask.request.get_json()["state"]
        system["pending"] = None
        rack.change(system, state)
        if state == "PoweringOff":
            delay = rack.behaviour[identity]["delay"]
            system["pending"] = {"state": "Off", "at": time.time() + delay}
        return "", 204

    class Quiet(werkzeug.serving.WSGIRequestHandler):
        # One connection for many requests, and no line for each of them.
        protocol_version = "HTTP/1.1"

        def log_request(self, *args, **kwargs):
            pass

    app.run(host="127.0.0.1", port=port, threaded=True, request_handler=Quiet)


if __name__ == "__main__":
    serve(int(sys.argv[1]), int(sys.argv[2]))
